// How long answers take: requests are kept until their answers come (dissertation, chapter 2; dataplane/core/src/delay).
//
// Requests of one direction are kept in one of two tables, and looked for there by answers of the other direction. So a packet that is
// both, data that acknowledges data, accesses each array once. A packet is of one kind at most, so that all kinds of a build share arrays.
#ifndef FLOWGAUGE_DELAY_P4
#define FLOWGAUGE_DELAY_P4

#include "headers.p4"
#include "hash.p4"

#if FLOWGAUGE_DELAY
#define FLOWGAUGE_DELAY_KINDS (FLOWGAUGE_DELAY_TCP_HANDSHAKE + FLOWGAUGE_DELAY_TCP_DATA + FLOWGAUGE_DELAY_TCP_DURATION \
    + FLOWGAUGE_DELAY_TCP_TIMESTAMPS + FLOWGAUGE_DELAY_DNS + FLOWGAUGE_DELAY_ICMP + FLOWGAUGE_DELAY_QUIC_SPIN)
#if FLOWGAUGE_DELAY_KINDS == 0
#error "FLOWGAUGE_DELAY is 1, and no kind of delays is: FLOWGAUGE_DELAY_TCP_HANDSHAKE, _TCP_DATA, _TCP_DURATION, _TCP_TIMESTAMPS, _DNS, _ICMP, _QUIC_SPIN"
#endif
// A SYN is a request of handshakes and of timestamps as well, a FIN may acknowledge data, and connections have other ticks. What a packet with a
// timestamp or a spin bit does to the arrays, others do not.
#if (FLOWGAUGE_DELAY_TCP_DURATION || FLOWGAUGE_DELAY_TCP_TIMESTAMPS || FLOWGAUGE_DELAY_QUIC_SPIN) && FLOWGAUGE_DELAY_KINDS != 1
#error "FLOWGAUGE_DELAY_TCP_DURATION, _TCP_TIMESTAMPS and _QUIC_SPIN take a build of their own each"
#endif

#define FLOWGAUGE_DELAY_EXPIRES (FLOWGAUGE_DELAY_ALGORITHM == FLOWGAUGE_DELAY_EXPIRY)
#if FLOWGAUGE_DELAY_EXPIRES && (FLOWGAUGE_DELAY_TCP_TIMESTAMPS || FLOWGAUGE_DELAY_QUIC_SPIN)
#error "FLOWGAUGE_DELAY_EXPIRY goes without FLOWGAUGE_DELAY_TCP_TIMESTAMPS and _QUIC_SPIN: what was answered stays, and a stateful ALU has no third comparison for it"
#endif

// Kinds in their order, as powers of two above the slots.
#define FLOWGAUGE_DELAY_RANK_OF_TCP_HANDSHAKE 0
#define FLOWGAUGE_DELAY_RANK_OF_TCP_DATA FLOWGAUGE_DELAY_TCP_HANDSHAKE
#define FLOWGAUGE_DELAY_RANK_OF_TCP_DURATION 0
#define FLOWGAUGE_DELAY_RANK_OF_TCP_TIMESTAMPS 0
#define FLOWGAUGE_DELAY_RANK_OF_DNS (FLOWGAUGE_DELAY_TCP_HANDSHAKE + FLOWGAUGE_DELAY_TCP_DATA)
#define FLOWGAUGE_DELAY_RANK_OF_QUIC_SPIN 0
#define FLOWGAUGE_DELAY_RANK_OF_ICMP (FLOWGAUGE_DELAY_TCP_HANDSHAKE + FLOWGAUGE_DELAY_TCP_DATA + FLOWGAUGE_DELAY_DNS)
#if FLOWGAUGE_DELAY_KINDS == 1
#define FLOWGAUGE_DELAY_KIND_BITS 0
#define FLOWGAUGE_DELAY_OF_KIND
#define FLOWGAUGE_DELAY_THEN_KIND
#elif FLOWGAUGE_DELAY_KINDS == 2
#define FLOWGAUGE_DELAY_KIND_BITS 1
#define FLOWGAUGE_DELAY_OF_KIND md.flowgauge.delay_kind[0:0] ++
#define FLOWGAUGE_DELAY_THEN_KIND ++ md.flowgauge.delay_kind[0:0]
#else
#define FLOWGAUGE_DELAY_KIND_BITS 2
#define FLOWGAUGE_DELAY_OF_KIND md.flowgauge.delay_kind ++
#define FLOWGAUGE_DELAY_THEN_KIND ++ md.flowgauge.delay_kind
#endif
#if FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_SLOT_BITS > 16
#error "too many slots: FLOWGAUGE_DELAY_SLOT_BITS is at most 16 with one kind of delays, 15 with two, 14 with more"
#endif

// Four fridges share the slots of a kind.
#if FLOWGAUGE_DELAY_ALGORITHM == FLOWGAUGE_DELAY_MULTI_FRIDGE
#if FLOWGAUGE_DELAY_SLOT_BITS < 8
#error "FLOWGAUGE_DELAY_SLOT_BITS is below 8, which four fridges need"
#endif
#define FLOWGAUGE_DELAY_FRIDGE_BITS 2
#define FLOWGAUGE_DELAY_OF_FRIDGE(place) place.fridge ++
#define FLOWGAUGE_DELAY_INSERTIONS(place) (FLOWGAUGE_DELAY_OF_KIND place.fridge)
#else
#define FLOWGAUGE_DELAY_FRIDGE_BITS 0
#define FLOWGAUGE_DELAY_OF_FRIDGE(place)
#if FLOWGAUGE_DELAY_KIND_BITS == 0
#define FLOWGAUGE_DELAY_INSERTIONS(place) 1w0
#elif FLOWGAUGE_DELAY_KIND_BITS == 1
#define FLOWGAUGE_DELAY_INSERTIONS(place) md.flowgauge.delay_kind[0:0]
#else
#define FLOWGAUGE_DELAY_INSERTIONS(place) md.flowgauge.delay_kind
#endif
#endif
#define FLOWGAUGE_DELAY_ROW_BITS (FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_FRIDGE_BITS)
#if FLOWGAUGE_DELAY_ROW_BITS == 0
#define FLOWGAUGE_DELAY_ROW_INDEX_BITS 1
#else
#define FLOWGAUGE_DELAY_ROW_INDEX_BITS FLOWGAUGE_DELAY_ROW_BITS
#endif
#define FLOWGAUGE_DELAY_INDEX_BITS (FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_SLOT_BITS)

// Groups of prefixes, and directions by our own addresses: what is kept apart of a kind.
#if FLOWGAUGE_DELAY_OWNERS && FLOWGAUGE_DELAY_TCP_DURATION
#error "FLOWGAUGE_DELAY_TCP_DURATION goes without FLOWGAUGE_DELAY_GROUP_BITS and FLOWGAUGE_DELAY_LOCAL: either end closes a connection"
#endif
#if FLOWGAUGE_DELAY_GROUP_BITS && FLOWGAUGE_DELAY_LOCAL
#define FLOWGAUGE_DELAY_OF_LABEL(place) place.group ++ place.leaves ++
#define FLOWGAUGE_DELAY_THEN_LABEL(place) ++ place.group ++ place.leaves
#elif FLOWGAUGE_DELAY_GROUP_BITS
#define FLOWGAUGE_DELAY_OF_LABEL(place) place.group ++
#define FLOWGAUGE_DELAY_THEN_LABEL(place) ++ place.group
#elif FLOWGAUGE_DELAY_LOCAL
#define FLOWGAUGE_DELAY_OF_LABEL(place) place.leaves ++
#define FLOWGAUGE_DELAY_THEN_LABEL(place) ++ place.leaves
#else
#define FLOWGAUGE_DELAY_OF_LABEL(place)
#define FLOWGAUGE_DELAY_THEN_LABEL(place)
#endif
#define FLOWGAUGE_DELAY_LABEL_BITS (FLOWGAUGE_DELAY_GROUP_BITS + FLOWGAUGE_DELAY_LOCAL)
#define FLOWGAUGE_DELAY_OWNERS_OF(owners, owned, set_owner) \
    table owners { \
        key = { owned : lpm @name("address"); } \
        actions = { \
            set_owner; \
            belong_to_nobody; \
        } \
        const default_action = belong_to_nobody(); \
        size = 1024; \
    }
