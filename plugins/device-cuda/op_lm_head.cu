/* SPDX-License-Identifier: Apache-2.0
 *
 * The LM head on NVIDIA GPUs: log-probabilities of tokens from hidden states,
 * and their gradient. Logits exist for one chunk of items at a time, and the
 * trainer and the engine compute them with the same product.
 */
#include "plugins/device-cuda/lm_head.h"
#include "plugins/device-cuda/lm_head_rows.h"

/* ---- chunks of logits ---------------------------------------------------- */

xray_status lm_head_reserve(cuda_device *d, lm_head_chunk *c, int gradient)
{
    c->row = (c->vocab + 15) / 16 * 16;
    c->most = lm_head_chunk_items(c->row);
    /* Enough for any number of items, so that a later call never needs more. */
    uint64_t logits = c->kept ? 0 : c->most * c->row * sizeof(float);
    int narrow = d->precision == CUDA_BFLOAT16;
    uint64_t slopes = narrow && gradient
                          ? c->most * product_row(c->vocab) * sizeof(uint16_t)
                          : 0;
    char *base = NULL;
    if (logits + slopes > 0) {
        void *data = NULL;
        xray_status status =
            cuda_scratch(d, CUDA_SCRATCH_LOGITS, logits + slopes, &data);
        if (status != XRAY_OK)
            return status;
        base = (char *)data;
    }
    c->z = (float *)(void *)base;
    c->dz = slopes ? (uint16_t *)(void *)(base + logits) : NULL;
    if (!narrow || !c->weight)
        return XRAY_OK;
    uint64_t cols = c->weight->cols;
    if (product_in_place(c->x, cols, cols, c->x_dtype))
        return XRAY_OK;
    void *x = NULL;
    xray_status status = cuda_scratch(
        d, CUDA_SCRATCH_X, c->most * product_row(cols) * sizeof(uint16_t), &x);
    c->x_low = (uint16_t *)x;
    return status;
}

int lm_head_next_chunk(lm_head_chunk *c, uint64_t n)
{
    c->first += c->count;
    if (c->first >= n)
        return 0;
    c->count = n - c->first < c->most ? n - c->first : c->most;
    if (c->kept)
        c->z = c->kept + c->first * c->row;
    return 1;
}

xray_status lm_head_round_x(cuda_device *d, cudaStream_t stream,
                            lm_head_chunk *c)
{
    if (!c->x_low)
        return XRAY_OK;
    product_rounding r = {};
    r.x = product_element(c->x, c->first * c->weight->cols, c->x_dtype);
    r.to = c->x_low;
    r.live = c->live;
    r.x_row = c->weight->cols;
    r.rows = (uint32_t)c->count;
    r.width = (uint32_t)c->weight->cols;
    r.dtype = c->x_dtype;
    r.live_from = (uint32_t)c->first;
    return product_round(d, stream, c->where, &r);
}

/* Gives x of the chunk as an operand. */
static void set_operand_x(const lm_head_chunk *c, const void **out,
                          uint64_t *out_row)
{
    uint64_t cols = c->weight->cols;
    *out = c->x_low ? c->x_low
                    : product_element(c->x, c->first * cols, c->x_dtype);
    *out_row = c->x_low ? product_row(cols) : cols;
}

/* Gives dz of the chunk as an operand. */
static void set_operand_dz(const cuda_device *d, const lm_head_chunk *c,
                           const void **out, uint64_t *out_row)
{
    int narrow = d->precision == CUDA_BFLOAT16;
    *out = narrow ? (const void *)c->dz : (const void *)c->z;
    *out_row = narrow ? product_row(c->weight->rows) : c->row;
}

static xray_status run_lm_head_product(cuda_device *d, cudaStream_t stream,
                                       const char *where, const product_gemm *g)
{
    return d->precision == CUDA_FLOAT32
               ? product_chain(d, stream, where, g, PRODUCT_AUTO)
               : product_narrow(d, stream, where, g);
}

/* The part that all products with the matrix have in common. */
static xray_status make_lm_head_gemm(cuda_device *d, cudaStream_t stream,
                                     const lm_head_chunk *c, product_gemm *g)
{
    *g = product_gemm{};
    g->live = c->live;
    g->live_from = (uint32_t)c->first;
    g->m = (uint32_t)c->count;
    return product_set_matrix(d, stream, c->where, c->weight, g);
}

