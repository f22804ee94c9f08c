/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs device-cuda on this GPU for programs that time its operators: allocates
 * memory, times calls between events, and measures the bandwidth of a copy.
 */
#ifndef BENCH_CUDA_BENCH_H
#define BENCH_CUDA_BENCH_H

#include <cuda_runtime.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/host.h"
#include "plugins/device-cuda/device.h"

#include <xray/plugin.h>

extern "C" const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);

#define CALLS 20

typedef struct bench {
    const xray_device_ops *ops;
    void *self;
    cudaStream_t stream;
    cudaEvent_t from, to;
    void *flush; /* written before each call to evict the L2 cache; or NULL */
    uint64_t flush_bytes;
    double copy; /* bytes per second, read and written */
} bench;

static inline void require(int fine, const char *what)
{
    if (fine)
        return;
    (void)fprintf(stderr, "%s: %s failed\n", program_invocation_short_name,
                  what);
    exit(1);
}

static inline float *allocate_floats(bench *b, uint64_t count)
{
    void *p = NULL;
    require(b->ops->alloc(b->self, "bench", XRAY_TAG_WORKSPACE, count * 4,
                          &p) == XRAY_OK,
            "alloc");
    return static_cast<float *>(p);
}

/* Copies on the stream of the instance, which others do not wait for. */
static inline void copy_now(const bench *b, void *to, const void *from,
                            uint64_t bytes)
{
    require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, b->stream) ==
                cudaSuccess,
            "copy");
    require(cudaStreamSynchronize(b->stream) == cudaSuccess, "copy");
}

/* Returns the seconds of the fastest of CALLS calls. A call that cannot be
 * enqueued ends the program. */
template <typename Call> static double least_seconds(bench *b, Call call)
{
    double best = 1e9;
    for (int i = 0; i < CALLS + 2; i++) {
        float ms = 0;
        if (b->flush)
            require(cudaMemsetAsync(b->flush, i, b->flush_bytes, b->stream) ==
                        cudaSuccess,
                    "memset");
        require(cudaEventRecord(b->from, b->stream) == cudaSuccess, "event");
        require(call(), "call");
        require(cudaEventRecord(b->to, b->stream) == cudaSuccess, "event");
        require(cudaEventSynchronize(b->to) == cudaSuccess, "sync");
        require(cudaEventElapsedTime(&ms, b->from, b->to) == cudaSuccess,
                "time");
        if (i >= 2 && ms * 1e-3 < best)
            best = ms * 1e-3;
    }
    return best;
}

/* Argument of least_seconds: enqueues the operator `name` with its struct. */
#define ENQUEUED(b, name, op) \
    [&]() { return (b)->ops->name((b)->self, NULL, &(op)) == XRAY_OK; }

static inline void measure_copy(bench *b)
{
    uint64_t bytes = 1ull << 30;
    float *x = allocate_floats(b, bytes / 2);
    float *y = x + bytes / 4;
    double s = least_seconds(b, [&]() {
        return cudaMemcpyAsync(y, x, bytes, cudaMemcpyDeviceToDevice,
                               b->stream) == cudaSuccess;
    });
    b->copy = 2.0 * static_cast<double>(bytes) / s;
    printf("copy %.0f GB/s read and written\n", b->copy * 1e-9);
    b->ops->free(b->self, x);
}

/* Opens the device in bfloat16, and prints the GPU's name and the bandwidth of
 * a copy. */
static inline void bench_open(bench *b, uint64_t flush_bytes)
{
    static xray_host host = {};
    host.header = XRAY_HEADER(xray_host);
    host.fail = print_failure;
    cuda_config config = {};
    config.precision = CUDA_BFLOAT16;
    *b = {};
    b->ops = static_cast<const xray_device_ops *>(
        xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops);
    require(b->ops->create(&host, &config, 1, &b->self) == XRAY_OK, "create");
    b->stream = cuda_stream(static_cast<cuda_device *>(b->self), NULL);
    require(cudaEventCreate(&b->from) == cudaSuccess, "event");
    require(cudaEventCreate(&b->to) == cudaSuccess, "event");
    b->flush = flush_bytes ? allocate_floats(b, flush_bytes / 4) : NULL;
    b->flush_bytes = flush_bytes;
    xray_device_info info = {};
    info.header = XRAY_HEADER(xray_device_info);
    require(b->ops->info(b->self, &info) == XRAY_OK, "info");
    printf("%s\n", info.name);
    measure_copy(b);
}

#endif
