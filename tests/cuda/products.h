/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulated device-cuda whose inner functions a test calls, and the CPU
 * device beside it.
 */
#ifndef CUDA_TEST_PRODUCTS_H
#define CUDA_TEST_PRODUCTS_H

#include <math.h>

#include "tests/testing.h"

#include <xray/device.h>
#include <xray/plugin.h>

#include "plugins/device-cuda/product.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);
const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

static char last_failure[512];

static xray_status note_failure(const xray_host *host, xray_status code,
                                const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(last_failure, sizeof(last_failure), "%s: %s", where, msg);
    return code;
}

static const xray_host test_host = { .head = XRAY_HEAD(xray_host),
                                     .fail = note_failure };

/* The message of a failed call is the sentence a user would read. */
#define must(expr)                                                    \
    do {                                                              \
        xray_status s_ = (expr);                                      \
        if (s_ != XRAY_OK)                                            \
            fail_msg("%s gave %d: %s", #expr, (int)s_, last_failure); \
    } while (0)

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
    must(cuda_ops()->create(&test_host, &config, 1, &self));
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
    must(cpu_ops()->create(&test_host, config, 1, &self));
    return self;
}

static inline xray_weight *weight_of(const xray_device_ops *ops, void *self,
                                     void *data, size_t rows, size_t cols)
{
    xray_weight_desc desc = { .head = XRAY_HEAD(xray_weight_desc),
                              .data = data,
                              .rows = rows,
                              .cols = cols,
                              .dtype = XRAY_F32,
                              .trainable = 1 };
    xray_weight *w = NULL;
    must(ops->weight_create(self, &desc, &w));
    return w;
}

/* ---- numbers ------------------------------------------------------------- */

static uint64_t random_state = 1;

static inline double random_unit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static inline float *floats(size_t n)
{
    float *p = calloc(n ? n : 1, sizeof(*p));
    assert_non_null(p);
    return p;
}

static inline float *random_floats(size_t n, double scale)
{
    float *p = floats(n);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)((random_unit() + random_unit() - 1.0) * scale);
    return p;
}

static inline float *copy_of(const float *p, size_t n)
{
    float *c = floats(n);
    memcpy(c, p, n * sizeof(*p));
    return c;
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

static inline void same_bits(const float *a, const float *b, size_t n,
                             const char *what, const char *where)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof(*a)) != 0)
            fail_msg("%s, %s: entry %zu is %a, not %a", what, where, i,
                     (double)a[i], (double)b[i]);
}

/* |got - want| <= tolerance * (1 + |want|). */
static inline void near(float got, double want, double tolerance,
                        const char *what)
{
    if (!(fabs((double)got - want) <= tolerance * (1.0 + fabs(want))))
        fail_msg("%s: %.9g, float64 says %.9g", what, (double)got, want);
}

#endif
