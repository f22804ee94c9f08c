/* SPDX-License-Identifier: Apache-2.0
 *
 * Words to ids by merges.
 */
#include "model/text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "model/text/cache.h"
#include "model/text/tok.h"

/* A part of a word. In a long word the parts are a list inside an array, and
 * one that was merged away has size 0. */
typedef struct xm_symbol {
    int32_t id;
    uint32_t size; /* in bytes */
    int32_t prev;
    int32_t next;
} xm_symbol;

/* A merge that may be made at `pos`; the lowest rank, then the leftmost, comes
 * first. */
typedef struct candidate {
    uint32_t rank;
    uint32_t pos;
    int32_t made;
} candidate;

void xm_merges_free(xm_merges *merges)
{
    if (merges)
        free(merges->slots);
    free(merges);
}

static int before(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.pos < b.pos;
}

typedef struct merger {
    const xm_merges *merges;
    xm_symbol *symbols;
    candidate *heap;
    size_t heap_count;
} merger;

static void heap_push(merger *m, candidate c)
{
    size_t i = m->heap_count++;
    while (i && before(c, m->heap[(i - 1) / 2])) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = c;
}

static candidate heap_pop(merger *m)
{
    candidate top = m->heap[0];
    candidate last = m->heap[--m->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= m->heap_count)
            break;
        if (child + 1 < m->heap_count &&
            before(m->heap[child + 1], m->heap[child]))
            child++;
        if (!before(m->heap[child], last))
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return top;
}

/* The pair that starts at `pos`, if it may be merged. */
static void offer(merger *m, int32_t pos)
{
    if (pos < 0 || m->symbols[pos].next < 0)
        return;
    const xm_symbol *s = &m->symbols[pos];
    const xm_merge *merge = xm_merge_slot(m->merges, (uint32_t)s->id,
                                          (uint32_t)m->symbols[s->next].id);
    if (merge->rank != XM_NO_RANK)
        heap_push(m, (candidate){ merge->rank, (uint32_t)pos, merge->made });
}

/* Each merge offers two new pairs, and there are fewer than `count`. */
static size_t merge_long(merger *m, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        m->symbols[i].prev = (int32_t)i - 1;
        m->symbols[i].next = i + 1 < count ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < count; i++)
        offer(m, (int32_t)i);
    while (m->heap_count) {
        candidate top = heap_pop(m);
        xm_symbol *left = &m->symbols[top.pos];
        if (!left->size || left->next < 0)
            continue;
        xm_symbol *right = &m->symbols[left->next];
        const xm_merge *now =
            xm_merge_slot(m->merges, (uint32_t)left->id, (uint32_t)right->id);
        if (now->rank == XM_NO_RANK || now->made != top.made)
            continue; /* a neighbour was merged away since */
        left->id = top.made;
        left->next = right->next;
        left->size += right->size;
        right->size = 0;
        if (left->next >= 0)
            m->symbols[left->next].prev = (int32_t)top.pos;
        offer(m, left->prev);
        offer(m, (int32_t)top.pos);
    }
    size_t made = 0;
    for (size_t i = 0; i < count; i++)
        if (m->symbols[i].size)
            m->symbols[made++] = m->symbols[i];
    return made;
}

/* Words of up to so many symbols merge in arrays of their ranks. */
#define SHORT 48

typedef struct pair {
    uint32_t rank;
    int32_t made;
} pair;

static pair rank_of(const xm_merges *merges, const xm_symbol *left)
{
    const xm_merge *m =
        xm_merge_slot(merges, (uint32_t)left[0].id, (uint32_t)left[1].id);
    return (pair){ m->rank, m->made };
}

static size_t merge_short(const xm_merges *merges, xm_symbol *s, size_t count)
{
    pair pairs[SHORT];
    for (size_t i = 0; i + 1 < count; i++)
        pairs[i] = rank_of(merges, s + i);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            best = pairs[i].rank < pairs[best].rank ? i : best;
        if (pairs[best].rank == XM_NO_RANK)
            break;
        s[best].id = pairs[best].made;
        s[best].size += s[best + 1].size;
        count--;
        memmove(s + best + 1, s + best + 2, (count - best - 1) * sizeof *s);
        if (best + 2 < count)
            memmove(pairs + best + 1, pairs + best + 2,
                    (count - best - 2) * sizeof *pairs);
        else if (best + 1 >= count && !best)
            break;
        if (best + 1 < count)
            pairs[best] = rank_of(merges, s + best);
        if (best)
            pairs[best - 1] = rank_of(merges, s + best - 1);
    }
    return count;
}

static int merge_all(xm_walk *w, size_t *count)
{
    const xm_merges *merges = w->tok->model.merges;
    xm_room *room = w->room;
    if (*count < 2 || !merges->count)
        return 0;
    if (*count <= SHORT) {
        *count = merge_short(merges, room->symbols, *count);
        return 0;
    }
    if (xm_room_grow(&room->heap, &room->heap_cap, 3 * *count,
                     sizeof(candidate)))
        return -1;
    merger m = { merges, room->symbols, room->heap, 0 };
    *count = merge_long(&m, *count);
    return 0;
}

/* The symbols of a word are being put together. An unknown character waits so
 * that the next may join it (fuse_unk); bytes do not end the wait: that is the
 * library's order. */
