// Parser of headers and, for five-tuples, ports. Starts at the first byte of the Ethernet header.
//
// Only the fields of flow keys are read, and nothing behind the network header can reject a packet,
// so that the class of a packet never depends on the key. Tunnels and MPLS are not decoded: the
// outermost network header counts.

const bit<16> ETHERTYPE_IPV4 = 0x0800;
const bit<16> ETHERTYPE_VLAN = 0x8100;
const bit<16> ETHERTYPE_IPV6 = 0x86dd;
const bit<16> ETHERTYPE_SERVICE_VLAN = 0x88a8;
const bit<16> ETHERTYPE_OLD_QINQ = 0x9100;

const bit<8> IP_PROTOCOL_HOP_BY_HOP = 0;
const bit<8> IP_PROTOCOL_ICMP = 1;
const bit<8> IP_PROTOCOL_TCP = 6;
const bit<8> IP_PROTOCOL_UDP = 17;
const bit<8> IP_PROTOCOL_ROUTING = 43;
const bit<8> IP_PROTOCOL_FRAGMENT = 44;
const bit<8> IP_PROTOCOL_AUTHENTICATION = 51;
const bit<8> IP_PROTOCOL_ICMPV6 = 58;
const bit<8> IP_PROTOCOL_DESTINATION_OPTIONS = 60;
const bit<8> IP_PROTOCOL_SCTP = 132;
const bit<8> IP_PROTOCOL_MOBILITY = 135;
const bit<8> IP_PROTOCOL_UDP_LITE = 136;
const bit<8> IP_PROTOCOL_HIP = 139;
const bit<8> IP_PROTOCOL_SHIM6 = 140;

const bit<16> UDP_PORT_DNS = 53;
const bit<16> UDP_PORT_QUIC = 443;

const bit<8> ICMP_ECHO_REPLY = 0;
const bit<8> ICMP_ECHO_REQUEST = 8;
const bit<8> ICMPV6_ECHO_REQUEST = 128;
const bit<8> ICMPV6_ECHO_REPLY = 129;

// Places where Linux, the BSDs and macOS put timestamps: first option after two that pad; in the
// SYN of Linux after MSS and SACK permitted; in that of the others after MSS, window scale and
// padding. The TCP header must be long enough: one of eight words has twelve bytes of options, one
// of nine has sixteen. The chip compares 32 bits per state, so each length has states of its own.
const bit<32> TCP_OPTIONS_PADDED_TIMESTAMPS = 0x0101080a;
const bit<32> TCP_OPTION_MSS = 0x02040000;
const bit<32> TCP_OPTIONS_SACK_TIMESTAMPS = 0x0402080a;
const bit<32> TCP_OPTIONS_WINDOW_SCALE = 0x01030300;

// States of ports. Expressions also look at flags, and at no ports of UDP-Lite.
#if FLOWGAUGE_MATCH
#define FLOWGAUGE_TCP_PORTS parse_segment_ports
#define FLOWGAUGE_UDP_PORTS parse_known_ports
#define FLOWGAUGE_IPV4_PORTS parse_ports_of_ipv4
#else
#define FLOWGAUGE_TCP_PORTS parse_ports
#define FLOWGAUGE_UDP_PORTS parse_ports
#define FLOWGAUGE_IPV4_PORTS parse_ports
#endif

