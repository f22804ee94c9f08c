/* SPDX-License-Identifier: Apache-2.0
 *
 * One word to ids: BPE and WordLevel.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/philox.h"
#include "model/text/tok.h"

xm_merge *xm_tok_merge_slot(xm_merge *slots, size_t mask, int32_t left,
                            int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    for (size_t i = (size_t)xr_mix64(0, key);; i++) {
        xm_merge *m = &slots[i & mask];
        if (m->left < 0 || (m->left == left && m->right == right))
            return m;
    }
}

const xm_merge *xm_tok_merge(const xm_tokenizer *tok, int32_t left,
                             int32_t right)
{
    if (!tok->merge_count)
        return NULL;
    const xm_merge *m =
        xm_tok_merge_slot(tok->merges, tok->merge_mask, left, right);
    return m->left < 0 ? NULL : m;
}

/* A merge that may be made at `pos`; the lowest rank, then the leftmost, comes
 * first. */
typedef struct candidate {
    uint32_t rank;
    uint32_t pos;
    int32_t made;
} candidate;

/* Symbols are a list inside an array: a merged-away one has id -1. */
typedef struct symbol {
    int32_t id;
    int32_t prev;
    int32_t next;
} symbol;

typedef struct merger {
    const xm_tokenizer *tok;
    symbol *symbols;
    candidate *heap;
    size_t heap_count;
} merger;

static int before(candidate a, candidate b)
{
    return a.rank != b.rank ? a.rank < b.rank : a.pos < b.pos;
}

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
    const xm_merge *merge = xm_tok_merge(m->tok, m->symbols[pos].id,
                                         m->symbols[m->symbols[pos].next].id);
    if (merge)
        heap_push(m, (candidate){ merge->rank, (uint32_t)pos, merge->made });
}

static void merge_all(merger *m, size_t count)
{
    for (size_t i = 0; i + 1 < count; i++)
        offer(m, (int32_t)i);
    while (m->heap_count) {
        candidate top = heap_pop(m);
        symbol *left = &m->symbols[top.pos];
        if (left->id < 0 || left->next < 0)
            continue;
        symbol *right = &m->symbols[left->next];
        const xm_merge *now = xm_tok_merge(m->tok, left->id, right->id);
        if (!now || now->made != top.made)
            continue; /* a neighbour was merged away since */
        left->id = top.made;
        left->next = right->next;
        right->id = -1;
        if (left->next >= 0)
            m->symbols[left->next].prev = (int32_t)top.pos;
        offer(m, left->prev);
        offer(m, (int32_t)top.pos);
    }
}

static void merge_with(merger m, xm_ids *ids, size_t from)
{
    size_t count = ids->count - from;
    for (size_t i = 0; i < count; i++)
        m.symbols[i] = (symbol){ ids->data[from + i], (int32_t)i - 1,
                                 i + 1 < count ? (int32_t)i + 1 : -1 };
    merge_all(&m, count);
    ids->count = from;
    for (size_t i = 0; i < count; i++)
        if (m.symbols[i].id >= 0)
            ids->data[ids->count++] = m.symbols[i].id;
}

/* Words up to here merge without touching the heap. */
#define SHORT 32

static xray_status merge_ids(const xm_tokenizer *tok, xm_ids *ids, size_t from,
                             xr_err *err)
{
    /* Each merge offers two new pairs, and there are fewer than `count`. */
    symbol symbols[SHORT];
    candidate heap[3 * SHORT];
    size_t count = ids->count - from;
    merger m = { tok, symbols, heap, 0 };
    if (count > SHORT) {
        m.symbols = malloc(count * sizeof(symbol));
        m.heap = malloc(3 * count * sizeof(candidate));
    }
    if (m.symbols && m.heap)
        merge_with(m, ids, from);
    xray_status status =
        m.symbols && m.heap
            ? XRAY_OK
            : xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    if (count > SHORT) {
        free(m.symbols);
        free(m.heap);
    }
    return status;
}

/* Ids of the bytes of a character outside the vocabulary; 0 if any is
 * missing. */
static int push_bytes(const xm_tokenizer *tok, const char *at, int length,
                      xm_ids *ids, int *failed)
{
    for (int i = 0; i < length; i++)
        if (tok->byte_ids[(unsigned char)at[i]] < 0)
            return 0;
    for (int i = 0; i < length; i++)
        *failed |= xm_ids_push(ids, tok->byte_ids[(unsigned char)at[i]]);
    return 1;
}

/* A symbol for each character. An unknown one waits in `unknown` so that the
 * next may join it (fuse_unk); bytes do not end the wait: that is the
 * library's order. */
static int push_symbols(const xm_tokenizer *tok, const char *text, size_t size,
                        xm_ids *ids)
{
    const char *end = text + size;
    int unknown = 0;
    int failed = 0;
    while (text < end) {
        uint32_t code;
        uint64_t id;
        int length = xr_utf8_decode(text, end, &code);
        length = length ? length : 1;
        if (xr_map_get(tok->ids, text, (size_t)length, &id)) {
            if (unknown)
                failed |= xm_ids_push(ids, tok->unk_id);
            unknown = 0;
            failed |= xm_ids_push(ids, (int32_t)id);
        } else if (!tok->byte_fallback ||
                   !push_bytes(tok, text, length, ids, &failed)) {
            if (unknown && !tok->fuse_unk)
                failed |= xm_ids_push(ids, tok->unk_id);
            unknown = tok->unk_id >= 0;
        }
        text += length;
    }
    if (unknown)
        failed |= xm_ids_push(ids, tok->unk_id);
    return failed;
}

xray_status xm_tok_word(const xm_tokenizer *tok, const char *text, size_t size,
                        xm_ids *ids, xr_err *err)
{
    uint64_t id;
    int failed = 0;
    size_t from = ids->count;
    if ((!tok->is_bpe || tok->ignore_merges) &&
        xr_map_get(tok->ids, text, size, &id))
        failed = xm_ids_push(ids, (int32_t)id);
    else if (tok->is_bpe)
        failed = push_symbols(tok, text, size, ids);
    else if (tok->unk_id >= 0)
        failed = xm_ids_push(ids, tok->unk_id);
    else
        return xr_fail(err, XRAY_E_CONFIG,
                       "tokenizer: \"%.*s\" is not in the vocabulary, which "
                       "has no unk_token",
                       (int)(size < 100 ? size : 100), text);
    if (failed)
        return xr_fail(err, XRAY_E_NOMEM, "tokenizer: out of memory");
    if (!tok->merge_count || ids->count - from < 2)
        return XRAY_OK;
    return merge_ids(tok, ids, from, err);
}
