/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the conditions of [data] filters and applies them to rows.
 */
#include "core/data/filter.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/data/template.h"

enum { EQUAL, NOT_EQUAL, BELOW, AT_MOST, ABOVE, AT_LEAST, CONTAINS };

typedef struct condition {
    char *key;
    char *value;
    int op;
    int is_number;
    double number;
} condition;

struct xr_filter {
    size_t count;
    condition conditions[];
};

static int match_operator(const char *text, size_t *out_size)
{
    static const struct {
        const char *text;
        int op;
    } ops[] = { { "!=", NOT_EQUAL }, { "<=", AT_MOST }, { ">=", AT_LEAST },
                { "==", EQUAL },     { "=", EQUAL },    { "<", BELOW },
                { ">", ABOVE },      { "~", CONTAINS } };
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        *out_size = strlen(ops[i].text);
        if (strncmp(text, ops[i].text, *out_size) == 0)
            return ops[i].op;
    }
    return -1;
}

/* Copies a text without the blanks around it. */
static char *copy_trimmed(const char *from, const char *to)
{
    while (from < to && (*from == ' ' || *from == '\t'))
        from++;
    while (to > from && (to[-1] == ' ' || to[-1] == '\t'))
        to--;
    return xr_strndup(from, (size_t)(to - from));
}

static xray_status parse_value(condition *c, const char *from, xr_err *err)
{
    c->value = copy_trimmed(from, from + strlen(from));
    if (!c->value)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    size_t size = strlen(c->value);
    if (size >= 2 && c->value[0] == '"' && c->value[size - 1] == '"') {
        memmove(c->value, c->value + 1, size - 2);
        c->value[size - 2] = '\0';
        return XRAY_OK;
    }
    c->is_number = xr_parse_real(c->value, &c->number) == 0;
    return XRAY_OK;
}

static xray_status parse_condition(const char *text, condition *c, xr_err *err)
{
    size_t size = 0;
    const char *at = text;
    c->op = -1;
    while (*at && (c->op = match_operator(at, &size)) < 0)
        at++;
    c->key = copy_trimmed(text, at);
    if (!c->key)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    /* Operators of other languages, as in "level => 3" or "name !~ x", are not
     * read as one of ours and a part of the text beside it. */
    if (c->op < 0 || !*c->key || c->key[strlen(c->key) - 1] == '!' ||
        (at[size] && strchr("=<>!~", at[size])))
        return xr_fail_key(err, XRAY_E_CONFIG, "data", "filters",
                           ": '%s' is not a condition; expected 'key op value' "
                           "with =, !=, <, <=, >, >= or ~",
                           text);
    xray_status status = parse_value(c, at + size, err);
    if (status == XRAY_OK && c->op >= BELOW && c->op <= AT_LEAST &&
        !c->is_number)
        return xr_fail_key(
            err, XRAY_E_CONFIG, "data", "filters",
            ": '%s' is an order comparison, so its value must be a number",
            text);
    return status;
}

xray_status xr_filter_parse(const xray_list *conditions, xr_err *err,
                            xr_filter **out)
{
    xr_filter *filter = xr_calloc(
        1, sizeof *filter + (size_t)conditions->count * sizeof(condition));
    if (!filter)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    xray_status status = XRAY_OK;
    for (uint64_t i = 0; i < conditions->count && status == XRAY_OK; i++)
        status = parse_condition(conditions->items[i],
                                 &filter->conditions[filter->count++], err);
    if (status != XRAY_OK) {
        xr_filter_free(filter);
        return status;
    }
    *out = filter;
    return XRAY_OK;
}

void xr_filter_free(xr_filter *filter)
{
    if (!filter)
        return;
    for (size_t i = 0; i < filter->count; i++) {
        free(filter->conditions[i].key);
        free(filter->conditions[i].value);
    }
    free(filter);
}

/* Returns the member that a key names, either literally or with its dots as
 * steps into objects. */
static const cJSON *find_member(const cJSON *row, const char *key)
{
    const cJSON *found = xr_json_get(row, key);
    char part[256];
    while (!found && cJSON_IsObject(row)) {
        const char *dot = strchr(key, '.');
        if (!dot || (size_t)(dot - key) >= sizeof part)
            return NULL;
        memcpy(part, key, (size_t)(dot - key));
        part[dot - key] = '\0';
        row = xr_json_get(row, part);
        key = dot + 1;
        found = row ? xr_json_get(row, key) : NULL;
    }
    return found;
}

static int compare_numbers(int op, double a, double b)
{
    switch (op) {
    case BELOW:
        return a < b;
    case AT_MOST:
        return a <= b;
    case ABOVE:
        return a > b;
    case AT_LEAST:
        return a >= b;
    case EQUAL:
        return a == b;
    default:
        return a != b;
    }
}

static xray_status compare_texts(const condition *c, const cJSON *value,
                                 const char *where, xr_err *err, int *out)
{
    xr_str text = { 0 };
    xray_status status = xr_value_text(value, c->key, where, err, &text);
    const char *found = xr_str_text(&text);
    if (c->op == CONTAINS)
        *out = strstr(found, c->value) != NULL;
    else
        *out = (strcmp(found, c->value) == 0) == (c->op == EQUAL);
    xr_str_free(&text);
    return status;
}

static xray_status meets_condition(const condition *c, const cJSON *row,
                                   const char *where, xr_err *err, int *out)
{
    const cJSON *value = find_member(row, c->key);
    *out = c->op == NOT_EQUAL;
    if (!value)
        return XRAY_OK;
    double number = 0;
    int numeric = c->is_number && c->op != CONTAINS;
    if (numeric && cJSON_IsNumber(value))
        number = value->valuedouble;
    else if (numeric && cJSON_IsString(value))
        numeric = xr_parse_real(value->valuestring, &number) == 0;
    else
        numeric = 0;
    if (numeric) {
        *out = compare_numbers(c->op, number, c->number);
        return XRAY_OK;
    }
    if (c->op >= BELOW && c->op <= AT_LEAST)
        return xr_fail(
            err, XRAY_E_CONFIG,
            "%s: [data] filters compare '%s' with %s, but it is not a number",
            where, c->key, c->value);
    return compare_texts(c, value, where, err, out);
}

xray_status xr_filter_row(const xr_filter *filter, const cJSON *row,
                          const char *where, xr_err *err, int *out_keep)
{
    *out_keep = 1;
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < filter->count && *out_keep && status == XRAY_OK; i++)
        status =
            meets_condition(&filter->conditions[i], row, where, err, out_keep);
    return status;
}
