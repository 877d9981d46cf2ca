// Measurements and sizes of a build. Every setting can be given on the compiler's command line, for
// example -DFLOWGAUGE_KEY=FLOWGAUGE_KEY_FIVE_TUPLE -DFLOWGAUGE_PRECISION=12.
//
// They are settings of a build, not tables: the input of a hash unit and the size of a register
// array are fixed when a program is loaded.

// Measurements of a build, each 0 or 1.
// Entropy of one key.
#ifndef FLOWGAUGE_ENTROPY
#define FLOWGAUGE_ENTROPY 0
#endif
// Entropy of another key.
#ifndef FLOWGAUGE_ENTROPY_SECOND
#define FLOWGAUGE_ENTROPY_SECOND 0
#endif
// Entropy that the switch computes, after every packet.
#ifndef FLOWGAUGE_ENTROPY_BITS
#define FLOWGAUGE_ENTROPY_BITS 0
#endif
// A digest, once per window, if that entropy is too low or too high.
#ifndef FLOWGAUGE_ENTROPY_ALARM
#define FLOWGAUGE_ENTROPY_ALARM 0
#endif
// Packets per flow.
#ifndef FLOWGAUGE_FREQUENCY
#define FLOWGAUGE_FREQUENCY 0
#endif
// Flows seen.
#ifndef FLOWGAUGE_MEMBERSHIP
#define FLOWGAUGE_MEMBERSHIP 0
#endif
// Heavy hitters.
#ifndef FLOWGAUGE_HEAVY
#define FLOWGAUGE_HEAVY 0
#endif
// Distinct others of keys.
#ifndef FLOWGAUGE_SPREAD
#define FLOWGAUGE_SPREAD 0
#endif
// Packet lengths.
#ifndef FLOWGAUGE_SIZES
#define FLOWGAUGE_SIZES 0
#endif
// Packets that are counted at all: those that match an expression.
#ifndef FLOWGAUGE_MATCH
#define FLOWGAUGE_MATCH 0
#endif
// Round-trip delays, of these kinds.
#ifndef FLOWGAUGE_DELAY
#define FLOWGAUGE_DELAY 0
#endif
#ifndef FLOWGAUGE_DELAY_TCP_HANDSHAKE
#define FLOWGAUGE_DELAY_TCP_HANDSHAKE 0
#endif
#ifndef FLOWGAUGE_DELAY_TCP_DATA
#define FLOWGAUGE_DELAY_TCP_DATA 0
#endif
#ifndef FLOWGAUGE_DELAY_TCP_DURATION
#define FLOWGAUGE_DELAY_TCP_DURATION 0
#endif
#ifndef FLOWGAUGE_DELAY_TCP_TIMESTAMPS
#define FLOWGAUGE_DELAY_TCP_TIMESTAMPS 0
#endif
#ifndef FLOWGAUGE_DELAY_DNS
#define FLOWGAUGE_DELAY_DNS 0
#endif
#ifndef FLOWGAUGE_DELAY_ICMP
#define FLOWGAUGE_DELAY_ICMP 0
#endif
#ifndef FLOWGAUGE_DELAY_QUIC_SPIN
#define FLOWGAUGE_DELAY_QUIC_SPIN 0
#endif
// Separate counts for requests from local addresses.
#ifndef FLOWGAUGE_DELAY_LOCAL
#define FLOWGAUGE_DELAY_LOCAL 0
#endif
// A digest for each delay.
#ifndef FLOWGAUGE_DELAY_SAMPLES
#define FLOWGAUGE_DELAY_SAMPLES 0
#endif
const bool _entropy_is_switch = static_assert(
    FLOWGAUGE_ENTROPY == 0 || FLOWGAUGE_ENTROPY == 1, "FLOWGAUGE_ENTROPY is neither 0 nor 1");
const bool _entropy_second_is_switch = static_assert(
    FLOWGAUGE_ENTROPY_SECOND == 0 || FLOWGAUGE_ENTROPY_SECOND == 1,
    "FLOWGAUGE_ENTROPY_SECOND is neither 0 nor 1");
