/* SPDX-License-Identifier: Apache-2.0
 *
 * Names the plugin when it crashes, calls exit or does not return in time.
 */
#define _XOPEN_SOURCE 700 /* sigaltstack */
#include "core/cli/guard.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/cli/cli.h"
#include "core/plugin/guard.h"

static const struct crash {
    int number;
    const char *name;
} crashes[] = {
    { SIGSEGV, "SIGSEGV" }, { SIGBUS, "SIGBUS" },   { SIGFPE, "SIGFPE" },
    { SIGILL, "SIGILL" },   { SIGABRT, "SIGABRT" },
};
enum { CRASHES = sizeof crashes / sizeof crashes[0] };

/* Signal handlers have access to static variables only. */
static struct sigaction before[CRASHES]; /* of a sanitizer, else the default */
static unsigned char crash_stack[65536]; /* for crashes by stack overflow */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int running;
    int stop;
} watchdog;

/* ---- text without stdio ------------------------------------------------- */

typedef struct line {
    char text[512];
    size_t size;
} line;

static void append_text(line *l, const char *text)
{
    size_t n = strlen(text);
    size_t space = sizeof(l->text) - 1 - l->size;
    n = n < space ? n : space;
    memcpy(l->text + l->size, text, n);
    l->size += n;
}

static void write_line(line *l)
{
    l->text[l->size++] = '\n';
    (void)!write(STDERR_FILENO, l->text, l->size);
}

/* ---- crashes ------------------------------------------------------------ */

static void report_crash(int number)
{
    line l = { .size = 0 };
    xr_guard_call call;
    append_text(&l, "xray: ");
    if (xr_guard_now(&call)) {
        append_text(&l, call.plugin);
        append_text(&l, ": crashed in ");
        append_text(&l, call.call);
    } else {
        append_text(&l, "crashed outside of plugins");
    }
    for (size_t i = 0; i < CRASHES; i++) {
        if (crashes[i].number != number)
            continue;
        append_text(&l, " (");
        append_text(&l, crashes[i].name);
        append_text(&l, ")");
        (void)sigaction(number, &before[i], NULL);
    }
    write_line(&l);
    /* The handler of before is in force again: the process dies by the signal,
     * or a sanitizer reports it, once this returns. */
    (void)raise(number);
}

static void catch_crashes(void)
{
    const stack_t stack = { .ss_sp = crash_stack,
                            .ss_size = sizeof crash_stack };
    struct sigaction action = { .sa_handler = report_crash,
                                .sa_flags = SA_ONSTACK };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaltstack(&stack, NULL);
    for (size_t i = 0; i < CRASHES; i++)
        (void)sigaction(crashes[i].number, &action, &before[i]);
}

/* ---- exit --------------------------------------------------------------- */

/* If exit is called while a plugin's code runs, the plugin called it. Its exit
 * code is replaced, since it would be taken for that of the run. */
static void report_exit_call(void)
{
    line l = { .size = 0 };
    xr_guard_call call;
    if (!xr_guard_now(&call))
        return;
    append_text(&l, "xray: ");
    append_text(&l, call.plugin);
    append_text(&l, ": called exit in ");
    append_text(&l, call.call);
    append_text(&l, "; a plugin must not end the process");
    write_line(&l);
    _exit(CLI_FAILED);
}

/* ---- hangs -------------------------------------------------------------- */

static void end_hung_call(void)
{
    xr_guard_call call;
    char text[64];
    line l = { .size = 0 };
    if (!xr_guard_now(&call) || !call.deadline_ns ||
        xr_guard_clock() < call.deadline_ns)
        return;
    (void)snprintf(text, sizeof text, " within %g s ([run] plugin_timeout)",
                   1e-9 * (double)xr_guard_limit_now());
    append_text(&l, "xray: ");
    append_text(&l, call.plugin);
    append_text(&l, ": did not come back from ");
    append_text(&l, call.call);
    append_text(&l, text);
    write_line(&l);
    _exit(CLI_FAILED);
}

static void *watch_calls(void *unused)
{
    (void)unused;
    (void)pthread_mutex_lock(&watchdog.lock);
    while (!watchdog.stop) {
        struct timespec until = { 0, 0 };
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += 1;
        (void)pthread_cond_timedwait(&watchdog.wake, &watchdog.lock, &until);
        end_hung_call();
    }
    (void)pthread_mutex_unlock(&watchdog.lock);
    return NULL;
}

/* The thread blocks all signals, so that they reach the one that drives the
 * run. */
static void start_watchdog(void)
{
    pthread_condattr_t attributes;
    sigset_t all;
    sigset_t old;
    if (pthread_mutex_init(&watchdog.lock, NULL) != 0 ||
        pthread_condattr_init(&attributes) != 0)
        return;
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(&watchdog.wake, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    if (failed)
        return;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    watchdog.running =
        pthread_create(&watchdog.thread, NULL, watch_calls, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void cli_guard_start(void)
{
    catch_crashes();
    (void)atexit(report_exit_call);
    start_watchdog();
}

void cli_guard_stop(void)
{
    if (!watchdog.running)
        return;
    (void)pthread_mutex_lock(&watchdog.lock);
    watchdog.stop = 1;
    (void)pthread_cond_signal(&watchdog.wake);
    (void)pthread_mutex_unlock(&watchdog.lock);
    (void)pthread_join(watchdog.thread, NULL);
    watchdog.running = 0;
}
