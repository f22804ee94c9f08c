/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a run checks before anything is loaded: batch arithmetic at its
 * bounds, workloads, locations of keys, and models besides the policy.
 */
#include "core/base/str.h"
#include "core/run/reward_model.h"
#include "core/run/run.h"
#include "core/run/run_setup.h"
#include "tests/scratch.h"

static xr_run run;

static int begin_run(void **state)
{
    (void)state;
    run = (xr_run){ .config = xr_config_new(),
                    .with = XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_ALGO |
                            XR_TRAINABLE };
    xr_run_config *ini = &run.ini;
    static const char *const files[] = { "/dev/null" };
    ini->data.train_files = (xray_list){ .items = files, .count = 1 };
    ini->data.max_prompt_length = 6;
    ini->data.max_response_length = 4;
    ini->data.train_batch_size = 8;
    ini->rollout.n = 3;
    ini->rollout.max_num_seqs = 5;
    ini->actor.ppo_max_token_len_per_gpu = 10;
    ini->sft.max_token_len = 10;
    ini->sft.train_batch_size = 9;
    ini->run.threads = 7;
    run.actor.model.max_positions = 10;
    run.placement.actor.count = run.placement.rollout.count = 1;
    return 0;
}

static int end_run(void **state)
{
    (void)state;
    xr_config_free(run.config);
    free(run.critic.path);
    free(run.critic.json);
    return 0;
}

static void read_ini(const char *text)
{
    xr_errors errors = { 0 };
    char path[300];
    (void)snprintf(path, sizeof(path), "%s", scratch_write("run.ini", text));
    xr_config_read(run.config, path, &errors);
    assert_int_equal(errors.count, 0);
}

/* Expects one error without its folder, or none. */
static void expect_one(xr_errors *errors, const char *want)
{
    assert_int_equal(errors->count, *want ? 1 : 0);
    if (*want) {
        const char *at = strstr(errors->items[0], "run.ini:");
        assert_string_equal(at ? at : errors->items[0], want);
    }
    xr_errors_free(errors);
}

static void expect_batch(const char *want)
{
    xr_errors errors = { 0 };
    /* Each check looks for the files that were named. */
    const xray_list train = run.ini.data.train_files;
    const xray_list val = run.ini.data.val_files;
    xr_run_check_batch(&run, &errors);
    expect_one(&errors, want);
    run.ini.data.train_files = train;
    run.ini.data.val_files = val;
    for (size_t i = 0; i < 2; i++)
        xr_file_list_free(&run.data_files[i]);
}

/* ---- batches ------------------------------------------------------------ */

static void rows_fit_at_their_bounds(void **state)
{
    (void)state;
    xr_run_config *ini = &run.ini;
    expect_batch(""); /* 6 + 4 in 10 */
    assert_int_equal(run.plannable, 1);
    ini->actor.ppo_max_token_len_per_gpu = 9;
    ini->sft.max_token_len = 9;
    expect_batch("configuration: [actor] ppo_max_token_len_per_gpu 9 is below "
                 "the longest row: max_prompt_length 6 + max_response_length "
                 "4");
    assert_int_equal(run.plannable, 1);
    run.with &= ~XR_WITH_ALGO;
    expect_batch("configuration: [sft] max_token_len 9 is below the longest "
                 "row: max_prompt_length 6 + max_response_length 4");
    ini->sft.max_token_len = 10;
    expect_batch("");
    run.with |= XR_WITH_ALGO;
    ini->actor.ppo_max_token_len_per_gpu = 11;
    ini->data.max_response_length = 5;
    expect_batch("configuration: [data] max_prompt_length 6 + "
                 "max_response_length 5 is more than the model's "
                 "max_position_embeddings 10");
    assert_int_equal(run.plannable, 0);
    run.actor.model.max_positions = 0; /* unknown */
    expect_batch("");
    assert_int_equal(run.plannable, 1);
    /* Without training nothing is cut into micro-batches. */
    ini->actor.ppo_max_token_len_per_gpu = 1;
    run.with = XR_WITH_INFER | XR_WITH_REWARD;
    ini->data.train_files.count = 0;
    expect_batch("");
    run.with = XR_WITH_INFER;
    run.plannable = 0;
    expect_batch("");
    assert_int_equal(run.plannable, 0); /* score and generate */
}