parser FlowgaugeParser(packet_in packet, inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    // Number of tags, and then of words of options, that may still follow.
    ParserCounter() left;

    state start {
        left.set(8w4);
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.ether_type) {
            ETHERTYPE_VLAN: parse_vlan_tag;
            ETHERTYPE_SERVICE_VLAN: parse_vlan_tag;
            ETHERTYPE_OLD_QINQ: parse_vlan_tag;
            ETHERTYPE_IPV4: parse_ipv4;
            ETHERTYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }

    state parse_vlan_tag {
        packet.extract(hdr.vlan_tag.next);
        left.decrement(1);
        transition select(left.is_zero(), hdr.vlan_tag.last.ether_type) {
            (false, ETHERTYPE_VLAN): parse_vlan_tag;
            (false, ETHERTYPE_SERVICE_VLAN): parse_vlan_tag;
            (false, ETHERTYPE_OLD_QINQ): parse_vlan_tag;
            (_, ETHERTYPE_IPV4): parse_ipv4;
            (_, ETHERTYPE_IPV6): parse_ipv6;
            default: accept;
        }
    }

    // A state to which no transition of a build leads is not in it, nor is what nothing reads.

    // IPv4. Delays and reordering need the header behind the network header, if that has no
    // options.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        md.flowgauge.ip_length = hdr.ipv4.total_length;
#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.ihl, hdr.ipv4.protocol) {
            (0, 5, IP_PROTOCOL_TCP): parse_tcp;
#if FLOWGAUGE_DELAY
            (0, 5, IP_PROTOCOL_UDP): parse_udp;
            (0, 5, IP_PROTOCOL_ICMP): parse_icmp;
            (0, 5, IP_PROTOCOL_ICMPV6): parse_icmpv6;
#endif
#if FLOWGAUGE_USES_TRANSPORT
            default: select_ipv4_ports;
#else
            default: accept;
#endif
        }
#elif FLOWGAUGE_USES_TRANSPORT
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, IP_PROTOCOL_TCP): parse_ipv4_ports;
            (0, IP_PROTOCOL_UDP): parse_ipv4_ports;
            (0, IP_PROTOCOL_SCTP): parse_ipv4_ports;
            (0, IP_PROTOCOL_UDP_LITE): parse_ipv4_ports;
            default: accept;
        }
#else
        transition accept;
#endif
    }

#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER || !FLOWGAUGE_USES_TRANSPORT
    state select_ipv4_ports {
        transition select(hdr.ipv4.fragment_offset, hdr.ipv4.protocol) {
            (0, IP_PROTOCOL_TCP): parse_ipv4_ports;
            (0, IP_PROTOCOL_UDP): parse_ipv4_ports;
            (0, IP_PROTOCOL_SCTP): parse_ipv4_ports;
            (0, IP_PROTOCOL_UDP_LITE): parse_ipv4_ports;
            default: accept;
        }
    }
