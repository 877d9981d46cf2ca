//! What a record is of, which measurements and outputs ask alike.

/// Which kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A closed window.
    Window,
    /// A read inside a window.
    Sample,
    /// Windows of a trace in which nothing came: one record for all of them.
    Silence,
    /// Everything since the start: counters added up, registers united.
    Total,
    /// Rows of a lake together.
    Union,
}

impl Kind {
    /// The name used in outputs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Window => "window",
            Kind::Sample => "sample",
            Kind::Silence => "silence",
            Kind::Total => "total",
            Kind::Union => "union",
        }
    }

    /// Whether it is of several windows together.
    pub(crate) fn is_sum(self) -> bool {
        matches!(self, Kind::Total | Kind::Union)
    }
}