#if FLOWGAUGE_DELAY_ROW_BITS + FLOWGAUGE_DELAY_LABEL_BITS > 5
#error "too much is kept apart: kinds, times four for multi-fridge, times groups, times two with FLOWGAUGE_DELAY_LOCAL, are at most 32"
#endif

// A slot: the upper bits of the hash, which do not admit.
#define FLOWGAUGE_DELAY_SLOT(place) (FLOWGAUGE_DELAY_OF_KIND FLOWGAUGE_DELAY_OF_FRIDGE(place) \
    place.hash[31:32 - (FLOWGAUGE_DELAY_SLOT_BITS - FLOWGAUGE_DELAY_FRIDGE_BITS)])

#if FLOWGAUGE_DELAY_EXPIRES
// Either stage has half of a table. The second slot comes from the lower half of the hash.
#define FLOWGAUGE_DELAY_STAGE_BITS (FLOWGAUGE_DELAY_SLOT_BITS - 1)
#define FLOWGAUGE_DELAY_STAGE_INDEX_BITS (FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_STAGE_BITS)
#define FLOWGAUGE_DELAY_FIRST_SLOT(place) (FLOWGAUGE_DELAY_OF_KIND place.hash[31:32 - FLOWGAUGE_DELAY_STAGE_BITS])
#define FLOWGAUGE_DELAY_SECOND_SLOT(place) (FLOWGAUGE_DELAY_OF_KIND place.hash[15:16 - FLOWGAUGE_DELAY_STAGE_BITS])

struct flowgauge_waiting_t {
    int<32> signature;
    int<32> time;
}
#endif

// What the deparser sends of a delay that was counted.
#define FLOWGAUGE_DELAY_DIGEST 1
#if FLOWGAUGE_DELAY_SAMPLES
#if FLOWGAUGE_DELAY_GROUP_BITS
#define FLOWGAUGE_DELAY_SENT_GROUP FLOWGAUGE_DELAY_FOUND.group,
#else
#define FLOWGAUGE_DELAY_SENT_GROUP
#endif
#define FLOWGAUGE_DELAY_SAMPLE { md.flowgauge.delayed.at, md.flowgauge.delayed.src, md.flowgauge.delayed.dst, md.flowgauge.delayed.ticks, \
    md.flowgauge.delayed.weight, md.flowgauge.delayed.beyond, md.flowgauge.delay_kind, FLOWGAUGE_DELAY_FOUND.fridge, \
    FLOWGAUGE_DELAY_SENT_GROUP FLOWGAUGE_DELAY_FOUND.leaves, md.flowgauge.bank }
#endif

// Whether requests are segments that may carry data.
#define FLOWGAUGE_DELAY_HAS_DATA (FLOWGAUGE_DELAY_TCP_DATA || FLOWGAUGE_DELAY_TCP_TIMESTAMPS)

#define FLOWGAUGE_DELAY_WEIGHS (FLOWGAUGE_DELAY_ALGORITHM != FLOWGAUGE_DELAY_OVERWRITE && !FLOWGAUGE_DELAY_EXPIRES)
// Whether zero is no time.
#define FLOWGAUGE_DELAY_ZERO_IS_NO_TIME (FLOWGAUGE_DELAY_TCP_TIMESTAMPS || FLOWGAUGE_DELAY_QUIC_SPIN || FLOWGAUGE_DELAY_EXPIRES)

// Connections are told by both ends in one order, whoever speaks, and have one table. Requests that expire have times of 31 bits: a stateful ALU
// compares differences with 34 bits, which do not wrap.
#if FLOWGAUGE_DELAY_TCP_DURATION && FLOWGAUGE_DELAY_EXPIRES
#define FLOWGAUGE_DELAY_TICK 1w0, from_parser.global_tstamp[42:12]
#elif FLOWGAUGE_DELAY_TCP_DURATION
#define FLOWGAUGE_DELAY_TICK from_parser.global_tstamp[43:12]
#elif FLOWGAUGE_DELAY_EXPIRES
#define FLOWGAUGE_DELAY_TICK 1w0, from_parser.global_tstamp[36:6]
#else
#define FLOWGAUGE_DELAY_TICK from_parser.global_tstamp[37:6]
#endif
#if FLOWGAUGE_DELAY_EXPIRES
#define FLOWGAUGE_DELAY_SIGN 30
#else
#define FLOWGAUGE_DELAY_SIGN 31
#endif

// Which slot a request has, and whether it is admitted.
control FlowgaugeRequest(inout flowgauge_request_t request, in bit<1> bank, in bit<2> kind) {
    flowgauge_words_t words;
    FlowgaugeTabulation() tabulation;
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_words;

    action fold() {
        request.hash = xor_words.get({ words.low0, words.low1, words.low2, words.low3 });
    }

#if FLOWGAUGE_DELAY_FRIDGE_BITS
    action admit(bit<1> kept, bit<1> counts, bit<2> fridge) {
        request.is_admitted = kept;
        request.counts = counts;
        request.fridge = fridge;
    }
#else
    action admit(bit<1> kept, bit<1> counts) {
        request.is_admitted = kept;
        request.counts = counts;
    }
#endif

    action refuse() {}

    // The lower bits of the hash admit: so many of them zero. Banks and kinds may have shares of their own, which change with each window. Then some
    // requests wait in the tables whose answers do not count.
    table admission {
        key = {
            bank : ternary @name("bank");
            kind : ternary @name("kind");
            request.hash[15:0] : ternary @name("hash");
        }
        actions = {
            admit;
            refuse;
        }
        default_action = refuse();
        size = 256;
    }

    apply {
        tabulation.apply(request.signature, words);
        fold();
        // A slot without a request has the signature zero.
        if (request.is_one == 1 && request.signature != 0) {
            admission.apply();
        }
    }
}

struct flowgauge_delays_t {
    bit<32> samples;
    bit<32> beyond;
}

// A count of 64 bits of each kind, group and direction, in both banks.
#define FLOWGAUGE_DELAY_COUNT_BITS (FLOWGAUGE_DELAY_KIND_BITS + FLOWGAUGE_DELAY_LABEL_BITS + 1)
#define FLOWGAUGE_DELAY_COUNT(name) \
    Register<flowgauge_sum_t, bit<FLOWGAUGE_DELAY_COUNT_BITS>>(1 << FLOWGAUGE_DELAY_COUNT_BITS, {0, 0}) name; \
    RegisterAction<flowgauge_sum_t, bit<FLOWGAUGE_DELAY_COUNT_BITS>, bit<32>>(name) count_##name = { \
        void apply(inout flowgauge_sum_t total) { \
            if ((int<32>) total.low == -1) { \
                total.high = total.high |+| 1; \
            } \
            total.low = total.low + 1; \
        } \
    };
#define FLOWGAUGE_DELAY_COUNTS_INDEX(place) md.flowgauge.bank FLOWGAUGE_DELAY_THEN_KIND FLOWGAUGE_DELAY_THEN_LABEL(place)

