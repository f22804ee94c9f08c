/* SPDX-License-Identifier: Apache-2.0
 *
 * Expands the runs of char_class_runs.c into a two-level table of classes.
 */
#include "model/text/char_class.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

/* Returns the index of the last page, or of an earlier page with the same
 * contents, in which case the last page is dropped; -1: out of memory. */
static int share_last_page(xm_char_classes *classes, size_t *cap)
{
    const uint16_t *last = classes->pages + classes->page_count * 256;
    size_t i = classes->page_count;
    while (i-- > 0)
        if (memcmp(classes->pages + i * 256, last, 512) == 0)
            return (int)i;
    if (++classes->page_count == *cap) {
        uint16_t *more = realloc(classes->pages, *cap * 2 * 512);
        if (!more)
            return -1;
        classes->pages = more;
        *cap *= 2;
    }
    return (int)classes->page_count - 1;
}

int xm_char_classes_init(xm_char_classes *classes)
{
    size_t cap = 256;
    size_t run = 0;
    uint32_t left = 0;
    classes->pages = xr_calloc(cap * 256, sizeof *classes->pages);
    for (size_t p = 0; classes->pages && p < XM_CLASS_PAGES; p++) {
        /* Inside a long run the page before often serves this range too. */
        if (left >= 256 && p && run) {
            uint16_t *page = classes->pages + classes->page_count * 256;
            uint16_t value = (uint16_t)(xm_char_class_runs[run - 1] & 0x1FFF);
            const uint16_t *before =
                classes->pages + (size_t)classes->page[p - 1] * 256;
            if (before[0] == value && memcmp(before, before + 1, 510) == 0) {
                classes->page[p] = classes->page[p - 1];
                left -= 256;
                continue;
            }
            for (size_t i = 0; i < 256; i++)
                page[i] = value;
            left -= 256;
        } else {
            uint16_t *page = classes->pages + classes->page_count * 256;
            for (size_t i = 0; i < 256; i++) {
                while (!left && run < xm_char_class_run_count)
                    left = xm_char_class_runs[run++] >> 13;
                page[i] = (uint16_t)(xm_char_class_runs[run - 1] & 0x1FFF);
                left -= left != 0;
            }
        }
        int number = share_last_page(classes, &cap);
        if (number < 0)
            return -1;
        classes->page[p] = (uint16_t)number;
    }
    return classes->pages ? 0 : -1;
}

void xm_char_classes_free(xm_char_classes *classes)
{
    free(classes->pages);
    classes->pages = NULL;
}
