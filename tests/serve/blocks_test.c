/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the blocks of a paged KV cache: which blocks sequences get, share, copy
 * and give back, and that a cached prefix is found for its own tokens and
 * weights only. Every letter of a text is a token, and a block has four.
 */
#include "tests/testing.h"

#include "model/serve/blocks.h"

enum { BLOCK = 4, ROW = 16 };

typedef struct sequence {
    xm_block_seq seq;
    int32_t row[ROW];
} sequence;

static xm_blocks *make_pool(uint32_t blocks, uint32_t caching)
{
    const xm_blocks_limits limits = { blocks, BLOCK, caching };
    xr_err err = { "" };
    xm_blocks *pool = NULL;
    assert_int_equal(xm_blocks_create(&limits, &err, &pool), XRAY_OK);
    return pool;
}

static uint32_t read_text(const char *text, int32_t *tokens)
{
    uint32_t count = 0;
    for (; text[count]; count++)
        tokens[count] = (unsigned char)text[count];
    return count;
}

static void add_text(xm_blocks *pool, sequence *s, const char *text)
{
    int32_t tokens[ROW * BLOCK];
    uint32_t count = read_text(text, tokens);
    assert_int_equal(xm_blocks_reserve(pool, &s->seq, s->seq.tokens + count, 0),
                     0);
    xm_blocks_append(pool, &s->seq, tokens, count);
}

static uint32_t find_text(const xm_blocks *pool, sequence *s, const char *text)
{
    int32_t tokens[ROW * BLOCK];
    s->seq.blocks = s->row;
    return xm_blocks_find(pool, tokens, read_text(text, tokens), &s->seq);
}

/* Begins a sequence with what is found of a text, and adds the rest of it.
 * Returns the number of tokens that were found. */
static uint32_t begin_text(xm_blocks *pool, sequence *s, const char *text)
{
    *s = (sequence){ 0 };
    uint32_t found = find_text(pool, s, text);
    assert_int_equal(xm_blocks_reserve(pool, &s->seq, found, 0), 0);
    add_text(pool, s, text + found);
    return found;
}

/* The blocks of a sequence, or of the free list, are named by letters: 'A' is
 * block 0. */
static void expect_blocks(const sequence *s, const char *names)
{
    char have[ROW + 1] = "";
    for (uint32_t i = 0; i < s->seq.count; i++)
        have[i] = (char)('A' + s->row[i]);
    assert_string_equal(have, names);
}

/* Takes all free blocks, whose order this is; ends the test of a pool. */
static void expect_free(xm_blocks *pool, const char *names)
{
    sequence rest = { 0 };
    rest.seq.blocks = rest.row;
    uint32_t count = xm_blocks_stats_of(pool)->free;
    assert_int_equal(xm_blocks_reserve(pool, &rest.seq, count * BLOCK, 0), 0);
    expect_blocks(&rest, names);
    assert_int_equal(xm_blocks_stats_of(pool)->free, 0);
    assert_int_equal(xm_blocks_stats_of(pool)->cached, 0);
    xm_blocks_destroy(pool);
}

static void expect_counts(const xm_blocks *pool, uint32_t free, uint32_t cached)
{
    assert_int_equal(xm_blocks_stats_of(pool)->free, free);
    assert_int_equal(xm_blocks_stats_of(pool)->cached, cached);
}

static int fork_text(xm_blocks *pool, const sequence *from, uint32_t tokens,
                     sequence *to, int32_t copy[2])
{
    *to = (sequence){ 0 };
    to->seq.blocks = to->row;
    return xm_blocks_fork(pool, &from->seq, tokens, &to->seq, copy);
}

/* ---- blocks -------------------------------------------------------------- */

