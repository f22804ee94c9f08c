/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the rule reward, and the verdict on one sample.
 */
#ifndef RULE_GRADE_H
#define RULE_GRADE_H

#include <xray/option.h>
#include <xray/reward.h>

#include "plugins/reward-rule/pattern.h"

enum { RULE_EXACT, RULE_NUMERIC, RULE_REGEX, RULE_GSM8K };
enum { RULE_LAST, RULE_FIRST };

typedef struct rule_config {
    int64_t grader;
    int64_t method;
    int64_t take;
    int64_t search_bytes;
    double score;
    double format_score;
    double no_answer_score;
    double tolerance;
    double rel_tolerance;
    const char *after;
    const char *pattern;
    uint32_t trim;
    uint32_t ignore_case;
    uint32_t match_only;
    uint32_t reserved;
} rule_config;

#define RULE_OPTION_COUNT 14u
extern const xray_option rule_options[];

/* XRAY_E_CONFIG for keys that the grader does not use or cannot work with. */
xray_status rule_check(const rule_config *config, xr_err *err);

typedef enum rule_verdict {
    RULE_NO_ANSWER,
    RULE_WRONG,
    RULE_RIGHT
} rule_verdict;

typedef struct rule_grade {
    rule_verdict verdict;
    const char *remark; /* why the verdict is not the response's fault, or
                         * NULL */
} rule_grade;

/* `pattern` is NULL unless the grader is regex. */
rule_grade rule_grade_sample(const rule_config *config, rule_pattern *pattern,
                             const xray_sample_in *sample);

#endif
