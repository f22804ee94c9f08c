/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares comm-tcp: collectives among processes on any number of hosts, over
 * TCP. Creates and destroys instances.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <xray/plugin.h>

#include "core/base/system_error.h"
#include "plugins/comm-tcp/tcp.h"

static const xray_option options[] = {
    XRAY_STRING(tcp_config, interface, "", 0u, "0.1",
                "Where the other ranks reach this one: the name of a network "
                "interface, or an address or a network (10.1.0.0/16) of one; "
                "empty: that of the default route, and the loopback where all "
                "ranks are on one host."),
    XRAY_DURATION(tcp_config, heartbeat, "3s", 1000000000, 3600000000000, "s",
                  0u, "0.1",
                  "The longest that a host may be silent before its ranks "
                  "count as lost."),
};

static uint32_t tcp_serves(const char *device_name)
{
    return xr_collective_is_kind(device_name, "cpu") ||
           xr_collective_is_kind(device_name, "cuda");
}

/* ---- destroy --------------------------------------------------------------
 */

/* Tells the others that this rank has ended, not died. What they have not read
 * yet stays in the lines. */
static void say_farewell(tcp_comm *comm)
{
    static const tcp_frame leave = { .magic = TCP_FRAME_MAGIC,
                                     .kind = TCP_LEAVE };
    static const tcp_note end = { .magic = TCP_NOTE_MAGIC, .kind = TCP_END };
    for (uint32_t r = 0; r < comm->size; r++) {
        tcp_peer *peer = &comm->peers[r];
        if (peer->calls >= 0 && tcp_line_put(peer, &leave))
            tcp_line_send(peer);
        tcp_send_note(comm, r, &end);
    }
}

/* Closing a line with bytes that were not read would drop what it still has to
 * send. */
static void close_line(int fd)
{
    char scrap[4096];
    if (fd < 0)
        return;
    (void)shutdown(fd, SHUT_WR);
    for (uint32_t i = 0; i < 64; i++)
        if (recv(fd, scrap, sizeof(scrap), MSG_DONTWAIT) <= 0)
            break;
    (void)close(fd);
}

static void close_lines(tcp_comm *comm)
{
    for (uint32_t r = 0; comm->peers && r < comm->size; r++) {
        close_line(comm->peers[r].calls);
        close_line(comm->peers[r].notes);
        free(comm->peers[r].out);
    }
}

static void tcp_destroy(void *self)
{
    tcp_comm *comm = self;
    if (!comm)
        return;
    if (comm->watching) {
        tcp_stop_watcher(comm);
        say_farewell(comm);
        if (comm->trace)
            xr_trace_put32(&comm->trace->state, TCP_ENDED);
    }
    while (comm->groups) {
        xray_comm_group *group = comm->groups;
        comm->groups = group->next;
        tcp_group_free(group);
    }
    close_lines(comm);
    if (comm->wake >= 0)
        (void)close(comm->wake);
    if (comm->end >= 0)
        (void)close(comm->end);
    if (comm->locks) {
        (void)pthread_cond_destroy(&comm->heard);
        (void)pthread_mutex_destroy(&comm->lock);
    }
    free(comm->broken);
    free(comm->window);
    free(comm->mates);
    free(comm->parts);
    tcp_rings_free(comm);
    free(comm->stage_in);
    free(comm->stage_out);
    free(comm->peers);
    free(comm);
}

/* ---- create -------------------------------------------------------------- */

static xray_status check_setup(const xray_comm_setup *s)
{
    if (!s || !XRAY_REACHES(xray_comm_setup, s, gather))
        return XRAY_E_ABI;
    if (!s->device || s->size == 0 || s->rank >= s->size ||
        (s->size > 1 && !s->gather))
        return xr_host_fail(s->host, XRAY_E_ARG, "comm tcp",
                            "the setup lacks a device, ranks or the gather");
    if (s->size > TCP_MOST_RANKS)
        return xr_host_fail(s->host, XRAY_E_RANGE, "comm tcp",
                            "%u ranks, but there may be at most %u", s->size,
                            TCP_MOST_RANKS);
    return XRAY_OK;
}

