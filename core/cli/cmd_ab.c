/* SPDX-License-Identifier: Apache-2.0
 *
 * xray ab: runs several INI files under several seeds and compares them.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/ab/tasks.h"
#include "core/base/lock.h"
#include "core/cli/ab_plan.h"
#include "core/cli/cmd_compare.h"

#define FINISHED "finished"

/* ---- signals ------------------------------------------------------------ */

/* A signal handler has access to static variables only. */
static volatile sig_atomic_t signals; /* number received */
static volatile sig_atomic_t last_signal;

static void count_signal(int number)
{
    static const char first[] =
        "\nxray: stopping the runs after their current steps, with "
        "checkpoints; a second signal stops them at once\n";
    int saved = errno;
    if (!signals)
        (void)!write(STDERR_FILENO, first, sizeof(first) - 1);
    last_signal = number;
    if (signals < 3)
        signals++;
    errno = saved;
}

static void catch_signals(void)
{
    struct sigaction action = { .sa_handler = count_signal };
    struct sigaction old;
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

/* ---- progress ----------------------------------------------------------- */

typedef struct ab {
    const cli_ab_plan *plan;
    xr_task *tasks;
    size_t count;
    size_t finished_before;
    int terminal;
    int shown; /* the terminal shows a progress line */
    size_t ticks;
} ab;

static size_t count_in_state(const ab *a, int state)
{
    size_t n = 0;
    for (size_t i = 0; i < a->count; i++)
        n += a->tasks[i].state == state ? 1u : 0u;
    return n;
}

static void clear_progress(ab *a)
{
    if (a->shown)
        (void)fputs("\r\033[K", stderr);
    a->shown = 0;
}

static void show_progress(void *ctx)
{
    ab *a = ctx;
    if (!a->terminal || a->ticks++ % 10)
        return;
    clear_progress(a);
    (void)fprintf(stderr, "%zu of %zu runs done",
                  count_in_state(a, XR_TASK_DONE), a->count);
    for (size_t i = 0; i < a->count; i++)
        if (a->tasks[i].state == XR_TASK_RUNS)
            (void)fprintf(stderr, "  %s: step %llu", a->tasks[i].name,
                          (unsigned long long)xr_task_step(&a->tasks[i]));
    (void)fflush(stderr);
    a->shown = 1;
}

/* Writes the file that marks a run as finished, so that it is not repeated. */
static void mark_finished(const xr_task *task)
{
    char path[XR_PATH_CAP + 16];
    xr_err err = { "" };
    const char *mark = strrchr(task->output, '/');
    (void)snprintf(path, sizeof(path), "%.*s/" FINISHED,
                   (int)(mark - task->output), task->output);
    if (xr_file_write(path, "", 0, &err) != XRAY_OK)
        cli_say("%s: %s", task->name, err.text);
}

static void report_task(void *ctx, const xr_task *task)
{
    ab *a = ctx;
    xr_str text = { 0 };
    clear_progress(a);
    switch (task->state) {
    case XR_TASK_DONE:
        mark_finished(task);
        cli_say("%s: done (%zu of %zu)", task->name,
                count_in_state(a, XR_TASK_DONE), a->count);
        break;
    case XR_TASK_FAILED:
        xr_task_complaint(task, &text);
        cli_say("%s: failed: %s", task->name, xr_str_text(&text));
        break;
    case XR_TASK_STOPPED:
        cli_say("%s: stopped at step %llu", task->name,
                (unsigned long long)xr_task_step(task));
        break;
    default:
        break;
    }
    xr_str_free(&text);
}

/* ---- tasks -------------------------------------------------------------- */

static char **make_task_argv(const cli_ab_plan *plan, size_t variant,
                             int64_t seed)
{
    const cli_args *args = plan->args;
    char **sets = cli_ab_sets(plan, variant, seed);
    char **argv = xr_calloc(2 * args->sets.count + 32, sizeof(*argv));
    size_t n = 0;
    if (sets && argv) {
        argv[n++] = xr_strdup("xray");
        argv[n++] = xr_strdup(args->job);
        for (size_t i = 0; i < args->sets.count; i++) {
            argv[n++] = xr_strdup("--set");
            argv[n++] = xr_strdup(args->sets.items[i]);
        }
        for (size_t i = 0; sets[i]; i++) {
            argv[n++] = xr_strdup("--set");
            argv[n++] = xr_strdup(sets[i]);
        }
        if (args->plugin_path) {
            argv[n++] = xr_strdup("--plugin-path");
            argv[n++] = xr_strdup(args->plugin_path);
        }
        if (args->log) {
            argv[n++] = xr_strdup("--log");
            argv[n++] = xr_strdup(args->log);
        }
        argv[n++] = xr_strdup("--");
        argv[n++] = xr_strdup(plan->variants[variant].ini);
    }
    int complete = sets && argv;
    for (size_t i = 0; i < n; i++)
        complete = complete && argv[i];
    cli_ab_words_free(sets);
    if (complete)
        return argv;
    cli_ab_words_free(argv);
    return NULL;
}

static xray_status prepare_task(const cli_ab_plan *plan, size_t variant,
                                int64_t seed, xr_task *out, xr_err *err)
{
    char path[XR_PATH_CAP];
    char text[256];
    (void)snprintf(text, sizeof(text), "%s, seed %lld",
                   plan->variants[variant].name, (long long)seed);
    out->name = xr_strdup(text);
    out->argv = make_task_argv(plan, variant, seed);
    xray_status status =
        cli_ab_path(plan, variant, seed, "output.txt", path, err);
    if (status != XRAY_OK)
        return status;
    out->output = xr_strdup(path);
    status = cli_ab_path(plan, variant, seed, "metrics.jsonl", path, err);
    if (status != XRAY_OK)
        return status;
    out->metrics = xr_strdup(path);
    status = cli_ab_path(plan, variant, seed, FINISHED, path, err);
    if (status != XRAY_OK)
        return status;
    if (!out->name || !out->argv || !out->output || !out->metrics)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    if (xr_path_exists(path))
        out->state = XR_TASK_DONE;
    return XRAY_OK;
}

/* Orders the tasks by seed, so that pairs are complete early. */
static xray_status make_tasks(ab *a, xr_err *err)
{
    const cli_ab_plan *plan = a->plan;
    xray_status status = XRAY_OK;
    a->tasks =
        xr_calloc(plan->variant_count * plan->seed_count, sizeof(*a->tasks));
    if (!a->tasks)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    for (size_t s = 0; s < plan->seed_count; s++)
        for (size_t v = 0; status == XRAY_OK && v < plan->variant_count; v++)
            status = prepare_task(plan, v, plan->seeds[s],
                                  &a->tasks[a->count++], err);
    a->finished_before = count_in_state(a, XR_TASK_DONE);
    return status;
}

static void free_tasks(ab *a)
{
    for (size_t i = 0; i < a->count; i++) {
        free(a->tasks[i].name);
        free(a->tasks[i].output);
        free(a->tasks[i].metrics);
        cli_ab_words_free(a->tasks[i].argv);
    }
    free(a->tasks);
}

/* ---- the report --------------------------------------------------------- */

static const xr_task *find_task(const ab *a, size_t variant, size_t seed)
{
    return &a->tasks[seed * a->plan->variant_count + variant];
}

static void add_failed_task(const xr_task *task, xr_errors *failures)
{
    xr_str text = { 0 };
    xr_task_complaint(task, &text);
    xr_errors_add(failures, "%s failed: %s", task->name, xr_str_text(&text));
    xr_str_free(&text);
}

static int write_report(const ab *a)
{
    const cli_ab_plan *plan = a->plan;
    xr_runs runs = { .count = 0 };
    xr_err err = { "" };
    char path[XR_PATH_CAP];
    xray_status status = XRAY_OK;
    for (size_t v = 0; status == XRAY_OK && v < plan->variant_count; v++) {
        status = xr_runs_variant(&runs, plan->variants[v].name, &err);
        for (size_t s = 0; status == XRAY_OK && s < plan->seed_count; s++) {
            const xr_task *task = find_task(a, v, s);
            if (task->state != XR_TASK_DONE) {
                add_failed_task(task, &runs.failures);
                continue;
            }
            status = cli_ab_path(plan, v, plan->seeds[s], NULL, path, &err);
            if (status == XRAY_OK)
                status = xr_runs_add(&runs, path, &err);
        }
    }
    if (status == XRAY_OK)
        status = xr_path_join(plan->args->out, "report.html", path,
                              sizeof(path), &err);
    int code = status == XRAY_OK ? cli_compare_report(&runs, plan->args->metric,
                                                      plan->args->lower, path)
                                 : cli_fail(status, &err);
    xr_runs_free(&runs);
    return code;
}

static int finish_tasks(const ab *a)
{
    xr_str command = { 0 };
    size_t failed = count_in_state(a, XR_TASK_FAILED);
    size_t left =
        count_in_state(a, XR_TASK_STOPPED) + count_in_state(a, XR_TASK_WAITS);
    if (signals && left + failed) {
        cli_put_command(&command);
        cli_say("stopped by %s with %zu of %zu runs done; resume with: %s",
                last_signal == SIGINT ? "SIGINT" : "SIGTERM",
                count_in_state(a, XR_TASK_DONE), a->count,
                xr_str_text(&command));
        xr_str_free(&command);
        return 128 + (int)last_signal;
    }
    int code = write_report(a);
    if (failed)
        cli_say("%zu of %zu runs failed; the same command runs them again",
                failed, a->count);
    return failed && code == CLI_OK ? CLI_FAILED : code;
}

/* ---- the command -------------------------------------------------------- */

/* Fails if a run still holds its lock: runs of an `xray ab` that was killed may
 * continue for a while and must not be started a second time. */
static xray_status check_run_locks(const ab *a, xr_err *err)
{
    const cli_ab_plan *plan = a->plan;
    char path[XR_PATH_CAP];
    xr_lock lock;
    for (size_t v = 0; v < plan->variant_count; v++)
        for (size_t s = 0; s < plan->seed_count; s++) {
            xray_status status =
                cli_ab_path(plan, v, plan->seeds[s], NULL, path, err);
            if (status != XRAY_OK)
                return status;
            if (!xr_path_is_dir(path))
                continue;
            status = xr_lock_take(path, err, &lock);
            if (status == XRAY_OK)
                xr_lock_drop(&lock);
            else if (status != XRAY_E_UNSUPPORTED)
                return status;
        }
    return XRAY_OK;
}

static xray_status lock_folder(const ab *a, xr_err *err, xr_lock *out)
{
    const cli_ab_plan *plan = a->plan;
    xray_status status = xr_dir_make(plan->dir, err);
    if (status == XRAY_OK)
        status = xr_lock_take(plan->dir, err, out);
    if (status == XRAY_E_UNSUPPORTED) {
        cli_say("warning: %s", err->text);
        status = XRAY_OK;
    }
    return status == XRAY_OK ? check_run_locks(a, err) : status;
}

static int run_plan(const cli_ab_plan *plan)
{
    xr_err err = { "" };
    ab a = { .plan = plan, .terminal = isatty(STDERR_FILENO) };
    xr_lock lock = { .held = 0 };
    xray_status status = lock_folder(&a, &err, &lock);
    if (status == XRAY_OK)
        status = cli_ab_folders(plan, &err);
    if (status == XRAY_OK)
        status = make_tasks(&a, &err);
    int code = CLI_FAILED;
    if (status == XRAY_OK) {
        const xr_task_watch watch = { .ctx = &a,
                                      .changed = report_task,
                                      .tick = show_progress,
                                      .stop = &signals };
        if (a.finished_before)
            cli_say("%zu of %zu runs are already done", a.finished_before,
                    a.count);
        catch_signals();
        xr_tasks_run(a.tasks, a.count, plan->jobs, &watch);
        clear_progress(&a);
        code = finish_tasks(&a);
    } else {
        code = cli_fail(status, &err);
    }
    free_tasks(&a);
    xr_lock_drop(&lock);
    return code;
}

static int run_ab(const cli_args *args)
{
    cli_ab_plan plan;
    xr_errors errors = { 0 };
    cli_ab_plan_make(args, &plan, &errors);
    int code = errors.count ? cli_errors(&errors) : run_plan(&plan);
    cli_ab_plan_free(&plan);
    xr_errors_free(&errors);
    return code;
}

static const cli_flag flags[] = {
    { "--seeds", "N", CLI_INT, 0, offsetof(cli_args, seeds), "5", 1, 1000,
      "runs per variant, with seeds from the base's [run] seed on" },
    { "--seed-list", "K,K,...", CLI_TEXT, 0, offsetof(cli_args, seed_list),
      NULL, 1, 0, "use these seeds instead" },
    { "--job", "train|sft", CLI_TEXT, 0, offsetof(cli_args, job), "train", 1, 0,
      "the command of each run" },
    { "--out", "DIR", CLI_TEXT, 0, offsetof(cli_args, out), "ab", 1, 0,
      "folder of runs and report" },
    { "--jobs", "N", CLI_INT, 0, offsetof(cli_args, jobs), NULL, 1, 1024,
      "runs at a time; else cores / [run] threads" },
    CLI_METRIC_FLAG,
    CLI_LOWER_FLAG,
    CLI_SET_FLAG,
    CLI_PLUGIN_PATH_FLAG,
    CLI_LOG_FLAG,
    { 0 }
};

const cli_command cli_ab = {
    .name = "ab",
    .usage = "BASE.INI VARIANT.INI... [options]",
    .summary = "train variants of a run under several seeds and compare them",
    .about = "Trains each INI file with each seed, in DIR/NAME/seed-K (with "
             "--job sft by xray sft),\nand compares the variants with the "
             "first: tables on standard output, and the page\nDIR/report.html. "
             "Runs with the same seed share prompts, order and random "
             "numbers.\nThe same command resumes where it was stopped. All "
             "files are checked before\nanything starts.",
    .examples = "  xray ab base.ini variant.ini --seeds 5 --out ab\n  xray ab "
                "base.ini clip.ini lr.ini --seed-list 1,2,3 --jobs 2\n",
    .flags = flags,
    .min_words = 2,
    .max_words = SIZE_MAX,
    .run = run_ab,
};
