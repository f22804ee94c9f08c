/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines a trie over bytes with its edges in a hash table.
 */
#ifndef XM_TRIE_H
#define XM_TRIE_H

#include <stddef.h>
#include <stdint.h>

typedef struct xm_edge {
    uint32_t from; /* node << 8 | byte; UINT32_MAX: empty */
    uint32_t to;
} xm_edge;

struct xm_trie {
    xm_edge *edges;
    size_t mask;
    int32_t *ids; /* per node; -1: no entry ends there */
    uint32_t count;
    uint32_t cap;
};

/* Makes an empty trie for entries of `bytes` bytes in total; NULL: out of
 * memory or too many bytes. */
struct xm_trie *xm_trie_new(size_t bytes);
/* A later id for the same entry replaces the earlier one. */
void xm_trie_put(struct xm_trie *trie, const char *key, size_t size,
                 int32_t id);

static inline xm_edge *xm_trie_edge(const struct xm_trie *trie, uint32_t key)
{
    uint32_t at = key * 0x9E3779B1u;
    for (at ^= at >> 15;; at++) {
        xm_edge *e = &trie->edges[at & trie->mask];
        if (e->from == key || e->from == UINT32_MAX)
            return e;
    }
}

/* Follows one byte; returns 0 if no entry continues with it. */
static inline int xm_trie_step(const struct xm_trie *trie, uint32_t *node,
                               unsigned char byte, int32_t *out_id)
{
    const xm_edge *e = xm_trie_edge(trie, *node << 8 | byte);
    if (e->from == UINT32_MAX)
        return 0;
    *node = e->to;
    *out_id = trie->ids[e->to];
    return 1;
}

#endif
