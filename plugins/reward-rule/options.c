/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes the plugin reward-rule: its options and its component.
 */
#include <xray/plugin.h>

#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/gsm8k.h"
#include "plugins/reward-rule/math.h"

#define CHOICE(name, text) { #name, RULE_IS_##name, text },
static const xray_choice graders[] = { RULE_GRADERS(CHOICE){ NULL, 0, NULL } };

static const xray_choice bases[] = { { "none", RULE_NO_BASE, NULL },
                                     RULE_GRADERS(CHOICE){ NULL, 0, NULL } };

static const xray_choice methods[] = {
    { "strict", RULE_STRICT, "only where an answer is announced" },
    { "flexible", RULE_FLEXIBLE, "anywhere" },
    { NULL, 0, NULL },
};

static const xray_choice extractions[] = {
    { "preset", RULE_FROM_PRESET, "as in the source of the grader" },
    { "boxed", RULE_FROM_BOXED, "the last \\boxed{} or \\fbox{}" },
    { "minerva", RULE_FROM_MINERVA, "\"Final Answer: The final answer is\"" },
    { "answer", RULE_FROM_ANSWER, "the line after the last \"Answer:\"" },
    { "marked", RULE_FROM_MARKED, "the line after the last \"####\"" },
    { "last", RULE_FROM_LAST, "the last formula or number" },
    { "latex", RULE_FROM_LATEX, "boxes, then formulas" },
    { "number", RULE_FROM_NUMBER, "numbers outside of formulas" },
    { "any", RULE_FROM_ANY, "the first of all of these" },
    { NULL, 0, NULL },
};

static const xray_choice ends[] = {
    { "last", RULE_LAST, NULL },
    { "first", RULE_FIRST, NULL },
    { NULL, 0, NULL },
};

static const xray_choice matches[] = {
    { "em", RULE_EM, "exact match" },
    { "f1", RULE_F1, "share of common words" },
    { "subem", RULE_SUBEM, "the answer contains the ground truth" },
    { NULL, 0, NULL },
};

static const xray_choice formats[] = {
    { "think_answer", RULE_THINK_ANSWER, "open-r1's format_reward" },
    { "think_answer_soft", RULE_THINK_ANSWER_SOFT, "the same, looser" },
    { "think", RULE_THINK, "TRL's think_format_reward" },
    { "answer", RULE_ANSWER, "one <answer> block" },
    { "boxed", RULE_BOXED, "a \\boxed{} that is not empty" },
    { NULL, 0, NULL },
};

static const xray_choice units[] = {
    { "tokens", RULE_TOKENS, NULL },
    { "characters", RULE_CHARACTERS, NULL },
    { "words", RULE_WORDS, "separated by white space" },
    { NULL, 0, NULL },
};

static const xray_choice scorings[] = {
    { "share", RULE_SHARE, "the share that is fulfilled" },
    { "all", RULE_ALL, "right only if all is fulfilled" },
    { NULL, 0, NULL },
};

static const xray_choice shapes[] = {
    { "cap", RULE_CAP, "a penalty beyond max_response_length" },
    { "linear", RULE_LINEAR, "a penalty that grows with the length" },
    { "l1_exact", RULE_L1_EXACT, "L1-Exact: distance to target_length" },
    { "l1_max", RULE_L1_MAX, "L1-Max: right and below target_length" },
    { NULL, 0, NULL },
};

