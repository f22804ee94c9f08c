/* SPDX-License-Identifier: Apache-2.0
 *
 * Child processes of this program, so many at a time.
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
    XR_TASK_STOPPED, /* by the stop flag, and can go on */
};

typedef struct xr_task {
    char *name;
    char **argv;   /* argv[0] is shown, the program is this one; NULL ends it */
    char *output;  /* file both streams go to, anew each time */
    char *metrics; /* grows line by line; shown as progress */
    int state;
    int code; /* exit code, or 128 + signal */
    pid_t pid;
} xr_task;

/* Told when a task starts and when it ends. */
typedef void (*xr_task_told)(void *ctx, const xr_task *task);
/* Called several times a second. */
typedef void (*xr_tasks_tick)(void *ctx);

typedef struct xr_task_watch {
    void *ctx;
    xr_task_told told;
    xr_tasks_tick tick;
    /* Signals so far: each is passed on to the children, which have a group
     * of their own, and no task is started any more. */
    const volatile sig_atomic_t *stop;
} xr_task_watch;

/* Runs those that wait, `jobs` at a time, and returns when none runs any more.
 * A task that fails does not keep the others from running. */
void xr_tasks_run(xr_task *tasks, size_t count, size_t jobs,
                  const xr_task_watch *watch);
/* The last step in a metrics file, 0 if there is none yet. */
uint64_t xr_task_step(const xr_task *task);
/* What a failed task said last: the last line of its output that is one of the
 * program's messages, else its last line. */
void xr_task_complaint(const xr_task *task, xr_str *out);

#endif
