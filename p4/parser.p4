// Parser of headers and, for five-tuples, ports. Starts at the first byte of the Ethernet header.
//
// Only the fields of flow keys are read, and nothing behind the network header can reject a packet,
// so that the class of a packet never depends on the key. Tunnels and MPLS are not decoded: the
// outermost network header counts.
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

#define DNS_PORT 53
#define QUIC_PORT 443
#define ICMP_ECHO_REPLY 0
#define ICMP_ECHO_REQUEST 8
#define ICMPV6_ECHO_REQUEST 128
#define ICMPV6_ECHO_REPLY 129

// Places where Linux, the BSDs and macOS put timestamps: first option after two that pad; in the
// SYN of Linux after MSS and SACK permitted; in that of the others after MSS, window scale and
// padding. The TCP header must be long enough: one of eight words has twelve bytes of options, one
// of nine has sixteen. The chip compares 32 bits per state, so each length has states of its own.
#define TCP_OPTIONS_PADDED_TIMESTAMPS 0x0101080a
#define TCP_OPTION_MSS 0x02040000
#define TCP_OPTIONS_SACK_TIMESTAMPS 0x0402080a
#define TCP_OPTIONS_WINDOW_SCALE 0x01030300

// IPv6 extension header of 8 bytes and what may follow it. Headers are read by lookahead before
// they are extracted: the chip's compiler requires a stored value to come from one place in the
// packet. Every path assigns the protocol once: Tofino 1 would combine a second value with the
// first by OR. A longer header, a later fragment and the last supported header end the walk with
// the protocol that they name, without ports.
//
// The states are macros, since p4c does not support a loop of states with lookahead: it unrolls one
// round more than the stack has elements, and then reports "Ran out of parser match registers". A
// parser with a constructor parameter instead of `index` has one exit; these have four.
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

// Extracts one extension header and continues with the next.
#define IPV6_NEXT_EXTENSION_STATES(index, next) \
    state extension_behind##index { \
        packet.extract(hdr.ipv6_extension[index]); \
        transition extension##next; \
    } \
    state fragment_behind##index { \
        packet.extract(hdr.ipv6_extension[index]); \
        transition fragment##next; \
    }

// Length in the network header, stored in one field for both versions.
#if FLOWGAUGE_DELAY_TCP_DATA || FLOWGAUGE_DELAY_TCP_TIMESTAMPS
#define FLOWGAUGE_KEEP_LENGTH(length) md.flowgauge.ip_length = length;
#else
#define FLOWGAUGE_KEEP_LENGTH(length)
#endif

parser FlowgaugeParser(packet_in packet, inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    // Number of tags, and then of words of options, that may still follow.
    ParserCounter() left;

    state start {
        left.set(8w4);
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHER_TYPE_VLAN: vlan_tag;
            ETHER_TYPE_SERVICE_VLAN: vlan_tag;
            ETHER_TYPE_OLD_QINQ: vlan_tag;
            ETHER_TYPE_IPV4: ipv4;
            ETHER_TYPE_IPV6: ipv6;
            default: accept;
        }
    }

    state vlan_tag {
        packet.extract(hdr.vlan_tag.next);
        left.decrement(1);
        transition select(left.is_zero(), hdr.vlan_tag.last.ether_type) {
            (false, ETHER_TYPE_VLAN): vlan_tag;
            (false, ETHER_TYPE_SERVICE_VLAN): vlan_tag;
            (false, ETHER_TYPE_OLD_QINQ): vlan_tag;
            (_, ETHER_TYPE_IPV4): ipv4;
            (_, ETHER_TYPE_IPV6): ipv6;
            default: accept;
        }
    }

    // Delays and reordering need the header behind the network header, if that has no options and
    // no extensions.
#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER
    // Hosts reject a segment whose header length is less than five words (RFC 9293 section 3.1).
    state tcp {
#if FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE)
        md.flowgauge.ports = packet.lookahead<bit<32>>();
#endif
        tcp_h next = packet.lookahead<tcp_h>();
        transition select(next.data_offset) {
            0 &&& 0xc: accept;
            4: accept;
            default: tcp_header;
        }
    }

    state tcp_header {
        packet.extract(hdr.tcp);
#if FLOWGAUGE_DELAY
        md.flowgauge.src_port = hdr.tcp.src_port;
        md.flowgauge.dst_port = hdr.tcp.dst_port;
#endif
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
        transition select(hdr.tcp.data_offset) {
            8: options_of_twelve;
            9: options_of_sixteen;
            8 &&& 8: options;
            default: accept;
        }
#else
        transition accept;
#endif
    }

