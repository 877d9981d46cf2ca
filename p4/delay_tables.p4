// Part of FlowgaugeDelay: the two tables of requests that wait, and access to them.
//
// Connections have one table, other requests one for each direction. The tables are written out, as
// their registers have their place in the schema: `delay.` and a name with the number of the table.

#if FLOWGAUGE_DELAY_ALGORITHM == FLOWGAUGE_DELAY_EXPIRY
    // Two stages of each table whose requests expire (Chen et al. 2020). The time of a free slot is
    // later than all others. A time from before the clock's 31 bits wrapped counts as expired,
    // since there is no third comparison for it.
    RegisterParam<int<32>>(-781250) first_age0;
    Register<flowgauge_waiting_t, flowgauge_delay_stage_slot_t>(
        1 << FLOWGAUGE_DELAY_STAGE_INDEX_BITS, {0, -1}) first_slots0;
    RegisterAction<flowgauge_waiting_t, flowgauge_delay_stage_slot_t, bit<32>>(first_slots0)
    ask_first0 = {
        void apply(inout flowgauge_waiting_t slot, out bit<32> waits) {
            if (slot.time - (int<32>) now < first_age0.read() || (bit<32>) slot.time > now) {
                slot.signature = (int<32>) signature0;
                slot.time = (int<32>) now;
                waits = 0;
            } else {
                waits = (bit<32>) slot.signature;
            }
        }
    };
    RegisterAction<flowgauge_waiting_t, flowgauge_delay_stage_slot_t, bit<32>>(first_slots0)
    answer_first0 = {
        void apply(inout flowgauge_waiting_t slot, out bit<32> since) {
            if (slot.signature == (int<32>) signature0) {
                since = (bit<32>) slot.time;
                slot.signature = 0;
                slot.time = -1;
            } else {
                since = 0;
            }
        }
    };

    RegisterParam<int<32>>(-781250) second_age0;
    Register<flowgauge_waiting_t, flowgauge_delay_stage_slot_t>(
        1 << FLOWGAUGE_DELAY_STAGE_INDEX_BITS, {0, -1}) second_slots0;
    RegisterAction<flowgauge_waiting_t, flowgauge_delay_stage_slot_t, bit<32>>(second_slots0)
    ask_second0 = {
        void apply(inout flowgauge_waiting_t slot, out bit<32> waits) {
            if (slot.time - (int<32>) now < second_age0.read() || (bit<32>) slot.time > now) {
                slot.signature = (int<32>) signature0;
                slot.time = (int<32>) now;
                waits = 0;
            } else {
                waits = (bit<32>) slot.signature;
            }
        }
    };
    RegisterAction<flowgauge_waiting_t, flowgauge_delay_stage_slot_t, bit<32>>(second_slots0)
    answer_second0 = {
        void apply(inout flowgauge_waiting_t slot, out bit<32> since) {
            if (slot.signature == (int<32>) signature0) {
                since = (bit<32>) slot.time;
                slot.signature = 0;
                slot.time = -1;
            } else {
                since = 0;
            }
        }
    };

#if !FLOWGAUGE_DELAY_TCP_DURATION
    RegisterParam<int<32>>(-781250) first_age1;
    Register<flowgauge_waiting_t, flowgauge_delay_stage_slot_t>(
        1 << FLOWGAUGE_DELAY_STAGE_INDEX_BITS, {0, -1}) first_slots1;
    RegisterAction<flowgauge_waiting_t, flowgauge_delay_stage_slot_t, bit<32>>(first_slots1)
    ask_first1 = {
        void apply(inout flowgauge_waiting_t slot, out bit<32> waits) {
            if (slot.time - (int<32>) now < first_age1.read() || (bit<32>) slot.time > now) {
                slot.signature = (int<32>) signature1;
                slot.time = (int<32>) now;
                waits = 0;
            } else {
                waits = (bit<32>) slot.signature;
            }
        }
    };
    RegisterAction<flowgauge_waiting_t, flowgauge_delay_stage_slot_t, bit<32>>(first_slots1)
    answer_first1 = {
        void apply(inout flowgauge_waiting_t slot, out bit<32> since) {
            if (slot.signature == (int<32>) signature1) {
                since = (bit<32>) slot.time;
                slot.signature = 0;
                slot.time = -1;
            } else {
                since = 0;
            }
        }
    };

    RegisterParam<int<32>>(-781250) second_age1;
    Register<flowgauge_waiting_t, flowgauge_delay_stage_slot_t>(
        1 << FLOWGAUGE_DELAY_STAGE_INDEX_BITS, {0, -1}) second_slots1;
    RegisterAction<flowgauge_waiting_t, flowgauge_delay_stage_slot_t, bit<32>>(second_slots1)
    ask_second1 = {
        void apply(inout flowgauge_waiting_t slot, out bit<32> waits) {
            if (slot.time - (int<32>) now < second_age1.read() || (bit<32>) slot.time > now) {
                slot.signature = (int<32>) signature1;
                slot.time = (int<32>) now;
                waits = 0;
            } else {
                waits = (bit<32>) slot.signature;
            }
        }
    };
    RegisterAction<flowgauge_waiting_t, flowgauge_delay_stage_slot_t, bit<32>>(second_slots1)
    answer_second1 = {
        void apply(inout flowgauge_waiting_t slot, out bit<32> since) {
            if (slot.signature == (int<32>) signature1) {
                since = (bit<32>) slot.time;
                slot.signature = 0;
                slot.time = -1;
            } else {
                since = 0;
            }
        }
    };
