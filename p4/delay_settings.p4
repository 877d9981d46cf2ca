// Round-trip delays: kinds and separate counts of a build, and the indices of arrays that follow
// from them.

const int FLOWGAUGE_DELAY_KINDS = FLOWGAUGE_DELAY_TCP_HANDSHAKE + FLOWGAUGE_DELAY_TCP_DATA
    + FLOWGAUGE_DELAY_TCP_DURATION + FLOWGAUGE_DELAY_TCP_TIMESTAMPS + FLOWGAUGE_DELAY_DNS
    + FLOWGAUGE_DELAY_ICMP + FLOWGAUGE_DELAY_QUIC_SPIN;
const bool FLOWGAUGE_DELAY_EXPIRES = FLOWGAUGE_DELAY_ALGORITHM == FLOWGAUGE_DELAY_EXPIRY;
const bool FLOWGAUGE_DELAY_WEIGHS =
    FLOWGAUGE_DELAY_ALGORITHM != FLOWGAUGE_DELAY_OVERWRITE && !FLOWGAUGE_DELAY_EXPIRES;

const bool _delay_has_kind = static_assert(FLOWGAUGE_DELAY == 0 || FLOWGAUGE_DELAY_KINDS > 0,
    "FLOWGAUGE_DELAY is 1, and no kind of delays is: FLOWGAUGE_DELAY_TCP_HANDSHAKE, _TCP_DATA, _TCP_DURATION, _TCP_TIMESTAMPS, _DNS, _ICMP, _QUIC_SPIN");
// A SYN is a request of handshakes and of timestamps as well, a FIN may acknowledge data, and
// connections have other ticks. A packet with a timestamp or a spin bit does to the arrays what
// others do not.
const bool _delay_kinds_go_together = static_assert(
    FLOWGAUGE_DELAY_TCP_DURATION + FLOWGAUGE_DELAY_TCP_TIMESTAMPS + FLOWGAUGE_DELAY_QUIC_SPIN == 0
    || FLOWGAUGE_DELAY_KINDS == 1,
    "FLOWGAUGE_DELAY_TCP_DURATION, _TCP_TIMESTAMPS and _QUIC_SPIN take a build of their own each");
const bool _delay_kinds_expire = static_assert(!FLOWGAUGE_DELAY_EXPIRES
    || FLOWGAUGE_DELAY_TCP_TIMESTAMPS + FLOWGAUGE_DELAY_QUIC_SPIN == 0,
    "FLOWGAUGE_DELAY_EXPIRY goes without FLOWGAUGE_DELAY_TCP_TIMESTAMPS and _QUIC_SPIN: what was answered stays, and a stateful ALU has no third comparison for it");

// Number of a kind among those of a build, in their order.
const bit<2> FLOWGAUGE_DELAY_RANK_OF_TCP_HANDSHAKE = 0;
const bit<2> FLOWGAUGE_DELAY_RANK_OF_TCP_DATA = FLOWGAUGE_DELAY_TCP_HANDSHAKE;
const bit<2> FLOWGAUGE_DELAY_RANK_OF_TCP_DURATION = 0;
const bit<2> FLOWGAUGE_DELAY_RANK_OF_TCP_TIMESTAMPS = 0;
const bit<2> FLOWGAUGE_DELAY_RANK_OF_DNS = FLOWGAUGE_DELAY_TCP_HANDSHAKE + FLOWGAUGE_DELAY_TCP_DATA;
const bit<2> FLOWGAUGE_DELAY_RANK_OF_QUIC_SPIN = 0;
const bit<2> FLOWGAUGE_DELAY_RANK_OF_ICMP =
    FLOWGAUGE_DELAY_TCP_HANDSHAKE + FLOWGAUGE_DELAY_TCP_DATA + FLOWGAUGE_DELAY_DNS;

// Bits of an index for the kind, for the fridge (four fridges share the slots of a kind), and for
// the label: the group of prefixes, and the direction by local addresses.
const int FLOWGAUGE_DELAY_KIND_BITS = FLOWGAUGE_DELAY_KINDS > 2 ? 2 : (FLOWGAUGE_DELAY_KINDS > 1 ? 1 : 0);
const int FLOWGAUGE_DELAY_FRIDGE_BITS =
    FLOWGAUGE_DELAY_ALGORITHM == FLOWGAUGE_DELAY_MULTI_FRIDGE ? 2 : 0;
