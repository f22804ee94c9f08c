/* SPDX-License-Identifier: Apache-2.0
 *
 * The Jinja interpreter gives the results of Jinja2 for the same snippets.
 *
 * With the argument "render" the program reads JSON lines {t: template, v:
 * variables} and answers with lines {o: text} or {e: message}, for
 * tests/parity/chat_templates.py, which also writes the goldens.
 */
#include "tests/testing.h"

#include <time.h>

#include "core/base/file.h"
#include "tests/text/chat_checks.h"

#define NOW 1753799405 /* 2025-07-29 14:30:05, shown by strftime_now */

/* `shared`: variables for rows that have none. */
static xray_status render_case(const cJSON *row, const cJSON *shared,
                               xr_err *err, xm_chat_text *out)
{
    const cJSON *source = xr_json_get(row, "t");
    const cJSON *variables = xr_json_get(row, "v");
    if (!variables)
        variables = shared;
    cJSON *empty = cJSON_CreateArray();
    xm_chat *chat = NULL;
    xm_chat_call call = { .messages = empty,
                          .variables = variables,
                          .now = NOW };
    if (variables && xr_json_get(variables, "messages"))
        call.messages = xr_json_get(variables, "messages");
    if (variables) {
        call.tools = xr_json_get(variables, "tools");
        call.documents = xr_json_get(variables, "documents");
        call.add_generation_prompt =
            cJSON_IsTrue(xr_json_get(variables, "add_generation_prompt"));
    }
    xray_status status =
        xm_chat_compile(source->valuestring, strlen(source->valuestring),
                        "snippet", err, &chat);
    if (!status)
        status = xm_chat_render(chat, &call, NULL, err, out);
    xm_chat_close(chat);
    cJSON_Delete(empty);
    return status;
}

static void check_case(const char *line, size_t size, const cJSON *shared,
                       size_t number)
{
    xr_err err = { 0 };
    cJSON *row = NULL;
    xm_chat_text text = { 0 };
    assert_int_equal(xr_json_parse(line, size, "jinja.jsonl", &err, &row), 0);
    xray_status status = render_case(row, shared, &err, &text);
    const cJSON *wanted = xr_json_get(row, "o");
    const cJSON *message = xr_json_get(row, "m");
    const cJSON *sentence = xr_json_get(row, "e");
    const char *source = xr_json_get(row, "t")->valuestring;
    if (sentence && strcmp(err.text, sentence->valuestring) != 0)
        fail_msg("line %zu: %s\nwanted the error [%s]\ngot [%s]", number,
                 source, sentence->valuestring, err.text);
    if (wanted && status)
        fail_msg("line %zu: %s\n%s", number, source, err.text);
    if (wanted && !chat_wrote(&text, wanted->valuestring))
        fail_msg("line %zu: %s\nwanted [%s]\ngot    [%s]", number, source,
                 wanted->valuestring, xr_str_text(&text.text));
    if (!wanted && !status)
        fail_msg("line %zu: %s\nwanted an error\ngot [%s]", number, source,
                 xr_str_text(&text.text));
    if (message && !strstr(err.text, message->valuestring))
        fail_msg("line %zu: %s\nwanted the error [%s]\ngot [%s]", number,
                 source, message->valuestring, err.text);
    xm_chat_text_free(&text);
    cJSON_Delete(row);
}

/* Reads a file of JSON lines and sets its path. */
static char *read_goldens(const char *name, char path[XR_PATH_CAP])
{
    const char *root = getenv("XRAY_SOURCE");
    char *text;
    size_t size;
    (void)snprintf(path, XR_PATH_CAP, "%s/tests/text/goldens/%s",
                   root ? root : ".", name);
    assert_int_equal(xr_file_read(path, 1u << 20, NULL, &text, &size), 0);
    return text;
}

/* Checks a file of goldens. The first row holds the variables of all rows. */
static size_t check_file(const char *name)
{
    char path[XR_PATH_CAP];
    xr_err err = { 0 };
    char *text = read_goldens(name, path);
    size_t count = 0;
    cJSON *first = NULL;
    for (char *at = text; *at;) {
        char *end = strchr(at, '\n');
        assert_non_null(end);
        size_t length = (size_t)(end - at);
        if (count++)
            check_case(at, length, xr_json_get(first, "v"), count);
        else if (xr_json_parse(at, length, path, &err, &first))
            fail_msg("%s", err.text);
        at = end + 1;
    }
    cJSON_Delete(first);
    free(text);
    return count;
}

