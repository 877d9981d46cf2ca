// Distribution of traffic over flows: P4Entropy (paper, section IV).
//
// The packet that makes a flow's count f adds log2 f + 1.44 to the window's sum. The count comes
// from a sketch.

// One entropy per key.
control FlowgaugeEntropy(in FLOWGAUGE_METADATA md, in flowgauge_hashes_t hashes,
                         out bit<32> count) {
    bit<32> count0;
    bit<32> count1;
    bit<32> count2;
    bit<32> term;
    bit<32> complement;

    FLOWGAUGE_JOIN(FLOWGAUGE_SKETCH_ROW_, FLOWGAUGE_ENTROPY_SKETCH)(
        0, FLOWGAUGE_ENTROPY_COLUMN_BITS)
    FLOWGAUGE_JOIN(FLOWGAUGE_SKETCH_ROW_, FLOWGAUGE_ENTROPY_SKETCH)(
        1, FLOWGAUGE_ENTROPY_COLUMN_BITS)
    FLOWGAUGE_JOIN(FLOWGAUGE_SKETCH_ROW_, FLOWGAUGE_ENTROPY_SKETCH)(
        2, FLOWGAUGE_ENTROPY_COLUMN_BITS)

    // Of a Count Sketch.
    bit<32> difference01;
    bit<32> difference02;
    bit<32> difference12;

    action subtract() {
        difference01 = count0 - count1;
        difference02 = count0 - count2;
        difference12 = count1 - count2;
    }

    // A table, so that the differences are computed before their bits are tested.
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

    // Differences of non-negative counts cannot overflow. With one negative count the median is the
    // smaller of the other two; with more it is negative and adds nothing.
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

    action set_term(bit<32> value, bit<32> inverted) {
        term = value;
        complement = inverted;
    }

    // A switch has no logarithm and cannot find a leading one, so the controller installs P4Log by
    // prefix. The first packet of a flow adds nothing.
    table logarithm {
        key = { count : lpm @name("count"); }
        actions = { set_term; }
        default_action = set_term(0, 0xffffffff);
        size = 512;
    }

    // 64 bits in two halves, updated in one access: the lower half overflows if it is above the
    // complement of the addend. The upper half saturates.
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
        FLOWGAUGE_JOIN(FLOWGAUGE_SKETCH_COUNT_, FLOWGAUGE_ENTROPY_SKETCH)(
            0, FLOWGAUGE_ENTROPY_COLUMN_BITS, hashes.rows01, 15, count0)
        FLOWGAUGE_JOIN(FLOWGAUGE_SKETCH_COUNT_, FLOWGAUGE_ENTROPY_SKETCH)(
            1, FLOWGAUGE_ENTROPY_COLUMN_BITS, hashes.rows01, 31, count1)
        FLOWGAUGE_JOIN(FLOWGAUGE_SKETCH_COUNT_, FLOWGAUGE_ENTROPY_SKETCH)(
            2, FLOWGAUGE_ENTROPY_COLUMN_BITS, hashes.rows23, 15, count2)
        if (FLOWGAUGE_ENTROPY_SKETCH == FLOWGAUGE_COUNT_SKETCH) {
            differences.apply();
            median.apply();
        } else {
            count = min(count0, count1);
            count = min(count, count2);
        }
        logarithm.apply();
        if (md.flowgauge.sound == 1) {
            add.execute(md.flowgauge.bank);
        }
    }
}

const bit<3> FLOWGAUGE_ENTROPY_DIGEST = 2;
// The entropy is compared with the thresholds from 2^10 packets of a window on. A controller sets
// the thresholds accordingly.
const int FLOWGAUGE_ENTROPY_TOLD_BITS = 10;

struct flowgauge_in_integers_t {
    bit<32> entropy;
    bit<32> reported;
}

