/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/head.h - operators of "xray.device/0" from hidden states to
 * log-probabilities and drawn tokens.
 */
#ifndef XRAY_HEAD_H
#define XRAY_HEAD_H

#include <xray/operators.h>

/* For item i: z = (x[i] . W^T) / temperature[i], logp = z[target] - lse(z) and
 * entropy = lse(z) - sum softmax(z) z, in nats. Logits are fp32. The device
 * computes them for a chunk of items at a time, or keeps all in `logits` for
 * lm_head_grad, which overwrites them; it may also compute them again. With
 * `partial`, W holds only the vocabulary [vocab_first, vocab_first + rows), and
 * four numbers for lm_head_join are given instead: m = max z, sum exp(z - m),
 * sum exp(z - m) (z - m), and z[target], which is 0 if the target is
 * elsewhere.
 *
 * With `segment`, the sums over the vocabulary, and the input gradient of
 * lm_head_grad, are cut into segments of so many ids (the last may have fewer),
 * of which there are at most XRAY_SEGMENTS. The sums of a slice have the bits
 * of the entire vocabulary if the slice begins with a segment and `top` gives
 * the maximum over the entire vocabulary: one call finds the slice's own, and a
 * second one with `kept` reads the logits that the first one kept. */
typedef struct xray_lm_head_logp {
    xray_header header;
    xray_extent items;
    const xray_weight *weight; /* [vocab, dim] */
    const void *x;             /* [dev] [items, dim] */
    const int32_t *targets;    /* [dev] [items] */
    const float *temperature;  /* [dev] [items] or NULL: all 1 */
    float *logp;               /* [dev] [items] */
    float *entropy;            /* [dev] [items] or NULL */
    float *lse;                /* [dev] [items] kept for backward, or NULL */
    float *partial;            /* [dev] [items, 4] or NULL */
    uint64_t vocab_first;
    float softcap;    /* 0: none */
    uint32_t kept;    /* 1: `logits` are those of an earlier call, and x is not
                       * read */
    float *logits;    /* [dev] [items, vocab to a multiple of 16] or NULL */
    uint64_t segment; /* ids of a segment; 0: all, one segment */
    const float *top; /* [dev] [items] what m is, at least max z; NULL: max z */
    uint32_t x_dtype; /* as in <xray/operators.h> */
    uint32_t reserved;
} xray_lm_head_logp;

/* The gradients of lm_head_logp: dz_j = (dlogp (1[j = target] - p_j) -
 * dentropy p_j (log p_j + H)) / temperature; dx = dz . W; dweight += dz^T . x,
 * in the order of the items. */
typedef struct xray_lm_head_grad {
    xray_header header;
    const xray_lm_head_logp
        *forward;          /* the call, with lse and entropy filled */
    const float *dlogp;    /* [dev] [items] */
    const float *dentropy; /* [dev] [items] or NULL: all 0 */
    float *dx;             /* [dev] [items, dim], overwritten */
    float *dweight;        /* [dev] [vocab, dim] */
} xray_lm_head_grad;

/* One random draw of a token. The random number of vocabulary entry `token` is
 * word token % 4 of Philox4x32-10 with the key `key` and the counter
 * (token / 4, position, sample, 0). */
typedef struct xray_draw {
    uint64_t key; /* of seed, step and prompt id: xray_philox_key,
                   * <xray/numerics.h> */
    uint32_t sample;
    uint32_t position; /* of the drawn token, counted from the row's start */
    float temperature; /* 0: the most likely token, of equals the lowest id */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    int32_t top_k;     /* 0: off */
} xray_draw;

/* Samples by the Gumbel-max method: token = argmax over the support of z + g,
 * with z = logits / temperature and g = -log(-log u). min_p, then top_k, then
 * top_p narrow the support; tokens as likely as the last one kept are kept,
 * too. Both log-probs are over the entire vocabulary: raw_logp at temperature
 * 1, logp at the draw's temperature, or equal to raw_logp if that is 0.
 *
 * The logits are x . weight^T or, without a weight, given as matmul makes them,
 * so that slices of the vocabulary may be gathered first. The same logits give
 * the same bits either way. With given logits the token may be drawn from other
 * ones, `changed`, while the log-probs remain those of `logits`. An item that
 * has nothing but minus infinity in `changed` gets the most likely token of
 * `logits`, of equals the lowest id. */
typedef struct xray_sample {
    xray_header header;
    xray_extent items;
    const xray_weight *weight; /* [vocab, dim], or NULL */
    const void *x;             /* [dev] [items, dim], with a weight */
    const xray_draw *draws;    /* [dev] [items] */
    int32_t *token;            /* [dev] [items] */
    float *raw_logp;           /* [dev] [items] */
    float *logp;               /* [dev] [items] */
    /* Without a weight; with one all of them are NULL or 0. */
    const float *logits;    /* [dev] [items, vocab] without the softcap, item i
                             * at i * logits_stride */
    const float *changed;   /* [dev] likewise, with the softcap; or NULL */
    uint64_t logits_stride; /* floats, at least the vocabulary */
    uint64_t vocab;         /* at most 2^31 - 1 */
    float softcap;          /* 0: none */
    uint32_t draw_stride;   /* sizeof(xray_draw) */
    uint64_t segment;       /* as in xray_lm_head_logp */
    uint32_t x_dtype;
    uint32_t reserved;
} xray_sample;

