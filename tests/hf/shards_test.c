/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that readers and writers of shards give back every file descriptor and
 * mapping, also where they fail, and that a shard that cannot be created or
 * renamed ends the write of several ranks without a file that looks complete.
 */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/str.h"
#include "model/hf/safetensors.h"
#include "tests/scratch.h"

#define INDEX "model.safetensors.index.json"
#define SHARD(i) "model-0000" i "-of-00003.safetensors"

/* Three tensors of 8 bytes; each is a shard of its own at a limit of 8. */
enum { COUNT = 3, BYTES = 8 };
static const xm_st_item items[COUNT] = {
    { "a", XM_ST_F32, 1, { 2 }, NULL },
    { "b", XM_ST_F32, 1, { 2 }, NULL },
    { "c", XM_ST_F32, 1, { 2 }, NULL },
};
static const float values[2] = { 1, 2 };

static xray_status feed_values(void *ctx, size_t i, xr_err *err,
                               const void **out)
{
    const size_t *fail_at = ctx;
    if (i == *fail_at)
        return xr_fail(err, XRAY_E_DEVICE, "the device failed");
    *out = values;
    return XRAY_OK;
}

static xray_status write_alone(uint64_t max_shard, size_t fail_at)
{
    xr_err err = { "" };
    const xm_st_feed feed = { feed_values, &fail_at };
    return xm_st_write_model(scratch_dir(), items, COUNT, max_shard, &feed,
                             &err);
}

static xm_st_parts *make_parts(uint64_t max_shard)
{
    xm_st_parts *parts = NULL;
    xr_err err = { "" };
    if (xm_st_parts_model(scratch_dir(), items, COUNT, max_shard, &err, &parts))
        fail_msg("%s", err.text);
    return parts;
}

static void write_parts(xm_st_parts *parts)
{
    xr_err err = { "" };
    for (size_t i = 0; i < COUNT; i++)
        if (xm_st_parts_write(parts, i, 0, values, BYTES, &err))
            fail_msg("%s", err.text);
}

static xray_status read_and_close(void)
{
    xm_st *st = NULL;
    xr_err err = { "" };
    xray_status status = xm_st_open(scratch_dir(), &err, &st);
    xm_st_close(status ? NULL : st);
    return status;
}

static int file_exists(const char *name)
{
    return xr_path_exists(scratch_path(name));
}

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

/* Mappings of files of the suite. */
static size_t count_mappings(void)
{
    char line[4096];
    size_t count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, scratch_dir()) != NULL;
    (void)fclose(maps);
    return count;
}

static void writers_close_every_file(void **state)
{
    (void)state;
    size_t before = count_descriptors();
    for (uint64_t max = BYTES; max <= BYTES * COUNT; max += BYTES)
        for (size_t fail_at = 0; fail_at <= COUNT; fail_at++) {
            assert_int_equal(write_alone(max, fail_at),
                             fail_at < COUNT ? XRAY_E_DEVICE : XRAY_OK);
            assert_int_equal(count_descriptors(), before);
        }
}

static void ranks_close_every_file(void **state)
{
    (void)state;
    xr_err err = { "" };
    size_t before = count_descriptors();
    for (uint64_t max = BYTES; max <= BYTES * COUNT; max += BYTES) {
        xm_st_parts *first = make_parts(max);
        xm_st_parts *other = make_parts(max);
        assert_int_equal(xm_st_parts_begin(first, &err), XRAY_OK);
        write_parts(other);
        assert_int_equal(xm_st_parts_commit(first, &err), XRAY_OK);
        xm_st_parts_close(first);
        xm_st_parts_close(other);
        assert_int_equal(count_descriptors(), before);
        assert_int_equal(read_and_close(), XRAY_OK);
    }
}

