//! Transmission through a DPDK device.

use super::{failed, open};
use crate::error::Error;
use crate::poll::port::Outlet;
use flowgauge_dpdk::{Control, Device, Queues, SendQueue};
use std::sync::Arc;
use std::thread;

/// Sender of frames through one queue of a device.
pub struct DpdkSender {
    control: Arc<Control>,
    queue: SendQueue,
}

impl DpdkSender {
    /// Opens a device for sending; `devargs` and `eal` as for [`dpdk`](super::dpdk).
    ///
    /// # Errors
    /// [`Error::Port`] with DPDK's message, also if the device cannot send.
    pub fn new(devargs: &str, eal: Option<&str>) -> Result<Self, Error> {
        let Device { control, mut send, .. } = open(devargs, eal, Queues { receive: 0, send: 1 })?;
        match send.pop() {
            Some(queue) => Ok(DpdkSender { control, queue }),
            None => Err(Error::Port {
                port: format!("dpdk:{devargs}"),
                problem: "it has no queue to send through".to_owned(),
            }),
        }
    }

    fn refused(&self, problem: &str) -> Error {
        Error::Port { port: format!("dpdk:{}", self.control.name()), problem: problem.to_owned() }
    }

    /// Offers the batch to the device, which has accepted nothing of it `refused` times in a row.
    fn offer(&mut self, refused: &mut u32) -> Result<(), Error> {
        const MAX_ATTEMPTS: u32 = 1 << 16;
        if self.queue.flush() > 0 {
            *refused = 0;
            return Ok(());
        }
        *refused += 1;
        thread::yield_now();
        if !refused.is_multiple_of(MAX_ATTEMPTS) {
            return Ok(());
        }
        match self.control.link_is_up() {
            _ if self.control.is_removed() => Err(self.refused("the device was removed")),
            Ok(false) => Err(self.refused("cannot send: its link is down")),
            Ok(true) => Ok(()),
            Err(error) => Err(failed(self.control.name(), &error)),
        }
    }
}

impl Outlet for DpdkSender {
    fn interface(&self) -> &str {
        self.control.name()
    }

    fn largest(&self) -> usize {
        self.control.largest()
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Error> {
        if frame.len() > self.largest() {
            return Err(self.refused(&format!(
                "cannot send a frame of {} bytes: {} at the most",
                frame.len(),
                self.largest()
            )));
        }
        let mut refused = 0;
        while !self.queue.push(|buffer| {
            buffer[..frame.len()].copy_from_slice(frame);
            frame.len()
        }) {
            self.offer(&mut refused)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Error> {
        let mut refused = 0;
        while self.queue.waiting() > 0 {
            self.offer(&mut refused)?;
        }
        Ok(())
    }

    /// Flushes; the device transmits the packets that it has accepted.
    fn finish(&mut self) -> Result<(), Error> {
        self.flush()
    }

    fn dropped(&self) -> u64 {
        self.control.stats().map_or(0, |stats| stats.send_errors)
    }
}
