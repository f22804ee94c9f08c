/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory for values that are offloaded from a device.
 */
#ifndef XM_TRAIN_HOST_MEMORY_H
#define XM_TRAIN_HOST_MEMORY_H

#include <stdint.h>

#include "core/base/err.h"

typedef struct xm_host_memory {
    void *data;
    uint64_t bytes;
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
/* Maps zeros without a file. */
xray_status xm_host_memory_map(uint64_t bytes, xr_err *err,
                               xm_host_memory *out);
void xm_host_memory_unmap(xm_host_memory *memory);

#endif
