/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares comm-nccl, collectives among CUDA devices through NCCL, and creates
 * and destroys its instances.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <xray/plugin.h>

#include "core/base/collective.h"
#include "plugins/comm-nccl/instance.h"

#define LEAVE \
    5000000000u /* ns that other ranks have to complete what was begun */

static const xray_choice sums[] = {
    { "ordered", NCCL_SUMS_ORDERED,
      "a balanced tree over the ranks, in fp32: the bits that comm-shm gives" },
    { "nccl", NCCL_SUMS_NCCL,
      "NCCL's own, in the order of its ring: other bits, less memory traffic" },
    { NULL, 0, NULL },
};

static const xray_choice bf16[] = {
    { "fp32", NCCL_BF16_FP32, "widened, summed in fp32 and rounded once" },
    { "nccl", NCCL_BF16_NCCL, "rounded to bf16 after each rank, as NCCL does" },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_CHOICE(nccl_config, sums, "ordered", sums, 0u, "0.1",
                "How the sums of all_reduce and reduce_scatter are formed."),
    XRAY_CHOICE(nccl_config, reduce_bf16, "fp32", bf16, 0u, "0.1",
                "How bf16 is summed where sums is nccl."),
    XRAY_BYTES(
        nccl_config, scratch, "64M", 0, 0x1p40, 0u, "0.1",
        "Device memory for sums; with more of it a sum has fewer pieces."),
    XRAY_BOOL(nccl_config, wait, "false", 0u, "0.1",
              "Whether a call returns only when it is complete, so that an "
              "error belongs to the call that failed; slower."),
    XRAY_STRING(nccl_config, library, "", 0u, "0.1",
                "NCCL's shared object; empty: libnccl.so.2 where the loader "
                "looks."),
    XRAY_STRING(nccl_config, driver, "", 0u, "0.1",
                "The CUDA driver's shared object; empty: libcuda.so.1."),
};

uint64_t nccl_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void nccl_pause(uint32_t us)
{
    struct timespec t = { 0, (long)us * 1000 };
    (void)nanosleep(&t, NULL);
}

static uint32_t nccl_serves(const char *device_name)
{
    return xr_collective_is_kind(device_name, "cuda");
}

/* ---- destroy
 * -------------------------------------------------------------- */

/* Finalizes a working communicator, which waits for the other ranks to complete
 * what was begun. If they do not do so soon, it is aborted. */
static void leave_group(xray_comm_group *g, uint64_t start)
{
    const nccl_api *api = &g->comm->api;
    if (atomic_exchange(&g->gate, NCCL_CLOSED) == NCCL_CLOSED)
        return;
    int result = api->finalize(g->nccl);
    for (uint32_t i = 0; result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
         i++) {
        int state = NCCL_IN_PROGRESS;
        if (api->async_error(g->nccl, &state) != NCCL_SUCCESS)
            break;
        if (state == NCCL_SUCCESS) {
            (void)api->destroy(g->nccl);
            return;
        }
        if (state != NCCL_IN_PROGRESS || nccl_clock() - start > LEAVE)
            break;
        nccl_pause(i < 100 ? 20 : 1000);
    }
    (void)api->abort(g->nccl);
}

static void destroy_events(nccl_comm *comm)
{
    for (uint32_t i = 0; i < NCCL_RING; i++) {
        if (comm->ring[i].ready)
            (void)comm->api.event_destroy(comm->ring[i].ready);
        if (comm->ring[i].done)
            (void)comm->api.event_destroy(comm->ring[i].done);
    }
}

static void nccl_destroy(void *self)
{
    nccl_comm *comm = self;
    if (!comm)
        return;
    int began = comm->watching != 0;
    nccl_stop_watcher(comm);
    nccl_check_calls(comm);
    /* A peer that was canceled does not complete its part. */
    int abandoned = comm->completed != comm->enqueued ||
                    xr_stop_check(comm->stop, NULL) != XRAY_OK;
    if (began)
        nccl_trace_state(comm, NCCL_ENDED);
    uint64_t start = nccl_clock();
    /* A group that is broken has been closed. */
    for (xray_comm_group *g = comm->groups; g; g = g->next) {
        if (abandoned)
            nccl_close(g, 0);
        else
            leave_group(g, start);
        nccl_abort_closed(g);
    }
    while (comm->groups) {
        xray_comm_group *g = comm->groups;
        comm->groups = g->next;
        nccl_group_free(g);
    }
    destroy_events(comm);
    if (comm->stream)
        comm->device->stream_destroy(comm->device_self, comm->stream);
    comm->device->free(comm->device_self, comm->scratch);
    comm->device->free(comm->device_self, comm->small);
    for (uint32_t i = 0; comm->peers && i < comm->size; i++)
        if (comm->peers[i].pidfd >= 0)
            (void)close(comm->peers[i].pidfd);
    if (comm->context)
        (void)comm->api.context_drop(comm->gpu);
    (void)pthread_cond_destroy(&comm->work);
    (void)pthread_cond_destroy(&comm->closed);
    (void)pthread_mutex_destroy(&comm->lock);
    free(comm->peers);
    free(comm);
}