#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
    state options_of_twelve {
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_PADDED_TIMESTAMPS: timestamps_behind_padding;
            default: accept;
        }
    }

    state options_of_sixteen {
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_PADDED_TIMESTAMPS: timestamps_behind_padding;
            TCP_OPTION_MSS &&& 0xffff0000: behind_mss_of_sixteen;
            default: accept;
        }
    }

    state options {
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_PADDED_TIMESTAMPS: timestamps_behind_padding;
            TCP_OPTION_MSS &&& 0xffff0000: behind_mss;
            default: accept;
        }
    }

    state timestamps_behind_padding {
        packet.extract(hdr.tcp_options[0]);
        packet.extract(hdr.tcp_timestamps);
        transition accept;
    }

    state behind_mss_of_sixteen {
        packet.extract(hdr.tcp_options[0]);
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_SACK_TIMESTAMPS: timestamps_behind_sack;
            default: accept;
        }
    }

    state behind_mss {
        packet.extract(hdr.tcp_options[0]);
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_SACK_TIMESTAMPS: timestamps_behind_sack;
            TCP_OPTIONS_WINDOW_SCALE &&& 0xffffff00: behind_window_scale;
            default: accept;
        }
    }

    state timestamps_behind_sack {
        packet.extract(hdr.tcp_options[1]);
        packet.extract(hdr.tcp_timestamps);
        transition accept;
    }

    state behind_window_scale {
        packet.extract(hdr.tcp_options[1]);
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_PADDED_TIMESTAMPS: timestamps_behind_window_scale;
            default: accept;
        }
    }

    state timestamps_behind_window_scale {
        packet.extract(hdr.tcp_options[2]);
        packet.extract(hdr.tcp_timestamps);
        transition accept;
    }
#endif

#if FLOWGAUGE_DELAY
    state udp {
#if FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE)
        md.flowgauge.ports = packet.lookahead<bit<32>>();
#endif
        packet.extract(hdr.udp);
        md.flowgauge.src_port = hdr.udp.src_port;
        md.flowgauge.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.src_port, hdr.udp.dst_port) {
            (DNS_PORT, _): dns;
            (_, DNS_PORT): dns;
#if FLOWGAUGE_DELAY_QUIC_SPIN
            (QUIC_PORT, _): quic;
            (_, QUIC_PORT): quic;
#endif
            default: accept;
        }
    }

#if FLOWGAUGE_DELAY_QUIC_SPIN
    state quic {
        packet.extract(hdr.quic);
        transition accept;
    }
#endif

    state dns {
        packet.extract(hdr.dns);
        transition accept;
    }

    state icmp {
        echo_h next = packet.lookahead<echo_h>();
        transition select(next.kind, next.code) {
            (ICMP_ECHO_REQUEST, 0): echo;
            (ICMP_ECHO_REPLY, 0): echo;
            default: accept;
        }
    }

    state icmpv6 {
        echo_h next = packet.lookahead<echo_h>();
        transition select(next.kind, next.code) {
            (ICMPV6_ECHO_REQUEST, 0): echo;
            (ICMPV6_ECHO_REPLY, 0): echo;
            default: accept;
        }
    }

    state echo {
        packet.extract(hdr.echo);
        transition accept;
    }
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
            6: ipv4_options1;
            7: ipv4_options2;
            8: ipv4_options3;
            9: ipv4_options4;
            10: ipv4_options5;
            11: ipv4_options6;
            12: ipv4_options7;
            13: ipv4_options8;
            14: ipv4_options9;
            15: ipv4_options10;
            default: accept;
        }
    }

    // As many words of options as the header says. The counter could be set to a field, but the
    // chip does not specify when it reads that.
    state ipv4_options1 {
        left.set(8w1);
        transition ipv4_option;
    }

    state ipv4_options2 {
        left.set(8w2);
        transition ipv4_option;
    }

    state ipv4_options3 {
        left.set(8w3);
        transition ipv4_option;
    }

    state ipv4_options4 {
        left.set(8w4);
        transition ipv4_option;
    }

    state ipv4_options5 {
        left.set(8w5);
        transition ipv4_option;
    }

    state ipv4_options6 {
        left.set(8w6);
        transition ipv4_option;
    }

    state ipv4_options7 {
        left.set(8w7);
        transition ipv4_option;
    }

    state ipv4_options8 {
        left.set(8w8);
        transition ipv4_option;
    }

    state ipv4_options9 {
        left.set(8w9);
        transition ipv4_option;
    }

    state ipv4_options10 {
        left.set(8w10);
        transition ipv4_option;
    }

    state ipv4_option {
        packet.extract(hdr.ipv4_option.next);
        left.decrement(1);
        transition select(left.is_zero()) {
            true: ports;
            default: ipv4_option;
        }
    }

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
