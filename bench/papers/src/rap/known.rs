//! Reference values for tests. They are not published, so no report shows them.

use super::experiment::ALPHAS;
use flowgauge_core::heavy::Algorithm;

/// Shares of the true top 256 in 256 slots after 2 million Zipf packets with exponents 1.0, 1.2 and
/// 1.5, printed to 0.01, from a simulation of the definitions by another program; the number of
/// runs is unknown.
pub(super) const fn share(algorithm: Algorithm) -> [f64; ALPHAS.len()] {
    match algorithm {
        Algorithm::Off => [0.0; 3],
        Algorithm::Rap => [0.94, 0.95, 0.95],
        Algorithm::SpaceSaving => [0.36, 0.46, 0.60],
        Algorithm::DWayRap => [0.74, 0.79, 0.79],
        Algorithm::HashPipe => [0.55, 0.58, 0.61],
        Algorithm::Precision => [0.36, 0.53, 0.59],
    }
}
