/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what the core makes of a backend whose replicas have several ranks:
 * the layout of each role, the plans that are refused, memory by rank, and the
 * sizes of batches. The backend and the engine are made up by the test.
 */
#include "core/base/str.h"
#include "core/rl/check.h"
#include "core/run/resources.h"
#include "core/run/run_setup.h"
#include "tests/testing.h"

static char model_json[] = "{\"architectures\":[\"Unknown\"]}";
static char options;

/* Two stages, each of a pair of ranks. */
static const xray_axis two_by_two[] = { { .name = "tp", .size = 2 },
                                        { .name = "pp", .size = 2 } };

/* ---- plugins ------------------------------------------------------------ */

static struct {
    const xray_axis *axes;
    uint32_t axis_count;
    uint32_t answers;
    uint64_t micro_multiple;
    uint64_t token_multiple;
    uint32_t segments;
    const char *numerics;
    uint64_t bytes[64]; /* of weights, by rank */
    uint32_t odd;       /* the rank that plans `odd_plan` instead; 0: none */
    xray_plan odd_plan;
    uint32_t engine_width;
    xray_workload load[XRAY_ROLE_REWARD + 1];
    uint32_t asked;
    int host_memory;
    uint64_t memory_bytes;
} fake;

static xr_run run;
static xr_errors errors;

static void put_layout(xray_plan *out)
{
    out->axes = fake.axes;
    out->axis_count = fake.axis_count;
    out->axis_stride = sizeof(xray_axis);
    out->answers = fake.answers;
    out->micro_multiple = fake.micro_multiple;
    out->token_multiple = fake.token_multiple;
    out->numerics = fake.numerics;
    out->segments = fake.segments;
}

static xray_status plan_train(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    (void)host;
    (void)config;
    uint32_t role = model == &run.critic.model ? XRAY_ROLE_CRITIC
                    : load->trainable || !(run.with & XR_TRAINABLE)
                        ? XRAY_ROLE_ACTOR
                        : XRAY_ROLE_REFERENCE;
    assert_true(world->rank < world->size);
    assert_int_equal(world->size, xr_run_ranks(&run, role)->count);
    assert_ptr_equal(world->global_ranks, xr_run_ranks(&run, role)->rank);
    assert_null(world->comm);
    assert_int_equal(world->subgroup_count, 0);
    fake.load[role] = *load;
    fake.asked++;
    if (fake.odd && world->rank == fake.odd) {
        *out = fake.odd_plan;
        return XRAY_OK;
    }
    put_layout(out);
    out->bytes[XRAY_TAG_WEIGHTS] = fake.bytes[world->global_ranks[world->rank]];
    out->bytes[XRAY_TAG_OPTIMIZER] = 5;
    return XRAY_OK;
}

static xray_status plan_infer(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    static xray_axis axis = { .name = "tp" };
    (void)host;
    (void)config;
    (void)model;
    assert_int_equal(world->size, run.placement.rollout.count);
    fake.load[XRAY_ROLE_ROLLOUT] = *load;
    axis.size = fake.engine_width;
    out->axes = fake.engine_width ? &axis : NULL;
    out->axis_count = fake.engine_width ? 1 : 0;
    out->axis_stride = sizeof(xray_axis);
    out->bytes[XRAY_TAG_KV] = 100;
    return XRAY_OK;
}

static xray_status plan_device(const xray_host *host, const void *config,
                               xray_device_plan *out)
{
    (void)host;
    (void)config;
    out->host_memory = (uint32_t)fake.host_memory;
    out->memory_bytes = fake.memory_bytes;
    return XRAY_OK;
}

static const xray_train_ops train_ops = { .header = XRAY_HEADER(xray_train_ops),
                                          .plan = plan_train };
static const xray_infer_ops infer_ops = { .header = XRAY_HEADER(xray_infer_ops),
                                          .plan = plan_infer };

static uint64_t plan_scratch(const void *config, uint32_t threads,
                             const xray_device_work *works, uint64_t count,
                             uint64_t stride)
{
    (void)config;
    (void)threads;
    (void)works;
    (void)count;
    (void)stride;
    return 0;
}

