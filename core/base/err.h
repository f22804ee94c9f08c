/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors: a status, one sentence, and the place that the sentence is about. The
 * first to detect a fault writes them.
 */
#ifndef XR_ERR_H
#define XR_ERR_H

#include <stdarg.h>
#include <stddef.h>

#include <xray/host.h>

/* A key of the INI, or a file. The sentence begins with its name, behind who
 * says it: "algo.grpo: create: clip_ratio_c: expected ...". */
typedef struct xr_location {
    char section[64]; /* "": that of the plugin whose option `key` is */
    char key[64];     /* "": a file, or no place at all */
    uint32_t from;    /* in the text: where the name begins */
    uint32_t said;    /* where it has ended; 0: no place is known */
} xr_location;

typedef struct xr_err {
    char text[1024];      /* "" while nothing went wrong */
    xr_location location; /* of a text that is not "" */
} xr_err;

/* Writes the sentence (cut at the buffer's end; control characters become
 * spaces) and returns `status`. `err` may be NULL. */
XRAY_PRINTF(3, 4)
xray_status xr_fail(xr_err *err, xray_status status, const char *fmt, ...);

/* The same of a key of the INI: writes "[section] key", or "key" where
 * `section` is NULL, an option of the plugin that says it; the format goes on
 * right behind the name: ": must be above 0", " = host needs stage = 3". */
XRAY_PRINTF(5, 6)
xray_status xr_fail_key(xr_err *err, xray_status status, const char *section,
                        const char *key, const char *fmt, ...);

/* Notes that the sentence, which begins with its name, is about a file. */
void xr_err_file(xr_err *err, const char *file);

/* Puts "prefix: " before the sentence, which keeps its place, and returns
 * `status`. */
XRAY_PRINTF(3, 4)
xray_status xr_fail_in(xr_err *err, xray_status status, const char *fmt, ...);

/* Tells the host why the current call fails, cut at 1023 bytes, and returns
 * `status`. `host` may be NULL. */
XRAY_PRINTF(4, 5)
xray_status xr_host_fail(const xray_host *host, xray_status status,
                         const char *where, const char *fmt, ...);
XRAY_PRINTF(4, 0)
xray_status xr_host_vfail(const xray_host *host, xray_status status,
                          const char *where, const char *fmt, va_list args);

/* The same with the sentence and the place of `err`. */
xray_status xr_host_tell(const xray_host *host, xray_status status,
                         const char *where, const xr_err *err);

/* Makes control characters spaces: names out of files may hold anything, and a
 * message stays one line that a terminal shows as it is. */
void xr_one_line(char *text);

#endif
