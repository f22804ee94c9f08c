/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest of a checkpoint: <dir>/manifest.json lists every file with its
 * size and checksum (XXH64), and ends with a checksum of itself.
 */
#ifndef XR_INVENTORY_H
#define XR_INVENTORY_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

#define XR_INVENTORY_FILE "manifest.json"

typedef struct xr_inventory_item {
    char *path; /* relative to the folder: "actor/config.json" */
    uint64_t size;
    uint64_t hash;
} xr_inventory_item;

typedef struct xr_inventory {
    xr_inventory_item *items; /* sorted by path */
    size_t count;
    size_t cap;
} xr_inventory;
void xr_inventory_free(xr_inventory *inventory);

/* Lists the files in the folder and writes the manifest, which must be the last
 * file. */
xray_status xr_inventory_write(const char *dir, xr_err *err);

/* Parses the text of a manifest, which is untrusted. `where` names it in
 * errors. */
xray_status xr_inventory_parse(const char *text, size_t size, const char *where,
                               xr_err *err, xr_inventory *out);

/* Returns XRAY_OK if the folder holds exactly the files of its manifest. The
 * error names the first file that is missing, truncated, damaged or not listed.
 */
xray_status xr_inventory_verify(const char *dir, xr_err *err);

/* Does the same for the model in one subfolder of the checkpoint, such as
 * "actor". Compares the sizes of its files and, with `sums`, the checksums of
 * those that belong to the model. For the optimizer's files only sizes are
 * compared, since a model is read without them. */
xray_status xr_inventory_verify_model(const char *dir, const char *leaf,
                                      int sums, xr_err *err);

#endif
