/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the scheduler over a paged cache: which tokens each step computes and
 * in which blocks, who waits, who is preempted and who resumes; and that each
 * sample has the oracle's tokens.
 */
#include "tests/serve/sched_rig.h"

#include <ctype.h>

/* ---- scenes -------------------------------------------------------------- */

enum { ROW = 40, BLOCK = 4, MOST_REQUESTS = 26, MOST_ACTS = 16 };

/* The calls before a step, and the trace of this step (see rig_step). Calls:
 *     a=p9q3*2/5  request 1: 9 tokens of the text p, then 3 of q; 2 samples
 *                 (or 1) of 5 tokens (or 30); !: and log-probs of the prompt
 *     -a          aborts it
 *     ~           other weights, when nothing is left
 *     [ ]         pauses what has not begun, and resumes */
typedef struct act {
    const char *calls;
    const char *trace;
} act;

typedef struct scene {
    uint32_t slots;
    uint32_t step_tokens;
    uint32_t blocks;
    uint32_t watermark;
    uint32_t uncached;
    uint32_t preemptions;
    uint32_t saved; /* tokens of prompts that were not computed */
    act acts[MOST_ACTS];
} scene;

typedef struct stage {
    rig *r;
    xray_request requests[MOST_REQUESTS];
    int32_t ids[MOST_REQUESTS][ROW];
} stage;

static void poll_all(stage *s)
{
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    while (xm_sched_poll(s->r->sched, &out) == XRAY_OK)
        if (out.finish != XRAY_FINISH_ABORT)
            check_result(s->r, &s->requests[out.id - 1], &out);
}

static uint32_t read_number(const char **at)
{
    char *end = NULL;
    uint32_t n = (uint32_t)strtoul(*at + 1, &end, 10);
    *at = end;
    return n;
}

static const char *submit_text(stage *s, const char *at)
{
    uint64_t number = (uint64_t)(*at - 'a');
    xray_request q = make_test_request(number + 1, 1, 1, 30);
    q.ids = s->ids[number];
    q.id_count = q.stop_count = 0;
    for (at += 2; islower(*at);) {
        uint64_t text = (unsigned char)*at;
        uint32_t count = read_number(&at);
        assert_true(q.id_count + count <= ROW);
        fill_text(text, count, &s->ids[number][q.id_count]);
        q.id_count += count;
    }
    if (*at == '*')
        q.count = read_number(&at);
    if (*at == '/')
        q.max_tokens = read_number(&at);
    q.prompt_logp = *at == '!';
    s->requests[number] = q;
    rig_submit(s->r, &q);
    return at + q.prompt_logp;
}

static void make_calls(stage *s, const char *at)
{
    xr_err err = { "" };
    while (*at) {
        if (islower(*at)) {
            at = submit_text(s, at);
            continue;
        }
        switch (*at++) {
        case '-':
            assert_int_equal(xm_sched_abort(s->r->sched,
                                            (uint64_t)(*at++ - 'a' + 1),
                                            XRAY_ALL_SAMPLES, &err),
                             XRAY_OK);
            break;
        case '~':
            poll_all(s);
            s->r->version++;
            xm_sched_forget(s->r->sched);
            break;
        case '[':
            assert_int_equal(xm_sched_pause(s->r->sched, XRAY_PAUSE_WAIT, &err),
                             XRAY_OK);
            break;
        case ']':
            xm_sched_resume(s->r->sched);
            break;
        default:
            assert_int_equal(at[-1], ' ');
        }
    }
}

