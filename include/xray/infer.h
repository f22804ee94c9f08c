/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/infer.h - interface "xray.infer/0": an inference engine, which takes
 * prompts as tokens and gives samples as tokens with their log-probs.
 *
 * A rollout submits its prompts and then lets the engine work until it is idle:
 *
 *     submit(self, &request);                          once per prompt
 *     do {
 *         status = step(self);                         XRAY_OK or XRAY_END
 *         while (poll(self, &sample) == XRAY_OK)
 *             ...                                      one sample, or a part
 *     } while (status == XRAY_OK);
 *     update(self, NULL, version);                     after the trainer's step
 *
 * An engine is serving or asleep. While it has requests it holds a lease on the
 * weights that it shares with the trainer. A trainer that is to step between
 * two tokens of a sample needs the lease back:
 *
 *     pause(self, XRAY_PAUSE_KEEP);                    the lease is released
 *     ...                                              the trainer's step
 *     update(self, NULL, version);
 *     resume(self);                                    samples go on
 *
 * With world->size > 1 an engine is one instance on each rank of a replica. All
 * of them get the same calls in the same order, so that every [control] below
 * is then [collective], and all must give the same answers. What an engine does
 * next may therefore depend on its calls and on nothing else: not on a clock,
 * on free memory, or on which of two threads or messages came first.
 */
#ifndef XRAY_INFER_H
#define XRAY_INFER_H

#include <xray/abi.h>
#include <xray/host.h>
#include <xray/setup.h>

#define XRAY_IFACE_INFER "xray.infer/0"

/* The least temperature above 0; 0 itself means greedy sampling. */
#define XRAY_MIN_TEMPERATURE 1e-5f

/* Bits of xray_infer_ops.capabilities, for all that an engine need not do. A
 * request with a member that needs a bit which the engine does not have is
 * refused, by the core where it can and by the engine's `submit` in any case.
 * `hold` needs the callback `extend`, and `pause` stands for itself. */
/* clang-format off */
#define XRAY_INFER_TRUNCATION (1u << 0)     /* top_p, min_p, top_k */
#define XRAY_INFER_STREAM (1u << 1)         /* stream */
#define XRAY_INFER_ABORT_SAMPLE (1u << 2)   /* `abort` of one sample */
#define XRAY_INFER_UPDATE_RUNNING (1u << 3) /* `update` under requests */
#define XRAY_INFER_STOP_LISTS (1u << 4)     /* stop_lists */
#define XRAY_INFER_REPEATS (1u << 5)        /* repeat_size, repeat_count */
#define XRAY_INFER_MIN_TOKENS (1u << 6)     /* min_tokens */
#define XRAY_INFER_PENALTIES (1u << 7)      /* the three penalties */
#define XRAY_INFER_BIASES (1u << 8)         /* biases */
#define XRAY_INFER_MASKS (1u << 9)          /* allowed_ids, banned_lists */
#define XRAY_INFER_FORCED_IDS (1u << 10)    /* forced_ids */
#define XRAY_INFER_TOP_LOGP (1u << 11)      /* top_count */
#define XRAY_INFER_LOGP_IDS (1u << 12)      /* logp_ids */
#define XRAY_INFER_PROMPT_LOGP (1u << 13)   /* prompt_logp */

/* Why a sample ended. */
#define XRAY_FINISH_NONE 0u   /* it has not: a part of a running sample */
#define XRAY_FINISH_STOP 1u   /* an end id or a stop list was sampled; the
                               * tokens include it */
#define XRAY_FINISH_LENGTH 2u /* max_tokens, or the model's last position */
#define XRAY_FINISH_ABORT 3u
#define XRAY_FINISH_REPEAT 4u /* the last tokens repeat themselves */
/* clang-format on */

/* `abort`: all samples of the request. No sample has this number. */
#define XRAY_ALL_SAMPLES UINT32_MAX

/* Modes of `pause`, by what becomes of the requests that an engine has. */
#define XRAY_PAUSE_WAIT 1u  /* what has begun goes on until it ends */
#define XRAY_PAUSE_KEEP 2u  /* everything stays where it is */
#define XRAY_PAUSE_ABORT 3u /* all requests end, as by `abort` */

