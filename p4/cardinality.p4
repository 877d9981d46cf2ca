// Distinct flows: HyperLogLog registers in two banks (W-HLL thesis, chapter 3).
//
// Of a hash the upper FLOWGAUGE_PRECISION bits choose a register, and the rest gives the level: leading zeros plus one.
#ifndef FLOWGAUGE_CARDINALITY_P4
#define FLOWGAUGE_CARDINALITY_P4

#include "headers.p4"

#if FLOWGAUGE_CARDINALITY
control FlowgaugeCardinality(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    action set_level(bit<8> level) {
        md.flowgauge.level = level;
    }

    // A switch cannot count zeros, so the controller installs a prefix for every level (W-HLL thesis section 3.3.3). All-zero
    // bits match none; the thesis gives them level 0, which loses the packet and caps the estimate.
    table rank {
        key = { FLOWGAUGE_FLOW_HASH[31 - FLOWGAUGE_PRECISION:0] : lpm @name("rank_bits"); }
        actions = { set_level; }
        default_action = set_level(33 - FLOWGAUGE_PRECISION);
        size = 32;
    }

    Register<bit<8>, bit<(FLOWGAUGE_PRECISION + 1)>>(2 << FLOWGAUGE_PRECISION, 0) registers;
    RegisterAction<bit<8>, bit<(FLOWGAUGE_PRECISION + 1)>, bit<8>>(registers) raise = {
        void apply(inout bit<8> register_level) {
            register_level = max(register_level, md.flowgauge.level);
        }
    };

    apply {
        rank.apply();
        if (md.flowgauge.sound == 1) {
            raise.execute(md.flowgauge.bank ++ FLOWGAUGE_FLOW_HASH[31:32 - FLOWGAUGE_PRECISION]);
        }
    }
}
#endif

#endif
