/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out the losses of backends, and checks values before and after.
 */
#include "core/roles/losses.h"

#include <string.h>

#include "core/roles/nonfinite.h"
#include "core/roles/ratios.h"

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
        spec->sums[call->batch->segment] -=
            (double)mask[i] * (double)call->logp[i];
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
    uint64_t first = call->batch->segment * spec->names;
    xray_metric_sums sums = { .header = XRAY_HEADER(xray_metric_sums),
                              .sum = spec->sums + first,
                              .weight = spec->weights + first,
                              .count = spec->names - spec->ratios };
    int critic = spec->kind == XR_LOSS_CRITIC;
    const char *name = critic ? "critic_loss" : "loss";
    xray_loss_call own = *call;
    own.host = xr_host_api(algo->host);
    return note_loss_failure(
        run,
        XR_CALL(algo, name,
                (critic ? ops->critic_loss : ops->loss)(
                    spec->context, spec->context_size, &own, &sums)),
        name);
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

/* Returns the counts behind the sums of the loss's metrics. */
static double *ratio_counts(const xr_loss_run *run, const xray_loss_call *call)
{
    const xr_loss_spec *spec = run->spec;
    return spec->sums + (call->batch->segment + 1) * spec->names - spec->ratios;
}

static xray_status carry_out_loss(xr_loss_run *run, const xray_loss_call *call)
{
    if (has_bad_output(run, call))
        return handle_bad_value(run, call);
    if (run->spec->kind == XR_LOSS_SFT) {
        add_sft_loss(run->spec, call);
        return XRAY_OK;
    }
    xray_status status = call_algo_loss(run, call);
    if (status == XRAY_OK && run->spec->ratios &&
        run->spec->kind == XR_LOSS_POLICY)
        xr_ratios_count(call->batch, call->logp, ratio_counts(run, call));
    if (status == XRAY_OK && has_bad_gradient(run, call))
        return handle_bad_value(run, call);
    return status;
}

/* Rows of padding are the last ones, so that the loss, which gets the batch
 * without them, reads and writes the beginning of the same arrays. */
xray_status xr_loss_call(void *ctx, const xray_loss_call *call)
{
    xr_loss_run *run = (xr_loss_run *)ctx;
    const xray_batch batch = xr_padding_strip(call->batch);
    xray_loss_call own = *call;
    own.batch = &batch;
    if (run->failed)
        return run->failed;
    if (run->continues && *run->fault.text)
        return XRAY_OK;
    return carry_out_loss(run, &own);
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
