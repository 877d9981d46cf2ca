// Round-trip delays: counts of requests, and counts and sums of a bucket of delays.

struct flowgauge_delays_t {
    bit<32> samples;
    bit<32> beyond;
}

// 64-bit count of each kind, group and direction, in both banks.
#define FLOWGAUGE_DELAY_COUNT(name) \
    Register<flowgauge_sum_t, flowgauge_delay_count_t>( \
        1 << FLOWGAUGE_DELAY_COUNT_BITS, {0, 0}) name; \
    RegisterAction<flowgauge_sum_t, flowgauge_delay_count_t, bit<32>>(name) count_##name = { \
        void apply(inout flowgauge_sum_t total) { \
            if ((int<32>) total.low == -1) { \
                total.high = total.high |+| 1; \
            } \
            total.low = total.low + 1; \
        } \
    };

// Requests of each kind, group and direction that count as insertions into a table, and requests
// that were miscounted. One array, because stateful ALUs are short.
struct flowgauge_inserted_t {
    bit<32> insertions;
    bit<32> miscounted;
}
#define FLOWGAUGE_DELAY_INSERTED \
    Register<flowgauge_inserted_t, flowgauge_delay_count_t>( \
        1 << FLOWGAUGE_DELAY_COUNT_BITS, {0, 0}) inserted; \
    RegisterAction<flowgauge_inserted_t, flowgauge_delay_count_t, bit<32>>(inserted) \
    count_inserted = { \
        void apply(inout flowgauge_inserted_t count) { \
            count.insertions = count.insertions |+| insertion; \
            count.miscounted = count.miscounted |+| miscounted; \
        } \
    };

// 64-bit sum of each bucket. The lower half overflows if it is above the complement of the term.
#define FLOWGAUGE_DELAY_SUM(name, term, complement) \
    Register<flowgauge_sum_t, flowgauge_delay_bucket_t>( \
        1 << FLOWGAUGE_DELAY_BUCKET_BITS, {0, 0}) name; \
    RegisterAction<flowgauge_sum_t, flowgauge_delay_bucket_t, bit<32>>(name) add_to_##name = { \
        void apply(inout flowgauge_sum_t total) { \
            if (total.low > complement) { \
                total.high = total.high |+| 1; \
            } \
            total.low = total.low + term; \
        } \
    };

// Digest of a delay that was counted, and its content.
const bit<3> FLOWGAUGE_DELAY_DIGEST = 1;
#if FLOWGAUGE_DELAY_GROUP_BITS
#define FLOWGAUGE_DELAY_SAMPLE { md.flowgauge.delayed.at, md.flowgauge.delayed.src, \
    md.flowgauge.delayed.dst, md.flowgauge.delayed.ticks, md.flowgauge.delayed.weight, \
    md.flowgauge.delayed.beyond, md.flowgauge.delay_kind, FLOWGAUGE_DELAY_FOUND.fridge, \
    FLOWGAUGE_DELAY_FOUND.group, FLOWGAUGE_DELAY_FOUND.leaves, md.flowgauge.bank }
#else
#define FLOWGAUGE_DELAY_SAMPLE { md.flowgauge.delayed.at, md.flowgauge.delayed.src, \
    md.flowgauge.delayed.dst, md.flowgauge.delayed.ticks, md.flowgauge.delayed.weight, \
    md.flowgauge.delayed.beyond, md.flowgauge.delay_kind, FLOWGAUGE_DELAY_FOUND.fridge, \
    FLOWGAUGE_DELAY_FOUND.leaves, md.flowgauge.bank }
#endif
