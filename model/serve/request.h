/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests as an engine keeps them: checked, copied, found by id, their memory
 * used again. Knows neither devices nor where keys and values lie.
 */
#ifndef XM_REQUEST_H
#define XM_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include <xray/batch.h>
#include <xray/infer.h>

#include "core/base/err.h"

/* What a request must keep within. */
typedef struct xm_limits {
    uint32_t vocab;
    uint32_t row_bound; /* no row is longer, prompt and response */
} xm_limits;

#define XM_MAX_SAMPLES 1048576u /* of one request */

#define XM_SAMPLE_WAITING 0u /* nothing sampled, holds no slot */
#define XM_SAMPLE_READY 1u   /* first token sampled, waits for a slot */
#define XM_SAMPLE_RUNNING 2u
#define XM_SAMPLE_HELD 3u /* finished, keeps its slot for `extend` */
#define XM_SAMPLE_DONE 4u

typedef struct xm_request xm_request;

/* One sample of a request. A round is what one submit or extend samples. */
typedef struct xm_sample {
    xm_request *request;
    struct xm_sample *next_ready;
    struct xm_sample *next_out;
    int32_t *tokens; /* [request->token_cap] sampled, of all rounds */
    float *raw_logp;
    float *logp;
    int32_t *pending; /* hold: [row bound] tokens `extend` left to compute */
    uint32_t number;  /* as the caller counts */
    uint32_t state;   /* XM_SAMPLE_* */
    uint32_t finish;  /* XRAY_FINISH_* of this round */
    uint32_t pending_count;
    uint32_t token_count;
    uint32_t round_start; /* tokens of the rounds before */
    uint32_t row_count;   /* prompt, sampled and appended tokens */
    uint32_t in_out;      /* 1: waits to be polled */
    xray_span span;       /* of this round */
} xm_sample;

struct xm_request {
    xm_request *prev; /* in a queue */
    xm_request *next; /* in a queue, or among the unused */
    xm_request *hash_next;
    xm_sample *samples; /* [count] */
    xm_sample *ready;   /* first of those that wait for a slot */
    xm_sample *ready_last;
    int32_t *ids;      /* [id_count] the prompt */
    int32_t *stop_ids; /* [stop_count] */
    uint64_t id;
    uint64_t key; /* of the draws */
    size_t bytes; /* of this block of memory */
    uint32_t id_count;
    uint32_t count;
    uint32_t max_tokens;
    uint32_t token_cap;
    uint32_t stop_count;
    uint32_t hold;
    uint32_t open;     /* samples that are not DONE */
    uint32_t unpolled; /* samples that wait to be polled */
    uint32_t source;   /* slot that holds the prompt's keys and values */
    uint32_t queued;   /* which queue it is in; 0: none */
    float temperature;
    float top_p;
    float min_p;
    int32_t top_k;
};

/* Says in one sentence what is wrong with a request: XRAY_E_ARG. */
xray_status xm_request_check(const xray_request *request,
                             const xm_limits *limits, xr_err *err);

/* Why `sample` ends with the token it got last, XRAY_FINISH_NONE if it does
 * not. An end id goes before a length that is reached by the same token. */
uint32_t xm_sample_verdict(const xm_sample *sample, uint32_t row_bound);

/* What keys the draw of the sample's next token. */
void xm_sample_draw(const xm_sample *sample, xray_draw *out);

/* Memory of requests, and those in use by id. Zero-initialise. */
typedef struct xm_pool {
    xm_request *unused;
    xm_request **buckets;
    uint32_t bucket_count; /* a power of two */
    uint32_t live;
    uint64_t grown; /* times memory was taken */
} xm_pool;

/* A checked copy of `request`, registered by its id. Memory is taken from
 * requests that ended; the pool grows only when more are in use than ever
 * before, or longer ones. */
xray_status xm_pool_take(xm_pool *pool, const xray_request *request,
                         const xm_limits *limits, xr_err *err,
                         xm_request **out);
xm_request *xm_pool_find(const xm_pool *pool, uint64_t id); /* or NULL */
/* Frees the id for another request; the memory stays as it is. */
void xm_pool_forget(xm_pool *pool, xm_request *request);
/* Hands the memory of a forgotten request back. */
void xm_pool_give(xm_pool *pool, xm_request *request);
/* Releases everything, requests in use included. */
void xm_pool_clear(xm_pool *pool);

#endif
