// flowgauge for Tofino: counts the traffic that passes, as a bump in the wire or as the receiver of
// a mirror port.
#include <core.p4>
#include <tna.p4>

#include "telemetry.p4"
#include "forward.p4"

struct empty_headers_t {}

struct empty_metadata_t {}

parser IngressParser(packet_in packet, out FLOWGAUGE_HEADERS hdr, out FLOWGAUGE_METADATA md,
                     out ingress_intrinsic_metadata_t intrinsic) {
    FlowgaugeParser() frame;

    state start {
        packet.extract(intrinsic);
#if FLOWGAUGE_HEAVY
        transition select(intrinsic.resubmit_flag) {
            1: again;
            default: port;
        }
    }

    state again {
        packet.extract(md.flowgauge.admitted);
        transition frame_behind;
    }

    state port {
        packet.advance(PORT_METADATA_SIZE);
        transition frame_behind;
    }

    state frame_behind {
#else
        packet.advance(PORT_METADATA_SIZE);
#endif
        frame.apply(packet, hdr, md);
        transition accept;
    }
}

control Ingress(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md,
                in ingress_intrinsic_metadata_t intrinsic,
                in ingress_intrinsic_metadata_from_parser_t from_parser,
                inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Forward() forward;
    Flowgauge() flowgauge;

    apply {
        forward.apply(intrinsic, for_tm, for_deparser);
#if FLOWGAUGE_FOR_DEPARSER
        flowgauge.apply(hdr, md, from_parser, for_deparser);
#else
        flowgauge.apply(hdr, md, from_parser);
#endif
    }
}

control IngressDeparser(packet_out packet, inout FLOWGAUGE_HEADERS hdr, in FLOWGAUGE_METADATA md,
                        in ingress_intrinsic_metadata_for_deparser_t for_deparser) {
#if FLOWGAUGE_HEAVY
    Resubmit() resubmit;
#endif
#if FLOWGAUGE_DELAY_SAMPLES
    Digest<flowgauge_delay_sample_t>() delay_samples;
#endif
#if FLOWGAUGE_ENTROPY_ALARM
    Digest<flowgauge_entropy_alarm_t>() entropy_alarms;
#endif

    apply {
#if FLOWGAUGE_HEAVY
        if (for_deparser.resubmit_type == 1) {
            resubmit.emit(md.flowgauge.admission);
        }
#endif
#if FLOWGAUGE_DELAY_SAMPLES
        if (for_deparser.digest_type == FLOWGAUGE_DELAY_DIGEST) {
            delay_samples.pack(FLOWGAUGE_DELAY_SAMPLE);
        }
#endif
#if FLOWGAUGE_ENTROPY_ALARM
        if (for_deparser.digest_type == FLOWGAUGE_ENTROPY_DIGEST) {
            entropy_alarms.pack({md.flowgauge.entropy.bank});
        }
#endif
        packet.emit(hdr);
    }
}

// The egress is empty: forwarded packets bypass it.
parser EgressParser(packet_in packet, out empty_headers_t hdr, out empty_metadata_t md,
                    out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        transition accept;
    }
}

control Egress(inout empty_headers_t hdr, inout empty_metadata_t md,
               in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t from_parser,
               inout egress_intrinsic_metadata_for_deparser_t for_deparser,
               inout egress_intrinsic_metadata_for_output_port_t for_output_port) {
    apply {}
}

control EgressDeparser(packet_out packet, inout empty_headers_t hdr, in empty_metadata_t md,
                       in egress_intrinsic_metadata_for_deparser_t for_deparser) {
    apply {}
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;

// Otherwise the compiler may share a flag's container with another field, and the flag would not
// start at zero.
@pa_auto_init_metadata
Switch(pipe) main;
