/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the memory of requests: a request and everything that its samples will
 * hold share one block, and the blocks of ended requests are used again.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "model/serve/request.h"

#define FIRST_BUCKETS 64u

static uint32_t bucket_index(uint64_t id, uint32_t bucket_count)
{
    return (uint32_t)xray_mix64(0, id) & (bucket_count - 1);
}

/* Doubles the table, so that a bucket holds about one request on average. */
static int grow_buckets(xm_pool *pool)
{
    uint32_t count =
        pool->bucket_count ? 2 * pool->bucket_count : FIRST_BUCKETS;
    xm_request **buckets = calloc(count, sizeof(*buckets));
    if (!buckets)
        return -1;
    pool->grown++;
    for (uint32_t i = 0; i < pool->bucket_count; i++) {
        xm_request *r = pool->buckets[i];
        while (r) {
            xm_request *next = r->hash_next;
            uint32_t at = bucket_index(r->id, count);
            r->hash_next = buckets[at];
            buckets[at] = r;
            r = next;
        }
    }
    free(pool->buckets);
    pool->buckets = buckets;
    pool->bucket_count = count;
    return 0;
}

xm_request *xm_pool_find(const xm_pool *pool, uint64_t id)
{
    if (!pool->bucket_count)
        return NULL;
    xm_request *r = pool->buckets[bucket_index(id, pool->bucket_count)];
    while (r && r->id != id)
        r = r->hash_next;
    return r;
}

/* Offsets of the parts of a request in its block. */
typedef struct request_layout {
    size_t samples;
    size_t ids;
    size_t stop_ids;
    size_t lists;
    size_t list_ids;
    size_t prompt_logp;
    size_t wishes;
    size_t tokens;
    size_t raw_logp;
    size_t logp;
    size_t top_ids;
    size_t top_logp;
    size_t logp_of_ids;
    size_t row;
    size_t end;
    uint32_t token_cap;
} request_layout;

static size_t reserve_part(size_t *end, size_t count, size_t size)
{
    size_t at = *end;
    *end = (at + count * size + 7) & ~(size_t)7;
    return at;
}

/* Rounds a size up by at most about an eighth, so that requests of similar
 * length fit into one another's blocks. */
static size_t round_block_size(size_t bytes)
{
    size_t step = 64;
    while (step * 16 <= bytes)
        step *= 2;
    return (bytes + step - 1) / step * step;
}

/* A request has at most 2^20 samples of 2^31 tokens with 2^8 picks, so 64 bits
 * cannot overflow. */
static request_layout lay_out_request(const xray_request *r,
                                      const xm_limits *limits)
{
    request_layout l = { 0 };
    uint32_t space = limits->row_bound - r->id_count;
    l.token_cap = r->hold || r->max_tokens > space ? space : r->max_tokens;
    size_t all = (size_t)r->count * l.token_cap;
    size_t end = 0;
    (void)reserve_part(&end, 1, sizeof(xm_request));
    l.samples = reserve_part(&end, r->count, sizeof(xm_sample));
    l.ids = reserve_part(&end, r->id_count, sizeof(int32_t));
    l.stop_ids = reserve_part(&end, r->stop_count, sizeof(int32_t));
    size_t list_ids = 0;
    for (uint32_t i = 0; i < r->stop_list_count; i++)
        list_ids += xm_list_at(r->stop_lists, r->stop_list_stride, i)->count;
    l.lists = reserve_part(&end, r->stop_list_count, sizeof(xray_id_list));
    l.list_ids = reserve_part(&end, list_ids, sizeof(int32_t));
    l.prompt_logp =
        reserve_part(&end, r->prompt_logp ? r->id_count : 0, sizeof(float));
    l.wishes = end;
    end = xm_wishes_copy(r, limits, NULL, end, NULL);
    l.tokens = reserve_part(&end, all, sizeof(int32_t));
    l.raw_logp = reserve_part(&end, all, sizeof(float));
    l.logp = reserve_part(&end, all, sizeof(float));
    l.top_ids = reserve_part(&end, all * r->top_count, sizeof(int32_t));
    l.top_logp = reserve_part(&end, all * r->top_count, sizeof(float));
    l.logp_of_ids = reserve_part(&end, all * r->logp_id_count, sizeof(float));
    l.row = end;
    if (r->hold)
        (void)reserve_part(&end, (size_t)r->count * limits->row_bound,
                           sizeof(int32_t));
    l.end = round_block_size(end);
    return l;
}

/* Takes the smallest unused block that is large enough, so that the same
 * requests find their blocks again in any order. If none is, one unused block
 * is traded for a larger one: there are never more blocks than were in use at
 * once. */
static xm_request *take_block(xm_pool *pool, size_t bytes)
{
    xm_request **best = NULL;
    for (xm_request **at = &pool->unused; *at; at = &(*at)->next) {
        if ((*at)->bytes >= bytes && (!best || (*at)->bytes < (*best)->bytes))
            best = at;
        if (best && (*best)->bytes == bytes)
            break;
    }
    if (best) {
        xm_request *r = *best;
        *best = r->next;
        return r;
    }
    xm_request *r = malloc(bytes);
    if (!r)
        return NULL;
    pool->grown++;
    r->bytes = bytes;
    xm_request *small = pool->unused;
    if (small) {
        pool->unused = small->next;
        free(small);
    }
    return r;
}

