//! State shared by all queues of a device: opening it, its counters and link, closing it.
#![allow(
    unsafe_code,
    reason = "opens, asks and closes devices of DPDK; this module holds what must be true for that"
)]

use crate::eal::{self, listen};
use crate::error::{Error, reason};
use crate::ffi::{self, Pool, RawDevice, RawStats};
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::sync::{Mutex, PoisonError};

/// Length of a queue in packets, if the driver leaves the choice.
const DESCRIPTORS: u16 = 2048;

/// Bytes of an Ethernet header with two VLAN tags.
const LINK_HEADER: usize = 22;

/// Numbers of queues to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Queues {
    /// Receive queues. The device distributes packets over several ones by a hash of addresses and
    /// ports (RSS), if it can.
    pub receive: u16,
    /// Send queues.
    pub send: u16,
}

/// Packets since the device was opened, as its driver counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Packets received.
    pub received: u64,
    /// Packets dropped because their queue was full (`imissed`).
    pub missed: u64,
    /// Packets received with errors (`ierrors`).
    pub errors: u64,
    /// Packets for which no buffer was free (`rx_nombuf`).
    pub no_buffer: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that the device failed to send (`oerrors`).
    pub send_errors: u64,
}

/// State shared by the parts of an open device. Dropping the last part closes the device.
pub struct Control {
    raw: RawDevice,
    name: String,
    /// Number of receive queues.
    receiving: u16,
}

// SAFETY: the pointers in `raw` lead to a device and a pool that belong to DPDK, not to a thread.
// They are read only by calls here, which hold the lock of `control()`, and by queues, which have
// one owner each.
unsafe impl Send for Control {}
// SAFETY: as above; no method changes `raw`.
unsafe impl Sync for Control {}

/// Ports that are open in this process.
static OPEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Finds a device, or adds it if it is one that software makes.
fn find(devargs: &str) -> Result<Control, Error> {
    let device = devargs.to_owned();
    let failed = |why: String| Error::Device {
        device: device.clone(),
        operation: "open it".to_owned(),
        why,
    };
    let text = CString::new(devargs)
        .map_err(|_| failed("its description holds a zero byte".to_owned()))?;
    // SAFETY: plain integers and pointers, valid when zeroed.
    let mut raw: RawDevice = unsafe { std::mem::zeroed() };
    let _locked = eal::control();
    // SAFETY: DPDK runs, which the `Eal` proves; the string ends with a zero byte; `raw` has the
    // declared type; the lock is held.
    let (code, said) = listen(|| unsafe { ffi::fg_open(text.as_ptr(), &raw mut raw) });
    if code < 0 {
        return Err(failed(reason(&said, code)));
    }
    if !OPEN.lock().unwrap_or_else(PoisonError::into_inner).insert(raw.port) {
        return Err(Error::InUse { device });
    }
    Ok(Control { raw, name: device, receiving: 0 })
}

impl Control {
    /// Opens a device and starts it, as [`Device::open`](crate::Device::open).
    pub(crate) fn open(devargs: &str, queues: Queues) -> Result<Control, Error> {
        let mut control = find(devargs)?;
        let raw = &mut control.raw;
        let most = [
            ("receive", raw.max_rx_queues, queues.receive),
            ("send", raw.max_tx_queues, queues.send),
        ];
        // Many drivers fail if a device only receives or only sends.
        let rx = queues.receive.max(raw.max_rx_queues.min(1));
        let tx = queues.send.max(raw.max_tx_queues.min(1));
        if let Some(&(way, most, wanted)) = most.iter().find(|(_, most, wanted)| wanted > most) {
            return Err(Error::Queues {
                device: devargs.to_owned(),
                driver: control.driver(),
                way,
                most,
                wanted,
            });
        }
        let mut step = c"".as_ptr();
        let (code, said) = {
            let _locked = eal::control();
            // SAFETY: `find` filled in `raw`, and the device was not started; the lock is held.
            listen(|| unsafe { ffi::fg_start(raw, rx, tx, DESCRIPTORS, &raw mut step) })
        };
        if code < 0 {
            // SAFETY: a string constant, ours or the shim's.
            let operation = unsafe { CStr::from_ptr(step) }.to_string_lossy().into_owned();
            return Err(Error::Device {
                device: devargs.to_owned(),
                operation,
                why: reason(&said, code),
            });
        }
        control.receiving = queues.receive;
        Ok(control)
    }

