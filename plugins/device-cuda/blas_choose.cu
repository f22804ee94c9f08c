/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe of an algorithm's bits. It knows nothing of cuBLASLt, so tests run
 * it without a GPU.
 */
#include "plugins/device-cuda/blas_choose.h"

#include "plugins/device-cuda/cu.h"

/* ---- kernels ------------------------------------------------------------- */

CU_FN float random_value(uint32_t row, uint32_t col, uint32_t seed)
{
    uint32_t h = row * 0x9e3779b1u ^ (col + seed) * 0x85ebca6bu;
    h = (h ^ h >> 16) * 0x7feb352du;
    h = (h ^ h >> 15) * 0x846ca68bu;
    h ^= h >> 16;
    return ((float)(h >> 8) - 8388608.0f) * 0x1p-23f;
}

__global__ void __launch_bounds__(256) fill_values(blas_values v)
{
    uint32_t col = blockIdx.y * 256 + threadIdx.x;
    uint32_t row = blockIdx.x;
    if (col >= v.width)
        return;
    uint32_t i = row % v.period;
    uint32_t j = col;
    if (v.kind == BLAS_W_NN && row + 1 == v.rows)
        i = 0;
    if (v.kind == BLAS_W_NT && col + 1 == v.width)
        j = 0;
    float x = random_value(i, j, v.seed);
    if (v.kind == BLAS_X && v.width > 1 && (col == 0 || col + 1 == v.width))
        x = col ? -BLAS_LARGE : BLAS_LARGE;
    uint64_t at = row * v.row + col;
    if (v.narrow)
        ((uint16_t *)v.to)[at] = cu_to_bf16(x);
    else
        ((float *)v.to)[at] = x;
}

/* Writes 1 to *differ if a row of y is not the one that is kept of it. */
__global__ void __launch_bounds__(256)
    compare_rows(const uint16_t *y, const uint16_t *kept, uint64_t row_elements,
                 uint64_t used, uint32_t *differ)
{
    uint64_t col = (uint64_t)blockIdx.y * 256 + threadIdx.x;
    uint64_t row = blockIdx.x;
    if (col < used && y[row * row_elements + col] !=
                          kept[row % BLAS_PERIOD * row_elements + col])
        *differ = 1;
}

__global__ void __launch_bounds__(256)
    narrow_values(const float *from, uint64_t from_row, uint16_t *to,
                  uint64_t to_row, uint32_t n)
{
    uint32_t col = blockIdx.y * 256 + threadIdx.x;
    uint64_t row = blockIdx.x;
    if (col < n)
        to[row * to_row + col] = cu_to_bf16(from[row * from_row + col]);
}

static dim3 cover_rows(uint32_t rows, uint64_t width)
{
    return dim3(rows, (unsigned)((width + 255) / 256));
}

xray_status blas_fill(const cuda_device *d, cudaStream_t stream,
                      const blas_values *v)
{
    CU_LAUNCH(fill_values, cover_rows(v->rows, v->width), 256, 0, stream, *v);
    return cuda_launched(d, "products");
}

xray_status blas_round(const cuda_device *d, cudaStream_t stream,
                       const float *from, uint64_t from_row, uint16_t *to,
                       uint64_t to_row, uint32_t rows, uint32_t n)
{
    CU_LAUNCH(narrow_values, cover_rows(rows, n), 256, 0, stream, from,
              from_row, to, to_row, n);
    return cuda_launched(d, "products");
}

/* ---- the choice ---------------------------------------------------------- */

/* Around the tiles of kernels, and far from them. */
static const uint32_t trials[BLAS_TRIALS] = {
    BLAS_TOKENS, 1,   2,   7,   16,  64,   100,  128,
    200,         256, 300, 512, 777, 1000, 1536, 2048,
};

uint32_t blas_trial_tokens(const blas_probe *p, uint32_t i)
{
    if (i == 0)
        return p->tokens;
    return trials[i] < p->tokens ? trials[i] : 0;
}

xray_status blas_compare(const blas_probe *p, uint32_t tokens, int *out_same)
{
    uint32_t differ = 1;
    xray_status status = cuda_check(
        p->d, "products",
        cudaMemsetAsync(p->differ, 0, sizeof(*p->differ), p->stream));
    if (status != XRAY_OK)
        return status;
    CU_LAUNCH(compare_rows, cover_rows(tokens, p->used), 256, 0, p->stream,
              p->y, p->kept, p->row, p->used, p->differ);
    status = cuda_launched(p->d, "products");
    if (status == XRAY_OK)
        status = cuda_check(p->d, "products",
                            cudaMemcpyAsync(&differ, p->differ, sizeof(differ),
                                            cudaMemcpyDeviceToHost, p->stream));
    if (status == XRAY_OK)
        status = cuda_check(p->d, "products", cudaStreamSynchronize(p->stream));
    *out_same = differ == 0;
    return status;
}

static xray_status keep_rows(const blas_probe *p)
{
    return cuda_check(p->d, "products",
                      cudaMemcpyAsync(p->kept, p->y,
                                      BLAS_PERIOD * p->row * sizeof(*p->y),
                                      cudaMemcpyDeviceToDevice, p->stream));
}

xray_status blas_try(const blas_probe *p, uint32_t candidate, uint32_t tokens,
                     int keep, blas_verdict *out)
{
    int same = 0;
    out->holds = 0;
    out->tokens = tokens;
    xray_status status = p->run(p->self, candidate, tokens);
    out->refused = status == XRAY_E_UNSUPPORTED;
    if (out->refused)
        return XRAY_OK;
    if (status == XRAY_OK && keep)
        status = keep_rows(p);
    if (status == XRAY_OK)
        status = blas_compare(p, tokens, &same);
    out->holds = same;
    return status;
}

static xray_status try_candidate(const blas_probe *p, uint32_t candidate,
                                 blas_verdict *out)
{
    for (uint32_t i = 0; i < BLAS_TRIALS; i++) {
        uint32_t tokens = blas_trial_tokens(p, i);
        if (tokens == 0)
            continue;
        xray_status status =
            blas_try(p, candidate, tokens, i == 0 && !p->given, out);
        if (status != XRAY_OK || !out->holds)
            return status;
    }
    return XRAY_OK;
}

xray_status blas_choose(const blas_probe *p, uint32_t *out, blas_verdict *why)
{
    *out = p->candidates;
    *why = blas_verdict{};
    for (uint32_t i = 0; i < p->candidates; i++) {
        blas_verdict verdict = {};
        xray_status status = try_candidate(p, i, &verdict);
        if (status != XRAY_OK)
            return status;
        if (verdict.holds || i == 0)
            *why = verdict;
        if (!verdict.holds)
            continue;
        *out = i;
        return XRAY_OK;
    }
    return XRAY_OK;
}
