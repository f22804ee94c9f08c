/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which every comm adds, for the references of tests.
 */
#ifndef TEST_COMM_PAIRS_H
#define TEST_COMM_PAIRS_H

#include "tests/testing.h"

/* The balanced tree: neighbours are added, then their sums, and so on; the last
 * of an odd number waits. */
REFERENCE static inline float add_in_pairs(float *v, uint32_t count)
{
    for (; count > 1; count = (count + 1) / 2) {
        for (uint32_t r = 0; r + 1 < count; r += 2)
            v[r / 2] = v[r] + v[r + 1];
        if (count % 2)
            v[count / 2] = v[count - 1];
    }
    return v[0];
}

#endif