#endif

    state parse_ipv4_ports {
        transition select(hdr.ipv4.ihl) {
            5: FLOWGAUGE_IPV4_PORTS;
            6: parse_ipv4_options1;
            7: parse_ipv4_options2;
            8: parse_ipv4_options3;
            9: parse_ipv4_options4;
            10: parse_ipv4_options5;
            11: parse_ipv4_options6;
            12: parse_ipv4_options7;
            13: parse_ipv4_options8;
            14: parse_ipv4_options9;
            15: parse_ipv4_options10;
            default: accept;
        }
    }

    // As many words of options as the header says. The counter could be set to a field, but the
    // chip does not specify when it reads that.
    state parse_ipv4_options1 {
        left.set(8w1);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options2 {
        left.set(8w2);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options3 {
        left.set(8w3);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options4 {
        left.set(8w4);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options5 {
        left.set(8w5);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options6 {
        left.set(8w6);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options7 {
        left.set(8w7);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options8 {
        left.set(8w8);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options9 {
        left.set(8w9);
        transition parse_ipv4_option;
    }

    state parse_ipv4_options10 {
        left.set(8w10);
        transition parse_ipv4_option;
    }

    state parse_ipv4_option {
        packet.extract(hdr.ipv4_option.next);
        left.decrement(1);
        transition select(left.is_zero()) {
            true: FLOWGAUGE_IPV4_PORTS;
            default: parse_ipv4_option;
        }
    }

    // IPv6. Five-tuples and expressions need the header behind extension headers, delays by other
    // keys only one that follows the network header.
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        md.flowgauge.ip_length = hdr.ipv6.payload_length;
#if FLOWGAUGE_USES_TRANSPORT
        transition select(hdr.ipv6.next_header) {
            IP_PROTOCOL_HOP_BY_HOP: parse_extension0;
            IP_PROTOCOL_ROUTING: parse_extension0;
            IP_PROTOCOL_DESTINATION_OPTIONS: parse_extension0;
            IP_PROTOCOL_MOBILITY: parse_extension0;
            IP_PROTOCOL_HIP: parse_extension0;
            IP_PROTOCOL_SHIM6: parse_extension0;
            IP_PROTOCOL_FRAGMENT: parse_fragment0;
#if FLOWGAUGE_MATCH
            IP_PROTOCOL_AUTHENTICATION: parse_ipv6_authentication;
#endif
            default: parse_ipv6_payload;
        }
#elif FLOWGAUGE_DELAY
        transition select(hdr.ipv6.next_header) {
            IP_PROTOCOL_TCP: parse_tcp;
            IP_PROTOCOL_UDP: parse_udp;
            IP_PROTOCOL_ICMP: parse_icmp;
            IP_PROTOCOL_ICMPV6: parse_icmpv6;
            default: accept;
        }
#else
        transition accept;
#endif
    }

#if FLOWGAUGE_USES_TRANSPORT
    state parse_ipv6_authentication {
        md.flowgauge.protocol = hdr.ipv6.next_header;
        transition accept;
    }

    state parse_ipv6_payload {
        md.flowgauge.protocol = hdr.ipv6.next_header;
#if FLOWGAUGE_MATCH
        md.flowgauge.transport.is_known = 1;
#endif
        transition select(hdr.ipv6.next_header) {
#if FLOWGAUGE_DELAY
            IP_PROTOCOL_TCP: parse_tcp;
            IP_PROTOCOL_UDP: parse_udp;
            IP_PROTOCOL_ICMP: parse_icmp;
            IP_PROTOCOL_ICMPV6: parse_icmpv6;
#elif FLOWGAUGE_REORDER
            IP_PROTOCOL_TCP: parse_tcp;
            IP_PROTOCOL_UDP: FLOWGAUGE_UDP_PORTS;
#else
            IP_PROTOCOL_TCP: FLOWGAUGE_TCP_PORTS;
            IP_PROTOCOL_UDP: FLOWGAUGE_UDP_PORTS;
#endif
            IP_PROTOCOL_SCTP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_UDP_LITE: parse_ports;
            default: accept;
        }
    }
#endif

    // IPv6 extension headers of 8 bytes, at most four, and what may follow each. Headers are read
    // by lookahead before they are extracted: the chip's compiler requires a stored value to come
    // from one place in the packet. Every path assigns the protocol once: Tofino 1 would combine a
    // second value with the first by OR. A longer header, a later fragment and the last supported
    // header end the walk with the protocol that they name, without ports.
    //
    // Each header has states of its own. p4c does not support a loop of states with lookahead: it
    // unrolls one round more than the stack has elements, and then reports "Ran out of parser match
    // registers". A parser with a constructor parameter has one exit; an extension header has four.
    state parse_extension0 {
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>();
        transition select(next.length, next.next_header) {
            (0, IP_PROTOCOL_HOP_BY_HOP): parse_extension_behind0;
            (0, IP_PROTOCOL_ROUTING): parse_extension_behind0;
            (0, IP_PROTOCOL_DESTINATION_OPTIONS): parse_extension_behind0;
            (0, IP_PROTOCOL_MOBILITY): parse_extension_behind0;
            (0, IP_PROTOCOL_HIP): parse_extension_behind0;
            (0, IP_PROTOCOL_SHIM6): parse_extension_behind0;
            (0, IP_PROTOCOL_FRAGMENT): parse_fragment_behind0;
#if FLOWGAUGE_MATCH
            (0, IP_PROTOCOL_AUTHENTICATION): parse_last_extension0;
#endif
            (0, _): parse_behind_extension0;
            default: parse_last_extension0;
        }
    }

    state parse_fragment0 {
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>();
        transition select(next.fragment_offset, next.next_header) {
            (0, IP_PROTOCOL_HOP_BY_HOP): parse_extension_behind0;
            (0, IP_PROTOCOL_ROUTING): parse_extension_behind0;
            (0, IP_PROTOCOL_DESTINATION_OPTIONS): parse_extension_behind0;
            (0, IP_PROTOCOL_MOBILITY): parse_extension_behind0;
            (0, IP_PROTOCOL_HIP): parse_extension_behind0;
            (0, IP_PROTOCOL_SHIM6): parse_extension_behind0;
            (0, IP_PROTOCOL_FRAGMENT): parse_fragment_behind0;
#if FLOWGAUGE_MATCH
            (0, IP_PROTOCOL_AUTHENTICATION): parse_last_extension0;
#endif
            (0, _): parse_behind_extension0;
#if FLOWGAUGE_MATCH
            default: parse_later_fragment0;
#else
            default: parse_last_extension0;
#endif
        }
    }

    state parse_behind_extension0 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
#if FLOWGAUGE_MATCH
        md.flowgauge.transport.is_known = 1;
#endif
        packet.extract(hdr.ipv6_extension[0]);
        transition select(hdr.ipv6_extension[0].next_header) {
            IP_PROTOCOL_TCP: FLOWGAUGE_TCP_PORTS;
            IP_PROTOCOL_UDP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_SCTP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_UDP_LITE: parse_ports;
            default: accept;
        }
    }

#if FLOWGAUGE_MATCH
    state parse_later_fragment0 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
        md.flowgauge.transport.is_known = 1;
        transition accept;
    }
#endif

    state parse_last_extension0 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
        transition accept;
    }

    state parse_extension_behind0 {
        packet.extract(hdr.ipv6_extension[0]);
        transition parse_extension1;
    }

    state parse_fragment_behind0 {
        packet.extract(hdr.ipv6_extension[0]);
        transition parse_fragment1;
    }

    state parse_extension1 {
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>();
        transition select(next.length, next.next_header) {
            (0, IP_PROTOCOL_HOP_BY_HOP): parse_extension_behind1;
            (0, IP_PROTOCOL_ROUTING): parse_extension_behind1;
            (0, IP_PROTOCOL_DESTINATION_OPTIONS): parse_extension_behind1;
            (0, IP_PROTOCOL_MOBILITY): parse_extension_behind1;
            (0, IP_PROTOCOL_HIP): parse_extension_behind1;
            (0, IP_PROTOCOL_SHIM6): parse_extension_behind1;
            (0, IP_PROTOCOL_FRAGMENT): parse_fragment_behind1;
#if FLOWGAUGE_MATCH
            (0, IP_PROTOCOL_AUTHENTICATION): parse_last_extension1;
#endif
            (0, _): parse_behind_extension1;
            default: parse_last_extension1;
        }
    }

    state parse_fragment1 {
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>();
        transition select(next.fragment_offset, next.next_header) {
            (0, IP_PROTOCOL_HOP_BY_HOP): parse_extension_behind1;
            (0, IP_PROTOCOL_ROUTING): parse_extension_behind1;
            (0, IP_PROTOCOL_DESTINATION_OPTIONS): parse_extension_behind1;
            (0, IP_PROTOCOL_MOBILITY): parse_extension_behind1;
            (0, IP_PROTOCOL_HIP): parse_extension_behind1;
            (0, IP_PROTOCOL_SHIM6): parse_extension_behind1;
            (0, IP_PROTOCOL_FRAGMENT): parse_fragment_behind1;
#if FLOWGAUGE_MATCH
            (0, IP_PROTOCOL_AUTHENTICATION): parse_last_extension1;
#endif
            (0, _): parse_behind_extension1;
#if FLOWGAUGE_MATCH
            default: parse_later_fragment1;
#else
            default: parse_last_extension1;
#endif
        }
    }

    state parse_behind_extension1 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
#if FLOWGAUGE_MATCH
        md.flowgauge.transport.is_known = 1;
#endif
        packet.extract(hdr.ipv6_extension[1]);
        transition select(hdr.ipv6_extension[1].next_header) {
            IP_PROTOCOL_TCP: FLOWGAUGE_TCP_PORTS;
            IP_PROTOCOL_UDP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_SCTP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_UDP_LITE: parse_ports;
            default: accept;
        }
    }

#if FLOWGAUGE_MATCH
    state parse_later_fragment1 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
        md.flowgauge.transport.is_known = 1;
        transition accept;
    }
#endif

    state parse_last_extension1 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
        transition accept;
    }

    state parse_extension_behind1 {
        packet.extract(hdr.ipv6_extension[1]);
        transition parse_extension2;
    }

    state parse_fragment_behind1 {
        packet.extract(hdr.ipv6_extension[1]);
        transition parse_fragment2;
    }

    state parse_extension2 {
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>();
        transition select(next.length, next.next_header) {
            (0, IP_PROTOCOL_HOP_BY_HOP): parse_extension_behind2;
            (0, IP_PROTOCOL_ROUTING): parse_extension_behind2;
            (0, IP_PROTOCOL_DESTINATION_OPTIONS): parse_extension_behind2;
            (0, IP_PROTOCOL_MOBILITY): parse_extension_behind2;
            (0, IP_PROTOCOL_HIP): parse_extension_behind2;
            (0, IP_PROTOCOL_SHIM6): parse_extension_behind2;
            (0, IP_PROTOCOL_FRAGMENT): parse_fragment_behind2;
#if FLOWGAUGE_MATCH
            (0, IP_PROTOCOL_AUTHENTICATION): parse_last_extension2;
#endif
            (0, _): parse_behind_extension2;
            default: parse_last_extension2;
        }
    }

    state parse_fragment2 {
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>();
        transition select(next.fragment_offset, next.next_header) {
            (0, IP_PROTOCOL_HOP_BY_HOP): parse_extension_behind2;
            (0, IP_PROTOCOL_ROUTING): parse_extension_behind2;
            (0, IP_PROTOCOL_DESTINATION_OPTIONS): parse_extension_behind2;
            (0, IP_PROTOCOL_MOBILITY): parse_extension_behind2;
            (0, IP_PROTOCOL_HIP): parse_extension_behind2;
            (0, IP_PROTOCOL_SHIM6): parse_extension_behind2;
            (0, IP_PROTOCOL_FRAGMENT): parse_fragment_behind2;
#if FLOWGAUGE_MATCH
            (0, IP_PROTOCOL_AUTHENTICATION): parse_last_extension2;
#endif
            (0, _): parse_behind_extension2;
#if FLOWGAUGE_MATCH
            default: parse_later_fragment2;
#else
            default: parse_last_extension2;
#endif
        }
    }

    state parse_behind_extension2 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
#if FLOWGAUGE_MATCH
        md.flowgauge.transport.is_known = 1;
#endif
        packet.extract(hdr.ipv6_extension[2]);
        transition select(hdr.ipv6_extension[2].next_header) {
            IP_PROTOCOL_TCP: FLOWGAUGE_TCP_PORTS;
            IP_PROTOCOL_UDP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_SCTP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_UDP_LITE: parse_ports;
            default: accept;
        }
    }