static void snippets_render_like_jinja2(void **state)
{
    (void)state;
    assert_true(check_file("jinja.jsonl") > 1500);
}

/* Sweeps: every sign of a tag, pair of operators, bound of a slice, flag of a
 * format, argument of a filter or method, and what is refused of each. */
static void rules_hold_up_to_their_bounds(void **state)
{
    (void)state;
    assert_true(check_file("rules.jsonl") > 500);
}

/* Complete messages, with their line, for snippets that fail in Jinja2 as
 * well. */
static void errors_have_these_sentences(void **state)
{
    (void)state;
    assert_true(check_file("sentences.jsonl") > 700);
}

/* The expected texts are those of Python's strftime, around turns of years and
 * days and in leap years. */
static void dates_are_formatted_like_python(void **state)
{
    (void)state;
    static const char source[] =
        "{{ strftime_now('%Y-%m-%d %a %j %U %W %V %G %u %w %H %k %I %l %p "
        "%M %S') }}";
    static const struct {
        int64_t now;
        const char *text;
    } cases[] = {
        { -2203845904,
          "1900-03-01 Thu 060 08 09 09 1900 4 4 12 12 12 12 PM 34 56" },
        { 0, "1970-01-01 Thu 001 00 00 01 1970 4 4 00  0 12 12 AM 00 00" },
        { 946684799,
          "1999-12-31 Fri 365 52 52 52 1999 5 5 23 23 11 11 PM 59 59" },
        { 951825600,
          "2000-02-29 Tue 060 09 09 09 2000 2 2 12 12 12 12 PM 00 00" },
        { 1609635723,
          "2021-01-03 Sun 003 01 00 53 2020 7 0 01  1 01  1 AM 02 03" },
        { 1735559999,
          "2024-12-30 Mon 365 52 53 01 2025 1 1 11 11 11 11 AM 59 59" },
        { 1735650000,
          "2024-12-31 Tue 366 52 53 01 2025 2 2 13 13 01  1 PM 00 00" },
        { 1767227400,
          "2026-01-01 Thu 001 00 00 01 2026 4 4 00  0 12 12 AM 30 00" },
        { 1767225599,
          "2025-12-31 Wed 365 52 52 01 2026 3 3 23 23 11 11 PM 59 59" },
        { 1988064000,
          "2032-12-31 Fri 366 52 52 53 2032 5 5 00  0 12 12 AM 00 00" },
        { 1988283600,
          "2033-01-02 Sun 002 01 00 53 2032 7 0 13 13 01  1 PM 00 00" },
        { 253402300799,
          "9999-12-31 Fri 365 52 52 52 9999 5 5 23 23 11 11 PM 59 59" },
    };
    xr_err err = { 0 };
    xm_chat *chat = NULL;
    cJSON *none = cJSON_CreateArray();
    assert_int_equal(
        xm_chat_compile(source, sizeof source - 1, "dates", &err, &chat), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xm_chat_text text = { 0 };
        xm_chat_call call = { .messages = none, .now = cases[i].now };
        assert_int_equal(xm_chat_render(chat, &call, NULL, &err, &text), 0);
        assert_string_equal(xr_str_text(&text.text), cases[i].text);
        xm_chat_text_free(&text);
    }
    xm_chat_close(chat);
    cJSON_Delete(none);
}

/* Items of ranges with a step, a break inside a captured block, and many
 * filters in sequence. */