/* Makes the lock, and a condition of the clock that has no leaps. */
static int make_locks(tcp_comm *comm)
{
    pthread_condattr_t attributes;
    if (pthread_mutex_init(&comm->lock, NULL) != 0)
        return 0;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int bad = pthread_cond_init(&comm->heard, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (bad)
        (void)pthread_mutex_destroy(&comm->lock);
    comm->locks = !bad;
    return !bad;
}

static int make_memory(tcp_comm *comm, int staged)
{
    if (comm->size > 1)
        comm->window = malloc((size_t)comm->size * 2 * TCP_WINDOW * TCP_PIECE);
    if (staged) {
        comm->stage_in = malloc(TCP_STAGE);
        comm->stage_out = malloc(TCP_STAGE);
    }
    return (comm->size == 1 || comm->window) &&
           (!staged || (comm->stage_in && comm->stage_out));
}

/* Everything that a rank needs of its own host. */
static xray_status prepare_rank(tcp_comm *comm)
{
    const xray_device_ops *ops = comm->device;
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info),
                              .host_memory = 1 };
    xray_status status = XRAY_OK;
    if (XRAY_HAS(xray_device_ops, ops, info))
        status = ops->info(comm->device_self, &info);
    if (status != XRAY_OK)
        return status;
    if (!make_locks(comm) || !make_memory(comm, !info.host_memory))
        return xr_host_fail(comm->host, XRAY_E_NOMEM, "comm tcp",
                            "no memory for the instance");
    comm->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    comm->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (comm->wake < 0 || comm->end < 0)
        return xr_host_fail(comm->host, XRAY_E_IO, "comm tcp",
                            "no descriptors for the instance: %s",
                            XR_SYSTEM_ERROR(errno));
    return XRAY_OK;
}

static xray_status tcp_create(const xray_comm_setup *setup, const void *config,
                              void **out_self)
{
    static const tcp_config usual = { "", 3000000000 };
    const tcp_config *chosen = config ? config : &usual;
    xray_status status = check_setup(setup);
    if (status != XRAY_OK)
        return status;
    tcp_comm *comm = calloc(1, sizeof(*comm));
    tcp_peer *peers = calloc(setup->size, sizeof(*peers));
    if (!comm || !peers) {
        free(comm);
        free(peers);
        return xr_host_fail(setup->host, XRAY_E_NOMEM, "comm tcp",
                            "no memory for the instance");
    }
    *comm = (tcp_comm){ .host = setup->host,
                        .stop = xr_calls_of(setup->host),
                        .device = setup->device,
                        .device_self = setup->device_self,
                        .rank = setup->rank,
                        .size = setup->size,
                        .timeout = setup->timeout_ms * 1000000u,
                        .heartbeat = (uint64_t)chosen->heartbeat,
                        .trace = setup->trace,
                        .peers = peers,
                        .rings_fd = -1,
                        .wake = -1,
                        .end = -1 };
    for (uint32_t r = 0; r < setup->size; r++)
        peers[r].calls = peers[r].notes = -1;
    status = tcp_connect(comm, setup, chosen, prepare_rank(comm));
    if (status == XRAY_OK && setup->size > 1 && !tcp_start_watcher(comm))
        status = xr_host_fail(setup->host, XRAY_E_NOMEM, "comm tcp",
                              "no thread for the instance");
    if (status != XRAY_OK) {
        tcp_destroy(comm);
        return status;
    }
    *out_self = comm;
    return XRAY_OK;
}

/* The other ranks are told even while this one is in no call. */
static void tcp_abort(void *self)
{
    static const tcp_note stopped = { .magic = TCP_NOTE_MAGIC,
                                      .kind = TCP_STOPPED };
    tcp_comm *comm = self;
    atomic_store(&comm->aborted, 1);
    (void)pthread_mutex_lock(&comm->lock);
    for (uint32_t r = 0; r < comm->size; r++)
        tcp_send_note(comm, r, &stopped);
    (void)pthread_mutex_unlock(&comm->lock);
    tcp_wake(comm);
}

static uint32_t tcp_spans_hosts(void)
{
    return 1;
}

static const xray_comm_ops ops = {
    .header = XRAY_HEADER(xray_comm_ops),
    .serves = tcp_serves,
    .create = tcp_create,
    .destroy = tcp_destroy,
    .group = tcp_group,
    .all_reduce = tcp_all_reduce,
    .all_reduce_max = tcp_all_reduce_max,
    .reduce_scatter = tcp_reduce_scatter,
    .all_gather = tcp_all_gather,
    .broadcast = tcp_broadcast,
    .send = tcp_send,
    .recv = tcp_recv,
    .exchange = tcp_exchange,
    .all_to_all = tcp_all_to_all,
    .abort = tcp_abort,
    .spans_hosts = tcp_spans_hosts,
};

static const xray_component tcp = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_COMM,
    .name = "tcp",
    .summary = "processes on any number of hosts, over TCP",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(*options),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(tcp_config),
};

static const xray_component *const components[] = { &tcp };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "comm-tcp",
    .version = "0.1.0",
    .vendor = "X-ray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(comm_tcp, plugin, "comm-tcp", "0.1.0", "xray.comm/0:tcp")
