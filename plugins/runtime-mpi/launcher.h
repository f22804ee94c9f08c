/* SPDX-License-Identifier: Apache-2.0
 *
 * How the processes of an MPI job become the driver and the Workhorses of a
 * run.
 *
 * The process that mpirun started as rank 0 is the driver and never calls MPI.
 * A child of it is rank 0 of MPI, and a Workhorse like those into which the
 * processes of the other ranks turn. Everybody tells rank 0 the name of his
 * host; the child tells the driver, which orders the ranks by their hosts, and
 * gets the address and the token of every Workhorse from it, which it passes
 * on. From then on the run talks to its Workhorses over TCP.
 */
#ifndef MPI_LAUNCHER_H
#define MPI_LAUNCHER_H

#include <sys/types.h>

#include <xray/launcher.h>

#include "core/base/services.h"
#include "plugins/mpi/mpi_api.h"

#define MPI_WHERE "runtime mpi"
#define MPI_HOST_BYTES (XRAY_LAUNCH_HOST_MOST + 1u)

typedef struct mpi_config {
    const char *library; /* "": what is found */
} mpi_config;

/* Who a process is in its job, as the environment says. */
typedef struct mpi_identity {
    uint32_t rank;
    uint32_t size;
} mpi_identity;

/* Every process tells rank 0 this. */
typedef struct mpi_hello {
    char host[MPI_HOST_BYTES];
} mpi_hello;

#define MPI_PLACE 1u
#define MPI_QUIT 2u /* the run does not take place */

/* Rank 0 answers every process with this. */
typedef struct mpi_place {
    uint32_t kind; /* MPI_PLACE or MPI_QUIT */
    uint32_t reserved;
    char address[128];
    char token[XRAY_LAUNCH_TOKEN_MOST + 1u];
} mpi_place;

/* The child tells the driver this; `count` hellos by rank follow. The driver
 * answers with `count` places by rank. */
typedef struct mpi_report {
    uint32_t count;
    char why[1024]; /* MPI cannot be used; empty: it can */
} mpi_report;

extern const xray_launcher_ops mpi_ops;

/* Fails with a sentence if no mpirun or srun started this process. */
xray_status mpi_identify(const xray_host *host, mpi_identity *out);

/* ---- join.c: the processes that call MPI --------------------------------- */

/* Joins MPI and returns once the run has a place for this process. `line`: the
 * driver's end of it is the child's standard input; -1: the process of another
 * rank than 0. Does not return if the run does not take place. */
xray_status mpi_join(const xray_host *host, const char *library,
                     const mpi_identity *self, int line,
                     xray_launch_entry *out);

/* ---- child.c: the driver's child ----------------------------------------- */

typedef struct mpi_child {
    pid_t pid; /* 0: none */
    int line;  /* to its standard input, in both directions; -1: none */
} mpi_child;

/* Starts it as "PROGRAM workhorse mpi FOLDER mpi:LIBRARY". */
#define MPI_ADDRESS "mpi:"
xray_status mpi_child_start(const xray_host *host, const char *library,
                            mpi_child *out);
/* Waits up to `ms` until it has ended, then kills it. Without a child it does
 * nothing. */
void mpi_child_end(mpi_child *child, uint64_t ms);
/* Receives `size` bytes. XRAY_AGAIN: nothing came for a while, *at tells how
 * much did before. */
xray_status mpi_child_receive(const xray_host *host, mpi_child *child,
                              void *out, size_t size, size_t *at);
xray_status mpi_child_send(const xray_host *host, mpi_child *child,
                           const void *data, size_t size);

/* ---- driver.c: the members of mpi_ops ------------------------------------ */

/* The driver's process is told that it is one; its child joins MPI meanwhile.
 */
xray_status mpi_drive(const xray_host *host, const char *library,
                      const mpi_identity *self);
xray_status mpi_create(const xray_launch_setup *setup, const void *config,
                       void **out_self);
void mpi_destroy(void *self);
const char *mpi_host_of(void *self, uint32_t index);
xray_status mpi_start(void *self, const xray_launch *launch);
void mpi_stop(void *self, uint32_t index);

#endif
