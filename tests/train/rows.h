/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches for tests, divided into micro-batches, and a loss to run them
 * through.
 */
#ifndef TEST_TRAIN_ROWS_H
#define TEST_TRAIN_ROWS_H

#include <xray/train.h>

#define ROWS_MAX 64
#define ROWS_TOKENS_MAX 4096
#define ROWS_CUTS_MAX 16

/* Rows of tokens with a mask; micro-batches are views of consecutive rows. */
typedef struct rows {
    xray_batch batch;
    int32_t ids[ROWS_TOKENS_MAX];
    float mask[ROWS_TOKENS_MAX];
    int32_t row_start[ROWS_MAX + 1];
    float temperature[ROWS_MAX];
    xray_batch parts[ROWS_CUTS_MAX];
    uint32_t row_index[ROWS_MAX];
    int32_t part_start[ROWS_CUTS_MAX][ROWS_MAX + 1];
    int32_t prompt_len[ROWS_MAX]; /* for those who share them */
    int32_t group[ROWS_MAX];
    const xray_batch *pointers[ROWS_CUTS_MAX];
} rows;

/* Draws `count` rows of 1 to `longest` ids below `vocab` from `seed`. The first
 * third of a row is its prompt; every seventh row has no token in the loss. */
void rows_draw(rows *r, uint32_t count, uint32_t longest, uint32_t vocab,
               uint64_t seed);
/* Makes `count` rows of `length` ids, all of them in the loss. */
void rows_full(rows *r, uint32_t count, uint32_t length, uint32_t vocab);
/* Makes one row, all of it in the loss. */
void rows_one(rows *r, const int32_t *ids, uint32_t count);
/* Divides the rows into `parts` micro-batches of complete rows; with more parts
 * than rows some are empty. */
void rows_cut(rows *r, uint32_t parts);

/* Takes the rows [first, last) of `from`. */
void rows_take(rows *to, const rows *from, uint32_t first, uint32_t last);
/* How the segments of a mini-batch are dealt to ranks (XRAY_SEGMENTS_*). */
typedef struct rows_deal {
    uint32_t segments;
    uint32_t ranks;
    uint32_t rank;
    uint32_t in_turn; /* 1: rank r has segments r, r + ranks, ... */
    uint32_t cuts;    /* micro-batches of a segment; none of an empty one */
    uint32_t hollow;  /* 1: one without rows, of segment 0, after each */
} rows_deal;
/* Takes the rows of a rank's segments, cuts them, and returns the number of
 * micro-batches. */
uint32_t rows_take_segments(rows *to, const rows *from, const rows_deal *deal);

/* Gives every second row the beginning of the row before it as its prompt,
 * which has no token in the loss. With `tell`, batches say that it is shared.
 * Comes before rows_cut. */
void rows_begin_alike(rows *r, int tell);
/* The tokens that a pass over the batch reads: each row up to its last token in
 * the loss, without that one, and a prompt that is shared once, without its
 * last token. *out_items: the tokens in the loss. */
uint64_t rows_inputs(const xray_batch *batch, uint64_t *out_items);
/* Those of one rank of `ranks` that divide the tokens of rows, as
 * docs/megatron.md says: of 2 ranks' runs of a row it has its own from either
 * end, and tokens that are left over go round the ranks from row to row. Rows
 * share no prompts then. */
uint64_t rows_part(const xray_batch *batch, uint32_t ranks, uint32_t rank,
                   uint64_t *out_items);
/* The tokens in the loss of the rank that has most of them. */
uint64_t rows_most_items(const xray_batch *batch, uint32_t ranks);

/* L = sum over masked tokens of (-logp - entropy_weight H + value_weight (v -
 * 1)^2 / 2) / tokens; `critic` leaves out the first two. */
typedef struct rows_loss {
    double entropy_weight;
    double value_weight;
    double tokens;
    double nll; /* out: mean of -logp; of a critic, of values */
    uint32_t calls;
    uint32_t next_row;    /* row at which the next micro-batch must start */
    int32_t poison_token; /* token of the first micro-batch whose dlogp is NaN;
                           * -1: none */
    int32_t critic;
} rows_loss;
xray_loss rows_loss_of(rows_loss *ctx, const rows *r);

#endif