const int FLOWGAUGE_DELAY_ROW_BITS = FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_FRIDGE_BITS;
const int FLOWGAUGE_DELAY_LABEL_BITS = FLOWGAUGE_DELAY_GROUP_BITS + FLOWGAUGE_DELAY_LOCAL;
// Either stage of a table of requests that expire has half of its slots.
const int FLOWGAUGE_DELAY_STAGE_BITS = FLOWGAUGE_DELAY_SLOT_BITS - 1;
const int FLOWGAUGE_DELAY_INDEX_BITS = FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_SLOT_BITS;
const int FLOWGAUGE_DELAY_STAGE_INDEX_BITS = FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_STAGE_BITS;
const int FLOWGAUGE_DELAY_COUNT_BITS = FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_LABEL_BITS + 1;
const int FLOWGAUGE_DELAY_BUCKET_BITS = FLOWGAUGE_DELAY_ROW_BITS + FLOWGAUGE_DELAY_LABEL_BITS + 11;

// Index of a slot, of a slot of one stage, of a kind's fridge, of a count, and of a bucket.
typedef bit<(FLOWGAUGE_DELAY_INDEX_BITS)> flowgauge_delay_slot_t;
typedef bit<(FLOWGAUGE_DELAY_STAGE_INDEX_BITS)> flowgauge_delay_stage_slot_t;
typedef bit<(FLOWGAUGE_DELAY_ROW_BITS == 0 ? 1 : FLOWGAUGE_DELAY_ROW_BITS)> flowgauge_delay_row_t;
typedef bit<(FLOWGAUGE_DELAY_COUNT_BITS)> flowgauge_delay_count_t;
typedef bit<(FLOWGAUGE_DELAY_BUCKET_BITS)> flowgauge_delay_bucket_t;

const bool _delay_slots_fit = static_assert(FLOWGAUGE_DELAY_INDEX_BITS <= 16,
    "too many slots: FLOWGAUGE_DELAY_SLOT_BITS is at most 16 with one kind of delays, 15 with two, 14 with more");
const bool _delay_fridges_have_slots = static_assert(
    FLOWGAUGE_DELAY_FRIDGE_BITS == 0 || FLOWGAUGE_DELAY_SLOT_BITS >= 8,
    "FLOWGAUGE_DELAY_SLOT_BITS is below 8, which four fridges need");
const bool _delay_durations_have_no_label = static_assert(
    FLOWGAUGE_DELAY_LABEL_BITS == 0 || FLOWGAUGE_DELAY_TCP_DURATION == 0,
    "FLOWGAUGE_DELAY_TCP_DURATION goes without FLOWGAUGE_DELAY_GROUP_BITS and FLOWGAUGE_DELAY_LOCAL: either end closes a connection");
const bool _delay_counts_fit = static_assert(
    FLOWGAUGE_DELAY_ROW_BITS + FLOWGAUGE_DELAY_LABEL_BITS <= 5,
    "too many separate counts: kinds, times four for multi-fridge, times groups, times two with FLOWGAUGE_DELAY_LOCAL, are at most 32");

// A tick is 2^6 ns, of connections 2^12 ns. Requests that expire have times of 31 bits: a stateful
// ALU compares differences with 34 bits, which do not wrap.
const int FLOWGAUGE_DELAY_TICK_BITS = FLOWGAUGE_DELAY_TCP_DURATION == 1 ? 12 : 6;
const int FLOWGAUGE_DELAY_SIGN = FLOWGAUGE_DELAY_EXPIRES ? 30 : 31;
// Whether zero stands for no time.
const bool FLOWGAUGE_DELAY_ZERO_IS_NO_TIME = FLOWGAUGE_DELAY_EXPIRES
    || FLOWGAUGE_DELAY_TCP_TIMESTAMPS + FLOWGAUGE_DELAY_QUIC_SPIN > 0;
// Whether requests are segments that may carry data.
const bool FLOWGAUGE_DELAY_HAS_DATA = FLOWGAUGE_DELAY_TCP_DATA + FLOWGAUGE_DELAY_TCP_TIMESTAMPS > 0;

