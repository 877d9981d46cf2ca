// Part of FlowgaugeDelay: whether a packet is a request, an answer, both or neither, and its kind.

    FLOWGAUGE_DELAY_ACTIONS(tcp_handshake, FLOWGAUGE_DELAY_RANK_OF_TCP_HANDSHAKE, 1)
    FLOWGAUGE_DELAY_ACTIONS(tcp_data, FLOWGAUGE_DELAY_RANK_OF_TCP_DATA, 1)
    FLOWGAUGE_DELAY_ACTIONS(tcp_duration, FLOWGAUGE_DELAY_RANK_OF_TCP_DURATION, 0)
    FLOWGAUGE_DELAY_ACTIONS(tcp_timestamps, FLOWGAUGE_DELAY_RANK_OF_TCP_TIMESTAMPS, 1)
    FLOWGAUGE_DELAY_ACTIONS(quic_spin, FLOWGAUGE_DELAY_RANK_OF_QUIC_SPIN, 0)
    FLOWGAUGE_DELAY_ACTIONS(dns, FLOWGAUGE_DELAY_RANK_OF_DNS, 0)
    FLOWGAUGE_DELAY_ACTIONS(icmp, FLOWGAUGE_DELAY_RANK_OF_ICMP, 0)

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
