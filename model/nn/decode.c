/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the forward pass over new tokens of sequences whose earlier keys and
 * values are in a cache.
 */
#include "model/nn/internal.h"

static xray_status check_decode_batch(const xm_decoder *decoder,
                                      const xm_space *space,
                                      const xm_decode_batch *batch, xr_err *err)
{
    if (batch->tokens > space->tokens || batch->last_count > batch->tokens)
        return xr_fail(err, XRAY_E_RANGE,
                       "a batch of %u tokens and %u outputs does not fit a "
                       "space of %llu tokens",
                       batch->tokens, batch->last_count,
                       (unsigned long long)space->tokens);
    if (batch->position_bound > decoder->positions)
        return xr_fail(err, XRAY_E_RANGE,
                       "position %llu lies beyond the %llu positions of the "
                       "model",
                       (unsigned long long)batch->position_bound - 1,
                       (unsigned long long)decoder->positions);
    if (space->flags & (XM_SPACE_TRAIN | XM_SPACE_SEQUENCE))
        return xr_fail(
            err, XRAY_E_ARG,
            "a pass with a KV cache needs a space that is not for training");
    return XRAY_OK;
}

xray_status xm_decode(xm_decoder *decoder, xm_space *space,
                      const xm_decode_batch *batch, const void **out_hidden,
                      xr_err *err)
{
    space->live = 0;
    *out_hidden = space->hidden;
    xray_status status = check_decode_batch(decoder, space, batch, err);
    if (status != XRAY_OK || batch->tokens == 0)
        return status;
    xm_pass pass = xm_pass_start(decoder, space, batch->tokens, err);
    pass.batch = batch;
    pass.tokens.live = batch->live;
    xm_pass_blocks(&pass, batch->ids, batch->in);
    if (batch->last_count == 0)
        return pass.status;
    /* A norm works on each token by itself, so gathering first gives the same
     * bits. */
    pass.tokens.bound = batch->last_count;
    xm_pass_gather(&pass, batch->last, space->x[space->layers], space->items);
    xm_pass_final_norm(&pass, space->items, NULL);
    return pass.status;
}