/* A few ids in a row. */
typedef struct xray_id_list {
    const int32_t *ids;
    uint32_t count; /* above 0 */
    uint32_t reserved;
} xray_id_list;

/* A number that is added to the logit of an id. */
typedef struct xray_bias {
    int32_t id;
    float bias;
} xray_bias;

/* A prompt and how to sample from it. `submit` copies it, with everything that
 * it points to. 0 is neutral in every member but the pointers, `temperature`,
 * `top_p`, `count` and `max_tokens`.
 *
 * The logits of a token pass, in this order: allowed_ids and banned_lists,
 * min_tokens, biases, repetition_penalty, frequency_penalty, presence_penalty,
 * temperature, min_p, then top_k and top_p, and a token is drawn from what is
 * left. Log-probs are always those of the logits before any of this, at
 * temperature 1 (raw_logp) or the sampling temperature (logp), so that a
 * trainer computes the same numbers whatever the request.
 *
 * A caller that wants to go on past an end id leaves it out of stop_ids. A text
 * at which a sample is to end is the caller's: it streams, decodes, and aborts
 * the sample. */
typedef struct xray_request {
    xray_header header;
    uint64_t id; /* unique among running requests */
    const int32_t *ids;
    uint32_t id_count;
    uint32_t count;        /* number of samples; the prompt is computed once */
    uint32_t first_sample; /* number of the first sample */
    uint32_t max_tokens;   /* of each sample */
    /* The random numbers of a token depend on these three, on the number of the
     * sample and on the token's position, and on nothing else. */
    uint64_t seed;
    uint64_t step;
    uint64_t prompt_id;
    float temperature;       /* 0: greedy */
    float top_p;             /* above 0; 1: off */
    float min_p;             /* 0: off */
    int32_t top_k;           /* 0: off */
    const int32_t *stop_ids; /* ids that end a sample; NULL: none */
    uint32_t stop_count;
    uint32_t hold; /* 1: finished samples keep their KV cache for `extend` */

    /* 1: `poll` gives the new tokens of running samples, too. */
    uint32_t stream;
    uint32_t stop_list_count;
    uint32_t stop_list_stride; /* sizeof(xray_id_list) */
    /* A sample ends where the last repeat_count * n tokens are the same n
     * tokens over and over, for an n of at most repeat_size. Both are 0, or
     * repeat_size is at least 1 and repeat_count at least 2. */
    uint32_t repeat_size;
    /* A sample ends where the last tokens sampled for it are those of a list.
     */
    const xray_id_list *stop_lists;
    uint32_t repeat_count;
    uint32_t min_tokens; /* up to there, stop_ids are not sampled */
    /* A logit above 0 of an id in the prompt or the sample is divided by it,
     * another multiplied; 0 or 1: off. */
    float repetition_penalty;
    float frequency_penalty; /* subtracted as often as the sample has the id */
    float presence_penalty;  /* subtracted once if the sample has the id */
    uint32_t bias_count;
    const xray_bias *biases; /* of different ids */
    uint32_t bias_stride;    /* sizeof(xray_bias) */
    uint32_t allowed_count;
    const int32_t *allowed_ids;       /* no other id is sampled; NULL: all */
    const xray_id_list *banned_lists; /* the last id of a list is not sampled
                                       * after the others */
    uint32_t banned_list_count;
    uint32_t banned_list_stride; /* sizeof(xray_id_list) */
    /* The first tokens of each sample are these instead of drawn ones, with the
     * log-probs that they have. */
    const int32_t *forced_ids;
    uint32_t forced_count;
    /* With each token the top_count likeliest ids of its distribution, and the
     * raw log-probs of logp_ids. */
    uint32_t top_count;
    const int32_t *logp_ids;
    uint32_t logp_id_count;
    uint32_t prompt_logp; /* 1: also the raw log-probs of the prompt's ids */
} xray_request;

/* True unless x is `neutral`, or 0; NaN is neither. */
static inline int xray_is_set(float x, float neutral)
{
    return !(x >= neutral && x <= neutral) && !(x >= 0 && x <= 0);
}

