/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the text that a judge is asked of a template, and finds the score in
 * its answer by a pattern or as a member of a JSON object.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "plugins/reward-http/http.h"

#define TEMPLATE_CAP ((size_t)1 << 20)
#define NAME_CAP 256u
#define STEPS 1000000u /* most steps of one search */
#define QUOTE 160      /* bytes of a judge's words in a message */

struct http_judge {
    char *template;
    pcre2_code *code; /* or NULL */
    pcre2_match_context *context;
    const char *score_path;
};

void http_judge_close(http_judge *judge)
{
    if (!judge)
        return;
    free(judge->template);
    pcre2_code_free(judge->code);
    pcre2_match_context_free(judge->context);
    free(judge);
}

/* ---- the settings ------------------------------------------------------- */

static xray_status compile_pattern(const char *pattern, xr_err *err,
                                   http_judge *judge)
{
    PCRE2_UCHAR reason[160];
    int error = 0;
    size_t at = 0;
    judge->context = pcre2_match_context_create(NULL);
    if (!judge->context)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    (void)pcre2_set_match_limit(judge->context, STEPS);
    judge->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                                PCRE2_UTF, &error, &at, NULL);
    if (judge->code)
        return XRAY_OK;
    (void)pcre2_get_error_message(error, reason, sizeof(reason));
    return xr_fail_key(err, XRAY_E_CONFIG, NULL, "pattern", ": %s at %zu",
                       (const char *)reason, at + 1);
}

/* The template must show the response, or every sample would have one score. */
static xray_status read_template(const char *path, xr_err *err,
                                 http_judge *judge)
{
    size_t size = 0;
    xray_status status =
        xr_file_read(path, TEMPLATE_CAP, err, &judge->template, &size);
    if (status != XRAY_OK)
        return xr_fail_in(err, XRAY_E_CONFIG, "template_file");
    if (strlen(judge->template) != size)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "template_file",
                           " = %s has a NUL byte, expected text", path);
    if (!strstr(judge->template, "{response}"))
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "template_file",
                           " = %s: expected {response} in it", path);
    return XRAY_OK;
}

xray_status http_judge_open(const http_config *config, xr_err *err,
                            http_judge **out)
{
    if (!*config->pattern == !*config->score_path)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "pattern",
                           ": expected either pattern or score_path, because "
                           "protocol = chat");
    http_judge *judge = xr_calloc(1, sizeof(*judge));
    if (!judge)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    judge->score_path = config->score_path;
    xray_status status = read_template(config->template_file, err, judge);
    if (status == XRAY_OK && *config->pattern)
        status = compile_pattern(config->pattern, err, judge);
    if (status != XRAY_OK) {
        http_judge_close(judge);
        return status;
    }
    *out = judge;
    return XRAY_OK;
}

/* ---- the question ------------------------------------------------------- */

/* Returns the length of "{name}" at `text`, whose name is that of a part or a
 * field, or 0: other braces are text. */
static size_t read_name(const char *text, char *name)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "abcdefghijklmnopqrstuvwxyz_";
    static const char others[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 "abcdefghijklmnopqrstuvwxyz_0123456789.";
    size_t size = strspn(text + 1, others);
    if (!size || size >= NAME_CAP || !strchr(letters, text[1]) ||
        text[1 + size] != '}')
        return 0;
    memcpy(name, text + 1, size);
    name[size] = '\0';
    return size + 2;
}

static xray_status put_part(const cJSON *sample, const char *name, xr_err *err,
                            xr_str *out)
{
    const cJSON *part = xr_scores_part(sample, name);
    if (!part)
        return xr_fail(err, XRAY_E_IO,
                       "the data row has no field %s, which the template names",
                       name);
    if (cJSON_IsString(part)) {
        xr_str_puts(out, part->valuestring);
        return XRAY_OK;
    }
    char *text = cJSON_PrintUnformatted(part);
    out->failed = out->failed || !text;
    xr_str_puts(out, text ? text : "");
    cJSON_free(text);
    return XRAY_OK;
}

