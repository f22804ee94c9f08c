/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the signatures of functions: letters for types on both sides of "->".
 * Actors and reward-ffi have grammars of their own over it. Spaces and tabs
 * mean nothing.
 */
#ifndef XR_BASE_SIGNATURE_H
#define XR_BASE_SIGNATURE_H

#include "core/base/err.h"

typedef struct xr_signature_reader {
    const char *text;   /* the whole signature */
    const char *at;     /* the next character */
    xray_status status; /* of what xr_signature_expected tells */
    xr_err *err;
} xr_signature_reader;

void xr_signature_skip(xr_signature_reader *r);
/* Takes the next character if it is one of the letters; 0 if it is not. */
char xr_signature_letter(xr_signature_reader *r, const char *letters);
/* Takes "->"; returns 0 if something else comes next. */
int xr_signature_arrow(xr_signature_reader *r);
/* Fails with a sentence that quotes the signature and says at which character,
 * counted from 1, something else was expected. */
xray_status xr_signature_expected(const xr_signature_reader *r,
                                  const char *expected);

#endif