static void ranges_blocks_and_filter_chains_work(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "{{ range(1, 20, 3)[2] }} {{ range(9, 0, -4)[1] }}", "7 5" },
        { "{% for i in [1, 2, 3] %}{% set x %}a{% if i == 2 %}{% break %}"
          "{% endif %}{% endset %}{{ i }}{{ x }}{% endfor %}",
          "1a" },
        { "{% for i in range(3000) %}{% set x = 'a'|upper|lower|trim %}"
          "{% endfor %}end",
          "end" },
    };
    xr_err err = { 0 };
    cJSON *none = cJSON_CreateArray();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xm_chat *chat = NULL;
        xm_chat_text text = { 0 };
        const xm_chat_call call = { .messages = none };
        assert_int_equal(xm_chat_compile(cases[i][0], strlen(cases[i][0]),
                                         "test", &err, &chat),
                         0);
        if (xm_chat_render(chat, &call, NULL, &err, &text))
            fail_msg("%s: %s", cases[i][0], err.text);
        assert_string_equal(xr_str_text(&text.text), cases[i][1]);
        xm_chat_text_free(&text);
        xm_chat_close(chat);
    }
    cJSON_Delete(none);
}

static const struct {
    const char *source;
    const char *message;
} limits[] = {
    { "{% set l = range(300)|list %}{% for a in l %}{% for b in l %}"
      "{% for c in l %}{% endfor %}{% endfor %}{% endfor %}",
      "more than 20000000 steps" },
    { "{% for a in range(2000) %}{{ 'x' * 100000 }}{% endfor %}",
      "writes more than 64 MiB" },
    { "{% set a = 'x' * 300000000 %}", "more than 256 MiB of memory" },
    { "{% set ns = namespace(a='xy') %}{% for i in range(99) %}"
      "{% set ns.a = ns.a + ns.a %}{% endfor %}",
      "more than 256 MiB of memory" },
    { "{% set ns = namespace(a=[1]) %}{% for i in range(60) %}"
      "{% set ns.a = [ns.a, ns.a] %}{% endfor %}{{ ns.a }}",
      "more than" },
    { "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
      "more than 100 macros call each other" },
    { "{% set ns = namespace(a=[]) %}{% for i in range(5000) %}"
      "{% set ns.a = [ns.a] %}{% endfor %}{{ ns.a | tojson }}",
      "more than 1000 levels deep" },
    { "{% set ns = namespace(a=[]) %}{% for i in range(5000) %}"
      "{% set ns.a = [ns.a] %}{% endfor %}{{ {1: ns.a}.values() }}",
      "more than 1000 levels deep" },
    { "{% set ns = namespace(a=(1,)) %}{% for i in range(200) %}"
      "{% set ns.a = (ns.a, ns.a) %}{% endfor %}{{ {}.get(ns.a) }}",
      "more than 20000000 steps" },
    { "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(200) %}"
      "{% set ns.a = (ns.a, ns.a) %}{% set ns.b = (ns.b, ns.b) %}"
      "{% endfor %}{{ ns.a == ns.b }}",
      "more than 20000000 steps" },
    { "{% set a = 'é' * 9999999 %}{% for i in range(99999) %}"
      "{% set b = {}[a], a.find('e', 9999998), a[9999998:] %}{% endfor %}",
      "more than" },
    { "{{ range(100001) }}", "more than 100000 items" },
    { "{{ 9223372036854775807 + 1 }}", "is beyond 64 bits" },
    { "{{ 2 ** 64 }}", "is beyond 64 bits" },
    { "{{ 9223372036854775808 }}", "beyond 64 bits" },
    { "{{ 1e19|int }}", "beyond 64 bits" },
    { "{{ -1e19|int }}", "beyond 64 bits" },
    { "{{ 9223372036854775808.0|int }}", "beyond 64 bits" },
    { "{{ '9223372036854775808'|int }}", "beyond 64 bits" },
    { "{{ '%d' % 1e19 }}", "beyond 64 bits" },
    { "{{ '%d' % 9223372036854775808.0 }}", "beyond 64 bits" },
    { "{{ (-9223372036854775807 - 1) // -1 }}", "beyond 64 bits" },
    { "{{ -(-9223372036854775807 - 1) }}", "beyond 64 bits" },
    { "{{ -9223372036854775807 - 2 }}", "beyond 64 bits" },
    { "{{ 4294967296 * 2147483648 }}", "beyond 64 bits" },
    { "{{ -4294967296 * 2147483649 }}", "beyond 64 bits" },
    { "{{ '%.351f' % 1.0 }}", "precision is too large" },
    { "{{ '{:.351f}'.format(1.0) }}", "invalid format" },
    { "{{ '%100001d' % 1 }}", "width or precision is too large" },
    { "{{ '%*d' % (100001, 1) }}", "width or precision is too large" },
    { "{{ '%*d' % (-100001, 1) }}", "width or precision is too large" },
    { "{{ '{:100001}'.format(1) }}", "invalid format" },
    { "{% include 'x' %}", "'include' is not supported" },
    { "{% import 'x' as y %}", "'import' is not supported" },
    { "{% from 'x' import y %}", "'from' is not supported" },
    { "{% extends 'x' %}", "'extends' is not supported" },
    { "{% block x %}{% endblock %}", "'block' is not supported" },
    { "{{ 'a'.encode() }}", "not supported in a chat template" },
    { "{{ 'a'.expandtabs() }}", "not supported in a chat template" },
    { "{{ 'a'.translate({}) }}", "not supported in a chat template" },
    { "{{ {}.fromkeys([1]) }}", "not supported in a chat template" },
    { "a\n\n{{ x.y }}", "snippet:3: 'x' is undefined" },
    { "a\n{% if x %}", "snippet:2: the template ends where 'endif'" },
    { "{{ [1, 2 }}", "snippet:1: " },
    { "{{ '\\ud800' }}", "snippet:1: " },
    { "{{ '\\udfff' }}", "snippet:1: " },
};

