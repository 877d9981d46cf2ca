// What flowgauge needs of DPDK, as plain functions: much of DPDK is inline C, and its structs differ from release to release.
// `ffi.rs` declares the same functions and structs.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>
#include <rte_version.h>

struct fg_packet {
    uint8_t *data;
    // Bytes of the whole packet, which may go on in other segments.
    uint32_t wire;
    // Bytes at `data`.
    uint16_t length;
};

_Static_assert(sizeof(struct fg_packet) == 16, "ffi.rs declares the same");
_Static_assert(offsetof(struct rte_mbuf, data_len) == offsetof(struct rte_mbuf, pkt_len) + 4, "both lengths are read at once");
_Static_assert(offsetof(struct fg_packet, length) == offsetof(struct fg_packet, wire) + 4, "and written at once");

struct fg_device {
    struct rte_device *device;
    struct rte_mempool *pool;
    uint16_t port;
    uint16_t max_rx_queues;
    uint16_t max_tx_queues;
    // Bytes of the largest packet behind its link header, as the device has it configured.
    uint16_t mtu;
    // Bytes of a packet that fit into a buffer.
    uint16_t room;
    // The device was not there before: it is removed when it is closed.
    uint8_t added;
    // The device spreads packets over its queues by a hash of their addresses and ports.
    uint8_t rss;
    uint8_t started;
    char driver[61];
};

_Static_assert(sizeof(struct fg_device) == 2 * sizeof(void *) + 5 * sizeof(uint16_t) + 64 + 6, "ffi.rs declares the same");

struct fg_stats {
    uint64_t received;
    uint64_t missed;
    uint64_t errors;
    uint64_t no_buffer;
    uint64_t sent;
    uint64_t send_errors;
};

// Start-up

typedef void (*fg_log)(uint32_t level, const char *text, size_t length);

// Standard error, while DPDK starts and writes elsewhere; or -1.
static int standard_error = -1;

static ssize_t log_write(void *log, const char *text, size_t length)
{
    uint32_t level = (uint32_t)rte_log_cur_msg_loglevel();
    // Last words before DPDK ends the process.
    if (level <= RTE_LOG_CRIT && standard_error >= 0 && write(standard_error, text, length) < 0)
        return -1;
    ((fg_log)log)(level, text, length);
    return (ssize_t)length;
}

// Makes writes to `fd` go to `other`; gives what it was, or -1.
static int divert(int fd, int other)
{
    int before = other < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (before >= 0)
        dup2(other, fd);
    return before;
}

static void restore(int fd, int before)
{
    if (before < 0)
        return;
    dup2(before, fd);
    close(before);
}

int fg_init(int argc, char **argv, fg_log log)
{
    FILE *stream = fopencookie((void *)log, "w", (cookie_io_functions_t){.write = log_write});
    if (stream == NULL)
        return -ENOMEM;
    rte_openlog_stream(stream);
    // Told of an option that it does not know, DPDK prints all that it does, to standard output, where results go; which option it
    // was, it says on standard error.
    int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    int said = memfd_create("dpdk", MFD_CLOEXEC);
    fflush(stdout);
    int standard_output = divert(STDOUT_FILENO, nowhere);
    standard_error = divert(STDERR_FILENO, said);
    int parsed = rte_eal_init(argc, argv);
    int error = rte_errno;
    fflush(stdout);
    restore(STDOUT_FILENO, standard_output);
    restore(STDERR_FILENO, standard_error);
    standard_error = -1;
    char text[1024];
    ssize_t length = said < 0 ? 0 : pread(said, text, sizeof(text), 0);
    if (length > 0)
        log(parsed < 0 ? RTE_LOG_ERR : RTE_LOG_WARNING, text, (size_t)length);
    if (nowhere >= 0)
        close(nowhere);
    if (said >= 0)
        close(said);
    return parsed < 0 ? -error : 0;
}

const char *fg_version(void)
{
    return rte_version();
}