static void mini_batches_must_divide_the_batch(void **state)
{
    (void)state;
    static const int64_t fine[] = { 0, 1, 2, 4, 8 };
    for (size_t i = 0; i < 5; i++) {
        run.ini.actor.ppo_mini_batch_size = fine[i];
        expect_batch("");
    }
    run.ini.actor.ppo_mini_batch_size = 3;
    expect_batch("configuration: [actor] ppo_mini_batch_size 3 does not divide "
                 "[data] train_batch_size 8");
    run.ini.actor.ppo_mini_batch_size = 16;
    expect_batch("configuration: [actor] ppo_mini_batch_size 16 does not "
                 "divide [data] train_batch_size 8");
    run.with &= ~XR_WITH_ALGO; /* sft does not have it */
    expect_batch("");
}

/* A step has at most 2^31 - 1 tokens. */
static void too_large_steps_are_refused(void **state)
{
    (void)state;
    xr_run_config *ini = &run.ini;
    ini->rollout.n = 1;
    ini->data.train_batch_size = 214748364;
    expect_batch("");
    ini->data.train_batch_size = 214748365;
    expect_batch("configuration: [data] train_batch_size 214748365 x 1 samples "
                 "x 10 tokens of a row is more than the 2147483647 tokens a "
                 "step can have");
    ini->rollout.n = 2;
    ini->data.train_batch_size = 107374182;
    expect_batch("");
    ini->data.train_batch_size = 107374183;
    expect_batch("configuration: [data] train_batch_size 107374183 x 2 samples "
                 "x 10 tokens of a row is more than the 2147483647 tokens a "
                 "step can have");
    run.with &= ~XR_WITH_ALGO;
    ini->sft.train_batch_size = 214748364; /* one sample per row */
    expect_batch("");
    ini->sft.train_batch_size = 214748365;
    expect_batch("configuration: [sft] train_batch_size 214748365 x 1 samples "
                 "x 10 tokens of a row is more than the 2147483647 tokens a "
                 "step can have");
}

static void groups_must_fit_a_micro_batch(void **state)
{
    (void)state;
    xr_dealing deal = { "critic", 1, 0, 30 }; /* 3 rows of 10 */
    xr_errors errors = { 0 };
    xr_run_check_groups(&run, &deal, &errors);
    expect_one(&errors, "");
    deal.micro = 29;
    xr_run_check_groups(&run, &deal, &errors);
    expect_one(&errors, "configuration: [critic] ppo_max_token_len_per_gpu 29 "
                        "cannot hold a group of 3 samples of 6 + 4 tokens, "
                        "expected at least 30 with share_prompts");
    deal.share_prompts = 0;
    deal.shuffle = 1;
    xr_run_check_groups(&run, &deal, &errors);
    expect_one(&errors, "");
    deal = (xr_dealing){ "actor", 1, 1, 30 };
    xr_run_check_groups(&run, &deal, &errors);
    expect_one(
        &errors,
        "configuration: [actor] shuffle separates the samples of a prompt, "
        "which share_prompts keeps together: one of the two must be false");
    run.ini.actor.share_prompts = 1; /* the actor's own keys are used */
    run.ini.actor.ppo_max_token_len_per_gpu = 30;
    expect_batch("");
    run.ini.actor.shuffle = 1;
    expect_batch(
        "configuration: [actor] shuffle separates the samples of a prompt, "
        "which share_prompts keeps together: one of the two must be false");
}

