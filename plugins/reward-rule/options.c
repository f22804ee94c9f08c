/* SPDX-License-Identifier: Apache-2.0 */
#include <xray/plugin.h>

#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/gsm8k.h"

#define CHOICE(name, text) { #name, RULE_IS_##name, text },
static const xray_choice graders[] = { RULE_GRADERS(CHOICE){ NULL, 0, NULL } };

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
const uint32_t rule_option_count =
    sizeof(rule_options) / sizeof(rule_options[0]);

static const xray_component component = {
    .head = XRAY_HEAD(xray_component),
    .iface = XRAY_IFACE_REWARD,
    .name = "rule",
    .summary = "Graders by rule; the key grader names the rule",
    .ops = &rule_ops,
    .options = rule_options,
    .option_count = sizeof(rule_options) / sizeof(rule_options[0]),
    .option_stride = sizeof(xray_option),
    .config_size = sizeof(rule_config),
};

static const xray_component *const components[] = { &component };

static const xray_plugin plugin = {
    .head = XRAY_HEAD(xray_plugin),
    .abi_needed = XRAY_ABI,
    .component_count = 1,
    .name = "reward-rule",
    .version = "0.1.0",
    .vendor = "xray",
    .license = "Apache-2.0",
    .components = components,
};

XRAY_PLUGIN_DEFINE(reward_rule, plugin, "reward-rule", "0.1.0",
                   "xray.reward/0:rule")
