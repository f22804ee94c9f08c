/* SPDX-License-Identifier: Apache-2.0
 *
 * Callbacks of the CPU device's operator table that are not operators, and the
 * functions of the operating system below them.
 */
#ifndef CPU_INSTANCE_H
#define CPU_INSTANCE_H

#include <xray/device.h>

struct cpu_device;

/* Gives zeroed memory, on large pages where the system has them; it takes
 * physical memory when it is first touched. NULL if there is not enough. Unmap
 * it with the same length. */
void *cpu_map_pages(size_t bytes);
void cpu_unmap_pages(void *ptr, size_t bytes);
/* Asks the kernel for large pages. 0 bytes are accepted and ignored. */
void cpu_advise_huge(void *ptr, size_t bytes);
/* Zeroes the memory and returns its complete pages to the system until they are
 * touched again. */
void cpu_drop_pages(void *ptr, size_t bytes);
uint64_t cpu_memory_bytes(void);
uint64_t cpu_memory_free(void);
/* Returns the lowest memory limit of the control groups that `groups`
 * (/proc/self/cgroup) names below `mount` (/sys/fs/cgroup), in version 1 or 2,
 * or `most` if none is lower. */
uint64_t cpu_memory_limit(const char *groups, const char *mount, uint64_t most);

xray_status cpu_plan(const xray_host *host, const void *config,
                     xray_device_plan *out);
xray_status cpu_create(const xray_host *host, const void *config,
                       uint32_t threads, void **out_self);
void cpu_destroy(void *self);
xray_status cpu_info(void *self, xray_device_info *info);
xray_status cpu_user_alloc(void *self, const char *owner, uint32_t tag,
                           uint64_t bytes, void **out);
void cpu_user_free(void *self, void *ptr);
xray_status cpu_host_alloc(void *self, const char *owner, uint64_t bytes,
                           void **out);
void cpu_host_free(void *self, void *ptr);
xray_status cpu_memory(void *self, xray_memory_stats *stats);
xray_status cpu_copy(void *self, xray_stream *stream, void *to,
                     const void *from, uint64_t bytes, uint32_t kind);
xray_status cpu_zero(void *self, xray_stream *stream, void *ptr,
                     uint64_t bytes);
xray_status cpu_copy_rows(void *self, xray_stream *stream,
                          const xray_copy_rows *rows);
xray_status cpu_checksum(void *self, const xray_checksum_rows *rows,
                         uint64_t *out);
xray_status cpu_stream_create(void *self, xray_stream **out);
void cpu_stream_destroy(void *self, xray_stream *stream);
xray_status cpu_sync(void *self, xray_stream *stream);
xray_status cpu_event_create(void *self, xray_event **out);
void cpu_event_destroy(void *self, xray_event *event);
xray_status cpu_event_record(void *self, xray_stream *stream,
                             xray_event *event);
xray_status cpu_event_wait(void *self, xray_stream *stream, xray_event *event);
xray_status cpu_event_query(void *self, xray_event *event);
xray_status cpu_event_sync(void *self, xray_event *event);

xray_status cpu_evict(void *self, void *ptr);
xray_status cpu_restore(void *self, void *ptr);
xray_status cpu_shareable(void *self, uint32_t on);
xray_status cpu_share(void *self, const void *ptr, uint8_t *out_handle);
xray_status cpu_attach(void *self, const uint8_t *handle, uint64_t bytes,
                       void **out);
void cpu_detach(void *self, void *ptr);
/* Allocates a block that other processes can map; otherwise like cpu_alloc. */
void *cpu_share_alloc(struct cpu_device *d, uint32_t tag, uint64_t bytes);
/* Returns 0 if the block is not one of these. */
int cpu_share_free(struct cpu_device *d, void *ptr);
/* Both return 0 if the block is not one of these; otherwise `out` is the
 * result. */
int cpu_share_evict(struct cpu_device *d, void *ptr);
int cpu_share_restore(struct cpu_device *d, void *ptr, xray_status *out);
void cpu_share_destroy(struct cpu_device *d);

#endif