/* ---- create
 * --------------------------------------------------------------- */

static xray_status check_setup(const xray_comm_setup *s)
{
    if (!s || !XRAY_REACHES(xray_comm_setup, s, gather))
        return XRAY_E_ABI;
    if (!s->device || s->size == 0 || s->rank >= s->size ||
        (s->size > 1 && !s->gather))
        return xr_host_fail(s->host, XRAY_E_ARG, "comm nccl",
                            "the setup lacks a device, ranks or the gather");
    if (s->traces && s->trace_stride < sizeof(*s->traces))
        return xr_host_fail(s->host, XRAY_E_ARG, "comm nccl",
                            "traces of %llu bytes, but %zu are needed",
                            (unsigned long long)s->trace_stride,
                            sizeof(*s->traces));
    if (s->size > NCCL_MAX_RANKS)
        return xr_host_fail(s->host, XRAY_E_RANGE, "comm nccl",
                            "%u ranks, but at most %u are possible", s->size,
                            NCCL_MAX_RANKS);
    return XRAY_OK;
}

const char *nccl_cuda_text(const nccl_comm *comm, int error)
{
    const char *text = NULL;
    if (comm->api.cuda_text(error, &text) != NCCL_CUDA_SUCCESS || !text)
        return "an error without a name";
    return text;
}

static xray_status check_cuda(const nccl_comm *comm, const char *what,
                              int error)
{
    if (error == NCCL_CUDA_SUCCESS)
        return XRAY_OK;
    return xr_host_fail(comm->host, XRAY_E_DEVICE, "comm nccl",
                        "%s: the CUDA driver says: %s", what,
                        nccl_cuda_text(comm, error));
}

/* NCCL uses the device whose context is current in this thread. */
static xray_status open_context(nccl_comm *comm)
{
    const nccl_api *api = &comm->api;
    int index = (int)comm->cuda->index(comm->device_self);
    void *context = NULL;
    xray_status status = check_cuda(comm, "cuInit", api->cuda_init(0));
    if (status == XRAY_OK)
        status = check_cuda(comm, "the device", api->device(&comm->gpu, index));
    if (status == XRAY_OK)
        status = check_cuda(comm, "its context",
                            api->context_take(&context, comm->gpu));
    comm->context = context;
    return status == XRAY_OK
               ? check_cuda(comm, "its context", api->context_set(context))
               : status;
}

static xray_status create_events(nccl_comm *comm)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; status == XRAY_OK && i < NCCL_RING; i++) {
        nccl_slot *slot = &comm->ring[i];
        status = check_cuda(
            comm, "an event",
            comm->api.event_create(&slot->ready, NCCL_CUDA_EVENT_PLAIN));
        if (status == XRAY_OK)
            status = check_cuda(
                comm, "an event",
                comm->api.event_create(&slot->done, NCCL_CUDA_EVENT_PLAIN));
    }
    return status;
}

/* A single rank needs nothing from NCCL. */
static xray_status open_device(nccl_comm *comm)
{
    const xray_device_ops *device = comm->device;
    if (XRAY_HAS(xray_device_ops, device, extension))
        comm->cuda = device->extension(comm->device_self, XRAY_EXT_CUDA);
    if (comm->size == 1)
        return XRAY_OK;
    if (!comm->cuda)
        return xr_host_fail(comm->host, XRAY_E_UNSUPPORTED, "comm nccl",
                            "the device does not give its CUDA streams (%s)",
                            XRAY_EXT_CUDA);
    /* NCCL's own sums keep their bits only with a fixed algorithm. */
    if (comm->config.sums == NCCL_SUMS_NCCL) {
        (void)setenv("NCCL_ALGO", "Ring", 0);
        (void)setenv("NCCL_PROTO", "Simple", 0);
    }
    xray_status status = nccl_api_load(comm->host, comm->config.library,
                                       comm->config.driver, &comm->api);
    if (status != XRAY_OK)
        return status;
    status = open_context(comm);
    if (status == XRAY_OK)
        status = device->stream_create(comm->device_self, &comm->stream);
    if (status != XRAY_OK)
        return status;
    comm->native = comm->cuda->stream(comm->device_self, comm->stream);
    status = device->alloc(comm->device_self, "comm nccl", XRAY_TAG_WORKSPACE,
                           NCCL_SMALL, (void **)&comm->small);
    if (status == XRAY_OK && comm->config.scratch)
        status =
            device->alloc(comm->device_self, "comm nccl", XRAY_TAG_WORKSPACE,
                          comm->config.scratch, (void **)&comm->scratch);
    return status == XRAY_OK ? create_events(comm) : status;
}

static xray_status gather_offers(const xray_comm_setup *setup,
                                 const nccl_offer *mine, nccl_offer *all)
{
    xray_status status =
        setup->gather(setup->gather_ctx, mine, sizeof(*mine), all);
    if (status != XRAY_OK)
        return xr_host_fail(setup->host, status, "comm nccl",
                            "the ranks could not exchange their addresses");
    return XRAY_OK;
}

