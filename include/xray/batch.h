/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/batch.h - rows of tokens, and what is known about each token.
 *
 * Rows are packed end to end without padding: row r consists of the tokens
 * [row_start[r], row_start[r + 1]). Two rows of three and two tokens:
 *
 *     ids        p p a | p b        row_start  0 3 5
 *     loss_mask  0 0 1 | 0 1        prompt_len 2 1
 *
 * Entry t of every per-token array is about token t, given the tokens before
 * it in its row; value t is the value of the state before token t. The entry
 * of a row's first token is 0, because no token precedes it. All arrays are
 * host memory that the caller owns and that is valid during the call. An array
 * whose contents are not known yet is NULL.
 */
#ifndef XRAY_BATCH_H
#define XRAY_BATCH_H

#include <xray/abi.h>

/* Tokens [first, last) of `row` were sampled from the weights `version`. In a
 * batch with spans every row has at least one, which may be empty, and they are
 * in the order of rows and tokens. Tokens of a response that are in none of
 * them are observations, such as a tool's answer. */
typedef struct xray_span {
    uint32_t row;   /* minus spans[0].row: the row in a batch */
    uint32_t first; /* counted from the row's start */
    uint32_t last;
    uint32_t reserved;
    uint64_t version;
} xray_span;

/* The row_index of a row of padding (xray_plan.token_multiple). */
#define XRAY_NO_ROW 0xffffffffu

/* Rows of a step, a mini-batch or a micro-batch. */
typedef struct xray_batch {
    xray_header header;
    uint32_t rows;
    uint32_t tokens;
    uint32_t span_count;
    uint32_t span_stride; /* sizeof(xray_span) */
    const xray_span *spans;

    const int32_t *ids;        /* [tokens] */
    const int32_t *row_start;  /* [rows + 1], row_start[0] = 0 */
    const int32_t *prompt_len; /* [rows] tokens of the prompt */
    const float *loss_mask;    /* [tokens] 1: the policy chose the token and is
                                * trained on it; 0: prompt or observation */
    const uint64_t *row_id;    /* [rows] unique in the run; rewards echo it */
    const uint64_t *prompt_id; /* [rows] the data row that gave the prompt */
    const int32_t *group;     /* [rows] rows of one group share a prompt; groups
                               * are numbered from 0 and contiguous */
    const float *temperature; /* [rows] sampling temperature, 1 for a row that
                               * was sampled greedily; NULL: 1 for all rows */

    float *rollout_logp; /* [tokens] by the engine, at the row's temperature */
    float *old_logp;     /* [tokens] by the policy before this step's updates */
    float *ref_logp;     /* [tokens] by the reference policy */
    float *value;        /* [tokens] */
    float *reward;       /* [tokens] */
    float *advantage;    /* [tokens] */
    float *returns;      /* [tokens] */

    float *baseline; /* [rows] score of a greedy sample for the row's prompt;
                      * NULL without XRAY_NEED_GREEDY */

    /* Set only for an algorithm's `prepare`, else NULL and 0. */
    const float *scores;       /* [rows, score_count] the score by each reward,
                                * before it is multiplied by its weight */
    const float *score_weight; /* [score_count] */
    uint32_t score_count;      /* rewards, in the order of [run] reward */
    /* 1: the backend may compute the common prompt of consecutive rows of one
     * group once; log-probs have the same bits either way. For gradients it is
     * set only where no group of the mini-batch is split over two
     * micro-batches, so that their bits do not depend on the split. */
    uint32_t share_prompts;
    /* [rows] index of each row in the mini-batch, ascending, and XRAY_NO_ROW of
     * padding; NULL where there is none, as in a forward pass. */
    const uint32_t *row_index;
    /* The segment of the mini-batch that the rows are of, below `segments` of
     * xray_workload; 0 without segments. */
    uint32_t segment;
    uint32_t reserved;
} xray_batch;

#endif
