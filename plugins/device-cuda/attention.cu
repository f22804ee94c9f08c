/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention operators on NVIDIA GPUs: they check arguments, convert
 * operands to the precision of the instance, store new keys and values in the
 * cache, and launch the kernels.
 *
 * A block of the cache holds K of all kv heads as
 * [kv_heads][block_tokens][dim], then V in the same order, so that decoding
 * reads the keys of a head from adjacent memory. An instance in bfloat16 stores
 * K and V as bf16, in which its products read them, even if F32 was requested;
 * dim is then rounded up to a multiple of 8. In float32 a cache of bf16 is for
 * bf16 activations.
 */
#include "plugins/device-cuda/attention.h"
#include "plugins/device-cuda/rows.h"

#define THREADS 256u

static uint32_t round_up_to_8(uint32_t n)
{
    return (n + 7) / 8 * 8;
}

/* Checks the number and dimension of heads, for all three operators. */
static xray_status check_heads(const cuda_device *d, const char *where,
                               uint32_t heads, uint32_t kv_heads,
                               uint32_t head_dim)
{
    if (heads == 0 || kv_heads == 0 || head_dim == 0 || heads % kv_heads != 0)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "%u heads cannot share %u kv heads of dimension %u",
                         heads, kv_heads, head_dim);
    if (head_dim > ATTEND_DIM_MOST)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, where,
                         "heads of dimension %u: at most %u are supported",
                         head_dim, ATTEND_DIM_MOST);
    return XRAY_OK;
}

/* Checks the heads, strides and sizes of a packed batch. */
static xray_status check_packed_batch(const cuda_device *d, const char *where,
                                      const xray_attention *op)
{
    xray_status s =
        check_heads(d, where, op->heads, op->kv_heads, op->head_dim);
    if (s != XRAY_OK)
        return s;
    uint64_t q = (uint64_t)op->heads * op->head_dim;
    uint64_t kv = (uint64_t)op->kv_heads * op->head_dim;
    if (op->q_stride < q || op->o_stride < q || op->k_stride < kv ||
        op->v_stride < kv)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "a stride is shorter than a token");
    if (op->tokens.bound >= 0x7fffffffu || op->rows >= 0x7fffffffu)
        return cuda_fail(d, XRAY_E_RANGE, where,
                         "%llu tokens are too many for a call",
                         (unsigned long long)op->tokens.bound);
    if (!op->query_start)
        return XRAY_OK;
    if (op->parent)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "query_start and parent are both given, but only rows "
                         "without a parent may have fewer queries than keys");
    if (!op->query_first)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "query_first is NULL, but query_start is given");
    if (op->queries.bound >= 0x7fffffffu)
        return cuda_fail(d, XRAY_E_RANGE, where,
                         "%llu queries are too many for a call",
                         (unsigned long long)op->queries.bound);
    return XRAY_OK;
}

static attend_args make_attend_args(const xray_attention *op)
{
    attend_args a = {};
    a.q = op->q;
    a.o = op->o;
    a.lse = op->lse;
    a.dtype = a.kv_dtype = op->dtype ? op->dtype : XRAY_F32;
    a.k = op->k;
    a.v = op->v;
    a.row_start = op->row_start;
    a.parent = op->parent;
    a.query_start = op->query_start ? op->query_start : op->row_start;
    a.query_first = op->query_start ? op->query_first : NULL;
    a.tokens = op->tokens.bound;
    a.queries = op->query_start ? op->queries.bound : a.tokens;
    a.q_stride = op->q_stride;
    a.o_stride = op->o_stride;
    a.k_stride = op->k_stride;
    a.v_stride = op->v_stride;
    a.head_step = op->head_dim;
    a.rows = (uint32_t)op->rows;
    a.heads = op->heads;
    a.kv_heads = op->kv_heads;
    a.group = op->heads / op->kv_heads;
    a.dim = op->head_dim;
    a.dim8 = round_up_to_8(op->head_dim);
    a.window = op->window;
    a.scale = op->scale;
    a.softcap = op->softcap;
    a.splits = (uint32_t)((op->row_bound + ATTEND_SPLIT - 1) / ATTEND_SPLIT);
    return a;
}

/* ---- operands in bf16 ---------------------------------------------------- */

/* Whether kernels can read bf16 where it is: 16 bytes at a time, and heads side
 * by side. */
static int are_pieces(const attend_args *a, const void *x, uint64_t stride)
{
    return a->dtype == XRAY_BF16 && (uintptr_t)x % 16 == 0 && stride % 8 == 0 &&
           a->dim % 8 == 0;
}

