// Response times: requests wait in a table until their answers come (dissertation, chapter 2;
// dataplane/core/src/delay).
//
// Requests of one direction wait in one of two tables, and answers of the other direction look for
// them there. So a packet that is both, data that acknowledges data, accesses each array once. A
// packet is of one kind at most, so that all kinds of a build share arrays.
//
// delay_settings.p4 has kinds and indices, delay_request.p4 the admission of a request,
// delay_counts.p4 types of counts, and samples. Parts of the control itself are in delay_tables.p4,
// delay_owners.p4, delay_tokens.p4 and delay_roles.p4: registers, tables and actions have their
// place in the schema, so that they cannot move to a control of their own.

#include "delay_settings.p4"
#include "delay_request.p4"
#include "delay_counts.p4"

control FlowgaugeDelay(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                       in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                       inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
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
    // Time to store, of timestamps: zero stands for no time.
    bit<32> asked_now;
    // Of requests that expire: the signature that each table is asked for (an array takes two
    // operands from a packet), and the one in the slot that a request needs, if it is taken.
    bit<32> signature0;
    bit<32> signature1;
    bit<32> waits = 0;
    // The signature with the spin bit as its lowest bit, and with the other spin bit.
    bit<32> mine;
    bit<32> opposite;
    bit<4> had = 0;
    // Time found in a slot where zero stands for none.
    bit<32> before = 0;
    // Of algorithms that weigh delays.
    bit<32> insertion = 1;
    bit<32> miscounted = 0;
    bit<32> asked_number;
    bit<32> answered_number;
    bit<32> insertions = 0;
    bit<32> weight_complement;
    bit<32> square;
    bit<32> square_complement;

    FlowgaugeRequest() asked;
    FlowgaugeRequest() answered;

    // 64-bit counts of each kind, group and direction, in both banks.
    Register<flowgauge_sum_t, flowgauge_delay_count_t>(
        1 << FLOWGAUGE_DELAY_COUNT_BITS, {0, 0}) requests;
    RegisterAction<flowgauge_sum_t, flowgauge_delay_count_t, bit<32>>(requests) count_requests = {
        void apply(inout flowgauge_sum_t total) {
            if ((int<32>) total.low == -1) {
                total.high = total.high |+| 1;
            }
            total.low = total.low + 1;
        }
    };

    Register<flowgauge_sum_t, flowgauge_delay_count_t>(
        1 << FLOWGAUGE_DELAY_COUNT_BITS, {0, 0}) admitted;
    RegisterAction<flowgauge_sum_t, flowgauge_delay_count_t, bit<32>>(admitted) count_admitted = {
        void apply(inout flowgauge_sum_t total) {
            if ((int<32>) total.low == -1) {
                total.high = total.high |+| 1;
            }
            total.low = total.low + 1;
        }
    };

    Register<flowgauge_sum_t, flowgauge_delay_count_t>(
        1 << FLOWGAUGE_DELAY_COUNT_BITS, {0, 0}) backward;
    RegisterAction<flowgauge_sum_t, flowgauge_delay_count_t, bit<32>>(backward) count_backward = {
        void apply(inout flowgauge_sum_t total) {
            if ((int<32>) total.low == -1) {
                total.high = total.high |+| 1;
            }
            total.low = total.low + 1;
        }
    };

#if FLOWGAUGE_DELAY_ALGORITHM == FLOWGAUGE_DELAY_EXPIRY
    Register<flowgauge_sum_t, flowgauge_delay_count_t>(
        1 << FLOWGAUGE_DELAY_COUNT_BITS, {0, 0}) refused;
    RegisterAction<flowgauge_sum_t, flowgauge_delay_count_t, bit<32>>(refused) count_refused = {
        void apply(inout flowgauge_sum_t total) {
            if ((int<32>) total.low == -1) {
                total.high = total.high |+| 1;
            }
            total.low = total.low + 1;
        }
    };
#endif

#include "delay_tables.p4"

#if FLOWGAUGE_DELAY_REMEMBERS
    // Recent requests of a kind: the signature of the last one in each of as many cells as a table
    // has slots. A request that is in its cell is repeated. It takes its own slot again, so that it
    // is no insertion.
    Register<bit<32>, flowgauge_delay_slot_t>(1 << FLOWGAUGE_DELAY_INDEX_BITS, 0) recent;
    RegisterAction<bit<32>, flowgauge_delay_slot_t, bit<32>>(recent) ask_recent = {
        void apply(inout bit<32> signature, out bit<32> is_new) {
            if (signature == md.flowgauge.asked.signature) {
                is_new = 0;
            } else {
                is_new = 1;
            }
            signature = md.flowgauge.asked.signature;
        }
    };

    // One array, because stateful ALUs are short.
    Register<flowgauge_inserted_t, flowgauge_delay_count_t>(
        1 << FLOWGAUGE_DELAY_COUNT_BITS, {0, 0}) inserted;
    RegisterAction<flowgauge_inserted_t, flowgauge_delay_count_t, bit<32>>(inserted)
    count_inserted = {
        void apply(inout flowgauge_inserted_t count) {
            count.insertions = count.insertions |+| insertion;
            count.miscounted = count.miscounted |+| miscounted;
        }
    };
#endif

#if FLOWGAUGE_DELAY_GROUP_BITS || FLOWGAUGE_DELAY_LOCAL
#include "delay_owners.p4"
#endif

    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) tick;

    action set_now() {
        if (FLOWGAUGE_DELAY_EXPIRES) {
            now = tick.get({
                1w0, ig_prsr_md.global_tstamp[30 + FLOWGAUGE_DELAY_TICK_BITS:FLOWGAUGE_DELAY_TICK_BITS] });
        } else {
            now = tick.get({
                ig_prsr_md.global_tstamp[31 + FLOWGAUGE_DELAY_TICK_BITS:FLOWGAUGE_DELAY_TICK_BITS] });
        }
    }

    action set_time() {
        md.flowgauge.delayed.at = ig_prsr_md.global_tstamp;
    }

    action set_first_tick() {
        if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
            asked_now = 1;
        } else {
            now = 1;
        }
    }

