/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of CPU kernels of one instruction set. Each kernel runs on one
 * thread, does the part of an operator that its arguments select, and allocates
 * nothing.
 */
#ifndef CPU_KERNELS_H
#define CPU_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include <xray/device.h>

/* Activations are bf16 or else fp32. */
static inline int cpu_is_narrow(uint32_t dtype)
{
    return dtype == XRAY_BF16;
}

/* Element i of an array of floats or, if `narrow`, of bf16. */
static inline const void *cpu_element(const void *x, int narrow, size_t i)
{
    return (const char *)x + i * (narrow ? sizeof(uint16_t) : sizeof(float));
}

static inline void *cpu_output(void *y, int narrow, size_t i)
{
    return (char *)y + i * (narrow ? sizeof(uint16_t) : sizeof(float));
}

#define GEMM_ZERO 0 /* the chain starts from 0 */
#define GEMM_LOAD 1 /* the chain starts from c */
#define GEMM_BIAS 2 /* the chain starts from bias */
#define GEMM_FROM 3 /* the chain starts from `from` */

/* c[r, j] = chain over k of a[r, k] b[k, j]. Columns are stored in panels of
 * 16: row k of panel p starts at b + p * b_panel + k * b_row. */
typedef struct cpu_gemm {
    const void *a; /* floats or, with `work`, bf16: element (r, k) is number r *
                    * a_row + k or, */
    size_t a_row;  /* if transposed, k * a_row + r */
    const void *b; /* floats, or bf16 */
    size_t b_panel;
    size_t b_row;
    float *c;
    size_t c_row;
    size_t rows;
    size_t cols;
    size_t depth;
    const float *bias; /* [cols], for GEMM_BIAS */
    const float *from; /* for GEMM_FROM, row r at from + r * from_row */
    size_t from_row;
    int start;   /* GEMM_* */
    float scale; /* with `work`: a is multiplied by it; 0: it is not */
    int b_tail;  /* 1: the last panel of b is not padded to 16 */
    /* 1: the operand is bf16, and its strides count bf16 elements. */
    int a_narrow;
    int b_narrow;
    float *work; /* CPU_GEMM_WORK floats for copies of blocks of a, or NULL */
    const void *b_next; /* b of the next task, or NULL */
    /* Not 0: the sum is one of so many segments, whose chains start from 0, or
     * from bias if `start` says so. A balanced tree joins them; then the bias
     * that no chain started from is added, then `from`. */
    uint32_t segments;
    /* Terms that a segment has of each of the matrices that lie side by side
     * along the summed index. Of a single one the last segment may have fewer.
     */
    size_t piece[3];
    float *partial; /* cpu_gemm_partial(segments) floats */
} cpu_gemm;

/* Element i of `a`, and of b. */
static inline const void *cpu_gemm_a(const cpu_gemm *g, size_t i)
{
    return cpu_element(g->a, g->a_narrow, i);
}

static inline const void *cpu_gemm_b(const cpu_gemm *g, size_t i)
{
    return cpu_element(g->b, g->b_narrow, i);
}

/* A block of `a` has this many rows and this much of the summed index. Each
 * copied row is one cache line longer than its content, so that lines of one
 * tile do not share a set of the L1 cache. */
#define CPU_GEMM_ROWS 168
#define CPU_GEMM_DEPTH 256
#define CPU_GEMM_WORK ((size_t)CPU_GEMM_ROWS * (CPU_GEMM_DEPTH + 16))

/* Floats for the sums of a block of rows of a product in segments, 1 +
 * log2(segments) for each output. The columns of the product have to fit: at
 * least 512, because fewer would mean that blocks of `a` are copied often. */
static inline size_t cpu_gemm_partial(uint32_t segments)
{
    return CPU_GEMM_ROWS * (size_t)(segments > 1 ? 4 * 512 : segments * 512);
}

/* Rows of outputs on their way to y = act(gate) * up; without up, y =
 * act(gate). If y is bf16, gate and up are rounded to bf16 first. */