/* A refused value is not reported again because of its default. */
static void refused_values_are_not_blamed_again(void **state)
{
    (void)state;
    static const struct {
        const char *ini;
        int short_micro;
    } cases[] = {
        { "[data]\nmax_prompt_length = x\n", 1 },
        { "[data]\nmax_response_length = x\n", 1 },
        { "[actor]\nppo_max_token_len_per_gpu = x\n", 1 },
        { "[actor]\nppo_mini_batch_size = x\n", 0 },
        { "[data]\ntrain_batch_size = x\n", 0 },
        { "[data]\ntrain_files = ,\n", 0 },
        { "[actor]\nshuffle = x\n", 0 },
        { "[actor]\nshare_prompts = x\n", 0 },
        { "[rollout]\nn = x\n", 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_errors errors = { 0 };
        xr_run_config decoded;
        if (run.config)
            (void)end_run(NULL);
        (void)begin_run(NULL);
        read_ini(cases[i].ini);
        xr_run_decode(run.config, &decoded, &errors);
        assert_int_equal(errors.count, 1);
        xr_errors_free(&errors);
        run.ini.actor.ppo_max_token_len_per_gpu = cases[i].short_micro ? 9 : 10;
        run.ini.actor.ppo_mini_batch_size = cases[i].short_micro ? 0 : 3;
        if (i == 5) {
            run.ini.data.train_files.count = 0;
            run.ini.actor.ppo_mini_batch_size = 0;
        }
        if (i >= 6) { /* a group that has space for one row, or is divided */
            run.ini.actor.ppo_mini_batch_size = 0;
            run.ini.actor.share_prompts = 1;
            run.ini.actor.shuffle = i == 6;
            run.ini.actor.ppo_max_token_len_per_gpu = i == 6 ? 30 : 10;
        }
        expect_batch("");
    }
}

#define NO_DATA                                                                \
    "configuration: [data] train_files: /dev: the folder holds no data files " \
    "(.jsonl, .json, .csv, .tsv, .parquet, .arrow or .feather)"

static void unreadable_files_are_reported(void **state)
{
    (void)state;
    static const char *const missing[] = { "/dev/null", "/no/such" };
    static const char *const folder[] = { "/dev" };
    xr_data_section *data = &run.ini.data;
    data->val_files = (xray_list){ .items = missing, .count = 2 };
    expect_batch("configuration: [data] val_files: cannot read /no/such: No "
                 "such file or directory");
    data->val_files.count = 1;
    data->chat_template = "/dev";
    expect_batch("configuration: [data] chat_template: /dev is a folder, not a "
                 "file");
    data->chat_template = "";
    data->train_files = (xray_list){ .items = folder, .count = 1 };
    expect_batch(NO_DATA);
    run.with = XR_WITH_INFER | XR_WITH_REWARD; /* eval reads none */
    expect_batch("");
    data->val_split = 0.1; /* unless it takes the validation set from them */
    expect_batch(NO_DATA);
    run.with |= XR_TRAINABLE | XR_WITH_ALGO;
    data->train_files.count = 0;
    expect_batch("configuration: [data] train_files is not set");
}

/* ---- workloads ---------------------------------------------------------- */

static void workloads_follow_the_keys(void **state)
{
    (void)state;
    run.ini.actor.trainable_from_layer = 4;
    run.ini.rollout.share_weights = XR_SHARE_AUTO;
    xr_run_set_workloads(&run, 25, 10, 5);
    const xray_workload *t = &run.actor.load;
    const xray_workload *i = &run.rollout.load;
    assert_true(t->tokens == 25 && t->rows == 13 && t->row_tokens == 10);
    assert_int_equal(t->outputs, XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY);
    assert_true(t->trainable == 1 && t->shared == 0);
    assert_int_equal(t->trainable_from_layer, 4);
    assert_true(i->tokens == 25 && i->rows == 5 && i->row_tokens == 10);
    assert_true(i->trainable == 0 && i->shared == 1);
    xr_run_set_workloads(&run, 9, 10, 5); /* at least one row fits */
    assert_true(t->tokens == 10 && t->rows == 6);
    run.ini.rollout.share_weights = XR_SHARE_OFF;
    run.with &= ~(XR_WITH_ALGO | XR_TRAINABLE);
    xr_run_set_workloads(&run, 25, 10, 5);
    assert_true(i->shared == 0 && t->trainable == 0);
    assert_int_equal(t->trainable_from_layer, 0);
    run.ini.rollout.share_weights = XR_SHARE_AUTO;
    run.placement.rollout.count = 2;
    xr_run_set_workloads(&run, 25, 10, 5);
    assert_true(i->shared == 0); /* engines on ranks of their own */
    run.placement.rollout.count = 1;
    run.with &= ~XR_WITH_TRAIN;
    xr_run_set_workloads(&run, 25, 10, 5);
    assert_true(i->shared == 0);
    run.actor.load =
        (xray_workload){ .tokens = 1,
                         .trainable = 1,
                         .trainable_from_layer = 3,
                         .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_VALUE };
    run.critic.load.tokens = 2;
    run.reward_model.load.tokens = 3;
    run.rollout.load.tokens = 4;
    static const uint64_t tokens[] = { 0, 1, 1, 2, 4, 3 };
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++)
        assert_int_equal(xr_run_workload(&run, role).tokens, tokens[role]);
    const xray_workload frozen = xr_run_workload(&run, XRAY_ROLE_REFERENCE);
    assert_true(frozen.trainable == 0 && frozen.trainable_from_layer == 0);
    assert_int_equal(frozen.outputs, XRAY_OUTPUT_LOGP);
    assert_int_equal(xr_run_workload(&run, XRAY_ROLE_ACTOR).trainable, 1);
}