typedef struct builder {
    const xm_model *model;
    xm_symbol *symbols;
    size_t count;
    uint32_t unknown; /* bytes of what waits */
    int lost;         /* a character needs an unk_token that is not there */
} builder;

static void add(builder *b, int32_t id, size_t size)
{
    b->symbols[b->count++] = (xm_symbol){ .id = id, .size = (uint32_t)size };
}

/* Ids of the bytes of a character outside the vocabulary; 0 if any is
 * missing. */
static int add_bytes(builder *b, const char *at, size_t size)
{
    const int32_t *ids = b->model->byte_ids;
    for (size_t i = 0; i < size; i++)
        if (ids[(unsigned char)at[i]] < 0)
            return 0;
    for (size_t i = 0; i < size; i++)
        add(b, ids[(unsigned char)at[i]], 1);
    return 1;
}

/* A character, `key` with what the model puts around it. */
static void add_char(builder *b, const xm_vocab *ids, const char *key,
                     size_t key_size, size_t size)
{
    const xm_model *m = b->model;
    int32_t id = xm_vocab_get(ids, key, key_size);
    if (id >= 0) {
        if (b->unknown)
            add(b, m->unk_id, b->unknown);
        b->unknown = 0;
        add(b, id, size);
        return;
    }
    if (m->byte_fallback && add_bytes(b, key, key_size))
        return;
    b->lost |= m->unk_lost;
    if (m->unk_id < 0)
        return;
    if (b->unknown && !m->fuse_unk) {
        add(b, m->unk_id, b->unknown);
        b->unknown = 0;
    }
    b->unknown += (uint32_t)size;
}

static int add_chars(xm_walk *w, builder *b, const char *text, size_t size)
{
    const xm_model *m = b->model;
    int affixes = *m->prefix || *m->suffix;
    xr_str *key = &w->room->scratch;
    for (size_t i = 0, length; i < size; i += length) {
        (void)xm_utf8_get(text + i, &length);
        if (!affixes) {
            add_char(b, &w->tok->ids, text + i, length, length);
            continue;
        }
        xr_str_clear(key);
        xr_str_puts(key, i ? m->prefix : "");
        xr_str_append(key, text + i, length);
        xr_str_puts(key, i + length == size ? m->suffix : "");
        if (key->failed)
            return -1;
        add_char(b, &w->tok->ids, key->data, key->size, length);
    }
    if (b->unknown)
        add(b, m->unk_id, b->unknown);
    return 0;
}

xray_status xm_bpe_word(xm_walk *w, const char *text, size_t size)
{
    const xm_model *m = &w->tok->model;
    xm_room *room = w->room;
    if (m->ignore_merges) {
        int32_t id =
            xm_vocab_get(m->raw ? &m->raw_words : &w->tok->ids, text, size);
        if (id >= 0)
            return xm_walk_push(w, id, 0, size) ? xm_walk_no_memory(w)
                                                : XRAY_OK;
    }
    /* With affixes a character may become more bytes than it has. */
    size_t most = size + 4 +
                  (strlen(m->prefix) + strlen(m->suffix)) *
                      (*m->prefix || *m->suffix ? size : 0);
    if (xm_room_grow((void **)&room->symbols, &room->symbol_cap, most,
                     sizeof *room->symbols))
        return xm_walk_no_memory(w);
    builder b = { .model = m, .symbols = room->symbols };
    if (m->raw) {
        for (size_t i = 0; i < size; i++)
            add(&b, m->raw_ids[(unsigned char)text[i]], 1);
    } else if (add_chars(w, &b, text, size)) {
        return xm_walk_no_memory(w);
    }
    if (b.lost)
        return xr_fail(w->err, XRAY_E_CONFIG,
                       "tokenizer: \"%.*s\" needs the unk_token, which is not "
                       "in the vocabulary",
                       (int)(size < 100 ? size : 100), text);
    if (merge_all(w, &b.count))
        return xm_walk_no_memory(w);
    size_t at = 0;
    for (size_t i = 0; i < b.count; i++) {
        if (xm_walk_push(w, room->symbols[i].id, at,
                         at + room->symbols[i].size))
            return xm_walk_no_memory(w);
        at += room->symbols[i].size;
    }
    return XRAY_OK;
}

/* Whether no token has the two characters side by side. */
static int may_cut(const uint64_t *pairs, uint32_t a, uint32_t b)
{
    uint32_t bit = xm_pair_bit(a, b);
    return !(pairs[bit / 64] >> (bit % 64) & 1);
}

xray_status xm_bpe_text(xm_walk *w, const xm_piece *piece)
{
    const uint64_t *pairs = w->tok->model.pairs;
    const char *text = piece->text;
    size_t from = 0;
    uint32_t last = 0;
    for (size_t i = 0, length; i <= piece->size; i += length) {
        uint32_t code = 0;
        length = 1;
        if (i < piece->size)
            code = xm_utf8_get(text + i, &length);
        if (i && (i == piece->size || may_cut(pairs, last, code))) {
            xm_piece part = xm_piece_cut(piece, from, i);
            xray_status status;
            if (i - from > XM_CACHE_KEY) {
                w->piece = part;
                status = xm_bpe_word(w, part.text, part.size);
            } else {
                status = xm_walk_word(w, &part);
            }
            if (status)
                return status;
            from = i;
        }
        last = code;
    }
    return XRAY_OK;
}
