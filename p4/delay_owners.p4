// Part of FlowgaugeDelay: groups of prefixes, and directions by local addresses.

    // Owner of an address. The group of a delay is that of the end that answers, its direction
    // follows from the end that asks. Actions have only the parameters that a build uses.
#if FLOWGAUGE_DELAY_GROUP_BITS && FLOWGAUGE_DELAY_LOCAL
    action set_src_owner(flowgauge_group_t group, bit<1> is_local) {
        md.flowgauge.answered.group = group;
        md.flowgauge.asked.leaves = is_local;
    }

    action set_dst_owner(flowgauge_group_t group, bit<1> is_local) {
        md.flowgauge.asked.group = group;
        md.flowgauge.answered.leaves = is_local;
    }
#elif FLOWGAUGE_DELAY_GROUP_BITS
    action set_src_owner(flowgauge_group_t group) {
        md.flowgauge.answered.group = group;
    }

    action set_dst_owner(flowgauge_group_t group) {
        md.flowgauge.asked.group = group;
    }
#else
    action set_src_owner(bit<1> is_local) {
        md.flowgauge.asked.leaves = is_local;
    }

    action set_dst_owner(bit<1> is_local) {
        md.flowgauge.answered.leaves = is_local;
    }
#endif

    action keep_default_owner() {}

    table ipv4_src_owners {
        key = { hdr.ipv4.src_addr : lpm @name("address"); }
        actions = {
            set_src_owner;
            keep_default_owner;
        }
        const default_action = keep_default_owner();
        size = 1024;
    }

    table ipv4_dst_owners {
        key = { hdr.ipv4.dst_addr : lpm @name("address"); }
        actions = {
            set_dst_owner;
            keep_default_owner;
        }
        const default_action = keep_default_owner();
        size = 1024;
    }

    table ipv6_src_owners {
        key = { hdr.ipv6.src_addr[127:64] : lpm @name("address"); }
        actions = {
            set_src_owner;
            keep_default_owner;
        }
        const default_action = keep_default_owner();
        size = 1024;
    }

    table ipv6_dst_owners {
        key = { hdr.ipv6.dst_addr[127:64] : lpm @name("address"); }
        actions = {
            set_dst_owner;
            keep_default_owner;
        }
        const default_action = keep_default_owner();
        size = 1024;
    }
