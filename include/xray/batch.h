/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/batch.h - rows of tokens and what is known of each token.
 *
 * Rows are packed end to end without padding: row r is the tokens
 * [row_start[r], row_start[r + 1]). Entry t of every per-token array concerns
 * token t given the tokens before it in its row; value t is V of the state
 * before token t. Entries of a row's first token are 0: nothing precedes it.
 * Arrays are host memory, owned by the caller and valid for the call. An array
 * that is not known yet is NULL.
 */
#ifndef XRAY_BATCH_H
#define XRAY_BATCH_H

#include <xray/abi.h>

/* Tokens [first, last) of `row` were sampled from weights `version`. */
typedef struct xray_span {
    uint32_t row;
    uint32_t first; /* counted from the row's start */
    uint32_t last;
    uint32_t reserved;
    uint64_t version;
} xray_span;

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
    const float *loss_mask;    /* [tokens] 1: a token the policy chose and is
                                * trained on; 0: prompt or observation */
    const uint64_t *row_id;    /* [rows] unique in the run; rewards echo it */
    const uint64_t *prompt_id; /* [rows] the data row the prompt came from */
    const int32_t *group;     /* [rows] rows of one group share a prompt; groups
                               * are numbered from 0 and contiguous */
    const float *temperature; /* [rows] sampling temperature; NULL: all 1. A
                               * row sampled greedily has 1. */

    float *rollout_logp; /* [tokens] the engine's, at the temperature */
    float *old_logp;     /* [tokens] the policy's before this step's updates */
    float *ref_logp;     /* [tokens] the reference policy's */
    float *value;        /* [tokens] */
    float *reward;       /* [tokens] */
    float *advantage;    /* [tokens] */
    float *returns;      /* [tokens] */

    float *baseline; /* [rows] score of a greedy sample of the row's prompt;
                      * NULL without XRAY_NEED_GREEDY */

    /* For `prepare` of an algorithm alone, else NULL and 0. */
    const float *scores;       /* [rows, score_count] what each reward gave the
                                * row, before its weight */
    const float *score_weight; /* [score_count] */
    uint32_t score_count;      /* rewards, in the order of [run] reward */
    /* 1: of rows of one group that follow one another, what their prompt has in
     * common may be computed once; log-probs keep their bits. In gradients it
     * is said only where no group of the mini-batch lies in two micro-batches,
     * so that their bits do not depend on how it is cut. */
    uint32_t share_prompts;
} xray_batch;

#endif
