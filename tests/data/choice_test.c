/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which rows of which files are used: compressed files, filters, shares,
 * and the held-out part.
 */
#include <zlib.h>
#include <zstd.h>

#include <xray/numerics.h>

#include "core/data/data.h"
#include "core/data/filter.h"
#include "core/data/text_file.h"
#include "tests/scratch.h"

/* ---- compressed files --------------------------------------------------- */

static size_t pack_gzip(const void *data, size_t size, unsigned char *out,
                        size_t cap)
{
    z_stream z = { .zalloc = NULL };
    unsigned char *copy = malloc(size + 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    assert_int_equal(
        deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = copy;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)cap;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t used = z.total_out;
    assert_int_equal(deflateEnd(&z), Z_OK);
    free(copy);
    return used;
}

static size_t pack_zstd(const void *data, size_t size, unsigned char *out,
                        size_t cap)
{
    ZSTD_CCtx *ctx = ZSTD_createCCtx();
    assert_non_null(ctx);
    assert_false(
        ZSTD_isError(ZSTD_CCtx_setParameter(ctx, ZSTD_c_checksumFlag, 1)));
    size_t used = ZSTD_compress2(ctx, out, cap, data, size);
    assert_false(ZSTD_isError(used));
    ZSTD_freeCCtx(ctx);
    return used;
}

typedef size_t (*packer)(const void *, size_t, unsigned char *, size_t);

static const char *write_bytes(const char *name, const void *data, size_t size)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

#define TEXT_SIZE ((size_t)3000000)

/* Larger than the reader's pieces, and without a short period. */
static char *make_long_text(void)
{
    char *text = malloc(TEXT_SIZE);
    assert_non_null(text);
    for (size_t i = 0; i < TEXT_SIZE; i++)
        text[i] =
            (char)('a' + xray_philox(1, (uint32_t)i / 3, 0, 0, 0).w[0] % 20);
    return text;
}

static void expect_text(const char *path, const char *want, size_t size)
{
    char *got;
    size_t got_size;
    xr_err err = { "" };
    if (xr_text_read(path, NULL, &err, &got, &got_size) != XRAY_OK)
        fail_msg("%s", err.text);
    assert_int_equal(got_size, size);
    assert_memory_equal(got, want, size);
    assert_int_equal(got[size], 0);
    free(got);
}

static void expect_damage(const char *path, const char *what)
{
    char *got = NULL;
    size_t size;
    xr_err err = { "" };
    assert_true(xr_text_read(path, NULL, &err, &got, &size) < 0);
    assert_null(got);
    if (!strstr(err.text, path) || !strstr(err.text, what))
        fail_msg("%s", err.text);
}

static void check_compressed(packer pack, const char *kind)
{
    char *text = make_long_text();
    unsigned char *out = malloc(2 * TEXT_SIZE);
    assert_non_null(out);
    size_t size = pack(text, TEXT_SIZE, out, 2 * TEXT_SIZE);
    expect_text(write_bytes("a.jsonl", out, size), text, TEXT_SIZE);
    /* Two consecutive files are one text, as with `cat a.gz b.gz`. */
    size_t first = pack(text, 1000, out, TEXT_SIZE);
    size_t second = pack(text + 1000, 2000, out + first, TEXT_SIZE);
    expect_text(write_bytes("b.jsonl", out, first + second), text, 3000);
    first = pack(text, 1000, out, TEXT_SIZE);
    second =
        pack(text + 1000, TEXT_SIZE - 1000, out + first, 2 * TEXT_SIZE - first);
    expect_text(write_bytes("b.jsonl", out, first + second), text, TEXT_SIZE);
    size = pack(text, 0, out, TEXT_SIZE);
    expect_text(write_bytes("c.jsonl", out, size), "", 0);

    size = pack(text, TEXT_SIZE, out, 2 * TEXT_SIZE);
    char breaks[64];
    (void)snprintf(breaks, sizeof breaks, "the %s file is truncated", kind);
    expect_damage(write_bytes("d.jsonl", out, size / 2), breaks);
    expect_damage(write_bytes("d.jsonl", out, size - 2), breaks);
    (void)snprintf(breaks, sizeof breaks, "damaged %s data", kind);
    out[size - 3] ^= 1; /* in the checksum */
    expect_damage(write_bytes("e.jsonl", out, size), breaks);
    free(text);
    free(out);
}

static void gzip_files_are_read(void **state)
{
    (void)state;
    check_compressed(pack_gzip, "gzip");
}

static void zstd_files_are_read(void **state)
{
    (void)state;
    check_compressed(pack_zstd, "zstd");
}

/* Any bytes after the magic number are a text or an error. */
static void damage_anywhere_is_noticed(void **state)
{
    (void)state;
    static const packer packers[] = { pack_gzip, pack_zstd };
    char text[600];
    unsigned char packed[2][2000];
    unsigned char bytes[2000];
    size_t sizes[2];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i % 7);
    for (size_t i = 0; i < 2; i++)
        sizes[i] = packers[i](text, sizeof text, packed[i], sizeof packed[i]);
    for (uint32_t i = 0; i < 2000; i++) {
        xray_philox_out r = xray_philox(3, i, 0, 0, 0);
        size_t size = sizes[i & 1];
        memcpy(bytes, packed[i & 1], size);
        bytes[r.w[0] % size] ^= (unsigned char)(1u << r.w[1] % 8);
        size_t keep = r.w[2] % 4 ? size : r.w[3] % size;
        char *got = NULL;
        size_t got_size;
        xr_err err = { "" };
        xray_status status = xr_text_read(write_bytes("m.jsonl", bytes, keep),
                                          NULL, &err, &got, &got_size);
        assert_true(status == XRAY_OK || err.text[0]);
        free(got);
    }
}

