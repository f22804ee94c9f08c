/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which parts a predicted step has, and with which model, layout and
 * work each of them is predicted. The times themselves are those of
 * core/run/step_time.h, which rl.step_time proves.
 */
#include "tests/testing.h"

#include "core/run/predict.h"

#define JSON(hidden)                                                       \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","  \
    "\"hidden_size\":" #hidden ",\"intermediate_size\":128,"               \
    "\"num_hidden_layers\":4,\"num_attention_heads\":4,"                   \
    "\"num_key_value_heads\":2,\"vocab_size\":1000,\"rms_norm_eps\":1e-5," \
    "\"max_position_embeddings\":512,\"hidden_act\":\"silu\","             \
    "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2}"

/* A step of 8 prompts with 4 samples each, of up to 16 + 48 tokens, in two
 * mini-batches and micro-batches of up to 192 tokens. */
enum { ROWS = 32, ROW = 64, PROMPT = 16, MICRO = 192 };

static xr_run run;
static xr_resources plans;
static xr_machine machine;
static xr_prediction got;

static void use_layout(uint32_t role, xr_layout layout)
{
    layout.micro_multiple = layout.micro_multiple ? layout.micro_multiple : 1;
    layout.token_multiple = 1;
    run.layouts[role] = layout;
}

static int make_run(void **state)
{
    static const xray_component component = { .name = "fake" };
    static struct xr_reward_model_config *const some = (void *)&run;
    xr_err err = { "" };
    (void)state;
    memset(&run, 0, sizeof(run));
    memset(&plans, 0, sizeof(plans));
    run.with = XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_ALGO | XR_TRAINABLE;
    run.needs = XRAY_NEED_CRITIC | XRAY_NEED_REFERENCE;
    run.reward_model_config = some;
    run.train.component = run.infer.component = &component;
    run.actor.model.config_json = JSON(64);
    run.actor.model.dtype = XRAY_BF16;
    run.critic.path = "critic";
    run.critic.model.config_json = JSON(32);
    run.reward_model.model.config_json = JSON(128);
    run.ini.data.max_prompt_length = PROMPT;
    run.ini.data.max_response_length = ROW - PROMPT;
    run.ini.data.train_batch_size = 8;
    run.ini.rollout.n = 4;
    run.ini.actor.ppo_epochs = 3;
    run.ini.critic.ppo_epochs = 5;
    run.ini.actor.ppo_mini_batch_size = 4;
    run.ini.actor.ppo_max_token_len_per_gpu = MICRO;
    run.rollout.load.rows = 10;
    run.rollout.load.shared = 1;
    run.placement.actor.count = 2;
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++)
        use_layout(role, (xr_layout){ .width = 1, .replicas = 1 });
    plans.parameters = 1000;
    assert_int_equal(xr_machine_read("h200", &err, &machine), XRAY_OK);
    return 0;
}

static void predict(void)
{
    xr_predict(&run, &plans, &machine, &got);
}

/* The names of the parts, in the order of a step. */
static void expect_parts(const char *want)
{
    char names[256] = "";
    double sum = 0;
    predict();
    for (size_t i = 0; i < got.count; i++) {
        const size_t used = strlen(names);
        (void)snprintf(names + used, sizeof(names) - used, "%s%s",
                       i ? ", " : "", got.parts[i].name);
        assert_true(got.parts[i].seconds == xr_times_sum(&got.parts[i].times));
        assert_true(got.parts[i].seconds > 0);
        sum += got.parts[i].seconds;
    }
    assert_string_equal(names, want);
    assert_true(got.seconds == sum);
}

static const xr_times *part_times(const char *name)
{
    for (size_t i = 0; i < got.count; i++)
        if (strcmp(got.parts[i].name, name) == 0)
            return &got.parts[i].times;
    fail_msg("there is no part %s", name);
    return NULL;
}

