/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that joins MPI tells rank 0 its host and waits for its place in the
 * run. Rank 0, the driver's child, gives the places out.
 *
 * All waiting asks in between whether it shall end, so no call of MPI is made
 * that waits for others, but for its initialization.
 */
#define _GNU_SOURCE /* on_exit */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/str.h"
#include "plugins/runtime-mpi/launcher.h"

#define TAG_HELLO 1
#define TAG_PLACE 2
#define STEP_NS 2000000L
#define QUIT_S 3.0   /* for the others to be told that there is no run */
#define ORPHAN_S 10u /* at most, after the driver's death */
#define SPEAK_S 10.0 /* a failure of all ranks is told by the driver */

/* A library of MPI is initialized once in a process, and its end belongs to
 * that of the process. */
static mpi_api mpi;

typedef struct joining {
    const xray_host *host;
    const xray_call_service *calls;
    mpi_identity self;
    int line; /* to the driver; -1: this is not rank 0 */
} joining;

/* mpirun takes a process that joined MPI and left without a word for one that
 * crashed. That is what it is for if the process failed, and its ranks may not
 * come to the end of MPI, which is for all. */
static void finish_mpi(int status, void *unused)
{
    int is_over = 0;
    (void)unused;
    if (status == 0 && mpi.finalized(&is_over) == MPI_API_OK && !is_over)
        (void)mpi.finalize();
}

static void sleep_step(void)
{
    const struct timespec step = { .tv_nsec = STEP_NS };
    (void)nanosleep(&step, NULL);
}

/* ---- failures ------------------------------------------------------------ */

/* Only the driver has something to say. */
static void leave_quietly(void)
{
    _exit(1);
}

static void end_soon(int number)
{
    (void)number;
    (void)alarm(ORPHAN_S);
}

/* The kernel sends the child this signal once the driver is dead; 0: none. The
 * child then still tells the others, if the library gets that far: whether it
 * initializes itself depends on all of them. */
static void limit_life(int number)
{
    struct sigaction action = { .sa_handler = end_soon,
                                .sa_flags = SA_RESTART };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGUSR2, &action, NULL);
    (void)prctl(PR_SET_PDEATHSIG, number);
}

/* A host of calls whose sentences are for the driver. */
typedef struct noting {
    xray_host host;
    char why[1024];
} noting;

static xray_status note_failure(const xray_host *host, xray_status code,
                                const char *where, const char *message)
{
    noting *note = host->host_data;
    (void)where;
    (void)snprintf(note->why, sizeof(note->why), "%s", message);
    return code;
}

