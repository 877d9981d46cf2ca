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

// Data that the second pass stores for its packet, for the slots of both stages.
#define FLOWGAUGE_HEAVY_REMEMBER(type, name, first, first_value, second, second_value) \
    FLOWGAUGE_REMEMBER_PAIR(type, flowgauge_heavy_index_t, 2 << FLOWGAUGE_HEAVY_SLOT_BITS, name, \
        first, first_value, second, second_value)

#define FLOWGAUGE_HEAVY_REMEMBER_ADDRESS(address) \
    FLOWGAUGE_HEAVY_REMEMBER(flowgauge_half_t, address##_upper, high, address##3, low, address##2) \
    FLOWGAUGE_HEAVY_REMEMBER(flowgauge_half_t, address##_lower, high, address##1, low, address##0)

#define FLOWGAUGE_HEAVY_WHEN_ADMITTED(name) \
    if (md.flowgauge.admitted.isValid()) { \
        if (md.flowgauge.admitted.stage == 0) { \
            remember_##name.execute( \
                md.flowgauge.bank ++ md.flowgauge.admitted.stage ++ crc0[FLOWGAUGE_STAGE_BITS - 1:0]); \
        } else { \
            remember_##name.execute( \
                md.flowgauge.bank ++ md.flowgauge.admitted.stage ++ crc1[FLOWGAUGE_STAGE_BITS - 1:0]); \
        } \
    }

// A stage is a macro: a control of its own would put the name of its instance into the names of its
// registers.
//
// Counts are stored plus one, since zero stands for a flow that was found. They saturate at 32
// bits: later packets are not in the flow's own count, and bounds allow for it.
#define FLOWGAUGE_HEAVY_STAGE(stage) \
    Register<flowgauge_flow_t, flowgauge_stage_index_t>( \
        2 << FLOWGAUGE_STAGE_BITS, {0, 1}) flows##stage; \
    RegisterAction<flowgauge_flow_t, flowgauge_stage_index_t, bit<32>>(flows##stage) \
    find##stage = { \
        void apply(inout flowgauge_flow_t flow, out bit<32> other) { \
            if (flow.signature == FLOWGAUGE_SIGNATURE && flow.count != 1) { \
                flow.count = flow.count |+| 1; \
                other = 0; \
            } else { \
                other = flow.count; \
            } \
        } \
    }; \
    RegisterAction<flowgauge_flow_t, flowgauge_stage_index_t, bit<32>>(flows##stage) \
    replace##stage = { \
        void apply(inout flowgauge_flow_t flow) { \
            flow.signature = FLOWGAUGE_SIGNATURE; \
            flow.count = md.flowgauge.admitted.count; \
        } \
    };

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
    FLOWGAUGE_ADDRESS_WORDS
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

    FLOWGAUGE_HEAVY_STAGE(0)
    FLOWGAUGE_HEAVY_STAGE(1)
    FLOWGAUGE_HEAVY_REMEMBER(flowgauge_origin_t, origin, inherited, replaced, version, version)
#if FLOWGAUGE_HEAVY_KEY != FLOWGAUGE_KEY_DST
    FLOWGAUGE_HEAVY_REMEMBER_ADDRESS(src)
#endif
#if FLOWGAUGE_HEAVY_KEY != FLOWGAUGE_KEY_SRC
    FLOWGAUGE_HEAVY_REMEMBER_ADDRESS(dst)
#endif
#if FLOWGAUGE_HEAVY_KEY == FLOWGAUGE_KEY_FIVE_TUPLE
    FLOWGAUGE_HEAVY_REMEMBER(flowgauge_service_t, service, ports, md.flowgauge.ports, protocol, protocol)
#endif

    action take_ipv4() {
        version = 4;
        FLOWGAUGE_TAKE_IPV4_ADDRESSES
        protocol = (bit<32>)hdr.ipv4.protocol;
    }

    action take_ipv6() {
        version = 6;
        FLOWGAUGE_TAKE_IPV6_ADDRESSES
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
        FLOWGAUGE_HEAVY_WHEN_ADMITTED(origin)
#if FLOWGAUGE_HEAVY_KEY != FLOWGAUGE_KEY_DST
        FLOWGAUGE_HEAVY_WHEN_ADMITTED(src_upper)
        FLOWGAUGE_HEAVY_WHEN_ADMITTED(src_lower)
#endif
#if FLOWGAUGE_HEAVY_KEY != FLOWGAUGE_KEY_SRC
        FLOWGAUGE_HEAVY_WHEN_ADMITTED(dst_upper)
        FLOWGAUGE_HEAVY_WHEN_ADMITTED(dst_lower)
#endif
#if FLOWGAUGE_HEAVY_KEY == FLOWGAUGE_KEY_FIVE_TUPLE
        FLOWGAUGE_HEAVY_WHEN_ADMITTED(service)
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
