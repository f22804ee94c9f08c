/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's runtime on the host: memory, streams that are always done and graphs
 * as lists of calls.
 */
#include "emulate_record.h"

#include <map>
#include <mutex>
#include <stdlib.h>
#include <vector>

struct CUgraph_st {
    std::vector<std::function<void()>> calls;
};

struct CUgraphExec_st {
    std::vector<std::function<void()>> calls;
};

struct CUstream_st {
    CUgraph_st *capture;
};

struct CUevent_st {
    CUgraph_st *capture;
};

namespace
{

int gpus_of_environment()
{
    const char *text = std::getenv("XRAY_EMULATED_GPUS");
    return text ? std::atoi(text) : 1;
}

struct state {
    std::recursive_mutex mutex; /* of all below */
    int count = gpus_of_environment(); /* -1: there is no driver */
    int capability = 90;
    uint64_t bytes = 8ull << 30;
    uint64_t used = 0;
    std::map<void *, size_t> blocks;
    std::map<const void *, size_t> shared;
    std::vector<CUstream_st *> streams;
};

/* Never destroyed: blocks may outlive every static object. */
state &S()
{
    static state *s = new state();
    return *s;
}

/* Ranks may be threads: what looks at the state holds it. */
struct held : std::lock_guard<std::recursive_mutex> {
    held() : lock_guard(S().mutex)
    {
    }
};

thread_local cudaError_t last = cudaSuccess;

cudaError_t told(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

} // namespace

void emulate_devices(int count, int capability, uint64_t bytes)
{
    held state_held;
    S().count = count;
    S().capability = capability;
    S().bytes = bytes;
}

bool emu_recorded(cudaStream_t stream, std::function<void()> call)
{
    if (!stream || !stream->capture)
        return false;
    stream->capture->calls.push_back(call);
    return true;
}

size_t emu_shared_allowed(const void *function)
{
    held state_held;
    auto at = S().shared.find(function);
    return at == S().shared.end() ? 0 : at->second;
}

cudaError_t emu_function_shared(const void *function, int bytes)
{
    held state_held;
    if (bytes < 0 || bytes > 227 << 10)
        return told(cudaErrorInvalidValue);
    S().shared[function] = (size_t)bytes;
    return cudaSuccess;
}

/* ---- errors, devices -------------------------------------------------------
 */

static const struct {
    cudaError_t error;
    const char *name;
    const char *text;
} errors[] = {
    { cudaSuccess, "cudaSuccess", "no error" },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorNoDevice, "cudaErrorNoDevice",
      "no CUDA-capable device is detected" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice",
      "invalid device ordinal" },
    { cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
      "CUDA driver version is insufficient for CUDA runtime version" },
    { cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
      "operation not permitted when stream is capturing" },
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const auto &e : errors)
        if (e.error == error)
            return e.name;
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const auto &e : errors)
        if (e.error == error)
            return e.text;
    return "unknown error";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last;
    last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

cudaError_t cudaDriverGetVersion(int *out)
{
    *out = S().count < 0 ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *out)
{
    *out = S().count > 0 ? S().count : 0;
    if (S().count < 0)
        return told(cudaErrorInsufficientDriver);
    return told(S().count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    return told(device < 0 || device >= S().count ? cudaErrorInvalidDevice
                                                  : cudaSuccess);
}

cudaError_t cudaGetDevice(int *out)
{
    *out = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr what, int device)
{
    if (device < 0 || device >= S().count)
        return told(cudaErrorInvalidDevice);
    switch (what) {
    case cudaDevAttrMultiProcessorCount:
        *out = 4;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *out = S().capability / 10;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *out = S().capability % 10;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *out = 227 << 10;
        return cudaSuccess;
    default:
        return told(cudaErrorInvalidValue);
    }
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *out_free, size_t *out_total)
{
    held state_held;
    *out_total = S().bytes;
    *out_free = S().bytes > S().used ? S().bytes - S().used : 0;
    return cudaSuccess;
}

/* ---- memory
 * ------------------------------------------------------------------ */

static bool capturing(void)
{
    for (const CUstream_st *s : S().streams)
        if (s->capture)
            return true;
    return false;
}

bool emu_take(size_t bytes)
{
    held state_held;
    if (bytes > S().bytes || S().used > S().bytes - bytes)
        return false;
    S().used += bytes;
    return true;
}

void emu_give(size_t bytes)
{
    held state_held;
    S().used -= bytes;
}

/* New memory is full of NaNs, as a device's is full of anything. */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    held state_held;
    if (capturing())
        return told(cudaErrorStreamCaptureUnsupported);
    void *p = nullptr;
    if (!emu_take(bytes))
        return told(cudaErrorMemoryAllocation);
    if (posix_memalign(&p, 256, bytes ? bytes : 1) != 0) {
        emu_give(bytes);
        return told(cudaErrorMemoryAllocation);
    }
    memset(p, 0xff, bytes);
    S().blocks[p] = bytes;
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFree(void *ptr)
{
    held state_held;
    if (!ptr)
        return cudaSuccess;
    auto at = S().blocks.find(ptr);
    if (at == S().blocks.end())
        return told(cudaErrorInvalidValue);
    emu_give(at->second);
    S().blocks.erase(at);
    free(ptr);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    *out = malloc(bytes);
    return told(*out ? cudaSuccess : cudaErrorMemoryAllocation);
}

cudaError_t cudaFreeHost(void *ptr)
{
    free(ptr);
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes,
                       cudaMemcpyKind kind)
{
    (void)kind;
    memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    if (!emu_recorded(stream, [=]() { memmove(to, from, bytes); }))
        memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *ptr, int value, size_t bytes)
{
    memset(ptr, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes,
                            cudaStream_t stream)
{
    if (!emu_recorded(stream, [=]() { memset(ptr, value, bytes); }))
        memset(ptr, value, bytes);
    return cudaSuccess;
}

/* ---- streams, events, graphs
 * ---------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    held state_held;
    (void)flags;
    *out = new CUstream_st();
    S().streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    held state_held;
    std::vector<CUstream_st *> &list = S().streams;
    for (size_t i = 0; i < list.size(); i++) {
        if (list[i] != stream)
            continue;
        list.erase(list.begin() + (long)i);
        delete stream;
        return cudaSuccess;
    }
    return told(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return told(stream && stream->capture ? cudaErrorStreamCaptureUnsupported
                                          : cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags)
{
    held state_held;
    (void)flags;
    if (stream && event->capture)
        stream->capture = event->capture;
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = new CUevent_st();
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->capture = stream ? stream->capture : nullptr;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return told(event->capture ? cudaErrorStreamCaptureUnsupported
                               : cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode)
{
    held state_held;
    (void)mode;
    if (!stream || stream->capture)
        return told(cudaErrorStreamCaptureUnsupported);
    stream->capture = new CUgraph_st();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    held state_held;
    if (!stream || !stream->capture)
        return told(cudaErrorInvalidValue);
    *out = stream->capture;
    for (CUstream_st *s : S().streams)
        if (s->capture == *out)
            s->capture = nullptr;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream,
                                  cudaStreamCaptureStatus *out)
{
    *out = stream && stream->capture ? cudaStreamCaptureStatusActive
                                     : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags)
{
    (void)flags;
    *out = new CUgraphExec_st{ graph->calls };
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    if (stream && stream->capture)
        return told(cudaErrorStreamCaptureUnsupported);
    for (const auto &call : graph->calls)
        call();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    delete graph;
    return cudaSuccess;
}
