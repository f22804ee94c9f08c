/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of core/rl that need no model: batches and their cuts, schedules, what
 * ranks need of a runtime.
 */
#include "tests/testing.h"

#include <math.h>

#include "core/actor/actor.h"
#include "core/actor/local.h"
#include "core/rl/rows.h"
#include "core/rl/schedule.h"
#include "core/rl/session.h"
#include "core/rl/whole.h"

static void add(xr_rows *rows, int32_t first, uint32_t prompt,
                uint32_t response, int32_t group)
{
    int32_t ids[64];
    float logp[64];
    xr_err err = { "" };
    for (int32_t i = 0; i < 64; i++) {
        ids[i] = first + i;
        logp[i] = (float)(-first - i);
    }
    xr_row_in in = { .prompt = ids,
                     .prompt_count = prompt,
                     .response = ids + prompt,
                     .response_count = response,
                     .logp = logp,
                     .row_id = (uint64_t)first,
                     .prompt_id = (uint64_t)group,
                     .group = group,
                     .temperature = 0.5f };
    assert_int_equal(xr_rows_add(rows, &in, &err), XRAY_OK);
}

static void rows_keep_prompt_and_response_apart(void **state)
{
    xr_rows rows;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 4, 40, &err), XRAY_OK);
    add(&rows, 100, 3, 2, 0);
    add(&rows, 200, 1, 4, 0);
    const xray_batch *b = &rows.batch;
    assert_int_equal(b->rows, 2);
    assert_int_equal(b->tokens, 10);
    assert_int_equal(b->row_start[1], 5);
    assert_int_equal(b->ids[3], 103);
    const float mask[] = { 0, 0, 0, 1, 1, 0, 1, 1, 1, 1 };
    for (int i = 0; i < 10; i++)
        assert_true(b->loss_mask[i] == mask[i]);
    assert_true(b->old_logp[3] == -100 && b->old_logp[2] == 0);
    assert_int_equal(b->spans[1].first, 1);
    assert_int_equal(b->spans[1].last, 5);
    xr_rows_free(&rows);
}

static void a_full_batch_refuses_more(void **state)
{
    xr_rows rows;
    xr_err err = { "" };
    int32_t ids[8] = { 0 };
    xr_row_in in = { .prompt = ids, .prompt_count = 8, .temperature = 1 };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 2, 10, &err), XRAY_OK);
    assert_int_equal(xr_rows_add(&rows, &in, &err), XRAY_OK);
    assert_int_equal(xr_rows_add(&rows, &in, &err), XRAY_E_BUG);
    assert_int_equal(rows.batch.rows, 1);
    xr_rows_free(&rows);
}

static void views_are_runs_in_order(void **state)
{
    xr_rows rows;
    xr_views views;
    xr_err err = { "" };
    uint32_t sizes[] = { 5, 9, 3, 3, 20, 1 };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 6, 41, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, 6, &err), XRAY_OK);
    for (int32_t i = 0; i < 6; i++)
        add(&rows, i * 100, 1, sizes[i] - 1, i);
    const xr_cut cut = { .first = 1, .count = 5, .budget = 15 };
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 3); /* 9+3+3 | 20, over the budget | 1 */
    assert_int_equal(views.batches[0].rows, 3);
    assert_int_equal(views.batches[0].tokens, 15);
    assert_int_equal(views.batches[1].tokens, 20);
    assert_int_equal(views.batches[2].tokens, 1);
    assert_int_equal(views.first_row[2], 4);
    assert_int_equal(views.batches[0].row_start[0], 0);
    assert_int_equal(views.batches[0].row_start[2], 12);
    assert_int_equal(views.batches[1].ids[0], 400);
    assert_int_equal(views.batches[1].row_start[1], 20);
    assert_int_equal(views.batches[0].row_id[1], 200);
    const xr_cut none = { .budget = 15 };
    assert_int_equal(xr_views_cut(&views, &rows, &none, &err), XRAY_OK);
    assert_int_equal(views.count, 0);
    xr_views_free(&views);
    xr_rows_free(&rows);
}