#include "delay_tokens.p4"
#include "delay_roles.p4"

    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) turned;

    action set_mine() {
        mine = turned.get({ md.flowgauge.asked.signature[31:1], hdr.quic.spin });
    }

    action set_opposite() {
        opposite = mine ^ 1;
    }

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

    action take_time() {
        md.flowgauge.delayed.ticks = now - before;
    }

    action send() {
        ig_dprsr_md.digest_type = FLOWGAUGE_DELAY_DIGEST;
    }

    // A field, so that the count comes a stage later: the stamps take the last stateful ALUs before.
    @noWarn("unused")
    action miscount() {
        miscounted = 1;
    }

    action set_bucket(bit<10> number) {
        bucket = number;
    }

    table buckets {
        key = { md.flowgauge.delayed.ticks[FLOWGAUGE_DELAY_SIGN:0] : lpm @name("ticks"); }
        actions = { set_bucket; }
        default_action = set_bucket(0);
        size = 1024;
    }

    Register<flowgauge_delays_t, flowgauge_delay_bucket_t>(
        1 << FLOWGAUGE_DELAY_BUCKET_BITS, {0, 0}) delays;
    RegisterAction<flowgauge_delays_t, flowgauge_delay_bucket_t, bit<32>>(delays) count_delay = {
        void apply(inout flowgauge_delays_t counted) {
            counted.samples = counted.samples |+| 1;
            counted.beyond = counted.beyond |+| md.flowgauge.delayed.beyond;
        }
    };

    action set_weight(bit<32> value, bit<32> inverted, bit<32> squared, bit<32> squared_inverted,
                      bit<32> is_beyond) {
        md.flowgauge.delayed.weight = value;
        weight_complement = inverted;
        square = squared;
        square_complement = squared_inverted;
        md.flowgauge.delayed.beyond = is_beyond;
    }

    // Weight of a delay, by the number of requests put in the table since its own.
    table weights {
        key = { insertions : lpm @name("insertions"); }
        actions = { set_weight; }
        default_action = set_weight(0, 0xffffffff, 0, 0xffffffff, 0);
        size = 512;
    }

