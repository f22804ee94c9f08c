/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes log-probabilities, entropies and values of chosen tokens, and their
 * gradients with respect to the hidden states.
 */
#include "model/nn/internal.h"

static xray_status check_output_items(const xm_decoder *decoder,
                                      const xm_space *space,
                                      const xm_items *items, xr_err *err)
{
    if (items->count > space->live)
        return xr_fail(err, XRAY_E_STATE,
                       "outputs of %u tokens were asked for, but the last "
                       "forward pass kept %llu",
                       items->count, (unsigned long long)space->live);
    if (!xm_config_is_last(&decoder->config))
        return xr_fail(err, XRAY_E_STATE,
                       "outputs were asked of a stage without the last layer");
    if (items->value && !xm_outer(decoder, XM_VALUE)->weight)
        return xr_fail(err, XRAY_E_ARG,
                       "values were asked for, but the model has no %s",
                       XM_VALUE_HEAD);
    return XRAY_OK;
}

static xray_lm_head_logp lm_head_call(const xm_pass *pass,
                                      const xm_items *items)
{
    xm_space *s = pass->space;
    return (xray_lm_head_logp){
        XRAY_HEADER(xray_lm_head_logp),
        .items = pass->tokens,
        .weight = xm_decoder_lm_head(pass->decoder),
        .x = s->items,
        .targets = items->target,
        .temperature = items->temperature,
        .logp = s->logp,
        .entropy = s->entropy,
        .lse = s->lse,
        .softcap = (float)pass->decoder->config.logit_softcap,
        .logits = s->logits,
        .partial = s->partial,
        .vocab_first = pass->decoder->config.slice.vocab_first,
        .segment = xm_vocab_segment(&pass->decoder->config),
        .x_dtype = pass->decoder->config.dtype
    };
}

/* The gathered hidden states as rows. */
static xm_rows gathered_states(const xm_pass *pass)
{
    return xm_acts_of(pass, pass->space->items, pass->decoder->config.hidden);
}

/* Copies a number of each item from a column to another. */
static void copy_column(xm_pass *pass, const float *from, uint64_t from_stride,
                        float *to, uint64_t to_stride)
{
    if (pass->status != XRAY_OK)
        return;
    xray_cast call = { XRAY_HEADER(xray_cast),
                       .count = 1,
                       .x = from,
                       .y = to,
                       .x_dtype = XRAY_F32,
                       .y_dtype = XRAY_F32,
                       .rows = pass->tokens.bound,
                       .x_stride = from_stride,
                       .y_stride = to_stride };
    xm_pass_keep_status(pass, pass->device->cast(pass->self, NULL, &call),
                        "a copy");
}

/* Computes the log-probabilities of a slice from `call`, which gave the slice's
 * own largest logits: with those of the entire vocabulary the sums of the
 * slices are parts of its sums, so their sum is that of one slice. */
static void join_token_logp(xm_pass *pass, xray_lm_head_logp *call)
{
    xm_space *s = pass->space;
    copy_column(pass, s->partial, 4, s->top, 1);
    xm_pass_join(pass, XM_JOIN_TOP, s->top, 1);
    call->top = s->top;
    call->kept = call->logits != NULL;
    if (pass->status == XRAY_OK)
        xm_pass_keep_status(pass,
                            pass->device->lm_head_logp(pass->self, NULL, call),
                            "lm_head");
    xm_pass_join(pass, XM_JOIN_LOGITS, s->partial, 4);
    copy_column(pass, s->top, 1, s->partial, 4);
    xray_lm_head_join join = { XRAY_HEADER(xray_lm_head_join),
                               .items = pass->tokens,
                               .partials = s->partial,
                               .slice_stride = 4 * pass->tokens.bound,
                               .logp = s->logp,
                               .entropy = s->entropy,
                               .lse = s->lse,
                               .slices = 1 };
    if (pass->status == XRAY_OK)
        xm_pass_keep_status(pass,
                            pass->device->lm_head_join(pass->self, NULL, &join),
                            "log-probabilities of slices");
}

static void compute_token_logp(xm_pass *pass, const xm_items *items)
{
    if (pass->status != XRAY_OK)
        return;
    xray_lm_head_logp call = lm_head_call(pass, items);
    xm_pass_keep_status(
        pass, pass->device->lm_head_logp(pass->self, NULL, &call), "lm_head");
    if (call.partial)
        join_token_logp(pass, &call);
    pass->space->kept = items->count;
}

