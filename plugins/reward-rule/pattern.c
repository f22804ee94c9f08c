/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches text with PCRE2 and bounds the work of a search by a count of
 * steps.
 */
#include "plugins/reward-rule/pattern.h"

#include <stdlib.h>

#include "core/base/str.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct rule_pattern {
    pcre2_code *code; /* for valid UTF-8 */
    pcre2_code *any; /* for any bytes: each match checks the rest of the text */
    pcre2_match_data *data;
    pcre2_match_context *context;
    uint32_t group; /* 1, or 0: the entire match */
    size_t steps;   /* steps that are left for this search */
    size_t at;      /* offset in the text at which the last item was tried */
};

/* Returns 0 if there are not enough steps left. */
static int take_steps(rule_pattern *pattern, size_t count)
{
    int enough = pattern->steps >= count;
    pattern->steps = enough ? pattern->steps - count : 0;
    return enough;
}

/* PCRE2 calls this before every item of the pattern that it tries. One item may
 * pass over much text, as `a*` does, and do so again from every position.
 * PCRE2's own limit restarts at every position of the text, so it cannot bound
 * a search. */
static int count_steps(pcre2_callout_block *block, void *ptr)
{
    rule_pattern *pattern = ptr;
    size_t now = block->current_position;
    size_t over = now > pattern->at ? now - pattern->at : 0;
    pattern->at = now;
    return take_steps(pattern, 1 + over / RULE_PATTERN_STEP_BYTES)
               ? 0
               : PCRE2_ERROR_CALLOUT;
}

static int is_valid_utf8(rule_text text)
{
    const char *end = text.data + text.size;
    uint32_t c;
    int size = 1;
    for (const char *at = text.data; at < end && size; at += size)
        size = xr_utf8_decode(at, end, &c);
    return size != 0;
}

static xray_status report_bad_pattern(int code, size_t offset, xr_err *err)
{
    PCRE2_UCHAR8 text[256];
    if (pcre2_get_error_message(code, text, sizeof(text)) < 0)
        text[0] = '\0';
    return xr_fail_key(err, XRAY_E_CONFIG, NULL, "pattern",
                       ": at offset %zu: %s", offset, (const char *)text);
}

xray_status rule_pattern_new(const char *text, int no_group, xr_err *err,
                             rule_pattern **out)
{
    rule_pattern *pattern = calloc(1, sizeof(*pattern));
    if (!pattern)
        return xr_fail_key(err, XRAY_E_NOMEM, NULL, "pattern",
                           ": out of memory");
    int code = 0;
    PCRE2_SIZE offset = 0;
    uint32_t flags = PCRE2_UTF | PCRE2_AUTO_CALLOUT | PCRE2_NEVER_BACKSLASH_C;
    pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                  flags, &code, &offset, NULL);
    if (pattern->code)
        pattern->any = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                     flags | PCRE2_MATCH_INVALID_UTF, &code,
                                     &offset, NULL);
    if (!pattern->any) {
        rule_pattern_free(pattern);
        if (code == PCRE2_ERROR_HEAP_FAILED)
            return xr_fail_key(err, XRAY_E_NOMEM, NULL, "pattern",
                               ": out of memory");
        return report_bad_pattern(code, offset, err);
    }
    pattern->data = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (!pattern->data || !pattern->context) {
        rule_pattern_free(pattern);
        return xr_fail_key(err, XRAY_E_NOMEM, NULL, "pattern",
                           ": out of memory");
    }
    uint32_t groups = 0;
    (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    pattern->group = !no_group && groups > 0;
    pcre2_set_callout(pattern->context, count_steps, pattern);
    pcre2_set_match_limit(pattern->context, RULE_PATTERN_STEPS);
    pcre2_set_heap_limit(pattern->context, 64 * 1024); /* KiB */
    *out = pattern;
    return XRAY_OK;
}

void rule_pattern_free(rule_pattern *pattern)
{
    if (!pattern)
        return;
    pcre2_match_context_free(pattern->context);
    pcre2_match_data_free(pattern->data);
    pcre2_code_free(pattern->code);
    pcre2_code_free(pattern->any);
    free(pattern);
}

/* Returns the offset at which the search continues: past the match, and at
 * least one character after its start. */
static size_t find_next_start(rule_text text, size_t start, size_t end)
{
    if (end > start)
        return end;
    start++;
    while (start < text.size && (text.data[start] & 0xC0) == 0x80)
        start++;
    return start;
}

/* Searches from `start` on and returns the result of pcre2_match. */
static int match_from(rule_pattern *pattern, rule_text text, int valid,
                      size_t start)
{
    pattern->at = start;
    if (!valid &&
        !take_steps(pattern, (text.size - start) / RULE_PATTERN_STEP_BYTES))
        return PCRE2_ERROR_CALLOUT;
    return pcre2_match(
        valid ? pattern->code : pattern->any, (PCRE2_SPTR)text.data, text.size,
        start, valid ? PCRE2_NO_UTF_CHECK : 0, pattern->data, pattern->context);
}

rule_text rule_pattern_find(rule_pattern *pattern, rule_text text, int last,
                            int *out_exhausted)
{
    rule_text found = { NULL, 0 };
    const size_t *at = pcre2_get_ovector_pointer(pattern->data);
    size_t start = 0;
    int code = 0;
    int valid = is_valid_utf8(text);
    pattern->steps = RULE_PATTERN_STEPS;
    while (start <= text.size) {
        code = match_from(pattern, text, valid, start);
        if (code < 0)
            break;
        uint32_t g = pattern->group;
        found = (rule_text){ NULL, 0 };
        if ((uint32_t)code > g && at[2 * g] != PCRE2_UNSET &&
            at[2 * g] <= at[2 * g + 1])
            found =
                (rule_text){ text.data + at[2 * g], at[2 * g + 1] - at[2 * g] };
        if (!last)
            break;
        start = find_next_start(text, start, at[1]);
    }
    *out_exhausted = code < 0 && code != PCRE2_ERROR_NOMATCH;
    return *out_exhausted ? (rule_text){ NULL, 0 } : found;
}
