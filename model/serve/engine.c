/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates and destroys instances, and serves the calls between steps.
 */
#include <stdio.h>

#include "core/base/str.h"
#include "model/serve/engine_internal.h"

xray_status xm_engine_fail(const xm_engine *self, xray_status status,
                           const char *where, const char *text)
{
    return xr_host_fail(self->host, status, where, "%s: %s", self->name, text);
}

/* ---- create and destroy ------------------------------------------------- */

static xray_status open_trace(xm_engine *self, const xray_world *world,
                              const char *path, xr_err *err)
{
    uint32_t rank =
        world->global_ranks ? world->global_ranks[world->rank] : world->rank;
    if (!path || !*path)
        return XRAY_OK;
    xray_status status =
        xm_trace_open(path, rank, self->name, err, &self->trace);
    return status == XRAY_OK ? status
                             : xr_fail_in(err, status, "%s", self->name);
}

void xm_engine_lose_trace(const xm_engine *self, const xr_err *why)
{
    char line[sizeof(why->text) + 40];
    (void)snprintf(line, sizeof(line), "%s; the trace ends here", why->text);
    self->host->log(self->host, XRAY_LOG_WARN, line);
}

static xray_status create_parts(xm_engine *self, const xray_setup *setup,
                                const xm_engine_options *options, xr_err *err)
{
    const xm_engine_bounds *b = &self->bounds;
    xray_status status = open_trace(self, setup->world, options->trace, err);
    if (status != XRAY_OK)
        return status;
    status = xm_engine_join_ranks(self, setup->world, err);
    if (status == XRAY_OK)
        status = xm_engine_create_weights(self, setup, options->weights, err);
    if (status != XRAY_OK)
        return status;
    const xm_watch watch = xm_engine_watch(self);
    xm_decoder_watch(self->decoder, &watch);
    status = xm_space_create(self->decoder, b->step_tokens, b->slots,
                             b->row_bound, 0, self->owner, err, &self->space);
    if (status != XRAY_OK)
        return status;
    status = xm_engine_alloc_arrays(self, err);
    if (status != XRAY_OK)
        return status;
    status = xm_engine_alloc_kv(self, err);
    if (status != XRAY_OK)
        return status;
    const xm_sched_limits limits = {
        .slots = b->slots,
        .step_tokens = b->step_tokens,
        .request = { xm_config_vocab(&self->model), b->row_bound },
        .paging = { .table = b->blocks ? self->host_arrays.table : NULL,
                    .stride = b->slot_blocks,
                    .watermark = b->watermark,
                    .blocks = { b->blocks, b->block_tokens, b->caching } },
        .trace = self->trace,
        .speculate = b->speculate,
    };
    return xm_sched_create(&limits, err, &self->sched);
}

static xray_status create_instance(const char *name, const xray_setup *setup,
                                   const xm_engine_sizes *sizes, xr_err *err,
                                   void **out_self)
{
    const xray_host *host = setup->host;
    xm_engine *self = xr_calloc(1, sizeof(*self));
    if (!self)
        return xr_fail(err, XRAY_E_NOMEM, "%s: no memory", name);
    self->name = name;
    (void)snprintf(self->owner, sizeof(self->owner), "infer.%s", self->name);
    self->host = host;
    self->calls = xr_calls_of(host);
    self->metrics = host->service(host, XRAY_SERVICE_METRICS);
    self->device = setup->device;
    self->device_self = setup->device_self;
    self->model = sizes->model;
    self->bounds = sizes->bounds;
    xray_status status = create_parts(self, setup, &sizes->options, err);
    if (status != XRAY_OK) {
        xm_engine_destroy(self);
        return status;
    }
    *out_self = self;
    return XRAY_OK;
}

xray_status xm_engine_create(const xm_engine_kind *kind,
                             const xray_setup *setup, const void *config,
                             const xray_workload *load, void **out_self)
{
    xr_err err = { "" };
    xm_engine_sizes sizes;
    xray_status status = xm_engine_find_sizes(kind, config, setup->model,
                                              setup->world, load, &err, &sizes);
    if (status == XRAY_OK)
        status = create_instance(kind->name, setup, &sizes, &err, out_self);
    return status == XRAY_OK
               ? status
               : xr_host_tell(setup->host, status, "create", &err);
}

/* ---- the lease ---------------------------------------------------------- */

xray_status xm_engine_take_lease(xm_engine *self, const char *where)
{
    if (self->own || self->leased)
        return XRAY_OK;
    xray_status status = self->shared->lease(self->shared->owner);
    if (status != XRAY_OK)
        return xm_engine_fail(self, status, where,
                              "the trainer refused a lease on its "
                              "weights");
    self->leased = 1;
    return XRAY_OK;
}

void xm_engine_drop_lease(xm_engine *self)
{
    int needed = self->paused ? xm_sched_has_work(self->sched)
                              : xm_sched_live(self->sched) > 0;
    if (!self->leased || needed)
        return;
    self->shared->release(self->shared->owner);
    self->leased = 0;
}