/* Groups 0 0 | 1 1 1 | 2 of rows of 5 tokens. */
static void groups_stay_whole_where_they_share(void **state)
{
    static const int32_t group[] = { 0, 0, 1, 1, 1, 2 };
    xr_rows rows;
    xr_views views;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 6, 30, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, 6, &err), XRAY_OK);
    for (int32_t i = 0; i < 6; i++)
        add(&rows, i * 100, 2, 3, group[i]);
    xr_cut cut = { .count = 6, .budget = 20, .prompts = XR_PROMPTS_WHOLE };
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 2); /* 10 | 15 + 5 */
    assert_int_equal(views.batches[0].rows, 2);
    assert_int_equal(views.batches[1].rows, 4);
    assert_int_equal(views.first_row[1], 2);
    assert_int_equal(views.batches[0].share_prompts, 1);
    cut.budget = 12; /* a group over the budget is by itself */
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 3);
    cut.first = 1;
    cut.count = 3;
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 2); /* 0 | 1 1 */
    assert_int_equal(views.batches[1].rows, 2);
    cut.prompts = XR_PROMPTS_SHARED;
    cut.budget = 11;
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.batches[0].rows, 2);
    assert_int_equal(views.batches[1].share_prompts, 1);
    cut.prompts = XR_PROMPTS_APART;
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.batches[0].share_prompts, 0);
    xr_views_free(&views);
    xr_rows_free(&rows);
}

static void rows_can_be_copied_in_another_order(void **state)
{
    xr_rows rows;
    xr_rows other;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 3, 30, &err), XRAY_OK);
    assert_int_equal(xr_rows_init(&other, 3, 30, &err), XRAY_OK);
    add(&rows, 100, 2, 3, 0);
    add(&rows, 200, 2, 5, 1);
    rows.batch.advantage[6] = 2.5f;
    assert_int_equal(xr_rows_copy(&other, &rows, 1, 0, &err), XRAY_OK);
    assert_int_equal(xr_rows_copy(&other, &rows, 0, 1, &err), XRAY_OK);
    assert_int_equal(other.batch.ids[0], 200);
    assert_int_equal(other.batch.ids[7], 100);
    assert_true(other.batch.advantage[1] == 2.5f);
    assert_int_equal(other.batch.group[0], 0);
    assert_int_equal(other.batch.spans[1].row, 1);
    xr_rows_free(&rows);
    xr_rows_free(&other);
}

static void schedules_follow_their_formulas(void **state)
{
    xr_optim_section o = { .lr = 2,
                           .lr_scheduler_type = XR_SCHEDULE_CONSTANT,
                           .lr_warmup_steps = 4,
                           .num_cycles = 0.5 };
    (void)state;
    assert_true(xr_schedule(&o, 0, 100) == 0);
    assert_true(fabs(xr_schedule(&o, 1, 100) - 0.5) < 1e-12);
    assert_true(xr_schedule(&o, 4, 100) == 2);
    assert_true(xr_schedule(&o, 99, 100) == 2);
    o.lr_scheduler_type = XR_SCHEDULE_LINEAR;
    o.min_lr_ratio = 0.1;
    assert_true(fabs(xr_schedule(&o, 52, 100) - 2 * 0.55) < 1e-12);
    assert_true(fabs(xr_schedule(&o, 100, 100) - 0.2) < 1e-12);
    o.lr_scheduler_type = XR_SCHEDULE_COSINE;
    assert_true(fabs(xr_schedule(&o, 52, 100) - 2 * 0.55) < 1e-12);
    assert_true(fabs(xr_schedule(&o, 28, 100) -
                     2 * (cos(3.14159265358979323846 / 4) * 0.45 + 0.55)) <
                1e-12);
    o.lr_warmup_steps = -1;
    o.lr_warmup_steps_ratio = 0.1;
    assert_true(fabs(xr_schedule(&o, 5, 100) - 1) < 1e-12);
}

