/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which keys of the INI are refused because of the layouts that a
 * backend plans, and for which roles, with a backend made for the test.
 */
#include "tests/testing.h"

#include "core/run/run.h"
#include "core/run/run_setup.h"

/* ---- a backend of four ranks --------------------------------------------- */

static struct {
    xray_axis axes[XRAY_AXES];
    uint32_t axis_count;
    uint64_t token_multiple;
    uint32_t segments;
    const char *numerics;
    int no_list; /* 1: it gives no axes, however many it says */
} fake;

static xray_status plan_model(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    (void)host;
    (void)model;
    (void)load;
    assert_string_equal(config, "options");
    assert_int_equal(world->size, 4);
    out->axes = fake.no_list ? NULL : fake.axes;
    out->axis_count = fake.axis_count;
    out->axis_stride = sizeof(xray_axis);
    out->micro_multiple = 1;
    out->token_multiple = fake.token_multiple;
    out->segments = fake.segments;
    out->numerics = fake.numerics;
    return XRAY_OK;
}

static xr_run run;
static xr_errors errors;

static int begin_test(void **state)
{
    static const xray_train_ops ops = { .header = XRAY_HEADER(xray_train_ops),
                                        .plan = plan_model };
    static const xray_component component = { .name = "fake" };
    static const xr_ranks all = { .count = 4, .rank = { 0, 1, 2, 3 } };
    (void)state;
    memset(&fake, 0, sizeof(fake));
    fake.token_multiple = 1;
    run = (xr_run){ .config = xr_config_new(),
                    .with = XR_WITH_TRAIN | XR_WITH_ALGO | XR_TRAINABLE,
                    .needs = XRAY_NEED_CRITIC | XRAY_NEED_REFERENCE };
    run.train = (xr_part){ .component = &component,
                           .ops = &ops,
                           .config = (void *)(uintptr_t) "options",
                           .instance = "train.fake",
                           .host = xr_host_new("train.fake", NULL) };
    run.placement = (xr_placement){ .size = 4,
                                    .actor = all,
                                    .reference = all,
                                    .critic = all,
                                    .reward = all,
                                    .rollout = all };
    run.actor.model.config_json = "{}";
    run.actor.load = run.critic.load = (xray_workload){
        .header = XRAY_HEADER(xray_workload), .tokens = 100, .row_tokens = 10
    };
    run.ini.rollout.n = 3;
    run.ini.data.train_batch_size = 8;
    run.ini.actor.ppo_max_token_len_per_gpu = 100;
    run.ini.critic.ppo_max_token_len_per_gpu = 100;
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    xr_errors_free(&errors);
    xr_host_free(run.train.host);
    xr_config_free(run.config);
    return 0;
}

/* Plans, and expects as many errors, of which the first has the text. */
static void expect_errors(size_t count, const char *want)
{
    xr_errors_free(&errors);
    xr_run_plan_layouts(&run, &errors);
    if (errors.count != count || (count && !strstr(errors.items[0], want)))
        fail_msg("%zu errors: \"%s\", expected %zu", errors.count,
                 errors.count ? errors.items[0] : "", count);
}

static void use_axes(const char *first, const char *second)
{
    const char *const names[] = { first, second };
    fake.axis_count = second ? 2 : 1;
    for (uint32_t i = 0; i < fake.axis_count; i++)
        fake.axes[i] = (xray_axis){ .name = names[i], .size = 2 };
}

/* ---- cases --------------------------------------------------------------- */

/* Ranks that divide rows cannot share prompts, of whatever model trains so. */
static void shared_prompts_need_undivided_rows(void **state)
{
    xr_run_config *ini = &run.ini;
    (void)state;
    ini->actor.share_prompts = 1;
    ini->critic.share_prompts = 1;
    use_axes("tp", XRAY_AXIS_PIPELINE);
    expect_errors(0, "");
    use_axes("tp", XRAY_AXIS_CONTEXT);
    expect_errors(2, "[actor] share_prompts: train.fake divides each row among "
                     "2 ranks");
    assert_non_null(strstr(errors.items[1], "[critic] share_prompts: "
                                            "train.fake divides each row"));
    ini->actor.share_prompts = 0;
    expect_errors(1, "[critic] share_prompts");
    ini->critic.share_prompts = -1; /* as the backend has it */
    expect_errors(0, "");
    ini->actor.share_prompts = 1;
    run.with &= ~XR_WITH_ALGO; /* sft has no groups */
    ini->sft.max_token_len = 100;
    expect_errors(0, "");
}

