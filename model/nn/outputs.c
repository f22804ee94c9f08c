/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-probabilities, entropies and values of chosen tokens, and their way back
 * to the hidden states.
 */
#include "model/nn/internal.h"

static xray_status check_items(const xm_decoder *decoder, const xm_space *space,
                               const xm_items *items, xr_err *err)
{
    if (items->count > space->live)
        return xr_fail(err, XRAY_E_STATE,
                       "outputs of %u tokens are asked for, the last forward "
                       "kept %llu",
                       items->count, (unsigned long long)space->live);
    if (items->value && !xm_outer(decoder, XM_VALUE)->weight)
        return xr_fail(err, XRAY_E_ARG,
                       "values are asked for of a model without %s",
                       XM_VALUE_HEAD);
    return XRAY_OK;
}

static xray_lm_head_logp logp_of(const xm_run *run, const xm_items *items)
{
    xm_space *s = run->space;
    return (xray_lm_head_logp){ XRAY_HEADER(xray_lm_head_logp),
                                .items = run->tokens,
                                .weight = xm_decoder_lm_head(run->decoder),
                                .x = s->items,
                                .targets = items->target,
                                .temperature = items->temperature,
                                .logp = s->logp,
                                .entropy = s->entropy,
                                .lse = s->lse,
                                .softcap =
                                    (float)run->decoder->config.logit_softcap,
                                .logits = s->logits };
}

/* The gathered states, and the values as rows of one float. */
static xm_rows states_of(const xm_run *run)
{
    uint64_t dim = run->decoder->config.hidden;
    return (xm_rows){ run->space->items, dim, dim };
}

static void lm_head_logp(xm_run *run, const xm_items *items)
{
    if (run->status != XRAY_OK)
        return;
    xray_lm_head_logp call = logp_of(run, items);
    xm_run_note(run, run->device->lm_head_logp(run->self, NULL, &call),
                "the head");
    run->space->kept = items->count;
}

xray_status xm_outputs(xm_decoder *decoder, xm_space *space,
                       const xm_items *items, xm_head_out *out, xr_err *err)
{
    *out = (xm_head_out){ .logp = items->target ? space->logp : NULL,
                          .entropy = items->target ? space->entropy : NULL,
                          .value = items->value ? space->value : NULL };
    xray_status status = check_items(decoder, space, items, err);
    if (status != XRAY_OK || items->count == 0)
        return status;
    xm_run run = xm_run_start(decoder, space, items->count, err);
    xm_run_gather(&run, items->index, space->hidden, space->items);
    if (items->target)
        lm_head_logp(&run, items);
    xm_rows value = { space->value, 1, 1 };
    if (items->value)
        xm_run_product(&run, xm_outer(decoder, XM_VALUE)->weight, NULL,
                       states_of(&run), value);
    return run.status;
}

static void logp_back(xm_run *run, const xm_items *items,
                      const xm_head_grads *grads, float *dx)
{
    if (run->status != XRAY_OK)
        return;
    const xm_decoder *decoder = run->decoder;
    uint32_t bucket = decoder->config.tied ? 0 : decoder->config.layers + 1;
    float *grads_of = run->grads->buckets[bucket];
    xray_lm_head_logp forward = logp_of(run, items);
    /* A gradient uses them up; a second one computes them. */
    if (run->space->kept != items->count)
        forward.logits = NULL;
    run->space->kept = 0;
    xray_lm_head_grad call = {
        XRAY_HEADER(xray_lm_head_grad), .forward = &forward,
        .dlogp = grads->dlogp ? grads->dlogp : run->space->zeros,
        .dentropy = grads->dentropy, .dx = dx,
        /* A frozen embedding is no less the head. */
        .dweight =
            grads_of ? grads_of + xm_outer(decoder, XM_HEAD)->offset : NULL
    };
    xm_run_note(run, run->device->lm_head_grad(run->self, NULL, &call),
                "the gradient of the head");
}

static void value_back(xm_run *run, const float *dvalue, float *dx,
                       uint32_t accumulate)
{
    const xm_decoder *decoder = run->decoder;
    const xm_bound *head = xm_outer(decoder, XM_VALUE);
    uint64_t dim = decoder->config.hidden;
    xm_run_copy(run, dvalue, run->space->dvalue, run->tokens.bound);
    xm_rows dv = { run->space->dvalue, 1, 1 };
    xm_rows back = { dx, dim, dim };
    xm_run_fold(run, dv, states_of(run),
                run->grads->buckets[decoder->config.layers + 1] + head->offset,
                NULL);
    xm_run_product_back(run, head->weight, dv, back, accumulate);
}

static xray_status check_grads(const xm_decoder *decoder, const xm_space *space,
                               const xm_grads *grads, int value, xr_err *err)
{
    if (!(space->flags & XM_SPACE_TRAIN))
        return xr_fail(err, XRAY_E_STATE,
                       "the space of this forward keeps nothing for a "
                       "backward pass");
    xray_status status = xm_grads_check(grads, decoder, err);
    if (status == XRAY_OK && value &&
        !xm_layout_find(grads->layout, XM_VALUE_HEAD))
        return xr_fail(err, XRAY_E_ARG, "the gradients have no room for %s",
                       XM_VALUE_HEAD);
    return status;
}

xray_status xm_outputs_backward(xm_decoder *decoder, xm_space *space,
                                const xm_items *items,
                                const xm_head_grads *head_grads,
                                xm_grads *grads, const float **out_dhidden,
                                xr_err *err)
{
    *out_dhidden = space->dhidden;
    int logp = items->target && (head_grads->dlogp || head_grads->dentropy);
    int value = items->value && head_grads->dvalue;
    xray_status status = check_items(decoder, space, items, err);
    if (status == XRAY_OK)
        status = check_grads(decoder, space, grads, value, err);
    if (status != XRAY_OK)
        return status;
    xm_run run = xm_run_start(decoder, space, items->count, err);
    run.grads = grads;
    xm_run_begin(&run, decoder->config.layers + 1);
    if (decoder->config.tied && !grads->layout->frozen)
        xm_run_begin(&run, 0);
    if (space->live == 0 || run.status != XRAY_OK)
        return run.status;
    xm_run_zero(&run, space->dhidden, space->live * decoder->config.hidden);
    if (items->count == 0 || (!logp && !value))
        return run.status;
    float *dx = space->h;
    if (logp)
        logp_back(&run, items, head_grads, dx);
    if (value)
        value_back(&run, head_grads->dvalue, dx, logp ? 1 : 0);
    xm_run_scatter(&run, items->index, dx, space->dhidden);
    return run.status;
}
