/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/reward.h - interface "xray.reward/0": scores samples.
 */
#ifndef XRAY_REWARD_H
#define XRAY_REWARD_H

#include <xray/abi.h>
#include <xray/host.h>

#define XRAY_IFACE_REWARD "xray.reward/0"

/* One sample. Borrowed until its answer was polled. Strings are UTF-8, end
 * with NUL, and may hold no NUL inside; *_size counts bytes. */
typedef struct xray_sample_in {
    xray_header header;
    uint64_t id; /* echoed in the answer */
    const char *prompt;
    const char *response;     /* special tokens left out */
    const char *ground_truth; /* "" if the row has none */
    const char *data_source;  /* "" if the row has none */
    const char *fields_json;  /* the whole data row as JSON; "{}" if none */
    uint64_t prompt_size;
    uint64_t response_size;
    const int32_t *ids; /* response tokens */
    uint32_t id_count;
    uint32_t finish;           /* XRAY_FINISH_* */
    const int32_t *prompt_ids; /* NULL where only the text is known */
    uint32_t prompt_id_count;
    uint32_t reserved;
} xray_sample_in;

/* A named number that goes into the metrics as reward/<instance>/<name>. */
typedef struct xray_named_value {
    const char *name;
    double value;
} xray_named_value;

/* The answer. Pointers live until the next poll. */
typedef struct xray_score {
    xray_header header;
    uint64_t id;
    double score;              /* trained on as a float, times its weight */
    const float *token_scores; /* [id_count of the sample] or NULL */
    const xray_named_value *values;
    uint32_t value_count;  /* at most 1024 */
    uint32_t value_stride; /* sizeof(xray_named_value) */
} xray_score;

typedef struct xray_reward_ops {
    xray_header header;

    xray_status (*create)(const xray_host *host, const void *config,
                          void **out_self);
    void (*destroy)(void *self); /* accepts NULL */

    /* Takes `count` samples at `stride` bytes; may answer later and out of
     * order. A sample that cannot be scored (no number where one is expected)
     * scores low, it is no error. */
    xray_status (*submit)(void *self, const xray_sample_in *samples,
                          uint64_t count, uint64_t stride);

    /* One answer; XRAY_AGAIN: not yet, XRAY_END: nothing is outstanding. With
     * `wait_ns` > 0 it waits at most that long. [may-block] */
    xray_status (*poll)(void *self, uint64_t wait_ns, xray_score *out);

    /* Optional from here on. */

    /* Finds an extension by id. NULL if none. [any] */
    const void *(*extension)(void *self, const char *id);
} xray_reward_ops;

#endif
