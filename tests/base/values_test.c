/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves numbers, units, escapes, distances and maps at their bounds, one row
 * per case.
 */
#include <float.h>
#include <math.h>

#include <xray/numerics.h>

#include "core/base/map.h"
#include "core/base/str.h"
#include "tests/testing.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void integers_end_at_their_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } rows[] = { { "0", 0 },
                 { "-0", 0 },
                 { "+7", 7 },
                 { "007", 7 },
                 { "-19", -19 },
                 { "90", 90 },
                 { "1099511627776", INT64_C(1) << 40 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t v = 5;
        assert_int_equal(xr_parse_int(rows[i].text, &v), 0);
        assert_true(v == rows[i].value);
    }
    static const char *const bad[] = { "+",  "+-1", "1:",
                                       "1/", "a",   "92233720368547758070" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t v = 5;
        assert_int_equal(xr_parse_int(bad[i], &v), -1);
        assert_true(v == 5);
    }
}

static void real_numbers_end_at_their_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } rows[] = { { "1.", 1 },      { ".5", 0.5 },    { "+2", 2 },
                 { "-1e2", -100 }, { "1E-2", 0.01 }, { "1e+2", 100 },
                 { "0e0", 0 },     { "1e-999", 0 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        double v = 5;
        assert_int_equal(xr_parse_real(rows[i].text, &v), 0);
        assert_true(v == rows[i].value);
    }
    static const char *const bad[] = { "-",        "+.",    "e5",    "1e+",
                                       "1ee5",     "1.2.3", "0x1p3", "-1e999",
                                       "infinity", " 1" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        double v = 5;
        assert_int_equal(xr_parse_real(bad[i], &v), -1);
        assert_true(v == 5);
    }
}

static void sizes_end_at_their_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } rows[] = { { "0", 0 },
                 { "17", 17 },
                 { "1K", 1024 },
                 { "3M", 3u << 20 },
                 { "2G", UINT64_C(2) << 30 },
                 { "5T", UINT64_C(5) << 40 },
                 { "0.5K", 512 },
                 { "+4", 4 },
                 { "1e3", 1000 },
                 { "8388607T", UINT64_C(8388607) << 40 } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint64_t v = 5;
        assert_int_equal(xr_parse_bytes(rows[i].text, &v), 0);
        assert_true(v == rows[i].value);
    }
    static const char *const bad[] = { "",         "K",       "1k", "1KB",
                                       "1 K",      "0.0001K", "-0", "1KK",
                                       "8388608T", "1P" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        uint64_t v = 5;
        assert_int_equal(xr_parse_bytes(bad[i], &v), -1);
        assert_true(v == 5);
    }
}

static void durations_end_at_their_bounds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *bare;
        int64_t ns;
    } rows[] = { { "3ns", NULL, 3 },
                 { "3us", NULL, 3000 },
                 { "3ms", NULL, 3000000 },
                 { "3s", NULL, INT64_C(3000000000) },
                 { "3min", NULL, INT64_C(180000000000) },
                 { "3h", NULL, INT64_C(10800000000000) },
                 { "0.5ns", NULL, 1 },
                 { "0.4ns", NULL, 0 },
                 { "0.0", NULL, 0 },
                 { "0", "h", 0 },
                 { "2", "min", INT64_C(120000000000) },
                 { "2", "ms", 2000000 },
                 { "2s", "min", 2000000000 },
                 { "1e3us", NULL, 1000000 },
                 { "9223372036s", NULL, INT64_C(9223372036000000000) } };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t v = 5;
        assert_int_equal(xr_parse_duration(rows[i].text, rows[i].bare, &v), 0);
        assert_true(v == rows[i].ns);
    }
    static const char *const bad[] = { "",    "s",    "-1s",        "-0",
                                       "1 s", "1S",   "1m",         "1",
                                       "0x",  "1sec", "9223372037s" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        int64_t v = 5;
        assert_int_equal(xr_parse_duration(bad[i], NULL, &v), -1);
        assert_true(v == 5);
    }
}

