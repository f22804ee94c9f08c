/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements what a request may wish of the logits: masks, biases, penalties
 * and lists of the likeliest ids. A request and all that it points to are kept
 * in one block of memory.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "table.h"

/* ---- a request that is kept ---------------------------------------------- */

/* Appends `bytes` to a block (NULL: only counts them) and returns the copy. */
static const void *append_bytes(char *block, size_t *used, const void *from,
                                size_t bytes)
{
    char *at = block ? block + *used : NULL;
    *used += (bytes + 7) & ~(size_t)7;
    if (at && bytes)
        memcpy(at, from, bytes);
    return at;
}

static const void *element_at(const void *array, uint32_t i, uint32_t stride)
{
    return (const char *)array + (size_t)i * stride;
}

static void append_biases(char *block, size_t *used, xray_request *r)
{
    size_t first = *used;
    for (uint32_t i = 0; i < r->bias_count; i++)
        (void)append_bytes(block, used,
                           element_at(r->biases, i, r->bias_stride),
                           sizeof(xray_bias));
    if (block)
        r->biases = (const void *)(block + first);
    r->bias_stride = block ? sizeof(xray_bias) : r->bias_stride;
}

static void append_lists(char *block, size_t *used, xray_request *r)
{
    size_t first = *used;
    for (uint32_t i = 0; i < r->banned_list_count; i++)
        (void)append_bytes(
            block, used, element_at(r->banned_lists, i, r->banned_list_stride),
            sizeof(xray_id_list));
    if (!r->banned_list_count)
        return;
    xray_id_list *lists = block ? (void *)(block + first) : NULL;
    for (uint32_t i = 0; i < r->banned_list_count; i++) {
        const xray_id_list *from =
            lists ? &lists[i]
                  : element_at(r->banned_lists, i, r->banned_list_stride);
        const void *ids =
            append_bytes(block, used, from->ids, from->count * sizeof(int32_t));
        if (lists)
            lists[i].ids = ids;
    }
    if (!lists)
        return;
    r->banned_lists = lists;
    r->banned_list_stride = sizeof(*lists);
}

static size_t copy_request(char *block, const xray_request *from)
{
    size_t used = 0;
    xray_request copy = *from;
    xray_request *r = block ? (void *)block : &copy;
    (void)append_bytes(block, &used, from, sizeof(*from));
    r->ids =
        append_bytes(block, &used, from->ids, from->id_count * sizeof(int32_t));
    r->stop_ids = append_bytes(block, &used, from->stop_ids,
                               from->stop_count * sizeof(int32_t));
    r->allowed_ids = append_bytes(block, &used, from->allowed_ids,
                                  from->allowed_count * sizeof(int32_t));
    r->forced_ids = append_bytes(block, &used, from->forced_ids,
                                 from->forced_count * sizeof(int32_t));
    r->logp_ids = append_bytes(block, &used, from->logp_ids,
                               from->logp_id_count * sizeof(int32_t));
    append_biases(block, &used, r);
    append_lists(block, &used, r);
    return used;
}

xray_request *table_keep(const xray_request *from)
{
    char *block = malloc(copy_request(NULL, from));
    if (block)
        (void)copy_request(block, from);
    return (void *)block;
}

/* ---- logits -------------------------------------------------------------- */

static int is_among(const int32_t *ids, uint32_t count, int32_t id)
{
    for (uint32_t i = 0; i < count; i++)
        if (ids[i] == id)
            return 1;
    return 0;
}

static void mask_ids(const xray_request *r, const int32_t *tokens,
                     uint32_t count, uint32_t vocab, float *logits)
{
    for (uint32_t i = 0; i < vocab && r->allowed_count; i++)
        if (!is_among(r->allowed_ids, r->allowed_count, (int32_t)i))
            logits[i] = -INFINITY;
    for (uint32_t i = 0; i < r->banned_list_count; i++) {
        const xray_id_list *list = &r->banned_lists[i];
        uint32_t before = list->count - 1;
        if (count >= before && memcmp(tokens + count - before, list->ids,
                                      before * sizeof(*tokens)) == 0)
            logits[list->ids[before]] = -INFINITY;
    }
    for (uint32_t i = 0; i < r->stop_count && count < r->min_tokens; i++)
        logits[r->stop_ids[i]] = -INFINITY;
}

static void penalize_ids(const xray_request *r, const int32_t *tokens,
                         uint32_t count, uint32_t vocab, float *logits)
{
    for (uint32_t i = 0; i < vocab; i++) {
        uint32_t seen = 0;
        for (uint32_t t = 0; t < count; t++)
            seen += tokens[t] == (int32_t)i;
        int anywhere = seen || is_among(r->ids, r->id_count, (int32_t)i);
        if (anywhere && r->repetition_penalty > 0)
            logits[i] = logits[i] > 0 ? logits[i] / r->repetition_penalty
                                      : logits[i] * r->repetition_penalty;
        logits[i] -= (float)seen * r->frequency_penalty;
        logits[i] -= seen ? r->presence_penalty : 0;
    }
}

void table_change(const xray_request *r, const int32_t *tokens, uint32_t count,
                  uint32_t vocab, float *logits)
{
    mask_ids(r, tokens, count, vocab, logits);
    for (uint32_t i = 0; i < r->bias_count; i++)
        logits[r->biases[i].id] += r->biases[i].bias;
    penalize_ids(r, tokens, count, vocab, logits);
}

void table_likeliest(const float *logp, uint32_t vocab, uint32_t count,
                     int32_t *ids, float *values)
{
    for (uint32_t n = 0; n < count; n++) {
        int32_t best = -1;
        for (uint32_t i = 0; i < vocab; i++)
            if (!is_among(ids, n, (int32_t)i) &&
                (best < 0 || logp[i] > logp[best]))
                best = (int32_t)i;
        ids[n] = best;
        values[n] = logp[best];
    }
}
