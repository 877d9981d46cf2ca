// Hashes of flow keys.
//
// The CRC is that of the W-HLL thesis (section 3.3.2). It is linear, so structured addresses fill
// structured registers and the estimate fails; simple tabulation of its four bytes breaks the
// linearity. The controller installs the words, drawn from a seed, so that they can change without
// a rebuild.

// Reflected, with initial value and final XOR all ones. The thesis' listing passes a bare bit<32>,
// which the extern does not accept. A polynomial is a declaration of each control, so this is a
// macro.
#define FLOWGAUGE_POLYNOMIAL(name) \
    CRCPolynomial<bit<32>>(32w0x790900f3, true, false, false, 32w0xffffffff, 32w0xffffffff) name

// CRC of one key. Key bytes are in network order, fields in the order of the key's name. A hash
// unit has one input, so each key length needs its own. There is a control per key because a
// parameter cannot be a list of fields.
control FlowgaugeSrcCrc(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    FLOWGAUGE_POLYNOMIAL(ipv4_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv4_polynomial) ipv4_crc;
    FLOWGAUGE_POLYNOMIAL(ipv6_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv6_polynomial) ipv6_crc;

    action hash_ipv4() {
        md.flowgauge.src.crc = ipv4_crc.get({ hdr.ipv4.src_addr });
    }

    action hash_ipv6() {
        md.flowgauge.src.crc = ipv6_crc.get({ hdr.ipv6.src_addr });
    }

    apply {
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
        } else if (hdr.ipv6.isValid()) {
            hash_ipv6();
        }
    }
}

control FlowgaugeDstCrc(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    FLOWGAUGE_POLYNOMIAL(ipv4_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv4_polynomial) ipv4_crc;
    FLOWGAUGE_POLYNOMIAL(ipv6_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv6_polynomial) ipv6_crc;

    action hash_ipv4() {
        md.flowgauge.dst.crc = ipv4_crc.get({ hdr.ipv4.dst_addr });
    }

    action hash_ipv6() {
        md.flowgauge.dst.crc = ipv6_crc.get({ hdr.ipv6.dst_addr });
    }

    apply {
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
        } else if (hdr.ipv6.isValid()) {
            hash_ipv6();
        }
    }
}

control FlowgaugeSrcDstCrc(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    FLOWGAUGE_POLYNOMIAL(ipv4_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv4_polynomial) ipv4_crc;
    FLOWGAUGE_POLYNOMIAL(ipv6_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv6_polynomial) ipv6_crc;

    action hash_ipv4() {
        md.flowgauge.src_dst.crc = ipv4_crc.get({ hdr.ipv4.src_addr, hdr.ipv4.dst_addr });
    }

    action hash_ipv6() {
        md.flowgauge.src_dst.crc = ipv6_crc.get({ hdr.ipv6.src_addr, hdr.ipv6.dst_addr });
    }

    apply {
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
        } else if (hdr.ipv6.isValid()) {
            hash_ipv6();
        }
    }
}

control FlowgaugeFiveTupleCrc(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    FLOWGAUGE_POLYNOMIAL(ipv4_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv4_polynomial) ipv4_crc;
    FLOWGAUGE_POLYNOMIAL(ipv6_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv6_polynomial) ipv6_crc;

    action hash_ipv4() {
        md.flowgauge.five_tuple.crc = ipv4_crc.get({
            hdr.ipv4.src_addr, hdr.ipv4.dst_addr, md.flowgauge.ports, hdr.ipv4.protocol });
    }

    action hash_ipv6() {
        md.flowgauge.five_tuple.crc = ipv6_crc.get({
            hdr.ipv6.src_addr, hdr.ipv6.dst_addr, md.flowgauge.ports, md.flowgauge.protocol });
    }

    apply {
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
        } else if (hdr.ipv6.isValid()) {
            hash_ipv6();
        }
    }
}

// CRC of the addresses of FLOWGAUGE_SPREAD_KEY with the destination port and the protocol.
control FlowgaugeWithPortCrc(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    FLOWGAUGE_POLYNOMIAL(ipv4_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv4_polynomial) ipv4_crc;
    FLOWGAUGE_POLYNOMIAL(ipv6_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv6_polynomial) ipv6_crc;

    action hash_ipv4() {
        md.flowgauge.with_port.crc = ipv4_crc.get({
#if FLOWGAUGE_SPREAD_KEY != FLOWGAUGE_KEY_DST
            hdr.ipv4.src_addr,
#endif
#if FLOWGAUGE_SPREAD_KEY != FLOWGAUGE_KEY_SRC
            hdr.ipv4.dst_addr,
#endif
            md.flowgauge.ports[15:0], hdr.ipv4.protocol });
    }

    action hash_ipv6() {
        md.flowgauge.with_port.crc = ipv6_crc.get({
#if FLOWGAUGE_SPREAD_KEY != FLOWGAUGE_KEY_DST
            hdr.ipv6.src_addr,
#endif
#if FLOWGAUGE_SPREAD_KEY != FLOWGAUGE_KEY_SRC
            hdr.ipv6.dst_addr,
#endif
            md.flowgauge.ports[15:0], md.flowgauge.protocol });
    }

    apply {
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
        } else if (hdr.ipv6.isValid()) {
            hash_ipv6();
        }
    }
}

