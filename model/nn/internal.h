/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares what the files of model/nn share: the bound decoder, the activation
 * space, and one pass over the decoder with short names for the device's
 * operators.
 */
#ifndef XM_NN_INTERNAL_H
#define XM_NN_INTERNAL_H

#include "model/hf/param_slots.h"
#include "model/nn/decoder.h"

/* Finds the complete tensor of a parameter in a published table. Its type is
 * fp32, or bf16 where the parameter is a matrix. Errors name the tensor. */
xray_status xm_tensor_find(const xray_weights *table, const xm_param *param,
                           xr_err *err, const xray_tensor **out);
/* Rounds a number of floats up to a multiple of 64 bytes. */
static inline uint64_t xm_round16(uint64_t count)
{
    return (count + 15u) & ~(uint64_t)15u;
}

/* ---- decoder ------------------------------------------------------------ */

/* One parameter as bound to a table of weights. A fused matrix has its handle
 * and data at its first slot; `offset` is the parameter's position in its
 * gradient bucket, in elements. */
typedef struct xm_bound_param {
    const float *data; /* bf16 for matrices where `dtype` says so; only
                        * embedding look-ups read those directly */
    const xray_weight *weight;
    uint64_t offset;
    uint32_t dtype;
    uint32_t reserved;
} xm_bound_param;

typedef struct xm_layer {
    xm_bound_param p[XM_BLOCK_SLOTS];
} xm_layer;

struct xm_decoder {
    xm_config config;
    const xray_device_ops *device;
    void *device_self;
    xm_layout *layout;
    xm_layer *layers;
    xm_bound_param outer[XM_SLOTS - XM_BLOCK_SLOTS];
    float *rope;       /* [positions, rotary / 2, 2]; NULL: no rotation */
    float *rope_local; /* of sliding layers: `rope`, or a second table */
    uint64_t positions;
    xm_watch watch;
};

static inline const xm_bound_param *xm_outer(const xm_decoder *decoder,
                                             uint32_t slot)
{
    return &decoder->outer[slot - XM_BLOCK_SLOTS];
}

/* Widths of a token's vectors. */
typedef struct xm_dims {
    uint64_t hidden;
    uint64_t q;   /* heads * head_dim */
    uint64_t kv;  /* kv_heads * head_dim */
    uint64_t qkv; /* q + 2 kv */
    uint64_t ffn;
    uint64_t up; /* gate and up, or up alone */
} xm_dims;
xm_dims xm_dims_of(const xm_config *config);

/* ---- activation space --------------------------------------------------- */

/* The activations of one block. Pointers to void are to elements of the model's
 * type of activations. A TRAIN space has one xm_block per layer; in
 * other spaces all layers share one. */
typedef struct xm_block {
    void *mid; /* [own, hidden] residual stream after attention; may be the
                * block's input */
    void *qkv; /* [tokens, q + 2 kv] */
    void *qk;  /* normed and rotated q and k; points into `qkv` unless they are
                * kept apart */
    uint64_t qk_stride;
    void *o;       /* [tokens, q] */
    float *lse;    /* [tokens, heads], TRAIN */
    float *stat1;  /* [own], of LayerNorm [own, 2]; TRAIN */
    float *stat2;  /* the same for the second norm */
    float *rstd_q; /* [tokens, heads], TRAIN with qk-norm */
    float *rstd_k; /* [tokens, kv_heads] */
    void *gate_up; /* [tokens, up], TRAIN */
    void *normed1; /* [padded, hidden] what the norms give, INPUTS */
    void *normed2;
    void *act; /* [tokens, ffn], INPUTS; otherwise the space's */
    /* Inputs and statistics of the post-norms in TRAIN spaces of models that
     * have them; otherwise NULL. */
    void *out1;   /* [own, hidden] */
    void *out2;   /* [own, hidden] */
    float *post1; /* [own] */
    float *post2; /* [own] */
} xm_block;

