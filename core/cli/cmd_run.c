/* SPDX-License-Identifier: Apache-2.0
 *
 * xray train, sft, eval: the jobs that run for long.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "core/cli/cli.h"
#include "core/rl/run_loop.h"

/* A signal handler can reach nothing but objects of static storage. */
static volatile sig_atomic_t stop_flag;
static volatile sig_atomic_t stop_signal;

/* First: finish the step. Second: stop now. Third: the system's own way. */
static void on_signal(int number)
{
    int saved = errno;
    stop_signal = number;
    if (stop_flag >= 2) {
        (void)signal(number, SIG_DFL);
        (void)raise(number);
    }
    stop_flag = stop_flag + 1;
    errno = saved;
}

static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = on_signal };
    struct sigaction old;
    (void)sigemptyset(&action.sa_mask);
    /* A shell that ignores SIGINT for background jobs keeps its way. */
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

typedef xray_status (*job_fn)(const xr_run_args *args, xr_err *err,
                              xr_run_result *out);

static int finish(xray_status status, const xr_err *err,
                  const xr_errors *errors, const xr_run_result *result)
{
    if (errors->count)
        return cli_errors(errors);
    if (status != XRAY_OK && !result->interrupted)
        return cli_fail(status, err);
    if (status != XRAY_OK)
        (void)cli_fail(status, err);
    (void)fputs(xr_str_text(&result->report), stdout);
    if (result->report.failed)
        cli_say("no memory for the whole report");
    if (!result->interrupted)
        return CLI_OK;
    cli_say("stopped by %s after step %llu",
            stop_signal == SIGINT ? "SIGINT" : "SIGTERM",
            (unsigned long long)result->steps);
    return 128 + (int)stop_signal;
}

static int run_job(const cli_args *args, job_fn job)
{
    xr_errors errors = { 0 };
    xr_err err = { "" };
    static xr_run_result result; /* holds a path's worth of bytes */
    catch_signals();
    xr_config *config = cli_config(args, args->words[0], &errors);
    int code = CLI_USAGE;
    if (!config) {
        code = cli_errors(&errors);
    } else {
        xr_run_args run = { .config = config,
                            .plugin_path = args->plugin_path,
                            .stop = &stop_flag,
                            .errors = &errors };
        xray_status status = job(&run, &err, &result);
        code = finish(status, &err, &errors, &result);
    }
    xr_str_free(&result.report);
    xr_config_free(config);
    xr_errors_free(&errors);
    return code;
}

static int run_train(const cli_args *args)
{
    return run_job(args, xr_train_run);
}

static int run_sft(const cli_args *args)
{
    return run_job(args, xr_sft_run);
}

static int run_eval(const cli_args *args)
{
    return run_job(args, xr_eval_run);
}

static const cli_flag flags[] = {
    CLI_SET_FLAG, CLI_PLUGIN_PATH_FLAG, CLI_LOG_FLAG, { 0 }
};

const cli_command cli_train = {
    .name = "train",
    .usage = "RUN.INI [options]",
    .summary = "reinforcement learning as an INI file says",
    .about = "Samples answers to prompts, scores them and updates the model, "
             "step by step.\nProgress goes to standard error, a report to "
             "standard output; metrics,\ncheckpoints and samples go where "
             "[trainer] says. A run that was killed goes on\nfrom its last "
             "checkpoint. SIGINT or SIGTERM finishes the step and writes a\n"
             "checkpoint; a second one stops at once.",
    .examples = "  xray train run.ini\n  xray train run.ini --set "
                "actor.optim.lr=1e-4 --set run.seed=2\n",
    .flags = flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_train,
};

const cli_command cli_sft = {
    .name = "sft",
    .usage = "RUN.INI [options]",
    .summary = "supervised fine-tuning as an INI file says",
    .about = "Maximum likelihood of given responses. Ends after [sft] "
             "total_steps, or when\ngreedy validation reaches [sft] stop_at. "
             "Output and signals are as those of\nxray train.",
    .examples =
        "  xray sft run.ini\n  xray sft run.ini --set sft.stop_at=0.4\n",
    .flags = flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_sft,
};

const cli_command cli_eval = {
    .name = "eval",
    .usage = "RUN.INI [options]",
    .summary = "validation only",
    .about = "Samples the validation set of a run's INI file, greedily and, "
             "with\n[rollout] val_n, by drawing, and prints \"name value\" "
             "lines.",
    .examples = "  xray eval run.ini\n  xray eval run.ini --set "
                "model.path=checkpoints\n",
    .flags = flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_eval,
};
