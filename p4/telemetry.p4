// Everything that a program needs to measure: include this file, parse with FlowgaugeParser (or set
// the same headers), and apply Flowgauge once in the ingress. It changes no header and forwards
// nothing.
//
// Controls give `ig_prsr_md` on by this name: the schema has it in the names of hashes' inputs.

#include "headers.p4"
#include "parser.p4"
#include "match.p4"
#include "counters.p4"
#include "hash.p4"
#include "cardinality.p4"
#include "sketch.p4"
#include "entropy.p4"
#include "frequency.p4"
#include "membership.p4"
#include "heavy.p4"
#include "spread.p4"
#include "sizes.p4"
#include "delay.p4"
#include "reorder.p4"

// All measurements. The compiler knows whether a build has one, and drops the controls of others
// with their tables and registers.
control Flowgauge(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                  in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                  inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    bit<32> count;
    bit<32> second_count;

    FlowgaugeCounters() counters;
    FlowgaugeHash() hash;
    FlowgaugeCardinality() FLOWGAUGE_BY_KEY(cardinality, FLOWGAUGE_KEY);
    FlowgaugeEntropy() FLOWGAUGE_BY_KEY(entropy, FLOWGAUGE_ENTROPY_KEY);
    FlowgaugeInIntegers() FLOWGAUGE_BY_KEY(in_integers, FLOWGAUGE_ENTROPY_KEY);
#if FLOWGAUGE_ENTROPY_SECOND
    FlowgaugeEntropy() FLOWGAUGE_BY_KEY(entropy, FLOWGAUGE_ENTROPY_SECOND_KEY);
#endif
    FlowgaugeFrequency() FLOWGAUGE_BY_KEY(frequency, FLOWGAUGE_FREQUENCY_KEY);
    FlowgaugeMembership() FLOWGAUGE_BY_KEY(membership, FLOWGAUGE_MEMBERSHIP_KEY);
    FlowgaugeHeavy() FLOWGAUGE_BY_KEY(heavy, FLOWGAUGE_HEAVY_KEY);
    FlowgaugeSpread() FLOWGAUGE_BY_KEY(spread, FLOWGAUGE_SPREAD_KEY);
    FlowgaugeSizes() sizes;
    FlowgaugeDelay() delay;
    FlowgaugeReorder() reorder;

    action set_bank(bit<1> bank) {
        md.flowgauge.bank = bank;
    }

    // Bank that counts: one for all measurements, so that a single write closes a window
    // everywhere. A register would cost a stateful ALU, and one write per measurement would not be
    // atomic. Since every build has this table, it also states the settings of the build.
    FLOWGAUGE_STATE(FLOWGAUGE_CARDINALITY)
    FLOWGAUGE_STATE(FLOWGAUGE_KEY)
    FLOWGAUGE_STATE(FLOWGAUGE_HASH)
    FLOWGAUGE_STATE(FLOWGAUGE_PRECISION)
    FLOWGAUGE_STATE(FLOWGAUGE_SLOT_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_ENTROPY)
    FLOWGAUGE_STATE(FLOWGAUGE_ENTROPY_SECOND)
    FLOWGAUGE_STATE(FLOWGAUGE_ENTROPY_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_ENTROPY_ALARM)
    FLOWGAUGE_STATE(FLOWGAUGE_ENTROPY_KEY)
    FLOWGAUGE_STATE(FLOWGAUGE_ENTROPY_SECOND_KEY)
    FLOWGAUGE_STATE(FLOWGAUGE_ENTROPY_SKETCH)
    FLOWGAUGE_STATE(FLOWGAUGE_ENTROPY_COLUMN_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_FREQUENCY)
    FLOWGAUGE_STATE(FLOWGAUGE_FREQUENCY_KEY)
    FLOWGAUGE_STATE(FLOWGAUGE_FREQUENCY_SKETCH)
    FLOWGAUGE_STATE(FLOWGAUGE_FREQUENCY_COLUMN_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_MEMBERSHIP)
    FLOWGAUGE_STATE(FLOWGAUGE_MEMBERSHIP_KEY)
    FLOWGAUGE_STATE(FLOWGAUGE_MEMBERSHIP_ROW_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_HEAVY)
    FLOWGAUGE_STATE(FLOWGAUGE_HEAVY_KEY)
    FLOWGAUGE_STATE(FLOWGAUGE_HEAVY_SLOT_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_SPREAD)
    FLOWGAUGE_STATE(FLOWGAUGE_SPREAD_KEY)
    FLOWGAUGE_STATE(FLOWGAUGE_SPREAD_OTHER)
    FLOWGAUGE_STATE(FLOWGAUGE_SPREAD_COLUMN_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_SPREAD_REGISTER_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_SIZES)
    FLOWGAUGE_STATE(FLOWGAUGE_MATCH)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_TCP_HANDSHAKE)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_TCP_DATA)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_TCP_DURATION)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_TCP_TIMESTAMPS)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_DNS)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_ICMP)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_QUIC_SPIN)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_LOCAL)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_SAMPLES)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_ALGORITHM)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_SLOT_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_DELAY_GROUP_BITS)
    FLOWGAUGE_STATE(FLOWGAUGE_REORDER)
    FLOWGAUGE_STATE(FLOWGAUGE_REORDER_SLOT_BITS)
    table bank {
        actions = { set_bank; }
        default_action = set_bank(0);
        size = 1;
    }

    // A second pass counts nothing, and belongs to the bank of the first.
    action resume() {
        md.flowgauge.sound = 0;
        md.flowgauge.bank = md.flowgauge.admitted.bank;
    }

    apply {
        bank.apply();
        counters.apply(hdr, md, ig_prsr_md);
        if (FLOWGAUGE_HEAVY == 1 && md.flowgauge.admitted.isValid()) {
            resume();
        }
        hash.apply(hdr, md);
        if (FLOWGAUGE_CARDINALITY != 0) {
            FLOWGAUGE_BY_KEY(cardinality, FLOWGAUGE_KEY).apply(hdr, md, ig_prsr_md);
        }
        if (FLOWGAUGE_ENTROPY == 1) {
            FLOWGAUGE_BY_KEY(entropy, FLOWGAUGE_ENTROPY_KEY).apply(
                md, FLOWGAUGE_HASHES(FLOWGAUGE_ENTROPY_KEY), count);
        }
        if (FLOWGAUGE_ENTROPY_BITS == 1) {
            FLOWGAUGE_BY_KEY(in_integers, FLOWGAUGE_ENTROPY_KEY).apply(
                md, count, md.flowgauge.entropy, ig_dprsr_md);
        }
#if FLOWGAUGE_ENTROPY_SECOND
        FLOWGAUGE_BY_KEY(entropy, FLOWGAUGE_ENTROPY_SECOND_KEY).apply(
            md, FLOWGAUGE_HASHES(FLOWGAUGE_ENTROPY_SECOND_KEY), second_count);
#endif
        if (FLOWGAUGE_FREQUENCY == 1) {
            FLOWGAUGE_BY_KEY(frequency, FLOWGAUGE_FREQUENCY_KEY).apply(md);
        }
        if (FLOWGAUGE_MEMBERSHIP == 1) {
            FLOWGAUGE_BY_KEY(membership, FLOWGAUGE_MEMBERSHIP_KEY).apply(md);
        }
        if (FLOWGAUGE_HEAVY == 1) {
            FLOWGAUGE_BY_KEY(heavy, FLOWGAUGE_HEAVY_KEY).apply(hdr, md, ig_dprsr_md);
        }
        if (FLOWGAUGE_SPREAD == 1) {
            FLOWGAUGE_BY_KEY(spread, FLOWGAUGE_SPREAD_KEY).apply(hdr, md);
        }
        if (FLOWGAUGE_SIZES == 1) {
            sizes.apply(hdr, md);
        }
        if (FLOWGAUGE_DELAY == 1) {
            delay.apply(hdr, md, ig_prsr_md, ig_dprsr_md);
        }
        if (FLOWGAUGE_REORDER != 0) {
            reorder.apply(hdr, md, ig_prsr_md);
        }
    }
}
