/* SPDX-License-Identifier: Apache-2.0
 *
 * An engine, a reward and a fixture with both, made for tests. They log what
 * they are asked as text, and their answers follow from the numbers of the
 * samples.
 */
#ifndef XR_TEST_RL_ENGINE_RIG_H
#define XR_TEST_RL_ENGINE_RIG_H

#include "core/base/file.h"
#include "core/roles/engine.h"
#include "tests/rl/fake_roles.h"
#include "tests/text/small_tokenizer.h"

#define MOST 3 /* tokens per sample */

/* The fault of the sample that is returned as number `when`. */
typedef enum fault {
    FAULT_NONE,
    FAULT_SUBMIT,
    FAULT_STEP,
    FAULT_POLL,
    FAULT_IDLE,
    FAULT_LOST, /* it forgets all samples */
    FAULT_TWICE,
    FAULT_SAMPLE,
    FAULT_REQUEST,
    FAULT_LONG,
    FAULT_VERSION,
    FAULT_LATER_VERSION, /* of the second span */
} fault;

typedef struct rig_engine {
    xray_request asked[8];
    uint32_t requests;
    uint32_t given; /* samples given for all requests */
    fault fault;
    uint32_t when;
    uint32_t stopped; /* steps after which the run is canceled */
    uint32_t steps;
    char log[2048]; /* one line per request */
    char aborted[64];
    uint32_t polls_after; /* polls after an abort */
    uint64_t made;
} rig_engine;
extern rig_engine engine;

typedef struct rig_grader {
    const xray_sample_in *samples;
    uint64_t count;
    uint64_t next;
    char log[4096]; /* one line per sample */
} rig_grader;
extern rig_grader grader;

/* A reward that works beside the rollout; its log has a line per submission
 * that tells how many samples the engine had given. */
typedef struct rig_beside {
    const xray_sample_in *samples[8];
    uint32_t count;
    uint32_t given;
    uint32_t polled_early; /* polls before the last sample was there */
    uint32_t fails;        /* the answer that fails, or 0 */
    int newest_first;
    int silent; /* it answers only those who wait */
    char log[1024];
} rig_beside;
extern rig_beside beside;
extern const xray_reward_ops beside_ops;

typedef struct fixture {
    xr_run run;
    xr_roles roles;
    xr_samples samples;
    xr_sampling how;
} fixture;

/* The engine's operations, for tests that replace one of them. */
extern const xray_infer_ops engine_ops;

xray_status engine_submit(void *self, const xray_request *request);

/* Three rows with prompts of 3, 2 and 1 tokens. */
extern const xr_row *const rows[3];

int set_up(void **state);
int tear_down(void **state);

/* Opens the validation set of these rows, JSON lines. */
xr_dataset *rig_open_rows(const fixture *f, const char *text);

#endif
