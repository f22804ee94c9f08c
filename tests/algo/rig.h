/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of the algorithm and a batch to run it on.
 */
#ifndef XR_ALGO_RIG_H
#define XR_ALGO_RIG_H

#include <xray/algo.h>

#include "tests/algo/fake_host.h"

const xray_plugin *xray_plugin_query_algo_grpo(uint32_t host_abi);

#define RIG_KEYS(...) ((const char *const[]){ __VA_ARGS__, NULL })

typedef struct rig {
    fake_host host;
    const xray_algo_ops *ops;
    void *self;
    _Alignas(16) char config[512];
    double kl_penalty; /* last values put into the sink, -1: none */
    double kl_coefficient;
    double flat;
    int reverse;    /* rig_loss: micro-batches from the last to the first */
    uint32_t ranks; /* rig_loss: runs of rows with sums of their own; 0: 1 */
    uint32_t puts;
    struct {
        char name[64];
        double value;
    } put[64]; /* all that went into the sink since rig_prepare */
} rig;

/* Makes an instance with `keys` (pairs of option and value); the status of
 * create comes back, the reason is in host.reason. */
xray_status rig_try(rig *r, const char *const *keys);
void rig_open(rig *r, const char *const *keys);
void rig_close(rig *r);

#define RIG_ROWS 64
#define RIG_TOKENS 512

/* A batch with room of its own. Rows are added; every response token is in the
 * loss until the test says otherwise. */
typedef struct rig_batch {
    xray_batch b;
    int32_t row_start[RIG_ROWS + 1];
    int32_t prompt_len[RIG_ROWS];
    int32_t group[RIG_ROWS];
    uint64_t row_id[RIG_ROWS];
    float mask[RIG_TOKENS];
    float old_logp[RIG_TOKENS];
    float ref_logp[RIG_TOKENS];
    float rollout_logp[RIG_TOKENS];
    float baseline[RIG_ROWS];
    float scores[2 * RIG_ROWS]; /* of one reward, or two if a test says so */
    float score_weight[2];
    float reward[RIG_TOKENS];
    float advantage[RIG_TOKENS];
    float returns[RIG_TOKENS];
    float logp[RIG_TOKENS];
    float entropy[RIG_TOKENS];
    float dlogp[RIG_TOKENS];
    float dentropy[RIG_TOKENS];
} rig_batch;

void rig_batch_init(rig_batch *batch);
/* Appends a row and returns its index; `score` goes on its last token. */
uint32_t rig_row(rig_batch *batch, int32_t prompt, int32_t response,
                 int32_t group, float score);
/* The advantage of a row's last token after prepare. */
float rig_advantage(const rig_batch *batch, uint32_t row);
/* Fills log-probs, entropies and advantages with varied numbers. */
void rig_fill(rig_batch *batch, uint32_t seed);
xray_status rig_prepare(rig *r, rig_batch *batch);
/* What prepare put under that name; fails the test without. */
double rig_put(const rig *r, const char *name);
/* The marks that select made of the mini-batch, a byte a token; 0: there are
 * none. */
uint32_t rig_marks(rig *r, rig_batch *batch, unsigned char *out);

#define RIG_METRICS 16
typedef struct rig_sums {
    double sum[RIG_METRICS];
    double weight[RIG_METRICS];
} rig_sums;

/* The loss over rows, `cut` rows a micro-batch (0: an empty micro-batch first,
 * then all at once); gradients go into the batch. */
xray_status rig_loss(rig *r, rig_batch *batch, uint32_t cut, int entropy,
                     rig_sums *out);
/* sum / weight of a metric by name; NaN if its weight is 0. */
double rig_metric(const rig *r, const rig_sums *sums, const char *name);

#endif
