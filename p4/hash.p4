// Flow hash: 32 bits from a flow key.
//
// The CRC is that of the W-HLL thesis (section 3.3.2). It is linear, so structured address plans fill structured registers and
// the estimate fails on them; simple tabulation of its four bytes breaks the linearity. The words are the controller's, drawn
// from a seed, so that they can change without a new build.
#ifndef FLOWGAUGE_HASH_P4
#define FLOWGAUGE_HASH_P4

#include "headers.p4"

// Reflected, initial value and final XOR all ones. The thesis' listing passes a bare bit<32>, which the extern does not take.
#define FLOWGAUGE_POLYNOMIAL(name) \
    CRCPolynomial<bit<32>>(32w0x790900f3, true, false, false, 32w0xffffffff, 32w0xffffffff) name

// Key bytes are in network order, fields in the order named.
#if FLOWGAUGE_KEY == FLOWGAUGE_KEY_SRC
#define FLOWGAUGE_IPV4_KEY { hdr.ipv4.src_addr }
#define FLOWGAUGE_IPV6_KEY { hdr.ipv6.src_addr }
#elif FLOWGAUGE_KEY == FLOWGAUGE_KEY_DST
#define FLOWGAUGE_IPV4_KEY { hdr.ipv4.dst_addr }
#define FLOWGAUGE_IPV6_KEY { hdr.ipv6.dst_addr }
#elif FLOWGAUGE_KEY == FLOWGAUGE_KEY_SRC_DST
#define FLOWGAUGE_IPV4_KEY { hdr.ipv4.src_addr, hdr.ipv4.dst_addr }
#define FLOWGAUGE_IPV6_KEY { hdr.ipv6.src_addr, hdr.ipv6.dst_addr }
#else
#define FLOWGAUGE_IPV4_KEY { hdr.ipv4.src_addr, hdr.ipv4.dst_addr, md.flowgauge.ports, hdr.ipv4.protocol }
#define FLOWGAUGE_IPV6_KEY { hdr.ipv6.src_addr, hdr.ipv6.dst_addr, md.flowgauge.ports, md.flowgauge.protocol }
#endif

control FlowgaugeHash(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    // A hash unit has one input, so every key length needs one of its own.
    FLOWGAUGE_POLYNOMIAL(ipv4_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv4_polynomial) ipv4_crc;
    FLOWGAUGE_POLYNOMIAL(ipv6_polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, ipv6_polynomial) ipv6_crc;

    action hash_ipv4() {
        md.flowgauge.crc = ipv4_crc.get(FLOWGAUGE_IPV4_KEY);
    }

    action hash_ipv6() {
        md.flowgauge.crc = ipv6_crc.get(FLOWGAUGE_IPV6_KEY);
    }

#if FLOWGAUGE_HASH == FLOWGAUGE_HASH_TABULATED
    action set_word0(bit<32> word) {
        md.flowgauge.word0 = word;
    }

    action set_word1(bit<32> word) {
        md.flowgauge.word1 = word;
    }

    action set_word2(bit<32> word) {
        md.flowgauge.word2 = word;
    }

    action set_word3(bit<32> word) {
        md.flowgauge.word3 = word;
    }

    table tabulation0 {
        key = { md.flowgauge.crc[31:24] : exact @name("byte"); }
        actions = { set_word0; }
        size = 256;
    }

    table tabulation1 {
        key = { md.flowgauge.crc[23:16] : exact @name("byte"); }
        actions = { set_word1; }
        size = 256;
    }

    table tabulation2 {
        key = { md.flowgauge.crc[15:8] : exact @name("byte"); }
        actions = { set_word2; }
        size = 256;
    }

    table tabulation3 {
        key = { md.flowgauge.crc[7:0] : exact @name("byte"); }
        actions = { set_word3; }
        size = 256;
    }

    // As a hash the XOR of four words takes one stage, as arithmetic it takes two.
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_words;

    action fold() {
        md.flowgauge.tabulated =
            xor_words.get({ md.flowgauge.word0, md.flowgauge.word1, md.flowgauge.word2, md.flowgauge.word3 });
    }
#endif

    apply {
        if (hdr.ipv4.isValid()) {
            hash_ipv4();
        } else if (hdr.ipv6.isValid()) {
            hash_ipv6();
        }
#if FLOWGAUGE_HASH == FLOWGAUGE_HASH_TABULATED
        // For every packet, and not only for sound ones: Tofino 1 lays the branches of a long condition one after another.
        tabulation0.apply();
        tabulation1.apply();
        tabulation2.apply();
        tabulation3.apply();
        fold();
#endif
    }
}

#endif
