/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of templates (chat.h): what is just within one is rendered, and
 * what is just beyond it is an error that names it. The work of each operation
 * grows with the bytes that it reads.
 */
#include "core/base/str.h"
#include "model/chat/chat_internal.h"
#include "tests/testing.h"

/* ---- work ---------------------------------------------------------------- */

/* Executes a source after `before` steps; returns the steps that were made, or
 * 0 with a message. */
static uint64_t count_steps(const char *source, uint64_t before, xr_err *err)
{
    xm_chat *chat = NULL;
    *err = (xr_err){ "" };
    if (xm_chat_compile(source, strlen(source), "t", err, &chat))
        fail_msg("%s", err->text);
    const xm_jtemplate *tmpl = &chat->named[0].tmpl;
    xm_jarena arena = { .limit = XM_CHAT_MAX_MEMORY };
    xm_chat_text out = { 0 };
    xm_jinterp interp = {
        .arena = &arena, .tmpl = tmpl, .out = &out, .steps = before
    };
    interp.globals =
        xm_jalloc(&interp, tmpl->name_count, sizeof *interp.globals);
    assert_non_null(interp.globals);
    for (size_t i = 0; i < tmpl->name_count; i++)
        interp.globals[i] = xm_jfind_function(tmpl->names[i]);
    int status = xm_jexec(&interp, tmpl->body);
    if (status < 0)
        (void)snprintf(err->text, sizeof err->text, "%s", interp.text);
    xm_jarena_free(&arena);
    xm_chat_text_free(&out);
    xm_chat_close(chat);
    return status < 0 ? 0 : interp.steps - before;
}

/* An operation on the texts a and c, which are equal, and the steps that 64
 * more bytes of them take, where they are ASCII and where they are not. */
static const struct {
    const char *operation;
    uint64_t steps[2];
} works[] = {
    { "{{ a }}", { 1, 1 } },
    { "{% set b = a[1:] %}", { 1, 1 } },
    { "{% set b = a[:5] %}", { 1, 1 } },
    { "{% set b = a[::2] %}", { 17, 9 } },
    { "{% set b = a[5] %}", { 0, 1 } },
    { "{% set b = a + 'b' %}", { 1, 1 } },
    { "{% set b = a ~ 'b' %}", { 4, 4 } },
    { "{% set b = a * 2 %}", { 4, 4 } },
    { "{% set b = a == c %}", { 1, 1 } },
    { "{% set b = a < c %}", { 1, 1 } },
    { "{% set b = a in [c] %}", { 1, 1 } },
    { "{% set b = 'y' in a %}", { 1, 1 } },
    { "{% set b = a.find('y') %}", { 1, 2 } },
    { "{% set b = a.rfind('y') %}", { 4, 5 } },
    { "{% set b = a.startswith('x') %}", { 0, 1 } },
    { "{% set b = a.count('y') %}", { 1, 2 } },
    { "{% set b = a.replace('y', 'z') %}", { 3, 3 } },
    { "{% set b = a.split('y') %}", { 2, 2 } },
    { "{% set b = a.rsplit('y', 1) %}", { 5, 5 } },
    { "{% set b = a.partition('y') %}", { 2, 2 } },
    { "{% set b = a.split() %}", { 1, 1 } },
    { "{% set b = a.splitlines() %}", { 8, 8 } },
    { "{% set b = a.strip() %}", { 0, 0 } },
    { "{% set b = a.strip('x') %}", { 8, 0 } },
    { "{% set b = a.upper() %}", { 34, 34 } },
    { "{% set b = a|title %}", { 34, 34 } },
    { "{% set b = a.isdigit() %}", { 8, 8 } },
    { "{% set b = a is lower %}", { 8, 8 } },
    { "{% set b = a.zfill(5) %}", { 2, 2 } },
    { "{% set b = a.join(['1', '2']) %}", { 2, 2 } },
    { "{% set b = a|length %}", { 0, 0 } },
    { "{% set b = a|list %}", { 16, 8 } },
    { "{% set b = a|reverse %}", { 17, 9 } },
    { "{% set b = a|tojson %}", { 10, 10 } },
    { "{% set b = a|escape %}", { 10, 10 } },
    { "{% set b = a|indent %}", { 13, 13 } },
    { "{% set b = a|wordcount %}", { 8, 8 } },
    { "{% set b = [a]|join %}", { 4, 4 } },
    { "{% set b = [a]|string %}", { 10, 10 } },
    { "{% set b = {a: 1} %}", { 8, 8 } },
    { "{% set b = '%s' % a %}", { 2, 2 } },
    { "{% set b = '{}'.format(a) %}", { 4, 4 } },
    { "{% set b = a.format() %}", { 6, 6 } },
    { "{% set b %}{{ a }}{% endset %}", { 3, 3 } },
    { "{% set b = strftime_now(a) %}", { 66, 66 } },
    { "{% set b = ('{0[' + a + ']}').format(1) %}", { 14, 14 } },
    { "{% set b = a|list + [] %}", { 24, 12 } },
    { "{% set b = a|list * 2 %}", { 32, 16 } },
    { "{% set b = (a|list)[1:] %}", { 24, 12 } },
    /* A needle of 640 bytes that is all but found at every character. */
    { "{% set b = a.find('x' * 640 ~ 'y') %}", { 641, 2 } },
    { "{% set b = a.find('\xC3\xA9' * 320 ~ 'y') %}", { 1, 322 } },
    { "{% set b = a.rfind('x' * 640 ~ 'y') %}", { 644, 645 } },
    /* Parts that are found, one of every byte of x. */
    { "{% set b = a.count('x') %}", { 64, 2 } },
    { "{% set b = a.split('x') %}", { 64, 2 } },
    { "{% set b = a.replace('x', 'z') %}", { 66, 3 } },
    { "{% for x in a %}{% endfor %}", { 144, 72 } },
};

