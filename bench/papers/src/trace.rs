//! Captures in the place of generated traffic, in windows of a fixed number of packets.
//!
//! Captures are read by the port that `flowgauge replay` reads them with: any format, compressed or
//! not, several of them by the time of their packets.

use crate::error::ReproduceError;
use flowgauge_core::FlowKey;
use flowgauge_core::parse::{self, Packet};
use flowgauge_ctl::output::grouped;
use flowgauge_dataplane::poll::Pace;
use flowgauge_dataplane::poll::port::{Capture, Port, PortFrame, Ports, Received, captures};
use hashbrown::HashMap;
use std::cell::Cell;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use flowgauge_traffic::mix;

/// Interval at which a reader without packets checks whether more of a capture was read.
const IDLE: Duration = Duration::from_millis(1);

/// Captures, and the windows to take from them.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    /// Capture files.
    pub files: Vec<PathBuf>,
    /// Packets of a window.
    pub window_packets: u64,
    /// Maximum number of windows.
    pub windows: u64,
}

impl Trace {
    /// Calls `take` with each frame, until it returns false.
    ///
    /// # Errors
    /// [`ReproduceError::Dataplane`] if a file cannot be opened or is no capture. Damage inside a
    /// capture ends it with a warning.
    pub(crate) fn frames(
        &self,
        mut take: impl FnMut(PortFrame<'_>) -> bool,
    ) -> Result<(), ReproduceError> {
        let Ports { ports, source, .. } = captures(self.open()?, 1, Pace::Open)?;
        let is_wanted = Cell::new(true);
        let mut sink = |frame: PortFrame<'_>| is_wanted.set(is_wanted.get() && take(frame));
        for mut port in ports {
            while is_wanted.get() {
                match port.receive(&mut sink) {
                    Received::Frames => {}
                    Received::Idle => port.wait(IDLE),
                    Received::Ended => break,
                }
            }
        }
        source.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(())
    }

    /// Opens the captures.
    ///
    /// # Errors
    /// [`ReproduceError::Dataplane`] if a file cannot be opened.
    pub(crate) fn open(&self) -> Result<Vec<Capture>, ReproduceError> {
        Ok(self.files.iter().map(|file| Capture::open(file)).collect::<Result<_, _>>()?)
    }

    /// Returns the packets of all windows.
    pub(crate) fn packets(&self) -> u64 {
        self.window_packets.saturating_mul(self.windows)
    }

    /// Returns the results of `count` for each window, by source and destination. An incomplete
    /// window counts only if it is the only one.
    ///
    /// # Errors
    /// As [`frames`](Self::frames), and [`ReproduceError::NoPackets`].
    pub(crate) fn windows<T>(
        &self,
        mut count: impl FnMut(&Window) -> T,
    ) -> Result<Vec<T>, ReproduceError> {
        let (mut window, mut results) = (Window::default(), Vec::new());
        self.frames(|frame| {
            let packet = parse::counted(frame.bytes, frame.link, &parse::Settings::DEFAULT);
            let Ok(packet) = packet else { return true };
            window.add(source_destination(&packet));
            if window.packets() == self.window_packets {
                results.push(count(&window));
                window = Window::default();
            }
            (results.len() as u64) < self.windows
        })?;
        if results.is_empty() && window.packets() > 0 {
            results.push(count(&window));
        }
        if results.is_empty() { Err(self.without("IPv4 or IPv6 packet")) } else { Ok(results) }
    }

    /// Returns the error for captures without packets of a kind.
    pub(crate) fn without(&self, kind: &'static str) -> ReproduceError {
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        ReproduceError::NoPackets { files: files.join(", "), kind }
    }

    /// Describes how many windows there were, given the packets of each.
    pub(crate) fn describe(&self, packets: &[u64]) -> String {
        let whole = grouped(self.window_packets);
        match packets {
            [only] if *only < self.window_packets => {
                format!("1 window of {} packets, fewer than the {whole} asked for", grouped(*only))
            }
            _ => {
                let ending = if packets.len() == 1 { "" } else { "s" };
                format!("{} window{ending} of {whole} packets", packets.len())
            }
        }
    }
}

/// Packets of a window by flow, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// Number of each packet's flow.
    pub order: Vec<u32>,
    /// Keys of the flows.
    pub keys: Vec<FlowKey>,
    /// Packets of the flows.
    pub counts: Vec<u64>,
    numbers: HashMap<FlowKey, u32>,
}

