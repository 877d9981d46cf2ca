//! Binding to the part of DPDK that flowgauge uses: devices of any driver, their queues, and
//! packets in and out of them.
//!
//! ```no_run
//! # #[cfg(feature = "link")]
//! # fn main() -> Result<(), flowgauge_dpdk::Error> {
//! use flowgauge_dpdk::{Device, Eal, Queues};
//!
//! let eal = Eal::start_once(&["--in-memory", "--no-pci"])?;
//! let mut device = Device::open(&eal, "net_null0", Queues { receive: 1, send: 0 })?;
//! let frames = device.receive[0].burst(|frame, wire_length| println!("{frame:02x?} of {wire_length}"));
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "link"))]
//! # fn main() {}
//! ```
//!
//! It binds to the system's DPDK (22.11 or later), with the feature `link` only; without it this
//! crate is empty. It calls DPDK through a few functions in C (`shim.c`), since much of DPDK is
//! inline and its structs differ from release to release. Drivers are plugins that DPDK finds itself.

#[cfg(feature = "link")]
mod control;
#[cfg(feature = "link")]
mod eal;
#[cfg(feature = "link")]
mod error;
#[cfg(feature = "link")]
mod ffi;
#[cfg(feature = "link")]
mod queue;

#[cfg(feature = "link")]
pub use crate::{
    control::{Control, Queues, Stats},
    eal::{Eal, arguments, version},
    error::Error,
    queue::{BURST, Device, ReceiveQueue, SendQueue},
};