/* One file holds nothing but its header then, and is a model all the same. */
static void no_tensors_are_a_file_of_their_own(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        xr_err err = { "" };
        xm_st_parts *parts = NULL;
        assert_int_equal(xm_st_parts_model(scratch_dir(), items, 0,
                                           i % 2 ? BYTES : 0, &err, &parts),
                         XRAY_OK);
        assert_int_equal(xm_st_parts_begin(parts, &err), XRAY_OK);
        assert_int_equal(xm_st_parts_commit(parts, &err), XRAY_OK);
        xm_st_parts_close(parts);
        assert_true(file_exists("model.safetensors"));
        assert_false(file_exists(INDEX));
        assert_int_equal(read_and_close(), XRAY_OK);
    }
}

static void readers_release_every_shard(void **state)
{
    (void)state;
    size_t before = count_descriptors();
    assert_int_equal(count_mappings(), 0);
    assert_int_equal(write_alone(BYTES, COUNT), XRAY_OK);
    assert_int_equal(read_and_close(), XRAY_OK);
    assert_int_equal(count_mappings(), 0);
    assert_int_equal(count_descriptors(), before);
    /* The last shard is not one, so the others were opened in vain. */
    scratch_write(SHARD("3"), "no shard");
    assert_int_equal(read_and_close(), XRAY_E_CONFIG);
    assert_int_equal(count_mappings(), 0);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(unlink(scratch_path(SHARD("3"))), 0);
    assert_int_equal(read_and_close(), XRAY_E_IO);
    assert_int_equal(count_mappings(), 0);
    assert_int_equal(count_descriptors(), before);
}

/* The metadata of a model may be in any of its shards. */
static void metadata_is_found_in_every_shard(void **state)
{
    (void)state;
    static const char *const metadata[] = { "format", "pt", NULL };
    xm_st_item one = { "a", XM_ST_F32, 1, { 2 }, values };
    xm_st *st = NULL;
    xr_err err = { "" };
    assert_int_equal(
        xm_st_write(scratch_path("1.safetensors"), &one, 1, NULL, &err),
        XRAY_OK);
    one.name = "b";
    assert_int_equal(
        xm_st_write(scratch_path("2.safetensors"), &one, 1, metadata, &err),
        XRAY_OK);
    scratch_write(INDEX, "{\"weight_map\":{\"a\":\"1.safetensors\","
                         "\"b\":\"2.safetensors\"}}");
    assert_int_equal(xm_st_open(scratch_dir(), &err, &st), XRAY_OK);
    assert_string_equal(xm_st_metadata(st, "format"), "pt");
    assert_null(xm_st_metadata(st, "none"));
    xm_st_close(st);
}

/* Checkpoints write shards of so many bytes. */
static void a_file_has_5_gb_at_most(void **state)
{
    (void)state;
    assert_true(XM_ST_SHARD_BYTES == UINT64_C(5000000000));
}

static void make_obstacle(const char *name)
{
    assert_int_equal(mkdir(scratch_path(name), 0777), 0);
}

/* A folder in the place of each temporary file in turn. */
static void a_shard_that_cannot_begin_leaves_no_other(void **state)
{
    (void)state;
    static const char *const temps[COUNT] = { SHARD("1") ".part",
                                              SHARD("2") ".part",
                                              SHARD("3") ".part" };
    for (size_t i = 0; i < COUNT; i++) {
        xr_err err = { "" };
        size_t before = count_descriptors();
        xm_st_parts *parts = make_parts(BYTES);
        make_obstacle(temps[i]);
        assert_int_equal(xm_st_parts_begin(parts, &err), XRAY_E_IO);
        assert_non_null(strstr(err.text, temps[i]));
        assert_non_null(strstr(err.text, "cannot create"));
        for (size_t k = 0; k < COUNT; k++)
            assert_int_equal(file_exists(temps[k]), k == i);
        xm_st_parts_close(parts);
        assert_int_equal(count_descriptors(), before);
        assert_int_equal(rmdir(scratch_path(temps[i])), 0);
    }
}

/* A folder in the place of each shard in turn, over an older single file: the
 * write fails and that file is still the model. */
