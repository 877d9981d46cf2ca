// Round-trip delays: what registers of the control count, and the content of a sample.

// Request that waits and may expire.
struct flowgauge_waiting_t {
    int<32> signature;
    int<32> time;
}

struct flowgauge_delays_t {
    bit<32> samples;
    bit<32> beyond;
}

// Requests of each kind, group and direction that count as insertions into a table, and requests
// that were miscounted.
struct flowgauge_inserted_t {
    bit<32> insertions;
    bit<32> miscounted;
}

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
