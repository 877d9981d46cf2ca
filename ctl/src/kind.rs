//! The kind of a record, which measurements and outputs share.

/// Kind of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RecordKind {
    /// A closed window.
    #[default]
    Window,
    /// A sample of the open window.
    Sample,
    /// Consecutive windows of a trace without packets, in one record.
    Silence,
    /// The whole run: counters added, registers merged.
    Total,
    /// Merged rows of a lake.
    Union,
}

impl RecordKind {
    /// Returns the name used in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Window => "window",
            RecordKind::Sample => "sample",
            RecordKind::Silence => "silence",
            RecordKind::Total => "total",
            RecordKind::Union => "union",
        }
    }

    /// Whether the record merges several windows.
    pub(crate) fn is_sum(self) -> bool {
        matches!(self, RecordKind::Total | RecordKind::Union)
    }
}