static void play_scene(const scene *about)
{
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->r = rig_new(&(xm_sched_limits){ about->slots,
                                       about->step_tokens,
                                       { VOCAB, ROW },
                                       { .watermark = about->watermark,
                                         .blocks = { about->blocks, BLOCK,
                                                     !about->uncached } } },
                   64);
    s->r->traced = 1;
    for (const act *a = about->acts; a->calls; a++) {
        make_calls(s, a->calls);
        rig_step(s->r);
        if (strcmp(s->r->trace, a->trace) != 0)
            fail_msg("step %d: \"%s\", but \"%s\" was expected",
                     (int)(a - about->acts) + 1, s->r->trace, a->trace);
    }
    rig_run(s->r);
    poll_all(s);
    xray_infer_stats stats = rig_stats(s->r);
    assert_int_equal(stats.preemptions, about->preemptions);
    assert_int_equal(stats.prefix_tokens_saved, about->saved);
    assert_int_equal(stats.kv_tokens, 0);
    assert_int_equal(xm_sched_live(s->r->sched), 0);
    rig_free(s->r);
    free(s);
}

/* ---- the budget of a step ------------------------------------------------ */

static void a_prompt_may_take_the_whole_budget(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 2,
                         .step_tokens = 8,
                         .blocks = 20,
                         .acts = { { "a=p8/2 b=q8/1", "a:0-7 AB" },
                                   { "", "a0:8 ABC b:0-6 DE" },
                                   { "", "b:7 DE" },
                                   { "", "" } } });
}

/* Without tokens in the step a prompt holds no blocks, and it can find what is
 * computed until it starts. */
static void a_prompt_starts_when_a_step_has_tokens_for_it(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 2,
                         .step_tokens = 9,
                         .blocks = 20,
                         .saved = 8,
                         .acts = { { "a=p9/2 b=p9/1", "a:0-8 ABC" },
                                   { "", "a0:9 ABC b:8 ABD" },
                                   { "", "" } } });
}

static void a_prompt_in_the_middle_goes_on_in_the_next_step(void **state)
{
    (void)state;
    play_scene(
        &(scene){ .slots = 3,
                  .step_tokens = 10,
                  .blocks = 24,
                  .acts = { { "a=p6/4 b=q13/4 c=r5/4", "a:0-5 AB b:0-3 CDEF" },
                            { "", "a0:6 AB b:4-12 CDEF" },
                            { "", "a0:7 AB b0:13 CDEF c:0-4 GH" },
                            { "", "a0:8 ABI b0:14 CDEF c0:5 GH" },
                            { "", "b0:15 CDEF c0:6 GH" } } });
}

static void sequences_wait_for_a_slot_in_their_order(void **state)
{
    (void)state;
    play_scene(&(scene){
        .slots = 2,
        .step_tokens = 30,
        .blocks = 24,
        .acts = { { "a=p3/2 b=q3/3 c=r3/2 d=s3/2", "a:0-2 A b:0-2 B" },
                  { "", "a0:3 A b0:3 B" },
                  { "", "b0:4 BC c:0-2 D" },
                  { "", "c0:3 D d:0-2 C" },
                  { "", "d0:3 C" } } });
}

/* ---- blocks -------------------------------------------------------------- */

static void a_row_ends_where_it_is_longest(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 1,
                         .step_tokens = 64,
                         .blocks = 10,
                         .acts = { { "a=p37", "a:0-36 ABCDEFGHIJ" },
                                   { "", "a0:37 ABCDEFGHIJ" },
                                   { "", "a0:38 ABCDEFGHIJ" },
                                   { "", "" } } });
}

/* b lacks a block, and c, which would fit, does not go before it. */
static void nobody_overtakes_who_waits_for_blocks(void **state)
{
    (void)state;
    play_scene(
        &(scene){ .slots = 4,
                  .step_tokens = 64,
                  .blocks = 10,
                  .acts = { { "a=p24/3 b=q20/2 c=r2/2", "a:0-23 ABCDEF" },
                            { "", "a0:24 ABCDEFG" },
                            { "", "a0:25 ABCDEFG" },
                            { "", "b:0-19 GHIJF c:0-1 E" } } });
}