static void a_shard_that_cannot_be_renamed_keeps_the_older_model(void **state)
{
    (void)state;
    static const char *const names[COUNT] = { SHARD("1"), SHARD("2"),
                                              SHARD("3") };
    assert_int_equal(write_alone(BYTES * COUNT, COUNT), XRAY_OK);
    for (size_t i = 0; i < COUNT; i++) {
        xr_err err = { "" };
        xm_st_parts *parts = make_parts(BYTES);
        make_obstacle(names[i]);
        assert_int_equal(xm_st_parts_begin(parts, &err), XRAY_OK);
        write_parts(parts);
        assert_int_equal(xm_st_parts_commit(parts, &err), XRAY_E_IO);
        assert_non_null(strstr(err.text, names[i]));
        assert_non_null(strstr(err.text, "cannot rename"));
        assert_false(file_exists(INDEX));
        assert_true(file_exists("model.safetensors"));
        assert_int_equal(read_and_close(), XRAY_OK);
        xm_st_parts_drop(parts);
        xm_st_parts_close(parts);
        assert_int_equal(rmdir(scratch_path(names[i])), 0);
    }
}

/* An older index that cannot be removed is named, with the reason. */
static void what_cannot_be_removed_is_named(void **state)
{
    (void)state;
    xr_err err = { "" };
    char want[300];
    xm_st_parts *parts = make_parts(BYTES);
    make_obstacle(INDEX);
    assert_int_equal(xm_st_parts_begin(parts, &err), XRAY_OK);
    write_parts(parts);
    assert_int_equal(xm_st_parts_commit(parts, &err), XRAY_E_IO);
    (void)snprintf(want, sizeof want, "%s: cannot remove: Is a directory",
                   scratch_path(INDEX));
    assert_string_equal(err.text, want);
    xm_st_parts_drop(parts);
    xm_st_parts_close(parts);
    assert_int_equal(rmdir(scratch_path(INDEX)), 0);
}

/* The names of shards have five digits; readers find no more files. */
static void more_shards_than_names_are_refused(void **state)
{
    (void)state;
    enum { MANY = 100000 };
    static char names[MANY][8];
    static xm_st_item many[MANY];
    size_t fail_at = 0;
    const xm_st_feed feed = { feed_values, &fail_at };
    for (size_t i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof names[i], "%zu", i);
        many[i] = (xm_st_item){ names[i], XM_ST_F32, 1, { 2 }, NULL };
    }
    for (size_t count = MANY - 1; count <= MANY; count++) {
        xr_err err = { "" };
        xr_err again = { "" };
        xm_st_parts *parts = NULL;
        xray_status status =
            xm_st_write_model(scratch_dir(), many, count, BYTES, &feed, &err);
        assert_int_equal(status, count == MANY ? XRAY_E_RANGE : XRAY_E_DEVICE);
        status = xm_st_parts_model(scratch_dir(), many, count, BYTES, &again,
                                   &parts);
        assert_int_equal(status, count == MANY ? XRAY_E_RANGE : XRAY_OK);
        xm_st_parts_close(parts);
        if (count == MANY) {
            assert_non_null(strstr(err.text, "would be 100000 files"));
            assert_string_equal(err.text, again.text);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_has_5_gb_at_most),
        cmocka_unit_test_setup_teardown(writers_close_every_file, scratch_make,
                                        scratch_drop),
        cmocka_unit_test_setup_teardown(ranks_close_every_file, scratch_make,
                                        scratch_drop),
        cmocka_unit_test_setup_teardown(no_tensors_are_a_file_of_their_own,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(readers_release_every_shard,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(metadata_is_found_in_every_shard,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(
            a_shard_that_cannot_begin_leaves_no_other, scratch_make,
            scratch_drop),
        cmocka_unit_test_setup_teardown(
            a_shard_that_cannot_be_renamed_keeps_the_older_model, scratch_make,
            scratch_drop),
        cmocka_unit_test_setup_teardown(what_cannot_be_removed_is_named,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(more_shards_than_names_are_refused,
                                        scratch_make, scratch_drop),
    };
    return cmocka_run_group_tests_name("hf.shards", tests, NULL, NULL);
}