/* Texts of `size` bytes, and the operation if there is one. */
static void write_work(const char *operation, int ascii, size_t size,
                       char out[256])
{
    const char *text = ascii ? "x" : "\xC3\xA9";
    const size_t count = size / strlen(text);
    (void)snprintf(out, 256,
                   "{%% set a = '%s' * %zu %%}{%% set c = '%s' * %zu %%}%s",
                   text, count, text, count, operation);
}

static uint64_t count_work(const char *operation, int ascii, size_t size)
{
    char source[256];
    xr_err err;
    write_work("", ascii, size, source);
    uint64_t before = count_steps(source, 0, &err);
    write_work(operation, ascii, size, source);
    uint64_t steps = count_steps(source, 0, &err);
    if (!steps)
        fail_msg("%s: %s", operation, err.text);
    return steps - before;
}

static void work_grows_with_the_bytes_that_are_read(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < 2 * (sizeof works / sizeof works[0]); i++) {
        const char *operation = works[i / 2].operation;
        uint64_t less = count_work(operation, i % 2 == 0, 4096);
        uint64_t more = count_work(operation, i % 2 == 0, 8192);
        double steps = ((double)more - (double)less) / 64;
        if (steps == (double)works[i / 2].steps[i % 2])
            continue;
        bad++;
        print_error("%s: %g steps for 64 bytes, not %d\n", operation, steps,
                    (int)works[i / 2].steps[i % 2]);
    }
    assert_int_equal(bad, 0);
}

static void the_last_step_is_still_made(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
        char source[256];
        xr_err err;
        write_work(works[i].operation, 1, 4096, source);
        uint64_t steps = count_steps(source, 0, &err);
        if (count_steps(source, XM_CHAT_MAX_STEPS - steps, &err) != steps)
            fail_msg("%s: %s", works[i].operation, err.text);
        (void)count_steps(source, XM_CHAT_MAX_STEPS - steps + 1, &err);
        if (strcmp(err.text, "the template takes more than 20000000 steps"))
            fail_msg("%s: [%s]", works[i].operation, err.text);
    }
}

/* ---- other limits -------------------------------------------------------- */

/* A template: `before`, `most` times `open`, `inner`, as often `close`, and
 * `after`. A '#' is the number of times, or in `open` how many precede it. */
typedef struct limit {
    const char *before;
    const char *open;
    const char *inner;
    const char *close;
    const char *after;
    size_t most;
    const char *beyond; /* part of the message beyond it */
} limit;

static void add_counted(const char *text, size_t count, xr_str *out)
{
    for (; text && *text; text++)
        if (*text == '#')
            xr_str_printf(out, "%zu", count);
        else
            xr_str_append(out, text, 1);
}

static void render_limit(const limit *row, size_t count, xr_err *err)
{
    xr_str source = { 0 };
    xm_chat_text out = { 0 };
    xm_chat *chat = NULL;
    cJSON *none = cJSON_CreateArray();
    const xm_chat_call call = { .messages = none };
    *err = (xr_err){ "" };
    add_counted(row->before, count, &source);
    for (size_t i = 0; row->open && i < count; i++)
        add_counted(row->open, i, &source);
    add_counted(row->inner, count, &source);
    for (size_t i = 0; row->close && i < count; i++)
        xr_str_puts(&source, row->close);
    add_counted(row->after, count, &source);
    if (!xm_chat_compile(source.data, source.size, "t", err, &chat))
        (void)xm_chat_render(chat, &call, NULL, err, &out);
    xm_chat_text_free(&out);
    xm_chat_close(chat);
    cJSON_Delete(none);
    xr_str_free(&source);
}

static void check_limits(const limit *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        xr_err err;
        render_limit(&rows[i], rows[i].most, &err);
        if (err.text[0] && !strstr(err.text, "undefined"))
            fail_msg("%zu times %s%s: %s", rows[i].most, rows[i].before,
                     rows[i].open ? rows[i].open : "", err.text);
        render_limit(&rows[i], rows[i].most + 1, &err);
        if (!strstr(err.text, rows[i].beyond))
            fail_msg("%zu times %s%s: [%s]", rows[i].most + 1, rows[i].before,
                     rows[i].open ? rows[i].open : "", err.text);
    }
}
#define CHECK(rows) check_limits(rows, sizeof(rows) / sizeof((rows)[0]))

