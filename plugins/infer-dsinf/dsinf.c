/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares infer-dsinf, creates and destroys instances, and serves the calls
 * between steps.
 *
 * Where xray/infer.h leaves a choice, this engine does the following. `step`
 * returns XRAY_END (idle) while every slot is held. A held sample can be
 * extended or released once its result has been polled. Each extension samples
 * up to the request's max_tokens again, and its result holds only the new
 * tokens; the end id or last token sampled before stays in the row, before the
 * appended tokens. `min_tokens`, `stop_lists` and `banned_lists` are about the
 * tokens since the last extension, `forced_ids` and penalties about all of the
 * sample. The span of a result counts from the start of the row,
 * prompt included. Held samples keep the lease on shared weights.
 */
#include <inttypes.h>
#include <string.h>

#include <xray/plugin.h>

#include "core/base/str.h"
#include "plugins/infer-dsinf/dsinf.h"

xray_status dsinf_report(const xray_host *host, xray_status status,
                         const char *where, const xr_err *err)
{
    return xr_host_tell(host, status, where, err);
}

/* ---- create and destroy
 * --------------------------------------------------- */

static xray_status create_parts(dsinf *self, const xray_setup *setup,
                                const xray_workload *load,
                                const dsinf_config *config, xr_err *err)
{
    xray_status status = dsinf_read_model(setup->model, err, &self->model);
    if (status != XRAY_OK)
        return status;
    status = dsinf_find_bounds(config, &self->model, load, err, &self->bounds);
    if (status != XRAY_OK)
        return status;
    const dsinf_bounds *b = &self->bounds;
    xm_sched_limits limits = {
        .slots = b->slots,
        .step_tokens = b->step_tokens,
        .request = { self->model.vocab, b->row_bound },
    };
    status = xm_sched_create(&limits, err, &self->sched);
    if (status != XRAY_OK)
        return status;
    status = dsinf_create_weights(self, setup, config, err);
    if (status != XRAY_OK)
        return status;
    xm_decoder_watch(self->decoder, &(xm_watch){ .calls = self->calls });
    status = xm_space_create(self->decoder, b->step_tokens, b->slots,
                             b->row_bound, 0, "infer.dsinf", err, &self->space);
    if (status != XRAY_OK)
        return status;
    status = dsinf_alloc_arrays(self, err);
    if (status != XRAY_OK)
        return status;
    return dsinf_alloc_kv(self, err);
}

static xray_status dsinf_create(const xray_setup *setup, const void *config,
                                const xray_workload *load, void **out_self)
{
    const xray_host *host = setup->host;
    dsinf *self = xr_calloc(1, sizeof(*self));
    if (!self)
        return host->fail(host, XRAY_E_NOMEM, "create", "dsinf: no memory");
    self->host = host;
    self->calls = xr_calls_of(host);
    self->metrics = host->service(host, XRAY_SERVICE_METRICS);
    self->device = setup->device;
    self->device_self = setup->device_self;
    xr_err err = { "" };
    xray_status status = create_parts(self, setup, load, config, &err);
    if (status != XRAY_OK) {
        dsinf_free(self);
        return dsinf_report(host, status, "create", &err);
    }
    *out_self = self;
    return XRAY_OK;
}

static void dsinf_destroy(void *self)
{
    dsinf_free(self);
}

/* ---- the lease ---------------------------------------------------------- */

xray_status dsinf_take_lease(dsinf *self, const char *where)
{
    if (self->own || self->leased)
        return XRAY_OK;
    xray_status status = self->shared->lease(self->shared->owner);
    if (status != XRAY_OK)
        return self->host->fail(self->host, status, where,
                                "dsinf: the trainer refused a lease on its "
                                "weights");
    self->leased = 1;
    return XRAY_OK;
}

void dsinf_drop_lease(dsinf *self)
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
static xray_status check_ready(dsinf *self, const char *where)
{
    if (self->calls && !self->calls->on_control(self->calls))
        return self->host->fail(self->host, XRAY_E_ARG, where,
                                "dsinf: only the thread that drives the run "
                                "may make this call");
    if (self->broken)
        return self->host->fail(self->host, XRAY_E_STATE, where,
                                "dsinf: an earlier step failed; the engine "
                                "can only be destroyed");
    if (!self->kv_memory || self->asleep)
        return self->host->fail(self->host, XRAY_E_STATE, where,
                                "dsinf: the engine is asleep; wake it first");
    return XRAY_OK;
}

static xray_status dsinf_submit(void *ptr, const xray_request *request)
{
    dsinf *self = ptr;
    xr_err err = { "" };
    xray_status status = check_ready(self, "submit");
    if (status != XRAY_OK)
        return status;
    status = dsinf_check_weights(self, "submit");
    if (status != XRAY_OK)
        return status;
    if (!self->paused)
        status = dsinf_take_lease(self, "submit");
    if (status != XRAY_OK)
        return status;
    if (!xm_sched_has_work(self->sched))
        self->work_steps = self->work_rows = 0;
    status = xm_sched_submit(self->sched, request, &err);
    if (status == XRAY_OK)
        return status;
    dsinf_drop_lease(self);
    return dsinf_report(self->host, status, "submit", &err);
}

static xray_status dsinf_poll(void *ptr, xray_sample_out *out)
{
    dsinf *self = ptr;
    xray_status status = xm_sched_poll(self->sched, out);
    return status < 0 ? self->host->fail(self->host, status, "poll",
                                         "dsinf: no memory for the versions of "
                                         "a sample")
                      : status;
}

