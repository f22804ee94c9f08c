/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver's virtual memory on the host: memfd provides memory, mmap provides
 * addresses.
 */
#include "emulate_internal.h"

#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace
{

/* Never destroyed, because blocks may outlive every static object. */
struct files {
    std::mutex mutex;
    std::map<uint64_t, size_t> bytes;     /* 0: the file of another process */
    std::map<CUdeviceptr, size_t> mapped; /* by address */
};

files &open_files()
{
    static files *f = new files();
    return *f;
}

std::atomic<uint64_t> addresses;
const char *refused_call;

} // namespace

bool emu_refused(const char *call)
{
    return refused_call && strcmp(refused_call, call) == 0;
}

void emulate_refuse(const char *call)
{
    refused_call = call;
}

uint64_t emulate_addresses(void)
{
    return addresses;
}

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
    if (emu_refused("cuMemAddressReserve"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *p = mmap(nullptr, bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    addresses += bytes;
    *out = (CUdeviceptr)p;
    return CUDA_SUCCESS;
}

static CUresult vm_release_address(CUdeviceptr at, size_t bytes)
{
    addresses -= bytes;
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
    if (emu_refused("cuMemCreate") || !emu_take(bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    int file = memfd_create("device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        if (file >= 0)
            close(file);
        emu_give(bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    std::lock_guard<std::mutex> hold(open_files().mutex);
    open_files().bytes[(uint64_t)file] = bytes;
    *out = (CUmemGenericAllocationHandle)file;
    return CUDA_SUCCESS;
}

static CUresult vm_release(CUmemGenericAllocationHandle handle)
{
    std::lock_guard<std::mutex> hold(open_files().mutex);
    auto at = open_files().bytes.find(handle);
    if (at == open_files().bytes.end())
        return CUDA_ERROR_INVALID_VALUE;
    emu_give(at->second);
    open_files().bytes.erase(at);
    close((int)handle);
    return CUDA_SUCCESS;
}

static CUresult vm_map(CUdeviceptr at, size_t bytes, size_t offset,
                       CUmemGenericAllocationHandle handle,
                       unsigned long long flags)
{
    (void)flags;
    if (emu_refused("cuMemMap"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    void *p = mmap(reinterpret_cast<void *>(at), bytes, PROT_NONE,
                   MAP_SHARED | MAP_FIXED, (int)handle, (off_t)offset);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    addresses += bytes;
    std::lock_guard<std::mutex> hold(open_files().mutex);
    open_files().mapped[at] = bytes;
    return CUDA_SUCCESS;
}

/* As the driver, takes back only a complete mapping. */
static CUresult vm_unmap(CUdeviceptr at, size_t bytes)
{
    {
        std::lock_guard<std::mutex> hold(open_files().mutex);
        auto mapping = open_files().mapped.find(at);
        if (mapping == open_files().mapped.end() || mapping->second != bytes)
            return CUDA_ERROR_INVALID_VALUE;
        open_files().mapped.erase(mapping);
    }
    emulate_bound(reinterpret_cast<void *>(at), bytes, bytes);
    addresses -= bytes;
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
    if (emu_refused("cuMemSetAccess"))
        return CUDA_ERROR_OUT_OF_MEMORY;
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
    std::lock_guard<std::mutex> hold(open_files().mutex);
    open_files().bytes[(uint64_t)copy] = 0;
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
