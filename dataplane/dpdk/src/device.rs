//! Devices: opened by name, closed when the last of their parts is dropped.
#![allow(
    unsafe_code,
    reason = "writes the free buffers of a device; this module holds what must be true for that"
)]

use crate::control::{Control, Queues};
use crate::eal::Eal;
use crate::error::Error;
use crate::ffi::{self, Fill};
use crate::queue::{ReceiveQueue, SendQueue};
use std::ffi::c_void;
use std::slice;
use std::sync::Arc;

/// An open device.
pub struct Device {
    /// Handle for operations on the whole device.
    pub control: Arc<Control>,
    /// Requested receive queues.
    pub receive: Vec<ReceiveQueue>,
    /// Requested send queues.
    pub send: Vec<SendQueue>,
}

impl Device {
    /// Opens a device and starts it. `devargs` is a bus address or a software device's name, with
    /// options behind commas: `0000:03:00.0`, `net_pcap0,rx_pcap=trace.pcap`. The device also
    /// receives packets that are addressed to others.
    ///
    /// # Errors
    /// [`Error::Device`] with DPDK's message, [`Error::Queues`] if it has fewer queues,
    /// [`Error::InUse`] if this process has already opened it.
    pub fn open(_: &Eal, devargs: &str, queues: Queues) -> Result<Device, Error> {
        let control = Arc::new(Control::open(devargs, queues)?);
        Ok(Device {
            receive: (0..queues.receive)
                .map(|queue| ReceiveQueue::new(Arc::clone(&control), queue))
                .collect(),
            send: (0..queues.send)
                .map(|queue| SendQueue::new(Arc::clone(&control), queue))
                .collect(),
            control,
        })
    }

    /// Calls `fill` once for every free buffer. A device that delivers buffers unchanged, such as
    /// `net_null`, then delivers these bytes: for measurements.
    pub fn fill_buffers(&mut self, mut fill: impl FnMut(&mut [u8])) {
        unsafe extern "C" fn call<F: FnMut(&mut [u8])>(
            context: *mut c_void,
            data: *mut u8,
            size: u32,
        ) {
            // SAFETY: `context` is the closure below, which is borrowed by this call only; `data` is a
            // free buffer of this size, and all of it was initialised, at least by the kernel.
            unsafe { (*context.cast::<F>())(slice::from_raw_parts_mut(data, size as usize)) }
        }
        fn caller<F: FnMut(&mut [u8])>(_: &F) -> Fill {
            call::<F>
        }
        let call = caller(&fill);
        // SAFETY: the pool is there while the device is; `call` and `context` belong together.
        unsafe { ffi::fg_fill(self.control.pool(), call, (&raw mut fill).cast()) };
    }
}
