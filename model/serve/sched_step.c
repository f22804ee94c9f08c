/* SPDX-License-Identifier: Apache-2.0
 *
 * One step of the scheduler: fills free slots, lists the tokens to compute,
 * issues the random draws and takes their results.
 */
#include <string.h>

#include "model/serve/sched_internal.h"

/* ---- slots -------------------------------------------------------------- */

void xm_slot_feed(xm_sched *sched, uint32_t slot, const int32_t *tokens,
                  uint32_t count, uint32_t position)
{
    xm_slot *s = &sched->slots[slot];
    s->feed = tokens;
    s->feed_count = count;
    s->position = position;
    if (s->listed)
        return;
    s->listed = 1;
    sched->busy[sched->busy_count++] = slot;
}

/* The tokens of a sample's row after its prompt. */
static const int32_t *tokens_of(const xm_sample *sample)
{
    return sample->row ? sample->row : sample->tokens;
}

const int32_t *xm_slot_fill_row(xm_sched *sched, uint32_t slot,
                                const xm_request *r, const xm_sample *sample)
{
    int32_t *row = sched->rows + (size_t)slot * sched->limits.request.row_bound;
    memcpy(row, r->ids, r->id_count * sizeof(*row));
    if (sample)
        memcpy(row + r->id_count, tokens_of(sample),
               (sample->row_count - r->id_count) * sizeof(*row));
    return row;
}

void xm_slot_start(xm_sched *sched, uint32_t slot, xm_sample *sample,
                   uint32_t computed)
{
    xm_slot *s = &sched->slots[slot];
    xm_request *r = sample->request;
    s->request = r;
    s->sample = sample;
    s->feed_count = 0;
    s->position = computed;
    if (sample->finish != XRAY_FINISH_NONE) {
        /* The sample ended with its first token and is held. */
        sample->state = XM_SAMPLE_HELD;
        return;
    }
    sample->state = XM_SAMPLE_RUNNING;
    xm_note_start(sched, r, sample, sample->row_count - computed);
    const int32_t *feed = computed < r->id_count
                              ? xm_slot_fill_row(sched, slot, r, sample)
                              : tokens_of(sample) + computed - r->id_count;
    xm_slot_feed(sched, slot, feed, sample->row_count - computed, computed);
}

/* Returns the number of tokens that another sample of its request finds in a
 * slot: the prompt's, unless that is being computed again. */
static uint32_t count_computed(const xm_sched *sched, uint32_t slot)
{
    const xm_slot *s = &sched->slots[slot];
    uint32_t prompt = s->request->id_count;
    return s->position >= prompt ? prompt : 0;
}

void xm_slot_vacate(xm_sched *sched, uint32_t slot)
{
    xm_request *r = sched->slots[slot].request;
    xm_sample *next = sched->paging.blocks ? NULL : xm_ready_pop(r);
    if (next) {
        /* Positions after the prompt are overwritten. */
        xm_slot_start(sched, slot, next, count_computed(sched, slot));
        if (!r->ready && r->queued)
            xm_queue_remove(&sched->branching, r);
        return;
    }
    uint32_t listed = sched->slots[slot].listed;
    if (sched->paging.blocks)
        xm_blocks_release(sched->paging.blocks, &sched->paging.seqs[slot]);
    sched->slots[slot] = (xm_slot){ .listed = listed };
    sched->unused[sched->unused_count++] = slot;
}

static void restart_slot(xm_sched *sched, uint32_t slot)
{
    const xm_slot *s = &sched->slots[slot];
    if (!s->request || !s->position)
        return;
    xm_note(sched, "forget", s->request, s->sample, s->position);
    if (s->sample)
        xm_slot_start(sched, slot, s->sample, 0);
    else
        xm_slot_feed(sched, slot, s->request->ids, s->request->id_count, 0);
}

void xm_sched_forget(xm_sched *sched)
{
    if (sched->paging.blocks) {
        xm_paging_forget(sched);
        return;
    }
    for (uint32_t i = 0; i < sched->limits.slots; i++)
        restart_slot(sched, i);
}

void xm_sched_compact(xm_sched *sched)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < sched->busy_count; i++) {
        uint32_t slot = sched->busy[i];
        if (sched->slots[slot].feed_count)
            sched->busy[kept++] = slot;
        else
            sched->slots[slot].listed = 0;
    }
    sched->busy_count = kept;
}

