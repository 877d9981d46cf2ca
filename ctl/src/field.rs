//! Fields of a report: each is named once, beside its value, and every output is made from it.
//!
//! A measurement adds its fields and figures to [`Fields`]. JSON lines take fields by their names,
//! the CSV and a lake those with a column, and metrics, OTLP, gRPC and the page draw the figures.

use crate::figure::{Distribution, Figure, Ranked, Shape, Unit};
use crate::number::Number;
use crate::row::{Row, Value};
use serde::ser::{Serialize, Serializer};
use std::borrow::Cow;

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Datum {
    /// A number, flag or text; without one the field is left out.
    One(Value),
    /// Nothing, which is written nevertheless.
    Null,
    /// Values by name. Those that hold nothing are left out.
    Object(Vec<(Cow<'static, str>, Datum)>),
    /// Values in their order.
    Array(Vec<Datum>),
}

impl Datum {
    /// Whether a field with this value is left out.
    fn is_nothing(&self) -> bool {
        matches!(self, Datum::One(value) if value.is_nothing())
    }
}

impl<T: Into<Value>> From<T> for Datum {
    fn from(value: T) -> Self {
        Datum::One(value.into())
    }
}

impl From<Number> for Datum {
    fn from(Number { value, low, high }: Number) -> Self {
        object([("value", value.into()), ("low", low.into()), ("high", high.into())])
    }
}

impl From<Fields> for Datum {
    /// Of the fields with a name.
    fn from(fields: Fields) -> Self {
        let named = fields.fields.into_iter().filter(|field| !field.name.is_empty());
        Datum::Object(named.map(|field| (field.name, field.value)).collect())
    }
}

/// Returns values by name.
pub(crate) fn object<const N: usize>(fields: [(&'static str, Datum); N]) -> Datum {
    Datum::Object(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

impl Serialize for Datum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Datum::One(value) => value.serialize(serializer),
            Datum::Null => serializer.serialize_none(),
            Datum::Object(fields) => serializer.collect_map(
                fields.iter().filter(|(_, value)| !value.is_nothing()).map(|(name, it)| (name, it)),
            ),
            Datum::Array(values) => serializer.collect_seq(values),
        }
    }
}

/// Column of the CSV.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Column {
    /// Its place among all columns, which never changes.
    pub(crate) position: u16,
    pub(crate) name: Cow<'static, str>,
}

/// Field of a report.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    /// Key in JSON; empty for a value that JSON has elsewhere.
    name: Cow<'static, str>,
    value: Datum,
    csv: Option<Column>,
    lake: Option<&'static str>,
}

impl Field {
    /// Gives it a column of the CSV.
    pub(crate) fn csv(&mut self, position: u16, name: impl Into<Cow<'static, str>>) -> &mut Self {
        self.csv = Some(Column { position, name: name.into() });
        self
    }

    /// Gives it a column of a lake.
    pub(crate) fn lake(&mut self, name: &'static str) -> &mut Self {
        self.lake = Some(name);
        self
    }
}

/// Fields and figures of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields {
    fields: Vec<Field>,
    /// JSON of a report that is no object of its fields.
    json: Option<Datum>,
    /// In the order in which they are drawn.
    pub(crate) figures: Vec<Figure>,
}

impl Fields {
    /// Adds a field with this key in JSON.
    pub(crate) fn field(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Datum>,
    ) -> &mut Field {
        let field = Field { name: name.into(), value: value.into(), csv: None, lake: None };
        self.fields.push_mut(field)
    }

    /// Adds a field that only the CSV or a lake has.
    pub(crate) fn column(&mut self, value: impl Into<Value>) -> &mut Field {
        self.field("", value)
    }

    /// Sets the JSON of a report that is no object of its fields.
    pub(crate) fn json(&mut self, json: Datum) {
        self.json = Some(json);
    }

    /// Returns the columns of the CSV, in the order in which they were added.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&Column, &Value)> {
        self.fields.iter().filter_map(|field| match (&field.csv, &field.value) {
            (Some(column), Datum::One(value)) => Some((column, value)),
            _ => None,
        })
    }

    /// Adds the columns of a lake to a row.
    pub(crate) fn store(&self, row: &mut Row) {
        for field in &self.fields {
            if let (Some(name), Datum::One(value)) = (field.lake, &field.value) {
                row.put(name, value.clone());
            }
        }
    }

    fn figure(
        &mut self,
        name: &'static str,
        title: &'static str,
        unit: Unit,
        labels: Labels<'_>,
        shape: Shape,
    ) {
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        let labels = labels.map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.figures.push(Figure { name, title, unit, labels, shape, truth: None });
    }

    /// Draws a number with its interval or bounds.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        title: &'static str,
        unit: Unit,
        labels: Labels<'_>,
        number: Number,
    ) {
        self.figure(name, title, unit, labels, Shape::Number(number));
    }

    /// Adds the exact value to the figure that was drawn last, if it is known.
    pub(crate) fn truth(&mut self, truth: Option<f64>) {
        if let Some(figure) = self.figures.last_mut() {
            figure.truth = truth;
        }
    }

    /// Draws a number that those of other windows may be added to.
    pub(crate) fn count(
        &mut self,
        name: &'static str,
        title: &'static str,
        unit: Unit,
        labels: Labels<'_>,
        count: f64,
    ) {
        self.figure(name, title, unit, labels, Shape::Count(count));
    }

    /// Draws a flag.
    pub(crate) fn state(
        &mut self,
        name: &'static str,
        title: &'static str,
        labels: Labels<'_>,
        state: bool,
    ) {
        self.figure(name, title, Unit::Things, labels, Shape::State(state));
    }

    /// Draws the largest of many.
    pub(crate) fn ranking(
        &mut self,
        name: &'static str,
        title: &'static str,
        unit: Unit,
        labels: Labels<'_>,
        all: impl IntoIterator<Item = Ranked>,
    ) {
        self.figure(name, title, unit, labels, Shape::Ranking(all.into_iter().collect()));
    }

    /// Draws a histogram.
    pub(crate) fn distribution(
        &mut self,
        name: &'static str,
        title: &'static str,
        unit: Unit,
        labels: Labels<'_>,
        distribution: Distribution,
    ) {
        self.figure(name, title, unit, labels, Shape::Distribution(distribution));
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(json) = &self.json {
            return json.serialize(serializer);
        }
        let named = self.fields.iter().filter(|field| !field.name.is_empty());
        let there = named.filter(|field| !field.value.is_nothing());
        serializer.collect_map(there.map(|field| (&field.name, &field.value)))
    }
}

/// Labels of a figure.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];