static void fill_samples(xm_request *r, const request_layout *l,
                         const xray_request *from, uint32_t row_bound)
{
    unsigned char *base = (unsigned char *)r;
    int32_t *tokens = (void *)(base + l->tokens);
    float *raw_logp = (void *)(base + l->raw_logp);
    float *logp = (void *)(base + l->logp);
    int32_t *top_ids = (void *)(base + l->top_ids);
    float *top_logp = (void *)(base + l->top_logp);
    float *logp_of_ids = (void *)(base + l->logp_of_ids);
    int32_t *row = (void *)(base + l->row);
    for (uint32_t i = 0; i < r->count; i++) {
        size_t at = (size_t)i * l->token_cap;
        r->samples[i] = (xm_sample){
            .request = r,
            .tokens = tokens + at,
            .raw_logp = raw_logp + at,
            .logp = logp + at,
            .top_ids = top_ids + at * from->top_count,
            .top_logp = top_logp + at * from->top_count,
            .logp_of_ids = logp_of_ids + at * from->logp_id_count,
            .row = r->hold ? row + (size_t)i * row_bound : NULL,
            .number = from->first_sample + i,
            .computed = r->id_count,
            .row_count = r->id_count,
            .spans = &r->samples[i].span,
            .span_cap = 1,
        };
    }
}

static void copy_stop_lists(xm_request *r, int32_t *ids,
                            const xray_request *from)
{
    for (uint32_t i = 0; i < from->stop_list_count; i++) {
        const xray_id_list *list =
            xm_list_at(from->stop_lists, from->stop_list_stride, i);
        memcpy(ids, list->ids, list->count * sizeof(*ids));
        r->stop_lists[i] = (xray_id_list){ .ids = ids, .count = list->count };
        ids += list->count;
    }
}

static void fill_request(xm_request *r, const request_layout *l,
                         const xray_request *from, const xm_limits *limits)
{
    unsigned char *base = (unsigned char *)r;
    *r = (xm_request){
        .samples = (void *)(base + l->samples),
        .ids = (void *)(base + l->ids),
        .stop_ids = (void *)(base + l->stop_ids),
        .id = from->id,
        .key = xray_philox_key(from->seed, from->step, from->prompt_id),
        .bytes = r->bytes,
        .id_count = from->id_count,
        .count = from->count,
        .max_tokens = from->max_tokens,
        .token_cap = l->token_cap,
        .stop_lists = (void *)(base + l->lists),
        .stop_count = from->stop_count,
        .stop_list_count = from->stop_list_count,
        .repeat_size = from->repeat_size,
        .repeat_count = from->repeat_count,
        .hold = from->hold ? 1u : 0u,
        .stream = from->stream ? 1u : 0u,
        .open = from->count,
        .temperature = from->temperature,
        .top_p = from->top_p,
        .min_p = from->min_p,
        .top_k = from->top_k,
    };
    memcpy(r->ids, from->ids, from->id_count * sizeof(int32_t));
    if (from->stop_count)
        memcpy(r->stop_ids, from->stop_ids, from->stop_count * sizeof(int32_t));
    copy_stop_lists(r, (void *)(base + l->list_ids), from);
    (void)xm_wishes_copy(from, limits, base, l->wishes, &r->wishes);
    if (from->prompt_logp) {
        r->prompt_logp = (void *)(base + l->prompt_logp);
        r->prompt_logp[0] = 0;
        r->scored = 1;
    }
    fill_samples(r, l, from, limits->row_bound);
}

xray_status xm_pool_add(xm_pool *pool, const xray_request *request,
                        const xm_limits *limits, xr_err *err, xm_request **out)
{
    xray_status status = xm_request_check(request, limits, err);
    if (status != XRAY_OK)
        return status;
    if (xm_pool_find(pool, request->id))
        return xr_fail(err, XRAY_E_ARG,
                       "request %" PRIu64 ": a request of this id is running",
                       request->id);
    request_layout l = lay_out_request(request, limits);
    xm_request *r = NULL;
    if (pool->live < pool->bucket_count || grow_buckets(pool) == 0)
        r = take_block(pool, l.end);
    if (!r)
        return xr_fail(err, XRAY_E_NOMEM,
                       "request %" PRIu64 ": no memory for %zu bytes",
                       request->id, l.end);
    fill_request(r, &l, request, limits);
    uint32_t at = bucket_index(r->id, pool->bucket_count);
    r->hash_next = pool->buckets[at];
    pool->buckets[at] = r;
    pool->live++;
    *out = r;
    return XRAY_OK;
}

void xm_pool_forget(xm_pool *pool, xm_request *request)
{
    xm_request **at =
        &pool->buckets[bucket_index(request->id, pool->bucket_count)];
    while (*at != request)
        at = &(*at)->hash_next;
    *at = request->hash_next;
    pool->live--;
}

void xm_request_free_spans(xm_request *request)
{
    for (uint32_t i = 0; i < request->count; i++)
        if (request->samples[i].spans != &request->samples[i].span)
            free(request->samples[i].spans);
}

void xm_pool_recycle(xm_pool *pool, xm_request *request)
{
    request->next = pool->unused;
    pool->unused = request;
}

void xm_pool_clear(xm_pool *pool)
{
    for (uint32_t i = 0; i < pool->bucket_count; i++)
        while (pool->buckets[i]) {
            xm_request *r = pool->buckets[i];
            pool->buckets[i] = r->hash_next;
            xm_request_free_spans(r);
            free(r);
        }
    while (pool->unused) {
        xm_request *r = pool->unused;
        pool->unused = r->next;
        free(r);
    }
    free(pool->buckets);
    *pool = (xm_pool){ 0 };
}