/* Gives free slots to samples whose prompt is computed, then to new prompts.
 * Returns the number of copies between slots. */
static uint32_t fill_free_slots(xm_sched *sched)
{
    uint32_t copies = 0;
    while (sched->unused_count) {
        xm_request *r = sched->branching.first;
        if (!r)
            break;
        uint32_t slot = sched->unused[--sched->unused_count];
        uint32_t computed = count_computed(sched, r->source);
        xm_sample *sample = xm_ready_pop(r);
        if (computed)
            sched->copies[copies++] =
                (xm_slot_copy){ r->source, slot, computed };
        xm_slot_start(sched, slot, sample, computed);
        if (computed)
            xm_note(sched, "fork", r, sample, computed);
        if (!r->ready)
            xm_queue_remove(&sched->branching, r);
    }
    while (sched->unused_count && sched->waiting.first && !sched->paused) {
        xm_request *r = sched->waiting.first;
        uint32_t slot = sched->unused[--sched->unused_count];
        xm_queue_remove(&sched->waiting, r);
        r->source = slot;
        sched->slots[slot].request = r;
        xm_note_start(sched, r, NULL, r->id_count);
        xm_slot_feed(sched, slot, r->ids, r->id_count, 0);
    }
    return copies;
}

/* ---- tokens ------------------------------------------------------------- */

/* Lists the tokens of a prompt that give the log-probs of its next ids. */
static void emit_scores(xm_sched *sched, const xm_slot *s, uint32_t count,
                        xm_sched_step *step)
{
    uint32_t last = s->request->id_count - 1;
    for (uint32_t i = 0; i < count && s->position + i < last; i++) {
        sched->scores[sched->score_count++] =
            (xm_score){ s->request, step->last_count, s->position + i + 1 };
        step->last[step->last_count++] = (int32_t)(step->tokens + i);
    }
}

/* Moves a slot on by tokens that a step computes. */
static void pass_tokens(xm_sched *sched, uint32_t slot, uint32_t count)
{
    xm_slot *s = &sched->slots[slot];
    uint32_t *computed =
        s->sample ? &s->sample->computed : &s->request->computed;
    uint32_t end = s->position + count;
    if (sched->paging.blocks)
        xm_blocks_append(sched->paging.blocks, &sched->paging.seqs[slot],
                         s->feed, count);
    if (s->position < *computed)
        sched->recomputed_tokens +=
            (end < *computed ? end : *computed) - s->position;
    if (*computed < end)
        *computed = end;
    s->feed += count;
    s->feed_count -= count;
    s->settled = s->position;
    s->position = end;
}

static void emit_slot_tokens(xm_sched *sched, uint32_t slot, uint32_t count,
                             xm_sched_step *step)
{
    xm_slot *s = &sched->slots[slot];
    uint32_t at = step->tokens;
    for (uint32_t i = 0; i < count; i++) {
        step->ids[at + i] = s->feed[i];
        step->seq[at + i] = (int32_t)slot;
        step->positions[at + i] = (int32_t)(s->position + i);
    }
    if (count > 1 || !s->sample)
        xm_note(sched, "chunk", s->request, s->sample, count);
    if (!s->sample)
        sched->prompt_tokens += count;
    if (!s->sample && s->request->prompt_logp)
        emit_scores(sched, s, count, step);
    pass_tokens(sched, slot, count);
    if (s->position > step->position_bound)
        step->position_bound = s->position;
    step->tokens += count;
    if (s->feed_count)
        return;
    sched->drawn[sched->drawn_count++] =
        (xm_drawn){ .slot = slot,
                    .entry = step->last_count,
                    .tokens = s->sample ? s->sample->token_count : 0 };
    step->last[step->last_count++] = (int32_t)(step->tokens - 1);
}

/* Starts what waits while the step has tokens for it. Each one's are listed
 * before the next one starts, which thus finds the prefixes that are computed
 * in this very step. Returns the number of those that lack one token only. */