static void expect_times(const char *name, const xr_times *want, double times)
{
    const xr_times *is = part_times(name);
    for (int i = 0; i < XR_TIMES; i++) {
        const double due = want->of[i] * times;
        if (is->of[i] < due * 0.999999 || is->of[i] > due * 1.000001)
            fail_msg("%s: term %d is %g, expected %g", name, i, is->of[i], due);
    }
}

static xm_config read_config(const char *json, uint32_t dtype)
{
    xm_config config;
    assert_int_equal(xm_config_parse(json, "config.json", NULL, &config),
                     XRAY_OK);
    config.dtype = dtype;
    return config;
}

static xr_time_layout plain_layout(void)
{
    return (xr_time_layout){ .tensor = { 1, 1 },
                             .context = { 1, 1 },
                             .pipeline = { 1, 1 },
                             .data = { 1, 1 },
                             .chunks = 1,
                             .sum_bytes = 4,
                             .grad_bytes = 4,
                             .weight_bytes = 4 };
}

/* ---- cases --------------------------------------------------------------- */

static void a_step_has_the_parts_of_its_roles(void **state)
{
    (void)state;
    expect_parts("rollout, log-probs, reference, reward model, values, critic, "
                 "update");
    run.exact = 1; /* the rollout's log-probabilities are the trainer's */
    expect_parts("rollout, reference, reward model, values, critic, update");
    run.reward_model_config = NULL;
    expect_parts("rollout, reference, values, critic, update");
    run.needs = XRAY_NEED_REFERENCE;
    expect_parts("rollout, reference, update");
    run.needs = 0;
    expect_parts("rollout, update");
    /* An engine with a copy of its own, and one of sharded weights. */
    plans.parts[plans.count++] = (xr_part_plan){ .role = XRAY_ROLE_ACTOR };
    expect_parts("rollout, update");
    run.rollout.load.shared = 0;
    expect_parts("rollout, update, weights");
    run.rollout.load.shared = 1;
    plans.parts[0].plan.sharded = 1;
    expect_parts("rollout, update, weights");
    run.with = XR_WITH_TRAIN | XR_TRAINABLE; /* sft */
    run.ini.sft.train_batch_size = 6;
    run.ini.sft.max_token_len = MICRO;
    expect_parts("update");
    /* A model that is not known, and steps without rows. */
    run.ini.sft.train_batch_size = 0;
    expect_parts("");
    run.ini.sft.train_batch_size = 6;
    plans.parameters = 0;
    expect_parts("");
    plans.parameters = 1000;
    run.actor.model.config_json = "{}";
    expect_parts("");
}

/* Each role has its model: a value head has one row, and the type of the
 * products is that of the model. */
static void each_part_is_predicted_with_its_model(void **state)
{
    xr_time_layout layout = plain_layout();
    xm_config config = read_config(JSON(64), XRAY_BF16);
    const xr_time_model model = { &config, &machine, &layout };
    /* 2048 tokens in eleven micro-batches; 1024 tokens in six. */
    const xr_time_work all = { 2048 / 11.0, ROW, 11 };
    const xr_time_work mini = { 1024 / 6.0, ROW, 6 };
    const xr_time_rollout rollout = { ROWS, 10, PROMPT, 8, ROW - PROMPT };
    (void)state;
    predict();
    xr_times t = xr_time_sample(&model, &rollout);
    expect_times("rollout", &t, 1);
    t = xr_time_forward(&model, &all);
    expect_times("log-probs", &t, 1);
    expect_times("reference", &t, 1);
    t = xr_time_update(&model, &mini);
    expect_times("update", &t, 2 * 3);
    const double done = 3 * xr_time_flops(&config, ROW) * 2048 * 3;
    const double mfu = done / (machine.flops * 2 * 6 * xr_times_sum(&t));
    assert_true(got.mfu > mfu * 0.999999 && got.mfu < mfu * 1.000001);
    config = read_config(JSON(128), 0);
    config.vocab = 1;
    t = xr_time_forward(&model, &all);
    expect_times("reward model", &t, 1);
    config = read_config(JSON(32), 0);
    config.vocab = 1;
    t = xr_time_forward(&model, &all);
    expect_times("values", &t, 1);
    t = xr_time_update(&model, &mini);
    expect_times("critic", &t, 2 * 5);
    /* A critic without a folder begins as the policy; float32 has its own peak
     * rate. */
    run.critic.path = NULL;
    run.actor.model.dtype = 0;
    predict();
    config = read_config(JSON(64), 0);
    t = xr_time_update(&model, &mini);
    expect_times("update", &t, 2 * 3);
    const double slow = done / (machine.flops32 * 2 * 6 * xr_times_sum(&t));
    assert_true(got.mfu > slow * 0.999999 && got.mfu < slow * 1.000001);
    config.vocab = 1;
    t = xr_time_update(&model, &mini);
    expect_times("critic", &t, 2 * 5);
    /* Tokens of a prompt that its samples share are computed once. */
    run.ini.actor.share_prompts = 1;
    predict();
    config = read_config(JSON(64), 0);
    const double shared = 8 * PROMPT + ROWS * (ROW - PROMPT);
    const xr_time_work fewer = { shared / 2 / 5, ROW, 5 };
    t = xr_time_update(&model, &fewer);
    expect_times("update", &t, 2 * 3);
}

