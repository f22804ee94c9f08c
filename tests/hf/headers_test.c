/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which headers of safetensors files are refused, what a writer refuses,
 * and that several ranks write the same files as one.
 */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "model/hf/safetensors.h"
#include "tests/scratch.h"

#define T(parts) "{\"t\":{" parts "}}"
#define U8(shape, offsets) \
    T("\"dtype\":\"U8\",\"shape\":" shape ",\"data_offsets\":" offsets)
#define EACH                                           \
    "tensor \"t\": expected \"dtype\", \"shape\" and " \
    "\"data_offsets\", each once"
#define INTEGERS "tensor \"t\": \"shape\" must hold integers from 0"
#define OFFSETS "tensor \"t\": \"data_offsets\" must be two integers from 0"
#define TWO(a, b)                                                           \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" a "},\"b\":" \
    "{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" b "}}"

static const struct {
    const char *header;
    size_t data;      /* bytes after it */
    const char *says; /* the error after the file's name; NULL: it opens */
} headers[] = {
    { "{}", 0, NULL },
    { "{}", 1, "there is data after the last tensor" },
    { "[]", 0, "the header must be a JSON object" },
    { U8("[4]", "[0,4]"), 4, NULL },
    { U8("[4]", "[0,4]"), 5, "there is data after the last tensor" },
    { U8("[4]", "[0,4]"), 3,
      "tensor \"t\": data_offsets [0, 4] do not lie in the 3 bytes of data" },
    { U8("[4]", "[5,4]"), 5,
      "tensor \"t\": data_offsets [5, 4] do not lie in the 5 bytes of data" },
    { U8("[3]", "[1,4]"), 4,
      "tensor \"t\": there is a gap in the data before it" },
    { U8("[4]", "[0,3]"), 3,
      "tensor \"t\": 4 elements of U8 do not fill the 3 bytes of "
      "data_offsets" },
    { U8("[]", "[0,1]"), 1, NULL },
    { U8("[0]", "[0,0]"), 0, NULL },
    { U8("[1,1,1,1,1,1,1,1]", "[0,1]"), 1, NULL },
    { U8("[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1,
      "tensor \"t\": more than 8 dimensions" },
    { U8("[-1]", "[0,1]"), 1, INTEGERS },
    { U8("[1.5]", "[0,1]"), 1, INTEGERS },
    { U8("[\"1\"]", "[0,1]"), 1, INTEGERS },
    { U8("4", "[0,1]"), 1, "tensor \"t\": \"shape\" must be an array" },
    { T("\"dtypes\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, EACH },
    { T("\"dtype\":\"U8\",\"shapes\":[1],\"data_offsets\":[0,1]"), 1, EACH },
    { T("\"dtype\":\"U8\",\"shape\":[1],\"data_offset\":[0,1]"), 1, EACH },
    { U8("[1e17]", "[0,1]"), 1, "tensor \"t\": the shape is too large" },
    { U8("[1073741824,1073741825]", "[0,1]"), 1,
      "tensor \"t\": the shape is too large" },
    { U8("[1073741824,1073741824]", "[0,1]"), 1,
      "tensor \"t\": 1152921504606846976 elements of U8 do not fill the 1 "
      "bytes of data_offsets" },
    { U8("[0,1073741825,1073741824]", "[0,0]"), 0, NULL },
    { U8("[1]", "[0]"), 1, OFFSETS },
    { U8("[1]", "[0,1,1]"), 1, OFFSETS },
    { U8("[1]", "[-1,1]"), 1, OFFSETS },
    { U8("[1]", "[0,0.5]"), 1, OFFSETS },
    { U8("[1]", "1"), 1, OFFSETS },
    { T("\"dtype\":\"U8\",\"shape\":[1]"), 1, EACH },
    { T("\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]"), 1, EACH },
    { T("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1"), 1,
      EACH },
    { "{\"t\":[]}", 0, EACH },
    { T("\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":[0,1]"), 1,
      "tensor \"t\": unknown dtype \"U9\"" },
    { T("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]"), 1,
      "tensor \"t\": 3 elements of F4 do not fill the 1 bytes of "
      "data_offsets" },
    { T("\"dtype\":\"F6_E2M3\",\"shape\":[12],\"data_offsets\":[0,9]"), 9,
      NULL },
    { TWO("[0,2]", "[2,4]"), 4, NULL },
    { TWO("[2,4]", "[0,2]"), 4, NULL },
    { TWO("[0,2]", "[1,3]"), 3,
      "tensor \"b\": its data overlaps another tensor's" },
    { TWO("[0,2]", "[3,5]"), 5,
      "tensor \"b\": there is a gap in the data before it" },
    { "{\"__metadata__\":{\"k\":\"v\"}}", 0, NULL },
    { "{\"__metadata__\":[]}", 0, "\"__metadata__\" must be an object" },
    { "{\"__metadata__\":{\"k\":1}}", 0,
      "\"__metadata__\": \"k\" must be a string" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", 0,
      "\"__metadata__\" occurs twice in one object (in the header)" },
    { "{\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"t\":"
      "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
      0, "\"t\" occurs twice in one object (in the header)" },
};

/* Writes a file whose first bytes give `length` as the length of its header. */
static const char *write_raw(uint64_t length, const char *header, size_t data)
{
    static const char zeros[64];
    const char *path = scratch_path("raw.safetensors");
    unsigned char header_size[8];
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (int i = 0; i < 8; i++)
        header_size[i] = (unsigned char)(length >> (8 * i));
    assert_int_equal(fwrite(header_size, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, strlen(header), file), strlen(header));
    assert_int_equal(fwrite(zeros, 1, data, file), data);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void check_open_result(const char *path, const char *says,
                              const char *what)
{
    char want[1024];
    xm_st *st = NULL;
    xr_err err = { "" };
    xray_status status = xm_st_open(path, &err, &st);
    if (!says && status)
        fail_msg("%s: %s", what, err.text);
    if (says && !status)
        fail_msg("%s: opened", what);
    (void)snprintf(want, sizeof want, "%s: %s", path, says ? says : "");
    if (says && strcmp(err.text, want) != 0)
        fail_msg("%s: [%s], not [%s]", what, err.text, want);
    if (!status)
        xm_st_close(st);
}

static void every_header_is_read_or_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        check_open_result(write_raw(strlen(headers[i].header),
                                    headers[i].header, headers[i].data),
                          headers[i].says, headers[i].header);
    const char *header = U8("[4]", "[0,4]");
    check_open_result(
        write_raw(100000001, header, 4),
        "the header length 100000001 is above the format's limit of "
        "100000000",
        "long");
    check_open_result(write_raw(100000000, header, 4),
                      "the file ends inside the header of 100000000 bytes",
                      "longest");
    check_open_result(write_raw(strlen(header) + 5, header, 4),
                      "the file ends inside the header of 58 bytes",
                      "a byte more");
    check_open_result(scratch_write("raw.safetensors", "1234567"),
                      "is shorter than the 8 bytes of header length", "short");
}

/* ---- elements of a tensor ----------------------------------------------- */

static void reads_stay_within_the_tensor(void **state)
{
    (void)state;
    static const double f64[3] = { 1.5, -2.25, 1e300 };
    static const uint16_t f16[3] = { 0x3C00, 0xC000, 0x7BFF };
    static const xm_st_item items[2] = { { "d", XM_ST_F64, 1, { 3 }, f64 },
                                         { "h", XM_ST_F16, 1, { 3 }, f16 } };
    const char *path = scratch_path("two.safetensors");
    xm_st *st;
    float got[3] = { 0 };
    xr_err err = { "" };
    assert_int_equal(xm_st_write(path, items, 2, NULL, &err), XRAY_OK);
    assert_int_equal(xm_st_open(path, &err, &st), XRAY_OK);
    const xm_st_tensor *d = xm_st_find(st, "d");
    const xm_st_tensor *h = xm_st_find(st, "h");
    assert_int_equal(xm_st_read_f32(d, 0, 3, got, &err), XRAY_OK);
    assert_true(got[0] == 1.5f && got[1] == -2.25f && got[2] > 1e38f);
    assert_int_equal(xm_st_read_f32(d, 1, 1, got, &err), XRAY_OK);
    assert_true(got[0] == -2.25f && got[1] == -2.25f);
    assert_int_equal(xm_st_read_f32(h, 1, 2, got, &err), XRAY_OK);
    assert_true(got[0] == -2 && got[1] == 65504);
    assert_int_equal(xm_st_read_f32(h, 3, 0, got, &err), XRAY_OK);
    assert_int_equal(xm_st_read_f32(h, 1, 3, got, &err), XRAY_E_RANGE);
    assert_string_equal(err.text, "tensor \"h\": elements 1 to 4 were asked "
                                  "for, but it has 3");
    assert_int_equal(xm_st_read_f32(h, 4, 0, got, &err), XRAY_E_RANGE);
    xm_st_close(st);
}

static void invalid_items_are_not_written(void **state)
{
    (void)state;
    static const struct {
        xm_st_item item;
        const char *says;
    } cases[] = {
        { { "x", 0, 1, { 1 }, NULL },
          "tensor \"x\": its type or number of dimensions cannot be written" },
        { { "x", XM_ST_F32, 9, { 1 }, NULL },
          "tensor \"x\": its type or number of dimensions cannot be written" },
        { { "x", XM_ST_F32, 2, { UINT64_C(1) << 40, 1 << 12 }, NULL },
          "tensor \"x\": the shape is too large" },
        { { "two", XM_ST_F32, 0, { 0 }, NULL },
          "tensor \"two\": the name occurs twice" },
    };
    static const float one = 1;
    const char *path = scratch_path("refused.safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char want[512];
        xr_err err = { "" };
        const xm_st_item items[] = { { "two", XM_ST_F32, 0, { 0 }, &one },
                                     cases[i].item };
        assert_true(xm_st_write(path, items, 2, NULL, &err) < 0);
        (void)snprintf(want, sizeof want, "%s: %s", path, cases[i].says);
        assert_string_equal(err.text, want);
        assert_false(xr_path_exists(path));
        /* Nor by several ranks, whichever item comes first. */
        for (size_t last = 0; last < 2; last++) {
            const xm_st_item turned[] = { items[!last], items[last] };
            xm_st_parts *parts = NULL;
            assert_true(xm_st_parts_file(path, turned, 2, NULL, &err, &parts) <
                        0);
            assert_string_equal(err.text, want);
            assert_null(parts);
        }
    }
}

/* ---- several ranks ------------------------------------------------------ */

#define ITEMS 5
static const xm_st_item items[ITEMS] = {
    { "b", XM_ST_F32, 1, { 3 }, NULL }, { "a", XM_ST_F32, 2, { 2, 2 }, NULL },
    { "e", XM_ST_F32, 1, { 0 }, NULL }, { "d", XM_ST_BF16, 1, { 5 }, NULL },
    { "c", XM_ST_F32, 0, { 0 }, NULL },
};
static const uint64_t bytes_of[ITEMS] = { 12, 16, 0, 10, 4 };
static const unsigned char data[ITEMS][16] = { "AAAABBBBCCCC",
                                               "0123456789abcde", "",
                                               "zyxwvutsr", "four" };

static xray_status feed_item_data(void *ctx, size_t i, xr_err *err,
                                  const void **out)
{
    (void)ctx;
    (void)err;
    *out = data[i];
    return XRAY_OK;
}

/* Writes every item in two halves, the second one first. */
static void write_halves(xm_st_parts *parts)
{
    xr_err err = { "" };
    for (size_t i = ITEMS; i-- > 0;) {
        uint64_t half = bytes_of[i] / 2;
        if (xm_st_parts_write(parts, i, half, data[i] + half,
                              (size_t)(bytes_of[i] - half), &err) ||
            xm_st_parts_write(parts, i, 0, data[i], (size_t)half, &err))
            fail_msg("%s", err.text);
    }
    assert_int_equal(xm_st_parts_sync(parts, &err), XRAY_OK);
}

static size_t count_files(const char *dir)
{
    size_t count = 0;
    DIR *list = opendir(dir);
    assert_non_null(list);
    for (struct dirent *e; (e = readdir(list));)
        count += e->d_name[0] != '.';
    closedir(list);
    return count;
}

static void assert_files_equal(const char *a, const char *b, const char *name)
{
    char path[XR_PATH_CAP];
    char *one;
    char *two;
    size_t sizes[2];
    assert_int_equal(
        xr_path_join(scratch_path(a), name, path, sizeof path, NULL), XRAY_OK);
    assert_int_equal(xr_file_read(path, 1 << 20, NULL, &one, &sizes[0]),
                     XRAY_OK);
    assert_int_equal(
        xr_path_join(scratch_path(b), name, path, sizeof path, NULL), XRAY_OK);
    assert_int_equal(xr_file_read(path, 1 << 20, NULL, &two, &sizes[1]),
                     XRAY_OK);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(one, two, sizes[0]);
    free(one);
    free(two);
}

/* The files have the bytes of a single writer's, for any number of shards and
 * whatever the folder held before. */
static void ranks_write_the_files_of_a_single_writer(void **state)
{
    (void)state;
    static const struct {
        uint64_t max_shard;
        const char *names[4];
    } cases[] = {
        { 42, { "model.safetensors" } },
        { 41,
          { "model-00001-of-00002.safetensors",
            "model-00002-of-00002.safetensors",
            "model.safetensors.index.json" } },
        { 16,
          { "model-00001-of-00003.safetensors",
            "model-00002-of-00003.safetensors",
            "model-00003-of-00003.safetensors",
            "model.safetensors.index.json" } },
        { 1000, { "model.safetensors" } },
    };
    const xm_st_feed feed = { feed_item_data, NULL };
    xr_err err = { "" };
    assert_int_equal(xr_dir_make(scratch_path("one"), &err), XRAY_OK);
    assert_int_equal(xr_dir_make(scratch_path("many"), &err), XRAY_OK);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        xm_st_parts *first;
        xm_st_parts *second;
        uint64_t most = cases[c].max_shard;
        assert_int_equal(xm_st_write_model(scratch_path("one"), items, ITEMS,
                                           most, &feed, &err),
                         XRAY_OK);
        const char *dir = scratch_path("many");
        assert_int_equal(
            xm_st_parts_model(dir, items, ITEMS, most, &err, &first), XRAY_OK);
        assert_int_equal(
            xm_st_parts_model(dir, items, ITEMS, most, &err, &second), XRAY_OK);
        assert_int_equal(xm_st_parts_begin(first, &err), XRAY_OK);
        write_halves(second);
        assert_int_equal(xm_st_parts_commit(first, &err), XRAY_OK);
        xm_st_parts_close(second);
        xm_st_parts_close(first);
        size_t count = 0;
        for (; count < 4 && cases[c].names[count]; count++)
            assert_files_equal("one", "many", cases[c].names[count]);
        assert_int_equal(count_files(scratch_path("many")), count);
    }
}

static void parts_of_one_file_are_dropped_or_committed(void **state)
{
    (void)state;
    static const char *const metadata[] = { "k", "v", NULL };
    char path[256];
    char temp[512];
    xm_st_parts *parts;
    xm_st *st;
    xr_err err = { "" };
    (void)snprintf(path, sizeof path, "%s", scratch_path("p.safetensors"));
    (void)snprintf(temp, sizeof temp, "%s.part", path);
    assert_int_equal(
        xm_st_parts_file(path, items, ITEMS, metadata, &err, &parts), XRAY_OK);
    assert_int_equal(xm_st_parts_begin(parts, &err), XRAY_OK);
    assert_true(xr_path_exists(temp));
    xm_st_parts_drop(parts);
    assert_false(xr_path_exists(temp));
    assert_false(xr_path_exists(path));
    assert_int_equal(xm_st_parts_begin(parts, &err), XRAY_OK);
    write_halves(parts);
    assert_int_equal(xm_st_parts_commit(parts, &err), XRAY_OK);
    assert_false(xr_path_exists(temp));
    xm_st_parts_close(parts);
    assert_int_equal(xm_st_open(path, &err, &st), XRAY_OK);
    assert_int_equal(xm_st_count(st), ITEMS);
    assert_string_equal(xm_st_metadata(st, "k"), "v");
    for (size_t i = 0; i < ITEMS; i++) {
        const xm_st_tensor *t = xm_st_find(st, items[i].name);
        assert_non_null(t);
        assert_int_equal(t->bytes, bytes_of[i]);
        assert_memory_equal(t->data, data[i], (size_t)t->bytes);
    }
    xm_st_close(st);
}

/* In a missing folder no rank can create, write or commit files. */
static void parts_in_a_missing_folder_are_refused(void **state)
{
    (void)state;
    xm_st_parts *parts;
    xr_err err = { "" };
    assert_int_equal(
        xm_st_parts_model(scratch_path("none"), items, ITEMS, 16, &err, &parts),
        XRAY_OK);
    assert_int_equal(xm_st_parts_begin(parts, &err), XRAY_E_IO);
    assert_non_null(strstr(err.text, "cannot create"));
    assert_int_equal(xm_st_parts_write(parts, 0, 0, data[0], 12, &err),
                     XRAY_E_IO);
    assert_non_null(strstr(err.text, "cannot open"));
    assert_int_equal(xm_st_parts_commit(parts, &err), XRAY_E_IO);
    xm_st_parts_close(parts);
}

/* Errors of the file system name the file. */
static void parts_larger_than_the_file_limit_are_refused(void **state)
{
    (void)state;
    xm_st_parts *parts;
    xr_err err = { "" };
    struct rlimit old;
    struct rlimit none;
    char want[XR_PATH_CAP];
    char path[XR_PATH_CAP];
    (void)snprintf(path, sizeof path, "%s", scratch_path("large.safetensors"));
    assert_int_equal(xm_st_parts_file(path, items, ITEMS, NULL, &err, &parts),
                     XRAY_OK);
    assert_int_equal(xm_st_parts_begin(parts, &err), XRAY_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none = old;
    none.rlim_cur = 1;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    xray_status status = xm_st_parts_write(parts, 0, 0, data[0], 12, &err);
    xr_err again = { "" };
    xray_status begun = xm_st_parts_begin(parts, &again);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(status, XRAY_E_IO);
    (void)snprintf(want, sizeof want, "%s", strrchr(path, '/'));
    assert_non_null(strstr(err.text, want));
    assert_non_null(strstr(err.text, "cannot write"));
    assert_non_null(strstr(err.text, "File too large"));
    assert_int_equal(begun, XRAY_E_IO);
    assert_non_null(strstr(again.text, "cannot allocate "));
    assert_non_null(strstr(again.text, "File too large"));
    assert_int_equal(access(path, F_OK), -1);
    xm_st_parts_close(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_header_is_read_or_refused),
        cmocka_unit_test(reads_stay_within_the_tensor),
        cmocka_unit_test(invalid_items_are_not_written),
        cmocka_unit_test(ranks_write_the_files_of_a_single_writer),
        cmocka_unit_test(parts_of_one_file_are_dropped_or_committed),
        cmocka_unit_test(parts_in_a_missing_folder_are_refused),
        cmocka_unit_test(parts_larger_than_the_file_limit_are_refused),
    };
    return cmocka_run_group_tests_name("hf.headers", tests, scratch_make,
                                       scratch_drop);
}
