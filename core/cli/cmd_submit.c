/* SPDX-License-Identifier: Apache-2.0
 *
 * xray submit: has the engine of a run start it as a job of its own.
 */
#include <stdlib.h>

#include "core/cli/cli.h"
#include "core/cli/stop.h"
#include "core/roles/launched.h"
#include "core/run/run.h"

/* The program's path is put in front later. NULL if out of memory. */
static const char **make_job(const cli_args *args)
{
    const char **argv = xr_calloc(2 * args->sets.count + 10, sizeof(*argv));
    size_t n = 1;
    if (!argv)
        return NULL;
    argv[n++] = args->job;
    argv[n++] = args->words.items[0];
    for (size_t i = 0; i < args->sets.count; i++) {
        argv[n++] = "--set";
        argv[n++] = args->sets.items[i];
    }
    if (args->plugin_path) {
        argv[n++] = "--plugin-path";
        argv[n++] = args->plugin_path;
    }
    if (args->log) {
        argv[n++] = "--log";
        argv[n++] = args->log;
    }
    if (args->accept_changes)
        argv[n++] = "--accept-changes";
    return argv;
}

static int submit_run(const cli_args *args, const xr_run *run)
{
    xr_err err = { "" };
    int32_t code = CLI_OK;
    const char **argv = make_job(args);
    if (!argv) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    xray_status status = XRAY_OK;
    if (run->launcher.component)
        status = xr_launched_submit(run, argv, &err, &code);
    else
        status = xr_fail(&err, XRAY_E_UNSUPPORTED,
                         "%s: [run] runtime: %s is no engine that takes jobs; "
                         "start the run with xray train",
                         xr_config_location(run->config, "run", "runtime"),
                         run->ini.run.runtime);
    free(argv);
    return status == XRAY_OK ? (int)code : cli_fail(status, &err);
}

static int run_submit(const cli_args *args)
{
    xr_errors errors = { 0 };
    xr_run *run = NULL;
    xr_config *config = cli_config(args, args->words.items[0], &errors);
    if (config)
        run = xr_run_new(config, args->plugin_path, cli_job_parts(args->job),
                         &errors);
    int code = CLI_USAGE;
    if (errors.count || !run) {
        code = cli_errors(&errors);
    } else {
        cli_stop_catch();
        code = submit_run(args, run);
    }
    xr_run_free(run);
    xr_config_free(config);
    xr_errors_free(&errors);
    return code;
}

static const cli_flag submit_flags[] = { CLI_JOB_FLAG, CLI_ACCEPT_FLAG,
                                         CLI_SET_FLAG, CLI_PLUGIN_PATH_FLAG,
                                         CLI_LOG_FLAG, { 0 } };

const cli_command cli_submit = {
    .name = "submit",
    .usage = "RUN.INI [options]",
    .summary = "have the engine of a run start it as a job",
    .about = "Asks the engine that [run] runtime names, such as ray, to run "
             "\"xray train RUN.INI\"\nas a job of its own, with the same "
             "options. Shows what the job writes and returns\nits exit code. "
             "Ctrl-C asks the job to stop.",
    .examples = "  xray submit run.ini\n  xray submit sft.ini --job sft --set "
                "run.seed=2\n",
    .flags = submit_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_submit,
};
