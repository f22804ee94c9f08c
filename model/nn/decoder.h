/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes a decoder with the device's operators: one forward pass that trainer
 * and engine share, and its hand-written backward pass. Rows are packed without
 * padding.
 *
 * Block: x += o(attn(rope(norm_qk(qkv(norm1 x))))); x += down(glu(norm2 x)).
 * The products o and down add to x as they store their outputs. Where an
 * architecture has a norm after them, the branch is computed separately and
 * then added. A configuration may also ask for attention windows, soft caps,
 * scaled scores and embeddings, learned positions, LayerNorm, and an MLP
 * without a gate.
 * Pointers marked [dev] are device memory.
 */
#ifndef XM_DECODER_H
#define XM_DECODER_H

#include <xray/setup.h>

#include "core/base/services.h"
#include "model/nn/weights.h"

typedef struct xm_decoder xm_decoder;

/* The config of a slice (xm_config_slice) describes what a tensor-parallel rank
 * computes: its heads, its part of the MLP and of the vocabulary. All ranks
 * make the same calls with the same tokens, and their watches join what each of
 * them has, so hidden states, log-probabilities and gradients along the stream
 * are those of the model, bit by bit; of more ranks than KV heads, within
 * roundings. Gradients belong to the slice's parameters. Those that all ranks
 * have are equal on all of them, but of the norms of q and k heads each rank
 * has the part of its heads; the sum over the ranks is the model's. Of a KV
 * head that several ranks have, each has the part of its heads of q
 * (xm_join_kv_grads).
 *
 * Sequence parallelism (XM_SPACE_SEQUENCE) divides the residual stream too:
 * each rank holds an equal run of a pass's tokens, the last ones fewer, between
 * the products, and norms and adds only those. The bits are the same.
 *
 * Context parallelism (context_ranks of the configuration) divides the tokens
 * of each row: a rank computes its own tokens throughout, and attention gathers
 * the keys and values of whole rows in their order. So what a token's forward
 * pass gives has the same bits. The gradients of parameters are the part of the
 * rank's tokens; the sum over the ranks is the model's, within roundings.
 *
 * A stage (xm_config_stage) reads the hidden states of the stage before it, and
 * gives its own to the next one; gradients go the other way. The embedding of a
 * tied model has a part of its gradient in the first stage and one in the last,
 * whose sum is the model's. */

/* Binds a published table of weights by HF names; the table outlives the
 * decoder. q, k and v (and gate and up) must share one handle, as xm_weights
 * lays them out. A table in which they do not is refused; the caller can copy
 * it into weights of its own. Rotary tables are made for `positions` positions;
 * learned positions end at max_positions if that is less. Longer rows are
 * refused. */
xray_status xm_decoder_create(const xm_config *config,
                              const xray_weights *weights, uint64_t positions,
                              const char *owner, xr_err *err, xm_decoder **out);
void xm_decoder_destroy(xm_decoder *decoder); /* accepts NULL */
/* Bytes of the rotary tables on the device (tag WORKSPACE). There is one table,
 * two where sliding layers have other frequencies, and none with learned
 * positions. Pure. */
uint64_t xm_decoder_bytes(const xm_config *config, uint64_t positions);
/* Fills load->device_work, if a plan is asked for it, with passes over such a
 * decoder, as XRAY_PASS_*, of at most `tokens` tokens in rows of `row_tokens`.
 * Pure. */
typedef struct xm_passes {
    uint64_t tokens;
    uint64_t row_tokens;
    uint32_t passes;
    uint32_t reserved;
} xm_passes;
void xm_tell_work(const xm_config *config, const xm_passes *passes,
                  const xray_workload *load);
/* Callbacks that a pass over complete rows makes when it reaches a bucket. They
 * serve owners of weights or gradients that are not in memory all the time. A
 * pass without rows makes the same calls. Any callback may be NULL. */
#define XM_JOIN_OUTPUTS 1u     /* sum: of the embedding, o and down */
#define XM_JOIN_INPUT_GRADS 2u /* sum: of qkv, gate and up, and lm_head */
#define XM_JOIN_LOGITS 3u      /* sum: over the vocabulary */
#define XM_JOIN_TOP 4u         /* maximum: over the vocabulary */
/* How ranks that divide a pass's tokens exchange rows: */
#define XM_PARTS_GATHER 1u /* `out` has the `in` of every rank */
#define XM_PARTS_SUM 2u    /* `out` is this rank's part of the sum of `in` */
#define XM_PARTS_CONTINUE                              \
    3u /* `out` is what the rank before handed on; the \
        * first rank keeps it as it is */