/* Axes are for stages, for tokens, or else divide layers; their ranks are as
 * far apart as those of the axes before take. */
static void layouts_are_those_of_the_plans(void **state)
{
    xr_time_layout layout = plain_layout();
    xm_config config = read_config(JSON(64), XRAY_BF16);
    const xr_time_model model = { &config, &machine, &layout };
    (void)state;
    use_layout(XRAY_ROLE_ACTOR,
               (xr_layout){ .width = 16,
                            .replicas = 2,
                            .micro_multiple = 4,
                            .axis_count = 3,
                            .axes = { { "tp", 2 },
                                      { XRAY_AXIS_CONTEXT, 4 },
                                      { XRAY_AXIS_PIPELINE, 2 } } });
    plans.parts[0] = (xr_part_plan){ .role = XRAY_ROLE_ACTOR };
    plans.parts[0].plan.chunks = 2;
    plans.parts[0].plan.sequence = 1;
    plans.parts[0].plan.recompute = 1;
    plans.parts[0].plan.bytes[XRAY_TAG_OPTIMIZER] = UINT64_C(1) << 40;
    plans.count = 1;
    layout.tensor = (xr_time_axis){ 2, 1 };
    layout.context = (xr_time_axis){ 4, 2 };
    layout.pipeline = (xr_time_axis){ 2, 8 };
    layout.data = (xr_time_axis){ 2, 16 };
    layout.chunks = 2;
    layout.sequence = 1;
    layout.again = 1;
    predict();
    /* 1024 tokens of each replica in six micro-batches, rounded up to eight. */
    const xr_time_work all = { 1024 / 8.0, ROW, 8 };
    const xr_time_work mini = { 512 / 4.0, ROW, 4 };
    xr_times t = xr_time_forward(&model, &all);
    expect_times("log-probs", &t, 1);
    t = xr_time_update(&model, &mini);
    expect_times("update", &t, 2 * 3);
    /* Two axes that divide layers are one. */
    run.layouts[XRAY_ROLE_ACTOR].axes[2] = (xr_axis){ "ep", 2 };
    layout.pipeline = (xr_time_axis){ 1, 1 };
    layout.tensor = (xr_time_axis){ 4, 1 };
    predict();
    t = xr_time_update(&model, &mini);
    expect_times("update", &t, 2 * 3);
}

