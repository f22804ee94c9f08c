/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the blocks of a paged KV cache: a list of the free ones, and a table of
 * those that end a prefix.
 */
#include "model/serve/blocks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#define NONE (-1)

typedef struct block {
    uint64_t serial; /* of the prefix that it ends; 0: it ends none */
    uint64_t before; /* serial of the prefix before it */
    int32_t prev;    /* in the free list, while it has no holder */
    int32_t next;
    int32_t bucket_next;
    uint32_t holders;
    uint32_t listed; /* 1: in the table; a block of the same prefix may be
                      * there in its place */
    uint32_t reserved;
} block;

struct xm_blocks {
    xm_blocks_limits limits;
    xm_blocks_stats stats;
    uint64_t serial;  /* the last one that was given */
    uint64_t root;    /* that of the empty prefix; older ones are forgotten */
    block *blocks;    /* [blocks + 1] the last is both ends of the free list */
    int32_t *buckets; /* [bucket_count] first block of each; NULL: no caching */
    int32_t *tokens;  /* [blocks, block_tokens] */
    uint32_t bucket_count; /* a power of two */
    uint32_t reserved;
};

/* ---- the free list ------------------------------------------------------- */

static void link_free(xm_blocks *pool, int32_t number, int32_t next)
{
    int32_t prev = pool->blocks[next].prev;
    pool->blocks[number].prev = prev;
    pool->blocks[number].next = next;
    pool->blocks[prev].next = number;
    pool->blocks[next].prev = number;
    pool->stats.free++;
}

static void unlink_free(xm_blocks *pool, int32_t number)
{
    const block *b = &pool->blocks[number];
    pool->blocks[b->prev].next = b->next;
    pool->blocks[b->next].prev = b->prev;
    pool->stats.free--;
}

static void link_first(xm_blocks *pool, int32_t number)
{
    int32_t end = (int32_t)pool->limits.blocks;
    link_free(pool, number, pool->blocks[end].next);
}

static void link_last(xm_blocks *pool, int32_t number)
{
    link_free(pool, number, (int32_t)pool->limits.blocks);
}

/* ---- the table of prefixes ----------------------------------------------- */

static int32_t *tokens_of(const xm_blocks *pool, int32_t number)
{
    return pool->tokens + (size_t)number * pool->limits.block_tokens;
}

static int32_t *bucket_of(const xm_blocks *pool, uint64_t before,
                          const int32_t *tokens)
{
    uint64_t hash = before;
    for (uint32_t i = 0; i < pool->limits.block_tokens; i++)
        hash = xray_mix64(hash, (uint32_t)tokens[i]);
    return &pool->buckets[hash & (pool->bucket_count - 1)];
}

static int32_t find_block(const xm_blocks *pool, uint64_t before,
                          const int32_t *tokens)
{
    size_t bytes = pool->limits.block_tokens * sizeof(*tokens);
    int32_t at = *bucket_of(pool, before, tokens);
    while (at != NONE && (pool->blocks[at].before != before ||
                          memcmp(tokens_of(pool, at), tokens, bytes) != 0))
        at = pool->blocks[at].bucket_next;
    return at;
}

static void list_block(xm_blocks *pool, int32_t number)
{
    block *b = &pool->blocks[number];
    int32_t *at = bucket_of(pool, b->before, tokens_of(pool, number));
    b->bucket_next = *at;
    b->listed = 1;
    *at = number;
}

static void unlist_block(xm_blocks *pool, int32_t number)
{
    block *b = &pool->blocks[number];
    int32_t *at = bucket_of(pool, b->before, tokens_of(pool, number));
    while (*at != number)
        at = &pool->blocks[*at].bucket_next;
    *at = b->bucket_next;
    b->listed = 0;
}

static int is_forgotten(const xm_blocks *pool, const block *b)
{
    return b->serial < pool->root;
}

/* ---- holders ------------------------------------------------------------- */

