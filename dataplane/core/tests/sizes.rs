//! Packet lengths: buckets and their counters.

use flowgauge_core::sizes::{
    BUCKETS, Bucket, MAX_LENGTH, Settings, Sizes, SizesTotals, bucket, greatest, least,
};
use flowgauge_core::{HostMeasurement, Zeroed};

#[test]
fn every_length_has_one_bucket_that_is_narrow_enough() {
    assert_eq!((bucket(0), bucket(MAX_LENGTH), bucket(u32::MAX)), (0, BUCKETS - 1, BUCKETS - 1));
    for length in 0..=MAX_LENGTH {
        let bucket = bucket(length);
        assert!((least(bucket)..=greatest(bucket)).contains(&length), "{length} in {bucket}");
    }
    for bucket in 0..BUCKETS {
        assert_eq!(greatest(bucket) + 1, least(bucket + 1));
        let width = greatest(bucket) - least(bucket) + 1;
        // Not wider than one, or than 1/64 of its lengths.
        assert!(width == 1 || 64 * width <= least(bucket), "{bucket}: {width}");
    }
}

fn sum(own: &Sizes) -> Box<SizesTotals> {
    let mut sum = SizesTotals::boxed();
    Sizes::merge_core(&mut sum, own, &Settings::ON);
    sum
}

#[test]
fn packets_and_bytes_follow_from_buckets() {
    let mut sizes = Sizes::boxed();
    let lengths = [20, 40, 127, 128, 129, 576, 1499, 1500, 1500, 9000, 65_535];
    lengths.into_iter().for_each(|length| sizes.update(length, 1));
    let sum = sum(&sizes);
    let bytes = |index: usize| sum.packets[index] * u64::from(least(index)) + sum.excess[index];
    let total: u64 = lengths.into_iter().map(u64::from).sum();
    assert_eq!((0..BUCKETS).map(bytes).sum::<u64>(), total);
    assert_eq!((sum.packets.iter().sum::<u64>(), sum.full), (lengths.len() as u64, 0));
    for length in lengths {
        assert!(sum.packets[bucket(length)] > 0, "{length}");
    }
}

#[test]
fn what_is_longer_than_the_longest_counts_as_that() {
    let (mut longer, mut longest) = (Sizes::boxed(), Sizes::boxed());
    [65_536, 65_575, u32::MAX].into_iter().for_each(|length| longer.update(length, 1));
    longest.update(65_535, 3);
    assert!(longer == longest);
}

#[test]
fn many_at_once_are_many_one_by_one() {
    let (mut at_once, mut one_by_one) = (Sizes::boxed(), Sizes::boxed());
    for length in (0..=70_000).step_by(37) {
        let packets = length % 5;
        at_once.update(length, packets);
        (0..packets).for_each(|_| one_by_one.update(length, 1));
    }
    assert!(at_once == one_by_one);
}

#[test]
fn counters_stop_at_their_ends_and_say_so() {
    let mut sizes = Sizes::boxed();
    // 1503 is 15 above the lowest length of its bucket.
    (0..3).for_each(|_| sizes.update(1503, 2_000_000_000));
    assert_eq!(sizes.buckets()[bucket(1503)], Bucket { packets: u32::MAX, excess: u32::MAX });
    let mut both = sum(&sizes);
    assert_eq!(both.full, 2);
    Sizes::merge_totals(&mut both, &sum(&sizes), &Settings::ON);
    assert_eq!((both.full, both.packets[bucket(1503)]), (4, 2 * u64::from(u32::MAX)));
}