/* ---- requests ----------------------------------------------------------- */

/* Requests come from the thread that steps, since the queue has no lock. */
static xray_status check_ready(xm_engine *self, const char *where)
{
    if (self->calls && !self->calls->on_control(self->calls))
        return xm_engine_fail(self, XRAY_E_ARG, where,
                              "only the thread that drives the run "
                              "may make this call");
    if (self->broken)
        return xm_engine_fail(self, XRAY_E_STATE, where,
                              "an earlier step failed; the engine "
                              "can only be destroyed");
    if (!self->kv_memory || self->asleep)
        return xm_engine_fail(self, XRAY_E_STATE, where,
                              "the engine is asleep; wake it first");
    return XRAY_OK;
}

xray_status xm_engine_submit(void *ptr, const xray_request *request)
{
    xm_engine *self = ptr;
    xr_err err = { "" };
    xray_status status = check_ready(self, "submit");
    if (status != XRAY_OK)
        return status;
    status = xm_engine_check_weights(self, "submit");
    if (status != XRAY_OK)
        return status;
    if (!self->paused)
        status = xm_engine_take_lease(self, "submit");
    if (status != XRAY_OK)
        return status;
    xm_engine_begin_work(self);
    status = xm_sched_submit(self->sched, request, &err);
    if (status == XRAY_OK) {
        xm_engine_note_request(self, request);
        return status;
    }
    xm_engine_drop_lease(self);
    return xr_host_tell(self->host, status, "submit", &err);
}

xray_status xm_engine_poll(void *ptr, xray_sample_out *out)
{
    xm_engine *self = ptr;
    xray_status status = xm_sched_poll(self->sched, out);
    return status < 0 ? xm_engine_fail(self, status, "poll",
                                       "no memory for the versions of "
                                       "a sample")
                      : status;
}

xray_status xm_engine_abort(void *ptr, uint64_t id, uint32_t sample)
{
    xm_engine *self = ptr;
    xr_err err = { "" };
    const uint64_t call[] = { 1, id, sample };
    xray_status status = xm_sched_abort(self->sched, id, sample, &err);
    xm_engine_note_call(self, call, sizeof(call));
    xm_engine_drop_lease(self);
    return status == XRAY_OK ? status
                             : xr_host_tell(self->host, status, "abort", &err);
}

xray_status xm_engine_extend(void *ptr, uint64_t id, uint32_t sample,
                             const int32_t *tokens, uint32_t count)
{
    xm_engine *self = ptr;
    xr_err err = { "" };
    xray_status status = check_ready(self, "extend");
    if (status == XRAY_OK && self->paused != XRAY_PAUSE_KEEP)
        status = xm_engine_take_lease(self, "extend");
    if (status != XRAY_OK)
        return status;
    const uint64_t call[] = { 2, id, sample, count };
    xm_engine_note_call(self, call, sizeof(call));
    if (count && tokens)
        xm_engine_note_call(self, tokens, count * sizeof(*tokens));
    status = xm_sched_extend(self->sched, id, sample, tokens, count, &err);
    xm_engine_drop_lease(self);
    return status == XRAY_OK ? status
                             : xr_host_tell(self->host, status, "extend", &err);
}

xray_status xm_engine_release(void *ptr, uint64_t id, uint32_t sample)
{
    xm_engine *self = ptr;
    xr_err err = { "" };
    const uint64_t call[] = { 3, id, sample };
    xray_status status = xm_sched_release(self->sched, id, sample, &err);
    xm_engine_note_call(self, call, sizeof(call));
    xm_engine_drop_lease(self);
    return status == XRAY_OK
               ? status
               : xr_host_tell(self->host, status, "release", &err);
}

xray_status xm_engine_stats(void *ptr, xray_infer_stats *out)
{
    const xm_engine *self = ptr;
    xm_sched_stats(self->sched, out);
    return XRAY_OK;
}

/* ---- pause -------------------------------------------------------------- */

xray_status xm_engine_pause(void *ptr, uint32_t mode)
{
    xm_engine *self = ptr;
    xr_err err = { "" };
    xray_status status = xm_sched_pause(self->sched, mode, &err);
    if (status != XRAY_OK)
        return xr_host_tell(self->host, status, "pause", &err);
    self->paused = mode;
    xm_engine_forget_ahead(self);
    xm_engine_drop_lease(self);
    return XRAY_OK;
}

xray_status xm_engine_resume(void *ptr)
{
    xm_engine *self = ptr;
    xray_status status = XRAY_OK;
    if (xm_sched_live(self->sched))
        status = xm_engine_take_lease(self, "resume");
    if (status != XRAY_OK)
        return status;
    self->paused = 0;
    xm_sched_resume(self->sched);
    return XRAY_OK;
}
