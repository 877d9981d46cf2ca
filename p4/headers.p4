// Packet headers, and the metadata of a packet between stages.
#ifndef FLOWGAUGE_HEADERS_P4
#define FLOWGAUGE_HEADERS_P4

#include "settings.p4"

typedef bit<48>  mac_addr_t;
typedef bit<32>  ipv4_addr_t;
typedef bit<128> ipv6_addr_t;

header ethernet_h {
    mac_addr_t dst_addr;
    mac_addr_t src_addr;
    bit<16> ether_type;
}

header vlan_tag_h {
    bit<16> tag_control;
    bit<16> ether_type;
}

header ipv4_h {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  type_of_service;
    bit<16> total_length;
    bit<16> identification;
    bit<3>  flags;
    bit<13> fragment_offset;
    bit<8>  time_to_live;
    bit<8>  protocol;
    bit<16> checksum;
    ipv4_addr_t src_addr;
    ipv4_addr_t dst_addr;
}

// Four bytes of options.
header ipv4_option_h {
    bit<32> octets;
}

header ipv6_h {
    bit<4>   version;
    bit<8>   traffic_class;
    bit<20>  flow_label;
    bit<16>  payload_length;
    bit<8>   next_header;
    bit<8>   hop_limit;
    ipv6_addr_t src_addr;
    ipv6_addr_t dst_addr;
}

// Extension header of 8 bytes, with the field names of a fragment header (RFC 8200 section 4.5).
header ipv6_extension_h {
    bit<8>  next_header;
    bit<8>  length;
    bit<13> fragment_offset;
    bit<3>  fragment_flags;
    bit<32> identification;
}

// Flags of a TCP segment.
const bit<8> TCP_FIN = 0x01;
const bit<8> TCP_SYN = 0x02;
const bit<8> TCP_RST = 0x04;
const bit<8> TCP_ACK = 0x10;

header tcp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<32> sequence;
    bit<32> acknowledgement;
    bit<4>  data_offset;
    bit<4>  reserved;
    bit<8>  flags;
    bit<16> window;
    bit<16> checksum;
    bit<16> urgent;
}

// A TCP header up to its flags.
header tcp_start_h {
    bit<104> others;
    bit<8>   flags;
}

header udp_h {
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> length;
    bit<16> checksum;
}

// First four bytes of a DNS message (RFC 1035 section 4.1.1).
header dns_h {
    bit<16> id;
    bit<16> flags;
}

// ICMP or ICMPv6 echo request or reply. The token is its identifier and sequence number.
header echo_h {
    bit<8>  kind;
    bit<8>  code;
    bit<16> checksum;
    bit<32> token;
}

// Four bytes of options in front of the timestamps.
header tcp_options_h {
    bit<32> octets;
}

// TSval and TSecr (RFC 7323 section 3).
header tcp_timestamps_h {
    bit<32> sent;
    bit<32> echoed;
}

// First byte of a short header (RFC 9000 section 17.3.1).
header quic_h {
    bit<2> form;
    bit<1> spin;
    bit<5> others;
}

// Headers that no state of a build's parser extracts cost nothing: the compiler drops them.
struct flowgauge_headers_t {
    ethernet_h          ethernet;
    vlan_tag_h[4]       vlan_tag;
    ipv4_h              ipv4;
    ipv6_h              ipv6;
    ipv4_option_h[10]   ipv4_option;
    ipv6_extension_h[4] ipv6_extension;
    tcp_h               tcp;
    tcp_options_h[3]    tcp_options;
    tcp_timestamps_h    tcp_timestamps;
    udp_h               udp;
    quic_h              quic;
    dns_h               dns;
    echo_h              echo;
}

// Hashes of one key: its CRC, and 16 bits per row of sketches and filters with this key, row 0
// lowest.
struct flowgauge_hashes_t {
    bit<32> crc;
    bit<32> rows01;
    bit<32> rows23;
}

// 64-bit number in a register.
struct flowgauge_sum_t {
    bit<32> low;
    bit<32> high;
}

// Half of an address. An IPv4 address is the lowest word.
struct flowgauge_half_t {
    bit<32> high;
    bit<32> low;
}

// Fields of a transport header that expressions compare, beside protocol and ports.
struct flowgauge_transport_t {
    // Whether it has the ports of TCP, UDP or SCTP.
    bit<1> has_ports;
    bit<1> has_flags;
    bit<8> flags;
    // Whether the parser has followed all IPv6 extension headers in front of it.
    bit<1> is_known;
}

// Data that a packet carries into its second pass if its flow becomes a heavy hitter: 8 bytes, as
// Tofino requires.
header flowgauge_admission_h {
    bit<30> padding;
    bit<1>  bank;
    bit<1>  stage;
    bit<32> count;
}

// Group of prefixes for which delays are counted.
typedef bit<(FLOWGAUGE_DELAY_GROUP_BITS == 0 ? 1 : FLOWGAUGE_DELAY_GROUP_BITS)> flowgauge_group_t;