const bool _entropy_bits_is_switch = static_assert(
    FLOWGAUGE_ENTROPY_BITS == 0 || FLOWGAUGE_ENTROPY_BITS == 1,
    "FLOWGAUGE_ENTROPY_BITS is neither 0 nor 1");
const bool _entropy_alarm_is_switch = static_assert(
    FLOWGAUGE_ENTROPY_ALARM == 0 || FLOWGAUGE_ENTROPY_ALARM == 1,
    "FLOWGAUGE_ENTROPY_ALARM is neither 0 nor 1");
const bool _frequency_is_switch = static_assert(
    FLOWGAUGE_FREQUENCY == 0 || FLOWGAUGE_FREQUENCY == 1, "FLOWGAUGE_FREQUENCY is neither 0 nor 1");
const bool _membership_is_switch = static_assert(
    FLOWGAUGE_MEMBERSHIP == 0 || FLOWGAUGE_MEMBERSHIP == 1,
    "FLOWGAUGE_MEMBERSHIP is neither 0 nor 1");
const bool _heavy_is_switch = static_assert(
    FLOWGAUGE_HEAVY == 0 || FLOWGAUGE_HEAVY == 1, "FLOWGAUGE_HEAVY is neither 0 nor 1");
const bool _spread_is_switch = static_assert(
    FLOWGAUGE_SPREAD == 0 || FLOWGAUGE_SPREAD == 1, "FLOWGAUGE_SPREAD is neither 0 nor 1");
const bool _sizes_is_switch = static_assert(
    FLOWGAUGE_SIZES == 0 || FLOWGAUGE_SIZES == 1, "FLOWGAUGE_SIZES is neither 0 nor 1");
const bool _match_is_switch = static_assert(
    FLOWGAUGE_MATCH == 0 || FLOWGAUGE_MATCH == 1, "FLOWGAUGE_MATCH is neither 0 nor 1");
const bool _delay_is_switch = static_assert(
    FLOWGAUGE_DELAY == 0 || FLOWGAUGE_DELAY == 1, "FLOWGAUGE_DELAY is neither 0 nor 1");
const bool _entropy_bits_have_entropy = static_assert(
    FLOWGAUGE_ENTROPY_BITS == 0 || FLOWGAUGE_ENTROPY == 1,
    "FLOWGAUGE_ENTROPY_BITS needs FLOWGAUGE_ENTROPY");
const bool _second_entropy_has_first = static_assert(
    FLOWGAUGE_ENTROPY_SECOND == 0 || FLOWGAUGE_ENTROPY == 1,
    "FLOWGAUGE_ENTROPY_SECOND needs FLOWGAUGE_ENTROPY");
const bool _entropy_alarm_has_bits = static_assert(
    FLOWGAUGE_ENTROPY_ALARM == 0 || FLOWGAUGE_ENTROPY_BITS == 1,
    "FLOWGAUGE_ENTROPY_ALARM needs FLOWGAUGE_ENTROPY_BITS");
const bool _digest_is_one = static_assert(
    FLOWGAUGE_ENTROPY_ALARM == 0 || FLOWGAUGE_DELAY_SAMPLES == 0,
    "FLOWGAUGE_ENTROPY_ALARM and FLOWGAUGE_DELAY_SAMPLES do not go together: a packet sends one digest");

// Keys that define a flow.
#define FLOWGAUGE_KEY_SRC 0
#define FLOWGAUGE_KEY_DST 1
#define FLOWGAUGE_KEY_SRC_DST 2
#define FLOWGAUGE_KEY_FIVE_TUPLE 3

// Distinct flows: of windows, or at any time those of the last period.
#define FLOWGAUGE_CARDINALITY_WINDOWED 1
#define FLOWGAUGE_CARDINALITY_STAGGERED 2
#ifndef FLOWGAUGE_CARDINALITY
#define FLOWGAUGE_CARDINALITY FLOWGAUGE_CARDINALITY_WINDOWED
#endif
const bool _cardinality_is_known = static_assert(
    FLOWGAUGE_CARDINALITY >= 0 && FLOWGAUGE_CARDINALITY <= FLOWGAUGE_CARDINALITY_STAGGERED,
    "FLOWGAUGE_CARDINALITY is not one of 0, FLOWGAUGE_CARDINALITY_WINDOWED, FLOWGAUGE_CARDINALITY_STAGGERED");

