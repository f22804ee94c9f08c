/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tokens of a sample came from which weights. A sample has a new span for
 * every update that it lives through; room for it is made when the version
 * changes, so that steps do not allocate.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/serve/sched_internal.h"

void xm_sample_note_version(const xm_sched *sched, xm_sample *sample)
{
    uint32_t n = sample->span_count;
    if (n == 0 || sample->spans[n - 1].version != sched->version) {
        sample->spans[n] = (xray_span){ .first = sample->row_count - 1,
                                        .version = sched->version };
        sample->span_count = ++n;
    }
    sample->spans[n - 1].last = sample->row_count;
}

xray_status xm_sched_reserve_out_spans(xm_sched *sched, uint32_t count)
{
    if (count <= sched->out_span_cap)
        return XRAY_OK;
    xray_span *spans = xr_calloc(count, sizeof(*spans));
    if (!spans)
        return XRAY_E_NOMEM;
    free(sched->out_spans);
    sched->out_spans = spans;
    sched->out_span_cap = count;
    return XRAY_OK;
}

uint32_t xm_sample_copy_spans(xm_sched *sched, const xm_sample *sample,
                              uint32_t count)
{
    uint32_t first = sample->row_count - count;
    uint32_t n = 0;
    for (uint32_t i = 0; i < sample->span_count; i++) {
        if (sample->spans[i].last <= first)
            continue;
        sched->out_spans[n] = sample->spans[i];
        if (sched->out_spans[n].first < first)
            sched->out_spans[n].first = first;
        n++;
    }
    return n;
}

static int grow_spans(xm_sample *sample)
{
    uint32_t cap = 2 * sample->span_cap;
    xray_span *spans = xr_calloc(cap, sizeof(*spans));
    if (!spans)
        return -1;
    memcpy(spans, sample->spans, sample->span_count * sizeof(*spans));
    if (sample->spans != &sample->span)
        free(sample->spans);
    sample->spans = spans;
    sample->span_cap = cap;
    return 0;
}

static int make_room(xm_request *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        xm_sample *s = &r->samples[i];
        if (s->state != XM_SAMPLE_DONE && s->span_count == s->span_cap &&
            grow_spans(s))
            return -1;
    }
    return 0;
}

xray_status xm_sched_set_version(xm_sched *sched, uint64_t version, xr_err *err)
{
    if (version == sched->version)
        return XRAY_OK;
    for (uint32_t i = 0; i < sched->pool.bucket_count; i++)
        for (xm_request *r = sched->pool.buckets[i]; r; r = r->hash_next)
            if (make_room(r))
                return xr_fail(err, XRAY_E_NOMEM,
                               "no memory for the versions of %u samples",
                               r->count);
    xm_sched_forget(sched);
    sched->version = version;
    xm_note_version(sched);
    return XRAY_OK;
}