// One of the two tables.
#if FLOWGAUGE_DELAY_QUIC_SPIN
// A flow and its spin bit. The edge ends one round and begins the next; time zero says that nobody has seen an edge yet.
#define FLOWGAUGE_DELAY_TABLE(number) \
    Register<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) signatures##number; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<4>>(signatures##number) turn_signature##number = { \
        void apply(inout bit<32> signature, out bit<4> had) { \
            had = this.predicate(signature == mine, signature == opposite); \
            signature = mine; \
        } \
    }; \
    Register<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) times##number; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(times##number) turn_time##number = { \
        void apply(inout bit<32> time, out bit<32> before) { \
            before = time; \
            time = now; \
        } \
    }; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(times##number) begin_time##number = { \
        void apply(inout bit<32> time) { \
            time = 0; \
        } \
    };
#elif FLOWGAUGE_DELAY_TCP_TIMESTAMPS
// A timestamp that was answered stays, with time zero, so that a segment that repeats it is no request.
#define FLOWGAUGE_DELAY_TABLE(number) \
    Register<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) signatures##number; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<1>>(signatures##number) ask_signature##number = { \
        void apply(inout bit<32> signature, out bit<1> is_same) { \
            if (signature == md.flowgauge.asked.signature) { \
                is_same = 1; \
            } else { \
                signature = md.flowgauge.asked.signature; \
                is_same = 0; \
            } \
        } \
    }; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<1>>(signatures##number) answer_signature##number = { \
        void apply(inout bit<32> signature, out bit<1> is_same) { \
            if (signature == md.flowgauge.answered.signature) { \
                is_same = 1; \
            } else { \
                is_same = 0; \
            } \
        } \
    }; \
    Register<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) times##number; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(times##number) ask_time##number = { \
        void apply(inout bit<32> time) { \
            time = asked_now; \
        } \
    }; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(times##number) answer_time##number = { \
        void apply(inout bit<32> time, out bit<32> before) { \
            before = time; \
            time = 0; \
        } \
    };
#elif FLOWGAUGE_DELAY_EXPIRES
// One stage of a table (Chen et al. 2020). Nobody's slot has a time that is after all others. What came before the clock's 31 bits wrapped has
// expired: there is no third comparison for it.
#define FLOWGAUGE_DELAY_STAGE(stage, number) \
    RegisterParam<int<32>>(-781250) stage##_age##number; \
    Register<flowgauge_waiting_t, bit<FLOWGAUGE_DELAY_STAGE_INDEX_BITS>>( \
        1 << FLOWGAUGE_DELAY_STAGE_INDEX_BITS, {0, -1}) stage##_slots##number; \
    RegisterAction<flowgauge_waiting_t, bit<FLOWGAUGE_DELAY_STAGE_INDEX_BITS>, bit<32>>(stage##_slots##number) \
    ask_##stage##number = { \
        void apply(inout flowgauge_waiting_t slot, out bit<32> waits) { \
            if (slot.time - (int<32>) now < stage##_age##number.read() || (bit<32>) slot.time > now) { \
                slot.signature = (int<32>) signature##number; \
                slot.time = (int<32>) now; \
                waits = 0; \
            } else { \
                waits = (bit<32>) slot.signature; \
            } \
        } \
    }; \
    RegisterAction<flowgauge_waiting_t, bit<FLOWGAUGE_DELAY_STAGE_INDEX_BITS>, bit<32>>(stage##_slots##number) \
    answer_##stage##number = { \
        void apply(inout flowgauge_waiting_t slot, out bit<32> since) { \
            if (slot.signature == (int<32>) signature##number) { \
                since = (bit<32>) slot.time; \
                slot.signature = 0; \
                slot.time = -1; \
            } else { \
                since = 0; \
            } \
        } \
    };
#define FLOWGAUGE_DELAY_TABLE(number) \
    FLOWGAUGE_DELAY_STAGE(first, number) \
    FLOWGAUGE_DELAY_STAGE(second, number)
#else
#define FLOWGAUGE_DELAY_TABLE(number) \
    Register<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) signatures##number; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<1>>(signatures##number) ask_signature##number = { \
        void apply(inout bit<32> signature, out bit<1> is_same) { \
            if (signature == md.flowgauge.asked.signature) { \
                is_same = 1; \
            } else { \
                signature = md.flowgauge.asked.signature; \
                is_same = 0; \
            } \
        } \
    }; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<1>>(signatures##number) answer_signature##number = { \
        void apply(inout bit<32> signature, out bit<1> is_same) { \
            if (signature == md.flowgauge.answered.signature) { \
                signature = 0; \
                is_same = 1; \
            } else { \
                is_same = 0; \
            } \
        } \
    }; \
    Register<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) times##number; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(times##number) ask_time##number = { \
        void apply(inout bit<32> time) { \
            time = now; \
        } \
    }; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(times##number) answer_time##number = { \
        void apply(inout bit<32> time, out bit<32> elapsed) { \
            elapsed = now - time; \
        } \
    };
#endif

// How many requests were put in one of the two tables, and how many there were when each was.
#define FLOWGAUGE_DELAY_STAMPS(number) \
    Register<bit<32>, bit<FLOWGAUGE_DELAY_ROW_INDEX_BITS>>(1 << FLOWGAUGE_DELAY_ROW_BITS, 0) insertions##number; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_ROW_INDEX_BITS>, bit<32>>(insertions##number) insert##number = { \
        void apply(inout bit<32> so_far, out bit<32> count) { \
            so_far = so_far + 1; \
            count = so_far; \
        } \
    }; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_ROW_INDEX_BITS>, bit<32>>(insertions##number) inserted##number = { \
        void apply(inout bit<32> so_far, out bit<32> count) { \
            count = so_far; \
        } \
    }; \
    Register<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) stamps##number; \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(stamps##number) ask_stamp##number = { \
        void apply(inout bit<32> stamp) { \
            stamp = asked_number; \
        } \
    };
#define FLOWGAUGE_DELAY_ANSWERING_STAMPS(number) \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(stamps##number) answer_stamp##number = { \
        void apply(inout bit<32> stamp, out bit<32> others) { \
            others = answered_number - stamp; \
        } \
    };
#define FLOWGAUGE_DELAY_TURNING_STAMPS(number) \
    RegisterAction<bit<32>, bit<FLOWGAUGE_DELAY_INDEX_BITS>, bit<32>>(stamps##number) turn_stamp##number = { \
        void apply(inout bit<32> stamp, out bit<32> others) { \
            others = asked_number - stamp; \
            stamp = asked_number; \
        } \
    };

// An array of one table is asked, that of the other answers, and each at most once: whether there is a
// request, what asking does, whether there is an answer, and what answering does.
#if FLOWGAUGE_DELAY_TCP_DURATION
#define FLOWGAUGE_DELAY_EXCHANGE(asks, ask, answers, answer) \
    if (asks) { \
        ask(0); \
    } else if (answers) { \
        answer(0); \
    }
#else
#define FLOWGAUGE_DELAY_EXCHANGE(asks, ask, answers, answer) \
    if (asks && forth[31:31] == 0) { \
        ask(0); \
        if (answers) { \
            answer(1); \
        } \
    } else if (asks) { \
        ask(1); \
        if (answers) { \
            answer(0); \
        } \
    } else if (answers) { \
        if (back[31:31] == 0) { \
            answer(0); \
        } else { \
            answer(1); \
        } \
    }
#endif
#if FLOWGAUGE_DELAY_QUIC_SPIN
#define FLOWGAUGE_DELAY_TURN(turns, turn, begins, begin) \
    if (forth[31:31] == 0) { \
        if (turns) { \
            turn(0); \
        } else if (begins) { \
            begin(0); \
        } \
    } else { \
        if (turns) { \
            turn(1); \
        } else if (begins) { \
            begin(1); \
        } \
    }
