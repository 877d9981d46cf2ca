//! Fields of a report: each is named once, together with its value, and every output uses it.
//!
//! A measurement adds its fields and figures to [`Fields`]. JSON lines take fields by their names,
//! the CSV and a lake those with a column, and metrics, OTLP, gRPC and the page draw the figures.

use crate::figure::{Figure, Number, RankingItem, Shape, Unit};
use crate::row::{Row, Value};
use serde::ser::{Serialize, Serializer};
use std::borrow::Cow;

/// Value of a field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Datum {
    /// A number, flag or text; an empty one is omitted.
    One(Value),
    /// An explicit null.
    Null,
    /// Values by name; empty ones are omitted.
    Object(Vec<(Cow<'static, str>, Datum)>),
    /// Values in order.
    Array(Vec<Datum>),
}

impl Datum {
    /// Whether a field with this value is omitted.
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
    /// Makes an object of the fields that have a name.
    fn from(fields: Fields) -> Self {
        let named = fields.fields.into_iter().filter(|field| !field.name.is_empty());
        Datum::Object(named.map(|field| (field.name, field.value)).collect())
    }
}

/// Makes an object of named values.
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

/// Column of the CSV output.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CsvColumn {
    /// Position among all columns. It never changes.
    pub(crate) position: u16,
    pub(crate) name: Cow<'static, str>,
}

/// Field of a report, with its columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    /// Key in JSON; empty for a value that JSON has elsewhere.
    name: Cow<'static, str>,
    value: Datum,
    csv: Option<CsvColumn>,
    lake: Option<&'static str>,
}

impl Field {
    /// Adds the field to the CSV, at this position.
    pub(crate) fn csv(&mut self, position: u16, name: impl Into<Cow<'static, str>>) -> &mut Self {
        self.csv = Some(CsvColumn { position, name: name.into() });
        self
    }

    /// Adds the field to a lake's rows.
    pub(crate) fn lake(&mut self, name: &'static str) -> &mut Self {
        self.lake = Some(name);
        self
    }
}

/// Fields and figures of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Fields {
    fields: Vec<Field>,
    /// JSON of a report that is not an object of its fields.
    json: Option<Datum>,
    /// Figures in the order in which they are drawn.
    pub(crate) figures: Vec<Figure>,
}

impl Fields {
    /// Adds a field with a key in JSON.
    pub(crate) fn field(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        value: impl Into<Datum>,
    ) -> &mut Field {
        let field = Field { name: name.into(), value: value.into(), csv: None, lake: None };
        self.fields.push_mut(field)
    }

    /// Adds a field for the CSV or a lake only.
    pub(crate) fn column(&mut self, value: impl Into<Value>) -> &mut Field {
        self.field("", value)
    }

    /// Replaces the object of fields as the report's JSON.
    pub(crate) fn json(&mut self, json: Datum) {
        self.json = Some(json);
    }

    /// Returns the fields that have a key in JSON and a value.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&str, &Datum)> {
        let fields = self.fields.iter().map(|field| (&*field.name, &field.value));
        fields.filter(|(name, value)| !name.is_empty() && !value.is_nothing())
    }

    /// Returns the CSV columns, in the order in which they were added.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&CsvColumn, &Value)> {
        self.fields.iter().filter_map(|field| match (&field.csv, &field.value) {
            (Some(column), Datum::One(value)) => Some((column, value)),
            _ => None,
        })
    }

    /// Adds the lake columns to a row.
    pub(crate) fn store(&self, row: &mut Row) {
        for field in &self.fields {
            if let (Some(name), Datum::One(value)) = (field.lake, &field.value) {
                row.put(name, value.clone());
            }
        }
    }

    /// Adds a figure. Labels without a value are left out.
    pub(crate) fn figure(
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

    /// Adds a figure: a number with its interval or bounds.
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

    /// Sets the exact value of the last figure, if it is known.
    pub(crate) fn truth(&mut self, truth: Option<f64>) {
        if let Some(figure) = self.figures.last_mut() {
            figure.truth = truth;
        }
    }

    /// Adds a figure: a number that can be added up over windows.
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

    /// Adds a figure for each value of a label: numbers of things that can be added up.
    pub(crate) fn counts<'a>(
        &mut self,
        name: &'static str,
        title: &'static str,
        label: &'static str,
        counts: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        for (value, count) in counts {
            self.count(name, title, Unit::Things, &[(label, value)], count as f64);
        }
    }

    /// Adds a figure: the largest of many items.
    pub(crate) fn ranking(
        &mut self,
        name: &'static str,
        title: &'static str,
        unit: Unit,
        labels: Labels<'_>,
        all: impl IntoIterator<Item = RankingItem>,
    ) {
        self.figure(name, title, unit, labels, Shape::Ranking(all.into_iter().collect()));
    }
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(json) = &self.json {
            return json.serialize(serializer);
        }
        serializer.collect_map(self.named())
    }
}

/// Labels of a figure.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];
