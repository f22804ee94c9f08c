/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of an algorithm and a batch to run it on; shared by the rigs of
 * GRPO and PPO (grpo_rig.h, ppo_rig.h).
 */
#ifndef XR_ALGO_RIG_H
#define XR_ALGO_RIG_H

#include <xray/algo.h>

#include "tests/algo/fake_host.h"

typedef struct rig {
    fake_host host;
    const xray_algo_ops *ops;
    void *self;
    _Alignas(16) char config[1024];
    int reverse;    /* rig_loss: micro-batches from the last to the first */
    uint32_t ranks; /* rig_loss: runs of rows with separate sums; 0: 1 */
    uint32_t puts;
    struct {
        char name[64];
        double value;
    } put[64]; /* all metrics that the sink received since rig_prepare */
} rig;

#define RIG_ROWS 64
#define RIG_TOKENS 512

/* A batch with arrays of fixed capacity, to which rows are added. Every
 * response token is in the loss unless the test changes the mask. */
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
    float value[RIG_TOKENS];
    float baseline[RIG_ROWS];
    float scores[2 * RIG_ROWS]; /* of one reward, or of two in some tests */
    float score_weight[2];
    float reward[RIG_TOKENS];
    float advantage[RIG_TOKENS];
    float returns[RIG_TOKENS];
    /* The outputs of the models at the update, and their gradients. */
    float logp[RIG_TOKENS];
    float entropy[RIG_TOKENS];
    float value_now[RIG_TOKENS];
    float dlogp[RIG_TOKENS];
    float dentropy[RIG_TOKENS];
    float dvalue[RIG_TOKENS];
} rig_batch;

/* The algorithm under test. Each program links one definition. */
typedef struct rig_algo {
    const char *name;
    const xray_plugin *(*query)(uint32_t host_abi);
    /* Sets the fields of a batch that not every algorithm receives. */
    void (*offer)(rig_batch *batch);
} rig_algo;
extern const rig_algo rig_tested;

/* Creates an instance with `keys` (pairs of option and value). Returns the
 * status of `create`; the reason of a failure is in host.reason. */
xray_status rig_try(rig *r, const char *const *keys);
void rig_open(rig *r, const char *const *keys);
void rig_close(rig *r);
uint32_t rig_needs(rig *r);

void rig_batch_init(rig_batch *batch);
/* Appends a row and returns its index. `score` is the reward of its last
 * token. */
uint32_t rig_row(rig_batch *batch, int32_t prompt, int32_t response,
                 int32_t group, float score);
/* Returns rows [first, first + rows) as a separate batch. `starts` receives
 * their row starts. */
xray_batch rig_cut(const rig_batch *batch, uint32_t first, uint32_t rows,
                   int32_t *starts);
/* Returns a number in [-1, 1) from a small generator. */
float rig_draw(uint32_t *state);

xray_status rig_prepare(rig *r, rig_batch *batch);
/* Returns the last metric that prepare reported under that name, which must
 * exist. */
double rig_put(const rig *r, const char *name);
int rig_was_put(const rig *r, const char *name);

/* Writes the context of rows [first, first + rows) to blob + 1, because a
 * context need not be aligned. Returns its size. */
uint64_t rig_context(rig *r, const rig_batch *batch, uint32_t first,
                     uint32_t rows, char *blob, uint64_t cap);

#define RIG_METRICS 16
typedef struct rig_sums {
    double sum[RIG_METRICS];
    double weight[RIG_METRICS];
} rig_sums;

/* Returns the sums of the algorithm's metrics, which are stored in `out`, after
 * clearing it. */
xray_metric_sums rig_sums_open(const rig *r, rig_sums *out);
/* Returns sum / weight of a metric by its name, or NaN if its weight is 0. */
double rig_metric(const rig *r, const rig_sums *sums, const char *name);

/* For second implementations: aggregates the values of the tokens in the loss
 * by loss_agg_mode `mode`, over rows of at most RIG_RESPONSE tokens. */
#define RIG_RESPONSE 32
double rig_aggregate(const char *mode, const double *value, const rig_batch *b);
double rig_limit(double x, double low, double high);
void rig_near(double got, double want, double tolerance, const char *what);

#endif