/* y[t, h, 0 .. dim8) = x[t, h, 0 .. dim) as bf16, zero-padded; tokens of x are
 * x_stride apart. One thread per eight values. */
template <typename T>
__global__ void round_heads_kernel(uint16_t *y, const T *x, uint64_t x_stride,
                                   uint64_t pieces, uint32_t heads,
                                   uint32_t dim)
{
    uint32_t per = (dim + 7) / 8;
    uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= pieces)
        return;
    uint32_t c = (uint32_t)(i % per) * 8;
    uint64_t th = i / per;
    const T *from = x + th / heads * x_stride + th % heads * dim + c;
    *reinterpret_cast<uint4 *>(y + i * 8) = attend_piece(from, dim - c);
}

static void round_heads(cudaStream_t stream, uint16_t *y, const void *x,
                        uint32_t dtype, uint64_t stride, const attend_args *a,
                        uint64_t tokens, uint32_t heads)
{
    uint64_t pieces = tokens * heads * (a->dim8 / 8);
    if (pieces == 0)
        return;
    uint32_t blocks = (uint32_t)((pieces + THREADS - 1) / THREADS);
    rows_as(dtype, [&](auto type) {
        typedef decltype(type) T;
        CU_LAUNCH(round_heads_kernel<T>, blocks, THREADS, 0, stream, y,
                  static_cast<const T *>(x), stride, pieces, heads, a->dim);
    });
}

/* The bf16 copies of keys and values that a packed batch needs, in values. */
static uint64_t count_key_copies(const attend_args *a)
{
    int direct =
        are_pieces(a, a->k, a->k_stride) && are_pieces(a, a->v, a->v_stride);
    return direct ? 0 : 2 * a->tokens * a->kv_heads * a->dim8;
}

/* Lets `a` refer to keys and values in bf16: where they are, or in copies at
 * `to`, of which there are `copies` values. */
static void round_keys(cudaStream_t stream, attend_args *a, uint16_t *to,
                       uint64_t copies)
{
    if (copies > 0) {
        uint16_t *v = to + copies / 2;
        round_heads(stream, to, a->k, a->dtype, a->k_stride, a, a->tokens,
                    a->kv_heads);
        round_heads(stream, v, a->v, a->dtype, a->v_stride, a, a->tokens,
                    a->kv_heads);
        a->k = to;
        a->v = v;
        a->k_stride = a->v_stride = (uint64_t)a->kv_heads * a->dim8;
    }
    a->head_step = a->dim8;
    a->kv_dtype = XRAY_BF16;
}

extern "C" xray_status cuda_attention(void *self, xray_stream *stream,
                                      const xray_attention *op)
{
    cuda_device *d = static_cast<cuda_device *>(self);
    const char *where = "attention";
    CUDA_CHECK(d, op, where, op->row_start, op->q, op->k, op->v, op->o);
    XR_CHECK_OPERANDS(d->host, where, { "q", op->q, op->dtype });
    xray_status s = check_packed_batch(d, where, op);
    if (s != XRAY_OK || op->rows == 0 || op->tokens.bound == 0)
        return s;
    attend_args a = make_attend_args(op);
    cudaStream_t on = cuda_stream(d, stream);
    if (d->precision == CUDA_FLOAT32)
        return attend_forward_f32(d, on, where, &a);
    uint64_t copies = count_key_copies(&a);
    void *scratch = NULL;
    if (copies > 0)
        s = cuda_scratch(d, CUDA_SCRATCH_ATTEND, copies * sizeof(uint16_t),
                         &scratch);
    if (s != XRAY_OK)
        return s;
    round_keys(on, &a, static_cast<uint16_t *>(scratch), copies);
    return attend_forward_bf16(d, on, where, &a);
}

/* ---- gradient ------------------------------------------------------------ */

/* delta[t, h] = dot16(d_o, o). With ROUND, d_o is rounded to bf16 first, as it
 * is in the matrix products. Half a warp computes one head: lane l sums the
 * products l, l + 16, ..., and the tree of dot16 adds the lanes. */
template <bool ROUND, typename T>
__global__ void attend_delta(float *delta, const attend_args a)
{
    uint64_t i = ((uint64_t)blockIdx.x * THREADS + threadIdx.x) / 16;
    uint32_t lane = threadIdx.x % 16;
    uint64_t items = a.queries * a.heads;
    float s = 0.0f;
    if (i < items) {
        uint64_t at = i / a.heads * a.o_stride + i % a.heads * a.dim;
        for (uint32_t e = lane; e < a.dim; e += 16) {
            float g = a.d_o[at + e];
            if (ROUND)
                g = cu_from_bf16(cu_to_bf16(g));
            s = fmaf(g, cu_load1(static_cast<const T *>(a.o) + at + e), s);
        }
    }
    s = cu_half_tree16(s);
    if (i < items && lane == 0)
        delta[i] = s;
}

