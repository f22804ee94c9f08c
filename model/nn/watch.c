/* SPDX-License-Identifier: Apache-2.0
 *
 * Telling a watch where a pass is.
 */
#include "model/nn/internal.h"

void xm_decoder_watch(xm_decoder *decoder, const xm_watch *watch)
{
    decoder->watch = *watch;
}

void xm_run_need(xm_run *run, uint32_t bucket, int backward)
{
    const xm_watch *watch = &run->decoder->watch;
    if (run->status == XRAY_OK && watch->need)
        run->status = watch->need(watch->ctx, bucket, backward, run->err);
}

void xm_run_begin(xm_run *run, uint32_t bucket)
{
    const xm_watch *watch = &run->decoder->watch;
    if (run->status == XRAY_OK && watch->begin)
        run->status = watch->begin(watch->ctx, bucket, run->err);
}

void xm_run_done(xm_run *run, uint32_t bucket)
{
    const xm_watch *watch = &run->decoder->watch;
    if (run->status == XRAY_OK && watch->done)
        run->status = watch->done(watch->ctx, bucket, run->err);
}