#define XM_PARTS_HAND_ON                                \
    4u /* `out` goes to the next rank; that of the last \
        * rank replaces it on all of them */
typedef struct xm_parts {
    uint32_t what;   /* XM_PARTS_* */
    uint32_t dtype;  /* of what is gathered: XRAY_BF16; 0: fp32 */
    const void *in;  /* [dev] [tokens, dim], summed: [ranks, tokens, dim] */
    void *out;       /* [dev] [tokens, dim], gathered: [ranks, tokens, dim] */
    uint64_t tokens; /* of a rank, padding included */
    uint64_t dim;
} xm_parts;
typedef struct xm_watch {
    void *ctx;
    /* The weights of a bucket must be in memory from this call until another
     * block's bucket is needed. Those outside the blocks must stay until the
     * end of the pass, and those of lm_head and value head until the end of the
     * backward pass. */
    xray_status (*need)(void *ctx, uint32_t bucket, int backward, xr_err *err);
    /* The first gradients of this pass are about to be added to a bucket. */
    xray_status (*begin)(void *ctx, uint32_t bucket, xr_err *err);
    /* The last gradients of this pass were added to a bucket. */
    xray_status (*done)(void *ctx, uint32_t bucket, xr_err *err);
    /* Replaces rows [dev] [tokens, dim] by what the tensor-parallel ranks have
     * together, the sum in the order of the tree (<xray/comm.h>) or the
     * maximum: XM_JOIN_*. Only of a slice, and then not NULL; xm_join_rows is
     * one over a group of xray.comm. */
    xray_status (*join)(void *ctx, uint32_t what, float *rows, uint64_t tokens,
                        uint64_t dim, xr_err *err);
    /* Exchanges rows over the same ranks, for spaces with XM_SPACE_SEQUENCE;
     * xm_join_parts is one. `in` or `out` may be this rank's part of the other.
     */
    xray_status (*parts)(void *ctx, const xm_parts *call, xr_err *err);
    /* The same over the ranks that divide the tokens of rows, which gather and
     * sum. Not NULL where there are several. */
    xray_status (*context)(void *ctx, const xm_parts *call, xr_err *err);
    /* Asked at every bucket, also by a pass with a cache: a pass that shall end
     * fails with XRAY_E_CANCELED. NULL: no pass ends early. */
    const xray_call_service *calls;
} xm_watch;
void xm_decoder_watch(xm_decoder *decoder, const xm_watch *watch);
const xm_config *xm_decoder_config(const xm_decoder *decoder);
/* Handle of lm_head [vocab, hidden]; the embedding's when tied. */
const xray_weight *xm_decoder_lm_head(const xm_decoder *decoder);

/* ---- complete rows: training, scoring ----------------------------------- */

/* How the ranks of a context divide packed rows. Each row is cut into 2 R runs
 * for R ranks, of which rank r has number r and number 2 R - 1 - r, so that all
 * have as many keys to attend to. A rank's tokens are its first runs of all
 * rows and then its second ones. It has a R-th of all tokens; where they cannot
 * be divided equally, the first ranks have one more. */
typedef struct xm_context {
    uint64_t tokens;      /* of all ranks; 0: rows are not divided */
    const int32_t *order; /* [dev] [tokens] token t of the whole rows is token
                           * order[t] of all ranks, each of which has as many
                           * as the first */
    /* The rank's runs: run k of row r has its tokens start[k][r] to
     * start[k][r + 1] - 1, from position first[k][r] of the row on. */
    const int32_t *start[2]; /* [dev] [rows + 1] */
    const int32_t *first[2]; /* [dev] [rows] */
} xm_context;
#define XM_CONTEXT_RANKS 8u /* the most */
/* The most tokens that one of the ranks has. */
static inline uint64_t xm_context_each(uint64_t tokens, uint32_t ranks)
{
    return ranks > 1 ? (tokens + ranks - 1) / ranks : tokens;
}
/* Divides rows, given as in xm_pack, among two ranks or more, and fills the
 * arrays of a context, which the caller owns, for one of them. Returns the
 * number of its tokens. Pure. */
typedef struct xm_context_arrays {
    int32_t *order;
    int32_t *start[2];
    int32_t *first[2];
} xm_context_arrays;
uint32_t xm_context_divide(const int32_t *row_start, uint32_t rows,
                           uint32_t ranks, uint32_t rank,
                           const xm_context_arrays *out);

/* Packed rows. On a device with host memory the host may access the arrays too.
 */
