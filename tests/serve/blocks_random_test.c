/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the blocks of a paged KV cache in a million random calls: every block
 * number and count must be those of a plain reference, which scans lists and
 * compares whole prefixes, and what a sequence has put into its blocks must
 * stay there for as long as it holds them.
 */
#include "tests/testing.h"

#include <xray/numerics.h>

#include "model/serve/blocks.h"

enum { BLOCKS = 64, BLOCK = 4, ROW = 24, SEQS = 12, CALLS = 200000 };

typedef struct sequence {
    xm_block_seq seq;
    int32_t row[ROW];
    int32_t expected[ROW]; /* the reference's row */
    uint32_t count;        /* blocks in it */
    uint32_t token_count;
    int32_t tokens[ROW];
    uint64_t values[ROW]; /* what it has computed at each position */
    uint64_t version;     /* of the weights when it began */
} sequence;

typedef struct block {
    uint32_t holders;
    uint32_t listed;      /* 1: it can be found by the tokens of its prefix */
    uint32_t token_count; /* of the prefix */
    int32_t tokens[ROW];
    uint64_t version;
    uint64_t life;   /* a prefix that is evicted and comes anew has another */
    uint64_t before; /* life of the prefix before it when it was filled */
} block;

typedef struct model {
    xm_blocks *pool;
    xm_blocks_limits limits;
    xm_blocks_stats stats;
    block blocks[BLOCKS];
    int32_t free[BLOCKS]; /* [stats.free] the first one is used first */
    uint64_t version;
    uint64_t values[BLOCKS][BLOCK]; /* the keys and values of every position */
    sequence seqs[SEQS];
    uint64_t lives;
    uint64_t drawn;
} model;

static uint32_t draw_below(model *m, uint32_t bound)
{
    return (uint32_t)(xray_mix64(m->limits.blocks, m->drawn++) % bound);
}

/* ---- the reference ------------------------------------------------------- */

static void ref_put(model *m, int32_t number, uint32_t at)
{
    memmove(&m->free[at + 1], &m->free[at],
            (m->stats.free - at) * sizeof(*m->free));
    m->free[at] = number;
    m->stats.free++;
}

static void ref_remove(model *m, int32_t number)
{
    uint32_t at = 0;
    while (m->free[at] != number)
        at++;
    m->stats.free--;
    memmove(&m->free[at], &m->free[at + 1],
            (m->stats.free - at) * sizeof(*m->free));
}

static int32_t ref_take(model *m)
{
    int32_t number = m->free[0];
    block *b = &m->blocks[number];
    ref_remove(m, number);
    if (b->listed && b->version == m->version) {
        m->stats.cached--;
        m->stats.evictions++;
    }
    *b = (block){ .holders = 1 };
    return number;
}

static void ref_hold(model *m, int32_t number)
{
    if (m->blocks[number].holders++)
        return;
    ref_remove(m, number);
    m->stats.cached--;
}

static void ref_drop(model *m, int32_t number)
{
    block *b = &m->blocks[number];
    if (--b->holders)
        return;
    int is_cached = b->listed && b->version == m->version;
    ref_put(m, number, is_cached ? m->stats.free : 0);
    if (is_cached)
        m->stats.cached++;
    else
        b->listed = 0;
}

static int32_t ref_search(const model *m, uint64_t before,
                          const int32_t *tokens, uint32_t count)
{
    for (uint32_t i = 0; i < m->limits.blocks; i++) {
        const block *b = &m->blocks[i];
        if (b->listed && b->version == m->version && b->before == before &&
            b->token_count == count &&
            memcmp(b->tokens, tokens, count * sizeof(*tokens)) == 0)
            return (int32_t)i;
    }
    return -1;
}

static void ref_seal(model *m, const sequence *s, uint32_t count)
{
    uint32_t i = count / m->limits.block_tokens - 1;
    block *b = &m->blocks[s->expected[i]];
    if (!m->limits.caching || s->version != m->version)
        return;
    b->before = i ? m->blocks[s->expected[i - 1]].life : 0;
    int32_t same = ref_search(m, b->before, s->tokens, count);
    b->life = same < 0 ? ++m->lives : m->blocks[same].life;
    if (same >= 0) {
        if (m->blocks[same].holders)
            return;
        m->blocks[same].listed = 0;
        ref_remove(m, same);
        ref_put(m, same, 0);
        m->stats.cached--;
    }
    b->listed = 1;
    b->version = m->version;
    b->token_count = count;
    memcpy(b->tokens, s->tokens, count * sizeof(*b->tokens));
}

