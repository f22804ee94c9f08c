/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes safetensors files and the index of shards: an input that starts with
 * '{' is the index of one shard.
 */
#include "model/hf/safetensors.h"
#include "tests/fuzz/fuzz.h"

#define MOST 4096u

static void report_tensor(const xm_st_tensor *t)
{
    fuzz_saw_text("tensor", t->name);
    fuzz_saw_text("type", t->type);
    fuzz_saw_u64("number", t->dtype);
    for (uint32_t i = 0; i < t->dims; i++)
        fuzz_saw_u64("size", t->shape[i]);
    fuzz_saw_u64("elements", t->count);
    fuzz_saw("data", t->data, t->bytes < MOST ? (size_t)t->bytes : MOST);
}

static void visit_tensors(const xm_st *st)
{
    static float values[MOST];
    xr_err err = { "" };
    for (size_t i = 0; i < xm_st_count(st); i++) {
        const xm_st_tensor *t = xm_st_at(st, i);
        unsigned sum = 0;
        FUZZ_CHECK(t->name && xm_st_find(st, t->name));
        FUZZ_CHECK(t->dims <= XM_ST_DIMS);
        for (uint64_t b = 0; b < t->bytes; b += 511)
            sum += ((const unsigned char *)t->data)[b];
        if (t->bytes)
            sum += ((const unsigned char *)t->data)[t->bytes - 1];
        FUZZ_CHECK(sum < 1u << 31);
        uint64_t count = t->count < MOST ? t->count : MOST;
        report_tensor(t);
        if (xm_st_read_f32(t, t->count - count, count, values, &err))
            fuzz_said(&err);
        else
            for (uint64_t k = 0; k < count; k++) {
                fuzz_saw_real("value", values[k]);
                fuzz_saw_u64("f16", xm_f32_to_f16(values[k]));
                fuzz_saw_u64("bf16", xm_f32_to_bf16(values[k]));
            }
    }
    fuzz_saw_text("format", xm_st_metadata(st, "format"));
}

/* Writes the tensors to another file and reads its bytes. */
static void write_again(const xm_st *st)
{
    static const char *const metadata[] = { "format", "pt", "a\"", "b", NULL };
    xm_st_item items[8];
    xr_err err = { "" };
    char path[XR_PATH_CAP];
    char *data = NULL;
    size_t size = 0;
    size_t count = xm_st_count(st);
    if (!fuzz_sees() || count > 8)
        return;
    for (size_t i = 0; i < count; i++) {
        const xm_st_tensor *t = xm_st_at(st, i);
        items[i] = (xm_st_item){
            .name = t->name, .dtype = t->dtype, .dims = t->dims, .data = t->data
        };
        memcpy(items[i].shape, t->shape, sizeof(t->shape));
        if (t->dtype == XM_ST_OTHER)
            return;
    }
    (void)snprintf(path, sizeof(path), "%s/again.safetensors", fuzz_dir());
    if (xm_st_write(path, items, count, metadata, &err) ||
        xr_file_read(path, 1 << 20, &err, &data, &size))
        fuzz_said(&err);
    fuzz_saw("written", data, size);
    free(data);
}

/* One tensor "a" of two floats. */
static void write_shard(void)
{
    static const char header[] =
        "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    unsigned char file[8 + sizeof(header) - 1 + 8] = { sizeof(header) - 1 };
    memcpy(file + 8, header, sizeof(header) - 1);
    (void)fuzz_write("s.safetensors", file, sizeof(file));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_err err = { "" };
    xm_st *st = NULL;
    const char *path;
    if (size && data[0] == '{') {
        write_shard();
        (void)fuzz_write("model.safetensors.index.json", data, size);
        path = fuzz_dir();
    } else {
        path = fuzz_write("one.safetensors", data, size);
    }
    if (xm_st_open(path, &err, &st)) {
        fuzz_said(&err);
        return 0;
    }
    visit_tensors(st);
    write_again(st);
    xm_st_close(st);
    return 0;
}
