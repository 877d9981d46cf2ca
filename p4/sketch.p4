// Rows of counters: Count Sketch (Charikar et al. 2002) and Count-Min (Cormode and Muthukrishnan
// 2005).
//
// Every row has two banks. The upper bits of its 16 hash bits select a column, and the lowest is
// the sign: one means minus.
//
// Rows are macros: a control with the row's size as a parameter would need a parameter as the width
// of the index and as a bound of the column's slice. The compiler accepts neither ("expected a
// constant", "slice bit index values must be constants"). The hash of a row is the 16 bits of a
// word from bit `high` on downwards. Indices begin with the bank.

// A counter stops within 2^26 of the end of its 32 bits, as on other backends: the reader then
// knows that more packets may have arrived. Counters of a Count Sketch are signed, with an end on
// each side.
//
// Comparisons are signed: constants of a comparison have 32 bits with a sign, so that an unsigned
// number above 2^31 cannot be compared with.
const int<32> FLOWGAUGE_COUNTER_END = 0x7c000000;
const int<32> FLOWGAUGE_NEGATIVE_COUNTER_END = -0x7c000000;
const int<32> FLOWGAUGE_UNSIGNED_COUNTER_END = -0x04000000;

// Row of a Count Sketch: a counter, addressed by bank and column, is incremented or decremented.
// The estimate for the flow is the counter with the flow's sign. The number at the end of a macro's
// name is that of the sketch, FLOWGAUGE_COUNT_SKETCH or FLOWGAUGE_COUNT_MIN.
#define FLOWGAUGE_SKETCH_ROW_1(row, bits) \
    Register<bit<32>, bit<(bits + 1)>>(2 << bits, 0) count_sketch##row; \
    RegisterAction<bit<32>, bit<(bits + 1)>, bit<32>>(count_sketch##row) add##row = { \
        void apply(inout bit<32> counter, out bit<32> said) { \
            said = counter + 1; \
            if ((int<32>) counter < FLOWGAUGE_COUNTER_END \
                && (int<32>) counter > FLOWGAUGE_NEGATIVE_COUNTER_END) { \
                counter = counter + 1; \
            } \
        } \
    }; \
    RegisterAction<bit<32>, bit<(bits + 1)>, bit<32>>(count_sketch##row) subtract##row = { \
        void apply(inout bit<32> counter, out bit<32> said) { \
            said = 1 - counter; \
            if ((int<32>) counter < FLOWGAUGE_COUNTER_END \
                && (int<32>) counter > FLOWGAUGE_NEGATIVE_COUNTER_END) { \
                counter = counter - 1; \
            } \
        } \
    };
#define FLOWGAUGE_SKETCH_COUNT_1(row, bits, word, high, count) \
    if (md.flowgauge.sound == 1) { \
        if (word[high - 15:high - 15] == 0) { \
            count = add##row.execute(md.flowgauge.bank ++ word[high:high + 1 - bits]); \
        } else { \
            count = subtract##row.execute(md.flowgauge.bank ++ word[high:high + 1 - bits]); \
        } \
    }

// Row of Count-Min: a counter is incremented.
#define FLOWGAUGE_SKETCH_ROW_2(row, bits) \
    Register<bit<32>, bit<(bits + 1)>>(2 << bits, 0) count_min##row; \
    RegisterAction<bit<32>, bit<(bits + 1)>, bit<32>>(count_min##row) add##row = { \
        void apply(inout bit<32> counter, out bit<32> said) { \
            said = counter + 1; \
            if ((int<32>) counter >= 0 || (int<32>) counter < FLOWGAUGE_UNSIGNED_COUNTER_END) { \
                counter = counter + 1; \
            } \
        } \
    };
#define FLOWGAUGE_SKETCH_COUNT_2(row, bits, word, high, count) \
    if (md.flowgauge.sound == 1) { \
        count = add##row.execute(md.flowgauge.bank ++ word[high:high + 1 - bits]); \
    }
