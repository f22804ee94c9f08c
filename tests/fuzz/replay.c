/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a fuzz target without libFuzzer over the files of the given folders:
 * each unchanged, cut at many offsets, and with single bytes changed.
 */
#include <dirent.h>

#include "tests/fuzz/fuzz.h"

static unsigned long runs;

static void run_input(const uint8_t *data, size_t size)
{
    /* A separate block, so that a read beyond its end is noticed. */
    uint8_t *copy = malloc(size ? size : 1);
    FUZZ_CHECK(copy);
    if (size)
        memcpy(copy, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    runs++;
}

static void replay_file(const char *path)
{
    char *data;
    size_t size;
    xr_err err = { "" };
    if (xr_file_read(path, 1u << 20, &err, &data, &size)) {
        (void)fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    uint8_t *bytes = (uint8_t *)data;
    size_t step = size / 24 + 1;
    run_input(bytes, size);
    for (size_t at = 0; at < size; at += step) {
        uint8_t was = bytes[at];
        run_input(bytes, at);
        bytes[at] = (uint8_t)(was ^ 1u << (at / step % 8));
        run_input(bytes, size);
        bytes[at] = was;
    }
    free(data);
}

static void replay_folder(const char *folder)
{
    char path[XR_PATH_CAP];
    DIR *dir = opendir(folder);
    if (!dir)
        return;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        replay_file(path);
    }
    (void)closedir(dir);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        replay_folder(argv[i]);
    run_input(NULL, 0);
    (void)printf("%lu inputs\n", runs);
    return runs > 1 ? 0 : 1;
}
