// Source prefixes that reorder TCP packets: some flows of each prefix are tracked, and count for
// the prefix (dataplane/core/src/reorder).
//
// A flow has a persistent slot: signature and time, the highest end of a segment, the bytes missing
// before it, and the late segments of a window. A prefix has one of two places in each bank.

// Number of buckets, and of slots for large flows, as powers of two: the upper half of the slots of
// a hybrid is for large flows.
const int FLOWGAUGE_REORDER_TABLE_BITS = FLOWGAUGE_REORDER == FLOWGAUGE_REORDER_HYBRID
    ? FLOWGAUGE_REORDER_SLOT_BITS - 1 : FLOWGAUGE_REORDER_SLOT_BITS;
typedef bit<(FLOWGAUGE_REORDER_TABLE_BITS)> flowgauge_bucket_index_t;
typedef bit<(FLOWGAUGE_REORDER_SLOT_BITS)> flowgauge_slot_index_t;

// Slot of a bucket, and of the packet's flow, among all slots.
#define FLOWGAUGE_REORDER_SLOT_OF_BUCKET (FLOWGAUGE_REORDER == FLOWGAUGE_REORDER_HYBRID \
    ? 1w0 ++ bucket[FLOWGAUGE_REORDER_TABLE_BITS - 1:0] \
    : bucket[FLOWGAUGE_REORDER_TABLE_BITS - 1:0])
#define FLOWGAUGE_REORDER_SLOT (FLOWGAUGE_REORDER == FLOWGAUGE_REORDER_HYBRID \
    ? md.flowgauge.followed.is_large ++ slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0] \
    : slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0])

// A prefix has one place in each half of a bank.
const int FLOWGAUGE_REORDER_PLACE_BITS = 13;
// Bank and place in a half, and bank, half and place.
typedef bit<(FLOWGAUGE_REORDER_PLACE_BITS + 1)> flowgauge_half_index_t;
typedef bit<(FLOWGAUGE_REORDER_PLACE_BITS + 2)> flowgauge_place_index_t;

// Idle time, in steps of 2^16 ns, after which any flow may take a slot.
const bit<32> FLOWGAUGE_REORDER_IDLE = 16384;
// Maximum number of late segments per flow and window that are counted, times two, plus one.
const bit<32> FLOWGAUGE_REORDER_LAST_ODD = 0x7fff;

// Operations on a slot.
const bit<3> REORDER_FOLLOW = 1;
const bit<3> REORDER_TAKE = 2;
const bit<3> REORDER_END = 3;
const bit<3> REORDER_FORGET = 4;

// Previous state of a slot.
const bit<4> REORDER_OTHERS = 1;
const bit<4> REORDER_MINE = 2;
const bit<4> REORDER_IDLE = 4;
const bit<4> REORDER_MINE_AND_IDLE = 8;

// State of a flow.
const bit<2> REORDER_KNOWN = 1;
const bit<2> REORDER_NEW = 2;
const bit<2> REORDER_NOT_FOLLOWED = 3;

// Class of a segment.
const bit<3> REORDER_IN_ORDER = 1;
const bit<3> REORDER_GAP = 2;
const bit<3> REORDER_LATE = 3;
const bit<3> REORDER_KEEP_ALIVE = 4;

struct flowgauge_slot_t {
    bit<32> signature;
    bit<32> until;
}

// Window number, and twice its late segments plus one, which is the increment of the square for the
// next late segment.
struct flowgauge_late_t {
    bit<32> window;
    bit<32> odd;
}

struct flowgauge_followed_packets_t {
    bit<32> packets;
    bit<32> flows;
}

struct flowgauge_out_of_order_t {
    bit<32> packets;
    bit<32> squares;
}

struct flowgauge_other_packets_t {
    bit<32> gaps;
    bit<32> retransmitted;
}

