/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that requests of any length come to their end over a paged cache that
 * holds few of them, with the oracle's tokens, and what that costs.
 */
#include "tests/serve/sched_rig.h"

#include <xray/numerics.h>

enum { MANY = 1000 };

static uint32_t draw_below(uint64_t seed, uint64_t id, uint32_t what,
                           uint32_t bound)
{
    uint64_t h = xray_mix64(xray_mix64(seed, id), what);
    return (uint32_t)(h % bound);
}

/* Rows of 8 to 4,000 tokens, as many short ones as long ones; some begin
 * alike. */
static xray_request draw_request(uint64_t seed, uint64_t id, int32_t *ids)
{
    uint32_t bits = draw_below(seed, id, 0, 10);
    uint32_t row = 8 + draw_below(seed, id, 1, 8u << bits);
    row = row < 4000 ? row : 4000;
    uint32_t prompt = 1 + draw_below(seed, id, 2, row - 1);
    uint32_t same = draw_below(seed, id, 3, prompt + 1);
    xray_request q = make_test_request(id, 1, 1, row - prompt);
    fill_text(id % 40, same, ids);
    fill_text(1000 + id, prompt - same, ids + same);
    q.ids = ids;
    q.id_count = prompt;
    q.count = draw_below(seed, id, 4, 8) ? 1 : 3;
    q.stop_count = 0;
    q.prompt_logp = draw_below(seed, id, 5, 20) == 0;
    return q;
}

static uint32_t check_polled(const rig *r, uint64_t seed)
{
    static int32_t ids[MOST_ROW];
    uint32_t count = 0;
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    for (; xm_sched_poll(r->sched, &out) == XRAY_OK; count++) {
        const xray_request q = draw_request(seed, out.id, ids);
        check_result(r, &q, &out);
    }
    return count;
}

/* The work of the requests one after another, with nothing in common. */
typedef struct work {
    uint64_t samples;
    uint64_t steps;
    uint64_t tokens;
} work;

static work submit_many(rig *r, uint64_t seed)
{
    static int32_t ids[MOST_ROW];
    work w = { 0 };
    for (uint64_t id = 1; id <= MANY; id++) {
        const xray_request q = draw_request(seed, id, ids);
        rig_submit(r, &q);
        w.samples += q.count;
        w.steps += 1 + q.id_count / r->limits.step_tokens;
        w.steps += (uint64_t)q.count * (q.max_tokens - 1);
        w.tokens += q.id_count + (uint64_t)q.count * (q.max_tokens - 1);
    }
    return w;
}

/* The pool holds two to four of the longest rows. Half of the runs make steps
 * ahead. */
static void run_many(uint64_t seed, const xm_sched_limits *limits)
{
    rig *r = rig_new(limits, MOST_DRAWS);
    r->hurries = seed % 2 == 0;
    const work alone = submit_many(r, seed);
    uint64_t results = 0;
    while (xm_sched_has_work(r->sched)) {
        rig_step(r);
        results += check_polled(r, seed);
        assert_true(rig_stats(r).steps < alone.steps);
    }
    const xray_infer_stats s = rig_stats(r);
    assert_int_equal(results, alone.samples);
    assert_int_equal(xm_sched_live(r->sched), 0);
    assert_int_equal(s.kv_tokens, 0);
    assert_true(s.preemptions > 0);
    assert_int_equal(r->hurried > 0, r->hurries);
    /* A step does the work of several, and less is lost than is done. */
    print_message("seed %u: %u steps, alone %u; %u tokens, alone %u; %u "
                  "preemptions\n",
                  (uint32_t)seed, (uint32_t)s.steps, (uint32_t)alone.steps,
                  (uint32_t)r->computed, (uint32_t)alone.tokens,
                  (uint32_t)s.preemptions);
    assert_true(s.steps < alone.steps / 4);
    assert_true(r->computed < 2 * alone.tokens);
    if (!limits->paging.blocks.caching)
        assert_int_equal(r->computed - alone.tokens, s.recomputed_tokens);
    rig_free(r);
}

static void requests_of_any_length_come_to_their_end(void **state)
{
    (void)state;
    static const xm_sched_limits limits[] = {
        { 32, 256, { VOCAB, 4000 }, { .blocks = { 500, 16, 1 } } },
        { 64, 2048, { VOCAB, 4000 }, { .blocks = { 1000, 16, 0 } } },
        { 16, 16, { VOCAB, 4000 }, { .blocks = { 125, 64, 1 } } },
        { 256,
          300,
          { VOCAB, 4000 },
          { .blocks = { 250, 32, 1 }, .watermark = 12 } },
    };
    for (uint64_t seed = 0; seed < sizeof(limits) / sizeof(limits[0]); seed++)
        run_many(seed, &limits[seed]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_of_any_length_come_to_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