typedef struct xm_pack {
    uint32_t rows;
    uint32_t tokens;          /* of this rank */
    uint64_t row_bound;       /* no row is longer, its parent included */
    const int32_t *ids;       /* [dev] [tokens], of the first stage */
    const int32_t *positions; /* [dev] [tokens] from 0 in each row, or
                               * continuing its parent's */
    const int32_t *row_start; /* [dev] [rows + 1], of the whole rows */
    const int32_t *parent;    /* [dev] [rows] the row that a row continues, as
                               * in xray_attention; NULL: no row has a parent */
    xm_context context;       /* no row has a parent then */
    const void *in; /* [dev] [tokens, hidden] of the other stages: what the
                     * stage before them gave */
} xm_pack;

#define XM_SPACE_TRAIN 1u     /* keeps what the backward pass needs */
#define XM_SPACE_RECOMPUTE 2u /* keeps block inputs, recomputes the rest */
#define XM_SPACE_LOGITS 4u    /* keeps the logits for the gradient of lm_head */
#define XM_SPACE_INPUTS                               \
    8u /* keeps the inputs of products too, which the \
        * backward pass else computes again; not with \
        * RECOMPUTE */
#define XM_SPACE_SEQUENCE                                \
    16u /* of a slice: the ranks divide the tokens along \
         * the residual stream */

/* Activations and scratch for up to `tokens` tokens in `rows` rows of at most
 * `row_tokens`, of all ranks that divide them, laid out once (tag ACTIVATIONS).
 */
typedef struct xm_space xm_space;
xray_status xm_space_create(const xm_decoder *decoder, uint64_t tokens,
                            uint64_t rows, uint64_t row_tokens, uint32_t flags,
                            const char *owner, xr_err *err, xm_space **out);
/* Creates another such space, which has the scratch of `first` too: each pass
 * of one must have ended before the other begins one, and `first` lives longer.
 */
xray_status xm_space_create_beside(const xm_decoder *decoder,
                                   const xm_space *first, const char *owner,
                                   xr_err *err, xm_space **out);
void xm_space_destroy(xm_space *space); /* accepts NULL */
/* Makes the next passes those over a chunk of the decoder's layers
 * (xm_config_chunks), number 0 unless it was set. A chunk that does not begin
 * or end the model is like a stage that does not. */
void xm_space_set_chunk(xm_space *space, uint32_t chunk);
/* Declares that the activations of the last forward pass are not needed. */
void xm_space_forget(xm_space *space);
/* Evict its memory, including the activations of the last forward pass, and
 * restore it. XRAY_E_UNSUPPORTED where the device cannot. */
xray_status xm_space_evict(xm_space *space);
xray_status xm_space_restore(xm_space *space);
/* The bytes that such a space would occupy. Pure. */
uint64_t xm_space_bytes(const xm_config *config, uint64_t tokens, uint64_t rows,
                        uint64_t row_tokens, uint32_t flags);
/* The bytes of one beside another one. Pure. */
uint64_t xm_space_beside_bytes(const xm_config *config, uint64_t tokens,
                               uint64_t rows, uint64_t row_tokens,
                               uint32_t flags);

/* Runs the embedding, the blocks and the final norm. */
xray_status xm_forward(xm_decoder *decoder, xm_space *space,
                       const xm_pack *pack, xr_err *err);
/* [dev] [tokens, hidden]: the hidden states of the last forward, which the last
 * stage norms, in the model's type of activations. Before a forward pass it may
 * hold pack->in. */
void *xm_space_hidden(const xm_space *space);
/* [dev] [tokens, hidden]: the gradient of pack->in by the last backward pass,
 * as `dhidden` of the stage before. */
const float *xm_space_input_grad(const xm_space *space);
/* [dev] [tokens, hidden]: memory for `dhidden` of a backward pass, which
 * xm_outputs_backward fills in the last stage. Of TRAIN spaces. */
float *xm_space_hidden_grad(const xm_space *space);

/* Sums of gradients that are kept apart from the buckets until they are
 * finished, so that their order does not depend on how rows are cut into
 * micro-batches: with a tied lm_head those of embedding look-ups, laid out as
 * bucket 0, and then, of each trained block whose heads have norms, the
 * segments of the weights of q's norm, [segments, head_dim], and of k's; not
 * where the model has one segment. */
typedef struct xm_aside {
    float *data; /* [dev] [count], NULL if there are none */
    uint64_t count;
    uint64_t lookup;   /* floats of the look-ups */
    uint32_t segments; /* 0: norms are summed in the buckets */
    uint32_t head_dim;
} xm_aside;
/* Returns the sums that such a model keeps apart; `data` is left NULL. Pure. */
xm_aside xm_aside_of(const xm_config *config, const xm_layout *layout);

/* Gradient buckets, laid out like the weights, with the capacity that the
 * layout's ranks require (tag GRADS). Frozen and empty buckets are NULL, and
 * the backward pass stops above them. */