static void blocks_come_all_or_none(void **state)
{
    xm_blocks *pool = make_pool(10, 1);
    sequence a = { .seq.blocks = a.row };
    sequence b = { .seq.blocks = b.row };
    (void)state;
    assert_int_equal(xm_blocks_reserve(pool, &a.seq, 9, 0), 0);
    expect_blocks(&a, "ABC");
    assert_int_equal(xm_blocks_reserve(pool, &b.seq, 29, 0), -1);
    expect_blocks(&b, "");
    expect_counts(pool, 7, 0);
    assert_int_equal(xm_blocks_reserve(pool, &b.seq, 16, 4), -1);
    assert_int_equal(xm_blocks_reserve(pool, &b.seq, 16, UINT32_MAX), -1);
    assert_int_equal(xm_blocks_reserve(pool, &b.seq, 16, 3), 0);
    expect_blocks(&b, "DEFG");
    assert_int_equal(xm_blocks_reserve(pool, &a.seq, 12, 3), 0);
    expect_blocks(&a, "ABC");
    assert_int_equal(xm_blocks_reserve(pool, &a.seq, 25, 0), -1);
    expect_blocks(&a, "ABC");
    assert_int_equal(xm_blocks_reserve(pool, &a.seq, 13, 2), 0);
    expect_blocks(&a, "ABCH");
    xm_blocks_release(pool, &b.seq);
    expect_counts(pool, 6, 0);
    assert_int_equal(xm_blocks_reserve(pool, &b.seq, 1, 0), 0);
    expect_blocks(&b, "D");
    expect_free(pool, "EFGIJ");
}

/* Blocks without a prefix come first, in their order, then those that were free
 * from the start, then the prefixes: the earliest release first, and of one
 * sequence its last block. */
static void release_orders_the_free_blocks(void **state)
{
    xm_blocks *pool = make_pool(10, 1);
    sequence a;
    sequence b;
    (void)state;
    assert_int_equal(begin_text(pool, &a, "aaaabbbbccccd"), 0);
    assert_int_equal(xm_blocks_reserve(pool, &a.seq, 20, 0), 0);
    assert_int_equal(begin_text(pool, &b, "bbbbcc"), 0);
    expect_blocks(&a, "ABCDE");
    expect_blocks(&b, "FG");
    xm_blocks_release(pool, &a.seq);
    xm_blocks_release(pool, &b.seq);
    expect_blocks(&a, "");
    expect_counts(pool, 10, 4);
    expect_free(pool, "GDEHIJCBAF");
}

static void without_caching_nothing_is_found(void **state)
{
    xm_blocks *pool = make_pool(6, 0);
    sequence a;
    sequence b;
    int32_t copy[2];
    (void)state;
    assert_int_equal(begin_text(pool, &a, "aaaabbbbc"), 0);
    assert_int_equal(begin_text(pool, &b, "aaaabbbbc"), 0);
    expect_blocks(&b, "DEF");
    xm_blocks_release(pool, &b.seq);
    assert_int_equal(fork_text(pool, &a, 9, &b, copy), 1);
    expect_blocks(&b, "ABD");
    assert_int_equal(b.seq.tokens, 9);
    xm_blocks_release(pool, &a.seq);
    xm_blocks_release(pool, &b.seq);
    expect_counts(pool, 6, 0);
    assert_int_equal(xm_blocks_stats_of(pool)->asked_tokens, 0);
    assert_int_equal(xm_blocks_stats_of(pool)->evictions, 0);
    expect_free(pool, "ABDCEF");
}

/* ---- prefixes ------------------------------------------------------------ */

