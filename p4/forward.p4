// Bump in the wire: a frame that enters one port leaves at another, unchanged.

control Forward(in ingress_intrinsic_metadata_t ig_intr_md,
                inout ingress_intrinsic_metadata_for_tm_t ig_tm_md,
                inout ingress_intrinsic_metadata_for_deparser_t ig_dprsr_md) {
    action send(PortId_t port) {
        ig_tm_md.ucast_egress_port = port;
        ig_tm_md.bypass_egress = 1;
    }

    action drop() {
        ig_dprsr_md.drop_ctl = 1;
    }

    // A port without an entry receives mirrored traffic: its frames are counted and dropped.
    table ports {
        key = { ig_intr_md.ingress_port : exact @name("ingress_port"); }
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
