/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's runtime on the host: memory, streams that are always done, graphs as
 * lists of calls, and the driver's virtual memory on memfd and mmap.
 */
#include "emulate_record.h"

#include <map>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

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

struct state {
    int count = 1;
    int capability = 90;
    uint64_t bytes = 8ull << 30;
    uint64_t used = 0;
    cudaError_t last = cudaSuccess;
    std::map<void *, size_t> blocks;
    std::map<const void *, size_t> shared;
    std::vector<CUstream_st *> streams;
    std::map<uint64_t, uint64_t> handles; /* file: bytes */
};

/* Never destroyed: blocks may outlive every static object. */
state &S()
{
    static state *s = new state();
    return *s;
}

cudaError_t told(cudaError_t error)
{
    if (error != cudaSuccess)
        S().last = error;
    return error;
}

} // namespace

void emulate_devices(int count, int capability, uint64_t bytes)
{
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
    auto at = S().shared.find(function);
    return at == S().shared.end() ? 0 : at->second;
}

cudaError_t emu_function_shared(const void *function, int bytes)
{
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
    cudaError_t e = S().last;
    S().last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return S().last;
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

/* New memory is full of NaNs, as a device's is full of anything. */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    if (capturing())
        return told(cudaErrorStreamCaptureUnsupported);
    void *p = nullptr;
    if (bytes + S().used > S().bytes ||
        posix_memalign(&p, 256, bytes ? bytes : 1) != 0)
        return told(cudaErrorMemoryAllocation);
    memset(p, 0xff, bytes);
    S().used += bytes;
    S().blocks[p] = bytes;
    *out = p;
    return cudaSuccess;
}

cudaError_t cudaFree(void *ptr)
{
    if (!ptr)
        return cudaSuccess;
    auto at = S().blocks.find(ptr);
    if (at == S().blocks.end())
        return told(cudaErrorInvalidValue);
    S().used -= at->second;
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
    (void)flags;
    *out = new CUstream_st();
    S().streams.push_back(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
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
    (void)mode;
    if (!stream || stream->capture)
        return told(cudaErrorStreamCaptureUnsupported);
    stream->capture = new CUgraph_st();
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
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

/* ---- the driver's virtual memory
 * -------------------------------------------------- */

#define GRAIN (64u << 10)

static CUresult vm_granularity(size_t *out, const CUmemAllocationProp *prop,
                               CUmemAllocationGranularity_flags flags)
{
    (void)prop;
    (void)flags;
    *out = GRAIN;
    return CUDA_SUCCESS;
}

static CUresult vm_reserve(CUdeviceptr *out, size_t bytes, size_t alignment,
                           CUdeviceptr at, unsigned long long flags)
{
    (void)alignment;
    (void)at;
    (void)flags;
    if (!bytes || bytes % GRAIN)
        return CUDA_ERROR_INVALID_VALUE;
    void *p = mmap(nullptr, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}

static CUresult vm_release_address(CUdeviceptr at, size_t bytes)
{
    return munmap(reinterpret_cast<void *>(at), bytes) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult vm_create(CUmemGenericAllocationHandle *out, size_t bytes,
                          const CUmemAllocationProp *prop,
                          unsigned long long flags)
{
    (void)prop;
    (void)flags;
    if (!bytes || bytes % GRAIN)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes + S().used > S().bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    int file = memfd_create("device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    S().used += bytes;
    S().handles[(uint64_t)file] = bytes;
    *out = (CUmemGenericAllocationHandle)file;
    return CUDA_SUCCESS;
}

static CUresult vm_release(CUmemGenericAllocationHandle handle)
{
    auto at = S().handles.find(handle);
    if (at == S().handles.end())
        return CUDA_ERROR_INVALID_VALUE;
    S().used -= at->second;
    S().handles.erase(at);
    close((int)handle);
    return CUDA_SUCCESS;
}

static CUresult vm_map(CUdeviceptr at, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle,
                       unsigned long long flags)
{
    (void)flags;
    void *p = mmap(reinterpret_cast<void *>(at), bytes, PROT_NONE,
                   MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    return p == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static CUresult vm_unmap(CUdeviceptr at, size_t bytes)
{
    emulate_bound(reinterpret_cast<void *>(at), bytes, bytes);
    void *p =
        mmap(reinterpret_cast<void *>(at), bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult vm_access(CUdeviceptr at, size_t bytes,
                          const CUmemAccessDesc *desc, size_t count)
{
    (void)desc;
    (void)count;
    return mprotect(reinterpret_cast<void *>(at), bytes,
                    PROT_READ | PROT_WRITE) == 0
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult vm_export(void *out, CUmemGenericAllocationHandle handle,
                          CUmemAllocationHandleType type,
                          unsigned long long flags)
{
    (void)type;
    (void)flags;
    int copy = dup((int)handle);
    memcpy(out, &copy, sizeof(copy));
    return copy < 0 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult vm_import(CUmemGenericAllocationHandle *out, void *os_handle,
                          CUmemAllocationHandleType type)
{
    (void)type;
    int copy = dup((int)(intptr_t)os_handle);
    if (copy < 0)
        return CUDA_ERROR_INVALID_VALUE;
    S().handles[(uint64_t)copy] = 0;
    *out = (CUmemGenericAllocationHandle)copy;
    return CUDA_SUCCESS;
}

static CUresult vm_device(CUdevice *out, int index)
{
    *out = index;
    return CUDA_SUCCESS;
}

static CUresult vm_name(char *out, int bytes, CUdevice device)
{
    (void)device;
    static const char name[] = "emulated device";
    if (bytes < (int)sizeof(name))
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(out, name, sizeof(name));
    return CUDA_SUCCESS;
}

static const struct {
    const char *name;
    void *entry;
} entries[] = {
    { "cuMemGetAllocationGranularity", (void *)vm_granularity },
    { "cuMemAddressReserve", (void *)vm_reserve },
    { "cuMemAddressFree", (void *)vm_release_address },
    { "cuMemCreate", (void *)vm_create },
    { "cuMemRelease", (void *)vm_release },
    { "cuMemMap", (void *)vm_map },
    { "cuMemUnmap", (void *)vm_unmap },
    { "cuMemSetAccess", (void *)vm_access },
    { "cuMemExportToShareableHandle", (void *)vm_export },
    { "cuMemImportFromShareableHandle", (void *)vm_import },
    { "cuDeviceGet", (void *)vm_device },
    { "cuDeviceGetName", (void *)vm_name },
};

cudaError_t
cudaGetDriverEntryPointByVersion(const char *symbol, void **out,
                                 unsigned version, unsigned long long flags,
                                 cudaDriverEntryPointQueryResult *out_result)
{
    (void)version;
    (void)flags;
    for (const auto &e : entries) {
        if (strcmp(e.name, symbol) != 0)
            continue;
        *out = e.entry;
        *out_result = cudaDriverEntryPointSuccess;
        return cudaSuccess;
    }
    *out = nullptr;
    *out_result = cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}

void emulate_bound(void *ptr, size_t used, size_t mapped)
{
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(ptr, used);
    if (mapped > used)
        ASAN_POISON_MEMORY_REGION(static_cast<char *>(ptr) + used,
                                  mapped - used);
#else
    (void)ptr;
    (void)used;
    (void)mapped;
#endif
}
