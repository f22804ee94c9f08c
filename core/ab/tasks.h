/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs child processes of this program, a given number at a time.
 */
#ifndef XR_AB_TASKS_H
#define XR_AB_TASKS_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "core/base/str.h"

enum {
    XR_TASK_WAITS,
    XR_TASK_RUNS,
    XR_TASK_DONE,
    XR_TASK_FAILED,
    XR_TASK_STOPPED, /* by the stop flag; it can be resumed */
};

typedef struct xr_task {
    char *name;
    char **argv;   /* argv[0] is shown, the program is this one; NULL ends it */
    char *output;  /* file for both streams, overwritten at each start */
    char *metrics; /* file whose last line gives the progress */
    int state;
    int code; /* exit code, or 128 + signal */
    pid_t pid;
} xr_task;

/* Called when a task starts and when it ends. */
typedef void (*xr_task_changed)(void *ctx, const xr_task *task);
/* Called several times a second. */
typedef void (*xr_tasks_tick)(void *ctx);

typedef struct xr_task_watch {
    void *ctx;
    xr_task_changed changed;
    xr_tasks_tick tick;
    /* The number of signals received so far. Each is passed on to the children,
     * which are in process groups of their own; after the first one no task is
     * started. */
    const volatile sig_atomic_t *stop;
} xr_task_watch;

/* Runs the waiting tasks, `jobs` at a time, and returns once none runs. A task
 * that fails does not stop the others. */
void xr_tasks_run(xr_task *tasks, size_t count, size_t jobs,
                  const xr_task_watch *watch);
/* The last step in the metrics file of a task, 0 before the first. */
uint64_t xr_task_step(const xr_task *task);
/* Why a task failed: the last line of its output that is a message of the
 * program, else the last line. */
void xr_task_complaint(const xr_task *task, xr_str *out);

#endif
