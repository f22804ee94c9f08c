/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulated device-cuda whose internal functions a test calls, and a CPU
 * device to compare it with.
 */
#ifndef CUDA_TEST_PRODUCTS_H
#define CUDA_TEST_PRODUCTS_H

#include "tests/device/numbers.h"

#include <xray/plugin.h>

#include "plugins/device-cuda/product.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);
const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

static inline const xray_device_ops *cuda_ops(void)
{
    return xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
}

static inline const xray_device_ops *cpu_ops(void)
{
    return xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
}

static inline cuda_device *create_cuda(int64_t precision)
{
    cuda_config config = { .precision = precision };
    void *self = NULL;
    must(cuda_ops()->create(&bench_host, &config, 1, &self));
    return self;
}

static inline void destroy_cuda(cuda_device *d)
{
    cuda_ops()->destroy(d);
}

/* Creates a CPU device with all options at 0, which are their defaults. */
static inline void *create_cpu(void)
{
    const uint64_t config[16] = { 0 };
    void *self = NULL;
    must(cpu_ops()->create(&bench_host, config, 1, &self));
    return self;
}

/* Whether product_tensor has a tile: 0 to 2 are those for few tokens, from 6 on
 * those of two or four groups of warps, of which each needs a segment of one
 * part. */
static inline int has_tile(uint32_t form, uint32_t segments, uint32_t parts,
                           int tile)
{
    int four = tile == 6 || tile == 8 || tile == 10;
    if (tile < 0 || (tile >= 3 && tile < 6))
        return 1;
    if (form != PRODUCT_NT || tile < 3)
        return form == PRODUCT_NT && segments == 0;
    return parts == 1 && (four ? segments == 4 || segments > 6 : segments > 1);
}

static inline float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* Rounds finite numbers to the nearest even bf16. */
static inline uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

REFERENCE static inline float round_to_bf16(float x)
{
    return from_bf16(to_bf16(x));
}

#endif
