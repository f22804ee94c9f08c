/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder over the device's operators: the one forward pass that trainer and
 * engine share, and its hand-written backward pass. Rows are packed; there is
 * no padding anywhere.
 *
 * Block: x += o(attn(rope(norm_qk(qkv(norm1 x))))); x += down(glu(norm2 x)).
 * The products o and down start from x; where an architecture has a bias or a
 * norm behind them, they are made apart and then added. What else a
 * configuration says: windows, soft caps, the scale of scores and embeddings,
 * learned positions, LayerNorm, an MLP without a gate.
 * Pointers marked [dev] are device memory.
 */
#ifndef XM_DECODER_H
#define XM_DECODER_H

#include <xray/setup.h>

#include "model/nn/weights.h"

typedef struct xm_decoder xm_decoder;

/* Binds a published table of weights by HF names; the table outlives the
 * decoder. Fused matrices need q, k, v (and gate, up) to share one handle, as
 * xm_weights lays them out; a table that does not is refused (the caller then
 * copies into weights of its own). Rotary tables are made for
 * `positions` positions; learned positions end with their table
 * (max_positions), if that is earlier. Rows that go beyond are refused. */
xray_status xm_decoder_create(const xm_config *config,
                              const xray_weights *weights, uint64_t positions,
                              const char *owner, xr_err *err, xm_decoder **out);
void xm_decoder_destroy(xm_decoder *decoder); /* accepts NULL */
/* Bytes of the rotary tables on the device (tag WORKSPACE): one, two where
 * sliding layers turn otherwise, none with learned positions. Pure. */
uint64_t xm_decoder_bytes(const xm_config *config, uint64_t positions);
/* Told where a pass over whole rows is, by who keeps weights or gradients that
 * are not there all the time. A pass without rows tells the same. Any of them
 * may be NULL. */
typedef struct xm_watch {
    void *ctx;
    /* The weights of a bucket are read from here on, until another bucket of a
     * block is needed; those outside of the blocks until the end of the pass,
     * and the heads' until that of the backward pass. */
    xray_status (*need)(void *ctx, uint32_t bucket, int backward, xr_err *err);
    /* The first gradients are about to be added to a bucket, */
    xray_status (*begin)(void *ctx, uint32_t bucket, xr_err *err);
    /* and those were the last ones of this pass. */
    xray_status (*done)(void *ctx, uint32_t bucket, xr_err *err);
} xm_watch;
void xm_decoder_watch(xm_decoder *decoder, const xm_watch *watch);
const xm_config *xm_decoder_config(const xm_decoder *decoder);
/* Handle of the output head [vocab, hidden] (the embedding's when tied). */
const xray_weight *xm_decoder_lm_head(const xm_decoder *decoder);

/* ---- whole rows: training, scoring -------------------------------------- */

/* Packed rows, host and device at once where the device has host memory. */
typedef struct xm_pack {
    uint32_t rows;
    uint32_t tokens;
    uint64_t row_bound;       /* no row, with its parent, is longer */
    const int32_t *ids;       /* [dev] [tokens] */
    const int32_t *positions; /* [dev] [tokens] from 0 in each row, or behind
                               * its parent */
    const int32_t *row_start; /* [dev] [rows + 1] */
    const int32_t *parent;    /* [dev] [rows] the row that a row goes on from,
                               * as in xray_attention; NULL: none has any */
} xm_pack;

#define XM_SPACE_TRAIN 1u     /* keeps what backward needs */
#define XM_SPACE_RECOMPUTE 2u /* keeps block inputs only, computes again */
#define XM_SPACE_LOGITS 4u    /* keeps the logits of a head for its backward */

/* Activations and scratch for up to `tokens` tokens in `rows` rows of at most
 * `row_tokens`, laid out once (tag ACTIVATIONS). */
typedef struct xm_space xm_space;
xray_status xm_space_create(const xm_decoder *decoder, uint64_t tokens,
                            uint64_t rows, uint64_t row_tokens, uint32_t flags,
                            const char *owner, xr_err *err, xm_space **out);
void xm_space_destroy(xm_space *space); /* accepts NULL */
/* What the last forward kept is not needed. */
void xm_space_forget(xm_space *space);
/* Takes its memory away, with what the last forward kept, and gives it back;
 * XRAY_E_UNSUPPORTED where the device cannot. */
xray_status xm_space_evict(xm_space *space);
xray_status xm_space_restore(xm_space *space);
/* The bytes that would take. Pure. */
uint64_t xm_space_bytes(const xm_config *config, uint64_t tokens, uint64_t rows,
                        uint64_t row_tokens, uint32_t flags);