// Three parts, in this order: classify a segment, follow its flow, count for its prefix. What
// depends on each other takes ten steps, one stage after another: CRC (1), words (2), fold (3),
// large flows (4), buckets (5), highest end (6), difference (7), missing bytes and first place (8),
// late segments and second place (9), counters (10). A pipe needs 11 stages for them (README.md,
// "Does it fit?").
//
// Objects that exist twice are written out: a control of their own would put the name of its
// instance into the names of its registers.
control FlowgaugeReorder(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                         in ingress_intrinsic_metadata_from_parser_t ig_prsr_md) {
    bit<32> now;
    bit<32> mine;
    bit<16> carried;
    bit<16> payload;
    bit<32> begin;
    bit<32> length;
    bit<32> end;
    // The end plus half of all sequence numbers, as a signed number.
    bit<32> opposite;
    bit<32> sequence_crc;
    bit<32> random;
    // Source prefix: its upper bits, and 4 or 6.
    bit<32> prefix_high;
    bit<24> prefix_low;
    bit<8> prefix_version;
    bit<32> prefix_crc;
    bit<32> upper;
    bit<32> lower;
    bit<16> place;
    bit<16> other_place;
    bit<16> bucket;
    bit<16> large_slot;
    bit<16> slot;
    bit<32> expected;
    bit<32> difference;
    bit<32> window;
    bit<32> odd;

    // Classify: hashes of flow and prefix, and which operations the segment does to the slots.

    flowgauge_words_t places_words;
    // Step 2.
    FlowgaugeTabulation() places;

    // Step 3: 16 bits of the XOR of words. Fields of the same width can be copied, parts of a wider
    // one cannot.
    Hash<bit<16>>(HashAlgorithm_t.XOR16) xor_place;

    action fold_place() {
        place = xor_place.get({
            places_words.low0[15:0], places_words.low1[15:0],
            places_words.low2[15:0], places_words.low3[15:0] });
    }

    Hash<bit<16>>(HashAlgorithm_t.XOR16) xor_other_place;

    action fold_other_place() {
        other_place = xor_other_place.get({
            places_words.low0[29:14], places_words.low1[29:14],
            places_words.low2[29:14], places_words.low3[29:14] });
    }

    Hash<bit<16>>(HashAlgorithm_t.XOR16) xor_bucket;

    action fold_bucket() {
        bucket = xor_bucket.get({
            places_words.low0[31:16], places_words.low1[31:16],
            places_words.low2[31:16], places_words.low3[31:16] });
    }

    flowgauge_words_t large_words;
    FlowgaugeTabulation() large;
    Hash<bit<16>>(HashAlgorithm_t.XOR16) xor_large_slot;

    action fold_large_slot() {
        large_slot = xor_large_slot.get({
            large_words.low0[15:0], large_words.low1[15:0],
            large_words.low2[15:0], large_words.low3[15:0] });
    }

    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) tick;
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) mark;
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) payload_length;
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) upper_half;
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) lower_half;
    FLOWGAUGE_POLYNOMIAL(sequence_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, sequence_polynomial) sequence_hash;
    FLOWGAUGE_POLYNOMIAL(prefix_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, prefix_polynomial) prefix_hash;

    action set_now() {
        now = tick.get({ ig_prsr_md.global_tstamp[47:16] });
    }

    action set_window() {
        window = mark.get({ 30w0, md.flowgauge.bank, 1w1 });
    }

    action set_mine() {
        mine = md.flowgauge.five_tuple.crc | 1;
    }

    action hash_sequence() {
        sequence_crc = sequence_hash.get({ hdr.tcp.sequence });
    }

    action set_random() {
        random = md.flowgauge.five_tuple.crc ^ sequence_crc;
    }

    // The controller sets the prefix length.
    action set_ipv4_prefix(bit<32> mask) {
        prefix_high = hdr.ipv4.src_addr & mask;
        prefix_low = 0;
        prefix_version = 4;
    }

    action set_ipv6_prefix(bit<32> mask, bit<24> lower_mask) {
        prefix_high = hdr.ipv6.src_addr[127:96] & mask;
        prefix_low = hdr.ipv6.src_addr[95:72] & lower_mask;
        prefix_version = 6;
    }

    table ipv4_prefix {
        actions = { set_ipv4_prefix; }
        default_action = set_ipv4_prefix(0);
        size = 1;
    }

    table ipv6_prefix {
        actions = { set_ipv6_prefix; }
        default_action = set_ipv6_prefix(0, 0);
        size = 1;
    }

    action hash_prefix() {
        prefix_crc = prefix_hash.get({ prefix_high, prefix_low, prefix_version });
    }

    action set_upper() {
        upper = upper_half.get({ prefix_high[31:4], prefix_version[3:0] });
    }

    action set_lower() {
        lower = lower_half.get({ prefix_high[3:0], prefix_low, prefix_version[3:0] });
    }

    // Length of the payload: that of the packet minus the headers, where TCP's has up to 15 words.
    // If the headers are longer than the packet, the result is negative: a large number with a
    // small packet length.
    action set_ipv4_carried() {
        carried = hdr.ipv4.total_length + 0xffec;
    }

    action set_ipv6_carried() {
        carried = hdr.ipv6.payload_length;
    }

    action set_payload(bit<16> less) {
        payload = carried + less;
    }

    table payloads {
        key = { hdr.tcp.data_offset : exact @name("data_offset"); }
        actions = { set_payload; }
        const entries = {
            5: set_payload(0x10000 - 20);
            6: set_payload(0x10000 - 24);
            7: set_payload(0x10000 - 28);
            8: set_payload(0x10000 - 32);
            9: set_payload(0x10000 - 36);
            10: set_payload(0x10000 - 40);
            11: set_payload(0x10000 - 44);
            12: set_payload(0x10000 - 48);
            13: set_payload(0x10000 - 52);
            14: set_payload(0x10000 - 56);
            15: set_payload(0x10000 - 60);
        }
        const default_action = set_payload(0);
        size = 16;
    }

    action set_length() {
        length = payload_length.get({ 16w0, payload });
    }

    // A FIN has a sequence number of its own.
    action set_begin_after_fin() {
        begin = hdr.tcp.sequence + 1;
    }

    action set_begin() {
        begin = hdr.tcp.sequence;
    }

    action set_end() {
        end = begin + length;
    }

    action set_opposite() {
        opposite = end + 0x80000000;
    }

    action set_operations(bit<3> large_does, bit<3> bucket_does) {
        md.flowgauge.followed.large_does = large_does;
        md.flowgauge.followed.bucket_does = bucket_does;
    }

    action ignore() {}

    // A share of segments, selected by a hash, takes a slot from another flow, but not the last one
    // of its flow.
    table roles {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.tcp.isValid() : ternary @name("tcp");
            hdr.tcp.flags : ternary @name("flags");
            payload : ternary @name("payload");
            hdr.ipv4.isValid() : ternary @name("ipv4");
            hdr.ipv4.total_length[15:15] : ternary @name("ipv4_length");
            hdr.ipv6.payload_length[15:15] : ternary @name("ipv6_length");
            random : ternary @name("random");
        }
        actions = {
            set_operations;
            ignore;
        }
        const entries = {
            (0, _, _, _, _, _, _, _): ignore();
            (_, false, _, _, _, _, _, _): ignore();
            (1, true, TCP_SYN &&& TCP_SYN, _, _, _, _, _):
                set_operations(REORDER_FORGET, REORDER_FORGET);
            (1, true, TCP_RST &&& TCP_RST, _, _, _, _, _): ignore();
            (1, true, _, 0, _, _, _, _): ignore();
            (1, true, _, 0x8000 &&& 0x8000, true, 0, _, _): ignore();
            (1, true, _, 0x8000 &&& 0x8000, false, _, 0, _): ignore();
            (1, true, TCP_FIN &&& TCP_FIN, _, _, _, _, _): set_operations(REORDER_END, REORDER_END);
            (1, true, _, _, _, _, _, 0 &&& 0xffff0000): set_operations(REORDER_TAKE, REORDER_TAKE);
            (1, true, _, _, _, _, _, 0 &&& 0xffc00000):
                set_operations(REORDER_TAKE, REORDER_FOLLOW);
            (1, true, _, _, _, _, _, 0 &&& 0x003f0000):
                set_operations(REORDER_FOLLOW, REORDER_TAKE);
            (1, true, _, _, _, _, _, _): set_operations(REORDER_FOLLOW, REORDER_FOLLOW);
        }
        const default_action = ignore();
        size = 16;
    }

    // Follow: the slot of the flow, and the highest end of its segments.

    // Owners of slots. Time does not wrap here: for any clock, bits of a hash admit some flows.