#if FLOWGAUGE_DELAY_HAS_WEIGHTS
    // 64-bit sums of each bucket. The lower half overflows if it is above the complement of the term.
    Register<flowgauge_sum_t, flowgauge_delay_bucket_t>(
        1 << FLOWGAUGE_DELAY_BUCKET_BITS, {0, 0}) weights_sum;
    RegisterAction<flowgauge_sum_t, flowgauge_delay_bucket_t, bit<32>>(weights_sum)
    add_to_weights_sum = {
        void apply(inout flowgauge_sum_t total) {
            if (total.low > weight_complement) {
                total.high = total.high |+| 1;
            }
            total.low = total.low + md.flowgauge.delayed.weight;
        }
    };

    Register<flowgauge_sum_t, flowgauge_delay_bucket_t>(
        1 << FLOWGAUGE_DELAY_BUCKET_BITS, {0, 0}) squares_sum;
    RegisterAction<flowgauge_sum_t, flowgauge_delay_bucket_t, bit<32>>(squares_sum)
    add_to_squares_sum = {
        void apply(inout flowgauge_sum_t total) {
            if (total.low > square_complement) {
                total.high = total.high |+| 1;
            }
            total.low = total.low + square;
        }
    };
#endif

    apply {
        set_now();
        if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
            asked_now = now;
        }
        if (FLOWGAUGE_DELAY_ZERO_IS_NO_TIME) {
            if (now == 0) {
                set_first_tick();
            }
        }
        if (FLOWGAUGE_DELAY_SAMPLES == 1) {
            set_time();
        }
        if (hdr.ipv4.isValid()) {
            hash_ipv4_src();
            hash_ipv4_dst();
        } else {
            hash_ipv6_src();
            hash_ipv6_dst();
        }
#if FLOWGAUGE_DELAY_GROUP_BITS || FLOWGAUGE_DELAY_LOCAL
        if (hdr.ipv4.isValid()) {
            ipv4_src_owners.apply();
            ipv4_dst_owners.apply();
        } else if (hdr.ipv6.isValid()) {
            ipv6_src_owners.apply();
            ipv6_dst_owners.apply();
        }
#endif
        if (FLOWGAUGE_DELAY_HAS_DATA) {
            widen_length();
        }
        if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
            if (hdr.tcp.isValid()) {
                segments.apply();
            }
            if (hdr.tcp_timestamps.isValid()) {
                set_timestamps();
            }
        } else if (FLOWGAUGE_DELAY_TCP_DURATION + FLOWGAUGE_DELAY_QUIC_SPIN == 0) {
            if (hdr.tcp.isValid()) {
                if (FLOWGAUGE_DELAY_TCP_DATA == 1) {
                    segments.apply();
                } else if (FLOWGAUGE_DELAY_TCP_HANDSHAKE == 1) {
                    use_syn_sequence();
                }
            } else if (FLOWGAUGE_DELAY_DNS == 1 && hdr.dns.isValid()) {
                use_dns_id();
            } else if (FLOWGAUGE_DELAY_ICMP == 1 && hdr.echo.isValid()) {
                use_echo_token();
            }
            if (FLOWGAUGE_DELAY_TCP_DATA == 1 && hdr.tcp.isValid()
                && (hdr.tcp.flags & TCP_SYN) == 0) {
                set_segment_tokens();
            } else if (hdr.tcp.isValid()) {
                set_syn_tokens();
            } else {
                set_tokens();
            }
        }
        hash_asked_token();
        if (FLOWGAUGE_DELAY_QUIC_SPIN == 0) {
            hash_answered_token();
        }
        differences.apply();
        roles.apply();
        if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
            answers.apply();
        }
        if (FLOWGAUGE_DELAY_TCP_DURATION == 1) {
            if (forth[31:31] == 0) {
                take_in_order();
            } else {
                take_in_reverse();
            }
        }
        sign_asked();
        asked.apply(md.flowgauge.asked, md.flowgauge.bank, md.flowgauge.delay_kind);
        if (FLOWGAUGE_DELAY_QUIC_SPIN == 0) {
            sign_answered();
            answered.apply(md.flowgauge.answered, md.flowgauge.bank, md.flowgauge.delay_kind);
        }