#ifndef FLOWGAUGE_KEY
#define FLOWGAUGE_KEY FLOWGAUGE_KEY_SRC
#endif
const bool _key_is_known = static_assert(
    FLOWGAUGE_KEY >= FLOWGAUGE_KEY_SRC && FLOWGAUGE_KEY <= FLOWGAUGE_KEY_FIVE_TUPLE,
    "FLOWGAUGE_KEY is not one of FLOWGAUGE_KEY_SRC, _DST, _SRC_DST, _FIVE_TUPLE");

// Hash that maps a key to 32 bits.
#define FLOWGAUGE_HASH_CRC32 0
#define FLOWGAUGE_HASH_TABULATED 1
#ifndef FLOWGAUGE_HASH
#define FLOWGAUGE_HASH FLOWGAUGE_HASH_TABULATED
#endif
const bool _hash_is_known = static_assert(
    FLOWGAUGE_HASH == FLOWGAUGE_HASH_CRC32 || FLOWGAUGE_HASH == FLOWGAUGE_HASH_TABULATED,
    "FLOWGAUGE_HASH is neither FLOWGAUGE_HASH_CRC32 nor FLOWGAUGE_HASH_TABULATED");

// A bank has 2^FLOWGAUGE_PRECISION HyperLogLog registers.
#ifndef FLOWGAUGE_PRECISION
#define FLOWGAUGE_PRECISION 11
#endif
const bool _precision_is_in_range = static_assert(
    FLOWGAUGE_PRECISION >= 4 && FLOWGAUGE_PRECISION <= 16, "FLOWGAUGE_PRECISION is not in 4 to 16");

// Staggered registers restart one after another, one in every 2^FLOWGAUGE_SLOT_BITS nanoseconds.
#ifndef FLOWGAUGE_SLOT_BITS
#define FLOWGAUGE_SLOT_BITS 23
#endif
const bool _slot_is_long_enough = static_assert(
    FLOWGAUGE_SLOT_BITS >= 10, "FLOWGAUGE_SLOT_BITS is less than 10");
const bool _slots_are_in_clock = static_assert(FLOWGAUGE_SLOT_BITS + FLOWGAUGE_PRECISION <= 44,
    "FLOWGAUGE_SLOT_BITS and FLOWGAUGE_PRECISION together are more than 44: the chip's clock of 48 bits has too few rounds");

// Entropy: three rows of 2^FLOWGAUGE_ENTROPY_COLUMN_BITS counters, and a sum.
#define FLOWGAUGE_COUNT_SKETCH 1
#define FLOWGAUGE_COUNT_MIN 2
#ifndef FLOWGAUGE_ENTROPY_KEY
#define FLOWGAUGE_ENTROPY_KEY FLOWGAUGE_KEY_SRC_DST
#endif
#ifndef FLOWGAUGE_ENTROPY_SECOND_KEY
#define FLOWGAUGE_ENTROPY_SECOND_KEY FLOWGAUGE_KEY_DST
#endif
#ifndef FLOWGAUGE_ENTROPY_SKETCH
#define FLOWGAUGE_ENTROPY_SKETCH FLOWGAUGE_COUNT_SKETCH
#endif
#ifndef FLOWGAUGE_ENTROPY_COLUMN_BITS
#define FLOWGAUGE_ENTROPY_COLUMN_BITS 10
#endif
// The sketch is part of the name of a macro, so that an assertion would come too late.
#if FLOWGAUGE_ENTROPY_SKETCH != FLOWGAUGE_COUNT_SKETCH && FLOWGAUGE_ENTROPY_SKETCH != FLOWGAUGE_COUNT_MIN
#error "FLOWGAUGE_ENTROPY_SKETCH is neither FLOWGAUGE_COUNT_SKETCH nor FLOWGAUGE_COUNT_MIN"
#endif
const bool _entropy_key_is_known = static_assert(
    FLOWGAUGE_ENTROPY_KEY >= FLOWGAUGE_KEY_SRC && FLOWGAUGE_ENTROPY_KEY <= FLOWGAUGE_KEY_FIVE_TUPLE,
    "FLOWGAUGE_ENTROPY_KEY is not one of FLOWGAUGE_KEY_SRC, _DST, _SRC_DST, _FIVE_TUPLE");
