/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of core/ab/stats.h against scipy 1.17 and numpy 2.4;
 * reference.py prints the numbers.
 */
#include <math.h>

#include "core/ab/stats.h"
#include "tests/testing.h"

static const double base[5] = { 0.41, 0.44, 0.39, 0.47, 0.425 };
static const double better[5] = { 0.46, 0.47, 0.45, 0.49, 0.455 };

static void expect_near(double got, double wanted, double part)
{
    if (!(fabs(got - wanted) <= part * fmax(fabs(wanted), 1e-300)))
        fail_msg("%.17g is not %.17g", got, wanted);
}

static void quantiles_and_moments_agree(void **state)
{
    (void)state;
    static const double parts[] = { 0, 0.025, 0.25, 0.5, 0.9, 1 };
    static const double wanted[] = { -2.0, -1.6875, 0.75, 2.375, 6.5, 9.0 };
    double values[] = { 1.5, -2.0, 3.25, 0.5, 9.0, 4.0 };
    expect_near(xr_mean(values, 6), 2.7083333333333335, 1e-15);
    expect_near(xr_variance(values, 6), 14.010416666666666, 1e-15);
    assert_true(xr_variance(values, 1) == 0);
    expect_near(xr_median(values, 6), 2.375, 1e-15);
    for (size_t i = 0; i < 6; i++)
        expect_near(xr_quantile(values, 6, parts[i]), wanted[i], 1e-15);
    assert_true(isnan(xr_quantile(values, 0, 0.5)));
    assert_true(isnan(xr_mean(values, 0)));
}

static void students_t_agrees(void **state)
{
    (void)state;
    static const double tails[][3] = {
        { 2.0, 4, 0.11611652351681556 },
        { 0.1, 1, 0.936548965138893 },
        { 12.7, 1, 0.050024327689344165 },
        { -12.7, 1, 0.050024327689344165 },
        { 5.5, 2.5, 0.01876887479892228 },
        { 0.001, 30, 0.9992087357664851 },
        { 40.0, 3, 3.4380680789158506e-05 },
        { 2.0, 1000.5, 0.04577021145585303 },
    };
    static const double critical[][3] = {
        { 0.05, 1, 12.706204736174705 },   { 0.05, 2, 4.302652729749464 },
        { 0.05, 4, 2.7764451051977943 },   { 0.025, 4, 3.4954059325164377 },
        { 0.05, 7.3, 2.3450667365477034 }, { 0.01, 120, 2.617421145106866 },
        { 0.5, 1.5, 0.8725946625415716 },
    };
    for (size_t i = 0; i < sizeof tails / sizeof tails[0]; i++)
        expect_near(xr_t_both_tails(tails[i][0], tails[i][1]), tails[i][2],
                    2e-12);
    for (size_t i = 0; i < sizeof critical / sizeof critical[0]; i++)
        expect_near(xr_t_critical(critical[i][0], critical[i][1]),
                    critical[i][2], 1e-11);
    assert_true(xr_t_both_tails(0, 3) == 1);
    assert_true(xr_t_both_tails(INFINITY, 3) == 0);
    assert_true(isnan(xr_t_both_tails(NAN, 3)));
}

static void intervals_agree(void **state)
{
    (void)state;
    static const double other[4] = { 0.52, 0.31, 0.66, 0.48 };
    double low;
    double high;
    xr_difference d = xr_difference_paired(base, better, 5);
    assert_int_equal(d.judged, XR_JUDGED_PAIRED);
    expect_near(d.mean, 0.038, 1e-13);
    expect_near(d.p, 0.006646731211396025, 1e-11);
    xr_difference_bounds(&d, 0.05, &low, &high);
    expect_near(low, 0.017597378580252336, 1e-11);
    expect_near(high, 0.05840262141974769, 1e-11);
    xr_difference_bounds(&d, 0.025, &low, &high);
    expect_near(low, 0.012314117064312565, 1e-11);
    expect_near(high, 0.0636858829356875, 1e-11);
    d = xr_difference_welch(base, 5, other, 4);
    assert_int_equal(d.judged, XR_JUDGED_WELCH);
    expect_near(d.mean, 0.0655, 1e-13);
    expect_near(d.df, 3.2134753983212816, 1e-12);
    expect_near(d.p, 0.4334076062331481, 1e-12);
    xr_difference_bounds(&d, 0.05, &low, &high);
    expect_near(low, -0.15926142498002738, 1e-11);
    expect_near(high, 0.2902614249800276, 1e-11);
}

