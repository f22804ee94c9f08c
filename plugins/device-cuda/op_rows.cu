/* SPDX-License-Identifier: Apache-2.0
 *
 * Embedding, its gradient, and gather and scatter of rows on NVIDIA GPUs. All
 * but the gradient are bound by memory: a value is read once and written once,
 * in accesses of four values where rows allow it, so each should run near the
 * measured copy bandwidth.
 */
#include "plugins/device-cuda/rows.h"

/* ---- rows by index ------------------------------------------------------ */

/* y[t] = x[ids[t] - start] * scale, or y[ids[t] - start] = x[t] * scale with
 * Put, where values of x are rounded to the type of y first. The host does not
 * see the ids: a row read with an id outside of [start, start + limit) becomes
 * NaN, or -0 where x is a slice and the id not negative, and a row written with
 * one is left out. */
typedef struct move_args {
    const int32_t *ids;
    const void *x;
    void *y;
    const int32_t *live;
    uint64_t bound;
    uint64_t start;
    uint64_t limit;
    uint64_t dim;
    uint64_t step; /* columns per block */
    uint32_t chunks;
    uint32_t slice;
    float scale;
} move_args;

#define MOVE_EACH 4 /* groups of four per thread in flight */

/* One block per row and `step` columns. */
template <int Wide, typename X, typename Y, int Put>
__global__ void __launch_bounds__(ROWS_THREADS) move_kernel(move_args a)
{
    uint64_t t = blockIdx.x / a.chunks;
    if (t >= cu_count(a.bound, a.live))
        return;
    int32_t id = a.ids[t];
    uint64_t row = (uint64_t)id - a.start;
    int good = id >= 0 && row < a.limit;
    if (Put && !good)
        return;
    float none = a.slice && id >= 0 ? -0.0f : cu_nan();
    const X *x = (const X *)a.x + (Put ? t : row) * a.dim;
    Y *y = (Y *)a.y + (Put ? row : t) * a.dim;
    uint64_t first = blockIdx.x % a.chunks * a.step;
    uint64_t last = min(first + a.step, a.dim);
    uint64_t stride = (uint64_t)blockDim.x * 4;
    for (uint64_t c = first + threadIdx.x * 4; c < last;
         c += stride * MOVE_EACH) {
        cu_quad q[MOVE_EACH];
#pragma unroll
        for (int u = 0; u < MOVE_EACH; u++)
            if (good && c + u * stride < last)
                q[u] =
                    cu_load4<Wide>(x + c + u * stride, a.dim - c - u * stride);
#pragma unroll
        for (int u = 0; u < MOVE_EACH; u++)
            if (c + u * stride < last) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    q[u].f[i] =
                        good ? cu_rounded<Y>(q[u].f[i]) * a.scale : none;
                cu_put4<Wide>(y + c + u * stride, q[u], a.dim - c - u * stride);
            }
    }
}

static xray_status check_slice(const cuda_device *d, const char *where,
                               uint32_t slice)
{
    if (slice > 1)
        return cuda_fail(d, XRAY_E_ARG, where,
                         "slice is %u, but must be 0 or 1", slice);
    return XRAY_OK;
}

template <typename X, typename Y, int Put>
static void launch_move(cudaStream_t on, move_args a)
{
    rows_shape s = rows_cut((a.dim + 3) / 4, MOVE_EACH);
    a.step = s.step * 4;
    a.chunks = s.chunks;
    dim3 grid((unsigned)(a.bound * s.chunks));
    uint64_t odd = (uint64_t)(uintptr_t)a.x % (4 * sizeof(X)) +
                   (uint64_t)(uintptr_t)a.y % (4 * sizeof(Y));
    if (odd + a.dim % 4 == 0)
        CU_LAUNCH((move_kernel<1, X, Y, Put>), grid, s.threads, 0, on, a);
    else
        CU_LAUNCH((move_kernel<0, X, Y, Put>), grid, s.threads, 0, on, a);
}

extern "C" xray_status cuda_embedding(void *self, xray_stream *stream,
                                      const xray_embedding *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "embedding", op->ids, op->table, op->y);
    XR_CHECK_OPERANDS(d->host, "embedding", XR_OPERAND(op, table),
                      XR_OPERAND(op, y));
    xray_status status = check_slice(d, "embedding", op->slice);
    if (status != XRAY_OK || op->tokens.bound == 0 || op->dim == 0)
        return status;
    move_args a = {};
    a.ids = op->ids;
    a.x = op->table;
    a.y = op->y;
    a.live = op->tokens.live;
    a.bound = op->tokens.bound;
    a.start = op->vocab_first;
    a.limit = op->vocab;
    a.slice = op->slice;
    a.dim = op->dim;
    a.scale = op->scale;
    cudaStream_t on = cuda_stream(d, stream);
    rows_as(op->table_dtype, [&](auto x) {
        rows_as(op->y_dtype, [&](auto y) {
            launch_move<decltype(x), decltype(y), 0>(on, a);
        });
    });
    return cuda_launched(d, "embedding");
}

