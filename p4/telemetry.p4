// Everything that a program needs to measure: include this file, parse with FlowgaugeParser (or set the same headers), and apply
// Flowgauge once in the ingress. It changes no header and forwards nothing.
#ifndef FLOWGAUGE_TELEMETRY_P4
#define FLOWGAUGE_TELEMETRY_P4

#include "settings.p4"
#include "headers.p4"
#include "parser.p4"
#include "counters.p4"
#include "hash.p4"
#include "cardinality.p4"

control Flowgauge(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                  in ingress_intrinsic_metadata_from_parser_t from_parser) {
    FlowgaugeCounters() counters;
    FlowgaugeHash() hash;
    FlowgaugeCardinality() cardinality;

    action set_bank(bit<1> bank) {
        md.flowgauge.bank = bank;
    }

    // The bank that counts: one for all measurements, so that one write closes a window everywhere at once. A register would
    // cost a stateful ALU, and a write for each measurement would not be atomic.
    table bank {
        actions = { set_bank; }
        default_action = set_bank(0);
        size = 1;
    }

    apply {
        bank.apply();
        counters.apply(hdr, md, from_parser);
        hash.apply(hdr, md);
        cardinality.apply(hdr, md);
    }
}

#endif