/* A single run, or values without scatter, must not look certain. */
static void no_scatter_is_judged_exactly(void **state)
{
    (void)state;
    static const double zero[5] = { 0 };
    static const double one[5] = { 1, 1, 1, 1, 1 };
    static const double shifted[5] = { 0.51, 0.54, 0.49, 0.57, 0.525 };
    double low;
    double high;
    xr_difference d = xr_difference_paired(base, better, 1);
    assert_int_equal(d.judged, XR_JUDGED_NOT);
    assert_true(isnan(d.p));
    xr_difference_bounds(&d, 0.05, &low, &high);
    assert_true(isnan(low) && isnan(high));
    assert_int_equal(xr_difference_welch(base, 5, better, 1).judged,
                     XR_JUDGED_NOT);
    assert_int_equal(xr_difference_welch(base, 1, better, 5).judged,
                     XR_JUDGED_NOT);
    /* The differences are 0.1 except for rounding errors. */
    d = xr_difference_paired(base, shifted, 5);
    assert_int_equal(d.judged, XR_JUDGED_SIGNS);
    expect_near(d.p, 0.0625, 1e-15);
    d = xr_difference_paired(zero, one, 2);
    assert_int_equal(d.judged, XR_JUDGED_LABELS);
    expect_near(d.p, 1.0 / 3, 1e-15);
    d = xr_difference_welch(zero, 3, one, 4);
    assert_int_equal(d.judged, XR_JUDGED_LABELS);
    expect_near(d.p, 1.0 / 35, 1e-14);
    /* Values that differ by rounding errors alone count as equal. */
    static const double dust[3] = { 0.3, 0.1 + 0.2, 0.3 };
    static const double half[3] = { 0.5, 0.5, 0.5 };
    d = xr_difference_welch(dust, 3, half, 3);
    assert_int_equal(d.judged, XR_JUDGED_LABELS);
    expect_near(d.p, 0.1, 1e-14);
    assert_true(d.error == 0);
    d = xr_difference_paired(dust, half, 3);
    assert_int_equal(d.judged, XR_JUDGED_LABELS);
    expect_near(d.p, 0.1, 1e-14);
    d = xr_difference_welch(dust, 3, dust + 1, 2);
    assert_true(d.mean == 0 && d.p == 1);
    xr_difference_bounds(&d, 0.05, &low, &high);
    assert_true(low == 0 && high == 0);
    assert_int_equal(d.pairs, 5);
    assert_int_equal(xr_difference_paired(base, base, 0).judged, XR_JUDGED_NOT);
    assert_true(xr_difference_paired(one, one, 5).p == 1);
    /* Nothing but zeros, as scores at the beginning are. */
    d = xr_difference_paired(zero, zero, 5);
    assert_int_equal(d.judged, XR_JUDGED_LABELS);
    assert_true(d.mean == 0 && d.error == 0 && d.p == 1);
    d = xr_difference_welch(zero, 3, zero, 4);
    assert_int_equal(d.judged, XR_JUDGED_LABELS);
    assert_true(d.mean == 0 && d.error == 0 && d.p == 1);
    xr_difference_bounds(&d, 0.05, &low, &high);
    assert_true(low == 0 && high == 0);
    assert_true(xr_difference_paired(base, base, 5).p == 1);
}

/* Runs with the same values in another order do not differ, whatever errors
 * their sums have, and a difference above those errors is kept. */
