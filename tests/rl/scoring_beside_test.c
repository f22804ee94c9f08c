/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how samples are scored beside a rollout, with rewards made for the
 * test: which of them get samples when, that no look waits, and what a batch
 * leaves to the next.
 */
#include "tests/testing.h"

#include <time.h>

#include "core/base/file.h"
#include "core/plugin/cancel.h"
#include "core/plugin/guard.h"
#include "core/roles/rewards.h"
#include "tests/rl/fake_roles.h"

/* The instances are "a" and "b", which work beside a rollout, and "c", which
 * does not, and "d", which was compiled before there was the choice. */
enum { REWARDS = 4 };

typedef struct grader {
    char given[64]; /* ids, in the order of their submission */
    uint32_t polls;
    uint32_t waits; /* polls that may wait */
    uint64_t queue[8];
    uint32_t queued, taken;
    uint32_t silent;   /* so many polls give nothing yet */
    xray_status fault; /* of the next poll */
    int cancels;
    const xray_named_value *values;
    uint32_t value_count;
} grader;

static grader graders[REWARDS];

static xray_status take_samples(void *self, const xray_sample_in *samples,
                                uint64_t count, uint64_t stride)
{
    grader *g = self;
    assert_int_equal(stride, sizeof(*samples));
    for (uint64_t i = 0; i < count; i++) {
        const size_t used = strlen(g->given);
        (void)snprintf(g->given + used, sizeof(g->given) - used, "%u ",
                       (unsigned)samples[i].id);
        g->queue[g->queued++ % 8] = samples[i].id;
    }
    return XRAY_OK;
}

/* Every answer is empty when it is asked for. */
static xray_status give_answer(void *self, uint64_t wait_ns, xray_score *out)
{
    grader *g = self;
    const xray_status fault = g->fault;
    assert_int_equal(out->header.size, sizeof(*out));
    assert_int_equal(out->id, 0);
    assert_null(out->token_scores);
    assert_int_equal(out->value_count, 0);
    g->polls++;
    g->waits += wait_ns > 0;
    g->fault = XRAY_OK;
    if (g->cancels)
        xr_cancel();
    if (fault)
        return fault;
    if (g->silent) {
        g->silent--;
        return XRAY_AGAIN;
    }
    if (g->taken == g->queued)
        return XRAY_END;
    out->id = g->queue[g->taken++ % 8];
    out->score = 1 + (double)out->id;
    out->values = g->values;
    out->value_count = g->value_count;
    out->value_stride = sizeof(*g->values);
    return XRAY_OK;
}

static xr_run run;
static xr_roles roles;
static xr_err err;
static xray_sample_in samples[4];
static xr_scoring *scoring;

static int make_graders(void **state)
{
    static const xray_reward_ops ops[] = {
        { .header = XRAY_HEADER(xray_reward_ops),
          .submit = take_samples,
          .poll = give_answer,
          .capabilities = XRAY_REWARD_BESIDE },
        { .header = XRAY_HEADER(xray_reward_ops),
          .submit = take_samples,
          .poll = give_answer },
        { .header = { .size = offsetof(xray_reward_ops, capabilities) },
          .submit = take_samples,
          .poll = give_answer,
          .capabilities = XRAY_REWARD_BESIDE },
    };
    static const char *const names[] = { "a", "b", "c", "d" };
    static const size_t kinds[] = { 0, 0, 1, 2 };
    (void)state;
    memset(graders, 0, sizeof(graders));
    run = (xr_run){ .reward_count = REWARDS };
    make_fake_roles(&run, &roles);
    for (size_t r = 0; r < REWARDS; r++) {
        run.rewards[r] = (xr_part){ .ops = &ops[kinds[r]],
                                    .instance = names[r],
                                    .weight = 1,
                                    .host = xr_host_new(names[r], NULL) };
        roles.rewards[r].self = &graders[r];
    }
    for (size_t i = 0; i < 4; i++)
        samples[i] =
            (xray_sample_in){ .header = XRAY_HEADER(xray_sample_in), .id = i };
    scoring = NULL;
    return 0;
}

static int free_graders(void **state)
{
    (void)state;
    xr_scoring_free(scoring);
    for (size_t r = 0; r < REWARDS; r++)
        xr_host_free(run.rewards[r].host);
    return 0;
}

static void begin_batch(size_t count)
{
    assert_int_equal(xr_scoring_begin(&roles, samples, count, &err, &scoring),
                     XRAY_OK);
}

static void submit_beside(size_t first, size_t count)
{
    assert_int_equal(xr_scoring_submit(scoring, first, count, &err), XRAY_OK);
}

static xray_status finish_batch(xr_score *scores)
{
    const xr_scored out = { .scores = scores };
    return xr_scoring_finish(scoring, &out, &err);
}

static void expect_given(const char *a, const char *b, const char *c,
                         const char *d)
{
    assert_string_equal(graders[0].given, a);
    assert_string_equal(graders[1].given, b);
    assert_string_equal(graders[2].given, c);
    assert_string_equal(graders[3].given, d);
}