static uint64_t count_delta_bytes(const attend_args *a)
{
    return (a->queries * a->heads * sizeof(float) + 255) / 256 * 256;
}

template <bool ROUND>
static void launch_delta(cudaStream_t on, attend_args *a, void *delta)
{
    /* One block at least: there may be no queries, and dk and dv become 0. */
    uint32_t blocks = (uint32_t)(a->queries * a->heads * 16 / THREADS) + 1;
    float *to = static_cast<float *>(delta);
    a->delta = to;
    rows_as(a->dtype, [&](auto type) {
        CU_LAUNCH((attend_delta<ROUND, decltype(type)>), blocks, THREADS, 0, on,
                  to, *a);
    });
}

static xray_status start_grad_f32(cuda_device *d, cudaStream_t on,
                                  const char *where, attend_args *a)
{
    void *scratch = NULL;
    xray_status s =
        cuda_scratch(d, CUDA_SCRATCH_ATTEND, count_delta_bytes(a), &scratch);
    if (s != XRAY_OK)
        return s;
    launch_delta<false>(on, a, scratch);
    return attend_grad_f32(d, on, where, a);
}

/* Scratch has delta, then the sums of heads that share a key, then d_o in bf16
 * and copies of what bf16 kernels cannot read where it is. */
static xray_status start_grad_bf16(cuda_device *d, cudaStream_t on,
                                   const char *where, attend_args *a)
{
    uint64_t values = a->queries * a->heads * a->dim8;
    uint64_t q_copies = are_pieces(a, a->q, a->q_stride) ? 0 : values;
    uint64_t key_copies = count_key_copies(a);
    uint64_t delta_bytes = count_delta_bytes(a);
    uint64_t sums = attend_grad_bytes(a->tokens, a->kv_heads, a->group, a->dim);
    void *scratch = NULL;
    xray_status s =
        cuda_scratch(d, CUDA_SCRATCH_ATTEND,
                     delta_bytes + sums +
                         (values + q_copies + key_copies) * sizeof(uint16_t),
                     &scratch);
    if (s != XRAY_OK)
        return s;
    launch_delta<true>(on, a, scratch);
    unsigned char *after = static_cast<unsigned char *>(scratch) + delta_bytes;
    a->partial = reinterpret_cast<float *>(after);
    uint16_t *d_o = reinterpret_cast<uint16_t *>(after + sums);
    uint16_t *q = d_o + values;
    round_heads(on, d_o, a->d_o, XRAY_F32, a->o_stride, a, a->queries,
                a->heads);
    if (q_copies > 0)
        round_heads(on, q, a->q, a->dtype, a->q_stride, a, a->queries,
                    a->heads);
    round_keys(on, a, q + q_copies, key_copies);
    a->q_narrow = q_copies > 0 ? q : static_cast<const uint16_t *>(a->q);
    a->q_narrow_stride =
        q_copies > 0 ? (uint64_t)a->heads * a->dim8 : a->q_stride;
    a->d_narrow = d_o;
    return attend_grad_bf16(d, on, where, a);
}

/* Checks the forward arguments of a gradient, and its own strides. */
static xray_status check_grad_batch(const cuda_device *d, const char *where,
                                    const xray_attention_grad *op)
{
    const xray_attention *f = op->forward;
    CUDA_CHECK(d, f, where, f->row_start, f->q, f->k, f->v, f->o, f->lse);
    XR_CHECK_OPERANDS(d->host, where, { "q", f->q, f->dtype });
    xray_status s = check_packed_batch(d, where, f);
    if (s != XRAY_OK)
        return s;
    uint64_t kv = (uint64_t)f->kv_heads * f->head_dim;
    if (op->dq_stride < (uint64_t)f->heads * f->head_dim ||
        op->dk_stride < kv || op->dv_stride < kv)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "a stride is shorter than a token");
    return XRAY_OK;
}