// Request that a packet is, or that it answers.
struct flowgauge_request_t {
    bit<32> signature;
    bit<32> hash;
    bit<1>  is_one;
    bit<1>  is_admitted;
    bit<1>  counts;
    bit<2>  fridge;
    flowgauge_group_t group;
    bit<1>  leaves;
}

// Delay that the packet completes, and its weight.
struct flowgauge_delayed_t {
    bit<48> at;
    // Hashes of the packet's ends.
    bit<32> src;
    bit<32> dst;
    bit<32> ticks;
    bit<32> weight;
    bit<32> beyond;
}

// Sample as sent to the controller (dataplane/core/src/delay/sample.rs).
struct flowgauge_delay_sample_t {
    bit<48> at;
    bit<32> src;
    bit<32> dst;
    bit<32> ticks;
    bit<32> weight;
    bit<32> beyond;
    bit<2>  kind;
    bit<2>  fridge;
#if FLOWGAUGE_DELAY_GROUP_BITS
    flowgauge_group_t group;
#endif
    bit<1>  leaves;
    bit<1>  bank;
}

// State of a segment between stages; all zero for other packets.
struct flowgauge_followed_t {
    // Operations on the slot for large flows and on the bucket.
    bit<3>  large_does;
    bit<3>  bucket_does;
    // One of four bits each: whether the flow was the packet's, and whether it was idle.
    bit<4>  large_had;
    bit<4>  bucket_had;
    // Whether the flow is known, new, or not tracked.
    bit<2>  kind;
    bit<1>  is_anew;
    bit<1>  is_large;
    // Class of the segment, and whether its data was missing.
    bit<3>  seen;
    bit<1>  fills;
    // Which halves of places belong to the prefix.
    bit<1>  upper0;
    bit<1>  lower0;
    bit<1>  upper1;
    bit<1>  lower1;
    bit<1>  is_second;
}

// Entropy of the open window including this packet, and its number of packets.
struct flowgauge_entropy_t {
    bit<32> entropy;
    bit<32> packets;
    // Bank of the packet, for a digest. It needs a container of its own, since the bank is used
    // among other bits elsewhere.
    bit<1> bank;
}

// The entropy itself is read from its register: the compiler cannot place a field that is both
// added up and sent in a digest.
struct flowgauge_entropy_alarm_t {
    bit<1> bank;
}

// A level is as wide as its register: a stateful ALU does not widen it.
const int FLOWGAUGE_LEVEL_BITS = FLOWGAUGE_CARDINALITY == FLOWGAUGE_CARDINALITY_STAGGERED ? 32 : 8;
typedef bit<(FLOWGAUGE_LEVEL_BITS)> flowgauge_level_t;

// Class of a frame, for which it is counted.
enum bit<3> flowgauge_class_t {
    IPV4 = 0,
    IPV6 = 1,
    NON_IP = 2,
    TRUNCATED = 3,
    BAD_HEADER = 4,
    // Left out by the expression.
    UNMATCHED = 5,
    // Left out, since the expression depends on a header that the parser has not reached.
    UNDECIDED = 6
}

// Fields that a build does not use cost nothing: the compiler drops them.
struct flowgauge_metadata_t {
    flowgauge_admission_h admission;
    flowgauge_admission_h admitted;
    bit<1>  bank;
    bit<1>  sound;
    bit<3>  class;
    // Key of five-tuples, beside the addresses.
    bit<32> ports;
    bit<8>  protocol;
    flowgauge_transport_t transport;
    // Ports of TCP and UDP for delays; zero for other protocols.
    bit<16> src_port;
    bit<16> dst_port;
    bit<16> ip_length;
    flowgauge_request_t asked;
    flowgauge_request_t answered;
    flowgauge_delayed_t delayed;
    bit<2>  delay_kind;
    bit<1>  is_found;
    bit<1>  is_again;
    bit<1>  keeps_first;
    flowgauge_followed_t followed;
    flowgauge_entropy_t entropy;
    flowgauge_hashes_t src;
    flowgauge_hashes_t dst;
    flowgauge_hashes_t src_dst;
    flowgauge_hashes_t five_tuple;
    flowgauge_hashes_t with_port;
    bit<32> tabulated;
    flowgauge_level_t level;
}

// A program with its own headers and metadata defines their types before it includes telemetry.p4.
// Its headers must have the members of flowgauge_headers_t, its metadata a member
// `flowgauge_metadata_t flowgauge`.
#ifndef FLOWGAUGE_HEADERS
#define FLOWGAUGE_HEADERS flowgauge_headers_t
#endif
#ifndef FLOWGAUGE_METADATA
struct metadata_t {
    flowgauge_metadata_t flowgauge;
}
#define FLOWGAUGE_METADATA metadata_t
#endif

#endif
