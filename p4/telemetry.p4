// Everything that a program needs to measure: include this file, parse with FlowgaugeParser (or set
// the same headers), and apply Flowgauge once in the ingress. It changes no header and forwards
// nothing.
#ifndef FLOWGAUGE_TELEMETRY_P4
#define FLOWGAUGE_TELEMETRY_P4

#include "settings.p4"
#include "headers.p4"
#include "parser.p4"
#include "counters.p4"
#include "hash.p4"
#include "cardinality.p4"
#include "entropy.p4"
#include "frequency.p4"
#include "membership.p4"
#include "heavy.p4"
#include "sizes.p4"
#include "delay.p4"
#include "reorder.p4"

control Flowgauge(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                  in ingress_intrinsic_metadata_from_parser_t from_parser
#if FLOWGAUGE_FOR_DEPARSER
                  , inout ingress_intrinsic_metadata_for_deparser_t for_deparser
#endif
                  ) {
    FlowgaugeCounters() counters;
    FlowgaugeHash() hash;
#if FLOWGAUGE_CARDINALITY
    FlowgaugeCardinality() FLOWGAUGE_BY_KEY(cardinality, FLOWGAUGE_KEY);
#endif
#if FLOWGAUGE_ENTROPY
    bit<32> count;
    FlowgaugeEntropy() FLOWGAUGE_BY_KEY(entropy, FLOWGAUGE_ENTROPY_KEY);
#if FLOWGAUGE_ENTROPY_BITS
    FlowgaugeInIntegers() FLOWGAUGE_BY_KEY(in_integers, FLOWGAUGE_ENTROPY_KEY);
#endif
#if FLOWGAUGE_ENTROPY_SECOND
    bit<32> second_count;
    FlowgaugeEntropy() FLOWGAUGE_BY_KEY(entropy, FLOWGAUGE_ENTROPY_SECOND_KEY);
#endif
#endif
#if FLOWGAUGE_FREQUENCY
    FlowgaugeFrequency() FLOWGAUGE_BY_KEY(frequency, FLOWGAUGE_FREQUENCY_KEY);
#endif
#if FLOWGAUGE_MEMBERSHIP
    FlowgaugeMembership() FLOWGAUGE_BY_KEY(membership, FLOWGAUGE_MEMBERSHIP_KEY);
#endif
#if FLOWGAUGE_HEAVY
    FlowgaugeHeavy() FLOWGAUGE_BY_KEY(heavy, FLOWGAUGE_HEAVY_KEY);

    // A second pass counts nothing, and belongs to the bank of the first.
    action resume() {
        md.flowgauge.sound = 0;
        md.flowgauge.bank = md.flowgauge.admitted.bank;
    }
#endif
#if FLOWGAUGE_SIZES
    FlowgaugeSizes() sizes;
#endif
#if FLOWGAUGE_DELAY
    FlowgaugeDelay() delay;
#endif
#if FLOWGAUGE_REORDER
    FlowgaugeReorder() reorder;
#endif

    action set_bank(bit<1> bank) {
        md.flowgauge.bank = bank;
    }

    // Bank that counts: one for all measurements, so that a single write closes a window
    // everywhere. A register would cost a stateful ALU, and one write per measurement would not be
    // atomic.
    table bank {
        actions = { set_bank; }
        default_action = set_bank(0);
        size = 1;
    }

    apply {
        bank.apply();
        counters.apply(hdr, md, from_parser);
#if FLOWGAUGE_HEAVY
        if (md.flowgauge.admitted.isValid()) {
            resume();
        }
#endif
        hash.apply(hdr, md);
#if FLOWGAUGE_CARDINALITY == FLOWGAUGE_CARDINALITY_STAGGERED
        FLOWGAUGE_BY_KEY(cardinality, FLOWGAUGE_KEY).apply(hdr, md, from_parser);
#elif FLOWGAUGE_CARDINALITY
        FLOWGAUGE_BY_KEY(cardinality, FLOWGAUGE_KEY).apply(hdr, md);
#endif
#if FLOWGAUGE_ENTROPY
        FLOWGAUGE_BY_KEY(entropy, FLOWGAUGE_ENTROPY_KEY).apply(md, FLOWGAUGE_OF_KEY(FLOWGAUGE_ENTROPY_KEY), count);
#if FLOWGAUGE_ENTROPY_ALARM
        FLOWGAUGE_BY_KEY(in_integers, FLOWGAUGE_ENTROPY_KEY).apply(md, count, md.flowgauge.entropy, for_deparser);
#elif FLOWGAUGE_ENTROPY_BITS
        FLOWGAUGE_BY_KEY(in_integers, FLOWGAUGE_ENTROPY_KEY).apply(md, count, md.flowgauge.entropy);
#endif
#if FLOWGAUGE_ENTROPY_SECOND
        FLOWGAUGE_BY_KEY(entropy, FLOWGAUGE_ENTROPY_SECOND_KEY).apply(md, FLOWGAUGE_OF_KEY(FLOWGAUGE_ENTROPY_SECOND_KEY), second_count);
#endif
#endif
#if FLOWGAUGE_FREQUENCY
        FLOWGAUGE_BY_KEY(frequency, FLOWGAUGE_FREQUENCY_KEY).apply(md);
#endif
#if FLOWGAUGE_MEMBERSHIP
        FLOWGAUGE_BY_KEY(membership, FLOWGAUGE_MEMBERSHIP_KEY).apply(md);
#endif
#if FLOWGAUGE_HEAVY
        FLOWGAUGE_BY_KEY(heavy, FLOWGAUGE_HEAVY_KEY).apply(hdr, md, for_deparser);
#endif
#if FLOWGAUGE_SIZES
        sizes.apply(hdr, md);
#endif
#if FLOWGAUGE_DELAY_SAMPLES
        delay.apply(hdr, md, from_parser, for_deparser);
#elif FLOWGAUGE_DELAY
        delay.apply(hdr, md, from_parser);
#endif
#if FLOWGAUGE_REORDER
        reorder.apply(hdr, md, from_parser);
#endif
    }
}

#endif
