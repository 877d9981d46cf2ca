// How traffic is spread over flows: P4Entropy (paper, section IV).
//
// The packet that makes a flow's count f adds log2 f + 1.44 to the window's sum; the count comes from a sketch.
#ifndef FLOWGAUGE_ENTROPY_P4
#define FLOWGAUGE_ENTROPY_P4

#include "sketch.p4"

#define FLOWGAUGE_ENTROPY_HASHES FLOWGAUGE_OF_KEY(FLOWGAUGE_ENTROPY_KEY)

#if FLOWGAUGE_ENTROPY_SKETCH == FLOWGAUGE_COUNT_SKETCH
#define FLOWGAUGE_ENTROPY_ROW FLOWGAUGE_COUNT_SKETCH_ROW
#define FLOWGAUGE_ENTROPY_COUNT FLOWGAUGE_COUNT_IN_COUNT_SKETCH
#else
#define FLOWGAUGE_ENTROPY_ROW FLOWGAUGE_COUNT_MIN_ROW
#define FLOWGAUGE_ENTROPY_COUNT FLOWGAUGE_COUNT_IN_COUNT_MIN
#endif

control FlowgaugeEntropy(inout FLOWGAUGE_METADATA md) {
    bit<32> count0;
    bit<32> count1;
    bit<32> count2;
    bit<32> count;
    bit<32> term;
    bit<32> complement;

    FLOWGAUGE_ENTROPY_ROW(0, FLOWGAUGE_ENTROPY_COLUMN_BITS)
    FLOWGAUGE_ENTROPY_ROW(1, FLOWGAUGE_ENTROPY_COLUMN_BITS)
    FLOWGAUGE_ENTROPY_ROW(2, FLOWGAUGE_ENTROPY_COLUMN_BITS)

#if FLOWGAUGE_ENTROPY_SKETCH == FLOWGAUGE_COUNT_SKETCH
    bit<32> difference01;
    bit<32> difference02;
    bit<32> difference12;

    action subtract() {
        difference01 = count0 - count1;
        difference02 = count0 - count2;
        difference12 = count1 - count2;
    }

    // A table, so that the differences are computed before their bits are looked at.
    table differences {
        actions = { subtract; }
        const default_action = subtract();
        size = 1;
    }

    action take0() {
        count = count0;
    }

    action take1() {
        count = count1;
    }

    action take2() {
        count = count2;
    }

    action take_none() {
        count = 0;
    }

    // Differences of counts that are not negative cannot overflow. With one negative count the median is the smaller of the
    // other two; with more it is negative itself, and adds nothing.
    table median {
        key = {
            count0[31:31] : ternary @name("negative0");
            count1[31:31] : ternary @name("negative1");
            count2[31:31] : ternary @name("negative2");
            difference01[31:31] : ternary @name("below01");
            difference02[31:31] : ternary @name("below02");
            difference12[31:31] : ternary @name("below12");
        }
        actions = {
            take0;
            take1;
            take2;
            take_none;
        }
        const entries = {
            (0, 0, 0, 0, 1, _): take0();
            (0, 0, 0, 1, 0, _): take0();
            (0, 0, 0, 0, 0, 0): take1();
            (0, 0, 0, 1, 1, 1): take1();
            (0, 0, 0, _, _, _): take2();
            (1, 0, 0, _, _, 1): take1();
            (1, 0, 0, _, _, 0): take2();
            (0, 1, 0, _, 1, _): take0();
            (0, 1, 0, _, 0, _): take2();
            (0, 0, 1, 1, _, _): take0();
            (0, 0, 1, 0, _, _): take1();
        }
        const default_action = take_none();
        size = 16;
    }
#endif

    action set_term(bit<32> value, bit<32> inverted) {
        term = value;
        complement = inverted;
    }

    // A switch has no logarithms and no way to find a leading one, so the controller installs P4Log by prefix. A flow's first packet
    // adds nothing.
    table logarithm {
        key = { count : lpm @name("count"); }
        actions = { set_term; }
        default_action = set_term(0, 0xffffffff);
        size = 512;
    }

    // 64 bits in two halves, in one access: the lower one overflows if it is above the complement of what is added. The upper one stays at
    // its end.
    Register<flowgauge_sum_t, bit<1>>(2, {0, 0}) sum;
    RegisterAction<flowgauge_sum_t, bit<1>, bit<32>>(sum) add = {
        void apply(inout flowgauge_sum_t total) {
            if (total.low > complement) {
                total.high = total.high |+| 1;
            }
            total.low = total.low + term;
        }
    };

    apply {
        FLOWGAUGE_ENTROPY_COUNT(0, FLOWGAUGE_ENTROPY_COLUMN_BITS, FLOWGAUGE_ENTROPY_HASHES, count0)
        FLOWGAUGE_ENTROPY_COUNT(1, FLOWGAUGE_ENTROPY_COLUMN_BITS, FLOWGAUGE_ENTROPY_HASHES, count1)
        FLOWGAUGE_ENTROPY_COUNT(2, FLOWGAUGE_ENTROPY_COLUMN_BITS, FLOWGAUGE_ENTROPY_HASHES, count2)
#if FLOWGAUGE_ENTROPY_SKETCH == FLOWGAUGE_COUNT_SKETCH
        differences.apply();
        median.apply();
#else
        count = min(count0, count1);
        count = min(count, count2);
#endif
        logarithm.apply();
        if (md.flowgauge.sound == 1) {
            add.execute(md.flowgauge.bank);
        }
    }
}

#endif
