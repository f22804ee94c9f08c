/* SPDX-License-Identifier: Apache-2.0
 *
 * xray train, xray sft and xray eval: the jobs of an INI file, and their
 * signals.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cli/cli.h"
#include "core/cli/enter.h"
#include "core/plugin/cancel.h"
#include "core/rl/run_loop.h"

/* Seconds that calls have to end after the second signal. */
#define CANCEL_S 2

/* A signal handler has access to static variables only. */
static volatile sig_atomic_t stop_flag; /* number of signals */
static volatile sig_atomic_t stop_signal;
/* The messages of the handler, formatted before it can run. */
static char first_text[160];
static char second_text[4096];
static size_t first_size;
static size_t second_size;

static const char *signal_name(int number)
{
    return number == SIGINT ? "SIGINT" : "SIGTERM";
}

/* The first signal ends the run after its step. The second one asks every call
 * to end, and the process ends when they have; a third one, or the alarm if a
 * call does not end, leaves them behind. The next run deletes a checkpoint that
 * is half written, as after a kill. */
static void stop_on_signal(int number)
{
    int saved = errno;
    if (stop_flag > 1)
        _exit(128 + number);
    stop_signal = number;
    stop_flag++;
    if (stop_flag == 1 && !xr_cancels_at_once()) {
        (void)!write(STDERR_FILENO, first_text, first_size);
    } else {
        (void)!write(STDERR_FILENO, second_text, second_size);
        xr_cancel();
        (void)alarm(CANCEL_S);
    }
    errno = saved;
}

static void give_up(int number)
{
    (void)number;
    _exit(128 + (int)stop_signal);
}

/* Appends the command that resumes the run: the original one, with settings
 * that make it look for the newest checkpoint if it did not. */
static void put_resume_command(const xr_config *config, xr_str *out)
{
    const char *mode = xr_config_get(config, "trainer", "resume_mode");
    const char *path = xr_config_get(config, "trainer", "resume_from_path");
    cli_put_command(out);
    if (mode && strcmp(mode, "auto") != 0)
        xr_str_puts(out, " --set trainer.resume_mode=auto");
    if (path && *path)
        xr_str_puts(out, " --set trainer.resume_from_path=");
}

static void prepare_signal_texts(const xr_config *config, int resumable)
{
    xr_str command = { 0 };
    put_resume_command(config, &command);
    (void)snprintf(first_text, sizeof first_text,
                   "xray: stopping%s; a second signal stops at once\n",
                   resumable ? " after this step, with a checkpoint" : "");
    if (resumable)
        (void)snprintf(second_text, sizeof second_text,
                       "xray: stopped at once; no checkpoint was written; "
                       "resume from the last one with: %.3900s\n",
                       xr_str_text(&command));
    else
        (void)snprintf(second_text, sizeof second_text,
                       "xray: stopped at once\n");
    first_size = strlen(first_text);
    second_size = strlen(second_text);
    xr_str_free(&command);
}

static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = stop_on_signal,
                                .sa_flags = SA_RESTART };
    struct sigaction old;
    struct sigaction late = { .sa_handler = give_up };
    (void)sigemptyset(&late.sa_mask);
    (void)sigaction(SIGALRM, &late, NULL);
    (void)sigemptyset(&action.sa_mask);
    (void)sigaddset(&action.sa_mask, SIGINT);
    (void)sigaddset(&action.sa_mask, SIGTERM);
    /* A shell may start background jobs with SIGINT ignored: keep that. */
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

typedef xray_status (*job_fn)(const xr_run_args *args, xr_err *err,
                              xr_run_result *out);

static void report_stop(const xr_config *config, const xr_run_result *result)
{
    xr_str command = { 0 };
    if (!*result->checkpoint) {
        cli_say("stopped by %s", signal_name(stop_signal));
        return;
    }
    put_resume_command(config, &command);
    cli_say("stopped by %s after step %llu; resume with: %s",
            signal_name(stop_signal), (unsigned long long)result->steps,
            xr_str_text(&command));
    xr_str_free(&command);
}

