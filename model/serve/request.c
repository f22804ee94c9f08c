/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks requests, decides when a sample ends, and fills in the random draws.
 */
#include "model/serve/request.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

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
    return XRAY_OK;
}

static xray_status check_lists(const xray_request *r, const char *name,
                               const xray_id_list *lists, uint32_t count,
                               uint32_t stride, xr_err *err)
{
    if (count && (!lists || stride < sizeof(xray_id_list) || stride % 8))
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": %" PRIu32 " %s_lists of %" PRIu32
                       " bytes, an array of at least %zu bytes each was "
                       "expected",
                       r->id, count, name, stride, sizeof(xray_id_list));
    for (uint32_t i = 0; i < count; i++) {
        const xray_id_list *list = xm_list_at(lists, stride, i);
        if (!list->ids || list->count == 0)
            return xr_fail(err, XRAY_E_ARG,
                           "request %" PRIu64 ": %s list %" PRIu32
                           " is empty, at least one id was expected",
                           r->id, name, i);
    }
    return XRAY_OK;
}

static xray_status check_ends(const xray_request *r, xr_err *err)
{
    if (r->stop_count && !r->stop_ids)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": stop_count is %" PRIu32
                       " but stop_ids is not set",
                       r->id, r->stop_count);
    int off = r->repeat_size == 0 && r->repeat_count == 0;
    if (!off && (r->repeat_size == 0 || r->repeat_count < 2))
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": repeat_size %" PRIu32
                       " and repeat_count %" PRIu32
                       ", at least 1 and 2 (or both 0) were expected",
                       r->id, r->repeat_size, r->repeat_count);
    return check_lists(r, "stop", r->stop_lists, r->stop_list_count,
                       r->stop_list_stride, err);
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

/* ---- what a request wishes of the logits -------------------------------- */

static xray_status check_ids(const xray_request *r, const char *name,
                             const int32_t *ids, uint32_t count, uint32_t vocab,
                             xr_err *err)
{
    if (count && !ids)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": there are %" PRIu32
                       " %s, but they are not set",
                       r->id, count, name);
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= vocab)
            return xr_fail(err, XRAY_E_ARG,
                           "request %" PRIu64 ": id %" PRId32
                           " of %s is outside the vocabulary of %" PRIu32,
                           r->id, ids[i], name, vocab);
    return XRAY_OK;
}

static xray_status check_most(const xray_request *r, const char *name,
                              uint32_t count, uint32_t most, xr_err *err)
{
    if (count <= most)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_ARG,
                   "request %" PRIu64 ": %s %" PRIu32 ", at most %" PRIu32
                   " was expected",
                   r->id, name, count, most);
}

static xray_status check_biases(const xray_request *r, uint32_t vocab,
                                xr_err *err)
{
    const unsigned char *at = (const unsigned char *)r->biases;
    xray_status status =
        check_most(r, "bias_count", r->bias_count, XM_MAX_BIASES, err);
    if (status != XRAY_OK || !r->bias_count)
        return status;
    if (!at || r->bias_stride < sizeof(xray_bias) || r->bias_stride % 4)
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": %" PRIu32 " biases of %" PRIu32
                       " bytes, an array of at least %zu bytes each was "
                       "expected",
                       r->id, r->bias_count, r->bias_stride, sizeof(xray_bias));
    for (uint32_t i = 0; i < r->bias_count && status == XRAY_OK; i++) {
        const xray_bias *bias = (const void *)(at + (size_t)i * r->bias_stride);
        status = check_ids(r, "biases", &bias->id, 1, vocab, err);
        if (status == XRAY_OK && !isfinite(bias->bias))
            status = xr_fail(err, XRAY_E_ARG,
                             "request %" PRIu64 ": the bias of id %" PRId32
                             " is %g, a finite number was expected",
                             r->id, bias->id, (double)bias->bias);
    }
    return status;
}

static xray_status check_penalties(const xray_request *r, xr_err *err)
{
    if (!(isfinite(r->repetition_penalty) && r->repetition_penalty >= 0))
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64
                       ": repetition_penalty %g, a finite number above 0, or 0 "
                       "(off), was expected",
                       r->id, (double)r->repetition_penalty);
    if (!isfinite(r->frequency_penalty) || !isfinite(r->presence_penalty))
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64
                       ": frequency_penalty %g and presence_penalty %g, finite "
                       "numbers were expected",
                       r->id, (double)r->frequency_penalty,
                       (double)r->presence_penalty);
    return XRAY_OK;
}

