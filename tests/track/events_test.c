/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the bytes of event files: checksums against published values, messages
 * against literal bytes and an independent decoder, and that a file that is cut
 * off or damaged anywhere is never taken for another one.
 */
#include "tests/testing.h"

#include <math.h>

#include "plugins/tracker-tensorboard/events.h"
#include "plugins/tracker-tensorboard/protobuf.h"
#include "plugins/tracker-tensorboard/read.h"
#include "plugins/tracker-tensorboard/records.h"
#include "tests/track/decode.h"

/* ---- checksums and fields ------------------------------------------------ */

static void checksums_are_crc32c(void **state)
{
    (void)state;
    unsigned char bytes[32];
    /* RFC 3720, B.4, and the check value of the catalogue of CRCs. */
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(tb_masked_crc(bytes, 32), decode_mask(0x8a9136aau));
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(tb_masked_crc(bytes, 32), decode_mask(0x62a8ab43u));
    for (unsigned i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    assert_int_equal(tb_masked_crc(bytes, 32), decode_mask(0x46dd794eu));
    assert_int_equal(tb_masked_crc("123456789", 9), decode_mask(0xe3069283u));
    assert_int_equal(tb_masked_crc("", 0), decode_mask(0));
    /* TensorFlow's own example of the mask: of 0 it is the constant alone. */
    assert_int_equal(decode_mask(0), 0xa282ead8u);
}

static void expect_bytes(const xr_str *s, const char *bytes, size_t size)
{
    assert_int_equal(s->size, size);
    assert_memory_equal(s->data, bytes, size);
}

static void fields_have_the_bytes_of_protobuf(void **state)
{
    (void)state;
    static const struct {
        uint64_t value;
        const char *bytes;
        size_t size;
    } cases[] = {
        { 0, "\x08\x00", 2 },
        { 127, "\x08\x7f", 2 },
        { 128, "\x08\x80\x01", 3 },
        { 150, "\x08\x96\x01", 3 },
        { 16384, "\x08\x80\x80\x01", 4 },
        { UINT64_MAX, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 },
    };
    xr_str s = { 0 };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_str_clear(&s);
        tb_put_uint(&s, 1, cases[i].value);
        expect_bytes(&s, cases[i].bytes, cases[i].size);
    }
    xr_str_clear(&s);
    tb_put_double(&s, 1, -2.0);
    expect_bytes(&s, "\x09\0\0\0\0\0\0\0\xc0", 9);
    xr_str_clear(&s);
    tb_put_text(&s, 2, "testing"); /* the example of the encoding page */
    expect_bytes(&s, "\x12\x07testing", 9);
    xr_str_clear(&s);
    size_t outer = tb_open(&s, 3);
    tb_put_uint(&s, 1, 150);
    tb_close(&s, outer);
    expect_bytes(&s, "\x1a\x03\x08\x96\x01", 5);
    xr_str_free(&s);
}

/* A length of two bytes moves what was written before it was known. */
static void messages_of_any_length_are_read_back(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 126, 127, 128, 16383, 16384, 70000 };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char *text = calloc(1, sizes[i] + 1);
        xr_str s = { 0 };
        tb_field outer;
        tb_field inner;
        size_t at = 0;
        size_t within = 0;
        assert_non_null(text);
        memset(text, 'x', sizes[i]);
        tb_put_uint(&s, 1, 7);
        size_t opened = tb_open(&s, 2);
        tb_put_text(&s, 3, text);
        tb_close(&s, opened);
        tb_put_uint(&s, 4, 8);
        const unsigned char *data = (const unsigned char *)s.data;
        assert_int_equal(tb_next(data, s.size, &at, &outer), 1);
        assert_int_equal(tb_next(data, s.size, &at, &outer), 1);
        assert_int_equal(tb_next(outer.data, outer.size, &within, &inner), 1);
        assert_int_equal(within, outer.size);
        assert_int_equal(inner.size, sizes[i]);
        assert_memory_equal(inner.data, text, sizes[i]);
        assert_int_equal(tb_next(data, s.size, &at, &outer), 1);
        assert_int_equal(outer.number, 4);
        assert_int_equal(outer.value, 8);
        assert_int_equal(tb_next(data, s.size, &at, &outer), 0);
        xr_str_free(&s);
        free(text);
    }
}