/* Engines divide rows and prompts, and get the weights in their width. */
static void engines_divide_rows_and_prompts(void **state)
{
    xr_time_layout layout = plain_layout();
    xm_config config = read_config(JSON(64), XRAY_BF16);
    const xr_time_model model = { &config, &machine, &layout };
    const xr_time_rollout work = { ROWS / 4.0, 10, PROMPT, 2, ROW - PROMPT };
    (void)state;
    plans.parts[0] = (xr_part_plan){ .role = XRAY_ROLE_ACTOR };
    plans.count = 1;
    run.rollout.load.shared = 0;
    use_layout(XRAY_ROLE_ROLLOUT, (xr_layout){ .width = 2,
                                               .replicas = 4,
                                               .axis_count = 1,
                                               .axes = { { "tp", 2 } } });
    predict();
    xr_times t = xr_time_publish(&model, 2);
    expect_times("weights", &t, 1);
    layout.tensor = (xr_time_axis){ 2, 1 };
    layout.data = (xr_time_axis){ 4, 2 };
    t = xr_time_sample(&model, &work);
    expect_times("rollout", &t, 1);
}

/* The share of a rank in gradients and moments follows from its replicas. */
static void the_stage_of_zero_follows_from_the_plan(void **state)
{
    xr_time_layout layout = plain_layout();
    xm_config config = read_config(JSON(64), XRAY_BF16);
    const xr_time_model model = { &config, &machine, &layout };
    const double elements = (double)xm_config_param_count(&config);
    static const struct {
        double gradients, moments; /* bytes for each element */
        uint32_t replicas, sharded, zero;
    } cases[] = {
        { 4, 8, 2, 0, 0 }, { 4, 6.1, 2, 0, 0 }, { 4, 5.9, 2, 0, 1 },
        { 4, 4, 2, 0, 1 }, { 3.9, 4, 2, 0, 1 }, { 3.7, 4, 2, 0, 2 },
        { 2, 4, 2, 0, 2 }, { 2, 4, 2, 1, 3 },   { 2, 8, 2, 1, 0 },
        { 2, 4, 1, 1, 0 },
    };
    (void)state;
    plans.count = 1;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_part_plan *p = &plans.parts[0];
        const uint32_t replicas = cases[i].replicas;
        const xr_time_work mini = { replicas == 1 ? 1024 / 6.0 : 512 / 3.0, ROW,
                                    replicas == 1 ? 6 : 3 };
        use_layout(XRAY_ROLE_ACTOR,
                   (xr_layout){ .width = 1, .replicas = replicas });
        *p = (xr_part_plan){ .role = XRAY_ROLE_ACTOR };
        p->plan.sharded = cases[i].sharded;
        p->plan.bytes[XRAY_TAG_GRADS] =
            (uint64_t)(cases[i].gradients * elements);
        p->plan.bytes[XRAY_TAG_OPTIMIZER] =
            (uint64_t)(cases[i].moments * elements);
        layout.data.size = replicas;
        layout.zero = cases[i].zero;
        predict();
        const xr_times t = xr_time_update(&model, &mini);
        expect_times("update", &t, 2 * 3);
    }
    /* Models that are only read are shared if their weights are; their way is
     * longer than the pass. */
    machine.link = machine.network = 1e6;
    use_layout(XRAY_ROLE_REFERENCE, (xr_layout){ .width = 1, .replicas = 2 });
    plans.parts[0] = (xr_part_plan){ .role = XRAY_ROLE_REFERENCE };
    for (uint32_t sharded = 0; sharded < 2; sharded++) {
        const xr_time_work half = { 1024 / 6.0, ROW, 6 };
        plans.parts[0].plan.sharded = sharded;
        layout.data.size = 2;
        layout.zero = sharded ? 3 : 0;
        predict();
        const xr_times t = xr_time_forward(&model, &half);
        expect_times("reference", &t, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_step_has_the_parts_of_its_roles, make_run),
        cmocka_unit_test_setup(each_part_is_predicted_with_its_model, make_run),
        cmocka_unit_test_setup(layouts_are_those_of_the_plans, make_run),
        cmocka_unit_test_setup(engines_divide_rows_and_prompts, make_run),
        cmocka_unit_test_setup(the_stage_of_zero_follows_from_the_plan,
                               make_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
