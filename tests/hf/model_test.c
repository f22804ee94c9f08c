/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that the weights of a model directory survive sharding, interruption
 * and overwriting, and which indexes and element types are refused.
 */
#include <sys/stat.h>

#include <xray/numerics.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "model/hf/safetensors.h"
#include "tests/scratch.h"

#define INDEX "model.safetensors.index.json"

static int scratch_file_exists(const char *name)
{
    return xr_path_exists(scratch_path(name));
}

static void remove_scratch_file(const char *name)
{
    assert_int_equal(unlink(scratch_path(name)), 0);
}

/* Six tensors of 1 to 6 floats, all with one value; the feed fails at item
 * `fail_at`. */
#define COUNT 6
typedef struct source {
    float value;
    size_t fail_at;
    float data[COUNT];
} source;

static xray_status feed_values(void *ctx, size_t i, xr_err *err,
                               const void **out)
{
    source *s = ctx;
    if (i == s->fail_at)
        return xr_fail(err, XRAY_E_IO, "the disk is full");
    for (size_t k = 0; k < COUNT; k++)
        s->data[k] = s->value;
    *out = s->data;
    return XRAY_OK;
}

static xray_status write_model(float value, uint64_t max_shard, size_t fail_at,
                               xr_err *err)
{
    static const char *const names[COUNT] = {
        "t1", "a2", "b3", "z4", "c5", "b6"
    };
    xm_st_item items[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        items[i] = (xm_st_item){
            .name = names[i], .dtype = XM_ST_F32, .dims = 1, .shape = { i + 1 }
        };
    source s = { .value = value, .fail_at = fail_at };
    const xm_st_feed feed = { feed_values, &s };
    return xm_st_write_model(scratch_dir(), items, COUNT, max_shard, &feed,
                             err);
}

static void write_complete_model(float value, uint64_t max_shard)
{
    xr_err err = { "" };
    if (write_model(value, max_shard, COUNT, &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* Expects all six tensors with this value. */
static void assert_holds(float value)
{
    xm_st *st = NULL;
    xr_err err = { "" };
    if (xm_st_open(scratch_dir(), &err, &st) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_int_equal(xm_st_count(st), COUNT);
    assert_string_equal(xm_st_metadata(st, "format"), "pt");
    for (size_t i = 0; i < COUNT; i++) {
        float got[COUNT];
        const xm_st_tensor *t = xm_st_at(st, i);
        assert_int_equal(xm_st_read_f32(t, 0, t->count, got, NULL), XRAY_OK);
        for (size_t k = 0; k < t->count; k++)
            assert_true(got[k] == value);
    }
    xm_st_close(st);
}

static void assert_unreadable(const char *says)
{
    xm_st *st = NULL;
    xr_err err = { "" };
    if (xm_st_open(scratch_dir(), &err, &st) == XRAY_OK)
        fail_msg("an incomplete model was read");
    if (!strstr(err.text, says))
        fail_msg("%s", err.text);
}

static const char *find_shard_name(const cJSON *index, const char *name)
{
    return xr_json_get(xr_json_get(index, "weight_map"), name)->valuestring;
}

/* Tensors of 4, 8, 12, 16, 20 and 24 bytes go into files of at most 24. */
static void shards_are_cut_between_tensors(void **state)
{
    (void)state;
    cJSON *index = NULL;
    write_complete_model(1, 24);
    assert_holds(1);
    assert_false(scratch_file_exists("model.safetensors"));
    assert_true(scratch_file_exists("model-00001-of-00004.safetensors"));
    assert_int_equal(xr_json_file(scratch_path(INDEX), NULL, &index), XRAY_OK);
    assert_string_equal(find_shard_name(index, "b3"),
                        "model-00001-of-00004.safetensors");
    assert_string_equal(find_shard_name(index, "z4"),
                        "model-00002-of-00004.safetensors");
    assert_string_equal(find_shard_name(index, "b6"),
                        "model-00004-of-00004.safetensors");
    assert_int_equal(
        xr_json_get(xr_json_get(index, "metadata"), "total_size")->valueint,
        84);
    /* Names are sorted, as by json.dumps(sort_keys=True). */
    assert_string_equal(xr_json_get(index, "weight_map")->child->string, "a2");
    cJSON_Delete(index);
    /* A tensor above the limit has a file of its own. */
    write_complete_model(2, 10);
    assert_holds(2);
    assert_true(scratch_file_exists("model-00006-of-00006.safetensors"));
    assert_false(scratch_file_exists("model-00001-of-00004.safetensors"));
    write_complete_model(3, 84);
    assert_holds(3);
    assert_true(scratch_file_exists("model.safetensors"));
    assert_false(scratch_file_exists(INDEX));
    assert_false(scratch_file_exists("model-00001-of-00006.safetensors"));
}

static void only_shards_are_removed(void **state)
{
    (void)state;
    static const char *const keep[] = { "model-1-of-2.safetensors",
                                        "model-00001-of-0000x.safetensors",
                                        "motel-00001-of-00002.safetensors",
                                        "optim.safetensors", "config.json" };
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++)
        scratch_write(keep[i], "x");
    write_complete_model(1, 24);
    write_complete_model(2, 84);
    for (size_t i = 0; i < sizeof keep / sizeof keep[0]; i++)
        assert_true(scratch_file_exists(keep[i]));
}

/* A shard of an earlier set that cannot be removed, and so fills the disk,
 * fails the write; the new model is read all the same. */
static void what_cannot_be_removed_is_an_error(void **state)
{
    (void)state;
    static const char shard[] = "model-00001-of-00009.safetensors";
    static const uint64_t sizes[] = { 24, 84 };
    for (size_t i = 0; i < 2; i++) {
        xr_err err = { "" };
        assert_int_equal(mkdir(scratch_path(shard), 0777), 0);
        assert_int_equal(write_model((float)i + 8, sizes[i], COUNT, &err),
                         XRAY_E_IO);
        assert_non_null(strstr(err.text, shard));
        assert_non_null(strstr(err.text, "cannot remove"));
        assert_int_equal(rmdir(scratch_path(shard)), 0);
        assert_holds((float)i + 8);
    }
}

/* Interrupts a write at each tensor, over each kind of earlier files. */
static void interrupted_writes_leave_no_mixture(void **state)
{
    (void)state;
    xr_err err = { "" };
    for (size_t at = 0; at < COUNT; at++) {
        /* A write into an empty folder. */
        assert_int_equal(write_model(1, 24, at, &err), XRAY_E_IO);
        assert_string_equal(err.text, "the disk is full");
        assert_unreadable("holds neither");
        /* A write over one file, which stays. */
        write_complete_model(2, 84);
        assert_int_equal(write_model(3, 24, at, &err), XRAY_E_IO);
        assert_holds(2);
        assert_int_equal(write_model(3, 84, at, &err), XRAY_E_IO);
        assert_holds(2);
        /* One file over shards, which stay. */
        write_complete_model(4, 24);
        assert_int_equal(write_model(5, 84, at, &err), XRAY_E_IO);
        assert_holds(4);
        /* Shards over shards. */
        assert_int_equal(write_model(6, 24, at, &err), XRAY_E_IO);
        assert_unreadable("holds neither");
        write_complete_model(7, 24);
        assert_holds(7);
        remove_scratch_file(INDEX);
    }
}

static void indexes_that_misplace_tensors_are_refused(void **state)
{
    (void)state;
#define S(n) "\"model-0000" n "-of-00004.safetensors\""
    static const struct {
        const char *map;
        const char *fault;
    } cases[] = {
        { "\"t1\":" S("1") ",\"z4\":" S("2"), NULL },
        { "\"t1\":" S("2") ",\"z4\":" S("1"), "\"t1\" is not in" },
        { "\"t1\":" S("1") ",\"t1\":" S("1"), "\"t1\" occurs twice" },
        { "\"t1\":" S("5"), "cannot open" },
        { "\"none\":" S("1"), "\"none\" is not in" },
        { "\"t1\":\"../model.safetensors\"", "same folder" },
        { "\"t1\":\"/etc/passwd\"", "same folder" },
        { "\"t1\":\"..\"", "same folder" },
        { "\"t1\":\".\"", "is a folder" },
        { "\"t1\":\"\"", "same folder" },
        { "\"t1\":7", "same folder" },
        { "\"t1\":null", "same folder" },
    };
    write_complete_model(1, 24);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[512];
        xm_st *st = NULL;
        xr_err err = { "" };
        (void)snprintf(text, sizeof text, "{\"weight_map\":{%s}}",
                       cases[i].map);
        scratch_write(INDEX, text);
        xray_status status = xm_st_open(scratch_dir(), &err, &st);
        if (!cases[i].fault)
            assert_int_equal(status, XRAY_OK);
        else if (status == XRAY_OK || !strstr(err.text, cases[i].fault))
            fail_msg("%s: %s", text, err.text);
        xm_st_close(status ? NULL : st);
    }
    static const char *const broken[] = { "", "[]", "{", "{\"weight_map\":[]}",
                                          "{\"weight_map\":null}" };
    for (size_t i = 0; i < sizeof broken / sizeof broken[0]; i++) {
        scratch_write(INDEX, broken[i]);
        assert_unreadable(INDEX);
    }
}

static void mutated_indexes_are_read_or_refused(void **state)
{
    (void)state;
    char *good;
    size_t size;
    write_complete_model(1, 24);
    assert_int_equal(
        xr_file_read(scratch_path(INDEX), 4096, NULL, &good, &size), XRAY_OK);
    char *text = malloc(size + 1);
    assert_non_null(text);
    uint32_t accepted = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        xray_philox_out r = xray_philox(17, i, 0, 0, 0);
        memcpy(text, good, size + 1);
        text[r.w[0] % size] = "01234/.\"{}[],:\\ tabz"[r.w[1] % 20];
        scratch_write(INDEX, text);
        xm_st *st = NULL;
        xr_err err = { "" };
        xray_status status = xm_st_open(scratch_dir(), &err, &st);
        assert_int_equal(status != XRAY_OK, err.text[0] != '\0');
        accepted += status == XRAY_OK;
        xm_st_close(status ? NULL : st);
    }
    assert_true(accepted > 100 && accepted < 2900);
    free(text);
    free(good);
}

/* ---- types -------------------------------------------------------------- */

/* Writes a file of one tensor of `type`, eight elements long. */
static void write_type(const char *type, unsigned bits)
{
    char header[256];
    int n = snprintf(header, sizeof header,
                     "{\"t\":{\"dtype\":\"%s\",\"shape\":[8],"
                     "\"data_offsets\":[0,%u]}}",
                     type, bits);
    unsigned char length[8] = { (unsigned char)n };
    static const unsigned char data[65];
    FILE *file = fopen(scratch_path("model.safetensors"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(length, 1, 8, file), 8);
    assert_int_equal(fwrite(header, 1, (size_t)n, file), (size_t)n);
    assert_int_equal(fwrite(data, 1, bits, file), bits);
    assert_int_equal(fclose(file), 0);
}

static void every_type_is_read_or_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned bits;
        int reads;
    } types[] = {
        { "F64", 64, 1 },    { "F32", 32, 1 },        { "F16", 16, 1 },
        { "BF16", 16, 1 },   { "I64", 64, 0 },        { "I32", 32, 0 },
        { "I16", 16, 0 },    { "I8", 8, 0 },          { "U64", 64, 0 },
        { "U32", 32, 0 },    { "U16", 16, 0 },        { "U8", 8, 0 },
        { "BOOL", 8, 0 },    { "F8_E4M3", 8, 0 },     { "F8_E5M2", 8, 0 },
        { "F8_E8M0", 8, 0 }, { "F8_E4M3FNUZ", 8, 0 }, { "F8_E5M2FNUZ", 8, 0 },
        { "F6_E2M3", 6, 0 }, { "F6_E3M2", 6, 0 },     { "F4", 4, 0 },
        { "C64", 64, 0 },
    };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        xm_st *st = NULL;
        xr_err err = { "" };
        float got[8];
        write_type(types[i].name, types[i].bits);
        assert_int_equal(xm_st_open(scratch_dir(), &err, &st), XRAY_OK);
        const xm_st_tensor *t = xm_st_find(st, "t");
        assert_string_equal(t->type, types[i].name);
        xray_status status = xm_st_read_f32(t, 0, 8, got, &err);
        assert_int_equal(status, types[i].reads ? XRAY_OK : XRAY_E_UNSUPPORTED);
        if (!types[i].reads)
            assert_non_null(strstr(err.text, types[i].name));
        xm_st_close(st);
        /* One byte more than the elements fill. */
        write_type(types[i].name, types[i].bits + 1);
        assert_unreadable("do not fill");
    }
    write_type("F2", 2);
    assert_unreadable("unknown dtype \"F2\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shards_are_cut_between_tensors,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(only_shards_are_removed, scratch_make,
                                        scratch_drop),
        cmocka_unit_test_setup_teardown(what_cannot_be_removed_is_an_error,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(interrupted_writes_leave_no_mixture,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(
            indexes_that_misplace_tensors_are_refused, scratch_make,
            scratch_drop),
        cmocka_unit_test_setup_teardown(mutated_indexes_are_read_or_refused,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(every_type_is_read_or_refused_by_name,
                                        scratch_make, scratch_drop),
    };
    return cmocka_run_group_tests_name("hf.model", tests, NULL, NULL);
}
