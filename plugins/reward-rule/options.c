/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/gsm8k.h"

static const xray_choice graders[] = {
    { "exact", RULE_EXACT, "the response is the ground truth" },
    { "numeric", RULE_NUMERIC, "a number of the response is near it" },
    { "regex", RULE_REGEX, "what a pattern finds is the ground truth" },
    { "gsm8k", RULE_GSM8K, "verl's GSM8K scorer" },
    { NULL, 0, NULL },
};

static const xray_choice methods[] = {
    { "strict", RULE_STRICT, "the last \"#### number\"" },
    { "flexible", RULE_FLEXIBLE, "the last number" },
    { NULL, 0, NULL },
};

static const xray_choice ends[] = {
    { "last", RULE_LAST, NULL },
    { "first", RULE_FIRST, NULL },
    { NULL, 0, NULL },
};

const xray_option rule_options[] = {
    XRAY_CHOICE(rule_config, grader, "exact", graders, "0.1",
                "How a response is judged."),
    XRAY_CHOICE(rule_config, method, "strict", methods, "0.1",
                "gsm8k: where its answer stands."),
    XRAY_REAL(rule_config, score, "1", -1e9, 1e9, NULL, "0.1",
              "Score of a right answer."),
    XRAY_REAL(rule_config, format_score, "0", -1e9, 1e9, NULL, "0.1",
              "Score of an answer that is wrong."),
    XRAY_REAL(rule_config, no_answer_score, "0", -1e9, 1e9, NULL, "0.1",
              "Score of a response in which no answer was found."),
    XRAY_STRING(rule_config, after, "", 0u, "0.1",
                "exact, numeric, regex: judge only what follows the last "
                "occurrence of this text; empty: the whole response."),
    XRAY_CHOICE(rule_config, take, "last", ends, "0.1",
                "numeric, regex: which number or match is the answer."),
    XRAY_BOOL(rule_config, trim, "true", "0.1",
              "exact, regex: white space at both ends does not count."),
    XRAY_BOOL(rule_config, ignore_case, "false", "0.1",
              "exact, regex: the case of ASCII letters does not count in the "
              "comparison."),
    XRAY_REAL(rule_config, tolerance, "1e-6", 0, 1e300, NULL, "0.1",
              "numeric: largest difference that is right."),
    XRAY_REAL(rule_config, rel_tolerance, "0", 0, 1e300, NULL, "0.1",
              "numeric: the same relative to the ground truth; it is added."),
    XRAY_STRING(rule_config, pattern, "", 0u, "0.1",
                "regex: a PCRE2 pattern; its first group, or the whole match, "
                "is the answer."),
    XRAY_BOOL(rule_config, match_only, "false", "0.1",
              "regex: any match is right; the ground truth is not read."),
    XRAY_INT(rule_config, search_bytes, "8192", 1, 1048576, "bytes", "0.1",
             "regex: only the end of the response is searched."),
};
_Static_assert(sizeof(rule_options) ==
                   RULE_OPTION_COUNT * sizeof(rule_options[0]),
               "RULE_OPTION_COUNT");

xray_status rule_check(const rule_config *config, xr_err *err)
{
    if (config->grader == RULE_REGEX && !*config->pattern)
        return xr_fail(err, XRAY_E_CONFIG,
                       "pattern: grader = regex needs a pattern");
    if (config->grader != RULE_REGEX && *config->pattern)
        return xr_fail(err, XRAY_E_CONFIG,
                       "pattern: only grader = regex uses it; remove the key "
                       "or set that grader");
    if (config->grader == RULE_GSM8K && *config->after)
        return xr_fail(err, XRAY_E_CONFIG,
                       "after: grader = gsm8k has a rule of its own for where "
                       "the answer stands; remove the key");
    return XRAY_OK;
}
