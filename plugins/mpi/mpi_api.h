/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of MPI that runtime-mpi and comm-mpi call. The library is found
 * at run time, so that the plugins build and are listed where there is none.
 *
 * Handles have no common type: Open MPI's are pointers to objects of the
 * library, MPICH's are numbers of type int, and those of MPI 5's standard ABI
 * are small numbers in pointers. All of them fit in an mpi_handle. As an
 * argument it is a register, of which a function that expects an int reads the
 * low half. A result must be written to a handle that is 0 before the call,
 * since a function that writes an int leaves the other half as it is; that half
 * comes last, because processors that X-ray runs on are little-endian. An array
 * of handles has no common form and is passed to no function here. A status is
 * never asked for: pass `status_ignore`.
 */
#ifndef MPI_API_H
#define MPI_API_H

#include <stddef.h>
#include <stdint.h>

#include <xray/host.h>

#define MPI_API_OK 0       /* MPI_SUCCESS */
#define MPI_API_TEXT 8193u /* bytes for any text that MPI writes */

typedef uintptr_t mpi_handle;

typedef struct mpi_api {
    /* ---- constants ---- */
    int serialized; /* MPI_THREAD_SERIALIZED: one thread at a time calls */
    int multiple;   /* MPI_THREAD_MULTIPLE */
    mpi_handle status_ignore; /* in place of a pointer to a status */
    mpi_handle world;
    mpi_handle request_null;
    mpi_handle byte;
    mpi_handle errors_return;
    /* ---- the library ---- */
    int (*initialized)(int *out);
    int (*init_thread)(int *argc, char ***argv, int wanted, int *out_provided);
    int (*query_thread)(int *out_provided);
    int (*finalized)(int *out);
    int (*finalize)(void);
    int (*error_string)(int code, char *out_text, int *out_size);
    int (*library_version)(char *out_text, int *out_size);
    /* ---- communicators ---- */
    int (*comm_rank)(mpi_handle comm, int *out);
    int (*comm_size)(mpi_handle comm, int *out);
    int (*comm_set_errhandler)(mpi_handle comm, mpi_handle handler);
    /* ---- messages ---- */
    int (*isend)(const void *data, int count, mpi_handle type, int to, int tag,
                 mpi_handle comm, mpi_handle *out_request);
    int (*irecv)(void *out, int count, mpi_handle type, int from, int tag,
                 mpi_handle comm, mpi_handle *out_request);
    int (*test)(mpi_handle *request, int *out_done, mpi_handle status);
    int (*cancel)(mpi_handle *request);
} mpi_api;

/* Loads MPI and finds its functions; it is not initialized. `where` names the
 * caller in messages, "runtime mpi". A library of MPI that the process has
 * loaded is used, whatever else is given, since a process can have one only;
 * else `library`, a name or path, if it is not empty; else that of the
 * environment variable XRAY_MPI_LIBRARY; else the first that is found, at first
 * of the kind whose mpirun started this process. The library stays loaded. A
 * library that is missing or too old is reported as XRAY_E_CONFIG. */
xray_status mpi_api_load(const xray_host *host, const char *where,
                         const char *library, mpi_api *out);

/* Reports to the host that MPI refused `what`, with the library's reason, and
 * returns XRAY_E_IO. */
xray_status mpi_api_fail(const xray_host *host, const char *where,
                         const mpi_api *api, const char *what, int code);

/* The first line of the library's own description, "Open MPI v4.1.4, ...", cut
 * to `size` bytes with its NUL. */
void mpi_api_describe(const mpi_api *api, char *out, size_t size);

#endif
