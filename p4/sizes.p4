// Packet lengths: the number of packets and bytes per length (buckets of HdrHistogram).
//
// A length is that of the network header and what follows. A bucket counts its packets, and the sum
// of their lengths above its smallest length. Both counters saturate.

struct flowgauge_bucket_t {
    bit<32> packets;
    bit<32> excess;
}

control FlowgaugeSizes(inout FLOWGAUGE_HEADERS hdr, inout FLOWGAUGE_METADATA md) {
    bit<16> length;
    bit<10> index;
    bit<32> excess;

    action set_ipv4_length() {
        length = hdr.ipv4.total_length;
    }

    action set_ipv6_length() {
        length = hdr.ipv6.payload_length |+| 40;
    }

    action clear_length() {
        length = 0;
    }

    // The length of a jumbogram is only in an option (RFC 2675). Lengths above 16 bits count as the
    // largest.
    table header_length {
        key = {
            hdr.ipv4.isValid() : ternary @name("ipv4");
            hdr.ipv6.payload_length : ternary @name("payload_length");
            hdr.ipv6.next_header : ternary @name("next_header");
        }
        actions = {
            set_ipv4_length;
            set_ipv6_length;
            clear_length;
        }
        const entries = {
            (true, _, _): set_ipv4_length();
            (false, 0, 0): clear_length();
        }
        const default_action = set_ipv6_length();
        size = 4;
    }

    // The bits in which the lengths of a bucket differ are the excess over the smallest one.
    action set_bucket(bit<10> bucket, bit<16> beyond) {
        index = bucket;
        excess = (bit<32>) (length & beyond);
    }

    // A switch cannot shift by a variable, so the controller installs a prefix for every bucket.
    table buckets {
        key = { length : lpm @name("length"); }
        actions = { set_bucket; }
        default_action = set_bucket(0, 0);
        size = 1024;
    }

    Register<flowgauge_bucket_t, bit<11>>(2048, {0, 0}) counts;
    RegisterAction<flowgauge_bucket_t, bit<11>, bit<32>>(counts) count = {
        void apply(inout flowgauge_bucket_t bucket) {
            bucket.packets = bucket.packets |+| 1;
            bucket.excess = bucket.excess |+| excess;
        }
    };

    apply {
        header_length.apply();
        buckets.apply();
        if (md.flowgauge.sound == 1) {
            count.execute(md.flowgauge.bank ++ index);
        }
    }
}
