//! Devices: opened by name, counted on, closed when the last of their parts is dropped.
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
    /// What concerns all queues.
    pub control: Arc<Control>,
    /// The receive queues that were asked for.
    pub receive: Vec<ReceiveQueue>,
    /// The send queues that were asked for.
    pub send: Vec<SendQueue>,
}

impl Device {
    /// Opens a device and starts it. `devargs` is a bus address or a software device's name, and
    /// options behind commas: `0000:03:00.0`, `net_pcap0,rx_pcap=trace.pcap`. Receiving from it
    /// includes what is addressed to others.
    ///
    /// # Errors
    /// [`Error::Device`] with what DPDK says, [`Error::Queues`] if it has fewer queues,
    /// [`Error::InUse`] if this process has opened it already.
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

    /// Writes over every free buffer; `fill` is given each once. A device that hands buffers out as
    /// they are, as `net_null` does, then delivers what was written: for measurements.
    pub fn fill_buffers(&mut self, mut fill: impl FnMut(&mut [u8])) {
        unsafe extern "C" fn call<F: FnMut(&mut [u8])>(
            context: *mut c_void,
            data: *mut u8,
            size: u32,
        ) {
            // SAFETY: `context` is the closure below, which nobody else uses meanwhile; `data` is a
            // buffer of this size that is nobody's, and all of it was written once, by the kernel
            // at least.
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
