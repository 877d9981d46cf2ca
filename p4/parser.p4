// From a frame to headers and, for five-tuples, ports. Starts at the first byte of the Ethernet header.
//
// Only what flow keys need is read, and nothing behind the network header can reject a packet, so that a packet's class never
// depends on the key in use. Tunnels and MPLS are not opened: the outermost network header counts.
#ifndef FLOWGAUGE_PARSER_P4
#define FLOWGAUGE_PARSER_P4

#include "headers.p4"

#define ETHER_TYPE_IPV4 0x0800
#define ETHER_TYPE_VLAN 0x8100
#define ETHER_TYPE_IPV6 0x86dd
#define ETHER_TYPE_SERVICE_VLAN 0x88a8
#define ETHER_TYPE_OLD_QINQ 0x9100

#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_ICMP 1
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_ICMPV6 58
#define PROTOCOL_DESTINATION_OPTIONS 60
#define PROTOCOL_SCTP 132
#define PROTOCOL_MOBILITY 135
#define PROTOCOL_UDP_LITE 136
#define PROTOCOL_HIP 139
#define PROTOCOL_SHIM6 140

// One VLAN tag and what may follow it.
#define VLAN_TAG_STATE(index, following) \
    state vlan_tag##index { \
        packet.extract(hdr.vlan_tag[index]); \
        transition select(hdr.vlan_tag[index].ether_type) { \
            ETHER_TYPE_VLAN: following; \
            ETHER_TYPE_SERVICE_VLAN: following; \
            ETHER_TYPE_OLD_QINQ: following; \
            ETHER_TYPE_IPV4: ipv4; \
            ETHER_TYPE_IPV6: ipv6; \
            default: accept; \
        } \
    }

// The ports of an IPv4 packet with options, read without taking the options out of the packet. `bits` is the length of what
// lies between, and of the ports.
#define IPV4_OPTIONS_STATE(ihl, bits) \
    state ports_behind_ihl##ihl { \
        md.flowgauge.ports = packet.lookahead<bit<bits>>()[31:0]; \
        transition accept; \
    }

#define IPV4_LONG_OPTIONS_STATE(ihl, bits) \
    state ports_behind_ihl##ihl { \
        packet.extract(hdr.ipv4_options); \
        transition ports_behind_rest_of_ihl##ihl; \
    } \
    state ports_behind_rest_of_ihl##ihl { \
        md.flowgauge.ports = packet.lookahead<bit<bits>>()[31:0]; \
        transition accept; \
    }

// An IPv6 extension header of 8 bytes and what may follow it. Headers are looked at before they are taken out of the packet: the
// chip's compiler wants a value that is kept to come from one place in the packet. Every path assigns the protocol once: Tofino 1
// would combine a second value with the first by OR. A longer header, a later fragment and the last header that is followed end
// the walk with the protocol that they name, without ports.
#define IPV6_EXTENSION_STATES(index, extension_follows, fragment_follows) \
    state extension##index { \
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>(); \
        transition select(next.length, next.next_header) { \
            (0, PROTOCOL_HOP_BY_HOP): extension_follows; \
            (0, PROTOCOL_ROUTING): extension_follows; \
            (0, PROTOCOL_DESTINATION_OPTIONS): extension_follows; \
            (0, PROTOCOL_MOBILITY): extension_follows; \
            (0, PROTOCOL_HIP): extension_follows; \
            (0, PROTOCOL_SHIM6): extension_follows; \
            (0, PROTOCOL_FRAGMENT): fragment_follows; \
            (0, _): behind_extension##index; \
            default: last_extension##index; \
        } \
    } \
    state fragment##index { \
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>(); \
        transition select(next.fragment_offset, next.next_header) { \
            (0, PROTOCOL_HOP_BY_HOP): extension_follows; \
            (0, PROTOCOL_ROUTING): extension_follows; \
            (0, PROTOCOL_DESTINATION_OPTIONS): extension_follows; \
            (0, PROTOCOL_MOBILITY): extension_follows; \
            (0, PROTOCOL_HIP): extension_follows; \
            (0, PROTOCOL_SHIM6): extension_follows; \
            (0, PROTOCOL_FRAGMENT): fragment_follows; \
            (0, _): behind_extension##index; \
            default: last_extension##index; \
        } \
    } \
    state behind_extension##index { \
        md.flowgauge.protocol = packet.lookahead<bit<8>>(); \
        packet.extract(hdr.ipv6_extension[index]); \
        transition select(hdr.ipv6_extension[index].next_header) { \
            PROTOCOL_TCP: ports; \
            PROTOCOL_UDP: ports; \
            PROTOCOL_SCTP: ports; \
            PROTOCOL_UDP_LITE: ports; \
            default: accept; \
        } \
    } \
    state last_extension##index { \
        md.flowgauge.protocol = packet.lookahead<bit<8>>(); \
        transition accept; \
    }