/* Moves rows between arrays of one type. */
template <int Put>
static xray_status move_rows(const cuda_device *d, xray_stream *stream,
                             const char *where, const xray_rows *op)
{
    CUDA_CHECK(d, op, where, op->index, op->x, op->y);
    XR_CHECK_OPERANDS(d->host, where, { "x", op->x, op->dtype });
    if (op->count.bound == 0 || op->dim == 0)
        return XRAY_OK;
    move_args a = {};
    a.ids = op->index;
    a.x = op->x;
    a.y = op->y;
    a.live = op->count.live;
    a.bound = op->count.bound;
    a.limit = INT32_MAX;
    a.dim = op->dim;
    a.scale = 1.0f;
    cudaStream_t on = cuda_stream(d, stream);
    rows_as(op->dtype,
            [&](auto x) { launch_move<decltype(x), decltype(x), Put>(on, a); });
    return cuda_launched(d, where);
}

extern "C" xray_status cuda_gather(void *self, xray_stream *stream,
                                   const xray_rows *op)
{
    return move_rows<0>((const cuda_device *)self, stream, "gather", op);
}

extern "C" xray_status cuda_scatter(void *self, xray_stream *stream,
                                    const xray_rows *op)
{
    return move_rows<1>((const cuda_device *)self, stream, "scatter", op);
}

/* ---- gradient of the embedding ------------------------------------------ */

/* Sorts tokens by (id, index): the rank of a token is the number of tokens with
 * a smaller id, or with the same id and a smaller index. Each block ranks 32
 * tokens, one per lane; each of its warps counts over every eighth group of 32
 * ids, which the block keeps in shared memory. That is 2 n^2 instructions in
 * total, bound by issue: a few microseconds for 4k tokens, half a millisecond
 * for 64k. For more tokens a caller should cut its calls, which changes no
 * bit. */
#define RANK_WARPS 8
#define RANK_TILE 2048 /* ids in shared memory */

/* The number of the 32 ids at `ids` that come before `mine`: the smaller ones
 * or, with Equal, also the same. */
template <int Equal> CU_FN uint32_t rank_group(const int32_t *ids, int32_t mine)
{
    uint32_t before = 0;
#pragma unroll
    for (int i = 0; i < 32; i += 4) {
        int4 v = *reinterpret_cast<const int4 *>(ids + i);
        if (Equal)
            before +=
                (v.x <= mine) + (v.y <= mine) + (v.z <= mine) + (v.w <= mine);
        else
            before += (v.x < mine) + (v.y < mine) + (v.z < mine) + (v.w < mine);
    }
    return before;
}

/* Writes each token to its rank: one block per 32 tokens, see above. */
__global__ void __launch_bounds__(RANK_WARPS * 32)
    rank_kernel(const int32_t *ids, uint64_t bound, const int32_t *live,
                int32_t *key, int32_t *order)
{
    __shared__ __align__(16) int32_t tile[RANK_TILE];
    __shared__ uint32_t part[RANK_WARPS][32];
    uint64_t n = cu_count(bound, live);
    uint64_t first = (uint64_t)blockIdx.x * 32;
    if (first >= n)
        return;
    uint32_t lane = threadIdx.x % 32;
    uint32_t warp = threadIdx.x / 32;
    uint64_t t = first + lane;
    int32_t mine = t < n ? ids[t] : 0;
    uint32_t before = 0;
    for (uint64_t at = 0; at < n; at += RANK_TILE) {
        __syncthreads();
#pragma unroll
        for (uint32_t i = 0; i < RANK_TILE; i += RANK_WARPS * 32) {
            uint64_t s = at + i + threadIdx.x;
            tile[i + threadIdx.x] = s < n ? ids[s] : INT32_MAX;
        }
        __syncthreads();
        for (uint32_t g = warp * 32; g < RANK_TILE; g += RANK_WARPS * 32) {
            if (at + g < first)
                before += rank_group<1>(tile + g, mine);
            else if (at + g > first)
                before += rank_group<0>(tile + g, mine);
            else
                for (uint32_t i = 0; i < 32; i++)
                    before +=
                        tile[g + i] < mine || (tile[g + i] == mine && i < lane);
        }
    }
    part[warp][lane] = before;
    __syncthreads();
    if (warp > 0 || t >= n)
        return;
#pragma unroll
    for (int w = 1; w < RANK_WARPS; w++)
        before += part[w][lane];
    key[before] = mine;
    order[before] = (int32_t)t;
}

