/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes graders: the first byte chooses one; the ground truth up to the first
 * NUL and then the response follow. The score is finite and the same the second
 * time.
 */
#include <math.h>

#include "core/plugin/plugin.h"
#include "tests/fuzz/fuzz.h"

const xray_plugin *xray_plugin_query_reward_rule(uint32_t host_abi);

typedef struct grader {
    xr_config *config; /* holds the texts of `options` */
    void *options;
    xr_host *host;
    void *self;
} grader;

static const char *const settings[] = {
    "grader=exact",     "grader=numeric",         "grader=gsm8k",
    "grader=math",      "grader=math_minerva",    "grader=math_prm800k",
    "grader=math_dapo", "grader=math_verify",     "grader=choice",
    "grader=qa",        "grader=search_r1",       "grader=format",
    "grader=tag_count", "grader=reasoning_steps", "grader=repetition",
    "grader=ifeval",    "grader=math_slime",      "grader=math_areal",
    "grader=gpqa",
};
#define GRADERS (sizeof(settings) / sizeof(settings[0]))

static const xray_component *find_component(void)
{
    return xray_plugin_query_reward_rule(XRAY_ABI)->components[0];
}

static void drop_line(void *ctx, uint32_t level, const char *instance,
                      const char *text)
{
    (void)ctx;
    (void)level;
    (void)instance;
    (void)text;
}

static void open_grader(size_t which, grader *out)
{
    static const xr_log_sink sink = { .write = drop_line };
    const xray_reward_ops *ops = find_component()->ops;
    char assignment[128];
    xr_errors errors = { 0 };
    out->config = xr_config_new();
    (void)snprintf(assignment, sizeof(assignment), "reward.x.%s",
                   settings[which]);
    xr_config_set(out->config, assignment, &errors);
    out->options =
        xr_component_config(out->config, find_component(), "reward.x", &errors);
    if (errors.count)
        (void)fprintf(stderr, "%s\n", errors.items[0]);
    FUZZ_CHECK(!errors.count);
    out->host = xr_host_new("x", &sink);
    FUZZ_CHECK(ops->create(xr_host_api(out->host), out->options, &out->self) ==
               XRAY_OK);
}

static double grade_sample(const grader *g, const xray_sample_in *sample)
{
    const xray_reward_ops *ops = find_component()->ops;
    xray_score score = { .header = XRAY_HEADER(xray_score) };
    FUZZ_CHECK(ops->submit(g->self, sample, 1, sizeof(*sample)) == XRAY_OK);
    FUZZ_CHECK(ops->poll(g->self, 0, &score) == XRAY_OK);
    FUZZ_CHECK(score.id == sample->id && isfinite(score.score));
    for (uint32_t i = 0; i < score.value_count; i++)
        FUZZ_CHECK(isfinite(score.values[i].value));
    return score.score;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static grader graders[GRADERS];
    if (!graders[0].self)
        for (size_t i = 0; i < GRADERS; i++)
            open_grader(i, &graders[i]);
    if (!size)
        return 0;
    fuzz_two in = fuzz_split(data + 1, size - 1);
    char *truth = fuzz_text(in.first, in.first_size);
    xray_sample_in sample = { .header = XRAY_HEADER(xray_sample_in),
                              .id = 7,
                              .prompt = "",
                              .response = (const char *)in.second,
                              .response_size = in.second_size,
                              .ground_truth = truth,
                              .data_source = "",
                              .fields_json = "{}" };
    const grader *g = &graders[data[0] % GRADERS];
    double first = grade_sample(g, &sample);
    FUZZ_CHECK(first == grade_sample(g, &sample));
    free(truth);
    return 0;
}