// Takes one extension header out of the packet and goes on with the next.
#define IPV6_NEXT_EXTENSION_STATES(index, next) \
    state extension_behind##index { \
        packet.extract(hdr.ipv6_extension[index]); \
        transition extension##next; \
    } \
    state fragment_behind##index { \
        packet.extract(hdr.ipv6_extension[index]); \
        transition fragment##next; \
    }

// The length that the network header gives, in one place for both versions.
#if FLOWGAUGE_DELAY_TCP_DATA || FLOWGAUGE_DELAY_TCP_TIMESTAMPS
#define FLOWGAUGE_KEEP_LENGTH(length) md.flowgauge.ip_length = length;
#else
#define FLOWGAUGE_KEEP_LENGTH(length)
#endif

// Delays and reordering need what is behind the network header, if that has no options and no extensions.
#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER
#if FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE)
#define FLOWGAUGE_KEEP_PORTS md.flowgauge.ports = packet.lookahead<bit<32>>();
#else
#define FLOWGAUGE_KEEP_PORTS
#endif
#if FLOWGAUGE_DELAY
#define FLOWGAUGE_KEEP_TCP_PORTS md.flowgauge.src_port = hdr.tcp.src_port; md.flowgauge.dst_port = hdr.tcp.dst_port;
#else
#define FLOWGAUGE_KEEP_TCP_PORTS
#endif
// No host takes a segment whose header says less than five words (RFC 9293 section 3.1).
#define FLOWGAUGE_SHORT_TCP_STATE \
    state tcp { \
        FLOWGAUGE_KEEP_PORTS \
        tcp_h next = packet.lookahead<tcp_h>(); \
        transition select(next.data_offset) { \
            0 &&& 0xc: accept; \
            4: accept; \
            default: tcp_header; \
        } \
    }
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
// Where Linux, the BSDs and macOS put timestamps: first of all options behind two that pad; in the SYN of Linux behind MSS and SACK
// permitted; in that of the others behind MSS, window scale and padding. A TCP header has to be long enough for them: one of eight words
// has twelve bytes of options, one of nine has sixteen. The chip compares 32 bits in a state, so that each length has states of its own.
#define TCP_OPTIONS_PADDED_TIMESTAMPS 0x0101080a
#define TCP_OPTION_MSS 0x02040000
#define TCP_OPTIONS_SACK_TIMESTAMPS 0x0402080a
#define TCP_OPTIONS_WINDOW_SCALE 0x01030300
#define FLOWGAUGE_TCP_STATE \
    FLOWGAUGE_SHORT_TCP_STATE \
    state tcp_header { \
        packet.extract(hdr.tcp); \
        FLOWGAUGE_KEEP_TCP_PORTS \
        transition select(hdr.tcp.data_offset) { \
            8: options_of_twelve; \
            9: options_of_sixteen; \
            8 &&& 8: options; \
            default: accept; \
        } \
    } \
    state options_of_twelve { \
        tcp_options_h next = packet.lookahead<tcp_options_h>(); \
        transition select(next.octets) { \
            TCP_OPTIONS_PADDED_TIMESTAMPS: timestamps_behind_padding; \
            default: accept; \
        } \
    } \
    state options_of_sixteen { \
        tcp_options_h next = packet.lookahead<tcp_options_h>(); \
        transition select(next.octets) { \
            TCP_OPTIONS_PADDED_TIMESTAMPS: timestamps_behind_padding; \
            TCP_OPTION_MSS &&& 0xffff0000: behind_mss_of_sixteen; \
            default: accept; \
        } \
    } \
    state options { \
        tcp_options_h next = packet.lookahead<tcp_options_h>(); \
        transition select(next.octets) { \
            TCP_OPTIONS_PADDED_TIMESTAMPS: timestamps_behind_padding; \
            TCP_OPTION_MSS &&& 0xffff0000: behind_mss; \
            default: accept; \
        } \
    } \
    state timestamps_behind_padding { \
        packet.extract(hdr.tcp_options[0]); \
        packet.extract(hdr.tcp_timestamps); \
        transition accept; \
    } \
    state behind_mss_of_sixteen { \
        packet.extract(hdr.tcp_options[0]); \
        tcp_options_h next = packet.lookahead<tcp_options_h>(); \
        transition select(next.octets) { \
            TCP_OPTIONS_SACK_TIMESTAMPS: timestamps_behind_sack; \
            default: accept; \
        } \
    } \
    state behind_mss { \
        packet.extract(hdr.tcp_options[0]); \
        tcp_options_h next = packet.lookahead<tcp_options_h>(); \
        transition select(next.octets) { \
            TCP_OPTIONS_SACK_TIMESTAMPS: timestamps_behind_sack; \
            TCP_OPTIONS_WINDOW_SCALE &&& 0xffffff00: behind_window_scale; \
            default: accept; \
        } \
    } \
    state timestamps_behind_sack { \
        packet.extract(hdr.tcp_options[1]); \
        packet.extract(hdr.tcp_timestamps); \
        transition accept; \
    } \
    state behind_window_scale { \
        packet.extract(hdr.tcp_options[1]); \
        tcp_options_h next = packet.lookahead<tcp_options_h>(); \
        transition select(next.octets) { \
            TCP_OPTIONS_PADDED_TIMESTAMPS: timestamps_behind_window_scale; \
            default: accept; \
        } \
    } \
    state timestamps_behind_window_scale { \
        packet.extract(hdr.tcp_options[2]); \
        packet.extract(hdr.tcp_timestamps); \
        transition accept; \
    }