const bool _entropy_second_key_is_known = static_assert(
    FLOWGAUGE_ENTROPY_SECOND_KEY >= FLOWGAUGE_KEY_SRC
    && FLOWGAUGE_ENTROPY_SECOND_KEY <= FLOWGAUGE_KEY_FIVE_TUPLE,
    "FLOWGAUGE_ENTROPY_SECOND_KEY is not one of FLOWGAUGE_KEY_SRC, _DST, _SRC_DST, _FIVE_TUPLE");
const bool _entropy_keys_differ = static_assert(
    FLOWGAUGE_ENTROPY_SECOND == 0 || FLOWGAUGE_ENTROPY_SECOND_KEY != FLOWGAUGE_ENTROPY_KEY,
    "FLOWGAUGE_ENTROPY_SECOND_KEY is FLOWGAUGE_ENTROPY_KEY");
const bool _entropy_columns_are_in_range = static_assert(
    FLOWGAUGE_ENTROPY_COLUMN_BITS >= 4 && FLOWGAUGE_ENTROPY_COLUMN_BITS <= 12,
    "FLOWGAUGE_ENTROPY_COLUMN_BITS is not in 4 to 12");

// Frequency: three rows of 2^FLOWGAUGE_FREQUENCY_COLUMN_BITS counters.
#ifndef FLOWGAUGE_FREQUENCY_KEY
#define FLOWGAUGE_FREQUENCY_KEY FLOWGAUGE_KEY_SRC
#endif
#ifndef FLOWGAUGE_FREQUENCY_SKETCH
#define FLOWGAUGE_FREQUENCY_SKETCH FLOWGAUGE_COUNT_MIN
#endif
#ifndef FLOWGAUGE_FREQUENCY_COLUMN_BITS
#define FLOWGAUGE_FREQUENCY_COLUMN_BITS 10
#endif
#if FLOWGAUGE_FREQUENCY_SKETCH != FLOWGAUGE_COUNT_SKETCH && FLOWGAUGE_FREQUENCY_SKETCH != FLOWGAUGE_COUNT_MIN
#error "FLOWGAUGE_FREQUENCY_SKETCH is neither FLOWGAUGE_COUNT_SKETCH nor FLOWGAUGE_COUNT_MIN"
#endif
const bool _frequency_key_is_known = static_assert(
    FLOWGAUGE_FREQUENCY_KEY >= FLOWGAUGE_KEY_SRC
    && FLOWGAUGE_FREQUENCY_KEY <= FLOWGAUGE_KEY_FIVE_TUPLE,
    "FLOWGAUGE_FREQUENCY_KEY is not one of FLOWGAUGE_KEY_SRC, _DST, _SRC_DST, _FIVE_TUPLE");
const bool _frequency_columns_are_in_range = static_assert(
    FLOWGAUGE_FREQUENCY_COLUMN_BITS >= 4 && FLOWGAUGE_FREQUENCY_COLUMN_BITS <= 12,
    "FLOWGAUGE_FREQUENCY_COLUMN_BITS is not in 4 to 12");

// Membership: three rows of 2^FLOWGAUGE_MEMBERSHIP_ROW_BITS bits.
#ifndef FLOWGAUGE_MEMBERSHIP_KEY
#define FLOWGAUGE_MEMBERSHIP_KEY FLOWGAUGE_KEY_SRC
#endif
#ifndef FLOWGAUGE_MEMBERSHIP_ROW_BITS
#define FLOWGAUGE_MEMBERSHIP_ROW_BITS 16
#endif
const bool _membership_key_is_known = static_assert(
    FLOWGAUGE_MEMBERSHIP_KEY >= FLOWGAUGE_KEY_SRC
    && FLOWGAUGE_MEMBERSHIP_KEY <= FLOWGAUGE_KEY_FIVE_TUPLE,
    "FLOWGAUGE_MEMBERSHIP_KEY is not one of FLOWGAUGE_KEY_SRC, _DST, _SRC_DST, _FIVE_TUPLE");