/* Exchanges addresses twice: first who can take part, with rank 0's id, then
 * who is connected. A rank that has failed still takes part and reports its
 * status. */
static xray_status connect_ranks(nccl_comm *comm, const xray_comm_setup *setup,
                                 xray_status ready, nccl_offer *all)
{
    nccl_offer mine;
    nccl_offer_fill(comm, ready, &mine);
    xray_status made = mine.status;
    xray_status status = gather_offers(setup, &mine, all);
    if (made != XRAY_OK)
        return made;
    if (status == XRAY_OK)
        status = nccl_offers_check(comm, all);
    if (status != XRAY_OK)
        return status;
    nccl_peers_open(comm, all);
    made = nccl_connect(comm->base, &all[0].id);
    mine.status = made;
    status = gather_offers(setup, &mine, all);
    if (made != XRAY_OK)
        return made;
    return status == XRAY_OK ? nccl_offers_check(comm, all) : status;
}

static nccl_comm *create_instance(const xray_comm_setup *setup,
                                  const nccl_config *config)
{
    nccl_comm *comm = calloc(1, sizeof(*comm));
    nccl_peer *peers = calloc(setup->size, sizeof(*peers));
    uint32_t *ranks = calloc(setup->size, sizeof(*ranks));
    if (!comm || !peers || !ranks) {
        free(comm);
        free(peers);
        free(ranks);
        return NULL;
    }
    comm->host = setup->host;
    comm->stop = xr_calls_of(setup->host);
    comm->device = setup->device;
    comm->device_self = setup->device_self;
    comm->rank = setup->rank;
    comm->size = setup->size;
    comm->timeout = setup->timeout_ms * 1000000u;
    comm->trace = setup->trace;
    comm->traces = setup->traces;
    comm->trace_stride = setup->trace_stride;
    comm->peers = peers;
    comm->config = *config;
    for (uint32_t i = 0; i < setup->size; i++) {
        peers[i].pidfd = -1;
        ranks[i] = i;
    }
    (void)pthread_mutex_init(&comm->lock, NULL);
    (void)pthread_cond_init(&comm->work, NULL);
    (void)pthread_cond_init(&comm->closed, NULL);
    comm->base = nccl_group_create(comm, ranks, setup->size);
    free(ranks);
    if (comm->base)
        return comm;
    nccl_destroy(comm);
    return NULL;
}

static xray_status nccl_create(const xray_comm_setup *setup, const void *config,
                               void **out_self)
{
    static const nccl_config usual = { .scratch = 64u << 20 };
    xray_status status = check_setup(setup);
    if (status != XRAY_OK)
        return status;
    nccl_comm *comm = create_instance(setup, config ? config : &usual);
    nccl_offer *all = calloc(setup->size, sizeof(*all));
    if (!comm || !all) {
        nccl_destroy(comm);
        free(all);
        return xr_host_fail(setup->host, XRAY_E_NOMEM, "comm nccl",
                            "no memory for the instance");
    }
    nccl_trace_reset(comm);
    status = open_device(comm);
    if (setup->size > 1)
        status = connect_ranks(comm, setup, status, all);
    free(all);
    if (status == XRAY_OK && setup->size > 1 && !nccl_start_watcher(comm))
        status = xr_host_fail(setup->host, XRAY_E_NOMEM, "comm nccl",
                              "no thread could be started to watch the calls");
    if (status != XRAY_OK) {
        nccl_destroy(comm);
        return status;
    }
    *out_self = comm;
    return XRAY_OK;
}

static void nccl_abort(void *self)
{
    nccl_comm *comm = self;
    atomic_store(&comm->aborted, 1);
}

static uint32_t nccl_spans_hosts(void)
{
    return 1;
}

static const xray_comm_ops ops = {
    .header = XRAY_HEADER(xray_comm_ops),
    .serves = nccl_serves,
    .create = nccl_create,
    .destroy = nccl_destroy,
    .group = nccl_group,
    .all_reduce = nccl_all_reduce,
    .all_reduce_max = nccl_all_reduce_max,
    .reduce_scatter = nccl_reduce_scatter,
    .all_gather = nccl_all_gather,
    .broadcast = nccl_broadcast,
    .send = nccl_send,
    .recv = nccl_recv,
    .exchange = nccl_exchange,
    .all_to_all = nccl_all_to_all,
    .abort = nccl_abort,
    .spans_hosts = nccl_spans_hosts,
};

static const xray_component nccl = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_COMM,
    .name = "nccl",
    .summary =
        "CUDA devices of one or more hosts, one rank per device, through NCCL",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(*options),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(nccl_config),
};

static const xray_component *const components[] = { &nccl };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "comm-nccl",
    .version = "0.1.0",
    .vendor = "X-ray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(comm_nccl, plugin, "comm-nccl", "0.1.0", "xray.comm/0:nccl")