#define FLOWGAUGE_DELAY_TURNS (had == 4)
#define FLOWGAUGE_DELAY_BEGINS (had == 1)
#define FLOWGAUGE_DELAY_TURN_SIGNATURE(number) had = turn_signature##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_TURN_TIME(number) before = turn_time##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_BEGIN_TIME(number) begin_time##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_LOOK_AT_INSERTIONS(number) asked_number = inserted##number.execute(FLOWGAUGE_DELAY_INSERTIONS(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_TURN_STAMP(number) insertions = turn_stamp##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_NOTHING(number)
#endif
#define FLOWGAUGE_DELAY_IS_ASKED md.flowgauge.asked.is_admitted == 1
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
#define FLOWGAUGE_DELAY_IS_NEW (md.flowgauge.asked.is_admitted == 1 && md.flowgauge.is_again == 0)
#define FLOWGAUGE_DELAY_ANSWER_TIME(number) before = answer_time##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.answered))
#else
// A segment that TCP sends again keeps the time and the stamp of its first packet.
#define FLOWGAUGE_DELAY_IS_NEW (md.flowgauge.asked.is_admitted == 1 && !(md.flowgauge.is_again == 1 && md.flowgauge.keeps_first == 1))
#define FLOWGAUGE_DELAY_ANSWER_TIME(number) md.flowgauge.delayed.ticks = answer_time##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.answered))
#endif
#if FLOWGAUGE_DELAY_EXPIRES
#define FLOWGAUGE_DELAY_ASK_FIRST(number) waits = ask_first##number.execute(FLOWGAUGE_DELAY_FIRST_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_ASK_SECOND(number) waits = ask_second##number.execute(FLOWGAUGE_DELAY_SECOND_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_ANSWER_FIRST(number) before = answer_first##number.execute(FLOWGAUGE_DELAY_FIRST_SLOT(md.flowgauge.answered))
#define FLOWGAUGE_DELAY_ANSWER_SECOND(number) before = answer_second##number.execute(FLOWGAUGE_DELAY_SECOND_SLOT(md.flowgauge.answered))
// Whether another request waits in the slot.
#define FLOWGAUGE_DELAY_IS_REFUSED (waits != 0 && waits != md.flowgauge.asked.signature)
#endif
#define FLOWGAUGE_DELAY_ASK_SIGNATURE(number) md.flowgauge.is_again = ask_signature##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_ANSWER_SIGNATURE(number) md.flowgauge.is_found = answer_signature##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.answered))
#define FLOWGAUGE_DELAY_ASK_TIME(number) ask_time##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_INSERT(number) asked_number = insert##number.execute(FLOWGAUGE_DELAY_INSERTIONS(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_INSERTED(number) answered_number = inserted##number.execute(FLOWGAUGE_DELAY_INSERTIONS(md.flowgauge.answered))
#define FLOWGAUGE_DELAY_ASK_STAMP(number) ask_stamp##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#define FLOWGAUGE_DELAY_ANSWER_STAMP(number) insertions = answer_stamp##number.execute(FLOWGAUGE_DELAY_SLOT(md.flowgauge.answered))

// What is counted of each bucket: kind by kind, group by group, direction by direction, fridge by fridge.
#define FLOWGAUGE_DELAY_BUCKET_BITS (FLOWGAUGE_DELAY_ROW_BITS + FLOWGAUGE_DELAY_LABEL_BITS + 11)
#if FLOWGAUGE_DELAY_QUIC_SPIN
#define FLOWGAUGE_DELAY_FOUND md.flowgauge.asked
#else
#define FLOWGAUGE_DELAY_FOUND md.flowgauge.answered
#endif
#define FLOWGAUGE_DELAY_BUCKET (md.flowgauge.bank ++ FLOWGAUGE_DELAY_OF_KIND FLOWGAUGE_DELAY_OF_LABEL(FLOWGAUGE_DELAY_FOUND) \
    FLOWGAUGE_DELAY_OF_FRIDGE(FLOWGAUGE_DELAY_FOUND) bucket)
#define FLOWGAUGE_DELAY_SUM(name, term, complement) \
    Register<flowgauge_sum_t, bit<FLOWGAUGE_DELAY_BUCKET_BITS>>(1 << FLOWGAUGE_DELAY_BUCKET_BITS, {0, 0}) name; \
    RegisterAction<flowgauge_sum_t, bit<FLOWGAUGE_DELAY_BUCKET_BITS>, bit<32>>(name) add_to_##name = { \
        void apply(inout flowgauge_sum_t total) { \
            if (total.low > complement) { \
                total.high = total.high |+| 1; \
            } \
            total.low = total.low + term; \
        } \
    };

#define DNS_ANSWER 0x8000

// Segments with so many words, and so bytes, of their own header: less the bytes of headers that the length of the packet includes.
#define FLOWGAUGE_DELAY_SEGMENTS(is_ipv4, data_offset, bytes) \
    (is_ipv4, 0 &&& TCP_FIN, data_offset): of_segment(0x100000000 - (bytes), 0x10000 - (bytes)); \
    (is_ipv4, TCP_FIN &&& TCP_FIN, data_offset): of_segment(0x100000001 - (bytes), 0x10000 - (bytes));
#define FLOWGAUGE_DELAY_SEGMENTS_OF(data_offset, bytes) \
    FLOWGAUGE_DELAY_SEGMENTS(true, data_offset, 20 + bytes) \
    FLOWGAUGE_DELAY_SEGMENTS(false, data_offset, bytes)

#define FLOWGAUGE_DELAY_ACTIONS(name, rank, keeps) \
    action ask_##name() { \
        md.flowgauge.asked.is_one = 1; \
        md.flowgauge.delay_kind = rank; \
        md.flowgauge.keeps_first = keeps; \
    } \
    action answer_##name() { \
        md.flowgauge.answered.is_one = 1; \
        md.flowgauge.delay_kind = rank; \
    }

