/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares writing of text files that are plain or compressed with gzip or
 * zstd, as the end of their name tells.
 */
#ifndef XR_DATA_TEXT_OUT_H
#define XR_DATA_TEXT_OUT_H

#include "core/base/file.h"

typedef struct xr_text_out {
    xr_file_out file;
    void *packer; /* a z_stream or a ZSTD_CStream; NULL: the text is plain */
    int zstd;
} xr_text_out;

/* Opens a file that is complete or absent, with gzip for a name in .gz and zstd
 * for one in .zst. Exactly one call of xr_text_finish or xr_text_drop must
 * follow, also after a failed append. */
xray_status xr_text_begin(const char *path, xr_err *err, xr_text_out *out);
xray_status xr_text_append(xr_text_out *out, const char *text, size_t size,
                           xr_err *err);
xray_status xr_text_finish(xr_text_out *out, xr_err *err);
void xr_text_drop(xr_text_out *out);

#endif
