//! Transmission of generated and captured packets through an [`Outlet`].

use flowgauge_core::Link;
use flowgauge_dataplane::Error;
use flowgauge_dataplane::poll::port::{Outlet, Port, PortFrame, Ports, Received};
use std::thread;
use std::time::{Duration, Instant};

/// Interval between checks whether a packet is due.
const CHECK_INTERVAL: Duration = Duration::from_micros(50);
/// Length of an Ethernet header, in bytes.
const ETHERNET_HEADER_BYTES: usize = 14;

/// Result of a transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets that the capture contains only in part; that part was sent.
    pub cut: u64,
    /// Packets that no Ethernet interface of this MTU can send.
    pub left_out: u64,
    /// Packets of any sender that the interface dropped meanwhile.
    pub dropped: u64,
    /// Duration of the transmission.
    pub lasted: Duration,
}

/// A transmission of packets from ports through an interface.
pub struct Transmission<'a> {
    sender: Box<dyn Outlet>,
    /// Packets per second; `None` sends them at their own pace.
    rate: Option<f64>,
    is_interrupted: &'a dyn Fn() -> bool,
    started: Instant,
    sent: Sent,
    failure: Option<Error>,
}

impl<'a> Transmission<'a> {
    /// Creates a transmission at `rate` packets per second (`None`: at their own pace) that ends
    /// early once `is_interrupted` returns true.
    #[must_use]
    pub fn new(
        sender: Box<dyn Outlet>,
        rate: Option<f64>,
        is_interrupted: &'a dyn Fn() -> bool,
    ) -> Self {
        Transmission {
            sender,
            rate,
            is_interrupted,
            started: Instant::now(),
            sent: Sent::default(),
            failure: None,
        }
    }

    /// Sends the packets of these ports and calls `progress` repeatedly.
    ///
    /// # Errors
    /// Failures of the sender.
    pub fn send<P: Port>(
        mut self,
        ports: Ports<P>,
        progress: &mut dyn FnMut(),
    ) -> Result<Sent, Error> {
        self.started = Instant::now();
        for mut port in ports.ports {
            while self.failure.is_none() && !(self.is_interrupted)() {
                match port.receive(&mut |frame| self.take(&frame)) {
                    Received::Frames => {}
                    Received::Idle => {
                        self.flush();
                        thread::sleep(CHECK_INTERVAL);
                    }
                    Received::Ended => break,
                }
                progress();
            }
        }
        self.flush();
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.sender.finish()?;
        Ok(Sent { dropped: self.sender.dropped(), lasted: self.started.elapsed(), ..self.sent })
    }

    fn flush(&mut self) {
        if self.failure.is_none() {
            self.failure = self.sender.flush().err();
        }
    }

    fn take(&mut self, frame: &PortFrame<'_>) {
        if let Some(rate) = self.rate {
            self.wait_for((self.sent.packets + self.sent.left_out) as f64 / rate);
        }
        if self.failure.is_some() || (self.is_interrupted)() {
            return;
        }
        let bytes = frame.bytes;
        if frame.link != Link::Ethernet
            || !(ETHERNET_HEADER_BYTES..=self.sender.largest()).contains(&bytes.len())
        {
            self.sent.left_out += 1;
            return;
        }
        match self.sender.send(bytes) {
            Ok(()) => {
                self.sent.packets += 1;
                self.sent.bytes += bytes.len() as u64;
                self.sent.cut += u64::from(frame.wire_length as usize > bytes.len());
            }
            Err(error) => self.failure = Some(error),
        }
    }

    /// Waits until `due` seconds after the start.
    fn wait_for(&mut self, due: f64) {
        let left = |started: Instant| due - started.elapsed().as_secs_f64();
        if left(self.started) <= 0.0 {
            return;
        }
        self.flush();
        while left(self.started) > 0.0 && self.failure.is_none() && !(self.is_interrupted)() {
            match left(self.started) {
                long if long > 2.0 * CHECK_INTERVAL.as_secs_f64() => {
                    thread::sleep(Duration::from_secs_f64((long / 2.0).min(0.1)))
                }
                _ => std::hint::spin_loop(),
            }
        }
    }
}
