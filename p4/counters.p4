// Packets and bytes of all frames by class, including rejected frames.

// Bit of the parser error for a frame that ends inside a header. Tofino drops such a frame unless
// the program reads the error, as this one does: a frame from a capture may be truncated, and must
// be counted.
const bit<16> FLOWGAUGE_PARSER_ERROR_PARTIAL_HEADER = 0x0002;

control FlowgaugeCounters(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                          in ingress_intrinsic_metadata_from_parser_t ig_prsr_md) {
    FlowgaugeMatch() match;

    // One array, indexed by bank and class, so that one access per packet counts everything.
    Counter<bit<64>, bit<4>>(16, CounterType_t.PACKETS_AND_BYTES) frames;

    action mark_ipv4() {
        md.flowgauge.class = flowgauge_class_t.IPV4;
        md.flowgauge.sound = 1;
    }

    action mark_ipv6() {
        md.flowgauge.class = flowgauge_class_t.IPV6;
        md.flowgauge.sound = 1;
    }

    action mark_non_ip() {
        md.flowgauge.class = flowgauge_class_t.NON_IP;
    }

    action mark_truncated() {
        md.flowgauge.class = flowgauge_class_t.TRUNCATED;
    }

    action mark_bad_header() {
        md.flowgauge.class = flowgauge_class_t.BAD_HEADER;
    }

    // A total length shorter than the header is invalid, except zero: captures on a sending host
    // have segments before offload with a total length of zero. A match cannot compare the length
    // with four times the header length, hence the prefixes below every header length.
    table classify {
        key = {
            hdr.ipv4.isValid() : ternary @name("ipv4");
            hdr.ipv6.isValid() : ternary @name("ipv6");
            hdr.ipv4.version : ternary @name("ipv4_version");
            hdr.ipv4.ihl : ternary @name("ihl");
            hdr.ipv4.total_length : ternary @name("total_length");
            hdr.ipv6.version : ternary @name("ipv6_version");
            ig_prsr_md.parser_err : ternary @name("parser_error");
        }
        actions = {
            mark_ipv4;
            mark_ipv6;
            mark_non_ip;
            mark_truncated;
            mark_bad_header;
        }
        const entries = {
            (true, _, 4, 0 &&& 0xc, _, _, _): mark_bad_header();
            (true, _, 4, 4, _, _, _): mark_bad_header();
            (true, _, 4, _, 0, _, _): mark_ipv4();
            (true, _, 4, 5, 0 &&& 0xfff0, _, _): mark_bad_header();
            (true, _, 4, 5, 16 &&& 0xfffc, _, _): mark_bad_header();
            (true, _, 4, 6, 0 &&& 0xfff0, _, _): mark_bad_header();
            (true, _, 4, 6, 16 &&& 0xfff8, _, _): mark_bad_header();
            (true, _, 4, 7, 0 &&& 0xfff0, _, _): mark_bad_header();
            (true, _, 4, 7, 16 &&& 0xfff8, _, _): mark_bad_header();
            (true, _, 4, 7, 24 &&& 0xfffc, _, _): mark_bad_header();
            (true, _, 4, 8, 0 &&& 0xffe0, _, _): mark_bad_header();
            (true, _, 4, 9, 0 &&& 0xffe0, _, _): mark_bad_header();
            (true, _, 4, 9, 32 &&& 0xfffc, _, _): mark_bad_header();
            (true, _, 4, 10, 0 &&& 0xffe0, _, _): mark_bad_header();
            (true, _, 4, 10, 32 &&& 0xfff8, _, _): mark_bad_header();
            (true, _, 4, 11, 0 &&& 0xffe0, _, _): mark_bad_header();
            (true, _, 4, 11, 32 &&& 0xfff8, _, _): mark_bad_header();
            (true, _, 4, 11, 40 &&& 0xfffc, _, _): mark_bad_header();
            (true, _, 4, 12, 0 &&& 0xffe0, _, _): mark_bad_header();
            (true, _, 4, 12, 32 &&& 0xfff0, _, _): mark_bad_header();
            (true, _, 4, 13, 0 &&& 0xffe0, _, _): mark_bad_header();
            (true, _, 4, 13, 32 &&& 0xfff0, _, _): mark_bad_header();
            (true, _, 4, 13, 48 &&& 0xfffc, _, _): mark_bad_header();
            (true, _, 4, 14, 0 &&& 0xffe0, _, _): mark_bad_header();
            (true, _, 4, 14, 32 &&& 0xfff0, _, _): mark_bad_header();
            (true, _, 4, 14, 48 &&& 0xfff8, _, _): mark_bad_header();
            (true, _, 4, 15, 0 &&& 0xffe0, _, _): mark_bad_header();
            (true, _, 4, 15, 32 &&& 0xfff0, _, _): mark_bad_header();
            (true, _, 4, 15, 48 &&& 0xfff8, _, _): mark_bad_header();
            (true, _, 4, 15, 56 &&& 0xfffc, _, _): mark_bad_header();
            (true, _, 4, _, _, _, _): mark_ipv4();
            (true, _, _, _, _, _, _): mark_bad_header();
            (false, true, _, _, _, 6, _): mark_ipv6();
            (false, true, _, _, _, _, _): mark_bad_header();
            (false, false, _, _, _, _,
             FLOWGAUGE_PARSER_ERROR_PARTIAL_HEADER &&& FLOWGAUGE_PARSER_ERROR_PARTIAL_HEADER): mark_truncated();
        }
        const default_action = mark_non_ip();
        size = 64;
    }

    apply {
        classify.apply();
        if (FLOWGAUGE_MATCH == 1) {
            match.apply(hdr, md);
        }
        // A packet in its second pass has already been counted.
        if (FLOWGAUGE_HEAVY == 0 || !md.flowgauge.admitted.isValid()) {
            frames.count(md.flowgauge.bank ++ md.flowgauge.class);
        }
    }
}