/* Takes the first free block, which there is. */
static int32_t take_block(xm_blocks *pool)
{
    int32_t number = pool->blocks[pool->limits.blocks].next;
    block *b = &pool->blocks[number];
    unlink_free(pool, number);
    if (b->listed) {
        unlist_block(pool, number);
        if (!is_forgotten(pool, b)) {
            pool->stats.cached--;
            pool->stats.evictions++;
        }
    }
    b->serial = 0;
    b->holders = 1;
    return number;
}

/* Adds a holder to a block that has one, or that is cached. */
static void hold_block(xm_blocks *pool, int32_t number)
{
    if (pool->blocks[number].holders++ == 0) {
        unlink_free(pool, number);
        pool->stats.cached--;
    }
}

static void drop_block(xm_blocks *pool, int32_t number)
{
    block *b = &pool->blocks[number];
    if (--b->holders)
        return;
    if (b->listed && is_forgotten(pool, b))
        unlist_block(pool, number);
    if (b->listed) {
        link_last(pool, number);
        pool->stats.cached++;
    } else {
        link_first(pool, number);
    }
}

/* Makes the block, which has got its last token, the prefix that it ends. If
 * one that is in use ends the same prefix already, that stays in the table: it
 * cannot be evicted. A free one gives way. */
static void seal_block(xm_blocks *pool, const xm_block_seq *seq, uint32_t i)
{
    int32_t number = seq->blocks[i];
    block *b = &pool->blocks[number];
    if (!pool->buckets || seq->root != pool->root)
        return;
    b->before = i ? pool->blocks[seq->blocks[i - 1]].serial : seq->root;
    int32_t same = find_block(pool, b->before, tokens_of(pool, number));
    if (same == NONE) {
        b->serial = ++pool->serial;
    } else {
        b->serial = pool->blocks[same].serial;
        if (pool->blocks[same].holders)
            return;
        unlist_block(pool, same);
        unlink_free(pool, same);
        link_first(pool, same);
        pool->stats.cached--;
    }
    list_block(pool, number);
}

/* ---- sequences ----------------------------------------------------------- */

uint32_t xm_blocks_find(const xm_blocks *pool, const int32_t *tokens,
                        uint32_t count, xm_block_seq *seq)
{
    uint32_t size = pool->limits.block_tokens;
    uint64_t before = pool->root;
    seq->found = 0;
    if (!pool->buckets)
        return 0;
    seq->asked = count;
    for (uint32_t most = count ? (count - 1) / size : 0; seq->found < most;) {
        int32_t at =
            find_block(pool, before, tokens + (size_t)seq->found * size);
        if (at == NONE)
            break;
        seq->blocks[seq->found++] = at;
        before = pool->blocks[at].serial;
    }
    return seq->found * size;
}

static void begin_seq(xm_blocks *pool, xm_block_seq *seq)
{
    seq->root = pool->root;
    seq->count = seq->found;
    seq->tokens = seq->found * pool->limits.block_tokens;
    for (uint32_t i = 0; i < seq->found; i++)
        hold_block(pool, seq->blocks[i]);
    pool->stats.asked_tokens += seq->asked;
    pool->stats.found_tokens += seq->tokens;
}

int xm_blocks_reserve(xm_blocks *pool, xm_block_seq *seq, uint32_t positions,
                      uint32_t spare)
{
    uint32_t size = pool->limits.block_tokens;
    uint32_t want = positions / size + (positions % size != 0);
    uint32_t have = seq->count + seq->found; /* one of them is 0 */
    uint64_t need = want > have ? want - have : 0;
    for (uint32_t i = 0; i < seq->found; i++)
        need += pool->blocks[seq->blocks[i]].holders == 0;
    int fits = need + spare <= pool->stats.free;
    if (fits && seq->count == 0)
        begin_seq(pool, seq);
    seq->found = seq->asked = 0;
    if (!fits)
        return -1;
    while (seq->count < want)
        seq->blocks[seq->count++] = take_block(pool);
    return 0;
}