struct xm_space {
    const xray_device_ops *device;
    void *device_self;
    uint64_t tokens; /* most tokens of one call */
    uint64_t rows;
    uint64_t row_tokens;
    uint32_t flags;
    uint32_t layers; /* of a chunk */
    uint32_t chunk;  /* that the next or last pass is over */
    uint64_t live; /* tokens of the forward pass whose activations are held; 0:
                    * none */
    void *arena;
    const struct xm_space *beside; /* whose scratch it has too; NULL: its own */
    /* Arrays of [own] tokens have those that this rank holds of the residual
     * stream, and arrays of [padded] tokens as many for every rank; without
     * SEQUENCE both are all tokens. */
    void **x; /* [layers + 1] [own, hidden] the input of each block, then the
               * last block's output */
    xm_block *blocks; /* [layers] */
    void *h;          /* [padded, hidden] scratch: normed input of a product, a
                       * branch's output before the residual sum, or an fp32 gradient
                       * of either */
    void *act;        /* [tokens, ffn] scratch, or its fp32 gradient */
    void *hidden;     /* [padded, hidden] result */
    /* Where ranks divide the tokens of rows: keys and values of whole rows, in
     * their order and as the ranks have them, and the fp32 gradients of the
     * former, TRAIN. */
    void *kv;       /* [tokens of all ranks, 2 kv] */
    void *kv_parts; /* [ranks, tokens, 2 kv], or fp32 gradients */
    float *dkv;     /* [tokens of all ranks, 2 kv] */
    float *stat;    /* [own] of the final norm, TRAIN */
    void *items;    /* [tokens, hidden] gathered hidden states */
    float *logp;    /* [tokens] each */
    float *entropy;
    float *lse;
    float *value;
    float *logits; /* [tokens, vocab], LOGITS; or NULL */
    uint32_t kept; /* number of items to which `logits` belong */
    float *zeros;  /* [tokens], TRAIN, or a slice of a model whose outputs have
                    * biases */
    /* Of a slice only. */
    float *sum;     /* [padded, hidden] outputs to be joined, where activations
                     * are bf16; or NULL */
    float *top;     /* [tokens] largest logits */
    float *partial; /* [tokens, 4] as xray_lm_head_logp gives it */
    /* TRAIN only */
    float *dvalue;  /* [tokens] */
    float *dhidden; /* [tokens, hidden] */
    float *dx;      /* [own, hidden] gradient along the residual stream */
    const float *input_grad; /* [tokens, hidden] the last backward pass's `dx`
                              * before the first block, of all tokens */
    float *d_up; /* [tokens, up] where activations are bf16; NULL: gradients
                  * of gate and up overwrite them */
    float *d_o;  /* [tokens, q] */
    float *dqkv; /* [tokens, q + 2 kv] */
};

/* The tokens of a pack, of all ranks that divide them. */
static inline uint64_t xm_pack_tokens(const xm_pack *pack)
{
    return pack->context.tokens ? pack->context.tokens : pack->tokens;
}

/* ---- one pass over a decoder -------------------------------------------- */

/* A forward or backward pass in progress. Every operator is enqueued through
 * it. After the first error, the remaining calls do nothing and `status` keeps
 * that error. */
typedef struct xm_pass {
    const xm_decoder *decoder;
    const xray_device_ops *device;
    void *self;
    xm_space *space;
    const xm_pack *pack;          /* complete rows, or NULL */
    const xm_decode_batch *batch; /* tokens with a KV cache, or NULL */
    xm_grads *grads;
    xr_err *err;
    xray_extent tokens; /* that operators compute */
    uint64_t all;       /* with SEQUENCE: tokens of the pass, */
    uint64_t each; /* and tokens of a rank, padding included; otherwise 0 */
    uint32_t layer;
    xray_status status;
} xm_pass;

/* The chunk of a pass has the decoder's layers from this one on. */
static inline uint32_t xm_space_first_layer(const xm_space *space)
{
    return space->chunk * space->layers;
}
/* 1: the pass begins with the first of the decoder's layers, or ends with the
 * last. */
static inline int xm_pass_is_first(const xm_pass *pass)
{
    return pass->space->chunk == 0;
}
static inline int xm_pass_is_last(const xm_pass *pass)
{
    return xm_space_first_layer(pass->space) + pass->space->layers ==
           pass->decoder->config.layers;
}

/* Nothing is enqueued after an error, and for no tokens. */
static inline int xm_pass_idles(const xm_pass *pass)
{
    return pass->status != XRAY_OK || pass->tokens.bound == 0;
}