#else
#define FLOWGAUGE_TCP_STATE \
    FLOWGAUGE_SHORT_TCP_STATE \
    state tcp_header { \
        packet.extract(hdr.tcp); \
        FLOWGAUGE_KEEP_TCP_PORTS \
        transition accept; \
    }
#endif
#endif

#if FLOWGAUGE_DELAY
#define DNS_PORT 53
#define ICMP_ECHO_REPLY 0
#define ICMP_ECHO_REQUEST 8
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129
#if FLOWGAUGE_DELAY_QUIC_SPIN
#define QUIC_PORT 443
#define FLOWGAUGE_QUIC_PORTS \
            (QUIC_PORT, _): quic; \
            (_, QUIC_PORT): quic;
#define FLOWGAUGE_QUIC_STATE \
    state quic { \
        packet.extract(hdr.quic); \
        transition accept; \
    }
#else
#define FLOWGAUGE_QUIC_PORTS
#define FLOWGAUGE_QUIC_STATE
#endif
#define FLOWGAUGE_CONVERSATION_STATES \
    FLOWGAUGE_TCP_STATE \
    state udp { \
        FLOWGAUGE_KEEP_PORTS \
        packet.extract(hdr.udp); \
        md.flowgauge.src_port = hdr.udp.src_port; \
        md.flowgauge.dst_port = hdr.udp.dst_port; \
        transition select(hdr.udp.src_port, hdr.udp.dst_port) { \
            (DNS_PORT, _): dns; \
            (_, DNS_PORT): dns; \
            FLOWGAUGE_QUIC_PORTS \
            default: accept; \
        } \
    } \
    FLOWGAUGE_QUIC_STATE \
    state dns { \
        packet.extract(hdr.dns); \
        transition accept; \
    } \
    state icmp { \
        echo_h next = packet.lookahead<echo_h>(); \
        transition select(next.kind, next.code) { \
            (ICMP_ECHO_REQUEST, 0): echo; \
            (ICMP_ECHO_REPLY, 0): echo; \
            default: accept; \
        } \
    } \
    state icmpv6 { \
        echo_h next = packet.lookahead<echo_h>(); \
        transition select(next.kind, next.code) { \
            (ICMPV6_ECHO_REQUEST, 0): echo; \
            (ICMPV6_ECHO_REPLY, 0): echo; \
            default: accept; \
        } \
    } \
    state echo { \
        packet.extract(hdr.echo); \
        transition accept; \
    }
#endif

parser FlowgaugeParser(packet_in packet, inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHER_TYPE_VLAN: vlan_tag0;
            ETHER_TYPE_SERVICE_VLAN: vlan_tag0;
            ETHER_TYPE_OLD_QINQ: vlan_tag0;
            ETHER_TYPE_IPV4: ipv4;
            ETHER_TYPE_IPV6: ipv6;
            default: accept;
        }
    }

    VLAN_TAG_STATE(0, vlan_tag1)
    VLAN_TAG_STATE(1, vlan_tag2)
    VLAN_TAG_STATE(2, vlan_tag3)
    VLAN_TAG_STATE(3, accept)

#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER
#if FLOWGAUGE_DELAY
    FLOWGAUGE_CONVERSATION_STATES
#else
    FLOWGAUGE_TCP_STATE
#endif

    state ipv4 {
        packet.extract(hdr.ipv4);
        FLOWGAUGE_KEEP_LENGTH(hdr.ipv4.total_length)
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.ihl, hdr.ipv4.protocol) {
            (0, 5, PROTOCOL_TCP): tcp;
#if FLOWGAUGE_DELAY
            (0, 5, PROTOCOL_UDP): udp;
            (0, 5, PROTOCOL_ICMP): icmp;
            (0, 5, PROTOCOL_ICMPV6): icmpv6;
#endif
#if FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE)
            default: others_behind_ipv4;
#else
            default: accept;
#endif
        }
    }