impl Window {
    /// Counts a packet of a flow.
    pub(crate) fn add(&mut self, key: FlowKey) {
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key).or_insert(next);
        if number == next {
            self.keys.push(key);
            self.counts.push(0);
        }
        if let Some(count) = self.counts.get_mut(number as usize) {
            *count += 1;
        }
        self.order.push(number);
    }

    /// Returns the number of packets.
    pub(crate) fn packets(&self) -> u64 {
        self.order.len() as u64
    }
}

/// Returns source and destination of a packet.
fn source_destination(packet: &Packet<'_>) -> FlowKey {
    match packet {
        Packet::V4(ip) => FlowKey::new([ip.src(), ip.dst()].as_flattened()),
        Packet::V6(ip) => FlowKey::new([ip.src(), ip.dst()].as_flattened().as_flattened()),
    }
}

/// Returns a hash of bytes that is the same in every run: FNV-1a, mixed.
pub(crate) fn hash(parts: &[&[u8]], seed: u64) -> u64 {
    let bytes = parts.iter().copied().flatten();
    mix(bytes.fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    }))
}

/// Returns a number below `limit` that a hash selects.
pub(crate) fn below(hash: u64, limit: usize) -> usize {
    ((u128::from(hash) * limit as u128) >> 64) as usize
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use flowgauge_dataplane::capture::build::{CapturePacket, PcapOptions, pcap};

    /// Capture file that is removed at the end of its test.
    pub(crate) struct CaptureFile(pub(crate) PathBuf);

    impl CaptureFile {
        pub(crate) fn new(name: &str, packets: &[CapturePacket]) -> Self {
            let name = format!("flowgauge-trace-{name}-{}.pcap", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::write(&path, pcap(&PcapOptions::default(), packets)).unwrap();
            CaptureFile(path)
        }

        /// Writes `number` packets, one every `interval` nanoseconds, of `sources` sources in turn.
        pub(crate) fn of_sources(name: &str, number: u64, interval: u64, sources: u64) -> Self {
            let packet = |number: u64| {
                CapturePacket::new(number * interval, frame((number % sources) as u8, 1))
            };
            let packets: Vec<CapturePacket> = (0..number).map(packet).collect();
            CaptureFile::new(name, &packets)
        }

        pub(crate) fn trace(&self, window_packets: u64, windows: u64) -> Trace {
            Trace { files: vec![self.0.clone()], window_packets, windows }
        }
    }

    impl Drop for CaptureFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// Returns an Ethernet frame with an IPv4 packet of no transport protocol.
    pub(crate) fn frame(source: u8, destination: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12] = 8;
        frame[14..18].copy_from_slice(&[0x45, 0, 0, 46]);
        frame[22..24].copy_from_slice(&[64, 253]);
        frame[26..30].copy_from_slice(&[10, 0, 0, source]);
        frame[30..34].copy_from_slice(&[10, 0, 1, destination]);
        frame
    }

    #[test]
    fn windows_have_a_fixed_number_of_packets_by_source_and_destination() {
        let file = CaptureFile::of_sources("windows", 10, 1_000_000, 3);
        let count = |window: &Window| (window.packets(), window.counts.clone());
        let found = file.trace(4, 10).windows(count).unwrap();
        // The last two packets are no window.
        assert_eq!(found, [(4, vec![2, 1, 1]), (4, vec![2, 1, 1])]);
        assert_eq!(file.trace(4, 1).windows(count).unwrap().len(), 1);
        // They are if there is no other.
        let trace = file.trace(11, 10);
        assert_eq!(trace.windows(count).unwrap(), [(10, vec![4, 3, 3])]);
        assert_eq!(trace.describe(&[10]), "1 window of 10 packets, fewer than the 11 asked for");
        assert_eq!(trace.describe(&[11, 11]), "2 windows of 11 packets");
    }

    #[test]
    fn captures_without_ip_are_refused_in_one_line() {
        let file = CaptureFile::new("empty", &[CapturePacket::new(0, vec![0; 60])]);
        let error = file.trace(4, 1).windows(|_| ()).unwrap_err().to_string();
        assert!(error.contains("no IPv4 or IPv6 packet") && !error.contains('\n'), "{error}");
        let missing = Trace { files: vec![PathBuf::from("none.pcap")], ..file.trace(4, 1) };
        assert!(missing.windows(|_| ()).unwrap_err().to_string().contains("none.pcap"));
    }

    #[test]
    fn hashes_select_evenly() {
        let mut counts = [0_u64; 10];
        for number in 0..10_000_u64 {
            counts[below(hash(&[&number.to_be_bytes()], 1), 10)] += 1;
        }
        let range = flowgauge_testing::chance::binomial(10_000, 0.1);
        assert!(counts.iter().all(|count| range.contains(count)), "{counts:?}");
    }
}
