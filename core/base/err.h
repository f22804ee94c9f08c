/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors: a status and one sentence. The first to detect a fault writes it.
 */
#ifndef XR_ERR_H
#define XR_ERR_H

#include <stddef.h>

#include <xray/abi.h>

typedef struct xr_err {
    char text[1024]; /* "" while nothing went wrong */
} xr_err;

/* Writes the sentence (cut at the buffer's end; control characters become
 * spaces) and returns `status`. `err` may be NULL. */
XRAY_PRINTF(3, 4)
xray_status xr_fail(xr_err *err, xray_status status, const char *fmt, ...);

/* Puts "prefix: " before the sentence and returns `status`. */
XRAY_PRINTF(3, 4)
xray_status xr_fail_in(xr_err *err, xray_status status, const char *fmt, ...);

/* Makes control characters spaces: names out of files may hold anything, and a
 * message stays one line that a terminal shows as it is. */
void xr_one_line(char *text);

#endif
