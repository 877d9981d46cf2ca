// Rows of counters: Count Sketch (Charikar et al. 2002) and Count-Min (Cormode and Muthukrishnan
// 2005).
//
// Every row has two banks. The upper bits of its 16 hash bits select a column, and the lowest is
// the sign: one means minus.
#ifndef FLOWGAUGE_SKETCH_P4
#define FLOWGAUGE_SKETCH_P4

#include "headers.p4"

// Upper bits of a row's hash, and its lowest bit.
#define FLOWGAUGE_COLUMN_0(hashes, bits) hashes.rows01[15:16 - bits]
#define FLOWGAUGE_COLUMN_1(hashes, bits) hashes.rows01[31:32 - bits]
#define FLOWGAUGE_COLUMN_2(hashes, bits) hashes.rows23[15:16 - bits]
#define FLOWGAUGE_MINUS_0(hashes) hashes.rows01[0:0]
#define FLOWGAUGE_MINUS_1(hashes) hashes.rows01[16:16]
#define FLOWGAUGE_MINUS_2(hashes) hashes.rows23[0:0]

// A counter stops within 2^26 of the end of its 32 bits, as on other backends: the reader then
// knows that more packets may have arrived. Counters of a Count Sketch are signed, with an end on
// each side.
//
// Comparisons are signed: constants of a comparison have 32 bits with a sign, so that an unsigned
// number above 2^31 cannot be compared with.
#define FLOWGAUGE_COUNT_SKETCH_HAS_ROOM(counter) (int<32>) counter < 0x7c000000 && (int<32>) counter > -0x7c000000
#define FLOWGAUGE_COUNT_MIN_HAS_ROOM(counter) (int<32>) counter >= 0 || (int<32>) counter < -0x04000000

// Row of a Count Sketch: a counter, addressed by bank and column, is incremented or decremented.
// The estimate for the flow is the counter with the flow's sign.
#define FLOWGAUGE_COUNT_SKETCH_ROW(row, bits) \
    Register<bit<32>, bit<(bits + 1)>>(2 << bits, 0) count_sketch##row; \
    RegisterAction<bit<32>, bit<(bits + 1)>, bit<32>>(count_sketch##row) add##row = { \
        void apply(inout bit<32> counter, out bit<32> said) { \
            said = counter + 1; \
            if (FLOWGAUGE_COUNT_SKETCH_HAS_ROOM(counter)) { \
                counter = counter + 1; \
            } \
        } \
    }; \
    RegisterAction<bit<32>, bit<(bits + 1)>, bit<32>>(count_sketch##row) subtract##row = { \
        void apply(inout bit<32> counter, out bit<32> said) { \
            said = 1 - counter; \
            if (FLOWGAUGE_COUNT_SKETCH_HAS_ROOM(counter)) { \
                counter = counter - 1; \
            } \
        } \
    };

#define FLOWGAUGE_COUNT_IN_COUNT_SKETCH(row, bits, hashes, count) \
    if (md.flowgauge.sound == 1) { \
        if (FLOWGAUGE_MINUS_##row(hashes) == 0) { \
            count = add##row.execute(md.flowgauge.bank ++ FLOWGAUGE_COLUMN_##row(hashes, bits)); \
        } else { \
            count = subtract##row.execute(md.flowgauge.bank ++ FLOWGAUGE_COLUMN_##row(hashes, bits)); \
        } \
    }

// Row of Count-Min: a counter is incremented.
#define FLOWGAUGE_COUNT_MIN_ROW(row, bits) \
    Register<bit<32>, bit<(bits + 1)>>(2 << bits, 0) count_min##row; \
    RegisterAction<bit<32>, bit<(bits + 1)>, bit<32>>(count_min##row) add##row = { \
        void apply(inout bit<32> counter, out bit<32> said) { \
            said = counter + 1; \
            if (FLOWGAUGE_COUNT_MIN_HAS_ROOM(counter)) { \
                counter = counter + 1; \
            } \
        } \
    };

#define FLOWGAUGE_COUNT_IN_COUNT_MIN(row, bits, hashes, count) \
    if (md.flowgauge.sound == 1) { \
        count = add##row.execute(md.flowgauge.bank ++ FLOWGAUGE_COLUMN_##row(hashes, bits)); \
    }

#endif
