//! Conformance suite that every backend must pass.
//!
//! A case uses only the [`Dataplane`](flowgauge_dataplane::Dataplane) trait and a way to feed
//! frames, and compares the results with a [model](flowgauge_testing::definitions) written from the definitions. It reads
//! the backend's capabilities and skips only what the backend does not support; it prints what it
//! skips.
//!
//! To add a backend, implement [`backend::Backend`] for it and add one line to `conformance!`
//! below. To add a case, write `pub fn case(backend: &dyn Backend)` in a module of `cases` and add
//! its name to the list in `cases!`.

#[cfg(target_os = "linux")]
use flowgauge_dataplane::Direction;
#[cfg(target_os = "linux")]
use flowgauge_dataplane::xdp::Mode;

#[cfg(target_os = "linux")]
mod af_xdp;
mod backend;
mod cases;
#[cfg(feature = "dpdk")]
mod dpdk;
mod poll;
mod sketches;
mod tofino;
#[cfg(target_os = "linux")]
mod xdp;

macro_rules! conformance {
    ($($name:ident: $backend:expr),* $(,)?) => {
        $(mod $name {
            use super::*;
            use crate::conformance::backend::Backend;
            cases! { $backend }
        })*
    };
}

macro_rules! cases {
    ($backend:expr) => {
        group! { $backend, vectors: address_10_0_0_1, every_level_of_every_precision, all_zero_rank_bits_of_both_hashes }
        group! { $backend, counting: every_key_hash_and_precision, every_beginning_of_every_kind, every_link_layer,
        length_on_the_wire, cardinality_off, captures_at_hand }
        group! { $backend, rotation: windows_are_separate, many_rotations_lose_nothing,
        registers_belong_to_the_counter, exact_counts_under_traffic, exact_windows_and_total_for_every_key }
        group! { $backend, sampling: a_sample_changes_nothing, samples_grow_within_their_window }
        group! { $backend, lifecycle: capabilities_make_sense, nothing_before_install, wrong_tables_are_refused,
        tables_are_installed_once, no_losses_at_first }
        group! { $backend, filtering: matching_frames_are_counted_as_if_there_were_no_others, every_field_and_verdict, a_filter_changes_between_two_windows }
        group! { $backend, sketches: entropy_of_every_key_and_shape, entropies_of_sources_and_destinations,
        frequency_of_every_key_and_shape, membership_of_every_key_and_shape, everything_together, everything_by_a_keyed_hash, what_cannot_be_is_refused }
        group! { $backend, heavy: every_algorithm, every_key }
        group! { $backend, spread: every_pair_and_shape, what_cannot_be_counted_is_refused }
        group! { $backend, sizes: every_length }
        group! { $backend, delay: every_kind_and_algorithm, delays_in_trace_time, one_by_one }
        group! { $backend, reorder: every_algorithm, slots_in_trace_time }
        group! { $backend, staggered: within_one_slot, last_round_in_trace_time }
        group! { $backend, middleware: faults_neither_lose_nor_double, a_failed_sample_is_no_zero, recorder_writes_what_it_saw,
        wrappers_compose }
    };
}

macro_rules! group {
    ($backend:expr, $group:ident: $($case:ident),* $(,)?) => {
        mod $group {
            use super::*;
            $(#[test]
            fn $case() {
                $backend.stage(crate::conformance::cases::$group::$case);
            })*
        }
    };
}

conformance! {
    af_xdp_on_veth: af_xdp::OnVeth { queues: 1 },
    af_xdp_on_two_queues: af_xdp::OnVeth { queues: 2 },
    poll_one_worker: poll::Workers(1),
    poll_two_workers: poll::Workers(2),
    tofino_on_model: tofino::OnModel,
    xdp_injected: xdp::Injected(Direction::Ingress, Mode::Native),
    tcx_injected: xdp::Injected(Direction::Egress, Mode::Native),
    tcx_ingress_injected: xdp::Injected(Direction::Ingress, Mode::Tcx),
}

#[cfg(feature = "dpdk")]
conformance! {
    dpdk_net_ring: dpdk::OnRing { queues: 1, segments: 1 },
    dpdk_net_ring_two_queues_of_segments: dpdk::OnRing { queues: 2, segments: 4 },
    dpdk_net_af_xdp: dpdk::AF_XDP,
    dpdk_net_pcap: dpdk::PCAP,
}
