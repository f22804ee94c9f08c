/* SPDX-License-Identifier: Apache-2.0
 *
 * A false library of MPI: one process of a world, whose messages come from a
 * file and go to files. The environment says how it behaves; what it is called
 * with is written to the file FALSE_MPI_LOG. Compiled with FALSE_OLD it lacks
 * a function, with FALSE_HALF it has one of Open MPI's objects.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAILED 17
#define TEXT 200 /* bytes of any text of the library */

typedef uintptr_t handle;

#ifdef FALSE_HALF
int ompi_mpi_comm_world;
#endif

static int under_way; /* messages that no test has found done */

static int read_number(const char *name, int usual)
{
    const char *text = getenv(name);
    return text ? (int)strtol(text, NULL, 10) : usual;
}

/* 0, or FAILED where FALSE_MPI_FAILS names the function. */
static int result_of(const char *function)
{
    const char *text = getenv("FALSE_MPI_FAILS");
    return text && strcmp(text, function) == 0 ? FAILED : 0;
}

static void note_call(const char *what, handle a, handle b)
{
    const char *name = getenv("FALSE_MPI_LOG");
    FILE *f = name ? fopen(name, "ae") : NULL;
    if (!f)
        return;
    (void)fprintf(f, "%s %llx %llx\n", what, (unsigned long long)a,
                  (unsigned long long)b);
    (void)fclose(f);
}

int MPI_Initialized(int *out)
{
    *out = read_number("FALSE_MPI_UP", 0);
    return result_of("initialized");
}

int MPI_Init_thread(int *argc, char ***argv, int wanted, int *out_provided)
{
    (void)argc;
    (void)argv;
    note_call("init", (handle)wanted, 0);
    if (getenv("FALSE_MPI_DIES"))
        _exit(read_number("FALSE_MPI_DIES", 0));
    *out_provided = read_number("FALSE_MPI_LEVEL", wanted);
    return result_of("init");
}

int MPI_Query_thread(int *out_provided)
{
    *out_provided = read_number("FALSE_MPI_LEVEL", 3);
    return result_of("query");
}

int MPI_Finalized(int *out)
{
    *out = read_number("FALSE_MPI_OVER", 0);
    return result_of("finalized");
}

int MPI_Finalize(void)
{
    note_call("finalize", (handle)under_way, 0);
    return 0;
}

int MPI_Error_string(int code, char *out_text, int *out_size)
{
    const char *text = getenv("FALSE_MPI_TEXT");
    *out_size = text ? snprintf(out_text, TEXT, "%s", text) : 0;
    return code == FAILED && text ? 0 : 1;
}

int MPI_Get_library_version(char *out_text, int *out_size)
{
    *out_size = snprintf(out_text, TEXT, "False MPI 9\nwith more lines");
    return result_of("version");
}

int MPI_Comm_rank(handle comm, int *out)
{
    note_call("rank", comm, 0);
    *out = read_number("FALSE_MPI_RANK", 0);
    return result_of("rank");
}

int MPI_Comm_size(handle comm, int *out)
{
    note_call("size", comm, 0);
    *out = read_number("FALSE_MPI_SIZE", 1);
    return result_of("size");
}

int MPI_Comm_set_errhandler(handle comm, handle handler)
{
    note_call("errors", comm, handler);
    return result_of("errors");
}

/* A message to a rank is kept in the file FALSE_MPI_LOG.RANK. */
int MPI_Isend(const void *data, int count, handle type, int to, int tag,
              handle comm, handle *out_request)
{
    char name[512];
    (void)snprintf(name, sizeof(name), "%s.%d", getenv("FALSE_MPI_LOG"), to);
    FILE *f = fopen(name, "we");
    if (f) {
        (void)fwrite(data, 1, (size_t)count, f);
        (void)fclose(f);
    }
    note_call("isend", type, comm);
    under_way++;
    *out_request = (handle)tag;
    return result_of("isend");
}

/* Each message is the next bytes of the file FALSE_MPI_GIVES. */
int MPI_Irecv(void *out, int count, handle type, int from, int tag, handle comm,
              handle *out_request)
{
    static long at;
    const char *name = getenv("FALSE_MPI_GIVES");
    FILE *f = name ? fopen(name, "re") : NULL;
    (void)from;
    if (f) {
        (void)fseek(f, at, SEEK_SET);
        at += (long)fread(out, 1, (size_t)count, f);
        (void)fclose(f);
    }
    note_call("irecv", type, comm);
    under_way++;
    *out_request = (handle)tag;
    return result_of("irecv");
}

/* Done with the third question; messages of the tag FALSE_MPI_NEVER never. */
int MPI_Test(handle *request, int *out_done, handle status)
{
    static int asked;
    (void)status;
    *out_done =
        ++asked % 3 == 0 && (int)*request != read_number("FALSE_MPI_NEVER", 0);
    under_way -= *out_done;
    return result_of("test");
}

#ifndef FALSE_OLD
int MPI_Cancel(handle *request)
{
    (void)request;
    return 0;
}
#endif

int MPI_Abi_get_version(int *out_major, int *out_minor)
{
    *out_major = read_number("FALSE_MPI_MAJOR", -1);
    *out_minor = -1;
    return result_of("abi");
}