/* Exceeding a limit, or using what is not supported, is an error that names
 * it. */
static void exceeded_limits_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        cJSON *row = cJSON_CreateObject();
        xr_err err = { 0 };
        xm_chat_text text = { 0 };
        (void)cJSON_AddStringToObject(row, "t", limits[i].source);
        if (!render_case(row, NULL, &err, &text))
            fail_msg("no error: %s", limits[i].source);
        if (!strstr(err.text, limits[i].message))
            fail_msg("%s: [%s]", limits[i].source, err.text);
        xm_chat_text_free(&text);
        cJSON_Delete(row);
    }
}

static uint32_t pick_below(uint64_t *at, uint32_t below)
{
    *at = *at * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*at >> 33) % below);
}

/* Appends a part of a golden's template, cut anywhere. */
static void add_template_part(xr_str *out, const cJSON *rows, uint64_t *at)
{
    const cJSON *row = cJSON_GetArrayItem(
        rows, (int)pick_below(at, (uint32_t)cJSON_GetArraySize(rows)));
    const char *text = xr_json_get(row, "t")->valuestring;
    uint32_t size = (uint32_t)strlen(text);
    uint32_t from = pick_below(at, 3) ? 0 : pick_below(at, size + 1);
    uint32_t to =
        pick_below(at, 3) ? size : from + pick_below(at, size - from + 1);
    xr_str_append(out, text + from, to - from);
}

/* Templates of the goldens, cut, joined and with bytes changed, soon end with a
 * text or a message. */
static void mutated_snippets_end_with_text_or_error(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    xr_err err = { 0 };
    char *text = read_goldens("jinja.jsonl", path);
    const char *rounds = getenv("XRAY_FUZZ_ROUNDS");
    int64_t count = 4000;
    uint64_t at = 20250730;
    if (rounds)
        (void)xr_parse_int(rounds, &count);
    cJSON *rows = cJSON_CreateArray();
    cJSON *first = NULL;
    for (char *line = text; *line; line = strchr(line, '\n') + 1) {
        cJSON *row = NULL;
        size_t length = (size_t)(strchr(line, '\n') - line);
        assert_int_equal(xr_json_parse(line, length, path, &err, &row), 0);
        if (first)
            (void)cJSON_AddItemToArray(rows, row);
        else
            first = row;
    }
    for (int64_t i = 0; i < count; i++) {
        xr_str source = { 0 };
        xm_chat_text out = { 0 };
        xr_err failed = { 0 };
        for (uint32_t n = 1 + pick_below(&at, 3); n; n--)
            add_template_part(&source, rows, &at);
        for (uint32_t n = pick_below(&at, 3); n && source.size; n--)
            source.data[pick_below(&at, (uint32_t)source.size)] =
                (char)(1 + pick_below(&at, 127));
        cJSON *row = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(row, "t", xr_str_text(&source));
        clock_t begin = clock();
        xray_status status =
            render_case(row, xr_json_get(first, "v"), &failed, &out);
        if ((double)(clock() - begin) / CLOCKS_PER_SEC > 30)
            fail_msg("too slow: %s", source.data);
        assert_true(status ? failed.text[0] != 0 : failed.text[0] == 0);
        xm_chat_text_free(&out);
        cJSON_Delete(row);
        xr_str_free(&source);
    }
    cJSON_Delete(first);
    cJSON_Delete(rows);
    free(text);
}

