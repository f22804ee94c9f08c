/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts, feeds and ends a worker.
 */
#define _GNU_SOURCE /* dladdr, pipe2, environ */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/child.h"
#include "core/base/file.h"
#include "plugins/reward-ffi/fn.h"
#include "plugins/reward-ffi/script.h"

#define PROGRAM "reward-ffi-worker"
#define LINE_MOST 1000 /* bytes of a printed line that are logged at once */
#define END_MS 200     /* in which a worker whose channel ended is gone */

/* ---- start -------------------------------------------------------------- */

/* The program lies beside the plugin, which may have been loaded by a link. */
static int find_program(char *out, size_t cap)
{
    Dl_info info;
    char *module =
        dladdr(&fn_ops, &info) ? realpath(info.dli_fname, NULL) : NULL;
    if (!module)
        return ENOENT;
    char *slash = strrchr(module, '/');
    slash[1] = '\0';
    int size = snprintf(out, cap, "%s" PROGRAM, module);
    free(module);
    return size < 0 || (size_t)size >= cap ? ENAMETOOLONG : 0;
}

/* xr_child_start asks for pointers to text that may be written. */
static char *argument_of(const char *text)
{
    union {
        const char *in;
        char *out;
    } both = { .in = text };
    return both.out;
}

static int spawn_worker(const fn_config *config, int channel, int log,
                        int *out_pid)
{
    static const char *const forms[] = {
        [FN_VERL] = "verl", [FN_TRL] = "trl", [FN_BATCH] = "batch"
    };
    char program[XR_PATH_CAP];
    char parent[16];
    char memory[24];
    char *argv[16] = { program, parent, memory };
    int bad = find_program(program, sizeof(program));
    if (bad)
        return bad;
    (void)snprintf(parent, sizeof(parent), "%d", (int)getpid());
    (void)snprintf(memory, sizeof(memory), "%" PRIu64, config->memory);
    const char *call[] = { "call", config->library, config->symbol,
                           config->signature, NULL };
    const char *python[] = { "exec",       config->interpreter,
                             "-u",         "-X",
                             "utf8",       "-c",
                             fn_script,    config->path,
                             config->name, forms[config->call],
                             NULL };
    const char *const *rest = config->language == FN_PYTHON ? python : call;
    for (size_t i = 0; rest[i]; i++)
        argv[3 + i] = argument_of(rest[i]);
    const int files[XR_CHILD_FILES] = { XR_CHILD_NOTHING, log, log, channel };
    return xr_child_start(argv, files, 0, out_pid);
}

static void close_files(int *files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (files[i] >= 0)
            (void)close(files[i]);
}

int fn_worker_start(fn_worker *worker, const fn_config *config)
{
    int files[4] = { -1, -1, -1, -1 }; /* channel, its end; log, its end */
    int bad = 0;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, files) ||
        pipe2(files + 2, O_CLOEXEC))
        bad = errno;
    if (!bad && fcntl(files[2], F_SETFL, O_NONBLOCK))
        bad = errno;
    if (!bad)
        bad = spawn_worker(config, files[1], files[3], &worker->pid);
    if (bad) {
        close_files(files, 4);
        worker->pid = 0;
        return bad;
    }
    (void)close(files[1]);
    (void)close(files[3]);
    worker->fd = files[0];
    worker->log = files[2];
    return 0;
}

/* ---- talk --------------------------------------------------------------- */

int fn_worker_send(fn_worker *worker)
{
    const xr_str *line = &worker->job->line;
    while (worker->sent < line->size) {
        ssize_t n =
            send(worker->fd, line->data + worker->sent,
                 line->size - worker->sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            return 0;
        if (n < 0 && errno != EINTR)
            return -1;
        worker->sent += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

int fn_worker_receive(fn_worker *worker)
{
    char bytes[4096];
    for (;;) {
        ssize_t n = recv(worker->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n > 0)
            xr_str_append(&worker->in, bytes, (size_t)n);
        else if (n < 0 && errno == EAGAIN)
            return 0;
        else if (n == 0 || errno != EINTR)
            return -1;
    }
}

static void log_line(const xray_host *host, char *text, size_t size)
{
    char line[LINE_MOST + 64];
    if (!size)
        return;
    (void)snprintf(line, sizeof(line), "the function prints: %.*s", (int)size,
                   text);
    xr_one_line(line);
    host->log(host, XRAY_LOG_INFO, line);
}

int fn_worker_log(fn_worker *worker, const xray_host *host)
{
    char bytes[4096];
    xr_str *all = &worker->printed;
    ssize_t n = read(worker->log, bytes, sizeof(bytes));
    if (n == 0) { /* every process that could print has ended */
        (void)close(worker->log);
        worker->log = -1;
    }
    if (n > 0)
        xr_str_append(all, bytes, (size_t)n);
    size_t from = 0;
    for (size_t i = 0; i < all->size; i++) {
        if (all->data[i] != '\n' && i - from < LINE_MOST)
            continue;
        log_line(host, all->data + from, i - from);
        from = all->data[i] == '\n' ? i + 1 : i;
    }
    if (n == 0)
        log_line(host, all->data + from, all->size - from);
    if (n == 0 || from == all->size) {
        xr_str_clear(all);
    } else if (from) {
        memmove(all->data, all->data + from, all->size - from);
        all->size -= from;
    }
    return n > 0;
}

/* ---- end ---------------------------------------------------------------- */

/* A worker whose channel ended is about to end itself, and how it does is the
 * answer. One that hangs is killed. */
static int wait_for_end(int pid, int *status)
{
    const struct timespec pause = { .tv_nsec = 1000000 };
    for (int i = 0; i < END_MS; i++) {
        if (waitpid(pid, status, WNOHANG) == pid)
            return 1;
        (void)nanosleep(&pause, NULL);
    }
    return 0;
}

void fn_worker_end(fn_worker *worker, char *how, size_t cap)
{
    int status = 0;
    int alone = how && wait_for_end(worker->pid, &status);
    (void)kill(-worker->pid, SIGKILL);
    while (!alone && waitpid(worker->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (how && WIFSIGNALED(status) && alone)
        (void)snprintf(how, cap, "crashed (%s)", strsignal(WTERMSIG(status)));
    else if (how && alone)
        (void)snprintf(how, cap, "ended its process (exit code %d)",
                       WEXITSTATUS(status));
    else if (how)
        (void)snprintf(how, cap, "closed its channel");
    (void)close(worker->fd);
    worker->pid = 0;
    worker->ready = 0;
    xr_str_clear(&worker->in);
}
