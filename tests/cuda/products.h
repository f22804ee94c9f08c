/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulated device-cuda whose inner functions a test calls, and the CPU
 * device beside it.
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

static inline cuda_device *instance(int64_t precision)
{
    cuda_config config = { .precision = precision };
    void *self = NULL;
    must(cuda_ops()->create(&bench_host, &config, 1, &self));
    return self;
}

static inline void instance_close(cuda_device *d)
{
    cuda_ops()->destroy(d);
}

/* The CPU with all its options at 0, their defaults. */
static inline void *cpu_instance(void)
{
    const uint64_t config[16] = { 0 };
    void *self = NULL;
    must(cpu_ops()->create(&bench_host, config, 1, &self));
    return self;
}

static inline float from_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, sizeof(f));
    return f;
}

/* To nearest even, of finite numbers. */
static inline uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float low(float x)
{
    return from_bf16(to_bf16(x));
}

#endif
