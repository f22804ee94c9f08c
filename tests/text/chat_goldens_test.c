/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates of our own, with every feature that published ones use, render
 * what transformers renders: texts, errors, the assistant's spans, ids and
 * masks. tests/parity/chat_goldens.py writes the goldens.
 */
#include "tests/testing.h"

#include "core/base/file.h"
#include "tests/text/chat_checks.h"

#define KINDS 4

typedef struct material {
    cJSON *all;
    const cJSON *templates;
    const cJSON *contexts;
    char kind[KINDS][32]; /* name of each tokenizer opened so far */
    xm_tokenizer *tok[KINDS];
} material;

static const char *golden_path(const char *name)
{
    static char path[XR_PATH_CAP];
    const char *source = getenv("XRAY_SOURCE");
    (void)snprintf(path, sizeof path, "%s/tests/text/goldens/%s",
                   source ? source : ".", name);
    return path;
}

static material open_material(void)
{
    material m = { .all = NULL };
    xr_err err = { "" };
    if (xr_json_file(golden_path("chat.json"), &err, &m.all))
        fail_msg("%s", err.text);
    m.templates = xr_json_get(m.all, "templates");
    m.contexts = xr_json_get(m.all, "contexts");
    return m;
}

static void close_material(material *m)
{
    for (size_t i = 0; i < KINDS && m->tok[i]; i++)
        xm_tokenizer_close(m->tok[i]);
    cJSON_Delete(m->all);
}

static const xm_tokenizer *open_tokenizer(material *m, const char *kind)
{
    xr_err err = { "" };
    size_t i = 0;
    while (i < KINDS && m->tok[i] && strcmp(m->kind[i], kind) != 0)
        i++;
    assert_true(i < KINDS);
    if (!m->tok[i] && xm_tokenizer_open(golden_path(kind), &err, &m->tok[i]))
        fail_msg("%s", err.text);
    (void)snprintf(m->kind[i], sizeof m->kind[i], "%s", kind);
    return m->tok[i];
}

static const char *get_string_or(const cJSON *row, const char *key,
                                 const char *otherwise)
{
    const cJSON *item = xr_json_get(row, key);
    return item ? item->valuestring : otherwise;
}

static int is_flag_set(const cJSON *row, const char *key)
{
    return cJSON_IsTrue(xr_json_get(row, key));
}

static xray_status render_row(const material *m, const cJSON *row, xr_err *err,
                              xm_chat_text *out)
{
    const char *source =
        get_string_or(m->templates, get_string_or(row, "template", ""), NULL);
    const cJSON *context =
        xr_json_get(m->contexts, get_string_or(row, "context", ""));
    assert_non_null(source);
    assert_non_null(context);
    cJSON *variables = cJSON_Duplicate(context, 1);
    (void)cJSON_AddStringToObject(variables, "bos_token",
                                  get_string_or(row, "bos", "<s>"));
    (void)cJSON_AddStringToObject(variables, "eos_token",
                                  get_string_or(row, "eos", "</s>"));
    xm_chat_call call = {
        .messages = xr_json_get(context, "messages"),
        .tools = xr_json_get(context, "tools"),
        .documents = xr_json_get(context, "documents"),
        .variables = variables,
        .add_generation_prompt = is_flag_set(row, "prompt"),
        .continue_final_message = is_flag_set(row, "continue"),
        .now = 1721995200, /* 26 Jul 2024, as in the goldens */
    };
    xm_chat *chat = NULL;
    xray_status status =
        xm_chat_compile(source, strlen(source), "t", err, &chat);
    if (!status)
        status = xm_chat_render(chat, &call, "row", err, out);
    xm_chat_close(chat);
    cJSON_Delete(variables);
    return status;
}