/* The watermark holds back who starts beside others, and nobody else. */
static void the_watermark_stays_free_when_a_sequence_starts(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 4,
                         .step_tokens = 64,
                         .blocks = 10,
                         .watermark = 3,
                         .acts = { { "a=p36/5 b=q2/2", "a:0-35 ABCDEFGHI" },
                                   { "", "a0:36 ABCDEFGHIJ" },
                                   { "", "a0:37 ABCDEFGHIJ" },
                                   { "", "a0:38 ABCDEFGHIJ" },
                                   { "", "b:0-1 J" },
                                   { "", "b0:2 J" } } });
    play_scene(&(scene){
        .slots = 4,
        .step_tokens = 64,
        .blocks = 10,
        .watermark = 3,
        .acts = { { "a=p16/9 b=q12/2 c=r3/2", "a:0-15 ABCD b:0-11 EFG" },
                  { "", "a0:16 ABCDH b0:12 EFGI" },
                  { "", "a0:17 ABCDH c:0-2 I" } } });
}

/* ---- preemption ---------------------------------------------------------- */

static void the_youngest_is_preempted_and_resumes_first(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 4,
                         .step_tokens = 64,
                         .blocks = 10,
                         .uncached = 1,
                         .preemptions = 1,
                         .acts = { { "a=p15/6 b=q12/6 c=r8/6",
                                     "a:0-14 ABCD b:0-11 EFG c:0-7 HI" },
                                   { "d=s2/2", "a0:15 ABCD b0:12 EFGJ" },
                                   { "", "a0:16 ABCDH b0:13 EFGJ" },
                                   { "", "a0:17 ABCDH b0:14 EFGJ" },
                                   { "", "a0:18 ABCDH b0:15 EFGJ" },
                                   { "", "a0:19 ABCDH b0:16 EFGJI" },
                                   { "", "c0:0-8 EFG d:0-1 J" },
                                   { "", "c0:9 EFG d0:2 J" } } });
}

static void the_older_of_two_preempted_resumes_first(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 4,
                         .step_tokens = 64,
                         .blocks = 10,
                         .uncached = 1,
                         .preemptions = 2,
                         .acts = { { "a=p16/8 b=q12/6 c=r12/6",
                                     "a:0-15 ABCD b:0-11 EFG c:0-11 HIJ" },
                                   { "", "a0:16 ABCDH b0:12 EFGI" },
                                   { "", "a0:17 ABCDH b0:13 EFGI" },
                                   { "", "a0:18 ABCDH b0:14 EFGI" },
                                   { "", "a0:19 ABCDH b0:15 EFGI" },
                                   { "", "a0:20 ABCDHJ" },
                                   { "", "a0:21 ABCDHJ" },
                                   { "", "a0:22 ABCDHJ" },
                                   { "", "b0:0-16 ABCDH c0:0-12 JEFG" },
                                   { "", "c0:13 JEFG" } } });
}

/* The blocks of a preempted sequence stay cached until others need them. */
static void a_resumed_sequence_computes_what_is_lost(void **state)
{
    (void)state;
    play_scene(
        &(scene){ .slots = 4,
                  .step_tokens = 64,
                  .blocks = 10,
                  .preemptions = 1,
                  .acts = { { "a=p16/6 b=q20/6", "a:0-15 ABCD b:0-19 EFGHI" },
                            { "", "a0:16 ABCDJ" },
                            { "", "a0:17 ABCDJ" },
                            { "", "a0:18 ABCDJ" },
                            { "", "a0:19 ABCDJ" },
                            { "", "a0:20 ABCDJI" },
                            { "", "b0:16-20 EFGHIJ" },
                            { "", "b0:21 EFGHIJ" } } });
}

static void the_youngest_may_preempt_itself(void **state)
{
    (void)state;
    play_scene(
        &(scene){ .slots = 4,
                  .step_tokens = 64,
                  .blocks = 10,
                  .uncached = 1,
                  .preemptions = 1,
                  .acts = { { "a=p21/3 b=q16/6", "a:0-20 ABCDEF b:0-15 GHIJ" },
                            { "", "a0:21 ABCDEF" },
                            { "", "a0:22 ABCDEF" },
                            { "", "b0:0-16 ABCDE" } } });
}

