/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs and functions that the files of the scheduler share.
 */
#ifndef XM_SCHED_INTERNAL_H
#define XM_SCHED_INTERNAL_H

#include "model/serve/sched.h"

#define XM_QUEUE_WAITING 1u /* the prompt is not started */
#define XM_QUEUE_BRANCHING \
    2u /* the prompt is computed, samples wait for a slot */

typedef struct xm_queue {
    xm_request *first;
    xm_request *last;
    uint32_t name;
    uint32_t count;
} xm_queue;

typedef struct xm_slot {
    xm_request *request; /* NULL: free */
    xm_sample *sample;   /* NULL: the prompt is still being computed */
    const int32_t *feed; /* tokens that are still to be computed */
    uint32_t feed_count;
    uint32_t position; /* of the first token of `feed` */
    uint32_t listed;   /* 1: in `busy` */
    uint32_t settled;  /* position of its first token in its last step; 0 in the
                        * step that starts it in a paged cache */
} xm_slot;

/* The log-prob of a prompt's id, which an entry of the step's `last` gives. */
typedef struct xm_score {
    xm_request *request;
    uint32_t entry;
    uint32_t position;
} xm_score;

/* A slot that is drawn from in a step: one draw for each sample of a prompt, or
 * one for a running sample and for each of its drafts. */
typedef struct xm_drawn {
    uint32_t slot;
    uint32_t entry;  /* of the step's `last` that it reads; of a step that was
                      * made ahead, its row */
    uint32_t tokens; /* of the running sample before the step */
    uint32_t drafts;
    uint32_t drafted; /* the entry of the first draft; the others follow it */
    uint32_t over;    /* 1: the draws that are left mean nothing */
} xm_drawn;

/* A row of the step that follows the current one: the sample that it goes on
 * with, and the tokens that this has once the current step is answered. */
typedef struct xm_ahead {
    const xm_sample *sample;
    uint32_t slot;
    uint32_t token_count;
} xm_ahead;

/* Where the keys and values of slots are in a paged cache. */
typedef struct xm_paging {
    xm_blocks *blocks;  /* NULL: each slot has memory of its own */
    xm_block_seq *seqs; /* [slots] */
    uint64_t preemptions;
} xm_paging;

/* The current step, as the trace tells it. */
typedef struct xm_noted_step {
    double begin;
    uint32_t tokens;
    uint32_t decode; /* of sequences that lack no other token */
    uint32_t rows;
    uint32_t copies;
    uint32_t ahead;
    uint32_t reserved;
} xm_noted_step;

struct xm_sched {
    xm_sched_limits limits;
    xm_paging paging;
    xm_pool pool;
    xm_queue waiting;
    xm_queue branching;
    xm_slot *slots;   /* [slots] */
    int32_t *rows;    /* [slots, row bound] tokens of a row that is computed
                       * from its beginning */
    uint32_t *unused; /* stack of free slots */
    uint32_t *busy;   /* slots with tokens to compute, oldest first */
    xm_drawn *drawn;  /* [slots] slots that are drawn from in this step */
    xm_score *scores; /* [step_tokens] */
    xm_ahead *ahead;  /* [slots] */
    uint32_t *seen;   /* [vocab] 0 between draws */
    xm_slot_copy *copies;
    xm_sample *first_out; /* finished samples that wait to be polled */
    xm_sample *last_out;
    xm_request *polled;   /* the last poll returned pointers into its memory */
    xray_span *out_spans; /* [out_span_cap] those that the last poll returned */
    uint64_t outstanding; /* samples that have not been given to their end */
    uint64_t version;
    uint64_t prompt_tokens;
    uint64_t generation_tokens;
    uint64_t saved_tokens;
    uint64_t recomputed_tokens;
    uint64_t draft_tokens;
    uint64_t accepted_tokens; /* drafts that were right */
    uint64_t steps;
    uint32_t unused_count;
    uint32_t busy_count;
    uint32_t drawn_count;
    uint32_t live; /* number of requests with samples that are not done */
    uint32_t out_span_cap;
    uint32_t paused; /* XRAY_PAUSE_*; 0: no */
    /* The next draw to issue, and the next to be answered: its entry in
     * `drawn`, and its sample or the number of drafts before it. */
    uint32_t issue_at, issue_sample;
    uint32_t answer_at, answer_sample;
    uint32_t issued; /* draws or scores that are issued and not yet answered */
    uint32_t issued_logits; /* 1: the draws need logits */
    uint32_t score_count;
    uint32_t score_at; /* the next one to issue */
    uint32_t ahead_count;
    uint32_t followed; /* 1: the step was made ahead, and result i of its draws
                        * is that of row drawn[i].entry */
    xm_noted_step noted;
};

void xm_queue_push_first(xm_queue *queue, xm_request *request);
void xm_queue_push(xm_queue *queue, xm_request *request);
void xm_queue_remove(xm_queue *queue, xm_request *request);

void xm_ready_push_first(xm_request *request, xm_sample *sample);
void xm_ready_push(xm_request *request, xm_sample *sample);
xm_sample *xm_ready_pop(xm_request *request);
void xm_ready_remove(xm_request *request, xm_sample *sample);

