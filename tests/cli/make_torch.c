/* SPDX-License-Identifier: Apache-2.0
 *
 * make-torch MODEL OUT SHARDS: writes the weights of a model as PyTorch does,
 * as OUT/pytorch_model.bin, or as that many shards with their index.
 * make-torch OUT: writes a matrix of more than 2^20 elements as OUT/rows.pt,
 * row by row, and as OUT/columns.pt, as a transposed one is kept; and
 * OUT/hole.pt of 64 GiB, which takes no space.
 */
#include <fcntl.h>
#include <unistd.h>

#include "core/base/file.h"
#include "tests/testing.h"
#include "tests/torch_archive.h"

#include "model/hf/safetensors.h"

static const char *storage_type(uint32_t dtype)
{
    return dtype == XM_ST_F32    ? "FloatStorage"
           : dtype == XM_ST_BF16 ? "BFloat16Storage"
                                 : "HalfStorage";
}

/* A storage for each tensor, whose key is its number. */
static torch_tensor describe_tensor(const xm_st_tensor *t, const char *key)
{
    torch_tensor is = { .name = t->name,
                        .type = storage_type(t->dtype),
                        .key = key,
                        .elements = (int64_t)t->count,
                        .dims = t->dims };
    int64_t stride = 1;
    for (size_t d = t->dims; d > 0; d--) {
        is.shape[d - 1] = (int64_t)t->shape[d - 1];
        is.stride[d - 1] = stride;
        stride *= is.shape[d - 1];
    }
    return is;
}

static void write_file(const xm_st *st, size_t first, size_t step,
                       const char *path)
{
    static char keys[1000][24];
    static torch_tensor tensors[1000];
    torch_archive a = { .wide = 1 };
    xr_str pickle = { 0 };
    xr_err err = { "" };
    size_t count = 0;
    for (size_t i = first; i < xm_st_count(st) && count < 1000; i += step) {
        (void)snprintf(keys[count], sizeof keys[0], "%zu", i);
        tensors[count] = describe_tensor(xm_st_at(st, i), keys[count]);
        count++;
    }
    torch_state(&pickle, tensors, count);
    torch_add(&a, "archive/data.pkl", pickle.data, pickle.size);
    torch_add(&a, "archive/byteorder", "little", 6);
    for (size_t i = first; i < xm_st_count(st); i += step) {
        char name[64];
        const xm_st_tensor *t = xm_st_at(st, i);
        (void)snprintf(name, sizeof name, "archive/data/%zu", i);
        torch_add(&a, name, t->data, t->bytes);
    }
    torch_finish(&a);
    if (xr_file_write(path, a.file.data, a.file.size, &err) != XRAY_OK)
        (void)fprintf(stderr, "%s\n", err.text);
    torch_archive_free(&a);
    xr_str_free(&pickle);
}

static void write_index(const xm_st *st, const char *dir, size_t shards)
{
    char path[512];
    xr_str text = { 0 };
    xr_str_puts(&text, "{\"weight_map\":{");
    for (size_t i = 0; i < xm_st_count(st); i++)
        xr_str_printf(&text, "%s\"%s\":\"pytorch_model-%05zu.bin\"",
                      i ? "," : "", xm_st_at(st, i)->name, i % shards);
    xr_str_puts(&text, "}}");
    (void)snprintf(path, sizeof path, "%s/pytorch_model.bin.index.json", dir);
    (void)xr_file_write(path, text.data, text.size, NULL);
    xr_str_free(&text);
}

/* ---- matrices ----------------------------------------------------------- */

enum { ROWS = 1100, COLUMNS = 1000 };

static void write_text(const char *dir, const char *name, const xr_str *text)
{
    char path[512];
    xr_err err = { "" };
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (xr_file_write(path, text->data, text->size, &err) != XRAY_OK)
        (void)fprintf(stderr, "%s\n", err.text);
}

/* The element of row r and column c is r * COLUMNS + c + 1, however it is kept.
 */
static void write_matrix(const char *dir, const char *name, int by_columns)
{
    static float values[ROWS * COLUMNS];
    torch_tensor w = { "w", "FloatStorage",   "0", ROWS * COLUMNS, 0,
                       2,   { ROWS, COLUMNS } };
    torch_archive a = { .wide = 1 };
    xr_str pickle = { 0 };
    w.stride[0] = by_columns ? 1 : COLUMNS;
    w.stride[1] = by_columns ? ROWS : 1;
    for (size_t r = 0; r < ROWS; r++)
        for (size_t c = 0; c < COLUMNS; c++)
            values[by_columns ? c * ROWS + r : r * COLUMNS + c] =
                (float)(r * COLUMNS + c + 1);
    torch_state(&pickle, &w, 1);
    torch_add(&a, "m/data.pkl", pickle.data, pickle.size);
    torch_add(&a, "m/byteorder", "little", 6);
    torch_add(&a, "m/data/0", values, sizeof values);
    torch_finish(&a);
    write_text(dir, name, &a.file);
    torch_archive_free(&a);
    xr_str_free(&pickle);
}

/* The elements of the only tensor are the hole. */
static int write_hole(const char *dir)
{
    const uint64_t size = UINT64_C(1) << 36;
    const torch_tensor w = {
        "w", "FloatStorage",          "0",  (int64_t)(size / 4), 0,
        1,   { (int64_t)(size / 4) }, { 1 }
    };
    char path[512];
    torch_archive a = { .wide = 1, .more_size = size };
    xr_str pickle = { 0 };
    torch_state(&pickle, &w, 1);
    torch_add(&a, "m/data/0", "", 0);
    size_t first = a.file.size;
    a.more_size = 0;
    a.hole = size;
    torch_add(&a, "m/data.pkl", pickle.data, pickle.size);
    torch_add(&a, "m/byteorder", "little", 6);
    torch_finish(&a);
    (void)snprintf(path, sizeof path, "%s/hole.pt", dir);
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    size_t rest = a.file.size - first;
    int written = fd >= 0 && write(fd, a.file.data, first) == (ssize_t)first &&
                  pwrite(fd, a.file.data + first, rest,
                         (off_t)(size + first)) == (ssize_t)rest;
    if (fd >= 0)
        (void)close(fd);
    torch_archive_free(&a);
    xr_str_free(&pickle);
    return written ? 0 : 77;
}

int main(int argc, char **argv)
{
    if (argc == 2) {
        write_matrix(argv[1], "rows.pt", 0);
        write_matrix(argv[1], "columns.pt", 1);
        return write_hole(argv[1]);
    }
    xm_st *st = NULL;
    xr_err err = { "" };
    char path[512];
    if (argc != 4 || xm_st_open(argv[1], &err, &st) != XRAY_OK) {
        (void)fprintf(stderr, "make-torch MODEL OUT SHARDS: %s\n", err.text);
        return 2;
    }
    size_t shards = (size_t)(argv[3][0] - '0');
    for (size_t i = 0; i < shards; i++) {
        (void)snprintf(path, sizeof path, "%s/pytorch_model-%05zu.bin", argv[2],
                       i);
        if (shards == 1)
            (void)snprintf(path, sizeof path, "%s/pytorch_model.bin", argv[2]);
        write_file(st, i, shards, path);
    }
    if (shards > 1)
        write_index(st, argv[2], shards);
    xm_st_close(st);
    return 0;
}