// Simple tabulation: one 64-bit word for each of the four bytes of a CRC. Rows of sketches and
// filters use both halves, other hashes the lower one. The caller combines the words: the XOR of
// four takes one stage as a hash, and two as arithmetic.
struct flowgauge_words_t {
    bit<32> low0;
    bit<32> low1;
    bit<32> low2;
    bit<32> low3;
    bit<32> high0;
    bit<32> high1;
    bit<32> high2;
    bit<32> high3;
}

control FlowgaugeTabulation(in bit<32> crc, inout flowgauge_words_t words) {
    action set_words0(bit<32> low, bit<32> high) {
        words.low0 = low;
        words.high0 = high;
    }

    action set_words1(bit<32> low, bit<32> high) {
        words.low1 = low;
        words.high1 = high;
    }

    action set_words2(bit<32> low, bit<32> high) {
        words.low2 = low;
        words.high2 = high;
    }

    action set_words3(bit<32> low, bit<32> high) {
        words.low3 = low;
        words.high3 = high;
    }

    table words0 {
        key = { crc[31:24] : exact @name("byte"); }
        actions = { set_words0; }
        size = 256;
    }

    table words1 {
        key = { crc[23:16] : exact @name("byte"); }
        actions = { set_words1; }
        size = 256;
    }

    table words2 {
        key = { crc[15:8] : exact @name("byte"); }
        actions = { set_words2; }
        size = 256;
    }

    table words3 {
        key = { crc[7:0] : exact @name("byte"); }
        actions = { set_words3; }
        size = 256;
    }

    apply {
        words0.apply();
        words1.apply();
        words2.apply();
        words3.apply();
    }
}

// Hashes of four rows.
control FlowgaugeRows(inout flowgauge_hashes_t hashes) {
    flowgauge_words_t words;
    FlowgaugeTabulation() tabulation;
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_rows01;
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_rows23;

    action fold01() {
        hashes.rows01 = xor_rows01.get({ words.low0, words.low1, words.low2, words.low3 });
    }

    action fold23() {
        hashes.rows23 = xor_rows23.get({ words.high0, words.high1, words.high2, words.high3 });
    }

    apply {
        tabulation.apply(hashes.crc, words);
        fold01();
        fold23();
    }
}

// Computed for every packet, not only for valid ones: Tofino 1 places the branches of a long
// condition one after another. Hashes that several measurements need for one key are computed once.
// The compiler knows these conditions, and drops what a build does not need.
control FlowgaugeHash(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    const bool is_tabulated =
        FLOWGAUGE_CARDINALITY != 0 && FLOWGAUGE_HASH == FLOWGAUGE_HASH_TABULATED;

    FlowgaugeSrcCrc() src;
    FlowgaugeDstCrc() dst;
    FlowgaugeSrcDstCrc() src_dst;
    FlowgaugeFiveTupleCrc() five_tuple;
    FlowgaugeWithPortCrc() with_port;
    FlowgaugeRows() src_rows;
    FlowgaugeRows() dst_rows;
    FlowgaugeRows() src_dst_rows;
    FlowgaugeRows() five_tuple_rows;
    FlowgaugeRows() with_port_rows;
    flowgauge_words_t words;
    FlowgaugeTabulation() tabulation;
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_words;

    action fold() {
        md.flowgauge.tabulated = xor_words.get({ words.low0, words.low1, words.low2, words.low3 });
    }

    apply {
        if (FLOWGAUGE_USES(FLOWGAUGE_KEY_SRC)) {
            src.apply(hdr, md);
        }
        if (FLOWGAUGE_USES(FLOWGAUGE_KEY_DST)) {
            dst.apply(hdr, md);
        }
        if (FLOWGAUGE_USES(FLOWGAUGE_KEY_SRC_DST)) {
            src_dst.apply(hdr, md);
        }
        if (FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE)) {
            five_tuple.apply(hdr, md);
        }
        if (FLOWGAUGE_USES(FLOWGAUGE_KEY_WITH_PORT)) {
            with_port.apply(hdr, md);
        }
        if (FLOWGAUGE_ROWS_BY(FLOWGAUGE_KEY_SRC)) {
            src_rows.apply(md.flowgauge.src);
        }
        if (FLOWGAUGE_ROWS_BY(FLOWGAUGE_KEY_DST)) {
            dst_rows.apply(md.flowgauge.dst);
        }
        if (FLOWGAUGE_ROWS_BY(FLOWGAUGE_KEY_SRC_DST)) {
            src_dst_rows.apply(md.flowgauge.src_dst);
        }
        if (FLOWGAUGE_ROWS_BY(FLOWGAUGE_KEY_FIVE_TUPLE)) {
            five_tuple_rows.apply(md.flowgauge.five_tuple);
        }
        if (FLOWGAUGE_ROWS_BY(FLOWGAUGE_KEY_WITH_PORT)) {
            with_port_rows.apply(md.flowgauge.with_port);
        }
        if (is_tabulated) {
            tabulation.apply(FLOWGAUGE_HASHES(FLOWGAUGE_KEY).crc, words);
            fold();
        }
    }
}