/* ---- filters ------------------------------------------------------------ */

static int is_row_kept(const char *condition, const char *row)
{
    xray_list list = { &condition, 1 };
    xr_filter *filter;
    xr_err err = { "" };
    int keep = -1;
    if (xr_filter_parse(&list, &err, &filter) != XRAY_OK)
        fail_msg("%s", err.text);
    cJSON *json = cJSON_Parse(row);
    assert_non_null(json);
    if (xr_filter_row(filter, json, "a.jsonl:3", &err, &keep) != XRAY_OK)
        fail_msg("%s", err.text);
    cJSON_Delete(json);
    xr_filter_free(filter);
    return keep;
}

static void filters_keep_matching_rows(void **state)
{
    (void)state;
    static const struct {
        const char *condition;
        const char *row;
        int keep;
    } cases[] = {
        { "level >= 3", "{\"level\":3}", 1 },
        { "level>=3", "{\"level\":2.5}", 0 },
        { "level < 3", "{\"level\":\"2\"}", 1 },
        { "level < 3", "{\"level\":3}", 0 },
        { "level <= 3", "{\"level\":3}", 1 },
        { "level <= 3", "{\"level\":3.5}", 0 },
        { "level <= 3", "{}", 0 },
        { "level > 3", "{\"level\":3}", 0 },
        { "level > -1e3", "{\"level\":-5}", 1 },
        { "source = gsm8k", "{\"source\":\"gsm8k\"}", 1 },
        { "source == gsm8k", "{\"source\":\"math\"}", 0 },
        { "source != gsm8k", "{\"source\":\"math\"}", 1 },
        { "source != gsm8k", "{}", 1 },
        { "source = gsm8k", "{\"source\":null}", 0 },
        { "n = 2", "{\"n\":2.0}", 1 },
        { "n = 2", "{\"n\":\"2.0\"}", 1 },
        { "n = \"2\"", "{\"n\":\"2.0\"}", 0 },
        { "n != 2", "{\"n\":2}", 0 },
        { "ok = true", "{\"ok\":true}", 1 },
        { "text ~ an egg", "{\"text\":\"eat an egg\"}", 1 },
        { "text = \">= 3\"", "{\"text\":\">= 3\"}", 1 },
        { "text = ~x", "{\"text\":\"~x\"}", 1 },
        { "text ~ \" egg\"", "{\"text\":\"eggs\"}", 0 },
        { "extra_info.split != test", "{\"extra_info\":{\"split\":\"test\"}}",
          0 },
        { "a.b.c = 1", "{\"a\":{\"b\":{\"c\":1}}}", 1 },
        { "a.b = 1", "{\"a.b\":1}", 1 },
        { "a.b = 1", "{\"a\":{\"c\":1}}", 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (is_row_kept(cases[i].condition, cases[i].row) != cases[i].keep)
            fail_msg("%s of %s", cases[i].condition, cases[i].row);
}

static void bad_filters_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = { "level",        "= 3",        "",
                                       "level > high", "level => 3", "a === b",
                                       "level <> 3",   "name !~ x",  "a =~ b" };
    xr_filter *filter = NULL;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        xray_list list = { &bad[i], 1 };
        xr_err err = { "" };
        assert_int_equal(xr_filter_parse(&list, &err, &filter), XRAY_E_CONFIG);
        assert_non_null(strstr(err.text, "[data] filters: '"));
    }
    const char *const good[] = { "level > 2" };
    xray_list list = { good, 1 };
    xr_err err = { "" };
    int keep;
    assert_int_equal(xr_filter_parse(&list, &err, &filter), XRAY_OK);
    cJSON *json = cJSON_Parse("{\"level\":\"hard\"}");
    assert_int_equal(xr_filter_row(filter, json, "a.jsonl:3", &err, &keep),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "a.jsonl:3: [data] filters compare 'level' "
                                  "with 2, but it is not a number");
    cJSON_Delete(json);
    xr_filter_free(filter);
}

