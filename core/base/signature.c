/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the parts that all signatures have.
 */
#include "core/base/signature.h"

#include <string.h>

void xr_signature_skip(xr_signature_reader *r)
{
    while (*r->at == ' ' || *r->at == '\t')
        r->at++;
}

char xr_signature_letter(xr_signature_reader *r, const char *letters)
{
    xr_signature_skip(r);
    return *r->at && strchr(letters, *r->at) ? *r->at++ : '\0';
}

int xr_signature_arrow(xr_signature_reader *r)
{
    xr_signature_skip(r);
    if (r->at[0] != '-' || r->at[1] != '>')
        return 0;
    r->at += 2;
    return 1;
}

xray_status xr_signature_expected(const xr_signature_reader *r,
                                  const char *expected)
{
    if (!*r->at)
        return xr_fail(r->err, r->status,
                       "signature \"%s\": it ends where %s was expected",
                       r->text, expected);
    return xr_fail(r->err, r->status,
                   "signature \"%s\": '%c' at %d, expected %s", r->text, *r->at,
                   (int)(r->at - r->text) + 1, expected);
}
