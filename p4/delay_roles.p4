// Part of FlowgaugeDelay: whether a packet is a request, an answer, both or neither, and its kind.

    // Request and answer of each kind. A request may keep the time of its first packet. A build's
    // table of roles has those of its kinds.
    @noWarn("unused")
    action ask_tcp_handshake() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_HANDSHAKE;
        md.flowgauge.keeps_first = 1;
    }

    @noWarn("unused")
    action answer_tcp_handshake() {
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_HANDSHAKE;
    }

    @noWarn("unused")
    action ask_tcp_data() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_DATA;
        md.flowgauge.keeps_first = 1;
    }

    @noWarn("unused")
    action answer_tcp_data() {
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_DATA;
    }

    @noWarn("unused")
    action ask_tcp_duration() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_DURATION;
        md.flowgauge.keeps_first = 0;
    }

    @noWarn("unused")
    action answer_tcp_duration() {
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_DURATION;
    }

    @noWarn("unused")
    action ask_tcp_timestamps() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_TIMESTAMPS;
        md.flowgauge.keeps_first = 1;
    }

    @noWarn("unused")
    action answer_tcp_timestamps() {
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_TIMESTAMPS;
    }

    @noWarn("unused")
    action ask_quic_spin() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_QUIC_SPIN;
        md.flowgauge.keeps_first = 0;
    }

    @noWarn("unused")
    action answer_quic_spin() {
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_QUIC_SPIN;
    }

    @noWarn("unused")
    action ask_dns() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_DNS;
        md.flowgauge.keeps_first = 0;
    }

    @noWarn("unused")
    action answer_dns() {
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_DNS;
    }

    @noWarn("unused")
    action ask_icmp() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_ICMP;
        md.flowgauge.keeps_first = 0;
    }

    @noWarn("unused")
    action answer_icmp() {
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_ICMP;
    }

    @noWarn("unused")
    action ask_and_answer_tcp_data() {
        md.flowgauge.asked.is_one = 1;
        md.flowgauge.answered.is_one = 1;
        md.flowgauge.delay_kind = FLOWGAUGE_DELAY_RANK_OF_TCP_DATA;
        md.flowgauge.keeps_first = 1;
    }

    action skip() {}

#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
    // A pure acknowledgement is not answered at once. Zero is no timestamp. If the headers are
    // longer than the packet, the payload is negative: a large number, while the length is small.
    table roles {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.tcp_timestamps.isValid() : ternary @name("timestamps");
            hdr.tcp_timestamps.sent : ternary @name("sent");
            hdr.tcp.flags : ternary @name("flags");
            payload : ternary @name("payload");
            beyond : ternary @name("length");
        }
        actions = {
            ask_tcp_timestamps;
            skip;
        }
        const entries = {
            (0, _, _, _, _, _): skip();
            (_, false, _, _, _, _): skip();
            (_, _, 0, _, _, _): skip();
            (_, _, _, TCP_SYN &&& (TCP_SYN + TCP_RST), _, _): ask_tcp_timestamps();
            (_, _, _, TCP_FIN &&& (TCP_FIN + TCP_RST), _, _): ask_tcp_timestamps();
            (_, _, _, _, 0, _): skip();
            (_, _, _, _, 0x8000 &&& 0x8000, 0 &&& 0x8000): skip();
            (_, _, _, _, _, _): ask_tcp_timestamps();
        }
        const default_action = skip();
        size = 16;
    }
#elif FLOWGAUGE_DELAY_QUIC_SPIN
    // A short header starts with the bits 01.
    table roles {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.quic.isValid() : ternary @name("quic");
            hdr.quic.form : ternary @name("form");
        }
        actions = {
            ask_quic_spin;
            skip;
        }
        const entries = {
            (0, _, _): skip();
            (_, true, 1): ask_quic_spin();
        }
        const default_action = skip();
        size = 4;
    }