/* Without a warm-up, which is the default, the first step has the whole rate;
 * with one the rate grows by equal parts and is whole right behind it. */
static void warm_up_ends_where_it_says(void **state)
{
    static const int64_t kinds[] = { XR_SCHEDULE_CONSTANT, XR_SCHEDULE_LINEAR,
                                     XR_SCHEDULE_COSINE };
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        xr_optim_section o = { .lr = 3,
                               .lr_scheduler_type = kinds[k],
                               .lr_warmup_steps = -1,
                               .num_cycles = 0.5 };
        assert_true(xr_schedule(&o, 0, 50) == 3);
        o.lr_warmup_steps = 0;
        assert_true(xr_schedule(&o, 0, 50) == 3);
        assert_true(k == 0 ? xr_schedule(&o, 1, 50) == 3
                           : xr_schedule(&o, 1, 50) < 3);
        o.lr_warmup_steps = 1;
        assert_true(xr_schedule(&o, 0, 50) == 0);
        assert_true(xr_schedule(&o, 1, 50) == 3);
        o.lr_warmup_steps = 3;
        for (uint64_t step = 0; step <= 3; step++)
            assert_true(fabs(xr_schedule(&o, step, 50) - (double)step) < 1e-12);
        /* A part of the run is cut down to whole steps: 0.05 of 50 is 2. */
        o.lr_warmup_steps = -1;
        o.lr_warmup_steps_ratio = 0.05;
        assert_true(xr_schedule(&o, 1, 50) == 1.5);
        assert_true(xr_schedule(&o, 2, 50) == 3);
        /* A run of one step has a rate, and one past its end a floor. */
        o.lr_warmup_steps = 0;
        o.min_lr_ratio = 0.1;
        assert_true(xr_schedule(&o, 0, 1) == 3);
        assert_true(fabs(xr_schedule(&o, 70, 50) - (k ? 0.3 : 3)) < 1e-12);
    }
}

static void *no_board(void *self, uint64_t *out_size)
{
    (void)self;
    (void)out_size;
    return NULL;
}

/* Ranks that cannot find each other are not started to wait for each other. */
static void ranks_without_a_board_do_not_start(void **state)
{
    (void)state;
    char json[] = "{}";
    xray_runtime_ops ops = xr_local_runtime;
    ops.board = no_board;
    xr_session session = { .placement = { .size = 2 },
                           .config_json = json,
                           .runtime = { .ops = &ops } };
    const xray_component far = { .name = "far" };
    session.runtime.component = &far;
    xr_whole *whole = NULL;
    xr_err err = { "" };
    assert_int_equal(xr_whole_open(&session, &err, &whole), XRAY_E_UNSUPPORTED);
    assert_null(whole);
    assert_string_equal(err.text,
                        "[run] runtime far gives its Workhorses no memory in "
                        "common, by which 2 ranks would find each other; it "
                        "serves one rank");
    xr_actors_setup setup = { .ops = &ops, .actors = 2, .extra = 64 };
    xr_actors *actors = NULL;
    assert_int_equal(xr_actors_new(&setup, &err, &actors), XRAY_OK);
    assert_null(xr_actors_board(actors));
    char mine = 0;
    const xr_board_group group = { .board = xr_actors_board(actors),
                                   .size = 2 };
    assert_int_equal(xr_board_exchange(&group, &mine, 1, &mine, &err),
                     XRAY_E_UNSUPPORTED);
    xr_actors_free(actors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_keep_prompt_and_response_apart),
        cmocka_unit_test(a_full_batch_refuses_more),
        cmocka_unit_test(views_are_runs_in_order),
        cmocka_unit_test(groups_stay_whole_where_they_share),
        cmocka_unit_test(rows_can_be_copied_in_another_order),
        cmocka_unit_test(schedules_follow_their_formulas),
        cmocka_unit_test(warm_up_ends_where_it_says),
        cmocka_unit_test(ranks_without_a_board_do_not_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