static uint32_t emit_started(xm_sched *sched, xm_sched_step *step)
{
    uint32_t most = sched->limits.step_tokens;
    uint32_t single = 0;
    uint32_t slot = 0;
    while (step->tokens < most && xm_paging_start(sched, step, &slot)) {
        uint32_t wanted = sched->slots[slot].feed_count;
        uint32_t budget = most - step->tokens;
        emit_slot_tokens(sched, slot, wanted < budget ? wanted : budget, step);
        /* The prefix that it found may be computed in this very step. */
        sched->slots[slot].settled = 0;
        single += wanted == 1;
    }
    return single;
}

/* Adds the drafts of running samples that are drawn from, as long as the step
 * has tokens for them. Returns their number. */
static uint32_t emit_drafts(xm_sched *sched, xm_sched_step *step)
{
    uint32_t first = step->tokens;
    for (uint32_t i = 0; i < sched->drawn_count; i++) {
        xm_drawn *drawn = &sched->drawn[i];
        const xm_slot *s = &sched->slots[drawn->slot];
        uint32_t spare = sched->limits.step_tokens - step->tokens;
        if (!s->sample || !spare)
            continue;
        uint32_t count = xm_draft_tokens(sched, s->sample, spare);
        drawn->drafts = xm_paging_lend(sched, drawn->slot, count);
        drawn->drafted = step->last_count;
        for (uint32_t k = 0; k < drawn->drafts; k++) {
            uint32_t at = step->tokens++;
            step->ids[at] = s->sample->tokens[drawn->tokens + k];
            step->seq[at] = (int32_t)drawn->slot;
            step->positions[at] = (int32_t)(s->position + k);
            step->last[step->last_count++] = (int32_t)at;
        }
        if (s->position + drawn->drafts > step->position_bound)
            step->position_bound = s->position + drawn->drafts;
    }
    sched->draft_tokens += step->tokens - first;
    return step->tokens - first;
}

static void forget_draws(xm_sched *sched)
{
    sched->drawn_count = 0;
    sched->issue_at = sched->issue_sample = 0;
    sched->answer_at = sched->answer_sample = 0;
    sched->score_count = sched->score_at = 0;
    sched->followed = 0;
}

void xm_sched_begin(xm_sched *sched, xm_sched_step *step)
{
    forget_draws(sched);
    step->tokens = 0;
    step->last_count = 0;
    step->position_bound = 0;
    step->copies = sched->copies;
    step->copy_count = sched->paging.blocks ? 0 : fill_free_slots(sched);
    int starts = sched->paging.blocks && !xm_paging_make_room(sched);
    for (uint32_t i = 0; i < sched->busy_count; i++)
        if (sched->slots[sched->busy[i]].feed_count == 1)
            emit_slot_tokens(sched, sched->busy[i], 1, step);
    uint32_t decode = step->tokens;
    uint32_t budget = sched->limits.step_tokens - step->tokens;
    for (uint32_t i = 0; i < sched->busy_count && budget; i++) {
        uint32_t wanted = sched->slots[sched->busy[i]].feed_count;
        uint32_t count = wanted < budget ? wanted : budget;
        if (count)
            emit_slot_tokens(sched, sched->busy[i], count, step);
        budget -= count;
    }
    if (starts)
        decode += emit_started(sched, step);
    decode += emit_drafts(sched, step);
    step->rows = sched->drawn_count;
    if (step->tokens)
        sched->steps++;
    xm_note_step(sched, step, decode);
}

/* ---- draws and results -------------------------------------------------- */

/* Returns the number of the first sample from `number` on that waits for its
 * first token; samples may have been aborted before it. */
static uint32_t find_waiting(const xm_request *r, uint32_t number)
{
    while (number < r->count && r->samples[number].state != XM_SAMPLE_WAITING)
        number++;
    return number;
}

/* Moves on by a draw of a running sample. */
static void pass_draw(const xm_drawn *drawn, uint32_t *at, uint32_t *number)
{
    if ((*number)++ < drawn->drafts)
        return;
    *number = 0;
    ++*at;
}

xm_sample *xm_sched_next_draw(const xm_sched *sched, uint32_t *at,
                              uint32_t *number, xm_sample *out_then)
{
    const xm_drawn *drawn = &sched->drawn[*at];
    const xm_slot *slot = &sched->slots[drawn->slot];
    if (slot->sample) {
        uint32_t before = drawn->tokens + *number - slot->sample->token_count;
        *out_then = *slot->sample;
        out_then->token_count += before;
        out_then->row_count += before;
        pass_draw(drawn, at, number);
        return slot->sample;
    }
    const xm_request *r = slot->request;
    uint32_t found = find_waiting(r, *number);
    xm_sample *sample = &r->samples[found];
    *out_then = *sample;
    *number = found + 1;
    if (find_waiting(r, *number) == r->count) {
        *number = 0;
        ++*at;
    }
    return sample;
}