control FlowgaugeDelay(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                       in ingress_intrinsic_metadata_from_parser_t from_parser
#if FLOWGAUGE_DELAY_SAMPLES
                       , inout ingress_intrinsic_metadata_for_deparser_t for_deparser
#endif
                       ) {
    bit<32> now;
    bit<32> begin = 0;
    bit<32> beyond = 0;
    bit<32> asked_token = 0;
    bit<32> answered_token = 0;
    bit<16> payload = 0;
    bit<32> forth;
    bit<32> back;
    bit<32> asked_crc;
    bit<32> answered_crc;
    bit<10> bucket;
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
    // Zero is no time.
    bit<32> asked_now;
    bit<32> before = 0;
#endif
#if FLOWGAUGE_DELAY_EXPIRES
    // What each table is asked for: an array takes two operands from a packet.
    bit<32> signature0;
    bit<32> signature1;
    // Whose the slot is that a request wants, if it is taken.
    bit<32> waits = 0;
    bit<32> before = 0;
#endif
#if FLOWGAUGE_DELAY_QUIC_SPIN
    // The signature with the spin bit in the place of its lowest one, and with the other spin bit.
    bit<32> mine;
    bit<32> opposite;
    bit<4> had = 0;
    bit<32> before = 0;
#endif
#if FLOWGAUGE_DELAY_WEIGHS
    bit<32> asked_number;
#if !FLOWGAUGE_DELAY_QUIC_SPIN
    bit<32> answered_number;
#endif
    bit<32> insertions = 0;
    bit<32> weight_complement;
    bit<32> square;
    bit<32> square_complement;
#endif

    FlowgaugeRequest() asked;
#if !FLOWGAUGE_DELAY_QUIC_SPIN
    FlowgaugeRequest() answered;
#endif

    FLOWGAUGE_DELAY_COUNT(requests)
    FLOWGAUGE_DELAY_COUNT(admitted)
    FLOWGAUGE_DELAY_COUNT(backward)
#if FLOWGAUGE_DELAY_EXPIRES
    FLOWGAUGE_DELAY_COUNT(refused)
#endif

    FLOWGAUGE_DELAY_TABLE(0)
#if !FLOWGAUGE_DELAY_TCP_DURATION
    FLOWGAUGE_DELAY_TABLE(1)
#endif
#if FLOWGAUGE_DELAY_WEIGHS
    FLOWGAUGE_DELAY_STAMPS(0)
#if !FLOWGAUGE_DELAY_TCP_DURATION
    FLOWGAUGE_DELAY_STAMPS(1)
#endif
#if FLOWGAUGE_DELAY_QUIC_SPIN
    FLOWGAUGE_DELAY_TURNING_STAMPS(0)
    FLOWGAUGE_DELAY_TURNING_STAMPS(1)
#else
    FLOWGAUGE_DELAY_ANSWERING_STAMPS(0)
#if !FLOWGAUGE_DELAY_TCP_DURATION
    FLOWGAUGE_DELAY_ANSWERING_STAMPS(1)
#endif
#endif
#endif

#if FLOWGAUGE_DELAY_OWNERS
    // Whose an address is. The group of a delay is that of the end that answers, its direction follows from the end that asks.
#if FLOWGAUGE_DELAY_GROUP_BITS && FLOWGAUGE_DELAY_LOCAL
    action set_src_owner(bit<FLOWGAUGE_DELAY_GROUP_BITS> group, bit<1> is_local) {
        md.flowgauge.answered.group = group;
        md.flowgauge.asked.leaves = is_local;
    }

    action set_dst_owner(bit<FLOWGAUGE_DELAY_GROUP_BITS> group, bit<1> is_local) {
        md.flowgauge.asked.group = group;
        md.flowgauge.answered.leaves = is_local;
    }
#elif FLOWGAUGE_DELAY_GROUP_BITS
    action set_src_owner(bit<FLOWGAUGE_DELAY_GROUP_BITS> group) {
        md.flowgauge.answered.group = group;
    }

    action set_dst_owner(bit<FLOWGAUGE_DELAY_GROUP_BITS> group) {
        md.flowgauge.asked.group = group;
    }
#else
    action set_src_owner(bit<1> is_local) {
        md.flowgauge.asked.leaves = is_local;
    }

    action set_dst_owner(bit<1> is_local) {
        md.flowgauge.answered.leaves = is_local;
    }
#endif

    action belong_to_nobody() {}

    FLOWGAUGE_DELAY_OWNERS_OF(ipv4_src_owners, hdr.ipv4.src_addr, set_src_owner)
    FLOWGAUGE_DELAY_OWNERS_OF(ipv4_dst_owners, hdr.ipv4.dst_addr, set_dst_owner)
    FLOWGAUGE_DELAY_OWNERS_OF(ipv6_src_owners, hdr.ipv6.src_addr[127:64], set_src_owner)
    FLOWGAUGE_DELAY_OWNERS_OF(ipv6_dst_owners, hdr.ipv6.dst_addr[127:64], set_dst_owner)
#endif

    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) tick;

    action set_now() {
        now = tick.get({ FLOWGAUGE_DELAY_TICK });
    }

#if FLOWGAUGE_DELAY_SAMPLES
    action set_time() {
        md.flowgauge.delayed.at = from_parser.global_tstamp;
    }
#endif

#if FLOWGAUGE_DELAY_ZERO_IS_NO_TIME
    action set_first_tick() {
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
        asked_now = 1;
#else
        now = 1;
#endif
    }
#endif

    action of_syn() {
        begin = hdr.tcp.sequence + 1;
    }

#if FLOWGAUGE_DELAY_HAS_DATA
    // What acknowledges data is the sequence number behind it: behind the length less that of headers, and a FIN.
    action of_segment(bit<32> less, bit<16> headers) {
        begin = hdr.tcp.sequence + less;
        payload = md.flowgauge.ip_length + headers;
    }

    table segments {
        key = {
            hdr.ipv4.isValid() : ternary @name("ipv4");
            hdr.tcp.flags : ternary @name("flags");
            hdr.tcp.data_offset : ternary @name("data_offset");
        }
        actions = {
            of_segment;
            of_syn;
        }
        const entries = {
#if FLOWGAUGE_DELAY_TCP_DATA
            (_, TCP_SYN &&& TCP_SYN, _): of_syn();
#endif
            FLOWGAUGE_DELAY_SEGMENTS_OF(5, 20)
            FLOWGAUGE_DELAY_SEGMENTS_OF(6, 24)
            FLOWGAUGE_DELAY_SEGMENTS_OF(7, 28)
            FLOWGAUGE_DELAY_SEGMENTS_OF(8, 32)
            FLOWGAUGE_DELAY_SEGMENTS_OF(9, 36)
            FLOWGAUGE_DELAY_SEGMENTS_OF(10, 40)
            FLOWGAUGE_DELAY_SEGMENTS_OF(11, 44)
            FLOWGAUGE_DELAY_SEGMENTS_OF(12, 48)
            FLOWGAUGE_DELAY_SEGMENTS_OF(13, 52)
            FLOWGAUGE_DELAY_SEGMENTS_OF(14, 56)
            FLOWGAUGE_DELAY_SEGMENTS_OF(15, 60)
        }
        const default_action = of_syn();
        size = 128;
    }

    // As a hash: copies of one width into another tie the layouts of many fields to each other.
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) length;

    action widen_length() {
        beyond[15:0] = length.get({ md.flowgauge.ip_length });
    }
#endif

#if FLOWGAUGE_DELAY_DNS
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) dns_id;

    action of_dns() {
        begin = dns_id.get({ 16w0, hdr.dns.id });
    }
#endif

    action of_echo() {
        begin = hdr.echo.token;
    }

    action set_segment_tokens() {
        asked_token = begin + beyond;
        answered_token = hdr.tcp.acknowledgement;
    }

    action set_syn_tokens() {
        asked_token = begin;
        answered_token = hdr.tcp.acknowledgement;
    }

    action set_tokens() {
        asked_token = begin;
        answered_token = begin;
    }

#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
    action set_timestamps() {
        asked_token = hdr.tcp_timestamps.sent;
        answered_token = hdr.tcp_timestamps.echoed;
    }
#endif

    FLOWGAUGE_POLYNOMIAL(polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) ipv4_src_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) ipv4_dst_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) ipv6_src_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) ipv6_dst_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) asked_token_crc;
#if !FLOWGAUGE_DELAY_QUIC_SPIN
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) answered_token_crc;
#endif

    action hash_ipv4_src() {
        md.flowgauge.delayed.src = ipv4_src_crc.get({ hdr.ipv4.src_addr, md.flowgauge.src_port });
    }

    action hash_ipv4_dst() {
        md.flowgauge.delayed.dst = ipv4_dst_crc.get({ hdr.ipv4.dst_addr, md.flowgauge.dst_port });
    }

    action hash_ipv6_src() {
        md.flowgauge.delayed.src = ipv6_src_crc.get({ hdr.ipv6.src_addr, md.flowgauge.src_port });
    }

    action hash_ipv6_dst() {
        md.flowgauge.delayed.dst = ipv6_dst_crc.get({ hdr.ipv6.dst_addr, md.flowgauge.dst_port });
    }

    action hash_asked_token() {
        asked_crc = asked_token_crc.get({ asked_token });
    }

