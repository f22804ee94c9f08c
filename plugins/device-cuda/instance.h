/* SPDX-License-Identifier: Apache-2.0
 *
 * The callbacks of the CUDA device that are not operators, its memory blocks,
 * and the entry points of the driver.
 */
#ifndef CUDA_INSTANCE_H
#define CUDA_INSTANCE_H

#include "plugins/device-cuda/device.h"

#ifndef XR_CUDA_EMULATED
#include <cuda.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the driver, loaded by its entry points, so nothing links libcuda ---- */

typedef struct cuda_driver {
    CUresult (*device)(CUdevice *, int);
    CUresult (*name)(char *, int, CUdevice);
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr,
                        unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t,
                       const CUmemAllocationProp *, unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle,
                    unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
    CUresult (*put)(void *, CUmemGenericAllocationHandle,
                    CUmemAllocationHandleType, unsigned long long);
    CUresult (*get)(CUmemGenericAllocationHandle *, void *,
                    CUmemAllocationHandleType);
    uint64_t grain; /* physical memory comes in multiples of this many bytes */
} cuda_driver;

xray_status cuda_driver_open(cuda_device *d);

/* Like cuda_check, for a driver call named `call`. */
xray_status cuda_driver_check(const cuda_device *d, const char *where,
                              const char *call, CUresult result);

/* ---- blocks -------------------------------------------------------------- */

typedef struct cuda_block {
    struct cuda_block *next;
    char *at;
    uint64_t bytes;
    uint64_t mapped; /* bytes of virtual memory; 0: cudaMalloc's own */
    CUmemGenericAllocationHandle memory;
    uint64_t nonce; /* identifies an exported block */
    int file;       /* file descriptor of the memory; -1: not exported */
    int card;       /* file that proves to peers that the block exists; or -1 */
    uint32_t tag;
    int evicted;
    int shareable;
    int reserved;
} cuda_block;

/* Page-locked memory of the host. */
typedef struct cuda_host_block {
    struct cuda_host_block *next;
    void *at;
    uint64_t bytes;
    uint64_t mapped; /* bytes that this plugin mapped; 0: cudaMallocHost's */
} cuda_host_block;

/* The block that contains `ptr`, or NULL. */
cuda_block *cuda_block_at(const cuda_device *d, const void *ptr);

/* Maps `memory` into address space of `mapped` bytes. */
xray_status cuda_map(const cuda_device *d, const char *where, uint64_t mapped,
                     CUmemGenericAllocationHandle memory, char **out);
void cuda_unmap(const cuda_device *d, char *at, uint64_t mapped);

/* Closes the files of an exported block. */
void cuda_unshare(cuda_block *b);
void cuda_share_destroy(cuda_device *d);
void cuda_memory_destroy(cuda_device *d);

/* Maps and page-locks zeroed memory of the host; returns NULL if that fails.
 * *out_mapped is what cuda_host_unmap needs. */
void *cuda_host_map(uint64_t bytes, uint64_t *out_mapped);
void cuda_host_unmap(void *at, uint64_t mapped);

/* ---- kernels of this part ------------------------------------------------ */

/* Adds the checksum of the words to *sum, on the instance's stream. */
xray_status cuda_checksum_run(const cuda_device *d,
                              const xray_checksum_rows *rows, uint64_t *sum);

/* ---- the table ----------------------------------------------------------- */

xray_status cuda_plan(const xray_host *host, const void *config,
                      xray_device_plan *out);
xray_status cuda_probe(const xray_host *host, const void *config);
xray_status cuda_create(const xray_host *host, const void *config,
                        uint32_t threads, void **out_self);
void cuda_destroy(void *self);
xray_status cuda_info(void *self, xray_device_info *info);
const void *cuda_extension(void *self, const char *id);

xray_status cuda_user_alloc(void *self, const char *owner, uint32_t tag,
                            uint64_t bytes, void **out);
void cuda_user_free(void *self, void *ptr);
xray_status cuda_host_alloc(void *self, const char *owner, uint64_t bytes,
                            void **out);
void cuda_host_free(void *self, void *ptr);
xray_status cuda_memory(void *self, xray_memory_stats *stats);
xray_status cuda_evict(void *self, void *ptr);
xray_status cuda_restore(void *self, void *ptr);
xray_status cuda_weight_evict(void *self, xray_weight *weight);
xray_status cuda_weight_restore(void *self, xray_weight *weight);
xray_status cuda_copy(void *self, xray_stream *stream, void *to,
                      const void *from, uint64_t bytes, uint32_t kind);
xray_status cuda_zero(void *self, xray_stream *stream, void *ptr,
                      uint64_t bytes);
xray_status cuda_copy_rows(void *self, xray_stream *stream,
                           const xray_copy_rows *rows);
xray_status cuda_checksum(void *self, const xray_checksum_rows *rows,
                          uint64_t *out);

xray_status cuda_stream_create(void *self, xray_stream **out);
void cuda_stream_destroy(void *self, xray_stream *stream);
xray_status cuda_sync(void *self, xray_stream *stream);
xray_status cuda_event_create(void *self, xray_event **out);
void cuda_event_destroy(void *self, xray_event *event);
xray_status cuda_event_record(void *self, xray_stream *stream,
                              xray_event *event);
xray_status cuda_event_wait(void *self, xray_stream *stream, xray_event *event);
xray_status cuda_event_query(void *self, xray_event *event);
xray_status cuda_event_sync(void *self, xray_event *event);
xray_status cuda_graph_begin(void *self, xray_stream *stream);
xray_status cuda_graph_end(void *self, xray_stream *stream, xray_graph **out);
xray_status cuda_graph_launch(void *self, xray_stream *stream,
                              xray_graph *graph);
void cuda_graph_destroy(void *self, xray_graph *graph);

xray_status cuda_shareable(void *self, uint32_t on);
xray_status cuda_share(void *self, const void *ptr, uint8_t *out_handle);
xray_status cuda_attach(void *self, const uint8_t *handle, uint64_t bytes,
                        void **out);
void cuda_detach(void *self, void *ptr);

#ifdef __cplusplus
}
#endif

#endif