typedef struct cpu_activation {
    const float *gate;
    const float *up; /* or NULL */
    void *y;
    size_t x_row; /* of gate and up */
    size_t y_row;
    size_t rows;
    size_t cols;
    int silu;
    int narrow; /* 1: y is bf16 */
} cpu_activation;

/* Queries of one head that read one kv head. Row r is at position pos + r *
 * step and sees the keys up to its own. */
typedef struct cpu_attend {
    const void *q;
    size_t q_row;
    void *o;
    size_t o_row;
    int narrow; /* 1: q and o are bf16; else floats */
    float *lse; /* or NULL */
    size_t lse_row;
    size_t rows; /* <= CPU_QUERY_TILE */
    size_t dim;
    size_t pos;
    size_t step; /* 0 or 1 */
    size_t window;
    float scale;
    float softcap;
    /* Positions are stored in blocks of block_tokens. Block b has the number
     * table[b] or, without a table, first + b. K is stored as [group of 16
     * keys][dim][16]. */
    const void *k;
    const void *v;
    int kv_narrow; /* 1: K and V are bf16; else floats */
    const int32_t *table;
    size_t first;
    size_t k_block; /* elements between blocks */
    size_t v_block;
    size_t v_row;
    size_t block_tokens;
    float *scores; /* [rows, score_row] */
    size_t score_row;
    float *work; /* with `narrow`: cpu_attend_work(dim) floats */
} cpu_attend;

#define CPU_QUERY_TILE 8

/* The floats of `work`: those of q and of o. */
static inline size_t cpu_attend_work(size_t dim)
{
    return 2 * CPU_QUERY_TILE * dim;
}

/* The queries of one token, `group` for each of `heads` kv heads. The token is
 * at `pos` and sees the keys up to its own. Query (h, r) is at q + (h * group +
 * r) * dim, and its output likewise. Positions are stored in blocks as
 * above. */
typedef struct cpu_decode {
    const void *q;
    void *o;
    int narrow; /* 1: q and o are bf16; else floats */
    size_t heads;
    size_t group;
    size_t dim; /* a multiple of 16 */
    size_t pos;
    size_t window;
    float scale;
    float softcap;
    const void *k; /* of the first of the kv heads */
    const void *v;
    int kv_narrow; /* 1: K and V are bf16; else floats */
    const int32_t *table;
    size_t first;
    size_t block; /* elements between blocks */
    size_t head;  /* elements between kv heads */
    size_t block_tokens;
    float *scores; /* [CPU_QUERY_TILE, score_row] */
    size_t score_row;
    float *work; /* cpu_attend_work(dim) floats */
} cpu_decode;

/* The backward pass of one kv head over one row of `n` keys; the queries stand
 * at the positions first to end - 1. `work` starts with dk and dv of up to
 * `bound` keys, [bound, dim] each, dk not scaled yet. Sums of the keys from
 * `own` on start here; those of earlier keys continue from the values in
 * `work`. Tiles of queries are counted from `own`. */
typedef struct cpu_attend_grad {
    const void *q, *o;
    int narrow; /* 1: q and o are bf16; else floats */
    const float *k, *d_o, *lse;
    float *dq;
    size_t q_row, k_row, o_row, lse_row;
    size_t dq_row;
    size_t own;
    size_t first, end;
    size_t n;
    size_t bound;
    size_t heads; /* heads that read this kv head, one after the other */
    size_t dim;
    size_t window;
    float scale;
    float softcap;
    const float *kt; /* [n/16][dim][16] */
    const float *vt;
    float *work; /* cpu_attend_grad_work() floats */
} cpu_attend_grad;

#define CPU_GRAD_TILE 64 /* queries whose scores exist at the same time */

/* The sums over a row of logits from which log-probability and entropy
 * follow. */
typedef struct cpu_lse {
    float max;
    float sum;
    float moment; /* sum exp(z - max) (z - max), over exp > 0 */
} cpu_lse;

/* The gradient and the statistics of an item, as lm_head_dz needs them. */
typedef struct cpu_dz {
    float dlogp;
    float dentropy;
    float lse;
    float entropy;
    float temperature;
    float softcap;
    int64_t target; /* index in the row, or outside of it */
} cpu_dz;