static const xray_device_ops device_ops = { .header =
                                                XRAY_HEADER(xray_device_ops),
                                            .plan = plan_device,
                                            .plan_scratch = plan_scratch };

static xr_part make_part(const void *ops, const char *instance)
{
    static const xray_component component = { .name = "fake" };
    return (xr_part){ .component = &component,
                      .ops = ops,
                      .config = &options,
                      .instance = instance,
                      .host = xr_host_new(instance, NULL) };
}

static void read_ini(const char *text)
{
    xr_errors_free(&errors);
    xr_config_free(run.config);
    run.config = xr_config_new();
    xr_config_read_text(run.config, "run.ini", text, &errors);
    assert_int_equal(errors.count, 0);
    xr_run_decode(run.config, &run.ini, &errors);
    assert_int_equal(errors.count, 0);
    xr_placement_read(run.config, &run.ini, &run.placement, &errors);
    assert_int_equal(errors.count, 0);
    xr_run_reset_layouts(&run);
    xr_run_set_workloads(
        &run, (uint64_t)run.ini.actor.ppo_max_token_len_per_gpu, 10, 0);
    run.critic.load = run.actor.load;
    run.critic.load.tokens = (uint64_t)run.ini.critic.ppo_max_token_len_per_gpu;
}

/* The INI of most tests, of which line 2 has the ranks. */
#define INI(ranks, more)                                        \
    "[run]\nranks = " ranks "\n[data]\nmax_prompt_length = 6\n" \
    "max_response_length = 4\ntrain_batch_size = 8\n"           \
    "[rollout]\nn = 3\nmax_num_seqs = 10\n" more

static int begin_run(void **state)
{
    (void)state;
    xr_errors_free(&errors);
    memset(&fake, 0, sizeof(fake));
    fake.host_memory = 1;
    fake.axes = two_by_two;
    fake.axis_count = 2;
    for (uint32_t i = 0; i < 64; i++)
        fake.bytes[i] = 1000 + 100 * i;
    run = (xr_run){ .with = XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_ALGO |
                            XR_TRAINABLE };
    run.actor.json = model_json;
    run.actor.model.config_json = model_json;
    run.actor.model.random_init = 1;
    run.critic.path = model_json; /* a model of its own */
    run.critic.model.config_json = model_json;
    run.train = make_part(&train_ops, "train.fake");
    run.infer = make_part(&infer_ops, "infer.fake");
    run.device = make_part(&device_ops, "device.fake");
    read_ini(INI("8", ""));
    return 0;
}

static int end_run(void **state)
{
    (void)state;
    xr_errors_free(&errors);
    xr_host_free(run.train.host);
    xr_host_free(run.infer.host);
    xr_host_free(run.device.host);
    xr_config_free(run.config);
    return 0;
}

/* Plans the layouts and expects one sentence, or none. */
static void expect_layouts(const char *want)
{
    xr_errors_free(&errors);
    xr_run_plan_layouts(&run, &errors);
    if (errors.count > (*want != '\0'))
        fail_msg("%s", errors.items[errors.count - 1]);
    assert_int_equal(errors.count, *want != '\0');
    if (*want)
        assert_string_equal(errors.items[0], want);
}

/* ---- layouts ------------------------------------------------------------ */

/* Before anything is planned, each rank of any role is a replica of its own. */
static void layouts_begin_with_single_ranks(void **state)
{
    (void)state;
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++) {
        const xr_layout *layout = &run.layouts[role];
        assert_int_equal(layout->width, 1);
        assert_int_equal(layout->replicas, xr_run_ranks(&run, role)->count);
        assert_int_equal(layout->micro_multiple, 1);
        assert_int_equal(layout->token_multiple, 1);
    }
}