/* ---- checks -------------------------------------------------------------- */

static void expect_stats(const model *m)
{
    const xm_blocks_stats *have = xm_blocks_stats_of(m->pool);
    assert_int_equal(have->free, m->stats.free);
    assert_int_equal(have->cached, m->stats.cached);
    assert_int_equal(have->asked_tokens, m->stats.asked_tokens);
    assert_int_equal(have->found_tokens, m->stats.found_tokens);
    assert_int_equal(have->evictions, m->stats.evictions);
}

static void expect_sequence(const model *m, const sequence *s)
{
    uint32_t size = m->limits.block_tokens;
    assert_int_equal(s->seq.count, s->count);
    assert_int_equal(s->seq.tokens, s->token_count);
    assert_memory_equal(s->row, s->expected, s->count * sizeof(*s->row));
    for (uint32_t i = 0; i < s->token_count; i++)
        assert_int_equal(m->values[s->row[i / size]][i % size], s->values[i]);
}

/* Every block is held by as many sequences as have it in their rows, or free.
 */
static void expect_every_block(const model *m)
{
    uint32_t held[BLOCKS] = { 0 };
    uint32_t free = 0;
    for (uint32_t i = 0; i < SEQS; i++) {
        expect_sequence(m, &m->seqs[i]);
        for (uint32_t k = 0; k < m->seqs[i].seq.count; k++)
            held[m->seqs[i].row[k]]++;
    }
    for (uint32_t i = 0; i < m->limits.blocks; i++) {
        assert_int_equal(held[i], m->blocks[i].holders);
        free += held[i] == 0;
    }
    assert_int_equal(xm_blocks_stats_of(m->pool)->free, free);
}

/* ---- calls --------------------------------------------------------------- */

/* A value depends on all tokens up to its own, and on the weights. */
static uint64_t compute_value(const model *m, uint64_t before, int32_t token)
{
    return xray_mix64(xray_mix64(before, (uint32_t)token), m->version);
}

/* Mostly the same token, so that many sequences begin alike. */
static int32_t draw_token(model *m)
{
    return draw_below(m, 6) == 0;
}

static void append_tokens(model *m, sequence *s, const int32_t *tokens,
                          uint32_t count)
{
    uint32_t size = m->limits.block_tokens;
    xm_blocks_append(m->pool, &s->seq, tokens, count);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = s->token_count++;
        s->tokens[at] = tokens[i];
        s->values[at] = compute_value(m, at ? s->values[at - 1] : 0, tokens[i]);
        m->values[s->row[at / size]][at % size] = s->values[at];
        if (s->token_count % size == 0)
            ref_seal(m, s, s->token_count);
    }
}

/* Reserves blocks in both; `held` of them the sequence has or has found. */
static int reserve_blocks(model *m, sequence *s, uint32_t positions,
                          const int32_t *found, uint32_t found_count)
{
    uint32_t size = m->limits.block_tokens;
    uint32_t spare = draw_below(m, 4) ? 0 : draw_below(m, 4);
    uint32_t want = (positions + size - 1) / size;
    uint32_t have = s->count + found_count;
    uint32_t need = want > have ? want - have : 0;
    for (uint32_t i = 0; i < found_count; i++)
        need += m->blocks[found[i]].holders == 0;
    int status = need + spare <= m->stats.free ? 0 : -1;
    assert_int_equal(xm_blocks_reserve(m->pool, &s->seq, positions, spare),
                     status);
    if (status)
        return -1;
    for (uint32_t i = 0; i < found_count; i++) {
        ref_hold(m, found[i]);
        s->expected[s->count++] = found[i];
    }
    while (s->count < want)
        s->expected[s->count++] = ref_take(m);
    return 0;
}

static void begin_sequence(model *m, sequence *s)
{
    uint32_t size = m->limits.block_tokens;
    int32_t tokens[ROW];
    int32_t found[ROW];
    uint32_t found_count = 0;
    uint32_t count = 1 + draw_below(m, ROW);
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = draw_token(m);
    for (uint64_t life = 0; (found_count + 1) * size < count;) {
        int32_t at = ref_search(m, life, tokens, (found_count + 1) * size);
        if (at < 0)
            break;
        found[found_count++] = at;
        life = m->blocks[at].life;
    }
    uint32_t have = found_count * size;
    uint32_t positions = have + 1 + draw_below(m, count - have);
    assert_int_equal(xm_blocks_find(m->pool, tokens, count, &s->seq), have);
    if (reserve_blocks(m, s, positions, found, found_count))
        return;
    s->version = m->version;
    m->stats.asked_tokens += m->limits.caching ? count : 0;
    m->stats.found_tokens += have;
    for (uint32_t i = 0; i < have; i++)
        s->values[i] = compute_value(m, i ? s->values[i - 1] : 0, tokens[i]);
    memcpy(s->tokens, tokens, sizeof(tokens));
    s->token_count = have;
    expect_sequence(m, s);
    append_tokens(m, s, tokens + have, draw_below(m, positions - have + 1));
}