    /// Returns the description that the device was opened with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of its driver.
    #[must_use]
    pub fn driver(&self) -> String {
        // SAFETY: the shim wrote a string that ends within the array.
        unsafe { CStr::from_ptr(self.raw.driver.as_ptr()) }.to_string_lossy().into_owned()
    }

    /// Returns whether it distributes packets over several receive queues by a hash (RSS). If not,
    /// the driver decides which queue receives a packet.
    #[must_use]
    pub fn has_rss(&self) -> bool {
        self.raw.rss != 0
    }

    /// Returns the size of the largest packet that can be sent, in bytes, with its link header and
    /// two VLAN tags.
    #[must_use]
    pub fn largest(&self) -> usize {
        usize::from(self.raw.room).min(usize::from(self.raw.mtu) + LINK_HEADER)
    }

    /// Returns the driver's counters.
    ///
    /// # Errors
    /// [`Error::Device`] if it cannot be asked.
    pub fn stats(&self) -> Result<Stats, Error> {
        let mut raw = RawStats::default();
        // SAFETY: the port is open while `self` is there; `raw` has the declared type.
        self.ask("read its counters", || unsafe { ffi::fg_stats(self.raw.port, &raw mut raw) })?;
        let RawStats { received, missed, errors, no_buffer, sent, send_errors } = raw;
        Ok(Stats { received, missed, errors, no_buffer, sent, send_errors })
    }

    /// Returns the number of packets that wait in all receive queues, if its driver reports it.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        let _locked = eal::control();
        // SAFETY: the port is open while `self` is there, with as many queues; the lock is held.
        // Drivers only read what a worker writes.
        (0..self.receiving)
            .map(|queue| u64::from(unsafe { ffi::fg_waiting(self.raw.port, queue) }))
            .sum()
    }

    /// Returns whether its link is up, without waiting.
    ///
    /// # Errors
    /// [`Error::Device`] if it cannot be asked.
    pub fn link_is_up(&self) -> Result<bool, Error> {
        // SAFETY: the port is open while `self` is there.
        self.ask("ask for its link", || unsafe { ffi::fg_link(self.raw.port) }).map(|up| up == 1)
    }

    /// Sets its link up or down.
    ///
    /// # Errors
    /// [`Error::Device`] if its driver cannot.
    pub fn set_link(&self, up: bool) -> Result<(), Error> {
        // SAFETY: the port is open while `self` is there.
        self.ask("set its link", || unsafe { ffi::fg_set_link(self.raw.port, i32::from(up)) })
            .map(drop)
    }

    /// Returns whether it was removed from the machine.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        // SAFETY: the port is open while `self` is there.
        self.ask("ask whether it is there", || unsafe { ffi::fg_is_removed(self.raw.port) })
            .is_ok_and(|removed| removed == 1)
    }

    fn ask(&self, operation: &str, call: impl FnOnce() -> i32) -> Result<i32, Error> {
        let (code, said) = {
            let _locked = eal::control();
            listen(call)
        };
        let failed = || Error::Device {
            device: self.name.clone(),
            operation: operation.to_owned(),
            why: reason(&said, code),
        };
        if code < 0 { Err(failed()) } else { Ok(code) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.raw.port
    }

    pub(crate) fn pool(&self) -> *mut Pool {
        self.raw.pool
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _locked = eal::control();
        // SAFETY: the device is open and was not closed; queues, which have shares in this, are
        // gone; the lock is held.
        unsafe { ffi::fg_close(&raw mut self.raw) };
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.raw.port);
    }
}