const xray_option rule_options[] = {
    XRAY_CHOICE(rule_config, grader, "exact", graders, 0u, "0.1",
                "The rule by which a response is graded."),
    XRAY_CHOICE(rule_config, method, "strict", methods, 0u, "0.1",
                "gsm8k, choice: where the answer is searched for."),
    XRAY_REAL(rule_config, score, "1", -1e9, 1e9, NULL, 0u, "0.1",
              "Score of a correct answer."),
    XRAY_REAL(rule_config, format_score, "0", -1e9, 1e9, NULL, 0u, "0.1",
              "Score of a wrong answer."),
    XRAY_REAL(rule_config, no_answer_score, "0", -1e9, 1e9, NULL, 0u, "0.1",
              "Score of a response without an answer."),
    XRAY_STRING(rule_config, after, "", 0u, "0.1",
                "exact, numeric, regex: grade only the text after the last "
                "occurrence of this marker; empty: grade the entire response."),
    XRAY_CHOICE(rule_config, take, "last", ends, 0u, "0.1",
                "numeric, regex: which number or match is the answer."),
    XRAY_BOOL(rule_config, trim, "true", 0u, "0.1",
              "exact, regex: ignore white space at both ends."),
    XRAY_BOOL(rule_config, ignore_case, "false", 0u, "0.1",
              "exact, regex: ignore the case of ASCII letters in the "
              "comparison."),
    XRAY_REAL(rule_config, tolerance, "1e-6", 0, 1e300, NULL, 0u, "0.1",
              "numeric: largest difference that counts as correct; "
              "math_verify: the same for decimal numbers."),
    XRAY_CHOICE(rule_config, extract, "preset", extractions, 0u, "0.1",
                "math graders: where the answer is searched for."),
    XRAY_REAL(rule_config, rel_tolerance, "0", 0, 1e300, NULL, 0u, "0.1",
              "numeric: largest difference relative to the ground truth; it is "
              "added to tolerance."),
    XRAY_STRING(rule_config, pattern, "", 0u, "0.1",
                "regex: a PCRE2 pattern; its first group, or the entire match, "
                "is the answer."),
    XRAY_BOOL(rule_config, match_only, "false", 0u, "0.1",
              "regex: every match is correct; the ground truth is not read."),
    XRAY_INT(rule_config, search_bytes, "8192", 1, 1048576, "bytes", 0u, "0.1",
             "regex: bytes at the end of the response that are searched."),
    XRAY_CHOICE(rule_config, base, "none", bases, 0u, "0.1",
                "cosine, length_group, length: the grader that decides whether "
                "an answer is correct; its keys are in the same section."),
    XRAY_INT(rule_config, option_count, "4", 2, 26, "options", 0u, "0.1",
             "choice, gpqa: number of options, which are named from A on."),
    XRAY_INT(rule_config, index_from, "0", 0, 1, NULL, 0u, "0.1",
             "choice, gpqa: number of the first option if the ground truth is "
             "a number."),
    XRAY_CHOICE(rule_config, match, "em", matches, 0u, "0.1",
                "qa, search_r1: how the answer is compared with the ground "
                "truth."),
    XRAY_CHOICE(rule_config, format, "think_answer", formats, 0u, "0.1",
                "format: the form that a response must have."),
    XRAY_CHOICE(rule_config, unit, "tokens", units, 0u, "0.1",
                "length, length_group, cosine, repetition: the unit of "
                "length."),
    XRAY_CHOICE(rule_config, shape, "cap", shapes, 0u, "0.1",
                "length: how the score depends on the length."),
    XRAY_INT(rule_config, max_response_length, "0", 0, 1073741824, NULL, 0u,
             "0.1",
             "length, overlong, cosine: length of the longest response, in "
             "units; required."),
    XRAY_INT(rule_config, target_length, "0", 0, 1073741824, NULL, 0u, "0.1",
             "length: the length that l1_exact and l1_max aim at."),
    XRAY_REAL(rule_config, length_coef, "1", 0, 1e9, NULL, 0u, "0.1",
              "length: the largest penalty of cap and linear, or the factor "
              "alpha of L1."),
    XRAY_REAL(rule_config, length_offset, "0.5", -1e9, 1e9, NULL, 0u, "0.1",
              "length: the offset delta of L1-Max."),
    XRAY_INT(rule_config, overlong_buffer_len, "0", 0, 1073741824, "tokens", 0u,
             "0.1",
             "overlong: number of last tokens over which the penalty grows."),
    XRAY_REAL(rule_config, overlong_penalty_factor, "1", 0, 1e9, NULL, 0u,
              "0.1", "overlong: the largest penalty."),
    XRAY_REAL(rule_config, min_value_wrong, "-1", -1e9, 1e9, NULL, 0u, "0.1",
              "cosine: score of the shortest wrong response."),
    XRAY_REAL(rule_config, max_value_wrong, "-0.5", -1e9, 1e9, NULL, 0u, "0.1",
              "cosine: score of the longest wrong response."),
    XRAY_REAL(rule_config, min_value_correct, "0.5", -1e9, 1e9, NULL, 0u, "0.1",
              "cosine: score of the longest correct response."),
    XRAY_REAL(rule_config, max_value_correct, "1", -1e9, 1e9, NULL, 0u, "0.1",
              "cosine: score of the shortest correct response."),
    XRAY_INT(rule_config, ngram_size, "3", 1, 64, NULL, 0u, "0.1",
             "repetition: tokens or words of an n-gram."),
    XRAY_REAL(rule_config, max_penalty, "-1", -1e9, 0, NULL, 0u, "0.1",
              "repetition: score of a response that only repeats."),
    XRAY_STRING(rule_config, language, "", 0u, "0.1",
                "language: the code (en, zh, ru ...) of the language whose "
                "script is expected."),
    XRAY_REAL(rule_config, min_share, "1", 0, 1, NULL, 0u, "0.1",
              "language: the smallest share of words for which acc is 1."),
    XRAY_CHOICE(rule_config, scoring, "share", scorings, 0u, "0.1",
                "language, ifeval: the score of a response that fulfills only "
                "a part."),
    XRAY_BOOL(rule_config, loose, "false", 0u, "0.1",
              "ifeval: also accept a response that follows the instructions "
              "without its first or last line, or without asterisks."),
    XRAY_BOOL(rule_config, allow_set_relation_comp, "false", 0u, "0.1",
              "math_verify: x >= 1 equals [1, oo) even if only the ground "
              "truth is a set."),
};
const uint32_t rule_option_count =
    sizeof(rule_options) / sizeof(rule_options[0]);

static const xray_component component = {
    .header = XRAY_HEADER(xray_component),
    .iface = XRAY_IFACE_REWARD,
    .name = "rule",
    .summary = "Rule-based graders; the key grader selects the rule",
    .ops = &rule_ops,
    .options = rule_options,
    .option_count = sizeof(rule_options) / sizeof(rule_options[0]),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(rule_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .header = XRAY_HEADER(xray_plugin),
    .abi_needed = XRAY_ABI_NEEDED,
    .component_count = 1,
    .name = "reward-rule",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(reward_rule, plugin, "reward-rule", "0.1.0",
                   "xray.reward/0:rule")
