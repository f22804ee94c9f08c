/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares growing strings, JSON text output, number parsing, UTF-8, checked
 * allocation, and edit distance.
 */
#ifndef XR_STR_H
#define XR_STR_H

#include <stddef.h>
#include <stdint.h>

#include <xray/abi.h>

/* A growing string that always ends with NUL. Initialise it with zeros;
 * xr_str_free frees it. When memory runs out, `failed` is set and later appends
 * do nothing, so that callers check once at the end. */
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
/* Appends a JSON string literal with its quotes; bytes that are not UTF-8
 * become U+FFFD. */
void xr_str_json(xr_str *s, const char *text, size_t size);
/* Appends a number that reads back to the same double; NaN and infinities
 * become null. */
void xr_str_number(xr_str *s, double value);
/* Appends the shortest text that reads back to the same float. */
void xr_str_float(xr_str *s, float value);
const char *xr_str_text(const xr_str *s); /* "" while empty */

/* Copy a text; NULL when out of memory. free() releases the copy. */
char *xr_strdup(const char *text);
char *xr_strndup(const char *text, size_t size);
/* Allocates zeroed memory, at least one byte; NULL on overflow or when out of
 * memory. */
void *xr_calloc(size_t count, size_t size);

/* Parse all of `text` as a number; return 0, or -1 if it is not a number or
 * does not fit. The decimal point is '.' in every locale. */
int xr_parse_int(const char *text, int64_t *out);
int xr_parse_real(const char *text, double *out);
/* Parses 16 lower-case hexadecimal digits, as "%016llx" writes them. */
int xr_parse_hex64(const char *text, uint64_t *out);
/* Parse "64M" to bytes (K, M, G and T are powers of 1024) and "1.5s" to
 * nanoseconds (ns us ms s min h). `bare` is the unit of a number without one;
 * if it is NULL, only 0 may lack a unit. */
int xr_parse_bytes(const char *text, uint64_t *out);
int xr_parse_duration(const char *text, const char *bare, int64_t *out_ns);

/* Levenshtein distance, capped at `limit` + 1. */
unsigned xr_edit_distance(const char *a, const char *b, unsigned limit);

/* Returns the length (1 to 4) of the UTF-8 sequence at `s` and its code point,
 * or 0 if it is malformed or cut off by `end`. */
int xr_utf8_decode(const char *s, const char *end, uint32_t *out);
/* Writes up to 4 bytes and returns their number. */
int xr_utf8_encode(uint32_t code, char *out);

#endif
