/* SPDX-License-Identifier: Apache-2.0
 *
 * Tells the classes of characters, as the parts of the Hugging Face library see
 * them. Each of those parts has its own version of Unicode.
 */
#ifndef XM_CHAR_CLASS_H
#define XM_CHAR_CLASS_H

#include <stddef.h>
#include <stdint.h>

#define XM_C_LETTER 1u     /* \p{L} in a pattern */
#define XM_C_NUMBER 2u     /* \p{N} in a pattern */
#define XM_C_SPACE 4u      /* White_Space */
#define XM_C_WORD 8u       /* \w for Whitespace and single_word */
#define XM_C_NUMERIC 16u   /* matched by Digits */
#define XM_C_PUNCT 32u     /* matched by Punctuation */
#define XM_C_OTHER 64u     /* removed by clean_text of BertNormalizer */
#define XM_C_ACCENT 128u   /* removed by strip_accents of BertNormalizer */
#define XM_C_MARK 256u     /* removed by StripAccents */
#define XM_C_COMBINES 512u /* has a nonzero combining class */
#define XM_C_NFD 1024u     /* NFD changes it */
#define XM_C_NFKD 2048u    /* NFKD changes it */
#define XM_C_NFC 4096u     /* NFC may change it, alone or next to another */

/* Runs of characters with equal classes from U+0000 on: length << 13 |
 * classes. */
extern const uint32_t xm_char_class_runs[];
extern const size_t xm_char_class_run_count;

#define XM_CLASS_PAGES 0x1100

typedef struct xm_char_classes {
    uint16_t page[XM_CLASS_PAGES]; /* index in `pages` per 256 code points */
    uint16_t *pages;
    size_t page_count;
} xm_char_classes;

int xm_char_classes_init(xm_char_classes *classes); /* -1: out of memory */
void xm_char_classes_free(xm_char_classes *classes);

static inline unsigned xm_char_class(const xm_char_classes *classes,
                                     uint32_t code)
{
    return classes->pages[(size_t)classes->page[code >> 8] << 8 | (code & 255)];
}

/* Returns the character at `at` of a text that is known to be valid UTF-8. */
static inline uint32_t xm_utf8_get(const char *at, size_t *out_length)
{
    const unsigned char *s = (const unsigned char *)at;
    if (s[0] < 0x80) {
        *out_length = 1;
        return s[0];
    }
    if (s[0] < 0xE0) {
        *out_length = 2;
        return (s[0] & 31u) << 6 | (s[1] & 63u);
    }
    if (s[0] < 0xF0) {
        *out_length = 3;
        return (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u);
    }
    *out_length = 4;
    return (s[0] & 7u) << 18 | (s[1] & 63u) << 12 | (s[2] & 63u) << 6 |
           (s[3] & 63u);
}

/* Returns the start of the character that ends before offset `at`. */
static inline size_t xm_utf8_back(const char *text, size_t at)
{
    do
        at--;
    while (at && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

#endif