static void replicas_have_the_ranks_that_the_axes_span(void **state)
{
    (void)state;
    char axes[XR_AXES_CAP];
    const xr_layout *actor = xr_run_layout(&run, XRAY_ROLE_ACTOR);
    assert_true(actor->width == 1 && actor->replicas == 8);
    assert_string_equal(xr_axes_text(actor, axes), "no axes");
    fake.answers = 2;
    fake.micro_multiple = 3;
    fake.numerics = "fake.numerics/1";
    run.needs = XRAY_NEED_REFERENCE;
    expect_layouts("");
    assert_true(actor->width == 4 && actor->replicas == 2);
    assert_int_equal(actor->answers, 2);
    assert_true(actor->micro_multiple == 3 && actor->token_multiple == 1);
    assert_string_equal(actor->numerics, "fake.numerics/1");
    assert_string_equal(xr_axes_text(actor, axes), "tp 2, pp 2");
    assert_int_equal(xr_run_layout(&run, XRAY_ROLE_REFERENCE)->width, 4);
    assert_int_equal(xr_run_layout(&run, XRAY_ROLE_CRITIC)->width, 1);
    assert_int_equal(xr_run_layout(&run, XRAY_ROLE_ROLLOUT)->width, 1);
    assert_int_equal(fake.asked, 16); /* every rank of both models */
    /* The most ranks, as a single replica. */
    const xray_axis wide[] = { { .name = "tp", .size = 8 },
                               { .name = "mine", .size = 8 } };
    fake.axes = wide;
    fake.numerics = NULL;
    read_ini(INI("64", ""));
    expect_layouts("");
    assert_true(actor->width == 64 && actor->replicas == 1);
    assert_string_equal(xr_axes_text(actor, axes), "tp 8, mine 8");
    assert_string_equal(actor->numerics, "");
    fake.axis_count = fake.answers = 0;
    expect_layouts("");
    assert_true(actor->width == 1 && actor->replicas == 64);
}

/* The key that the user would change is named, and the line that set it. */
static void ranks_that_do_not_form_replicas_are_refused(void **state)
{
    (void)state;
    run.needs = XRAY_NEED_CRITIC;
    read_ini(INI("6", ""));
    xr_errors_free(&errors);
    xr_run_plan_layouts(&run, &errors);
    assert_int_equal(errors.count, 2);
    assert_string_equal(errors.items[0],
                        "run.ini:2: [run] ranks: actor: 6 ranks, but "
                        "train.fake needs groups of 4 (tp 2, pp 2)");
    assert_string_equal(errors.items[1],
                        "run.ini:2: [run] ranks: critic: 6 ranks, but "
                        "train.fake needs groups of 4 (tp 2, pp 2)");
    read_ini(INI("8", "[placement]\nactor = 0-3\ncritic = 4-6\n"));
    expect_layouts("run.ini:12: [placement] critic: critic: 3 ranks, but "
                   "train.fake needs groups of 4 (tp 2, pp 2)");
    read_ini(INI("8", "[placement]\nactor = 0-4\ncritic = 0-3\n"));
    expect_layouts("run.ini:11: [placement] actor: actor: 5 ranks, but "
                   "train.fake needs groups of 4 (tp 2, pp 2)");
    fake.axis_count = 0;
    fake.engine_width = 3;
    read_ini(INI("8", "[placement]\nactor = 0-3\n"));
    expect_layouts("run.ini:11: [placement] actor: rollout: 4 ranks, but "
                   "infer.fake needs groups of 3 (tp 3)");
    read_ini(INI("8", "[placement]\nrollout = 2-7\n"));
    expect_layouts("");
}

