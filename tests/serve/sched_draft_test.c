/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests drafts: which tokens are looked up, what a step computes of them and in
 * which blocks, when they rest, and that each sample has the oracle's tokens
 * whatever is right or wrong in them.
 */
#include "tests/serve/sched_rig.h"

#include <xray/numerics.h>

#include "model/serve/sched_internal.h"

/* ---- the look-up --------------------------------------------------------- */

enum { MOST_IDS = 64 };

static uint32_t read_ids(const char *text, int32_t *out)
{
    uint32_t n = 0;
    char *end = NULL;
    for (; *text; text = *end ? end + 1 : end)
        out[n++] = (int32_t)strtol(text, &end, 10);
    return n;
}

/* A row of a prompt and of sampled tokens, the drafts that it expects, and the
 * limits that apply where they are not 0. */
typedef struct look {
    const char *prompt;
    const char *tokens;
    const char *drafts;
    uint32_t speculate;
    uint32_t max_tokens;
    uint32_t row_bound;
    uint32_t most;
    uint32_t doubt;
} look;

static void check_look(const look *l, int with_row)
{
    int32_t ids[MOST_IDS], want[MOST_IDS];
    int32_t tokens[MOST_IDS] = { 0 }, row[MOST_IDS] = { 0 };
    xm_request q = { .ids = ids, .id_count = read_ids(l->prompt, ids) };
    xm_sample s = { .request = &q, .tokens = tokens, .doubt = l->doubt };
    xm_sched sched = { .busy_count = 1 };
    sched.limits.speculate = l->speculate ? l->speculate : 4;
    sched.limits.request.row_bound = l->row_bound ? l->row_bound : MOST_IDS;
    q.max_tokens = l->max_tokens ? l->max_tokens : MOST_IDS;
    s.token_count = read_ids(l->tokens, tokens);
    s.row_count = q.id_count + s.token_count;
    memcpy(row, tokens, sizeof(row));
    s.row = with_row ? row : NULL;
    uint32_t count = read_ids(l->drafts, want);
    assert_int_equal(xm_draft_tokens(&sched, &s, l->most ? l->most : 9), count);
    assert_memory_equal(tokens + s.token_count, want, count * sizeof(*want));
    if (with_row)
        assert_memory_equal(row, tokens, sizeof(row));
}

static void drafts_are_what_followed_the_longest_equal_end(void **state)
{
    (void)state;
    static const look looks[] = {
        { .prompt = "1 2 3 4 5 6 1", .tokens = "2", .drafts = "3 4 5 6" },
        { .prompt = "1 2 3", .tokens = "4 1 2", .drafts = "3 4 1 2" },
        { .prompt = "9 1", .tokens = "2 3 9 1", .drafts = "2 3 9 1" },
        /* One token alone is not enough. */
        { .prompt = "1 2 3", .tokens = "5 3", .drafts = "" },
        { .prompt = "1 2", .tokens = "3 4", .drafts = "" },
        /* The longest one, and of several the first. */
        { .prompt = "1 2 9 9 7 1 2 8 8 6",
          .tokens = "7 1 2",
          .drafts = "8 8 6 7" },
        { .prompt = "1 2 3 1 2 4", .tokens = "1 2", .drafts = "3 1 2 4" },
        /* More than five tokens are not compared. */
        { .prompt = "1 2 3 4 5 7 0 1 2 3 4 5 8 0",
          .tokens = "1 2 3 4 5",
          .drafts = "7 0 1 2" },
        /* It may reach into the end of the row. */
        { .prompt = "7 7", .tokens = "7", .drafts = "7" },
        { .prompt = "1 2 1", .tokens = "2 1", .drafts = "2 1" },
    };
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
        for (int with_row = 0; with_row < 2; with_row++)
            check_look(&looks[i], with_row);
}

/* The token after the last draft is drawn, too. */
static void drafts_leave_space_for_the_token_after_them(void **state)
{
    (void)state;
    static const look looks[] = {
        { "1 2 3 4 5 1", "2", "3", .speculate = 1 },
        { "1 2 3 4 5 1", "2", "3 4", .most = 2 },
        { "1 2 3 4 5 1", "2", "3 4", .max_tokens = 4 },
        { "1 2 3 4 5 1", "2", "", .max_tokens = 2 },
        { "1 2 3 4 5 1", "2", "3 4 5", .row_bound = 11 },
        { "1 2 3 4 5 1", "2", "", .row_bound = 8 },
        /* A draft is as likely as all before it together: 1/2, 1/4 and 1/8, of
         * which the last one takes longer than it saves. */
        { "1 2 3 4 5 1", "2", "3 4", .speculate = 9, .doubt = 32768 },
        { "1 2 3 4 5 1", "2", "", .doubt = 65000 },
    };
    for (size_t i = 0; i < sizeof(looks) / sizeof(looks[0]); i++)
        check_look(&looks[i], 0);
}

