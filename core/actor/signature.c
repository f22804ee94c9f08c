/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the signature of a method, "ins -> outs", into its letters.
 */
#include "core/actor/signature.h"

#include "core/base/signature.h"

#define LETTERS "uUiIdsbm"

/* Appends the letters that follow; -1 if there are too many in all. */
static int read_letters(xr_signature_reader *r, uint32_t *total, char *letters,
                        uint32_t *out_count)
{
    char letter;
    while ((letter = xr_signature_letter(r, LETTERS))) {
        if ((*total)++ == XR_ACTOR_LETTERS)
            return -1;
        letters[(*out_count)++] = letter;
    }
    return 0;
}

xray_status xr_signature_parse(const char *text, xr_err *err, xr_signature *out)
{
    xr_signature_reader r = { text, text, XRAY_E_ARG, err };
    xr_signature found = { 0 };
    uint32_t total = 0;
    int many = read_letters(&r, &total, found.in, &found.in_count);
    if (!many && !xr_signature_arrow(&r))
        return xr_signature_expected(&r, "one of u U i I d s b m or ->");
    if (!many)
        many = read_letters(&r, &total, found.out, &found.out_count);
    if (many)
        return xr_fail(err, XRAY_E_ARG,
                       "signature \"%s\": more than %d letters", text,
                       XR_ACTOR_LETTERS);
    if (*r.at)
        return xr_signature_expected(&r, "one of u U i I d s b m");
    *out = found;
    return XRAY_OK;
}