static void hexadecimal_needs_sixteen_digits(void **state)
{
    (void)state;
    uint64_t v = 0;
    assert_int_equal(xr_parse_hex64("0123456789abcdef", &v), 0);
    assert_true(v == UINT64_C(0x0123456789abcdef));
    assert_int_equal(xr_parse_hex64("fedcba9876543210", &v), 0);
    assert_true(v == UINT64_C(0xfedcba9876543210));
    static const char *const bad[] = { "",
                                       "123456789abcdef",
                                       "00123456789abcdef",
                                       "0123456789ABCDEF",
                                       "0123456789abcdeg",
                                       " 123456789abcdef" };
    for (size_t i = 0; i < COUNT(bad); i++)
        assert_int_equal(xr_parse_hex64(bad[i], &v), -1);
}

/* As short as it reads back. */
static void numbers_are_printed_shortest(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } rows[] = { { 0, "0" },
                 { -0.0, "-0" },
                 { 0.1, "0.1" },
                 { 1.0 / 3, "0.3333333333333333" },
                 { 2.0 / 3, "0.6666666666666666" },
                 { 0.1 + 0.2, "0.30000000000000004" },
                 { 1e15, "1e+15" },
                 { 123456789012345, "123456789012345" },
                 { 5e-324, "4.94065645841247e-324" },
                 { DBL_MAX, "1.7976931348623157e+308" },
                 { (double)INFINITY, "null" },
                 { -(double)INFINITY, "null" },
                 { (double)NAN, "null" } };
    static const struct {
        float value;
        const char *text;
    } floats[] = { { 0.1f, "0.1" },          { 1.0f / 3, "0.33333334" },
                   { 16777216, "16777216" }, { 123456, "123456" },
                   { 0.3f, "0.3" },          { FLT_MAX, "3.4028235e+38" },
                   { INFINITY, "null" },     { NAN, "null" } };
    xr_str s = { 0 };
    for (size_t i = 0; i < COUNT(rows); i++) {
        xr_str_clear(&s);
        xr_str_number(&s, rows[i].value);
        assert_string_equal(xr_str_text(&s), rows[i].text);
    }
    for (size_t i = 0; i < COUNT(floats); i++) {
        xr_str_clear(&s);
        xr_str_float(&s, floats[i].value);
        assert_string_equal(xr_str_text(&s), floats[i].text);
    }
    xr_str_free(&s);
}

/* ---- strings ------------------------------------------------------------ */

static void strings_grow(void **state)
{
    (void)state;
    xr_str s = { 0 };
    char want[300];
    assert_string_equal(xr_str_text(&s), "");
    xr_str_append(&s, NULL, 0);
    assert_string_equal(xr_str_text(&s), "");
    for (size_t i = 0; i < sizeof(want) - 1; i++) {
        want[i] = (char)('a' + i % 26);
        want[i + 1] = '\0';
        xr_str_append(&s, &want[i], 1);
        assert_int_equal(s.size, i + 1);
        assert_true(s.cap > s.size);
        assert_string_equal(s.data, want);
    }
    xr_str_clear(&s);
    assert_int_equal(s.size, 0);
    for (size_t i = 0; i < 70; i++) {
        xr_str t = { 0 };
        xr_str_printf(&t, "%.*s", (int)i, want);
        xr_str_printf(&t, "%s", "!");
        assert_int_equal(t.size, i + 1);
        assert_memory_equal(t.data, want, i);
        assert_string_equal(t.data + i, "!");
        xr_str_free(&t);
        assert_null(t.data);
    }
    /* An allocation that fails is recorded, and later appends do nothing until
     * the string is cleared. */
    xr_str_append(&s, want, SIZE_MAX / 2);
    assert_int_equal(s.failed, 1);
    xr_str_puts(&s, "lost");
    assert_string_equal(xr_str_text(&s), "");
    xr_str_clear(&s);
    xr_str_puts(&s, "kept");
    assert_string_equal(xr_str_text(&s), "kept");
    xr_str_free(&s);
}