#if FLOWGAUGE_DELAY_ALGORITHM == FLOWGAUGE_DELAY_EXPIRY
        if (md.flowgauge.asked.is_one == 1) {
            count_requests.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        }
        if (md.flowgauge.asked.is_one == 0) {
            ask_none();
        } else if (FLOWGAUGE_DELAY_TCP_DURATION == 1 || forth[31:31] == 0) {
            ask_first_table();
        } else {
            ask_second_table();
        }
        FLOWGAUGE_DELAY_EXCHANGE(
            md.flowgauge.asked.is_admitted == 1, waits =, ask_first,
            FLOWGAUGE_DELAY_AFTER_KIND(md.flowgauge.asked.hash[31:32 - FLOWGAUGE_DELAY_STAGE_BITS]),
            md.flowgauge.answered.is_admitted == 1, before =, answer_first,
            FLOWGAUGE_DELAY_AFTER_KIND(md.flowgauge.answered.hash[31:32 - FLOWGAUGE_DELAY_STAGE_BITS]))
        FLOWGAUGE_DELAY_EXCHANGE(
            FLOWGAUGE_DELAY_IS_REFUSED, waits =, ask_second,
            FLOWGAUGE_DELAY_AFTER_KIND(md.flowgauge.asked.hash[15:16 - FLOWGAUGE_DELAY_STAGE_BITS]),
            (md.flowgauge.answered.is_admitted == 1 && before == 0), before =, answer_second,
            FLOWGAUGE_DELAY_AFTER_KIND(md.flowgauge.answered.hash[15:16 - FLOWGAUGE_DELAY_STAGE_BITS]))
        if (FLOWGAUGE_DELAY_IS_REFUSED) {
            count_refused.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        } else if (md.flowgauge.asked.counts == 1) {
            count_admitted.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        }
        take_time();
        if (before != 0) {
            md.flowgauge.is_found = 1;
        }
#elif FLOWGAUGE_DELAY_QUIC_SPIN
        set_mine();
        set_opposite();
        if (md.flowgauge.asked.is_admitted == 1) {
            FLOWGAUGE_DELAY_TURN(
                true, had =, ask_signature, false, had =, ask_signature,
                FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
        }
#if FLOWGAUGE_DELAY_HAS_WEIGHTS
        FLOWGAUGE_DELAY_TURN(
            (had == 4), asked_number =, inserted, (had == 1), asked_number =, insert,
            FLOWGAUGE_DELAY_ROW(md.flowgauge.asked))
#endif
        FLOWGAUGE_DELAY_TURN(
            (had == 4), before =, answer_time, (had == 1), , ask_time,
            FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#if FLOWGAUGE_DELAY_HAS_WEIGHTS
        FLOWGAUGE_DELAY_TURN(
            (had == 4), insertions =, answer_stamp, (had == 1), , ask_stamp,
            FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked))
#endif
        if (FLOWGAUGE_DELAY_WEIGHS) {
            weights.apply();
        }
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
#if FLOWGAUGE_DELAY_REMEMBERS
        if (md.flowgauge.asked.is_one == 1) {
            insertion = ask_recent.execute(FLOWGAUGE_DELAY_CELL(md.flowgauge.asked));
        }
#endif
        if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 0) {
            if (md.flowgauge.asked.is_one == 1) {
                count_requests.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
            }
            if (md.flowgauge.asked.counts == 1) {
                count_admitted.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
            }
#if FLOWGAUGE_DELAY_HAS_WEIGHTS
            FLOWGAUGE_DELAY_EXCHANGE(
                md.flowgauge.asked.is_admitted == 1, asked_number =, insert,
                FLOWGAUGE_DELAY_ROW(md.flowgauge.asked),
                md.flowgauge.answered.is_admitted == 1, answered_number =, inserted,
                FLOWGAUGE_DELAY_ROW(md.flowgauge.answered))
#endif
        }
        FLOWGAUGE_DELAY_EXCHANGE(
            md.flowgauge.asked.is_admitted == 1, md.flowgauge.is_again =, ask_signature,
            FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked),
            md.flowgauge.answered.is_admitted == 1, md.flowgauge.is_found =, answer_signature,
            FLOWGAUGE_DELAY_SLOT(md.flowgauge.answered))
