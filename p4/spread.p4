// Distinct others of keys, for example the sources of each destination (SpreadSketch: Tang, Huang
// and Lee, INFOCOM 2020).
//
// Three rows of cells. A key has one cell in every row. A cell has HyperLogLog registers of the
// pairs that fell into it, key and other, and a candidate: the key of the pair with the highest
// level. One hash of the pair gives register, rank and level. Everything is a maximum
// (dataplane/core/src/spread).
//
// The priority of a candidate is its level above the upper 27 bits of the key's CRC: a stateful ALU
// compares 32 bits. Of two keys with one priority the first stays. Software also compares the other
// five bits.

#define FLOWGAUGE_SPREAD_KEY_HASHES FLOWGAUGE_HASHES(FLOWGAUGE_SPREAD_KEY)
#define FLOWGAUGE_SPREAD_PAIR_HASHES FLOWGAUGE_HASHES(FLOWGAUGE_SPREAD_PAIR)

// Address whose lowest word a candidate stores: the first of the key.
#if FLOWGAUGE_SPREAD_KEY == FLOWGAUGE_KEY_DST
#define FLOWGAUGE_SPREAD_ADDRESS dst
#else
#define FLOWGAUGE_SPREAD_ADDRESS src
#endif
#define FLOWGAUGE_SPREAD_WORD(number) FLOWGAUGE_JOIN(FLOWGAUGE_SPREAD_ADDRESS, number)

const int FLOWGAUGE_SPREAD_ROW_BITS =
    FLOWGAUGE_SPREAD_COLUMN_BITS + FLOWGAUGE_SPREAD_REGISTER_BITS;
// Bank, column and register, and bank and column.
typedef bit<(FLOWGAUGE_SPREAD_ROW_BITS + 1)> flowgauge_spread_register_t;
typedef bit<(FLOWGAUGE_SPREAD_COLUMN_BITS + 1)> flowgauge_spread_cell_t;

struct flowgauge_candidate_t {
    bit<32> priority;
    bit<32> address0;
}

// IP version of the key: 4 or 6, 0 for none.
struct flowgauge_versioned_t {
    bit<32> version;
    bit<32> address1;
}

// Register of pairs, and the action that stores two values of a packet.
#define FLOWGAUGE_SPREAD_REMEMBER(type, name, first, first_value, second, second_value) \
    Register<type, flowgauge_spread_cell_t>(2 << FLOWGAUGE_SPREAD_COLUMN_BITS, {0, 0}) name; \
    RegisterAction<type, flowgauge_spread_cell_t, bit<32>>(name) remember_##name = { \
        void apply(inout type slot) { \
            slot.first = first_value; \
            slot.second = second_value; \
        } \
    };

// Rows are macros, as those of sketches are. The hash of a row is the 16 bits of a word from bit
// `high` on downwards.
//
// A candidate that stays reports its priority, which is not zero. The other words of a new
// candidate follow in arrays of their own.
#define FLOWGAUGE_SPREAD_ROW(row) \
    bit<32> kept##row; \
    Register<bit<8>, flowgauge_spread_register_t>( \
        2 << FLOWGAUGE_SPREAD_ROW_BITS, 0) registers##row; \
    RegisterAction<bit<8>, flowgauge_spread_register_t, bit<8>>(registers##row) raise##row = { \
        void apply(inout bit<8> highest) { \
            highest = max(highest, pair_rank); \
        } \
    }; \
    Register<flowgauge_candidate_t, flowgauge_spread_cell_t>( \
        2 << FLOWGAUGE_SPREAD_COLUMN_BITS, {0, 0}) candidates##row; \
    RegisterAction<flowgauge_candidate_t, flowgauge_spread_cell_t, bit<32>>(candidates##row) \
    propose##row = { \
        void apply(inout flowgauge_candidate_t candidate, out bit<32> kept) { \
            if (candidate.priority < pair_priority) { \
                candidate.priority = pair_priority; \
                candidate.address0 = FLOWGAUGE_SPREAD_WORD(0); \
                kept = 0; \
            } else { \
                kept = candidate.priority; \
            } \
        } \
    }; \
    FLOWGAUGE_SPREAD_REMEMBER(flowgauge_versioned_t, versions##row, \
        version, version, address1, FLOWGAUGE_SPREAD_WORD(1)) \
    FLOWGAUGE_SPREAD_REMEMBER(flowgauge_half_t, upper##row, \
        high, FLOWGAUGE_SPREAD_WORD(3), low, FLOWGAUGE_SPREAD_WORD(2))

#define FLOWGAUGE_SPREAD_COUNT(row, word, high) \
    if (md.flowgauge.sound == 1) { \
        raise##row.execute(md.flowgauge.bank ++ word[high:high + 1 - FLOWGAUGE_SPREAD_COLUMN_BITS] \
            ++ FLOWGAUGE_SPREAD_PAIR_HASHES.rows23[31:32 - FLOWGAUGE_SPREAD_REGISTER_BITS]); \
    } \
    if (md.flowgauge.sound == 1) { \
        kept##row = propose##row.execute( \
            md.flowgauge.bank ++ word[high:high + 1 - FLOWGAUGE_SPREAD_COLUMN_BITS]); \
    } \
    FLOWGAUGE_SPREAD_WHEN_NEW(versions, row, word, high) \
    FLOWGAUGE_SPREAD_WHEN_NEW(upper, row, word, high)

