/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the functions of kernels (fmath.h) give the CPU's bits on floats
 * of every exponent and sign, infinities and NaN included, and that the sum of
 * a row by sixteen lanes equals that by one thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

extern "C" {
#include <cmocka.h>

#include "plugins/device-cpu/kernels.h"
}

#include "plugins/device-cuda/fmath.h"

namespace
{

enum { PART = 4096, STEP = 8191 }; /* a prime, so that low bits vary */

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
        cmocka_unit_test(sums_by_lanes_equal_sums_by_one_thread),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
