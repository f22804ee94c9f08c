/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks requests, decides when a sample ends, and fills in the random draws.
 */
#include "model/serve/request.h"

#include <inttypes.h>
#include <math.h>

static xray_status check_prompt(const xray_request *r, const xm_limits *limits,
                                xr_err *err)
{
    if (!r->ids || r->id_count == 0)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64
                       ": the prompt is empty, at least one id was expected",
                       r->id);
    if (r->id_count >= limits->row_bound)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": the prompt has %" PRIu32
                       " tokens, fewer than %" PRIu32
                       " (the longest row) were expected",
                       r->id, r->id_count, limits->row_bound);
    for (uint32_t i = 0; i < r->id_count; i++)
        if (r->ids[i] < 0 || (uint32_t)r->ids[i] >= limits->vocab)
            return xr_fail(err, XRAY_E_ARG,
                           "request %" PRIu64 ": prompt id %" PRId32
                           " at position %" PRIu32
                           " is outside the vocabulary of %" PRIu32,
                           r->id, r->ids[i], i, limits->vocab);
    return XRAY_OK;
}

static xray_status check_counts(const xray_request *r, xr_err *err)
{
    if (r->count == 0 || r->count > XM_MAX_SAMPLES)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": count %" PRIu32
                       ", 1 to %u samples were expected",
                       r->id, r->count, XM_MAX_SAMPLES);
    if (r->first_sample > UINT32_MAX - r->count)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": first_sample %" PRIu32
                       " and count %" PRIu32 " do not fit 32 bits",
                       r->id, r->first_sample, r->count);
    if (r->max_tokens == 0)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64
                       ": max_tokens is 0, at least 1 was expected",
                       r->id);
    if (r->stop_count && !r->stop_ids)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": stop_count is %" PRIu32
                       " but stop_ids is not set",
                       r->id, r->stop_count);
    return XRAY_OK;
}

/* The comparisons are written so that NaN fails them. */
static xray_status check_sampling(const xray_request *r, xr_err *err)
{
    float t = r->temperature;
    if (!(isfinite(t) && (t == 0 || t >= XRAY_MIN_TEMPERATURE)))
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64
                       ": temperature %g, 0 (greedy) or a finite number of at "
                       "least %g was expected",
                       r->id, (double)t, (double)XRAY_MIN_TEMPERATURE);
    if (!(r->top_p > 0 && r->top_p <= 1))
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64
                       ": top_p %g, more than 0 and at most 1 was expected",
                       r->id, (double)r->top_p);
    if (!(r->min_p >= 0 && r->min_p <= 1))
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": min_p %g, 0 to 1 was expected",
                       r->id, (double)r->min_p);
    if (r->top_k < 0)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": top_k %" PRId32
                       ", 0 (off) or more was expected",
                       r->id, r->top_k);
    return XRAY_OK;
}

xray_status xm_request_check(const xray_request *request,
                             const xm_limits *limits, xr_err *err)
{
    xray_status status = check_counts(request, err);
    if (status == XRAY_OK)
        status = check_sampling(request, err);
    if (status == XRAY_OK)
        status = check_prompt(request, limits, err);
    return status;
}

uint32_t xm_sample_finish_reason(const xm_sample *sample, uint32_t row_bound)
{
    const xm_request *r = sample->request;
    int32_t token = sample->tokens[sample->token_count - 1];
    for (uint32_t i = 0; i < r->stop_count; i++)
        if (r->stop_ids[i] == token)
            return XRAY_FINISH_STOP;
    if (sample->token_count - sample->round_start >= r->max_tokens ||
        sample->row_count >= row_bound)
        return XRAY_FINISH_LENGTH;
    return XRAY_FINISH_NONE;
}

void xm_sample_fill_draw(const xm_sample *sample, xray_draw *out)
{
    const xm_request *r = sample->request;
    out->key = r->key;
    out->sample = sample->number;
    out->position = sample->row_count;
    out->temperature = r->temperature;
    out->top_p = r->top_p;
    out->min_p = r->min_p;
    out->top_k = r->top_k;
}