#if !FLOWGAUGE_DELAY_QUIC_SPIN
    action hash_answered_token() {
        answered_crc = answered_token_crc.get({ answered_token });
    }
#endif

    // The sign says which table has requests of this direction.
    action subtract() {
        forth = md.flowgauge.delayed.src - md.flowgauge.delayed.dst;
        back = md.flowgauge.delayed.dst - md.flowgauge.delayed.src;
    }

    table differences {
        actions = { subtract; }
        const default_action = subtract();
        size = 1;
    }

#if FLOWGAUGE_DELAY_TCP_HANDSHAKE
    FLOWGAUGE_DELAY_ACTIONS(tcp_handshake, FLOWGAUGE_DELAY_RANK_OF_TCP_HANDSHAKE, 1)
#endif
#if FLOWGAUGE_DELAY_TCP_DATA
    FLOWGAUGE_DELAY_ACTIONS(tcp_data, FLOWGAUGE_DELAY_RANK_OF_TCP_DATA, 1)
    action ask_and_answer_tcp_data() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_DATA;
        md.flowgauge.keeps_first = 1;
    }
#endif
#if FLOWGAUGE_DELAY_TCP_DURATION
    FLOWGAUGE_DELAY_ACTIONS(tcp_duration, FLOWGAUGE_DELAY_RANK_OF_TCP_DURATION, 0)
#endif
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
    FLOWGAUGE_DELAY_ACTIONS(tcp_timestamps, FLOWGAUGE_DELAY_RANK_OF_TCP_TIMESTAMPS, 1)
#endif
#if FLOWGAUGE_DELAY_QUIC_SPIN
    FLOWGAUGE_DELAY_ACTIONS(quic_spin, FLOWGAUGE_DELAY_RANK_OF_QUIC_SPIN, 0)
#endif
#if FLOWGAUGE_DELAY_DNS
    FLOWGAUGE_DELAY_ACTIONS(dns, FLOWGAUGE_DELAY_RANK_OF_DNS, 0)
#endif
#if FLOWGAUGE_DELAY_ICMP
    FLOWGAUGE_DELAY_ACTIONS(icmp, FLOWGAUGE_DELAY_RANK_OF_ICMP, 0)
#endif

    action speak() {}

#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
    // Nobody answers a pure acknowledgement at once. Zero is no timestamp. Headers that are longer than the packet leave a payload that is
    // negative: large, while the length is small.
    table roles {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.tcp_timestamps.isValid() : ternary @name("timestamps");
            hdr.tcp_timestamps.sent : ternary @name("sent");
            hdr.tcp.flags : ternary @name("flags");
            payload : ternary @name("payload");
            beyond : ternary @name("length");
        }
        actions = {
            ask_tcp_timestamps;
            speak;
        }
        const entries = {
            (0, _, _, _, _, _): speak();
            (_, false, _, _, _, _): speak();
            (_, _, 0, _, _, _): speak();
            (_, _, _, TCP_SYN &&& (TCP_SYN + TCP_RST), _, _): ask_tcp_timestamps();
            (_, _, _, TCP_FIN &&& (TCP_FIN + TCP_RST), _, _): ask_tcp_timestamps();
            (_, _, _, _, 0, _): speak();
            (_, _, _, _, 0x8000 &&& 0x8000, 0 &&& 0x8000): speak();
            (_, _, _, _, _, _): ask_tcp_timestamps();
        }
        const default_action = speak();
        size = 16;
    }

    // An end that speaks to itself finds request and answer in one table: it asks.
    table answers {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.tcp_timestamps.isValid() : ternary @name("timestamps");
            hdr.tcp_timestamps.echoed : ternary @name("echoed");
            hdr.tcp.flags : ternary @name("flags");
            md.flowgauge.asked.is_one : ternary @name("asks");
            forth[31:31] : ternary @name("forth");
            back[31:31] : ternary @name("back");
        }
        actions = {
            answer_tcp_timestamps;
            speak;
        }
        const entries = {
            (0, _, _, _, _, _, _): speak();
            (_, false, _, _, _, _, _): speak();
            (_, _, 0, _, _, _, _): speak();
            (_, _, _, _, 1, 0, 0): speak();
            (_, _, _, _, 1, 1, 1): speak();
            (_, _, _, TCP_ACK &&& (TCP_ACK + TCP_RST), _, _, _): answer_tcp_timestamps();
        }
        const default_action = speak();
        size = 8;
    }
#elif FLOWGAUGE_DELAY_QUIC_SPIN
    // A short header: its first bit is zero, the next one 1.
    table roles {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.quic.isValid() : ternary @name("quic");
            hdr.quic.form : ternary @name("form");
        }
        actions = {
            ask_quic_spin;
            speak;
        }
        const entries = {
            (0, _, _): speak();
            (_, true, 1): ask_quic_spin();
        }
        const default_action = speak();
        size = 4;
    }
#else
    // Headers that are longer than the packet leave a payload that is negative: large, while the length is small.
    table roles {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.tcp.isValid() : ternary @name("tcp");
            hdr.dns.isValid() : ternary @name("dns");
            hdr.echo.isValid() : ternary @name("echo");
            hdr.tcp.flags : ternary @name("flags");
            payload : ternary @name("payload");
            beyond : ternary @name("length");
            forth[31:31] : ternary @name("forth");
            back[31:31] : ternary @name("back");
            hdr.dns.flags : ternary @name("dns_flags");
            hdr.udp.src_port : ternary @name("src_port");
            hdr.echo.kind : ternary @name("kind");
        }
        actions = {
#if FLOWGAUGE_DELAY_TCP_HANDSHAKE
            ask_tcp_handshake;
            answer_tcp_handshake;
#endif
#if FLOWGAUGE_DELAY_TCP_DATA
            ask_tcp_data;
            answer_tcp_data;
            ask_and_answer_tcp_data;
#endif
#if FLOWGAUGE_DELAY_TCP_DURATION
            ask_tcp_duration;
            answer_tcp_duration;
#endif
#if FLOWGAUGE_DELAY_DNS
            ask_dns;
            answer_dns;
#endif
#if FLOWGAUGE_DELAY_ICMP
            ask_icmp;
            answer_icmp;
#endif
            speak;
        }
        const entries = {
            (0, _, _, _, _, _, _, _, _, _, _, _): speak();
#if FLOWGAUGE_DELAY_TCP_HANDSHAKE
            (1, true, _, _, TCP_SYN &&& (TCP_SYN + TCP_ACK + TCP_FIN + TCP_RST), _, _, _, _, _, _, _): ask_tcp_handshake();
            (1, true, _, _, (TCP_SYN + TCP_ACK) &&& (TCP_SYN + TCP_ACK + TCP_FIN + TCP_RST), _, _, _, _, _, _, _):
                answer_tcp_handshake();
#endif
#if FLOWGAUGE_DELAY_TCP_DATA
            (1, true, _, _, TCP_SYN &&& TCP_SYN, _, _, _, _, _, _, _): speak();
            (1, true, _, _, TCP_RST &&& TCP_RST, _, _, _, _, _, _, _): speak();
            (1, true, _, _, TCP_ACK &&& TCP_ACK, 0, _, _, _, _, _, _): answer_tcp_data();
            (1, true, _, _, TCP_ACK &&& TCP_ACK, 0x8000 &&& 0x8000, 0 &&& 0x8000, _, _, _, _, _): answer_tcp_data();
            (1, true, _, _, _, 0, _, _, _, _, _, _): speak();
            (1, true, _, _, _, 0x8000 &&& 0x8000, 0 &&& 0x8000, _, _, _, _, _): speak();
            // An end that speaks to itself finds request and answer in one table: it asks.
            (1, true, _, _, TCP_ACK &&& TCP_ACK, _, _, 0, 0, _, _, _): ask_tcp_data();
            (1, true, _, _, TCP_ACK &&& TCP_ACK, _, _, 1, 1, _, _, _): ask_tcp_data();
            (1, true, _, _, TCP_ACK &&& TCP_ACK, _, _, _, _, _, _, _): ask_and_answer_tcp_data();
            (1, true, _, _, _, _, _, _, _, _, _, _): ask_tcp_data();
#endif
#if FLOWGAUGE_DELAY_TCP_DURATION
            (1, true, _, _, TCP_SYN &&& (TCP_SYN + TCP_ACK + TCP_FIN + TCP_RST), _, _, _, _, _, _, _): ask_tcp_duration();
            (1, true, _, _, TCP_FIN &&& (TCP_SYN + TCP_FIN), _, _, _, _, _, _, _): answer_tcp_duration();
            (1, true, _, _, TCP_RST &&& (TCP_SYN + TCP_RST), _, _, _, _, _, _, _): answer_tcp_duration();
#endif
#if FLOWGAUGE_DELAY_DNS
            (1, _, true, _, _, _, _, _, _, 0 &&& DNS_ANSWER, _, _): ask_dns();
            (1, _, true, _, _, _, _, _, _, DNS_ANSWER &&& DNS_ANSWER, DNS_PORT, _): answer_dns();
#endif
#if FLOWGAUGE_DELAY_ICMP
            (1, _, _, true, _, _, _, _, _, _, _, ICMP_ECHO_REQUEST): ask_icmp();
            (1, _, _, true, _, _, _, _, _, _, _, ICMPV6_ECHO_REQUEST): ask_icmp();
            (1, _, _, true, _, _, _, _, _, _, _, _): answer_icmp();
#endif
        }
        const default_action = speak();
        size = 32;
    }