static void prefixes_are_shared(void **state)
{
    xm_blocks *pool = make_pool(10, 1);
    sequence a;
    sequence b;
    sequence c;
    (void)state;
    assert_int_equal(begin_text(pool, &a, "aaaabbbbccccdd"), 0);
    assert_int_equal(begin_text(pool, &b, "aaaabbbbccccdd"), 12);
    expect_blocks(&b, "ABCE");
    xm_blocks_release(pool, &a.seq);
    expect_counts(pool, 6, 0);
    xm_blocks_release(pool, &b.seq);
    expect_counts(pool, 10, 3);
    assert_int_equal(begin_text(pool, &c, "aaaabbbbxxxxdd"), 8);
    expect_blocks(&c, "ABED");
    expect_counts(pool, 6, 1);
    assert_int_equal(xm_blocks_stats_of(pool)->asked_tokens, 42);
    assert_int_equal(xm_blocks_stats_of(pool)->found_tokens, 20);
    expect_free(pool, "FGHIJC");
}

/* A sequence goes on from its last token, which is computed in any case. */
static void last_token_is_never_found(void **state)
{
    xm_blocks *pool = make_pool(8, 1);
    sequence a;
    sequence b = { 0 };
    (void)state;
    (void)begin_text(pool, &a, "aaaabbbbcccc");
    assert_int_equal(find_text(pool, &b, ""), 0);
    assert_int_equal(find_text(pool, &b, "aaaa"), 0);
    assert_int_equal(find_text(pool, &b, "aaaab"), 4);
    assert_int_equal(find_text(pool, &b, "aaaabbbbcccc"), 8);
    assert_int_equal(find_text(pool, &b, "aaaabbbbccccd"), 12);
    assert_int_equal(find_text(pool, &b, "aaaabbbbccce"), 8);
    assert_int_equal(find_text(pool, &b, "aaabbbbbcccc"), 0);
    xm_blocks_destroy(pool);
}

static void prefixes_grow_with_samples(void **state)
{
    xm_blocks *pool = make_pool(8, 1);
    sequence a;
    sequence b;
    (void)state;
    (void)begin_text(pool, &a, "aa");
    for (int i = 0; i < 7; i++)
        add_text(pool, &a, "b");
    expect_blocks(&a, "ABC");
    xm_blocks_release(pool, &a.seq);
    assert_int_equal(begin_text(pool, &b, "aabbbbbbb"), 8);
    expect_blocks(&b, "ABC");
    xm_blocks_destroy(pool);
}

/* A sequence with a cached prefix takes its free blocks from the free ones. */
static void found_blocks_count_as_taken(void **state)
{
    xm_blocks *pool = make_pool(5, 1);
    sequence a;
    sequence b;
    sequence c = { 0 };
    (void)state;
    (void)begin_text(pool, &a, "aaaabbbbcccc");
    (void)begin_text(pool, &b, "xx");
    xm_blocks_release(pool, &a.seq);
    expect_counts(pool, 4, 3);
    assert_int_equal(find_text(pool, &c, "aaaabbbbccccdddde"), 12);
    assert_int_equal(xm_blocks_reserve(pool, &c.seq, 17, 0), -1);
    expect_blocks(&c, "");
    expect_counts(pool, 4, 3);
    assert_int_equal(xm_blocks_stats_of(pool)->asked_tokens, 14);
    assert_int_equal(find_text(pool, &c, "aaaabbbbccccdddde"), 12);
    assert_int_equal(xm_blocks_reserve(pool, &c.seq, 16, 1), -1);
    assert_int_equal(find_text(pool, &c, "aaaabbbbccccdddde"), 12);
    assert_int_equal(xm_blocks_reserve(pool, &c.seq, 16, 0), 0);
    expect_blocks(&c, "ABCE");
    assert_int_equal(c.seq.tokens, 12);
    assert_int_equal(xm_blocks_stats_of(pool)->found_tokens, 12);
    assert_int_equal(xm_blocks_stats_of(pool)->evictions, 0);
    expect_free(pool, "");
}

/* A found prefix that is in use costs nothing. */
static void held_prefixes_are_free_of_cost(void **state)
{
    xm_blocks *pool = make_pool(4, 1);
    sequence a;
    sequence b = { 0 };
    (void)state;
    (void)begin_text(pool, &a, "aaaabbbbcccc");
    assert_int_equal(find_text(pool, &b, "aaaabbbbccccd"), 12);
    assert_int_equal(xm_blocks_reserve(pool, &b.seq, 13, 0), 0);
    expect_blocks(&b, "ABCD");
    expect_free(pool, "");
}