typedef struct fold_args {
    const float *dy;
    float *dtable;
    const int32_t *key;   /* [tokens] ids, sorted */
    const int32_t *order; /* [tokens] the tokens that the keys belong to */
    const int32_t *live;
    uint64_t bound;
    uint64_t start; /* id of the table's first row */
    uint64_t vocab;
    uint64_t dim;
    float scale;
} fold_args;

#define FOLD_WARPS 8
#define FOLD_COLUMNS 128 /* columns per warp */
#define FOLD_ROWS 8      /* rows of dy in flight */

/* s continues with tokens 0 .. count - 1 of those that the lanes hold. */
template <int Wide>
CU_FN void fold_tokens(const fold_args *a, uint64_t column, int32_t token,
                       uint32_t count, cu_quad *s)
{
    for (uint32_t j = 0; j < count; j += FOLD_ROWS) {
        cu_quad q[FOLD_ROWS];
#pragma unroll
        for (uint32_t u = 0; u < FOLD_ROWS; u++) {
            int32_t t = __shfl_sync(CU_FULL, token, (int)((j + u) % 32));
            if (j + u < count && column < a->dim)
                q[u] = cu_load4<Wide>(a->dy + (uint64_t)t * a->dim + column,
                                      a->dim - column);
        }
#pragma unroll
        for (uint32_t u = 0; u < FOLD_ROWS; u++)
            if (j + u < count && column < a->dim)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s->f[i] = fmaf(a->scale, q[u].f[i], s->f[i]);
    }
}

/* Each warp starts at one index of the sorted tokens. The warp at the first of
 * a run of equal ids sums the run in order, and the others return. dy is read
 * once, and dtable is read and written once per id that occurs. A very frequent
 * id is one chain: about 1/10 microsecond per token, while other warps run. */
template <int Wide>
__global__ void __launch_bounds__(FOLD_WARPS * 32) fold_kernel(fold_args a)
{
    uint64_t n = cu_count(a.bound, a.live);
    uint64_t at = (uint64_t)blockIdx.x * FOLD_WARPS + threadIdx.x / 32;
    uint32_t lane = threadIdx.x % 32;
    if (at >= n)
        return;
    int32_t mine = a.key[at];
    int32_t last = at > 0 ? a.key[at - 1] : -1;
    uint64_t row = (uint64_t)mine - a.start;
    if (mine < 0 || row >= a.vocab || mine == last)
        return;
    uint64_t column = (uint64_t)blockIdx.y * FOLD_COLUMNS + lane * 4;
    float *to = a.dtable + row * a.dim + column;
    cu_quad s = {};
    if (column < a.dim)
        s = cu_load4<Wide>(to, a.dim - column);
    uint32_t count = 32;
    for (; count == 32; at += 32) {
        int in = at + lane < n;
        int32_t token = in ? a.order[at + lane] : 0;
        uint32_t same = __ballot_sync(CU_FULL, in && a.key[at + lane] == mine);
        count = same == CU_FULL ? 32 : (uint32_t)__ffs((int)~same) - 1;
        fold_tokens<Wide>(&a, column, token, count, &s);
    }
    if (column < a.dim)
        cu_put4<Wide>(to, s, a.dim - column);
}

extern "C" xray_status cuda_embedding_grad(void *self, xray_stream *stream,
                                           const xray_embedding_grad *op)
{
    cuda_device *d = (cuda_device *)self;
    CUDA_CHECK(d, op, "embedding_grad", op->ids, op->dy, op->dtable);
    xray_status status = check_slice(d, "embedding_grad", op->slice);
    uint64_t n = op->tokens.bound;
    if (status != XRAY_OK || n == 0 || op->dim == 0)
        return status;
    void *scratch = NULL;
    status =
        cuda_scratch(d, CUDA_SCRATCH_REDUCE, 2 * n * sizeof(int32_t), &scratch);
    if (status != XRAY_OK)
        return status;
    fold_args a = {};
    int32_t *key = (int32_t *)scratch;
    a.dy = op->dy;
    a.dtable = op->dtable;
    a.key = key;
    a.order = key + n;
    a.live = op->tokens.live;
    a.bound = n;
    a.start = op->vocab_first;
    a.vocab = op->vocab;
    a.dim = op->dim;
    a.scale = op->scale;
    cudaStream_t on = cuda_stream(d, stream);
    CU_LAUNCH(rank_kernel, dim3((unsigned)((n + 31) / 32)),
              dim3(RANK_WARPS * 32), 0, on, op->ids, n, a.live, key, key + n);
    dim3 grid((unsigned)((n + FOLD_WARPS - 1) / FOLD_WARPS),
              (unsigned)((op->dim + FOLD_COLUMNS - 1) / FOLD_COLUMNS));
    int wide = rows_odd(a.dy) + rows_odd(a.dtable) + a.dim % 4 == 0;
    ROWS_LAUNCH(fold_kernel, wide, grid, dim3(FOLD_WARPS * 32), 0, on, a);
    return cuda_launched(d, "embedding_grad");
}
