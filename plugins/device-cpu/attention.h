/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks and small helpers that attention over packed rows and attention over a
 * KV cache share.
 */
#ifndef CPU_ATTENTION_H
#define CPU_ATTENTION_H

#include "plugins/device-cpu/device.h"

static inline size_t round16(size_t n)
{
    return (n + 15) / 16 * 16;
}

static inline size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The number of keys that a query sees, if `n` keys lie at or before its
 * position. */
static inline uint64_t visible_keys(uint64_t n, uint32_t window)
{
    return window && window < n ? window : n;
}

/* Floats of a thread's scratch for rows of up to `bound` keys: the scores of a
 * tile and the keys of the row and its parent. With parents, or with `narrow`
 * activations, which are widened, also the values, and work. */
static inline size_t cpu_attend_floats(size_t bound, size_t dim, int parents,
                                       int narrow)
{
    size_t copies = parents || narrow ? 2 : 1;
    return round16(bound) * (copies * dim + (size_t)CPU_QUERY_TILE) +
           (narrow ? cpu_attend_work(dim) : 0);
}

/* The same for the gradient. */
static inline size_t cpu_attend_grad_floats(size_t bound, size_t dim,
                                            int parents, int narrow)
{
    size_t wide = round16(bound);
    return (parents || narrow ? 3 : 2) * wide * dim +
           cpu_attend_grad_work(wide, wide, dim, narrow);
}

/* The same over a KV cache. */
static inline size_t cpu_attend_kv_floats(size_t positions, size_t dim)
{
    return round16(positions) * (size_t)CPU_QUERY_TILE + cpu_attend_work(dim);
}

static inline xray_status cpu_check_heads(const cpu_device *d,
                                          const char *where, uint32_t heads,
                                          uint32_t kv_heads, uint32_t head_dim)
{
    if (heads == 0 || kv_heads == 0 || head_dim == 0 || heads % kv_heads != 0)
        return cpu_fail(d, XRAY_E_ARG, where,
                        "%u heads cannot share %u kv heads of dimension %u",
                        heads, kv_heads, head_dim);
    return XRAY_OK;
}

#endif
