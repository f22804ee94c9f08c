/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/reward-rule/pattern.h"

#include <stdlib.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct rule_pattern {
    pcre2_code *code;
    pcre2_match_data *data;
    pcre2_match_context *context;
    uint32_t group; /* 1, or 0: the whole match */
    uint32_t steps; /* left for this search */
};

/* Called before every item of the pattern that is tried. PCRE2's own limit
 * starts anew at every position of the text, so it cannot bound a search. */
static int count_step(pcre2_callout_block *block, void *ptr)
{
    rule_pattern *pattern = ptr;
    (void)block;
    if (!pattern->steps)
        return PCRE2_ERROR_CALLOUT;
    pattern->steps--;
    return 0;
}

static xray_status bad_pattern(int code, size_t offset, xr_err *err)
{
    PCRE2_UCHAR8 text[256];
    if (pcre2_get_error_message(code, text, sizeof(text)) < 0)
        text[0] = '\0';
    return xr_fail(err, XRAY_E_CONFIG, "pattern: at offset %zu: %s", offset,
                   (const char *)text);
}

xray_status rule_pattern_new(const char *text, int whole, xr_err *err,
                             rule_pattern **out)
{
    rule_pattern *pattern = calloc(1, sizeof(*pattern));
    if (!pattern)
        return xr_fail(err, XRAY_E_NOMEM, "pattern: out of memory");
    int code = 0;
    PCRE2_SIZE offset = 0;
    uint32_t flags = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_AUTO_CALLOUT |
                     PCRE2_NEVER_BACKSLASH_C;
    pattern->code = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                                  flags, &code, &offset, NULL);
    if (!pattern->code) {
        rule_pattern_free(pattern);
        if (code == PCRE2_ERROR_HEAP_FAILED)
            return xr_fail(err, XRAY_E_NOMEM, "pattern: out of memory");
        return bad_pattern(code, offset, err);
    }
    pattern->data = pcre2_match_data_create_from_pattern(pattern->code, NULL);
    pattern->context = pcre2_match_context_create(NULL);
    if (!pattern->data || !pattern->context) {
        rule_pattern_free(pattern);
        return xr_fail(err, XRAY_E_NOMEM, "pattern: out of memory");
    }
    uint32_t groups = 0;
    (void)pcre2_pattern_info(pattern->code, PCRE2_INFO_CAPTURECOUNT, &groups);
    pattern->group = !whole && groups > 0;
    pcre2_set_callout(pattern->context, count_step, pattern);
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
    free(pattern);
}

/* Where the search goes on: behind the match, and always a character further
 * than it began. */
static size_t next_start(rule_text text, size_t start, size_t end)
{
    if (end > start)
        return end;
    start++;
    while (start < text.size && (text.data[start] & 0xC0) == 0x80)
        start++;
    return start;
}

rule_text rule_pattern_find(rule_pattern *pattern, rule_text text, int last,
                            int *out_exhausted)
{
    rule_text found = { NULL, 0 };
    const size_t *at = pcre2_get_ovector_pointer(pattern->data);
    size_t start = 0;
    int code = 0;
    pattern->steps = RULE_PATTERN_STEPS;
    while (start <= text.size) {
        code = pcre2_match(pattern->code, (PCRE2_SPTR)text.data, text.size,
                           start, 0, pattern->data, pattern->context);
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
        start = next_start(text, start, at[1]);
    }
    *out_exhausted = code < 0 && code != PCRE2_ERROR_NOMATCH;
    return *out_exhausted ? (rule_text){ NULL, 0 } : found;
}