static void strings_are_escaped_in_json(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *json;
    } rows[] = {
        { "", "\"\"" },
        { "\"\\/\n\r\t\b\f", "\"\\\"\\\\/\\n\\r\\t\\b\\f\"" },
        { "\x01\x1f \x7e\x7f", "\"\\u0001\\u001f ~\\u007f\"" },
        { "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80",
          "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"" },
        { "\xE2\x82x\xFF\xFE", "\"\xEF\xBF\xBD\xEF\xBF\xBDx\xEF\xBF\xBD\xEF"
                               "\xBF\xBD\"" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        xr_str s = { 0 };
        xr_str_json(&s, rows[i].text, strlen(rows[i].text));
        assert_string_equal(s.data, rows[i].json);
        xr_str_free(&s);
    }
    xr_str s = { 0 };
    xr_str_json(&s, "a\0b", 3);
    assert_string_equal(s.data, "\"a\\u0000b\"");
    xr_str_free(&s);
}

static void copies_and_arrays_check_their_size(void **state)
{
    (void)state;
    char *copy = xr_strndup("abcdef", 3);
    assert_string_equal(copy, "abc");
    free(copy);
    copy = xr_strndup(NULL, 0);
    assert_string_equal(copy, "");
    free(copy);
    assert_null(xr_strndup("x", SIZE_MAX));
    char *zeros = xr_calloc(3, 5);
    assert_non_null(zeros);
    for (int i = 0; i < 15; i++)
        assert_int_equal(zeros[i], 0);
    free(zeros);
    /* NULL always means "out of memory". */
    zeros = xr_calloc(0, 8);
    assert_non_null(zeros);
    free(zeros);
    assert_null(xr_calloc(SIZE_MAX / 4, 8));
    assert_null(xr_calloc(SIZE_MAX / 8 + 1, 8));
}

static void distances_are_capped(void **state)
{
    (void)state;
    static const struct {
        const char *a;
        const char *b;
        unsigned limit;
        unsigned want;
    } rows[] = {
        { "", "", 0, 0 },
        { "a", "a", 0, 0 },
        { "a", "b", 0, 1 },
        { "a", "b", 1, 1 },
        { "ab", "ba", 5, 2 },
        { "abc", "abxc", 5, 1 },
        { "abxc", "abc", 5, 1 },
        { "abc", "xbc", 5, 1 },
        { "abc", "abx", 5, 1 },
        { "flaw", "lawn", 5, 2 },
        { "abcd", "", 4, 4 },
        { "abcd", "", 3, 4 },
        { "saturday", "sunday", 5, 3 },
        { "saturday", "sunday", 2, 3 },
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(xr_edit_distance(rows[i].a, rows[i].b, rows[i].limit),
                         rows[i].want);
    char a[260];
    char b[260];
    memset(a, 'a', sizeof(a));
    memset(b, 'a', sizeof(b));
    a[255] = b[255] = '\0';
    b[254] = 'b';
    assert_int_equal(xr_edit_distance(a, b, 3), 1);
    a[255] = b[255] = 'a';
    a[256] = b[256] = '\0';
    assert_int_equal(xr_edit_distance(a, b, 3), 4);
    assert_int_equal(xr_edit_distance(a, a, 3), 0);
}

static void malformed_utf8_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int length;
        uint32_t code;
    } rows[] = {
        { "\x7f", 1, 0x7f },
        { "\xC1\xBF", 0, 0 },
        { "\xC2\x80", 2, 0x80 },
        { "\xDF\xBF", 2, 0x7ff },
        { "\xDF\x7F", 0, 0 },
        { "\xDF\xC0", 0, 0 },
        { "\xE0\x9F\xBF", 0, 0 },
        { "\xE0\xA0\x80", 3, 0x800 },
        { "\xED\x9F\xBF", 3, 0xd7ff },
        { "\xED\xA0\x80", 0, 0 },
        { "\xED\xBF\xBF", 0, 0 },
        { "\xEE\x80\x80", 3, 0xe000 },
        { "\xEF\xBF\xBF", 3, 0xffff },
        { "\xEF\xBF", 0, 0 },
        { "\xF0\x8F\xBF\xBF", 0, 0 },
        { "\xF0\x90\x80\x80", 4, 0x10000 },
        { "\xF4\x8F\xBF\xBF", 4, 0x10ffff },
        { "\xF4\x90\x80\x80", 0, 0 },
        { "\xF5\x80\x80\x80", 0, 0 },
        { "\xF0\x90\x80", 0, 0 },
        { "\xBF", 0, 0 },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        uint32_t code = 0;
        const char *s = rows[i].bytes;
        assert_int_equal(xr_utf8_decode(s, s + strlen(s), &code),
                         rows[i].length);
        assert_int_equal(code, rows[i].code);
    }
    uint32_t code = 0;
    assert_int_equal(xr_utf8_decode("a", "a", &code), 0);
}

/* ---- maps and random numbers --------------------------------------------- */

