/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in a file of PyTorch that is larger than 4 GiB are found: positions
 * in its archive have 64 bits. The file is mostly a hole and takes no space.
 */
#include <fcntl.h>
#include <unistd.h>

#include "model/hf/torch_file.h"
#include "tests/scratch.h"
#include "tests/torch_archive.h"

static const float values[] = { 1.5f, -2, 0.25f };

/* Writes the bytes up to `first`, and the others behind the hole; returns -1 if
 * files cannot be that large here. */
static int write_with_hole(const char *path, const torch_archive *a,
                           size_t first)
{
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, a->file.data, first), first);
    size_t rest = a->file.size - first;
    ssize_t put = pwrite(fd, a->file.data + first, rest,
                         (off_t)(a->hole + (uint64_t)first));
    assert_int_equal(close(fd), 0);
    return put == (ssize_t)rest ? 0 : -1;
}

static void positions_have_64_bits(void **state)
{
    (void)state;
    static const uint64_t holes[] = { UINT64_C(1) << 31, UINT64_C(1) << 32,
                                      UINT64_C(5) << 30 };
    const torch_tensor tensor = { "w", "FloatStorage", "0",  3, 0,
                                  1,   { 3 },          { 1 } };
    xr_str pickle = { 0 };
    torch_state(&pickle, &tensor, 1);
    for (size_t i = 0; i < sizeof holes / sizeof holes[0]; i++) {
        torch_archive a = { .wide = 1 };
        torch_add(&a, "m/byteorder", "little", 6);
        size_t first = a.file.size;
        a.hole = holes[i];
        torch_add(&a, "m/data.pkl", pickle.data, pickle.size);
        torch_add(&a, "m/data/0", values, sizeof values);
        torch_finish(&a);
        const char *path = scratch_path("large.bin");
        int written = write_with_hole(path, &a, first);
        torch_archive_free(&a);
        if (written < 0) {
            print_message("files of 5 GiB cannot be written here\n");
            xr_str_free(&pickle);
            skip();
        }
        xr_err err = { "" };
        xm_torch *torch = NULL;
        float out[3];
        if (xm_torch_open(path, &err, &torch) != XRAY_OK)
            fail_msg("%s", err.text);
        assert_int_equal(xm_torch_count(torch), 1);
        xm_torch_copy(xm_torch_at(torch, 0), 0, 3, out);
        assert_memory_equal(out, values, sizeof values);
        xm_torch_close(torch);
    }
    xr_str_free(&pickle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_have_64_bits),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
