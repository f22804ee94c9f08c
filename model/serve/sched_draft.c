/* SPDX-License-Identifier: Apache-2.0
 *
 * Drafts of a sample's next tokens by n-gram look-up: what followed the same
 * tokens earlier in its row. The rule for them is vLLM's: the longest n-gram of
 * LEAST_TOKENS to MOST_TOKENS that the row ends with and has elsewhere, and of
 * its places the first one.
 */
#include <string.h>

#include "model/serve/sched_internal.h"

#define LEAST_TOKENS 2u
#define MOST_TOKENS 5u

/* Beside what its tokens take, a step takes about as long as this many tokens,
 * since weights are read once. This is of two processors; of a device that does
 * more for each byte that it reads it is too few, so that drafts rest early. */
#define STEP_TOKENS 6u

#define SURE 65536u
/* The part of what is known of a sample's drafts that each new one replaces. */
#define LESSON 8u
/* At every such position a sample without drafts is asked what its draft would
 * have been; that it has none counts as a wrong one. */
#define LESSON_POSITIONS 8u

/* ---- look-up ------------------------------------------------------------- */

/* A row, whose prompt and the tokens after it are not in one piece. */
typedef struct row_view {
    const int32_t *prompt;
    const int32_t *rest;
    uint32_t prompt_count;
    uint32_t count;
} row_view;

static row_view view_row(const xm_sample *sample)
{
    const xm_request *r = sample->request;
    return (row_view){ r->ids, sample->row ? sample->row : sample->tokens,
                       r->id_count, sample->row_count };
}

static int32_t read_token(const row_view *row, uint32_t at)
{
    return at < row->prompt_count ? row->prompt[at]
                                  : row->rest[at - row->prompt_count];
}

/* Counts the tokens before `end` that equal the last ones of the row. */
static uint32_t count_equal(const row_view *row, uint32_t end)
{
    uint32_t n = 0;
    while (n < MOST_TOKENS && n < end &&
           read_token(row, end - 1 - n) == read_token(row, row->count - 1 - n))
        n++;
    return n;
}

/* Copies what may follow the row, at most `most` tokens, and returns their
 * number. */
static uint32_t look_up(const row_view *row, uint32_t most, int32_t *out)
{
    uint32_t best = LEAST_TOKENS - 1;
    uint32_t from = row->count;
    uint32_t n = 0;
    for (uint32_t end = 1; end < row->count && best < MOST_TOKENS; end++) {
        uint32_t equal = count_equal(row, end);
        if (equal > best) {
            best = equal;
            from = end;
        }
    }
    while (n < most && from < row->count)
        out[n++] = read_token(row, from++);
    return n;
}

/* ---- when to draft ------------------------------------------------------- */

/* A token that is drawn in a step of B sequences takes (STEP_TOKENS + B) / B of
 * the time of a token; a right draft saves that, and each draft takes 1. */
static int is_worth(const xm_sched *sched, uint64_t chance)
{
    uint64_t rows = sched->busy_count;
    return chance * (STEP_TOKENS + rows) > SURE * rows;
}

int xm_draft_pays(const xm_sched *sched, const xm_sample *sample)
{
    return sched->limits.speculate && is_worth(sched, SURE - sample->doubt);
}

/* The number of drafts that are likely enough to be right, as are all before
 * them. */
static uint32_t count_worthy(const xm_sched *sched, const xm_sample *sample,
                             uint32_t most)
{
    uint64_t each = SURE - sample->doubt;
    uint64_t chance = each;
    uint32_t n = 0;
    for (; n < most && is_worth(sched, chance); n++)
        chance = chance * each / SURE;
    return n;
}

static uint32_t least_of(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* The last token that a sample may have is drawn after all drafts. */
uint32_t xm_draft_tokens(const xm_sched *sched, xm_sample *sample,
                         uint32_t most)
{
    const xm_request *r = sample->request;
    uint32_t drawn = sample->token_count - sample->round_start;
    most = least_of(most, sched->limits.speculate);
    most = least_of(most, r->max_tokens - drawn - 1);
    most =
        least_of(most, sched->limits.request.row_bound - sample->row_count - 1);
    most = count_worthy(sched, sample, most);
    if (!most)
        return 0;
    const row_view row = view_row(sample);
    int32_t *drafts = sample->tokens + sample->token_count;
    uint32_t n = look_up(&row, most, drafts);
    /* Penalties of a row with appended tokens read it, not the sampled ones. */
    if (sample->row)
        memcpy(sample->row + sample->row_count - r->id_count, drafts,
               n * sizeof(*drafts));
    return n;
}

/* ---- what is learnt of them ---------------------------------------------- */

int xm_draft_check(xm_sched *sched, const xm_drawn *drawn, xm_sample *sample,
                   int32_t token)
{
    int computed = sample->token_count - drawn->tokens < drawn->drafts;
    const row_view row = view_row(sample);
    int32_t draft = -1;
    if (computed)
        draft = sample->tokens[sample->token_count];
    else if (!sched->limits.speculate || drawn->drafts ||
             sample->row_count % LESSON_POSITIONS)
        return 0;
    else
        (void)look_up(&row, 1, &draft);
    if (draft != token) {
        sample->doubt += (SURE - sample->doubt) / LESSON;
        return 0;
    }
    sample->doubt -= sample->doubt / LESSON;
    sched->accepted_tokens += (uint64_t)computed;
    return computed;
}