typedef struct xm_grads {
    const xray_device_ops *device;
    void *device_self;
    const xm_layout *layout;
    float **buckets;
    xm_aside aside;
    /* Set by the owner, of a slice: when they are finished, the part of q and k
     * norms that belongs to the slice's heads becomes the model's, as in
     * xm_watch. NULL: they stay this part. */
    xray_status (*join)(void *ctx, uint32_t what, float *rows, uint64_t tokens,
                        uint64_t dim, xr_err *err);
    void *join_ctx;
} xm_grads;
xray_status xm_grads_create(const xm_config *config, const xm_layout *layout,
                            const xray_device_ops *device, void *device_self,
                            const char *owner, xr_err *err, xm_grads **out);
void xm_grads_destroy(xm_grads *grads); /* accepts NULL */
xray_status xm_grads_zero(xm_grads *grads, xr_err *err);
/* Adds what is kept apart to all buckets, or to one, and clears it. */
xray_status xm_grads_finish(xm_grads *grads, xr_err *err);
xray_status xm_grads_finish_bucket(xm_grads *grads, uint32_t bucket,
                                   xr_err *err);
uint64_t xm_grads_bytes(const xm_config *config, const xm_layout *layout);

/* Adds the gradients of all parameters, given dL/d(hidden) [dev] [tokens,
 * hidden] for the forward pass just run in `space` (a TRAIN space). It
 * overwrites the kept activations, so each forward pass allows one backward
 * pass. */
xray_status xm_backward(xm_decoder *decoder, xm_space *space,
                        const xm_pack *pack, const float *dhidden,
                        xm_grads *grads, xr_err *err);

/* ---- log-probabilities and values --------------------------------------- */

/* Tokens for which outputs are wanted: item i reads the hidden state of packed
 * token index[i] and predicts the token after it, target[i]. */
typedef struct xm_items {
    uint32_t count;
    uint32_t value;           /* 1: values are wanted too */
    const int32_t *index;     /* [dev] [count], strictly ascending */
    const int32_t *target;    /* [dev] [count]; NULL: values only */
    const float *temperature; /* [dev] [count] or NULL */
} xm_items;

/* Outputs of the last forward pass, in [dev] arrays [count] of the space. */
typedef struct xm_token_outputs {
    const float *logp;    /* NULL without targets */
    const float *entropy; /* NULL without targets */
    const float *value;   /* NULL unless requested */
} xm_token_outputs;
xray_status xm_outputs(xm_decoder *decoder, xm_space *space,
                       const xm_items *items, xm_token_outputs *out,
                       xr_err *err);

/* Given dL/dlogp, dL/dH and dL/dv, [dev] [count] (NULL: all 0), adds the
 * gradients of lm_head and value head, and sets *out_dhidden to dL/d(hidden)
 * [dev] for xm_backward, in memory of the space. `items` are those of
 * xm_outputs. */
typedef struct xm_output_grads {
    const float *dlogp;
    const float *dentropy;
    const float *dvalue;
} xm_output_grads;
xray_status xm_outputs_backward(xm_decoder *decoder, xm_space *space,
                                const xm_items *items,
                                const xm_output_grads *output_grads,
                                xm_grads *grads, const float **out_dhidden,
                                xr_err *err);

/* ---- with a KV cache: the engine ---------------------------------------- */

/* New tokens of any mix of sequences: prompts, chunks of prompts, and single
 * tokens. Tokens of one sequence are in order of position. */
typedef struct xm_decode_batch {
    uint32_t tokens;
    uint32_t reserved;
    const int32_t *live;      /* [dev] number of tokens and of `last` alike, as
                               * in xray_extent; or NULL */
    uint64_t position_bound;  /* above every position */
    const int32_t *ids;       /* [dev] [tokens], of the first stage */
    const int32_t *seq;       /* [dev] [tokens] slots in the cache */
    const int32_t *positions; /* [dev] [tokens] */
    const xray_kv *kv;        /* [layers], the planes of each layer */
    const int32_t *last;      /* [dev] [last_count] tokens whose hidden state is
                               * wanted, ascending */
    uint32_t last_count;
    uint32_t reserved2;
    const void *in; /* as in xm_pack */
} xm_decode_batch;

/* Runs the tokens in a space made without XM_SPACE_TRAIN, and sets *out_hidden
 * to the final hidden states [dev] [last_count, hidden]. The bits equal those
 * of xm_forward over the complete row. */
xray_status xm_decode(xm_decoder *decoder, xm_space *space,
                      const xm_decode_batch *batch, const void **out_hidden,
                      xr_err *err);

#endif
