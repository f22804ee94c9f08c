/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes a decoder's config.json, from which every part of the model library
 * works.
 */
#ifndef XM_CONFIG_H
#define XM_CONFIG_H

#include <stdint.h>

#include "core/base/err.h"

#define XM_ARCH_LLAMA 1u
#define XM_ARCH_QWEN2 2u
#define XM_ARCH_QWEN3 3u
#define XM_ARCH_MISTRAL 4u
#define XM_ARCH_GEMMA 5u
#define XM_ARCH_GEMMA2 6u
#define XM_ARCH_GEMMA3 7u
#define XM_ARCH_GPT2 8u
#define XM_ARCH_PHI3 9u

#define XM_MAX_END_IDS 8
#define XM_MAX_LAYERS 4096
#define XM_MAX_ROTARY 2048 /* rotary pairs of a head */

#define XM_ACT_SILU 1u
#define XM_ACT_GELU_TANH 2u

/* How rotary positions work: pair i of a head turns with the frequency that
 * xm_rope_frequencies gives. */
#define XM_ROPE_DEFAULT 0u
#define XM_ROPE_LINEAR 1u
#define XM_ROPE_LLAMA3 2u
#define XM_ROPE_YARN 3u
typedef struct xm_rope {
    uint32_t kind; /* XM_ROPE_* */
    uint32_t reserved;
    double theta;
    double factor;             /* all but DEFAULT */
    double low_freq_factor;    /* LLAMA3 */
    double high_freq_factor;   /* LLAMA3 */
    double original_positions; /* LLAMA3, YARN */
    double beta_fast;          /* YARN */
    double beta_slow;          /* YARN */
    double scale;      /* factor of cos and sin: YARN's attention factor,
                        * otherwise 1 */
    uint32_t truncate; /* YARN: the ends of the ramp are rounded outwards */
    uint32_t reserved2;
} xm_rope;

/* The part of a model that one of several ranks has: a tensor-parallel rank has
 * a part of each layer, a stage has some of the layers. */
typedef struct xm_slice {
    uint32_t rank;
    uint32_t ranks;       /* 0 and 1: the model is not shared */
    uint32_t vocab;       /* ids of the entire vocabulary */
    uint32_t vocab_first; /* the id of the slice's first row */
    uint32_t layers;      /* of the model; 0: the slice has all of them */
    uint32_t first_layer; /* the number of the slice's first layer */
    uint32_t kv_ranks;    /* neighbouring ranks that have each KV head; 0: 1 */
    uint32_t chunk;       /* layers of each of the slice's chunks, which follow
                           * one another in the model; 0: there is one */
    uint32_t step;        /* the first layers of two chunks are so many apart */
} xm_slice;

