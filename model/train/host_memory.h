/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory for values that are offloaded from a device, and for those that
 * are copied to it.
 */
#ifndef XM_TRAIN_HOST_MEMORY_H
#define XM_TRAIN_HOST_MEMORY_H

#include <stdint.h>

#include <xray/device.h>
#include <xray/setup.h>

#include "core/base/err.h"

typedef struct xm_host_memory {
    void *data;
    uint64_t bytes;
    const xray_device_ops *device; /* whose page-locked memory it is; NULL: it
                                    * is mapped */
    void *device_self;
} xm_host_memory;
/* Where files for host memory are made. */
typedef struct xm_host_folder {
    const char *section; /* the one with the option offload_dir, for errors */
    const char *dir;     /* NULL or "": TMPDIR, or /tmp */
} xm_host_folder;
/* Maps zeros from an unlinked file, so that the system can write its pages out
 * when memory is short. */
xray_status xm_host_memory_map_file(const xm_host_folder *folder,
                                    uint64_t bytes, xr_err *err,
                                    xm_host_memory *out);
/* Takes page-locked memory of zeros from a device, which must outlive it. */
xray_status xm_host_memory_lock(const xray_device_ops *device,
                                void *device_self, const char *owner,
                                uint64_t bytes, xr_err *err,
                                xm_host_memory *out);
/* Gives back memory of either kind. */
void xm_host_memory_unmap(xm_host_memory *memory);

/* Page-locked memory that is copied to the device on its default stream, which
 * may read it long after the call that enqueues the copy has returned. A bit
 * stands for each part of it that is written and copied on its own. Without
 * memory the functions below do nothing. */
typedef struct xm_staging {
    xm_host_memory memory;
    xray_event *read; /* recorded behind the last copy */
    uint32_t unread;  /* parts that copies may still read */
    uint32_t recorded;
} xm_staging;
/* Takes memory of zeros. xm_staging_close in any case. */
xray_status xm_staging_open(xm_staging *s, const xray_device_ops *device,
                            void *device_self, const char *owner,
                            uint64_t bytes, xr_err *err);
void xm_staging_close(xm_staging *s);
/* Waits until the copies of `parts` have read them, so that they can be written
 * and copied again. After these copies, xm_staging_end. */
xray_status xm_staging_begin(xm_staging *s, uint32_t parts, xr_err *err);
/* Enqueues a copy of bytes of the memory. */
xray_status xm_staging_copy(const xm_staging *s, void *to, const void *from,
                            uint64_t bytes, xr_err *err);
xray_status xm_staging_end(xm_staging *s, xr_err *err);

/* Whether a device computes in host memory. */
int xm_computes_on_host(const xray_device_ops *device, void *device_self);
/* The same of the device that a plan is for, and 1 where that is not known. */
int xm_plans_on_host(const xray_workload *load);

#endif