xray_status xm_outputs(xm_decoder *decoder, xm_space *space,
                       const xm_items *items, xm_token_outputs *out,
                       xr_err *err)
{
    *out = (xm_token_outputs){ .logp = items->target ? space->logp : NULL,
                               .entropy = items->target ? space->entropy : NULL,
                               .value = items->value ? space->value : NULL };
    xray_status status = check_output_items(decoder, space, items, err);
    if (status != XRAY_OK || items->count == 0)
        return status;
    xm_pass pass = xm_pass_start(decoder, space, items->count, err);
    xm_pass_gather(&pass, items->index, space->hidden, space->items);
    if (items->target)
        compute_token_logp(&pass, items);
    xm_rows value = xm_rows_of(space->value, 1);
    if (items->value)
        xm_pass_product(&pass, xm_outer(decoder, XM_VALUE)->weight, NULL,
                        gathered_states(&pass), value);
    return pass.status;
}

static void backprop_token_logp(xm_pass *pass, const xm_items *items,
                                const xm_output_grads *grads, float *dx)
{
    if (pass->status != XRAY_OK)
        return;
    const xm_decoder *decoder = pass->decoder;
    uint32_t bucket = decoder->config.tied ? 0 : decoder->config.layers + 1;
    float *grads_of = pass->grads->buckets[bucket];
    xray_lm_head_logp forward = lm_head_call(pass, items);
    /* The gradient overwrites the logits, so a second one recomputes them. */
    if (pass->space->kept != items->count)
        forward.logits = NULL;
    pass->space->kept = 0;
    xray_lm_head_grad call = {
        XRAY_HEADER(xray_lm_head_grad), .forward = &forward,
        .dlogp = grads->dlogp ? grads->dlogp : pass->space->zeros,
        .dentropy = grads->dentropy, .dx = dx,
        /* A tied lm_head whose embedding is frozen has no gradient. */
        .dweight =
            grads_of ? grads_of + xm_outer(decoder, XM_LM_HEAD)->offset : NULL
    };
    xm_pass_keep_status(pass,
                        pass->device->lm_head_grad(pass->self, NULL, &call),
                        "the gradient of lm_head");
    xm_pass_join(pass, XM_JOIN_INPUT_GRADS, dx, decoder->config.hidden);
}

static void backprop_values(xm_pass *pass, const float *dvalue, float *dx,
                            uint32_t accumulate)
{
    const xm_decoder *decoder = pass->decoder;
    const xm_bound_param *value_head = xm_outer(decoder, XM_VALUE);
    uint64_t dim = decoder->config.hidden;
    xm_rows dv = xm_rows_of(pass->space->dvalue, 1);
    xm_pass_copy(pass, dvalue, dv);
    xm_rows back = xm_rows_of(dx, dim);
    xm_pass_weight_grad(pass, dv, gathered_states(pass),
                        pass->grads->buckets[decoder->config.layers + 1] +
                            value_head->offset,
                        NULL);
    xm_pass_input_grad(pass, value_head->weight, dv, back, accumulate);
}

static xray_status check_output_grads(const xm_decoder *decoder,
                                      const xm_space *space,
                                      const xm_grads *grads, int value,
                                      xr_err *err)
{
    if (!(space->flags & XM_SPACE_TRAIN))
        return xr_fail(
            err, XRAY_E_STATE,
            "the space of this forward pass keeps nothing for a backward pass");
    xray_status status = xm_grads_check(grads, decoder, err);
    if (status == XRAY_OK && value &&
        !xm_layout_find(grads->layout, XM_VALUE_HEAD))
        return xr_fail(err, XRAY_E_ARG, "the gradients have no space for %s",
                       XM_VALUE_HEAD);
    return status;
}

xray_status xm_outputs_backward(xm_decoder *decoder, xm_space *space,
                                const xm_items *items,
                                const xm_output_grads *output_grads,
                                xm_grads *grads, const float **out_dhidden,
                                xr_err *err)
{
    *out_dhidden = space->dhidden;
    int logp = items->target && (output_grads->dlogp || output_grads->dentropy);
    int value = items->value && output_grads->dvalue;
    xray_status status = check_output_items(decoder, space, items, err);
    if (status == XRAY_OK)
        status = check_output_grads(decoder, space, grads, value, err);
    if (status != XRAY_OK)
        return status;
    xm_pass pass = xm_pass_start(decoder, space, items->count, err);
    pass.grads = grads;
    xm_pass_begin_bucket(&pass, decoder->config.layers + 1);
    if (decoder->config.tied && !grads->layout->frozen)
        xm_pass_begin_bucket(&pass, 0);
    if (space->live == 0 || pass.status != XRAY_OK)
        return pass.status;
    xm_pass_zero(&pass, space->dhidden, space->live * decoder->config.hidden);
    if (items->count == 0 || (!logp && !value))
        return pass.status;
    float *dx = space->h;
    if (logp)
        backprop_token_logp(&pass, items, output_grads, dx);
    if (value)
        backprop_values(&pass, output_grads->dvalue, dx, logp ? 1 : 0);
    xm_pass_scatter(&pass, items->index, dx, space->dhidden);
    return pass.status;
}
