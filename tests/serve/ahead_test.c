/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests steps that are made ahead: on a device that is late, the next step is
 * enqueued before the host knows the tokens of the last one, and every result
 * has the bits that it has otherwise.
 */
#include "tests/growth.h"
#include "tests/serve/engine.h"

enum { PROMPT = 5, ROW = 40 };
static const int32_t prompt[24] = { 3,  1, 4,  1, 5, 9,  2, 6,  5,  3, 5, 8,
                                    97, 9, 32, 3, 8, 46, 2, 64, 33, 8, 3, 27 };

typedef struct stage {
    rig *early_rig;
    rig *late_rig;
    model *models[2];
    void *engines[2];
} stage;

static void open_stage(stage *s, uint64_t slots)
{
    const engine_size size = { .rows = slots,
                               .row_tokens = ROW,
                               .config = { .max_num_batched_tokens = 16 } };
    rig *rigs[2] = { rig_open(1), rig_open(1) };
    rig_make_late(rigs[1]);
    for (int i = 0; i < 2; i++) {
        s->models[i] = model_open(rigs[i], MODEL_LLAMA);
        s->engines[i] = engine_open(rigs[i], s->models[i], &size);
    }
    s->early_rig = rigs[0];
    s->late_rig = rigs[1];
}

static rig *rig_of(stage *s, int late)
{
    return late ? s->late_rig : s->early_rig;
}

static void close_stage(stage *s)
{
    for (int i = 0; i < 2; i++) {
        rig *r = rig_of(s, i);
        r->ops->destroy(s->engines[i]);
        model_close(s->models[i]);
        rig_close(r);
    }
}

/* Makes one result of the parts and rounds of each sample. */
static void join_parts(results *all)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        const result *part = &all->r[i];
        uint32_t k = 0;
        while (k < kept &&
               (all->r[k].id != part->id || all->r[k].sample != part->sample))
            k++;
        result *to = &all->r[k];
        if (k == kept) {
            *to = *part;
            kept++;
            continue;
        }
        size_t bytes = part->count * sizeof(float);
        assert_true(to->count + part->count <= MAX_OUT_TOKENS);
        memcpy(to->tokens + to->count, part->tokens, bytes);
        memcpy(to->raw + to->count, part->raw, bytes);
        memcpy(to->logp + to->count, part->logp, bytes);
        to->count += part->count;
        to->finish = part->finish;
    }
    all->count = kept;
}

typedef void run_calls(rig *r, void *engine, uint32_t how, results *out);

/* Makes the same calls of both engines and compares the results. */
static void compare_runs(stage *s, run_calls *run, uint32_t how)
{
    results *all[2];
    for (int i = 0; i < 2; i++) {
        all[i] = calloc(1, sizeof(*all[i]));
        assert_non_null(all[i]);
        run(rig_of(s, i), s->engines[i], how, all[i]);
        join_parts(all[i]);
    }
    results_equal(all[0], all[1]);
    free(all[0]);
    free(all[1]);
}

/* Requests of every kind: some end by ids, lists or repetition, which the
 * device does not know of, and some may start only when others have ended. */
static void run_many(rig *r, void *engine, uint32_t how, results *out)
{
    (void)how;
    static const int32_t stops[] = { 7, 20, 33, 50, 71, 88 };
    static const int32_t pair[] = { 11, 40 };
    const xray_id_list list = { .ids = pair, .count = 1 };
    for (uint64_t id = 1; id <= 9; id++) {
        xray_request q = request_make(id, prompt + id, PROMPT + (uint32_t)id,
                                      3 + 4 * (uint32_t)(id % 5));
        q.count = 1 + (uint32_t)(id % 4);
        q.temperature = id % 3 ? 1.5f : 0.0f;
        q.stop_ids = stops;
        q.stop_count = id % 2 ? 6 : 0;
        q.stop_lists = &list;
        q.stop_list_count = id % 3 == 0;
        q.stop_list_stride = sizeof(list);
        q.repeat_size = id % 4 == 2 ? 2 : 0;
        q.repeat_count = q.repeat_size;
        q.top_p = id % 5 == 1 ? 0.9f : 1.0f;
        q.min_tokens = id == 5 ? 4 : 0;
        q.stream = id == 7;
        engine_submit(r, engine, &q);
    }
    engine_run(r, engine, out);
}

static xray_status begin_no_graph(void *self, xray_stream *stream)
{
    (void)self;
    (void)stream;
    fail_msg("a graph is begun");
    return XRAY_E_BUG;
}

static xray_status end_no_graph(void *self, xray_stream *stream,
                                xray_graph **out)
{
    (void)out;
    return begin_no_graph(self, stream);
}

static xray_status launch_no_graph(void *self, xray_stream *stream,
                                   xray_graph *graph)
{
    (void)graph;
    return begin_no_graph(self, stream);
}

static void destroy_no_graph(void *self, xray_graph *graph)
{
    (void)self;
    (void)graph;
    fail_msg("a graph is destroyed");
}

