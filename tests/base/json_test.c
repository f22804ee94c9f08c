/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that JSON is parsed strictly, that nesting is bounded, and that
 * members are read with their types.
 */
#include "core/base/json.h"
#include "tests/testing.h"

static const struct {
    const char *text;
    const char *fault; /* part of the message; NULL: valid */
} cases[] = {
    { " {\"a\": [1, -2.5e3, true, null, \"\\ud83d\\ude00\"]} ", NULL },
    { "0", NULL },
    { "", "column 1: the text ends" },
    { "{} x", "column 4: text after" },
    { "{\"a\": 1,\n \"b\": tru}", "line 2, column 7" },
    { "[1,]", "column 4: expected a JSON value" },
    { "{\"a\" 1}", "expected ':'" },
    { "{\"a\": 1 \"b\"}", "expected ',' or '}'" },
    { "[01]", "starts with 0" },
    { "[1.]", "needs a digit" },
    { "[NaN]", "expected a JSON value" },
    { "\"a\nb\"", "control character" },
    { "\"\\x\"", "unknown escape" },
    { "\"\\u0000\"", "\\u0000" },
    { "\"\\ud800\"", "lone surrogate" },
    { "\"\xFF\"", "not UTF-8" },
    { "\"abc", "ends inside a string" },
    { "[1", "expected ',' or ']'" },
};

static void grammar_is_strict(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_err err = { "" };
        cJSON *tree = NULL;
        xray_status status = xr_json_parse(cases[i].text, strlen(cases[i].text),
                                           "file", &err, &tree);
        assert_int_equal(status, cases[i].fault ? XRAY_E_CONFIG : XRAY_OK);
        if (cases[i].fault && !strstr(err.text, cases[i].fault))
            fail_msg("%s: %s", cases[i].text, err.text);
        cJSON_Delete(tree);
    }
    xr_err err = { "" };
    cJSON *tree;
    assert_int_equal(xr_json_parse("1\0", 2, "file", &err, &tree),
                     XRAY_E_CONFIG);
}

static void nesting_is_bounded(void **state)
{
    (void)state;
    char text[4000];
    memset(text, '[', sizeof text);
    xr_err err = { "" };
    cJSON *tree;
    assert_int_equal(xr_json_parse(text, sizeof text, "file", &err, &tree),
                     XRAY_E_CONFIG);
    assert_non_null(strstr(err.text, "nested too deeply"));
    memset(text, '[', 999);
    memset(text + 999, ']', 999);
    assert_int_equal(xr_json_parse(text, 1998, "file", &err, &tree), XRAY_OK);
    cJSON_Delete(tree);
}

static void members_are_read_by_type(void **state)
{
    (void)state;
    const char *const text =
        "{\"i\": 3, \"f\": 2.5, \"s\": \"x\", \"b\": true, "
        "\"n\": null, \"big\": 1e300, \"ids\": [0, 7], "
        "\"bad\": [1, 2147483648]}";
    xr_err err = { "" };
    cJSON *o;
    assert_int_equal(xr_json_parse(text, strlen(text), "w", &err, &o), XRAY_OK);
    int64_t i;
    double f;
    int b;
    const char *s;
    int32_t *ids;
    size_t count;
    assert_int_equal(xr_json_int(o, "i", "w", &err, &i), XRAY_OK);
    assert_int_equal(i, 3);
    assert_int_equal(xr_json_int(o, "n", "w", &err, &i), XRAY_E_CONFIG);
    assert_string_equal(err.text, "w: \"n\" is missing");
    assert_int_equal(xr_json_int(o, "f", "w", &err, &i), XRAY_E_CONFIG);
    assert_int_equal(xr_json_int(o, "big", "w", &err, &i), XRAY_E_CONFIG);
    assert_int_equal(xr_json_int(o, "s", "w", &err, &i), XRAY_E_CONFIG);
    assert_string_equal(err.text, "w: \"s\" must be an integer, not a string");
    assert_int_equal(xr_json_int_or(o, "n", 9, "w", &err, &i), XRAY_OK);
    assert_int_equal(i, 9);
    assert_int_equal(xr_json_real_or(o, "f", 0, "w", &err, &f), XRAY_OK);
    assert_true(f == 2.5);
    assert_int_equal(xr_json_bool_or(o, "b", 0, "w", &err, &b), XRAY_OK);
    assert_int_equal(b, 1);
    assert_int_equal(xr_json_bool_or(o, "i", 0, "w", &err, &b), XRAY_E_CONFIG);
    assert_int_equal(xr_json_string(o, "s", "w", &err, &s), XRAY_OK);
    assert_string_equal(s, "x");
    assert_null(xr_json_get(o, "S"));
    assert_int_equal(
        xr_json_ids(xr_json_get(o, "ids"), "w", &err, &ids, &count), XRAY_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ids[1], 7);
    free(ids);
    assert_int_equal(
        xr_json_ids(xr_json_get(o, "bad"), "w", &err, &ids, &count),
        XRAY_E_CONFIG);
    cJSON_Delete(o);
}

/* Numbers that their type cannot hold are refused, at both ends. */
static void members_are_within_the_bounds_of_their_type(void **state)
{
    (void)state;
    static const struct {
        const char *number;
        int is_int, is_real, is_id;
    } rows[] = {
        { "0", 1, 1, 1 },
        { "-0.0", 1, 1, 1 },
        { "-1", 1, 1, 0 },
        { "2147483647", 1, 1, 1 },
        { "2147483648", 1, 1, 0 },
        { "0.5", 0, 1, 0 },
        { "9007199254740991", 1, 1, 0 },
        { "-9007199254740991", 1, 1, 0 },
        { "9007199254740994", 0, 1, 0 },
        { "-9007199254740994", 0, 1, 0 },
        { "1.7976931348623157e308", 0, 1, 0 },
        { "-1.7976931348623157e308", 0, 1, 0 },
        { "1e309", 0, 0, 0 },
        { "-1e309", 0, 0, 0 },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[80];
        xr_err err = { "" };
        cJSON *o = NULL;
        int64_t number = 0;
        double real = 0;
        int32_t *ids = NULL;
        size_t count = 0;
        (void)snprintf(text, sizeof(text), "{\"x\": %s, \"l\": [0, %s]}",
                       rows[i].number, rows[i].number);
        assert_int_equal(xr_json_parse(text, strlen(text), "w", &err, &o),
                         XRAY_OK);
        int was_int = !xr_json_int(o, "x", "w", &err, &number);
        int was_real = !xr_json_real_or(o, "x", 0, "w", &err, &real);
        int was_id = !xr_json_ids(xr_json_get(o, "l"), "w", &err, &ids, &count);
        if (was_int != rows[i].is_int || was_real != rows[i].is_real ||
            was_id != rows[i].is_id)
            fail_msg("%s: %d %d %d", rows[i].number, was_int, was_real, was_id);
        if (was_id)
            free(ids);
        cJSON_Delete(o);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammar_is_strict),
        cmocka_unit_test(nesting_is_bounded),
        cmocka_unit_test(members_are_read_by_type),
        cmocka_unit_test(members_are_within_the_bounds_of_their_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
