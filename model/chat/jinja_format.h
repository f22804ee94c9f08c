/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the format specifications that "%" and str.format() share.
 */
#ifndef XM_JINJA_FORMAT_H
#define XM_JINJA_FORMAT_H

#include "model/chat/jinja.h"

struct xm_jspec {
    const char *fill; /* one character, not terminated */
    size_t fill_size;
    int width;
    int precision; /* -1: none */
    char align;    /* 0: the default of the type */
    char sign;
    char group;
    char type;
    int alt;
};

int xm_jspec_read(xm_jinterp *interp, const char *at, size_t size,
                  struct xm_jspec *out);
/* Writes a value. `plain`: the specification was empty. */
int xm_jspec_write(xm_jinterp *interp, xm_jvalue value,
                   const struct xm_jspec *spec, int plain, xr_str *out);
int xm_jspec_int(xm_jinterp *interp, const struct xm_jspec *spec, int64_t value,
                 xr_str *out);
void xm_jspec_real(const struct xm_jspec *spec, double value, xr_str *out);
void xm_jspec_text(const struct xm_jspec *spec, const xm_jstr *str,
                   xr_str *out);

#endif
