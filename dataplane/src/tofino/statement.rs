//! Settings that a program was compiled with, as it states them: the source attaches each compiler
//! definition to the table `bank` as an annotation, which the compiler writes to the schema.

use super::names;
use crate::error::Failure;
use flowgauge_bfruntime::schema::Schema;
use flowgauge_core::KeyKind;
use std::collections::BTreeMap;

/// Values of a program's compiler definitions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StatedSettings(BTreeMap<String, u32>);

/// Returns the definition and the value of an annotation, if it states a setting.
fn setting(annotation: &str) -> Option<(&str, &str)> {
    let texts = annotation.strip_prefix("@user_annotation(")?.strip_suffix(')')?;
    let (definition, value) = texts.split_once(',')?;
    let definition = definition.trim().trim_matches('"');
    definition.starts_with("FLOWGAUGE_").then(|| (definition, value.trim().trim_matches('"')))
}

impl StatedSettings {
    /// Reads the statement of a program.
    pub(super) fn read(schema: &Schema) -> Result<Self, Failure> {
        let table = schema.table(names::BANK).map_err(Failure::program)?;
        let mut values = BTreeMap::new();
        for (definition, value) in table.annotations.iter().filter_map(|text| setting(text)) {
            let number = value.parse().map_err(|_| {
                Failure::program(format!("its {definition} is {value}, which is no number"))
            })?;
            values.insert(definition.to_owned(), number);
        }
        Ok(StatedSettings(values))
    }

    /// Returns the value of a definition.
    pub(super) fn value(&self, definition: &str) -> Result<u32, Failure> {
        self.0.get(definition).copied().ok_or_else(|| {
            Failure::program(format!(
                "it does not state its {definition}; compile it from the p4/ of this version"
            ))
        })
    }

    /// Returns whether a definition is not zero.
    pub(super) fn is_on(&self, definition: &str) -> Result<bool, Failure> {
        Ok(self.value(definition)? != 0)
    }

    /// Returns the one of `all` whose number is the value of a definition.
    pub(super) fn one_of<T: Copy>(
        &self,
        definition: &str,
        all: impl IntoIterator<Item = T>,
        number: impl Fn(T) -> u32,
    ) -> Result<T, Failure> {
        let value = self.value(definition)?;
        let mut all = all.into_iter();
        all.find(|one| number(*one) == value).ok_or_else(|| self.out_of_range(definition))
    }

    /// Returns the flow key that is the value of a definition.
    pub(super) fn key(&self, definition: &str) -> Result<KeyKind, Failure> {
        self.one_of(definition, KeyKind::ALL, |key| key as u32)
    }

    /// Returns the size that a definition states, as a power of two below 2^32.
    pub(super) fn bits(&self, definition: &str) -> Result<u8, Failure> {
        let bits = u8::try_from(self.value(definition)?).ok().filter(|bits| *bits < 32);
        bits.ok_or_else(|| self.out_of_range(definition))
    }

    /// Returns the failure of a definition whose value no program can have.
    pub(super) fn out_of_range(&self, definition: &str) -> Failure {
        let value = self.0.get(definition).copied().unwrap_or_default();
        Failure::program(format!("its {definition} is {value}, which is out of range"))
    }
}