#if FLOWGAUGE_MATCH
    state parse_later_fragment2 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
        md.flowgauge.transport.is_known = 1;
        transition accept;
    }
#endif

    state parse_last_extension2 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
        transition accept;
    }

    state parse_extension_behind2 {
        packet.extract(hdr.ipv6_extension[2]);
        transition parse_extension3;
    }

    state parse_fragment_behind2 {
        packet.extract(hdr.ipv6_extension[2]);
        transition parse_fragment3;
    }

    state parse_extension3 {
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>();
        transition select(next.length, next.next_header) {
            (0, IP_PROTOCOL_HOP_BY_HOP): parse_last_extension3;
            (0, IP_PROTOCOL_ROUTING): parse_last_extension3;
            (0, IP_PROTOCOL_DESTINATION_OPTIONS): parse_last_extension3;
            (0, IP_PROTOCOL_MOBILITY): parse_last_extension3;
            (0, IP_PROTOCOL_HIP): parse_last_extension3;
            (0, IP_PROTOCOL_SHIM6): parse_last_extension3;
            (0, IP_PROTOCOL_FRAGMENT): parse_last_extension3;
#if FLOWGAUGE_MATCH
            (0, IP_PROTOCOL_AUTHENTICATION): parse_last_extension3;
#endif
            (0, _): parse_behind_extension3;
            default: parse_last_extension3;
        }
    }

    state parse_fragment3 {
        ipv6_extension_h next = packet.lookahead<ipv6_extension_h>();
        transition select(next.fragment_offset, next.next_header) {
            (0, IP_PROTOCOL_HOP_BY_HOP): parse_last_extension3;
            (0, IP_PROTOCOL_ROUTING): parse_last_extension3;
            (0, IP_PROTOCOL_DESTINATION_OPTIONS): parse_last_extension3;
            (0, IP_PROTOCOL_MOBILITY): parse_last_extension3;
            (0, IP_PROTOCOL_HIP): parse_last_extension3;
            (0, IP_PROTOCOL_SHIM6): parse_last_extension3;
            (0, IP_PROTOCOL_FRAGMENT): parse_last_extension3;
#if FLOWGAUGE_MATCH
            (0, IP_PROTOCOL_AUTHENTICATION): parse_last_extension3;
#endif
            (0, _): parse_behind_extension3;
#if FLOWGAUGE_MATCH
            default: parse_later_fragment3;
#else
            default: parse_last_extension3;
#endif
        }
    }

    state parse_behind_extension3 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
