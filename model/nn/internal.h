/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of model/nn share: slots, the bound decoder, the space, and
 * short names for the device's operators.
 */
#ifndef XM_NN_INTERNAL_H
#define XM_NN_INTERNAL_H

#include "model/hf/param_slots.h"
#include "model/nn/decoder.h"

/* The whole tensor of a parameter in a published table, fp32 or, of a matrix,
 * bf16; errors name it. */
xray_status xm_tensor_find(const xray_weights *table, const xm_param *param,
                           xr_err *err, const xray_tensor **out);
/* Elements rounded up to 64 bytes of floats. */
static inline uint64_t xm_round16(uint64_t count)
{
    return (count + 15u) & ~(uint64_t)15u;
}

/* ---- decoder ------------------------------------------------------------ */

/* One parameter as bound. A fused matrix has its handle and data at its first
 * slot; `offset` is where gradients lie in the bucket. */
typedef struct xm_bound_param {
    const float *data; /* a table of dtype bf16 is read by look-ups alone */
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
    float *rope_local; /* of sliding layers: `rope`, or a table behind it */
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

/* ---- space -------------------------------------------------------------- */

/* What a block computes. A TRAIN space has one a layer; other spaces run all
 * layers through the same. */
typedef struct xm_block {
    float *mid; /* [tokens, hidden] after attention; may be the input */
    float *qkv; /* [tokens, q + 2 kv] */
    float *qk;  /* normed and rotated q and k; `qkv` unless kept apart */
    uint64_t qk_stride;
    float *o;       /* [tokens, q] */
    float *lse;     /* [tokens, heads], TRAIN */
    float *stat1;   /* [tokens], of LayerNorm [tokens, 2]; TRAIN */
    float *stat2;   /* the same of the second norm */
    float *rstd_q;  /* [tokens, heads], TRAIN with qk-norm */
    float *rstd_k;  /* [tokens, kv_heads] */
    float *gate_up; /* [tokens, up] */
    /* What post-norms read, TRAIN with post-norms; else NULL. */
    float *out1;  /* [tokens, hidden] */
    float *out2;  /* [tokens, hidden] */
    float *post1; /* [tokens] */
    float *post2; /* [tokens] */
} xm_block;

struct xm_space {
    const xray_device_ops *device;
    void *device_self;
    uint64_t tokens; /* most in a call */
    uint64_t rows;
    uint64_t row_tokens;
    uint32_t flags;
    uint32_t layers;
    uint64_t live; /* tokens of the forward that is kept; 0: none */
    float *arena;
    float **x; /* [layers + 1] inputs of the blocks, and the last output */
    xm_block *blocks; /* [layers] */
    float *h;         /* [tokens, hidden] scratch: normed input of a product, or
                       * what is about to be added to the stream */
    float *act;       /* [tokens, ffn] scratch */
    float *hidden;    /* [tokens, hidden] result */
    float *stat;      /* of the final norm, TRAIN */
    float *items;     /* [tokens, hidden] gathered hidden states */
    float *logp;      /* [tokens] each */
    float *entropy;
    float *lse;
    float *value;
    float *logits; /* [tokens, vocab], LOGITS; or NULL */
    uint32_t kept; /* items whose logits those are */
    uint32_t reserved;
    /* TRAIN only */
    float *zeros;   /* [tokens] */
    float *dvalue;  /* [tokens] */
    float *dhidden; /* [tokens, hidden] */
    float *dx;      /* [tokens, hidden] gradient along the residual stream */
    float *d_o;     /* [tokens, q] */
    float *dqkv;    /* [tokens, q + 2 kv] */
};

/* ---- one pass over a decoder -------------------------------------------- */

/* Operators enqueue through a run: the first error sticks, and the rest of the
 * sequence does nothing. */
typedef struct xm_pass {
    const xm_decoder *decoder;
    const xray_device_ops *device;
    void *self;
    xm_space *space;
    const xm_pack *pack;         /* whole rows, or */
    const xm_decode_batch *step; /* tokens with a cache */
    xm_grads *grads;
    xr_err *err;
    xray_extent tokens;
    uint32_t layer;
    xray_status status;
} xm_pass;

/* Rows of floats: token t at data + t * stride. */
typedef struct xm_rows {
    float *data;
    uint64_t stride;
    uint64_t dim;
} xm_rows;

static inline xm_rows xm_rows_of(float *data, uint64_t dim)
{
    return (xm_rows){ .data = data, .stride = dim, .dim = dim };
}

/* y = x W^T + bias. */
void xm_pass_product(xm_pass *pass, const xray_weight *weight,
                     const float *bias, xm_rows x, xm_rows y);
/* y += x W^T. */
void xm_pass_product_add(xm_pass *pass, const xray_weight *weight, xm_rows x,
                         xm_rows y);
/* dx (+)= dy W. */
void xm_pass_input_grad(xm_pass *pass, const xray_weight *weight, xm_rows dy,
                        xm_rows dx, uint32_t accumulate);
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
    const float *stat; /* what the norm kept */
    const float *dy;   /* stride of dx */
    float *dweight;
    float *dbias; /* LayerNorm; or NULL */
    uint64_t dim;
    uint32_t accumulate;
} xm_norm_grad_call;
void xm_pass_norm_grad(xm_pass *pass, const xm_norm_grad_call *call, xm_rows x,
                       xm_rows dx);
