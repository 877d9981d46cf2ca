//! Large values on the heap that never were on a stack.
#![allow(
    unsafe_code,
    reason = "the standard library cannot know that these types are valid when zeroed"
)]

use crate::{Bank, Exact, Lasting, Shared, SharedLasting, State, WideBank};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::cell::UnsafeCell;

/// Types whose values are valid, and empty, when all their bytes are zero.
///
/// # Safety
/// Nothing but integers, atomic or not, and arrays and structs of them.
pub unsafe trait Zeroed: Sized {
    /// An empty one.
    #[must_use]
    fn boxed() -> Box<Self> {
        // SAFETY: zeros are a value, as implementors promise.
        unsafe { Box::new_zeroed().assume_init() }
    }

    /// The same, shared.
    #[must_use]
    fn counted() -> Arc<Self> {
        // SAFETY: as above.
        unsafe { Arc::new_zeroed().assume_init() }
    }
}

// SAFETY: structs of integers and arrays of them.
unsafe impl Zeroed for Bank {}
// SAFETY: as above.
unsafe impl Zeroed for State {}
// SAFETY: a cell is as what it holds.
unsafe impl<T: Zeroed> Zeroed for UnsafeCell<T> {}
// SAFETY: as above, of atomic ones.
unsafe impl Zeroed for Shared {}
// SAFETY: as above.
unsafe impl Zeroed for SharedLasting {}
// SAFETY: as above.
unsafe impl Zeroed for Lasting {}
// SAFETY: as above.
unsafe impl Zeroed for WideBank {}
// SAFETY: as above.
unsafe impl Zeroed for Exact {}
