/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "gsm8k" compares the number of a completion with that of the
 * ground truth.
 */
#include "plugins/reward-rule/gsm8k.h"

#include <string.h>

static int is_number_character(char c)
{
    return (c >= '0' && c <= '9') || c == '.' || c == ',';
}

/* Returns the length of a match of -?[0-9.,]+ at the start of `text`, or 0. */
static size_t measure_number(rule_text text)
{
    size_t sign = text.size && *text.data == '-';
    size_t end = sign;
    while (end < text.size && is_number_character(text.data[end]))
        end++;
    return end > sign ? end : 0;
}

static rule_text drop_front(rule_text text, size_t first)
{
    return (rule_text){ text.data + first, text.size - first };
}

static rule_text find_last_marked_number(rule_text text)
{
    static const char mark[] = "#### ";
    const size_t size = sizeof(mark) - 1;
    rule_text found = { NULL, 0 };
    while (text.size > size) {
        size_t length = memcmp(text.data, mark, size) == 0
                            ? measure_number(drop_front(text, size))
                            : 0;
        if (length)
            found = (rule_text){ text.data + size, length };
        text = drop_front(text, length ? size + length : 1);
    }
    return found;
}

static rule_text find_last_number(rule_text text)
{
    rule_text found = { NULL, 0 };
    while (text.size) {
        size_t length = measure_number(text);
        int lone_point = length == 1 && *text.data == '.';
        if (length && (!lone_point || !found.data))
            found = (rule_text){ text.data, length };
        text = drop_front(text, length ? length : 1);
    }
    return found;
}

static rule_text remove_commas(rule_text number, char *buffer)
{
    size_t size = 0;
    for (size_t i = 0; i < number.size; i++)
        if (number.data[i] != ',')
            buffer[size++] = number.data[i];
    return (rule_text){ buffer, size };
}

rule_text rule_gsm8k_extract(rule_text response, int method,
                             char buffer[RULE_GSM8K_TAIL])
{
    rule_text tail = rule_last_characters(response, RULE_GSM8K_TAIL);
    if (method == RULE_FLEXIBLE)
        return find_last_number(tail);
    rule_text number = find_last_marked_number(tail);
    return number.data ? remove_commas(number, buffer) : number;
}

static xray_status check_gsm8k(const rule_config *config, xr_err *err)
{
    if (*config->after)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "after",
                           ": grader = gsm8k finds the answer by its own "
                           "rule; remove the key");
    return XRAY_OK;
}

/* A ground truth that is a complete GSM8K solution stands for its "#### N". */
static void grade_gsm8k(const rule_input *in, rule_grade *out)
{
    char answer[RULE_GSM8K_TAIL];
    char wanted[RULE_GSM8K_TAIL];
    rule_text found =
        rule_gsm8k_extract(in->response, (int)in->config->method, answer);
    rule_text solution = rule_gsm8k_extract(in->truth, RULE_STRICT, wanted);
    int right = found.data &&
                rule_equal(found, solution.data ? solution : in->truth, 0);
    rule_grade_outcome(in->config, found.data != NULL, right, out);
}

const rule_grader rule_grader_gsm8k = {
    .keys = RULE_SCORES "method",
    .decides = 1,
    .check = check_gsm8k,
    .grade = grade_gsm8k,
};