#define FLOWGAUGE_SPREAD_WHEN_NEW(name, row, word, high) \
    if (md.flowgauge.sound == 1 && kept##row == 0) { \
        remember_##name##row.execute( \
            md.flowgauge.bank ++ word[high:high + 1 - FLOWGAUGE_SPREAD_COLUMN_BITS]); \
    }

control FlowgaugeSpread(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    bit<8> pair_rank;
    bit<5> pair_level;
    bit<32> pair_priority;
    bit<32> version;
    // Words of the addresses, the lowest first.
    bit<32> src0;
    bit<32> src1;
    bit<32> src2;
    bit<32> src3;
    bit<32> dst0;
    bit<32> dst1;
    bit<32> dst2;
    bit<32> dst3;
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) joined;

    FLOWGAUGE_SPREAD_ROW(0)
    FLOWGAUGE_SPREAD_ROW(1)
    FLOWGAUGE_SPREAD_ROW(2)
#if FLOWGAUGE_SPREAD_KEY == FLOWGAUGE_KEY_SRC_DST
    FLOWGAUGE_SPREAD_REMEMBER(flowgauge_half_t, dst_upper0, high, dst3, low, dst2)
    FLOWGAUGE_SPREAD_REMEMBER(flowgauge_half_t, dst_lower0, high, dst1, low, dst0)
    FLOWGAUGE_SPREAD_REMEMBER(flowgauge_half_t, dst_upper1, high, dst3, low, dst2)
    FLOWGAUGE_SPREAD_REMEMBER(flowgauge_half_t, dst_lower1, high, dst1, low, dst0)
    FLOWGAUGE_SPREAD_REMEMBER(flowgauge_half_t, dst_upper2, high, dst3, low, dst2)
    FLOWGAUGE_SPREAD_REMEMBER(flowgauge_half_t, dst_lower2, high, dst1, low, dst0)
#endif

    action set_rank(bit<8> rank) {
        pair_rank = rank;
    }

    // As for distinct flows, the controller installs a prefix for every rank, and all-zero bits
    // match none.
    table ranks {
        key = {
            FLOWGAUGE_SPREAD_PAIR_HASHES.rows23[31 - FLOWGAUGE_SPREAD_REGISTER_BITS:0]
                : lpm @name("rank_bits");
        }
        actions = { set_rank; }
        default_action = set_rank(33 - FLOWGAUGE_SPREAD_REGISTER_BITS);
        size = 32;
    }

    action set_level(bit<5> level) {
        pair_level = level;
    }

    // Leading zeros plus one, at most 31: five bits.
    table levels {
        key = { FLOWGAUGE_SPREAD_PAIR_HASHES.rows01 : lpm @name("level_bits"); }
        actions = { set_level; }
        default_action = set_level(31);
        size = 32;
    }

    action set_priority() {
        pair_priority = joined.get({ pair_level, FLOWGAUGE_SPREAD_KEY_HASHES.crc[31:5] });
    }

    action take_ipv4() {
        version = 4;
        src0 = hdr.ipv4.src_addr;
        src1 = 0;
        src2 = 0;
        src3 = 0;
        dst0 = hdr.ipv4.dst_addr;
        dst1 = 0;
        dst2 = 0;
        dst3 = 0;
    }

    action take_ipv6() {
        version = 6;
        src0 = hdr.ipv6.src_addr[31:0];
        src1 = hdr.ipv6.src_addr[63:32];
        src2 = hdr.ipv6.src_addr[95:64];
        src3 = hdr.ipv6.src_addr[127:96];
        dst0 = hdr.ipv6.dst_addr[31:0];
        dst1 = hdr.ipv6.dst_addr[63:32];
        dst2 = hdr.ipv6.dst_addr[95:64];
        dst3 = hdr.ipv6.dst_addr[127:96];
    }

    apply {
        ranks.apply();
        levels.apply();
        set_priority();
        if (hdr.ipv4.isValid()) {
            take_ipv4();
        } else {
            take_ipv6();
        }
        FLOWGAUGE_SPREAD_COUNT(0, FLOWGAUGE_SPREAD_KEY_HASHES.rows01, 15)
        FLOWGAUGE_SPREAD_COUNT(1, FLOWGAUGE_SPREAD_KEY_HASHES.rows01, 31)
        FLOWGAUGE_SPREAD_COUNT(2, FLOWGAUGE_SPREAD_KEY_HASHES.rows23, 15)
#if FLOWGAUGE_SPREAD_KEY == FLOWGAUGE_KEY_SRC_DST
        FLOWGAUGE_SPREAD_WHEN_NEW(dst_upper, 0, FLOWGAUGE_SPREAD_KEY_HASHES.rows01, 15)
        FLOWGAUGE_SPREAD_WHEN_NEW(dst_lower, 0, FLOWGAUGE_SPREAD_KEY_HASHES.rows01, 15)
        FLOWGAUGE_SPREAD_WHEN_NEW(dst_upper, 1, FLOWGAUGE_SPREAD_KEY_HASHES.rows01, 31)
        FLOWGAUGE_SPREAD_WHEN_NEW(dst_lower, 1, FLOWGAUGE_SPREAD_KEY_HASHES.rows01, 31)
        FLOWGAUGE_SPREAD_WHEN_NEW(dst_upper, 2, FLOWGAUGE_SPREAD_KEY_HASHES.rows23, 15)
        FLOWGAUGE_SPREAD_WHEN_NEW(dst_lower, 2, FLOWGAUGE_SPREAD_KEY_HASHES.rows23, 15)
#endif
    }
}
