/* SPDX-License-Identifier: Apache-2.0
 *
 * Expands the runs of char_class_runs.c into a two-level table of classes.
 */
#include "model/text/char_class.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

/* There is room for this many different pages; the runs make 154. */
#define DIFFERENT ((size_t)256)

/* Returns the index of the last page, or of an earlier page with the same
 * contents, in which case the last page is dropped. */
static size_t share_last_page(xm_char_classes *classes)
{
    const uint16_t *last = classes->pages + classes->page_count * 256;
    size_t i = 0;
    while (memcmp(classes->pages + i * 256, last, 512) != 0)
        i++;
    classes->page_count += i == classes->page_count;
    return i;
}

int xm_char_classes_init(xm_char_classes *classes)
{
    size_t run = 0;
    uint32_t left = 0;
    classes->pages = xr_calloc(DIFFERENT * 256, sizeof *classes->pages);
    for (size_t p = 0; classes->pages && p < XM_CLASS_PAGES; p++) {
        /* Inside a long run the page before often serves this range too. */
        if (left >= 256) {
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
        classes->page[p] = (uint16_t)share_last_page(classes);
    }
    return classes->pages ? 0 : -1;
}

void xm_char_classes_free(xm_char_classes *classes)
{
    free(classes->pages);
    classes->pages = NULL;
}
