/* SPDX-License-Identifier: Apache-2.0
 *
 * A process of an MPI job in place of xray: asks the launcher mpi what it is,
 * drives a run that only gives places out, or is a Workhorse that only says
 * which it got.
 *
 *     mpirun -n 3 test-mpi-peer drive 3
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <xray/services.h>

#include "plugins/runtime-mpi/launcher.h"

static void say_line(const xray_host *host, uint32_t level, const char *text)
{
    (void)host;
    (void)level;
    (void)fprintf(stderr, "log: %s\n", text);
}

static xray_status say_failure(const xray_host *host, xray_status code,
                               const char *where, const char *text)
{
    (void)host;
    (void)fprintf(stderr, "%s: %s\n", where, text);
    return code;
}

static const void *give_service(const xray_host *host, const char *id)
{
    (void)host;
    (void)id;
    return NULL;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .log = say_line,
                                .fail = say_failure,
                                .service = give_service };

/* Gives the places out, and ends when the child does. */
static int drive_run(const char *ranks)
{
    const mpi_config config = { "" };
    const xray_launch_place places[8] = { { .name = "actor" } };
    const xray_launch_setup setup = {
        .header = XRAY_HEADER(xray_launch_setup),
        .host = &host,
        .places = places,
        .place_stride = sizeof(places[0]),
        .count = (uint32_t)strtoul(ranks, NULL, 10),
    };
    void *self = NULL;
    if (mpi_ops.create(&setup, &config, &self) != XRAY_OK)
        return 1;
    for (uint32_t i = 0; i < setup.count; i++) {
        char address[32];
        char token[32];
        (void)snprintf(address, sizeof(address), "tcp:here:1:%u", i);
        (void)snprintf(token, sizeof(token), "secret%u", i);
        const char *const argv[] = { "xray", "workhorse", address, NULL };
        const xray_launch launch = { .header = XRAY_HEADER(xray_launch),
                                     .argv = argv,
                                     .token = token,
                                     .index = i };
        (void)printf("place %u is on %s\n", i, mpi_ops.host_of(self, i));
        if (mpi_ops.start(self, &launch) != XRAY_OK)
            return 1;
    }
    (void)fflush(stdout);
    siginfo_t child;
    (void)waitid(P_ALL, 0, &child, WEXITED | WNOWAIT);
    /* A line that is opened between two ends of rank 0 is not closed with it.
     */
    for (uint32_t i = 0; i < setup.count; i++)
        mpi_ops.stop(self, i);
    const int other = dup(STDOUT_FILENO);
    mpi_ops.destroy(self);
    if (fcntl(other, F_GETFD) < 0)
        return 2;
    return mpi_ops.create(&setup, &config, &self) == XRAY_E_UNSUPPORTED ? 0 : 1;
}

int main(int argc, char **argv)
{
    const mpi_config config = { getenv("PEER_LIBRARY") ? getenv("PEER_LIBRARY")
                                                       : "" };
    xray_launch_entry entry = { .header = XRAY_HEADER(xray_launch_entry) };
    const int child = argc > 1 && strcmp(argv[1], "workhorse") == 0;
    if (mpi_ops.enter(&host, &config, child ? argv[argc - 1] : NULL, &entry) !=
        XRAY_OK)
        return 1;
    if (entry.kind == XRAY_ENTRY_DRIVER)
        return argc > 2 ? drive_run(argv[2]) : 3;
    (void)printf("a Workhorse: %s %s\n", entry.address, entry.token);
    return 0;
}
