//! Allocation of large values on the heap without a copy, neither on the stack nor on the heap.
#![allow(unsafe_code, reason = "zerocopy allocates zeroed boxes, but no zeroed Arc")]

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
        // An `Arc` of a box would copy the value, and make the kernel provide memory for all of it.
        // SAFETY: a value of zeros is valid, by `FromZeros`.
        unsafe { Arc::new_zeroed().assume_init() }
    }
}

impl<T: FromZeros> Zeroed for T {}