static void plans_that_contradict_each_other_are_refused(void **state)
{
    (void)state;
    static const xray_axis other[] = { { .name = "pp", .size = 2 },
                                       { .name = "tp", .size = 2 } };
    fake.numerics = "a/1";
    fake.odd = 5;
    put_layout(&fake.odd_plan);
    expect_layouts("");
    fake.odd_plan.axes = other;
    expect_layouts("train.fake: plan: ranks 0 and 5 plan different axes: tp 2, "
                   "pp 2 and pp 2, tp 2");
    put_layout(&fake.odd_plan);
    fake.odd_plan.axis_count = 1;
    expect_layouts("train.fake: plan: ranks 0 and 5 plan different axes: tp 2, "
                   "pp 2 and tp 2");
    put_layout(&fake.odd_plan);
    fake.odd_plan.numerics = NULL;
    expect_layouts("train.fake: plan: ranks 0 and 5 plan different numerics: "
                   "\"a/1\" and \"\"");
    put_layout(&fake.odd_plan);
    fake.odd_plan.answers = 3;
    expect_layouts("train.fake: plan: ranks 0 and 5 plan different answers: 0 "
                   "and 3");
    put_layout(&fake.odd_plan);
    fake.odd_plan.micro_multiple = 2;
    expect_layouts("train.fake: plan: ranks 0 and 5 plan different "
                   "micro_multiple: 1 and 2");
    put_layout(&fake.odd_plan);
    fake.odd_plan.token_multiple = 4;
    expect_layouts("train.fake: plan: ranks 0 and 5 plan different "
                   "token_multiple: 1 and 4");
    put_layout(&fake.odd_plan);
    fake.odd_plan.segments = XRAY_SEGMENTS_IN_RUNS;
    expect_layouts("train.fake: plan: ranks 0 and 5 plan different segments: 0 "
                   "and 1");
}

static void plans_without_sense_are_refused(void **state)
{
    (void)state;
    static const struct {
        xray_axis axes[2];
        uint32_t count;
        uint32_t answers;
        const char *want;
    } cases[] = {
        { { { .name = "tp", .size = 0 } },
          1,
          0,
          "the axis tp has 0 ranks, expected at least 1 and a width below "
          "2^32" },
        { { { .name = "tp", .size = 1u << 16 },
            { .name = "pp", .size = 1u << 16 } },
          2,
          0,
          "the axis pp has 65536 ranks, expected at least 1 and a width below "
          "2^32" },
        { { { .name = "dp", .size = 2 } },
          1,
          0,
          "axis 0 has the name \"dp\", which is the core's" },
        { { { .name = "tp", .size = 2 }, { .name = "tp", .size = 2 } },
          2,
          0,
          "axis 1 has the name \"tp\", which another axis has" },
        { { { .name = NULL, .size = 2 } },
          1,
          0,
          "axis 0 has the name \"\", expected 1 to 31 characters" },
        { { { .name = "tp", .size = 2 } },
          1,
          2,
          "rank 2 of a replica of 2 ranks is to answer" },
        { { { .name = "tp", .size = 2 } },
          9,
          0,
          "9 axes, expected a list of at most 8" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char want[200];
        fake.axes = cases[i].axes;
        fake.axis_count = cases[i].count;
        fake.answers = cases[i].answers;
        (void)snprintf(want, sizeof(want), "train.fake: plan: %s",
                       cases[i].want);
        expect_layouts(want);
    }
}

/* ---- batches ------------------------------------------------------------ */

static void engines_share_the_sequences(void **state)
{
    (void)state;
    read_ini(INI("4", ""));
    assert_true(run.rollout.load.rows == 3); /* 10 on 4 */
    fake.engine_width = 2;
    expect_layouts("");
    assert_true(run.rollout.load.rows == 5); /* 10 on 2 */
    assert_int_equal(xr_run_layout(&run, XRAY_ROLE_ROLLOUT)->replicas, 2);
    /* The tools set the number themselves. */
    xr_run_set_workloads(&run, 30, 10, 7);
    expect_layouts("");
    assert_true(run.rollout.load.rows == 7);
}

/* The bound of a micro-batch leaves room for padding. */
static void micro_batches_hold_a_multiple_of_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *more;
        uint64_t multiple;
        uint64_t tokens; /* 0: refused */
        const char *want;
    } cases[] = {
        { "[actor]\nppo_max_token_len_per_gpu = 30\n", 8, 24, "" },
        { "[actor]\nppo_max_token_len_per_gpu = 16\n", 8, 16, "" },
        { "[actor]\nppo_max_token_len_per_gpu = 15\n", 8, 16,
          "run.ini:11: [actor] ppo_max_token_len_per_gpu 15 cannot hold a row "
          "of 10 tokens that train.fake pads to a multiple of 8, expected at "
          "least 16" },
        { "[actor]\nppo_max_token_len_per_gpu = 30\n", 100, 100,
          "run.ini:11: [actor] ppo_max_token_len_per_gpu 30 cannot hold a row "
          "of 10 tokens that train.fake pads to a multiple of 100, expected at "
          "least 100" },
        { "[actor]\nshare_prompts = true\nppo_max_token_len_per_gpu = 31\n", 8,
          24,
          "run.ini:12: [actor] ppo_max_token_len_per_gpu 31 cannot hold a "
          "group of 30 tokens that train.fake pads to a multiple of 8, "
          "expected at least 32" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char ini[400];
        (void)snprintf(ini, sizeof(ini), INI("4", "%s"), cases[i].more);
        fake.token_multiple = cases[i].multiple;
        run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
        read_ini(ini);
        expect_layouts(cases[i].want);
        assert_true(xr_run_workload(&run, XRAY_ROLE_ACTOR).tokens ==
                    cases[i].tokens);
        assert_true(xr_run_workload(&run, XRAY_ROLE_REFERENCE).tokens ==
                    cases[i].tokens);
    }
    fake.token_multiple = 8;
    read_ini(INI("4", "[actor]\nppo_max_token_len_per_gpu = 30\n"
                      "[critic]\nppo_max_token_len_per_gpu = 12\n"));
    expect_layouts("run.ini:13: [critic] ppo_max_token_len_per_gpu 12 cannot "
                   "hold a row of 10 tokens that train.fake pads to a multiple "
                   "of 8, expected at least 16");
}

