//! Network interfaces: what the kernel tells of them, by netlink, by `ioctl` and in `/proc`.

pub(crate) mod device;
mod ioctl;
mod links;
pub mod netlink;
mod queue;
mod statistics;

pub use device::{DeviceCounters, link_of, merged};
pub(crate) use ioctl::Interface;
pub use links::LinkChanges;
