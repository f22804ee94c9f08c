/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests what can happen to a request while it runs: its tokens are streamed,
 * one of its samples is aborted, the engine pauses, and the weights change
 * under it.
 */
#include "tests/serve/engine.h"

/* A trainer that shares its weights. */
typedef struct owner {
    uint64_t version;
    int leases;
    int refuse;
} owner;

static uint64_t owner_version(void *self)
{
    return ((owner *)self)->version;
}

static xray_status owner_lease(void *self)
{
    owner *o = self;
    o->leases += !o->refuse;
    return o->refuse ? XRAY_E_STATE : XRAY_OK;
}

static void owner_release(void *self)
{
    ((owner *)self)->leases--;
}

typedef struct stage {
    rig *r;
    model *m;
    owner o;
    xray_weights table;
    void *engine;
    results *plain; /* what nothing happened to */
    results *out;
    uint32_t parts;
} stage;

enum { PROMPT = 6 };
static const int32_t prompt[30] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
static const engine_size small_size = {
    .rows = 3,
    .row_tokens = 40,
    .config = { .max_num_batched_tokens = 8 },
};

static void open_engine(stage *s, const engine_size *size)
{
    if (engine_try(s->r, s->m, &s->table, size, &s->engine) != XRAY_OK)
        fail_msg("%s", s->r->said);
}

static int set_up(void **state)
{
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->plain = calloc(1, sizeof(*s->plain));
    s->out = calloc(1, sizeof(*s->out));
    assert_true(s->plain && s->out);
    s->r = rig_open(1);
    s->m = model_open(s->r, MODEL_LLAMA);
    s->table = s->m->weights->table;
    s->table.owner = &s->o;
    s->table.version = owner_version;
    s->table.lease = owner_lease;
    s->table.release = owner_release;
    open_engine(s, &small_size);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    stage *s = *state;
    s->r->ops->destroy(s->engine);
    assert_int_equal(s->o.leases, 0);
    model_close(s->m);
    rig_close(s->r);
    free(s->plain);
    free(s->out);
    free(s);
    return 0;
}

/* One step of the trainer, which gives other weights each time. */
static void step_trainer(stage *s)
{
    xr_err err = { "" };
    assert_int_equal(s->o.leases, 0);
    assert_int_equal(xm_weights_random(s->m->weights, &s->m->config,
                                       70 + s->o.version, &err),
                     XRAY_OK);
    assert_int_equal(xm_weights_changed(s->m->weights, ++s->o.version, &err),
                     XRAY_OK);
}

static void step_engine(stage *s, uint32_t times)
{
    for (uint32_t i = 0; i < times; i++)
        assert_int_equal(s->r->ops->step(s->engine), XRAY_OK);
}

static void expect_error(const stage *s, xray_status got, xray_status code,
                         const char *says)
{
    assert_int_equal(got, code);
    rig_expect_said(s->r, says);
}

/* Spans are those of the part's tokens, in order and without a gap. */
static void check_spans(const xray_sample_out *out, uint32_t row_end)
{
    uint32_t at = row_end - out->token_count;
    assert_int_equal(out->span_stride, sizeof(xray_span));
    for (uint32_t i = 0; i < out->span_count; i++) {
        assert_int_equal(out->spans[i].first, at);
        assert_true(out->spans[i].last > at);
        if (i)
            assert_true(out->spans[i].version > out->spans[i - 1].version);
        at = out->spans[i].last;
    }
    assert_int_equal(at, row_end);
}

static result *result_of(results *all, uint64_t id, uint32_t sample)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (all->r[i].id == id && all->r[i].sample == sample)
            return &all->r[i];
    result *r = &all->r[all->count++];
    assert_true(all->count <= MAX_OUT);
    *r = (result){ .id = id, .sample = sample };
    return r;
}

/* Joins the parts of samples; returns the last status of `poll`. */
static xray_status poll_parts(stage *s, results *all)
{
    for (;;) {
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        xray_status status = s->r->ops->poll(s->engine, &out);
        if (status != XRAY_OK)
            return status;
        result *to = result_of(all, out.id, out.sample);
        assert_int_equal(to->finish, XRAY_FINISH_NONE);
        assert_int_equal(out.first, to->count);
        assert_true(out.token_count || out.finish);
        for (uint32_t i = 0; i < out.token_count; i++) {
            to->tokens[to->count] = out.tokens[i];
            to->raw[to->count] = out.raw_logp[i];
            to->logp[to->count++] = out.logp[i];
        }
        to->finish = out.finish;
        check_spans(&out, PROMPT + to->count);
        s->parts++;
    }
}

