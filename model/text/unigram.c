/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes words with a Unigram model: finds the pieces with the best sum of
 * scores.
 */
#include <stdlib.h>
#include <string.h>

#include "model/text/internal.h"
#include "model/text/trie.h"

/* The best path to an offset. */
typedef struct xm_node {
    double score;
    uint32_t start; /* of the last piece */
    int32_t id;     /* -1: not reached */
} xm_node;

static void offer_path(xm_node *node, double score, size_t start, int32_t id)
{
    if (node->id >= 0 && !(score > node->score))
        return;
    *node = (xm_node){ score, (uint32_t)start, id };
}

static xray_status find_best_path(xm_encoding *enc, const char *text,
                                  size_t size)
{
    const xm_model *m = &enc->tok->model;
    xm_node *nodes = enc->workspace->nodes;
    for (size_t i = 0; i <= size; i++)
        nodes[i] = (xm_node){ 0, 0, -1 };
    for (size_t i = 0, length; i < size; i += length) {
        double here = nodes[i].score;
        uint32_t node = 0;
        int single = 0;
        (void)xm_utf8_get(text + i, &length);
        for (size_t k = i; k < size;) {
            int32_t id;
            if (!xm_trie_step(m->trie, &node, (unsigned char)text[k++], &id))
                break;
            if (id < 0)
                continue;
            offer_path(&nodes[k], m->scores[id] + here, i, id);
            single |= k - i == length;
        }
        const xm_node *end = &nodes[i + length];
        if (single || (end->id >= 0 && !(m->unk_score + here > end->score)))
            continue;
        if (m->unk_id < 0)
            return xr_fail(enc->err, XRAY_E_CONFIG,
                           "tokenizer: \"%.*s\" is not in the vocabulary, "
                           "which has no unk_id",
                           (int)length, text + i);
        offer_path(&nodes[i + length], m->unk_score + here, i, m->unk_id);
    }
    return XRAY_OK;
}

/* Pushes a piece that the vocabulary may lack, as byte tokens if it can. */
static int push_missing_piece(xm_encoding *enc, const char *text, size_t from,
                              size_t to)
{
    const xm_model *m = &enc->tok->model;
    int32_t id = xm_vocab_get(&enc->tok->ids, text + from, to - from);
    int bytes = id < 0 && m->byte_fallback;
    for (size_t i = from; bytes && i < to; i++)
        bytes = m->byte_ids[(unsigned char)text[i]] >= 0;
    if (!bytes)
        return xm_push_id(enc, id < 0 ? m->unk_id : id, from, to);
    int failed = 0;
    for (size_t i = from; i < to; i++)
        failed |=
            xm_push_id(enc, m->byte_ids[(unsigned char)text[i]], from, to);
    return failed;
}

xray_status xm_unigram_word(xm_encoding *enc, const char *text, size_t size)
{
    const xm_model *m = &enc->tok->model;
    xm_workspace *workspace = enc->workspace;
    if (xm_grow_buffer((void **)&workspace->nodes, &workspace->node_cap,
                       size + 1, sizeof *workspace->nodes))
        return xm_encode_no_memory(enc);
    xray_status status = find_best_path(enc, text, size);
    if (status)
        return status;
    /* The path is linked backwards; turn it into a list of ends. */
    xm_node *nodes = workspace->nodes;
    size_t end = size;
    uint32_t next = 0;
    while (end > 0) {
        uint32_t start = nodes[end].start;
        nodes[end].start = next; /* the end of the following piece */
        next = (uint32_t)end;
        end = start;
    }
    int failed = 0;
    for (size_t from = 0, to = next; to && !failed;) {
        size_t after = nodes[to].start;
        /* Adjacent unknown pieces become one. */
        while (nodes[to].id == m->unk_id && after &&
               nodes[after].id == m->unk_id) {
            to = after;
            after = nodes[to].start;
        }
        if (nodes[to].id == m->unk_id)
            failed = push_missing_piece(enc, text, from, to);
        else
            failed = xm_push_id(enc, nodes[to].id, from, to);
        from = to;
        to = after;
    }
    return failed ? xm_encode_no_memory(enc) : XRAY_OK;
}
