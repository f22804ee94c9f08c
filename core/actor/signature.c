/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the signature of a method, "ins -> outs", into its letters.
 */
#include "core/actor/signature.h"

#include <string.h>

/* Appends the letters before a '-' or the end; returns where it stopped. */
static const char *parse_letters(const char *at, uint32_t *total, char *letters,
                                 uint32_t *out_count)
{
    for (; *at && *at != '-'; at++) {
        if (*at == ' ')
            continue;
        if (!strchr("uUiIdsbm", *at) || *total == XR_ACTOR_LETTERS)
            return at;
        letters[(*out_count)++] = *at;
        (*total)++;
    }
    return at;
}

xray_status xr_signature_parse(const char *text, xr_err *err, xr_signature *out)
{
    xr_signature found = { 0 };
    uint32_t total = 0;
    const char *at = parse_letters(text, &total, found.in, &found.in_count);
    if (at[0] == '-' && at[1] == '>') {
        at = parse_letters(at + 2, &total, found.out, &found.out_count);
        if (!*at) {
            *out = found;
            return XRAY_OK;
        }
    }
    if (total == XR_ACTOR_LETTERS)
        return xr_fail(err, XRAY_E_ARG,
                       "signature \"%s\": more than %d letters", text,
                       XR_ACTOR_LETTERS);
    if (!*at)
        return xr_fail(err, XRAY_E_ARG, "signature \"%s\": it has no \"->\"",
                       text);
    return xr_fail(err, XRAY_E_ARG,
                   "signature \"%s\": '%c' at %d is not one of u U i I d s b m",
                   text, *at, (int)(at - text) + 1);
}
