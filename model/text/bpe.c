/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes words as tokens by BPE: merges pairs of symbols, lowest rank first.
 */
#include "model/text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "model/text/internal.h"
#include "model/text/word_cache.h"

/* A part of a word. In a long word the symbols are a linked list inside an
 * array, and a symbol that was merged into its neighbour has size 0. */
typedef struct xm_symbol {
    int32_t id;
    uint32_t size; /* in bytes */
    int32_t prev;
    int32_t next;
} xm_symbol;

/* A merge that can be made at index `pos`. The lowest rank comes first, and
 * among equal ranks the leftmost. */
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

static int candidate_precedes(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.pos < b.pos;
}

typedef struct merger {
    const xm_merges *merges;
    xm_symbol *symbols;
    candidate *heap;
    size_t heap_count;
} merger;

static void push_candidate(merger *m, candidate c)
{
    size_t i = m->heap_count++;
    while (i && candidate_precedes(c, m->heap[(i - 1) / 2])) {
        m->heap[i] = m->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    m->heap[i] = c;
}

static candidate pop_candidate(merger *m)
{
    candidate top = m->heap[0];
    candidate last = m->heap[--m->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= m->heap_count)
            break;
        if (child + 1 < m->heap_count &&
            candidate_precedes(m->heap[child + 1], m->heap[child]))
            child++;
        if (!candidate_precedes(m->heap[child], last))
            break;
        m->heap[i] = m->heap[child];
        i = child;
    }
    m->heap[i] = last;
    return top;
}

/* Adds the pair that starts at `pos` to the heap if it can be merged. */
static void offer_merge(merger *m, int32_t pos)
{
    if (pos < 0 || m->symbols[pos].next < 0)
        return;
    const xm_symbol *s = &m->symbols[pos];
    const xm_merge *merge = xm_merge_slot(m->merges, (uint32_t)s->id,
                                          (uint32_t)m->symbols[s->next].id);
    if (merge->rank != XM_NO_RANK)
        push_candidate(m,
                       (candidate){ merge->rank, (uint32_t)pos, merge->made });
}

/* Merges with a heap. There are fewer than `count` merges and each adds at most
 * two pairs, so the heap holds fewer than 3 * count candidates. */
static size_t merge_long_word(merger *m, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        m->symbols[i].prev = (int32_t)i - 1;
        m->symbols[i].next = i + 1 < count ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < count; i++)
        offer_merge(m, (int32_t)i);
    while (m->heap_count) {
        candidate top = pop_candidate(m);
        xm_symbol *left = &m->symbols[top.pos];
        if (!left->size || left->next < 0)
            continue;
        xm_symbol *right = &m->symbols[left->next];
        const xm_merge *now =
            xm_merge_slot(m->merges, (uint32_t)left->id, (uint32_t)right->id);
        if (now->rank == XM_NO_RANK || now->made != top.made)
            continue; /* a neighbour has been merged since */
        left->id = top.made;
        left->next = right->next;
        left->size += right->size;
        right->size = 0;
        if (left->next >= 0)
            m->symbols[left->next].prev = (int32_t)top.pos;
        offer_merge(m, left->prev);
        offer_merge(m, (int32_t)top.pos);
    }
    size_t made = 0;
    for (size_t i = 0; i < count; i++)
        if (m->symbols[i].size)
            m->symbols[made++] = m->symbols[i];
    return made;
}

/* Words of up to this many symbols are merged by scanning an array of ranks. */
#define SHORT 48

typedef struct pair {
    uint32_t rank;
    int32_t made;
} pair;

static pair look_up_pair(const xm_merges *merges, const xm_symbol *left)
{
    const xm_merge *m =
        xm_merge_slot(merges, (uint32_t)left[0].id, (uint32_t)left[1].id);
    return (pair){ m->rank, m->made };
}

static size_t merge_short_word(const xm_merges *merges, xm_symbol *s,
                               size_t count)
{
    pair pairs[SHORT];
    for (size_t i = 0; i + 1 < count; i++)
        pairs[i] = look_up_pair(merges, s + i);
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
            pairs[best] = look_up_pair(merges, s + best);
        if (best)
            pairs[best - 1] = look_up_pair(merges, s + best - 1);
    }
    return count;
}

static int merge_symbols(xm_encoding *enc, size_t *count)
{
    const xm_merges *merges = enc->tok->model.merges;
    xm_workspace *workspace = enc->workspace;
    if (*count < 2 || !merges->count)
        return 0;
    if (*count <= SHORT) {
        *count = merge_short_word(merges, workspace->symbols, *count);
        return 0;
    }
    if (xm_grow_buffer(&workspace->heap, &workspace->heap_cap, 3 * *count,
                       sizeof(candidate)))
        return -1;
    merger m = { merges, workspace->symbols, workspace->heap, 0 };
    *count = merge_long_word(&m, *count);
    return 0;
}

/* Collects the symbols of a word. An unknown character is held back so that the
 * next may join it (fuse_unk). As in the Hugging Face library, byte tokens do
 * not flush it. */
typedef struct builder {
    const xm_model *model;
    xm_symbol *symbols;
    size_t count;
    uint32_t unknown; /* bytes of unknown characters held back */
    int lost;         /* a character needs the unk_token, which is missing */
} builder;

static void add_symbol(builder *b, int32_t id, size_t size)
{
    b->symbols[b->count++] = (xm_symbol){ .id = id, .size = (uint32_t)size };
}