static void check_tokens(material *m, const cJSON *row,
                         const xm_chat_text *text, size_t number)
{
    const xm_tokenizer *tok =
        open_tokenizer(m, get_string_or(row, "tokenizer", ""));
    const cJSON *mask = xr_json_get(row, "mask");
    const cJSON *said = mask ? mask->child : NULL;
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    int32_t *want;
    size_t count;
    assert_int_equal(
        xr_json_ids(xr_json_get(row, "ids"), "ids", NULL, &want, &count),
        XRAY_OK);
    assert_int_equal(xm_tokenizer_encode_spans(tok, xr_str_text(&text->text),
                                               text->text.size, 0, &ids, &spans,
                                               NULL),
                     XRAY_OK);
    for (size_t i = 0; i < ids.count && i < count; i++) {
        if (ids.data[i] != want[i])
            fail_msg("line %zu, token %zu: %d, not %d", number, i, ids.data[i],
                     want[i]);
        if (said && chat_is_assistant(text, &spans.data[i]) != said->valueint)
            fail_msg("line %zu, token %zu: the mask is %d", number, i,
                     said->valueint);
        said = said ? said->next : NULL;
    }
    assert_int_equal(ids.count, count);
    assert_true(!mask || cJSON_GetArraySize(mask) == (int)count);
    xm_ids_free(&ids);
    xm_token_spans_free(&spans);
    free(want);
}

static void check_row(material *m, const cJSON *row, size_t number)
{
    xm_chat_text text = { 0 };
    xr_err err = { "" };
    const cJSON *wanted = xr_json_get(row, "text");
    const cJSON *message = xr_json_get(row, "message");
    xray_status status = render_row(m, row, &err, &text);
    if (message ? !status : status)
        fail_msg("line %zu: %s", number, status ? err.text : "no error");
    if (message && !strstr(err.text, message->valuestring))
        fail_msg("line %zu: [%s], wanted [%s]", number, err.text,
                 message->valuestring);
    if (wanted && !chat_wrote(&text, wanted->valuestring))
        fail_msg("line %zu: wanted [%s]\ngot [%s]", number, wanted->valuestring,
                 xr_str_text(&text.text));
    if (xr_json_get(row, "spans"))
        chat_expect_spans(xr_json_get(row, "spans"), &text);
    if (xr_json_get(row, "tokenizer"))
        check_tokens(m, row, &text, number);
    xm_chat_text_free(&text);
}

static void goldens_render_like_transformers(void **state)
{
    (void)state;
    material m = open_material();
    char *lines;
    size_t size;
    size_t number = 0;
    xr_err err = { "" };
    if (xr_file_read(golden_path("chat.jsonl"), 1u << 24, &err, &lines, &size))
        fail_msg("%s", err.text);
    for (char *line = lines; *line;) {
        size_t length = strcspn(line, "\n");
        cJSON *row;
        number++;
        assert_int_equal(xr_json_parse(line, length, "chat.jsonl", &err, &row),
                         XRAY_OK);
        check_row(&m, row, number);
        cJSON_Delete(row);
        line += length + (line[length] == '\n');
    }
    assert_true(number >= 230);
    free(lines);
    close_material(&m);
}

static void threads_render_the_same_text(void **state)
{
    (void)state;
    material m = open_material();
    chat_check_threads(get_string_or(m.templates, "tools", NULL),
                       xr_json_get(m.contexts, "calls"));
    close_material(&m);
}

static void mutated_templates_end_with_text_or_error(void **state)
{
    (void)state;
    material m = open_material();
    chat_check_mutations(m.templates, m.contexts);
    close_material(&m);
}

/* ---- edges ----------------------------------------------------------------
 */

static void last_message_is_continued_or_refused(void **state)
{
    (void)state;
    chat_expect("{% for m in messages %}{{ m.role }}{% endfor %}",
                "{\"messages\":[{\"role\":\"a\",\"content\":\"b\"}]}", 1,
                "rows.jsonl:7: mine: continue_final_message: the template does "
                "not write the last message unchanged");
    static const char chatml[] =
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}";
    chat_expect(chatml, "{\"messages\":[{\"role\":\"a\",\"content\":\"\"}]}", 1,
                "<a>");
    chat_expect(chatml, "{\"messages\":[{\"role\":\"a\",\"content\":null}]}", 1,
                "rows.jsonl:7: mine: continue_final_message: the last message "
                "has no text content to continue");
    chat_expect(chatml,
                "{\"messages\":[{\"role\":\"a\",\"content\":\"b\"},"
                "{\"role\":\"a\",\"content\":\"b\"}]}",
                1, "<a>b</><a>b");
}

