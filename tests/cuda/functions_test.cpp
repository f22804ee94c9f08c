/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the functions of kernels (fmath.h) give the CPU's bits on floats
 * of every exponent and sign, infinities and NaN included, that the sum of a
 * row by sixteen lanes equals that by one thread, and that bounds of noise
 * hold.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>

#include "plugins/device-cpu/kernels.h"
}

#include "plugins/device-cuda/attention.h"
#include "plugins/device-cuda/noise.h"

namespace
{

enum { PART = 4096, STEP = 8191 }; /* a prime, so that low bits vary */

__global__ void exp_kernel(float *y, const float *x)
{
    uint32_t i = blockIdx.x * 256 + threadIdx.x;
    y[2 * i] = cu_exp(x[i]);
    y[2 * i + 1] = cu_exp_below(x[i]);
}

/* Negative floats in steps, every one where e^x is subnormal, -inf and NaN. */
void exp_below_zero_equals_exp(void **)
{
    static float x[PART];
    static float y[2 * PART];
    const uint32_t first = cu_bits(-87.0f);
    const uint32_t last = cu_bits(-105.0f);
    for (uint64_t bits = cu_bits(-0.0f); bits < 1ull << 32;) {
        for (uint32_t i = 0; i < PART; i++) {
            x[i] = cu_float(static_cast<uint32_t>(bits));
            bits += bits >= first && bits < last ? 1 : 211;
        }
        CU_LAUNCH(exp_kernel, PART / 256, 256, 0, nullptr, y, x);
        for (uint32_t i = 0; i < PART; i++)
            if (cu_bits(y[2 * i]) != cu_bits(y[2 * i + 1]) && x[i] <= 0.0f)
                fail_msg("exp below 0 of %a is %a, not %a", (double)x[i],
                         (double)y[2 * i + 1], (double)y[2 * i]);
            else if (x[i] != x[i] && y[2 * i + 1] == y[2 * i + 1])
                fail_msg("exp below 0 of NaN is %a", (double)y[2 * i + 1]);
    }
}

__global__ void noise_kernel(float *y, uint32_t first)
{
    uint32_t i = blockIdx.x * 256 + threadIdx.x;
    y[2 * i] = -noise_below((first + i) << 9);
    y[2 * i + 1] = noise_bound((first + i) << 9);
}

/* Every u. Bits that do not enter u change no bound. */
void noise_is_never_above_its_bound(void **)
{
    static float y[2 * PART];
    float before = 0.0f;
    for (uint32_t first = 0; first < 1u << 23; first += PART) {
        CU_LAUNCH(noise_kernel, PART / 256, 256, 0, nullptr, y, first);
        for (uint32_t i = 0; i < PART; i++) {
            if (y[2 * i] > y[2 * i + 1])
                fail_msg("the noise of word %#x is %a, above %a",
                         (first + i) << 9, (double)y[2 * i],
                         (double)y[2 * i + 1]);
            assert_true(y[2 * i + 1] >= before);
            before = y[2 * i + 1];
        }
    }
    assert_true(before == NOISE_MOST);
    assert_true(noise_bound(0xffffffffu) == NOISE_MOST);
}

__global__ void block_kernel(uint32_t *y, const uint32_t *x, attend_args a)
{
    uint32_t i = blockIdx.x * 256 + threadIdx.x;
    y[i] = attend_block_of(&a, x[i]);
}

/* At and beside multiples of a block's tokens, up to the last position. */
void blocks_of_a_cache_are_quotients(void **)
{
    static const uint32_t tokens[] = { 16,    48,          64,
                                       80,    1008,        2064,
                                       65536, 0x7ffffff0u, 0x55555550u };
    static uint32_t x[PART];
    static uint32_t y[PART];
    for (uint32_t d : tokens) {
        attend_args a = {};
        a.per_block = UINT64_MAX / d + 1;
        for (uint32_t i = 0; i < PART; i++) {
            uint64_t most = UINT32_MAX / d;
            uint64_t at = most * (i / 3) / (PART / 3) * d + i % 3 - 1;
            x[i] = at > UINT32_MAX ? UINT32_MAX : static_cast<uint32_t>(at);
        }
        CU_LAUNCH(block_kernel, PART / 256, 256, 0, nullptr, y, x, a);
        for (uint32_t i = 0; i < PART; i++)
            if (y[i] != x[i] / d)
                fail_msg("key %u is in block %u of %u tokens, not %u", x[i],
                         y[i], d, x[i] / d);
    }
}

__global__ void map_kernel(uint32_t which, float *y, const float *x)
{
    uint32_t i = blockIdx.x * 256 + threadIdx.x;
    y[i] = which == CPU_MAP_EXP   ? cu_exp(x[i])
           : which == CPU_MAP_LOG ? cu_log(x[i])
                                  : cu_tanh(x[i]);
}

void functions_equal_the_cpu(void **)
{
    static float x[PART];
    static float want[PART];
    static float got[PART];
    for (uint32_t which = CPU_MAP_EXP; which <= CPU_MAP_TANH; which++)
        for (uint64_t first = 0; first < 1ull << 32;
             first += static_cast<uint64_t>(PART) * STEP) {
            for (uint32_t i = 0; i < PART; i++)
                x[i] = cu_float(static_cast<uint32_t>(first + i * STEP));
            cpu_kernels_scalar.map(which, want, x, PART);
            CU_LAUNCH(map_kernel, PART / 256, 256, 0, nullptr, which, got, x);
            for (uint32_t i = 0; i < PART; i++)
                if (cu_bits(want[i]) != cu_bits(got[i]) &&
                    (want[i] == want[i] || got[i] == got[i]))
                    fail_msg("function %u of %a is %a, on the CPU %a", which,
                             (double)x[i], (double)got[i], (double)want[i]);
        }
}

__global__ void trees_kernel(float *tree)
{
    float s[16];
    for (int i = 0; i < 16; i++)
        s[i] = 0.3f + static_cast<float>(i * i) * 0.1f;
    tree[2 * threadIdx.x] = cu_tree16(s);
    tree[2 * threadIdx.x + 1] = cu_warp_tree16(
        0.3f + static_cast<float>(threadIdx.x * threadIdx.x) * 0.1f);
}

/* The sum of a row by one thread equals that of sixteen lanes, in every
 * lane. */
void sums_by_lanes_equal_sums_by_one_thread(void **)
{
    static float tree[64];
    CU_LAUNCH(trees_kernel, 1, 32, 0, nullptr, tree);
    for (uint32_t t = 0; t < 32; t++)
        assert_true(tree[2 * t + 1] == tree[0]);
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_equal_the_cpu),
        cmocka_unit_test(exp_below_zero_equals_exp),
        cmocka_unit_test(noise_is_never_above_its_bound),
        cmocka_unit_test(blocks_of_a_cache_are_quotients),
        cmocka_unit_test(sums_by_lanes_equal_sums_by_one_thread),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
