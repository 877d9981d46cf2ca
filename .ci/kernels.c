// Sends captures and sets offloads inside the virtual machines of .ci/kernels. Linked statically: it runs on every kernel and needs no
// library of the machine.
//
//     tool tun IFACE                makes a tun device, which stays
//     tool send IFACE FILE PPS      sends the packets of a pcap file at a rate, prints how many left; through a tun device they arrive at it
//     tool offloads IFACE on|off    sets all offloads that the device lets change, prints them
//     tool queues IFACE N           sets the number of combined queues
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_SECOND 1000000000LL
#define FRAME_BYTES 65536

static int fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    return 1;
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * NS_PER_SECOND + t.tv_nsec;
}

// A packet written to it arrives at the tun device.
static int open_tun(const char *interface) {
    struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", interface);
    int tun = open("/dev/net/tun", O_RDWR);
    return tun < 0 || ioctl(tun, TUNSETIFF, &r) ? -1 : tun;
}

static int make_tun(const char *interface) {
    int tun = open_tun(interface);
    return tun < 0 || ioctl(tun, TUNSETPERSIST, 1) ? fail(interface) : 0;
}

// A packet written to it leaves by the interface. Without a protocol it receives nothing.
static int open_socket(const char *interface) {
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(interface)};
    int s = socket(AF_PACKET, SOCK_RAW, 0);
    return s < 0 || !to.sll_ifindex || bind(s, (struct sockaddr *)&to, sizeof to) ? -1 : s;
}

static int send_capture(const char *interface, const char *path, int64_t pps) {
    static uint8_t frame[FRAME_BYTES];
    uint32_t record[4];
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 24, SEEK_SET)) return fail(path);
    int to = strncmp(interface, "tun", 3) ? open_socket(interface) : open_tun(interface);
    if (to < 0) return fail(interface);
    // On a veth the CPU that sends also counts. With one of them counts per CPU are those of one worker.
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    if (sched_setaffinity(0, sizeof cpus, &cpus)) return fail("CPU 0");
    int64_t start = now_ns();
    long sent = 0;
    while (fread(record, sizeof record, 1, file) == 1) {
        if (record[2] > sizeof frame || fread(frame, record[2], 1, file) != 1) {
            errno = EINVAL;
            return fail(path);
        }
        int64_t wait = start + sent * NS_PER_SECOND / pps - now_ns();
        if (wait > 0) nanosleep(&(struct timespec){wait / NS_PER_SECOND, wait % NS_PER_SECOND}, NULL);
        while (write(to, frame, record[2]) < 0) {
            if (errno != ENOBUFS && errno != EAGAIN && errno != EINTR) return fail(interface);
            nanosleep(&(struct timespec){0, 100000}, NULL);
        }
        sent++;
    }
    printf("%ld\n", sent);
    return 0;
}

static int ethtool(int s, const char *interface, void *request) {
    struct ifreq r = {0};
    snprintf(r.ifr_name, sizeof r.ifr_name, "%s", interface);
    r.ifr_data = request;
    return ioctl(s, SIOCETHTOOL, &r);
}

static int set_offloads(const char *interface, uint32_t on) {
    static const struct { const char *name; uint32_t get, set; } offloads[] = {
        {"rx", ETHTOOL_GRXCSUM, ETHTOOL_SRXCSUM}, {"tx", ETHTOOL_GTXCSUM, ETHTOOL_STXCSUM}, {"sg", ETHTOOL_GSG, ETHTOOL_SSG},
        {"tso", ETHTOOL_GTSO, ETHTOOL_STSO},      {"gso", ETHTOOL_GGSO, ETHTOOL_SGSO},      {"gro", ETHTOOL_GGRO, ETHTOOL_SGRO},
    };
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    for (size_t i = 0; i < sizeof offloads / sizeof *offloads; i++) {
        // What a device has fixed stays.
        ethtool(s, interface, &(struct ethtool_value){offloads[i].set, on});
        struct ethtool_value value = {offloads[i].get, 0};
        if (!ethtool(s, interface, &value)) printf("%s%s %s", i ? ", " : "", offloads[i].name, value.data ? "on" : "off");
    }
    printf("\n");
    return 0;
}

static int set_queues(const char *interface, uint32_t queues) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct ethtool_channels channels = {.cmd = ETHTOOL_GCHANNELS};
    if (ethtool(s, interface, &channels)) return fail("channels");
    if (channels.combined_count == queues) return 0;
    channels.cmd = ETHTOOL_SCHANNELS;
    channels.combined_count = queues;
    return ethtool(s, interface, &channels) ? fail("channels") : 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "send") && atoi(argv[4]) > 0) return send_capture(argv[2], argv[3], atoi(argv[4]));
    if (argc == 3 && !strcmp(argv[1], "tun")) return make_tun(argv[2]);
    if (argc == 4 && !strcmp(argv[1], "offloads")) return set_offloads(argv[2], !strcmp(argv[3], "on"));
    if (argc == 4 && !strcmp(argv[1], "queues")) return set_queues(argv[2], atoi(argv[3]));
    fprintf(stderr, "usage: tool tun IFACE | send IFACE FILE PPS | offloads IFACE on|off | queues IFACE N\n");
    return 2;
}
