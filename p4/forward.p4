// Bump in the wire: a frame that enters one port leaves at another, unchanged.
#ifndef FLOWGAUGE_FORWARD_P4
#define FLOWGAUGE_FORWARD_P4

control Forward(in ingress_intrinsic_metadata_t intrinsic,
                inout ingress_intrinsic_metadata_for_tm_t for_tm,
                inout ingress_intrinsic_metadata_for_deparser_t for_deparser) {
    action send(PortId_t port) {
        for_tm.ucast_egress_port = port;
        for_tm.bypass_egress = 1;
    }

    action drop() {
        for_deparser.drop_ctl = 1;
    }

    // A port without an entry receives mirrored traffic: its frames are counted and dropped.
    table ports {
        key = { intrinsic.ingress_port : exact @name("ingress_port"); }
        actions = {
            send;
            drop;
        }
        default_action = drop();
        size = 512;
    }

    apply {
        ports.apply();
    }
}

#endif