/* A device with a part of the calls for graphs is not asked for any. */
static void graphs_need_all_of_their_calls(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * LACK_WAYS; i++) {
        stage s;
        uint32_t before = rig_advances();
        open_stage(&s, 4);
        xray_device_ops *part = &s.late_rig->late;
        part->graph_begin = begin_no_graph;
        part->graph_end = end_no_graph;
        part->graph_launch = launch_no_graph;
        part->graph_destroy = destroy_no_graph;
        if (i % 4 == 0)
            LACK_MEMBER(xray_device_ops, *part, graph_begin, i / 4);
        else if (i % 4 == 1)
            LACK_MEMBER(xray_device_ops, *part, graph_end, i / 4);
        else if (i % 4 == 2)
            LACK_MEMBER(xray_device_ops, *part, graph_launch, i / 4);
        else
            LACK_MEMBER(xray_device_ops, *part, graph_destroy, i / 4);
        compare_runs(&s, run_many, 0);
        assert_true(rig_advances() > before);
        close_stage(&s);
    }
}

static void late_results_are_the_same(void **state)
{
    (void)state;
    for (uint64_t slots = 1; slots <= 30; slots += slots) {
        stage s;
        uint32_t before = rig_advances();
        open_stage(&s, slots);
        compare_runs(&s, run_many, 0);
        compare_runs(&s, run_many, 0); /* the slots were used before */
        assert_true(rig_advances() > before + 20);
        close_stage(&s);
    }
}

/* A row goes on with the tokens that were appended to it, or with none. */
static void run_rounds(rig *r, void *engine, uint32_t appended, results *out)
{
    xray_request held = request_make(1, prompt, PROMPT, 6);
    xray_request other = request_make(2, prompt + 3, PROMPT, 30);
    int32_t stops[90]; /* most ids, so that a turn ends once it may */
    for (int32_t i = 0; i < 90; i++)
        stops[i] = i;
    held.hold = 1;
    held.min_tokens = 2;
    held.stop_ids = stops;
    held.stop_count = 90;
    held.count = 2;
    engine_submit(r, engine, &held);
    engine_submit(r, engine, &other);
    for (int round = 0; round < 3; round++) {
        uint32_t polled = out->count;
        while (out->count < polled + 2) {
            assert_int_equal(r->ops->step(engine), XRAY_OK);
            engine_poll(r, engine, out);
        }
        for (uint32_t i = 0; i < 2; i++)
            assert_int_equal(r->ops->extend(engine, 1, i, prompt, appended),
                             XRAY_OK);
    }
    assert_int_equal(r->ops->abort(engine, 1, XRAY_ALL_SAMPLES), XRAY_OK);
    engine_run(r, engine, out);
}

static void rounds_are_the_same(void **state)
{
    (void)state;
    for (uint32_t appended = 0; appended < 3; appended++) {
        stage s;
        open_stage(&s, 4);
        compare_runs(&s, run_rounds, appended);
        close_stage(&s);
    }
}

/* A sample is aborted, and its slot given to another request, while a step with
 * its next token is on its way. */
static void run_aborted(rig *r, void *engine, uint32_t steps, results *out)
{
    xray_request q = request_make(1, prompt, PROMPT, 12);
    xray_request more = request_make(2, prompt + 6, PROMPT, 9);
    q.count = 3;
    engine_submit(r, engine, &q);
    for (uint32_t i = 0; i < steps; i++)
        assert_int_equal(r->ops->step(engine), XRAY_OK);
    assert_int_equal(r->ops->abort(engine, 1, 1), XRAY_OK);
    engine_submit(r, engine, &more);
    engine_run(r, engine, out);
}

static void aborts_are_the_same(void **state)
{
    (void)state;
    for (uint32_t steps = 1; steps < 10; steps++) {
        stage s;
        open_stage(&s, 3);
        compare_runs(&s, run_aborted, steps);
        close_stage(&s);
    }
}

/* Of a row with four tokens, the third and the fourth are drawn ahead, and
 * nothing is after the fourth. */
static void known_ends_are_not_passed(void **state)
{
    (void)state;
    stage s;
    results out = { 0 };
    open_stage(&s, 4);
    xray_request q = request_make(1, prompt, PROMPT, 4);
    engine_submit(s.late_rig, s.engines[1], &q);
    uint32_t before = rig_advances();
    engine_run(s.late_rig, s.engines[1], &out);
    assert_int_equal(rig_advances() - before, 2);
    q = request_make(1, prompt, PROMPT, ROW);
    engine_submit(s.late_rig, s.engines[1], &q);
    before = rig_advances();
    engine_run(s.late_rig, s.engines[1], &out);
    assert_int_equal(rig_advances() - before, ROW - PROMPT - 2);
    close_stage(&s);
}

/* Steps that are made ahead are steps, and count as those that are not. */
static void steps_ahead_are_counted(void **state)
{
    (void)state;
    stage s;
    results out = { 0 };
    open_stage(&s, 2);
    for (int i = 0; i < 2; i++) {
        rig *r = rig_of(&s, i);
        xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
        xray_request q = request_make(1, prompt, PROMPT, 12);
        q.count = 2;
        engine_submit(r, s.engines[i], &q);
        engine_run(r, s.engines[i], &out);
        assert_int_equal(r->ops->stats(s.engines[i], &stats), XRAY_OK);
        assert_int_equal(stats.steps, 12);
        assert_int_equal(stats.generation_tokens, 2 * 12);
        assert_int_equal(stats.prompt_tokens, PROMPT);
    }
    close_stage(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_results_are_the_same),
        cmocka_unit_test(graphs_need_all_of_their_calls),
        cmocka_unit_test(rounds_are_the_same),
        cmocka_unit_test(aborts_are_the_same),
        cmocka_unit_test(known_ends_are_not_passed),
        cmocka_unit_test(steps_ahead_are_counted),
    };
    return cmocka_run_group_tests_name("serve.ahead", tests, NULL, NULL);
}
