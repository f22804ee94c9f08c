/* SPDX-License-Identifier: Apache-2.0
 *
 * xray check and xray config print: what an INI file means.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/cli/cli.h"
#include "core/data/data.h"
#include "core/rl/session.h"

/* What each job opens, without the tokenizer. */
static uint32_t parts_of(const char *job)
{
    const uint32_t sampling = XR_WITH_INFER | XR_WITH_REWARD;
    if (strcmp(job, "eval") == 0)
        return sampling;
    if (strcmp(job, "sft") == 0)
        return XR_WITH_TRAIN | XR_TRAINABLE | sampling;
    return XR_WITH_TRAIN | XR_TRAINABLE | XR_WITH_ALGO | sampling;
}

/* ---- check -------------------------------------------------------------- */

static void check_set(const xr_session *s, const char *name,
                      const xr_data_want *want, xr_errors *errors)
{
    xr_err err = { "" };
    xr_dataset *set = NULL;
    if (xr_dataset_open(&s->run.data, want, &err, &set) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    (void)printf("%s: %zu rows, %zu left out and %zu cut for their length\n",
                 name, xr_dataset_count(set), xr_dataset_filtered(set),
                 xr_dataset_truncated(set));
    if (xr_dataset_unwanted(set))
        (void)printf("%s: %zu rows left out by [data] filters\n", name,
                     xr_dataset_unwanted(set));
    xr_dataset_close(set);
}

/* A model of which only config.json is there can be checked too, up to what
 * needs its tokenizer. */
static void check_data(const xr_session *s, const char *job, xr_errors *errors)
{
    const xr_data_section *data = &s->run.data;
    const char *dir = s->run.model.tokenizer_path;
    xr_err err = { "" };
    xm_tokenizer *tokenizer = NULL;
    if (!dir || !*dir)
        dir = s->model.path;
    if (xm_tokenizer_open(dir, &err, &tokenizer) != XRAY_OK) {
        cli_say("warning: the data was not checked and a run would stop here: "
                "%s",
                err.text);
        return;
    }
    xm_chat *chat = NULL;
    if (xr_data_chat(data, dir, &err, &chat) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
    } else {
        int sft = strcmp(job, "sft") == 0;
        xr_data_want want = { .part = XR_DATA_TRAIN,
                              .kind = sft ? XR_DATA_SFT : XR_DATA_PROMPTS,
                              .tokenizer = tokenizer,
                              .chat = chat };
        if (strcmp(job, "eval") != 0)
            check_set(s, "train_files", &want, errors);
        want.part = XR_DATA_VAL;
        want.kind = XR_DATA_PROMPTS;
        if (xr_data_has_val(data))
            check_set(s, data->val_files.count ? "val_files" : "val_split",
                      &want, errors);
    }
    xm_chat_close(chat);
    xm_tokenizer_close(tokenizer);
}

/* Algorithm and rewards live on the host: they are created, so that a pattern
 * that does not compile is found now. */
static void check_host_parts(const xr_session *session, const cli_args *args,
                             xr_errors *errors)
{
    xr_err err = { "" };
    uint32_t with = session->with & (XR_WITH_ALGO | XR_WITH_REWARD);
    xr_session *host =
        xr_session_new(session->config, args->plugin_path, with, errors);
    if (host && xr_session_start(host, &err) != XRAY_OK)
        xr_errors_add(errors, "%s", err.text);
    xr_session_free(host);
}

static int check_session(xr_session *session, const cli_args *args,
                         xr_errors *errors)
{
    const char *job = args->job;
    xr_err err = { "" };
    xr_str plan = { 0 };
    if (session->run.sft.max_token_len && strcmp(job, "sft") == 0)
        xr_session_loads(session, (uint64_t)session->run.sft.max_token_len,
                         session->train_load.row_tokens,
                         session->infer_load.rows);
    if (xr_session_plan(session, &err, &plan) != XRAY_OK)
        xr_errors_add(errors, "%s", err.text);
    else
        (void)fputs(xr_str_text(&plan), stdout);
    xr_str_free(&plan);
    check_host_parts(session, args, errors);
    check_data(session, job, errors);
    if (errors->count)
        return cli_errors(errors);
    (void)puts("ok");
    return CLI_OK;
}

static int run_check(const cli_args *args)
{
    xr_errors errors = { 0 };
    xr_session *session = NULL;
    xr_config *config = cli_config(args, args->words[0], &errors);
    if (config)
        session = xr_session_new(config, args->plugin_path, parts_of(args->job),
                                 &errors);
    int code = session && !errors.count ? check_session(session, args, &errors)
                                        : cli_errors(&errors);
    xr_session_free(session);
    xr_config_free(config);
    xr_errors_free(&errors);
    return code;
}

#define JOB_FLAG                                                         \
    {                                                                    \
        "--job", "train|sft|eval", CLI_TEXT, 0, offsetof(cli_args, job), \
            "train", 1, 0, "the command the file is for"                 \
    }

static const cli_flag check_flags[] = {
    JOB_FLAG, CLI_SET_FLAG, CLI_PLUGIN_PATH_FLAG, CLI_LOG_FLAG, { 0 }
};

const cli_command cli_check = {
    .name = "check",
    .usage = "RUN.INI [options]",
    .summary = "find every fault of an INI file before a run",
    .about = "Checks keys, types, files, batch arithmetic, data rows and what "
             "every plugin\nwould need, without touching a device. Prints all "
             "errors at once (exit code 2),\nor the derived arithmetic, the "
             "memory plan and \"ok\".",
    .examples = "  xray check run.ini\n  xray check sft.ini --job sft\n",
    .flags = check_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_check,
};

/* ---- config print ------------------------------------------------------- */

static int run_print(const cli_args *args)
{
    xr_errors errors = { 0 };
    xr_session *session = NULL;
    xr_str text = { 0 };
    xr_config *config = cli_config(args, args->words[0], &errors);
    if (config) {
        session = xr_session_new(config, args->plugin_path, parts_of(args->job),
                                 &errors);
        xr_config_print(config, args->origins, &text);
        (void)fputs(xr_str_text(&text), stdout);
    }
    int code = errors.count ? cli_errors(&errors) : CLI_OK;
    xr_str_free(&text);
    xr_session_free(session);
    xr_config_free(config);
    xr_errors_free(&errors);
    return code;
}

static const cli_flag print_flags[] = {
    { "--origins", NULL, CLI_SWITCH, 0, offsetof(cli_args, origins), NULL, 1, 0,
      "say behind each value where it comes from" },
    JOB_FLAG,
    CLI_SET_FLAG,
    CLI_PLUGIN_PATH_FLAG,
    CLI_LOG_FLAG,
    { 0 }
};

const cli_command cli_config_print = {
    .name = "config print",
    .usage = "RUN.INI [options]",
    .summary = "the resolved configuration",
    .about = "Prints the configuration in force, defaults included, as an INI "
             "file that reads\nback to the same values. What is wrong goes to "
             "standard error (exit code 2).",
    .examples = "  xray config print run.ini --origins\n",
    .flags = print_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_print,
};
