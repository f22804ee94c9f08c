/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the first or last number of a text.
 */
#include "plugins/reward-rule/number.h"

#include <string.h>

#include "core/base/str.h"

/* Bytes of the longest number that is read, without its commas. */
#define NUMBER_CAP 400u

static int is_digit_at(rule_text text, size_t i)
{
    return i < text.size && text.data[i] >= '0' && text.data[i] <= '9';
}

static int is_char_at(rule_text text, size_t i, char c)
{
    return i < text.size && text.data[i] == c;
}

static size_t skip_digits(rule_text text, size_t i)
{
    while (is_digit_at(text, i))
        i++;
    return i;
}

/* Returns the offset past the integer part that starts at `i`: digits, and
 * commas before exactly three digits. */
static size_t skip_integer_part(rule_text text, size_t i)
{
    i = skip_digits(text, i);
    while (is_char_at(text, i, ',') && skip_digits(text, i + 1) == i + 4)
        i += 4;
    return i;
}

/* Returns the offset past the number without sign at `i`, or `i`. */
static size_t find_unsigned_end(rule_text text, size_t i)
{
    size_t end = i;
    if (is_digit_at(text, i))
        end = skip_integer_part(text, i);
    else if (!is_char_at(text, i, '.') || (i && is_digit_at(text, i - 1)))
        return i;
    if (is_char_at(text, end, '.') && is_digit_at(text, end + 1))
        end = skip_digits(text, end + 1);
    if (end == i)
        return i;
    size_t power = end + 1;
    if (!is_char_at(text, end, 'e') && !is_char_at(text, end, 'E'))
        return end;
    power += is_char_at(text, power, '-') || is_char_at(text, power, '+');
    return is_digit_at(text, power) ? skip_digits(text, power) : end;
}

/* Returns 1 if the minus before the number at `i` is its sign. */
static int has_minus_before(rule_text text, size_t i)
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

static int convert_number(rule_text text, size_t first, size_t end, double *out)
{
    char buffer[NUMBER_CAP + 2];
    size_t size = 0;
    if (has_minus_before(text, first))
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
        size_t past = find_unsigned_end(text, i);
        if (past == i)
            continue;
        first = i;
        end = past;
        if (!last)
            break;
        i = past - 1;
    }
    return end > first && convert_number(text, first, end, out);
}
