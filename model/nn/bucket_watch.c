/* SPDX-License-Identifier: Apache-2.0
 *
 * Notifies a decoder's watch which bucket a pass needs, is about to add
 * gradients to, or is done with, and what it shall join.
 */
#include "model/nn/internal.h"

void xm_decoder_watch(xm_decoder *decoder, const xm_watch *watch)
{
    decoder->watch = *watch;
}

void xm_pass_need_bucket(xm_pass *pass, uint32_t bucket, int backward)
{
    const xm_watch *watch = &pass->decoder->watch;
    if (pass->status == XRAY_OK)
        pass->status = xr_stop_check(watch->calls, pass->err);
    if (pass->status == XRAY_OK && watch->need && !pass->batch)
        pass->status = watch->need(watch->ctx, bucket, backward, pass->err);
}

void xm_pass_join(xm_pass *pass, uint32_t what, float *rows, uint64_t dim)
{
    const xm_watch *watch = &pass->decoder->watch;
    if (pass->status != XRAY_OK || pass->decoder->config.slice.ranks < 2)
        return;
    pass->status =
        watch->join(watch->ctx, what, rows, pass->tokens.bound, dim, pass->err);
}

void xm_pass_begin_bucket(xm_pass *pass, uint32_t bucket)
{
    const xm_watch *watch = &pass->decoder->watch;
    if (pass->status == XRAY_OK && watch->begin)
        pass->status = watch->begin(watch->ctx, bucket, pass->err);
}

void xm_pass_done_bucket(xm_pass *pass, uint32_t bucket)
{
    const xm_watch *watch = &pass->decoder->watch;
    if (pass->status == XRAY_OK && watch->done)
        pass->status = watch->done(watch->ctx, bucket, pass->err);
}
