/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the parts of rows: members as text, template strings, dates,
 * conditions, messages, and the memory that holds them.
 */
#include <math.h>

#include "core/data/arena.h"
#include "core/data/data.h"
#include "core/data/filter.h"
#include "core/data/template.h"
#include "core/data/text_file.h"
#include "tests/scratch.h"

static cJSON *parse(const char *text)
{
    cJSON *json = NULL;
    xr_err err = { "" };
    if (xr_json_parse(text, strlen(text), "t", &err, &json) != XRAY_OK)
        fail_msg("%s", err.text);
    return json;
}

/* ---- memory ------------------------------------------------------------- */

static void arena_blocks_never_move(void **state)
{
    (void)state;
    enum { PIECES = 40 };
    static const size_t sizes[] = { 1, 7, 16, 17, 100000, 262144, 262145, 0 };
    xr_arena a = { NULL };
    unsigned char *pieces[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        size_t size = sizes[i % 8];
        pieces[i] = xr_arena_take(&a, size);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)i, size);
    }
    for (size_t i = 0; i < PIECES; i++)
        for (size_t k = 0; k < sizes[i % 8]; k++)
            if (pieces[i][k] != i)
                fail_msg("byte %zu of piece %zu was overwritten", k, i);
    assert_string_equal(xr_arena_text(&a, "abcdef", 3), "abc");
    assert_string_equal(xr_arena_text(&a, NULL, 0), "");
    assert_null(xr_arena_take(&a, SIZE_MAX / 2 + 1));
    assert_null(xr_arena_take(&a, SIZE_MAX));
    xr_arena_free(&a);
    assert_null(a.first);
}

/* ---- members as text ---------------------------------------------------- */

typedef xray_status (*textual)(const cJSON *, const char *, const char *,
                               xr_err *, xr_str *);

static const struct text_case {
    const char *json;
    const char *value; /* NULL: refused */
    const char *truth;
    const char *why; /* of the first NULL */
} texts[] = {
    { "\"\"", "", "", NULL },
    { "\" a\\n\"", " a\n", " a\n", NULL },
    { "true", "true", "true", NULL },
    { "false", "false", "false", NULL },
    { "12", "12", "12", NULL },
    { "-0.5", "-0.5", "-0.5", NULL },
    { "3.14159265", "3.14159265", "3.14159265", NULL },
    { "1e15", "1000000000000000", "1000000000000000", NULL },
    { "9007199254740991", "9007199254740991", "9007199254740991", NULL },
    { "-9007199254740991", "-9007199254740991", "-9007199254740991", NULL },
    { "9007199254740992", NULL, NULL,
      "r:7: 'k' is a number of more than 53 bits; write it as a string" },
    { "-9007199254740992", NULL, NULL,
      "r:7: 'k' is a number of more than 53 bits; write it as a string" },
    { "1e300", NULL, NULL,
      "r:7: 'k' is a number of more than 53 bits; write it as a string" },
    { "[{\"content\":\"a\"},{\"content\":\"\"},{\"content\":\"b\"}]", "a\n\nb",
      "a\n\nb", NULL },
    { "[]", NULL, NULL, "r:7: 'k' is an empty list" },
    { "{}", NULL, NULL,
      "r:7: 'k' is an object; expected text, a number or a list of messages" },
    { "{\"a\":1}", NULL, "{\"a\":1}",
      "r:7: 'k' is an object; expected text, a number or a list of messages" },
    { "{\"a\":{\"content\":\"b\"}}", NULL, "{\"a\":{\"content\":\"b\"}}",
      "r:7: 'k' is an object; expected text, a number or a list of messages" },
    { "[1,\"b\"]", NULL, "[1,\"b\"]",
      "r:7: 'k' is a list, but an entry has no text in 'content'" },
    { "[{\"role\":\"user\"}]", NULL, "[{\"role\":\"user\"}]",
      "r:7: 'k' is a list, but an entry has no text in 'content'" },
    { "[{\"content\":\"a\"},{\"content\":2}]", NULL, NULL,
      "r:7: 'k' is a list, but an entry has no text in 'content'" },
    { "[{\"content\":\"a\"},\"b\"]", NULL, NULL,
      "r:7: 'k' is a list, but an entry has no text in 'content'" },
};