/* Goes on from the tokens that were drawn, so that the next step of sequences
 * needs no word of the host. A sequence whose `stop` is 0 takes its token:
 * ids = token, and both positions grow by 1. Its `stop` becomes 1 if the token
 * is one of its stop ids, or if its row has `limit` tokens with it. A sequence
 * whose `stop` is 1 stays as it is, so that computing it once more changes
 * nothing. */
typedef struct xray_advance {
    xray_header header;
    xray_extent items;
    const int32_t *token; /* [dev] [items] as `sample` gives them */
    int32_t *ids;         /* [dev] [items] tokens that a step computes */
    int32_t *positions;   /* [dev] [items] of these tokens */
    xray_draw *draws;     /* [dev] [items] of the tokens after them */
    int32_t *stop;        /* [dev] [items] 0 or 1 */
    const int32_t *limit; /* [dev] [items] most tokens of the row */
    /* Sequence i has the stop ids stop_start[i] .. stop_start[i + 1] - 1. */
    const int32_t *stop_start; /* [dev] [items + 1], or NULL: no stop ids */
    const int32_t *stop_ids;   /* [dev] */
    uint32_t draw_stride;      /* sizeof(xray_draw) */
    uint32_t reserved;
} xray_advance;

/* Changes the logit z of one id: with a penalty p other than 0 and 1 it becomes
 * z / p if it is above 0, and z * p otherwise; then `add` is added, which may
 * be minus infinity. */
typedef struct xray_logit_edit {
    int32_t id;
    float penalty;
    float add;
} xray_logit_edit;

/* Changes logits before a draw: changed = logits with the softcap, then with
 * the edits of the item in their order, then minus infinity for ids that are
 * not allowed. Ids outside of the vocabulary are ignored. */
typedef struct xray_edit_logits {
    xray_header header;
    xray_extent items;
    const float *logits; /* [dev] [items, vocab] item i at i * stride */
    float *changed;      /* [dev] likewise; may be `logits` */
    uint64_t stride;     /* floats, at least the vocabulary */
    uint64_t vocab;      /* at most 2^31 - 1 */
    /* Item i has the edits edit_start[i] .. edit_start[i + 1] - 1. */
    const int32_t *edit_start;    /* [dev] [items + 1], or NULL: no edits */
    const xray_logit_edit *edits; /* [dev] */
    /* Sets of (vocab + 31) / 32 words: bit id % 32 of word id / 32 is 1 if the
     * id is allowed. */
    const uint32_t *allowed;    /* [dev] or NULL: every id */
    const int32_t *allowed_set; /* [dev] [items] number of the item's set; below
                                 * 0: every id */
    float softcap;              /* 0: none */
    uint32_t edit_stride;       /* sizeof(xray_logit_edit), with edits */
} xray_edit_logits;

/* Log-probs over the entire vocabulary, at temperature 1, of `count` ids of
 * each item: of the most likely ones in descending order, of equals the lowest
 * id first, or of given ones. They have the bits of lm_head_logp. */
typedef struct xray_pick_logp {
    xray_header header;
    xray_extent items;
    const float *logits; /* [dev] [items, vocab] without the softcap, item i at
                          * i * stride */
    uint64_t stride;     /* floats, at least the vocabulary */
    uint64_t vocab;      /* at most 2^31 - 1 */
    int32_t *ids; /* [dev] [items, count] out; in if `given`, and an id outside
                   * of the vocabulary has the log-prob NaN */
    float *logp;  /* [dev] [items, count] */
    uint32_t count; /* at least 1; unless `given` at most the vocabulary */
    uint32_t given; /* 1: `ids` are given */
    float softcap;  /* 0: none */
    uint32_t reserved;
    uint64_t segment; /* as in xray_lm_head_logp */
} xray_pick_logp;

/* Joins the partial results of lm_head_logp over slices of the vocabulary. m is
 * the largest maximum; the sums, scaled to it, are added as a balanced tree
 * over the slices (xray_comm_left, <xray/comm.h>). One slice gives the bits
 * that lm_head_logp gives without `partial`. */
typedef struct xray_lm_head_join {
    xray_header header;
    xray_extent items;
    const float *partials; /* [dev] [slices, items, 4], slice s at s *
                            * slice_stride */
    uint64_t slice_stride; /* floats, at least 4 * items */
    float *logp;           /* [dev] [items] */
    float *entropy;        /* [dev] [items] or NULL */
    float *lse;            /* [dev] [items] or NULL */
    uint32_t slices;       /* at least 1 */
    uint32_t reserved;
} xray_lm_head_join;

#endif
