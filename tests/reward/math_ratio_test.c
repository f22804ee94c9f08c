/* SPDX-License-Identifier: Apache-2.0
 *
 * The exact fractions of math answers, against fractions of small integers:
 * every pair of signs, zero, and numbers of several limbs.
 */
#include <math.h>

#include "plugins/reward-rule/math_ratio.h"
#include "tests/testing.h"

/* A fraction whose numerator has the sign and whose denominator is positive. */
typedef struct fraction {
    long top;
    long bottom;
} fraction;

#define TOP_MOST 6
#define BOTTOM_MOST 4

static rule_ratio make_ratio(fraction f)
{
    rule_ratio out;
    rule_ratio bottom;
    rule_ratio_set(&out, (uint32_t)labs(f.top));
    rule_ratio_set(&bottom, (uint32_t)f.bottom);
    assert_true(rule_ratio_divide(&out, &bottom));
    out.negative = f.top < 0;
    return out;
}

/* Compares a result, of which there is none if it does not fit, with the
 * fraction that it must be. */
static void check_ratio(const char *what, int there, const rule_ratio *got,
                        fraction a, fraction b, fraction want)
{
    fraction f = want.bottom < 0 ? (fraction){ -want.top, -want.bottom } : want;
    rule_ratio ratio = make_ratio(f);
    double value = (double)f.top / (double)f.bottom;
    int integer = 0;
    int whole = f.top % f.bottom == 0;
    if (!there || rule_ratio_compare(got, &ratio) != 0 ||
        fabs(rule_ratio_real(got) - value) > 1e-15 * fabs(value) ||
        rule_ratio_is_zero(got) != (f.top == 0) ||
        rule_ratio_small_integer(got, &integer) != whole ||
        (whole && integer != f.top / f.bottom))
        fail_msg("%ld/%ld %s %ld/%ld is %.17g, not %ld/%ld", a.top, a.bottom,
                 what, b.top, b.bottom,
                 there ? rule_ratio_real(got) : (double)NAN, f.top, f.bottom);
}

static void check_pair(fraction a, fraction b)
{
    const rule_ratio x = make_ratio(a);
    const rule_ratio y = make_ratio(b);
    long left = a.top * b.bottom;
    long right = b.top * a.bottom;
    rule_ratio out = x;
    int there = rule_ratio_add(&out, &y);
    check_ratio("+", there, &out, a, b,
                (fraction){ left + right, a.bottom * b.bottom });
    out = x;
    there = rule_ratio_multiply(&out, &y);
    check_ratio("*", there, &out, a, b,
                (fraction){ a.top * b.top, a.bottom * b.bottom });
    out = x;
    there = rule_ratio_divide(&out, &y);
    if (b.top)
        check_ratio("/", there, &out, a, b,
                    (fraction){ a.top * b.bottom, a.bottom * b.top });
    else
        assert_false(there);
    assert_int_equal(rule_ratio_compare(&x, &y),
                     (left > right) - (left < right));
}

static void fractions_are_added_multiplied_divided_and_compared(void **state)
{
    (void)state;
    fraction a;
    fraction b;
    for (a.top = -TOP_MOST; a.top <= TOP_MOST; a.top++)
        for (a.bottom = 1; a.bottom <= BOTTOM_MOST; a.bottom++)
            for (b.top = -TOP_MOST; b.top <= TOP_MOST; b.top++)
                for (b.bottom = 1; b.bottom <= BOTTOM_MOST; b.bottom++)
                    check_pair(a, b);
}

static void check_power(fraction a, long power)
{
    const rule_ratio y = make_ratio((fraction){ power, 1 });
    rule_ratio out = make_ratio(a);
    fraction base = power < 0 ? (fraction){ a.bottom, a.top } : a;
    fraction want = { 1, 1 };
    for (long i = 0; i < labs(power); i++)
        want = (fraction){ want.top * base.top, want.bottom * base.bottom };
    int there = rule_ratio_power(&out, &y);
    if (a.top || power > 0)
        check_ratio("^", there, &out, a, (fraction){ power, 1 }, want);
    else
        assert_false(there);
}

static void fractions_have_integer_powers(void **state)
{
    (void)state;
    fraction a;
    for (a.top = -TOP_MOST; a.top <= TOP_MOST; a.top++)
        for (a.bottom = 1; a.bottom <= BOTTOM_MOST; a.bottom++)
            for (long power = -9; power <= 9; power++)
                check_power(a, power);
    rule_ratio two = make_ratio((fraction){ 2, 1 });
    const rule_ratio half = make_ratio((fraction){ 1, 2 });
    assert_false(rule_ratio_power(&two, &half));
}

/* (10^k + 1) (10^k - 1) = 10^2k - 1, and as a quotient; until the numbers do
 * not fit. */
static void numbers_of_many_limbs_keep_every_digit(void **state)
{
    (void)state;
    int fitted = 0;
    for (long k = 1; k <= 300; k++) {
        rule_ratio one;
        rule_ratio minus;
        rule_ratio ten;
        rule_ratio_set(&one, 1);
        minus = one;
        minus.negative = 1;
        const rule_ratio power = make_ratio((fraction){ k, 1 });
        const rule_ratio twice = make_ratio((fraction){ 2 * k, 1 });
        rule_ratio_set(&ten, 10);
        rule_ratio square = ten;
        rule_ratio up = ten;
        if (!rule_ratio_power(&up, &power))
            fail_msg("10^%ld", k);
        rule_ratio down = up;
        if (!rule_ratio_power(&square, &twice))
            break;
        if (!rule_ratio_add(&square, &minus))
            break;
        assert_true(rule_ratio_add(&up, &one) && rule_ratio_add(&down, &minus));
        rule_ratio product = up;
        if (!rule_ratio_multiply(&product, &down))
            fail_msg("the square of 10^%ld fits, but not this product", k);
        assert_int_equal(rule_ratio_compare(&product, &square), 0);
        rule_ratio more = square;
        assert_true(rule_ratio_add(&more, &one));
        assert_int_equal(rule_ratio_compare(&product, &more), -1);
        assert_int_equal(rule_ratio_compare(&more, &product), 1);
        fitted = (int)k;
    }
    assert_in_range(fitted, 150, 173); /* the product has up to 346 digits */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fractions_are_added_multiplied_divided_and_compared),
        cmocka_unit_test(fractions_have_integer_powers),
        cmocka_unit_test(numbers_of_many_limbs_keep_every_digit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