static void run_to_end(stage *s, results *all)
{
    xray_status status;
    do {
        status = s->r->ops->step(s->engine);
        assert_true(status == XRAY_OK || status == XRAY_END);
        xray_status polled = poll_parts(s, all);
        assert_int_equal(polled, status == XRAY_OK ? XRAY_AGAIN : XRAY_END);
    } while (status == XRAY_OK);
}

static xray_request make_request(uint64_t id, uint32_t count, uint32_t most)
{
    xray_request q = request_make(id, prompt, PROMPT, most);
    q.count = count;
    return q;
}

static void run_plainly(stage *s, const xray_request *q)
{
    engine_submit(s->r, s->engine, q);
    run_to_end(s, s->plain);
}

/* ---- streams ------------------------------------------------------------ */

static void parts_make_up_the_sample(void **state)
{
    stage *s = *state;
    xray_request q = make_request(1, 5, 12);
    run_plainly(s, &q);
    assert_int_equal(s->parts, 5);
    s->parts = 0;
    q.stream = 1;
    engine_submit(s->r, s->engine, &q);
    run_to_end(s, s->out);
    results_equal(s->plain, s->out);
    assert_int_equal(s->parts, 5 * 12); /* one token after each step */
    /* A caller that polls late gets the tokens of several steps at once. */
    s->parts = s->out->count = 0;
    engine_submit(s->r, s->engine, &q);
    step_engine(s, 7);
    assert_int_equal(poll_parts(s, s->out), XRAY_AGAIN);
    assert_true(s->parts == 5 && s->out->r[0].count > 1);
    run_to_end(s, s->out);
    results_equal(s->plain, s->out);
}

/* ---- the abort of one sample -------------------------------------------- */

/* Sample `number` of five in three slots is aborted after `steps` steps; what
 * the others become does not change. */
static void abort_one(stage *s, uint32_t steps, uint32_t number)
{
    xray_request q = make_request(2, 5, 9);
    q.first_sample = 10;
    engine_submit(s->r, s->engine, &q);
    s->out->count = 0;
    if (steps) {
        step_engine(s, steps);
        (void)poll_parts(s, s->out);
    }
    assert_int_equal(s->r->ops->abort(s->engine, 2, number), XRAY_OK);
    assert_int_equal(s->r->ops->abort(s->engine, 2, number), XRAY_OK);
    run_to_end(s, s->out);
    assert_int_equal(s->out->count, 5);
    for (uint32_t i = 0; i < 5; i++) {
        const result *want = &s->plain->r[i];
        const result *got = result_find(s->out, 2, want->sample);
        int aborted = got->finish == XRAY_FINISH_ABORT;
        assert_true(aborted ? got->sample == number && got->count < want->count
                            : got->count == want->count);
        assert_memory_equal(got->tokens, want->tokens,
                            got->count * sizeof(int32_t));
        assert_memory_equal(got->logp, want->logp, got->count * sizeof(float));
        if (got->sample == number && steps < 9)
            assert_true(aborted);
    }
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    assert_int_equal(s->r->ops->stats(s->engine, &stats), XRAY_OK);
    assert_true(stats.kv_tokens == 0 && stats.requests_running == 0);
    assert_int_equal(s->o.leases, 0);
}

static void one_sample_is_aborted(void **state)
{
    stage *s = *state;
    xray_request q = make_request(2, 5, 9);
    q.first_sample = 10;
    run_plainly(s, &q);
    for (uint32_t steps = 0; steps < 14; steps++)
        for (uint32_t number = 10; number < 15; number++)
            abort_one(s, steps, number);
    engine_submit(s->r, s->engine, &q);
    expect_error(s, s->r->ops->abort(s->engine, 2, 15), XRAY_E_ARG,
                 "request 2: it has no sample 15");
    expect_error(s, s->r->ops->abort(s->engine, 2, 9), XRAY_E_ARG,
                 "request 2: it has no sample 9");
    /* The last of the samples takes the prompt with it. */
    for (uint32_t number = 10; number < 15; number++)
        assert_int_equal(s->r->ops->abort(s->engine, 2, number), XRAY_OK);
    assert_int_equal(s->r->ops->step(s->engine), XRAY_END);
    assert_int_equal(s->o.leases, 0);
}

/* A prompt that is half computed is computed to its end for the samples that
 * are left, and given up with the last one. */
static void abort_during_the_prompt(void **state)
{
    stage *s = *state;
    xray_request q = request_make(3, prompt, 30, 4);
    q.count = 3;
    engine_submit(s->r, s->engine, &q);
    step_engine(s, 2); /* of 8 tokens each */
    assert_int_equal(s->r->ops->abort(s->engine, 3, 0), XRAY_OK);
    step_engine(s, 1);
    assert_int_equal(s->r->ops->abort(s->engine, 3, 2), XRAY_OK);
    engine_run(s->r, s->engine, s->out);
    assert_int_equal(s->out->count, 3);
    assert_int_equal(result_find(s->out, 3, 0)->count, 0);
    assert_int_equal(result_find(s->out, 3, 1)->count, 4);
    assert_int_equal(result_find(s->out, 3, 2)->count, 0);
    engine_submit(s->r, s->engine, &q);
    step_engine(s, 2);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(s->r->ops->abort(s->engine, 3, i), XRAY_OK);
    assert_int_equal(s->r->ops->step(s->engine), XRAY_END);
}

