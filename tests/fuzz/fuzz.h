/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares the helpers of all fuzz targets. A target is LLVMFuzzerTestOneInput
 * for arbitrary bytes; it stops the process if a promise is broken.
 */
#ifndef XR_FUZZ_H
#define XR_FUZZ_H

#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/fuzz/saw.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Stops the process and names the broken promise. */
#define FUZZ_CHECK(promise)                                              \
    do {                                                                 \
        if (!(promise)) {                                                \
            (void)fprintf(stderr, "%s%s:%d: broken: %s\n", fuzz_input(), \
                          __FILE__, __LINE__, #promise);                 \
            (void)raise(SIGABRT);                                        \
        }                                                                \
    } while (0)

/* Checks that a refusal is one sentence on one line, and reports it. */
static inline void fuzz_said(const xr_err *err)
{
    fuzz_saw_text("refused", err->text);
    if (!err->text[0] || strchr(err->text, '\n'))
        (void)fprintf(stderr, "said: \"%s\"\n", err->text);
    FUZZ_CHECK(err->text[0]);
    FUZZ_CHECK(!strchr(err->text, '\n'));
}

static inline char *fuzz_dir_name(void)
{
    static char dir[64];
    return dir;
}

static inline void fuzz_dir_drop(void)
{
    (void)xr_dir_remove(fuzz_dir_name(), NULL);
}

/* Returns the path of a folder of this process, in memory where the system
 * supports that; it is removed when the process ends. */
static inline const char *fuzz_dir_path(void)
{
    char *dir = fuzz_dir_name();
    if (!dir[0]) {
        (void)snprintf(dir, 64, "%s/xray-fuzz-XXXXXX",
                       access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
        FUZZ_CHECK(mkdtemp(dir));
        FUZZ_CHECK(atexit(fuzz_dir_drop) == 0);
    }
    return dir;
}

/* Returns the name of that folder. A replay works in it, so that sentences name
 * its files in the same way on every machine. */
static inline const char *fuzz_dir(void)
{
    const char *path = fuzz_dir_path();
    return fuzz_sees() ? "." : path;
}

/* Writes a file in that folder; the returned path is valid until the next
 * call. */
static inline const char *fuzz_write(const char *name, const void *data,
                                     size_t size)
{
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", fuzz_dir(), name);
    FILE *file = fopen(path, "wb");
    FUZZ_CHECK(file);
    FUZZ_CHECK(size == 0 || fwrite(data, 1, size, file) == size);
    FUZZ_CHECK(fclose(file) == 0);
    return path;
}

/* Copies the bytes and appends a NUL; free() releases the copy. */
static inline char *fuzz_text(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    FUZZ_CHECK(text);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* The input, split at its first NUL. */
typedef struct fuzz_two {
    const uint8_t *first;
    size_t first_size;
    const uint8_t *second;
    size_t second_size;
} fuzz_two;
static inline fuzz_two fuzz_split(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    if (!nul)
        return (fuzz_two){ data, size, data + size, 0 };
    size_t first = (size_t)(nul - data);
    return (fuzz_two){ data, first, nul + 1, size - first - 1 };
}

#endif