xray_status http_judge_ask(const http_judge *judge, const cJSON *sample,
                           xr_err *err, xr_str *out)
{
    char name[NAME_CAP];
    const char *at = judge->template;
    while (*at) {
        size_t plain = strcspn(at, "{");
        xr_str_append(out, at, plain);
        at += plain;
        if (!*at)
            break;
        size_t size = read_name(at, name);
        if (!size) {
            xr_str_append(out, at++, 1);
            continue;
        }
        xray_status status = put_part(sample, name, err, out);
        if (status != XRAY_OK)
            return status;
        at += size;
    }
    return XRAY_OK;
}

/* ---- the answer --------------------------------------------------------- */

static xray_status tell_words(const char *words, const char *lack, xr_err *err)
{
    return xr_fail(err, XRAY_E_IO, "the judge's answer %s: \"%.*s%s\"", lack,
                   QUOTE, words, strlen(words) > QUOTE ? "..." : "");
}

/* Reads a number with white space around it. */
static int read_number(const char *text, size_t size, double *out)
{
    char number[64];
    while (size && strchr(" \t\r\n", *text)) {
        text++;
        size--;
    }
    while (size && strchr(" \t\r\n", text[size - 1]))
        size--;
    if (!size || size >= sizeof(number))
        return -1;
    memcpy(number, text, size);
    number[size] = '\0';
    return xr_parse_real(number, out);
}

/* Finds the last match; a judge thinks first and decides at the end. */
static xray_status search_pattern(const http_judge *judge, const char *words,
                                  xr_err *err, double *out)
{
    size_t size = strlen(words);
    size_t from = 0;
    size_t begin = 0;
    size_t end = 0;
    int found = 0;
    pcre2_match_data *data =
        pcre2_match_data_create_from_pattern(judge->code, NULL);
    if (!data)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    const size_t *at = pcre2_get_ovector_pointer(data);
    int count;
    while ((count = pcre2_match(judge->code, (PCRE2_SPTR)words, size, from,
                                PCRE2_NOTEMPTY, data, judge->context)) > 0) {
        int group = count > 1 && at[2] != PCRE2_UNSET;
        begin = at[2 * group];
        end = at[2 * group + 1];
        found = 1;
        if (at[1] <= from)
            break; /* \K may end a match before it began */
        from = at[1];
    }
    pcre2_match_data_free(data);
    if (count < 0 && count != PCRE2_ERROR_NOMATCH)
        return tell_words(words, "could not be searched for the pattern", err);
    if (!found || begin > end)
        return tell_words(words, "has no match of the pattern", err);
    if (read_number(words + begin, end - begin, out))
        return tell_words(words, "has a match of the pattern that is no number",
                          err);
    return XRAY_OK;
}

/* Finds the member of the object between the first and the last brace: judges
 * put it between words or marks of code. */
static xray_status search_object(const http_judge *judge, const char *words,
                                 xr_err *err, double *out)
{
    const char *begin = strchr(words, '{');
    const char *end = strrchr(words, '}');
    cJSON *object = NULL;
    if (!begin || !end || end < begin ||
        xr_json_parse(begin, (size_t)(end - begin) + 1, "", NULL, &object) !=
            XRAY_OK)
        return tell_words(words, "has no JSON object", err);
    const cJSON *score = xr_json_path(object, judge->score_path);
    int bad = 0;
    if (cJSON_IsNumber(score))
        *out = score->valuedouble;
    else
        bad = !cJSON_IsString(score) ||
              read_number(score->valuestring, strlen(score->valuestring), out);
    cJSON_Delete(object);
    if (!bad)
        return XRAY_OK;
    char lack[NAME_CAP];
    (void)snprintf(lack, sizeof(lack), "has no number as its %.160s",
                   judge->score_path);
    return tell_words(words, lack, err);
}

xray_status http_judge_score(const http_judge *judge, const char *words,
                             xr_err *err, double *out)
{
    return judge->code ? search_pattern(judge, words, err, out)
                       : search_object(judge, words, err, out);
}
