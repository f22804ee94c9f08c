/* SPDX-License-Identifier: Apache-2.0
 *
 * Arrays of fp32 or bf16 for tests of operators that take both.
 */
#ifndef DEVICE_TYPED_H
#define DEVICE_TYPED_H

#include "tests/device/bench.h"

static void *kept_arrays[64]; /* what the case at hand has allocated */
static size_t kept_count;

static inline void *keep_array(void *p)
{
    assert_non_null(p);
    assert_true(kept_count < sizeof(kept_arrays) / sizeof(*kept_arrays));
    return kept_arrays[kept_count++] = p;
}

static inline void release(void)
{
    while (kept_count)
        free(kept_arrays[--kept_count]);
}

/* Values that bf16 holds, so that they are the same in both types. */
static inline float *make_values(size_t n, double scale)
{
    float *x = keep_array(random_floats(n, scale));
    for (size_t i = 0; i < n; i++)
        x[i] = cpu_from_bf16(cpu_to_bf16(x[i]));
    return x;
}

static inline size_t type_bytes(uint32_t dtype)
{
    return dtype == XRAY_BF16 ? 2 : 4;
}

/* Element i of an array; NULL has none. */
static inline void *typed_at(const void *p, uint32_t dtype, size_t i)
{
    return p ? (char *)(uintptr_t)p + i * type_bytes(dtype) : NULL;
}

/* A copy in another type, behind one element that keeps it from being
 * aligned. */
static inline void *make_typed(const float *x, size_t n, uint32_t dtype)
{
    char *block = keep_array(malloc((n + 1) * type_bytes(dtype)));
    void *p = typed_at(block, dtype, 1);
    for (size_t i = 0; i < n; i++) {
        uint16_t half = cpu_to_bf16(x[i]);
        if (dtype == XRAY_BF16)
            memcpy(typed_at(p, dtype, i), &half, sizeof(half));
        else
            memcpy(typed_at(p, dtype, i), x + i, sizeof(*x));
    }
    return p;
}

static inline void check_typed(const void *got, uint32_t dtype,
                               const float *want, size_t n, const char *what,
                               const char *where)
{
    const void *rounded = make_typed(want, n, dtype);
    for (size_t i = 0; i < n; i++)
        if (memcmp(typed_at(got, dtype, i), typed_at(rounded, dtype, i),
                   type_bytes(dtype)) != 0)
            fail_msg("%s, %s: entry %zu of %zu is not %a in type %u", what,
                     where, i, n, (double)want[i], dtype);
    kept_count--;
    free(kept_arrays[kept_count]);
}

#endif