/* Other programs write fixed numbers of both sizes, too. */
static void fields_of_every_type_are_read_in_turn(void **state)
{
    (void)state;
    static const char bytes[] = "\x09"
                                "abcdefgh"
                                "\x15"
                                "ijkl"
                                "\x1a\x02"
                                "mn"
                                "\x20\x96\x01"
                                "\x2d"
                                "opqr";
    static const struct {
        uint32_t wire;
        const char *content; /* NULL: the number 150 */
    } fields[] = { { TB_FIXED64, "abcdefgh" },
                   { TB_FIXED32, "ijkl" },
                   { TB_BYTES, "mn" },
                   { TB_VARINT, NULL },
                   { TB_FIXED32, "opqr" } };
    const unsigned char *data = (const unsigned char *)bytes;
    size_t at = 0;
    tb_field field;
    for (uint32_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        assert_int_equal(tb_next(data, sizeof(bytes) - 1, &at, &field), 1);
        assert_int_equal(field.number, i + 1);
        assert_int_equal(field.wire, fields[i].wire);
        if (!fields[i].content) {
            assert_int_equal(field.value, 150);
            continue;
        }
        assert_int_equal(field.size, strlen(fields[i].content));
        assert_memory_equal(field.data, fields[i].content, field.size);
    }
    assert_int_equal(tb_next(data, sizeof(bytes) - 1, &at, &field), 0);
}

