/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices under test: the scalar kernels on one thread first, which the float64
 * references judge, then every other instruction set and thread count, and the
 * cuda device's kernels on the host, which must give the same bits.
 */
#ifndef DEVICE_BENCH_H
#define DEVICE_BENCH_H

#include <math.h>

#include "tests/testing.h"

#include <xray/device.h>
#include <xray/plugin.h>

#include "plugins/device-cpu/device.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

#ifdef BENCH_CUDA /* 1: the kernels run on the host; 2: on a GPU */
#include "plugins/device-cuda/config.h"
#include "tests/cuda/staged.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);
#endif

#define CPU_DEVICES 5
#define MOST_DEVICES (CPU_DEVICES + 1)

typedef struct dev {
    const xray_device_ops *ops;
    void *self;
    const char *name;
    int on_cuda;
} dev;

typedef struct bench {
    dev dev[MOST_DEVICES];
    int count;
} bench;

static char last_failure[512];

static xray_status bench_fail(const xray_host *host, xray_status code,
                              const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(last_failure, sizeof(last_failure), "%s: %s", where, msg);
    return code;
}

static const xray_host bench_host = { .head = XRAY_HEAD(xray_host),
                                      .fail = bench_fail };

static inline const xray_device_ops *device_ops(void)
{
    const xray_plugin *p = xray_plugin_query_device_cpu(XRAY_ABI);
    assert_non_null(p);
    assert_string_equal(p->components[0]->iface, XRAY_IFACE_DEVICE);
    return p->components[0]->ops;
}

/* After the others, its memory apart from the host's. */
static inline void bench_add_cuda(bench *b)
{
#ifdef BENCH_CUDA
    const cuda_config config = { .precision = CUDA_FLOAT32 };
    const xray_device_ops *real =
        xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
    dev *d = &b->dev[b->count];
    void *self = NULL;
    xray_status s = real->create(&bench_host, &config, 0, &self);
    if (s != XRAY_OK && BENCH_CUDA == 2) {
        (void)printf("skipped: %s\n", last_failure);
        (void)fflush(stdout);
        _exit(77);
    }
    assert_int_equal(s, XRAY_OK);
    *d = (dev){ .name = "cuda", .on_cuda = 1 };
    d->self = staged_around(real, self, &d->ops);
    assert_non_null(d->self);
    b->count++;
#else
    (void)b;
#endif
}

/* Of the cpu alone: for tests that look inside. */
static inline void bench_open_cpu(bench *b)
{
    static const struct {
        const char *name;
        int64_t isa;
        uint32_t threads;
    } wanted[CPU_DEVICES] = {
        { "scalar", CPU_ISA_SCALAR, 1 },
        { "avx2", CPU_ISA_AVX2, 1 },
        { "avx512", CPU_ISA_AVX512, 1 },
        { "2 threads", CPU_ISA_AUTO, 2 },
        { "3 threads, avx2", CPU_ISA_AVX2, 3 },
    };
    b->count = 0;
    for (int i = 0; i < CPU_DEVICES; i++) {
        dev *d = &b->dev[b->count];
        cpu_config config = { .isa = wanted[i].isa };
        *d = (dev){ .ops = device_ops(), .name = wanted[i].name };
        xray_status s =
            d->ops->create(&bench_host, &config, wanted[i].threads, &d->self);
        if (s == XRAY_E_CONFIG && wanted[i].isa == CPU_ISA_AVX512) {
            print_message("skipped: %s\n", last_failure);
            continue;
        }
        assert_int_equal(s, XRAY_OK);
        b->count++;
    }
}

static inline void bench_open(bench *b)
{
    bench_open_cpu(b);
    bench_add_cuda(b);
}

static inline void bench_close(bench *b)
{
    for (int i = 0; i < b->count; i++)
        b->dev[i].ops->destroy(b->dev[i].self);
}

/* The message of a failed call is the sentence a user would read. */
#define must(expr)                                                    \
    do {                                                              \
        xray_status s_ = (expr);                                      \
        if (s_ != XRAY_OK)                                            \
            fail_msg("%s gave %d: %s", #expr, (int)s_, last_failure); \
    } while (0)

/* ---- data --------------------------------------------------------------- */

static uint64_t random_state = 1;

static inline double random_unit(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static inline size_t random_below(size_t n)
{
    return (size_t)(random_unit() * (double)n);
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

/* ---- comparison --------------------------------------------------------- */

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

static inline xray_weight *weight_of(const dev *d, float *data, size_t rows,
                                     size_t cols)
{
    xray_weight_desc desc = { .head = XRAY_HEAD(xray_weight_desc),
                              .data = data,
                              .rows = rows,
                              .cols = cols,
                              .dtype = XRAY_F32,
                              .trainable = 1 };
    xray_weight *w = NULL;
    must(d->ops->weight_create(d->self, &desc, &w));
    return w;
}

#endif