/* Adds the byte tokens of a character outside the vocabulary; returns 0, with
 * nothing added, if the vocabulary lacks one. */
static int add_byte_symbols(builder *b, const char *at, size_t size)
{
    const int32_t *ids = b->model->byte_ids;
    for (size_t i = 0; i < size; i++)
        if (ids[(unsigned char)at[i]] < 0)
            return 0;
    for (size_t i = 0; i < size; i++)
        add_symbol(b, ids[(unsigned char)at[i]], 1);
    return 1;
}

/* Adds the symbol of a character. `key` is the character with the model's
 * prefix or suffix. */
static void add_char_symbol(builder *b, const xm_vocab *ids, const char *key,
                            size_t key_size, size_t size)
{
    const xm_model *m = b->model;
    int32_t id = xm_vocab_get(ids, key, key_size);
    if (id >= 0) {
        if (b->unknown)
            add_symbol(b, m->unk_id, b->unknown);
        b->unknown = 0;
        add_symbol(b, id, size);
        return;
    }
    if (m->byte_fallback && add_byte_symbols(b, key, key_size))
        return;
    b->lost |= m->unk_lost;
    if (m->unk_id < 0)
        return;
    if (b->unknown && !m->fuse_unk) {
        add_symbol(b, m->unk_id, b->unknown);
        b->unknown = 0;
    }
    b->unknown += (uint32_t)size;
}

static int add_char_symbols(xm_encoding *enc, builder *b, const char *text,
                            size_t size)
{
    const xm_model *m = b->model;
    int affixes = *m->prefix || *m->suffix;
    xr_str *key = &enc->workspace->scratch;
    for (size_t i = 0, length; i < size; i += length) {
        (void)xm_utf8_get(text + i, &length);
        if (!affixes) {
            add_char_symbol(b, &enc->tok->ids, text + i, length, length);
            continue;
        }
        xr_str_clear(key);
        xr_str_puts(key, i ? m->prefix : "");
        xr_str_append(key, text + i, length);
        xr_str_puts(key, i + length == size ? m->suffix : "");
        if (key->failed)
            return -1;
        add_char_symbol(b, &enc->tok->ids, key->data, key->size, length);
    }
    if (b->unknown)
        add_symbol(b, m->unk_id, b->unknown);
    return 0;
}

xray_status xm_bpe_word(xm_encoding *enc, const char *text, size_t size)
{
    const xm_model *m = &enc->tok->model;
    xm_workspace *workspace = enc->workspace;
    if (m->ignore_merges) {
        int32_t id =
            xm_vocab_get(m->raw ? &m->raw_words : &enc->tok->ids, text, size);
        if (id >= 0)
            return xm_push_id(enc, id, 0, size) ? xm_encode_no_memory(enc)
                                                : XRAY_OK;
    }
    /* With affixes, byte fallback may make more symbols than a character has
     * bytes. */
    size_t most = size + 4 +
                  (strlen(m->prefix) + strlen(m->suffix)) *
                      (*m->prefix || *m->suffix ? size : 0);
    if (xm_grow_buffer((void **)&workspace->symbols, &workspace->symbol_cap,
                       most, sizeof *workspace->symbols))
        return xm_encode_no_memory(enc);
    builder b = { .model = m, .symbols = workspace->symbols };
    if (m->raw) {
        for (size_t i = 0; i < size; i++)
            add_symbol(&b, m->raw_ids[(unsigned char)text[i]], 1);
    } else if (add_char_symbols(enc, &b, text, size)) {
        return xm_encode_no_memory(enc);
    }
    if (b.lost)
        return xr_fail(enc->err, XRAY_E_CONFIG,
                       "tokenizer: \"%.*s\" needs the unk_token, which is not "
                       "in the vocabulary",
                       (int)(size < 100 ? size : 100), text);
    if (merge_symbols(enc, &b.count))
        return xm_encode_no_memory(enc);
    size_t at = 0;
    for (size_t i = 0; i < b.count; i++) {
        if (xm_push_id(enc, workspace->symbols[i].id, at,
                       at + workspace->symbols[i].size))
            return xm_encode_no_memory(enc);
        at += workspace->symbols[i].size;
    }
    return XRAY_OK;
}

/* Whether no token contains the two characters next to each other. */
static int may_cut_between(const uint64_t *pairs, uint32_t a, uint32_t b)
{
    uint32_t bit = xm_pair_bit(a, b);
    return !(pairs[bit / 64] >> (bit % 64) & 1);
}

xray_status xm_bpe_text(xm_encoding *enc, const xm_piece *piece)
{
    const uint64_t *pairs = enc->tok->model.pairs;
    const char *text = piece->text;
    size_t from = 0;
    uint32_t last = 0;
    for (size_t i = 0, length; i <= piece->size; i += length) {
        uint32_t code = 0;
        length = 1;
        if (i < piece->size)
            code = xm_utf8_get(text + i, &length);
        if (i && (i == piece->size || may_cut_between(pairs, last, code))) {
            xm_piece part = xm_piece_cut(piece, from, i);
            xray_status status;
            if (i - from > XM_CACHE_KEY) {
                enc->piece = part;
                status = xm_bpe_word(enc, part.text, part.size);
            } else {
                status = xm_encode_word(enc, &part);
            }
            if (status)
                return status;
            from = i;
        }
        last = code;
    }
    return XRAY_OK;
}