typedef struct xm_config {
    uint32_t arch;          /* XM_ARCH_* */
    uint32_t hidden;        /* hidden_size */
    uint32_t layers;        /* num_hidden_layers */
    uint32_t heads;         /* num_attention_heads */
    uint32_t kv_heads;      /* num_key_value_heads */
    uint32_t head_dim;      /* head_dim, or hidden / heads */
    uint32_t ffn;           /* intermediate_size */
    uint32_t vocab;         /* vocab_size */
    uint32_t max_positions; /* max_position_embeddings */
    uint32_t tied;          /* tie_word_embeddings */
    uint32_t qkv_bias;      /* Qwen2, GPT-2; or attention_bias */
    uint32_t qk_norm;       /* Qwen3, Gemma 3 */
    uint32_t o_bias;        /* GPT-2; Llama's attention_bias */
    uint32_t mlp_bias;      /* GPT-2; Llama's mlp_bias */
    uint32_t layer_norm;    /* 1: LayerNorm with bias (GPT-2), 0: RMSNorm */
    uint32_t post_norms;    /* 1: a second norm after attention and MLP, before
                             * the residual sum (Gemma 2 and 3) */
    uint32_t gated; /* 1: down(act(gate x) * up x), 0: down(act(up x)) */
    uint32_t act;   /* XM_ACT_* */
    uint32_t learned_positions; /* 1: a table of positions, no rotation */
    uint32_t fused;      /* 1: on disk q, k and v are one tensor, and so are
                          * gate and up (Phi-3; GPT-2 has no gate) */
    uint32_t transposed; /* 1: matrices of blocks are stored as [in, out] */
    uint32_t rotary;     /* number of rotary dimensions of a head, which come
                          * first; 0 with learned positions */
    uint32_t window;     /* keys that a sliding layer attends to, the token's
                          * own included; above 0 if any layer slides */
    uint32_t dtype;      /* XRAY_BF16: matrices and activations are bf16
                          * (docs/numerics.md); 0: fp32. Not of config.json: who
                          * computes with the model sets it */
    /* Ranks that divide the tokens of rows between them, and the number of this
     * one; set as dtype is. 0 and 1: each row is computed by one rank. */
    uint32_t context_ranks;
    uint32_t context_rank;
    /* The part of a model that layers, heads, kv_heads, ffn and vocab belong
     * to; the other sizes are those of the model. Zeros: all of it. */
    xm_slice slice;
    double norm_eps;      /* rms_norm_eps, layer_norm_epsilon */
    double norm_offset;   /* 1 for Gemma: norms multiply by 1 + w */
    double attn_scale;    /* factor of attention scores: head_dim^-1/2, or
                           * Gemma's query_pre_attn_scalar^-1/2 */
    double attn_softcap;  /* 0: none */
    double logit_softcap; /* 0: none */
    double embed_scale;   /* 1, or Gemma's sqrt(hidden) rounded to fp32 */
    xm_rope rope;         /* for layers with full attention */
    xm_rope rope_local;   /* for sliding layers; differs from `rope` only in
                           * Gemma 3 */
    uint64_t sliding[XM_MAX_LAYERS / 64]; /* bit l: layer l slides */
    double init_range;                    /* initializer_range */
    int32_t bos_id;                       /* -1: none */
    uint32_t end_count; /* eos_token_id of config.json, one or a list */
    int32_t end_ids[XM_MAX_END_IDS];
} xm_config;

/* Bytes of an activation. */
static inline uint64_t xm_config_act_bytes(const xm_config *config)
{
    return config->dtype == XRAY_BF16 ? 2 : sizeof(float);
}

/* Returns 1 if the layer attends to at most `window` keys. */
static inline int xm_config_slides(const xm_config *config, uint32_t layer)
{
    return (int)(config->sliding[layer / 64] >> (layer % 64) & 1u);
}

/* Computes the frequencies of the rotary pairs, out[rotary / 2], by the
 * formulas of transformers' modeling_rope_utils (linear, llama3, yarn). */
void xm_rope_frequencies(const xm_config *config, const xm_rope *rope,
                         double *out);

/* Reads the text of config.json: llama, mistral, qwen2, qwen3, gemma, gemma2,
 * gemma3_text, gpt2, phi3. A missing key has its default in transformers'
 * configuration of that model_type, but missing ids mean none. Unsupported
 * settings (another model_type, a kind of rope scaling or activation that is
 * not listed above, quantized weights) are refused by name; `where` begins the
 * message. Keys that do not affect the mathematics are ignored, and so are
 * GPT-2's dropouts, which nothing here applies. */
xray_status xm_config_parse(const char *text, const char *where, xr_err *err,
                            xm_config *out);

/* Reads <dir>/config.json, and the end ids of generation_config.json if the
 * directory has one (nothing else of it is used). *out_text, if not NULL,
 * receives the text of config.json, which the caller frees. */
xray_status xm_config_read(const char *dir, xr_err *err, xm_config *out,
                           char **out_text);

/* Makes *out what rank `rank` of `ranks` has of a model: equal parts of the
 * heads of q, of those of k and v, and of the MLP, and the rows of the
 * embedding and lm_head in equal parts of the vocabulary padded to a multiple
 * of 128, of which the last slice lacks those past the vocabulary. `ranks` is a
 * power of two up to XRAY_SEGMENTS that divides heads, KV heads and MLP, and
 * then it divides the segments of the model's sums. More ranks than KV heads
 * are possible too, where these divide them: each then has the one KV head that
 * its heads of q read. All others are XRAY_E_CONFIG. */