static void expect_text(textual call, const char *json, const char *want,
                        const char *why)
{
    cJSON *value = parse(json);
    xr_str text = { 0 };
    xr_err err = { "" };
    xr_str_puts(&text, "<");
    xray_status status = call(value, "k", "r:7", &err, &text);
    if (want) {
        assert_int_equal(status, XRAY_OK);
        assert_int_equal(xr_str_text(&text)[0], '<');
        assert_string_equal(xr_str_text(&text) + 1, want);
    } else {
        assert_int_equal(status, XRAY_E_CONFIG);
        assert_string_equal(err.text, why);
    }
    xr_str_free(&text);
    cJSON_Delete(value);
}

static void members_become_text(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_str text = { 0 };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        const struct text_case *c = &texts[i];
        expect_text(xr_value_text, c->json, c->value, c->why);
        expect_text(xr_truth_text, c->json, c->truth, c->why);
    }
    assert_int_equal(xr_value_text(NULL, "k", "r:7", &err, &text),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "r:7: no key 'k'");
    assert_int_equal(xr_truth_text(NULL, "k", "r:8", &err, &text),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "r:8: no key 'k'");
    xr_str_free(&text);
}

/* ---- templates ---------------------------------------------------------- */

static void templates_are_filled(void **state)
{
    (void)state;
    static const struct {
        const char *template;
        const char *filled; /* NULL: refused */
        const char *why;
    } cases[] = {
        { "", "", NULL },
        { "plain", "plain", NULL },
        { "{q}", "Q", NULL },
        { "{prompt}|{question}|{q}", "asked|asked|Q", NULL },
        { "{q}{q}x", "QQx", NULL },
        { "{{q}}", "{q}", NULL },
        { "{{{q}}}", "{Q}", NULL },
        { "{{}}{{", "{}{", NULL },
        { "a}}b{n}", "a}b1.5", NULL },
        { "{two words}", "2", NULL },
        { "{gone}", NULL, "r:7: no key 'gone'" },
        { "{q", NULL,
          "[data] template: '{' is not followed by a key and '}' (a literal "
          "brace is written '{{')" },
        { "x{", NULL,
          "[data] template: '{' is not followed by a key and '}' (a literal "
          "brace is written '{{')" },
        { "{}", NULL,
          "[data] template: '{' is not followed by a key and '}' (a literal "
          "brace is written '{{')" },
        { "{a{q}}", NULL,
          "[data] template: '{' is not followed by a key and '}' (a literal "
          "brace is written '{{')" },
        { "{q}}x", NULL,
          "[data] template: '}' without '{' (a literal brace is written "
          "'}}')" },
        { "}", NULL,
          "[data] template: '}' without '{' (a literal brace is written "
          "'}}')" },
    };
    cJSON *row = parse("{\"prompt\":\"not this\",\"question\":\"asked\","
                       "\"q\":\"Q\",\"n\":1.5,\"two words\":2}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_template t;
        xr_err err = { "" };
        xr_str out = { 0 };
        xray_status status =
            xr_template_parse(cases[i].template, "template", &err, &t);
        if (status == XRAY_OK)
            status = xr_template_fill(&t, (xr_alias){ "prompt", "question" },
                                      row, "r:7", &err, &out);
        assert_int_equal(status, cases[i].filled ? XRAY_OK : XRAY_E_CONFIG);
        if (cases[i].filled)
            assert_string_equal(xr_str_text(&out), cases[i].filled);
        else
            assert_string_equal(err.text, cases[i].why);
        xr_template_free(&t);
        assert_int_equal(t.count, 0);
        xr_str_free(&out);
    }
    cJSON_Delete(row);
}

/* ---- dates and variables ------------------------------------------------ */

