/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the sums of collectives alone, over as many sources as ranks may be:
 * whole blocks and single elements have the bits of the tree that <xray/comm.h>
 * defines.
 */
#include "tests/testing.h"

#include <xray/comm.h>

#include "core/base/sums.h"
#include "plugins/device-cpu/device.h"

enum { COUNT = 75, MOST = XR_SUM_MOST };

static float sources[MOST][COUNT];

/* Sums element i of sources first .. first + n - 1. */
static float add_ranks(uint32_t first, uint32_t n, uint32_t i)
{
    if (n == 1)
        return sources[first][i];
    uint32_t left = xray_comm_left(n);
    return add_ranks(first, left, i) + add_ranks(first + left, n - left, i);
}

static void sums_of_any_number_follow_the_tree(void **state)
{
    const void *src[MOST];
    _Alignas(64) float sum[COUNT];
    void *dst[] = { sum };
    uint32_t random = 1;
    (void)state;
    for (uint32_t r = 0; r < MOST; r++) {
        src[r] = sources[r];
        for (uint32_t i = 0; i < COUNT; i++) {
            random = random * 1664525u + 1013904223u;
            sources[r][i] = (float)(int32_t)random;
        }
    }
    for (uint32_t n = 1; n <= MOST; n++) {
        const xr_sum s = { .dst = dst,
                           .src = src,
                           .dst_count = 1,
                           .src_count = n,
                           .dtype = XRAY_F32,
                           .stream = n % 2 };
        xr_sum_run(&s, 0, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) {
            float want = add_ranks(0, n, i);
            if (memcmp(&sum[i], &want, sizeof(want)) != 0)
                fail_msg("%u sources, element %u: %a, not %a", n, i,
                         (double)sum[i], (double)want);
        }
    }
}

/* Sums over blocks of bf16 are fp32 until they are complete. */
static void only_complete_sums_are_rounded(void **state)
{
    static uint16_t halves[MOST][COUNT];
    const void *src[MOST];
    const void *two[2];
    float left[COUNT];
    float right[COUNT];
    uint16_t all[COUNT];
    uint16_t joined[COUNT];
    void *to;
    (void)state;
    for (uint32_t r = 0; r < 8; r++) {
        src[r] = halves[r];
        for (uint32_t i = 0; i < COUNT; i++)
            halves[r][i] = cpu_to_bf16(1.0f + (float)(r * COUNT + i) * 0x1p-7f);
    }
    xr_sum s = { .dst = &to,
                 .src = src,
                 .dst_count = 1,
                 .src_count = 8,
                 .dtype = XRAY_BF16 };
    to = all;
    xr_sum_run(&s, 0, COUNT);
    s.src_count = 4;
    s.to = XRAY_F32;
    to = left;
    xr_sum_run(&s, 0, COUNT);
    for (uint32_t i = 0; i < COUNT; i++)
        assert_true(
            left[i] ==
            (cpu_from_bf16(halves[0][i]) + cpu_from_bf16(halves[1][i])) +
                (cpu_from_bf16(halves[2][i]) + cpu_from_bf16(halves[3][i])));
    s.src = src + 4;
    to = right;
    xr_sum_run(&s, 0, COUNT);
    two[0] = left;
    two[1] = right;
    s = (xr_sum){ .dst = &to,
                  .src = two,
                  .dst_count = 1,
                  .src_count = 2,
                  .dtype = XRAY_F32,
                  .to = XRAY_BF16 };
    to = joined;
    xr_sum_run(&s, 0, COUNT);
    assert_memory_equal(joined, all, sizeof(all));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_any_number_follow_the_tree),
        cmocka_unit_test(only_complete_sums_are_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