void xm_pass_layernorm_grad(xm_pass *pass, const xm_norm_grad_call *call,
                            xm_rows x, xm_rows dx);
/* q and k heads, one after the other in x. */
void xm_pass_rope(xm_pass *pass, xm_rows x, uint32_t inverse);
/* to += from. */
void xm_pass_add(xm_pass *pass, const float *from, float *to, uint64_t count);
void xm_pass_copy(xm_pass *pass, const float *from, float *to, uint64_t count);
void xm_pass_zero(xm_pass *pass, float *data, uint64_t count);
/* Keeps the status of a device call, with a sentence that names it. */
void xm_pass_keep_status(xm_pass *pass, xray_status status, const char *what);
/* Layer number of messages for what lies outside of the blocks. */
#define XM_NO_LAYER UINT32_MAX

/* y[i] = x[index[i]] and y[index[i]] = x[i] of hidden states. */
void xm_pass_gather(xm_pass *pass, const int32_t *index, const float *x,
                    float *y);
void xm_pass_scatter(xm_pass *pass, const int32_t *index, const float *x,
                     float *y);
/* space->act from the block's gate and up. */
void xm_pass_glu(xm_pass *pass, const xm_block *block);

/* Positions of the run's tokens, [dev]. */
static inline const int32_t *xm_pass_positions(const xm_pass *pass)
{
    return pass->pack ? pass->pack->positions : pass->step->positions;
}
static inline uint32_t xm_act_of(const xm_config *config)
{
    return config->act == XM_ACT_GELU_TANH ? XRAY_ACT_GELU_TANH : XRAY_ACT_SILU;
}

/* ---- parameters by place ------------------------------------------------ */

/* A parameter of the run's layer, or one outside of the blocks. */
const xm_bound_param *xm_pass_param(const xm_pass *pass, uint32_t slot);
/* Where its gradient is summed. */
float *xm_pass_grad(const xm_pass *pass, uint32_t slot);
/* The same, NULL for a parameter that the model does not have. */
float *xm_pass_grad_or_null(const xm_pass *pass, uint32_t slot);
/* The norm at `slot` over whole hidden states, of the model's kind. */
void xm_residual_norm(xm_pass *pass, uint32_t slot, xm_rows x, xm_rows y,
                      float *stat);
/* dx (+)= what comes back through it; dy has the stride of dx. */
typedef struct xm_residual_norm_grad_call {
    const float *stat;
    const float *dy;
    uint32_t slot;
    uint32_t accumulate;
} xm_residual_norm_grad_call;
void xm_residual_norm_grad(xm_pass *pass,
                           const xm_residual_norm_grad_call *call, xm_rows x,
                           xm_rows dx);

/* The product that ends half a block and is added to the stream, with its bias
 * and the norm behind it, if the model has them. */
typedef struct xm_branch {
    uint32_t weight; /* slots */
    uint32_t bias;
    uint32_t norm;
    uint32_t reserved;
    xm_rows x;   /* input of the product */
    float *out;  /* what the norm reads, NULL: not kept */
    float *post; /* what the norm keeps, or NULL */
} xm_branch;
xm_branch xm_attention_branch(const xm_pass *pass, const xm_block *block);
xm_branch xm_mlp_branch(const xm_pass *pass, const xm_block *block);
/* What is to be added, in space->h. */
void xm_branch_output(xm_pass *pass, const xm_branch *branch);

/* Tell the watch; after an error, nothing. */
void xm_pass_need_bucket(xm_pass *pass, uint32_t bucket, int backward);
void xm_pass_begin_bucket(xm_pass *pass, uint32_t bucket);
void xm_pass_done_bucket(xm_pass *pass, uint32_t bucket);

xm_pass xm_pass_start(const xm_decoder *decoder, xm_space *space,
                      uint64_t tokens, xr_err *err);
/* Pieces of a block, for the forward pass and for recomputation: x to
 * block->mid, and block->mid to block->gate_up. */
void xm_block_attend(xm_pass *pass, const xm_block *block, float *x);
void xm_block_gate_up(xm_pass *pass, const xm_block *block);
/* Embedding and all blocks: the result is in the space's last x. */
void xm_pass_blocks(xm_pass *pass, const int32_t *ids);
/* space->hidden from pass->tokens rows at x. */
void xm_pass_final_norm(xm_pass *pass, float *x, float *stat);
/* Refuses gradients that are laid out for another model. */
xray_status xm_grads_check(const xm_grads *grads, const xm_decoder *decoder,
                           xr_err *err);
/* The attention call of a block over whole rows. */
xray_attention xm_attention_call(const xm_pass *pass, const xm_block *block);

#endif