/* Padded rows must fit the bound of its role, and a reference has the
 * policy's: what both lack is reported once. */
static void padded_rows_must_fit_their_bound(void **state)
{
    xr_run_config *ini = &run.ini;
    (void)state;
    fake.token_multiple = 16;
    expect_errors(0, "");
    ini->actor.ppo_max_token_len_per_gpu = 15;
    expect_errors(1, "[actor] ppo_max_token_len_per_gpu 15 cannot hold a row "
                     "of 10 tokens that train.fake pads to a multiple of 16, "
                     "expected at least 16");
    ini->actor.ppo_max_token_len_per_gpu = 16;
    expect_errors(0, "");
    /* A group of three rows stays together. */
    ini->actor.share_prompts = 1;
    ini->actor.ppo_max_token_len_per_gpu = 31;
    expect_errors(1, "cannot hold a group of 30 tokens");
    ini->actor.ppo_max_token_len_per_gpu = 32;
    expect_errors(0, "");
    ini->actor.ppo_max_token_len_per_gpu = 29; /* has an error of its own */
    expect_errors(0, "");
    /* Nothing is trained. */
    ini->actor.ppo_max_token_len_per_gpu = 31;
    run.with &= ~XR_TRAINABLE;
    expect_errors(0, "");
    run.with |= XR_TRAINABLE;
    fake.token_multiple = 1;
    expect_errors(0, "");
    /* Supervised fine-tuning has a bound of its own, and no groups. */
    fake.token_multiple = 16;
    run.with &= ~XR_WITH_ALGO;
    run.needs = 0;
    ini->sft.max_token_len = 15;
    expect_errors(1, "[sft] max_token_len 15 cannot hold a row of 10 tokens");
    ini->sft.max_token_len = 16;
    expect_errors(0, "");
}

/* A segment that is computed at once has whole groups, or single rows where
 * they are shuffled. */
