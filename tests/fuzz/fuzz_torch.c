/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes files that torch.save wrote: an input that does not start as a zip
 * archive is the pickle of one that holds a storage of 64 bytes.
 */
#include "model/hf/torch_file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/torch_archive.h"

#define MOST 4096u

static void report_tensor(const xm_torch_tensor *t)
{
    fuzz_saw_text("tensor", t->name);
    fuzz_saw_u64("type", t->dtype);
    fuzz_saw_u64("width", t->width);
    fuzz_saw_i64("contiguous", t->contiguous);
    for (uint32_t i = 0; i < t->dims; i++) {
        fuzz_saw_u64("size", t->shape[i]);
        fuzz_saw_u64("stride", t->stride[i]);
    }
    fuzz_saw_u64("elements", t->count);
    fuzz_saw_u64("span", t->span);
}

static void visit_tensors(const xm_torch *torch)
{
    static unsigned char values[MOST * 8];
    fuzz_saw_text("member", xm_torch_member(torch));
    for (size_t i = 0; i < xm_torch_count(torch); i++) {
        const xm_torch_tensor *t = xm_torch_at(torch, i);
        uint64_t count = t->count < MOST ? t->count : MOST;
        FUZZ_CHECK(t->name && t->width <= 8 && t->dims <= XM_ST_DIMS);
        report_tensor(t);
        xm_torch_copy(t, 0, count, values);
        fuzz_saw("first", values, (size_t)count * t->width);
        xm_torch_copy(t, t->count - count, count, values);
        fuzz_saw("last", values, (size_t)count * t->width);
    }
}

static const char *write_archive(const uint8_t *data, size_t size)
{
    unsigned char storage[64];
    torch_archive a = { .wide = 1 };
    for (size_t i = 0; i < sizeof storage; i++)
        storage[i] = (unsigned char)(i + 1);
    torch_add(&a, "m/data.pkl", data, size);
    torch_add(&a, "m/data/0", storage, sizeof storage);
    torch_finish(&a);
    const char *path = fuzz_write("p.bin", a.file.data, a.file.size);
    torch_archive_free(&a);
    return path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_err err = { "" };
    xm_torch *torch = NULL;
    int is_zip = size > 1 && data[0] == 'P' && data[1] == 'K';
    const char *path =
        is_zip ? fuzz_write("z.bin", data, size) : write_archive(data, size);
    if (xm_torch_open(path, &err, &torch)) {
        fuzz_said(&err);
        return 0;
    }
    visit_tensors(torch);
    xm_torch_close(torch);
    return 0;
}