uint32_t xm_sched_draws(xm_sched *sched, uint32_t cap, xray_draw *draws,
                        int32_t *index, int *out_run)
{
    uint32_t n = 0;
    int run = 1;
    while (n < cap && sched->issue_at < sched->drawn_count) {
        uint32_t at = sched->issue_at;
        uint32_t number = sched->issue_sample;
        uint32_t draft = number;
        xm_sample then;
        const xm_drawn *drawn = &sched->drawn[at];
        (void)xm_sched_next_draw(sched, &at, &number, &then);
        uint32_t logits = (uint32_t)xm_sample_needs_logits(&then);
        if (n == 0 && logits && cap > XM_LOGIT_DRAWS)
            cap = XM_LOGIT_DRAWS;
        if (n == 0)
            sched->issued_logits = logits;
        else if (logits > sched->issued_logits)
            break;
        index[n] = (int32_t)(drawn->drafts && draft ? drawn->drafted + draft - 1
                                                    : drawn->entry);
        run = run && index[n] == index[0] + (int32_t)n;
        xm_sample_fill_draw(&then, &draws[n++]);
        sched->issue_at = at;
        sched->issue_sample = number;
    }
    sched->issued = n;
    *out_run = run;
    return n;
}

/* Appends a token to a sample; returns XRAY_FINISH_NONE unless it ends
 * there. */
static uint32_t append_token(xm_sched *sched, xm_sample *sample, int32_t token,
                             float raw_logp, float logp)
{
    uint32_t at = sample->token_count++;
    sample->tokens[at] = token;
    if (sample->row)
        sample->row[sample->row_count - sample->request->id_count] = token;
    sample->raw_logp[at] = raw_logp;
    sample->logp[at] = logp;
    sample->row_count++;
    xm_sample_note_version(sched, sample);
    sched->generation_tokens++;
    if (sample->request->stream)
        xm_sample_offer(sched, sample);
    return xm_sample_finish_reason(sample, sched->limits.request.row_bound);
}

/* Goes on with the token that was appended last. If that was a draft, it is
 * computed already. */
static void take_running_result(xm_sched *sched, xm_drawn *drawn,
                                xm_sample *sample, uint32_t finish, int drafted)
{
    uint32_t slot = drawn->slot;
    drawn->over = finish != XRAY_FINISH_NONE || !drafted;
    if (finish == XRAY_FINISH_NONE) {
        uint32_t position = sample->row_count - 1;
        xm_slot_feed(sched, slot, &sample->tokens[sample->token_count - 1], 1,
                     position);
        if (drafted)
            pass_tokens(sched, slot, 1);
        else if (drawn->drafts && sched->paging.blocks)
            xm_blocks_trim(sched->paging.blocks, &sched->paging.seqs[slot]);
        return;
    }
    xm_sample_publish(sched, sample, finish);
    if (!sample->request->hold)
        xm_sample_close(sched, sample);
    else
        sample->state = XM_SAMPLE_HELD;
    if (!sample->request->hold || sched->paging.blocks)
        xm_slot_vacate(sched, slot);
}

/* Takes a first token, which was drawn from the prompt's hidden state. A held
 * sample needs a slot even if this token ends it. */
static void take_first_token(xm_sched *sched, xm_sample *sample,
                             uint32_t finish)
{
    sample->request->started++;
    if (finish != XRAY_FINISH_NONE)
        xm_sample_publish(sched, sample, finish);
    if (finish != XRAY_FINISH_NONE && sample->request->hold &&
        sched->paging.blocks)
        sample->state = XM_SAMPLE_HELD;
    else if (finish == XRAY_FINISH_NONE || sample->request->hold)
        xm_ready_push(sample->request, sample);
    else
        xm_sample_close(sched, sample);
}