xray_status lm_head_logits(cuda_device *d, cudaStream_t stream,
                           lm_head_chunk *c)
{
    product_gemm g;
    xray_status status = product_check_use(d, c->where, c->weight, XRAY_USE_NT);
    if (status == XRAY_OK)
        status = make_lm_head_gemm(d, stream, c, &g);
    if (status != XRAY_OK)
        return status;
    set_operand_x(c, &g.a, &g.a_row);
    g.narrow = c->x_dtype == XRAY_BF16 ? PRODUCT_NARROW_A : 0;
    g.c = c->z;
    g.c_row = c->row;
    g.form = PRODUCT_NT;
    g.n = (uint32_t)c->weight->rows;
    g.k = (uint32_t)c->weight->cols;
    return run_lm_head_product(d, stream, c->where, &g);
}

/* ---- log-probabilities --------------------------------------------------- */

typedef struct lm_head_out {
    const float *z;
    uint64_t row;
    uint64_t first;
    const int32_t *live;
    const int32_t *targets;
    const float *temperature;
    float *logp;
    float *entropy;
    float *lse;
    float *partial;
    const float *top;
    uint64_t vocab_first;
    uint32_t vocab;
    uint32_t segment; /* as in logit_row */
    float softcap;
} lm_head_out;

CU_FN logit_row get_logit_row(const lm_head_out *o, uint64_t item)
{
    logit_row r = { o->z + blockIdx.x * o->row, o->vocab, o->segment,
                    o->softcap, o->temperature ? o->temperature[item] : 1.0f };
    return r;
}

/* One block per item, and two on a multiprocessor. It reads the item's logits
 * twice, 8 bytes with 4 and 31 instructions of a thread, so with enough items
 * it is bound by memory. */
__global__ void __launch_bounds__(LM_HEAD_THREADS, 2)
    lm_head_rows_kernel(lm_head_out o)
{
    __shared__ logit_shared shared;
    uint64_t i = o.first + blockIdx.x;
    if (!lm_head_item_exists(o.live, i))
        return;
    logit_row r = get_logit_row(&o, i);
    logit_sum h = { o.top ? o.top[i] : logit_row_max(&shared, &r), 0.0f, 0.0f };
    float sum;
    float moment;
    sum_logits<LM_HEAD_MOMENT>(&shared, &r, &h, &sum, &moment);
    if (threadIdx.x != 0)
        return;
    uint64_t at = (uint64_t)(int64_t)o.targets[i] - o.vocab_first;
    int in = o.targets[i] >= 0 && at < o.vocab;
    float z = in ? logit_value(&r, r.z[at]) : 0.0f;
    if (o.partial) {
        float *to = o.partial + 4 * i;
        to[0] = h.max;
        to[1] = sum;
        to[2] = moment;
        to[3] = z;
        return;
    }
    float log_sum = cu_log(sum);
    /* A target outside of the vocabulary has no log-probability. */
    o.logp[i] = in ? (z - h.max) - log_sum : cu_float(0x7fc00000u);
    if (o.entropy)
        o.entropy[i] = log_sum - moment / sum;
    if (o.lse)
        o.lse[i] = h.max + log_sum;
}

static lm_head_out make_logp_args(const xray_lm_head_logp *op,
                                  const lm_head_chunk *c)
{
    lm_head_out o = {};
    o.z = c->z;
    o.row = c->row;
    o.first = c->first;
    o.live = op->items.live;
    o.targets = op->targets;
    o.temperature = op->temperature;
    o.logp = op->logp;
    o.entropy = op->entropy;
    o.lse = op->lse;
    o.partial = op->partial;
    o.top = op->top;
    o.vocab_first = op->vocab_first;
    o.vocab = (uint32_t)op->weight->rows;
    o.segment = cut_row(op->weight->rows, op->segment);
    o.softcap = op->softcap;
    return o;
}

static lm_head_chunk make_chunk(const xray_lm_head_logp *op, const char *where)
{
    lm_head_chunk c = {};
    c.where = where;
    c.weight = op->weight;
    c.vocab = op->weight->rows;
    c.x = op->x;
    c.x_dtype = product_type(op->x_dtype);
    c.live = op->items.live;
    c.kept = op->logits;
    return c;
}

