/* SPDX-License-Identifier: Apache-2.0
 *
 * Devices under test: the scalar kernels on one thread first, which the float64
 * references judge, then every other instruction set and thread count, and the
 * cuda device's kernels on the host, which must give the same bits.
 */
#ifndef DEVICE_BENCH_H
#define DEVICE_BENCH_H

#include "tests/device/numbers.h"

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

static inline const xray_device_ops *device_ops(void)
{
    const xray_plugin *p = xray_plugin_query_device_cpu(XRAY_ABI);
    assert_non_null(p);
    assert_string_equal(p->components[0]->iface, XRAY_IFACE_DEVICE);
    return p->components[0]->ops;
}

#ifdef BENCH_CUDA
/* Its memory apart from the host's. Ends the suite as skipped where there is no
 * GPU. */
static inline dev cuda_open(int64_t precision, const char *name)
{
    const cuda_config config = { .precision = precision };
    const xray_device_ops *real =
        xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
    dev d = { .name = name, .on_cuda = 1 };
    void *self = NULL;
    xray_status s = real->create(&bench_host, &config, 0, &self);
    if (s != XRAY_OK && BENCH_CUDA == 2) {
        (void)printf("skipped: %s\n", last_failure);
        (void)fflush(stdout);
        _exit(77);
    }
    assert_int_equal(s, XRAY_OK);
    d.self = staged_around(real, self, &d.ops);
    assert_non_null(d.self);
    return d;
}
#endif

/* After the others. */
static inline void bench_add_cuda(bench *b)
{
#ifdef BENCH_CUDA
    b->dev[b->count++] = cuda_open(CUDA_FLOAT32, "cuda");
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

static inline xray_weight *weight_of(const dev *d, float *data, size_t rows,
                                     size_t cols)
{
    return weight_on(d->ops, d->self, data, rows, cols);
}

#endif