/* Runs the blocks and the final norm. */
xray_status xm_forward(xm_decoder *decoder, xm_space *space,
                       const xm_pack *pack, xr_err *err);
/* [dev] [tokens, hidden]: the normed hidden states of the last forward. */
const float *xm_space_hidden(const xm_space *space);

/* Gradient buckets, laid out like the weights, with the room that the layout's
 * ranks ask for (tag GRADS); frozen buckets are NULL, the backward pass stops
 * above them. With a tied head the
 * embedding's look-up gradient is folded apart (`lookup` [vocab, hidden]) and
 * added once by xm_grads_finish, else the order of head and look-up sums would
 * depend on the micro-batch cut. */
typedef struct xm_grads {
    const xray_device_ops *device;
    void *device_self;
    const xm_layout *layout;
    float **buckets;
    float *lookup; /* [dev], NULL when untied */
    uint64_t lookup_count;
} xm_grads;
xray_status xm_grads_create(const xm_config *config, const xm_layout *layout,
                            const xray_device_ops *device, void *device_self,
                            const char *owner, xr_err *err, xm_grads **out);
void xm_grads_destroy(xm_grads *grads); /* accepts NULL */
xray_status xm_grads_zero(xm_grads *grads, xr_err *err);
xray_status xm_grads_finish(xm_grads *grads, xr_err *err);
uint64_t xm_grads_bytes(const xm_config *config, const xm_layout *layout);

/* Adds the gradients of all parameters, given dL/d(hidden) [dev] [tokens,
 * hidden] of the forward just run in `space` (a TRAIN space). Uses up what the
 * forward kept: one backward a forward. */
xray_status xm_backward(xm_decoder *decoder, xm_space *space,
                        const xm_pack *pack, const float *dhidden,
                        xm_grads *grads, xr_err *err);

/* ---- heads -------------------------------------------------------------- */

/* Items for which outputs are wanted: item i reads the hidden state of packed
 * token index[i] and concerns the token after it, target[i]. */
typedef struct xm_items {
    uint32_t count;
    uint32_t value;           /* 1: values are wanted too */
    const int32_t *index;     /* [dev] [count], ascending, no twice */
    const int32_t *target;    /* [dev] [count]; NULL: values only */
    const float *temperature; /* [dev] [count] or NULL */
} xm_items;

/* Outputs of the last forward, in the space's own [dev] arrays [count]. */
typedef struct xm_token_outputs {
    const float *logp;    /* NULL without targets */
    const float *entropy; /* NULL without targets */
    const float *value;   /* NULL unless asked for */
} xm_token_outputs;
xray_status xm_outputs(xm_decoder *decoder, xm_space *space,
                       const xm_items *items, xm_token_outputs *out,
                       xr_err *err);

/* From dL/dlogp, dL/dH, dL/dv [dev] [count] (NULL: all 0): adds the gradients
 * of the heads, and gives dL/d(hidden) [dev] for xm_backward in
 * *out_dhidden (the space's own memory). `items` are those of xm_outputs. */
typedef struct xm_output_grads {
    const float *dlogp;
    const float *dentropy;
    const float *dvalue;
} xm_output_grads;
xray_status xm_outputs_backward(xm_decoder *decoder, xm_space *space,
                                const xm_items *items,
                                const xm_output_grads *head_grads,
                                xm_grads *grads, const float **out_dhidden,
                                xr_err *err);

/* ---- with a KV cache: the engine ---------------------------------------- */

/* New tokens of any mix of sequences: prompts, chunks of prompts, single
 * tokens. Tokens of one sequence come in order of position. */
typedef struct xm_decode_batch {
    uint32_t tokens;
    uint32_t reserved;
    uint64_t position_bound;  /* no position is as large */
    const int32_t *ids;       /* [dev] [tokens] */
    const int32_t *seq;       /* [dev] [tokens] slot in the cache */
    const int32_t *positions; /* [dev] [tokens] */
    const xray_kv *kv;        /* [layers], the planes of each layer */
    const int32_t *last;      /* [dev] [last_count] tokens whose hidden state is
                               * wanted, ascending */
    uint32_t last_count;
    uint32_t reserved2;
} xm_decode_batch;

/* Runs the step in a space made without XM_SPACE_TRAIN; the final hidden
 * states [dev] [last_count, hidden] are in *out_hidden. Same bits as
 * xm_forward over the whole row. */
xray_status xm_decode(xm_decoder *decoder, xm_space *space,
                      const xm_decode_batch *step, const float **out_hidden,
                      xr_err *err);

#endif
