/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares manifests, exported symbols and trial loads among the files of this
 * room.
 */
#ifndef XR_PLUGIN_INTERNAL_H
#define XR_PLUGIN_INTERNAL_H

#include "core/base/file.h"
#include "core/plugin/plugin.h"

/* The parsed content of a note. */
typedef struct xr_manifest {
    char name[128];
    char version[64];
    char provides[2048];
} xr_manifest;

/* Reads and checks a file's note; the error says why the file is not a plugin
 * for this program. Runs none of its code. */
xray_status xr_manifest_read(const char *path, xr_err *err, xr_manifest *out);

/* The symbols that an object exports. Without section headers they are
 * unknown. */
typedef struct xr_symbols {
    int known;
    int query;       /* 1: the query function is exported */
    size_t extra;    /* number of other exported symbols */
    char first[128]; /* name of the first other symbol */
} xr_symbols;
void xr_symbols_read(const void *data, size_t size, xr_symbols *out);

/* Writes the program's own plugin folder number `i`; XRAY_END past the last. */
xray_status xr_own_folder(size_t i, char *buffer, size_t cap, xr_err *err);

/* ---- trial loads -------------------------------------------------------- */

/* True if trials are enabled and `path` is not in one of the program's own
 * folders. */
int xr_trial_wanted(const char *path);
/* Loads and queries the file in a child process; the error describes its
 * failure. */
xray_status xr_trial_run(const char *path, xr_err *err);
/* In the child: reports to the parent by one byte that a phase begins. */
void xr_trial_mark(char phase);

#endif