static void a_prompt_that_is_half_computed_is_preempted(void **state)
{
    (void)state;
    play_scene(
        &(scene){ .slots = 4,
                  .step_tokens = 9,
                  .blocks = 10,
                  .preemptions = 1,
                  .acts = { { "a=p8/6 b=q32/2", "a:0-7 AB b:0 CDEFGHIJ" },
                            { "", "a0:8 ABC" },
                            { "", "a0:9 ABC" },
                            { "", "a0:10 ABC" },
                            { "", "a0:11 ABC" },
                            { "", "a0:12 ABCD" },
                            { "", "b:0-8 DEFGHIJC" },
                            { "", "b:9-17 DEFGHIJC" } } });
}

static void a_pause_lets_preempted_sequences_end(void **state)
{
    (void)state;
    play_scene(&(scene){
        .slots = 4,
        .step_tokens = 64,
        .blocks = 10,
        .uncached = 1,
        .preemptions = 1,
        .acts = { { "a=p16/3 b=q24/3 c=r2/1", "a:0-15 ABCD b:0-23 EFGHIJ" },
                  { "[", "a0:16 ABCDE" },
                  { "", "a0:17 ABCDE" },
                  { "", "b0:0-24 ABCDEFG" },
                  { "", "b0:25 ABCDEFG" },
                  { "]", "c:0-1 A" } } });
}

/* Aborted are one that was preempted, one whose prompt is half computed, and
 * one that waits. */
static void aborted_requests_leave_no_block(void **state)
{
    (void)state;
    play_scene(
        &(scene){ .slots = 4,
                  .step_tokens = 20,
                  .blocks = 10,
                  .uncached = 1,
                  .acts = { { "a=p12/9 b=q8/9 c=r20/9", "a:0-11 ABC b:0-7 DE" },
                            { "", "a0:12 ABCF b0:8 DEG" },
                            { "-b", "a0:13 ABCF c:0-18 DEGHI" },
                            { "d=s8/3 -c", "a0:14 ABCF d:0-7 DE" },
                            { "-a", "d0:8 DEA" },
                            { "", "d0:9 DEA" } } });
}

/* ---- groups -------------------------------------------------------------- */

static void a_group_shares_full_blocks_and_copies_the_last(void **state)
{
    (void)state;
    play_scene(
        &(scene){ .slots = 4,
                  .step_tokens = 64,
                  .blocks = 20,
                  .saved = 20,
                  .acts = { { "a=p10*3/3", "a:0-9 ABC" },
                            { "", "C>D C>E a0:10 ABC a1:10 ABD a2:10 ABE" },
                            { "", "a0:11 ABC a1:11 ABD a2:11 ABE" } } });
    play_scene(&(scene){ .slots = 4,
                         .step_tokens = 64,
                         .blocks = 20,
                         .saved = 16,
                         .acts = { { "a=p8*3/3", "a:0-7 AB" },
                                   { "", "a0:8 ABC a1:8 ABD a2:8 ABE" },
                                   { "", "a0:9 ABC a1:9 ABD a2:9 ABE" } } });
}

/* The third sample starts when the first one, which had the prompt, is over. */
static void later_samples_find_the_prompt_in_the_cache(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 2,
                         .step_tokens = 64,
                         .blocks = 20,
                         .saved = 20,
                         .acts = { { "a=p10*3/3", "a:0-9 ABC" },
                                   { "", "C>D a0:10 ABC a1:10 ABD" },
                                   { "", "a0:11 ABC a1:11 ABD" },
                                   { "", "a2:8-10 ABE" } } });
    play_scene(&(scene){ .slots = 2,
                         .step_tokens = 64,
                         .blocks = 20,
                         .uncached = 1,
                         .saved = 20,
                         .acts = { { "a=p10*3/3", "a:0-9 ABC" },
                                   { "", "C>D a0:10 ABC a1:10 ABD" },
                                   { "", "a0:11 ABC a1:11 ABD" },
                                   { "", "a2:0-10 ABD" } } });
}