/* The bits XRAY_INFER_* that a request of this version's size needs. */
static inline uint64_t xray_request_needs(const xray_request *r)
{
    uint64_t needs = 0;
    if (xray_is_set(r->top_p, 1) || xray_is_set(r->min_p, 0) || r->top_k)
        needs |= XRAY_INFER_TRUNCATION;
    if (r->stream)
        needs |= XRAY_INFER_STREAM;
    if (r->stop_list_count)
        needs |= XRAY_INFER_STOP_LISTS;
    if (r->repeat_size || r->repeat_count)
        needs |= XRAY_INFER_REPEATS;
    if (r->min_tokens)
        needs |= XRAY_INFER_MIN_TOKENS;
    if (xray_is_set(r->repetition_penalty, 1) ||
        xray_is_set(r->frequency_penalty, 0) ||
        xray_is_set(r->presence_penalty, 0))
        needs |= XRAY_INFER_PENALTIES;
    if (r->bias_count)
        needs |= XRAY_INFER_BIASES;
    if (r->allowed_count || r->banned_list_count)
        needs |= XRAY_INFER_MASKS;
    if (r->forced_count)
        needs |= XRAY_INFER_FORCED_IDS;
    if (r->top_count)
        needs |= XRAY_INFER_TOP_LOGP;
    if (r->logp_id_count)
        needs |= XRAY_INFER_LOGP_IDS;
    if (r->prompt_logp)
        needs |= XRAY_INFER_PROMPT_LOGP;
    return needs;
}

/* A sample, or the new tokens of a running one. Every array is about the
 * token_count tokens of this part. The pointers are valid until the next
 * `poll`. */
typedef struct xray_sample_out {
    xray_header header;
    uint64_t id;
    uint32_t sample;
    uint32_t token_count;
    const int32_t *tokens; /* [token_count] */
    const float *raw_logp; /* at temperature 1, over the entire vocabulary */
    const float *logp;     /* at the sampling temperature; greedy: raw_logp */
    uint32_t finish;       /* XRAY_FINISH_*; NONE: more of it will come */
    uint32_t span_count;
    /* The versions of the weights that the tokens were sampled from, in their
     * order and without a gap; `row` is 0. */
    const struct xray_span *spans;
    uint32_t span_stride; /* sizeof(xray_span) */
    uint32_t first; /* number of its tokens that earlier parts have given */
    /* Members from here on are 0 unless the request asks for them. */
    const float *prompt_logp; /* [prompt_count] 0 for the first id; in the first
                               * part of each sample */
    uint32_t prompt_count;
    uint32_t top_count;
    const int32_t *top_ids; /* [token_count, top_count] the likeliest first, of
                             * equal ones the lowest id */
    const float *top_logp;  /* [token_count, top_count] raw */
    const float *logp_of_ids; /* [token_count, logp_id_count] raw */
} xray_sample_out;

/* Counts of an engine, for metrics. */
typedef struct xray_infer_stats {
    xray_header header;
    uint64_t requests_running;
    uint64_t requests_waiting;
    uint64_t prompt_tokens;       /* computed since create */
    uint64_t generation_tokens;   /* sampled since create */
    uint64_t steps;               /* calls of `step` that did work */
    uint64_t kv_tokens;           /* positions of the KV cache in use */
    uint64_t kv_capacity;         /* positions that the KV cache has */
    uint64_t prefix_tokens_saved; /* prompt tokens not computed again */
    uint64_t preemptions;
    uint64_t recomputed_tokens;   /* computed before, and once more since their
                                   * keys and values were given up or became
                                   * those of old weights */
    uint64_t num_draft_tokens;    /* computed since they were expected to be
                                   * drawn */
    uint64_t num_accepted_tokens; /* those of them that were */
} xray_infer_stats;

