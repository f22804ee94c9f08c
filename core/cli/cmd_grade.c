/* SPDX-License-Identifier: Apache-2.0
 *
 * xray grade: scores given responses with reward functions.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cli/json_lines.h"
#include "core/data/template.h"
#include "core/roles/rewards.h"

typedef struct grade {
    xr_run *run;
    xr_roles *roles;
    xr_str values; /* members of the answer after "score" */
} grade;

/* Appends a named value of the current line. With several instances, the name
 * of the instance is its prefix. */
static void put_named_value(void *ctx, size_t index, const char *instance,
                            const char *name, double value)
{
    grade *g = ctx;
    xr_str key = { 0 };
    (void)index;
    if (g->run->reward_count > 1 || strcmp(name, "score") == 0)
        xr_str_printf(&key, "%s/", instance);
    xr_str_puts(&key, name);
    xr_str_append(&g->values, ",", 1);
    xr_str_json(&g->values, xr_str_text(&key), key.size);
    xr_str_append(&g->values, ":", 1);
    xr_str_number(&g->values, value);
    xr_str_free(&key);
}

static void put_instance_scores(grade *g, const xr_score *score, xr_str *out)
{
    if (g->run->reward_count < 2)
        return;
    xr_str_puts(out, ",\"scores\":{");
    for (size_t i = 0; i < g->run->reward_count; i++) {
        const char *name = g->run->rewards[i].instance;
        if (i)
            xr_str_append(out, ",", 1);
        xr_str_json(out, name, strlen(name));
        xr_str_append(out, ":", 1);
        xr_str_number(out, score->parts[i]);
    }
    xr_str_append(out, "}", 1);
}

/* The optional keys of a line. */
typedef struct sample_parts {
    xr_str prompt;
    xr_str truth;
    int32_t *ids;
    size_t id_count;
} sample_parts;

static xray_status read_optional_keys(const cJSON *object, const char *where,
                                      sample_parts *parts, xr_err *err)
{
    const cJSON *prompt = xr_json_get(object, "prompt");
    const cJSON *truth = xr_json_get(object, "ground_truth");
    const cJSON *ids = xr_json_get(object, "ids");
    xray_status status = XRAY_OK;
    if (prompt)
        status = xr_value_text(prompt, "prompt", where, err, &parts->prompt);
    if (status == XRAY_OK && truth)
        status =
            xr_truth_text(truth, "ground_truth", where, err, &parts->truth);
    if (status == XRAY_OK && ids)
        status = xr_json_ids(ids, where, err, &parts->ids, &parts->id_count);
    if (status == XRAY_OK && (parts->prompt.failed || parts->truth.failed))
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    return status;
}

static xray_status score_line(grade *g, const cJSON *object, const char *line,
                              const char *where, const sample_parts *parts,
                              xr_err *err, xr_str *out)
{
    const char *response;
    const char *source;
    xr_score score = { 0 };
    xray_status status =
        xr_json_string(object, "response", where, err, &response);
    if (status == XRAY_OK)
        status =
            xr_json_string_or(object, "data_source", "", where, err, &source);
    if (status != XRAY_OK)
        return status;
    xray_sample_in sample = {
        .header = XRAY_HEADER(xray_sample_in),
        .prompt = xr_str_text(&parts->prompt),
        .response = response,
        .ground_truth = xr_str_text(&parts->truth),
        .data_source = source,
        .fields_json = line,
        .prompt_size = parts->prompt.size,
        .response_size = strlen(response),
        .ids = parts->ids,
        .id_count = (uint32_t)parts->id_count,
        .finish = XRAY_FINISH_STOP,
    };
    xr_str_clear(&g->values);
    status = xr_rewards_score(g->roles, &sample, 1, &score, NULL,
                              put_named_value, g, err);
    if (status != XRAY_OK)
        return xr_fail_in(err, status, "%s", where);
    xr_str_puts(out, "{\"score\":");
    xr_str_number(out, score.score);
    xr_str_append(out, xr_str_text(&g->values), g->values.size);
    put_instance_scores(g, &score, out);
    xr_str_append(out, "}", 1);
    return XRAY_OK;
}

static xray_status grade_line(void *ctx, const cJSON *object, const char *line,
                              const char *where, xr_err *err, xr_str *out)
{
    sample_parts parts = { 0 };
    xray_status status = read_optional_keys(object, where, &parts, err);
    if (status == XRAY_OK)
        status = score_line(ctx, object, line, where, &parts, err, out);
    xr_str_free(&parts.prompt);
    xr_str_free(&parts.truth);
    free(parts.ids);
    return status;
}

static int grade_with_run(grade *g, const cli_args *args, xr_config *config,
                          xr_errors *errors)
{
    xr_err err = { "" };
    g->run = xr_run_new(config, args->plugin_path, XR_WITH_REWARD, errors);
    if (!g->run || errors->count)
        return cli_errors(errors);
    xray_status status = xr_roles_start(g->run, &err, &g->roles);
    if (status != XRAY_OK)
        return cli_fail(status, &err);
    return cli_lines_each(args, grade_line, g);
}

static int run_grade(const cli_args *args)
{
    xr_errors errors = { 0 };
    grade g = { 0 };
    xr_config *config = cli_config(args, NULL, &errors);
    int code = config ? grade_with_run(&g, args, config, &errors)
                      : cli_errors(&errors);
    xr_roles_free(g.roles);
    xr_run_free(g.run);
    xr_config_free(config);
    xr_str_free(&g.values);
    xr_errors_free(&errors);
    return code;
}

static const cli_flag flags[] = {
    { "--reward", "NAME", CLI_TEXT, 1, offsetof(cli_args, reward), NULL, 1, 0,
      "reward instance, with its options in section reward.NAME; several are "
      "separated by commas" },
    CLI_SET_FLAG,
    CLI_PLUGIN_PATH_FLAG,
    CLI_LOG_FLAG,
    { 0 }
};

const cli_command cli_grade = {
    .name = "grade",
    .usage = "--reward NAME [options] [FILE]",
    .summary = "scores of given responses",
    .about =
        "Reads JSON lines from FILE or standard input and writes a line for "
        "each:\n{\"response\"} and, as the grader needs them, \"prompt\", "
        "\"ground_truth\" (text, a\nnumber or JSON), \"data_source\", \"ids\" "
        "and "
        "any other key -> {\"score\"} and the grader's\nnamed values. Several "
        "instances give their weighted sum and each score. A bad\nline gives "
        "{\"error\"} instead and exit code 1 at the end.",
    .examples = "  echo '{\"response\":\"so #### 18\",\"ground_truth\":"
                "\"18\"}' |\n      xray grade --reward rule --set "
                "reward.rule.grader=gsm8k\n",
    .flags = flags,
    .max_words = 1,
    .run = run_grade,
};