static void maps_keep_all_keys(void **state)
{
    (void)state;
    enum { KEYS = 5000 };
    xr_map *map = xr_map_new(100);
    uint64_t v = 0;
    char key[16];
    assert_int_equal(xr_map_get(map, "k0", 2, &v), 0);
    for (uint64_t i = 0; i < KEYS; i++) {
        int n = snprintf(key, sizeof(key), "k%u", (unsigned)i);
        assert_int_equal(xr_map_put(map, key, (size_t)n, i), 0);
        assert_int_equal(xr_map_count(map), i + 1);
    }
    for (uint64_t i = 0; i < KEYS; i += 2) {
        int n = snprintf(key, sizeof(key), "k%u", (unsigned)i);
        assert_int_equal(xr_map_put(map, key, (size_t)n, i * 10), 0);
    }
    assert_int_equal(xr_map_count(map), KEYS);
    for (uint64_t i = 0; i < KEYS; i++) {
        int n = snprintf(key, sizeof(key), "k%u", (unsigned)i);
        assert_int_equal(xr_map_get(map, key, (size_t)n, &v), 1);
        assert_int_equal(v, i % 2 ? i : i * 10);
        assert_int_equal(xr_map_get(map, key, (size_t)n + 1, &v), 0);
    }
    /* Keys are bytes: a NUL counts, and a shorter key is another key. */
    assert_int_equal(xr_map_put(map, "a\0b", 3, 1), 0);
    assert_int_equal(xr_map_put(map, "a\0c", 3, 2), 0);
    assert_int_equal(xr_map_put(map, "a", 1, 3), 0);
    assert_int_equal(xr_map_get(map, "a\0b", 3, &v), 1);
    assert_int_equal(v, 1);
    assert_int_equal(xr_map_get(map, "a\0c", 3, &v), 1);
    assert_int_equal(v, 2);
    assert_int_equal(xr_map_get(map, "a", 1, &v), 1);
    assert_int_equal(v, 3);
    assert_int_equal(xr_map_get(map, "a\0", 2, &v), 0);
    xr_map_free(map);
    xr_map_free(NULL);
    assert_null(xr_map_new(SIZE_MAX / 2));
    assert_true(xr_hash("", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(xr_hash("foobar", 6) == UINT64_C(0x85944171f73967e8));
}

/* Known answers of the Random123 distribution. */
static void draws_are_philox(void **state)
{
    (void)state;
    static const struct {
        uint64_t key;
        uint32_t c[4];
        uint32_t want[4];
    } rows[] = {
        { 0,
          { 0, 0, 0, 0 },
          { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { UINT64_MAX,
          { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX },
          { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { UINT64_C(0x299f31d0a4093822),
          { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        xray_philox_out out =
            xray_philox(rows[i].key, rows[i].c[0], rows[i].c[1], rows[i].c[2],
                        rows[i].c[3]);
        assert_memory_equal(out.w, rows[i].want, sizeof(out.w));
    }
    assert_true(xray_unit(0) == 0x1p-24f);
    assert_true(xray_unit(UINT32_MAX) == 1 - 0x1p-24f);
    assert_true(xray_unit(511) == 0x1p-24f);
    assert_true(xray_unit(512) == 0x3p-24f);
    /* The first number of Splitmix64; no two words of a key may be
     * interchangeable. */
    assert_true(xray_mix64(0, 0) == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(xray_philox_key(1, 2, 3) != xray_philox_key(1, 3, 2));
    assert_true(xray_philox_key(1, 2, 3) != xray_philox_key(2, 1, 3));
    assert_true(xray_philox_key(1, 2, 3) ==
                xray_mix64(xray_mix64(xray_mix64(0, 1), 2), 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_end_at_their_bounds),
        cmocka_unit_test(real_numbers_end_at_their_bounds),
        cmocka_unit_test(sizes_end_at_their_bounds),
        cmocka_unit_test(durations_end_at_their_bounds),
        cmocka_unit_test(hexadecimal_needs_sixteen_digits),
        cmocka_unit_test(numbers_are_printed_shortest),
        cmocka_unit_test(strings_grow),
        cmocka_unit_test(strings_are_escaped_in_json),
        cmocka_unit_test(copies_and_arrays_check_their_size),
        cmocka_unit_test(distances_are_capped),
        cmocka_unit_test(malformed_utf8_is_refused),
        cmocka_unit_test(maps_keep_all_keys),
        cmocka_unit_test(draws_are_philox),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