/* A held sample, whether its result was polled or not. */
static void abort_of_a_held_sample(void **state)
{
    stage *s = *state;
    xray_request q = make_request(4, 2, 3);
    q.hold = 1;
    engine_submit(s->r, s->engine, &q);
    run_to_end(s, s->out);
    assert_int_equal(s->out->count, 2);
    assert_int_equal(s->o.leases, 1);
    assert_int_equal(s->r->ops->abort(s->engine, 4, 0), XRAY_OK);
    expect_error(s, s->r->ops->extend(s->engine, 4, 0, prompt, 1), XRAY_E_ARG,
                 "request 4: sample 0 is not held (hold = 1, finished, not "
                 "released)");
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    assert_int_equal(s->r->ops->poll(s->engine, &out), XRAY_END);
    assert_int_equal(s->r->ops->extend(s->engine, 4, 1, prompt, 1), XRAY_OK);
    assert_int_equal(s->r->ops->poll(s->engine, &out), XRAY_AGAIN);
    assert_int_equal(s->r->ops->abort(s->engine, 4, 1), XRAY_OK);
    assert_int_equal(s->r->ops->poll(s->engine, &out), XRAY_OK);
    assert_true(out.finish == XRAY_FINISH_ABORT && out.token_count == 0);
    assert_int_equal(s->o.leases, 0);
}

/* ---- pause -------------------------------------------------------------- */

static void pause_waits_for_what_runs(void **state)
{
    stage *s = *state;
    const xray_infer_ops *ops = s->r->ops;
    xray_request a = make_request(1, 2, 9);
    xray_request b = make_request(2, 4, 5);
    run_plainly(s, &a);
    run_plainly(s, &b);
    engine_submit(s->r, s->engine, &a);
    step_engine(s, 2);
    assert_int_equal(ops->pause(s->engine, XRAY_PAUSE_WAIT), XRAY_OK);
    engine_submit(s->r, s->engine, &b);
    xray_status status;
    while ((status = ops->step(s->engine)) == XRAY_OK)
        assert_int_equal(s->o.leases, 1);
    assert_int_equal(status, XRAY_END);
    assert_int_equal(s->o.leases, 0);
    assert_int_equal(poll_parts(s, s->out), XRAY_AGAIN);
    assert_int_equal(s->out->count, 2); /* `a` has ended, `b` waits */
    s->o.refuse = 1;
    expect_error(s, ops->resume(s->engine), XRAY_E_STATE,
                 "dsinf: the trainer refused a lease on its weights");
    assert_int_equal(ops->step(s->engine), XRAY_END);
    s->o.refuse = 0;
    assert_int_equal(ops->resume(s->engine), XRAY_OK);
    run_to_end(s, s->out);
    results_equal(s->plain, s->out);
}

static void pause_aborts_all(void **state)
{
    stage *s = *state;
    const xray_infer_ops *ops = s->r->ops;
    xray_request q = make_request(1, 2, 9);
    xray_request more = make_request(2, 4, 5);
    xray_request held = make_request(3, 1, 1);
    held.hold = 1;
    engine_submit(s->r, s->engine, &held);
    run_to_end(s, s->out);
    engine_submit(s->r, s->engine, &q);
    engine_submit(s->r, s->engine, &more);
    step_engine(s, 3);
    assert_int_equal(ops->pause(s->engine, XRAY_PAUSE_ABORT), XRAY_OK);
    assert_int_equal(s->o.leases, 0);
    assert_int_equal(ops->step(s->engine), XRAY_END);
    assert_int_equal(poll_parts(s, s->out), XRAY_END);
    assert_int_equal(s->out->count, 7);
    for (uint32_t i = 1; i < 7; i++)
        assert_int_equal(s->out->r[i].finish, XRAY_FINISH_ABORT);
    engine_submit(s->r, s->engine, &q);
    assert_int_equal(ops->step(s->engine), XRAY_END);
    assert_int_equal(ops->resume(s->engine), XRAY_OK);
    s->out->count = 0;
    run_to_end(s, s->out);
    assert_int_equal(s->out->count, 2);
    expect_error(s, ops->pause(s->engine, 4), XRAY_E_ARG,
                 "pause: mode 4, 1 to 3 was expected");
    expect_error(s, ops->pause(s->engine, 0), XRAY_E_ARG,
                 "pause: mode 0, 1 to 3 was expected");
}

