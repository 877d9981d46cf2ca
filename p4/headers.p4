// Packet headers, and the metadata of a packet between stages.
#ifndef FLOWGAUGE_HEADERS_P4
#define FLOWGAUGE_HEADERS_P4

#include "settings.p4"

header ethernet_h {
    bit<48> dst_addr;
    bit<48> src_addr;
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
    bit<32> src_addr;
    bit<32> dst_addr;
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
    bit<128> src_addr;
    bit<128> dst_addr;
}

// Extension header of 8 bytes, with the field names of a fragment header (RFC 8200 section 4.5).
header ipv6_extension_h {
    bit<8>  next_header;
    bit<8>  length;
    bit<13> fragment_offset;
    bit<3>  fragment_flags;
    bit<32> identification;
}

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER
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
#endif

#if FLOWGAUGE_DELAY
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
#endif

#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
// Four bytes of options in front of the timestamps.
header tcp_options_h {
    bit<32> octets;
}

// TSval and TSecr (RFC 7323 section 3).
header tcp_timestamps_h {
    bit<32> sent;
    bit<32> echoed;
}
#endif

#if FLOWGAUGE_DELAY_QUIC_SPIN
// First byte of a short header (RFC 9000 section 17.3.1).
header quic_h {
    bit<2> form;
    bit<1> spin;
    bit<5> others;
}
#endif

struct flowgauge_headers_t {
    ethernet_h          ethernet;
    vlan_tag_h[4]       vlan_tag;
    ipv4_h              ipv4;
    ipv6_h              ipv6;
#if FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE)
    ipv4_option_h[10]   ipv4_option;
    ipv6_extension_h[4] ipv6_extension;
#endif
#if FLOWGAUGE_DELAY || FLOWGAUGE_REORDER
    tcp_h               tcp;
#endif
#if FLOWGAUGE_DELAY
#if FLOWGAUGE_DELAY_TCP_TIMESTAMPS
    tcp_options_h[3]    tcp_options;
    tcp_timestamps_h    tcp_timestamps;
#endif
    udp_h               udp;
#if FLOWGAUGE_DELAY_QUIC_SPIN
    quic_h              quic;
#endif
    dns_h               dns;
    echo_h              echo;
#endif
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

#if FLOWGAUGE_HEAVY
// Data that a packet carries into its second pass if its flow becomes a heavy hitter: 8 bytes, as
// Tofino requires.
header flowgauge_admission_h {
    bit<30> padding;
    bit<1>  bank;
    bit<1>  stage;
    bit<32> count;
}
#endif

#if FLOWGAUGE_DELAY
// Request that a packet is, or that it answers.
struct flowgauge_request_t {
    bit<32> signature;
    bit<32> hash;
    bit<1>  is_one;
    bit<1>  is_admitted;
    bit<1>  counts;
    bit<2>  fridge;
#if FLOWGAUGE_DELAY_GROUP_BITS
    bit<FLOWGAUGE_DELAY_GROUP_BITS> group;
#endif
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
#endif

#if FLOWGAUGE_DELAY_SAMPLES
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
    bit<FLOWGAUGE_DELAY_GROUP_BITS> group;
#endif
    bit<1>  leaves;
    bit<1>  bank;
}
#endif

#if FLOWGAUGE_REORDER
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
#endif

#if FLOWGAUGE_ENTROPY_BITS
// Entropy of the open window including this packet, and its number of packets.
struct flowgauge_entropy_t {
    bit<32> entropy;
    bit<32> packets;
#if FLOWGAUGE_ENTROPY_ALARM
    // Bank of the packet, for a digest. It needs a container of its own, since the bank is used
    // among other bits elsewhere.
    bit<1> bank;
#endif
}
#endif

#if FLOWGAUGE_ENTROPY_ALARM
// The entropy itself is read from its register: the compiler cannot place a field that is both
// added up and sent in a digest.
struct flowgauge_entropy_alarm_t {
    bit<1> bank;
}
#endif

struct flowgauge_metadata_t {
#if FLOWGAUGE_HEAVY
    flowgauge_admission_h admission;
    flowgauge_admission_h admitted;
#endif
    bit<1>  bank;
    bit<1>  sound;
    bit<3>  class;
#if FLOWGAUGE_USES(FLOWGAUGE_KEY_FIVE_TUPLE)
    bit<32> ports;
    bit<8>  protocol;
#endif
#if FLOWGAUGE_DELAY
    // Ports of TCP and UDP; zero for other protocols.
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
#endif
#if FLOWGAUGE_REORDER
    flowgauge_followed_t followed;
#endif
#if FLOWGAUGE_ENTROPY_BITS
    flowgauge_entropy_t entropy;
#endif
    flowgauge_hashes_t src;
    flowgauge_hashes_t dst;
    flowgauge_hashes_t src_dst;
    flowgauge_hashes_t five_tuple;
#if FLOWGAUGE_HASH == FLOWGAUGE_HASH_TABULATED
    bit<32> tabulated;
#endif
    bit<FLOWGAUGE_LEVEL_BITS> level;
}

// Flow hash of a packet, in the field in which this build computes it.
#if FLOWGAUGE_HASH == FLOWGAUGE_HASH_TABULATED
#define FLOWGAUGE_FLOW_HASH md.flowgauge.tabulated
#else
#define FLOWGAUGE_FLOW_HASH FLOWGAUGE_OF_KEY(FLOWGAUGE_KEY).crc
#endif

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
