/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/infer.h - interface "xray.infer/0": tokens in, tokens out.
 *
 * States: created -> [serving | asleep] -> destroyed. Calls come from one
 * thread. While requests run the engine leases the weights it shares.
 */
#ifndef XRAY_INFER_H
#define XRAY_INFER_H

#include <xray/abi.h>
#include <xray/host.h>
#include <xray/setup.h>

#define XRAY_IFACE_INFER "xray.infer/0"

/* An extension of an instance, const char *: the numerics contract it keeps,
 * where options make it another one than the component's. */
#define XRAY_EXT_INFER_NUMERICS "xray.infer.numerics/0"

#define XRAY_MIN_TEMPERATURE 1e-5f /* below it only 0, greedy */

#define XRAY_FINISH_NONE 0u
#define XRAY_FINISH_STOP 1u   /* an end id was sampled; it is in the tokens */
#define XRAY_FINISH_LENGTH 2u /* max_tokens, or the model's last position */
#define XRAY_FINISH_ABORT 3u

/* A prompt and how to sample from it. Copied by submit. All zero but the
 * pointers and `temperature`, `top_p`, `count`, `max_tokens` is neutral. */
typedef struct xray_request {
    xray_header header;
    uint64_t id; /* unique among running requests */
    const int32_t *ids;
    uint32_t id_count;
    uint32_t count;        /* samples to draw; the prompt is computed once */
    uint32_t first_sample; /* samples are first_sample, ... */
    uint32_t max_tokens;
    uint64_t
        seed; /* seed, step, prompt_id, sample and position key the draws */
    uint64_t step;
    uint64_t prompt_id;
    float temperature;       /* 0: greedy */
    float top_p;             /* above 0; 1: off */
    float min_p;             /* 0: off */
    int32_t top_k;           /* 0: off */
    const int32_t *stop_ids; /* end the sample; NULL: none */
    uint32_t stop_count;
    uint32_t hold; /* 1: finished samples keep their KV for `extend` */
} xray_request;

/* One finished (or aborted) sample. Pointers live until the next `poll`. */
typedef struct xray_sample_out {
    xray_header header;
    uint64_t id;
    uint32_t sample;
    uint32_t token_count;
    const int32_t *tokens; /* [token_count] */
    const float *raw_logp; /* at temperature 1, over the whole vocabulary */
    const float *logp;     /* at the sampling temperature; greedy: raw */
    uint32_t finish;       /* XRAY_FINISH_* */
    uint32_t span_count;
    const struct xray_span *spans; /* weight versions, row 0 */
} xray_sample_out;

typedef struct xray_infer_stats {
    xray_header header;
    uint64_t requests_running;
    uint64_t requests_waiting;
    uint64_t prompt_tokens;     /* computed, since create */
    uint64_t generation_tokens; /* sampled, since create */
    uint64_t steps;
    uint64_t kv_tokens;           /* positions held now */
    uint64_t kv_capacity;         /* positions there are */
    uint64_t prefix_tokens_saved; /* prompt tokens not computed again */
    uint64_t preemptions;
} xray_infer_stats;

typedef struct xray_infer_ops {
    xray_header header;

    /* As xray_train_ops.plan. load->rows: most sequences at once. [any] */
    xray_status (*plan)(const xray_host *host, const void *config,
                        const xray_model *model, const xray_world *world,
                        const xray_workload *load, xray_plan *out);

    /* setup->weights: weights in this process to share by handle; NULL: the
     * engine reads model->path itself and keeps its own copy. */
    xray_status (*create)(const xray_setup *setup, const void *config,
                          const xray_workload *load, void **out_self);
    void (*destroy)(void *self); /* accepts NULL */

    /* Queues a request. XRAY_E_ARG names what is wrong with it. */
    xray_status (*submit)(void *self, const xray_request *request);

    /* Does one round of work. XRAY_AGAIN: more is left. XRAY_OK: idle. */
    xray_status (*step)(void *self);

    /* Takes one finished sample, in any order. XRAY_END: none is ready. */
    xray_status (*poll)(void *self, xray_sample_out *out);

    /* Ends a request; what its samples have so far is given out by poll. */
    xray_status (*abort)(void *self, uint64_t id);

    xray_status (*stats)(void *self, xray_infer_stats *out);

    /* Weights changed behind shared handles, or are to be copied from `from`
     * (NULL: shared, or all parts have come). `from` may hold some of the
     * tensors, whole ones. No request may be running. */
    xray_status (*update)(void *self, const xray_weights *from,
                          uint64_t version);

    /* Optional from here on. */

    /* Goes on with a held sample: tokens (an observation) are appended and
     * sampling resumes. `release` drops a held sample. */
    xray_status (*extend)(void *self, uint64_t id, uint32_t sample,
                          const int32_t *tokens, uint32_t count);
    xray_status (*release)(void *self, uint64_t id, uint32_t sample);

    /* Stops and restarts work without losing requests. */
    xray_status (*pause)(void *self);
    xray_status (*resume)(void *self);

    /* Gives back, and takes again, the memory of tags (bit 1 << XRAY_TAG_*);
     * what it held is lost. No request may be running or held. After own
     * weights slept an update has to bring all of them before the next
     * request; shared ones stay. XRAY_E_UNSUPPORTED: a tag that it keeps. */
    xray_status (*sleep)(void *self, uint32_t tags);
    xray_status (*wake)(void *self, uint32_t tags);

    /* Finds an extension by id: XRAY_EXT_INFER_*. NULL if none. [any] */
    const void *(*extension)(void *self, const char *id);

    /* The engine's own copy of the weights, by HF name, whose values are
     * compared with the trainer's after an update; NULL while they are shared.
     * A tensor may be narrower than the trainer's: its values are those,
     * rounded to nearest even. */
    const xray_weights *(*weights)(void *self);
} xray_infer_ops;

#endif
