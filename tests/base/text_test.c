/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves errors, growing strings, number parsing, UTF-8 and maps.
 */
#include <locale.h>
#include <math.h>

#include <xray/numerics.h>

#include "core/base/err.h"
#include "core/base/map.h"
#include "core/base/str.h"
#include "tests/scratch.h"

static void errors_are_single_lines(void **state)
{
    (void)state;
    xr_err err = { "" };
    assert_int_equal(xr_fail(&err, XRAY_E_IO, "no %s", "disk"), XRAY_E_IO);
    assert_string_equal(err.text, "no disk");
    assert_int_equal(xr_fail_in(&err, XRAY_E_IO, "step %d", 3), XRAY_E_IO);
    assert_string_equal(err.text, "step 3: no disk");
    for (int i = 0; i < 400; i++) /* cut, never overrun */
        (void)xr_fail_in(&err, XRAY_E_IO, "again");
    assert_int_equal(strlen(err.text), sizeof err.text - 1);
    assert_int_equal(xr_fail(NULL, XRAY_E_ARG, "x"), XRAY_E_ARG);
    assert_int_equal(xr_fail_in(NULL, XRAY_E_ARG, "x"), XRAY_E_ARG);
    /* A message is one line, whatever a name in it contains. */
    (void)xr_fail(&err, XRAY_E_IO, "a\nb\x1f\x7f c\xC3\xA9");
    assert_string_equal(err.text, "a b   c\xC3\xA9");
    (void)xr_fail_in(&err, XRAY_E_IO, "\tp\x7f");
    assert_string_equal(err.text, " p : a b   c\xC3\xA9");
    (void)xr_fail_key(&err, XRAY_E_IO, "s", "k", " = '%s'", "a\r\nb");
    assert_string_equal(err.text, "[s] k = 'a  b'");
}

static void json_strings_are_escaped(void **state)
{
    (void)state;
    xr_str s = { 0 };
    xr_str_json(&s, "a\"\\\n\x01\xFF\xC3\xA9", 8);
    assert_string_equal(xr_str_text(&s),
                        "\"a\\\"\\\\\\n\\u0001\xEF\xBF\xBD\xC3\xA9\"");
    xr_str_clear(&s);
    assert_string_equal(xr_str_text(&s), "");
    xr_str_free(&s);
}

static void numbers_read_back(void **state)
{
    (void)state;
    xr_str s = { 0 };
    for (uint32_t i = 0; i < 20000; i++) {
        xray_philox_out r = xray_philox(7, i, 0, 0, 0);
        uint64_t bits = (uint64_t)r.w[0] << 32 | r.w[1];
        double value;
        double again;
        memcpy(&value, &bits, sizeof value);
        xr_str_clear(&s);
        xr_str_number(&s, value);
        if (!isfinite(value)) {
            assert_string_equal(s.data, "null");
            continue;
        }
        assert_int_equal(xr_parse_real(s.data, &again), 0);
        assert_memory_equal(&value, &again, sizeof value);
        float f;
        memcpy(&f, &r.w[2], sizeof f);
        xr_str_clear(&s);
        xr_str_float(&s, f);
        if (isfinite(f))
            assert_true(strtof(s.data, NULL) == f);
    }
    xr_str_clear(&s);
    xr_str_float(&s, 0.1f);
    assert_string_equal(s.data, "0.1");
    xr_str_free(&s);
}

/* A locale with a decimal comma, as localedef compiles it for glibc, because a
 * bare system has none. */
static const char comma[] =
    "\x14\x11\x03\x20\x06\0\0\0\x20\0\0\0\x22\0\0\0\x24\0\0\0\x28\0\0\0"
    "\x2c\0\0\0\x30\0\0\0,\0.\0\3\3\0\0,\0\0\0.\0\0\0ANSI_X3.4-1968";

static void numbers_ignore_the_locale(void **state)
{
    (void)state;
    FILE *file = NULL;
    assert_int_equal(xr_dir_make(scratch_path("comma"), NULL), XRAY_OK);
    file = fopen(scratch_path("comma/LC_NUMERIC"), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(comma, 1, sizeof comma, file), sizeof comma);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(setenv("LOCPATH", scratch_dir(), 1), 0);
    assert_non_null(setlocale(LC_NUMERIC, "comma"));
    assert_string_equal(localeconv()->decimal_point, ",");
    xr_str s = { 0 };
    double value;
    xr_str_number(&s, 1.5);
    xr_str_printf(&s, " %.1f", 2.5);
    assert_int_equal(xr_parse_real("3.5", &value), 0);
    (void)setlocale(LC_NUMERIC, "C");
    assert_string_equal(s.data, "1.5 2.5");
    assert_true(value == 3.5);
    xr_str_free(&s);
}

