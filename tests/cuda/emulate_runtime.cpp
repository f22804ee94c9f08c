/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's runtime on the host: memory, streams that have always finished, and
 * graphs as lists of calls.
 */
#include "emulate_internal.h"

#include <atomic>
#include <map>
#include <mutex>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

struct CUgraph_st {
    std::vector<std::function<void()>> calls;
};

struct CUgraphExec_st {
    std::vector<std::function<void()>> calls;
};

struct CUstream_st {
    CUgraph_st *capture;
    int device;
};

struct CUevent_st {
    CUgraph_st *capture;
};

namespace
{

int read_gpu_count()
{
    const char *text = std::getenv("XRAY_EMULATED_GPUS");
    return text ? std::atoi(text) : 1;
}

struct state {
    std::recursive_mutex mutex;   /* protects all members below */
    int count = read_gpu_count(); /* -1: there is no driver */
    int capability = 90;
    uint64_t bytes = 8ull << 30;
    uint64_t used = 0;
    std::map<void *, size_t> blocks;
    std::map<const void *, size_t> shared;
    std::map<void *, size_t> locked; /* memory of the host */
    std::vector<CUstream_st *> streams;
};

/* Never destroyed, because blocks may outlive every static object. */
state &runtime_state()
{
    static state *s = new state();
    return *s;
}

/* Ranks may be threads, so whoever reads the state holds its lock. */
struct state_lock : std::lock_guard<std::recursive_mutex> {
    state_lock() : lock_guard(runtime_state().mutex)
    {
    }
};

/* The shared memory that a block may have. */
int shared_most()
{
    int c = runtime_state().capability;
    return (c == 80 ? 163 : c == 86 || c == 89 ? 99 : 227) << 10;
}

thread_local cudaError_t last = cudaSuccess;
thread_local int current = 0; /* the thread's GPU */

cudaError_t keep_error(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

} // namespace

void emulate_devices(int count, int capability, uint64_t bytes)
{
    state_lock state_held;
    runtime_state().count = count;
    runtime_state().capability = capability;
    runtime_state().bytes = bytes;
}

void emu_check_stream(const char *what, cudaStream_t stream)
{
    if (stream && stream->device != current)
        emu_die("%s on a stream of GPU %d by a thread whose GPU is %d", what,
                stream->device, current);
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
    state_lock state_held;
    auto at = runtime_state().shared.find(function);
    return at == runtime_state().shared.end() ? 0 : at->second;
}

cudaError_t emu_function_shared(const void *function, int bytes)
{
    state_lock state_held;
    if (bytes < 0 || bytes > shared_most())
        return keep_error(cudaErrorInvalidValue);
    runtime_state().shared[function] = (size_t)bytes;
    return cudaSuccess;
}

/* ---- errors, devices ----------------------------------------------------- */

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
    *out = runtime_state().count < 0 ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *out)
{
    *out = runtime_state().count > 0 ? runtime_state().count : 0;
    if (runtime_state().count < 0)
        return keep_error(cudaErrorInsufficientDriver);
    return keep_error(runtime_state().count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= runtime_state().count)
        return keep_error(cudaErrorInvalidDevice);
    current = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *out)
{
    *out = current;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr what, int device)
{
    if (device < 0 || device >= runtime_state().count)
        return keep_error(cudaErrorInvalidDevice);
    switch (what) {
    case cudaDevAttrMultiProcessorCount:
        *out = 4;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *out = runtime_state().capability / 10;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *out = runtime_state().capability % 10;
        return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *out = shared_most();
        return cudaSuccess;
    default:
        return keep_error(cudaErrorInvalidValue);
    }
}

cudaError_t cudaDeviceSynchronize(void)
{
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *out_free, size_t *out_total)
{
    state_lock state_held;
    *out_total = runtime_state().bytes;
    *out_free = runtime_state().bytes > runtime_state().used
                    ? runtime_state().bytes - runtime_state().used
                    : 0;
    return cudaSuccess;
}

/* ---- memory -------------------------------------------------------------- */

static bool is_capturing(void)
{
    for (const CUstream_st *s : runtime_state().streams)
        if (s->capture)
            return true;
    return false;
}

bool emu_take(size_t bytes)
{
    state_lock state_held;
    if (bytes > runtime_state().bytes ||
        runtime_state().used > runtime_state().bytes - bytes)
        return false;
    runtime_state().used += bytes;
    return true;
}

