/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests in the form in which an engine keeps them: checked, copied, and
 * found by id; the memory of ended ones is used again. Nothing here depends on
 * a device or on where keys and values are stored.
 */
#ifndef XM_REQUEST_H
#define XM_REQUEST_H

#include <stddef.h>
#include <stdint.h>

#include <xray/batch.h>
#include <xray/infer.h>

#include "core/base/err.h"

/* The limits that a request must keep. */
typedef struct xm_limits {
    uint32_t vocab;
    uint32_t row_bound; /* most tokens of a row, with its response */
} xm_limits;

/* The most that a request may have. */
#define XM_MAX_SAMPLES 1048576u
#define XM_MAX_PICKS 256u   /* top_count, logp_id_count */
#define XM_MAX_BIASES 1024u /* bias_count */

#define XM_SAMPLE_WAITING 0u /* nothing sampled yet; holds no slot */
#define XM_SAMPLE_READY 1u   /* its first token is sampled; waits for a slot */
#define XM_SAMPLE_RUNNING 2u
#define XM_SAMPLE_HELD 3u /* finished; keeps its slot for `extend` */
#define XM_SAMPLE_DONE 4u

typedef struct xm_request xm_request;

/* The wishes that a request has of the logits; all 0: they stay as they are. */
typedef struct xm_wishes {
    uint32_t *allowed; /* [words] bit id % 32 of word id / 32; NULL: every id */
    xray_bias *biases; /* [bias_count] */
    xray_id_list *banned; /* [banned_count] */
    int32_t *forced;      /* [forced_count] */
    int32_t *logp_ids;    /* [logp_id_count] */
    uint32_t bias_count;
    uint32_t banned_count;
    uint32_t forced_count;
    uint32_t logp_id_count;
    uint32_t top_count;
    uint32_t min_tokens;
    float repetition; /* 0: off */
    float frequency;
    float presence;
    uint32_t reserved;
} xm_wishes;

/* One sample of a request. A round is the part of it that one submit or extend
 * generates. */
typedef struct xm_sample {
    xm_request *request;
    struct xm_sample *next_ready;
    struct xm_sample *next_out;
    int32_t *tokens; /* [request->token_cap] sampled tokens of all rounds */
    float *raw_logp;
    float *logp;
    int32_t *top_ids;   /* [token_cap, top_count] */
    float *top_logp;    /* [token_cap, top_count] */
    float *logp_of_ids; /* [token_cap, logp_id_count] */
    int32_t *row; /* only with `hold`: [row bound] sampled and appended tokens
                   * in their order; NULL: they are `tokens` */
    uint32_t number;   /* in the caller's numbering */
    uint32_t state;    /* XM_SAMPLE_* */
    uint32_t finish;   /* XRAY_FINISH_* of the current round */
    uint32_t computed; /* tokens of the row that were computed, perhaps in
                        * other slots or from other weights */
    uint32_t token_count;
    uint32_t round_start; /* number of tokens sampled in earlier rounds */
    uint32_t row_count;   /* prompt, sampled and appended tokens */
    uint32_t in_out;      /* 1: a result of it waits to be polled */
    uint32_t given;       /* number of tokens that poll has given */
    uint32_t noted;       /* 1: its course in the trace has begun */
    uint32_t doubt; /* how often its drafts were wrong of late, of 65536; it
                     * starts without doubt */
    uint32_t reserved;
    xray_span *spans; /* of the current round; `span` or memory of its own */
    uint32_t span_count;
    uint32_t span_cap;
    xray_span span;
} xm_sample;