static xray_status dsinf_abort(void *ptr, uint64_t id, uint32_t sample)
{
    dsinf *self = ptr;
    xr_err err = { "" };
    xray_status status = xm_sched_abort(self->sched, id, sample, &err);
    dsinf_drop_lease(self);
    return status == XRAY_OK ? status
                             : dsinf_report(self->host, status, "abort", &err);
}

static xray_status dsinf_extend(void *ptr, uint64_t id, uint32_t sample,
                                const int32_t *tokens, uint32_t count)
{
    dsinf *self = ptr;
    xr_err err = { "" };
    xray_status status = check_ready(self, "extend");
    if (status == XRAY_OK && self->paused != XRAY_PAUSE_KEEP)
        status = dsinf_take_lease(self, "extend");
    if (status != XRAY_OK)
        return status;
    status = xm_sched_extend(self->sched, id, sample, tokens, count, &err);
    dsinf_drop_lease(self);
    return status == XRAY_OK ? status
                             : dsinf_report(self->host, status, "extend", &err);
}

static xray_status dsinf_release(void *ptr, uint64_t id, uint32_t sample)
{
    dsinf *self = ptr;
    xr_err err = { "" };
    xray_status status = xm_sched_release(self->sched, id, sample, &err);
    dsinf_drop_lease(self);
    return status == XRAY_OK
               ? status
               : dsinf_report(self->host, status, "release", &err);
}

static xray_status dsinf_stats(void *ptr, xray_infer_stats *out)
{
    const dsinf *self = ptr;
    xm_sched_stats(self->sched, out);
    return XRAY_OK;
}

/* ---- pause -------------------------------------------------------------- */

static xray_status dsinf_pause(void *ptr, uint32_t mode)
{
    dsinf *self = ptr;
    xr_err err = { "" };
    xray_status status = xm_sched_pause(self->sched, mode, &err);
    if (status != XRAY_OK)
        return dsinf_report(self->host, status, "pause", &err);
    self->paused = mode;
    dsinf_forget_ahead(self);
    dsinf_drop_lease(self);
    return XRAY_OK;
}

static xray_status dsinf_resume(void *ptr)
{
    dsinf *self = ptr;
    xray_status status = XRAY_OK;
    if (xm_sched_live(self->sched))
        status = dsinf_take_lease(self, "resume");
    if (status != XRAY_OK)
        return status;
    self->paused = 0;
    xm_sched_resume(self->sched);
    return XRAY_OK;
}

/* ---- the component
 * -------------------------------------------------------- */

static const xray_choice weight_choices[] = {
    { "auto", DSINF_WEIGHTS_AUTO,
      "shared with the trainer; without one, a copy as [model] dtype says" },
    { "float32", DSINF_WEIGHTS_FLOAT32, "a copy of the engine's own" },
    { "bfloat16", DSINF_WEIGHTS_BFLOAT16,
      "a copy whose matrices are rounded to bfloat16" },
    { NULL, 0, NULL },
};

static const xray_option options[] = {
    XRAY_CHOICE(dsinf_config, weights, "auto", weight_choices, 0u, "0.1",
                "The weights to compute with. bfloat16 halves the bytes that a "
                "step reads. Beside a trainer in float32 its log-probabilities "
                "are not the trainer's, so those of the old policy are "
                "computed again; with [model] dtype = bfloat16 they are."),
    XRAY_INT(dsinf_config, max_num_seqs, "0", 0, 1048576, "sequences", 0u,
             "0.1",
             "Number of sequences that run at once; 0: as many as the workload "
             "has rows, or as kv_memory allows."),
    XRAY_INT(dsinf_config, max_num_batched_tokens, "2048", 1, 16777216,
             "tokens", 0u, "0.1",
             "Maximum tokens per step: running sequences come first, prompts "
             "get the rest. It also sets the size of the activations."),
    XRAY_BYTES(
        dsinf_config, kv_memory, "4G", 0, 0x1p50, 0u, "0.1",
        "Maximum memory for keys and values; 0: no bound. If rows do not "
        "fit, fewer run at once, unless max_num_seqs is set."),
};

static const xray_infer_ops ops = {
    .header = XRAY_HEADER(xray_infer_ops),
    .capabilities =
        XM_REQUEST_OFFERS | XRAY_INFER_ABORT_SAMPLE | XRAY_INFER_UPDATE_RUNNING,
    .plan = dsinf_plan,
    .create = dsinf_create,
    .destroy = dsinf_destroy,
    .submit = dsinf_submit,
    .step = dsinf_step,
    .poll = dsinf_poll,
    .abort = dsinf_abort,
    .stats = dsinf_stats,
    .update = dsinf_update,
    .extend = dsinf_extend,
    .release = dsinf_release,
    .pause = dsinf_pause,
    .resume = dsinf_resume,
    .sleep = dsinf_sleep,
    .wake = dsinf_wake,
    .weights = dsinf_weights,
};

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_INFER,
    .name = "dsinf",
    .summary = "Contiguous key-value workspace, slots refilled at once",
    .ops = &ops,
    .options = options,
    .option_count = sizeof(options) / sizeof(options[0]),
    .option_stride = sizeof(options[0]),
    .config_size = sizeof(dsinf_config),
    .numerics = XRAY_NUMERICS_FP32,
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "infer-dsinf",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(infer_dsinf, plugin, "infer-dsinf", "0.1.0",
                   "xray.infer/0:dsinf")