/* The third sample lacks a block for the rest of the prompt. Later the second
 * one gives its own block to the first, and goes on before the third. */
static void a_group_may_lack_blocks(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 4,
                         .step_tokens = 64,
                         .blocks = 9,
                         .preemptions = 1,
                         .saved = 60,
                         .acts = { { "a=p30*3/5", "a:0-29 ABCDEFGH" },
                                   { "", "H>I a0:30 ABCDEFGH a1:30 ABCDEFGI" },
                                   { "", "a0:31 ABCDEFGH a1:31 ABCDEFGI" },
                                   { "", "a0:32 ABCDEFGHI" },
                                   { "", "a0:33 ABCDEFGHI" },
                                   { "", "a1:28-32 ABCDEFGIH" },
                                   { "", "a1:33 ABCDEFGIH" },
                                   { "", "a2:28-30 ABCDEFGH" } } });
}

/* The second sample computes the prompt again, in another slot. The third one
 * starts in the step that ends it, and shares its full blocks: the last one
 * cannot be copied yet. */
static void a_sample_shares_the_prompt_that_a_step_ends(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 2,
                         .step_tokens = 8,
                         .blocks = 16,
                         .uncached = 1,
                         .saved = 36,
                         .acts = { { "a=p18*3/2 b=q4/2", "a:0-7 ABCDE" },
                                   { "", "a:8-15 ABCDE" },
                                   { "", "a:16-17 ABCDE b:0-3 F" },
                                   { "", "a0:18 ABCDE b0:4 FG" },
                                   { "", "a1:0-7 FGABC" },
                                   { "", "a1:8-15 FGABC" },
                                   { "", "a1:16-18 FGABC a2:16-18 FGABD" } } });
}

/* Other weights, between steps of a group: its first sample computes the prompt
 * again, with which the others go on. */
static void a_group_computes_its_prompt_once_from_new_weights(void **state)
{
    (void)state;
    for (uint32_t uncached = 0; uncached < 2; uncached++)
        play_scene(
            &(scene){ .slots = 3,
                      .step_tokens = 64,
                      .blocks = 24,
                      .uncached = uncached,
                      .saved = 20,
                      .acts = { { "a=p10*3/9", "a:0-9 ABC" },
                                { "", "C>D C>E a0:10 ABC a1:10 ABD a2:10 ABE" },
                                { "~", "a0:0-11 ABC a1:8-11 ABD a2:8-11 ABE" },
                                { "-a", "" } } });
}

/* ---- the prefix cache ---------------------------------------------------- */

/* A prompt of full blocks that are all known computes the last one again. */
static void the_last_token_is_computed(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 4,
                         .step_tokens = 64,
                         .blocks = 20,
                         .saved = 16,
                         .acts = { { "a=p8/1", "a:0-7 AB" },
                                   { "b=p8/1", "b:4-7 AC" },
                                   { "c=p9/1", "c:8 ACB" },
                                   { "d=p7/1", "d:4-6 AB" } } });
}

static void running_sequences_share_their_beginnings(void **state)
{
    (void)state;
    play_scene(&(scene){
        .slots = 4,
        .step_tokens = 64,
        .blocks = 20,
        .saved = 12,
        .acts = { { "a=p9/3", "a:0-8 ABC" },
                  { "b=p8q4/3 c=p4q9/3", "a0:9 ABC b:8-11 ABD c:4-12 AEFG" },
                  { "", "a0:10 ABC b0:12 ABDH c0:13 AEFG" } } });
}

