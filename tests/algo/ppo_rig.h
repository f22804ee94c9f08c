/* SPDX-License-Identifier: Apache-2.0
 *
 * An instance of PPO and a batch with values to run it on.
 */
#ifndef XR_ALGO_PPO_RIG_H
#define XR_ALGO_PPO_RIG_H

#include <xray/algo.h>

#include "tests/algo/fake_host.h"

const xray_plugin *xray_plugin_query_algo_ppo(uint32_t host_abi);

#define KEYS(...) ((const char *const[]){ __VA_ARGS__, NULL })

typedef struct ppo_rig {
    fake_host host;
    const xray_algo_ops *ops;
    void *self;
    _Alignas(16) char config[1024];
    const char *names[16]; /* what was put into the sink, last values */
    double values[16];
    int put_count;
} ppo_rig;

/* Makes an instance with `keys` (pairs of option and value); the status of
 * create comes back, the reason is in host.reason. */
xray_status ppo_rig_try(ppo_rig *r, const char *const *keys);
void ppo_rig_open(ppo_rig *r, const char *const *keys);
void ppo_rig_close(ppo_rig *r);
uint32_t ppo_rig_needs(ppo_rig *r);
/* NaN if it was not put. */
double ppo_rig_put(const ppo_rig *r, const char *name);

#define PPO_ROWS 32
#define PPO_TOKENS 512

/* Room of its own; `now` arrays are what the models say at the update. */
typedef struct ppo_batch {
    xray_batch b;
    int32_t row_start[PPO_ROWS + 1];
    int32_t prompt_len[PPO_ROWS];
    int32_t group[PPO_ROWS];
    uint64_t row_id[PPO_ROWS];
    float mask[PPO_TOKENS];
    float old_logp[PPO_TOKENS];
    float ref_logp[PPO_TOKENS];
    float value[PPO_TOKENS];
    float reward[PPO_TOKENS];
    float advantage[PPO_TOKENS];
    float returns[PPO_TOKENS];
    float logp_now[PPO_TOKENS];
    float entropy_now[PPO_TOKENS];
    float value_now[PPO_TOKENS];
    float dlogp[PPO_TOKENS];
    float dentropy[PPO_TOKENS];
    float dvalue[PPO_TOKENS];
} ppo_batch;

void ppo_batch_init(ppo_batch *batch);
/* Appends a row; `score` goes on its last token. */
uint32_t ppo_row(ppo_batch *batch, int32_t prompt, int32_t response,
                 float score);
/* Varied log-probs, values and entropies. Outside of the mask they are NaN. */
void ppo_fill(ppo_batch *batch, uint32_t seed);
xray_status ppo_rig_prepare(ppo_rig *r, ppo_batch *batch);
xray_status ppo_rig_observe(ppo_rig *r);

/* Rows [first, first + rows) as a batch of their own; `starts` has room. */
xray_batch ppo_cut(const ppo_batch *batch, uint32_t first, uint32_t rows,
                   int32_t *starts);

#define PPO_METRICS 16
typedef struct ppo_sums {
    double sum[PPO_METRICS];
    double weight[PPO_METRICS];
} ppo_sums;

/* A mini-batch: its context, then `loss` or `critic_loss` over micro-batches of
 * `cut` rows (0: an empty one first, then all); gradients go to the batch. */
typedef struct ppo_mini {
    uint32_t first;
    uint32_t rows;
    uint32_t cut;
    int critic;
} ppo_mini;
xray_status ppo_rig_mini(ppo_rig *r, ppo_batch *batch, const ppo_mini *mini,
                         ppo_sums *out);
double ppo_rig_metric(const ppo_rig *r, const ppo_sums *sums, const char *name);

static inline void near(double got, double want, double tolerance,
                        const char *what)
{
    if (!(got - want <= tolerance && want - got <= tolerance))
        fail_msg("%s: got %.12g, want %.12g", what, got, want);
}

#endif