static int send_line(int line, const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t n = send(line, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

/* The end of the input says that the driver is gone. */
static int receive_line(int line, void *out, size_t size)
{
    char *at = out;
    while (size) {
        ssize_t n = recv(line, at, size, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return -1;
        at += n;
        size -= (size_t)n;
    }
    return 0;
}

/* A fault of all ranks is told once, by the driver, whose end is that of the
 * job; so the others give it the time. */
static xray_status tell_failure(const joining *j, const noting *note,
                                xray_status status)
{
    if (j->line >= 0) {
        mpi_report report = { .count = 0 };
        (void)snprintf(report.why, sizeof(report.why), "%s", note->why);
        (void)send_line(j->line, &report, sizeof(report));
        leave_quietly();
    }
    const double until = xr_now() + SPEAK_S;
    while (xr_now() < until && !(j->calls && j->calls->stopping(j->calls)))
        sleep_step();
    return xr_host_fail(j->host, status, MPI_WHERE, "%s", note->why);
}

/* ---- joining ------------------------------------------------------------- */

static xray_status check_world(const xray_host *host, const joining *j,
                               int provided)
{
    int rank = -1;
    int size = -1;
    char name[128];
    int code = mpi.comm_set_errhandler(mpi.world, mpi.errors_return);
    if (code == MPI_API_OK)
        code = mpi.comm_rank(mpi.world, &rank);
    if (code == MPI_API_OK)
        code = mpi.comm_size(mpi.world, &size);
    if (code != MPI_API_OK)
        return mpi_api_fail(host, MPI_WHERE, &mpi, "its world", code);
    mpi_api_describe(&mpi, name, sizeof(name));
    if ((uint32_t)size != j->self.size || (uint32_t)rank != j->self.rank)
        return xr_host_fail(
            host, XRAY_E_CONFIG, MPI_WHERE,
            "%u processes were started, but the library of MPI sees %d (%s): "
            "it is not that of this mpirun or srun; name the right one by "
            "[runtime.mpi] library",
            j->self.size, size, name);
    if (provided < mpi.serialized)
        return xr_host_fail(host, XRAY_E_CONFIG, MPI_WHERE,
                            "the library of MPI (%s) serves one thread only",
                            name);
    return XRAY_OK;
}

static xray_status open_mpi(const xray_host *host, const char *library,
                            const joining *j)
{
    int provided = 0;
    xray_status status = mpi_api_load(host, MPI_WHERE, library, &mpi);
    if (status != XRAY_OK)
        return status;
    int code = mpi.init_thread(NULL, NULL, mpi.multiple, &provided);
    if (code != MPI_API_OK)
        return mpi_api_fail(host, MPI_WHERE, &mpi, "to begin", code);
    status = check_world(host, j, provided);
    if (status == XRAY_OK && on_exit(finish_mpi, NULL))
        status = xr_host_fail(host, XRAY_E_NOMEM, MPI_WHERE, "out of memory");
    return status;
}

/* A name that is a host's in every file and message. */
static void name_host(mpi_hello *out)
{
    memset(out, 0, sizeof(*out));
    if (gethostname(out->host, sizeof(out->host) - 1) || !*out->host)
        (void)snprintf(out->host, sizeof(out->host), "unnamed");
    out->host[sizeof(out->host) - 1] = '\0';
    for (char *at = out->host; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                    "0123456789._-",
                    *at) ||
            (at == out->host && *at == '-'))
            *at = '_';
}

static int is_over(const joining *j)
{
    char byte;
    if (j->line < 0)
        return j->calls && j->calls->stopping(j->calls);
    return recv(j->line, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Waits until the request is done, or returns XRAY_AGAIN if it shall not. */
static xray_status await_request(const joining *j, mpi_handle *request)
{
    for (;;) {
        int done = 0;
        int code = mpi.test(request, &done, mpi.status_ignore);
        if (code != MPI_API_OK)
            return mpi_api_fail(j->host, MPI_WHERE, &mpi, "a message", code);
        if (done)
            return XRAY_OK;
        if (is_over(j))
            return XRAY_AGAIN;
        sleep_step();
    }
}

/* ---- rank 0 -------------------------------------------------------------- */

typedef struct giving {
    uint32_t count;
    uint32_t reserved;
    mpi_hello *hellos; /* [count] */
    mpi_place *places; /* [count] */
    mpi_handle *sends; /* [count] */
} giving;

static xray_status send_places(const joining *j, giving *g)
{
    for (uint32_t r = 1; r < g->count; r++) {
        g->sends[r] = 0;
        int code = mpi.isend(&g->places[r], (int)sizeof(*g->places), mpi.byte,
                             (int)r, TAG_PLACE, mpi.world, &g->sends[r]);
        if (code != MPI_API_OK)
            return mpi_api_fail(j->host, MPI_WHERE, &mpi, "a message", code);
    }
    return XRAY_OK;
}

/* There is no run: tells all, also those that begin later, as far as they come
 * within a few seconds, and ends. */
static void quit_all(const joining *j, giving *g)
{
    const double until = xr_now() + QUIT_S;
    for (uint32_t r = 0; r < g->count; r++)
        g->places[r] = (mpi_place){ .kind = MPI_QUIT };
    if (send_places(j, g) != XRAY_OK)
        leave_quietly();
    for (uint32_t r = 1; r < g->count; r++)
        for (int done = 0; !done && xr_now() < until; sleep_step())
            (void)mpi.test(&g->sends[r], &done, mpi.status_ignore);
    leave_quietly();
}

static xray_status receive_hellos(const joining *j, giving *g)
{
    for (uint32_t r = 1; r < g->count; r++) {
        mpi_handle request = 0;
        int code = mpi.irecv(&g->hellos[r], (int)sizeof(*g->hellos), mpi.byte,
                             (int)r, TAG_HELLO, mpi.world, &request);
        if (code != MPI_API_OK)
            return mpi_api_fail(j->host, MPI_WHERE, &mpi, "a message", code);
        xray_status status = await_request(j, &request);
        if (status == XRAY_AGAIN)
            quit_all(j, g);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

static xray_status give_places(const joining *j, giving *g)
{
    const mpi_report report = { .count = g->count };
    name_host(&g->hellos[0]);
    xray_status status = receive_hellos(j, g);
    if (status != XRAY_OK)
        return status;
    if (send_line(j->line, &report, sizeof(report)) ||
        send_line(j->line, g->hellos, g->count * sizeof(*g->hellos)) ||
        receive_line(j->line, g->places, g->count * sizeof(*g->places)))
        quit_all(j, g);
    status = send_places(j, g);
    for (uint32_t r = 1; r < g->count && status == XRAY_OK; r++)
        status = await_request(j, &g->sends[r]);
    return status;
}

static xray_status serve_rank_0(const joining *j, mpi_place *out)
{
    giving g = { .count = j->self.size };
    g.hellos = xr_calloc(g.count, sizeof(*g.hellos));
    g.places = xr_calloc(g.count, sizeof(*g.places));
    g.sends = xr_calloc(g.count, sizeof(*g.sends));
    xray_status status = XRAY_OK;
    if (g.hellos && g.places && g.sends)
        status = give_places(j, &g);
    else
        status = xr_host_fail(j->host, XRAY_E_NOMEM, MPI_WHERE,
                              "out of memory for %u processes", g.count);
    if (status == XRAY_OK)
        *out = g.places[0];
    free(g.hellos);
    free(g.places);
    free(g.sends);
    /* The driver is gone, and so is the run. */
    if (status == XRAY_AGAIN)
        leave_quietly();
    return status;
}

/* ---- the other ranks ----------------------------------------------------- */

static xray_status ask_rank_0(const joining *j, mpi_place *out)
{
    mpi_hello hello;
    mpi_handle sent = 0;
    mpi_handle received = 0;
    name_host(&hello);
    int code = mpi.irecv(out, (int)sizeof(*out), mpi.byte, 0, TAG_PLACE,
                         mpi.world, &received);
    if (code == MPI_API_OK)
        code = mpi.isend(&hello, (int)sizeof(hello), mpi.byte, 0, TAG_HELLO,
                         mpi.world, &sent);
    if (code != MPI_API_OK)
        return mpi_api_fail(j->host, MPI_WHERE, &mpi, "a message", code);
    xray_status status = await_request(j, &sent);
    if (status == XRAY_OK)
        status = await_request(j, &received);
    if (status == XRAY_AGAIN)
        return xr_host_fail(j->host, XRAY_E_CANCELED, MPI_WHERE,
                            "the host stops");
    if (status == XRAY_OK && out->kind == MPI_QUIT)
        leave_quietly();
    return status;
}

/* -------------------------------------------------------------------------- */

xray_status mpi_join(const xray_host *host, const char *library,
                     const mpi_identity *self, int line, xray_launch_entry *out)
{
    noting note = { .host = { .header = XRAY_HEADER(xray_host),
                              .host_data = &note,
                              .fail = note_failure } };
    const joining j = { host, xr_calls_of(host), *self, line };
    mpi_place place = { .kind = MPI_QUIT };
    if (line >= 0)
        limit_life(SIGUSR2);
    xray_status status = open_mpi(&note.host, library, &j);
    if (status != XRAY_OK)
        return tell_failure(&j, &note, status);
    status = line >= 0 ? serve_rank_0(&j, &place) : ask_rank_0(&j, &place);
    if (line >= 0)
        limit_life(0);
    if (status != XRAY_OK)
        return status;
    out->kind = XRAY_ENTRY_WORKHORSE;
    (void)snprintf(out->address, sizeof(out->address), "%s", place.address);
    (void)snprintf(out->token, sizeof(out->token), "%s", place.token);
    return XRAY_OK;
}