#if FLOWGAUGE_DELAY_REMEMBERS
        // An insertion that waits in its slot already, or a request that takes a slot without being
        // one.
        if (md.flowgauge.is_again == 0) {
            if (insertion == 0) {
                miscount();
            }
        } else if (insertion == 1) {
            miscount();
        }
#endif
        if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
            // Only timestamps that were put in a table are known.
            if (FLOWGAUGE_DELAY_IS_NEW && md.flowgauge.asked.counts == 1) {
                count_requests.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
                count_admitted.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
            }
#if FLOWGAUGE_DELAY_HAS_WEIGHTS
            FLOWGAUGE_DELAY_EXCHANGE(
                FLOWGAUGE_DELAY_IS_NEW, asked_number =, insert,
                FLOWGAUGE_DELAY_ROW(md.flowgauge.asked),
                md.flowgauge.is_found == 1, answered_number =, inserted,
                FLOWGAUGE_DELAY_ROW(md.flowgauge.answered))
#endif
            FLOWGAUGE_DELAY_EXCHANGE(
                FLOWGAUGE_DELAY_IS_NEW, , ask_time, FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked),
                md.flowgauge.is_found == 1, before =, answer_time,
                FLOWGAUGE_DELAY_SLOT(md.flowgauge.answered))
        } else {
            FLOWGAUGE_DELAY_EXCHANGE(
                FLOWGAUGE_DELAY_IS_NEW, , ask_time, FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked),
                md.flowgauge.is_found == 1, md.flowgauge.delayed.ticks =, answer_time,
                FLOWGAUGE_DELAY_SLOT(md.flowgauge.answered))
        }
#if FLOWGAUGE_DELAY_HAS_WEIGHTS
        FLOWGAUGE_DELAY_EXCHANGE(
            FLOWGAUGE_DELAY_IS_NEW, , ask_stamp, FLOWGAUGE_DELAY_SLOT(md.flowgauge.asked),
            md.flowgauge.is_found == 1, insertions =, answer_stamp,
            FLOWGAUGE_DELAY_SLOT(md.flowgauge.answered))
#endif
        if (FLOWGAUGE_DELAY_WEIGHS) {
            weights.apply();
        }
#if FLOWGAUGE_DELAY_REMEMBERS
        if (md.flowgauge.asked.counts == 1) {
            count_inserted.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(md.flowgauge.asked));
        }
#endif
        if (FLOWGAUGE_DELAY_TCP_TIMESTAMPS == 1) {
            // A timestamp that was answered has no time left.
            take_time();
            if (before == 0) {
                md.flowgauge.is_found = 0;
            }
        }
#endif
        buckets.apply();
        // Some answers only remove their requests.
        if (md.flowgauge.is_found == 1 && FLOWGAUGE_DELAY_FOUND.counts == 1) {
            if (md.flowgauge.delayed.ticks[FLOWGAUGE_DELAY_SIGN:FLOWGAUGE_DELAY_SIGN] == 0) {
                count_delay.execute(FLOWGAUGE_DELAY_BUCKET);
#if FLOWGAUGE_DELAY_HAS_WEIGHTS
                add_to_weights_sum.execute(FLOWGAUGE_DELAY_BUCKET);
                add_to_squares_sum.execute(FLOWGAUGE_DELAY_BUCKET);
#endif
                if (FLOWGAUGE_DELAY_SAMPLES == 1) {
                    send();
                }
            } else {
                count_backward.execute(FLOWGAUGE_DELAY_COUNTS_INDEX(FLOWGAUGE_DELAY_FOUND));
            }
        }
    }
}