const bool _membership_rows_are_in_range = static_assert(
    FLOWGAUGE_MEMBERSHIP_ROW_BITS >= 6 && FLOWGAUGE_MEMBERSHIP_ROW_BITS <= 16,
    "FLOWGAUGE_MEMBERSHIP_ROW_BITS is not in 6 to 16");

// Heavy hitters: two stages with 2^FLOWGAUGE_HEAVY_SLOT_BITS slots in total.
#ifndef FLOWGAUGE_HEAVY_KEY
#define FLOWGAUGE_HEAVY_KEY FLOWGAUGE_KEY_SRC
#endif
#ifndef FLOWGAUGE_HEAVY_SLOT_BITS
#define FLOWGAUGE_HEAVY_SLOT_BITS 10
#endif
const bool _heavy_key_is_known = static_assert(
    FLOWGAUGE_HEAVY_KEY >= FLOWGAUGE_KEY_SRC && FLOWGAUGE_HEAVY_KEY <= FLOWGAUGE_KEY_FIVE_TUPLE,
    "FLOWGAUGE_HEAVY_KEY is not one of FLOWGAUGE_KEY_SRC, _DST, _SRC_DST, _FIVE_TUPLE");
const bool _heavy_slots_are_in_range = static_assert(
    FLOWGAUGE_HEAVY_SLOT_BITS >= 4 && FLOWGAUGE_HEAVY_SLOT_BITS <= 12,
    "FLOWGAUGE_HEAVY_SLOT_BITS is not in 4 to 12");

// Distinct others of keys: what is counted of a key. Each of three rows has
// 2^FLOWGAUGE_SPREAD_COLUMN_BITS cells of 2^FLOWGAUGE_SPREAD_REGISTER_BITS registers.
#define FLOWGAUGE_OTHER_SRC 0
#define FLOWGAUGE_OTHER_DST 1
#define FLOWGAUGE_OTHER_DST_PORT 2
#define FLOWGAUGE_OTHER_FIVE_TUPLE 3
#ifndef FLOWGAUGE_SPREAD_KEY
#define FLOWGAUGE_SPREAD_KEY FLOWGAUGE_KEY_DST
#endif
#ifndef FLOWGAUGE_SPREAD_OTHER
#define FLOWGAUGE_SPREAD_OTHER FLOWGAUGE_OTHER_SRC
#endif
#ifndef FLOWGAUGE_SPREAD_COLUMN_BITS
#define FLOWGAUGE_SPREAD_COLUMN_BITS 9
#endif
#ifndef FLOWGAUGE_SPREAD_REGISTER_BITS
#define FLOWGAUGE_SPREAD_REGISTER_BITS 6
#endif
const bool _spread_key_is_known = static_assert(
    FLOWGAUGE_SPREAD_KEY >= FLOWGAUGE_KEY_SRC && FLOWGAUGE_SPREAD_KEY <= FLOWGAUGE_KEY_SRC_DST,
    "FLOWGAUGE_SPREAD_KEY is not one of FLOWGAUGE_KEY_SRC, _DST, _SRC_DST");
const bool _spread_other_is_known = static_assert(
    FLOWGAUGE_SPREAD_OTHER >= FLOWGAUGE_OTHER_SRC
    && FLOWGAUGE_SPREAD_OTHER <= FLOWGAUGE_OTHER_FIVE_TUPLE,
    "FLOWGAUGE_SPREAD_OTHER is not one of FLOWGAUGE_OTHER_SRC, _DST, _DST_PORT, _FIVE_TUPLE");
const bool _spread_other_is_another = static_assert(
    FLOWGAUGE_SPREAD == 0 || FLOWGAUGE_SPREAD_OTHER >= FLOWGAUGE_OTHER_DST_PORT
    || (FLOWGAUGE_SPREAD_KEY == FLOWGAUGE_KEY_SRC && FLOWGAUGE_SPREAD_OTHER == FLOWGAUGE_OTHER_DST)
    || (FLOWGAUGE_SPREAD_KEY == FLOWGAUGE_KEY_DST && FLOWGAUGE_SPREAD_OTHER == FLOWGAUGE_OTHER_SRC),
    "FLOWGAUGE_SPREAD_OTHER is a part of FLOWGAUGE_SPREAD_KEY: a key has only one such other");