static void last_blocks_are_evicted_first(void **state)
{
    xm_blocks *pool = make_pool(4, 1);
    sequence a;
    sequence b;
    (void)state;
    (void)begin_text(pool, &a, "aaaabbbbccccdddd");
    xm_blocks_release(pool, &a.seq);
    (void)begin_text(pool, &b, "x");
    expect_blocks(&b, "D");
    assert_int_equal(xm_blocks_stats_of(pool)->evictions, 1);
    assert_int_equal(find_text(pool, &a, "aaaabbbbccccdddde"), 12);
    add_text(pool, &b, "xxxx");
    expect_blocks(&b, "DC");
    assert_int_equal(find_text(pool, &a, "aaaabbbbccccdddde"), 8);
    xm_blocks_release(pool, &b.seq);
    assert_int_equal(find_text(pool, &a, "aaaabbbbccccdddde"), 8);
    expect_free(pool, "CBAD");
}

/* A prefix that was used again since is evicted after the others. */
static void used_prefixes_stay_longer(void **state)
{
    xm_blocks *pool = make_pool(4, 1);
    sequence a;
    sequence b;
    sequence c;
    (void)state;
    (void)begin_text(pool, &a, "aaaa");
    (void)begin_text(pool, &b, "bbbb");
    xm_blocks_release(pool, &a.seq);
    xm_blocks_release(pool, &b.seq);
    assert_int_equal(begin_text(pool, &c, "aaaac"), 4);
    xm_blocks_release(pool, &c.seq);
    expect_free(pool, "CDBA");
}

/* Of two blocks of the same prefix one is found, in use rather than free; the
 * blocks behind both continue the same prefix. */
static void equal_prefixes_are_one(void **state)
{
    xm_blocks *pool = make_pool(8, 1);
    sequence a = { .seq.blocks = a.row };
    sequence b = { .seq.blocks = b.row };
    sequence c;
    (void)state;
    assert_int_equal(xm_blocks_reserve(pool, &a.seq, 8, 0), 0);
    assert_int_equal(xm_blocks_reserve(pool, &b.seq, 8, 0), 0);
    add_text(pool, &a, "aaaa");
    add_text(pool, &b, "aaaabbbb");
    assert_int_equal(begin_text(pool, &c, "aaaabbbbc"), 8);
    expect_blocks(&c, "ADE");
    xm_blocks_release(pool, &c.seq);
    xm_blocks_release(pool, &a.seq); /* B, then A, which is cached */
    expect_counts(pool, 6, 1);
    assert_int_equal(begin_text(pool, &a, "aaaa"), 0); /* in B, instead of A */
    expect_blocks(&a, "B");
    expect_counts(pool, 5, 0);
    xm_blocks_release(pool, &b.seq); /* D is cached, and C is not */
    expect_counts(pool, 7, 1);
    assert_int_equal(begin_text(pool, &c, "aaaabbbbc"), 8);
    expect_blocks(&c, "BDC");
    expect_free(pool, "AEFGH");
}

/* The pool has four buckets, so that most blocks share one with another. */
static void other_tokens_never_hit(void **state)
{
    xm_blocks *pool = make_pool(4, 1);
    static const char *const cached[] = { "aaaa", "bbbb", "abab", "baba" };
    sequence s[4];
    sequence other = { 0 };
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(begin_text(pool, &s[i], cached[i]), 0);
    for (int i = 0; i < 16; i++) {
        char text[] = "....x";
        int is_cached = 0;
        for (int k = 0; k < 4; k++)
            text[k] = i >> k & 1 ? 'b' : 'a';
        for (int k = 0; k < 4; k++)
            is_cached |= memcmp(text, cached[k], BLOCK) == 0;
        assert_int_equal(find_text(pool, &other, text), is_cached ? BLOCK : 0);
    }
    xm_blocks_destroy(pool);
}

