//! Reference values for tests. They are not published, so no report shows them.

use super::{Errors, Method};

/// Errors in percent at the median and the 95th and 99th percentiles, and the largest gap, for the
/// log-uniform trace of 1.25 million requests with 2^10 slots. Absolute values, printed with two
/// digits, from a simulation of the definitions by another program; the number of runs is unknown.
pub(super) fn errors(method: Method) -> Option<Errors> {
    let (percentiles, gap) = match method {
        Method::Fridge => ([3.8, 2.9, 0.6], 0.11),
        Method::Overwrite => ([90.0, 98.0, 97.0], 5.5),
        Method::Expiry(0.99) => ([4.0, 5.5, 6.7], 0.10),
        Method::Expiry(0.8) => ([50.0, 73.0, 75.0], 1.9),
        Method::MultiFridge | Method::Expiry(_) => return None,
    };
    Some(Errors { percentiles, gap })
}
