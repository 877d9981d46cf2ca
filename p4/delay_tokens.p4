// Part of FlowgaugeDelay: the token by which an answer refers to its request, and the hashes that
// sign a request: of the packet's ends, and of the token.

    action use_syn_sequence() {
        begin = hdr.tcp.sequence + 1;
    }

    // An acknowledgement has the sequence number after the data: sequence number, plus packet
    // length, minus the bytes of headers in that length, plus one for a FIN.
    action use_segment_sequence(bit<32> less, bit<16> headers) {
        begin = hdr.tcp.sequence + less;
        payload = md.flowgauge.ip_length + headers;
    }

    // By the header length of TCP in words. The length of an IPv4 packet includes its own header,
    // of 20 bytes.
    table segments {
        key = {
            hdr.ipv4.isValid() : ternary @name("ipv4");
            hdr.tcp.flags : ternary @name("flags");
            hdr.tcp.data_offset : ternary @name("data_offset");
        }
        actions = {
            use_segment_sequence;
            use_syn_sequence;
        }
        const entries = {
#if FLOWGAUGE_DELAY_TCP_DATA
            (_, TCP_SYN &&& TCP_SYN, _): use_syn_sequence();
#endif
            (true, 0 &&& TCP_FIN, 5): use_segment_sequence(0x100000000 - 40, 0x10000 - 40);
            (true, TCP_FIN &&& TCP_FIN, 5): use_segment_sequence(0x100000001 - 40, 0x10000 - 40);
            (false, 0 &&& TCP_FIN, 5): use_segment_sequence(0x100000000 - 20, 0x10000 - 20);
            (false, TCP_FIN &&& TCP_FIN, 5): use_segment_sequence(0x100000001 - 20, 0x10000 - 20);
            (true, 0 &&& TCP_FIN, 6): use_segment_sequence(0x100000000 - 44, 0x10000 - 44);
            (true, TCP_FIN &&& TCP_FIN, 6): use_segment_sequence(0x100000001 - 44, 0x10000 - 44);
            (false, 0 &&& TCP_FIN, 6): use_segment_sequence(0x100000000 - 24, 0x10000 - 24);
            (false, TCP_FIN &&& TCP_FIN, 6): use_segment_sequence(0x100000001 - 24, 0x10000 - 24);
            (true, 0 &&& TCP_FIN, 7): use_segment_sequence(0x100000000 - 48, 0x10000 - 48);
            (true, TCP_FIN &&& TCP_FIN, 7): use_segment_sequence(0x100000001 - 48, 0x10000 - 48);
            (false, 0 &&& TCP_FIN, 7): use_segment_sequence(0x100000000 - 28, 0x10000 - 28);
            (false, TCP_FIN &&& TCP_FIN, 7): use_segment_sequence(0x100000001 - 28, 0x10000 - 28);
            (true, 0 &&& TCP_FIN, 8): use_segment_sequence(0x100000000 - 52, 0x10000 - 52);
            (true, TCP_FIN &&& TCP_FIN, 8): use_segment_sequence(0x100000001 - 52, 0x10000 - 52);
            (false, 0 &&& TCP_FIN, 8): use_segment_sequence(0x100000000 - 32, 0x10000 - 32);
            (false, TCP_FIN &&& TCP_FIN, 8): use_segment_sequence(0x100000001 - 32, 0x10000 - 32);
            (true, 0 &&& TCP_FIN, 9): use_segment_sequence(0x100000000 - 56, 0x10000 - 56);
            (true, TCP_FIN &&& TCP_FIN, 9): use_segment_sequence(0x100000001 - 56, 0x10000 - 56);
            (false, 0 &&& TCP_FIN, 9): use_segment_sequence(0x100000000 - 36, 0x10000 - 36);
            (false, TCP_FIN &&& TCP_FIN, 9): use_segment_sequence(0x100000001 - 36, 0x10000 - 36);
            (true, 0 &&& TCP_FIN, 10): use_segment_sequence(0x100000000 - 60, 0x10000 - 60);
            (true, TCP_FIN &&& TCP_FIN, 10): use_segment_sequence(0x100000001 - 60, 0x10000 - 60);
            (false, 0 &&& TCP_FIN, 10): use_segment_sequence(0x100000000 - 40, 0x10000 - 40);
            (false, TCP_FIN &&& TCP_FIN, 10): use_segment_sequence(0x100000001 - 40, 0x10000 - 40);
            (true, 0 &&& TCP_FIN, 11): use_segment_sequence(0x100000000 - 64, 0x10000 - 64);
            (true, TCP_FIN &&& TCP_FIN, 11): use_segment_sequence(0x100000001 - 64, 0x10000 - 64);
            (false, 0 &&& TCP_FIN, 11): use_segment_sequence(0x100000000 - 44, 0x10000 - 44);
            (false, TCP_FIN &&& TCP_FIN, 11): use_segment_sequence(0x100000001 - 44, 0x10000 - 44);
            (true, 0 &&& TCP_FIN, 12): use_segment_sequence(0x100000000 - 68, 0x10000 - 68);
            (true, TCP_FIN &&& TCP_FIN, 12): use_segment_sequence(0x100000001 - 68, 0x10000 - 68);
            (false, 0 &&& TCP_FIN, 12): use_segment_sequence(0x100000000 - 48, 0x10000 - 48);
            (false, TCP_FIN &&& TCP_FIN, 12): use_segment_sequence(0x100000001 - 48, 0x10000 - 48);
            (true, 0 &&& TCP_FIN, 13): use_segment_sequence(0x100000000 - 72, 0x10000 - 72);
            (true, TCP_FIN &&& TCP_FIN, 13): use_segment_sequence(0x100000001 - 72, 0x10000 - 72);
            (false, 0 &&& TCP_FIN, 13): use_segment_sequence(0x100000000 - 52, 0x10000 - 52);
            (false, TCP_FIN &&& TCP_FIN, 13): use_segment_sequence(0x100000001 - 52, 0x10000 - 52);
            (true, 0 &&& TCP_FIN, 14): use_segment_sequence(0x100000000 - 76, 0x10000 - 76);
            (true, TCP_FIN &&& TCP_FIN, 14): use_segment_sequence(0x100000001 - 76, 0x10000 - 76);
            (false, 0 &&& TCP_FIN, 14): use_segment_sequence(0x100000000 - 56, 0x10000 - 56);
            (false, TCP_FIN &&& TCP_FIN, 14): use_segment_sequence(0x100000001 - 56, 0x10000 - 56);
            (true, 0 &&& TCP_FIN, 15): use_segment_sequence(0x100000000 - 80, 0x10000 - 80);
            (true, TCP_FIN &&& TCP_FIN, 15): use_segment_sequence(0x100000001 - 80, 0x10000 - 80);
            (false, 0 &&& TCP_FIN, 15): use_segment_sequence(0x100000000 - 60, 0x10000 - 60);
            (false, TCP_FIN &&& TCP_FIN, 15): use_segment_sequence(0x100000001 - 60, 0x10000 - 60);
        }
        const default_action = use_syn_sequence();
        size = 128;
    }

    // As a hash: copies of one width into another tie the layouts of many fields to each other.
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) length;

    action widen_length() {
        beyond[15:0] = length.get({ md.flowgauge.ip_length });
    }

    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) dns_id;

    action use_dns_id() {
        begin = dns_id.get({ 16w0, hdr.dns.id });
    }

    action use_echo_token() {
        begin = hdr.echo.token;
    }

    action set_segment_tokens() {
        asked_token = begin + beyond;
        answered_token = hdr.tcp.acknowledgement;
    }

    action set_syn_tokens() {
        asked_token = begin;
        answered_token = hdr.tcp.acknowledgement;
    }

    action set_tokens() {
        asked_token = begin;
        answered_token = begin;
    }

    action set_timestamps() {
        asked_token = hdr.tcp_timestamps.sent;
        answered_token = hdr.tcp_timestamps.echoed;
    }

    FLOWGAUGE_POLYNOMIAL(polynomial);
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) ipv4_src_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) ipv4_dst_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) ipv6_src_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) ipv6_dst_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) asked_token_crc;
    Hash<bit<32>>(HashAlgorithm_t.CUSTOM, polynomial) answered_token_crc;

    action hash_ipv4_src() {
        md.flowgauge.delayed.src = ipv4_src_crc.get({ hdr.ipv4.src_addr, md.flowgauge.src_port });
    }

    action hash_ipv4_dst() {
        md.flowgauge.delayed.dst = ipv4_dst_crc.get({ hdr.ipv4.dst_addr, md.flowgauge.dst_port });
    }

    action hash_ipv6_src() {
        md.flowgauge.delayed.src = ipv6_src_crc.get({ hdr.ipv6.src_addr, md.flowgauge.src_port });
    }

    action hash_ipv6_dst() {
        md.flowgauge.delayed.dst = ipv6_dst_crc.get({ hdr.ipv6.dst_addr, md.flowgauge.dst_port });
    }

    action hash_asked_token() {
        asked_crc = asked_token_crc.get({ asked_token });
    }

    action hash_answered_token() {
        answered_crc = answered_token_crc.get({ answered_token });
    }

    // The sign selects the table of requests of this direction.
    action subtract() {
        forth = md.flowgauge.delayed.src - md.flowgauge.delayed.dst;
        back = md.flowgauge.delayed.dst - md.flowgauge.delayed.src;
    }

    table differences {
        actions = { subtract; }
        const default_action = subtract();
        size = 1;
    }

    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_asked;
    Hash<bit<32>>(HashAlgorithm_t.XOR32) xor_answered;
    bit<32> first;
    bit<32> second;

    action take_in_order() {
        first = md.flowgauge.delayed.src;
        second = md.flowgauge.delayed.dst;
    }

    action take_in_reverse() {
        first = md.flowgauge.delayed.dst;
        second = md.flowgauge.delayed.src;
    }

    // Connections are identified by both ends in one order, other requests by the order of their
    // packet.
    action sign_asked() {
        if (FLOWGAUGE_DELAY_TCP_DURATION == 1) {
            md.flowgauge.asked.signature = xor_asked.get({
                first, second[15:0], second[31:16], asked_crc[7:0], asked_crc[31:8] });
        } else {
            md.flowgauge.asked.signature = xor_asked.get({
                md.flowgauge.delayed.src, md.flowgauge.delayed.dst[15:0],
                md.flowgauge.delayed.dst[31:16], asked_crc[7:0], asked_crc[31:8] });
        }
    }

    action sign_answered() {
        if (FLOWGAUGE_DELAY_TCP_DURATION == 1) {
            md.flowgauge.answered.signature = xor_answered.get({
                first, second[15:0], second[31:16], answered_crc[7:0], answered_crc[31:8] });
        } else {
            md.flowgauge.answered.signature = xor_answered.get({
                md.flowgauge.delayed.dst, md.flowgauge.delayed.src[15:0],
                md.flowgauge.delayed.src[31:16], answered_crc[7:0], answered_crc[31:8] });
        }
    }