/* Replicas of four ranks. */
static void segments_are_divided_among_replicas(void **state)
{
    (void)state;
    static const struct {
        const char *run;
        const char *more;
        uint32_t segments;
        const char *want;
    } cases[] = {
#define KEY "run.ini:3: [run] layout_segments: "
        { "8\nlayout_segments = 6", "", XRAY_SEGMENTS_IN_RUNS,
          KEY "6 is not a power of two" },
        { "12\nlayout_segments = 4", "", XRAY_SEGMENTS_IN_RUNS,
          KEY
          "the 3 replicas of actor do not divide 4 segments, expected a power "
          "of two up to 4 of them" },
        { "8\nlayout_segments = 2", "", 0,
          KEY
          "train.fake cannot add up gradients in 2 segments, expected 0, or "
          "a backend that can" },
        { "8\nlayout_segments = 4", "[actor]\nppo_max_token_len_per_gpu = 60\n",
          XRAY_SEGMENTS_IN_TURN, "" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char ini[400];
        (void)snprintf(ini, sizeof(ini), INI("%s", "%s"), cases[i].run,
                       cases[i].more);
        fake.segments = cases[i].segments;
        read_ini(ini);
        expect_layouts(cases[i].want);
    }
    read_ini(INI("8\nlayout_segments = 4", "[actor]\nshuffle = true\n"
                                           "ppo_max_token_len_per_gpu = 59\n"));
    expect_layouts("run.ini:13: [actor] ppo_max_token_len_per_gpu 59 cannot "
                   "hold one of 4 segments of the mini-batch, of up to 6 rows "
                   "of 10 tokens, which train.fake computes at once; expected "
                   "at least 60, or more layout_segments");
}

/* ---- memory ------------------------------------------------------------- */

static void make_plan(xr_resources *out)
{
    xr_errors_free(&errors);
    xr_resources_plan(&run, &errors, out);
    if (errors.count)
        fail_msg("%s", errors.items[0]);
}

/* Stages need different memory: the fullest device counts, or the sum where all
 * ranks share the host's. */
static void memory_is_planned_by_rank(void **state)
{
    (void)state;
    xr_resources r;
    run.with &= ~XR_WITH_INFER;
    run.infer.component = NULL;
    run.with &= ~XR_TRAINABLE; /* so that no rows are counted */
    fake.bytes[2] = 9000;
    make_plan(&r);
    assert_int_equal(r.count, 2);
    assert_true(r.parts[0].bytes == 9005 && r.parts[0].fullest == 2);
    assert_true(r.parts[0].least == 1005 && r.parts[0].ranks == 8);
    assert_true(r.parts[0].plan.bytes[XRAY_TAG_WEIGHTS] == 9000);
    /* 1000 + ... + 1700, with 9000 in place of 1200. */
    assert_true(r.tags[XRAY_TAG_WEIGHTS] == 10800 + 7800);
    assert_true(r.tags[XRAY_TAG_OPTIMIZER] == 8 * 5);
    assert_true(r.bytes == 18600 + 40);
    fake.host_memory = 0;
    make_plan(&r);
    assert_true(r.bytes == 9005 && r.tags[XRAY_TAG_WEIGHTS] == 9000);
    /* Models on other ranks are on other devices. */
    run.needs = XRAY_NEED_CRITIC;
    read_ini(INI("8", "[placement]\nactor = 0-3\ncritic = 4-7\n"));
    make_plan(&r);
    assert_int_equal(r.count, 3);
    assert_true(r.parts[1].bytes == 1705 && r.parts[1].fullest == 3);
    assert_true(r.bytes == 9005);
    read_ini(INI("8", "[placement]\nactor = 0-3\ncritic = 2-5\n"));
    make_plan(&r);
    assert_true(r.bytes == 18010); /* both on rank 2 */
}

/* Of a model that the core cannot parse, a checkpoint holds one replica. */
static void a_checkpoint_holds_one_replica(void **state)
{
    (void)state;
    xr_resources r;
    make_plan(&r);
    assert_true(r.parameters == 0);
    assert_true(r.checkpoint_bytes == 1000 + 1100 + 1200 + 1300 + 4 * 5);
}

static void check_and_plan_print_the_layout(void **state)
{
    (void)state;
    xr_str out = { 0 };
    xr_errors warnings = { 0 };
    run.needs = XRAY_NEED_CRITIC;
    run.plannable = 1;
    fake.memory_bytes = 1 << 20;
    xr_errors_free(&errors);
    xr_check_run(&run, &out, &errors, &warnings);
    const char *text = xr_str_text(&out);
    assert_non_null(strstr(text, "ranks of train.fake: 2 replicas of 4 (tp 2, "
                                 "pp 2)\n"));
    assert_null(strstr(text, "ranks of infer.fake"));
    assert_non_null(strstr(text, "memory of train.fake: weights 1.7 KiB, "
                                 "optimizer 0.0 KiB, in all 1.7 KiB on rank 7, "
                                 "the fullest of 8\n"));
    assert_non_null(strstr(text, "memory of infer.fake: kv 0.1 KiB, in all 0.1 "
                                 "KiB on each of 8 ranks\n"));
    assert_non_null(strstr(text, "memory of the run: "));
    xr_str_free(&out);
    xr_errors_free(&warnings);
}

/* Of a device that does not say how much memory it has, only the parts. */
static void check_compares_with_no_unknown_memory(void **state)
{
    (void)state;
    xr_str out = { 0 };
    xr_errors warnings = { 0 };
    run.needs = XRAY_NEED_CRITIC;
    run.plannable = 1;
    fake.memory_bytes = 0;
    xr_errors_free(&errors);
    xr_check_run(&run, &out, &errors, &warnings);
    assert_non_null(strstr(xr_str_text(&out), "memory of train.fake: "));
    assert_null(strstr(xr_str_text(&out), "memory of the run: "));
    xr_str_free(&out);
    xr_errors_free(&warnings);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_run, end_run)
    const struct CMUnitTest tests[] = {
        CASE(layouts_begin_with_single_ranks),
        CASE(replicas_have_the_ranks_that_the_axes_span),
        CASE(ranks_that_do_not_form_replicas_are_refused),
        CASE(plans_that_contradict_each_other_are_refused),
        CASE(plans_without_sense_are_refused),
        CASE(engines_share_the_sequences),
        CASE(micro_batches_hold_a_multiple_of_tokens),
        CASE(segments_are_divided_among_replicas),
        CASE(memory_is_planned_by_rank),
        CASE(a_checkpoint_holds_one_replica),
        CASE(check_and_plan_print_the_layout),
        CASE(check_compares_with_no_unknown_memory),
    };
    return cmocka_run_group_tests_name("rl.layouts", tests, NULL, NULL);
}