static void finish_prompt(xm_sched *sched, uint32_t slot)
{
    xm_request *r = sched->slots[slot].request;
    sched->saved_tokens += (uint64_t)(r->started - 1) * r->id_count;
    xm_note_finish(sched, r, NULL, XRAY_FINISH_NONE);
    xm_sample *next = sched->paging.blocks ? xm_ready_pop(r) : NULL;
    if (next)
        xm_slot_start(sched, slot, next, r->id_count);
    else
        xm_slot_vacate(sched, slot);
    if (r->ready)
        xm_queue_push(&sched->branching, r);
}

/* Passes the draws of a slot that mean nothing and are not issued yet. */
static void skip_draws(xm_sched *sched)
{
    if (!sched->answer_sample || !sched->drawn[sched->answer_at].over)
        return;
    sched->issue_at = ++sched->answer_at;
    sched->issue_sample = sched->answer_sample = 0;
}

void xm_sched_results(xm_sched *sched, const int32_t *tokens,
                      const float *raw_logp, const float *logp)
{
    for (uint32_t i = 0; i < sched->issued; i++) {
        uint32_t at = sched->answer_at;
        xm_drawn *drawn = &sched->drawn[at];
        if (drawn->over) {
            pass_draw(drawn, &sched->answer_at, &sched->answer_sample);
            continue;
        }
        int branch = !sched->slots[drawn->slot].sample;
        xm_sample then;
        xm_sample *sample = xm_sched_next_draw(sched, &sched->answer_at,
                                               &sched->answer_sample, &then);
        uint32_t row = sched->followed ? drawn->entry : i;
        int drafted =
            !branch && xm_draft_check(sched, drawn, sample, tokens[row]);
        uint32_t finish =
            append_token(sched, sample, tokens[row], raw_logp[row], logp[row]);
        if (!branch) {
            take_running_result(sched, drawn, sample, finish, drafted);
            continue;
        }
        take_first_token(sched, sample, finish);
        if (sched->answer_at != at)
            finish_prompt(sched, drawn->slot);
    }
    sched->issued = 0;
    skip_draws(sched);
}

void xm_sched_end(xm_sched *sched)
{
    xm_sched_compact(sched);
    xm_note_end(sched);
}

/* ---- steps ahead -------------------------------------------------------- */

/* Whether a running sample may have more tokens after its next one. */
static int has_space(const xm_sched *sched, const xm_sample *sample)
{
    uint32_t drawn = sample->token_count - sample->round_start;
    return drawn + 1 < sample->request->max_tokens &&
           sample->row_count + 1 < sched->limits.request.row_bound;
}

static int awaits_slot(const xm_sched *sched)
{
    return sched->unused_count &&
           (sched->branching.first || (sched->waiting.first && !sched->paused));
}

int xm_sched_follow(xm_sched *sched, const xm_sched_step *step,
                    xm_sched_step *out_next)
{
    uint32_t rows = sched->drawn_count;
    if (step->tokens != rows || step->last_count != rows ||
        sched->busy_count != rows || awaits_slot(sched))
        return 0;
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t slot = sched->drawn[i].slot;
        const xm_sample *sample = sched->slots[slot].sample;
        if (!sample || !has_space(sched, sample) ||
            xm_draft_pays(sched, sample) || xm_sample_needs_logits(sample) ||
            !xm_paging_grow(sched, slot))
            return 0;
        sched->ahead[i] = (xm_ahead){ sample, slot, sample->token_count + 1 };
    }
    sched->ahead_count = rows;
    *out_next = *step;
    out_next->copy_count = 0;
    out_next->position_bound++;
    return 1;
}

int xm_sched_take_ahead(xm_sched *sched, xm_sched_step *step)
{
    uint32_t count = sched->ahead_count;
    forget_draws(sched);
    sched->followed = 1;
    sched->ahead_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        const xm_ahead *row = &sched->ahead[i];
        xm_slot *s = &sched->slots[row->slot];
        if (s->sample != row->sample || s->feed_count != 1 ||
            s->sample->token_count != row->token_count ||
            xm_sample_needs_logits(s->sample))
            continue;
        pass_tokens(sched, row->slot, 1);
        sched->drawn[sched->drawn_count++] = (xm_drawn){
            .slot = row->slot, .entry = i, .tokens = row->token_count
        };
    }
    sched->issued = sched->drawn_count;
    step->rows = sched->drawn_count;
    sched->steps += step->rows > 0;
    xm_note_step(sched, step, step->rows);
    return step->rows > 0;
}