/* ---- steps --------------------------------------------------------------- */

enum { BLOCK = 4, ROW = 40, MOST_ACTS = 12, MOST_REQUESTS = 3 };

/* A request with this prompt (NULL: none) and the trace of the step after it.
 * The tokens that are drawn are their positions modulo `period`. */
typedef struct act {
    const char *prompt;
    const char *trace;
} act;

typedef struct scene {
    uint32_t step_tokens;
    uint32_t blocks; /* 0: contiguous */
    uint32_t watermark;
    uint32_t period;
    uint32_t max_tokens;
    uint32_t drafts;
    uint32_t accepted;
    act acts[MOST_ACTS];
} scene;

typedef struct stage {
    rig *r;
    uint32_t count;
    xray_request requests[MOST_REQUESTS];
    int32_t ids[MOST_REQUESTS][MOST_IDS];
} stage;

static void submit_prompt(stage *s, const char *prompt, uint32_t max_tokens)
{
    int32_t *ids = s->ids[s->count];
    xray_request q = make_test_request(s->count + 1, 1, 1, max_tokens);
    q.ids = ids;
    q.id_count = read_ids(prompt, ids);
    q.stop_count = 0;
    s->requests[s->count++] = q;
    rig_submit(s->r, &q);
}

static void play_scene(const scene *about)
{
    xm_sched_limits limits = { .slots = MOST_REQUESTS,
                               .step_tokens = about->step_tokens,
                               .request = { VOCAB, ROW },
                               .speculate = 3 };
    limits.paging.watermark = about->watermark;
    if (about->blocks)
        limits.paging.blocks = (xm_blocks_limits){ about->blocks, BLOCK, 1 };
    stage s = { .r = rig_new(&limits, 64) };
    s.r->traced = 1;
    s.r->period = about->period;
    for (const act *a = about->acts; a->trace; a++) {
        if (a->prompt)
            submit_prompt(&s, a->prompt, about->max_tokens);
        rig_step(s.r);
        if (strcmp(s.r->trace, a->trace) != 0)
            fail_msg("step %d: \"%s\", but \"%s\" was expected",
                     (int)(a - about->acts) + 1, s.r->trace, a->trace);
    }
    rig_run(s.r);
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    while (xm_sched_poll(s.r->sched, &out) == XRAY_OK)
        check_result(s.r, &s.requests[out.id - 1], &out);
    const xray_infer_stats stats = rig_stats(s.r);
    assert_int_equal(stats.num_draft_tokens, about->drafts);
    assert_int_equal(stats.num_accepted_tokens, about->accepted);
    assert_int_equal(stats.preemptions, 0);
    assert_int_equal(stats.recomputed_tokens, 0);
    assert_int_equal(stats.kv_tokens, 0);
    rig_free(s.r);
}

/* A step draws one token more than it has right drafts. The last one of a
 * sample is drawn, not computed. */
static void right_drafts_save_steps(void **state)
{
    (void)state;
    play_scene(&(scene){ .step_tokens = 16,
                         .period = 2,
                         .max_tokens = 12,
                         .drafts = 5,
                         .accepted = 5,
                         .acts = { { "7 8 9", "a:0-2" },
                                   { NULL, "a0:3" },
                                   { NULL, "a0:4" },
                                   { NULL, "a0:5" },
                                   { NULL, "a0:6-8" },
                                   { NULL, "a0:9-11" },
                                   { NULL, "a0:12-13" },
                                   { NULL, "" } } });
}

/* The token that was drawn in place of a draft is computed at its position. */
static void wrong_drafts_are_overwritten(void **state)
{
    (void)state;
    play_scene(&(scene){ .step_tokens = 16,
                         .period = 3,
                         .max_tokens = 9,
                         .drafts = 8,
                         .accepted = 2,
                         .acts = { { "1 2 9 9", "a:0-3" },
                                   { NULL, "a0:4" },
                                   { NULL, "a0:5-8" },
                                   { NULL, "a0:6" },
                                   { NULL, "a0:7" },
                                   { NULL, "a0:8-11" },
                                   { NULL, "a0:9-11" },
                                   { NULL, "" } } });
}

