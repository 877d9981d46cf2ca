// Heavy hitters: PRECISION (Ben-Basat et al., ICNP 2018), two stages, by packets.
//
// A flow is identified by its signature, the CRC of its key. A flow with a slot is counted there. A
// packet of another flow may replace the smaller of the two counts in its slots, with a probability
// of about one in the count plus one. It is then resubmitted with stage and count, because it has
// already passed the slot of stage 0 when the smaller count is known.

#define FLOWGAUGE_SIGNATURE FLOWGAUGE_HASHES(FLOWGAUGE_HEAVY_KEY).crc

const int FLOWGAUGE_STAGE_BITS = FLOWGAUGE_HEAVY_SLOT_BITS - 1;
// Bank and slot of a stage, and bank and slot of both stages.
typedef bit<(FLOWGAUGE_STAGE_BITS + 1)> flowgauge_stage_index_t;
typedef bit<(FLOWGAUGE_HEAVY_SLOT_BITS + 1)> flowgauge_heavy_index_t;

struct flowgauge_flow_t {
    bit<32> signature;
    bit<32> count;
}

// Part of the count that belongs to other flows, and the IP version of the key: 4 or 6, 0 for none.
struct flowgauge_origin_t {
    bit<32> inherited;
    bit<32> version;
}

struct flowgauge_service_t {
    bit<32> ports;
    bit<32> protocol;
}

// Stages and arrays are written out: a control of their own would put the name of its instance into
// the names of its registers.
control FlowgaugeHeavy(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                       inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    bit<32> crc0;
    bit<32> crc1;
    bit<32> packet;
    bit<32> coin;
    bit<32> count0;
    // Also zero for a flow found in stage 0.
    bit<32> count1 = 0;
    bit<32> difference;
    bit<32> smallest;
    bit<32> replaced;
    bit<32> version;
    bit<1> stage;
    // Words of the addresses, the lowest first.
    bit<32> src0;
    bit<32> src1;
    bit<32> src2;
    bit<32> src3;
    bit<32> dst0;
    bit<32> dst1;
    bit<32> dst2;
    bit<32> dst3;
    bit<32> protocol;

    CRCPolynomial<bit<32>>(
        32w0x04c11db7, true, false, false, 32w0xffffffff, 32w0xffffffff) polynomial0;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial0) slot0;
    CRCPolynomial<bit<32>>(
        32w0x6b8cb0c5, true, false, false, 32w0xffffffff, 32w0xffffffff) polynomial1;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial1) slot1;
    CRCPolynomial<bit<32>>(
        32w0x790900f3, true, false, false, 32w0xffffffff, 32w0xffffffff) coin_polynomial;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, coin_polynomial) toss;

    Register<bit<32>, bit<1>>(2, 0) packets;
    RegisterAction<bit<32>, bit<1>, bit<32>>(packets) next_packet = {
        void apply(inout bit<32> packets_so_far, out bit<32> number) {
            packets_so_far = packets_so_far + 1;
            number = packets_so_far;
        }
    };

    // Counts are stored plus one, since zero stands for a flow that was found. They saturate at 32
    // bits: later packets are not in the flow's own count, and bounds allow for it.
    Register<flowgauge_flow_t, flowgauge_stage_index_t>(
        2 << FLOWGAUGE_STAGE_BITS, {0, 1}) flows0;
    RegisterAction<flowgauge_flow_t, flowgauge_stage_index_t, bit<32>>(flows0) find0 = {
        void apply(inout flowgauge_flow_t flow, out bit<32> other) {
            if (flow.signature == FLOWGAUGE_SIGNATURE && flow.count != 1) {
                flow.count = flow.count |+| 1;
                other = 0;
            } else {
                other = flow.count;
            }
        }
    };
    RegisterAction<flowgauge_flow_t, flowgauge_stage_index_t, bit<32>>(flows0) replace0 = {
        void apply(inout flowgauge_flow_t flow) {
            flow.signature = FLOWGAUGE_SIGNATURE;
            flow.count = md.flowgauge.admitted.count;
        }
    };

    Register<flowgauge_flow_t, flowgauge_stage_index_t>(
        2 << FLOWGAUGE_STAGE_BITS, {0, 1}) flows1;
    RegisterAction<flowgauge_flow_t, flowgauge_stage_index_t, bit<32>>(flows1) find1 = {
        void apply(inout flowgauge_flow_t flow, out bit<32> other) {
            if (flow.signature == FLOWGAUGE_SIGNATURE && flow.count != 1) {
                flow.count = flow.count |+| 1;
                other = 0;
            } else {
                other = flow.count;
            }
        }
    };
    RegisterAction<flowgauge_flow_t, flowgauge_stage_index_t, bit<32>>(flows1) replace1 = {
        void apply(inout flowgauge_flow_t flow) {
            flow.signature = FLOWGAUGE_SIGNATURE;
            flow.count = md.flowgauge.admitted.count;
        }
    };

    // Data that the second pass stores for its packet, for the slots of both stages.
    Register<flowgauge_origin_t, flowgauge_heavy_index_t>(
        2 << FLOWGAUGE_HEAVY_SLOT_BITS, {0, 0}) origin;
    RegisterAction<flowgauge_origin_t, flowgauge_heavy_index_t, bit<32>>(origin)
    remember_origin = {
        void apply(inout flowgauge_origin_t slot) {
            slot.inherited = replaced;
            slot.version = version;
        }
    };