#endif
#elif FLOWGAUGE_DELAY_QUIC_SPIN
    // Flow with its spin bit, and time of the last edge. An edge ends one round and begins the
    // next. Time zero means that no edge was seen yet.
    Register<bit<32>, flowgauge_delay_slot_t>(
        1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) signatures0;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<4>>(signatures0) ask_signature0 = {
        void apply(inout bit<32> signature, out bit<4> had) {
            had = this.predicate(signature == mine, signature == opposite);
            signature = mine;
        }
    };

    Register<bit<32>, flowgauge_delay_slot_t>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) times0;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(times0) answer_time0 = {
        void apply(inout bit<32> time, out bit<32> before) {
            before = time;
            time = now;
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(times0) ask_time0 = {
        void apply(inout bit<32> time) {
            time = 0;
        }
    };

    Register<bit<32>, flowgauge_delay_slot_t>(
        1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) signatures1;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<4>>(signatures1) ask_signature1 = {
        void apply(inout bit<32> signature, out bit<4> had) {
            had = this.predicate(signature == mine, signature == opposite);
            signature = mine;
        }
    };

    Register<bit<32>, flowgauge_delay_slot_t>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) times1;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(times1) answer_time1 = {
        void apply(inout bit<32> time, out bit<32> before) {
            before = time;
            time = now;
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(times1) ask_time1 = {
        void apply(inout bit<32> time) {
            time = 0;
        }
    };
#else
    // Signature and time of each slot. A signature of zero marks a free slot. A timestamp that was
    // answered stays, with time zero, so that a segment that repeats it is no request.
    Register<bit<32>, flowgauge_delay_slot_t>(
        1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) signatures0;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<1>>(signatures0) ask_signature0 = {
        void apply(inout bit<32> signature, out bit<1> is_same) {
            if (signature == md.flowgauge.asked.signature) {
                is_same = 1;
            } else {
                signature = md.flowgauge.asked.signature;
                is_same = 0;
            }
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<1>>(signatures0) answer_signature0 = {
        void apply(inout bit<32> signature, out bit<1> is_same) {
            if (signature == md.flowgauge.answered.signature) {
                if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 0) {
                    signature = 0;
                }
                is_same = 1;
            } else {
                is_same = 0;
            }
        }
    };

    Register<bit<32>, flowgauge_delay_slot_t>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) times0;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(times0) ask_time0 = {
        void apply(inout bit<32> time) {
            if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
                time = asked_now;
            } else {
                time = now;
            }
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(times0) answer_time0 = {
        void apply(inout bit<32> time, out bit<32> answer) {
            if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
                answer = time;
                time = 0;
            } else {
                answer = now - time;
            }
        }
    };

#if !FLOWGAUGE_DELAY_TCP_DURATION
    Register<bit<32>, flowgauge_delay_slot_t>(
        1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) signatures1;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<1>>(signatures1) ask_signature1 = {
        void apply(inout bit<32> signature, out bit<1> is_same) {
            if (signature == md.flowgauge.asked.signature) {
                is_same = 1;
            } else {
                signature = md.flowgauge.asked.signature;
                is_same = 0;
            }
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<1>>(signatures1) answer_signature1 = {
        void apply(inout bit<32> signature, out bit<1> is_same) {
            if (signature == md.flowgauge.answered.signature) {
                if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 0) {
                    signature = 0;
                }
                is_same = 1;
            } else {
                is_same = 0;
            }
        }
    };

    Register<bit<32>, flowgauge_delay_slot_t>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) times1;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(times1) ask_time1 = {
        void apply(inout bit<32> time) {
            if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
                time = asked_now;
            } else {
                time = now;
            }
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(times1) answer_time1 = {
        void apply(inout bit<32> time, out bit<32> answer) {
            if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
                answer = time;
                time = 0;
            } else {
                answer = now - time;
            }
        }
    };
#endif
#endif

#if FLOWGAUGE_DELAY_HAS_WEIGHTS
    // Number of insertions into a table, and that number at the time of each slot's request.
    Register<bit<32>, flowgauge_delay_row_t>(1 << FLOWGAUGE_DELAY_ROW_BITS, 0) insertions0;
    RegisterAction<bit<32>, flowgauge_delay_row_t, bit<32>>(insertions0) insert0 = {
        void apply(inout bit<32> so_far, out bit<32> count) {
            so_far = so_far + insertion;
            count = so_far;
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_row_t, bit<32>>(insertions0) inserted0 = {
        void apply(inout bit<32> so_far, out bit<32> count) {
            count = so_far;
        }
    };

    Register<bit<32>, flowgauge_delay_slot_t>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) stamps0;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(stamps0) ask_stamp0 = {
        void apply(inout bit<32> stamp) {
            stamp = asked_number;
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(stamps0) answer_stamp0 = {
        void apply(inout bit<32> stamp, out bit<32> others) {
            if (FLOWGAUGE_DELAY_QUIC_SPIN == 1) {
                others = asked_number - stamp;
                stamp = asked_number;
            } else {
                others = answered_number - stamp;
            }
        }
    };

#if !FLOWGAUGE_DELAY_TCP_DURATION
    Register<bit<32>, flowgauge_delay_row_t>(1 << FLOWGAUGE_DELAY_ROW_BITS, 0) insertions1;
    RegisterAction<bit<32>, flowgauge_delay_row_t, bit<32>>(insertions1) insert1 = {
        void apply(inout bit<32> so_far, out bit<32> count) {
            so_far = so_far + insertion;
            count = so_far;
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_row_t, bit<32>>(insertions1) inserted1 = {
        void apply(inout bit<32> so_far, out bit<32> count) {
            count = so_far;
        }
    };

    Register<bit<32>, flowgauge_delay_slot_t>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) stamps1;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(stamps1) ask_stamp1 = {
        void apply(inout bit<32> stamp) {
            stamp = asked_number;
        }
    };
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(stamps1) answer_stamp1 = {
        void apply(inout bit<32> stamp, out bit<32> others) {
            if (FLOWGAUGE_DELAY_QUIC_SPIN == 1) {
                others = asked_number - stamp;
                stamp = asked_number;
            } else {
                others = answered_number - stamp;
            }
        }
    };
#endif
#endif

// FLOWGAUGE_DELAY_EXCHANGE accesses an array of each table at most once. `asks` and `answers` are
// conditions, `ask` and `answer` register actions without the table's number, each with an index
// and an assignment of its result.
//
// Requests of one direction wait in one table, and answers of the other direction look there.
// Connections are identified by both ends in one order, in either direction, and have one table.
#if FLOWGAUGE_DELAY_TCP_DURATION
#define FLOWGAUGE_DELAY_EXCHANGE(asks, asked_is, ask, asked_at, \
        answers, answered_is, answer, answered_at) \
    if (asks) { \
        asked_is ask##0.execute(asked_at); \
    } else if (answers) { \
        answered_is answer##0.execute(answered_at); \
    }
#else
#define FLOWGAUGE_DELAY_EXCHANGE(asks, asked_is, ask, asked_at, \
        answers, answered_is, answer, answered_at) \
    if (asks && forth[31:31] == 0) { \
        asked_is ask##0.execute(asked_at); \
        if (answers) { \
            answered_is answer##1.execute(answered_at); \
        } \
    } else if (asks) { \
        asked_is ask##1.execute(asked_at); \
        if (answers) { \
            answered_is answer##0.execute(answered_at); \
        } \
    } else if (answers) { \
        if (back[31:31] == 0) { \
            answered_is answer##0.execute(answered_at); \
        } else { \
            answered_is answer##1.execute(answered_at); \
        } \
    }
#endif
// The same for a spin bit, which is an edge or the first one of its flow. Both access the slot of
// the flow.
#define FLOWGAUGE_DELAY_TURN(turns, turned_is, turn, begins, begun_is, begin, at) \
    if (forth[31:31] == 0) { \
        if (turns) { \
            turned_is turn##0.execute(at); \
        } else if (begins) { \
            begun_is begin##0.execute(at); \
        } \
    } else { \
        if (turns) { \
            turned_is turn##1.execute(at); \
        } else if (begins) { \
            begun_is begin##1.execute(at); \
        } \
    }

// Whether a request is to be put in a table. A segment that TCP sends again keeps the time and the
// stamp of its first packet.
#define FLOWGAUGE_DELAY_IS_NEW (md.flowgauge.asked.is_admitted == 1 \
    && (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1 ? md.flowgauge.is_again == 0 \
        : !(md.flowgauge.is_again == 1 && md.flowgauge.keeps_first == 1)))
// Whether another request waits in the slot of one that expires.
#define FLOWGAUGE_DELAY_IS_REFUSED (waits != 0 && waits != md.flowgauge.asked.signature)