static void ranks_and_runtimes_are_remote(void **state)
{
    (void)state;
    static const struct {
        int64_t ranks;
        const char *runtime;
        int remote;
    } cases[] = {
        { 1, "auto", 0 }, { 2, "auto", 1 }, { 1, "local", 1 }, { 1, "x", 1 }
    };
    for (size_t i = 0; i < 4; i++) {
        run.ini.run.ranks = cases[i].ranks;
        run.ini.run.runtime = cases[i].runtime;
        assert_int_equal(xr_run_is_remote(&run), cases[i].remote);
    }
}

/* ---- locations of keys -------------------------------------------------- */

static void expect_location(xr_err *err, const char *want)
{
    xr_run_locate(&run, err);
    const char *at = strstr(err->text, "run.ini");
    assert_string_equal(at ? at : err->text, want);
}

static void errors_name_the_location_of_keys(void **state)
{
    (void)state;
    xr_err err;
    read_ini("[reward.x]\npattern = a\n[data]\nseed = 3\n");
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "reward.x", "pattern", " is bad");
    expect_location(&err, "run.ini:2: [reward.x] pattern is bad");
    expect_location(&err, "run.ini:2: [reward.x] pattern is bad");
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "data", "seed", ": bad");
    (void)xr_fail_in(&err, XRAY_E_CONFIG, "rank 3");
    expect_location(&err, "run.ini:4: [data] seed: bad");
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "data", "none", ": bad");
    expect_location(&err, "run.ini: [data] none: bad");
    /* An option of no section, and text that only looks like a key. */
    (void)xr_fail_key(&err, XRAY_E_CONFIG, NULL, "pattern", ": bad");
    expect_location(&err, "pattern: bad");
    (void)xr_fail(&err, XRAY_E_CONFIG, "rows: [data] seed: bad");
    expect_location(&err, "rows: [data] seed: bad");
    (void)xr_fail(&err, XRAY_E_CONFIG, "[data] seed: bad");
    expect_location(&err, "[data] seed: bad");
}

/* ---- a critic ----------------------------------------------------------- */

static xray_status critic_loss(const void *context, uint64_t size,
                               const xray_loss_call *call,
                               xray_metric_sums *sums)
{
    (void)context;
    (void)size;
    (void)call;
    (void)sums;
    return XRAY_OK;
}

static void expect_needs(uint32_t needs, const char *want)
{
    xr_errors errors = { 0 };
    xr_run_apply_needs(&run, needs, &errors);
    assert_int_equal(run.needs, needs);
    expect_one(&errors, want);
}