static void rounding_errors_are_no_difference(void **state)
{
    (void)state;
    static const double values[6] = { 0.1, 0.2, 0.3, 0.7, 1.1, 1.3 };
    static const double scales[] = { 1, 1e-9, 1e9 / 3 };
    for (size_t i = 0; i < 3 * 5; i++) {
        const double scale = scales[i / 5];
        double a[6];
        double b[6];
        for (size_t k = 0; k < 6; k++)
            a[k] = values[k] * scale;
        for (size_t k = 0; k < 6; k++)
            b[k] = a[(k + 1 + i % 5) % 6];
        xr_difference d = xr_difference_paired(a, b, 6);
        assert_true(d.mean == 0 && d.p == 1);
        d = xr_difference_welch(a, 6, b, 6);
        assert_true(d.mean == 0 && d.p == 1);
        b[2] += 6e-6 * scale;
        expect_near(xr_difference_paired(a, b, 6).mean, 1e-6 * scale, 1e-6);
        expect_near(xr_difference_welch(a, 6, b, 6).mean, 1e-6 * scale, 1e-6);
    }
}

static void holm_adjusts_in_steps(void **state)
{
    (void)state;
    static const double p[] = { 0.03, 0.005, NAN, 0.2, 0.013 };
    static const double wanted[] = { 0.06, 0.02, NAN, 0.2, 0.039 };
    /* 0.03 fails at 0.05 / 2, so the later ones are held to that level, too. */
    static const double alphas[] = { 0.05 / 2, 0.05 / 4, 0.05, 0.05 / 2,
                                     0.05 / 3 };
    double adjusted[5];
    double alpha[5];
    xr_holm(p, 5, adjusted, alpha);
    for (size_t i = 0; i < 5; i++) {
        if (isnan(wanted[i]))
            assert_true(isnan(adjusted[i]));
        else
            expect_near(adjusted[i], wanted[i], 1e-15);
        expect_near(alpha[i], alphas[i], 1e-15);
    }
    xr_holm(p, 1, adjusted, alpha);
    expect_near(adjusted[0], 0.03, 1e-15);
    /* Equal ones keep their order. */
    xr_holm((const double[]){ 0.02, 0.02 }, 2, adjusted, alpha);
    expect_near(adjusted[0], 0.04, 1e-15);
    expect_near(adjusted[1], 0.04, 1e-15);
    expect_near(alpha[0], 0.025, 1e-15);
    expect_near(alpha[1], 0.05, 1e-15);
    /* An adjusted p is never below that of a smaller p. */
    xr_holm((const double[]){ 0.03, 0.04 }, 2, adjusted, alpha);
    expect_near(adjusted[0], 0.06, 1e-15);
    expect_near(adjusted[1], 0.06, 1e-15);
    expect_near(alpha[1], 0.025, 1e-15);
}

static void bands_hold_the_mean(void **state)
{
    (void)state;
    static const double runs[5][3] = { { 0.1, 1.0, 5.0 },
                                       { 0.3, 1.5, 5.0 },
                                       { 0.2, 0.25, 5.0 },
                                       { 0.7, 2.0, 5.0 },
                                       { 0.45, 1.1, 5.0 } };
    static const size_t first[] = { 4, 0, 0, 1, 0 };
    static const size_t last[] = { 2, 3, 4, 1, 2 };
    static const double lows[] = { 0.18, 0.65, 5.0 };
    static const double highs[] = { 0.55, 1.65, 5.0 };
    double low[3];
    double high[3];
    xr_err err = { "" };
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(xr_bootstrap_pick(5, 0, i), first[i]);
        assert_int_equal(xr_bootstrap_pick(5, 9999, i), last[i]);
    }
    assert_int_equal(xr_bootstrap_bands(&runs[0][0], 5, 3, low, high, &err),
                     XRAY_OK);
    for (size_t i = 0; i < 3; i++) {
        expect_near(low[i], lows[i], 1e-12);
        expect_near(high[i], highs[i], 1e-12);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_and_moments_agree),
        cmocka_unit_test(students_t_agrees),
        cmocka_unit_test(intervals_agree),
        cmocka_unit_test(no_scatter_is_judged_exactly),
        cmocka_unit_test(rounding_errors_are_no_difference),
        cmocka_unit_test(holm_adjusts_in_steps),
        cmocka_unit_test(bands_hold_the_mean),
    };
    return cmocka_run_group_tests_name("ab.stats", tests, NULL, NULL);
}
