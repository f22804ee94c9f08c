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

/* What an object exports. One without section headers cannot be asked. */
typedef struct xr_symbols {
    int known;
    int query;       /* the query function is among them */
    size_t extra;    /* others beside it */
    char first[128]; /* the name of the first other one */
} xr_symbols;
void xr_symbols_read(const void *data, size_t size, xr_symbols *out);

/* The program's own folder of plugins number `i`; XRAY_END past the last. */
xray_status xr_own_folder(size_t i, char *buffer, size_t cap, xr_err *err);

/* ---- trial loads -------------------------------------------------------- */

/* True if trials are on and `path` is not in a folder of the program's own. */
int xr_trial_wanted(const char *path);
/* Loads and queries the file in a child; the error says how that went. */
xray_status xr_trial_run(const char *path, xr_err *err);
/* In the child: a byte for the parent, which phase begins. */
void xr_trial_mark(char phase);

#endif
