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

static int class_of(int32_t code)
{
    return utf8proc_get_property(code)->combining_class;
}

static int decompose(const char *text, size_t size, xm_ids *codes)
{
    const char *end = text + size;
    int failed = 0;
    while (text < end && !failed) {
        utf8proc_int32_t made[16];
        int unused = 0;
        uint32_t code = 0;
        int length = xr_utf8_decode(text, end, &code);
        utf8proc_ssize_t count = utf8proc_decompose_char(
            (int32_t)code, made, 16, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE,
            &unused);
        failed = count < 0 || count > 16;
        for (utf8proc_ssize_t i = 0; !failed && i < count; i++)
            failed = xm_ids_push(codes, made[i]);
        text += length ? length : 1;
    }
    return failed;
}

/* Marks by class, those of one class in their order. */
static int order_run(int32_t *run, size_t count, xm_ids *spare)
{
    unsigned char present[256] = { 0 };
    int failed = 0;
    spare->count = 0;
    for (size_t i = 0; i < count; i++)
        present[class_of(run[i]) & 255] = 1;
    for (int group = 1; group < 256; group++)
        for (size_t i = 0; present[group] && i < count; i++)
            if (class_of(run[i]) == group)
                failed |= xm_ids_push(spare, run[i]);
    if (!failed)
        memcpy(run, spare->data, count * sizeof *run);
    return failed;
}

static int order(xm_ids *codes)
{
    xm_ids spare = { 0 };
    int failed = 0;
    for (size_t i = 0; i < codes->count && !failed;) {
        size_t from = i;
        int last = 0;
        int sorted = 1;
        for (int group; i < codes->count; i++, last = group) {
            group = class_of(codes->data[i]);
            if (!group)
                break;
            sorted &= group >= last;
        }
        if (!sorted)
            failed = order_run(codes->data + from, i - from, &spare);
        i += i == from;
    }
    xm_ids_free(&spare);
    return failed;
}

static void compose(int32_t *codes, size_t count, xr_str *out)
{
    utf8proc_ssize_t left = utf8proc_normalize_utf32(
        codes, (utf8proc_ssize_t)count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    for (utf8proc_ssize_t i = 0; i < left; i++) {
        char text[4];
        int length = xr_utf8_encode((uint32_t)codes[i], text);
        xr_str_append(out, text, (size_t)length);
    }
}

/* Not utf8proc_map: its time grows with the square of a run of marks, and it
 * loses U+11A7, which composes with nothing, behind a Hangul syllable. */
static void to_nfc(const char *text, size_t size, xr_str *out)
{
    xm_ids codes = { 0 };
    size_t from = 0;
    if (decompose(text, size, &codes) || order(&codes)) {
        out->failed = 1; /* the text is UTF-8: only memory can run out */
        codes.count = 0;
    }
    for (size_t i = 0; i < codes.count; i++) {
        if (codes.data[i] != 0x11A7)
            continue;
        compose(codes.data + from, i - from, out);
        from = i;
    }
    if (codes.count)
        compose(codes.data + from, codes.count - from, out);
    xm_ids_free(&codes);
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