// Gives this thread a number of its own, which the caches of buffer pools go by.
int fg_register_thread(void)
{
    return rte_thread_register();
}

void fg_unregister_thread(void)
{
    rte_thread_unregister();
}

// Devices

int fg_open(const char *devargs, struct fg_device *device)
{
    memset(device, 0, sizeof(*device));
    int probed = rte_dev_probe(devargs);
    if (probed < 0 && probed != -EEXIST)
        return probed;
    device->added = probed == 0;
    struct rte_dev_iterator iterator;
    uint16_t port = RTE_MAX_ETHPORTS;
    RTE_ETH_FOREACH_MATCHING_DEV(port, devargs, &iterator) {
        rte_eth_iterator_cleanup(&iterator);
        break;
    }
    struct rte_eth_dev_info info;
    int told = port == RTE_MAX_ETHPORTS ? -ENODEV : rte_eth_dev_info_get(port, &info);
    if (told < 0)
        return told;
    device->device = info.device;
    device->port = port;
    device->max_rx_queues = info.max_rx_queues;
    device->max_tx_queues = info.max_tx_queues;
    device->rss = info.flow_type_rss_offloads != 0;
    snprintf(device->driver, sizeof(device->driver), "%s", info.driver_name);
    return 0;
}

// Link header with two VLAN tags, and the checksum some devices keep.
#define OVERHEAD (14 + 2 * 4 + 4)

static struct rte_mempool *pool(uint16_t port, uint16_t mtu, uint16_t rx, uint16_t rx_descriptors, uint16_t tx,
                                uint16_t tx_descriptors)
{
    // A frame in one buffer: nothing has to be put together, and a received frame takes one descriptor.
    uint32_t room = RTE_ALIGN_CEIL(RTE_MAX((uint32_t)mtu + OVERHEAD, 2048u), 64u) + RTE_PKTMBUF_HEADROOM;
    room = RTE_MIN(room, (uint32_t)UINT16_MAX);
    // Descriptors, twice on receipt for drivers with queues to and from the kernel, and what threads have at hand.
    uint32_t buffers = (2u * rx * rx_descriptors + (uint32_t)tx * tx_descriptors) + 512u * (rx + tx + 2u);
    char name[RTE_MEMPOOL_NAMESIZE];
    snprintf(name, sizeof(name), "flowgauge_%u", port);
    return rte_pktmbuf_pool_create(name, buffers, 256, 0, (uint16_t)room, rte_eth_dev_socket_id(port));
}

// On failure, `step` says what did not work.
int fg_start(struct fg_device *device, uint16_t rx, uint16_t tx, uint16_t descriptors, const char **step)
{
    uint16_t port = device->port;
    struct rte_eth_dev_info info;
    *step = "ask about its abilities";
    int done = rte_eth_dev_info_get(port, &info);
    if (done < 0)
        return done;
    struct rte_eth_conf configuration;
    memset(&configuration, 0, sizeof(configuration));
    device->mtu = RTE_ETHER_MTU;
    // Not told, DPDK would set the usual one.
    if (rte_eth_dev_get_mtu(port, &device->mtu) == 0)
        configuration.rxmode.mtu = device->mtu;
    if (rx > 1 && info.flow_type_rss_offloads != 0) {
        uint64_t wanted = RTE_ETH_RSS_IP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_SCTP;
        configuration.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
        configuration.rx_adv_conf.rss_conf.rss_hf = wanted & info.flow_type_rss_offloads;
    }
    configuration.txmode.offloads = info.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
    *step = "configure queues";
    done = rte_eth_dev_configure(port, rx, tx, &configuration);
    if (done < 0)
        return done;
    uint16_t rx_descriptors = descriptors, tx_descriptors = descriptors;
    done = rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx_descriptors, &tx_descriptors);
    if (done < 0)
        return done;
    *step = "get memory for packets";
    device->pool = pool(port, device->mtu, rx, rx_descriptors, tx, tx_descriptors);
    if (device->pool == NULL)
        return -rte_errno;
    device->room = rte_pktmbuf_data_room_size(device->pool) - RTE_PKTMBUF_HEADROOM;
    unsigned int socket = (unsigned int)rte_eth_dev_socket_id(port);
    *step = "set up a receive queue";
    for (uint16_t queue = 0; queue < rx && done >= 0; queue++)
        done = rte_eth_rx_queue_setup(port, queue, rx_descriptors, socket, NULL, device->pool);
    if (done < 0)
        return done;
    *step = "set up a send queue";
    for (uint16_t queue = 0; queue < tx && done >= 0; queue++)
        done = rte_eth_tx_queue_setup(port, queue, tx_descriptors, socket, NULL);
    if (done < 0)
        return done;
    *step = "start";
    done = rte_eth_dev_start(port);
    if (done < 0)
        return done;
    device->started = 1;
    // Drivers for software devices often have no counters to reset, and no such mode.
    rte_eth_stats_reset(port);
    *step = "receive what is addressed to others (promiscuous mode)";
    done = rx > 0 ? rte_eth_promiscuous_enable(port) : 0;
    return done == -ENOTSUP ? 0 : done;
}

