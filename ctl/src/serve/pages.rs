//! Parts of `serve` that a build without servers has: the frame of pages, the page of a capture, and
//! the sandbox of threads.

mod event;
mod fence;
mod page;
#[cfg(feature = "report")]
mod report;

pub use fence::drop_capabilities;
pub use page::document;
#[cfg(feature = "report")]
pub use report::{Fact, ReportPage};