/* Brackets and prefixes nest in each other; operators, filters and attributes
 * that follow one another make a tree of twice the height at most. */
static void expressions_and_blocks_nest_to_a_bound(void **state)
{
#define DEEP "an expression is nested too deeply"
    static const limit rows[] = {
        { "{{ ", "(", "1", ")", " }}", 199, DEEP },
        { "{{ ", "[", "1", "]", " }}", 199, DEEP },
        { "{{ ", "{'a':", "1", "}", " }}", 199, DEEP },
        { "{{ ", "f(", "1", ")", " }}", 199, DEEP },
        { "{{ ", "x[", "1", "]", " }}", 199, DEEP },
        { "{{ ", "-", "1", "", " }}", 199, DEEP },
        { "{{ ", "1 if x else ", "1", "", " }}", 199, DEEP },
        { "{{ ", "not ", "1", "", " }}", 398, DEEP },
        { "{{ x", ".a", "", "", " }}", 398, DEEP },
        { "{{ x", "[0]", "", "", " }}", 398, DEEP },
        { "{{ x", "()", "", "", " }}", 398, DEEP },
        { "{{ 1", "|e", "", "", " }}", 398, DEEP },
        { "{{ 1", "+1", "", "", " }}", 398, DEEP },
        { "{{ 1", "*1", "", "", " }}", 398, DEEP },
        { "{{ 1", "**1", "", "", " }}", 398, DEEP },
        { "{{ 1", " and 1", "", "", " }}", 398, DEEP },
        { "{{ 0", " or 0", "", "", " }}", 398, DEEP },
        { "{{ 1", " if 1", "", "", " }}", 398, DEEP },
        { "", "{% if 1 %}", "", "{% endif %}", "", 200, DEEP },
        { "", "{% for x in [] %}", "", "{% endfor %}", "", 200, DEEP },
    };
    (void)state;
    CHECK(rows);
}

static void calls_and_values_nest_to_a_bound(void **state)
{
#define CALLS "more than 100 macros call each other"
#define LEVELS "nests more than 1000 levels deep"
#define LIST                                                \
    "{% set ns = namespace(a=[]) %}{% for i in range(#) %}" \
    "{% set ns.a = [ns.a] %}{% endfor %}"
    static const limit rows[] = {
        { .before = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{% endif %}"
                    "{% endmacro %}{{ f(#) }}",
          .most = 99,
          .beyond = CALLS },
        { .before = LIST "{% for x in ns.a recursive %}{{ loop(x) }}"
                         "{% endfor %}",
          .most = 100,
          .beyond = CALLS },
        { .before = LIST "{{ ns.a|tojson }}", .most = 995, .beyond = LEVELS },
        { .before = LIST "{{ ns.a }}", .most = 997, .beyond = LEVELS },
        { .before = LIST "{{ ns.a == ns.a }}", .most = 996, .beyond = LEVELS },
    };
    (void)state;
    CHECK(rows);
}

static void sizes_reach_their_bounds(void **state)
{
#define FORMAT "a width or precision is too large"
#define MEMORY "needs more than 256 MiB of memory"
    static const limit rows[] = {
        /* Besides those that every template has. */
        { "", "{% set a# = 1 %}", "", "", "", 1020, "more than 1024 names" },
        { .before = "{{ range(#)|length }}",
          .most = 100000,
          .beyond = "more than 100000 items" },
        { .before = "{{ range(2 * #, 0, -2)|length }}",
          .most = 100000,
          .beyond = "more than 100000 items" },
        { .before = "{{ '%.#f' % 1.0 }}", .most = 350, .beyond = FORMAT },
        { .before = "{{ '%.*e' % (#, 1.0) }}", .most = 350, .beyond = FORMAT },
        { .before = "{{ '{:.#f}'.format(1.0) }}",
          .most = 350,
          .beyond = "invalid format" },
        { .before = "{{ '%#d' % 1 }}", .most = 100000, .beyond = FORMAT },
        { .before = "{{ '%*d' % (-#, 1) }}", .most = 100000, .beyond = FORMAT },
        { .before = "{{ '{:#}'.format(1) }}",
          .most = 100000,
          .beyond = "invalid format" },
        { .before = "{{ 'xxxxxxxx' * 8388607 }}{{ 'x' * # }}",
          .most = 8,
          .beyond = "writes more than 64 MiB" },
        /* A quarter of the memory. */
        { .before = "{% set a = 'x'.center(#) %}",
          .most = 67108865,
          .beyond = MEMORY },
        { .before = "{% set a = 'x'.zfill(#) %}",
          .most = 67108864,
          .beyond = MEMORY },
        /* All of it but the part for small values. */
        { .before = "{% set a = 'xxxxxxxxxxxxxxxx' * # %}",
          .most = 16776189,
          .beyond = MEMORY },
    };
    (void)state;
    CHECK(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_grows_with_the_bytes_that_are_read),
        cmocka_unit_test(the_last_step_is_still_made),
        cmocka_unit_test(expressions_and_blocks_nest_to_a_bound),
        cmocka_unit_test(calls_and_values_nest_to_a_bound),
        cmocka_unit_test(sizes_reach_their_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
