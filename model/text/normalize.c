/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a normalizer.
 */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "model/text/tok.h"

/* Below U+0300, the first combining mark, every text is NFC; its lead byte is
 * 0xCC. */
static int is_nfc(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)text[i] >= 0xCC)
            return 0;
    return 1;
}

static void to_nfc(const char *text, size_t size, xr_str *out)
{
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t length =
        utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)size,
                     &made, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (length < 0)
        out->failed = 1; /* the text is UTF-8: only memory can run out */
    else
        xr_str_append(out, made, (size_t)length);
    free(made);
}

void xm_tok_replace(const xm_step *step, const char *from, size_t size,
                    xr_str *to)
{
    size_t length = strlen(step->from);
    size_t start = 0;
    for (size_t i = 0; i + length <= size;) {
        if (memcmp(from + i, step->from, length) != 0) {
            i++;
            continue;
        }
        xr_str_append(to, from + start, i - start);
        xr_str_puts(to, step->to);
        i += length;
        start = i;
    }
    xr_str_append(to, from + start, size - start);
}

void xm_tok_normalize(const xm_tokenizer *tok, const char *text, size_t size,
                      xr_str *out)
{
    xr_str_append(out, text, size);
    for (size_t i = 0; i < tok->normalizer.count; i++) {
        const xm_step *step = &tok->normalizer.step[i];
        xr_str next = { 0 };
        if (step->kind == XM_STEP_NFC) {
            if (is_nfc(xr_str_text(out), out->size))
                continue;
            to_nfc(xr_str_text(out), out->size, &next);
        } else if (step->kind == XM_STEP_REPLACE) {
            xm_tok_replace(step, xr_str_text(out), out->size, &next);
        } else { /* prepended to what is not empty */
            xr_str_puts(&next, out->size ? step->to : "");
            xr_str_append(&next, xr_str_text(out), out->size);
        }
        next.failed |= out->failed;
        xr_str_free(out);
        *out = next;
    }
}