static void dates_become_seconds(void **state)
{
    (void)state;
    static const struct {
        const char *date;
        int64_t day; /* since 1970-01-01 */
    } good[] = {
        { "1970-01-01", 0 },       { "1970-12-31", 364 },
        { "2024-07-26", 19930 },   { "2024-02-29", 19782 },
        { "2024-03-01", 19783 },   { "2000-02-29", 11016 },
        { "1900-03-01", -25508 },  { "2100-03-01", 47541 },
        { "0001-01-01", -719162 }, { "9999-12-31", 2932896 },
        { "1969-12-31", -1 },
    };
    static const char *const bad[] = {
        "",
        "today",
        "2024-7-26",
        "2024-07-2",
        "2024-07-026",
        "2024/07/26",
        "2024-07/26",
        "0000-01-01",
        "2024-00-01",
        "2024-13-01",
        "2024-01-00",
        "2024-01-32",
        "20x4-01-01",
        "2024-0x-01",
        "2024-01-0:",
        "2024-01-01 ",
        "2023-02-29",
        "2024-02-30",
        "2100-02-29",
        "2024-04-31",
        "2024-11-31",
        "2024-12-32",
        "-024-01-01",
    };
    xr_err err = { "" };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t now = 1;
        assert_int_equal(xr_data_now(good[i].date, &err, &now), XRAY_OK);
        assert_true(now == good[i].day * 86400);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t now = 1;
        char why[128];
        (void)snprintf(
            why, sizeof why,
            "[data] chat_date: '%s' is not a date; expected YYYY-MM-DD",
            bad[i]);
        assert_int_equal(xr_data_now(bad[i], &err, &now), XRAY_E_CONFIG);
        assert_string_equal(err.text, why);
        assert_true(now == 1);
    }
}

static void template_variables_are_parsed(void **state)
{
    (void)state;
    cJSON *out = NULL;
    xr_err err = { "" };
    assert_int_equal(xr_data_kwargs("", &err, &out), XRAY_OK);
    assert_null(out);
    assert_int_equal(xr_data_kwargs("{\"a\":[1]}", &err, &out), XRAY_OK);
    assert_non_null(xr_json_get(out, "a"));
    cJSON_Delete(out);
    out = NULL;
    assert_int_equal(xr_data_kwargs("3", &err, &out), XRAY_E_CONFIG);
    assert_string_equal(err.text,
                        "[data] chat_template_kwargs must be a JSON object");
    cJSON_Delete(out);
    out = NULL;
    assert_true(xr_data_kwargs("{a", &err, &out) < 0);
    assert_int_equal(strncmp(err.text, "[data] chat_template_kwargs", 27), 0);
    assert_null(out);
}

/* ---- messages ----------------------------------------------------------- */