xray_status xm_paging_open(xm_sched *sched, xr_err *err);
void xm_paging_close(xm_paging *paging);
/* Makes room for the next tokens of what runs, from the oldest on; where blocks
 * are lacking, the youngest is preempted: it gives its blocks back and is
 * computed again later. Returns 1 if that was necessary. */
int xm_paging_make_room(xm_sched *sched);
/* Gives a slot to the first of what waits, and adds to `step` the block that
 * has to be copied for it. Returns 0 if nothing waits or it has to wait on. */
int xm_paging_start(xm_sched *sched, xm_sched_step *step, uint32_t *out_slot);
/* Returns 1 if there is a block for the token after the next one. */
int xm_paging_grow(xm_sched *sched, uint32_t slot);
/* Returns how many of `drafts` further tokens have space in a slot's blocks, or
 * in blocks that nobody needs, which it gets. */
uint32_t xm_paging_lend(xm_sched *sched, uint32_t slot, uint32_t drafts);
/* Takes the blocks from everything that has some. */
void xm_paging_forget(xm_sched *sched);
/* Lets a sample, or (NULL) a prompt, wait until it can be computed again. */
void xm_paging_requeue(xm_sched *sched, xm_request *request, xm_sample *sample);

/* Gives a slot tokens to compute. */
void xm_slot_feed(xm_sched *sched, uint32_t slot, const int32_t *tokens,
                  uint32_t count, uint32_t position);
/* Copies the tokens of a prompt and of its sample (or NULL) to the slot's row,
 * which it returns. */
const int32_t *xm_slot_fill_row(xm_sched *sched, uint32_t slot,
                                const xm_request *r, const xm_sample *sample);
/* Starts a sample in a slot that has the keys and values of its first
 * `computed` tokens: all of its prompt, or none. */
void xm_slot_start(xm_sched *sched, uint32_t slot, xm_sample *sample,
                   uint32_t computed);
/* Ends the sequence in a slot: the request's next sample takes the slot, or it
 * becomes free. */
void xm_slot_vacate(xm_sched *sched, uint32_t slot);
/* Returns the sample of draw (at, number) and moves on to the next draw.
 * *out_then is the sample as it is if the drafts before the draw are right. */
xm_sample *xm_sched_next_draw(const xm_sched *sched, uint32_t *at,
                              uint32_t *number, xm_sample *out_then);
/* Removes slots from `busy` that have nothing to compute. */
void xm_sched_compact(xm_sched *sched);
/* Queues a sample for poll, which gives its new tokens. */
void xm_sample_offer(xm_sched *sched, xm_sample *sample);
/* Queues the result of a finished sample for poll. */
void xm_sample_publish(xm_sched *sched, xm_sample *sample, uint32_t finish);
/* Ends a sample for good. */
void xm_sample_close(xm_sched *sched, xm_sample *sample);
/* Notes that a sampled token, the last of the row, came from the current
 * weights. */
void xm_sample_note_version(const xm_sched *sched, xm_sample *sample);
/* Makes room for the spans of a sample in `out_spans`, which the last poll
 * returned. */
xray_status xm_sched_reserve_out_spans(xm_sched *sched, uint32_t count);
/* Copies the spans of the last `count` tokens of a sample to `out_spans` and
 * returns their number. */
uint32_t xm_sample_copy_spans(xm_sched *sched, const xm_sample *sample,
                              uint32_t count);
/* Returns a request's memory to the pool once no result and no pointer of the
 * caller needs it. */
void xm_request_reclaim(xm_sched *sched, xm_request *request);

/* ---- sched_draft.c ------------------------------------------------------- */

/* 1 if a draft of the sample is right so often that to compute it takes less
 * time than it saves. It depends on nothing but tokens. */
int xm_draft_pays(const xm_sched *sched, const xm_sample *sample);
/* Appends at most `most` drafts to the tokens of a running sample, without
 * counting them as tokens, and returns their number. */
uint32_t xm_draft_tokens(const xm_sched *sched, xm_sample *sample,
                         uint32_t most);
/* Before a drawn token is appended: notes whether a draft was right, which may
 * be one that was not computed. Returns 1 if it was computed and right. */
int xm_draft_check(xm_sched *sched, const xm_drawn *drawn, xm_sample *sample,
                   int32_t token);

/* ---- sched_trace.c: nothing happens without a trace ---------------------- */

/* A step begins with `decode` tokens that go before prompts, and ends. */
void xm_note_step(xm_sched *sched, const xm_sched_step *step, uint32_t decode);
void xm_note_end(const xm_sched *sched);
void xm_note_version(const xm_sched *sched);
/* A prompt, or a sample of the request, goes on with `tokens` to compute; the
 * first time it begins. */
void xm_note_start(const xm_sched *sched, xm_request *r, xm_sample *sample,
                   uint32_t tokens);
/* Something that is about `tokens` tokens happens to it. */
void xm_note(const xm_sched *sched, const char *what, const xm_request *r,
             const xm_sample *sample, uint32_t tokens);
/* It ends; `finish` NONE: the prompt is computed. */
void xm_note_finish(const xm_sched *sched, xm_request *r, xm_sample *sample,
                    uint32_t finish);

#endif