static void span_ends_with_the_text(void **state)
{
    (void)state;
    static const char source[] =
        "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}!"
        "{% endgeneration %}\n{% endfor %}"
        "{% generation %}beyond the end{% endgeneration %}";
    static const char json[] = "{\"messages\":[{\"role\":\"é\",\"content\":"
                               "\"one\"},{\"role\":\"b\",\"content\":\"tw\"}]}";
    xr_err err = { 0 };
    cJSON *context = NULL;
    xm_chat_text text = { 0 };
    assert_int_equal(xr_json_parse(json, strlen(json), "test", &err, &context),
                     0);
    assert_int_equal(
        chat_render(source, strlen(source), context, 1, &err, &text), 0);
    assert_string_equal(text.text.data, "é:one!b:tw");
    assert_int_equal(text.span_count, 2);
    assert_int_equal(text.spans[0].from, 3);
    assert_int_equal(text.spans[0].to, 7);
    assert_int_equal(text.spans[1].from, 9);
    assert_int_equal(text.spans[1].to, 11);
    xm_chat_text_free(&text);
    cJSON_Delete(context);
}

/* As transformers records them: when an inner block ends, what the outermost
 * block or a captured text has written is not in the text yet, so all of its
 * spans are counted from there. */
static void inner_spans_begin_with_the_outermost_block(void **state)
{
    (void)state;
    static const char *const sources[] = {
        "xy{% generation %}ab{% generation %}c{% endgeneration %}d"
        "{% endgeneration %}{% generation %}e{% endgeneration %}",
        "xy{% set s %}ab{% generation %}c{% endgeneration %}{% endset %}"
        "{{ s }}d{% generation %}e{% endgeneration %}",
    };
    static const size_t wanted[][6] = { { 2, 3, 2, 6, 6, 7 },
                                        { 2, 3, 6, 7, 0, 0 } };
    for (size_t i = 0; i < 2; i++) {
        xr_err err = { 0 };
        xm_chat_text text = { 0 };
        cJSON *context = cJSON_CreateObject();
        (void)cJSON_AddArrayToObject(context, "messages");
        assert_int_equal(chat_render(sources[i], strlen(sources[i]), context, 0,
                                     &err, &text),
                         0);
        assert_string_equal(text.text.data, "xyabcde");
        assert_int_equal(text.span_count, 3 - i);
        for (size_t k = 0; k < text.span_count; k++) {
            assert_int_equal(text.spans[k].from, wanted[i][2 * k]);
            assert_int_equal(text.spans[k].to, wanted[i][2 * k + 1]);
        }
        xm_chat_text_free(&text);
        cJSON_Delete(context);
    }
}

static void reasoning_has_both_of_its_names(void **state)
{
    (void)state;
    static const char source[] = "{{ messages[0] }}";
    chat_expect(source, "{\"messages\":[{\"role\":\"a\",\"reasoning\":\"r\"}]}",
                0,
                "{'thinking': 'r', 'role': 'a', "
                "'reasoning': 'r', "
                "'reasoning_content': 'r'}");
    chat_expect(
        source,
        "{\"messages\":[{\"reasoning_content\":null,\"thinking\":\"t\"}]}", 0,
        "{'thinking': 't', 'reasoning_content': 't'}");
    chat_expect(source,
                "{\"messages\":[{\"reasoning_content\":\"c\","
                "\"reasoning\":\"r\"}]}",
                0,
                "{'thinking': 'c', 'reasoning_content': 'c', "
                "'reasoning': 'r'}");
    chat_expect(source,
                "{\"messages\":[{\"reasoning\":\"r\",\"thinking\":\"t\"}]}", 0,
                "{'thinking': 't', 'reasoning': 'r', "
                "'reasoning_content': 't'}");
    chat_expect(source, "{\"messages\":[{\"role\":\"a\"}]}", 0,
                "{'role': 'a'}");
}