void emu_give(size_t bytes)
{
    state_lock state_held;
    runtime_state().used -= bytes;
}

/* New memory is full of NaNs, since that of a device has arbitrary content. */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    state_lock state_held;
    if (is_capturing())
        return keep_error(cudaErrorStreamCaptureUnsupported);
    void *p = nullptr;
    if (!emu_take(bytes))
        return keep_error(cudaErrorMemoryAllocation);
    if (posix_memalign(&p, 256, bytes ? bytes : 1) != 0) {
        emu_give(bytes);
        return keep_error(cudaErrorMemoryAllocation);
    }
    memset(p, 0xff, bytes);
    runtime_state().blocks[p] = bytes;
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFree(void *ptr)
{
    state_lock state_held;
    if (!ptr)
        return cudaSuccess;
    auto at = runtime_state().blocks.find(ptr);
    if (at == runtime_state().blocks.end())
        return keep_error(cudaErrorInvalidValue);
    emu_give(at->second);
    runtime_state().blocks.erase(at);
    free(ptr);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    void *p = nullptr;
    if (emu_refused("cudaMallocHost"))
        return keep_error(cudaErrorMemoryAllocation);
    if (posix_memalign(&p, 4096, bytes ? bytes : 1) != 0)
        return keep_error(cudaErrorMemoryAllocation);
    memset(p, 0xff, bytes);
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *ptr)
{
    free(ptr);
    return cudaSuccess;
}

/* msync fails where nothing is mapped. */
cudaError_t cudaHostRegister(void *ptr, size_t bytes, unsigned flags)
{
    state_lock state_held;
    (void)flags;
    if (emu_refused("cudaHostRegister"))
        return keep_error(cudaErrorMemoryAllocation);
    if (!ptr || bytes == 0 || msync(ptr, bytes, MS_ASYNC) != 0 ||
        !runtime_state().locked.insert({ ptr, bytes }).second)
        return keep_error(cudaErrorInvalidValue);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *ptr)
{
    state_lock state_held;
    return runtime_state().locked.erase(ptr)
               ? cudaSuccess
               : keep_error(cudaErrorInvalidValue);
}

uint64_t emulate_locked(void)
{
    state_lock state_held;
    uint64_t bytes = 0;
    for (const auto &block : runtime_state().locked)
        bytes += block.second;
    return bytes;
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

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from,
                              size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    auto copy = [=]() {
        for (size_t i = 0; i < height; i++)
            memmove((char *)to + i * to_pitch,
                    (const char *)from + i * from_pitch, width);
    };
    if (width > to_pitch || width > from_pitch)
        return keep_error(cudaErrorInvalidValue);
    if (!emu_recorded(stream, copy))
        copy();
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

/* ---- streams, events, graphs --------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    state_lock state_held;
    (void)flags;
    *out = new CUstream_st{ nullptr, current };
    runtime_state().streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    state_lock state_held;
    std::vector<CUstream_st *> &list = runtime_state().streams;
    for (size_t i = 0; i < list.size(); i++) {
        if (list[i] != stream)
            continue;
        list.erase(list.begin() + (long)i);
        delete stream;
        return cudaSuccess;
    }
    return keep_error(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return keep_error(stream && stream->capture
                          ? cudaErrorStreamCaptureUnsupported
                          : cudaSuccess);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags)
{
    state_lock state_held;
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
    emu_check_stream("cudaEventRecord", stream);
    event->capture = stream ? stream->capture : nullptr;
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return keep_error(event->capture ? cudaErrorStreamCaptureUnsupported
                                     : cudaSuccess);
}

/* While a test holds the streams, their work counts as not done. */
static std::atomic<int> held_streams;

void emulate_hold(int held)
{
    held_streams = held;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event->capture)
        return keep_error(cudaErrorStreamCaptureUnsupported);
    return keep_error(held_streams ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode)
{
    state_lock state_held;
    (void)mode;
    if (!stream || stream->capture)
        return keep_error(cudaErrorStreamCaptureUnsupported);
    stream->capture = new CUgraph_st();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    state_lock state_held;
    if (!stream || !stream->capture)
        return keep_error(cudaErrorInvalidValue);
    *out = stream->capture;
    for (CUstream_st *s : runtime_state().streams)
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
        return keep_error(cudaErrorStreamCaptureUnsupported);
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