typedef struct xray_infer_ops {
    xray_header header;
    uint64_t capabilities; /* XRAY_INFER_* */

    /* As xray_train_ops.plan; load->rows is the most sequences at once. [any]
     */
    xray_status (*plan)(const xray_host *host, const void *config,
                        const xray_model *model, const xray_world *world,
                        const xray_workload *load, xray_plan *out);

    /* Creates an engine. With setup->weights it shares the weights of this
     * process; with NULL it reads model->path and keeps a copy of its own. On
     * failure *out_self is not written. [control] [may-block] */
    xray_status (*create)(const xray_setup *setup, const void *config,
                          const xray_workload *load, void **out_self);
    /* Frees the engine and drops its requests. Accepts NULL. [control] */
    void (*destroy)(void *self);

    /* Queues a request. It refuses a request that cannot be served with
     * XRAY_E_ARG, and one that needs what the engine does not do with
     * XRAY_E_UNSUPPORTED, and says why through host->fail; nothing is ignored.
     * So that this holds for members that it has never heard of, an engine
     * refuses a request longer than its own struct unless the rest is 0.
     * [control] */
    xray_status (*submit)(void *self, const xray_request *request);

    /* Does one round of work. Returns XRAY_OK while there is more to do, and
     * XRAY_END if the engine is idle: another call would do nothing until a
     * request, `extend` or `resume` comes. After XRAY_E_CANCELED samples may be
     * half computed, so that only `abort` and `destroy` may follow. [control]
     * [may-block] */
    xray_status (*step)(void *self);

    /* Takes one finished sample, or a part of a streamed one; the order is the
     * engine's. Returns XRAY_AGAIN if none is ready yet, and XRAY_END if none
     * is outstanding: every sample that was asked for has been given to its
     * end. [control] */
    xray_status (*poll)(void *self, xray_sample_out *out);

    /* Ends a request (XRAY_ALL_SAMPLES) or one sample of it, by its number.
     * `poll` then gives what ended as far as it has come, with
     * XRAY_FINISH_ABORT; a sample that had ended before stays as it is. Without
     * XRAY_INFER_ABORT_SAMPLE one sample is refused with XRAY_E_UNSUPPORTED.
     * [control] */
    xray_status (*abort)(void *self, uint64_t id, uint32_t sample);

    /* Fills in the counts. [control] */
    xray_status (*stats)(void *self, xray_infer_stats *out);

    /* Tells the engine about new weights. With `from` it copies into its own
     * weights what the boxes of that table have of them; the table may be one
     * of several parts, which together have every element once. With NULL the
     * shared weights have new values, or the last part has been copied; from
     * then on tokens have `version`. After XRAY_E_CANCELED the weights are
     * undefined.
     *
     * With XRAY_INFER_UPDATE_RUNNING requests may be running or held: the next
     * `step` computes the keys and values of their rows again from the new
     * weights, so that the log-prob of each token is that of a forward pass of
     * its version over its row; spans tell which token came from which version.
     * The log-probs of a prompt have the version of the first token. Between
     * the parts of an update `step` returns XRAY_E_STATE. Without that bit
     * `update` returns XRAY_E_STATE while requests run. [control] [may-block]
     */
    xray_status (*update)(void *self, const xray_weights *from,
                          uint64_t version);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* `extend` appends tokens, such as a tool's answer, to a held sample and
     * samples on from there; `release` frees a held sample. [control] */
    xray_status (*extend)(void *self, uint64_t id, uint32_t sample,
                          const int32_t *tokens, uint32_t count);
    xray_status (*release)(void *self, uint64_t id, uint32_t sample);

    /* Stops work on the requests in one of the modes XRAY_PAUSE_*, and takes it
     * up again. Requests that come meanwhile wait. A paused engine with nothing
     * left to do holds no lease: with KEEP at once, with WAIT when `step` has
     * returned XRAY_END. `resume` takes the lease again and fails as `lease`
     * does. An engine has both or neither. [control] */
    xray_status (*pause)(void *self, uint32_t mode);
    xray_status (*resume)(void *self);

    /* `sleep` frees the memory of a set of tags (bit 1 << XRAY_TAG_*), whose
     * contents are lost, and `wake` allocates it again. No request may be
     * running or held. After an engine's own weights slept, updates must bring
     * all of them before the next request; shared weights are not touched. A
     * tag that the engine cannot free is refused with XRAY_E_UNSUPPORTED.
     * [control] [may-block] */
    xray_status (*sleep)(void *self, uint32_t tags);
    xray_status (*wake)(void *self, uint32_t tags);

    /* Finds an extension by its id; NULL if there is none.
     * [any] */
    const void *(*extension)(void *self, const char *id);

    /* The engine's own copy of the weights, under Hugging Face names, so that
     * the core can compare it with the trainer's after an update; NULL while
     * the weights are shared. A tensor may have a narrower type than the
     * trainer's; its values are then the trainer's, rounded to nearest even.
     * [control] */
    const xray_weights *(*weights)(void *self);
} xray_infer_ops;

#endif
