/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes with exact rational numbers whose numerator and denominator have at
 * most RULE_LIMBS limbs. A static function that returns an int, but for
 * compare_integers, returns 0 if its result does not fit.
 */
#include "plugins/reward-rule/math_ratio.h"

#include <math.h>
#include <string.h>

#include "plugins/reward-rule/math_buffer.h"

#define LARGEST_EXPONENT 300 /* of ten, in a number that is read */
#define LARGEST_POWER 1100   /* that rule_ratio_power computes */

static void set_integer(rule_big *out, uint32_t value)
{
    memset(out, 0, sizeof(*out));
    out->limb[0] = value;
    out->size = value != 0;
}

static void trim_integer(rule_big *a, uint32_t size)
{
    while (size && !a->limb[size - 1])
        size--;
    a->size = size;
}

static int compare_integers(const rule_big *a, const rule_big *b)
{
    if (a->size != b->size)
        return a->size < b->size ? -1 : 1;
    for (uint32_t i = a->size; i-- > 0;)
        if (a->limb[i] != b->limb[i])
            return a->limb[i] < b->limb[i] ? -1 : 1;
    return 0;
}

static int add_integers(rule_big *a, const rule_big *b)
{
    uint64_t carry = 0;
    for (uint32_t i = 0; i < RULE_LIMBS; i++) {
        carry += (uint64_t)a->limb[i] + b->limb[i];
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    trim_integer(a, RULE_LIMBS);
    return !carry;
}

/* Computes a - b; a must be >= b. */
static void subtract_integers(rule_big *a, const rule_big *b)
{
    uint64_t borrow = 0;
    for (uint32_t i = 0; i < a->size; i++) {
        uint64_t from = a->limb[i];
        uint64_t take = borrow + b->limb[i];
        borrow = from < take;
        a->limb[i] = (uint32_t)(from + (borrow << 32) - take);
    }
    trim_integer(a, a->size);
}

static int multiply_integers(rule_big *a, const rule_big *b)
{
    rule_big out;
    if (a->size + b->size > RULE_LIMBS)
        return 0;
    set_integer(&out, 0);
    for (uint32_t i = 0; i < a->size; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j <= b->size && i + j < RULE_LIMBS; j++) {
            uint64_t digit = j < b->size ? b->limb[j] : 0;
            carry += (uint64_t)a->limb[i] * digit + out.limb[i + j];
            out.limb[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
    }
    trim_integer(&out, a->size + b->size);
    *a = out;
    return 1;
}

/* Computes a * factor + add. */
static int scale_and_add(rule_big *a, uint32_t factor, uint32_t add)
{
    uint64_t carry = add;
    for (uint32_t i = 0; i < RULE_LIMBS; i++) {
        carry += (uint64_t)a->limb[i] * factor;
        a->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    trim_integer(a, RULE_LIMBS);
    return !carry;
}

/* Returns a mantissa m in [0, 2^96) and an exponent e, so that a is close to
 * m * 2^e. */
static double split_into_double(const rule_big *a, int *out_exponent)
{
    double value = 0;
    uint32_t low = a->size > 3 ? a->size - 3 : 0;
    for (uint32_t i = a->size; i-- > low;)
        value = value * 4294967296.0 + a->limb[i];
    *out_exponent = (int)low * 32;
    return value;
}

void rule_ratio_set(rule_ratio *out, uint32_t value)
{
    out->negative = 0;
    set_integer(&out->top, value);
    set_integer(&out->bottom, 1);
}

/* Multiplies by 10^exponent. */
static int scale_by_ten(rule_ratio *out, int exponent)
{
    rule_big *side = exponent < 0 ? &out->bottom : &out->top;
    int count = exponent < 0 ? -exponent : exponent;
    if (count > LARGEST_EXPONENT)
        return 0;
    while (count-- > 0)
        if (!scale_and_add(side, 10, 0))
            return 0;
    return 1;
}

/* Appends the digits of \overline{...}, which repeat, to those of a decimal. If
 * `all` are the digits before and in it as one integer, and there are n in it,
 * the value is (all - top) / (10^n - 1), apart from the decimal point. */
static int append_repeating(rule_ratio *out, rule_text tail)
{
    rule_big all = out->top;
    rule_big nines;
    set_integer(&nines, 0);
    for (size_t i = 0; i < tail.size; i++) {
        if (!rule_ascii_digit(tail.data[i]))
            continue;
        if (!scale_and_add(&all, 10, (uint32_t)(tail.data[i] - '0')) ||
            !scale_and_add(&nines, 10, 9))
            return 0;
    }
    if (!nines.size)
        return 1;
    subtract_integers(&all, &out->top);
    out->top = all;
    return multiply_integers(&out->bottom, &nines);
}

int rule_ratio_parse(rule_ratio *out, rule_text digits)
{
    int exponent = 0;
    int point = 0;
    size_t i = 0;
    size_t overline = rule_seek(digits, "\\overline");
    rule_ratio_set(out, 0);
    for (; i < overline; i++) {
        char c = digits.data[i];
        if (c == 'e' || c == 'E')
            break;
        if (c == '.')
            point = 1;
        if (!rule_ascii_digit(c))
            continue;
        if (!scale_and_add(&out->top, 10, (uint32_t)(c - '0')))
            return 0;
        exponent -= point;
    }
    if (overline < digits.size)
        return append_repeating(out, rule_text_from(digits, overline)) &&
               scale_by_ten(out, exponent);
    int power = 0;
    int minus = 0;
    for (i++; i < digits.size; i++) {
        minus |= digits.data[i] == '-';
        if (rule_ascii_digit(digits.data[i]) && power <= LARGEST_EXPONENT)
            power = 10 * power + (digits.data[i] - '0');
    }
    return scale_by_ten(out, exponent + (minus ? -power : power));
}

/* Computes a.top * b.bottom and b.top * a.bottom. */
static int cross_multiply(const rule_ratio *a, const rule_ratio *b,
                          rule_big *left, rule_big *right)
{
    *left = a->top;
    *right = b->top;
    return multiply_integers(left, &b->bottom) &&
           multiply_integers(right, &a->bottom);
}

int rule_ratio_add(rule_ratio *a, const rule_ratio *b)
{
    rule_big left;
    rule_big right;
    if (!cross_multiply(a, b, &left, &right) ||
        !multiply_integers(&a->bottom, &b->bottom))
        return 0;
    if (a->negative == b->negative) {
        if (!add_integers(&left, &right))
            return 0;
        a->top = left;
        return 1;
    }
    if (compare_integers(&left, &right) >= 0) {
        subtract_integers(&left, &right);
        a->top = left;
        return 1;
    }
    subtract_integers(&right, &left);
    a->top = right;
    a->negative = b->negative;
    return 1;
}

int rule_ratio_multiply(rule_ratio *a, const rule_ratio *b)
{
    a->negative ^= b->negative;
    return multiply_integers(&a->top, &b->top) &&
           multiply_integers(&a->bottom, &b->bottom);
}

int rule_ratio_divide(rule_ratio *a, const rule_ratio *b)
{
    rule_big top = b->top;
    if (!top.size)
        return 0;
    a->negative ^= b->negative;
    return multiply_integers(&a->top, &b->bottom) &&
           multiply_integers(&a->bottom, &top);
}

int rule_ratio_power(rule_ratio *a, const rule_ratio *b)
{
    int count = 0;
    if (!rule_ratio_small_integer(b, &count) || count > LARGEST_POWER ||
        count < -LARGEST_POWER)
        return 0;
    rule_ratio base = *a;
    if (count < 0) {
        if (!base.top.size)
            return 0;
        base.top = a->bottom;
        base.bottom = a->top;
        count = -count;
    }
    if (!base.top.size && !count)
        return 0;
    rule_ratio_set(a, 1);
    for (; count; count >>= 1) {
        rule_ratio square = base;
        if ((count & 1) && !rule_ratio_multiply(a, &base))
            return 0;
        if (count > 1 && !rule_ratio_multiply(&base, &square))
            return 0;
    }
    return 1;
}

int rule_ratio_is_zero(const rule_ratio *a)
{
    return a->top.size == 0;
}

int rule_ratio_compare(const rule_ratio *a, const rule_ratio *b)
{
    rule_big left;
    rule_big right;
    int sign_a = a->top.size ? (a->negative ? -1 : 1) : 0;
    int sign_b = b->top.size ? (b->negative ? -1 : 1) : 0;
    if (sign_a != sign_b)
        return sign_a < sign_b ? -1 : 1;
    if (!cross_multiply(a, b, &left, &right))
        return 2;
    return sign_a * compare_integers(&left, &right);
}

int rule_ratio_small_integer(const rule_ratio *a, int *out)
{
    if (a->top.size > 1 || a->bottom.size != 1)
        return 0;
    uint32_t integer = a->top.limb[0] / a->bottom.limb[0];
    if (integer * a->bottom.limb[0] != a->top.limb[0] || integer > 999999999u)
        return 0;
    *out = a->negative ? -(int)integer : (int)integer;
    return 1;
}

double rule_ratio_real(const rule_ratio *a)
{
    int up = 0;
    int down = 0;
    double top = split_into_double(&a->top, &up);
    double bottom = split_into_double(&a->bottom, &down);
    double value = ldexp(top / bottom, up - down);
    return a->negative ? -value : value;
}
