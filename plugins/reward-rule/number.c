/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/reward-rule/number.h"

#include <string.h>

#include "core/base/str.h"

/* Longest number read, without its commas; a longer one is none. */
#define NUMBER_CAP 400u

static int digit_at(rule_text text, size_t i)
{
    return i < text.size && text.data[i] >= '0' && text.data[i] <= '9';
}

static int is_at(rule_text text, size_t i, char c)
{
    return i < text.size && text.data[i] == c;
}

static size_t digits(rule_text text, size_t i)
{
    while (digit_at(text, i))
        i++;
    return i;
}

/* Past the whole part that starts at `i`: digits, and commas that have three
 * digits behind them. */
static size_t whole_part(rule_text text, size_t i)
{
    i = digits(text, i);
    while (is_at(text, i, ',') && digits(text, i + 1) == i + 4)
        i += 4;
    return i;
}

/* Past a number without sign at `i`, or `i`. */
static size_t unsigned_end(rule_text text, size_t i)
{
    size_t end = i;
    if (digit_at(text, i))
        end = whole_part(text, i);
    else if (!is_at(text, i, '.') || (i && digit_at(text, i - 1)))
        return i;
    if (is_at(text, end, '.') && digit_at(text, end + 1))
        end = digits(text, end + 1);
    if (end == i)
        return i;
    size_t power = end + 1;
    if (!is_at(text, end, 'e') && !is_at(text, end, 'E'))
        return end;
    power += is_at(text, power, '-') || is_at(text, power, '+');
    return digit_at(text, power) ? digits(text, power) : end;
}

/* 1 if the number that starts at `i` has a minus of its own in front. */
static int negative(rule_text text, size_t i)
{
    if (i && text.data[i - 1] == '$')
        i--;
    size_t sign = 0;
    if (i >= 1 && text.data[i - 1] == '-')
        sign = 1;
    else if (i >= 3 && memcmp(text.data + i - 3, "\xE2\x88\x92", 3) == 0)
        sign = 3;
    if (!sign)
        return 0;
    if (i == sign)
        return 1;
    char before = text.data[i - sign - 1];
    int letter =
        (before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z');
    return !letter && !(before >= '0' && before <= '9') && before != ')';
}

static int read_number(rule_text text, size_t first, size_t end, double *out)
{
    char buffer[NUMBER_CAP + 2];
    size_t size = 0;
    if (negative(text, first))
        buffer[size++] = '-';
    for (size_t i = first; i < end; i++) {
        if (text.data[i] == ',')
            continue;
        if (size > NUMBER_CAP)
            return 0;
        buffer[size++] = text.data[i];
    }
    buffer[size] = '\0';
    return xr_parse_real(buffer, out) == 0;
}

int rule_number_find(rule_text text, int last, double *out)
{
    size_t first = 0;
    size_t end = 0;
    for (size_t i = 0; i < text.size; i++) {
        size_t past = unsigned_end(text, i);
        if (past == i)
            continue;
        first = i;
        end = past;
        if (!last)
            break;
        i = past - 1;
    }
    return end > first && read_number(text, first, end, out);
}
