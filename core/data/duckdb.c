/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads Parquet by DuckDB's C library. It is opened when a file needs it, so
 * that neither a build nor a start does, and writes the rows to memory through
 * a descriptor, so that no name of a file is part of a query.
 */
#define _GNU_SOURCE /* memfd_create */
#include "core/data/duckdb.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/library.h"

/* Values of duckdb_pending_state. */
enum { TASKS_DONE, TASKS_LEFT, TASKS_FAILED, TASKS_ELSEWHERE };

/* The functions of duckdb.h that are called. The handles are pointers there,
 * and a state of 0 is success. */
typedef struct functions {
    int (*open)(const char *path, void **out_database);
    int (*connect)(void *database, void **out_connection);
    int (*query)(void *connection, const char *sql, void *result);
    int (*prepare)(void *connection, const char *sql, void **out_statement);
    const char *(*prepare_error)(void *statement);
    int (*pending)(void *statement, void **out_pending);
    const char *(*pending_error)(void *pending);
    int (*run_task)(void *pending);
    int (*finish)(void *pending, void *result);
    const char *(*result_error)(void *result);
    void (*destroy_result)(void *result);
    void (*destroy_pending)(void **pending);
    void (*destroy_statement)(void **statement);
    void (*disconnect)(void **connection);
    void (*close)(void **database);
} functions;

/* In the order of the members. */
static const char *const names[] = {
    "duckdb_open",
    "duckdb_connect",
    "duckdb_query",
    "duckdb_prepare",
    "duckdb_prepare_error",
    "duckdb_pending_prepared",
    "duckdb_pending_error",
    "duckdb_pending_execute_task",
    "duckdb_execute_pending",
    "duckdb_result_error",
    "duckdb_destroy_result",
    "duckdb_destroy_pending",
    "duckdb_destroy_prepare",
    "duckdb_disconnect",
    "duckdb_close",
};
#define NAMES (sizeof names / sizeof *names)
_Static_assert(sizeof(functions) == NAMES * sizeof(void *),
               "each function has a name");

/* A query's errors and times in UTC; a library without time zones has no other
 * times, and does not know the last setting. */
static const char *const settings[] = {
    "SET autoinstall_known_extensions=false",
    "SET autoload_known_extensions=false",
    "SET TimeZone='UTC'",
};
#define MUST_HOLD 2u /* of them, so that nothing is loaded from elsewhere */

static int find_functions(functions *out)
{
    void *symbols[NAMES];
    int found = xr_library_find("libduckdb.so", names, NAMES, symbols);
    if (found)
        memcpy(out, symbols, sizeof symbols);
    return found;
}

/* The first line of the library's sentence. */
static xray_status fail_with(xr_err *err, const char *why)
{
    const char *text = why ? why : "it gives no reason";
    return xr_fail(err, XRAY_E_IO, "libduckdb: %.*s", (int)strcspn(text, "\n"),
                   text);
}

/* Does the work task by task, between which the call may be ended. */
static xray_status run_tasks(const functions *f, void *pending,
                             const xray_call_service *calls, xr_err *err)
{
    const struct timespec pause = { .tv_nsec = 1000000 };
    for (;;) {
        int state = f->run_task(pending);
        if (state == TASKS_DONE)
            return XRAY_OK;
        if (state == TASKS_FAILED)
            return fail_with(err, f->pending_error(pending));
        xray_status status = xr_stop_check(calls, err);
        if (status != XRAY_OK)
            return status;
        if (state == TASKS_ELSEWHERE) /* with threads of the library */
            (void)nanosleep(&pause, NULL);
    }
}

static xray_status run_statement(const functions *f, void *statement,
                                 const xray_call_service *calls, xr_err *err)
{
    uint64_t result[16] = { 0 }; /* a duckdb_result is six words */
    void *pending = NULL;
    xray_status status = f->pending(statement, &pending) == 0
                             ? run_tasks(f, pending, calls, err)
                             : fail_with(err, f->pending_error(pending));
    if (status == XRAY_OK) {
        if (f->finish(pending, result) != 0)
            status = fail_with(err, f->result_error(result));
        f->destroy_result(result);
    }
    f->destroy_pending(&pending);
    return status;
}

static xray_status copy_rows(const functions *f, void *connection, int from,
                             int to, const xray_call_service *calls,
                             xr_err *err)
{
    char sql[160];
    void *statement = NULL;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        if (f->query(connection, settings[i], NULL) != 0 && i < MUST_HOLD)
            return fail_with(err, settings[i]);
    (void)snprintf(sql, sizeof sql,
                   "COPY (FROM read_parquet('/proc/self/fd/%d')) TO "
                   "'/proc/self/fd/%d' (FORMAT json, USE_TMP_FILE false)",
                   from, to);
    xray_status status = f->prepare(connection, sql, &statement) == 0
                             ? run_statement(f, statement, calls, err)
                             : fail_with(err, f->prepare_error(statement));
    f->destroy_statement(&statement);
    return status;
}

static xray_status use_database(const functions *f, int from, int to,
                                const xray_call_service *calls, xr_err *err)
{
    void *database = NULL;
    void *connection = NULL;
    if (f->open(NULL, &database) != 0)
        return fail_with(err, "no database in memory can be opened");
    xray_status status =
        f->connect(database, &connection) == 0
            ? copy_rows(f, connection, from, to, calls, err)
            : fail_with(err, "its database takes no connection");
    if (connection)
        f->disconnect(&connection);
    f->close(&database);
    return status;
}

static xray_status append_memory(int fd, xr_err *err, xr_str *out)
{
    off_t size = lseek(fd, 0, SEEK_END);
    void *rows = size > 0
                     ? mmap(NULL, (size_t)size, PROT_READ, MAP_SHARED, fd, 0)
                     : NULL;
    if (size < 0 || rows == MAP_FAILED)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for rows");
    if (!rows)
        return XRAY_OK;
    xr_str_append(out, rows, (size_t)size);
    (void)munmap(rows, (size_t)size);
    return out->failed ? xr_fail(err, XRAY_E_NOMEM, "out of memory for rows")
                       : XRAY_OK;
}

xray_status xr_duckdb_read(const char *path, const xray_call_service *calls,
                           xr_err *err, xr_str *out)
{
    functions f = { 0 };
    uint64_t size;
    int from;
    if (!find_functions(&f))
        return XRAY_E_UNSUPPORTED;
    xray_status status = xr_file_open(path, err, &from, &size);
    if (status != XRAY_OK)
        return status;
    int to = memfd_create("rows", MFD_CLOEXEC);
    if (to < 0)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for rows");
    else
        status = use_database(&f, from, to, calls, err);
    if (status == XRAY_OK)
        status = append_memory(to, err, out);
    if (to >= 0)
        (void)close(to);
    (void)close(from);
    return status;
}
