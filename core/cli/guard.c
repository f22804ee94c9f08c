/* SPDX-License-Identifier: Apache-2.0 */
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

/* Handlers reach nothing but static storage. */
static struct sigaction before[CRASHES]; /* of a sanitizer, else the default */
static unsigned char crash_stack[65536]; /* a stack overflow leaves no other */

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

static void put(line *l, const char *text)
{
    size_t n = strlen(text);
    size_t room = sizeof(l->text) - 1 - l->size;
    n = n < room ? n : room;
    memcpy(l->text + l->size, text, n);
    l->size += n;
}

static void write_line(line *l)
{
    l->text[l->size++] = '\n';
    (void)!write(STDERR_FILENO, l->text, l->size);
}

/* ---- crashes ------------------------------------------------------------ */

static void on_crash(int number)
{
    line l = { .size = 0 };
    xr_guard_call call;
    put(&l, "xray: ");
    if (xr_guard_now(&call)) {
        put(&l, call.plugin);
        put(&l, ": crashed in ");
        put(&l, call.call);
    } else {
        put(&l, "crashed outside of plugins");
    }
    for (size_t i = 0; i < CRASHES; i++) {
        if (crashes[i].number != number)
            continue;
        put(&l, " (");
        put(&l, crashes[i].name);
        put(&l, ")");
        (void)sigaction(number, &before[i], NULL);
    }
    write_line(&l);
    /* Dies by the signal, or in the hands of a sanitizer, once this returns. */
    (void)raise(number);
}

static void catch_crashes(void)
{
    const stack_t stack = { .ss_sp = crash_stack,
                            .ss_size = sizeof crash_stack };
    struct sigaction action = { .sa_handler = on_crash,
                                .sa_flags = SA_ONSTACK };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaltstack(&stack, NULL);
    for (size_t i = 0; i < CRASHES; i++)
        (void)sigaction(crashes[i].number, &action, &before[i]);
}

/* ---- exit --------------------------------------------------------------- */

/* Runs when exit is called while a plugin's code runs: nobody else calls it
 * then. Any exit code would be mistaken for the run's own. */
static void on_exit_call(void)
{
    line l = { .size = 0 };
    xr_guard_call call;
    if (!xr_guard_now(&call))
        return;
    put(&l, "xray: ");
    put(&l, call.plugin);
    put(&l, ": called exit in ");
    put(&l, call.call);
    put(&l, "; a plugin must not end the process");
    write_line(&l);
    _exit(CLI_FAILED);
}

/* ---- hangs -------------------------------------------------------------- */

static void end_if_hung(void)
{
    xr_guard_call call;
    char text[64];
    line l = { .size = 0 };
    if (!xr_guard_now(&call) || !call.deadline_ns ||
        xr_guard_clock() < call.deadline_ns)
        return;
    (void)snprintf(text, sizeof text, " within %g s ([run] plugin_timeout)",
                   1e-9 * (double)xr_guard_limit_now());
    put(&l, "xray: ");
    put(&l, call.plugin);
    put(&l, ": did not come back from ");
    put(&l, call.call);
    put(&l, text);
    write_line(&l);
    _exit(CLI_FAILED);
}

static void *watch(void *unused)
{
    (void)unused;
    (void)pthread_mutex_lock(&watchdog.lock);
    while (!watchdog.stop) {
        struct timespec until = { 0, 0 };
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += 1;
        (void)pthread_cond_timedwait(&watchdog.wake, &watchdog.lock, &until);
        end_if_hung();
    }
    (void)pthread_mutex_unlock(&watchdog.lock);
    return NULL;
}

/* The thread takes no signals: they are for the one that drives the run. */
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
    watchdog.running = pthread_create(&watchdog.thread, NULL, watch, NULL) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void cli_guard_start(void)
{
    catch_crashes();
    (void)atexit(on_exit_call);
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
