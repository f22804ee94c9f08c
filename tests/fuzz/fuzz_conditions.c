/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes conditions on rows, and templates around them. The lines up to the
 * first NUL are conditions, and each is also a template; the lines after it are
 * rows, of which those that meet all conditions are kept.
 */
#include "core/data/filter.h"
#include "core/data/template.h"
#include "tests/fuzz/fuzz.h"

#define MOST 16u

static size_t cut_lines(char *text, const char *lines[MOST])
{
    size_t count = 0;
    while (*text && count < MOST) {
        lines[count++] = text;
        text += strcspn(text, "\n");
        if (*text)
            *text++ = '\0';
    }
    return count;
}

static void fill_template(const char *text, const cJSON *row)
{
    static const xr_alias alias = { "prompt", "question" };
    xr_err err = { "" };
    xr_template template;
    xr_str out = { 0 };
    if (xr_template_parse(text, "template", &err, &template)) {
        fuzz_said(&err);
        return;
    }
    if (xr_template_fill(&template, alias, row, "rows:1", &err, &out))
        fuzz_said(&err);
    else
        fuzz_saw("filled", xr_str_text(&out), out.size);
    xr_template_free(&template);
    xr_str_free(&out);
}

static void write_members(const cJSON *row)
{
    const cJSON *member;
    cJSON_ArrayForEach(member, row)
    {
        xr_err err = { "" };
        xr_str out = { 0 };
        if (xr_value_text(member, member->string, "rows:1", &err, &out))
            fuzz_said(&err);
        else
            fuzz_saw("text", xr_str_text(&out), out.size);
        xr_str_clear(&out);
        err.text[0] = '\0';
        if (xr_truth_text(member, member->string, "rows:1", &err, &out))
            fuzz_said(&err);
        else
            fuzz_saw("truth", xr_str_text(&out), out.size);
        xr_str_free(&out);
    }
}

static void read_row(const xr_filter *filter, const char *line,
                     const char *const conditions[], size_t count)
{
    xr_err err = { "" };
    cJSON *row = NULL;
    int keep = 0;
    if (xr_json_line(line, strlen(line), "rows:1", &err, &row)) {
        fuzz_said(&err);
        return;
    }
    if (filter) {
        if (xr_filter_row(filter, row, "rows:1", &err, &keep))
            fuzz_said(&err);
        else
            fuzz_saw_i64("keep", keep);
    }
    for (size_t i = 0; i < count; i++)
        fill_template(conditions[i], row);
    write_members(row);
    cJSON_Delete(row);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_two two = fuzz_split(data, size);
    char *first = fuzz_text(two.first, two.first_size);
    char *second = fuzz_text(two.second, two.second_size);
    const char *conditions[MOST];
    const char *rows[MOST];
    size_t count = cut_lines(first, conditions);
    size_t row_count = cut_lines(second, rows);
    const xray_list list = { .items = conditions, .count = (uint32_t)count };
    xr_err err = { "" };
    xr_filter *filter = NULL;
    if (xr_filter_parse(&list, &err, &filter))
        fuzz_said(&err);
    for (size_t i = 0; i < row_count; i++)
        read_row(filter, rows[i], conditions, count);
    xr_filter_free(filter);
    free(first);
    free(second);
    return 0;
}