xray_status cuda_lm_head_logp(void *self, xray_stream *stream,
                              const xray_lm_head_logp *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "lm_head_logp", op->weight, op->kept ? op->logits : op->x,
               op->targets, op->partial ? op->partial : op->logp);
    XR_CHECK_OPERANDS(d->host, "lm_head_logp", XR_OPERAND(op, x));
    cudaStream_t s = cuda_stream(d, stream);
    lm_head_chunk c = make_chunk(op, "lm_head_logp");
    xray_status status =
        cuda_check_segment(d, c.where, op->weight->rows, op->segment);
    if (status == XRAY_OK)
        status = lm_head_reserve(d, &c, 0);
    while (status == XRAY_OK && lm_head_next_chunk(&c, op->items.bound)) {
        if (!op->kept)
            status = lm_head_round_x(d, s, &c);
        if (!op->kept && status == XRAY_OK)
            status = lm_head_logits(d, s, &c);
        if (status != XRAY_OK)
            break;
        CU_LAUNCH(lm_head_rows_kernel, dim3((unsigned)c.count),
                  count_row_threads(op->weight->rows), 0, s,
                  make_logp_args(op, &c));
        status = cuda_launched(d, "lm_head_logp");
    }
    return status;
}

/* ---- gradient ------------------------------------------------------------ */

typedef struct lm_head_slope {
    lm_head_out forward;
    float *z;
    uint16_t *dz; /* bfloat16 */
    uint64_t dz_row;
    const float *dlogp;
    const float *dentropy;
} lm_head_slope;

/* dz = dlogp 1[target] - p (dlogp + dH (log p + H)), taken back through
 * temperature and softcap to the logit. */
typedef struct slope_point {
    logit_row row;
    float lse;
    float entropy;
    float dlogp;
    float dentropy;
} slope_point;

CU_FN float slope_at(const slope_point *p, float z, int target)
{
    float c = z;
    float u = 0.0f;
    if (p->row.softcap != 0.0f) {
        c = p->row.softcap * cu_tanh(c / p->row.softcap);
        u = c / p->row.softcap;
    }
    if (p->row.temperature != 1.0f)
        c = c / p->row.temperature;
    float logp = c - p->lse;
    float prob = cu_exp(logp);
    float seen = 0.0f < prob ? logp : 0.0f;
    float w = fmaf(p->dentropy, seen + p->entropy, p->dlogp);
    float dz = (target ? p->dlogp : 0.0f) - prob * w;
    if (p->row.temperature != 1.0f)
        dz = dz / p->row.temperature;
    if (p->row.softcap != 0.0f)
        dz = dz * fmaf(-u, u, 1.0f);
    return dz;
}

/* Bound by memory: each logit is read once, and its gradient replaces it or is
 * written as bf16 next to it. A thread does eight. */
__global__ void __launch_bounds__(256) lm_head_slopes_kernel(lm_head_slope s)
{
    uint64_t item = s.forward.first + blockIdx.x;
    uint32_t first = (blockIdx.y * 256 + threadIdx.x) * 8;
    if (!lm_head_item_exists(s.forward.live, item) || first >= s.forward.vocab)
        return;
    slope_point p = { get_logit_row(&s.forward, item), s.forward.lse[item],
                      s.forward.entropy ? s.forward.entropy[item] : 0.0f,
                      s.dlogp[item], s.dentropy ? s.dentropy[item] : 0.0f };
    int64_t target =
        (int64_t)s.forward.targets[item] - (int64_t)s.forward.vocab_first;
    float *z = s.z + blockIdx.x * s.forward.row + first;
    float v[8];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float4 q = *(const float4 *)(const void *)(z + 4 * h);
        v[4 * h] = q.x;
        v[4 * h + 1] = q.y;
        v[4 * h + 2] = q.z;
        v[4 * h + 3] = q.w;
    }
#pragma unroll
    for (uint32_t j = 0; j < 8; j++)
        v[j] = first + j < s.forward.vocab
                   ? slope_at(&p, v[j], (int64_t)(first + j) == target)
                   : 0.0f;
    if (s.dz) {
        uint16_t *to = s.dz + blockIdx.x * s.dz_row + first;
        *(uint4 *)(void *)to =
            make_uint4(cu_pack_bf16(v[0], v[1]), cu_pack_bf16(v[2], v[3]),
                       cu_pack_bf16(v[4], v[5]), cu_pack_bf16(v[6], v[7]));
        return;
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        *(float4 *)(void *)(z + 4 * h) =
            make_float4(v[4 * h], v[4 * h + 1], v[4 * h + 2], v[4 * h + 3]);
}