static void system_prompts_are_added_once(void **state)
{
    (void)state;
    static const struct {
        const char *system;
        const char *messages;
        const char *want;
    } cases[] = {
        { "", "[]", "[]" },
        { "", "[{\"role\":\"user\"}]", "[{\"role\":\"user\"}]" },
        { "S", "[]", "[{\"role\":\"system\",\"content\":\"S\"}]" },
        { "S", "[{\"role\":\"user\",\"content\":\"u\"},{\"role\":\"x\"}]",
          "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
          "\"content\":\"u\"},{\"role\":\"x\"}]" },
        { "S", "[{\"role\":\"system\",\"content\":\"own\"}]",
          "[{\"role\":\"system\",\"content\":\"own\"}]" },
        { "S", "[{\"role\":\"developer\",\"content\":\"own\"}]",
          "[{\"role\":\"developer\",\"content\":\"own\"}]" },
        { "S", "[{\"role\":\"user\"},{\"role\":\"system\"}]",
          "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\"},"
          "{\"role\":\"system\"}]" },
        { "S", "[{\"role\":1}]",
          "[{\"role\":\"system\",\"content\":\"S\"},{\"role\":1}]" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cJSON *given = parse(cases[i].messages);
        cJSON *list = xr_data_messages(cases[i].system, given);
        assert_non_null(list);
        char *text = cJSON_PrintUnformatted(list);
        assert_string_equal(text, cases[i].want);
        cJSON_free(text);
        cJSON_Delete(list);
        text = cJSON_PrintUnformatted(given); /* only borrowed */
        assert_string_equal(text, cases[i].messages);
        cJSON_free(text);
        cJSON_Delete(given);
    }
}

/* ---- conditions --------------------------------------------------------- */

/* Returns 1 or 0, or -1 with an error in *err. */
static int apply_conditions(const char *const *conditions, size_t count,
                            const char *row, xr_err *err)
{
    xray_list list = { conditions, count };
    xr_filter *filter = NULL;
    int keep = -1;
    *err = (xr_err){ "" };
    if (xr_filter_parse(&list, err, &filter) != XRAY_OK) {
        assert_null(filter);
        return -1;
    }
    cJSON *json = parse(row);
    xray_status status = xr_filter_row(filter, json, "r:7", err, &keep);
    cJSON_Delete(json);
    xr_filter_free(filter);
    return status == XRAY_OK ? keep : -1;
}

static void operators_compare_values(void **state)
{
    (void)state;
    /* Results of comparing 1, 2, 3 and a missing key with 2. */
    static const struct {
        const char *condition;
        int keeps[4];
    } numbers[] = {
        { "n = 2", { 0, 1, 0, 0 } },    { "n == 2", { 0, 1, 0, 0 } },
        { "n != 2", { 1, 0, 1, 1 } },   { "n < 2", { 1, 0, 0, 0 } },
        { "n <= 2", { 1, 1, 0, 0 } },   { "n > 2", { 0, 0, 1, 0 } },
        { "n >= 2", { 0, 1, 1, 0 } },   { "n ~ 2", { 0, 1, 0, 0 } },
        { "n<2", { 1, 0, 0, 0 } },      { "\tn\t>=\t2.0\t", { 0, 1, 1, 0 } },
        { "n < -2e0", { 0, 0, 0, 0 } },
    };
    static const char *const rows[][2] = {
        { "{\"n\":1}", "{\"n\":\"1\"}" },
        { "{\"n\":2}", "{\"n\":\"2\"}" },
        { "{\"n\":3}", "{\"n\":\"3\"}" },
        { "{}", "{\"n\":null}" },
    };
    xr_err err;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        for (size_t r = 0; r < 4; r++)
            for (size_t way = 0; way < 2; way++)
                if (apply_conditions(&numbers[i].condition, 1, rows[r][way],
                                     &err) != numbers[i].keeps[r])
                    fail_msg("%s of %s: %s", numbers[i].condition, rows[r][way],
                             err.text);
}

static void texts_and_nested_keys_compare(void **state)
{
    (void)state;
    static const struct {
        const char *condition;
        const char *row;
        int keep;
    } cases[] = {
        { "a = ", "{\"a\":\"\"}", 1 },
        { "a = ", "{\"a\":\"x\"}", 0 },
        { "a = b = c", "{\"a\":\"b = c\"}", 1 },
        { "a ~ b", "{\"a\":\"abc\"}", 1 },
        { "a ~ 1", "{\"a\":3.14}", 1 },
        { "a ~ 2", "{\"a\":3.14}", 0 },
        { "a ~ ", "{\"a\":\"\"}", 1 },
        { "a ~ x", "{}", 0 },
        { "a = \"\"", "{\"a\":\"\"}", 1 },
        { "a = \"", "{\"a\":\"\\\"\"}", 1 },
        { "a = \" x \"", "{\"a\":\" x \"}", 1 },
        { "a = \"2\"", "{\"a\":2}", 1 },
        { "a != \"2\"", "{\"a\":2.0}", 0 },
        { "a = two", "{\"a\":2}", 0 },
        { "a != two", "{\"a\":2}", 1 },
        { "a = 2", "{\"a\":\"two\"}", 0 },
        { "a != 2", "{\"a\":\"two\"}", 1 },
        { "a = 2", "{\"a\":true}", 0 },
        { "a = false", "{\"a\":false}", 1 },
        { "a = x", "{\"A\":\"x\"}", 0 },
        { "a ~ ar", "{\"a\":[{\"content\":\"be\"},{\"content\":\"ar\"}]}", 1 },
        { "a.b.c = 1", "{\"a\":{\"b.c\":1}}", 1 },
        { "a.b.c = 1", "{\"a\":{\"b\":{\"c\":2}}}", 0 },
        { "a.b.c = 1", "{\"a\":{\"b\":1}}", 0 },
        { "a.b.c != 1", "{\"a\":3}", 1 },
        { "a.b = 1", "{\"a.b\":1,\"a\":{\"b\":2}}", 1 },
        { ".a = 1", "{\"\":{\"a\":1}}", 1 },
    };
    xr_err err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (apply_conditions(&cases[i].condition, 1, cases[i].row, &err) !=
            cases[i].keep)
            fail_msg("%s of %s: %s", cases[i].condition, cases[i].row,
                     err.text);
}

static void bad_conditions_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *condition;
        const char *row;
        const char *why;
    } cases[] = {
        { "level", "{}",
          "[data] filters: 'level' is not a condition; expected 'key op value' "
          "with =, !=, <, <=, >, >= or ~" },
        { "! 3", "{}",
          "[data] filters: '! 3' is not a condition; expected 'key op value' "
          "with =, !=, <, <=, >, >= or ~" },
        { " = 3", "{}",
          "[data] filters: ' = 3' is not a condition; expected 'key op value' "
          "with =, !=, <, <=, >, >= or ~" },
        { "a < x", "{}",
          "[data] filters: 'a < x' is an order comparison, so its value must "
          "be a "
          "number" },
        { "a <= \"3\"", "{}",
          "[data] filters: 'a <= \"3\"' is an order comparison, so its value "
          "must be a "
          "number" },
        { "a > ", "{}",
          "[data] filters: 'a > ' is an order comparison, so its value must be "
          "a "
          "number" },
        { "a >= 1x", "{}",
          "[data] filters: 'a >= 1x' is an order comparison, so its value must "
          "be a "
          "number" },
        { "a < 3", "{\"a\":\"x\"}",
          "r:7: [data] filters compare 'a' with 3, but it is not a number" },
        { "a >= 3", "{\"a\":true}",
          "r:7: [data] filters compare 'a' with 3, but it is not a number" },
        { "a = 3", "{\"a\":{\"b\":1}}",
          "r:7: 'a' is an object; expected text, a number or a list of "
          "messages" },
        { "a.b ~ 3", "{\"a\":{\"b\":[]}}", "r:7: 'a.b' is an empty list" },
    };
    xr_err err;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(
            apply_conditions(&cases[i].condition, 1, cases[i].row, &err), -1);
        assert_string_equal(err.text, cases[i].why);
    }
}

