/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/infer.h - interface "xray.infer/0": an inference engine, which takes
 * prompts as tokens and gives samples as tokens with their log-probs.
 *
 * A rollout submits its prompts and then lets the engine work until it is idle:
 *
 *     submit(self, &request);                          once per prompt
 *     do {
 *         status = step(self);                         XRAY_AGAIN or XRAY_OK
 *         while (poll(self, &sample) == XRAY_OK)
 *             ...                                      one finished sample
 *     } while (status == XRAY_AGAIN);
 *     update(self, NULL, version);                     after the trainer's step
 *
 * An engine is serving or asleep. While it has requests it holds a lease on the
 * weights that it shares with the trainer.
 */
#ifndef XRAY_INFER_H
#define XRAY_INFER_H

#include <xray/abi.h>
#include <xray/host.h>
#include <xray/setup.h>

#define XRAY_IFACE_INFER "xray.infer/0"

/* An extension of an instance, of type const char *: the id of the numerics
 * contract it keeps, where its options change the component's. */
#define XRAY_EXT_INFER_NUMERICS "xray.infer.numerics/0"

/* The least temperature above 0; 0 itself means greedy sampling. */
#define XRAY_MIN_TEMPERATURE 1e-5f

/* Why a sample ended. */
/* clang-format off */
#define XRAY_FINISH_NONE 0u
#define XRAY_FINISH_STOP 1u   /* an end id was sampled; the tokens include it */
#define XRAY_FINISH_LENGTH 2u /* max_tokens, or the model's last position */
#define XRAY_FINISH_ABORT 3u
/* clang-format on */

/* A prompt and how to sample from it. `submit` copies it. 0 is neutral in every
 * member but the pointers, `temperature`, `top_p`, `count` and `max_tokens`. */
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
} xray_request;

/* One finished or aborted sample. Its pointers are valid until the next `poll`.
 */
typedef struct xray_sample_out {
    xray_header header;
    uint64_t id;
    uint32_t sample;
    uint32_t token_count;
    const int32_t *tokens; /* [token_count] */
    const float *raw_logp; /* at temperature 1, over the entire vocabulary */
    const float *logp;     /* at the sampling temperature; greedy: raw_logp */
    uint32_t finish;       /* XRAY_FINISH_* */
    uint32_t span_count;
    const struct xray_span *spans; /* versions of the weights; row is 0 */
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
} xray_infer_stats;

typedef struct xray_infer_ops {
    xray_header header;

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
     * XRAY_E_ARG and says why through host->fail. [control] */
    xray_status (*submit)(void *self, const xray_request *request);

    /* Does one round of work. Returns XRAY_AGAIN if there is more to do and
     * XRAY_OK if the engine is idle. [control] [may-block] */
    xray_status (*step)(void *self);

    /* Takes one finished sample; the order is the engine's. Returns XRAY_END if
     * none is ready. [control] */
    xray_status (*poll)(void *self, xray_sample_out *out);

    /* Ends a request. `poll` then gives its samples as far as they have come.
     * [control] */
    xray_status (*abort)(void *self, uint64_t id);

    /* Fills in the counts. [control] */
    xray_status (*stats)(void *self, xray_infer_stats *out);

    /* Tells the engine about new weights, while no request is running. With
     * `from` it copies the tensors of that table into its own weights; the
     * table may be one of several parts, each of complete tensors. With NULL
     * the shared weights have new values, or the last part has been copied;
     * from then on samples carry `version`. [control] [may-block] */
    xray_status (*update)(void *self, const xray_weights *from,
                          uint64_t version);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* `extend` appends tokens, such as a tool's answer, to a held sample and
     * samples on from there; `release` frees a held sample. [control] */
    xray_status (*extend)(void *self, uint64_t id, uint32_t sample,
                          const int32_t *tokens, uint32_t count);
    xray_status (*release)(void *self, uint64_t id, uint32_t sample);

    /* Stops work on all requests, and takes it up again, without losing any.
     * [control] */
    xray_status (*pause)(void *self);
    xray_status (*resume)(void *self);

    /* `sleep` frees the memory of a set of tags (bit 1 << XRAY_TAG_*), whose
     * contents are lost, and `wake` allocates it again. No request may be
     * running or held. After an engine's own weights slept, updates must bring
     * all of them before the next request; shared weights are not touched. A
     * tag that the engine cannot free is refused with XRAY_E_UNSUPPORTED.
     * [control] [may-block] */
    xray_status (*sleep)(void *self, uint32_t tags);
    xray_status (*wake)(void *self, uint32_t tags);

    /* Finds an extension by its id, XRAY_EXT_INFER_*; NULL if there is none.
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
