//! Network interfaces as the kernel reports them, by netlink, `ioctl` and `/proc`.
//!
//! [`device`] combines the rest into names, link types and counters of an interface; `departures`
//! waits for changes, and stores the interfaces that leave; `stack` finds interfaces above others;
//! [`netlink`] and `ioctl` make the single requests.

mod departures;
pub(crate) mod device;
mod ioctl;
pub mod netlink;
mod stack;

pub use departures::{Departures, LinkChanges};
pub use device::{DeviceCounters, link_of, merged, merges_in_device};
pub use ioctl::Interface;
pub use netlink::is_virtual_link;
pub use stack::Stack;