#else
    // If the headers are longer than the packet, the payload is negative: a large number, while the
    // length is small.
    table roles {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.tcp.isValid() : ternary @name("tcp");
            hdr.dns.isValid() : ternary @name("dns");
            hdr.echo.isValid() : ternary @name("echo");
            hdr.tcp.flags : ternary @name("flags");
            payload : ternary @name("payload");
            beyond : ternary @name("length");
            forth[31:31] : ternary @name("forth");
            back[31:31] : ternary @name("back");
            hdr.dns.flags : ternary @name("dns_flags");
            hdr.udp.src_port : ternary @name("src_port");
            hdr.echo.kind : ternary @name("kind");
        }
        actions = {
#if FLOWGAUGE_DELAY_TCP_HANDSHAKE
            ask_tcp_handshake;
            answer_tcp_handshake;
#endif
#if FLOWGAUGE_DELAY_TCP_DATA
            ask_tcp_data;
            answer_tcp_data;
            ask_and_answer_tcp_data;
#endif
#if FLOWGAUGE_DELAY_TCP_DURATION
            ask_tcp_duration;
            answer_tcp_duration;
#endif
#if FLOWGAUGE_DELAY_DNS
            ask_dns;
            answer_dns;
#endif
#if FLOWGAUGE_DELAY_ICMP
            ask_icmp;
            answer_icmp;
#endif
            skip;
        }
        const entries = {
            (0, _, _, _, _, _, _, _, _, _, _, _): skip();
#if FLOWGAUGE_DELAY_TCP_HANDSHAKE
            (1, true, _, _, TCP_SYN &&& (TCP_SYN + TCP_ACK + TCP_FIN + TCP_RST), _, _, _, _, _, _, _):
                ask_tcp_handshake();
            (1, true, _, _, (TCP_SYN + TCP_ACK) &&& (TCP_SYN + TCP_ACK + TCP_FIN + TCP_RST), _, _, _, _, _, _, _):
                answer_tcp_handshake();
#endif
#if FLOWGAUGE_DELAY_TCP_DATA
            (1, true, _, _, TCP_SYN &&& TCP_SYN, _, _, _, _, _, _, _): skip();
            (1, true, _, _, TCP_RST &&& TCP_RST, _, _, _, _, _, _, _): skip();
            (1, true, _, _, TCP_ACK &&& TCP_ACK, 0, _, _, _, _, _, _): answer_tcp_data();
            (1, true, _, _, TCP_ACK &&& TCP_ACK, 0x8000 &&& 0x8000, 0 &&& 0x8000, _, _, _, _, _):
                answer_tcp_data();
            (1, true, _, _, _, 0, _, _, _, _, _, _): skip();
            (1, true, _, _, _, 0x8000 &&& 0x8000, 0 &&& 0x8000, _, _, _, _, _): skip();
            // A packet to its own sender finds request and answer in one table: it only asks.
            (1, true, _, _, TCP_ACK &&& TCP_ACK, _, _, 0, 0, _, _, _): ask_tcp_data();
            (1, true, _, _, TCP_ACK &&& TCP_ACK, _, _, 1, 1, _, _, _): ask_tcp_data();
            (1, true, _, _, TCP_ACK &&& TCP_ACK, _, _, _, _, _, _, _): ask_and_answer_tcp_data();
            (1, true, _, _, _, _, _, _, _, _, _, _): ask_tcp_data();
#endif
#if FLOWGAUGE_DELAY_TCP_DURATION
            (1, true, _, _, TCP_SYN &&& (TCP_SYN + TCP_ACK + TCP_FIN + TCP_RST), _, _, _, _, _, _, _):
                ask_tcp_duration();
            (1, true, _, _, TCP_FIN &&& (TCP_SYN + TCP_FIN), _, _, _, _, _, _, _):
                answer_tcp_duration();
            (1, true, _, _, TCP_RST &&& (TCP_SYN + TCP_RST), _, _, _, _, _, _, _):
                answer_tcp_duration();
#endif
#if FLOWGAUGE_DELAY_DNS
            (1, _, true, _, _, _, _, _, _, 0 &&& DNS_ANSWER, _, _): ask_dns();
            (1, _, true, _, _, _, _, _, _, DNS_ANSWER &&& DNS_ANSWER, UDP_PORT_DNS, _):
                answer_dns();
#endif
#if FLOWGAUGE_DELAY_ICMP
            (1, _, _, true, _, _, _, _, _, _, _, ICMP_ECHO_REQUEST): ask_icmp();
            (1, _, _, true, _, _, _, _, _, _, _, ICMPV6_ECHO_REQUEST): ask_icmp();
            (1, _, _, true, _, _, _, _, _, _, _, _): answer_icmp();
#endif
        }
        const default_action = skip();
        size = 32;
    }
#endif

    // A packet to its own sender finds request and answer in one table: it only asks. Only for
    // timestamps.
    table answers {
        key = {
            md.flowgauge.sound : ternary @name("sound");
            hdr.tcp_timestamps.isValid() : ternary @name("timestamps");
            hdr.tcp_timestamps.echoed : ternary @name("echoed");
            hdr.tcp.flags : ternary @name("flags");
            md.flowgauge.asked.is_one : ternary @name("asks");
            forth[31:31] : ternary @name("forth");
            back[31:31] : ternary @name("back");
        }
        actions = {
            answer_tcp_timestamps;
            skip;
        }
        const entries = {
            (0, _, _, _, _, _, _): skip();
            (_, false, _, _, _, _, _): skip();
            (_, _, 0, _, _, _, _): skip();
            (_, _, _, _, 1, 0, 0): skip();
            (_, _, _, _, 1, 1, 1): skip();
            (_, _, _, TCP_ACK &&& (TCP_ACK + TCP_RST), _, _, _): answer_tcp_timestamps();
        }
        const default_action = skip();
        size = 8;
    }
