/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/reward.h - interface "xray.reward/0": a reward, which scores samples.
 *
 * A reward may answer at once or later, and in any order, so one that asks a
 * server can have many requests under way:
 *
 *     submit(self, samples, count, sizeof(*samples));
 *     while ((status = poll(self, wait_ns, &score)) != XRAY_END)
 *         if (status == XRAY_OK)
 *             ...                                     the score of score.id
 */
#ifndef XRAY_REWARD_H
#define XRAY_REWARD_H

#include <xray/abi.h>
#include <xray/host.h>

#define XRAY_IFACE_REWARD "xray.reward/0"

/* Bits of xray_reward_ops.capabilities. */
/* Samples are scored while the caller does other work: `submit` waits for no
 * score, and more samples may be submitted while others are outstanding. During
 * a rollout such a reward gets the samples of a prompt in one call as soon as
 * all of them have ended, whichever prompt that is. Any other reward gets all
 * samples of a rollout or validation batch in one call, after it. */
#define XRAY_REWARD_BESIDE (1u << 0)

/* One sample. It stays valid until its score was polled. Strings are UTF-8 and
 * end with a NUL; *_size is their length in bytes without it. No other NUL is
 * in them, except in a response whose tokens have that byte. */
typedef struct xray_sample_in {
    xray_header header;
    uint64_t id; /* echoed in the answer */
    const char *prompt;
    const char *response;     /* without special tokens */
    const char *ground_truth; /* "" if the data row has none */
    const char *data_source;  /* "" if the data row has none */
    const char *fields_json;  /* the complete data row as JSON; "{}" if none */
    uint64_t prompt_size;
    uint64_t response_size;
    const int32_t *ids; /* response tokens */
    uint32_t id_count;
    uint32_t finish;           /* XRAY_FINISH_* */
    const int32_t *prompt_ids; /* NULL if only the text is known */
    uint32_t prompt_id_count;
    uint32_t reserved;
} xray_sample_in;

/* A number that the core logs as the metric reward.<instance>/<name>. */
typedef struct xray_named_value {
    const char *name;
    double value;
} xray_named_value;

/* The score of one sample. Its pointers are valid until the next poll. */
typedef struct xray_score {
    xray_header header;
    uint64_t id;
    double score;              /* used as a float, times the reward's weight */
    const float *token_scores; /* one per response token, or NULL */
    const xray_named_value *values;
    uint32_t value_count;  /* at most 1024 */
    uint32_t value_stride; /* sizeof(xray_named_value) */
} xray_score;

typedef struct xray_reward_ops {
    xray_header header;

    /* Creates an instance. `config` is the filled struct of options, valid as
     * long as the instance. On failure *out_self is not written. [control]
     * [may-block] */
    xray_status (*create)(const xray_host *host, const void *config,
                          void **out_self);
    /* Frees the instance and drops what is outstanding. Accepts NULL.
     * [control] */
    void (*destroy)(void *self);

    /* Takes `count` samples, `stride` bytes apart. A response that cannot be
     * graded, for example because it has no number where one is expected, is
     * not an error: it gets a low score. [control] */
    xray_status (*submit)(void *self, const xray_sample_in *samples,
                          uint64_t count, uint64_t stride);

    /* Takes the score of one sample. Returns XRAY_AGAIN if none is ready yet
     * and XRAY_END if none is outstanding. If `wait_ns` is above 0 it first
     * waits for at most that long. [control] [may-block] */
    xray_status (*poll)(void *self, uint64_t wait_ns, xray_score *out);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* Finds an extension by its id; NULL if there is none. [any] */
    const void *(*extension)(void *self, const char *id);

    uint64_t capabilities; /* XRAY_REWARD_* */
} xray_reward_ops;

#endif