/* Rows of elements: token t at element t * stride. */
typedef struct xm_rows {
    void *data;
    uint64_t stride;
    uint64_t dim;
    uint32_t dtype; /* XRAY_BF16; 0: fp32 */
    uint32_t reserved;
} xm_rows;

static inline xm_rows xm_rows_of(float *data, uint64_t dim)
{
    return (xm_rows){ .data = data, .stride = dim, .dim = dim };
}
/* Rows of activations. */
static inline xm_rows xm_acts_of(const xm_pass *pass, void *data, uint64_t dim)
{
    return (xm_rows){ .data = data,
                      .stride = dim,
                      .dim = dim,
                      .dtype = pass->decoder->config.dtype };
}
/* `dim` columns of the rows, from column `first` on. */
static inline xm_rows xm_rows_part(xm_rows rows, uint64_t first, uint64_t dim)
{
    uint64_t size = rows.dtype == XRAY_BF16 ? 2 : sizeof(float);
    rows.data = (char *)rows.data + first * size;
    rows.dim = dim;
    return rows;
}
/* Rows of q, k and v, and of q and k after their norms and the rotation. */
static inline xm_rows xm_qkv_of(const xm_pass *pass, const xm_block *block)
{
    return xm_acts_of(pass, block->qkv, xm_dims_of(&pass->decoder->config).qkv);
}
static inline xm_rows xm_qk_of(const xm_pass *pass, const xm_block *block)
{
    xm_dims d = xm_dims_of(&pass->decoder->config);
    xm_rows rows = xm_acts_of(pass, block->qk, d.q + d.kv);
    rows.stride = block->qk_stride;
    return rows;
}

/* With SEQUENCE, tokens of the pass before those that the rank holds. */
uint64_t xm_pass_first(const xm_pass *pass);
/* From now on operators compute only the tokens that the rank holds, or all. */
void xm_pass_compute_own(xm_pass *pass);
void xm_pass_compute_all(xm_pass *pass);
/* The rows of the rank among those of all ranks. */
xm_rows xm_pass_own_rows(const xm_pass *pass, xm_rows all);
/* Gives the rows of all ranks, in `all`, of which `own` may be this rank's;
 * without SEQUENCE that is `own`. */
xm_rows xm_pass_gather_rows(xm_pass *pass, xm_rows own, xm_rows all);
/* Joins sums as xm_pass_join does, and gives the rank's own rows of them. */
xm_rows xm_pass_join_sums(xm_pass *pass, uint32_t what, xm_rows all);
/* Gathers the keys and values of whole rows, where ranks divide them, before
 * attention reads them. */
void xm_pass_gather_keys(xm_pass *pass, const xm_block *block);
/* Enqueues attention over complete rows, and its gradient from space->d_o to
 * space->dqkv: over all tokens at once, or over one run of each row after the
 * other, where the gradients of keys and values are then summed over the ranks.
 */
void xm_pass_attend_rows(xm_pass *pass, const xm_block *block);
void xm_pass_backprop_rows(xm_pass *pass, const xm_block *block);
/* Between these two, the rank adds the gradients of its own tokens to `data`:
 * the ranks do so one after the other, and then all have the sum. */
void xm_pass_continue_chain(xm_pass *pass, float *data, uint64_t count);
void xm_pass_hand_on_chain(xm_pass *pass, float *data, uint64_t count);

/* y = x W^T + bias. */
void xm_pass_product(xm_pass *pass, const xray_weight *weight,
                     const float *bias, xm_rows x, xm_rows y);
/* y = from + (x W^T + bias), where the sum over x is cut into the model's
 * segments; `from` has the rows of y and may be y. */
typedef struct xm_onto {
    const void *from;  /* or NULL */
    const float *bias; /* or NULL */
} xm_onto;
void xm_pass_product_onto(xm_pass *pass, const xray_weight *weight,
                          const xm_onto *onto, xm_rows x, xm_rows y);
/* y = the model's activation of x W^T + bias. */
void xm_pass_product_act(xm_pass *pass, const xray_weight *weight,
                         const float *bias, xm_rows x, xm_rows y);