static void grow_sequence(model *m, sequence *s)
{
    int32_t tokens[ROW];
    uint32_t count = draw_below(m, ROW - s->token_count + 1);
    if (count > 1 && draw_below(m, 2))
        count = 1;
    if (reserve_blocks(m, s, s->token_count + count, NULL, 0))
        return;
    for (uint32_t i = 0; i < count; i++)
        tokens[i] = draw_token(m);
    append_tokens(m, s, tokens, count);
}

static void fork_sequence(model *m, const sequence *from, sequence *to)
{
    uint32_t size = m->limits.block_tokens;
    uint32_t tokens = draw_below(m, from->token_count + 1);
    uint32_t full = tokens / size;
    int32_t copy[2];
    int expected = tokens % size == 0 ? 0 : m->stats.free ? 1 : -1;
    assert_int_equal(
        xm_blocks_fork(m->pool, &from->seq, tokens, &to->seq, copy), expected);
    if (expected < 0)
        return;
    memcpy(to->expected, from->expected, full * sizeof(*to->expected));
    memcpy(to->tokens, from->tokens, sizeof(to->tokens));
    memcpy(to->values, from->values, sizeof(to->values));
    to->version = from->version;
    to->token_count = tokens;
    to->count = full;
    for (uint32_t i = 0; i < full; i++)
        ref_hold(m, to->expected[i]);
    if (expected == 0)
        return;
    to->expected[to->count++] = ref_take(m);
    assert_int_equal(copy[0], from->expected[full]);
    assert_int_equal(copy[1], to->expected[full]);
    memcpy(m->values[copy[1]], m->values[copy[0]], sizeof(m->values[0]));
}

static void release_sequence(model *m, sequence *s)
{
    xm_blocks_release(m->pool, &s->seq);
    while (s->count)
        ref_drop(m, s->expected[--s->count]);
    s->token_count = 0;
}

static void forget_all(model *m)
{
    xm_blocks_forget(m->pool);
    m->stats.cached = 0;
    m->version++;
}

static void call_once(model *m)
{
    sequence *s = &m->seqs[draw_below(m, SEQS)];
    sequence *other = &m->seqs[draw_below(m, SEQS)];
    uint32_t what = draw_below(m, 100);
    if (what == 0 && draw_below(m, 4) == 0)
        forget_all(m);
    else if (s->count == 0)
        begin_sequence(m, s);
    else if (what < 20 && other->count == 0)
        fork_sequence(m, s, other);
    else if (what < 45)
        release_sequence(m, s);
    else
        grow_sequence(m, s);
    expect_sequence(m, s);
    expect_sequence(m, other);
    expect_stats(m);
}

static void run_calls(uint32_t blocks, uint32_t block_tokens, uint32_t caching)
{
    xr_err err = { "" };
    model *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    m->limits = (xm_blocks_limits){ blocks, block_tokens, caching };
    assert_int_equal(xm_blocks_create(&m->limits, &err, &m->pool), XRAY_OK);
    for (uint32_t i = 0; i < blocks; i++)
        m->free[i] = (int32_t)i;
    m->stats.free = blocks;
    for (uint32_t i = 0; i < SEQS; i++)
        m->seqs[i].seq.blocks = m->seqs[i].row;
    for (uint32_t i = 0; i < CALLS; i++) {
        call_once(m);
        if (i % 64 == 0)
            expect_every_block(m);
    }
    for (uint32_t i = 0; i < SEQS; i++)
        release_sequence(m, &m->seqs[i]);
    expect_every_block(m);
    assert_int_equal(m->stats.free, blocks);
    if (caching && blocks > 1) {
        assert_true(m->stats.evictions && m->stats.found_tokens);
        assert_true(m->stats.found_tokens < m->stats.asked_tokens);
    }
    xm_blocks_destroy(m->pool);
    free(m);
}

static void calls_are_those_of_the_reference(void **state)
{
    (void)state;
    run_calls(1, 1, 1);
    run_calls(5, 2, 1);
    run_calls(23, 4, 1);
    run_calls(BLOCKS, 3, 1);
    run_calls(23, 4, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_those_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