static void needs_of_algorithms_are_applied(void **state)
{
    (void)state;
    static const xray_algo_ops without = { .header =
                                               XRAY_HEADER(xray_algo_ops) };
    static const xray_algo_ops with = { .header = XRAY_HEADER(xray_algo_ops),
                                        .critic_loss = critic_loss };
    xr_run_config *ini = &run.ini;
    uint32_t needs = 0;
    run.algo = (xr_part){ .ops = &without, .instance = "algo.fake" };
    run.plannable = 1;
    ini->actor.trainable_from_layer = 2; /* a critic trains all of its own */
    xr_run_set_workloads(&run, 25, 10, 5);
    expect_needs(needs, "");
    assert_int_equal(run.actor.load.outputs,
                     XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY);
    ini->trainer.critic_warmup = 1;
    expect_needs(
        needs,
        "configuration: [trainer] critic_warmup: algo.fake has no critic, so "
        "steps without updates of the policy would train nothing");
    needs = XRAY_NEED_CRITIC;
    ini->critic.ppo_max_token_len_per_gpu = 10;
    expect_needs(needs, "algo.fake needs a critic, but has no loss for it "
                        "(critic_loss)");
    run.algo.ops = &with;
    ini->critic.ppo_max_token_len_per_gpu = 30;
    run.actor.model.config_json = "{}";
    expect_needs(needs, ""); /* the critic starts from the policy's weights */
    assert_ptr_equal(xr_run_model(&run, XRAY_ROLE_CRITIC), &run.actor.model);
    const xray_workload *c = &run.critic.load;
    assert_true(c->tokens == 30 && c->rows == 16 && c->row_tokens == 10);
    assert_true(c->outputs == XRAY_OUTPUT_VALUE && c->trainable == 1);
    assert_int_equal(c->trainable_from_layer, 0);
    assert_int_equal(run.actor.load.outputs,
                     XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY);
    ini->critic.ppo_max_token_len_per_gpu = 9;
    expect_needs(needs,
                 "configuration: [critic] ppo_max_token_len_per_gpu 9 is below "
                 "the longest row of 10 tokens");
    assert_true(c->tokens == 10 && c->rows == 6);
    ini->actor.ppo_max_token_len_per_gpu = 9; /* reported already */
    expect_needs(needs, "");
    ini->critic.ppo_max_token_len_per_gpu = 10;
    ini->critic.ppo_mini_batch_size = 3;
    expect_needs(needs,
                 "configuration: [critic] ppo_mini_batch_size 3 does not "
                 "divide [data] train_batch_size 8");
    ini->actor.ppo_mini_batch_size = 3;
    expect_needs(needs, "");
    ini->critic.ppo_mini_batch_size = 4;
    ini->critic.share_prompts = 1;
    expect_needs(needs, "configuration: [critic] ppo_max_token_len_per_gpu 10 "
                        "cannot hold a group of 3 samples of 6 + 4 tokens, "
                        "expected at least 30 with share_prompts");
    run.plannable = 0;
    expect_needs(needs, "");
    needs |= XRAY_NEED_VALUE_HEAD;
    expect_needs(needs,
                 "algo.fake needs a critic and a value head of the policy's "
                 "own, expected one of them");
    needs = XRAY_NEED_VALUE_HEAD;
    ini->trainer.critic_warmup = 0;
    expect_needs(needs, "");
    assert_int_equal(run.actor.load.outputs, XRAY_OUTPUT_LOGP |
                                                 XRAY_OUTPUT_ENTROPY |
                                                 XRAY_OUTPUT_VALUE);
    run.with &= ~XR_WITH_TRAIN; /* there is nothing to prepare */
    run.critic.load.tokens = 7;
    expect_needs(XRAY_NEED_CRITIC, "");
    assert_int_equal(run.critic.load.tokens, 7);
}

/* config.json of a model besides the policy. */
static void side_models_must_fit_the_policy(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *want; /* sentence after the folder; "": accepted */
    } cases[] = {
        { "{\"vocab_size\":8,\"max_position_embeddings\":10}", "" },
        { "{\"vocab_size\":9}", "" }, /* as long as the policy's rows */
        { "{\"vocab_size\":1073741824,\"max_position_embeddings\":10}", "" },
        { "{\"vocab_size\":7}",
          "vocab_size is 7, expected at least the policy's 8" },
        { "{\"vocab_size\":1073741825}",
          "vocab_size is 1073741825, expected at least the policy's 8" },
        { "{\"vocab_size\":8,\"max_position_embeddings\":9}",
          "max_position_embeddings is 9, the longest row has 10 tokens" },
        { "[]", "must be a JSON object" },
    };
    char dir[300];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("beside"));
    assert_int_equal(xr_dir_make(dir, NULL), XRAY_OK);
    run.actor.model.vocab_size = 8;
    run.ini.model.init = XR_INIT_RANDOM;
    run.critic.load.row_tokens = 10;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_errors errors = { 0 };
        char want[600];
        xr_side_model side = { "critic.model", "path", dir, "critic",
                               &run.critic };
        (void)scratch_write("beside/config.json", cases[i].json);
        xr_run_side_model(&run, &side, &errors);
        (void)snprintf(want, sizeof(want),
                       "configuration: [critic.model] path: %s/config.json: %s",
                       dir, cases[i].want);
        expect_one(&errors, *cases[i].want ? want : "");
        assert_string_equal(run.critic.path, dir);
        if (!*cases[i].want) {
            assert_string_equal(run.critic.model.config_json, cases[i].json);
            assert_int_equal(run.critic.model.random_init, 1);
            assert_int_equal(run.critic.model.max_positions, 10);
            assert_true(run.critic.model.vocab_size >= 8);
        } else {
            assert_null(run.critic.model.config_json);
        }
        free(run.critic.path);
        free(run.critic.json);
        run.critic.path = run.critic.json = NULL;
    }
    /* A folder without weights is accepted with random initialization. */
    run.ini.model.init = XR_INIT_LOAD;
    xr_errors errors = { 0 };
    xr_side_model side = { "critic.model", "path", dir, "critic", &run.critic };
    (void)scratch_write("beside/config.json", cases[0].json);
    xr_run_side_model(&run, &side, &errors);
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.items[0], "[critic.model] path: "));
    assert_non_null(strstr(errors.items[0], " holds no weights, "));
    xr_errors_free(&errors);
}