static xray_status check_masks(const xray_request *r, uint32_t vocab,
                               xr_err *err)
{
    xray_status status = check_ids(r, "allowed_ids", r->allowed_ids,
                                   r->allowed_count, vocab, err);
    if (status == XRAY_OK)
        status = check_lists(r, "banned", r->banned_lists, r->banned_list_count,
                             r->banned_list_stride, err);
    for (uint32_t i = 0; i < r->banned_list_count && status == XRAY_OK; i++) {
        const xray_id_list *list =
            xm_list_at(r->banned_lists, r->banned_list_stride, i);
        status =
            check_ids(r, "banned_lists", list->ids, list->count, vocab, err);
    }
    return status;
}

static xray_status check_wishes(const xray_request *r, uint32_t vocab,
                                xr_err *err)
{
    uint32_t most = vocab < XM_MAX_PICKS ? vocab : XM_MAX_PICKS;
    xray_status status = check_penalties(r, err);
    if (status == XRAY_OK)
        status = check_biases(r, vocab, err);
    if (status == XRAY_OK)
        status = check_masks(r, vocab, err);
    if (status == XRAY_OK)
        status = check_ids(r, "forced_ids", r->forced_ids, r->forced_count,
                           vocab, err);
    if (status == XRAY_OK)
        status = check_most(r, "top_count", r->top_count, most, err);
    if (status == XRAY_OK)
        status =
            check_most(r, "logp_id_count", r->logp_id_count, XM_MAX_PICKS, err);
    if (status == XRAY_OK)
        status =
            check_ids(r, "logp_ids", r->logp_ids, r->logp_id_count, vocab, err);
    return status;
}

xray_status xm_request_read(const xray_request *from, xr_err *err,
                            xray_request *out)
{
    const unsigned char *bytes = (const unsigned char *)from;
    uint32_t size = from->header.size;
    for (uint32_t i = sizeof(*out); i < size; i++)
        if (bytes[i])
            return xr_fail(err, XRAY_E_UNSUPPORTED,
                           "request %" PRIu64
                           ": it sets a member that this engine, of ABI %u.%u, "
                           "does not know",
                           from->id, XRAY_ABI_MAJOR, XRAY_ABI_MINOR);
    *out = (xray_request){ .header = XRAY_HEADER(xray_request) };
    memcpy((unsigned char *)out + sizeof(out->header),
           bytes + sizeof(out->header),
           (size < sizeof(*out) ? size : sizeof(*out)) - sizeof(out->header));
    return XRAY_OK;
}

xray_status xm_request_check(const xray_request *request,
                             const xm_limits *limits, xr_err *err)
{
    xray_status status = check_counts(request, err);
    if (status == XRAY_OK)
        status = check_ends(request, err);
    if (status == XRAY_OK)
        status = check_sampling(request, err);
    if (status == XRAY_OK)
        status = check_prompt(request, limits, err);
    if (status == XRAY_OK)
        status = check_wishes(request, limits->vocab, err);
    return status;
}

static int ends_with_list(const int32_t *tokens, uint32_t count,
                          const xray_id_list *list)
{
    return count >= list->count &&
           memcmp(tokens + count - list->count, list->ids,
                  list->count * sizeof(*tokens)) == 0;
}

/* Tells whether the last times * size tokens have the period `size`. */
static int repeats_itself(const int32_t *tokens, uint32_t count, uint32_t size,
                          uint32_t times)
{
    uint64_t all = (uint64_t)size * times;
    if (all > count)
        return 0;
    for (uint64_t i = count; i > count - all + size; i--)
        if (tokens[i - 1] != tokens[i - 1 - size])
            return 0;
    return 1;
}

static uint32_t find_list_or_repeat(const xm_sample *sample)
{
    const xm_request *r = sample->request;
    const int32_t *tokens = sample->tokens + sample->round_start;
    uint32_t count = sample->token_count - sample->round_start;
    for (uint32_t i = 0; i < r->stop_list_count; i++)
        if (ends_with_list(tokens, count, &r->stop_lists[i]))
            return XRAY_FINISH_STOP;
    for (uint32_t size = 1; size <= r->repeat_size && size <= count / 2; size++)
        if (repeats_itself(tokens, count, size, r->repeat_count))
            return XRAY_FINISH_REPEAT;
    return XRAY_FINISH_NONE;
}

uint32_t xm_sample_finish_reason(const xm_sample *sample, uint32_t row_bound)
{
    const xm_request *r = sample->request;
    int32_t token = sample->tokens[sample->token_count - 1];
    for (uint32_t i = 0; i < r->stop_count; i++)
        if (r->stop_ids[i] == token)
            return XRAY_FINISH_STOP;
    uint32_t finish = find_list_or_repeat(sample);
    if (finish != XRAY_FINISH_NONE)
        return finish;
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