void fg_close(struct fg_device *device)
{
    if (device->started) {
        rte_eth_promiscuous_disable(device->port);
        rte_eth_dev_stop(device->port);
    }
    rte_eth_dev_close(device->port);
    if (device->added)
        rte_dev_remove(device->device);
    rte_mempool_free(device->pool);
}

int fg_stats(uint16_t port, struct fg_stats *stats)
{
    struct rte_eth_stats all;
    int done = rte_eth_stats_get(port, &all);
    if (done < 0)
        return done;
    *stats = (struct fg_stats){
        .received = all.ipackets,
        .missed = all.imissed,
        .errors = all.ierrors,
        .no_buffer = all.rx_nombuf,
        .sent = all.opackets,
        .send_errors = all.oerrors,
    };
    return 0;
}

// Packets that wait in a receive queue, as far as its driver tells.
uint32_t fg_waiting(uint16_t port, uint16_t queue)
{
    int waiting = rte_eth_rx_queue_count(port, queue);
    return waiting < 0 ? 0 : (uint32_t)waiting;
}

// 1 if the link is up, 0 if it is down.
int fg_link(uint16_t port)
{
    struct rte_eth_link link;
    int done = rte_eth_link_get_nowait(port, &link);
    return done < 0 ? done : link.link_status == RTE_ETH_LINK_UP;
}

int fg_set_link(uint16_t port, int up)
{
    return up ? rte_eth_dev_set_link_up(port) : rte_eth_dev_set_link_down(port);
}

int fg_is_removed(uint16_t port)
{
    return rte_eth_dev_is_removed(port);
}

// Packets

// What drivers set of a buffer at once: where its packet begins, how often it is referred to, its segments and its port.
struct state {
    uint16_t data_off;
    uint16_t refcnt;
    uint16_t nb_segs;
    uint16_t port;
};

_Static_assert(offsetof(struct rte_mbuf, refcnt) == offsetof(struct rte_mbuf, data_off) + offsetof(struct state, refcnt), "read at once");
_Static_assert(offsetof(struct rte_mbuf, nb_segs) == offsetof(struct rte_mbuf, data_off) + offsetof(struct state, nb_segs), "read at once");

