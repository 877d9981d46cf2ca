//! Packets sent by a device that DPDK drives.

use super::{failed, open};
use crate::error::Error;
use flowgauge_dpdk::{BURST, Control, Device, Queues, SendQueue};
use std::sync::Arc;
use std::thread;

/// Sends frames through one queue of a device.
pub struct DpdkSender {
    control: Arc<Control>,
    queue: SendQueue,
}

impl DpdkSender {
    /// Opens a device to send; `devargs` and `eal` as for [`dpdk`](super::dpdk).
    ///
    /// # Errors
    /// [`Error::Port`] with what DPDK says, also if it cannot send.
    pub fn new(devargs: &str, eal: Option<&str>) -> Result<Self, Error> {
        let Device { control, mut send, .. } = open(devargs, eal, Queues { receive: 0, send: 1 })?;
        match send.pop() {
            Some(queue) => Ok(DpdkSender { control, queue }),
            None => Err(Error::Port { port: format!("dpdk:{devargs}"), problem: "it has no queue to send through".to_owned() }),
        }
    }

    /// Bytes of the largest frame, without frame check sequence.
    #[must_use]
    pub fn largest(&self) -> usize {
        self.control.largest()
    }

    /// Sends up to `most` frames, and no more than the device may take at once. `fill` writes each to the beginning of a buffer and
    /// gives its length in bytes; none may be longer than [`largest`](Self::largest). Returns how many were filled: those that the
    /// device did not take yet are sent before any other, by the next call or by [`finish`](Self::finish).
    pub fn send(&mut self, most: u32, mut fill: impl FnMut(&mut [u8]) -> usize) -> u32 {
        let room = (BURST - self.queue.waiting()) as u32;
        let filled = (0..most.min(room)).take_while(|_| self.queue.push(&mut fill)).count();
        if self.queue.flush() == 0 {
            thread::yield_now();
        }
        filled as u32
    }

    /// Returns once the device has taken every frame.
    ///
    /// # Errors
    /// [`Error::Port`] if the device was taken out of the machine, or its link is down.
    pub fn finish(&mut self) -> Result<(), Error> {
        const LOOKS: u32 = 1 << 16;
        let mut refused = 0;
        while self.queue.waiting() > 0 {
            if self.queue.flush() > 0 {
                refused = 0;
                continue;
            }
            refused += 1;
            thread::yield_now();
            if refused % LOOKS == 0 {
                let problem = match self.control.link_is_up() {
                    _ if self.control.is_removed() => "the device was removed",
                    Ok(false) => "cannot send: its link is down",
                    Ok(true) => continue,
                    Err(error) => return Err(failed(self.control.name(), &error)),
                };
                return Err(Error::Port { port: format!("dpdk:{}", self.control.name()), problem: problem.to_owned() });
            }
        }
        Ok(())
    }

    /// Frames that the device took and could not send, since this was made.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.control.stats().map_or(0, |stats| stats.send_errors)
    }
}