/* Equal tokens behind other tokens are another prefix. */
static void tokens_before_count(void **state)
{
    xm_blocks *pool = make_pool(4, 1);
    sequence a;
    sequence b;
    sequence c = { 0 };
    (void)state;
    (void)begin_text(pool, &a, "aaaacccc");
    (void)begin_text(pool, &b, "bbbb");
    assert_int_equal(find_text(pool, &c, "bbbbccccd"), 4);
    assert_int_equal(find_text(pool, &c, "ccccd"), 0);
    xm_blocks_release(pool, &a.seq);
    assert_int_equal(begin_text(pool, &a, "aaaad"), 4);
    expect_blocks(&a, "AD");
    assert_int_equal(find_text(pool, &c, "aaaaccccd"), 8);
    expect_free(pool, "B");
}

/* The block of a prefix may get other tokens while one behind it can be found:
 * here B, which is not in the table, holds the tokens of A, and C goes on from
 * them. C is not found behind the other tokens, nor behind another block of the
 * same ones. */
static void reused_blocks_lead_nowhere(void **state)
{
    xm_blocks *pool = make_pool(4, 1);
    sequence a = { .seq.blocks = a.row };
    sequence b = { .seq.blocks = b.row };
    sequence c;
    sequence d = { 0 };
    (void)state;
    assert_int_equal(xm_blocks_reserve(pool, &a.seq, 4, 0), 0);
    assert_int_equal(xm_blocks_reserve(pool, &b.seq, 8, 0), 0);
    add_text(pool, &a, "aaaa");
    add_text(pool, &b, "aaaabbbb");
    xm_blocks_release(pool, &a.seq);
    assert_int_equal(find_text(pool, &d, "aaaabbbbc"), 8);
    (void)begin_text(pool, &a, "yyyy");
    (void)begin_text(pool, &c, "xxxx");
    expect_blocks(&c, "A");
    assert_int_equal(find_text(pool, &d, "xxxxbbbbc"), 4);
    assert_int_equal(find_text(pool, &d, "aaaabbbbc"), 0);
    xm_blocks_release(pool, &a.seq);
    (void)begin_text(pool, &a, "aaaa");
    assert_int_equal(find_text(pool, &d, "aaaabbbbc"), 4);
    xm_blocks_destroy(pool);
}

/* ---- forks --------------------------------------------------------------- */

static void fork_shares_full_blocks(void **state)
{
    xm_blocks *pool = make_pool(9, 1);
    sequence a;
    sequence b;
    sequence c;
    sequence d;
    int32_t copy[2] = { 0, 0 };
    (void)state;
    (void)begin_text(pool, &a, "aaaabbbbcc");
    assert_int_equal(fork_text(pool, &a, 10, &b, copy), 1);
    assert_true(copy[0] == 2 && copy[1] == 3);
    add_text(pool, &a, "ddee"); /* what follows the prompt is not shared */
    assert_int_equal(fork_text(pool, &a, 10, &c, copy), 1);
    assert_true(copy[0] == 2 && copy[1] == 5);
    assert_int_equal(fork_text(pool, &a, 8, &d, copy), 0);
    expect_blocks(&a, "ABCE");
    expect_blocks(&b, "ABD");
    expect_blocks(&c, "ABF");
    expect_blocks(&d, "AB");
    assert_int_equal(c.seq.tokens, 10);
    assert_int_equal(d.seq.tokens, 8);
    xm_blocks_release(pool, &a.seq);
    xm_blocks_release(pool, &d.seq);
    expect_counts(pool, 5, 1);
    add_text(pool, &b, "ff");
    add_text(pool, &c, "gg");
    assert_int_equal(find_text(pool, &d, "aaaabbbbccddx"), 12);
    assert_int_equal(find_text(pool, &d, "aaaabbbbccffx"), 12);
    assert_int_equal(find_text(pool, &d, "aaaabbbbccggx"), 12);
    xm_blocks_release(pool, &c.seq);
    xm_blocks_release(pool, &b.seq);
    expect_free(pool, "EGHICFDBA");
}

