/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that rewards get the samples of Workhorses engine by engine.
 */
#include "tests/rl/whole_rig.h"
#include "tests/text/small_tokenizer.h"

static char given[256]; /* ids that the reward got, after how many looks */
static xray_status reward_answer;

static xray_status give_samples(void *self, const xray_sample_in *samples,
                                uint64_t count, uint64_t stride)
{
    size_t used = strlen(given);
    (void)self;
    assert_int_equal(stride, sizeof(*samples));
    assert_int_equal(count, 2);
    (void)snprintf(given + used, sizeof(given) - used, "%u: %u %u; ",
                   script.looks, (unsigned)samples[0].id,
                   (unsigned)samples[1].id);
    return XRAY_OK;
}

static xray_status answer_status(void *self, uint64_t wait_ns, xray_score *out)
{
    (void)self;
    (void)wait_ns;
    (void)out;
    return reward_answer;
}

/* A tokenizer with a word for each id of the scripted samples. */
static xm_tokenizer *make_wide_tokenizer(void)
{
    static char json[16384];
    int used = snprintf(json, sizeof(json),
                        "{\"model\":{\"type\":\"WordLevel\",\"unk_token\":"
                        "\"w0\",\"vocab\":{\"w0\":0");
    for (int i = 1; i < 500; i++)
        used += snprintf(json + used, sizeof(json) - (size_t)used,
                         ",\"w%d\":%d", i, i);
    (void)snprintf(json + used, sizeof(json) - (size_t)used, "}}}");
    return make_tokenizer(json);
}

/* Engines of ranks 1 and 2, of which rank 1 answers later. The rows of each
 * reach the rewards when it has answered; a reward that fails ends the call,
 * and the engines that still work are not waited for. */
static void rewards_get_the_rows_of_each_engine(void **state)
{
    static const xray_reward_ops ops = { .header = XRAY_HEADER(xray_reward_ops),
                                         .submit = give_samples,
                                         .poll = answer_status,
                                         .capabilities = XRAY_REWARD_BESIDE };
    static const xr_row row = {
        .prompt = "", .ground_truth = "", .data_source = "", .fields_json = "{}"
    };
    static const xr_row *const all[] = { &row, &row, &row, &row, &row };
    xr_samples s;
    (void)state;
    run.tokenizer = make_wide_tokenizer();
    run.rewards[0] = (xr_part){ .ops = &ops,
                                .instance = "reward.r",
                                .host = xr_host_new("reward.r", NULL) };
    run.reward_count = 1;
    for (int fails = 0; fails < 2; fails++) {
        assert_int_equal(xr_samples_init(&s, 10, 6, &whole_err), XRAY_OK);
        s.count = 10;
        s.n = 2;
        s.rows = all;
        for (uint32_t i = 0; i < 5; i++)
            s.missing[i] = 2;
        assert_int_equal(
            xr_scoring_begin(&roles, s.inputs, 10, &whole_err, &s.kept),
            XRAY_OK);
        s.scoring = s.kept;
        given[0] = '\0';
        script.looks = 0;
        script.late[1] = 3;
        reward_answer = fails ? XRAY_E_RANGE : XRAY_AGAIN;
        assert_int_equal(call_generate(&s, 5), fails ? XRAY_E_RANGE : XRAY_OK);
        assert_string_equal(given, fails ? "0: 2 3; 0: 6 7; "
                                         : "0: 2 3; 0: 6 7; 3: 0 1; 3: 4 5; 3: "
                                           "8 9; ");
        assert_int_equal(script.dropped, fails);
        xr_samples_free(&s);
    }
    assert_non_null(strstr(whole_err.text, "reward.r: poll failed"));
    run.reward_count = 0;
    xr_host_free(run.rewards[0].host);
    xm_tokenizer_close(run.tokenizer);
    run.tokenizer = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(rewards_get_the_rows_of_each_engine,
                                        whole_begin, whole_end),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
