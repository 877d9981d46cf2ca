//! Network interfaces as the kernel reports them, by netlink, `ioctl` and `/proc`.
//!
//! [`device`] combines the rest into names, link types and counters of an interface; `links` waits
//! for changes, of which `departures` stores the interfaces that leave; `stack` finds interfaces
//! above others; [`netlink`], `ioctl`, `kind` and `queue` make the single requests.

mod departures;
pub(crate) mod device;
mod ioctl;
mod kind;
mod links;
pub mod netlink;
mod queue;
mod stack;

pub use departures::Departures;
pub use device::{DeviceCounters, link_of, merged, merges_in_device};
pub use ioctl::Interface;
pub use kind::is_virtual_link;
pub use links::LinkChanges;
pub use stack::Stack;
