/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's side of the launcher: learns from its child where the processes
 * of the job are, and tells it what becomes of them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/str.h"
#include "plugins/runtime-mpi/launcher.h"

#define FIRST_WARNING_S 5.0
#define NEXT_WARNING_S 30.0
#define QUIT_MS 1000u /* for the others to be told */

/* A process is in one job of MPI, once, so this is no part of an instance. */
static struct {
    mpi_identity self;
    mpi_child child;
    uint32_t entered; /* 1: the child was started */
    uint32_t taken;   /* 1: an instance has used it */
} job;

typedef struct launcher {
    const xray_host *host;
    uint32_t count;
    uint32_t started; /* places that are filled */
    uint32_t sent;    /* 1: the child knows the places */
    uint32_t reserved;
    mpi_hello *hellos; /* [count], by rank of MPI */
    mpi_place *places; /* [count], by rank of MPI */
    uint32_t *rank_of; /* [count], the rank of MPI of a Workhorse */
} launcher;

xray_status mpi_drive(const xray_host *host, const char *library,
                      const mpi_identity *self)
{
    if (job.entered)
        return xr_host_fail(host, XRAY_E_STATE, MPI_WHERE,
                            "this process has joined its job before");
    xray_status status = mpi_child_start(host, library, &job.child);
    job.self = *self;
    job.entered = status == XRAY_OK;
    return status;
}

static void free_launcher(launcher *self)
{
    free(self->hellos);
    free(self->places);
    free(self->rank_of);
    free(self);
}

/* ---- waiting for the job ------------------------------------------------- */

static void warn_wait(const xray_host *host, uint32_t count, double seconds)
{
    char text[160];
    (void)snprintf(text, sizeof(text),
                   "runtime mpi: waits since %.0f s until all %u processes of "
                   "the job have joined MPI",
                   seconds, count);
    host->log(host, XRAY_LOG_WARN, text);
}

/* Receives what the child sends once all others have joined. */
static xray_status receive_all(const xray_host *host, void *out, size_t size)
{
    const xray_call_service *calls = xr_calls_of(host);
    const double begin = xr_now();
    double next = FIRST_WARNING_S;
    size_t at = 0;
    xray_status status;
    while ((status = mpi_child_receive(host, &job.child, out, size, &at)) ==
           XRAY_AGAIN) {
        xr_err err = { "" };
        const double waited = xr_now() - begin;
        if (xr_stop_check(calls, &err) != XRAY_OK)
            return xr_host_fail(host, XRAY_E_CANCELED, MPI_WHERE, "%s",
                                err.text);
        if (waited >= next) {
            warn_wait(host, job.self.size, waited);
            next = waited + NEXT_WARNING_S;
        }
    }
    return status;
}

static xray_status receive_hellos(launcher *self)
{
    mpi_report report = { .count = 0 };
    xray_status status = receive_all(self->host, &report, sizeof(report));
    if (status != XRAY_OK)
        return status;
    report.why[sizeof(report.why) - 1] = '\0';
    if (report.why[0] || report.count != self->count)
        return xr_host_fail(self->host, XRAY_E_CONFIG, MPI_WHERE, "%s",
                            report.why);
    return receive_all(self->host, self->hellos,
                       self->count * sizeof(*self->hellos));
}

/* Orders the ranks of MPI by their hosts, so that those of a host are
 * neighbours and a host has the same ranks whenever the set of hosts is the
 * same. */
static void order_ranks(launcher *self)
{
    for (uint32_t i = 0; i < self->count; i++) {
        const char *host = self->hellos[i].host;
        uint32_t at = i;
        while (at &&
               strcmp(self->hellos[self->rank_of[at - 1]].host, host) > 0) {
            self->rank_of[at] = self->rank_of[at - 1];
            at--;
        }
        self->rank_of[at] = i;
    }
}

static xray_status check_job(const xray_launch_setup *setup)
{
    if (!job.entered)
        return xr_host_fail(setup->host, XRAY_E_STATE, MPI_WHERE,
                            "this process has not joined its job");
    if (job.taken)
        return xr_host_fail(setup->host, XRAY_E_UNSUPPORTED, MPI_WHERE,
                            "the job of MPI ends with the first Workhorse that "
                            "is lost; start it again, and it resumes from the "
                            "last checkpoint ([trainer] resume_mode = auto)");
    if (setup->count != job.self.size)
        return xr_host_fail(setup->host, XRAY_E_CONFIG, MPI_WHERE,
                            "%u processes were started, but [run] ranks is %u; "
                            "start as many processes as ranks",
                            job.self.size, setup->count);
    return XRAY_OK;
}

xray_status mpi_create(const xray_launch_setup *setup, const void *config,
                       void **out_self)
{
    (void)config;
    xray_status status = check_job(setup);
    if (status != XRAY_OK)
        return status;
    launcher *self = xr_calloc(1, sizeof(*self));
    if (self) {
        self->host = setup->host;
        self->count = setup->count;
        self->hellos = xr_calloc(self->count, sizeof(*self->hellos));
        self->places = xr_calloc(self->count, sizeof(*self->places));
        self->rank_of = xr_calloc(self->count, sizeof(*self->rank_of));
    }
    if (!self || !self->hellos || !self->places || !self->rank_of) {
        if (self)
            free_launcher(self);
        return xr_host_fail(setup->host, XRAY_E_NOMEM, MPI_WHERE,
                            "out of memory for %u processes", setup->count);
    }
    job.taken = 1;
    status = receive_hellos(self);
    if (status != XRAY_OK) {
        mpi_destroy(self);
        return status;
    }
    order_ranks(self);
    *out_self = self;
    return XRAY_OK;
}

/* The child tells the others if there is no run. */
void mpi_destroy(void *self)
{
    launcher *at = self;
    if (!at)
        return;
    mpi_child_end(&job.child, at->sent ? 0 : QUIT_MS);
    free_launcher(at);
}

const char *mpi_host_of(void *self, uint32_t index)
{
    const launcher *at = self;
    return at->hellos[at->rank_of[index]].host;
}

/* ---- starting and ending ------------------------------------------------- */

static xray_status fill_place(launcher *self, const xray_launch *launch,
                              mpi_place *out)
{
    const char *address = "";
    for (const char *const *word = launch->argv; *word; word++)
        address = *word;
    if (out->kind)
        return xr_host_fail(self->host, XRAY_E_UNSUPPORTED, MPI_WHERE,
                            "a process of MPI cannot be started again");
    if (strlen(address) >= sizeof(out->address) ||
        strlen(launch->token) >= sizeof(out->token))
        return xr_host_fail(self->host, XRAY_E_RANGE, MPI_WHERE,
                            "the address or the token is too long");
    (void)snprintf(out->address, sizeof(out->address), "%s", address);
    (void)snprintf(out->token, sizeof(out->token), "%s", launch->token);
    out->kind = MPI_PLACE;
    return XRAY_OK;
}

/* All processes wait together, so they are told once all places are known. */
xray_status mpi_start(void *self, const xray_launch *launch)
{
    launcher *at = self;
    xray_status status =
        fill_place(at, launch, &at->places[at->rank_of[launch->index]]);
    if (status != XRAY_OK || ++at->started < at->count)
        return status;
    at->sent = 1;
    return mpi_child_send(at->host, &job.child, at->places,
                          at->count * sizeof(*at->places));
}

/* The processes of other ranks end with their connection to the run. */
void mpi_stop(void *self, uint32_t index)
{
    const launcher *at = self;
    if (at->rank_of[index] == 0 && at->sent)
        mpi_child_end(&job.child, 0);
}
