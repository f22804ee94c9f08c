/* SPDX-License-Identifier: Apache-2.0
 *
 * The devices under test. The scalar kernels on one thread come first and are
 * compared with float64. Every other instruction set and number of threads, and
 * the kernels of the cuda device on the host, must give the same bits.
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
#define MOST_DEVICES (CPU_DEVICES + 2) /* the cuda device in each precision */

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
/* Opens the cuda device with memory apart from the host's. Ends the suite as
 * skipped if there is no GPU. */
static inline dev open_cuda(int64_t precision, const char *name)
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

/* Adds the cuda device after the others. */
static inline void add_cuda_device(bench *b)
{
#ifdef BENCH_CUDA
    b->dev[b->count++] = open_cuda(CUDA_FLOAT32, "cuda");
#else
    (void)b;
#endif
}

/* Opens the cpu devices only, for tests that look at their internals. */
static inline void open_cpu_devices(bench *b)
{
    static const struct {
        const char *name;
        int64_t isa;
        uint32_t threads;
    } wanted[] = {
        { "scalar", CPU_ISA_SCALAR, 1 },
        { "avx2", CPU_ISA_AVX2, 1 },
#ifndef __SANITIZE_THREAD__ /* one thread; the next has its kernels, too */
        { "avx512", CPU_ISA_AVX512, 1 },
#endif
        { "2 threads", CPU_ISA_AUTO, 2 },
        { "3 threads, avx2", CPU_ISA_AVX2, 3 },
    };
    b->count = 0;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
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

static inline void open_devices(bench *b)
{
    open_cpu_devices(b);
    add_cuda_device(b);
}

static inline void close_devices(bench *b)
{
    for (int i = 0; i < b->count; i++)
        b->dev[i].ops->destroy(b->dev[i].self);
}

static inline xray_weight *create_weight(const dev *d, float *data, size_t rows,
                                         size_t cols)
{
    return create_weight_on(d->ops, d->self, data, rows, cols);
}

#endif
