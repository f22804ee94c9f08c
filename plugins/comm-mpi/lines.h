/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of comm-mpi: messages of MPI between the processes of its world, in
 * order, with the tags of one instance. What goes over them is that of
 * plugins/mesh/mesh.h.
 */
#ifndef MPI_LINES_H
#define MPI_LINES_H

#include "plugins/mesh/mesh.h"
#include "plugins/mpi/mpi_api.h"

#define MPI_MESSAGE (MESH_PIECE + 0x1000u) /* most bytes of a line in one */
#define MPI_AHEAD 2u /* messages of a line on their way, in each direction */
#define MPI_TAGS 2u  /* of an instance */
#define MPI_CALLS                                              \
    0u /* of the line of calls, after the instance's first tag \
        */
#define MPI_NOTES 1u
#define MPI_LAST_TAG 32767 /* the largest that every MPI has */

/* ---- the library ----------------------------------------------------------
 */

/* The process has one MPI, whose functions are called by one thread at a time:
 * every call of `api` is made between these two. */
void mpi_library_lock(void);
void mpi_library_unlock(void);
const mpi_api *mpi_library_api(void);

/* The number of this process: in MPI's world if that is initialized, else the
 * one that an engine of MPI gave it when it started it; -1 if none did. */
xray_status mpi_library_number(const xray_host *host, int *out);
/* Loads MPI, and initializes it unless someone did. */
xray_status mpi_library_open(const xray_host *host);
/* The first tag that no instance of this process has used, and no later one
 * will be offered less than. */
int mpi_library_tag(void);
void mpi_library_use_tag(int tag);
/* Frees `memory`, by free(), once the request is complete. The caller has the
 * lock. */
void mpi_library_keep(mpi_handle request, void *memory);

/* ---- lines ----------------------------------------------------------------
 */

/* A message as it is sent. */
typedef struct mpi_message {
    uint64_t bytes; /* of data */
    char data[MPI_MESSAGE];
} mpi_message;

/* One that is on its way, or was received and is being read. */
typedef struct mpi_slot {
    mpi_handle request; /* request_null: none */
    mpi_message *message;
    uint64_t at; /* bytes of it that were read */
} mpi_slot;

/* A note that is on its way. */
typedef struct mpi_letter {
    struct mpi_letter *next;
    mpi_handle request;
    mesh_note note;
} mpi_letter;

/* The lines to one rank. */
typedef struct mpi_line {
    mesh_comm *comm;
    int process; /* the rank's, in MPI's world */
    int life;    /* descriptor of xr_process_open, or -1 */
    mpi_slot out[MPI_AHEAD];
    mpi_slot in[MPI_AHEAD];
    uint32_t next_out;
    uint32_t next_in;
    uint64_t left_since; /* when nothing came any more of a rank that left */
    mpi_letter *note;    /* that is received next */
} mpi_line;

/* Those of an instance. */
typedef struct mpi_lines {
    mpi_line *of;        /* [size] */
    mpi_letter *letters; /* on their way; under the lock of the instance */
    int tag;
    uint32_t open; /* 1: receives were posted */
} mpi_lines;

static inline mpi_lines *mpi_lines_of(const mesh_comm *comm)
{
    return comm->lines;
}

extern const mesh_transport mpi_transport;

/* Makes the lines of an instance. Returns 0 if there is no memory. */
int mpi_lines_make(mesh_comm *comm);
/* Opens them once the tag and the processes of all ranks are known. */
xray_status mpi_lines_open(mesh_comm *comm);

#endif
