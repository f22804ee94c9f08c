/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler over a paged cache: which blocks slots get, and which sequence
 * gives its blocks back when there are too few. A sequence starts with all
 * blocks of the tokens that are known of it, so that only new tokens can lack
 * one. Whatever waits keeps its tokens and nothing else; it is computed again
 * from them, but for what the cache still has.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "model/serve/sched_internal.h"

xray_status xm_paging_open(xm_sched *sched, xr_err *err)
{
    const xm_sched_limits *limits = &sched->limits;
    xm_paging *p = &sched->paging;
    size_t slots = limits->slots;
    p->seqs = xr_calloc(slots, sizeof(*p->seqs));
    if (!p->seqs)
        return xr_fail(err, XRAY_E_NOMEM, "no memory for %" PRIu32 " slots",
                       limits->slots);
    for (size_t i = 0; i < slots; i++)
        p->seqs[i].blocks = limits->paging.table + i * limits->paging.stride;
    return xm_blocks_create(&limits->paging.blocks, err, &p->blocks);
}

void xm_paging_close(xm_paging *paging)
{
    xm_blocks_destroy(paging->blocks);
    free(paging->seqs);
}

/* ---- preemption --------------------------------------------------------- */

/* A sequence that has begun goes before those that have not, and the one that
 * was preempted last before those that were preempted earlier in the same step,
 * which are younger. */
void xm_paging_requeue(xm_sched *sched, xm_request *request, xm_sample *sample)
{
    if (sample)
        xm_ready_push_first(request, sample);
    if (!request->queued)
        xm_queue_push_first(&sched->branching, request);
}

static void preempt_slot(xm_sched *sched, uint32_t slot, const char *what)
{
    const xm_slot s = sched->slots[slot];
    xm_note(sched, what, s.request, s.sample, s.position);
    xm_slot_vacate(sched, slot);
    xm_paging_requeue(sched, s.request, s.sample);
}

/* Returns the youngest slot with tokens to compute. */
static uint32_t find_youngest(const xm_sched *sched)
{
    uint32_t i = sched->busy_count - 1;
    while (!sched->slots[sched->busy[i]].feed_count)
        i--;
    return sched->busy[i];
}

int xm_paging_make_room(xm_sched *sched)
{
    xm_paging *p = &sched->paging;
    int preempted = 0;
    for (uint32_t i = 0; i < sched->busy_count; i++) {
        uint32_t slot = sched->busy[i];
        const xm_slot *s = &sched->slots[slot];
        while (s->feed_count &&
               xm_blocks_reserve(p->blocks, &p->seqs[slot],
                                 s->position + s->feed_count, 0)) {
            preempt_slot(sched, find_youngest(sched), "preempt");
            sched->paging.preemptions++;
            preempted = 1;
        }
    }
    xm_sched_compact(sched);
    return preempted;
}

void xm_paging_forget(xm_sched *sched)
{
    xm_blocks_forget(sched->paging.blocks);
    for (uint32_t i = sched->busy_count; i--;)
        preempt_slot(sched, sched->busy[i], "forget");
    xm_sched_compact(sched);
}

int xm_paging_grow(xm_sched *sched, uint32_t slot)
{
    xm_paging *p = &sched->paging;
    return !p->blocks || !xm_blocks_reserve(p->blocks, &p->seqs[slot],
                                            sched->slots[slot].position + 1, 0);
}

/* A draft leaves free what a sequence that starts has to. */
uint32_t xm_paging_lend(xm_sched *sched, uint32_t slot, uint32_t drafts)
{
    xm_paging *p = &sched->paging;
    uint32_t position = sched->slots[slot].position;
    while (p->blocks && drafts &&
           xm_blocks_reserve(p->blocks, &p->seqs[slot], position + drafts,
                             sched->limits.paging.watermark))
        drafts--;
    return drafts;
}

/* ---- sequences that start ----------------------------------------------- */

/* Returns how many tokens of its prompt a sample can share with the slot that
 * has it, which lacks none when others start. A block that is partly filled is
 * copied before the step's tokens are computed, so that those of this step are
 * shared in full blocks only. */
static uint32_t count_shared(const xm_sched *sched, const xm_request *r)
{
    const xm_slot *s = &sched->slots[r->source];
    uint32_t prompt = r->id_count;
    if (s->request != r)
        return 0;
    uint32_t rest = prompt % sched->limits.paging.blocks.block_tokens;
    return s->settled < prompt ? prompt - rest : prompt;
}

/* Begins the sequence of a slot with what is in the cache: the prompt that
 * another sample has, or full blocks. Log-probs of a prompt need all of its
 * hidden states. Returns the number of blocks to copy, or -1 if blocks are
 * lacking. */
static int begin_seq(xm_sched *sched, uint32_t slot, xm_request *r,
                     xm_sample *s, const int32_t *row, xm_slot_copy *copy)
{
    xm_paging *p = &sched->paging;
    xm_block_seq *seq = &p->seqs[slot];
    uint32_t count = s ? s->row_count : r->id_count;
    uint32_t spare = sched->busy_count ? sched->limits.paging.watermark : 0;
    uint32_t found = 0;
    int copies = 0;
    if (s || !r->prompt_logp)
        found = xm_blocks_find(p->blocks, row, count, seq);
    uint32_t shared = s ? count_shared(sched, r) : 0;
    int forks = found < shared;
    if (forks) {
        int32_t pair[2] = { 0 };
        copies =
            xm_blocks_fork(p->blocks, &p->seqs[r->source], shared, seq, pair);
        *copy = (xm_slot_copy){ (uint32_t)pair[0], (uint32_t)pair[1], 1 };
    }
    if (copies >= 0 && !xm_blocks_reserve(p->blocks, seq, count, spare)) {
        xm_note_start(sched, r, s, count - seq->tokens);
        if (seq->tokens)
            xm_note(sched, forks ? "fork" : "prefix", r, s, seq->tokens);
        return copies;
    }
    xm_blocks_release(p->blocks, seq);
    return -1;
}

static int start_seq(xm_sched *sched, uint32_t slot, xm_request *r,
                     xm_sample *sample, xm_slot_copy *copy)
{
    xm_slot *s = &sched->slots[slot];
    const int32_t *row = xm_slot_fill_row(sched, slot, r, sample);
    int copies = begin_seq(sched, slot, r, sample, row, copy);
    if (copies < 0)
        return copies;
    uint32_t computed = sched->paging.seqs[slot].tokens;
    uint32_t count = sample ? sample->row_count : r->id_count;
    if (!count_shared(sched, r))
        r->source = slot;
    s->request = r;
    s->sample = sample;
    if (sample)
        sample->state = XM_SAMPLE_RUNNING;
    else
        sched->saved_tokens += computed;
    xm_slot_feed(sched, slot, row + computed, count - computed, computed);
    return copies;
}

int xm_paging_start(xm_sched *sched, xm_sched_step *step, uint32_t *out_slot)
{
    xm_request *r = sched->branching.first;
    if (!r && !sched->paused)
        r = sched->waiting.first;
    if (!r || !sched->unused_count)
        return 0;
    uint32_t slot = sched->unused[sched->unused_count - 1];
    int copies =
        start_seq(sched, slot, r, r->ready, &sched->copies[step->copy_count]);
    if (copies < 0)
        return 0;
    step->copy_count += (uint32_t)copies;
    sched->unused_count--;
    (void)xm_ready_pop(r);
    if (!r->ready)
        xm_queue_remove(r->queued == XM_QUEUE_WAITING ? &sched->waiting
                                                      : &sched->branching,
                        r);
    *out_slot = slot;
    return 1;
}