void xm_blocks_append(xm_blocks *pool, xm_block_seq *seq, const int32_t *tokens,
                      uint32_t count)
{
    uint32_t size = pool->limits.block_tokens;
    while (count) {
        uint32_t i = seq->tokens / size;
        uint32_t at = seq->tokens % size;
        uint32_t n = count < size - at ? count : size - at;
        if (pool->tokens)
            memcpy(tokens_of(pool, seq->blocks[i]) + at, tokens,
                   n * sizeof(*tokens));
        tokens += n;
        count -= n;
        seq->tokens += n;
        if (at + n == size)
            seal_block(pool, seq, i);
    }
}

int xm_blocks_fork(xm_blocks *pool, const xm_block_seq *from, uint32_t tokens,
                   xm_block_seq *to, int32_t copy[2])
{
    uint32_t full = tokens / pool->limits.block_tokens;
    uint32_t rest = tokens % pool->limits.block_tokens;
    if (rest && !pool->stats.free)
        return -1;
    *to = (xm_block_seq){ .blocks = to->blocks,
                          .root = from->root,
                          .count = full + (rest != 0),
                          .tokens = tokens };
    for (uint32_t i = 0; i < full; i++) {
        to->blocks[i] = from->blocks[i];
        hold_block(pool, to->blocks[i]);
    }
    if (!rest)
        return 0;
    copy[0] = from->blocks[full];
    copy[1] = to->blocks[full] = take_block(pool);
    if (pool->tokens)
        memcpy(tokens_of(pool, copy[1]), tokens_of(pool, copy[0]),
               rest * sizeof(*pool->tokens));
    return 1;
}

void xm_blocks_trim(xm_blocks *pool, xm_block_seq *seq)
{
    uint32_t size = pool->limits.block_tokens;
    uint32_t used = seq->tokens / size + (seq->tokens % size != 0);
    while (seq->count > used)
        drop_block(pool, seq->blocks[--seq->count]);
}

void xm_blocks_release(xm_blocks *pool, xm_block_seq *seq)
{
    while (seq->count)
        drop_block(pool, seq->blocks[--seq->count]);
    *seq = (xm_block_seq){ .blocks = seq->blocks };
}

void xm_blocks_forget(xm_blocks *pool)
{
    pool->root = ++pool->serial;
    pool->stats.cached = 0;
}

const xm_blocks_stats *xm_blocks_stats_of(const xm_blocks *pool)
{
    return &pool->stats;
}

/* ---- the pool ------------------------------------------------------------ */

static int reserve_table(xm_blocks *pool)
{
    uint32_t count = 1;
    while (count < pool->limits.blocks)
        count *= 2;
    pool->bucket_count = count;
    pool->buckets = malloc(count * sizeof(*pool->buckets));
    pool->tokens = calloc(pool->limits.blocks,
                          pool->limits.block_tokens * sizeof(*pool->tokens));
    if (!pool->buckets || !pool->tokens)
        return -1;
    for (uint32_t i = 0; i < count; i++)
        pool->buckets[i] = NONE;
    return 0;
}

xray_status xm_blocks_create(const xm_blocks_limits *limits, xr_err *err,
                             xm_blocks **out)
{
    xm_blocks *pool = calloc(1, sizeof(*pool));
    if (pool) {
        pool->limits = *limits;
        pool->blocks =
            calloc((size_t)limits->blocks + 1, sizeof(*pool->blocks));
    }
    if (!pool || !pool->blocks || (limits->caching && reserve_table(pool))) {
        xm_blocks_destroy(pool);
        return xr_fail(err, XRAY_E_NOMEM,
                       "no memory for the table of %" PRIu32
                       " blocks of the KV cache",
                       limits->blocks);
    }
    int32_t end = (int32_t)limits->blocks;
    pool->blocks[end].prev = pool->blocks[end].next = end;
    for (int32_t i = 0; i < end; i++)
        link_last(pool, i);
    xm_blocks_forget(pool);
    *out = pool;
    return XRAY_OK;
}

void xm_blocks_destroy(xm_blocks *pool)
{
    if (!pool)
        return;
    free(pool->blocks);
    free(pool->buckets);
    free(pool->tokens);
    free(pool);
}
