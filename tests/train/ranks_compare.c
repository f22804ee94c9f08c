/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the results of test runs with each other, and their memory with the
 * plan.
 */
#include <math.h>

#include "tests/train/ranks.h"

void ranks_same(const ranks_run *a, const ranks_run *b, const char *what)
{
    if (snapshot_differ(&a->grads, &b->grads))
        fail_msg("%s: other gradients", what);
    if (snapshot_differ(&a->weights, &b->weights))
        fail_msg("%s: other weights", what);
    assert_memory_equal(a->norm[0], b->norm[0], sizeof(a->norm[0]));
}

void ranks_near(const ranks_run *want, const ranks_run *run, const char *what)
{
    for (uint32_t r = 1; r < run->ranks; r++)
        if (memcmp(run->norm[0], run->norm[r], sizeof(run->norm[0])) != 0)
            fail_msg("%s: rank %u has other norms", what, r);
    if (run->weights.clashes)
        fail_msg("%s: ranks have other weights", what);
    if (memcmp(want->logp, run->logp, sizeof(want->logp)) != 0)
        fail_msg("%s: other log-probabilities", what);
    if (memcmp(want->value, run->value, sizeof(want->value)) != 0)
        fail_msg("%s: other values", what);
    if (want->nll[0] != run->nll[0])
        fail_msg("%s: another loss", what);
    double norm = fabs(run->norm[0][0] / want->norm[0][0] - 1);
    if (!(norm < 1e-5))
        fail_msg("%s: the norm is %g off", what, norm);
    double far = snapshot_distance(&want->grads, &run->grads);
    if (!(far < 1e-5))
        fail_msg("%s: gradients are %g off", what, far);
}

void ranks_planned(const ranks_run *run, const char *what)
{
    for (uint32_t r = 0; r < run->ranks; r++) {
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(rig_plan_rank(&run->spec, r, run->ranks, &plan),
                         XRAY_OK);
        for (uint32_t tag = 0; tag < XRAY_TAG_WORKSPACE; tag++) {
            double high = (double)run->memory[r].high[tag];
            double said = (double)plan.bytes[tag];
            if (!(fabs(said - high) <= 0.01 * high))
                fail_msg("%s: rank %u, tag %u: planned %.0f, used %.0f", what,
                         r, tag, said, high);
        }
    }
}

void ranks_free(ranks_run *run)
{
    snapshot_free(&run->grads);
    snapshot_free(&run->weights);
}