static xray_status launch_slopes(cuda_device *d, cudaStream_t stream,
                                 const xray_lm_head_grad *op,
                                 const lm_head_chunk *c)
{
    lm_head_slope s = {};
    s.forward = make_logp_args(op->forward, c);
    s.z = c->z;
    s.dz = c->dz;
    s.dz_row = product_row(c->weight->rows);
    s.dlogp = op->dlogp;
    s.dentropy = op->dentropy;
    unsigned across = (unsigned)((c->weight->rows + 2047) / 2048);
    CU_LAUNCH(lm_head_slopes_kernel, dim3((unsigned)c->count, across), 256, 0,
              stream, s);
    return cuda_launched(d, "lm_head_grad");
}

/* Computes dx and dweight of the chunk whose dz is in place. */
static xray_status run_grad_products(cuda_device *d, cudaStream_t stream,
                                     const xray_lm_head_grad *op,
                                     const lm_head_chunk *c)
{
    product_gemm g;
    xray_status status = make_lm_head_gemm(d, stream, c, &g);
    if (status != XRAY_OK)
        return status;
    uint64_t cols = c->weight->cols;
    set_operand_dz(d, c, &g.a, &g.a_row);
    g.c = op->dx + c->first * cols;
    g.c_row = cols;
    g.form = PRODUCT_NN;
    g.n = (uint32_t)cols;
    g.k = (uint32_t)c->weight->rows;
    g.piece[0] = cut_row(g.k, op->forward->segment);
    g.segments = g.piece[0] ? (uint8_t)((g.k - 1) / g.piece[0] + 1) : 0;
    status = run_lm_head_product(d, stream, c->where, &g);
    if (status != XRAY_OK || !op->dweight)
        return status;
    set_operand_x(c, &g.b, &g.b_row);
    g.b_dtype = (uint8_t)c->x_dtype;
    g.c = op->dweight;
    g.segments = 0;
    g.piece[0] = 0;
    g.form = PRODUCT_TN;
    g.m = (uint32_t)c->weight->rows;
    g.k = (uint32_t)c->count;
    g.from = g.c;
    g.from_row = g.c_row;
    return run_lm_head_product(d, stream, c->where, &g);
}

static xray_status add_chunk_grads(cuda_device *d, cudaStream_t stream,
                                   const xray_lm_head_grad *op,
                                   lm_head_chunk *c)
{
    xray_status status = lm_head_round_x(d, stream, c);
    if (status == XRAY_OK && !c->kept)
        status = lm_head_logits(d, stream, c);
    if (status == XRAY_OK)
        status = launch_slopes(d, stream, op, c);
    return status == XRAY_OK ? run_grad_products(d, stream, op, c) : status;
}

xray_status cuda_lm_head_grad(void *self, xray_stream *stream,
                              const xray_lm_head_grad *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "lm_head_grad", op->forward, op->dlogp, op->dx);
    const xray_lm_head_logp *f = op->forward;
    CUDA_CHECK(d, f, "lm_head_grad", f->weight, f->x, f->targets, f->lse);
    XR_CHECK_OPERANDS(d->host, "lm_head_grad", XR_OPERAND(f, x));
    xray_status used =
        product_check_use(d, "lm_head_grad", f->weight, XRAY_USE_NN);
    if (used == XRAY_OK && op->dweight)
        used = product_check_use(d, "lm_head_grad", f->weight, XRAY_USE_TN);
    if (used != XRAY_OK)
        return used;
    if (op->dentropy && !f->entropy)
        return cuda_fail(d, XRAY_E_ARG, "lm_head_grad",
                         "dentropy is given, but the forward call did not keep "
                         "entropy");
    lm_head_chunk c = make_chunk(f, "lm_head_grad");
    xray_status status =
        cuda_check_segment(d, c.where, f->weight->rows, f->segment);
    if (status == XRAY_OK)
        status = lm_head_reserve(d, &c, 1);
    while (status == XRAY_OK && lm_head_next_chunk(&c, f->items.bound))
        status = add_chunk_grads(d, cuda_stream(d, stream), op, &c);
    return status;
}