const bool _spread_columns_are_in_range = static_assert(
    FLOWGAUGE_SPREAD_COLUMN_BITS >= 4 && FLOWGAUGE_SPREAD_COLUMN_BITS <= 10,
    "FLOWGAUGE_SPREAD_COLUMN_BITS is not in 4 to 10");
const bool _spread_registers_are_in_range = static_assert(
    FLOWGAUGE_SPREAD_REGISTER_BITS >= 4 && FLOWGAUGE_SPREAD_REGISTER_BITS <= 8,
    "FLOWGAUGE_SPREAD_REGISTER_BITS is not in 4 to 8");
const bool _spread_row_is_in_range = static_assert(
    FLOWGAUGE_SPREAD_COLUMN_BITS + FLOWGAUGE_SPREAD_REGISTER_BITS <= 17,
    "FLOWGAUGE_SPREAD_COLUMN_BITS and FLOWGAUGE_SPREAD_REGISTER_BITS together are more than 17");

// Key whose hash is that of a key and one of its others. A key with the destination port and the
// protocol has a number of its own.
#define FLOWGAUGE_KEY_WITH_PORT 4
#if FLOWGAUGE_SPREAD_OTHER == FLOWGAUGE_OTHER_DST_PORT
#define FLOWGAUGE_SPREAD_PAIR FLOWGAUGE_KEY_WITH_PORT
#elif FLOWGAUGE_SPREAD_OTHER == FLOWGAUGE_OTHER_FIVE_TUPLE
#define FLOWGAUGE_SPREAD_PAIR FLOWGAUGE_KEY_FIVE_TUPLE
#else
#define FLOWGAUGE_SPREAD_PAIR FLOWGAUGE_KEY_SRC_DST
#endif

// Algorithm of round-trip delays. Each of a kind's two tables has 2^FLOWGAUGE_DELAY_SLOT_BITS
// slots. There are separate counts for 2^FLOWGAUGE_DELAY_GROUP_BITS groups of prefixes.
#define FLOWGAUGE_DELAY_FRIDGE 0
#define FLOWGAUGE_DELAY_MULTI_FRIDGE 1
#define FLOWGAUGE_DELAY_OVERWRITE 2
#define FLOWGAUGE_DELAY_EXPIRY 3
#ifndef FLOWGAUGE_DELAY_ALGORITHM
#define FLOWGAUGE_DELAY_ALGORITHM FLOWGAUGE_DELAY_FRIDGE
#endif
#ifndef FLOWGAUGE_DELAY_SLOT_BITS
#define FLOWGAUGE_DELAY_SLOT_BITS 10
#endif
#ifndef FLOWGAUGE_DELAY_GROUP_BITS
#define FLOWGAUGE_DELAY_GROUP_BITS 0
#endif
const bool _delay_algorithm_is_known = static_assert(
    FLOWGAUGE_DELAY_ALGORITHM >= FLOWGAUGE_DELAY_FRIDGE
    && FLOWGAUGE_DELAY_ALGORITHM <= FLOWGAUGE_DELAY_EXPIRY,
    "FLOWGAUGE_DELAY_ALGORITHM is not one of FLOWGAUGE_DELAY_FRIDGE, _MULTI_FRIDGE, _OVERWRITE, _EXPIRY");
const bool _delay_slots_are_in_range = static_assert(
    FLOWGAUGE_DELAY_SLOT_BITS >= 6 && FLOWGAUGE_DELAY_SLOT_BITS <= 16,
    "FLOWGAUGE_DELAY_SLOT_BITS is not in 6 to 16");
const bool _delay_groups_are_in_range = static_assert(
    FLOWGAUGE_DELAY_GROUP_BITS >= 0 && FLOWGAUGE_DELAY_GROUP_BITS <= 5,
    "FLOWGAUGE_DELAY_GROUP_BITS is not in 0 to 5");