#if FLOWGAUGE_HEAVY_KEY != FLOWGAUGE_KEY_DST
    Register<flowgauge_half_t, flowgauge_heavy_index_t>(
        2 << FLOWGAUGE_HEAVY_SLOT_BITS, {0, 0}) src_upper;
    RegisterAction<flowgauge_half_t, flowgauge_heavy_index_t, bit<32>>(src_upper)
    remember_src_upper = {
        void apply(inout flowgauge_half_t slot) {
            slot.high = src3;
            slot.low = src2;
        }
    };

    Register<flowgauge_half_t, flowgauge_heavy_index_t>(
        2 << FLOWGAUGE_HEAVY_SLOT_BITS, {0, 0}) src_lower;
    RegisterAction<flowgauge_half_t, flowgauge_heavy_index_t, bit<32>>(src_lower)
    remember_src_lower = {
        void apply(inout flowgauge_half_t slot) {
            slot.high = src1;
            slot.low = src0;
        }
    };
#endif
#if FLOWGAUGE_HEAVY_KEY != FLOWGAUGE_KEY_SRC
    Register<flowgauge_half_t, flowgauge_heavy_index_t>(
        2 << FLOWGAUGE_HEAVY_SLOT_BITS, {0, 0}) dst_upper;
    RegisterAction<flowgauge_half_t, flowgauge_heavy_index_t, bit<32>>(dst_upper)
    remember_dst_upper = {
        void apply(inout flowgauge_half_t slot) {
            slot.high = dst3;
            slot.low = dst2;
        }
    };

    Register<flowgauge_half_t, flowgauge_heavy_index_t>(
        2 << FLOWGAUGE_HEAVY_SLOT_BITS, {0, 0}) dst_lower;
    RegisterAction<flowgauge_half_t, flowgauge_heavy_index_t, bit<32>>(dst_lower)
    remember_dst_lower = {
        void apply(inout flowgauge_half_t slot) {
            slot.high = dst1;
            slot.low = dst0;
        }
    };
#endif
#if FLOWGAUGE_HEAVY_KEY == FLOWGAUGE_KEY_FIVE_TUPLE
    Register<flowgauge_service_t, flowgauge_heavy_index_t>(
        2 << FLOWGAUGE_HEAVY_SLOT_BITS, {0, 0}) service;
    RegisterAction<flowgauge_service_t, flowgauge_heavy_index_t, bit<32>>(service)
    remember_service = {
        void apply(inout flowgauge_service_t slot) {
            slot.ports = md.flowgauge.ports;
            slot.protocol = protocol;
        }
    };
