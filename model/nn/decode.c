/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass with a cache of keys and values.
 */
#include "model/nn/internal.h"

static xray_status check_decode_batch(const xm_decoder *decoder,
                                      const xm_space *space,
                                      const xm_decode_batch *step, xr_err *err)
{
    if (step->tokens > space->tokens || step->last_count > step->tokens)
        return xr_fail(err, XRAY_E_RANGE,
                       "a step of %u tokens, %u of them wanted, does not fit a "
                       "space of %llu tokens",
                       step->tokens, step->last_count,
                       (unsigned long long)space->tokens);
    if (step->position_bound > decoder->positions)
        return xr_fail(err, XRAY_E_RANGE,
                       "position %llu lies beyond the %llu positions of the "
                       "model",
                       (unsigned long long)step->position_bound - 1,
                       (unsigned long long)decoder->positions);
    if (space->flags & XM_SPACE_TRAIN)
        return xr_fail(err, XRAY_E_ARG,
                       "a step with a cache needs a space that is not for "
                       "training");
    return XRAY_OK;
}

xray_status xm_decode(xm_decoder *decoder, xm_space *space,
                      const xm_decode_batch *step, const float **out_hidden,
                      xr_err *err)
{
    space->live = 0;
    *out_hidden = space->hidden;
    xray_status status = check_decode_batch(decoder, space, step, err);
    if (status != XRAY_OK || step->tokens == 0)
        return status;
    xm_pass pass = xm_pass_start(decoder, space, step->tokens, err);
    pass.step = step;
    xm_pass_blocks(&pass, step->ids);
    if (step->last_count == 0)
        return pass.status;
    /* A norm concerns one token: to gather first gives the same bits. */
    pass.tokens.bound = step->last_count;
    xm_pass_gather(&pass, step->last, space->x[space->layers], space->items);
    xm_pass_final_norm(&pass, space->items, NULL);
    return pass.status;
}