// The window's entropy is log2 S - sum / S, where S is its number of packets. It is computed after
// every packet, so that it is available when the window is closed and an attack is detected
// earlier. The quotient is 2 to the power of the difference of two logarithms (paper, equation 2).
//
// A stateful ALU returns one word to the packet. So the sum is stored a second time, with its
// integer part separate from the ten fractional bits.
control FlowgaugeInIntegers(in FLOWGAUGE_METADATA md, in bit<32> count,
                            inout flowgauge_entropy_t made,
                            inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    bit<32> of_packets;
    bit<32> fraction_term;
    bit<32> fraction_complement;
    bit<32> whole_term;
    bit<32> whole_term_and_one;
    bit<32> carry;
    bit<32> whole_sum;
    bit<32> excess;
    bit<32> exponent;

    Register<bit<32>, bit<1>>(2, 0) packets;
    RegisterAction<bit<32>, bit<1>, bit<32>>(packets) next_packet = {
        void apply(inout bit<32> number, out bit<32> said) {
            number = number |+| 1;
            said = number;
        }
    };

    action set_of_packets(bit<32> value) {
        of_packets = value;
    }

    table packets_logarithm {
        key = { made.packets : lpm @name("packets"); }
        actions = { set_of_packets; }
        default_action = set_of_packets(0);
        size = 4096;
    }

    action set_parts(bit<32> fraction, bit<32> inverted, bit<32> whole, bit<32> whole_and_one) {
        fraction_term = fraction;
        fraction_complement = inverted;
        whole_term = whole;
        whole_term_and_one = whole_and_one;
    }

    // Increment of a packet, as in `logarithm`.
    table parts {
        key = { count : lpm @name("count"); }
        actions = { set_parts; }
        default_action = set_parts(0, 0xffffffff, 0, 1);
        size = 512;
    }

    Register<bit<32>, bit<1>>(2, 0) fraction;
    RegisterAction<bit<32>, bit<1>, bit<32>>(fraction) add_fraction = {
        void apply(inout bit<32> sum, out bit<32> overflows) {
            if (sum > fraction_complement) {
                overflows = 1;
            } else {
                overflows = 0;
            }
            sum = sum + fraction_term;
        }
    };

    Register<bit<32>, bit<1>>(2, 0) whole;
    RegisterAction<bit<32>, bit<1>, bit<32>>(whole) add_whole = {
        void apply(inout bit<32> sum, out bit<32> said) {
            sum = sum |+| whole_term;
            said = sum;
        }
    };
    RegisterAction<bit<32>, bit<1>, bit<32>>(whole) add_whole_and_carry = {
        void apply(inout bit<32> sum, out bit<32> said) {
            sum = sum |+| whole_term_and_one;
            said = sum;
        }
    };

    action set_exponent(bit<32> value) {
        exponent = value - of_packets;
    }

    // A sum without a logarithm in the table: no valid difference has this value.
    action set_beyond_exponent() {
        exponent = 0x2000;
    }

    table sum_logarithm {
        key = { whole_sum : lpm @name("sum"); }
        actions = {
            set_exponent;
            set_beyond_exponent;
        }
        const default_action = set_beyond_exponent();
        size = 4096;
    }

    action compare() {
        excess = whole_sum - made.packets;
    }

    table comparison {
        actions = { compare; }
        const default_action = compare();
        size = 1;
    }

    action add_power(bit<32> negative) {
        made.entropy = of_packets + negative;
    }

    action add_nothing() {
        made.entropy = of_packets;
    }

    // Matches the difference of the logarithms, and whether there are more packets than the sum
    // says: then nothing is subtracted.
    table power {
        key = {
            excess[31:31] : exact @name("is_less");
            exponent[16:0] : exact @name("exponent");
        }
        actions = {
            add_power;
            add_nothing;
        }
        const default_action = add_nothing();
        size = 8192;
    }

    // The constants are slightly inexact. An entropy is never negative.
    Register<flowgauge_in_integers_t, bit<1>>(2, {0, 0}) result;
    RegisterAction<flowgauge_in_integers_t, bit<1>, bit<3>>(result) keep = {
        void apply(inout flowgauge_in_integers_t it) {
            if ((int<32>) made.entropy < 0) {
                it.entropy = 0;
            } else {
                it.entropy = made.entropy;
            }
        }
    };
#if FLOWGAUGE_ENTROPY_ALARM
    // A stateful ALU has two comparisons, and one is needed for whether the window has already
    // raised an alarm. So packets alternate between checking for a low and for a high entropy.
    RegisterParam<bit<32>>(0) lowest;
    RegisterParam<bit<32>>(0x7fffffff) highest;
    RegisterAction<flowgauge_in_integers_t, bit<1>, bit<3>>(result) keep_and_look_below = {
        void apply(inout flowgauge_in_integers_t it, out bit<3> digest) {
            if ((int<32>) made.entropy < (int<32>) lowest.read() && it.reported == 0) {
                digest = FLOWGAUGE_ENTROPY_DIGEST;
                it.reported = 1;
            } else {
                digest = 0;
            }
            it.entropy = made.entropy;
        }
    };
    RegisterAction<flowgauge_in_integers_t, bit<1>, bit<3>>(result) keep_zero_and_look_below = {
        void apply(inout flowgauge_in_integers_t it, out bit<3> digest) {
            if ((int<32>) lowest.read() > 0 && it.reported == 0) {
                digest = FLOWGAUGE_ENTROPY_DIGEST;
                it.reported = 1;
            } else {
                digest = 0;
            }
            it.entropy = 0;
        }
    };
    RegisterAction<flowgauge_in_integers_t, bit<1>, bit<3>>(result) keep_and_look_above = {
        void apply(inout flowgauge_in_integers_t it, out bit<3> digest) {
            if ((int<32>) made.entropy > (int<32>) highest.read() && it.reported == 0) {
                digest = FLOWGAUGE_ENTROPY_DIGEST;
                it.reported = 1;
            } else {
                digest = 0;
            }
            it.entropy = made.entropy;
        }
    };
#endif

    apply {
        if (md.flowgauge.sound == 1) {
            made.packets = next_packet.execute(md.flowgauge.bank);
        }
        packets_logarithm.apply();
        parts.apply();
        if (md.flowgauge.sound == 1) {
            carry = add_fraction.execute(md.flowgauge.bank);
        }
        if (md.flowgauge.sound == 1) {
            if (carry == 0) {
                whole_sum = add_whole.execute(md.flowgauge.bank);
            } else {
                whole_sum = add_whole_and_carry.execute(md.flowgauge.bank);
            }
        }
        sum_logarithm.apply();
        comparison.apply();
        power.apply();
        if (md.flowgauge.sound == 1) {
#if FLOWGAUGE_ENTROPY_ALARM
            made.bank = md.flowgauge.bank;
            // A negative entropy is never too high.
            if (made.packets[31:FLOWGAUGE_ENTROPY_TOLD_BITS] != 0 && made.packets[0:0] == 0) {
                if (made.entropy[31:31] == 0) {
                    ig_dprsr_md.digest_type = keep_and_look_below.execute(md.flowgauge.bank);
                } else {
                    ig_dprsr_md.digest_type = keep_zero_and_look_below.execute(md.flowgauge.bank);
                }
            } else if (made.packets[31:FLOWGAUGE_ENTROPY_TOLD_BITS] != 0
                       && made.entropy[31:31] == 0) {
                ig_dprsr_md.digest_type = keep_and_look_above.execute(md.flowgauge.bank);
            } else {
                keep.execute(md.flowgauge.bank);
            }
#else
            keep.execute(md.flowgauge.bank);
#endif
        }
    }
}
