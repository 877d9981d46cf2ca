//! Packet lengths, bucket by bucket.

use crate::conformance::backend::{Backend, Setup, start};
use flowgauge_core::sizes;
use flowgauge_dataplane::poll::port::OwnedFrame;
use flowgauge_testing::frames::{IPV4, IPV6, Ip, ethernet};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Returns the smallest length of every bucket: one by one up to 127, then 64 for each doubling.
fn leasts() -> Vec<u32> {
    let doublings = (1..=9).flat_map(|doubling| (64..128_u32).map(move |step| step << doubling));
    (0..128).chain(doublings).collect()
}

/// Returns frames with various lengths in their headers, independent of their real length, each
/// with that length; zero if the headers have none.
fn frames(seed: u64) -> Vec<(OwnedFrame, u32)> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let edges = (5..16).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 1]);
    let lengths: Vec<u32> = (20..300)
        .chain(edges)
        .chain([65_535])
        .chain((0..300).map(|_| random.random_range(20..=65_535)))
        .collect();
    let tags = |number: usize| [&[][..], &[0x8100], &[0x8100, 0x8100]][number % 3];
    let framed = |number, ethertype, packet: &[u8]| {
        let mut frame = ethernet(tags(number), ethertype, packet);
        frame.resize(frame.len().max(60), 0);
        OwnedFrame::ethernet(frame)
    };
    let ipv4 = |number: usize, length: u32| {
        let mut packet = Ip::new([10, 0, 0, 1], [192, 0, 2, 7], 17).packet(&[0; 8]);
        packet[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        (framed(number, IPV4, &packet), length)
    };
    let ipv6 = |number: usize, payload: u32, next_header: u8| {
        // If options follow, nothing comes after them.
        let mut packet = Ip::new([1; 16], [2; 16], next_header).packet(&[59, 0, 0, 0, 0, 0, 0, 0]);
        packet[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
        // The length of a jumbogram is in an option.
        (
            framed(number, IPV6, &packet),
            if (payload, next_header) == (0, 0) { 0 } else { payload + 40 },
        )
    };
    let numbered = || lengths.iter().copied().chain([0]).enumerate();
    let of_ipv4 = numbered().map(|(number, length)| ipv4(number, length));
    let of_ipv6 = numbered().map(|(number, payload)| ipv6(number, payload, 17));
    let unsaid = [ipv6(0, 0, 0), ipv6(1, 0, 59), ipv6(2, 8, 0)];
    let other = (framed(0, 0x0806, &[0; 28]), u32::MAX);
    of_ipv4.chain(of_ipv6).chain(unsaid).chain([other]).collect()
}

pub fn every_length(backend: &dyn Backend) {
    let setup = Setup::only(|settings| settings.sizes = sizes::Settings::ON);
    let Some(mut rig) = start(backend, &Setup { truth: true, ..setup }) else { return };
    let leasts = leasts();
    assert_eq!(leasts.len(), sizes::BUCKETS);
    for window in 0..2 {
        let (frames, lengths): (Vec<OwnedFrame>, Vec<u32>) = frames(window).into_iter().unzip();
        assert_eq!(backend.possible(frames.clone()).len(), frames.len());
        let (mut packets, mut excess) = (vec![0; leasts.len()], vec![0; leasts.len()]);
        for length in lengths.iter().filter(|length| **length != u32::MAX) {
            let length = (*length).min(65_535);
            let bucket = leasts.partition_point(|least| *least <= length) - 1;
            packets[bucket] += 1;
            excess[bucket] += u64::from(length - leasts[bucket]);
        }
        rig.feed(&frames[..]);
        let (sample, closed) = (rig.sample(), rig.rotate());
        for snapshot in [&sample, &closed] {
            let held = &snapshot.bank.sizes;
            let counts = (&held.packets[..], &held.excess[..], held.full);
            assert_eq!(counts, (&packets[..], &excess[..], 0), "window {window}");
        }
        if closed.truth.is_some() {
            let exact = closed.exact.unwrap();
            for (length, packets) in exact.sizes.packets.iter().enumerate() {
                let has_length =
                    |sent: &&u32| **sent != u32::MAX && **sent.min(&&65_535) as usize == length;
                let sent = lengths.iter().filter(has_length).count() as u64;
                assert_eq!(*packets, sent, "of {length} bytes");
            }
        }
    }
}