#endif

#if !FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE)
#if FLOWGAUGE_DELAY
    state ipv6 {
        packet.extract(hdr.ipv6);
        FLOWGAUGE_KEEP_LENGTH(hdr.ipv6.payload_length)
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_TCP: tcp;
            PROTOCOL_UDP: udp;
            PROTOCOL_ICMP: icmp;
            PROTOCOL_ICMPV6: icmpv6;
            default: accept;
        }
    }
#else
    state ipv4 {
        packet.extract(hdr.ipv4);
        FLOWGAUGE_KEEP_LENGTH(hdr.ipv4.total_length)
        transition accept;
    }

    state ipv6 {
        packet.extract(hdr.ipv6);
        FLOWGAUGE_KEEP_LENGTH(hdr.ipv6.payload_length)
        transition accept;
    }
#endif
#else
#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER
    state others_behind_ipv4 {
#else
    state ipv4 {
        packet.extract(hdr.ipv4);
        FLOWGAUGE_KEEP_LENGTH(hdr.ipv4.total_length)
#endif
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, PROTOCOL_TCP): ipv4_ports;
            (0, PROTOCOL_UDP): ipv4_ports;
            (0, PROTOCOL_SCTP): ipv4_ports;
            (0, PROTOCOL_UDP_LITE): ipv4_ports;
            default: accept;
        }
    }

    state ipv4_ports {
        transition select(hdr.ipv4.ihl) {
            5: ports;
            6: ports_behind_ihl6;
            7: ports_behind_ihl7;
            8: ports_behind_ihl8;
            9: ports_behind_ihl9;
            10: ports_behind_ihl10;
            11: ports_behind_ihl11;
            12: ports_behind_ihl12;
            13: ports_behind_ihl13;
            14: ports_behind_ihl14;
            15: ports_behind_ihl15;
            default: accept;
        }
    }

    IPV4_OPTIONS_STATE(6, 64)
    IPV4_OPTIONS_STATE(7, 96)
    IPV4_OPTIONS_STATE(8, 128)
    IPV4_OPTIONS_STATE(9, 160)
    IPV4_OPTIONS_STATE(10, 192)
    IPV4_OPTIONS_STATE(11, 224)
#if FLOWGAUGE_REORDER
    // The chip's compiler splits this state, and then looks too far ahead.
    IPV4_LONG_OPTIONS_STATE(12, 128)
#else
    IPV4_OPTIONS_STATE(12, 256)
#endif
    IPV4_LONG_OPTIONS_STATE(13, 160)
    IPV4_LONG_OPTIONS_STATE(14, 192)
    IPV4_LONG_OPTIONS_STATE(15, 224)

    state ipv6 {
        packet.extract(hdr.ipv6);
        FLOWGAUGE_KEEP_LENGTH(hdr.ipv6.payload_length)
        transition select(hdr.ipv6.next_header) {
            PROTOCOL_HOP_BY_HOP: extension0;
            PROTOCOL_ROUTING: extension0;
            PROTOCOL_DESTINATION_OPTIONS: extension0;
            PROTOCOL_MOBILITY: extension0;
            PROTOCOL_HIP: extension0;
            PROTOCOL_SHIM6: extension0;
            PROTOCOL_FRAGMENT: fragment0;
            default: behind_ipv6;
        }
    }

    state behind_ipv6 {
        md.flowgauge.protocol = hdr.ipv6.next_header;
        transition select(hdr.ipv6.next_header) {
#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER
            PROTOCOL_TCP: tcp;
#else
            PROTOCOL_TCP: ports;
#endif
#if FLOWGAUGE_DELAY
            PROTOCOL_UDP: udp;
            PROTOCOL_ICMP: icmp;
            PROTOCOL_ICMPV6: icmpv6;
#else
            PROTOCOL_UDP: ports;
#endif
            PROTOCOL_SCTP: ports;
            PROTOCOL_UDP_LITE: ports;
            default: accept;
        }
    }

    IPV6_EXTENSION_STATES(0, extension_behind0, fragment_behind0)
    IPV6_NEXT_EXTENSION_STATES(0, 1)
    IPV6_EXTENSION_STATES(1, extension_behind1, fragment_behind1)
    IPV6_NEXT_EXTENSION_STATES(1, 2)
    IPV6_EXTENSION_STATES(2, extension_behind2, fragment_behind2)
    IPV6_NEXT_EXTENSION_STATES(2, 3)
    IPV6_EXTENSION_STATES(3, last_extension3, last_extension3)

    state ports {
        md.flowgauge.ports = packet.lookahead<bit<32>>();
        transition accept;
    }
#endif
}

#endif
