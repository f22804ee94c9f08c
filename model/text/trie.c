/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the trie of a Unigram vocabulary.
 */
#include "model/text/trie.h"

#include <stdlib.h>

#include "model/text/internal.h"

xm_trie *xm_trie_new(size_t bytes)
{
    if (bytes >= (1u << 24) - 2)
        return NULL;
    size_t slots = 1024;
    while (slots / 2 < bytes)
        slots *= 2;
    xm_trie *trie = xr_calloc(1, sizeof *trie);
    if (!trie)
        return NULL;
    trie->cap = (uint32_t)bytes + 1;
    trie->edges = xr_calloc(slots, sizeof *trie->edges);
    trie->ids = xr_calloc(trie->cap, sizeof *trie->ids);
    trie->mask = slots - 1;
    if (!trie->edges || !trie->ids) {
        xm_trie_free(trie);
        return NULL;
    }
    for (size_t i = 0; i < slots; i++)
        trie->edges[i].from = UINT32_MAX;
    trie->ids[0] = -1;
    trie->count = 1;
    return trie;
}

void xm_trie_free(xm_trie *trie)
{
    if (!trie)
        return;
    free(trie->edges);
    free(trie->ids);
    free(trie);
}

void xm_trie_put(xm_trie *trie, const char *key, size_t size, int32_t id)
{
    uint32_t node = 0;
    for (size_t i = 0; i < size; i++) {
        uint32_t from = node << 8 | (unsigned char)key[i];
        xm_edge *e = xm_trie_edge(trie, from);
        if (e->from == UINT32_MAX) {
            *e = (xm_edge){ from, trie->count };
            trie->ids[trie->count++] = -1;
        }
        node = e->to;
    }
    trie->ids[node] = id;
}
