/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this folder share.
 */
#ifndef XR_PLUGIN_INTERNAL_H
#define XR_PLUGIN_INTERNAL_H

#include "core/base/file.h"
#include "core/plugin/plugin.h"

/* What a note says, parsed. */
typedef struct xr_manifest {
    char name[128];
    char version[64];
    char provides[2048];
} xr_manifest;

/* Reads and checks a file's note; the error says why it is no plugin of this
 * xray. Runs no code of it. */
xray_status xr_manifest_read(const char *path, xr_err *err, xr_manifest *out);

#endif