/* dx (+)= dy W. */
void xm_pass_input_grad(xm_pass *pass, const xray_weight *weight, xm_rows dy,
                        xm_rows dx, uint32_t accumulate);
/* dx = dy W, where the sum is cut into the model's segments. `part` has the
 * rows of the matrices that W consists of; all 0: W is one. Gives the rank's
 * own rows of dx. */
xm_rows xm_pass_joint_input_grad(xm_pass *pass, const xray_weight *weight,
                                 const uint64_t part[3], xm_rows dy,
                                 xm_rows dx);
/* dw += dy^T x; dbias += sums of dy unless NULL. */
void xm_pass_weight_grad(xm_pass *pass, xm_rows dy, xm_rows x, float *dw,
                         float *dbias);
/* y = RMSNorm(x) over each `dim` of weight; groups = x.dim / dim. */
void xm_pass_norm(xm_pass *pass, const float *weight, uint64_t dim, xm_rows x,
                  xm_rows y, float *rstd);
/* y = LayerNorm(x); bias may be NULL. */
void xm_pass_layernorm(xm_pass *pass, const float *weight, const float *bias,
                       xm_rows x, xm_rows y, float *stat);

typedef struct xm_norm_grad_call {
    const float *weight;
    const float *stat; /* statistics that the forward pass kept */
    const float *dy;   /* stride of dx */
    float *dweight;    /* [segments, dim] */
    float *dbias;      /* LayerNorm; or NULL */
    uint64_t dim;
    uint32_t accumulate;
    uint32_t segments; /* of the heads that share dweight; 0: 1 */
} xm_norm_grad_call;
void xm_pass_norm_grad(xm_pass *pass, const xm_norm_grad_call *call, xm_rows x,
                       xm_rows dx);
void xm_pass_layernorm_grad(xm_pass *pass, const xm_norm_grad_call *call,
                            xm_rows x, xm_rows dx);
/* Rotates the heads of q and k, which follow one another in x. */
void xm_pass_rope(xm_pass *pass, xm_rows x, uint32_t inverse);
/* to += from, of rows without gaps. */
void xm_pass_add(xm_pass *pass, xm_rows from, xm_rows to);
/* Each row of y += bias, unless that is NULL; `scratch` has the size of y, and
 * both are fp32. */
void xm_pass_add_bias(xm_pass *pass, const float *bias, xm_rows y,
                      float *scratch);
/* to = from, of rows of one type without gaps. */
void xm_pass_copy(xm_pass *pass, const void *from, xm_rows to);
/* y = x in the type of y. */
void xm_pass_cast(xm_pass *pass, xm_rows x, xm_rows y);
void xm_pass_zero(xm_pass *pass, float *data, uint64_t count);
/* Keeps the status of a device call; an error names `what` was called. */
void xm_pass_keep_status(xm_pass *pass, xray_status status, const char *what);
/* The layer number while a pass is outside the blocks. */
#define XM_NO_LAYER UINT32_MAX

/* Gathers rows, or scatters them. */
void xm_pass_move_rows(xm_pass *pass, const xray_rows *call, int gather);
/* y[i] = x[index[i]] of hidden states, and y[index[i]] = x[i] of their
 * gradients. */
void xm_pass_gather(xm_pass *pass, const int32_t *index, const void *x,
                    void *y);
void xm_pass_scatter(xm_pass *pass, const int32_t *index, const float *x,
                     float *y);
/* Computes block->act from the block's gate and up projections, which it has
 * kept. */
void xm_pass_glu(xm_pass *pass, const xm_block *block);

/* Positions of the pass's tokens, [dev]. */
static inline const int32_t *xm_pass_positions(const xm_pass *pass)
{
    return pass->pack ? pass->pack->positions : pass->batch->positions;
}
static inline uint32_t xm_act_of(const xm_config *config)
{
    return config->act == XM_ACT_GELU_TANH ? XRAY_ACT_GELU_TANH : XRAY_ACT_SILU;
}

/* ---- parameters by slot ------------------------------------------------- */

/* The parameter at `slot` in the pass's current layer, or one outside the
 * blocks. */
