// Rows of counters: Count Sketch (Charikar et al. 2002) and Count-Min (Cormode and Muthukrishnan 2005).
//
// Every row has two banks. Of its 16 hash bits the upper ones choose a column, and the lowest is the sign: one means minus.
#ifndef FLOWGAUGE_SKETCH_P4
#define FLOWGAUGE_SKETCH_P4

#include "headers.p4"

// The upper bits of a row's hash, and its lowest.
#define FLOWGAUGE_COLUMN_0(hashes, bits) hashes.rows01[15:16 - bits]
#define FLOWGAUGE_COLUMN_1(hashes, bits) hashes.rows01[31:32 - bits]
#define FLOWGAUGE_COLUMN_2(hashes, bits) hashes.rows23[15:16 - bits]
#define FLOWGAUGE_MINUS_0(hashes) hashes.rows01[0:0]
#define FLOWGAUGE_MINUS_1(hashes) hashes.rows01[16:16]
#define FLOWGAUGE_MINUS_2(hashes) hashes.rows23[0:0]

// A counter that comes within 2^26 of the end of its 32 bits stays there, as it does on other backends: its reader knows then that more
// packets may have come. Those of a Count Sketch are signed, with an end on each side.
//
// Compared as signed numbers: constants of a comparison have 32 bits with a sign, so that no unsigned number above 2^31 can be compared with.
#define FLOWGAUGE_COUNT_SKETCH_HAS_ROOM(counter) (int<32>) counter < 0x7c000000 && (int<32>) counter > -0x7c000000
#define FLOWGAUGE_COUNT_MIN_HAS_ROOM(counter) (int<32>) counter >= 0 || (int<32>) counter < -0x04000000

// A row of a Count Sketch: a counter, its bank above its column, goes up or down. What it says of the flow is the
// counter with the sign of the flow.
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

// A row of Count-Min: a counter goes up.
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