static void deeply_nested_sources_are_refused(void **state)
{
    (void)state;
    static const char *const pieces[] = { "(",     "[",          "-",
                                          "not ",  "{% if x %}", "x.",
                                          "x|e",   "1+",         "x if y else ",
                                          "{'a':", "f(",         "x[" };
    static const char *const rows[][3] = {
        { "{{ 1", "+1", " }}" },   { "{{ x", ".a", " }}" },
        { "{{ x", "|e", " }}" },   { "{{ x", "[0]", " }}" },
        { "{{ x", "()", " }}" },   { "{{ x", " and y", " }}" },
        { "{{ 1", " if x", " }}" }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        xr_str source = { 0 };
        xr_err err = { 0 };
        xm_chat *chat = NULL;
        xr_str_puts(&source, rows[i][0]);
        for (int n = 0; n < 20000; n++)
            xr_str_puts(&source, rows[i][1]);
        xr_str_puts(&source, rows[i][2]);
        assert_int_not_equal(
            xm_chat_compile(source.data, source.size, "deep", &err, &chat), 0);
        if (!strstr(err.text, "nested too deep"))
            fail_msg("%s: %s", rows[i][1], err.text);
        xr_str_free(&source);
    }
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        xr_str source = { 0 };
        xr_err err = { 0 };
        xm_chat *chat = NULL;
        if (pieces[i][0] != '{' || pieces[i][1] != '%')
            xr_str_puts(&source, "{{ ");
        for (int n = 0; n < 20000; n++)
            xr_str_puts(&source, pieces[i]);
        assert_int_not_equal(
            xm_chat_compile(source.data, source.size, "deep", &err, &chat), 0);
        assert_true(err.text[0]);
        xr_str_free(&source);
    }
}

/* The limit is on nesting: what stands side by side may be any number. */
static void many_shallow_parts_are_accepted(void **state)
{
    (void)state;
    static const char *const pieces[] = { "{% if x %}{% endif %}", "{{ -x }}",
                                          "{{ (x) }}", "{{ [-x, [x]] }}",
                                          "{{ 'a' if x else 'b' }}" };
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
        xr_str source = { 0 };
        xr_err err = { 0 };
        xm_chat *chat = NULL;
        for (int n = 0; n < 2000; n++)
            xr_str_puts(&source, pieces[i]);
        if (xm_chat_compile(source.data, source.size, "wide", &err, &chat))
            fail_msg("2000 times %s: %s", pieces[i], err.text);
        xm_chat_close(chat);
        xr_str_free(&source);
    }
}

/* Renders a snippet without variables; its error is in `err`. */
static xray_status render_source(const char *source, xr_err *err,
                                 xm_chat_text *out)
{
    cJSON *row = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(row, "t", source);
    *err = (xr_err){ "" };
    *out = (xm_chat_text){ .text = { 0 } };
    xray_status status = render_case(row, NULL, err, out);
    cJSON_Delete(row);
    return status;
}

/* A literal of any number: the most negative one has none of its own. */
static const char *write_int(int64_t value, char out[48])
{
    int least = value == INT64_MIN;
    (void)snprintf(out, 48, "(%lld%s)", (long long)value + least,
                   least ? " - 1" : "");
    return out;
}

/* Sums, differences and products are those of 64 bits up to both ends, and an
 * error beyond them. */