#if FLOWGAUGE_MATCH
        md.flowgauge.transport.is_known = 1;
#endif
        packet.extract(hdr.ipv6_extension[3]);
        transition select(hdr.ipv6_extension[3].next_header) {
            IP_PROTOCOL_TCP: FLOWGAUGE_TCP_PORTS;
            IP_PROTOCOL_UDP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_SCTP: FLOWGAUGE_UDP_PORTS;
            IP_PROTOCOL_UDP_LITE: parse_ports;
            default: accept;
        }
    }

#if FLOWGAUGE_MATCH
    state parse_later_fragment3 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
        md.flowgauge.transport.is_known = 1;
        transition accept;
    }
#endif

    state parse_last_extension3 {
        md.flowgauge.protocol = packet.lookahead<bit<8>>();
        transition accept;
    }

    state parse_ports_of_ipv4 {
        transition select(hdr.ipv4.protocol) {
            IP_PROTOCOL_TCP: FLOWGAUGE_TCP_PORTS;
            IP_PROTOCOL_UDP_LITE: parse_ports;
            default: FLOWGAUGE_UDP_PORTS;
        }
    }

    state parse_ports {
        md.flowgauge.ports = packet.lookahead<bit<32>>();
        transition accept;
    }

    state parse_known_ports {
        md.flowgauge.ports = packet.lookahead<bit<32>>();
        md.flowgauge.transport.has_ports = 1;
        transition accept;
    }

    state parse_segment_ports {
        md.flowgauge.ports = packet.lookahead<bit<32>>();
        md.flowgauge.transport.has_ports = 1;
        transition parse_flags;
    }

    state parse_flags {
        tcp_start_h next = packet.lookahead<tcp_start_h>();
        md.flowgauge.transport.flags = next.flags;
        md.flowgauge.transport.has_flags = 1;
        transition accept;
    }

    // TCP. Hosts reject a segment whose header length is less than five words (RFC 9293 section
    // 3.1).