/* The 15th of each month, as Python's strftime writes its day and month. */
static void days_and_months_have_their_names(void **state)
{
    static const struct {
        int64_t now;
        const char *wanted;
    } rows[] = {
        { 1768435200, "Thursday Thu January Jan Jan" },
        { 1771113600, "Sunday Sun February Feb Feb" },
        { 1773532800, "Sunday Sun March Mar Mar" },
        { 1776211200, "Wednesday Wed April Apr Apr" },
        { 1778803200, "Friday Fri May May May" },
        { 1781481600, "Monday Mon June Jun Jun" },
        { 1784073600, "Wednesday Wed July Jul Jul" },
        { 1786752000, "Saturday Sat August Aug Aug" },
        { 1789430400, "Tuesday Tue September Sep Sep" },
        { 1792022400, "Thursday Thu October Oct Oct" },
        { 1794700800, "Sunday Sun November Nov Nov" },
        { 1797292800, "Tuesday Tue December Dec Dec" },
    };
    static const char source[] = "{{ strftime_now('%A %a %B %b %h') }}";
    cJSON *none = cJSON_CreateArray();
    xm_chat *chat = NULL;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(
        xm_chat_compile(source, sizeof source - 1, "names", &err, &chat), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        xm_chat_text text = { 0 };
        xm_chat_call call = { .messages = none, .now = rows[i].now };
        assert_int_equal(xm_chat_render(chat, &call, NULL, &err, &text), 0);
        assert_string_equal(xr_str_text(&text.text), rows[i].wanted);
        xm_chat_text_free(&text);
    }
    xm_chat_close(chat);
    cJSON_Delete(none);
}

static void errors_name_row_template_and_line(void **state)
{
    (void)state;
    chat_expect("a\n{{ messages[0].x.y }}", "{\"messages\":[{}]}", 0,
                "rows.jsonl:7: mine:2: 'dict object' has no attribute 'x'");
    chat_expect("{{ raise_exception('No: ' ~ messages|length) }}",
                "{\"messages\":[]}", 0, "rows.jsonl:7: mine:1: No: 0");
    chat_expect("x", "{\"messages\":[3]}", 0,
                "rows.jsonl:7: mine: message 1 must be an object, not int");
    chat_expect("x", "{}", 0, "rows.jsonl:7: mine: messages must be an array");
    chat_expect("\n{% if x %}", "{\"messages\":[]}", 0,
                "mine:2: the template ends where 'endif' was expected");
    chat_expect("{{ 'a' \"b }}", "{\"messages\":[]}", 0,
                "mine:1: the string is not closed");
    chat_expect("\xff", "{\"messages\":[]}", 0,
                "mine: the chat template is not UTF-8");
}

/* docs/chat-templates.md tells the differences from Jinja2, and which names a
 * call does not set. A message of the compiler names no row. */