static void fork_needs_a_block_for_the_tail(void **state)
{
    xm_blocks *pool = make_pool(2, 1);
    sequence a;
    sequence b;
    int32_t copy[2];
    (void)state;
    (void)begin_text(pool, &a, "aaaabb");
    assert_int_equal(fork_text(pool, &a, 6, &b, copy), -1);
    expect_blocks(&b, "");
    assert_int_equal(fork_text(pool, &a, 4, &b, copy), 0);
    xm_blocks_release(pool, &a.seq);
    expect_blocks(&b, "A");
    expect_free(pool, "B");
}

/* ---- new weights --------------------------------------------------------- */

static void forgotten_prefixes_are_not_found(void **state)
{
    xm_blocks *pool = make_pool(8, 1);
    sequence a;
    sequence b = { 0 };
    sequence c;
    int32_t copy[2];
    (void)state;
    (void)begin_text(pool, &a, "xxxxyyyy");
    xm_blocks_release(pool, &a.seq);
    (void)begin_text(pool, &a, "aaaabb");
    expect_blocks(&a, "CD");
    expect_counts(pool, 6, 2);
    xm_blocks_forget(pool);
    expect_counts(pool, 6, 0);
    assert_int_equal(find_text(pool, &b, "xxxxyyyyz"), 0);
    assert_int_equal(find_text(pool, &b, "aaaabb"), 0);
    /* A sequence from before goes on, and so do its forks; what they fill now
     * goes on from old keys and values. */
    assert_int_equal(fork_text(pool, &a, 6, &c, copy), 1);
    add_text(pool, &a, "bbcccc");
    add_text(pool, &c, "bb");
    expect_blocks(&a, "CDF");
    expect_blocks(&c, "CE");
    assert_int_equal(find_text(pool, &b, "aaaabbbbccccd"), 0);
    assert_int_equal(begin_text(pool, &b, "aaaabbb"), 0);
    expect_blocks(&b, "GH");
    xm_blocks_release(pool, &c.seq);
    xm_blocks_release(pool, &a.seq);
    expect_counts(pool, 6, 0);
    assert_int_equal(begin_text(pool, &a, "aaaabbb"), 4);
    expect_blocks(&a, "GC");
    xm_blocks_release(pool, &a.seq);
    xm_blocks_release(pool, &b.seq);
    assert_int_equal(xm_blocks_stats_of(pool)->evictions, 0);
    expect_counts(pool, 8, 1);
    expect_free(pool, "HCDFEBAG");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_come_all_or_none),
        cmocka_unit_test(release_orders_the_free_blocks),
        cmocka_unit_test(without_caching_nothing_is_found),
        cmocka_unit_test(prefixes_are_shared),
        cmocka_unit_test(last_token_is_never_found),
        cmocka_unit_test(prefixes_grow_with_samples),
        cmocka_unit_test(found_blocks_count_as_taken),
        cmocka_unit_test(held_prefixes_are_free_of_cost),
        cmocka_unit_test(last_blocks_are_evicted_first),
        cmocka_unit_test(used_prefixes_stay_longer),
        cmocka_unit_test(equal_prefixes_are_one),
        cmocka_unit_test(other_tokens_never_hit),
        cmocka_unit_test(tokens_before_count),
        cmocka_unit_test(reused_blocks_lead_nowhere),
        cmocka_unit_test(fork_shares_full_blocks),
        cmocka_unit_test(fork_needs_a_block_for_the_tail),
        cmocka_unit_test(forgotten_prefixes_are_not_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