#endif

    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_asked;
#if !FLOWGAUGE_DELAY_QUIC_SPIN
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_answered;
#endif

#if FLOWGAUGE_DELAY_TCP_DURATION
    bit<32> first;
    bit<32> second;

    action take_in_order() {
        first = md.flowgauge.delayed.src;
        second = md.flowgauge.delayed.dst;
    }

    action take_in_reverse() {
        first = md.flowgauge.delayed.dst;
        second = md.flowgauge.delayed.src;
    }

    action sign_asked() {
        md.flowgauge.asked.signature = xor_asked.get({ first, second[15:0], second[31:16], asked_crc[7:0], asked_crc[31:8] });
    }

    action sign_answered() {
        md.flowgauge.answered.signature = xor_answered.get({ first, second[15:0], second[31:16], answered_crc[7:0], answered_crc[31:8] });
    }
#else
#if FLOWGAUGE_DELAY_QUIC_SPIN
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) turned;

    action set_mine() {
        mine = turned.get({ md.flowgauge.asked.signature[31:1], hdr.quic.spin });
    }

    action set_opposite() {
        opposite = mine ^ 1;
    }

#endif
    action sign_asked() {
        md.flowgauge.asked.signature = xor_asked.get({ md.flowgauge.delayed.src, md.flowgauge.delayed.dst[15:0], md.flowgauge.delayed.dst[31:16], asked_crc[7:0], asked_crc[31:8] });
    }

#if !FLOWGAUGE_DELAY_QUIC_SPIN
    action sign_answered() {
        md.flowgauge.answered.signature = xor_answered.get({ md.flowgauge.delayed.dst, md.flowgauge.delayed.src[15:0], md.flowgauge.delayed.src[31:16], answered_crc[7:0], answered_crc[31:8] });
    }
#endif
#endif

#if FLOWGAUGE_DELAY_EXPIRES
    action ask_first_table() {
        signature0 = md.flowgauge.asked.signature;
        signature1 = md.flowgauge.answered.signature;
    }

    action ask_second_table() {
        signature0 = md.flowgauge.answered.signature;
        signature1 = md.flowgauge.asked.signature;
    }

    action ask_none() {
        signature0 = md.flowgauge.answered.signature;
        signature1 = md.flowgauge.answered.signature;
    }
#endif

#if FLOWGAUGE_DELAY_ZERO_IS_NO_TIME
    action take_time() {
        md.flowgauge.delayed.ticks = now - before;
    }
#endif

#if FLOWGAUGE_DELAY_SAMPLES
    action send() {
        for_deparser.digest_type = FLOWGAUGE_DELAY_DIGEST;
    }
#endif

    action set_bucket(bit<10> number) {
        bucket = number;
    }

    table buckets {
        key = { md.flowgauge.delayed.ticks[FLOWGAUGE_DELAY_SIGN:0] : lpm @name("ticks"); }
        actions = { set_bucket; }
        default_action = set_bucket(0);
        size = 1024;
    }

    Register<flowgauge_delays_t, bit<FLOWGAUGE_DELAY_BUCKET_BITS>>(1 << FLOWGAUGE_DELAY_BUCKET_BITS, {0, 0}) delays;
    RegisterAction<flowgauge_delays_t, bit<FLOWGAUGE_DELAY_BUCKET_BITS>, bit<32>>(delays) count_delay = {
        void apply(inout flowgauge_delays_t counted) {
            counted.samples = counted.samples |+| 1;
            counted.beyond = counted.beyond |+| md.flowgauge.delayed.beyond;
        }
    };

#if FLOWGAUGE_DELAY_WEIGHS
    action set_weight(bit<32> value, bit<32> inverted, bit<32> squared, bit<32> squared_inverted, bit<32> is_beyond) {
        md.flowgauge.delayed.weight = value;
        weight_complement = inverted;
        square = squared;
        square_complement = squared_inverted;
        md.flowgauge.delayed.beyond = is_beyond;
    }

    // What a delay counts for, by how many requests were put in the table since its own.
    table weights {
        key = { insertions : lpm @name("insertions"); }
        actions = { set_weight; }
        default_action = set_weight(0, 0xffffffff, 0, 0xffffffff, 0);
        size = 512;
    }

    FLOWGAUGE_DELAY_SUM(weights_sum, md.flowgauge.delayed.weight, weight_complement)
    FLOWGAUGE_DELAY_SUM(squares_sum, square, square_complement)
