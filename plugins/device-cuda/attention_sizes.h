/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of attention's gradient, for its kernels and for plans.
 */
#ifndef CUDA_ATTENTION_SIZES_H
#define CUDA_ATTENTION_SIZES_H

#include <stdint.h>

/* Bytes of the sums of heads that share a key, unless one kv head has more. In
 * tests so few that several launches are needed. */
#ifdef XR_CUDA_EMULATED
#define ATTEND_SUMS ((uint64_t)128 << 10)
#else
#define ATTEND_SUMS ((uint64_t)256 << 20)
#endif

/* The number of kv heads that a launch for dk and dv is for. */
static inline uint32_t attend_grad_kv_heads(uint64_t tokens, uint32_t kv_heads,
                                            uint32_t group, uint32_t dim)
{
    uint64_t each = 2 * tokens * group * dim * sizeof(float);
    uint64_t n = ATTEND_SUMS / (each ? each : 1);
    return group == 1 || n > kv_heads ? kv_heads : n < 1 ? 1 : (uint32_t)n;
}

/* The bytes of those sums, a multiple of 256. */
static inline uint64_t attend_grad_bytes(uint64_t tokens, uint32_t kv_heads,
                                         uint32_t group, uint32_t dim)
{
    uint64_t n = attend_grad_kv_heads(tokens, kv_heads, group, dim);
    uint64_t bytes = 2 * tokens * n * group * dim * sizeof(float);
    return group == 1 ? 0 : (bytes + 255) / 256 * 256;
}

#endif