xray_status xm_config_slice(const xm_config *model, uint32_t rank,
                            uint32_t ranks, xr_err *err, xm_config *out);

/* The same for ranks that the option tensor_model_parallel_size names; the
 * error has the next size that works. */
xray_status xm_config_share(const xm_config *model, uint32_t rank,
                            uint32_t ranks, xr_err *err, xm_config *out);
/* Returns the ids of the model's vocabulary, also for a slice. */
static inline uint32_t xm_config_vocab(const xm_config *config)
{
    return config->slice.ranks ? config->slice.vocab : config->vocab;
}

/* Makes *out the stage that has layers [first, first + layers) of a model or of
 * a slice of it. The stage with the first layer also has embedding and
 * positions, the one with the last layer has the final norm, lm_head and the
 * value head; of a tied model both have the embedding. XRAY_E_CONFIG if the
 * model has no such layers. */
xray_status xm_config_stage(const xm_config *model, uint32_t first,
                            uint32_t layers, xr_err *err, xm_config *out);
/* The same for a stage of `chunks` chunks of `layers` layers, whose first
 * layers are `step` apart: layers first, first + step and so on. */
typedef struct xm_stage_layers {
    uint32_t first;
    uint32_t layers;
    uint32_t step;
    uint32_t chunks;
} xm_stage_layers;
xray_status xm_config_chunks(const xm_config *model,
                             const xm_stage_layers *layers, xr_err *err,
                             xm_config *out);
/* Returns the number that a layer of the slice has in the model. */
static inline uint32_t xm_config_layer(const xm_config *config, uint32_t layer)
{
    const xm_slice *slice = &config->slice;
    return slice->first_layer +
           (slice->chunk
                ? layer / slice->chunk * slice->step + layer % slice->chunk
                : layer);
}
/* Returns the layers of a chunk; the slice has layers / that many chunks. */
static inline uint32_t xm_config_chunk(const xm_config *config)
{
    return config->slice.chunk ? config->slice.chunk : config->layers;
}
/* 1: the slice has the first, or the last, layer of its model. */
static inline int xm_config_is_first(const xm_config *config)
{
    return config->slice.first_layer == 0;
}
static inline int xm_config_is_last(const xm_config *config)
{
    return config->slice.layers == 0 ||
           xm_config_layer(config, config->layers - 1) + 1 ==
               config->slice.layers;
}

/* The number of segments into which sums over heads, MLP and vocabulary are
 * cut: the largest power of two up to XRAY_SEGMENTS (<xray/operators.h>) that
 * divides heads, kv_heads and ffn, or the part of them that a slice has. The
 * model's number depends on its shapes alone, so however many ranks share it,
 * its sums have the same bits. */
uint32_t xm_segments(const xm_config *config);
/* Ids of a segment of the vocabulary, which is padded to a multiple of 128 for
 * this; the last segments may have fewer ids, or none. 0: one segment. */
uint64_t xm_vocab_segment(const xm_config *config);

/* A parameter as a tensor of a file. */
typedef struct xm_param_info {
    const char *name;    /* HF name */
    uint64_t rows;       /* rows of the matrix W in y = W x */
    uint64_t cols;       /* 0: a vector of `rows` */
    uint32_t transposed; /* 1: stored as [cols, rows] (GPT-2's Conv1D) */
    uint32_t layer;      /* XM_MAX_LAYERS: outside the blocks */
    uint32_t slot;       /* XM_* of param_slots.h */
    uint32_t reserved;
} xm_param_info;

/* Calls `visit` for every parameter, in file order. Stops at the first status
 * other than XRAY_OK and returns it. */
typedef xray_status (*xm_param_visit)(void *ctx, const xm_param_info *info);
xray_status xm_config_params(const xm_config *config, xm_param_visit f,
                             void *ctx);

/* Counts the parameters, embeddings included. */
uint64_t xm_config_param_count(const xm_config *config);

#endif
