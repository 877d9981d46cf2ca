// flowgauge for Tofino: counts the traffic that passes, as a bump in the wire or as the receiver of
// a mirror port.
#include <core.p4>
#include <tna.p4>

#include "telemetry.p4"
#include "forward.p4"

struct empty_headers_t {}

struct empty_metadata_t {}

parser IngressParser(packet_in packet, out FLOWGAUGE_HEADERS hdr, out FLOWGAUGE_METADATA md,
                     out ingress_intrinsic_metadata_t ig_intr_md) {
    FlowgaugeParser() frame;

    state start {
        packet.extract(ig_intr_md);
#if FLOWGAUGE_HEAVY
        transition select(ig_intr_md.resubmit_flag) {
            1: parse_resubmitted;
            default: parse_port_metadata;
        }
#else
        packet.advance(PORT_METADATA_SIZE);
        frame.apply(packet, hdr, md);
        transition accept;
#endif
    }

#if FLOWGAUGE_HEAVY
    state parse_resubmitted {
        packet.extract(md.flowgauge.admitted);
        transition parse_frame;
    }

    state parse_port_metadata {
        packet.advance(PORT_METADATA_SIZE);
        transition parse_frame;
    }

    state parse_frame {
        frame.apply(packet, hdr, md);
        transition accept;
    }
#endif
}

control Ingress(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                in ingress_intrinsic_metadata_t ig_intr_md,
                in ingress_intrinsic_metadata_from_parser_t ig_prsr_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md) {
    Forward() forward;
    Flowgauge() flowgauge;

    apply {
        forward.apply(ig_intr_md, ig_tm_md, ig_dprsr_md);
        flowgauge.apply(hdr, md, ig_prsr_md, ig_dprsr_md);
    }
}

control IngressDeparser(packet_out packet, inout FLOWGAUGE_HEADERS hdr, in FLOWGAUGE_METADATA md,
                        in ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    Resubmit() resubmit;
    Digest<flowgauge_delay_sample_t>() delay_samples;
    Digest<flowgauge_entropy_alarm_t>() entropy_alarms;

    apply {
        if (FLOWGAUGE_HEAVY == 1 && ig_dprsr_md.resubmit_type == 1) {
            resubmit.emit(md.flowgauge.admission);
        }
        if (FLOWGAUGE_DELAY_SAMPLES == 1 && ig_dprsr_md.digest_type == FLOWGAUGE_DELAY_DIGEST) {
            delay_samples.pack(FLOWGAUGE_DELAY_SAMPLE);
        }
        if (FLOWGAUGE_ENTROPY_ALARM == 1 && ig_dprsr_md.digest_type == FLOWGAUGE_ENTROPY_DIGEST) {
            entropy_alarms.pack({md.flowgauge.entropy.bank});
        }
        packet.emit(hdr);
    }
}

// The egress is empty: forwarded packets bypass it.
parser EgressParser(packet_in packet, out empty_headers_t hdr, out empty_metadata_t md,
                    out egress_intrinsic_metadata_t eg_intr_md) {
    state start {
        packet.extract(eg_intr_md);
        transition accept;
    }
}

control Egress(inout empty_headers_t hdr, inout empty_metadata_t md,
               in egress_intrinsic_metadata_t eg_intr_md,
               in egress_intrinsic_metadata_from_parser_t eg_prsr_md,
               inout egress_intrinsic_metadata_for_deparser_t eg_dprsr_md,
               inout egress_intrinsic_metadata_for_output_port_t eg_oport_md) {
    apply {}
}

control EgressDeparser(packet_out packet, inout empty_headers_t hdr, in empty_metadata_t md,
                       in egress_intrinsic_metadata_for_deparser_t eg_dprsr_md) {
    apply {}
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;

// Otherwise the compiler may share a flag's container with another field, and the flag would not
// start at zero.
@pa_auto_init_metadata
Switch(pipe) main;