struct xm_request {
    xm_request *prev; /* in its queue */
    xm_request *next; /* in its queue, or in the list of unused blocks */
    xm_request *hash_next;
    xm_sample *samples; /* [count] */
    xm_sample *ready;   /* first sample that waits for a slot */
    xm_sample *ready_last;
    int32_t *ids;             /* [id_count] the prompt's tokens */
    int32_t *stop_ids;        /* [stop_count] */
    xray_id_list *stop_lists; /* [stop_list_count] */
    float *prompt_logp;       /* [id_count]; NULL: not asked for */
    xm_wishes wishes;
    uint64_t id;
    uint64_t key; /* key of the random draws */
    size_t bytes; /* size of this block of memory */
    uint32_t id_count;
    uint32_t count;
    uint32_t max_tokens;
    uint32_t token_cap;
    uint32_t stop_count;
    uint32_t stop_list_count;
    uint32_t repeat_size;
    uint32_t repeat_count;
    uint32_t hold;
    uint32_t stream;
    uint32_t started;  /* samples whose first token is drawn */
    uint32_t open;     /* samples that are not DONE */
    uint32_t unpolled; /* samples whose results wait to be polled */
    uint32_t source;   /* slot that holds the prompt's keys and values */
    uint32_t queued;   /* XM_QUEUE_* of its queue; 0: none */
    uint32_t scored;   /* ids of the prompt whose log-probs are known */
    uint32_t computed; /* ids of the prompt that were computed */
    uint32_t noted;    /* 1: the prompt's course in the trace has begun */
    float temperature;
    float top_p;
    float min_p;
    int32_t top_k;
};

/* The members that these requests may set: all that xray/infer.h has. */
#define XM_REQUEST_OFFERS                                                \
    (XRAY_INFER_TRUNCATION | XRAY_INFER_STREAM | XRAY_INFER_STOP_LISTS | \
     XRAY_INFER_REPEATS | XRAY_INFER_MIN_TOKENS | XRAY_INFER_PENALTIES | \
     XRAY_INFER_BIASES | XRAY_INFER_MASKS | XRAY_INFER_FORCED_IDS |      \
     XRAY_INFER_TOP_LOGP | XRAY_INFER_LOGP_IDS | XRAY_INFER_PROMPT_LOGP)

/* Reads a request whose author knows another version of the struct: members
 * that it does not have are 0, and if it sets members that are unknown here, it
 * is refused with XRAY_E_UNSUPPORTED. */
xray_status xm_request_read(const xray_request *from, xr_err *err,
                            xray_request *out);

/* Refuses a request that is invalid with XRAY_E_ARG and a sentence that says
 * why. */
xray_status xm_request_check(const xray_request *request,
                             const xm_limits *limits, xr_err *err);

/* Tells why `sample` ends with its last token, or XRAY_FINISH_NONE if it does
 * not. If several reasons hold, the lowest decides, except that a repetition
 * goes before the length. */
uint32_t xm_sample_finish_reason(const xm_sample *sample, uint32_t row_bound);

/* The entry of an array of lists whose elements are `stride` bytes apart. */
static inline const xray_id_list *xm_list_at(const xray_id_list *lists,
                                             uint32_t stride, uint32_t i)
{
    const unsigned char *at = (const unsigned char *)lists;
    return (const void *)(at + (size_t)i * stride);
}

/* Copies what a request wishes to `block` from the offset `end` on, and returns
 * the offset behind it. With `block` NULL it only counts. */
size_t xm_wishes_copy(const xray_request *from, const xm_limits *limits,
                      unsigned char *block, size_t end, xm_wishes *out);
/* 1 if the sample's next token needs logits that can be read or changed. */
int xm_sample_needs_logits(const xm_sample *sample);

/* Fills in the random draw for the sample's next token. */
void xm_sample_fill_draw(const xm_sample *sample, xray_draw *out);

/* The memory of requests, and a table of the running ones by id. It starts as
 * zeros. */
typedef struct xm_pool {
    xm_request *unused;
    xm_request **buckets;
    uint32_t bucket_count; /* a power of two */
    uint32_t live;
    uint64_t grown; /* number of allocations so far */
} xm_pool;

/* Frees the spans of a request's samples that have memory of their own. */
void xm_request_free_spans(xm_request *request);

/* Adds a checked copy of `request` under its id. The memory comes from ended
 * requests; the pool grows only when more requests run at once than ever
 * before, or longer ones. */
xray_status xm_pool_add(xm_pool *pool, const xray_request *request,
                        const xm_limits *limits, xr_err *err, xm_request **out);
xm_request *xm_pool_find(const xm_pool *pool,
                         uint64_t id); /* NULL if there is none */
/* Frees the id for another request; the memory stays as it is. */
void xm_pool_forget(xm_pool *pool, xm_request *request);
/* Returns the memory of a forgotten request to the pool. */
void xm_pool_recycle(xm_pool *pool, xm_request *request);
/* Frees everything, including requests that still run. */
void xm_pool_clear(xm_pool *pool);

#endif
