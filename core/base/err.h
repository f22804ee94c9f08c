/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines errors: a status, one sentence, and the key or file that the sentence
 * is about. The function that first detects a fault writes the sentence.
 */
#ifndef XR_ERR_H
#define XR_ERR_H

#include <stdarg.h>
#include <stddef.h>

#include <xray/host.h>

/* A key of the INI, or a file. The sentence names it after the functions that
 * report it: "algo.grpo: create: clip_ratio_c: expected ...". */
typedef struct xr_location {
    char section[64]; /* "": the section of the plugin whose option `key` is */
    char key[64];     /* "": the location is a file, or unknown */
    uint32_t name_begin; /* offset of the name in `text` */
    uint32_t name_end;   /* offset past its end; 0: no location is known */
} xr_location;

typedef struct xr_err {
    char text[1024];      /* "" while nothing went wrong */
    xr_location location; /* meaningful while `text` is not empty */
} xr_err;

/* Writes the sentence (cut at the buffer's end; control characters become
 * spaces) and returns `status`. `err` may be NULL. */
XRAY_PRINTF(3, 4)
xray_status xr_fail(xr_err *err, xray_status status, const char *fmt, ...);

/* The same for a key of the INI. Writes "[section] key", or "key" alone where
 * `section` is NULL because the plugin that reports the error owns the option.
 * The formatted text follows the name directly: ": must be above 0", " = host
 * needs stage = 3". */
XRAY_PRINTF(5, 6)
xray_status xr_fail_key(xr_err *err, xray_status status, const char *section,
                        const char *key, const char *fmt, ...);

/* Notes that the sentence, which begins with its name, is about a file. */
void xr_err_file(xr_err *err, const char *file);

/* Puts "prefix: " before the sentence, which keeps its location, and returns
 * `status`. */
XRAY_PRINTF(3, 4)
xray_status xr_fail_in(xr_err *err, xray_status status, const char *fmt, ...);

/* Reports to the host why the current call fails, cut at 1023 bytes, and
 * returns `status`. `host` may be NULL. */
XRAY_PRINTF(4, 5)
xray_status xr_host_fail(const xray_host *host, xray_status status,
                         const char *where, const char *fmt, ...);
XRAY_PRINTF(4, 0)
xray_status xr_host_vfail(const xray_host *host, xray_status status,
                          const char *where, const char *fmt, va_list args);

/* The same with the sentence and the location of `err`. */
xray_status xr_host_tell(const xray_host *host, xray_status status,
                         const char *where, const xr_err *err);

/* Replaces control characters by spaces: names from files may hold anything,
 * and a message must stay one line that a terminal can show. */
void xr_one_line(char *text);

#endif