#endif

    action take_ipv4() {
        version = 4;
        src0 = hdr.ipv4.src_addr;
        src1 = 0;
        src2 = 0;
        src3 = 0;
        dst0 = hdr.ipv4.dst_addr;
        dst1 = 0;
        dst2 = 0;
        dst3 = 0;
        protocol = (bit<32>)hdr.ipv4.protocol;
    }

    action take_ipv6() {
        version = 6;
        src0 = hdr.ipv6.src_addr[31:0];
        src1 = hdr.ipv6.src_addr[63:32];
        src2 = hdr.ipv6.src_addr[95:64];
        src3 = hdr.ipv6.src_addr[127:96];
        dst0 = hdr.ipv6.dst_addr[31:0];
        dst1 = hdr.ipv6.dst_addr[63:32];
        dst2 = hdr.ipv6.dst_addr[95:64];
        dst3 = hdr.ipv6.dst_addr[127:96];
        protocol = (bit<32>)md.flowgauge.protocol;
    }

    action hash0() {
        crc0 = slot0.get({ FLOWGAUGE_SIGNATURE });
    }

    action hash1() {
        crc1 = slot1.get({ FLOWGAUGE_SIGNATURE });
    }

    // Deterministic, so that a run can be reproduced.
    action toss_coin() {
        coin = toss.get({ FLOWGAUGE_SIGNATURE, packet });
    }

    action inherit() {
        replaced = md.flowgauge.admitted.count + 0xfffffffe;
    }

    action subtract() {
        difference = count0 |-| count1;
    }

    // A table, so that the difference is computed before it is tested.
    table differences {
        actions = { subtract; }
        const default_action = subtract();
        size = 1;
    }

    action take0() {
        stage = 0;
        smallest = count0 + 0xffffffff;
    }

    action take1() {
        stage = 1;
        smallest = count1 + 0xffffffff;
    }

    // Tofino does not resubmit a packet that is dropped.
    action admit() {
        ig_dprsr_md.resubmit_type = 1;
        ig_dprsr_md.drop_ctl = 0;
        md.flowgauge.admission.setValid();
        md.flowgauge.admission.stage = stage;
        md.flowgauge.admission.bank = md.flowgauge.bank;
        md.flowgauge.admission.padding = 0;
        md.flowgauge.admission.count = smallest |+| 2;
    }

    action refuse() {}

    // One entry per bit length of the smaller count, which requires as many zeros of the coin.
    table admission {
        key = {
            smallest : ternary @name("count");
            coin : ternary @name("coin");
        }
        actions = {
            admit;
            refuse;
        }
        default_action = refuse();
        size = 64;
    }

    apply {
        hash0();
        hash1();
        inherit();
        if (hdr.ipv4.isValid()) {
            take_ipv4();
        } else {
            take_ipv6();
        }
        if (md.flowgauge.sound == 1) {
            packet = next_packet.execute(md.flowgauge.bank);
        }
        toss_coin();
        if (md.flowgauge.sound == 1) {
            count0 = find0.execute(md.flowgauge.bank ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]);
        } else if (md.flowgauge.admitted.isValid() && md.flowgauge.admitted.stage == 0) {
            replace0.execute(md.flowgauge.bank ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]);
        }
        if (md.flowgauge.sound == 1) {
            if (count0 != 0) {
                count1 = find1.execute(md.flowgauge.bank ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]);
            }
        } else if (md.flowgauge.admitted.isValid() && md.flowgauge.admitted.stage == 1) {
            replace1.execute(md.flowgauge.bank ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]);
        }
        if (md.flowgauge.admitted.isValid()) {
            if (md.flowgauge.admitted.stage == 0) {
                remember_origin.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]);
            } else {
                remember_origin.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]);
            }
        }
#if FLOWGAUGE_HEAVY_KEY != FLOWGAUGE_KEY_DST
        if (md.flowgauge.admitted.isValid()) {
            if (md.flowgauge.admitted.stage == 0) {
                remember_src_upper.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]);
            } else {
                remember_src_upper.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]);
            }
        }
        if (md.flowgauge.admitted.isValid()) {
            if (md.flowgauge.admitted.stage == 0) {
                remember_src_lower.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]);
            } else {
                remember_src_lower.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]);
            }
        }
#endif
#if FLOWGAUGE_HEAVY_KEY != FLOWGAUGE_KEY_SRC
        if (md.flowgauge.admitted.isValid()) {
            if (md.flowgauge.admitted.stage == 0) {
                remember_dst_upper.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]);
            } else {
                remember_dst_upper.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]);
            }
        }
        if (md.flowgauge.admitted.isValid()) {
            if (md.flowgauge.admitted.stage == 0) {
                remember_dst_lower.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]);
            } else {
                remember_dst_lower.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]);
            }
        }
#endif
#if FLOWGAUGE_HEAVY_KEY == FLOWGAUGE_KEY_FIVE_TUPLE
        if (md.flowgauge.admitted.isValid()) {
            if (md.flowgauge.admitted.stage == 0) {
                remember_service.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]);
            } else {
                remember_service.execute(
                    md.flowgauge.bank ++ md.flowgauge.admitted.stage
                        ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]);
            }
        }
#endif
        differences.apply();
        if (difference != 0) {
            take1();
        } else {
            take0();
        }
        if (md.flowgauge.sound == 1 && count1 != 0) {
            admission.apply();
        }
    }
}
