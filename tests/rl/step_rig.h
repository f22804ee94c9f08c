/* SPDX-License-Identifier: Apache-2.0
 *
 * Trainer, reference, critic, engine and algorithm for a learner: each logs its
 * calls, and fails or returns a NaN on request.
 */
#ifndef XR_TEST_RL_STEP_RIG_H
#define XR_TEST_RL_STEP_RIG_H

#include "core/rl/learner.h"
#include "tests/rl/fake_roles.h"
#include "tests/testing.h"

#define PROMPTS 3
#define N 2
#define ROWS (PROMPTS * N)
#define RESPONSE 2

extern char said[8192];     /* one line per call */
extern const char *failing; /* the call that fails with XRAY_E_RANGE */
extern const char *skipped; /* the model whose updates are skipped */
extern const char *spoilt;  /* the array in which `prepare` puts a NaN */
extern uint64_t context_size;
extern uint32_t contexts; /* number of calls of `context` */
extern float
    offset; /* difference of the trainers' log-probs from the rollout's */

extern const xray_train_ops train_ops;

typedef struct fixture {
    xr_run run;
    xr_roles roles;
    xr_metrics *metrics;
    xr_samples samples;
    xr_learner learner;
} fixture;

/* Three rows with prompts of 2, 1 and 2 tokens. */
extern const xr_row *const rows[PROMPTS];

int set_up(void **state);
int tear_down(void **state);
/* Fills in a part of the run, or one named by the roles. */
void put_part(xr_part *part, const void *ops, const char *name);
/* Adds the trainer as another model: XRAY_ROLE_REFERENCE or XRAY_ROLE_CRITIC.
 */
void add_model(fixture *f, uint32_t role);
/* Makes the learner of the run as it is, and packs the samples. */
void begin_learner(fixture *f);
/* Runs a step on the fresh batch; clears `said` and the metrics first. */
xray_status run_step(fixture *f, uint64_t number, xr_err *err);

#endif