/* Equal prompts that start in one step compute their full blocks once. */
static void prompts_of_one_step_share_their_beginnings(void **state)
{
    (void)state;
    play_scene(
        &(scene){ .slots = 4,
                  .step_tokens = 64,
                  .blocks = 20,
                  .saved = 20,
                  .acts = { { "a=p9/2 b=p9/2 c=p8/2 d=p8q3/2",
                              "a:0-8 ABC b:8 ABD c:4-7 AE d:8-10 ABF" },
                            { "", "a0:9 ABC b0:9 ABD c0:8 AEG d0:11 ABF" } } });
}

/* Blocks are used again in the order in which they were released, those without
 * a prefix first; what is used stays. */
static void the_prefix_that_was_used_last_stays_longest(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 1,
                         .step_tokens = 64,
                         .blocks = 10,
                         .saved = 16,
                         .acts = { { "a=p9/1", "a:0-8 ABC" },
                                   { "b=q9/1", "b:0-8 CDE" },
                                   { "c=p9/1", "c:8 ABE" },
                                   { "d=r30/1", "d:0-29 EFGHIJDC" },
                                   { "e=p9/1", "e:8 ABC" },
                                   { "f=q9/1", "f:0-8 CDJ" } } });
}

static void other_weights_find_nothing(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 2,
                         .step_tokens = 64,
                         .blocks = 20,
                         .saved = 16,
                         .acts = { { "a=p9/1", "a:0-8 ABC" },
                                   { "b=p9/1", "b:8 ABC" },
                                   { "~c=p9/1", "c:0-8 CDE" },
                                   { "d=p9/1", "d:8 CDE" } } });
}

static void logps_of_a_prompt_need_all_of_it(void **state)
{
    (void)state;
    play_scene(&(scene){ .slots = 2,
                         .step_tokens = 64,
                         .blocks = 20,
                         .saved = 8,
                         .acts = { { "a=p9/1", "a:0-8 ABC" },
                                   { "b=p9/1!", "b:0-8 CDE" },
                                   { "c=p9/1", "c:8 CDE" } } });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_may_take_the_whole_budget),
        cmocka_unit_test(a_prompt_starts_when_a_step_has_tokens_for_it),
        cmocka_unit_test(a_prompt_in_the_middle_goes_on_in_the_next_step),
        cmocka_unit_test(sequences_wait_for_a_slot_in_their_order),
        cmocka_unit_test(a_row_ends_where_it_is_longest),
        cmocka_unit_test(nobody_overtakes_who_waits_for_blocks),
        cmocka_unit_test(the_watermark_stays_free_when_a_sequence_starts),
        cmocka_unit_test(the_youngest_is_preempted_and_resumes_first),
        cmocka_unit_test(the_older_of_two_preempted_resumes_first),
        cmocka_unit_test(a_resumed_sequence_computes_what_is_lost),
        cmocka_unit_test(the_youngest_may_preempt_itself),
        cmocka_unit_test(a_prompt_that_is_half_computed_is_preempted),
        cmocka_unit_test(a_pause_lets_preempted_sequences_end),
        cmocka_unit_test(aborted_requests_leave_no_block),
        cmocka_unit_test(a_group_shares_full_blocks_and_copies_the_last),
        cmocka_unit_test(later_samples_find_the_prompt_in_the_cache),
        cmocka_unit_test(a_group_may_lack_blocks),
        cmocka_unit_test(a_sample_shares_the_prompt_that_a_step_ends),
        cmocka_unit_test(a_group_computes_its_prompt_once_from_new_weights),
        cmocka_unit_test(the_last_token_is_computed),
        cmocka_unit_test(running_sequences_share_their_beginnings),
        cmocka_unit_test(prompts_of_one_step_share_their_beginnings),
        cmocka_unit_test(the_prefix_that_was_used_last_stays_longest),
        cmocka_unit_test(other_weights_find_nothing),
        cmocka_unit_test(logps_of_a_prompt_need_all_of_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
