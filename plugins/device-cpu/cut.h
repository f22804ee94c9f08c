/* SPDX-License-Identifier: Apache-2.0
 *
 * How matrix products are cut into tasks.
 */
#ifndef CPU_CUT_H
#define CPU_CUT_H

#include <stddef.h>

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static inline size_t round_up(size_t n, size_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

static inline size_t divide_up(size_t n, size_t by)
{
    return (n + by - 1) / by;
}

/* How many tasks this much work is worth: a few per thread, so that a late task
 * costs little, but none of less than a few microseconds. */
static inline size_t count_parts(size_t threads, double cost)
{
    double enough = cost / 1e5;
    if (enough < (double)threads)
        return (size_t)enough + 1;
    if (enough < 4.0 * (double)threads)
        return (size_t)enough / threads * threads;
    return threads * 4;
}

#endif