static void segments_must_fit_a_micro_batch(void **state)
{
    xr_run_config *ini = &run.ini;
    xr_errors ignored = { 0 };
    (void)state;
    xr_config_set(run.config, "critic.ppo_max_token_len_per_gpu=90", &ignored);
    ini->run.layout_segments = 4;
    run.actor.load.trainable = run.critic.load.trainable = 1;
    fake.segments = XRAY_SEGMENTS_IN_TURN;
    /* 8 prompts in four segments: two groups of three rows of ten tokens. */
    ini->actor.ppo_max_token_len_per_gpu = 59;
    ini->critic.ppo_max_token_len_per_gpu = 59;
    expect_errors(2, "[actor] ppo_max_token_len_per_gpu 59 cannot hold one of "
                     "4 segments of the mini-batch, of up to 6 rows of 10 "
                     "tokens, which train.fake computes at once; expected at "
                     "least 60");
    ini->actor.ppo_max_token_len_per_gpu = 60;
    expect_errors(1, "[critic] ppo_max_token_len_per_gpu 59");
    ini->critic.ppo_max_token_len_per_gpu = 60;
    expect_errors(0, "");
    /* Mini-batches of five prompts, 15 rows: two groups, or four rows. */
    ini->actor.ppo_mini_batch_size = ini->critic.ppo_mini_batch_size = 5;
    ini->actor.ppo_max_token_len_per_gpu = 59;
    expect_errors(1, "of up to 6 rows");
    ini->actor.shuffle = 1;
    ini->actor.ppo_max_token_len_per_gpu = 40;
    expect_errors(0, "");
    ini->actor.ppo_max_token_len_per_gpu = 39;
    ini->critic.ppo_max_token_len_per_gpu = 59;
    expect_errors(2, "of up to 4 rows of 10 tokens");
    assert_non_null(strstr(errors.items[1], "of up to 6 rows"));
    ini->actor.shuffle = 0;
    ini->critic.shuffle = 1;
    expect_errors(1, "[actor]");
    /* A critic with mini-batches of two prompts, six rows, in turn. */
    ini->critic.ppo_mini_batch_size = 2;
    ini->actor.ppo_max_token_len_per_gpu = 60;
    ini->critic.ppo_max_token_len_per_gpu = 19;
    expect_errors(1, "[critic] ppo_max_token_len_per_gpu 19 cannot hold one of "
                     "4 segments of the mini-batch, of up to 2 rows");
    ini->critic.ppo_max_token_len_per_gpu = 20;
    expect_errors(0, "");
    ini->actor.ppo_max_token_len_per_gpu = 59;
    expect_errors(1, "[actor]"); /* its mini-batches are as they were */
    ini->actor.ppo_max_token_len_per_gpu = 39;
    /* Where segments are computed in runs, no bound follows. */
    fake.segments = XRAY_SEGMENTS_IN_RUNS;
    expect_errors(0, "");
    /* Nine rows of supervised fine-tuning: three in a segment. */
    fake.segments = XRAY_SEGMENTS_IN_TURN;
    run.with &= ~XR_WITH_ALGO;
    run.needs = 0;
    ini->sft.train_batch_size = 9;
    ini->sft.max_token_len = 29;
    expect_errors(1, "[sft] max_token_len 29 cannot hold one of 4 segments of "
                     "the mini-batch, of up to 3 rows");
    ini->sft.max_token_len = 30;
    expect_errors(0, "");
}

/* The id of the numerics is kept whole, or refused. */
static void ids_of_numerics_are_not_cut_off(void **state)
{
    char id[XR_NUMERICS_CAP + 1];
    (void)state;
    memset(id, 'n', sizeof(id));
    id[XR_NUMERICS_CAP] = '\0';
    fake.numerics = id;
    run.needs = 0;
    expect_errors(1, "the id of the numerics has 128 characters, expected at "
                     "most 127");
    id[XR_NUMERICS_CAP - 1] = '\0';
    expect_errors(0, "");
    assert_string_equal(xr_run_layout(&run, XRAY_ROLE_ACTOR)->numerics, id);
    fake.numerics = NULL;
    expect_errors(0, "");
    assert_string_equal(xr_run_layout(&run, XRAY_ROLE_ACTOR)->numerics, "");
}

static const char *engine_numerics;
static uint32_t engine_width;

static xray_status plan_engine(const xray_host *host, const void *config,
                               const xray_model *model, const xray_world *world,
                               const xray_workload *load, xray_plan *out)
{
    static xray_axis axis = { .name = "tp" };
    (void)host;
    (void)config;
    (void)model;
    (void)world;
    (void)load;
    axis.size = engine_width;
    out->axes = &axis;
    out->axis_count = 1;
    out->axis_stride = sizeof(axis);
    out->numerics = engine_numerics;
    return XRAY_OK;
}

/* Results are equal to the last bit where trainer and engine keep one contract,
 * and weights are shared where the ranks divide them in one way. */
static void engines_are_compared_with_the_trainer(void **state)
{
    static const xray_component component = { .name = "engine" };
    static const xray_infer_ops ops = { .header = XRAY_HEADER(xray_infer_ops),
                                        .plan = plan_engine };
    static const struct {
        const char *train, *infer;
        uint32_t width;
        int exact;
        uint32_t shared;
    } cases[] = {
        { "a/1", "a/1", 2, 1, 1 }, { "a/1", "a/2", 2, 0, 1 },
        { NULL, "a/1", 2, 0, 1 },  { "a/1", NULL, 2, 0, 1 },
        { NULL, NULL, 2, 0, 1 },   { "a/1", "a/1", 1, 1, 0 },
        { "a/1", "a/1", 4, 1, 0 },
    };
    (void)state;
    run.needs = 0;
    run.infer = run.train;
    run.infer.component = &component;
    run.infer.ops = &ops;
    use_axes("tp", NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fake.numerics = cases[i].train;
        engine_numerics = cases[i].infer;
        engine_width = cases[i].width;
        run.rollout.load.shared = 1;
        run.sequences = 12;
        expect_errors(0, "");
        assert_int_equal(run.exact, cases[i].exact);
        assert_int_equal(run.rollout.load.shared, cases[i].shared);
        assert_int_equal(run.rollout.load.rows, 12 / (4 / cases[i].width));
    }
}

