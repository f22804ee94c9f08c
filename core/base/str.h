/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing byte strings, number parsing, small text helpers.
 */
#ifndef XR_STR_H
#define XR_STR_H

#include <stddef.h>
#include <stdint.h>

#include <xray/abi.h>

/* A growing string, always ended with NUL. Zero-initialise; xr_str_free frees.
 * When memory runs out `failed` is set and later appends do nothing, so that
 * callers check once at the end. */
typedef struct xr_str {
    char *data; /* NULL while empty */
    size_t size;
    size_t cap;
    int failed;
} xr_str;

void xr_str_free(xr_str *s);
void xr_str_clear(xr_str *s); /* keeps the memory */
void xr_str_append(xr_str *s, const void *bytes, size_t size);
void xr_str_puts(xr_str *s, const char *text);
XRAY_PRINTF(2, 3)
void xr_str_printf(xr_str *s, const char *fmt, ...);
/* Appends a JSON string literal, quotes included; bytes that are no UTF-8 come
 * out as U+FFFD. */
void xr_str_json(xr_str *s, const char *text, size_t size);
/* Appends a number so that it reads back to the same double; NaN and
 * infinities as null. */
void xr_str_number(xr_str *s, double value);
/* As a float: the shortest text that reads back to the same float. */
void xr_str_float(xr_str *s, float value);
const char *xr_str_text(const xr_str *s); /* "" while empty */

/* Copies, NULL when out of memory; free() releases. */
char *xr_strdup(const char *text);
char *xr_strndup(const char *text, size_t size);
/* malloc(count * size) zeroed, NULL on overflow. */
void *xr_calloc(size_t count, size_t size);

/* The whole of `text` as a number; 0 on success, -1 when it is none or does not
 * fit. Decimal point is '.', whatever the locale. */
int xr_parse_int(const char *text, int64_t *out);
int xr_parse_real(const char *text, double *out);
/* 16 hexadecimal digits in lower case, as "%016llx" writes them. */
int xr_parse_hex64(const char *text, uint64_t *out);
/* "64M" -> bytes (K M G T: powers of 1024), "1.5s" -> ns (us ms s min h);
 * `bare`: the unit of a number without one, NULL: only 0 may lack it. */
int xr_parse_bytes(const char *text, uint64_t *out);
int xr_parse_duration(const char *text, const char *bare, int64_t *out_ns);

/* Levenshtein distance, capped at `limit` + 1. */
unsigned xr_edit_distance(const char *a, const char *b, unsigned limit);

/* Length of the UTF-8 sequence at `s` (1..4), 0 if it is malformed or cut by
 * `end`; the code point goes to *out. */
int xr_utf8_decode(const char *s, const char *end, uint32_t *out);
/* Writes up to 4 bytes, returns how many. */
int xr_utf8_encode(uint32_t code, char *out);

#endif