#if FLOWGAUGE_MATCH
    state parse_tcp {
        md.flowgauge.ports = packet.lookahead<bit<32>>();
        md.flowgauge.transport.has_ports = 1;
        transition parse_tcp_flags;
    }

    state parse_tcp_flags {
        tcp_start_h start_of_header = packet.lookahead<tcp_start_h>();
        md.flowgauge.transport.flags = start_of_header.flags;
        md.flowgauge.transport.has_flags = 1;
        transition parse_tcp_offset;
    }

    state parse_tcp_offset {
        tcp_h next = packet.lookahead<tcp_h>();
        transition select(next.data_offset) {
            0 &&& 0xc: accept;
            4: accept;
            default: parse_tcp_header;
        }
    }
#else
    state parse_tcp {
#if FLOWGAUGE_USES_PORTS
        md.flowgauge.ports = packet.lookahead<bit<32>>();
#endif
        tcp_h next = packet.lookahead<tcp_h>();
        transition select(next.data_offset) {
            0 &&& 0xc: accept;
            4: accept;
            default: parse_tcp_header;
        }
    }
#endif

    state parse_tcp_header {
        packet.extract(hdr.tcp);
        md.flowgauge.src_port = hdr.tcp.src_port;
        md.flowgauge.dst_port = hdr.tcp.dst_port;
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
        transition select(hdr.tcp.data_offset) {
            8: parse_options_of_twelve;
            9: parse_options_of_sixteen;
            8 &&& 8: parse_options;
            default: accept;
        }
#else
        transition accept;
#endif
    }

    state parse_options_of_twelve {
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_PADDED_TIMESTAMPS: parse_timestamps_behind_padding;
            default: accept;
        }
    }

    state parse_options_of_sixteen {
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_PADDED_TIMESTAMPS: parse_timestamps_behind_padding;
            TCP_OPTION_MSS &&& 0xffff0000: parse_behind_mss_of_sixteen;
            default: accept;
        }
    }

    state parse_options {
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_PADDED_TIMESTAMPS: parse_timestamps_behind_padding;
            TCP_OPTION_MSS &&& 0xffff0000: parse_behind_mss;
            default: accept;
        }
    }

    state parse_timestamps_behind_padding {
        packet.extract(hdr.tcp_options[0]);
        packet.extract(hdr.tcp_timestamps);
        transition accept;
    }

    state parse_behind_mss_of_sixteen {
        packet.extract(hdr.tcp_options[0]);
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_SACK_TIMESTAMPS: parse_timestamps_behind_sack;
            default: accept;
        }
    }

    state parse_behind_mss {
        packet.extract(hdr.tcp_options[0]);
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_SACK_TIMESTAMPS: parse_timestamps_behind_sack;
            TCP_OPTIONS_WINDOW_SCALE &&& 0xffffff00: parse_behind_window_scale;
            default: accept;
        }
    }

    state parse_timestamps_behind_sack {
        packet.extract(hdr.tcp_options[1]);
        packet.extract(hdr.tcp_timestamps);
        transition accept;
    }

    state parse_behind_window_scale {
        packet.extract(hdr.tcp_options[1]);
        tcp_options_h next = packet.lookahead<tcp_options_h>();
        transition select(next.octets) {
            TCP_OPTIONS_PADDED_TIMESTAMPS: parse_timestamps_behind_window_scale;
            default: accept;
        }
    }

    state parse_timestamps_behind_window_scale {
        packet.extract(hdr.tcp_options[2]);
        packet.extract(hdr.tcp_timestamps);
        transition accept;
    }

