// Another program, with headers and metadata of its own, that measures with flowgauge.
#include <core.p4>
#include <tna.p4>

#define FLOWGAUGE_HEADERS my_headers_t
#define FLOWGAUGE_METADATA my_metadata_t
#include "../../../headers.p4"

header tunnel_h {
    bit<32> key;
}

struct my_headers_t {
    tunnel_h tunnel;
    ethernet_h ethernet;
    vlan_tag_h[4] vlan_tag;
    ipv4_h ipv4;
    ipv6_h ipv6;
    ipv4_option_h[10] ipv4_option;
    ipv6_extension_h[4] ipv6_extension;
    tcp_h tcp;
    tcp_options_h[3] tcp_options;
    tcp_timestamps_h tcp_timestamps;
    udp_h udp;
    quic_h quic;
    dns_h dns;
    echo_h echo;
}

struct my_metadata_t {
    bit<16> mine;
    flowgauge_metadata_t flowgauge;
}

#include "../../../telemetry.p4"

struct none_t {}

parser MyParser(packet_in packet, out my_headers_t hdr, out my_metadata_t md, out ingress_intrinsic_metadata_t ig_intr_md) {
    FlowgaugeParser() inner;

    state start {
        packet.extract(ig_intr_md);
        packet.advance(PORT_METADATA_SIZE);
        packet.extract(hdr.tunnel);
        inner.apply(packet, hdr, md);
        transition accept;
    }
}

control MyIngress(inout my_headers_t hdr, inout my_metadata_t md, in ingress_intrinsic_metadata_t ig_intr_md,
                  in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                  inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                  inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Flowgauge() measure;

    apply {
        measure.apply(hdr, md, ig_prsr_md, ig_dprsr_md);
        hdr.tunnel.setInvalid();
        ig_tm_md.ucast_egress_port = 5;
    }
}

control MyDeparser(packet_out packet, inout my_headers_t hdr, in my_metadata_t md,
                   in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    apply {
        packet.emit(hdr);
    }
}

parser EgressParser(packet_in packet, out none_t hdr, out none_t md, out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        transition accept;
    }
}

control Egress(inout none_t hdr, inout none_t md, in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t for_deparser,
               inout egress_intrinsic_metadata_for_output_port_t for_output_port) {
    apply {}
}

control EgressDeparser(packet_out packet, inout none_t hdr, in none_t md,
                       in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply {}
}

Pipeline(MyParser(), MyIngress(), MyDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;

@pa_auto_init_metadata
Switch(pipe) main;