static void integers_reach_both_ends_of_64_bits(void **state)
{
    (void)state;
    static const int64_t numbers[] = { 0,
                                       1,
                                       -1,
                                       2,
                                       -2,
                                       3,
                                       -3,
                                       7,
                                       -7,
                                       INT64_MAX,
                                       INT64_MIN,
                                       INT64_MAX - 1,
                                       INT64_MIN + 1,
                                       INT64_MAX / 2,
                                       INT64_MIN / 2,
                                       INT64_MAX / 7,
                                       -(INT64_MAX / 7),
                                       INT64_MIN / 2 - 1,
                                       INT64_MAX / 2 + 1,
                                       (int64_t)1 << 31,
                                       -((int64_t)1 << 32) };
    const size_t count = sizeof numbers / sizeof numbers[0];
    for (size_t i = 0; i < count * count * 3; i++) {
        int64_t a = numbers[i / 3 / count];
        int64_t b = numbers[i / 3 % count];
        int64_t wanted = 0;
        int beyond = i % 3 == 0   ? __builtin_add_overflow(a, b, &wanted)
                     : i % 3 == 1 ? __builtin_sub_overflow(a, b, &wanted)
                                  : __builtin_mul_overflow(a, b, &wanted);
        char text[2][48];
        char source[128];
        char number[32];
        (void)snprintf(source, sizeof source, "{{ %s %c %s }}",
                       write_int(a, text[0]), "+-*"[i % 3],
                       write_int(b, text[1]));
        (void)snprintf(number, sizeof number, "%lld", (long long)wanted);
        xr_err err;
        xm_chat_text out;
        xray_status status = render_source(source, &err, &out);
        if (beyond ? !strstr(err.text, "beyond 64 bits")
                   : status || strcmp(xr_str_text(&out.text), number) != 0)
            fail_msg("%s: [%s] %s", source, xr_str_text(&out.text), err.text);
        xm_chat_text_free(&out);
    }
}

/* Every byte after a '%' that is no conversion of Python is refused, a NUL as
 * well. */
static void other_characters_convert_nothing(void **state)
{
    (void)state;
    for (int c = 0; c < 128; c++) {
        char source[32];
        xr_err err;
        xm_chat_text out;
        (void)snprintf(source, sizeof source, "{{ '%%\\x%02x' %% 1 }}",
                       (unsigned)c);
        xray_status status = render_source(source, &err, &out);
        if (!status != (c && strchr("srdiuxXoceEfFgG", c)))
            fail_msg("%s: [%s] %s", source, xr_str_text(&out.text), err.text);
        xm_chat_text_free(&out);
    }
}

static int serve_requests(void)
{
    static char line[1 << 20];
    while (fgets(line, sizeof line, stdin)) {
        xr_err err = { 0 };
        cJSON *row = NULL;
        xm_chat_text text = { 0 };
        if (xr_json_parse(line, strlen(line), "stdin", &err, &row)) {
            (void)fprintf(stderr, "%s\n", err.text);
            return 1;
        }
        xray_status status = render_case(row, NULL, &err, &text);
        cJSON *answer = cJSON_CreateObject();
        (void)cJSON_AddStringToObject(answer, status ? "e" : "o",
                                      status ? err.text
                                             : xr_str_text(&text.text));
        char *out = cJSON_PrintUnformatted(answer);
        (void)puts(out);
        (void)fflush(stdout);
        cJSON_free(out);
        cJSON_Delete(answer);
        cJSON_Delete(row);
        xm_chat_text_free(&text);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "render"))
        return serve_requests();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(snippets_render_like_jinja2),
        cmocka_unit_test(rules_hold_up_to_their_bounds),
        cmocka_unit_test(errors_have_these_sentences),
        cmocka_unit_test(dates_are_formatted_like_python),
        cmocka_unit_test(exceeded_limits_are_named),
        cmocka_unit_test(deeply_nested_sources_are_refused),
        cmocka_unit_test(many_shallow_parts_are_accepted),
        cmocka_unit_test(mutated_snippets_end_with_text_or_error),
        cmocka_unit_test(ranges_blocks_and_filter_chains_work),
        cmocka_unit_test(integers_reach_both_ends_of_64_bits),
        cmocka_unit_test(other_characters_convert_nothing),
    };
    return cmocka_run_group_tests_name("text.jinja", tests, NULL, NULL);
}
