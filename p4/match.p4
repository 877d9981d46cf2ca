// Expressions (--match): which packets are counted at all (dataplane/core/src/filter).
//
// The controller installs an expression's rules for IPv4, for IPv6 and for other frames. The first
// entry that a packet meets decides. Entries name their bank, so that a new expression takes effect
// with the write that closes a window, and all packets of a window pass the same one.

control FlowgaugeMatch(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    action keep_class() {}

    // A verdict: the class of the packet, and whether measurements see it.
    action set_class(bit<3> class, bit<1> sound) {
        md.flowgauge.class = class;
        md.flowgauge.sound = sound;
    }

    table ipv4 {
        key = {
            md.flowgauge.bank : ternary @name("bank");
            hdr.vlan_tag[0].isValid() : ternary @name("tagged");
            hdr.vlan_tag[0].tag_control[11:0] : ternary @name("vlan");
            hdr.ipv4.protocol : ternary @name("protocol");
            md.flowgauge.transport.has_ports : ternary @name("has_ports");
            md.flowgauge.transport.has_flags : ternary @name("has_flags");
            md.flowgauge.transport.flags : ternary @name("flags");
            md.flowgauge.ports : ternary @name("ports");
            hdr.ipv4.src_addr : ternary @name("src");
            hdr.ipv4.dst_addr : ternary @name("dst");
        }
        actions = {
            set_class;
            keep_class;
        }
        const default_action = keep_class();
        size = 512;
    }

    // Each entry that looks at the transport header is followed by one for packets whose transport
    // header is not known.
    table ipv6 {
        key = {
            md.flowgauge.bank : ternary @name("bank");
            hdr.vlan_tag[0].isValid() : ternary @name("tagged");
            hdr.vlan_tag[0].tag_control[11:0] : ternary @name("vlan");
            md.flowgauge.transport.is_known : ternary @name("is_known");
            md.flowgauge.protocol : ternary @name("protocol");
            md.flowgauge.transport.has_ports : ternary @name("has_ports");
            md.flowgauge.transport.has_flags : ternary @name("has_flags");
            md.flowgauge.transport.flags : ternary @name("flags");
            md.flowgauge.ports : ternary @name("ports");
            hdr.ipv6.src_addr : ternary @name("src");
            hdr.ipv6.dst_addr : ternary @name("dst");
        }
        actions = {
            set_class;
            keep_class;
        }
        const default_action = keep_class();
        size = 1024;
    }

    // Frames without an IP packet, by their class.
    table others {
        key = {
            md.flowgauge.bank : ternary @name("bank");
            md.flowgauge.class : ternary @name("class");
            hdr.vlan_tag[0].isValid() : ternary @name("tagged");
            hdr.vlan_tag[0].tag_control[11:0] : ternary @name("vlan");
        }
        actions = {
            set_class;
            keep_class;
        }
        const default_action = keep_class();
        size = 512;
    }

    apply {
        if (md.flowgauge.class == flowgauge_class_t.IPV4) {
            ipv4.apply();
        } else if (md.flowgauge.class == flowgauge_class_t.IPV6) {
            ipv6.apply();
        } else {
            others.apply();
        }
    }
}
