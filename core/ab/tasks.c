/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts child processes of this program, passes signals on and reads their
 * output.
 */
#include "core/ab/tasks.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "core/base/file.h"
#include "core/base/system_error.h"

extern char **environ;

/* ---- starting ----------------------------------------------------------- */

/* Without a process group of its own, a child would receive Ctrl-C twice: from
 * the terminal and from this process. */
static int set_spawn_attributes(posix_spawnattr_t *attributes)
{
    sigset_t reset;
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigemptyset(&reset);
    (void)sigaddset(&reset, SIGINT);
    (void)sigaddset(&reset, SIGTERM);
    (void)posix_spawnattr_setsigdefault(attributes, &reset);
    (void)posix_spawnattr_setsigmask(attributes, &none);
    (void)posix_spawnattr_setpgroup(attributes, 0);
    return posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF |
                                                    POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETPGROUP);
}

static int spawn_task(xr_task *task)
{
    static const char self[] = "/proc/self/exe";
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    if (posix_spawn_file_actions_init(&actions) != 0)
        return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    int failed = set_spawn_attributes(&attributes);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&actions, 0, "/dev/null",
                                                  O_RDONLY, 0);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(
            &actions, 1, task->output, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (!failed)
        failed = posix_spawn_file_actions_adddup2(&actions, 1, 2);
    if (!failed)
        failed = posix_spawn(&task->pid, self, &actions, &attributes,
                             task->argv, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

static void start_task(xr_task *task, const xr_task_watch *watch)
{
    int failed = spawn_task(task);
    task->state = failed ? XR_TASK_FAILED : XR_TASK_RUNS;
    task->code = failed ? 127 : 0;
    if (failed) {
        char text[256];
        int n = snprintf(text, sizeof(text), "xray: cannot start: %s\n",
                         XR_SYSTEM_ERROR(failed));
        (void)xr_file_write(task->output, text, (size_t)n, NULL);
    }
    watch->changed(watch->ctx, task);
}

/* ---- ending ------------------------------------------------------------- */

static void finish_task(xr_task *task, int status, const xr_task_watch *watch)
{
    task->code =
        WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    task->state = task->code == 0 ? XR_TASK_DONE : XR_TASK_FAILED;
    if (*watch->stop &&
        (task->code == 128 + SIGINT || task->code == 128 + SIGTERM))
        task->state = XR_TASK_STOPPED;
    watch->changed(watch->ctx, task);
}

static void reap_tasks(xr_task *tasks, size_t count, const xr_task_watch *watch)
{
    for (size_t i = 0; i < count; i++) {
        int status = 0;
        if (tasks[i].state == XR_TASK_RUNS &&
            waitpid(tasks[i].pid, &status, WNOHANG) == tasks[i].pid)
            finish_task(&tasks[i], status, watch);
    }
}

static size_t count_running(const xr_task *tasks, size_t count)
{
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += tasks[i].state == XR_TASK_RUNS ? 1u : 0u;
    return n;
}

static xr_task *find_waiting_task(xr_task *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tasks[i].state == XR_TASK_WAITS)
            return &tasks[i];
    return NULL;
}

static void interrupt_tasks(xr_task *tasks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (tasks[i].state == XR_TASK_RUNS)
            (void)kill(tasks[i].pid, SIGINT);
}

void xr_tasks_run(xr_task *tasks, size_t count, size_t jobs,
                  const xr_task_watch *watch)
{
    const struct timespec pause = { 0, 50000000 };
    int passed = 0;
    for (;;) {
        reap_tasks(tasks, count, watch);
        for (; passed < *watch->stop; passed++)
            interrupt_tasks(tasks, count);
        xr_task *next = *watch->stop ? NULL : find_waiting_task(tasks, count);
        size_t now = count_running(tasks, count);
        if (!next && !now)
            return;
        if (next && now < jobs) {
            start_task(next, watch);
            continue;
        }
        watch->tick(watch->ctx);
        (void)nanosleep(&pause, NULL);
    }
}

/* ---- output of tasks ---------------------------------------------------- */

/* Reads the last `cap` - 1 bytes of a file; "" if it cannot be read. */
static void read_file_tail(const char *path, char *out, size_t cap)
{
    xr_map_file map;
    out[0] = '\0';
    if (xr_file_map(path, NULL, &map) != XRAY_OK)
        return;
    size_t size = map.size < cap - 1 ? map.size : cap - 1;
    if (size)
        memcpy(out, map.data + map.size - size, size);
    out[size] = '\0';
    xr_file_unmap(&map);
}

uint64_t xr_task_step(const xr_task *task)
{
    char tail[16384];
    uint64_t step = 0;
    read_file_tail(task->metrics, tail, sizeof(tail));
    for (const char *at = strstr(tail, "{\"step\":"); at;
         at = strstr(at + 1, "{\"step\":"))
        step = strtoull(at + 8, NULL, 10);
    return step;
}

void xr_task_complaint(const xr_task *task, xr_str *out)
{
    char tail[8192];
    const char *last = "";
    size_t size = 0;
    int ours = 0;
    read_file_tail(task->output, tail, sizeof(tail));
    for (const char *at = tail; *at;) {
        size_t n = strcspn(at, "\n");
        int message = strncmp(at, "xray: ", 6) == 0;
        if (n && (message || !ours)) {
            last = at;
            size = n;
            ours = message;
        }
        at += n + (at[n] == '\n');
    }
    if (ours) {
        last += 6;
        size -= 6;
    }
    if (size)
        xr_str_append(out, last, size);
    else
        xr_str_printf(out, "it ended with exit code %d and printed nothing",
                      task->code);
}