/* Samples reach the instances that work beside the rollout as they arrive, and
 * the others when all are there. The scores are sums, whatever was in their
 * memory before. */
static void only_some_instances_get_samples_early(void **state)
{
    xr_score scores[4];
    (void)state;
    memset(scores, 0x55, sizeof(scores));
    begin_batch(3);
    expect_given("", "", "", "");
    submit_beside(2, 1);
    expect_given("2 ", "2 ", "", "");
    assert_int_equal(xr_scoring_look(scoring, &err), XRAY_OK);
    submit_beside(0, 2);
    assert_int_equal(finish_batch(scores), XRAY_OK);
    expect_given("2 0 1 ", "2 0 1 ", "0 1 2 ", "0 1 2 ");
    for (int i = 0; i < 3; i++) {
        assert_true(scores[i].score == 4 * (1 + i));
        for (int r = 0; r < REWARDS; r++)
            assert_true(scores[i].parts[r] == 1 + i);
    }
    assert_int_equal(*(const unsigned char *)&scores[3], 0x55);
    /* A batch that was submitted in part is a mistake of the caller. */
    begin_batch(3);
    submit_beside(0, 2);
    assert_int_equal(finish_batch(scores), XRAY_E_BUG);
    assert_string_equal(err.text, "a was given 2 of 3 samples");
    xr_scoring_drain(scoring);
}

static void it_is_known_whether_any_instance_works_beside(void **state)
{
    static const struct {
        size_t count;
        size_t which[REWARDS];
        int beside;
    } cases[] = {
        { 0, { 0 }, 0 },          { 1, { 0 }, 1 },       { 1, { 2 }, 0 },
        { 1, { 3 }, 0 },          { 3, { 2, 3, 1 }, 1 }, { 2, { 3, 2, 1 }, 0 },
        { 3, { 0, 2, 3, 0 }, 1 },
    };
    xr_part kept[REWARDS];
    (void)state;
    memcpy(kept, run.rewards, sizeof(kept));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run.reward_count = cases[i].count;
        for (size_t r = 0; r < REWARDS; r++)
            run.rewards[r] = kept[cases[i].which[r]];
        assert_int_equal(xr_rewards_work_beside(&roles), cases[i].beside);
    }
    memcpy(run.rewards, kept, sizeof(kept));
}

/* A look takes all that is there and asks every instance that owes something,
 * even if one before it has nothing yet. */
static void a_look_takes_what_is_there(void **state)
{
    xr_score scores[3];
    (void)state;
    begin_batch(3);
    assert_int_equal(xr_scoring_look(scoring, &err), XRAY_OK);
    assert_int_equal(graders[0].polls, 0); /* nothing is outstanding */
    submit_beside(0, 3);
    graders[0].silent = 1;
    assert_int_equal(xr_scoring_look(scoring, &err), XRAY_OK);
    assert_int_equal(graders[0].polls, 1);
    assert_int_equal(graders[1].polls, 3);
    assert_int_equal(xr_scoring_look(scoring, &err), XRAY_OK);
    assert_int_equal(graders[0].polls, 4);
    assert_int_equal(graders[1].polls, 3);
    assert_int_equal(graders[0].waits + graders[1].waits, 0);
    assert_int_equal(graders[2].polls + graders[3].polls, 0);
    assert_int_equal(finish_batch(scores), XRAY_OK);
    assert_true(scores[2].score == 12);
    /* A failure ends it before the next instance. */
    begin_batch(1);
    submit_beside(0, 1);
    graders[0].fault = XRAY_E_RANGE;
    graders[1].polls = 0;
    assert_int_equal(xr_scoring_look(scoring, &err), XRAY_E_RANGE);
    assert_int_equal(graders[1].polls, 0);
    xr_scoring_drain(scoring);
}

static void sleep_ms(long ms)
{
    const struct timespec pause = { 0, ms * 1000000 };
    (void)nanosleep(&pause, NULL);
}

/* The time counts from the first submission until nothing is outstanding, once
 * more for each such period, and no more once the rollout is over. */
static void the_time_beside_is_that_of_outstanding_samples(void **state)
{
    xr_score scores[3];
    (void)state;
    begin_batch(3);
    assert_true(xr_scoring_beside(scoring) == 0);
    double limit = -xr_now();
    submit_beside(0, 1);
    sleep_ms(3);
    assert_int_equal(xr_scoring_look(scoring, &err), XRAY_OK);
    limit += xr_now();
    sleep_ms(20); /* nothing is outstanding meanwhile */
    const double once = xr_scoring_beside(scoring);
    assert_true(once >= 0.003 && once <= limit);
    assert_true(xr_scoring_beside(scoring) == once);
    limit -= xr_now();
    submit_beside(1, 2);
    sleep_ms(3);
    graders[0].silent = 1;
    assert_int_equal(xr_scoring_look(scoring, &err), XRAY_OK);
    sleep_ms(3);
    const double both = xr_scoring_beside(scoring);
    limit += xr_now();
    assert_true(both >= once + 0.006 && both <= limit);
    sleep_ms(3);
    assert_true(xr_scoring_beside(scoring) == both);
    assert_int_equal(finish_batch(scores), XRAY_OK);
    assert_true(xr_scoring_beside(scoring) == both);
}