/* All other tokens come first, and drafts take what they leave. */
static void drafts_take_what_is_left_of_the_budget(void **state)
{
    (void)state;
    play_scene(&(scene){ .step_tokens = 5,
                         .period = 2,
                         .max_tokens = 9,
                         .drafts = 9,
                         .accepted = 9,
                         .acts = { { "0 1 0 1", "a:0-3" },
                                   { "7 8 9", "a0:4 b:0-2 a0:5" },
                                   { "7 8 9 6 6 6", "a0:6 b0:3 c:0-2" },
                                   { NULL, "a0:7 b0:4 c:3-5" },
                                   { NULL, "a0:8 b0:5 c0:6 a0:9-10" },
                                   { NULL, "a0:11 b0:6 c0:7 b0:7-8" } } });
}

/* Drafts get blocks that are free, and give back those without tokens. */
static void wrong_drafts_give_their_blocks_back(void **state)
{
    (void)state;
    play_scene(&(scene){ .step_tokens = 16,
                         .blocks = 10,
                         .period = 3,
                         .max_tokens = 9,
                         .drafts = 8,
                         .accepted = 2,
                         .acts = { { "1 2 9 9", "a:0-3 A" },
                                   { NULL, "a0:4 AB" },
                                   { NULL, "a0:5-8 ABC" },
                                   { NULL, "a0:6 AB" },
                                   { NULL, "a0:7 AB" },
                                   { NULL, "a0:8-11 ABC" },
                                   { NULL, "a0:9-11 ABC" },
                                   { NULL, "" } } });
}

static void drafts_fit_the_blocks_that_nobody_needs(void **state)
{
    (void)state;
    play_scene(&(scene){ .step_tokens = 16,
                         .blocks = 10,
                         .watermark = 8,
                         .period = 3,
                         .max_tokens = 9,
                         .drafts = 2,
                         .accepted = 0,
                         .acts = { { "1 2 9 9", "a:0-3 A" },
                                   { NULL, "a0:4 AB" },
                                   { NULL, "a0:5-7 AB" },
                                   { NULL, "a0:6 AB" },
                                   { NULL, "a0:7 AB" },
                                   { NULL, "a0:8 ABC" },
                                   { NULL, "a0:9 ABC" },
                                   { NULL, "a0:10 ABC" },
                                   { NULL, "a0:11 ABC" },
                                   { NULL, "" } } });
}

/* ---- when drafts rest ---------------------------------------------------- */

/* Runs one row on each slot on a device that is late, and counts what it takes.
 * From the row's middle on tokens are their positions modulo `period`, if that
 * is not 0. */
static xray_infer_stats run_rows(uint32_t slots, uint32_t letters,
                                 uint32_t period, uint64_t *out_hurried)
{
    enum { TOKENS = 400 };
    rig *r = rig_new(&(xm_sched_limits){ .slots = slots,
                                         .step_tokens = 8 * slots,
                                         .request = { VOCAB, 2 * TOKENS },
                                         .speculate = 4 },
                     MOST_DRAWS);
    r->letters = letters;
    r->hurries = 1;
    for (uint32_t i = 0; i < slots; i++) {
        xray_request q = make_test_request(i + 1, 3, 1, TOKENS);
        q.stop_count = 0;
        rig_submit(r, &q);
    }
    while (xm_sched_has_work(r->sched)) {
        rig_step(r);
        if (rig_stats(r).generation_tokens >= slots * TOKENS / 2)
            r->period = period;
    }
    const xray_infer_stats stats = rig_stats(r);
    *out_hurried = r->hurried;
    rig_free(r);
    return stats;
}

/* Half of the drafts are right: enough for a few sequences, too few for many.
 * What is learnt of that is not forgotten, nor is it final. */
static void drafts_rest_where_they_cost_more_than_they_save(void **state)
{
    (void)state;
    uint64_t hurried = 0;
    xray_infer_stats s = run_rows(1, 2, 0, &hurried);
    assert_true(s.num_draft_tokens > 200);
    assert_true(s.steps < 300);
    assert_true(hurried < 10);
    s = run_rows(32, 2, 0, &hurried);
    assert_true(s.num_draft_tokens < s.generation_tokens / 5);
    assert_true(hurried > 50);
    s = run_rows(32, 0, 0, &hurried);
    assert_true(s.num_draft_tokens < s.generation_tokens / 50);
    assert_true(hurried > 200);
    s = run_rows(32, 0, 3, &hurried);
    assert_true(s.num_accepted_tokens > s.generation_tokens / 8);
    assert_true(hurried > 100);
}

