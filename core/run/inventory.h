/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint's folder holds: <dir>/manifest.json lists every file with
 * its size and checksum (XXH64), and ends with a checksum of itself.
 */
#ifndef XR_INVENTORY_H
#define XR_INVENTORY_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

#define XR_INVENTORY_FILE "manifest.json"

typedef struct xr_inventory_item {
    char *path; /* below the folder, "actor/config.json" */
    uint64_t size;
    uint64_t hash;
} xr_inventory_item;

typedef struct xr_inventory {
    xr_inventory_item *items; /* sorted by path */
    size_t count;
    size_t cap;
} xr_inventory;
void xr_inventory_free(xr_inventory *inventory);

/* Lists the folder as it stands and writes the manifest into it, last. */
xray_status xr_inventory_write(const char *dir, xr_err *err);

/* Reads a manifest's text; `where` names it in errors. Untrusted bytes. */
xray_status xr_inventory_parse(const char *text, size_t size, const char *where,
                               xr_err *err, xr_inventory *out);

/* XRAY_OK if the folder holds what its manifest says and nothing else; the
 * error names the first file that is missing, cut off, damaged or foreign. */
xray_status xr_inventory_verify(const char *dir, xr_err *err);

/* The same of the model in one folder of the checkpoint, "actor": its files'
 * sizes, and with `sums` the checksums of all that make up the model; of the
 * optimizer's, which a model is read without, the size is compared alone. */
xray_status xr_inventory_verify_model(const char *dir, const char *leaf,
                                      int sums, xr_err *err);

#endif
