/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the conversions of all 65536 values of both 16-bit types, and the
 * rounding around each of them.
 */
#include <math.h>

#include "model/hf/safetensors.h"
#include "tests/testing.h"

static double half_value(uint32_t bits)
{
    uint32_t exponent = bits >> 10 & 31u;
    double mantissa = bits & 0x3FFu;
    double size = exponent ? ldexp(1024 + mantissa, (int)exponent - 25)
                           : ldexp(mantissa, -24);
    return bits & 0x8000u ? -size : size;
}

static void every_f16_value_survives_a_round_trip(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        float value = xm_f16_to_f32((uint16_t)i);
        if ((i & 0x7C00u) == 0x7C00u) {
            assert_int_equal(isnan(value) != 0, (i & 0x3FFu) != 0);
            assert_int_equal(isnan(xm_f16_to_f32(xm_f32_to_f16(value))) != 0,
                             (i & 0x3FFu) != 0);
            continue;
        }
        assert_true((double)value == half_value(i));
        assert_int_equal(signbit(value) != 0, i >> 15);
        assert_int_equal(xm_f32_to_f16(value), i);
    }
}

/* A number between two neighbours becomes the nearer one, and in the middle the
 * even one. */
static void f16_rounds_to_the_nearest_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 0x7BFFu; i++) {
        float low = (float)half_value(i);
        float middle = (float)((half_value(i) + half_value(i + 1)) / 2);
        assert_int_equal(xm_f32_to_f16(middle), i + (i & 1u));
        assert_int_equal(xm_f32_to_f16(nextafterf(middle, 0)), i);
        assert_int_equal(xm_f32_to_f16(nextafterf(middle, INFINITY)), i + 1);
        assert_int_equal(xm_f32_to_f16(-low), i | 0x8000u);
    }
    assert_int_equal(xm_f32_to_f16(65519.996f), 0x7BFF);
    assert_int_equal(xm_f32_to_f16(65520.0f), 0x7C00);
}

static void every_bf16_value_survives_and_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 65536; i++) {
        uint32_t wide = i << 16;
        float value;
        memcpy(&value, &wide, sizeof value);
        float got = xm_bf16_to_f32((uint16_t)i);
        assert_memory_equal(&got, &value, sizeof value);
        if (isnan(value)) {
            assert_true(isnan(xm_bf16_to_f32(xm_f32_to_bf16(value))));
            continue;
        }
        assert_int_equal(xm_f32_to_bf16(value), i);
        if ((i & 0x7F80u) == 0x7F80u)
            continue;
        for (uint32_t low = 0x7FFFu; low <= 0x8001u; low++) {
            uint32_t bits = wide | low;
            memcpy(&value, &bits, sizeof value);
            uint32_t up = low > 0x8000u || (low == 0x8000u && (i & 1u));
            assert_int_equal(xm_f32_to_bf16(value), i + up);
        }
    }
    uint32_t bits = 0x7F800001u; /* a NaN whose high half is infinity's */
    float nan;
    memcpy(&nan, &bits, sizeof nan);
    assert_true(isnan(xm_bf16_to_f32(xm_f32_to_bf16(nan))));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_value_survives_a_round_trip),
        cmocka_unit_test(f16_rounds_to_the_nearest_even),
        cmocka_unit_test(every_bf16_value_survives_and_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