#endif

    apply {
        set_now();
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
        asked_now = now;
#endif
#if FLOWGAUGE_DELAY_ZERO_IS_NO_TIME
        if (now == 0) {
            set_first_tick();
        }
#endif
#if FLOWGAUGE_DELAY_SAMPLES
        set_time();
#endif
        if (hdr.ipv4.isValid()) {
            hash_ipv4_src();
            hash_ipv4_dst();
        } else {
            hash_ipv6_src();
            hash_ipv6_dst();
        }
#if FLOWGAUGE_DELAY_OWNERS
        if (hdr.ipv4.isValid()) {
            ipv4_src_owners.apply();
            ipv4_dst_owners.apply();
        } else if (hdr.ipv6.isValid()) {
            ipv6_src_owners.apply();
            ipv6_dst_owners.apply();
        }
#endif
#if FLOWGAUGE_DELAY_HAS_DATA
        widen_length();
#endif
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
        if (hdr.tcp.isValid()) {
            segments.apply();
        }
        if (hdr.tcp_timestamps.isValid()) {
            set_timestamps();
        }
#elif !FLOWGAUGE_DELAY_TCP_DURATION && !FLOWGAUGE_DELAY_QUIC_SPIN
        if (hdr.tcp.isValid()) {
#if FLOWGAUGE_DELAY_TCP_DATA
            segments.apply();
#elif FLOWGAUGE_DELAY_TCP_HANDSHAKE
            of_syn();
#endif
#if FLOWGAUGE_DELAY_DNS
        } else if (hdr.dns.isValid()) {
            of_dns();
#endif
#if FLOWGAUGE_DELAY_ICMP
        } else if (hdr.echo.isValid()) {
            of_echo();
#endif
        }
#if FLOWGAUGE_DELAY_TCP_DATA
        if (hdr.tcp.isValid() && (hdr.tcp.flags & TCP_SYN) == 0) {
            set_segment_tokens();
        } else if (hdr.tcp.isValid()) {
            set_syn_tokens();
        } else {
#else
        if (hdr.tcp.isValid()) {
            set_syn_tokens();
        } else {
#endif
            set_tokens();
        }
#endif
        hash_asked_token();
#if !FLOWGAUGE_DELAY_QUIC_SPIN
        hash_answered_token();
#endif
        differences.apply();
        roles.apply();
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
        answers.apply();
#endif
#if FLOWGAUGE_DELAY_TCP_DURATION
        if (forth[31:31] == 0) {
            take_in_order();
        } else {
            take_in_reverse();
        }
#endif
        sign_asked();
        asked.apply(md.flowgauge.asked, md.flowgauge.bank, md.flowgauge.delay_kind);
#if FLOWGAUGE_DELAY_QUIC_SPIN
        set_mine();
        set_opposite();
        if (md.flowgauge.asked.is_admitted == 1) {
            FLOWGAUGE_DELAY_TURN(true, FLOWGAUGE_DELAY_TURN_SIGNATURE, false, FLOWGAUGE_DELAY_NOTHING)
        }
#if FLOWGAUGE_DELAY_WEIGHS
        FLOWGAUGE_DELAY_TURN(FLOWGAUGE_DELAY_TURNS, FLOWGAUGE_DELAY_LOOK_AT_INSERTIONS, FLOWGAUGE_DELAY_BEGINS, FLOWGAUGE_DELAY_INSERT)
#endif
        FLOWGAUGE_DELAY_TURN(FLOWGAUGE_DELAY_TURNS, FLOWGAUGE_DELAY_TURN_TIME, FLOWGAUGE_DELAY_BEGINS, FLOWGAUGE_DELAY_BEGIN_TIME)
#if FLOWGAUGE_DELAY_WEIGHS
        FLOWGAUGE_DELAY_TURN(FLOWGAUGE_DELAY_TURNS, FLOWGAUGE_DELAY_TURN_STAMP, FLOWGAUGE_DELAY_BEGINS, FLOWGAUGE_DELAY_ASK_STAMP)
        weights.apply();
#endif
        // Only edges are known.
        if (had == 4 && md.flowgauge.asked.counts == 1) {
            count_requests.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
            count_admitted.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        }
        take_time();
        if (before != 0) {
            md.flowgauge.is_found = 1;
        }
#else
        sign_answered();
        answered.apply(md.flowgauge.answered, md.flowgauge.bank, md.flowgauge.delay_kind);
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
        FLOWGAUGE_DELAY_EXCHANGE(FLOWGAUGE_DELAY_IS_ASKED, FLOWGAUGE_DELAY_ASK_SIGNATURE, md.flowgauge.answered.is_admitted == 1,
                                 FLOWGAUGE_DELAY_ANSWER_SIGNATURE)
        // Only those are known that were put in a table.
        if (FLOWGAUGE_DELAY_IS_NEW && md.flowgauge.asked.counts == 1) {
            count_requests.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
            count_admitted.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        }
#if FLOWGAUGE_DELAY_WEIGHS
        FLOWGAUGE_DELAY_EXCHANGE(FLOWGAUGE_DELAY_IS_NEW, FLOWGAUGE_DELAY_INSERT, md.flowgauge.is_found == 1, FLOWGAUGE_DELAY_INSERTED)
#endif
#else
        if (md.flowgauge.asked.is_one == 1) {
            count_requests.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        }
#if FLOWGAUGE_DELAY_EXPIRES
        if (md.flowgauge.asked.is_one == 0) {
            ask_none();
#if FLOWGAUGE_DELAY_TCP_DURATION
        } else {
            ask_first_table();
        }
#else
        } else if (forth[31:31] == 0) {
            ask_first_table();
        } else {
            ask_second_table();
        }
#endif
        FLOWGAUGE_DELAY_EXCHANGE(FLOWGAUGE_DELAY_IS_ASKED, FLOWGAUGE_DELAY_ASK_FIRST, md.flowgauge.answered.is_admitted == 1,
                                 FLOWGAUGE_DELAY_ANSWER_FIRST)
        FLOWGAUGE_DELAY_EXCHANGE(FLOWGAUGE_DELAY_IS_REFUSED, FLOWGAUGE_DELAY_ASK_SECOND,
                                 (md.flowgauge.answered.is_admitted == 1 && before == 0), FLOWGAUGE_DELAY_ANSWER_SECOND)
        if (FLOWGAUGE_DELAY_IS_REFUSED) {
            count_refused.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        } else if (md.flowgauge.asked.counts == 1) {
            count_admitted.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        }
        take_time();
        if (before != 0) {
            md.flowgauge.is_found = 1;
        }
#else
        if (md.flowgauge.asked.counts == 1) {
            count_admitted.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        }
#if FLOWGAUGE_DELAY_WEIGHS
        FLOWGAUGE_DELAY_EXCHANGE(FLOWGAUGE_DELAY_IS_ASKED, FLOWGAUGE_DELAY_INSERT, md.flowgauge.answered.is_admitted == 1, FLOWGAUGE_DELAY_INSERTED)
#endif
        FLOWGAUGE_DELAY_EXCHANGE(FLOWGAUGE_DELAY_IS_ASKED, FLOWGAUGE_DELAY_ASK_SIGNATURE, md.flowgauge.answered.is_admitted == 1,
                                 FLOWGAUGE_DELAY_ANSWER_SIGNATURE)
#endif
#endif
#if !FLOWGAUGE_DELAY_EXPIRES
        FLOWGAUGE_DELAY_EXCHANGE(FLOWGAUGE_DELAY_IS_NEW, FLOWGAUGE_DELAY_ASK_TIME, md.flowgauge.is_found == 1, FLOWGAUGE_DELAY_ANSWER_TIME)
#endif
#if FLOWGAUGE_DELAY_WEIGHS
        FLOWGAUGE_DELAY_EXCHANGE(FLOWGAUGE_DELAY_IS_NEW, FLOWGAUGE_DELAY_ASK_STAMP, md.flowgauge.is_found == 1, FLOWGAUGE_DELAY_ANSWER_STAMP)
        weights.apply();
#endif
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
        // Of a timestamp that was answered nothing is left.
        take_time();
        if (before == 0) {
            md.flowgauge.is_found = 0;
        }
#endif
#endif
        buckets.apply();
        // Some answers only take their requests away.
        if (md.flowgauge.is_found == 1 && FLOWGAUGE_DELAY_FOUND.counts == 1) {
            if (md.flowgauge.delayed.ticks[FLOWGAUGE_DELAY_SIGN:FLOWGAUGE_DELAY_SIGN] == 0) {
                count_delay.execute(FLOWGAUGE_DELAY_BUCKET);
#if FLOWGAUGE_DELAY_WEIGHS
                add_to_weights_sum.execute(FLOWGAUGE_DELAY_BUCKET);
                add_to_squares_sum.execute(FLOWGAUGE_DELAY_BUCKET);
#endif
#if FLOWGAUGE_DELAY_SAMPLES
                send();
#endif
            } else {
                count_backward.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(FLOWGAUGE_DELAY_FOUND));
            }
        }
    }
}
#endif

#endif
