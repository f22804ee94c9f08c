/* SPDX-License-Identifier: Apache-2.0
 *
 * xray check and xray config print: check an INI file and print what it
 * resolves to.
 */
#include <stdio.h>
#include <string.h>

#include "core/cli/cli.h"
#include "core/rl/check.h"

uint32_t cli_job_parts(const char *job)
{
    const uint32_t sampling = XR_WITH_INFER | XR_WITH_REWARD;
    if (strcmp(job, "eval") == 0)
        return sampling;
    if (strcmp(job, "sft") == 0)
        return XR_WITH_TRAIN | XR_TRAINABLE | XR_WITH_TRACKER | sampling;
    return XR_WITH_TRAIN | XR_TRAINABLE | XR_WITH_ALGO | XR_WITH_TRACKER |
           sampling;
}

/* ---- check -------------------------------------------------------------- */

static int run_check(const cli_args *args)
{
    xr_errors errors = { 0 };
    xr_errors warnings = { 0 };
    xr_str out = { 0 };
    xr_run *run = NULL;
    xr_config *config = cli_config(args, args->words.items[0], &errors);
    if (config)
        run = xr_run_draft(config, args->plugin_path, cli_job_parts(args->job),
                           &errors);
    if (run) {
        run->accept_changes = args->accept_changes;
        run->elsewhere = args->elsewhere;
        xr_check_run(run, &out, &errors, &warnings);
    }
    if (!errors.count)
        (void)printf("%sok\n", xr_str_text(&out));
    for (size_t i = 0; i < warnings.count; i++)
        cli_say("warning: %s", warnings.items[i]);
    int code = errors.count ? cli_errors(&errors) : CLI_OK;
    xr_str_free(&out);
    xr_run_free(run);
    xr_config_free(config);
    xr_errors_free(&errors);
    xr_errors_free(&warnings);
    return code;
}

static const cli_flag check_flags[] = {
    { "--elsewhere", NULL, CLI_SWITCH, 0, offsetof(cli_args, elsewhere), NULL,
      1, 0,
      "the run is for another machine: what this one lacks is only a warning" },
    CLI_JOB_FLAG,
    CLI_ACCEPT_FLAG,
    CLI_SET_FLAG,
    CLI_PLUGIN_PATH_FLAG,
    CLI_LOG_FLAG,
    { 0 }
};

const cli_command cli_check = {
    .name = "check",
    .usage = "RUN.INI [options]",
    .summary = "find every fault of an INI file before a run",
    .about = "Checks keys, types, files, batch arithmetic, data rows, the "
             "needs of every plugin\nand whether this machine has the device, "
             "without starting it. Prints\nall errors at once (exit "
             "code 2), or the derived arithmetic, the memory plan and "
             "\"ok\".",
    .examples = "  xray check run.ini\n  xray check sft.ini --job sft\n  "
                "xray check h200.ini --elsewhere\n",
    .flags = check_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_check,
};

/* ---- config print ------------------------------------------------------- */

static int run_print(const cli_args *args)
{
    xr_errors errors = { 0 };
    xr_run *run = NULL;
    xr_str text = { 0 };
    xr_config *config = cli_config(args, args->words.items[0], &errors);
    if (config) {
        run = xr_run_new(config, args->plugin_path, cli_job_parts(args->job),
                         &errors);
        xr_config_print(config, args->origins, &text);
        (void)fputs(xr_str_text(&text), stdout);
    }
    int code = errors.count ? cli_errors(&errors) : CLI_OK;
    xr_str_free(&text);
    xr_run_free(run);
    xr_config_free(config);
    xr_errors_free(&errors);
    return code;
}

static const cli_flag print_flags[] = {
    { "--origins", NULL, CLI_SWITCH, 0, offsetof(cli_args, origins), NULL, 1, 0,
      "print after each value where it was set" },
    CLI_JOB_FLAG,
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
             "file that reads\nback to the same values. Errors go to standard "
             "error (exit code 2).",
    .examples = "  xray config print run.ini --origins\n",
    .flags = print_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_print,
};
