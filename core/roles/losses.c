/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out the losses of backends, and checks values before and after.
 */
#include "core/roles/losses.h"

#include <string.h>

#include "core/roles/nonfinite.h"

/* Adds the negative log-likelihood; its gradient is dL/dlogp = -mask / tokens.
 */
static void add_sft_loss(const xr_loss_spec *spec, const xray_loss_call *call)
{
    double tokens = 1;
    const float *mask = call->batch->loss_mask;
    memcpy(&tokens, spec->context, sizeof(tokens));
    for (uint32_t i = 0; i < call->batch->tokens; i++) {
        if (mask[i] == 0)
            continue;
        spec->sums[0] -= (double)mask[i] * (double)call->logp[i];
        call->dlogp[i] = (float)(-(double)mask[i] / tokens);
    }
}

/* Keeps the error of the loss, because the backend in between cannot pass it
 * on. */
static xray_status note_loss_failure(xr_loss_run *run, xray_status status,
                                     const char *call)
{
    const xr_part *algo = run->roles->algo.part;
    if (status == XRAY_OK)
        return XRAY_OK;
    run->failed = status < 0 ? status : XRAY_E_BUG;
    (void)xr_host_error(algo->host, status, call, &run->why);
    return run->failed;
}

static xray_status call_algo_loss(xr_loss_run *run, const xray_loss_call *call)
{
    const xr_loss_spec *spec = run->spec;
    const xr_part *algo = run->roles->algo.part;
    const xray_algo_ops *ops = xr_algo(run->roles->run);
    xray_metric_sums sums = { .header = XRAY_HEADER(xray_metric_sums),
                              .sum = spec->sums,
                              .weight = spec->weights,
                              .count = spec->names };
    int critic = spec->kind == XR_LOSS_CRITIC;
    const char *name = critic ? "critic_loss" : "loss";
    return note_loss_failure(
        run,
        XR_CALL(algo, name,
                (critic ? ops->critic_loss : ops->loss)(
                    spec->context, spec->context_size, call, &sums)),
        name);
}

/* Returns rows [first, first + count) of a call as a call of their own. */
static xray_loss_call slice_loss_call(const xray_loss_call *call,
                                      uint32_t first, uint32_t count,
                                      xray_batch *batch, int32_t *starts)
{
    xray_loss_call part = *call;
    int32_t at = call->batch->row_start[first];
    *batch = *call->batch;
    for (uint32_t r = 0; r <= count; r++)
        starts[r] = call->batch->row_start[first + r] - at;
    batch->rows = count;
    batch->tokens = (uint32_t)starts[count];
    batch->row_start = starts;
    batch->ids += at;
    batch->loss_mask += at;
    float **floats[] = { &batch->rollout_logp, &batch->old_logp,
                         &batch->ref_logp,     &batch->value,
                         &batch->reward,       &batch->advantage,
                         &batch->returns,      &part.dlogp,
                         &part.dentropy,       &part.dvalue };
    for (size_t i = 0; i < sizeof(floats) / sizeof(floats[0]); i++)
        if (*floats[i])
            *floats[i] += at;
    const float **outputs[] = { &part.logp, &part.entropy, &part.value };
    for (size_t i = 0; i < 3; i++)
        if (*outputs[i])
            *outputs[i] += at;
    batch->prompt_len += first;
    batch->row_id += first;
    batch->prompt_id += first;
    batch->group += first;
    batch->temperature += batch->temperature ? first : 0;
    batch->baseline += batch->baseline ? first : 0;
    batch->spans += batch->spans ? first : 0;
    batch->span_count = count;
    part.batch = batch;
    return part;
}

/* A replica holds rows from anywhere in the mini-batch. The algorithm receives
 * them one at a time, each with its number in the mini-batch. */
static xray_status call_loss_by_row(xr_loss_run *run,
                                    const xray_loss_call *call)
{
    xray_status status = XRAY_OK;
    for (uint32_t r = 0; r < call->batch->rows && status == XRAY_OK; r++) {
        xray_batch batch;
        int32_t starts[2];
        xray_loss_call part = slice_loss_call(call, r, 1, &batch, starts);
        part.first_row = run->index[call->first_row + r];
        status = call_algo_loss(run, &part);
    }
    return status;
}

/* Checks the outputs of the model. */
static int has_bad_output(xr_loss_run *run, const xray_loss_call *call)
{
    static const char *const names[] = { "log-prob", "value" };
    const float *const all[] = {
        run->spec->kind == XR_LOSS_CRITIC ? NULL : call->logp,
        run->spec->outputs & XRAY_OUTPUT_VALUE ? call->value : NULL,
    };
    for (size_t i = 0; i < 2; i++)
        if (all[i] && xr_nonfinite_token(run->who, names[i], call->batch,
                                         all[i], &run->fault))
            return 1;
    return 0;
}

/* Checks the gradients from the algorithm. */
static int has_bad_gradient(xr_loss_run *run, const xray_loss_call *call)
{
    static const char *const names[] = { "gradient of the log-prob",
                                         "gradient of the entropy",
                                         "gradient of the value" };
    int critic = run->spec->kind == XR_LOSS_CRITIC;
    const float *const all[] = {
        critic ? NULL : call->dlogp,
        critic ? NULL : call->dentropy,
        run->spec->outputs & XRAY_OUTPUT_VALUE ? call->dvalue : NULL,
    };
    for (size_t i = 0; i < 3; i++)
        if (all[i] &&
            xr_nonfinite_token(run->roles->algo.part->instance, names[i],
                               call->batch, all[i], &run->fault))
            return 1;
    return 0;
}

static void drop_gradients(const xray_loss_call *call)
{
    float *const all[] = { call->dlogp, call->dentropy, call->dvalue };
    for (size_t i = 0; i < 3; i++)
        if (all[i])
            memset(all[i], 0, call->batch->tokens * sizeof(float));
}

static xray_status handle_bad_value(const xr_loss_run *run,
                                    const xray_loss_call *call)
{
    if (!run->continues)
        return xr_nonfinite_loss(run->roles);
    drop_gradients(call);
    return XRAY_OK;
}

xray_status xr_loss_call(void *ctx, const xray_loss_call *call)
{
    xr_loss_run *run = (xr_loss_run *)ctx;
    if (run->failed)
        return run->failed;
    if (run->continues && *run->fault.text)
        return XRAY_OK;
    if (has_bad_output(run, call))
        return handle_bad_value(run, call);
    if (run->spec->kind == XR_LOSS_SFT) {
        add_sft_loss(run->spec, call);
        return XRAY_OK;
    }
    xray_status status =
        run->index ? call_loss_by_row(run, call) : call_algo_loss(run, call);
    if (status == XRAY_OK && has_bad_gradient(run, call))
        return handle_bad_value(run, call);
    return status;
}

xray_status xr_loss_result(const xr_loss_run *run, const xr_part *backend,
                           xray_status status, xr_err *err)
{
    if (status != XRAY_OK)
        (void)xr_host_error(backend->host, status, "forward_backward", err);
    if (!run->failed)
        return status;
    if (status == XRAY_OK)
        return xr_fail(err, XRAY_E_BUG,
                       "%s; %s did not pass on that the loss failed",
                       run->why.text, backend->instance);
    return xr_fail(err, run->failed, "%s", run->why.text);
}