/* Without a backend, its options or a model there is nothing to plan. */
static void unknown_parts_are_not_planned(void **state)
{
    const xr_part train = run.train;
    (void)state;
    fake.token_multiple = 16;
    run.ini.actor.ppo_max_token_len_per_gpu = 15;
    for (int i = 0; i < 4; i++) {
        static const size_t errors_of[] = { 0, 0, 0, 1 };
        run.train = train;
        run.actor.model.config_json = i == 2 ? NULL : "{}";
        if (i == 0)
            run.train.component = NULL;
        else if (i == 1)
            run.train.config = NULL;
        expect_errors(errors_of[i], "[actor] ppo_max_token_len_per_gpu");
        assert_int_equal(xr_run_layout(&run, XRAY_ROLE_ACTOR)->replicas, 4);
    }
}

/* Until a role is planned, each of its own ranks is a replica. */
static void a_role_begins_as_its_ranks(void **state)
{
    static const uint32_t roles[] = { XRAY_ROLE_ACTOR, XRAY_ROLE_REFERENCE,
                                      XRAY_ROLE_CRITIC, XRAY_ROLE_ROLLOUT };
    static const uint32_t counts[] = { 4, 3, 2, 1 };
    (void)state;
    run.placement.reference.count = 3;
    run.placement.critic.count = 2;
    run.placement.rollout.count = 1;
    xr_run_reset_layouts(&run);
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++) {
        const xr_layout *layout = xr_run_layout(&run, roles[i]);
        assert_int_equal(layout->replicas, counts[i]);
        assert_int_equal(layout->width, 1);
        assert_int_equal(layout->micro_multiple, 1);
        assert_int_equal(layout->token_multiple, 1);
        assert_int_equal(layout->axis_count, 0);
    }
}

static void axes_need_a_list_and_names_of_their_own(void **state)
{
    (void)state;
    run.needs = 0;
    use_axes("tp", XRAY_AXIS_REPLICA);
    expect_errors(1, "train.fake: plan: axis 1 has the name \"replica\", which "
                     "is the core's");
    fake.no_list = 1;
    expect_errors(1, "train.fake: plan: 2 axes, expected a list of at most 8");
}

/* As many axes as the interface allows; one of a single rank counts, too. */
static void all_axes_are_taken(void **state)
{
    char text[XR_AXES_CAP];
    (void)state;
    for (size_t i = 0; i < XRAY_AXES; i++)
        fake.axes[i] = (xray_axis){ .name = &"a\0b\0c\0d\0e\0f\0g\0h"[2 * i],
                                    .size = i < 2 ? 2 : 1 };
    fake.axis_count = XRAY_AXES;
    expect_errors(0, "");
    const xr_layout *layout = xr_run_layout(&run, XRAY_ROLE_ACTOR);
    assert_int_equal(layout->width, 4);
    assert_string_equal(xr_axes_text(layout, text),
                        "a 2, b 2, c 1, d 1, e 1, f 1, g 1, h 1");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin_test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(shared_prompts_need_undivided_rows),
        CASE(padded_rows_must_fit_their_bound),
        CASE(segments_must_fit_a_micro_batch),
        CASE(ids_of_numerics_are_not_cut_off),
        CASE(engines_are_compared_with_the_trainer),
        CASE(unknown_parts_are_not_planned),
        CASE(a_role_begins_as_its_ranks),
        CASE(axes_need_a_list_and_names_of_their_own),
        CASE(all_axes_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
