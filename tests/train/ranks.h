/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one training run on several ranks, each a thread with a device of its
 * own.
 */
#ifndef TEST_TRAIN_RANKS_H
#define TEST_TRAIN_RANKS_H

#include "tests/train/rig.h"
#include "tests/train/snapshot.h"
#include "tests/train/thread_comm.h"

#define RANKS_STEPS 100

/* The work of the passes of a rank's step. */
typedef struct ranks_work {
    uint64_t passes;  /* those with tokens */
    uint64_t inputs;  /* tokens that the rank reads, of a context its own */
    uint64_t parts;   /* of a rank, where those of a replica divide them */
    uint64_t context; /* of each rank's place in what a context gathers */
    uint64_t items;   /* tokens in the loss, of a context its own */
    uint64_t most;    /* of the rank of a context that has most */
} ranks_work;

typedef struct ranks_run {
    rig_spec spec;
    uint32_t ranks;      /* with spec.tensor, so many of them, times
                          * spec.context and spec.stages, are a replica */
    uint32_t steps;      /* number of updates */
    uint32_t first_step; /* their rows are those of steps first_step.. */
    uint32_t cuts;       /* micro-batches per rank */
    uint32_t rows;       /* of all ranks [16] */
    uint32_t poison;     /* 1: the last rank's first gradient contains a NaN */
    uint32_t fail_loss;  /* 1: the last rank's loss fails */
    uint32_t one_call;   /* 1: only forward_backward is called */
    uint32_t shm;        /* 1: comm-shm instead of thread_comm */
    uint32_t score;      /* 1: `logp` is filled before the first step */
    uint32_t twice; /* 1: two calls per step, with gradients read in between */
    uint32_t turns; /* 1: everything that can be is offloaded between calls */
    uint32_t kv_ranks;    /* neighbours that have the same KV heads [1] */
    uint32_t hollow;      /* 1: an empty micro-batch comes after each segment */
    uint32_t share;       /* 1: neighbouring rows share a prompt, and say so */
    uint32_t watch;       /* 1: `clashes` is filled */
    const rig_spec *odd;  /* of the last rank; NULL: as all others */
    uint32_t cut_short;   /* rank of this number + 1 leaves out the last
                           * micro-batch of each call */
    uint32_t may_fail;    /* 1: the test reads `status` */
    const char *save_dir; /* or NULL */
    const char *load_dir;
    /* The results. */
    xray_status status[THREAD_COMM_MAX]; /* of the first call that failed */
    char error[THREAD_COMM_MAX][512];
    double nll[RANKS_STEPS]; /* summed over replicas */
    double norm[THREAD_COMM_MAX][RANKS_STEPS];
    uint64_t received[THREAD_COMM_MAX][RANKS_STEPS]; /* of forward_backward */
    ranks_work work[THREAD_COMM_MAX][RANKS_STEPS];
    /* Traffic of a step in the replica, and among the ranks of equal position
     * in each. */
    thread_comm_traffic joins[THREAD_COMM_MAX][RANKS_STEPS];
    thread_comm_traffic sums[THREAD_COMM_MAX][RANKS_STEPS];
    thread_comm_traffic keys[THREAD_COMM_MAX][RANKS_STEPS]; /* the context's */
    thread_comm_traffic passed[THREAD_COMM_MAX][RANKS_STEPS]; /* stages' */
    uint64_t trained[THREAD_COMM_MAX];    /* floats of buckets with gradients */
    uint64_t embedding[THREAD_COMM_MAX];  /* floats of the embedding, if any */
    uint64_t first_part[THREAD_COMM_MAX]; /* bytes received for the first part
                                           * of the export */
    uint32_t skipped[THREAD_COMM_MAX];
    char bad[THREAD_COMM_MAX][96];
    xray_memory_stats memory[THREAD_COMM_MAX];
    float logp[ROWS_TOKENS_MAX]; /* of all ranks' rows, in order */
    float value[ROWS_TOKENS_MAX];
    snapshot grads; /* of the last step */
    snapshot weights;
    uint32_t clashes[RANKS_STEPS]; /* weights after a step of which two ranks
                                    * have other bits */
} ranks_run;

extern const char ranks_deep[]; /* six layers of an untied Llama */
/* Two layers of eight heads: Qwen3, tied, with norms of heads; Qwen2, untied,
 * with four KV heads; GPT-2; and Qwen3 with two KV heads. */
extern const char ranks_qwen3[];
extern const char ranks_qwen2[];
extern const char ranks_gpt2[];
extern const char ranks_narrow[];
extern const char ranks_fused[]; /* q, k and v are one matrix of a Phi-3 */

/* Three steps with a value head and one micro-batch per rank. */
ranks_run ranks_of(const char *json, uint32_t ranks, uint32_t stage);
/* Runs it; the test fails if a rank fails, unless that is expected. */
void ranks_go(ranks_run *run);
void ranks_free(ranks_run *run);
/* Fails the test if gradients, weights or rank 0's norms differ. */
void ranks_same(const ranks_run *a, const ranks_run *b, const char *what);
/* For a run of one step whose ranks divide rows: fails the test if outputs or
 * the loss before the update have other bits, or if the norm or an element of
 * the gradients is further off than sums in another order are. */
void ranks_near(const ranks_run *want, const ranks_run *run, const char *what);
/* Fails the test if a rank allocated other memory than was planned for it, by
 * more than 1 %. */
void ranks_planned(const ranks_run *run, const char *what);

#endif