#if FLOWGAUGE_REORDER == FLOWGAUGE_REORDER_HYBRID
    Register<flowgauge_slot_t, flowgauge_bucket_index_t>(
        1 << FLOWGAUGE_REORDER_TABLE_BITS, {0, 0}) large_slots;
    RegisterAction<flowgauge_slot_t, flowgauge_bucket_index_t, bit<4>>(large_slots)
    follow_in_large_slots = {
        void apply(inout flowgauge_slot_t flow, out bit<4> had) {
            had = this.predicate(flow.signature == mine, flow.until <= now);
            if (flow.signature == mine || flow.until <= now) {
                flow.signature = mine;
                flow.until = now + FLOWGAUGE_REORDER_IDLE;
            }
        }
    };
    RegisterAction<flowgauge_slot_t, flowgauge_bucket_index_t, bit<4>>(large_slots)
    take_in_large_slots = {
        void apply(inout flowgauge_slot_t flow, out bit<4> had) {
            had = this.predicate(flow.signature == mine, flow.until <= now);
            flow.signature = mine;
            flow.until = now + FLOWGAUGE_REORDER_IDLE;
        }
    };
    RegisterAction<flowgauge_slot_t, flowgauge_bucket_index_t, bit<4>>(large_slots)
    end_in_large_slots = {
        void apply(inout flowgauge_slot_t flow, out bit<4> had) {
            had = this.predicate(flow.signature == mine, flow.until <= now);
            if (flow.signature == mine || flow.until <= now) {
                flow.signature = mine;
                flow.until = 0;
            }
        }
    };
    RegisterAction<flowgauge_slot_t, flowgauge_bucket_index_t, bit<4>>(large_slots)
    forget_in_large_slots = {
        void apply(inout flowgauge_slot_t flow) {
            if (flow.signature == mine) {
                flow.signature = 0;
                flow.until = 0;
            }
        }
    };

    action follow_large_flow() {
        md.flowgauge.followed.large_had = follow_in_large_slots.execute(
            large_slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
    }

    action take_large_slot() {
        md.flowgauge.followed.large_had = take_in_large_slots.execute(
            large_slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
    }

    action end_large_flow() {
        md.flowgauge.followed.large_had = end_in_large_slots.execute(
            large_slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
    }

    action forget_large_flow() {
        forget_in_large_slots.execute(
            large_slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
    }

    // Step 4.
    table large_flows {
        key = { md.flowgauge.followed.large_does : exact @name("does"); }
        actions = {
            follow_large_flow;
            take_large_slot;
            end_large_flow;
            forget_large_flow;
            ignore;
        }
        const entries = {
            REORDER_FOLLOW: follow_large_flow();
            REORDER_TAKE: take_large_slot();
            REORDER_END: end_large_flow();
            REORDER_FORGET: forget_large_flow();
        }
        const default_action = ignore();
        size = 4;
    }
#endif

    Register<flowgauge_slot_t, flowgauge_bucket_index_t>(
        1 << FLOWGAUGE_REORDER_TABLE_BITS, {0, 0}) buckets;
    RegisterAction<flowgauge_slot_t, flowgauge_bucket_index_t, bit<4>>(buckets)
    follow_in_buckets = {
        void apply(inout flowgauge_slot_t flow, out bit<4> had) {
            had = this.predicate(flow.signature == mine, flow.until <= now);
            if (flow.signature == mine || flow.until <= now) {
                flow.signature = mine;
                flow.until = now + FLOWGAUGE_REORDER_IDLE;
            }
        }
    };
    RegisterAction<flowgauge_slot_t, flowgauge_bucket_index_t, bit<4>>(buckets)
    take_in_buckets = {
        void apply(inout flowgauge_slot_t flow, out bit<4> had) {
            had = this.predicate(flow.signature == mine, flow.until <= now);
            flow.signature = mine;
            flow.until = now + FLOWGAUGE_REORDER_IDLE;
        }
    };
    RegisterAction<flowgauge_slot_t, flowgauge_bucket_index_t, bit<4>>(buckets)
    end_in_buckets = {
        void apply(inout flowgauge_slot_t flow, out bit<4> had) {
            had = this.predicate(flow.signature == mine, flow.until <= now);
            if (flow.signature == mine || flow.until <= now) {
                flow.signature = mine;
                flow.until = 0;
            }
        }
    };
    RegisterAction<flowgauge_slot_t, flowgauge_bucket_index_t, bit<4>>(buckets)
    forget_in_buckets = {
        void apply(inout flowgauge_slot_t flow) {
            if (flow.signature == mine) {
                flow.signature = 0;
                flow.until = 0;
            }
        }
    };

    action follow_bucket_flow() {
        md.flowgauge.followed.bucket_had = follow_in_buckets.execute(
            bucket[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
    }

    action take_bucket() {
        md.flowgauge.followed.bucket_had = take_in_buckets.execute(
            bucket[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
    }

    action end_bucket_flow() {
        md.flowgauge.followed.bucket_had = end_in_buckets.execute(
            bucket[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
    }

    action forget_bucket_flow() {
        forget_in_buckets.execute(
            bucket[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
    }

    // Step 5. A flow that the other slots start to track is removed here.
    table bucket_flows {
        key = {
            md.flowgauge.followed.large_does : ternary @name("large_does");
            md.flowgauge.followed.large_had : ternary @name("large_had");
            md.flowgauge.followed.bucket_does : ternary @name("does");
        }
        actions = {
            follow_bucket_flow;
            take_bucket;
            end_bucket_flow;
            forget_bucket_flow;
            ignore;
        }
        const entries = {
#if FLOWGAUGE_REORDER == FLOWGAUGE_REORDER_HYBRID
            (_, REORDER_MINE, _): ignore();
            (_, REORDER_MINE_AND_IDLE, _): ignore();
            (_, REORDER_IDLE, _): forget_bucket_flow();
            (REORDER_TAKE, REORDER_OTHERS, _): forget_bucket_flow();
#endif
            (_, _, REORDER_FOLLOW): follow_bucket_flow();
            (_, _, REORDER_TAKE): take_bucket();
            (_, _, REORDER_END): end_bucket_flow();
            (_, _, REORDER_FORGET): forget_bucket_flow();
        }
        const default_action = ignore();
        size = 16;
    }

    // Highest end of a segment. Sequence numbers wrap and comparisons do not: a non-negative signed
    // end is ahead of those below it down to the opposite one, and a negative one of those below it
    // and of those above the opposite one.
    Register<bit<32>, flowgauge_slot_index_t>(1 << FLOWGAUGE_REORDER_SLOT_BITS, 0) next;
    RegisterAction<bit<32>, flowgauge_slot_index_t, bit<32>>(next) begin_next = {
        void apply(inout bit<32> highest) {
            highest = end;
        }
    };
    RegisterAction<bit<32>, flowgauge_slot_index_t, bit<32>>(next) go_on_low = {
        void apply(inout bit<32> highest, out bit<32> before) {
            before = highest;
            if ((int<32>) highest <= (int<32>) end && (int<32>) highest > (int<32>) opposite) {
                highest = end;
            }
        }
    };
    RegisterAction<bit<32>, flowgauge_slot_index_t, bit<32>>(next) go_on_high = {
        void apply(inout bit<32> highest, out bit<32> before) {
            before = highest;
            if ((int<32>) highest <= (int<32>) end || (int<32>) highest > (int<32>) opposite) {
                highest = end;
            }
        }
    };

    // Expected sequence number of a flow.
    action begin_in_bucket() {
        begin_next.execute(FLOWGAUGE_REORDER_SLOT_OF_BUCKET);
        slot = bucket;
        md.flowgauge.followed.is_large = 0;
        md.flowgauge.followed.kind = REORDER_NEW;
        md.flowgauge.followed.is_anew = 1;
    }

    action go_on_low_in_bucket(bit<1> is_anew) {
        expected = go_on_low.execute(FLOWGAUGE_REORDER_SLOT_OF_BUCKET);
        slot = bucket;
        md.flowgauge.followed.is_large = 0;
        md.flowgauge.followed.kind = REORDER_KNOWN;
        md.flowgauge.followed.is_anew = is_anew;
    }

    action go_on_high_in_bucket(bit<1> is_anew) {
        expected = go_on_high.execute(FLOWGAUGE_REORDER_SLOT_OF_BUCKET);
        slot = bucket;
        md.flowgauge.followed.is_large = 0;
        md.flowgauge.followed.kind = REORDER_KNOWN;
        md.flowgauge.followed.is_anew = is_anew;
    }

    action leave_unfollowed() {
        md.flowgauge.followed.kind = REORDER_NOT_FOLLOWED;
    }

#if FLOWGAUGE_REORDER == FLOWGAUGE_REORDER_HYBRID
    action begin_in_large() {
        begin_next.execute(1w1 ++ large_slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
        slot = large_slot;
        md.flowgauge.followed.is_large = 1;
        md.flowgauge.followed.kind = REORDER_NEW;
        md.flowgauge.followed.is_anew = 1;
    }

    action go_on_low_in_large(bit<1> is_anew) {
        expected = go_on_low.execute(1w1 ++ large_slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
        slot = large_slot;
        md.flowgauge.followed.is_large = 1;
        md.flowgauge.followed.kind = REORDER_KNOWN;
        md.flowgauge.followed.is_anew = is_anew;
    }

    action go_on_high_in_large(bit<1> is_anew) {
        expected = go_on_high.execute(1w1 ++ large_slot[FLOWGAUGE_REORDER_TABLE_BITS - 1:0]);
        slot = large_slot;
        md.flowgauge.followed.is_large = 1;
        md.flowgauge.followed.kind = REORDER_KNOWN;
        md.flowgauge.followed.is_anew = is_anew;
    }

    // Step 6.
    table expect_in_large {
        key = {
            md.flowgauge.followed.large_had : ternary @name("had");
            end[31:31] : ternary @name("sign");
        }
        actions = {
            begin_in_large;
            go_on_low_in_large;
            go_on_high_in_large;
            ignore;
        }
        const entries = {
            (REORDER_MINE, 0): go_on_low_in_large(0);
            (REORDER_MINE, 1): go_on_high_in_large(0);
            (REORDER_MINE_AND_IDLE, 0): go_on_low_in_large(1);
            (REORDER_MINE_AND_IDLE, 1): go_on_high_in_large(1);
            (_, _): begin_in_large();
        }
        const default_action = ignore();
        size = 8;
    }
#endif

    // Step 6.
    table expect_in_bucket {
        key = {
            md.flowgauge.followed.bucket_does : ternary @name("does");
            md.flowgauge.followed.bucket_had : ternary @name("had");
            end[31:31] : ternary @name("sign");
        }
        actions = {
            begin_in_bucket;
            go_on_low_in_bucket;
            go_on_high_in_bucket;
            leave_unfollowed;
            ignore;
        }
        const entries = {
            (_, REORDER_MINE, 0): go_on_low_in_bucket(0);
            (_, REORDER_MINE, 1): go_on_high_in_bucket(0);
            (_, REORDER_MINE_AND_IDLE, 0): go_on_low_in_bucket(1);
            (_, REORDER_MINE_AND_IDLE, 1): go_on_high_in_bucket(1);
            (_, REORDER_IDLE, _): begin_in_bucket();
            (REORDER_TAKE, REORDER_OTHERS, _): begin_in_bucket();
            (_, REORDER_OTHERS, _): leave_unfollowed();
        }
        const default_action = ignore();
        size = 8;
    }

    Register<bit<32>, bit<1>>(2, 0) unfollowed;
    RegisterAction<bit<32>, bit<1>, bit<32>>(unfollowed) count_unfollowed = {
        void apply(inout bit<32> packets) {
            packets = packets + 1;
        }
    };

    action subtract() {
        difference = hdr.tcp.sequence - expected;
    }

    // Step 7. A table, so that the difference is computed before it is tested.
    table differences {
        actions = { subtract; }
        const default_action = subtract();
        size = 1;
    }

    // Missing bytes before the highest end.
    Register<bit<32>, flowgauge_slot_index_t>(1 << FLOWGAUGE_REORDER_SLOT_BITS, 0) missing;
    RegisterAction<bit<32>, flowgauge_slot_index_t, bit<1>>(missing) clear_missing = {
        void apply(inout bit<32> bytes) {
            bytes = 0;
        }
    };
    RegisterAction<bit<32>, flowgauge_slot_index_t, bit<1>>(missing) add_missing = {
        void apply(inout bit<32> bytes) {
            bytes = bytes |+| difference;
        }
    };
    RegisterAction<bit<32>, flowgauge_slot_index_t, bit<1>>(missing) fill_missing = {
        void apply(inout bit<32> bytes, out bit<1> fills) {
            if (bytes >= length) {
                bytes = bytes - length;
                fills = 1;
            } else {
                fills = 0;
            }
        }
    };

    action clear_missing_bytes() {
        clear_missing.execute(FLOWGAUGE_REORDER_SLOT);
        md.flowgauge.followed.seen = REORDER_IN_ORDER;
    }

    action mark_in_order() {
        md.flowgauge.followed.seen = REORDER_IN_ORDER;
    }

    action add_missing_bytes() {
        add_missing.execute(FLOWGAUGE_REORDER_SLOT);
        md.flowgauge.followed.seen = REORDER_GAP;
    }

    action fill_missing_bytes() {
        md.flowgauge.followed.fills = fill_missing.execute(FLOWGAUGE_REORDER_SLOT);
        md.flowgauge.followed.seen = REORDER_LATE;
    }

    action mark_keep_alive() {
        md.flowgauge.followed.seen = REORDER_KEEP_ALIVE;
    }

    // Step 8.
    table segment_kinds {
        key = {
            md.flowgauge.followed.kind : ternary @name("kind");
            difference : ternary @name("difference");
            payload : ternary @name("payload");
        }
        actions = {
            clear_missing_bytes;
            mark_in_order;
            add_missing_bytes;
            fill_missing_bytes;
            mark_keep_alive;
            ignore;
        }
        const entries = {
            (REORDER_NEW, _, _): clear_missing_bytes();
            (REORDER_KNOWN, 0, _): mark_in_order();
            (REORDER_KNOWN, 0xffffffff, 1): mark_keep_alive();
            (REORDER_KNOWN, 0x80000000, _): add_missing_bytes();
            (REORDER_KNOWN, 0x80000000 &&& 0x80000000, _): fill_missing_bytes();
            (REORDER_KNOWN, _, _): add_missing_bytes();
        }
        const default_action = ignore();
        size = 8;
    }

    Register<flowgauge_late_t, flowgauge_slot_index_t>(
        1 << FLOWGAUGE_REORDER_SLOT_BITS, {0, 0}) late_segments;
    RegisterAction<flowgauge_late_t, flowgauge_slot_index_t, bit<32>>(late_segments) count_anew = {
        void apply(inout flowgauge_late_t late, out bit<32> before) {
            late.window = window;
            late.odd = 1;
            before = 0;
        }
    };
    RegisterAction<flowgauge_late_t, flowgauge_slot_index_t, bit<32>>(late_segments)
    count_first_anew = {
        void apply(inout flowgauge_late_t late, out bit<32> before) {
            late.window = window;
            late.odd = 3;
            before = 0;
        }
    };
    RegisterAction<flowgauge_late_t, flowgauge_slot_index_t, bit<32>>(late_segments) count_none = {
        void apply(inout flowgauge_late_t late, out bit<32> before) {
            if (late.window == window) {
                before = late.odd;
            } else {
                before = 0;
                late.odd = 1;
            }
            late.window = window;
        }
    };
    RegisterAction<flowgauge_late_t, flowgauge_slot_index_t, bit<32>>(late_segments) count_late = {
        void apply(inout flowgauge_late_t late, out bit<32> before) {
            if (late.window == window) {
                before = late.odd;
            } else {
                before = 0;
            }
            if (late.window != window) {
                late.odd = 3;
            } else if (late.odd != FLOWGAUGE_REORDER_LAST_ODD) {
                late.odd = late.odd + 2;
            }
            late.window = window;
        }
    };

    action restart_late_count() {
        odd = count_anew.execute(FLOWGAUGE_REORDER_SLOT);
    }

    action restart_late_count_at_one() {
        odd = count_first_anew.execute(FLOWGAUGE_REORDER_SLOT);
    }

    action read_late_count() {
        odd = count_none.execute(FLOWGAUGE_REORDER_SLOT);
    }

    action add_late_segment() {
        odd = count_late.execute(FLOWGAUGE_REORDER_SLOT);
    }

    // Step 9.
    table windows {
        key = {
            md.flowgauge.followed.seen : ternary @name("seen");
            md.flowgauge.followed.fills : ternary @name("fills");
            md.flowgauge.followed.is_anew : ternary @name("anew");
        }
        actions = {
            restart_late_count;
            restart_late_count_at_one;
            read_late_count;
            add_late_segment;
            ignore;
        }
        const entries = {
            (0, _, _): ignore();
            (_, 1, 1): restart_late_count_at_one();
            (_, 1, 0): add_late_segment();
            (_, _, 1): restart_late_count();
            (_, _, 0): read_late_count();
        }
        const default_action = ignore();
        size = 8;
    }

    // Count: the place of the prefix, and its counters.

    // Upper and lower halves of the prefixes of places. No half is zero, so that both halves are
    // free or neither.
    Register<bit<32>, flowgauge_half_index_t>(2 << FLOWGAUGE_REORDER_PLACE_BITS, 0) upper0;
    RegisterAction<bit<32>, flowgauge_half_index_t, bit<1>>(upper0) claim_upper0 = {
        void apply(inout bit<32> held, out bit<1> is_own) {
            if (held == 0 || held == upper) {
                held = upper;
                is_own = 1;
            } else {
                is_own = 0;
            }
        }
    };

    Register<bit<32>, flowgauge_half_index_t>(2 << FLOWGAUGE_REORDER_PLACE_BITS, 0) lower0;
    RegisterAction<bit<32>, flowgauge_half_index_t, bit<1>>(lower0) claim_lower0 = {
        void apply(inout bit<32> held, out bit<1> is_own) {
            if (held == 0 || held == lower) {
                held = lower;
                is_own = 1;
            } else {
                is_own = 0;
            }
        }
    };

    Register<bit<32>, flowgauge_half_index_t>(2 << FLOWGAUGE_REORDER_PLACE_BITS, 0) upper1;
    RegisterAction<bit<32>, flowgauge_half_index_t, bit<1>>(upper1) claim_upper1 = {
        void apply(inout bit<32> held, out bit<1> is_own) {
            if (held == 0 || held == upper) {
                held = upper;
                is_own = 1;
            } else {
                is_own = 0;
            }
        }
    };

    Register<bit<32>, flowgauge_half_index_t>(2 << FLOWGAUGE_REORDER_PLACE_BITS, 0) lower1;
    RegisterAction<bit<32>, flowgauge_half_index_t, bit<1>>(lower1) claim_lower1 = {
        void apply(inout bit<32> held, out bit<1> is_own) {
            if (held == 0 || held == lower) {
                held = lower;
                is_own = 1;
            } else {
                is_own = 0;
            }
        }
    };

    Register<flowgauge_followed_packets_t, flowgauge_place_index_t>(
        4 << FLOWGAUGE_REORDER_PLACE_BITS, {0, 0}) followed;
    RegisterAction<flowgauge_followed_packets_t, flowgauge_place_index_t, bit<32>>(followed)
    count_packet = {
        void apply(inout flowgauge_followed_packets_t count) {
            count.packets = count.packets + 1;
        }
    };
    RegisterAction<flowgauge_followed_packets_t, flowgauge_place_index_t, bit<32>>(followed)
    count_flow = {
        void apply(inout flowgauge_followed_packets_t count) {
            count.packets = count.packets + 1;
            count.flows = count.flows + 1;
        }
    };

    action add_packet() {
        count_packet.execute(md.flowgauge.bank ++ md.flowgauge.followed.is_second
            ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    action add_packet_of_new_flow() {
        count_flow.execute(md.flowgauge.bank ++ md.flowgauge.followed.is_second
            ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    Register<flowgauge_out_of_order_t, flowgauge_place_index_t>(
        4 << FLOWGAUGE_REORDER_PLACE_BITS, {0, 0}) out_of_order;
    RegisterAction<flowgauge_out_of_order_t, flowgauge_place_index_t, bit<32>>(out_of_order)
    count_first = {
        void apply(inout flowgauge_out_of_order_t count) {
            count.packets = count.packets + 1;
            count.squares = count.squares + 1;
        }
    };
    RegisterAction<flowgauge_out_of_order_t, flowgauge_place_index_t, bit<32>>(out_of_order)
    count_next = {
        void apply(inout flowgauge_out_of_order_t count) {
            count.packets = count.packets + 1;
            count.squares = count.squares + odd;
        }
    };
    RegisterAction<flowgauge_out_of_order_t, flowgauge_place_index_t, bit<32>>(out_of_order)
    count_beyond = {
        void apply(inout flowgauge_out_of_order_t count) {
            count.packets = count.packets + 1;
        }
    };

    action add_first_out_of_order() {
        count_first.execute(md.flowgauge.bank ++ md.flowgauge.followed.is_second
            ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    action add_next_out_of_order() {
        count_next.execute(md.flowgauge.bank ++ md.flowgauge.followed.is_second
            ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    action add_out_of_order_beyond_limit() {
        count_beyond.execute(md.flowgauge.bank ++ md.flowgauge.followed.is_second
            ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    Register<flowgauge_other_packets_t, flowgauge_place_index_t>(
        4 << FLOWGAUGE_REORDER_PLACE_BITS, {0, 0}) others;
    RegisterAction<flowgauge_other_packets_t, flowgauge_place_index_t, bit<32>>(others)
    count_gap = {
        void apply(inout flowgauge_other_packets_t count) {
            count.gaps = count.gaps + 1;
        }
    };
    RegisterAction<flowgauge_other_packets_t, flowgauge_place_index_t, bit<32>>(others)
    count_retransmitted = {
        void apply(inout flowgauge_other_packets_t count) {
            count.retransmitted = count.retransmitted + 1;
        }
    };

    action add_gap() {
        count_gap.execute(md.flowgauge.bank ++ md.flowgauge.followed.is_second
            ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    action add_retransmitted() {
        count_retransmitted.execute(md.flowgauge.bank ++ md.flowgauge.followed.is_second
            ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    Register<bit<32>, bit<1>>(2, 0) crowded;
    RegisterAction<bit<32>, bit<1>, bit<32>>(crowded) count_crowded = {
        void apply(inout bit<32> packets) {
            packets = packets + 1;
        }
    };

    action claim_first_upper() {
        md.flowgauge.followed.upper0 = claim_upper0.execute(
            md.flowgauge.bank ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    action claim_first_lower() {
        md.flowgauge.followed.lower0 = claim_lower0.execute(
            md.flowgauge.bank ++ place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    action claim_second_upper() {
        md.flowgauge.followed.upper1 = claim_upper1.execute(
            md.flowgauge.bank ++ other_place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
    }

    action claim_second_lower() {
        md.flowgauge.followed.lower1 = claim_lower1.execute(
            md.flowgauge.bank ++ other_place[FLOWGAUGE_REORDER_PLACE_BITS - 1:0]);
        place = other_place;
        md.flowgauge.followed.is_second = 1;
    }

    // Step 8.
    table first_upper0 {
        key = {
            md.flowgauge.followed.kind : ternary @name("kind");
            difference : ternary @name("difference");
            payload : ternary @name("payload");
        }
        actions = {
            claim_first_upper;
            ignore;
        }
        const entries = {
            (REORDER_NEW, _, _): claim_first_upper();
            (REORDER_KNOWN, 0xffffffff, 1): ignore();
            (REORDER_KNOWN, _, _): claim_first_upper();
        }
        const default_action = ignore();
        size = 4;
    }

    // Step 8.
    table first_lower0 {
        key = {
            md.flowgauge.followed.kind : ternary @name("kind");
            difference : ternary @name("difference");
            payload : ternary @name("payload");
        }
        actions = {
            claim_first_lower;
            ignore;
        }
        const entries = {
            (REORDER_NEW, _, _): claim_first_lower();
            (REORDER_KNOWN, 0xffffffff, 1): ignore();
            (REORDER_KNOWN, _, _): claim_first_lower();
        }
        const default_action = ignore();
        size = 4;
    }

    // Step 9.
    table second_upper1 {
        key = {
            md.flowgauge.followed.seen : ternary @name("seen");
            md.flowgauge.followed.upper0 : ternary @name("upper0");
            md.flowgauge.followed.lower0 : ternary @name("lower0");
        }
        actions = {
            claim_second_upper;
            ignore;
        }
        const entries = {
            (0, _, _): ignore();
            (REORDER_KEEP_ALIVE, _, _): ignore();
            (_, 1, 1): ignore();
            (_, _, _): claim_second_upper();
        }
        const default_action = ignore();
        size = 4;
    }

    // Step 9.
    table second_lower1 {
        key = {
            md.flowgauge.followed.seen : ternary @name("seen");
            md.flowgauge.followed.upper0 : ternary @name("upper0");
            md.flowgauge.followed.lower0 : ternary @name("lower0");
        }
        actions = {
            claim_second_lower;
            ignore;
        }
        const entries = {
            (0, _, _): ignore();
            (REORDER_KEEP_ALIVE, _, _): ignore();
            (_, 1, 1): ignore();
            (_, _, _): claim_second_lower();
        }
        const default_action = ignore();
        size = 4;
    }

    // Step 10.
    table count_followed {
        key = { odd : ternary @name("odd"); }
        actions = {
            add_packet;
            add_packet_of_new_flow;
            ignore;
        }
        const entries = {
            0: add_packet_of_new_flow();
            _: add_packet();
        }
        const default_action = ignore();
        size = 2;
    }

    // Step 10.
    table count_out_of_order {
        key = {
            md.flowgauge.followed.fills : ternary @name("fills");
            odd : ternary @name("odd");
        }
        actions = {
            add_first_out_of_order;
            add_next_out_of_order;
            add_out_of_order_beyond_limit;
            ignore;
        }
        const entries = {
            (1, 0): add_first_out_of_order();
            (1, FLOWGAUGE_REORDER_LAST_ODD): add_out_of_order_beyond_limit();
            (1, _): add_next_out_of_order();
        }
        const default_action = ignore();
        size = 4;
    }

    // Step 10.
    table count_others {
        key = {
            md.flowgauge.followed.seen : ternary @name("seen");
            md.flowgauge.followed.fills : ternary @name("fills");
        }
        actions = {
            add_gap;
            add_retransmitted;
            ignore;
        }
        const entries = {
            (REORDER_GAP, _): add_gap();
            (REORDER_LATE, 0): add_retransmitted();
        }
        const default_action = ignore();
        size = 4;
    }

    apply {
        // Classify.
        set_now();
        set_window();
        hash_sequence();
        set_mine();
        set_random();
        if (hdr.ipv4.isValid()) {
            ipv4_prefix.apply();
            set_ipv4_carried();
        } else {
            ipv6_prefix.apply();
            set_ipv6_carried();
        }
        if ((hdr.tcp.flags & TCP_FIN) != 0) {
            set_begin_after_fin();
        } else {
            set_begin();
        }
        payloads.apply();
        hash_prefix();
        set_upper();
        set_lower();
        set_length();
        set_end();
        set_opposite();
        places.apply(prefix_crc, places_words);
        fold_place();
        fold_other_place();
        fold_bucket();
        roles.apply();

        // Follow.
#if FLOWGAUGE_REORDER == FLOWGAUGE_REORDER_HYBRID
        large.apply(md.flowgauge.five_tuple.crc, large_words);
        fold_large_slot();
        large_flows.apply();
        bucket_flows.apply();
        if (md.flowgauge.followed.large_had[3:1] != 0
            || (md.flowgauge.followed.large_does == REORDER_TAKE)) {
            expect_in_large.apply();
        } else {
            expect_in_bucket.apply();
        }
#else
        bucket_flows.apply();
        expect_in_bucket.apply();
#endif
        if (md.flowgauge.followed.kind == REORDER_NOT_FOLLOWED) {
            count_unfollowed.execute(md.flowgauge.bank);
        }
        differences.apply();
        segment_kinds.apply();

        // Count.
        first_upper0.apply();
        first_lower0.apply();
        windows.apply();
        second_upper1.apply();
        second_lower1.apply();
        if ((md.flowgauge.followed.upper0 == 1 && md.flowgauge.followed.lower0 == 1)
            || (md.flowgauge.followed.upper1 == 1 && md.flowgauge.followed.lower1 == 1)) {
            count_followed.apply();
            count_out_of_order.apply();
            count_others.apply();
        } else if (md.flowgauge.followed.seen != 0
                   && md.flowgauge.followed.seen != REORDER_KEEP_ALIVE) {
            count_crowded.execute(md.flowgauge.bank);
        }
    }
}
