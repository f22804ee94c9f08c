/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of device memory. A large block has address space of its own, to which
 * physical memory is mapped, so that the memory can be released and restored at
 * the same address. A small block is allocated with cudaMalloc.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/device-cuda/instance.h"

#define LARGE 0x100000u /* blocks of at least this many bytes are mapped */
#define ALIGNMENT 256u
#define LARGE_ON_HOST 0x4000000u /* likewise of page-locked host memory */

/* ---- the driver ---------------------------------------------------------- */

static CUmemAllocationProp allocation_properties(const cuda_device *d,
                                                 int shareable)
{
    CUmemAllocationProp p;
    memset(&p, 0, sizeof(p));
    p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = d->index;
    if (shareable)
        p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    return p;
}

xray_status cuda_driver_open(cuda_device *d)
{
    cuda_driver *v = (cuda_driver *)calloc(1, sizeof(*v));
    if (!v)
        return cuda_fail(d, XRAY_E_NOMEM, "create", "no memory");
    d->driver = v;
    const struct {
        const char *name;
        void *to;
    } wanted[] = {
        { "cuDeviceGet", &v->device },
        { "cuDeviceGetName", &v->name },
        { "cuMemGetAllocationGranularity", &v->granularity },
        { "cuMemAddressReserve", &v->reserve },
        { "cuMemAddressFree", &v->unreserve },
        { "cuMemCreate", &v->create },
        { "cuMemRelease", &v->release },
        { "cuMemMap", &v->map },
        { "cuMemUnmap", &v->unmap },
        { "cuMemSetAccess", &v->access },
        { "cuMemExportToShareableHandle", &v->put },
        { "cuMemImportFromShareableHandle", &v->get },
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(*wanted); i++) {
        void *at = NULL;
        enum cudaDriverEntryPointQueryResult found =
            cudaDriverEntryPointSymbolNotFound;
        cudaError_t e = cudaGetDriverEntryPointByVersion(
            wanted[i].name, &at, 12000, cudaEnableDefault, &found);
        if (e != cudaSuccess || found != cudaDriverEntryPointSuccess || !at)
            return cuda_fail(d, XRAY_E_DEVICE, "create",
                             "the NVIDIA driver does not have %s",
                             wanted[i].name);
        memcpy(wanted[i].to, &at, sizeof(at));
    }
    CUmemAllocationProp p = allocation_properties(d, 1);
    size_t grain = 0;
    xray_status status = cuda_driver_check(
        d, "create", "cuMemGetAllocationGranularity",
        v->granularity(&grain, &p, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    v->grain = grain;
    return status;
}

xray_status cuda_driver_check(const cuda_device *d, const char *where,
                              const char *call, CUresult result)
{
    if (result == CUDA_SUCCESS)
        return XRAY_OK;
    return cuda_fail(
        d, result == CUDA_ERROR_OUT_OF_MEMORY ? XRAY_E_NOMEM : XRAY_E_DEVICE,
        where, "the NVIDIA driver's %s failed with error %d", call,
        (int)result);
}

/* Converts between the driver's integers and the pointers that everyone else
 * uses for device addresses. */
static char *pointer_of(CUdeviceptr address)
{
    char *p = NULL;
    memcpy(&p, &address, sizeof(p));
    return p;
}

static CUdeviceptr address_of(const char *at)
{
    return (CUdeviceptr)(uintptr_t)at;
}

static xray_status map_memory(const cuda_device *d, const char *where, char *at,
                              uint64_t mapped,
                              CUmemGenericAllocationHandle memory)
{
    const cuda_driver *v = d->driver;
    CUmemAccessDesc access;
    memset(&access, 0, sizeof(access));
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = d->index;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    xray_status status = cuda_driver_check(
        d, where, "cuMemMap", v->map(address_of(at), mapped, 0, memory, 0));
    if (status != XRAY_OK)
        return status;
    status = cuda_driver_check(d, where, "cuMemSetAccess",
                               v->access(address_of(at), mapped, &access, 1));
    if (status != XRAY_OK)
        (void)v->unmap(address_of(at), mapped);
    return status;
}

xray_status cuda_map(const cuda_device *d, const char *where, uint64_t mapped,
                     CUmemGenericAllocationHandle memory, char **out)
{
    const cuda_driver *v = d->driver;
    CUdeviceptr address = 0;
    xray_status status = cuda_driver_check(
        d, where, "cuMemAddressReserve", v->reserve(&address, mapped, 0, 0, 0));
    if (status != XRAY_OK)
        return status;
    status = map_memory(d, where, pointer_of(address), mapped, memory);
    if (status != XRAY_OK)
        (void)v->unreserve(address, mapped);
    else
        *out = pointer_of(address);
    return status;
}

void cuda_unmap(const cuda_device *d, char *at, uint64_t mapped)
{
    (void)d->driver->unmap(address_of(at), mapped);
    (void)d->driver->unreserve(address_of(at), mapped);
}

/* ---- blocks -------------------------------------------------------------- */

static void count_block(cuda_device *d, const cuda_block *b)
{
    d->live[b->tag] += b->bytes;
    if (d->live[b->tag] > d->high[b->tag])
        d->high[b->tag] = d->live[b->tag];
    d->live_all += b->bytes;
    if (d->live_all > d->high_all)
        d->high_all = d->live_all;
}

static void uncount_block(cuda_device *d, const cuda_block *b)
{
    d->live[b->tag] -= b->bytes;
    d->live_all -= b->bytes;
}

cuda_block *cuda_block_at(const cuda_device *d, const void *ptr)
{
    uintptr_t p = (uintptr_t)ptr;
    for (cuda_block *b = d->blocks; b; b = b->next)
        if (p == (uintptr_t)b->at ||
            (p > (uintptr_t)b->at && p - (uintptr_t)b->at < b->bytes))
            return b;
    return NULL;
}

/* Waits until all enqueued work is done, so that the memory it used may be
 * released. */
static xray_status wait_for_device(const cuda_device *d, const char *where)
{
    xray_status status = cuda_check(d, where, cudaSetDevice(d->index));
    if (status != XRAY_OK)
        return status;
    if (d->capturing)
        return cuda_fail(d, XRAY_E_STATE, where,
                         "memory cannot change while a graph is captured");
    return cuda_check(d, where, cudaDeviceSynchronize());
}

static xray_status zero_block(const cuda_device *d, const char *where,
                              const cuda_block *b)
{
#ifdef XR_CUDA_EMULATED
    emulate_bound(b->at, b->bytes, b->mapped > b->bytes ? b->mapped : b->bytes);
#endif
    xray_status status =
        cuda_check(d, where, cudaMemsetAsync(b->at, 0, b->bytes, d->stream));
    if (status != XRAY_OK)
        return status;
    return cuda_check(d, where, cudaStreamSynchronize(d->stream));
}

static xray_status create_memory(const cuda_device *d, const char *where,
                                 cuda_block *b)
{
    CUmemAllocationProp p = allocation_properties(d, b->shareable);
    return cuda_driver_check(d, where, "cuMemCreate",
                             d->driver->create(&b->memory, b->mapped, &p, 0));
}

static xray_status create_mapped(const cuda_device *d, cuda_block *b)
{
    uint64_t grain = d->driver->grain;
    b->mapped = (b->bytes + grain - 1) / grain * grain;
    xray_status status = create_memory(d, "alloc", b);
    if (status != XRAY_OK)
        return status;
    status = cuda_map(d, "alloc", b->mapped, b->memory, &b->at);
    if (status != XRAY_OK)
        (void)d->driver->release(b->memory);
    return status;
}

static xray_status create_plain(const cuda_device *d, cuda_block *b)
{
    void *at = NULL;
    xray_status status =
        cuda_check(d, "alloc", cudaMalloc(&at, b->bytes ? b->bytes : 1));
    b->at = (char *)at;
    return status;
}

static void free_block(const cuda_device *d, cuda_block *b)
{
    cuda_unshare(b);
    if (!b->mapped) {
        (void)cudaFree(b->at);
    } else {
        if (b->memory)
            (void)d->driver->unmap(address_of(b->at), b->mapped);
        (void)d->driver->unreserve(address_of(b->at), b->mapped);
        if (b->memory)
            (void)d->driver->release(b->memory);
    }
    free(b);
}

static xray_status create_block(cuda_device *d, uint32_t tag, uint64_t bytes,
                                cuda_block **out)
{
    xray_status status = wait_for_device(d, "alloc");
    if (status != XRAY_OK)
        return status;
    if (bytes > UINT64_MAX / 4)
        return cuda_fail(d, XRAY_E_NOMEM, "alloc",
                         "no device has that much memory");
    cuda_block *b = (cuda_block *)calloc(1, sizeof(*b));
    if (!b)
        return cuda_fail(d, XRAY_E_NOMEM, "alloc", "no memory");
    b->bytes = bytes;
    b->tag = tag;
    b->file = -1;
    b->card = -1;
    b->shareable = d->sharing && bytes > 0;
    if (b->shareable || bytes >= LARGE)
        status = create_mapped(d, b);
    else
        status = create_plain(d, b);
    if (status != XRAY_OK) {
        free(b);
        return status;
    }
    status = zero_block(d, "alloc", b);
    if (status != XRAY_OK) {
        free_block(d, b);
        return status;
    }
    b->next = d->blocks;
    d->blocks = b;
    count_block(d, b);
    *out = b;
    return XRAY_OK;
}

void *cuda_alloc(cuda_device *d, uint32_t tag, uint64_t bytes)
{
    cuda_block *b = NULL;
    return create_block(d, tag, bytes, &b) == XRAY_OK ? b->at : NULL;
}

void cuda_free(cuda_device *d, void *ptr)
{
    if (!ptr)
        return;
    (void)wait_for_device(d, "free");
    for (cuda_block **link = &d->blocks; *link; link = &(*link)->next) {
        cuda_block *b = *link;
        if (b->at != ptr)
            continue;
        *link = b->next;
        if (!b->evicted)
            uncount_block(d, b);
        free_block(d, b);
        return;
    }
}

void cuda_memory_destroy(cuda_device *d)
{
    while (d->host_blocks)
        cuda_host_free(d, d->host_blocks->at);
    while (d->blocks) {
        cuda_block *b = d->blocks;
        d->blocks = b->next;
        free_block(d, b);
    }
}

xray_status cuda_scratch(cuda_device *d, uint32_t part, uint64_t bytes,
                         void **out)
{
    cuda_scratch_part *s = &d->scratch[part];
    if (bytes > s->bytes) {
        if (d->capturing)
            return cuda_fail(d, XRAY_E_STATE, "graph",
                             "scratch of %llu bytes would grow to %llu while a "
                             "graph is captured; run the same work once before",
                             (unsigned long long)s->bytes,
                             (unsigned long long)bytes);
        if (d->frozen)
            return cuda_fail(d, XRAY_E_STATE, "scratch",
                             "%llu bytes of scratch are needed, but %llu were "
                             "reserved",
                             (unsigned long long)bytes,
                             (unsigned long long)s->bytes);
        d->scratch_moves++;
        cuda_free(d, s->data);
        s->data = NULL;
        s->bytes = 0;
        uint64_t complete = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        cuda_block *b = NULL;
        xray_status status = create_block(d, XRAY_TAG_WORKSPACE, complete, &b);
        if (status != XRAY_OK)
            return cuda_fail(d, status, "scratch",
                             "no device memory for %llu bytes of scratch",
                             (unsigned long long)complete);
        s->data = b->at;
        s->bytes = complete;
    }
    *out = s->data;
    return XRAY_OK;
}

/* ---- as callers see them ------------------------------------------------- */

static const char *const tag_names[XRAY_TAG_COUNT] = {
    "weights", "grads", "optimizer", "activations", "kv", "workspace",
};

static xray_status report_no_memory(const cuda_device *d, const char *where,
                                    const char *owner, uint32_t tag,
                                    uint64_t bytes)
{
    size_t left = 0;
    size_t all = 0;
    char usage[256];
    int at = 0;
    (void)cudaMemGetInfo(&left, &all);
    for (uint32_t i = 0; i < XRAY_TAG_COUNT; i++)
        at += snprintf(usage + at, sizeof(usage) - (size_t)at, "%s%s %llu",
                       i ? ", " : "", tag_names[i],
                       (unsigned long long)d->live[i]);
    return cuda_fail(d, XRAY_E_NOMEM, where,
                     "%s: no device memory for %llu bytes of %s; GPU %d has "
                     "%llu of %llu bytes free, and this instance holds %s",
                     owner ? owner : where, (unsigned long long)bytes,
                     tag_names[tag], d->index, (unsigned long long)left,
                     (unsigned long long)all, usage);
}

xray_status cuda_user_alloc(void *self, const char *owner, uint32_t tag,
                            uint64_t bytes, void **out)
{
    cuda_device *d = (cuda_device *)self;
    if (!out || tag >= XRAY_TAG_COUNT)
        return cuda_fail(d, XRAY_E_ARG, "alloc", "%s: %s",
                         owner ? owner : "alloc",
                         out ? "unknown memory tag" : "out is NULL");
    cuda_block *b = NULL;
    xray_status status = create_block(d, tag, bytes, &b);
    if (status == XRAY_E_NOMEM)
        return report_no_memory(d, "alloc", owner, tag, bytes);
    if (status == XRAY_OK)
        *out = b->at;
    return status;
}

void cuda_user_free(void *self, void *ptr)
{
    cuda_free((cuda_device *)self, ptr);
}

/* Takes memory for a block from the mapped pages of the host if it is large,
 * and otherwise, or if that fails, from CUDA. */
static xray_status create_host_block(uint64_t bytes, cuda_host_block *b)
{
    *b = (cuda_host_block){ .bytes = bytes };
    if (bytes >= LARGE_ON_HOST)
        b->at = cuda_host_map(bytes, &b->mapped);
    if (b->at)
        return XRAY_OK;
    b->mapped = 0;
    if (cudaMallocHost(&b->at, bytes ? bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError();
        return XRAY_E_NOMEM;
    }
    memset(b->at, 0, bytes);
    return XRAY_OK;
}

xray_status cuda_host_alloc(void *self, const char *owner, uint64_t bytes,
                            void **out)
{
    cuda_device *d = (cuda_device *)self;
    if (!out)
        return cuda_fail(d, XRAY_E_ARG, "host_alloc", "%s: out is NULL",
                         owner ? owner : "host_alloc");
    xray_status status = wait_for_device(d, "host_alloc");
    if (status != XRAY_OK)
        return status;
    cuda_host_block *b = (cuda_host_block *)calloc(1, sizeof(*b));
    if (!b || create_host_block(bytes, b) != XRAY_OK) {
        free(b);
        return cuda_fail(d, XRAY_E_NOMEM, "host_alloc",
                         "%s: no page-locked host memory for %llu bytes",
                         owner ? owner : "host_alloc",
                         (unsigned long long)bytes);
    }
    b->next = d->host_blocks;
    d->host_blocks = b;
    d->host_live += bytes;
    if (d->host_live > d->host_high)
        d->host_high = d->host_live;
    *out = b->at;
    return XRAY_OK;
}

/* Copies that still use the block are waited for. */
void cuda_host_free(void *self, void *ptr)
{
    cuda_device *d = (cuda_device *)self;
    cuda_host_block **link = &d->host_blocks;
    while (*link && (*link)->at != ptr)
        link = &(*link)->next;
    cuda_host_block *b = *link;
    if (!ptr || !b)
        return;
    (void)wait_for_device(d, "host_free");
    *link = b->next;
    d->host_live -= b->bytes;
    if (b->mapped)
        cuda_host_unmap(b->at, b->mapped);
    else
        (void)cudaFreeHost(b->at);
    free(b);
}

xray_status cuda_memory(void *self, xray_memory_stats *stats)
{
    const cuda_device *d = (const cuda_device *)self;
    if (!stats)
        return cuda_fail(d, XRAY_E_ARG, "memory", "stats is NULL");
    xray_memory_stats own = { .header = XRAY_HEADER(xray_memory_stats),
                              .high_all = d->high_all,
                              .host_live = d->host_live,
                              .host_high = d->host_high };
    memcpy(own.live, d->live, sizeof(d->live));
    memcpy(own.high, d->high, sizeof(d->high));
    xray_fill(stats, &own);
    return XRAY_OK;
}

static xray_status find_block(const cuda_device *d, const char *where,
                              const void *ptr, cuda_block **out)
{
    *out = ptr ? cuda_block_at(d, ptr) : NULL;
    if (!*out || (*out)->at != ptr)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "%p is not the start of a block of this device", ptr);
    return wait_for_device(d, where);
}

/* A small block keeps its memory, because nothing would be gained. A block that
 * was exported keeps it too and stays counted, because peers may have it
 * mapped. */
xray_status cuda_evict(void *self, void *ptr)
{
    cuda_device *d = (cuda_device *)self;
    cuda_block *b;
    xray_status status = find_block(d, "evict", ptr, &b);
    if (status != XRAY_OK || b->evicted || b->file >= 0)
        return status;
    if (b->mapped) {
        status =
            cuda_driver_check(d, "evict", "cuMemUnmap",
                              d->driver->unmap(address_of(b->at), b->mapped));
        if (status != XRAY_OK)
            return status;
        (void)d->driver->release(b->memory);
        b->memory = 0;
    }
    b->evicted = 1;
    uncount_block(d, b);
    return XRAY_OK;
}

xray_status cuda_restore(void *self, void *ptr)
{
    cuda_device *d = (cuda_device *)self;
    cuda_block *b;
    xray_status status = find_block(d, "restore", ptr, &b);
    if (status != XRAY_OK || !b->evicted)
        return status;
    if (b->mapped) {
        status = create_memory(d, "restore", b);
        if (status == XRAY_E_NOMEM)
            return report_no_memory(d, "restore", NULL, b->tag, b->bytes);
        if (status != XRAY_OK)
            return status;
        status = map_memory(d, "restore", b->at, b->mapped, b->memory);
        if (status != XRAY_OK) {
            (void)d->driver->release(b->memory);
            b->memory = 0;
            return status;
        }
    }
    b->evicted = 0;
    count_block(d, b);
    return zero_block(d, "restore", b);
}

xray_status cuda_weight_evict(void *self, xray_weight *weight)
{
    cuda_device *d = (cuda_device *)self;
    if (!weight)
        return cuda_fail(d, XRAY_E_ARG, "weight_evict", "weight is NULL");
    if (!weight->narrow)
        return XRAY_OK;
    weight->stale = 0;
    weight->evicted = 1;
    return cuda_evict(d, weight->narrow);
}

xray_status cuda_weight_restore(void *self, xray_weight *weight)
{
    if (weight && weight->evicted) {
        xray_status status = cuda_restore(self, weight->narrow);
        if (status != XRAY_OK)
            return status;
        weight->evicted = 0;
    }
    return cuda_weight_changed(self, weight);
}