// Indices, of the parts that a build has. The conditions are constants, so that only one branch is
// left. These are macros because no field has no bits.
//
// Kind; what follows a kind; slot: the upper bits of the hash, which do not admit; cell of recent
// requests: the next bits; kind and fridge;
// kind, group and direction of a count; bucket of delays.
#define FLOWGAUGE_DELAY_KIND \
    (FLOWGAUGE_DELAY_KIND_BITS == 2 ? md.flowgauge.delay_kind : md.flowgauge.delay_kind[0:0])
#define FLOWGAUGE_DELAY_AFTER_KIND(part) \
    (FLOWGAUGE_DELAY_KIND_BITS == 0 ? part : FLOWGAUGE_DELAY_KIND ++ part)
#define FLOWGAUGE_DELAY_SLOT(place) (FLOWGAUGE_DELAY_FRIDGE_BITS == 0 \
    ? FLOWGAUGE_DELAY_AFTER_KIND(place.hash[31:32 - FLOWGAUGE_DELAY_SLOT_BITS]) \
    : FLOWGAUGE_DELAY_AFTER_KIND(place.fridge) \
        ++ place.hash[31:32 - (FLOWGAUGE_DELAY_SLOT_BITS - FLOWGAUGE_DELAY_FRIDGE_BITS)])
#define FLOWGAUGE_DELAY_CELL(place) FLOWGAUGE_DELAY_AFTER_KIND( \
    place.hash[31 - FLOWGAUGE_DELAY_SLOT_BITS:32 - 2 * FLOWGAUGE_DELAY_SLOT_BITS])
#define FLOWGAUGE_DELAY_ROW(place) (FLOWGAUGE_DELAY_FRIDGE_BITS == 0 \
    ? (FLOWGAUGE_DELAY_KIND_BITS == 0 ? 1w0 : FLOWGAUGE_DELAY_KIND) \
    : FLOWGAUGE_DELAY_AFTER_KIND(place.fridge))
#define FLOWGAUGE_DELAY_LABEL(place, part) (FLOWGAUGE_DELAY_GROUP_BITS == 0 \
    ? (FLOWGAUGE_DELAY_LOCAL == 0 ? part : part ++ place.leaves) \
    : (FLOWGAUGE_DELAY_LOCAL == 0 ? part ++ place.group : part ++ place.group ++ place.leaves))
#define FLOWGAUGE_DELAY_COUNTS_INDEX(place) FLOWGAUGE_DELAY_LABEL(place, \
    (FLOWGAUGE_DELAY_KIND_BITS == 0 ? md.flowgauge.bank : md.flowgauge.bank ++ FLOWGAUGE_DELAY_KIND))
#define FLOWGAUGE_DELAY_BUCKET (FLOWGAUGE_DELAY_FRIDGE_BITS == 0 \
    ? FLOWGAUGE_DELAY_COUNTS_INDEX(FLOWGAUGE_DELAY_FOUND) ++ bucket \
    : FLOWGAUGE_DELAY_COUNTS_INDEX(FLOWGAUGE_DELAY_FOUND) ++ FLOWGAUGE_DELAY_FOUND.fridge ++ bucket)

// Request that a packet answers. A spin bit answers the one before it in the same place.
#define FLOWGAUGE_DELAY_FOUND \
    (FLOWGAUGE_DELAY_QUIC_SPIN == 1 ? md.flowgauge.asked : md.flowgauge.answered)

// Whether a build weighs delays, and whether it also remembers recent requests: requests of other
// kinds are repeated as a rule, and are put in a table once.
#define FLOWGAUGE_DELAY_HAS_WEIGHTS (FLOWGAUGE_DELAY_ALGORITHM != FLOWGAUGE_DELAY_OVERWRITE \
    && FLOWGAUGE_DELAY_ALGORITHM != FLOWGAUGE_DELAY_EXPIRY)
#define FLOWGAUGE_DELAY_REMEMBERS (FLOWGAUGE_DELAY_HAS_WEIGHTS \
    && !FLOWGAUGE_DELAY_TCP_TIMESTAMPS && !FLOWGAUGE_DELAY_QUIC_SPIN)

// Flag of a DNS message that is an answer.
const bit<16> DNS_ANSWER = 0x8000;
