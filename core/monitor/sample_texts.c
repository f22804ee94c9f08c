/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes samples as Markdown. The texts of models are blocks of code, indented
 * by four blanks, so that nothing in them is markup.
 */
#include "core/monitor/sample_texts.h"

#include <stdlib.h>
#include <string.h>

#define PART_MOST 8192u

typedef struct xr_sample_text {
    xr_str name;
    xr_str text;
} sample_text;

void xr_sample_texts_free(xr_sample_texts *texts)
{
    for (size_t i = 0; i < texts->cap; i++) {
        xr_str_free(&texts->items[i].name);
        xr_str_free(&texts->items[i].text);
    }
    free(texts->items);
    free(texts->list);
    *texts = (xr_sample_texts){ .count = 0 };
}

void xr_sample_texts_clear(xr_sample_texts *texts)
{
    texts->count = 0;
    texts->failed = 0;
}

static int reserve_text(xr_sample_texts *texts)
{
    if (texts->count < texts->cap)
        return 0;
    size_t cap = texts->cap ? 2 * texts->cap : 8;
    xray_named_text *list = realloc(texts->list, cap * sizeof(*list));
    if (!list)
        return -1;
    texts->list = list;
    sample_text *items = realloc(texts->items, cap * sizeof(*items));
    if (!items)
        return -1;
    texts->items = items;
    memset(items + texts->cap, 0, (cap - texts->cap) * sizeof(*items));
    texts->cap = cap;
    return 0;
}

/* Returns 1 for a byte within a UTF-8 sequence. */
static int is_continuation(char byte)
{
    return ((unsigned char)byte & 0xc0u) == 0x80u;
}

/* Appends a part under its title, cut at its beginning (`tail`) or end. */
static void put_part(const char *title, const char *text, size_t size, int tail,
                     xr_str *out)
{
    const char *begin = text;
    const char *end = text + size;
    if (size > PART_MOST && tail)
        for (begin = end - PART_MOST; begin < end && is_continuation(*begin);)
            begin++;
    else if (size > PART_MOST)
        for (end = begin + PART_MOST; end > begin && is_continuation(*end);)
            end--;
    xr_str_printf(out, "\n%s%s:\n\n", title,
                  end - begin == (ptrdiff_t)size ? ""
                  : tail                         ? ", its end"
                                                 : ", its beginning");
    xr_shown_text(begin, (size_t)(end - begin), "    ", out);
}

void xr_sample_texts_add(xr_sample_texts *texts, const char *kind,
                         size_t number, const xr_shown_sample *sample)
{
    if (reserve_text(texts)) {
        texts->failed = 1;
        return;
    }
    sample_text *own = &texts->items[texts->count];
    xr_str_clear(&own->name);
    xr_str_clear(&own->text);
    xr_str_printf(&own->name, "samples/%s/%zu", kind, number);
    xr_str_printf(&own->text, "score %.6g\n", sample->score);
    put_part("prompt", sample->prompt, sample->prompt_size, 1, &own->text);
    put_part("answer", sample->answer, sample->answer_size, 0, &own->text);
    if (*sample->truth)
        put_part("ground truth", sample->truth, strlen(sample->truth), 0,
                 &own->text);
    if (own->name.failed || own->text.failed) {
        texts->failed = 1;
        own->name.failed = own->text.failed = 0;
        return;
    }
    texts->list[texts->count++] =
        (xray_named_text){ xr_str_text(&own->name), xr_str_text(&own->text),
                           own->text.size };
}
