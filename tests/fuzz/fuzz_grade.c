/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes graders. The first byte chooses one, or with 'M' all of math; the
 * ground truth up to the first NUL and then the response follow. Or the input
 * begins with options, one per line, and the ground truth, the prompt, the row
 * and the responses follow, each after a NUL. Scores are finite and the same
 * the second time.
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

static void report_line(void *ctx, uint32_t level, const char *instance,
                        const char *text)
{
    (void)ctx;
    (void)level;
    (void)instance;
    fuzz_saw_text("logged", text);
}

static void set_options(xr_config *config, const char *lines, xr_errors *errors)
{
    char assignment[1024];
    while (*lines) {
        size_t size = strcspn(lines, "\n");
        (void)snprintf(assignment, sizeof(assignment), "reward.x.%.*s",
                       (int)(size < 900 ? size : 900), lines);
        xr_config_set(config, assignment, errors);
        lines += size + (lines[size] == '\n');
    }
}

static void close_grader(grader *g)
{
    const xray_reward_ops *ops = find_component()->ops;
    ops->destroy(g->self);
    xr_host_free(g->host);
    free(g->options);
    xr_config_free(g->config);
}

/* Returns 0 if the options are refused. */
static int open_grader(const char *lines, grader *out)
{
    static const xr_log_sink sink = { .write = report_line };
    const xray_reward_ops *ops = find_component()->ops;
    xr_errors errors = { 0 };
    *out =
        (grader){ .config = xr_config_new(), .host = xr_host_new("x", &sink) };
    set_options(out->config, lines, &errors);
    out->options =
        xr_component_config(out->config, find_component(), "reward.x", &errors);
    xr_config_finish(out->config, &errors);
    int opened = !errors.count;
    for (size_t i = 0; i < errors.count; i++)
        fuzz_saw_text("refused", errors.items[i]);
    xr_errors_free(&errors);
    if (opened && ops->create(xr_host_api(out->host), out->options,
                              &out->self) != XRAY_OK) {
        xr_err err = { "" };
        (void)xr_host_error(out->host, XRAY_E_CONFIG, "create", &err);
        fuzz_said(&err);
        opened = 0;
    }
    if (!opened)
        close_grader(out);
    return opened;
}

static void grade_samples(const grader *g, const xray_sample_in *samples,
                          uint64_t count, double scores[])
{
    const xray_reward_ops *ops = find_component()->ops;
    FUZZ_CHECK(ops->submit(g->self, samples, count, sizeof(*samples)) ==
               XRAY_OK);
    for (uint64_t n = 0; n < count; n++) {
        xray_score score = { .header = XRAY_HEADER(xray_score) };
        FUZZ_CHECK(ops->poll(g->self, 0, &score) == XRAY_OK);
        FUZZ_CHECK(score.id < count && isfinite(score.score));
        fuzz_saw_rounded("score", score.score);
        scores[score.id] = score.score;
        for (uint32_t i = 0; i < score.value_count; i++) {
            FUZZ_CHECK(isfinite(score.values[i].value));
            fuzz_saw_rounded(score.values[i].name, score.values[i].value);
        }
    }
}

#define SAMPLES 4u
#define TOKENS 512u

/* The texts of an input that begins with options; the last one is the first
 * response. */
enum { OPTIONS, TRUTH, PROMPT, FIELDS, RESPONSE, TEXTS = RESPONSE + SAMPLES };

/* Every byte of a response is a token. */
static void make_sample(const char *const texts[], uint64_t which,
                        const char *end, int32_t ids[TOKENS],
                        xray_sample_in *out)
{
    const char *response = texts[RESPONSE + which];
    size_t length = (size_t)(end - response);
    *out = (xray_sample_in){ .header = XRAY_HEADER(xray_sample_in),
                             .id = which,
                             .prompt = texts[PROMPT],
                             .prompt_size = strlen(texts[PROMPT]),
                             .response = response,
                             .response_size = length,
                             .ground_truth = texts[TRUTH],
                             .data_source = "",
                             .fields_json = texts[FIELDS],
                             .ids = ids };
    while (out->id_count < length && out->id_count < TOKENS) {
        ids[out->id_count] = (unsigned char)response[out->id_count];
        out->id_count++;
    }
}

/* Grades the same samples twice. */
static void grade_texts(const char *const texts[], uint64_t count,
                        const char *end)
{
    static int32_t ids[SAMPLES][TOKENS];
    xray_sample_in samples[SAMPLES];
    double first[SAMPLES];
    double second[SAMPLES];
    grader g;
    for (uint64_t i = 0; i < count; i++)
        make_sample(texts, i, i + 1 < count ? texts[RESPONSE + i + 1] - 1 : end,
                    ids[i], &samples[i]);
    if (!open_grader(texts[OPTIONS], &g))
        return;
    grade_samples(&g, samples, count, first);
    grade_samples(&g, samples, count, second);
    FUZZ_CHECK(memcmp(first, second, count * sizeof(first[0])) == 0);
    close_grader(&g);
}

/* Splits the input at its NULs; further ones belong to the last response. */
static void grade_with_options(const char *text, size_t size)
{
    const char *texts[TEXTS] = { text };
    size_t count = 1;
    const char *end = text + size;
    for (const char *c = text; c < end && count < TEXTS; c++)
        if (!*c)
            texts[count++] = c + 1;
    for (; count <= RESPONSE; count++)
        texts[count] = count == FIELDS ? "{}" : end;
    grade_texts(texts, count - RESPONSE, end);
}

static void grade_by_number(const char *text, size_t size)
{
    const fuzz_two in = fuzz_split((const uint8_t *)text + 1, size - 1);
    const char *response = (const char *)in.second;
    const char *texts[TEXTS] = { "", text + 1, "", "{}", response };
    for (size_t i = 0; i < GRADERS; i++) {
        int is_math = strstr(settings[i], "=math") != NULL;
        if (text[0] == 'M' ? !is_math : (unsigned char)text[0] % GRADERS != i)
            continue;
        texts[OPTIONS] = settings[i];
        fuzz_saw_text("", settings[i]);
        grade_texts(texts, 1, response + in.second_size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    char *text = fuzz_text(data, size);
    if (data[0] >= 'a')
        grade_with_options(text, size);
    else
        grade_by_number(text, size);
    free(text);
    return 0;
}
