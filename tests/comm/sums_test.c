/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the sums of collectives alone, over as many sources as ranks may be:
 * whole blocks and single elements have the bits of the tree that <xray/comm.h>
 * defines.
 */
#include "tests/testing.h"

#include <xray/comm.h>

#include "core/base/sums.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_of_any_number_follow_the_tree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