// Reordering by source prefix: the algorithm, if any, and the number of flows tracked at a time.
#define FLOWGAUGE_REORDER_SAMPLING 1
#define FLOWGAUGE_REORDER_HYBRID 2
#ifndef FLOWGAUGE_REORDER
#define FLOWGAUGE_REORDER 0
#endif
#ifndef FLOWGAUGE_REORDER_SLOT_BITS
#define FLOWGAUGE_REORDER_SLOT_BITS 12
#endif
const bool _reorder_is_known = static_assert(
    FLOWGAUGE_REORDER >= 0 && FLOWGAUGE_REORDER <= FLOWGAUGE_REORDER_HYBRID,
    "FLOWGAUGE_REORDER is not one of 0, FLOWGAUGE_REORDER_SAMPLING, FLOWGAUGE_REORDER_HYBRID");
const bool _reorder_slots_are_in_range = static_assert(
    FLOWGAUGE_REORDER_SLOT_BITS >= 4 && FLOWGAUGE_REORDER_SLOT_BITS <= 16,
    "FLOWGAUGE_REORDER_SLOT_BITS is not in 4 to 16");

// Whether any sketch or filter uses this key, and whether anything does.
#define FLOWGAUGE_ROWS_BY(key) ((FLOWGAUGE_ENTROPY == 1 && FLOWGAUGE_ENTROPY_KEY == key) \
    || (FLOWGAUGE_ENTROPY_SECOND == 1 && FLOWGAUGE_ENTROPY_SECOND_KEY == key) \
    || (FLOWGAUGE_FREQUENCY == 1 && FLOWGAUGE_FREQUENCY_KEY == key) \
    || (FLOWGAUGE_MEMBERSHIP == 1 && FLOWGAUGE_MEMBERSHIP_KEY == key) \
    || (FLOWGAUGE_SPREAD == 1 && (FLOWGAUGE_SPREAD_KEY == key || FLOWGAUGE_SPREAD_PAIR == key)))
#define FLOWGAUGE_USES(key) ((FLOWGAUGE_CARDINALITY != 0 && FLOWGAUGE_KEY == key) \
    || (FLOWGAUGE_HEAVY == 1 && FLOWGAUGE_HEAVY_KEY == key) \
    || (FLOWGAUGE_REORDER != 0 && FLOWGAUGE_KEY_FIVE_TUPLE == key) || FLOWGAUGE_ROWS_BY(key))

// Whether a key in use has ports, and whether anything uses the protocol and the ports of a packet,
// behind IPv6 extension headers.
#define FLOWGAUGE_USES_PORTS \
    (FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE) || FLOWGAUGE_USES(FLOWGAUGE_KEY_WITH_PORT))
#define FLOWGAUGE_USES_TRANSPORT (FLOWGAUGE_MATCH == 1 || FLOWGAUGE_USES_PORTS)

// Names by the number of a key: hashes of the packet, and names of the control plane. They are
// macros, since a parameter of a control cannot be part of a name that a controller looks up.
#define FLOWGAUGE_KEY_NAME_0 src
#define FLOWGAUGE_KEY_NAME_1 dst
#define FLOWGAUGE_KEY_NAME_2 src_dst
#define FLOWGAUGE_KEY_NAME_3 five_tuple
#define FLOWGAUGE_KEY_NAME_4 with_port
#define FLOWGAUGE_PASTE(left, right) left##right
#define FLOWGAUGE_JOIN(left, right) FLOWGAUGE_PASTE(left, right)
#define FLOWGAUGE_HASHES(key) md.flowgauge.FLOWGAUGE_JOIN(FLOWGAUGE_KEY_NAME_, key)
#define FLOWGAUGE_BY_KEY(name, key) FLOWGAUGE_JOIN(name##_by_, FLOWGAUGE_JOIN(FLOWGAUGE_KEY_NAME_, key))

// Attaches a setting to the table below, by its name and value as texts. The compiler writes them
// to the schema, where the controller reads what it was compiled with; they cost the chip nothing.
#define FLOWGAUGE_TEXT(value) #value
#define FLOWGAUGE_STATE(setting) @user_annotation(#setting, FLOWGAUGE_TEXT(setting))