static void differences_are_the_documented_ones(void **state)
{
#define UNKNOWN "there is no filter named 'unknown'"
    static const struct {
        const char *source;
        const char *wanted;
    } rows[] = {
        { "{{ f }} {{ g }} {{ [f] }}", "1 1.5 [1]" },
        { "{{ -n ** 2 }} {{ -2 ** n }}", "4 4" },
        { "{% for i in [1] %}{{ n }}{% endfor %}{% set n = 3 %}{{ n }}", "23" },
        { "{% macro m() %}{{ n }}{% endmacro %}{{ m() }}{% set n = 3 %}"
          "{{ m() }}",
          "23" },
        { "{{ range }}{{ cycler }}",
          "<builtin_function_or_method object><builtin_function_or_method "
          "object>" },
        { "{{ [1]|map('string') }}{{ cycler(1) }}{{ joiner() }}",
          "<generator object><Cycler object><Joiner object>" },
        { "{{ '\xD9\xA1'|int(7) }} {{ '\xD9\xA1.5'|float(7) }}", "7 7" },
        { "{{ '\xE5\x9B\x9B'.isnumeric() }} {{ '\xE2\x85\xA7'.isupper() }} "
          "{{ '\xE2\x85\xB7'.islower() }}",
          "False False False" },
        { "{{ ('%s'|safe) % '<' }}{{ ('{}'|safe).format('<') }}"
          "{{ ('-'|safe).join(['<']) }}{{ ('a'|safe).replace('a', '<') }}",
          "<<<<" },
        { "{% if n|unknown %}{% endif %}", "rows.jsonl:7: mine:1: " UNKNOWN },
        { "{% if n %}{{ n|unknown }}{% endif %}",
          "rows.jsonl:7: mine:1: " UNKNOWN },
        { "{% if not n %}{{ n|unknown }}{{ n is unknown }}{% endif %}ok",
          "ok" },
        { "{{ n|unknown if not n }}", "mine:1: " UNKNOWN },
        { "{{ n|unknown }}", "mine:1: " UNKNOWN },
        { "{{ n is unknown }}", "mine:1: there is no test named 'unknown'" },
        { "{{ tools is none }} {{ documents is none }} "
          "{{ add_generation_prompt }} {{ bos_token is defined }}",
          "True True False False" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        chat_expect(rows[i].source,
                    "{\"messages\":[],\"f\":1.0,\"g\":1.5,\"n\":2}", 0,
                    rows[i].wanted);
}

/* A source as large as the limit is still accepted. */
static void source_of_exactly_the_limit_compiles(void **state)
{
    (void)state;
    xr_str source = { 0 };
    xm_chat *chat = NULL;
    xr_err err = { 0 };
    for (size_t i = 0; i < (1 << 20) / 16; i++)
        xr_str_puts(&source, "0123456789abcdef");
    assert_int_equal(
        xm_chat_compile(source.data, source.size, "t", &err, &chat), 0);
    xm_chat_close(chat);
    xr_str_puts(&source, "x");
    assert_int_equal(
        xm_chat_compile(source.data, source.size, "t", &err, &chat),
        XRAY_E_CONFIG);
    assert_string_equal(err.text,
                        "t: the chat template has more than 1048576 bytes");
    xr_str_free(&source);
}

static void last_text_part_is_continued(void **state)
{
    (void)state;
    static const char source[] =
        "{% for m in messages %}<{% for p in m.content %}{{ p.text }}"
        "{% endfor %}>{% endfor %}";
    chat_expect(
        source,
        "{\"messages\":[{\"content\":[{\"text\":\"a\"},{\"text\":\"b\"},"
        "{\"image\":1},3]}]}",
        1, "<ab");
    static const char *const without[] = {
        "{\"messages\":[{\"content\":[{\"text\":3}]}]}", "{\"messages\":[]}",
        "{\"messages\":[{\"content\":3}]}"
    };
    for (size_t i = 0; i < 3; i++)
        chat_expect(source, without[i], 1,
                    "rows.jsonl:7: mine: continue_final_message: the last "
                    "message has no text content to continue");
    cJSON *messages = cJSON_CreateArray();
    xm_chat_call call = { .messages = messages,
                          .add_generation_prompt = 1,
                          .continue_final_message = 1 };
    xm_chat *chat;
    xm_chat_text text = { 0 };
    xr_err err = { 0 };
    assert_int_equal(xm_chat_compile("x", 1, "t", &err, &chat), 0);
    assert_int_equal(xm_chat_render(chat, &call, "r:1", &err, &text),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "r:1: t: continue_final_message cannot be "
                                  "combined with add_generation_prompt");
    xm_chat_close(chat);
    xm_chat_text_free(&text);
    cJSON_Delete(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goldens_render_like_transformers),
        cmocka_unit_test(last_message_is_continued_or_refused),
        cmocka_unit_test(span_ends_with_the_text),
        cmocka_unit_test(inner_spans_begin_with_the_outermost_block),
        cmocka_unit_test(reasoning_has_both_of_its_names),
        cmocka_unit_test(days_and_months_have_their_names),
        cmocka_unit_test(errors_name_row_template_and_line),
        cmocka_unit_test(differences_are_the_documented_ones),
        cmocka_unit_test(source_of_exactly_the_limit_compiles),
        cmocka_unit_test(last_text_part_is_continued),
        cmocka_unit_test(threads_render_the_same_text),
        cmocka_unit_test(mutated_templates_end_with_text_or_error)
    };
    return cmocka_run_group_tests_name("text.chat_goldens", tests, NULL, NULL);
}