/* ---- shares ------------------------------------------------------------- */

static void count_visits(xr_sampler *s, uint32_t visits, uint32_t *counts)
{
    for (uint32_t i = 0; i < visits; i++)
        counts[xr_sampler_next(s)]++;
}

static void shares_are_kept_over_epochs(void **state)
{
    (void)state;
    /* 10 rows with weight 3 and 90 with weight 1: 75 and 25 positions per
     * epoch. */
    static const xr_share parts[] = { { 0, 10, 3 }, { 10, 90, 1 } };
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        uint32_t counts[100] = { 0 };
        uint32_t first = 0;
        uint32_t least = 1000;
        uint32_t most = 0;
        xr_sampler s;
        assert_int_equal(xr_sampler_init(&s, parts, 2, 5, shuffle, NULL),
                         XRAY_OK);
        count_visits(&s, 100, counts);
        for (uint32_t i = 0; i < 10; i++)
            first += counts[i];
        assert_int_equal(first, 75);
        count_visits(&s, 17 * 100, counts); /* 18 epochs: 5 passes of part 2 */
        for (uint32_t i = 0; i < 10; i++)
            assert_int_equal(counts[i], 18 * 75 / 10);
        for (uint32_t i = 10; i < 100; i++) {
            least = counts[i] < least ? counts[i] : least;
            most = counts[i] > most ? counts[i] : most;
        }
        assert_int_equal(least, 5);
        assert_int_equal(most, 5);
        xr_sampler_free(&s);
    }
}

/* Without shuffling, files are interleaved and keep their own order. */
static void shares_are_interleaved_in_order(void **state)
{
    (void)state;
    static const xr_share parts[] = { { 0, 4, 1 }, { 4, 4, 1 } };
    static const uint32_t want[] = { 0, 4, 1, 5, 2, 6, 3, 7 };
    xr_sampler s;
    assert_int_equal(xr_sampler_init(&s, parts, 2, 5, 0, NULL), XRAY_OK);
    for (size_t i = 0; i < 16; i++)
        assert_int_equal(xr_sampler_next(&s), want[i % 8]);
    xr_sampler_free(&s);
}

/* Two numbers are the complete state, also with shares. */
static void shares_resume_from_the_state(void **state)
{
    (void)state;
    static const xr_share parts[] = { { 0, 7, 2 }, { 7, 11, 1 }, { 18, 2, 5 } };
    for (uint32_t stop = 0; stop < 60; stop += 7) {
        xr_sampler a;
        xr_sampler b;
        assert_int_equal(xr_sampler_init(&a, parts, 3, 9, 1, NULL), XRAY_OK);
        assert_int_equal(xr_sampler_init(&b, parts, 3, 9, 1, NULL), XRAY_OK);
        for (uint32_t i = 0; i < stop; i++)
            (void)xr_sampler_next(&a);
        b.epoch = a.epoch;
        b.position = a.position;
        for (uint32_t i = 0; i < 50; i++)
            assert_int_equal(xr_sampler_next(&a), xr_sampler_next(&b));
        xr_sampler_free(&a);
        xr_sampler_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_files_are_read),
        cmocka_unit_test(zstd_files_are_read),
        cmocka_unit_test(damage_anywhere_is_noticed),
        cmocka_unit_test(filters_keep_matching_rows),
        cmocka_unit_test(bad_filters_are_refused),
        cmocka_unit_test(shares_are_kept_over_epochs),
        cmocka_unit_test(shares_are_interleaved_in_order),
        cmocka_unit_test(shares_resume_from_the_state),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