/* Each row of a reward model has a token more than the policy's. */
static void reward_models_have_space_for_a_token_more(void **state)
{
    (void)state;
    char dir[300];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("scores"));
    xr_reward_model_config own = { .path = dir };
    assert_int_equal(xr_dir_make(dir, NULL), XRAY_OK);
    (void)scratch_write("scores/config.json",
                        "{\"vocab_size\":8,"
                        "\"max_position_embeddings\":11}");
    static const xray_algo_ops ops = { .header = XRAY_HEADER(xray_algo_ops) };
    run.algo = (xr_part){ .ops = &ops, .instance = "algo.fake" };
    run.plannable = 1;
    run.ini.model.init = XR_INIT_RANDOM;
    run.actor.model.config_json = "{}";
    run.actor.model.vocab_size = 8;
    run.actor.model.max_positions = 0;
    run.reward_model_config = &own;
    const xray_workload *r = &run.reward_model.load;
    for (uint64_t tokens = 10; tokens < 13; tokens++) {
        const uint64_t most = tokens < 11 ? 11 : tokens;
        xr_run_set_workloads(&run, tokens, 10, 5);
        expect_needs(0, "");
        assert_true(r->row_tokens == 11 && r->tokens == most);
        assert_true(r->rows == most && !r->trainable);
        assert_int_equal(r->outputs, XRAY_OUTPUT_VALUE);
        assert_string_equal(run.reward_model.path, dir);
        free(run.reward_model.path);
        free(run.reward_model.json);
        run.reward_model.path = run.reward_model.json = NULL;
    }
}

/* The model of a run's folder is that of its newest checkpoint. */
static void folders_of_runs_name_their_newest_checkpoint(void **state)
{
    (void)state;
    char buffer[XR_PATH_CAP];
    char dir[300];
    char want[400];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("run"));
    assert_int_equal(xr_dir_make(dir, NULL), XRAY_OK);
    assert_ptr_equal(xr_run_model_dir(dir, "actor", buffer, sizeof(buffer)),
                     dir);
    (void)scratch_write("run/latest_checkpointed_iteration.txt", "12\n");
    (void)snprintf(want, sizeof(want), "%s/global_step_12/critic", dir);
    assert_string_equal(xr_run_model_dir(dir, "critic", buffer, sizeof(buffer)),
                        want);
    assert_false(xr_run_has_weights(dir));
    (void)scratch_write("run/model.safetensors.index.json", "");
    assert_true(xr_run_has_weights(dir));
    assert_int_equal(remove(scratch_path("run/model.safetensors.index.json")),
                     0);
    (void)scratch_write("run/model.safetensors", "");
    assert_true(xr_run_has_weights(dir));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_run, end_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(rows_fit_at_their_bounds),
        CASE(mini_batches_must_divide_the_batch),
        CASE(too_large_steps_are_refused),
        CASE(groups_must_fit_a_micro_batch),
        CASE(refused_values_are_not_blamed_again),
        CASE(unreadable_files_are_reported),
        CASE(workloads_follow_the_keys),
        CASE(ranks_and_runtimes_are_remote),
        CASE(errors_name_the_location_of_keys),
        CASE(needs_of_algorithms_are_applied),
        CASE(side_models_must_fit_the_policy),
        CASE(reward_models_have_space_for_a_token_more),
        CASE(folders_of_runs_name_their_newest_checkpoint),
    };
    return cmocka_run_group_tests_name("rl.run", tests, scratch_make,
                                       scratch_drop);
}