static int report_result(xray_status status, const xr_err *err,
                         const xr_run_args *run, const xr_run_result *result)
{
    if (status == XRAY_E_CANCELED && xr_canceled())
        return 128 + (int)stop_signal; /* the handler has said everything */
    if (run->errors->count)
        return cli_errors(run->errors);
    /* A run that failed after the signal has no checkpoint of its end. */
    if (status != XRAY_OK)
        return cli_fail(status, err);
    (void)fputs(xr_str_text(&result->report), stdout);
    if (result->report.failed)
        cli_say("out of memory for the complete report");
    if (!result->interrupted)
        return CLI_OK;
    report_stop(run->config, result);
    return 128 + (int)stop_signal;
}

static int run_job(const cli_args *args, job_fn job, int resumable)
{
    xr_errors errors = { 0 };
    xr_err err = { "" };
    static xr_run_result result; /* too large for the stack */
    xr_config *config = cli_config(args, args->words.items[0], &errors);
    cli_entry entry = { .plugins = NULL };
    int code = CLI_USAGE;
    if (!config) {
        code = cli_errors(&errors);
    } else if (!cli_enter(&entry, config, args->plugin_path, &code)) {
        xr_run_args run = { .config = config,
                            .plugin_path = args->plugin_path,
                            .stop = &stop_flag,
                            .accept_changes = args->accept_changes,
                            .errors = &errors };
        prepare_signal_texts(config, resumable);
        catch_signals();
        xray_status status = job(&run, &err, &result);
        code = report_result(status, &err, &run, &result);
        cli_entry_close(&entry);
    }
    xr_str_free(&result.report);
    xr_config_free(config);
    xr_errors_free(&errors);
    return code;
}

static int run_train(const cli_args *args)
{
    return run_job(args, xr_train_run, 1);
}

static int run_sft(const cli_args *args)
{
    return run_job(args, xr_sft_run, 1);
}

static int run_eval(const cli_args *args)
{
    return run_job(args, xr_eval_run, 0);
}

static const cli_flag train_flags[] = {
    CLI_ACCEPT_FLAG, CLI_SET_FLAG, CLI_PLUGIN_PATH_FLAG, CLI_LOG_FLAG, { 0 }
};
static const cli_flag eval_flags[] = {
    CLI_SET_FLAG, CLI_PLUGIN_PATH_FLAG, CLI_LOG_FLAG, { 0 }
};

const cli_command cli_train = {
    .name = "train",
    .usage = "RUN.INI [options]",
    .summary = "train by reinforcement learning, as an INI file describes",
    .about = "Samples answers to prompts, scores them and updates the model, "
             "step by step.\nProgress goes to standard error, a report to "
             "standard output; metrics,\ncheckpoints and samples go where "
             "[trainer] says. A run that was killed resumes\nfrom its last "
             "checkpoint. SIGINT or SIGTERM finishes the step and writes a\n"
             "checkpoint; a second one stops at once.",
    .examples = "  xray train run.ini\n  xray train run.ini --set "
                "actor.optim.lr=1e-4 --set run.seed=2\n",
    .flags = train_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_train,
};

const cli_command cli_sft = {
    .name = "sft",
    .usage = "RUN.INI [options]",
    .summary = "train by supervised fine-tuning, as an INI file describes",
    .about =
        "Trains by maximum likelihood of given responses. Ends after [sft] "
        "total_steps, or when\ngreedy validation reaches [sft] stop_at. "
        "Output and signals are as those of\nxray train.",
    .examples =
        "  xray sft run.ini\n  xray sft run.ini --set sft.stop_at=0.4\n",
    .flags = train_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_sft,
};

const cli_command cli_eval = {
    .name = "eval",
    .usage = "RUN.INI [options]",
    .summary = "validation only",
    .about = "Answers the validation set of a run's INI file, greedily and, "
             "with\n[rollout.val] n, by sampling, and prints \"name value\" "
             "lines.",
    .examples = "  xray eval run.ini\n  xray eval run.ini --set "
                "model.path=checkpoints\n",
    .flags = eval_flags,
    .min_words = 1,
    .max_words = 1,
    .run = run_eval,
};