/* All conditions must hold; those after one that fails are not evaluated. */
static void all_conditions_must_hold(void **state)
{
    (void)state;
    static const char *const both[] = { "n > 1", "s = x" };
    static const char *const guarded[] = { "s = x", "n > 1" };
    xr_err err;
    assert_int_equal(apply_conditions(both, 0, "{}", &err), 1);
    assert_int_equal(apply_conditions(both, 2, "{\"n\":2,\"s\":\"x\"}", &err),
                     1);
    assert_int_equal(apply_conditions(both, 2, "{\"n\":1,\"s\":\"x\"}", &err),
                     0);
    assert_int_equal(apply_conditions(both, 2, "{\"n\":2,\"s\":\"y\"}", &err),
                     0);
    assert_int_equal(
        apply_conditions(guarded, 2, "{\"n\":\"?\",\"s\":\"y\"}", &err), 0);
    assert_int_equal(
        apply_conditions(guarded, 2, "{\"n\":\"?\",\"s\":\"x\"}", &err), -1);
}

/* A part of a key before a dot may have up to 255 bytes. */
static void long_keys_are_found(void **state)
{
    (void)state;
    xr_err err;
    for (int size = 255; size <= 256; size++) {
        char key[300];
        char condition[320];
        char row[400];
        memset(key, 'k', sizeof key);
        key[size] = '\0';
        (void)snprintf(condition, sizeof condition, "%s.b = 1", key);
        (void)snprintf(row, sizeof row, "{\"%s\":{\"b\":1}}", key);
        const char *const one[] = { condition };
        assert_int_equal(apply_conditions(one, 1, row, &err), size == 255);
    }
}

/* ---- files -------------------------------------------------------------- */

static void plain_files_are_read(void **state)
{
    (void)state;
    static const char *const all[] = { "", "x", "\x1f", "\x28\xb5\x2f",
                                       "a\nb" };
    char *text = NULL;
    size_t size = 99;
    xr_err err = { "" };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_int_equal(xr_text_read(scratch_write("plain", all[i]), NULL,
                                      &err, &text, &size),
                         XRAY_OK);
        assert_int_equal(size, strlen(all[i]));
        assert_string_equal(text, all[i]);
        free(text);
    }
    text = NULL;
    assert_int_equal(
        xr_text_read(scratch_path("none"), NULL, &err, &text, &size),
        XRAY_E_IO);
    assert_non_null(strstr(err.text, "/none: "));
    assert_null(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arena_blocks_never_move),
        cmocka_unit_test(members_become_text),
        cmocka_unit_test(templates_are_filled),
        cmocka_unit_test(dates_become_seconds),
        cmocka_unit_test(template_variables_are_parsed),
        cmocka_unit_test(system_prompts_are_added_once),
        cmocka_unit_test(operators_compare_values),
        cmocka_unit_test(texts_and_nested_keys_compare),
        cmocka_unit_test(bad_conditions_are_refused),
        cmocka_unit_test(all_conditions_must_hold),
        cmocka_unit_test(long_keys_are_found),
        cmocka_unit_test(plain_files_are_read),
    };
    return cmocka_run_group_tests_name("data.pieces", tests, scratch_make,
                                       scratch_drop);
}
