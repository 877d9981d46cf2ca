//! Allocation of large values on the heap without a copy on the stack.

use alloc::alloc::handle_alloc_error;
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::alloc::Layout;
use zerocopy::FromZeros;

/// Allocation of values that are empty when all their bytes are zero.
pub trait Zeroed: FromZeros + Sized {
    /// Allocates an empty value.
    #[must_use]
    fn boxed() -> Box<Self> {
        Self::new_box_zeroed().unwrap_or_else(|_| handle_alloc_error(Layout::new::<Self>()))
    }

    /// Allocates an empty value with shared ownership.
    #[must_use]
    fn counted() -> Arc<Self> {
        Arc::from(Self::boxed())
    }
}

impl<T: FromZeros> Zeroed for T {}