extern "C" xray_status cuda_attention_grad(void *self, xray_stream *stream,
                                           const xray_attention_grad *op)
{
    cuda_device *d = static_cast<cuda_device *>(self);
    const char *where = "attention_grad";
    CUDA_CHECK(d, op, where, op->forward, op->d_o, op->dq, op->dk, op->dv);
    xray_status s = check_grad_batch(d, where, op);
    if (s != XRAY_OK || op->forward->rows == 0 ||
        op->forward->tokens.bound == 0)
        return s;
    attend_args a = make_attend_args(op->forward);
    a.d_o = op->d_o;
    a.dq = op->dq;
    a.dk = op->dk;
    a.dv = op->dv;
    a.dq_stride = op->dq_stride;
    a.dk_stride = op->dk_stride;
    a.dv_stride = op->dv_stride;
    if (d->precision == CUDA_FLOAT32)
        return start_grad_f32(d, cuda_stream(d, stream), where, &a);
    return start_grad_bf16(d, cuda_stream(d, stream), where, &a);
}

/* ---- cache --------------------------------------------------------------- */

static int kv_is_supported(const xray_kv *kv)
{
    return kv->dtype <= XRAY_BF16 && kv->block_tokens != 0 &&
           kv->block_tokens % 16 == 0 && kv->head_dim != 0 &&
           kv->head_dim <= ATTEND_DIM_MOST;
}

static xray_status refuse_kv(const cuda_device *d, const char *where)
{
    return cuda_fail(
        d, XRAY_E_UNSUPPORTED, where,
        "blocks must hold F32 or BF16, a multiple of 16 positions, "
        "and heads of dimension %u at most",
        ATTEND_DIM_MOST);
}

/* Returns the type in which a cache holds keys and values. */
static uint32_t get_kv_dtype(int64_t precision, const xray_kv *kv)
{
    return precision == CUDA_BFLOAT16 || kv->dtype == XRAY_BF16 ? XRAY_BF16
                                                                : XRAY_F32;
}

/* Returns the number of values from one key of a head to the next. */
static uint32_t get_key_stride(int64_t precision, const xray_kv *kv)
{
    return precision == CUDA_BFLOAT16 ? round_up_to_8(kv->head_dim)
                                      : kv->head_dim;
}

/* Returns the number of values of K in a block; V has as many. */
static uint64_t count_k_values(int64_t precision, const xray_kv *kv)
{
    return (uint64_t)kv->kv_heads * kv->block_tokens *
           get_key_stride(precision, kv);
}

static uint64_t count_block_bytes(int64_t precision, const xray_kv *kv)
{
    return 2 * count_k_values(precision, kv) *
           (get_kv_dtype(precision, kv) == XRAY_BF16 ? sizeof(uint16_t)
                                                     : sizeof(float));
}

extern "C" uint64_t cuda_plan_kv_block(const void *config, const xray_kv *kv)
{
    cuda_config c = cuda_copy_config(config);
    if (!kv || kv->header.size < sizeof(*kv) || !kv_is_supported(kv))
        return 0;
    return count_block_bytes(c.precision, kv);
}

extern "C" uint64_t cuda_kv_block_bytes(void *self, const xray_kv *kv)
{
    const cuda_device *d = static_cast<const cuda_device *>(self);
    if (!kv || !kv_is_supported(kv)) {
        (void)refuse_kv(d, "kv_block_bytes");
        return 0;
    }
    return count_block_bytes(d->precision, kv);
}

/* Stores keys and values of new tokens in their blocks. One thread block per
 * token. */
template <typename T, typename X>
__global__ void kv_store(const attend_args a, T *blocks, const X *k, const X *v,
                         uint64_t k_row, uint64_t v_row)
{
    uint64_t t = blockIdx.x;
    if (t >= cu_count(a.tokens, a.live))
        return;
    uint32_t row = (uint32_t)a.k_stride;
    uint32_t position = (uint32_t)a.positions[t];
    uint32_t inside = position % a.block_tokens;
    uint64_t b = (uint64_t)(uint32_t)a.seq[t] * a.table_stride +
                 position / a.block_tokens;
    if (a.table)
        b = (uint32_t)a.table[b];
    T *to_k = blocks + b * a.block_step + (uint64_t)inside * row;
    T *to_v = to_k + a.block_step / 2;
    for (uint32_t i = threadIdx.x; i < a.kv_heads * row; i += blockDim.x) {
        uint32_t h = i / row;
        uint32_t e = i % row;
        uint64_t from = (uint64_t)h * a.dim + e;
        uint64_t at = h * a.head_step + e;
        cu_put1(to_k + at, e < a.dim ? cu_load1(k + t * k_row + from) : 0.0f);
        cu_put1(to_v + at, e < a.dim ? cu_load1(v + t * v_row + from) : 0.0f);
    }
}