static void wrong_fields_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } cases[] = {
        { "\x08", 1 },         /* no value */
        { "\x08\x80", 2 },     /* a varint that does not end */
        { "\x00\x01", 2 },     /* field 0 */
        { "\x0b", 1 },         /* a group */
        { "\x09\0\0\0", 4 },   /* 8 bytes that are not there */
        { "\x0d\0\0", 3 },     /* 4 bytes that are not there */
        { "\x12\x05text", 6 }, /* a length beyond the end */
        { "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 },
        { "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12 },
        { "\x80\x80\x80\x80\x80\x01\x00", 7 }, /* a field number of 38 bits */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        tb_field field;
        size_t at = 0;
        assert_int_equal(tb_next((const unsigned char *)cases[i].bytes,
                                 cases[i].size, &at, &field),
                         -1);
    }
}

/* ---- a step -------------------------------------------------------------- */

static const double edges[] = { -1, 0.5, 3 };
static const double counts[] = { 4, 2 };

static const xray_named_value scalars[] = {
    { "critic/score/mean", 0.1 },
    { "perf/bytes", 1e300 },
    { "perf/less", -1e300 },
    { "actor/loss", -INFINITY },
};
static const xray_histogram histograms[] = { { "response_length", edges, counts,
                                               2 } };
static const xray_named_text texts[] = { { "samples/train/0", "a\0b", 3 } };

static xray_track_step make_step(uint64_t number)
{
    return (xray_track_step){ .header = XRAY_HEADER(xray_track_step),
                              .step = number,
                              .time = 1700000000.25,
                              .scalars = scalars,
                              .scalar_count = 4,
                              .scalar_stride = sizeof(scalars[0]),
                              .histograms = histograms,
                              .histogram_count = 1,
                              .histogram_stride = sizeof(histograms[0]),
                              .texts = texts,
                              .text_count = 1,
                              .text_stride = sizeof(texts[0]) };
}

static const xray_named_text settings[] = {
    { "actor.optim.lr", "1e-3", 4 }, { "trainer.val_only", "true", 4 },
    { "model.path", "/m", 2 },       { "data.note", "1e999", 5 },
    { "data.other", "nan", 3 },      { "data.shuffle", "false", 5 },
};

static const xray_track_setup setup = {
    .header = XRAY_HEADER(xray_track_setup),
    .job = "train",
    .settings = settings,
    .setting_count = 6,
    .setting_stride = sizeof(settings[0]),
};

typedef struct heard {
    char text[4096];
    size_t size;
} heard;

XRAY_PRINTF(2, 3)
static void note_line(heard *h, const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    h->size += (size_t)vsnprintf(h->text + h->size, sizeof(h->text) - h->size,
                                 fmt, list);
    va_end(list);
}

static void hear_event(void *ctx, const decode_event *e)
{
    note_line(ctx, "event %g %llu %s%d\n", e->time, (unsigned long long)e->step,
              e->version, e->restart);
}

static void hear_value(void *ctx, const decode_event *e, const decode_value *v)
{
    (void)e;
    note_line(ctx, "%s %s class %llu type %llu", v->plugin, v->tag,
              (unsigned long long)v->class, (unsigned long long)v->dtype);
    for (size_t i = 0; i < v->dim_count; i++)
        note_line(ctx, " [%llu]", (unsigned long long)v->dims[i]);
    if (v->has_exact)
        note_line(ctx, " %.17g %.9g", v->exact, (double)v->number);
    for (size_t i = 0; i < v->table_count; i++) {
        double number;
        memcpy(&number, (const char *)v->table + 8 * i, 8);
        note_line(ctx, " %g", number);
    }
    if (v->text)
        note_line(ctx, " %zu bytes", v->text_size);
    note_line(ctx, "\n");
}

static void hear_setting(void *ctx, const char *name, char kind,
                         const char *text)
{
    note_line(ctx, "setting %s %c %s\n", name, kind, text);
}

static void expect_heard(const xr_str *file, const char *want)
{
    heard h = { .size = 0 };
    const decode_sink sink = { &h, hear_event, hear_value, hear_setting };
    const char *fault =
        decode_file((const unsigned char *)file->data, file->size, &sink);
    if (fault)
        fail_msg("%s after %s", fault, h.text);
    assert_string_equal(h.text, want);
}

static void a_step_is_one_event_with_all_its_values(void **state)
{
    (void)state;
    xr_str file = { 0 };
    const xray_track_step step = make_step(300);
    tb_event_version(1.5, &file);
    tb_event_restart(2.5, 12, &file);
    tb_event_step(&step, &file);
    expect_heard(
        &file,
        "event 1.5 0 brain.Event:20\n"
        "event 2.5 12 1\n"
        "event 1.7e+09 300 0\n"
        "scalars critic/score/mean class 1 type 1 0.10000000000000001 "
        "0.100000001\n"
        "scalars perf/bytes class 1 type 1 1.0000000000000001e+300 inf\n"
        "scalars perf/less class 1 type 1 -1.0000000000000001e+300 -inf\n"
        "scalars actor/loss class 1 type 1 -inf -inf\n"
        "histograms response_length class 2 type 2 [2] [3] -1 0.5 4 0.5 3 2\n"
        "text samples/train/0 class 2 type 7 3 bytes\n");
    xr_str_free(&file);
}

static void settings_are_numbers_truths_and_texts(void **state)
{
    (void)state;
    xr_str file = { 0 };
    tb_event_settings(1, &setup, &file);
    expect_heard(&file,
                 "event 1 0 0\n"
                 "setting actor.optim.lr n 0.001\n"
                 "setting trainer.val_only b true\n"
                 "setting model.path s /m\n"
                 "setting data.note s 1e999\n"
                 "setting data.other s nan\n"
                 "setting data.shuffle b false\n"
                 "hparams _hparams_/session_start_info class 0 type 1\n");
    xr_str_free(&file);
}

/* Elements of a program with longer structs are read by their stride. */
static void longer_elements_are_read(void **state)
{
    (void)state;
    struct longer {
        xray_named_value value;
        uint64_t more;
    } longer[] = { { { "a", 1 }, 9 }, { { "b", 2 }, 9 } };
    xr_str file = { 0 };
    xray_track_step step = make_step(1);
    step.scalars = &longer[0].value;
    step.scalar_count = 2;
    step.scalar_stride = sizeof(longer[0]);
    step.histogram_count = step.text_count = 0;
    tb_event_step(&step, &file);
    expect_heard(&file, "event 1.7e+09 1 0\n"
                        "scalars a class 1 type 1 1 1\n"
                        "scalars b class 1 type 1 2 2\n");
    xr_str_free(&file);
}

/* ---- reading ------------------------------------------------------------- */

/* A file as a run writes it: version, settings, steps 0, 1, 2, 2^40; `ends`
 * gets the size after each record. */
static void fill_file(xr_str *file, size_t ends[6])
{
    static const uint64_t steps[] = { 0, 1, 2, (uint64_t)1 << 40 };
    tb_event_version(1, file);
    ends[0] = file->size;
    tb_event_settings(1, &setup, file);
    ends[1] = file->size;
    for (size_t i = 0; i < 4; i++) {
        const xray_track_step step = make_step(steps[i]);
        tb_event_step(&step, file);
        ends[i + 2] = file->size;
    }
    assert_false(file->failed);
}

static tb_kept measure(const xr_str *file, size_t size, uint64_t last)
{
    xr_err err = { "" };
    tb_kept kept;
    if (tb_measure("f", (const unsigned char *)file->data, size, last, &err,
                   &kept) != XRAY_OK)
        fail_msg("%s", err.text);
    return kept;
}

static void steps_up_to_the_last_are_kept(void **state)
{
    (void)state;
    xr_str file = { 0 };
    size_t ends[6];
    fill_file(&file, ends);
    assert_int_equal(measure(&file, file.size, 0).bytes, ends[2]);
    assert_int_equal(measure(&file, file.size, 1).bytes, ends[3]);
    assert_int_equal(measure(&file, file.size, 7).bytes, ends[4]);
    assert_int_equal(measure(&file, file.size, ((uint64_t)1 << 40) - 1).bytes,
                     ends[4]);
    tb_kept all = measure(&file, file.size, (uint64_t)1 << 40);
    assert_int_equal(all.bytes, ends[5]);
    assert_int_equal(all.summaries, 5);
    assert_int_equal(all.settings, 1);
    tb_kept first = measure(&file, ends[0], 9);
    assert_int_equal(first.summaries, 0);
    assert_int_equal(first.settings, 0);
    assert_int_equal(measure(&file, 0, 9).bytes, 0);
    xr_str_free(&file);
}

/* The event that drops later steps is of one of them. */
static void a_restart_counts_as_its_step(void **state)
{
    (void)state;
    xr_str file = { 0 };
    tb_event_version(1, &file);
    size_t begin = file.size;
    tb_event_restart(1, 5, &file);
    assert_int_equal(measure(&file, file.size, 4).bytes, begin);
    assert_int_equal(measure(&file, file.size, 5).bytes, file.size);
    assert_int_equal(measure(&file, file.size, 5).summaries, 0);
    xr_str_free(&file);
}

/* A kill leaves any beginning of the last record, and a loss of power zeros. */
static void a_torn_record_is_cut_off(void **state)
{
    (void)state;
    xr_str file = { 0 };
    size_t ends[6];
    fill_file(&file, ends);
    for (size_t size = ends[4]; size < ends[5]; size++)
        assert_int_equal(measure(&file, size, UINT64_MAX).bytes, ends[4]);
    for (size_t from = ends[4]; from < ends[5]; from++) {
        memset(file.data + from, 0, file.size - from);
        xr_err err = { "" };
        tb_kept kept = { .bytes = 0 };
        xray_status status = tb_measure("f", (const unsigned char *)file.data,
                                        file.size, UINT64_MAX, &err, &kept);
        /* Where the zeros begin within the data, its checksum tells. */
        if (from == ends[4])
            assert_int_equal(status, XRAY_OK);
        assert_int_equal(kept.bytes, ends[4]);
        xr_str_clear(&file);
        fill_file(&file, ends);
    }
    xr_str_free(&file);
}

static void each_flipped_bit_is_noticed(void **state)
{
    (void)state;
    xr_str file = { 0 };
    size_t ends[6];
    fill_file(&file, ends);
    for (size_t i = 0; i < file.size; i++) {
        xr_err err = { "" };
        tb_kept kept = { .bytes = 0 };
        file.data[i] = (char)(file.data[i] ^ (char)(1 << i % 8));
        xray_status status = tb_measure("f", (const unsigned char *)file.data,
                                        file.size, UINT64_MAX, &err, &kept);
        if (status != XRAY_E_IO || !strstr(err.text, "f: the record at byte "))
            fail_msg("byte %zu: %d %s", i, status, err.text);
        file.data[i] = (char)(file.data[i] ^ (char)(1 << i % 8));
        assert_true(kept.bytes <= i);
    }
    xr_str_free(&file);
}

static void a_record_that_is_no_event_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
    } cases[] = {
        { "\x08", 1 },                 /* no field */
        { "\x2a\x01\x0a", 3 },         /* a summary that is none */
        { "\x2a\x03\x0a\x01\x08", 5 }, /* a value that is none */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_str file = { 0 };
        xr_err err = { "" };
        tb_kept kept;
        tb_event_version(1, &file);
        size_t begun = tb_record_begin(&file);
        char want[80];
        (void)snprintf(want, sizeof(want),
                       "f: the record at byte %zu is no event", begun);
        xr_str_append(&file, cases[i].bytes, cases[i].size);
        tb_record_end(&file, begun);
        assert_int_equal(tb_measure("f", (const unsigned char *)file.data,
                                    file.size, 9, &err, &kept),
                         XRAY_E_IO);
        assert_string_equal(err.text, want);
        xr_str_free(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checksums_are_crc32c),
        cmocka_unit_test(fields_have_the_bytes_of_protobuf),
        cmocka_unit_test(messages_of_any_length_are_read_back),
        cmocka_unit_test(fields_of_every_type_are_read_in_turn),
        cmocka_unit_test(wrong_fields_are_refused),
        cmocka_unit_test(a_step_is_one_event_with_all_its_values),
        cmocka_unit_test(settings_are_numbers_truths_and_texts),
        cmocka_unit_test(longer_elements_are_read),
        cmocka_unit_test(steps_up_to_the_last_are_kept),
        cmocka_unit_test(a_restart_counts_as_its_step),
        cmocka_unit_test(a_torn_record_is_cut_off),
        cmocka_unit_test(each_flipped_bit_is_noticed),
        cmocka_unit_test(a_record_that_is_no_event_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
