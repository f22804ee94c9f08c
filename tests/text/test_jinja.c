/* SPDX-License-Identifier: Apache-2.0
 *
 * The Jinja interpreter against what Jinja2 makes of the same snippets.
 *
 * With the argument "render" the program reads JSON lines {t: template,
 * v: variables} and answers with lines {o: text} or {e: message}, for
 * tests/parity/chat_templates.py, which also writes the goldens.
 */
#include "tests/testing.h"

#include "core/base/file.h"
#include "model/text/chat.h"

#define NOW 1753799405 /* 2025-07-29 14:30:05, what strftime_now shows */

/* `shared`: the variables of rows without their own. */
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
    if (variables)
        call.tools = xr_json_get(variables, "tools");
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
    const char *source = xr_json_get(row, "t")->valuestring;
    if (wanted && status)
        fail_msg("line %zu: %s\n%s", number, source, err.text);
    if (wanted && strcmp(wanted->valuestring, xr_str_text(&text.text)) != 0)
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

static void goldens(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    char *text;
    size_t size;
    xr_err err = { 0 };
    const char *root = getenv("XRAY_SOURCE");
    (void)snprintf(path, sizeof path, "%s/tests/text/goldens/jinja.jsonl",
                   root ? root : ".");
    assert_int_equal(xr_file_read(path, 1u << 20, &err, &text, &size), 0);
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
    assert_true(count > 500);
    free(text);
}

/* Bounds: each is met by one clear sentence. */
static void limits(void **state)
{
    (void)state;
    static const struct {
        const char *source;
        const char *message;
    } cases[] = {
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
        { "{{ range(100001) }}", "more than 100000 items" },
        { "{{ 9223372036854775807 + 1 }}", "leaves 64 bits" },
        { "{{ 2 ** 64 }}", "leaves 64 bits" },
        { "{{ 9223372036854775808 }}", "beyond 64 bits" },
        { "{% include 'x' %}", "'include' is not supported" },
        { "{% import 'x' as y %}", "'import' is not supported" },
        { "{% from 'x' import y %}", "'from' is not supported" },
        { "{% extends 'x' %}", "'extends' is not supported" },
        { "{% block x %}{% endblock %}", "'block' is not supported" },
        { "a\n\n{{ x.y }}", "snippet:3: 'x' is undefined" },
        { "a\n{% if x %}", "snippet:2: the template ends where 'elif'" },
        { "{{ [1, 2 }}", "snippet:1: " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cJSON *row = cJSON_CreateObject();
        xr_err err = { 0 };
        xm_chat_text text = { 0 };
        (void)cJSON_AddStringToObject(row, "t", cases[i].source);
        if (!render_case(row, NULL, &err, &text))
            fail_msg("no error: %s", cases[i].source);
        if (!strstr(err.text, cases[i].message))
            fail_msg("%s: [%s]", cases[i].source, err.text);
        xm_chat_text_free(&text);
        cJSON_Delete(row);
    }
}

static void deep_source(void **state)
{
    (void)state;
    static const char *const pieces[] = { "(",     "[",          "-",
                                          "not ",  "{% if x %}", "x.",
                                          "x|e",   "1+",         "x if y else ",
                                          "{'a':", "f(",         "x[" };
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

static int serve(void)
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
        return serve();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens),
        cmocka_unit_test(limits),
        cmocka_unit_test(deep_source),
    };
    return cmocka_run_group_tests_name("text.jinja", tests, NULL, NULL);
}