#if FLOWGAUGE_MATCH
    state parse_udp {
        md.flowgauge.ports = packet.lookahead<bit<32>>();
        md.flowgauge.transport.has_ports = 1;
        transition parse_udp_header;
    }

    state parse_udp_header {
        packet.extract(hdr.udp);
        md.flowgauge.src_port = hdr.udp.src_port;
        md.flowgauge.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.src_port, hdr.udp.dst_port) {
            (UDP_PORT_DNS, _): parse_dns;
            (_, UDP_PORT_DNS): parse_dns;
#if FLOWGAUGE_DELAY_QUIC_SPIN
            (UDP_PORT_QUIC, _): parse_quic;
            (_, UDP_PORT_QUIC): parse_quic;
#endif
            default: accept;
        }
    }
#else
    state parse_udp {
#if FLOWGAUGE_USES_PORTS
        md.flowgauge.ports = packet.lookahead<bit<32>>();
#endif
        packet.extract(hdr.udp);
        md.flowgauge.src_port = hdr.udp.src_port;
        md.flowgauge.dst_port = hdr.udp.dst_port;
        transition select(hdr.udp.src_port, hdr.udp.dst_port) {
            (UDP_PORT_DNS, _): parse_dns;
            (_, UDP_PORT_DNS): parse_dns;
#if FLOWGAUGE_DELAY_QUIC_SPIN
            (UDP_PORT_QUIC, _): parse_quic;
            (_, UDP_PORT_QUIC): parse_quic;
#endif
            default: accept;
        }
    }
#endif

    state parse_quic {
        packet.extract(hdr.quic);
        transition accept;
    }

    state parse_dns {
        packet.extract(hdr.dns);
        transition accept;
    }

    state parse_icmp {
        echo_h next = packet.lookahead<echo_h>();
        transition select(next.kind, next.code) {
            (ICMP_ECHO_REQUEST, 0): parse_echo;
            (ICMP_ECHO_REPLY, 0): parse_echo;
            default: accept;
        }
    }

    state parse_icmpv6 {
        echo_h next = packet.lookahead<echo_h>();
        transition select(next.kind, next.code) {
            (ICMPV6_ECHO_REQUEST, 0): parse_echo;
            (ICMPV6_ECHO_REPLY, 0): parse_echo;
            default: accept;
        }
    }

    state parse_echo {
        packet.extract(hdr.echo);
        transition accept;
    }
}