/* ---- random schedules ---------------------------------------------------- */

typedef struct dice {
    uint64_t seed;
    uint64_t drawn;
} dice;

static uint32_t throw_dice(dice *d, uint32_t bound)
{
    return (uint32_t)(xray_mix64(d->seed, d->drawn++) % bound);
}

enum { PLAYERS = 12 };

/* Requests whose samples end by a stop id, their length or the row's. */
static xray_request draw_request(dice *d, uint64_t id, uint32_t letters,
                                 int32_t *ids)
{
    uint32_t prompt = 1 + throw_dice(d, 12);
    xray_request q =
        make_test_request(id, 1, 1 + throw_dice(d, 3), 1 + throw_dice(d, ROW));
    for (uint32_t i = 0; i < prompt; i++)
        ids[i] = (int32_t)throw_dice(d, letters);
    q.ids = ids;
    q.id_count = prompt;
    q.prompt_logp = throw_dice(d, 8) == 0;
    q.top_count =
        throw_dice(d, 4) ? 0 : 3; /* its draws come in smaller portions */
    return q;
}

static xm_sched_limits draw_limits(dice *d)
{
    xm_sched_limits limits = { .slots = 1 + throw_dice(d, 6),
                               .request = { VOCAB, ROW },
                               .speculate = 1 + throw_dice(d, 8) };
    limits.step_tokens = limits.slots + throw_dice(d, 24);
    if (throw_dice(d, 2))
        limits.paging =
            (xm_paging_limits){ .watermark = throw_dice(d, 3),
                                .blocks = { ROW / BLOCK + throw_dice(d, 20),
                                            BLOCK, throw_dice(d, 2) } };
    return limits;
}

static void play_random(uint64_t seed, xray_infer_stats *sum)
{
    static int32_t ids[PLAYERS][MOST_IDS];
    xray_request requests[PLAYERS];
    dice d = { .seed = seed };
    const xm_sched_limits limits = draw_limits(&d);
    rig *r = rig_new(&limits, 1 + throw_dice(&d, 40));
    r->letters = 2 + throw_dice(&d, 5);
    r->hurries = (int)throw_dice(&d, 2);
    uint32_t results = 0;
    uint32_t samples = 0;
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    for (uint32_t next = 0; next < PLAYERS || xm_sched_has_work(r->sched);) {
        for (; next < PLAYERS && throw_dice(&d, 2); next++) {
            requests[next] = draw_request(&d, next + 1, r->letters, ids[next]);
            rig_submit(r, &requests[next]);
            samples += requests[next].count;
        }
        if (throw_dice(&d, 12) == 0)
            xm_sched_forget(r->sched);
        if (xm_sched_has_work(r->sched))
            rig_step(r);
        for (; xm_sched_poll(r->sched, &out) == XRAY_OK; results++)
            check_result(r, &requests[out.id - 1], &out);
    }
    const xray_infer_stats s = rig_stats(r);
    assert_int_equal(results, samples);
    assert_int_equal(s.kv_tokens, 0);
    sum->num_draft_tokens += s.num_draft_tokens;
    sum->num_accepted_tokens += s.num_accepted_tokens;
    sum->preemptions += s.preemptions;
    rig_free(r);
}

static void samples_do_not_depend_on_drafts(void **state)
{
    (void)state;
    xray_infer_stats sum = { 0 };
    for (uint64_t seed = 0; seed < 400; seed++)
        play_random(seed, &sum);
    print_message("%u drafts, %u accepted, %u preemptions\n",
                  (unsigned)sum.num_draft_tokens,
                  (unsigned)sum.num_accepted_tokens, (unsigned)sum.preemptions);
    assert_true(sum.num_accepted_tokens > 1000);
    assert_true(sum.num_draft_tokens > 2 * sum.num_accepted_tokens);
    assert_true(sum.preemptions > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drafts_are_what_followed_the_longest_equal_end),
        cmocka_unit_test(drafts_leave_space_for_the_token_after_them),
        cmocka_unit_test(right_drafts_save_steps),
        cmocka_unit_test(wrong_drafts_are_overwritten),
        cmocka_unit_test(drafts_take_what_is_left_of_the_budget),
        cmocka_unit_test(wrong_drafts_give_their_blocks_back),
        cmocka_unit_test(drafts_fit_the_blocks_that_nobody_needs),
        cmocka_unit_test(drafts_rest_where_they_cost_more_than_they_save),
        cmocka_unit_test(samples_do_not_depend_on_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