static void integers_are_parsed(void **state)
{
    (void)state;
    int64_t v;
    assert_int_equal(xr_parse_int("-9223372036854775808", &v), 0);
    assert_true(v == INT64_MIN);
    assert_int_equal(xr_parse_int("9223372036854775807", &v), 0);
    assert_true(v == INT64_MAX);
    static const char *const bad[] = { "",
                                       "-",
                                       " 1",
                                       "1 ",
                                       "0x1",
                                       "1.0",
                                       "1e3",
                                       "9223372036854775808",
                                       "-9223372036854775809" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(xr_parse_int(bad[i], &v), -1);
}

static void sizes_and_durations_are_parsed(void **state)
{
    (void)state;
    double real;
    uint64_t bytes;
    int64_t ns;
    static const char *const bad[] = { "",   "nan", "inf", "1,5",  "0x10",
                                       "1e", ".",   "1 ",  "1e999" };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(xr_parse_real(bad[i], &real), -1);
    assert_int_equal(xr_parse_bytes("64M", &bytes), 0);
    assert_true(bytes == UINT64_C(64) << 20);
    assert_int_equal(xr_parse_bytes("1.5G", &bytes), 0);
    assert_true(bytes == UINT64_C(3) << 29);
    assert_int_equal(xr_parse_bytes("-1K", &bytes), -1);
    assert_int_equal(xr_parse_bytes("1X", &bytes), -1);
    assert_int_equal(xr_parse_bytes("0.3", &bytes), -1);
    assert_int_equal(xr_parse_duration("1.5s", NULL, &ns), 0);
    assert_true(ns == 1500000000);
    assert_int_equal(xr_parse_duration("2min", NULL, &ns), 0);
    assert_true(ns == INT64_C(120000000000));
    assert_int_equal(xr_parse_duration("0", NULL, &ns), 0);
    assert_int_equal(xr_parse_duration("5", NULL, &ns), -1);
    assert_int_equal(xr_parse_duration("9e99h", NULL, &ns), -1);
    assert_int_equal(xr_parse_duration("5", "s", &ns), 0);
    assert_int_equal(ns, 5000000000);
    assert_int_equal(xr_parse_duration("250ms", "s", &ns), 0);
    assert_int_equal(ns, 250000000);
    assert_int_equal(xr_parse_duration("5x", "s", &ns), -1);
}

static void edit_distances_are_counted(void **state)
{
    (void)state;
    assert_int_equal(xr_edit_distance("kitten", "sitting", 5), 3);
    assert_int_equal(xr_edit_distance("kitten", "sitting", 2), 3);
    assert_int_equal(xr_edit_distance("", "abc", 5), 3);
    assert_int_equal(xr_edit_distance("a", "abcdefgh", 2), 3);
}

static void utf8_is_decoded_and_encoded(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10FFFF; code++) {
        char text[4];
        uint32_t again;
        if (code >= 0xD800 && code <= 0xDFFF)
            continue;
        int n = xr_utf8_encode(code, text);
        assert_int_equal(xr_utf8_decode(text, text + n, &again), n);
        assert_int_equal(again, code);
        assert_int_equal(xr_utf8_decode(text, text + n - 1, &again), 0);
    }
    static const char *const bad[] = {
        "\x80",         "\xC0\x80",         "\xE0\x80\x80",
        "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF"
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint32_t code;
        assert_int_equal(xr_utf8_decode(bad[i], bad[i] + strlen(bad[i]), &code),
                         0);
    }
}

static void maps_keep_their_values(void **state)
{
    (void)state;
    xr_map *map = xr_map_new(0);
    uint64_t v;
    for (uint64_t i = 0; i < 20000; i++)
        assert_int_equal(xr_map_put(map, &i, i % 9, i % 9 ? i : 5), 0);
    assert_int_equal(xr_map_put(map, "key", 3, 1), 0);
    assert_int_equal(xr_map_put(map, "key", 3, 2), 0);
    assert_int_equal(xr_map_get(map, "key", 3, &v), 1);
    assert_int_equal(v, 2);
    assert_int_equal(xr_map_get(map, "", 0, &v), 1);
    assert_int_equal(v, 5);
    assert_int_equal(xr_map_get(map, "other", 5, &v), 0);
    size_t before = xr_map_count(map);
    for (uint64_t i = 19991; i < 20000; i++)
        if (i % 9 == 8)
            assert_int_equal(xr_map_get(map, &i, 8, &v) && v == i, 1);
    assert_int_equal(xr_map_count(map), before);
    xr_map_free(map);
    assert_true(xr_hash("a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_are_single_lines),
        cmocka_unit_test(json_strings_are_escaped),
        cmocka_unit_test(numbers_read_back),
        cmocka_unit_test(numbers_ignore_the_locale),
        cmocka_unit_test(integers_are_parsed),
        cmocka_unit_test(sizes_and_durations_are_parsed),
        cmocka_unit_test(edit_distances_are_counted),
        cmocka_unit_test(utf8_is_decoded_and_encoded),
        cmocka_unit_test(maps_keep_their_values),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