/* ---- new weights -------------------------------------------------------- */

/* A row that is computed again fits a step. */
static const engine_size large_size = {
    .rows = 3,
    .row_tokens = 40,
    .config = { .max_num_batched_tokens = 64 },
};

/* The trainer steps between two tokens. An engine with a copy of the weights
 * needs no pause and gives the same bits. */
static void weights_change_under_a_request(void **state)
{
    stage *s = *state;
    const xray_infer_ops *ops = s->r->ops;
    ops->destroy(s->engine);
    open_engine(s, &large_size);
    void *shared = s->engine;
    void *own = NULL;
    engine_size size = large_size;
    size.config.weights = XM_ENGINE_WEIGHTS_FLOAT32;
    if (engine_try(s->r, s->m, &s->table, &size, &own) != XRAY_OK)
        fail_msg("%s", s->r->said);
    xray_request q = make_request(1, 1, 20);
    run_plainly(s, &q);
    engine_submit(s->r, shared, &q);
    engine_submit(s->r, own, &q);
    uint32_t ends[4] = { PROMPT + 4, PROMPT + 7, PROMPT + 8, PROMPT + 20 };
    const uint32_t steps[3] = { 4, 3, 1 };
    for (int i = 0; i < 3; i++) {
        step_engine(s, steps[i]);
        s->engine = own;
        step_engine(s, steps[i]);
        s->engine = shared;
        assert_int_equal(ops->pause(shared, XRAY_PAUSE_KEEP), XRAY_OK);
        step_trainer(s);
        assert_int_equal(ops->update(shared, NULL, s->o.version), XRAY_OK);
        assert_int_equal(ops->resume(shared), XRAY_OK);
        assert_int_equal(s->o.leases, 1);
        assert_int_equal(ops->update(own, &s->table, s->o.version), XRAY_OK);
    }
    while (ops->step(shared) == XRAY_OK)
        ;
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    assert_int_equal(ops->poll(shared, &out), XRAY_OK);
    check_spans(&out, PROMPT + 20);
    assert_int_equal(out.span_count, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(out.spans[i].version, i);
        assert_int_equal(out.spans[i].last, ends[i]);
    }
    const result *plain = &s->plain->r[0];
    assert_memory_equal(out.logp, plain->logp, 4 * sizeof(float));
    assert_memory_not_equal(out.logp + 4, plain->logp + 4, sizeof(float));
    engine_run(s->r, own, s->out);
    assert_memory_equal(out.logp, s->out->r[0].logp, 20 * sizeof(float));
    assert_memory_equal(out.tokens, s->out->r[0].tokens, 20 * sizeof(int32_t));
    ops->destroy(own);
}

/* Parts of a stream have the versions of their own tokens, and between the
 * parts of an update no step is made. */
static void parts_have_their_own_versions(void **state)
{
    stage *s = *state;
    const xray_infer_ops *ops = s->r->ops;
    engine_size size = large_size;
    size.config.weights = XM_ENGINE_WEIGHTS_FLOAT32;
    ops->destroy(s->engine);
    open_engine(s, &size);
    xray_request q = make_request(1, 2, 20);
    q.stream = 1;
    engine_submit(s->r, s->engine, &q);
    step_engine(s, 3);
    (void)poll_parts(s, s->out);
    step_engine(s, 1);
    step_trainer(s);
    xray_weights some = s->table;
    some.tensor_count = 3;
    assert_int_equal(ops->update(s->engine, &some, 1), XRAY_OK);
    expect_error(s, ops->step(s->engine), XRAY_E_STATE,
                 "dsinf: an update has brought some new weights and has not "
                 "ended yet");
    assert_int_equal(ops->update(s->engine, &s->table, 1), XRAY_OK);
    assert_int_equal(ops->update(s->engine, NULL, 1), XRAY_OK);
    step_engine(s, 1);
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->poll(s->engine, &out), XRAY_OK);
        assert_true(out.first == 3 && out.token_count == 2);
        check_spans(&out, PROMPT + 5);
        assert_int_equal(out.span_count, 2);
        assert_int_equal(out.spans[1].version, 1);
    }
    step_engine(s, 1);
    assert_int_equal(ops->poll(s->engine, &out), XRAY_OK);
    assert_int_equal(out.span_count, 1);
    assert_int_equal(out.spans[0].version, 1);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(parts_make_up_the_sample),
        TEST(one_sample_is_aborted),
        TEST(abort_during_the_prompt),
        TEST(abort_of_a_held_sample),
        TEST(pause_waits_for_what_runs),
        TEST(pause_aborts_all),
        TEST(weights_change_under_a_request),
        TEST(parts_have_their_own_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