// `plain` is the pool that all buffers can go back to as they are, or NULL if there is more to do: a buffer is of another pool, has
// further segments or is shared. Found out while the buffer's header is at hand, with few instructions, as it is done for every packet.
uint16_t fg_receive(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, struct fg_packet *packets, uint16_t most,
                    struct rte_mempool **plain)
{
    uint16_t count = rte_eth_rx_burst(port, queue, mbufs, most);
    struct rte_mempool *pool = count > 0 ? mbufs[0]->pool : NULL;
    uint64_t others = 0, states = 0, flags = 0;
#pragma GCC unroll 4
    for (uint16_t index = 0; index < count; index++) {
        const struct rte_mbuf *mbuf = mbufs[index];
        uint64_t state;
        memcpy(&state, &mbuf->data_off, sizeof(state));
        uint8_t *data = rte_pktmbuf_mtod(mbuf, uint8_t *);
        rte_prefetch0(data);
        packets[index].data = data;
        memcpy(&packets[index].wire, &mbuf->pkt_len, sizeof(uint64_t));
        others |= (uintptr_t)mbuf->pool ^ (uintptr_t)pool;
        states |= state;
        flags |= mbuf->ol_flags;
    }
    // None of them is zero in a buffer that was handed over.
    struct state all;
    memcpy(&all, &states, sizeof(all));
    others |= (uint64_t)(all.refcnt ^ 1) | (uint64_t)(all.nb_segs ^ 1) | (flags & (RTE_MBUF_F_INDIRECT | RTE_MBUF_F_EXTERNAL));
    *plain = others == 0 ? pool : NULL;
    return count;
}

// The beginning of a packet that lies in several segments.
uint32_t fg_gather(const struct rte_mbuf *mbuf, uint8_t *buffer, uint32_t size)
{
    uint32_t gathered = 0;
    for (; mbuf != NULL && gathered < size; mbuf = mbuf->next) {
        uint32_t length = RTE_MIN((uint32_t)mbuf->data_len, size - gathered);
        memcpy(buffer + gathered, rte_pktmbuf_mtod(mbuf, const uint8_t *), length);
        gathered += length;
    }
    return gathered;
}

// `plain` as above: as drivers do, buffers with nothing about them go back without another look.
void fg_free(struct rte_mbuf **mbufs, uint16_t count, struct rte_mempool *plain)
{
    if (plain != NULL)
        rte_mempool_put_bulk(plain, (void **)mbufs, count);
    else
        rte_pktmbuf_free_bulk(mbufs, count);
}

// Writes over every free buffer, for measurements on devices that hand buffers out as they are.
void fg_fill(struct rte_mempool *pool, void (*fill)(void *context, uint8_t *data, uint32_t size), void *context)
{
    struct rte_mbuf *all = NULL, *mbuf;
    while ((mbuf = rte_pktmbuf_alloc(pool)) != NULL) {
        fill(context, rte_pktmbuf_mtod(mbuf, uint8_t *), rte_pktmbuf_tailroom(mbuf));
        mbuf->next = all;
        all = mbuf;
    }
    while (all != NULL) {
        mbuf = all;
        all = mbuf->next;
        mbuf->next = NULL;
        rte_pktmbuf_free(mbuf);
    }
}

// Empty buffers; `length` says how much fits. All or none.
int fg_allocate(struct rte_mempool *pool, struct rte_mbuf **mbufs, struct fg_packet *packets, uint16_t count)
{
    int done = rte_pktmbuf_alloc_bulk(pool, mbufs, count);
    for (uint16_t index = 0; done == 0 && index < count; index++) {
        packets[index].data = rte_pktmbuf_mtod(mbufs[index], uint8_t *);
        packets[index].length = rte_pktmbuf_tailroom(mbufs[index]);
        packets[index].wire = 0;
    }
    return done;
}

// Makes `more`, with `length` bytes in it, the last segment of a packet.
void fg_append(struct rte_mbuf *mbuf, struct rte_mbuf *more, uint16_t length)
{
    more->data_len = length;
    rte_pktmbuf_lastseg(mbuf)->next = more;
    mbuf->nb_segs++;
}

// Gives the device what it takes; the rest stays with the caller.
uint16_t fg_send(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, const struct fg_packet *packets, uint16_t count)
{
    for (uint16_t index = 0; index < count; index++) {
        mbufs[index]->data_len = packets[index].length;
        mbufs[index]->pkt_len = packets[index].wire;
    }
    return rte_eth_tx_burst(port, queue, mbufs, count);
}
