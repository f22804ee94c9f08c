/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the files, errors and random draws that the writers of the test
 * material share.
 */
#include "tests/material/material.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <xray/numerics.h>

void stop_with_error(const char *what, const char *where)
{
    (void)fprintf(stderr, "test-material: %s: %s: %s\n", where, what,
                  errno ? strerror(errno) : "this cannot be");
    exit(1);
}

void *allocate_zeroed(size_t count, size_t size)
{
    void *p = calloc(count + 1, size);
    if (!p)
        stop_with_error("no memory", "test-material");
    return p;
}

static void make_folders(char *path)
{
    for (char *at = path + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST)
            stop_with_error("cannot make the folder", path);
        *at = '/';
    }
}

FILE *file_open(const material *m, const char *name)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", m->root, name);
    make_folders(path);
    FILE *file = fopen(path, "wb");
    if (!file)
        stop_with_error("cannot open", path);
    return file;
}

void file_close(FILE *file, const char *name)
{
    if (ferror(file) || fclose(file) != 0)
        stop_with_error("cannot write", name);
}

void file_write(const material *m, const char *name, const void *data,
                size_t size)
{
    FILE *file = file_open(m, name);
    if (size && fwrite(data, 1, size, file) != size)
        stop_with_error("cannot write", name);
    file_close(file, name);
}

char *source_read(const material *m, const char *name, size_t *size)
{
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s", m->source, name);
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END) != 0)
        stop_with_error("cannot read", path);
    long end = ftell(file);
    char *data = allocate_zeroed((size_t)end, 1);
    rewind(file);
    if (fread(data, 1, (size_t)end, file) != (size_t)end)
        stop_with_error("cannot read", path);
    (void)fclose(file);
    *size = (size_t)end;
    return data;
}

char *line_next(char **text)
{
    char *line = *text;
    if (!*line)
        return NULL;
    *text += strcspn(line, "\n");
    if (**text)
        *(*text)++ = '\0';
    return line;
}

void file_copy(const material *m, const char *from, const char *name)
{
    size_t size = 0;
    char *data = source_read(m, from, &size);
    file_write(m, name, data, size);
    free(data);
}

uint32_t draw_below(uint64_t stream, uint32_t i, uint32_t n)
{
    return xray_philox(stream, i, 0, 0, 0).w[0] % n;
}