typedef struct cpu_kernels {
    const char *name;
    size_t rows; /* rows of the largest matrix tile */
    void (*gemm)(const cpu_gemm *g);
    void (*gemm_t)(const cpu_gemm *g); /* a is transposed */
    /* Packs b, of which a row is contiguous, into panels of floats that lie
     * `panel` floats apart. */
    void (*pack)(const cpu_gemm *g, float *to, size_t panel);
    void (*widen)(float *y, const uint16_t *x, size_t n);
    void (*narrow)(uint16_t *y, const float *x, size_t n);
    void (*attend)(const cpu_attend *a);
    void (*decode)(const cpu_decode *a);
    void (*attend_grad)(const cpu_attend_grad *a);
    /* y[n] = table[n] * scale and the like: elementwise over n. */
    void (*scaled)(float *y, const float *x, float scale, size_t n);
    void (*embed)(const xray_embedding *op, size_t first, size_t last);
    void (*axpby)(const xray_axpby *op, size_t first, size_t last);
    void (*fma)(float *y, const float *x, float scale, size_t n);
    void (*rmsnorm)(const xray_rmsnorm *op, size_t first, size_t last);
    void (*rmsnorm_dx)(const xray_rmsnorm_grad *op, size_t first, size_t last);
    void (*rmsnorm_dw)(const xray_rmsnorm_grad *op, size_t tokens,
                       const size_t *columns);
    void (*layernorm)(const xray_layernorm *op, size_t first, size_t last);
    void (*layernorm_dx)(const xray_layernorm_grad *op, size_t first,
                         size_t last);
    void (*layernorm_dw)(const xray_layernorm_grad *op, size_t tokens,
                         const size_t *columns);
    void (*rope)(const xray_rope *op, size_t first, size_t last);
    void (*glu)(const xray_glu *op, size_t first, size_t last);
    void (*activate)(const cpu_activation *a);
    void (*glu_grad)(const xray_glu_grad *op, size_t first, size_t last);
    void (*bias_grad)(float *db, const float *dy, size_t stride, size_t tokens,
                      size_t n);
    /* Softcaps the n logits z in place. */
    void (*softcap)(float *z, float cap, size_t n);
    void (*divide)(float *y, const float *x, float by, size_t n);
    /* In segments of `segment` logits; 0: of all. `top` is the maximum or
     * NULL. */
    void (*lse)(const float *z, size_t n, size_t segment, const float *top,
                cpu_lse *out);
    /* Replaces the logits z by their gradients. */
    void (*lm_head_dz)(float *z, size_t n, const cpu_dz *d);
    float (*log)(float x);
    void (*exp_row)(float *y, const float *z, float max, size_t n);
    size_t (*gumbel)(const float *z, size_t n, float floor,
                     const xray_draw *draw);
    size_t (*argmax)(const float *z, size_t n);
    float (*sum_from)(const float *e, const float *z, float floor, size_t n);
    /* Adds to words that are not carried. */
    void (*sumsq)(const float *x, size_t n, uint64_t *words);
    void (*adamw)(const xray_adamw *op, size_t first, size_t last);
    /* The functions of one lane, for tests. */
    void (*map)(uint32_t which, float *y, const float *x, size_t n);
} cpu_kernels;

#define CPU_MAP_EXP 1u
#define CPU_MAP_LOG 2u
#define CPU_MAP_TANH 3u

extern const cpu_kernels cpu_kernels_avx512;
extern const cpu_kernels cpu_kernels_avx2;
extern const cpu_kernels cpu_kernels_scalar;

/* The floats of `work` for rows of up to n keys. */
static inline size_t cpu_attend_grad_work(size_t n, size_t bound, size_t dim,
                                          int narrow)
{
    size_t wide = (n + 15) / 16 * 16;
    return 2 * CPU_GRAD_TILE * (wide + (narrow ? dim : 0)) + 2 * bound * dim +
           CPU_GRAD_TILE;
}

#endif