static xray_status check_kv(const cuda_device *d, const char *where,
                            const xray_attention_kv *op)
{
    const xray_kv *kv = op->kv;
    xray_status s =
        check_heads(d, where, op->heads, kv->kv_heads, kv->head_dim);
    if (s != XRAY_OK)
        return s;
    if (!kv_is_supported(kv))
        return refuse_kv(d, where);
    if (d->precision == CUDA_FLOAT32 && kv->dtype == XRAY_BF16 &&
        op->dtype != XRAY_BF16)
        return cuda_fail(d, XRAY_E_UNSUPPORTED, where,
                         "a cache of BF16 would round keys and values of F32; "
                         "they must be BF16, too");
    uint64_t q = (uint64_t)op->heads * kv->head_dim;
    uint64_t width = (uint64_t)kv->kv_heads * kv->head_dim;
    if (op->q_stride < q || op->o_stride < q || op->k_stride < width ||
        op->v_stride < width)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "a stride is shorter than a token");
    if (op->tokens.bound >= 0x7fffffffu || op->position_bound > 0x7fffffffu)
        return cuda_fail(
            d, XRAY_E_RANGE, where,
            "%llu tokens at up to %llu positions are too many for a call",
            (unsigned long long)op->tokens.bound,
            (unsigned long long)op->position_bound);
    return XRAY_OK;
}

static attend_args make_kv_args(const cuda_device *d,
                                const xray_attention_kv *op)
{
    const xray_kv *kv = op->kv;
    attend_args a = {};
    a.q = op->q;
    a.o = op->o;
    a.dtype = op->dtype ? op->dtype : XRAY_F32;
    a.kv_dtype = get_kv_dtype(d->precision, kv);
    a.seq = op->seq;
    a.positions = op->positions;
    a.live = op->tokens.live;
    a.table = kv->table;
    a.tokens = op->tokens.bound;
    a.q_stride = op->q_stride;
    a.o_stride = op->o_stride;
    a.k_stride = a.v_stride = get_key_stride(d->precision, kv);
    a.head_step = (uint64_t)kv->block_tokens * a.k_stride;
    a.block_step = 2 * count_k_values(d->precision, kv);
    a.table_stride = kv->table_stride;
    a.block_tokens = kv->block_tokens;
    a.per_block = UINT64_MAX / kv->block_tokens + 1;
    a.heads = op->heads;
    a.kv_heads = kv->kv_heads;
    a.group = op->heads / kv->kv_heads;
    a.dim = kv->head_dim;
    a.dim8 = round_up_to_8(kv->head_dim);
    a.window = op->window;
    a.scale = op->scale;
    a.softcap = op->softcap;
    a.splits =
        (uint32_t)((op->position_bound + ATTEND_SPLIT - 1) / ATTEND_SPLIT);
    return a;
}

extern "C" xray_status cuda_attention_kv(void *self, xray_stream *stream,
                                         const xray_attention_kv *op)
{
    cuda_device *d = static_cast<cuda_device *>(self);
    const char *where = "attention_kv";
    CUDA_CHECK(d, op, where, op->kv, op->seq, op->positions, op->q, op->k,
               op->v, op->o);
    CUDA_CHECK(d, op->kv, where, op->kv->blocks);
    XR_CHECK_OPERANDS(d->host, where, { "q", op->q, op->dtype });
    xray_status s = check_kv(d, where, op);
    if (s != XRAY_OK || op->tokens.bound == 0)
        return s;
    attend_args a = make_kv_args(d, op);
    cudaStream_t on = cuda_stream(d, stream);
    uint32_t width = a.kv_heads * (uint32_t)a.k_stride;
    uint32_t threads = width >= THREADS ? THREADS : (width + 31) / 32 * 32;
    rows_as(a.kv_dtype, [&](auto in_cache) {
        rows_as(a.dtype, [&](auto given) {
            typedef decltype(in_cache) T;
            typedef decltype(given) X;
            T *blocks = static_cast<T *>(op->kv->blocks);
            CU_LAUNCH((kv_store<T, X>), (uint32_t)a.tokens, threads, 0, on, a,
                      blocks, static_cast<const X *>(op->k),
                      static_cast<const X *>(op->v), op->k_stride,
                      op->v_stride);
            a.k = blocks;
            a.v = blocks + a.block_step / 2;
        });
    });
    return d->precision == CUDA_FLOAT32 ? attend_forward_f32(d, on, where, &a)
                                        : attend_forward_bf16(d, on, where, &a);
}