const xm_bound_param *xm_pass_param(const xm_pass *pass, uint32_t slot);
/* The memory in which its gradient is summed. */
float *xm_pass_grad(const xm_pass *pass, uint32_t slot);
/* The same, or NULL if the model has no such parameter. */
float *xm_pass_grad_or_null(const xm_pass *pass, uint32_t slot);
/* The memory of the gradient of the norm at XM_Q_NORM or XM_K_NORM:
 * [*segments, head_dim]. */
float *xm_pass_head_norm_grad(const xm_pass *pass, uint32_t slot,
                              uint32_t *segments);
/* Applies the norm at `slot` to the rank's own hidden states: RMSNorm or
 * LayerNorm, whichever the model has. */
void xm_residual_norm(xm_pass *pass, uint32_t slot, xm_rows x, xm_rows y,
                      float *stat);
/* dx (+)= the gradient through that norm; dy has the stride of dx. */
typedef struct xm_residual_norm_grad_call {
    const float *stat;
    const float *dy;
    uint32_t slot;
    uint32_t accumulate;
} xm_residual_norm_grad_call;
void xm_residual_norm_grad(xm_pass *pass,
                           const xm_residual_norm_grad_call *call, xm_rows x,
                           xm_rows dx);

/* A residual branch of a block (attention or MLP) from its last product on: the
 * output projection, and its bias and post-norm if the model has them. The
 * result is added to the residual stream. */
typedef struct xm_branch {
    uint32_t weight; /* slots */
    uint32_t bias;
    uint32_t norm;
    uint32_t reserved;
    xm_rows x;   /* input of the product */
    void *out;   /* input of the post-norm; NULL: not kept */
    float *post; /* statistics of the post-norm, or NULL */
} xm_branch;
xm_branch xm_attention_branch(const xm_pass *pass, const xm_block *block);
xm_branch xm_mlp_branch(const xm_pass *pass, const xm_block *block);
/* Computes the branch's output, the rank's own rows in space->h, without adding
 * it to the stream. */
xm_rows xm_branch_output(xm_pass *pass, const xm_branch *branch);

/* Notify the decoder's watch, unless the pass has failed. The first one asks
 * whether the pass shall end, and that is all it does in one with a cache. */
void xm_pass_need_bucket(xm_pass *pass, uint32_t bucket, int backward);
void xm_pass_begin_bucket(xm_pass *pass, uint32_t bucket);
void xm_pass_done_bucket(xm_pass *pass, uint32_t bucket);

/* Joins rows of a slice over the tensor-parallel ranks, as XM_JOIN_*. Does
 * nothing for a model that is not shared. */
void xm_pass_join(xm_pass *pass, uint32_t what, float *rows, uint64_t dim);

xm_pass xm_pass_start(const xm_decoder *decoder, xm_space *space,
                      uint64_t tokens, xr_err *err);
/* The two parts of a block that both the forward pass and recomputation need:
 * from x to block->mid, and from block->mid to block->gate_up. */
void xm_block_attend(xm_pass *pass, const xm_block *block, void *x);
void xm_block_gate_up(xm_pass *pass, const xm_block *block);
/* The normed inputs of all tokens to the first product of attention, and of the
 * MLP, in memory of the block or in space->h. */
xm_rows xm_block_norm1(xm_pass *pass, const xm_block *block, void *x);
xm_rows xm_block_norm2(xm_pass *pass, const xm_block *block);
/* Runs the embedding, if the decoder has it, and all blocks; the result is in
 * the space's last x. */
void xm_pass_blocks(xm_pass *pass, const int32_t *ids, const void *in);
/* Computes space->hidden from pass->tokens rows at x, which a stage that is not
 * the last only copies. */
void xm_pass_final_norm(xm_pass *pass, void *x, float *stat);
/* The sums that belong to the norm at XM_Q_NORM or XM_K_NORM of a block, apart
 * from its bucket; NULL: they are not kept apart. */
float *xm_grads_head_norm(const xm_grads *grads, uint32_t bucket,
                          uint32_t slot);
/* Refuses gradients that are laid out for another model. */
xray_status xm_grads_check(const xm_grads *grads, const xm_decoder *decoder,
                           xr_err *err);
/* The keys that a token of the pass's current layer sees; 0: all. */
uint32_t xm_pass_window(const xm_pass *pass);

#endif
