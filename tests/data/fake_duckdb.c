/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for DuckDB's C library: a "Parquet file" of the suite names in its
 * second line what happens, and holds the rows after it.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

typedef struct statement {
    char sql[512];
    char text[4096]; /* of the file */
    int from;
    int to;
    int tasks; /* run so far */
} statement;

static const char *kind_of(const statement *s)
{
    return s->text + strlen("PAR1\n");
}

static int is_kind(const statement *s, const char *kind)
{
    return s && strncmp(kind_of(s), kind, strlen(kind)) == 0;
}

int duckdb_open(const char *path, void **out);
int duckdb_connect(void *database, void **out);
int duckdb_query(void *connection, const char *sql, void *result);
int duckdb_prepare(void *connection, const char *sql, void **out);
const char *duckdb_prepare_error(void *handle);
int duckdb_pending_prepared(void *handle, void **out);
const char *duckdb_pending_error(void *handle);
int duckdb_pending_execute_task(void *handle);
int duckdb_execute_pending(void *handle, void *result);
const char *duckdb_result_error(void *result);
void duckdb_destroy_result(void *result);
void duckdb_destroy_pending(void **handle);
void duckdb_destroy_prepare(void **handle);
void duckdb_disconnect(void **connection);
void duckdb_close(void **database);

/* These were made and not destroyed. */
static int held;

int duckdb_count_held(void);
API int duckdb_count_held(void)
{
    return held;
}

/* The environment names what fails before there is a file. */
static int is_asked_to_fail(const char *what)
{
    const char *fails = getenv("XRAY_FAKE_DUCKDB");
    return fails && strcmp(fails, what) == 0;
}

/* A database counts the settings that a connection has to make. */
API int duckdb_open(const char *path, void **out)
{
    *out = path || is_asked_to_fail("open") ? NULL : calloc(1, sizeof(int));
    held += *out != NULL;
    return *out ? 0 : 1;
}

API int duckdb_connect(void *database, void **out)
{
    if (is_asked_to_fail("connect"))
        return 1;
    *out = database;
    held++;
    return 0;
}

API int duckdb_query(void *connection, const char *sql, void *result)
{
    int *settings = connection;
    (void)result;
    if (is_asked_to_fail(sql))
        return 1;
    if (strcmp(sql, "SET autoinstall_known_extensions=false") == 0 ||
        strcmp(sql, "SET autoload_known_extensions=false") == 0) {
        ++*settings;
        return 0;
    }
    return 1;
}

API int duckdb_prepare(void *connection, const char *sql, void **out)
{
    const int *settings = connection;
    statement *s = calloc(1, sizeof *s);
    *out = s;
    held += s != NULL;
    if (!s || *settings != 2 ||
        sscanf(sql,
               "COPY (FROM read_parquet('/proc/self/fd/%d')) TO "
               "'/proc/self/fd/%d' (FORMAT json, USE_TMP_FILE false)",
               &s->from, &s->to) != 2)
        return 1;
    return pread(s->from, s->text, sizeof s->text - 1, 0) < 5 ||
           is_kind(s, "unprepared");
}

API const char *duckdb_prepare_error(void *handle)
{
    return is_kind(handle, "unprepared") ? "Parser Error: no\nmore" : "a query";
}

API int duckdb_pending_prepared(void *handle, void **out)
{
    *out = handle;
    held++;
    return is_kind(handle, "nothing pending");
}

API const char *duckdb_pending_error(void *handle)
{
    return is_kind(handle, "silent") ? NULL : "Invalid Error: half of it";
}

API int duckdb_pending_execute_task(void *handle)
{
    statement *s = handle;
    s->tasks++;
    if (is_kind(s, "task fails") || is_kind(s, "silent"))
        return 2;
    if (s->tasks < (is_kind(s, "long") ? 1000 : 4))
        return s->tasks % 2 ? 1 : 3;
    return 0;
}

API int duckdb_execute_pending(void *handle, void *result)
{
    const statement *s = handle;
    const char *rows = strchr(kind_of(s), '\n');
    ((void **)result)[5] = handle;
    held++;
    if (is_kind(s, "result fails") || !rows)
        return 1;
    size_t size = strlen(rows + 1);
    return write(s->to, rows + 1, size) != (ssize_t)size;
}

API const char *duckdb_result_error(void *result)
{
    return ((void **)result)[5] ? "IO Error: no result" : "?";
}

API void duckdb_destroy_result(void *result)
{
    held -= ((void **)result)[5] != NULL;
    ((void **)result)[5] = NULL;
}

API void duckdb_destroy_pending(void **handle)
{
    held -= *handle != NULL;
    *handle = NULL;
}

API void duckdb_destroy_prepare(void **handle)
{
    held -= *handle != NULL;
    free(*handle);
    *handle = NULL;
}

API void duckdb_disconnect(void **connection)
{
    held -= *connection != NULL;
    *connection = NULL;
}

API void duckdb_close(void **database)
{
    held -= *database != NULL;
    free(*database);
    *database = NULL;
}
