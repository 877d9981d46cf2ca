// Distinct flows: HyperLogLog registers, in two banks (W-HLL thesis, chapter 3) or staggered
// (Cornacchia et al. 2022).
//
// The upper FLOWGAUGE_PRECISION bits of a hash select a register. The other bits give the level:
// leading zeros plus one.

// Flow hash of a packet, in the field in which this build computes it.
#define FLOWGAUGE_FLOW_HASH (FLOWGAUGE_HASH == FLOWGAUGE_HASH_TABULATED \
    ? md.flowgauge.tabulated : FLOWGAUGE_HASHES(FLOWGAUGE_KEY).crc)

// 32 bits of the chip's clock, and the number of units per slot. They wrap together with the
// clock's 48 bits, so that slots continue without a gap.
const int FLOWGAUGE_SLOT_TICK_BITS = FLOWGAUGE_SLOT_BITS < 16 ? FLOWGAUGE_SLOT_BITS : 16;
const int FLOWGAUGE_SLOT_UNIT_BITS = FLOWGAUGE_SLOT_BITS - FLOWGAUGE_SLOT_TICK_BITS;
// A round has one slot per register.
const int FLOWGAUGE_ROUND_UNIT_BITS = FLOWGAUGE_SLOT_UNIT_BITS + FLOWGAUGE_PRECISION;

// Start of a register's round, minus its offset from the first register, and the highest level
// since then.
struct flowgauge_staggered_t {
    bit<32> round;
    bit<32> level;
}

typedef bit<(FLOWGAUGE_PRECISION)> flowgauge_staggered_index_t;
// Bank and register.
typedef bit<(FLOWGAUGE_PRECISION + 1)> flowgauge_level_index_t;

control FlowgaugeCardinality(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                             in ingress_intrinsic_metadata_from_parser_t ig_prsr_md) {
    action set_level(flowgauge_level_t level) {
        md.flowgauge.level = level;
    }

    // A switch cannot count zeros, so the controller installs a prefix for every level (W-HLL
    // thesis section 3.3.3). All-zero bits match none; the thesis gives them level 0, which loses
    // the packet and caps the estimate.
    table rank {
        key = { FLOWGAUGE_FLOW_HASH[31 - FLOWGAUGE_PRECISION:0] : lpm @name("rank_bits"); }
        actions = { set_level; }
        default_action = set_level(33 - FLOWGAUGE_PRECISION);
        size = 32;
    }

#if FLOWGAUGE_CARDINALITY == FLOWGAUGE_CARDINALITY_STAGGERED
    bit<32> now;
    bit<32> behind;
    bit<32> round;
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) tick;
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) index;

    action set_now() {
        now = tick.get({
            ig_prsr_md.global_tstamp[31 + FLOWGAUGE_SLOT_TICK_BITS:FLOWGAUGE_SLOT_TICK_BITS] });
    }

    // Offset by which a register's rounds start later than those of the first one. The zeros have a
    // width, which cannot be zero.
    action set_behind() {
        behind = index.get({
            (bit<(32 - FLOWGAUGE_ROUND_UNIT_BITS)>) 0,
            FLOWGAUGE_FLOW_HASH[31:32 - FLOWGAUGE_PRECISION]
#if FLOWGAUGE_SLOT_BITS > 16
            , (bit<(FLOWGAUGE_SLOT_UNIT_BITS)>) 0
#endif
        });
    }

    action set_elapsed() {
        round = now - behind;
    }

    action set_round() {
        round = round & ((0xffffffff >> FLOWGAUGE_ROUND_UNIT_BITS) << FLOWGAUGE_ROUND_UNIT_BITS);
    }

    // Time of the last packet, which is the only way for a reader to know the chip's clock and thus
    // the slot. The name contains the length of a slot.
    Register<bit<32>, bit<1>>(1, 0) FLOWGAUGE_JOIN(latest, FLOWGAUGE_SLOT_BITS);
    RegisterAction<bit<32>, bit<1>, bit<32>>(FLOWGAUGE_JOIN(latest, FLOWGAUGE_SLOT_BITS)) keep_time = {
        void apply(inout bit<32> time) {
            time = now;
        }
    };

    // The first packet of a new round clears a register. Any round other than the packet's is over,
    // so that a clock that wraps needs no third comparison.
    Register<flowgauge_staggered_t, flowgauge_staggered_index_t>(
        1 << FLOWGAUGE_PRECISION, {0, 0}) staggered;
    RegisterAction<flowgauge_staggered_t, flowgauge_staggered_index_t, bit<32>>(staggered) raise = {
        void apply(inout flowgauge_staggered_t held) {
            if (held.round == round) {
                held.level = max(held.level, md.flowgauge.level);
            } else {
                held.level = md.flowgauge.level;
                held.round = round;
            }
        }
    };

    apply {
        set_now();
        keep_time.execute(0);
        rank.apply();
        set_behind();
        set_elapsed();
        set_round();
        if (md.flowgauge.sound == 1) {
            raise.execute(FLOWGAUGE_FLOW_HASH[31:32 - FLOWGAUGE_PRECISION]);
        }
    }
#else
    Register<bit<8>, flowgauge_level_index_t>(2 << FLOWGAUGE_PRECISION, 0) registers;
    RegisterAction<bit<8>, flowgauge_level_index_t, bit<8>>(registers) raise = {
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
#endif
}