/* The answers of a batch are not those of the next, which uses its memory. */
static void a_batch_leaves_nothing_to_the_next(void **state)
{
    static const xray_named_value named[] = { { "depth", 2 } };
    xr_score scores[4];
    xr_scoring *first = NULL;
    (void)state;
    graders[2].values = named;
    graders[2].value_count = 1;
    begin_batch(2);
    first = scoring;
    submit_beside(0, 2);
    assert_int_equal(finish_batch(scores), XRAY_OK);
    graders[2].value_count = 0;
    for (size_t count = 1; count <= 4; count++) {
        begin_batch(count);
        assert_ptr_equal(scoring, first);
        assert_true(xr_scoring_beside(scoring) == 0);
        assert_int_equal(finish_batch(scores), XRAY_OK);
        for (size_t i = 0; i < count; i++)
            assert_true(scores[i].score == 4 * (double)(1 + i));
    }
    begin_batch(0);
    for (int r = 0; r < REWARDS; r++)
        graders[r].polls = 0;
    assert_int_equal(finish_batch(scores), XRAY_OK);
    for (int r = 0; r < REWARDS; r++)
        assert_int_equal(graders[r].polls, 0);
}

/* Outstanding answers are waited for and dropped; an answer that is a failure
 * counts as one, and an instance that has no more owes none. */
static void a_drain_waits_for_what_is_outstanding(void **state)
{
    (void)state;
    begin_batch(3);
    submit_beside(0, 3);
    graders[0].silent = 2;
    graders[1].fault = XRAY_E_RANGE;
    graders[1].taken = 1;
    xr_scoring_drain(scoring);
    assert_int_equal(graders[0].polls, 5);
    assert_int_equal(graders[0].waits, 5);
    assert_int_equal(graders[1].polls, 3);
    assert_int_equal(graders[2].polls + graders[3].polls, 0);
    xr_scoring_drain(scoring);
    assert_int_equal(graders[0].polls + graders[1].polls, 8);
    /* One that lost its samples. */
    begin_batch(3);
    submit_beside(0, 3);
    graders[0].taken += 2;
    xr_scoring_drain(scoring);
    assert_int_equal(graders[0].polls, 5 + 2);
    assert_int_equal(graders[1].polls, 3 + 3);
    xr_scoring_drain(scoring);
    assert_int_equal(graders[0].polls, 5 + 2);
}

/* Neither a canceled run nor an instance that is silent for longer than a
 * plugin may is waited for. */
static void a_drain_ends(void **state)
{
    (void)state;
    begin_batch(3);
    submit_beside(0, 3);
    graders[0].cancels = 1;
    xr_scoring_drain(scoring);
    xr_cancel_reset();
    graders[0].cancels = 0;
    assert_int_equal(graders[0].polls, 1);
    assert_int_equal(graders[1].polls, 0);
    graders[0].silent = UINT32_MAX;
    xr_guard_limit(2000000);
    xr_scoring_drain(scoring);
    xr_guard_limit(0);
    graders[0].silent = 0;
    const double start = xr_now();
    xr_guard_limit(INT64_C(600000000000));
    xr_scoring_drain(scoring);
    xr_guard_limit(0);
    assert_true(xr_now() - start < 300);
    assert_int_equal(graders[0].taken, 3);
    assert_int_equal(graders[1].taken, 3);
}

/* The same limit holds for the answer that a batch needs. */
static void a_silent_instance_is_named(void **state)
{
    xr_score scores[3];
    (void)state;
    begin_batch(3);
    graders[2].silent = UINT32_MAX;
    xr_guard_limit(20000000);
    const xray_status status = finish_batch(scores);
    xr_guard_limit(0);
    assert_int_equal(status, XRAY_E_BUG);
    assert_string_equal(err.text, "c gave no answer for 0.02 s ([run] "
                                  "plugin_timeout), 3 of 3 are missing");
    graders[2].silent = 3;
    xr_scoring_drain(scoring);
    assert_int_equal(graders[2].taken, 3);
    assert_int_equal(graders[3].taken, 3);
}

#define CASE(test) \
    cmocka_unit_test_setup_teardown(test, make_graders, free_graders)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(only_some_instances_get_samples_early),
        CASE(it_is_known_whether_any_instance_works_beside),
        CASE(a_look_takes_what_is_there),
        CASE(the_time_beside_is_that_of_outstanding_samples),
        CASE(a_batch_leaves_nothing_to_the_next),
        CASE(a_drain_waits_for_what_is_outstanding),
        CASE(a_drain_ends),
        CASE(a_silent_instance_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
