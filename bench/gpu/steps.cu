/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how a tensor core of this GPU adds the terms of a step of sixteen:
 * bench-gpu-steps [cases]. It compares the bits of mma.sync with a model of a
 * step, which is what the tests' emulator computes (docs/numerics.md), and with
 * those of wgmma for one step and for a chain of 560. Sums of small integers
 * are exact however they are added: bits that differ there mean wrong terms.
 * Then it measures the error of a chain that starts from an addend against one
 * to which the addend is added at the end. With `cases` it prints some steps.
 *
 * It exits with 0 if all bits were the same, with 1 if not or if a call failed,
 * and with 77 if the GPU is not of compute capability 9.0.
 */
#include "plugins/device-cuda/product_bulk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TILES 64 /* of ROWS x COLS outputs */
#define ROWS 64
#define COLS 256
#define STEP 16 /* terms per step */
#define STEPS 560
#define K (STEP * STEPS)
#define A_LINES (TILES * ROWS)
#define B_LINES (TILES * COLS)
#define OUTPUTS ((uint64_t)TILES * ROWS * COLS)

/* ------------------------------------------------------------------ data */

/* Kinds of data, and the least and the largest exponent of A, B and C, from
 * which value_of() makes exceptions. */
#define EACH_KIND(X)                                                  \
    X(INTEGERS, "small integers", 0, 0, 0, 0, 0, 0)                   \
    X(ALIKE, "alike, C alike", 0, 0, 0, 0, 0, 0)                      \
    X(ALIKE_10, "alike, C 2^10 times", 0, 0, 0, 0, 10, 10)            \
    X(ALIKE_20, "alike, C 2^20 times", 0, 0, 0, 0, 20, 20)            \
    X(NORMAL, "normal", 0, 0, 0, 0, 0, 0)                             \
    X(SPREAD, "spread 2^-20..2^20", -10, 10, -10, 10, -20, 20)        \
    X(PAIRS, "pairs that cancel", -3, 3, -3, 3, -12, 0)               \
    X(CANCELLED, "C cancels the step", 0, 0, 0, 0, 0, 0)              \
    X(SUBNORMAL_FACTORS, "subnormal factors", 0, 0, 90, 94, -45, -28) \
    X(SUBNORMAL_SUMS, "subnormal sums", -70, -64, -72, -62, 0, 0)     \
    X(ZEROS, "zeros", -4, 4, -4, 4, -4, 4)                            \
    X(ZEROS_LARGE, "zeros times 2^120", -10, -6, -10, -6, -20, -14)
#define ITS_KIND(kind, ...) kind,
#define ITS_NAME(kind, name, ...) name,
#define ITS_RANGE(kind, name, a, a1, b, b1, c, c1) a, a1, b, b1, c, c1,

enum kind { EACH_KIND(ITS_KIND) KINDS };

enum { OF_A, OF_B, OF_C };

CU_FN uint64_t mixed(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The random bits of value i of one operand. */
CU_FN uint64_t drawn(uint32_t kind, uint32_t of, uint64_t i)
{
    return mixed(mixed(kind * 4 + of + 1) + i);
}

/* The bits in fp32 of a value of either sign in [1, 2) times 2^low to 2^high.
 */
CU_FN uint32_t scaled(uint64_t r, int low, int high)
{
    uint32_t span = (uint32_t)(high - low + 1);
    uint32_t e = (uint32_t)(low + 127) + (uint32_t)(r >> 32) % span;
    return (uint32_t)(r & 1) << 31 | e << 23 | ((uint32_t)r >> 8 & 0x7fffffu);
}

/* A value of the standard normal distribution. */
CU_FN float normal(uint64_t r)
{
    float u = (float)((r >> 40) + 1) * 0x1p-24f;
    float v = (float)(r & 0xffffffu) * 0x1p-24f;
    return sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v);
}

/* Value i of an operand, as the bits of fp32; those of A and B are bf16, whose
 * low half is cut off. i counts along the summed index first. */
CU_FN uint32_t value_of(uint32_t kind, uint32_t of, uint64_t i)
{
    const int8_t ranges[KINDS * 6] = { EACH_KIND(ITS_RANGE) };
    const int8_t *range = &ranges[kind * 6 + of * 2];
    uint64_t r = drawn(kind, of, kind == PAIRS && of != OF_C ? i & ~8ull : i);
    uint32_t part = (uint32_t)(r >> 56);
    uint32_t zero = (uint32_t)(r & 1) << 31;
    uint32_t usual = scaled(r, range[0], range[1]);
    if (kind == INTEGERS && of == OF_C)
        return cu_bits((float)(int)(r % 2001) - 1000.0f);
    if (kind == INTEGERS)
        return cu_bits((float)(int)(r % 17) - 8.0f);
    if (kind == NORMAL || kind == CANCELLED)
        return of == OF_C ? cu_bits(4.0f * normal(r))
                          : (uint32_t)cu_to_bf16(normal(r)) << 16;
    /* Term k + 8 is term k with the other sign in A, and in each operand the
     * last bit of a quarter of them is another. */
    if (kind == PAIRS && of != OF_C && (i & 8))
        return usual ^ (of == OF_A ? 1u << 31 : 0u) ^
               ((drawn(kind, of, i) & 3) == 0 ? 1u << 16 : 0u);
    if (kind == SUBNORMAL_FACTORS && of == OF_A)
        return zero | (part % 4 == 0 ? part >> 2 & 3 : 0) << 23 |
               ((uint32_t)r & 0x7f0000u);
    if (kind == SUBNORMAL_SUMS && of == OF_C)
        return zero | ((uint32_t)(r >> 8) & 0xffffffu);
    if (kind == ZEROS && (of == OF_A   ? part % 2 == 0 || i / K % 8 == 7
                          : of == OF_B ? part % 4 == 0
                                       : part % 2 == 1))
        return zero;
    if (kind == ZEROS_LARGE && of != OF_C && i % 2)
        return of == OF_A ? zero : scaled(r, 118, 120);
    return usual;
}

__global__ void fill_operand(uint16_t *to, uint32_t kind, uint32_t of)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    to[i] = (uint16_t)(value_of(kind, of, i) >> 16);
}

/* Fills C; `sums` are those of the products of one step. Beyond the kinds C is
 * normal and has this scale. */
__global__ void fill_addend(float *c, const double *sums, uint32_t kind,
                            float scale)
{
    uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (kind == KINDS)
        c[i] = scale * normal(drawn(kind, OF_C, i));
    else
        c[i] = kind == CANCELLED ? (float)-sums[i]
                                 : cu_float(value_of(kind, OF_C, i));
}

/* ------------------------------------------------------------- the engines */

/* A is TILES x ROWS x K and B is TILES x COLS x K, with the summed index
 * running along memory; C and D are TILES x ROWS x COLS. */
typedef struct job {
    uint16_t *a;
    uint16_t *b;
    float *c;
    float *d;
    double *sums;
} job;

CU_FN uint32_t pair_at(const uint16_t *p)
{
    return *(const uint32_t *)(const void *)p;
}

/* Where in C and D a thread's value i is, if a block of four warps has ROWS x
 * `cols` outputs: two in a row, the two eight rows below, and so on eight
 * columns further. */
CU_FN uint64_t place_of(uint32_t cols, uint32_t i)
{
    uint32_t lane = threadIdx.x % 32;
    uint32_t row = threadIdx.x / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
    uint32_t col = blockIdx.y * cols + lane % 4 * 2 + i / 4 * 8 + i % 2;
    return ((uint64_t)blockIdx.x * ROWS + row) * COLS + col;
}

/* A block computes ROWS x 64 outputs with mma.sync. */
__global__ void __launch_bounds__(128) mma_chain(job j, uint32_t steps)
{
    uint64_t first = place_of(64, 0);
    const uint16_t *a = j.a + first / COLS * K + threadIdx.x % 4 * 2;
    const uint16_t *b = j.b + threadIdx.x % 4 * 2;
    b +=
        ((uint64_t)blockIdx.x * COLS + blockIdx.y * 64 + threadIdx.x % 32 / 4) *
        K;
    float d[32];
#pragma unroll
    for (uint32_t i = 0; i < 32; i++)
        d[i] = j.c[place_of(64, i)];
#pragma unroll 1
    for (uint32_t s = 0; s < steps; s++, a += STEP, b += STEP) {
        uint32_t x[4] = { pair_at(a), pair_at(a + 8 * K), pair_at(a + 8),
                          pair_at(a + 8 * K + 8) };
#pragma unroll
        for (int n = 0; n < 8; n++) {
            uint32_t y[2] = { pair_at(b + n * 8 * K),
                              pair_at(b + n * 8 * K + 8) };
            cu_mma_bf16(d + n * 4, x, y);
        }
    }
#pragma unroll
    for (uint32_t i = 0; i < 32; i++)
        j.d[place_of(64, i)] = d[i];
}

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
/* Copies LINES rows of an operand into shared memory: STAGE steps one after the
 * other, each with the core matrices (8 rows of 16 bytes) of eight rows side by
 * side. */
template <int LINES, int STAGE>
CU_FN void load_cores(unsigned char *to, const uint16_t *from)
{
    for (uint32_t i = threadIdx.x; i < LINES * STAGE * 2; i += 128) {
        uint32_t half = i % 2;
        uint32_t step = i / 2 % STAGE;
        uint32_t line = i / (2 * STAGE);
        uint32_t at =
            step * (LINES * 32) + (line / 8 * 2 + half) * 128 + line % 8 * 16;
        const uint16_t *x = from + (uint64_t)line * K + step * STEP + half * 8;
        *(uint4 *)(void *)(to + at) = *(const uint4 *)(const void *)x;
    }
}

/* The descriptor of a step of them, without swizzle: the leading offset goes
 * from terms 0 to 7 to terms 8 to 15, the stride from eight rows to the next
 * eight (product_bulk.h has the bits). */
CU_FN uint64_t cores_at(const unsigned char *p)
{
    return (uint64_t)((shared_address(p) & 0x3ffffu) >> 4) |
           (uint64_t)(128 >> 4) << 16 | (uint64_t)(256 >> 4) << 32;
}
#endif

/* A block computes ROWS x N outputs with wgmma, STAGE steps per group. It does
 * nothing where it is not compiled for compute capability 9.0a. */
template <int N, int STAGE>
__global__ void __launch_bounds__(128) wgmma_chain(job j, uint32_t steps)
{
    (void)j;
    (void)steps;
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    __shared__ __align__(1024) unsigned char a_cores[ROWS * 32 * STAGE];
    __shared__ __align__(1024) unsigned char b_cores[N * 32 * STAGE];
    const uint16_t *a = j.a + (uint64_t)blockIdx.x * ROWS * K;
    const uint16_t *b =
        j.b + ((uint64_t)blockIdx.x * COLS + blockIdx.y * N) * K;
    float d[N / 2];
#pragma unroll
    for (uint32_t i = 0; i < N / 2; i++)
        d[i] = j.c[place_of(N, i)];
#pragma unroll 1
    for (uint32_t s = 0; s < steps; s += STAGE) {
        load_cores<ROWS, STAGE>(a_cores, a + s * STEP);
        load_cores<N, STAGE>(b_cores, b + s * STEP);
        asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
        __syncthreads();
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < STAGE; i++)
            wgmma_step<0, 0>(d, cores_at(a_cores + i * ROWS * 32),
                             cores_at(b_cores + i * N * 32));
        wgmma_commit();
        wgmma_wait<0>();
        hold_sums(d);
        __syncthreads();
    }
#pragma unroll
    for (uint32_t i = 0; i < N / 2; i++)
        j.d[place_of(N, i)] = d[i];
#endif
}

/* Stores the sums of the first k products in float64, without C. */
__global__ void sum_products(job j, uint32_t k)
{
    uint64_t line = (uint64_t)blockIdx.y * ROWS + blockIdx.x;
    const uint16_t *a = j.a + line * K;
    const uint16_t *b = j.b + ((uint64_t)blockIdx.y * COLS + threadIdx.x) * K;
    double sum = 0;
    for (uint32_t i = 0; i < k; i++)
        sum += (double)cu_from_bf16(a[i]) * (double)cu_from_bf16(b[i]);
    j.sums[line * COLS + threadIdx.x] = sum;
}

/* ----------------------------------------------------- running the engines */

typedef struct bench {
    job on; /* on the GPU */
    int has_wgmma;
    /* On the host: operands of the first step, and outputs. */
    uint16_t a[A_LINES * STEP];
    uint16_t b[B_LINES * STEP];
    float c[OUTPUTS];
    float mma[OUTPUTS];
    float other[OUTPUTS];
    double sums[OUTPUTS];
} bench;

static uint32_t bits_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}

static void require(cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    (void)fprintf(stderr, "steps: %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}

/* Reads lines from the GPU, and reports what failed there before. */
static void read_back(void *to, const void *from, uint64_t bytes,
                      uint64_t pitch, uint64_t lines)
{
    require(cudaGetLastError(), "launch");
    require(cudaMemcpy2D(to, bytes, from, pitch, bytes, lines,
                         cudaMemcpyDeviceToHost),
            "cudaMemcpy2D");
}

/* All counts of values divide by 256. */
static void fill_operands(const bench *b, uint32_t kind)
{
    const job *j = &b->on;
    CU_LAUNCH(fill_operand, A_LINES * (K / 256), 256, 0, 0, j->a, kind, OF_A);
    CU_LAUNCH(fill_operand, B_LINES * (K / 256), 256, 0, 0, j->b, kind, OF_B);
    CU_LAUNCH(sum_products, dim3(ROWS, TILES), COLS, 0, 0, *j, STEP);
    CU_LAUNCH(fill_addend, OUTPUTS / 256, 256, 0, 0, j->c, j->sums, kind, 0);
}

/* Computes all outputs with mma.sync, or with wgmma of so many columns. Those
 * that are not stored are NaN. */
static void compute(const bench *b, uint32_t columns, uint32_t steps, float *to)
{
    static void (*const wgmma[2][2])(job, uint32_t) = {
        { wgmma_chain<128, 1>, wgmma_chain<128, 4> },
        { wgmma_chain<256, 1>, wgmma_chain<256, 4> },
    };
    require(cudaMemset(b->on.d, 0xff, OUTPUTS * 4), "cudaMemset");
    if (columns == 0)
        CU_LAUNCH(mma_chain, dim3(TILES, COLS / 64), 128, 0, 0, b->on, steps);
    else
        CU_LAUNCH(wgmma[columns == 256][steps > 1], dim3(TILES, COLS / columns),
                  128, 0, 0, b->on, steps);
    read_back(to, b->on.d, COLS * 4, COLS * 4, A_LINES);
}

/* Computes one step with mma.sync, and reads its operands. */
static void compute_step(bench *b)
{
    compute(b, 0, 1, b->mma);
    read_back(b->a, b->on.a, STEP * 2, K * 2, A_LINES);
    read_back(b->b, b->on.b, STEP * 2, K * 2, B_LINES);
    read_back(b->c, b->on.c, COLS * 4, COLS * 4, A_LINES);
}

/* The values of B that give output i of a step. */
static const uint16_t *place_b(const bench *b, uint64_t i)
{
    return b->b + (i / (ROWS * COLS) * COLS + i % COLS) * STEP;
}

/* -------------------------------------------------------- model of a step */

#define KEPT 25 /* bits of a term below the largest exponent */

static float from_bf16(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static int exponent_of(float x)
{
    int e = (int)(bits_of(x) >> 23 & 0xff);
    return (e ? e : 1) - 127;
}

/* C and the products, which are exact, are aligned to the largest exponent,
 * which for a product is the sum of those of its factors, and cut toward zero
 * KEPT bits below it. They are added exactly, and the sum is cut to fp32. */
static float model_sum(const uint16_t *a, const uint16_t *b, float c)
{
    double terms[STEP + 1];
    double sum = 0;
    int top = -252; /* the least exponent of a product */
    for (int k = 0; k <= STEP; k++) {
        float x = k < STEP ? from_bf16(a[k]) : c;
        float y = k < STEP ? from_bf16(b[k]) : 1.0f;
        int e = exponent_of(x) + exponent_of(y);
        terms[k] = (double)x * (double)y;
        top = terms[k] != 0 && e > top ? e : top;
    }
    double scale = ldexp(1.0, KEPT - top);
    for (int k = 0; k <= STEP; k++)
        sum += trunc(terms[k] * scale);
    sum /= scale;
    float nearest = (float)sum;
    int beyond = fabs((double)nearest) > fabs(sum) && fabs(sum) < 0x1p128;
    return beyond ? nextafterf(nearest, 0.0f) : nearest;
}

/* ------------------------------------------------------------- comparison */

/* Fills and compares one kind; adds the outputs that differ from mma.sync. For
 * the model zeros are equal, whatever their signs. */
static void compare_kind(bench *b, uint32_t kind, uint64_t differ[2])
{
    static const char *const names[KINDS] = { EACH_KIND(ITS_NAME) };
    uint64_t n = 0;
    fill_operands(b, kind);
    compute_step(b);
    for (uint64_t i = 0; i < OUTPUTS; i++)
        n += !(model_sum(b->a + i / COLS * STEP, place_b(b, i), b->c[i]) ==
               b->mma[i]);
    differ[0] += n;
    printf("  %-20s %9llu", names[kind], (unsigned long long)n);
    for (uint32_t at = 0; b->has_wgmma && at < 4; at++) {
        uint32_t steps = at < 2 ? 1 : STEPS;
        if (at == 2)
            compute(b, 0, STEPS, b->mma);
        compute(b, at % 2 ? 256 : 128, steps, b->other);
        n = 0;
        for (uint64_t i = 0; i < OUTPUTS; i++)
            n += bits_of(b->mma[i]) != bits_of(b->other[i]);
        differ[1] += n;
        printf(" %9llu", (unsigned long long)n);
    }
    printf("\n");
}

/* Computes chains that start from R, `scale` times the standard deviation of
 * the sum of products. */
static void start_from(bench *b, int scale, float *to)
{
    float deviation = (float)(scale * sqrt((double)K));
    CU_LAUNCH(fill_addend, OUTPUTS / 256, 256, 0, 0, b->on.c, NULL, KINDS,
              deviation);
    read_back(b->c, b->on.c, COLS * 4, COLS * 4, A_LINES);
    compute(b, 0, STEPS, to);
}

/* Prints the errors of sums, to which R is first added if `add`: means times
 * the sign of R and of the sum, the root mean square, and the largest. */
static void print_errors(const bench *b, const float *sums, int add)
{
    double by_addend = 0, by_sum = 0, squares = 0, most = 0;
    for (uint64_t i = 0; i < OUTPUTS; i++) {
        float r = b->c[i];
        float got = add ? sums[i] + r : sums[i];
        double exact = b->sums[i] + (double)r;
        double error = ((double)got - exact) / sqrt((double)K);
        by_addend += error * ((r > 0) - (r < 0));
        by_sum += error * ((exact > 0) - (exact < 0));
        squares += error * error;
        most = fmax(most, fabs(error));
    }
    double n = (double)OUTPUTS;
    printf(" | %10.2e %10.2e %9.2e %9.2e", by_addend / n, by_sum / n,
           sqrt(squares / n), most);
}

static void measure_bias(bench *b)
{
    static const char titles[] = "mean sgn R    sgn sum       rms       max";
    fill_operands(b, NORMAL);
    CU_LAUNCH(sum_products, dim3(ROWS, TILES), COLS, 0, 0, b->on, K);
    read_back(b->sums, b->on.sums, COLS * 8, COLS * 8, A_LINES);
    start_from(b, 0, b->other);
    printf("2. errors of 560 steps of mma.sync, in standard deviations of the "
           "sum:\n  %4s | %-41s | %s\n  %4s | %s | %s\n",
           "", "R starts the chain", "R is added at the end, to nearest", "R",
           titles, titles);
    for (int scale = 0; scale <= 256; scale = scale ? scale * 16 : 1) {
        start_from(b, scale, b->mma);
        printf("  %4d", scale);
        print_errors(b, b->mma, 0);
        print_errors(b, b->other, 1);
        printf("\n");
    }
}

/* ------------------------------------------------------------------- main */

/* Prints a few steps of each kind in hexadecimal: a, b, c and the result. */
static void print_cases(bench *b)
{
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        fill_operands(b, kind);
        compute_step(b);
        for (uint64_t i = 77; i < OUTPUTS; i += OUTPUTS / 4 + 1021) {
            const uint16_t *x = b->a + i / COLS * STEP;
            const uint16_t *y = place_b(b, i);
            printf("case %u ", kind);
            for (int k = 0; k < 2 * STEP; k++)
                printf(k == STEP ? " %04x" : "%04x",
                       k < STEP ? x[k] : y[k - STEP]);
            printf(" %08x %08x\n", bits_of(b->c[i]), bits_of(b->mma[i]));
        }
    }
}

static int skip_run(const char *why)
{
    printf("%s\n", why);
    return 77;
}

static void print_result(const char *name, uint64_t differ)
{
    printf("%s gave %s bits %s mma.sync\n", name, differ ? "other" : "the same",
           differ ? "than" : "as");
}

int main(int argc, char **argv)
{
    static bench b;
    uint64_t differ[2] = {}; /* from the model, from wgmma */
    int count = 0;
    cudaDeviceProp gpu;
    cudaFuncAttributes compiled;
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0)
        return skip_run("this machine has no GPU that CUDA can use");
    require(cudaGetDeviceProperties(&gpu, 0), "cudaGetDeviceProperties");
    b.has_wgmma = gpu.major == 9 && gpu.minor == 0;
    cudaError_t e = cudaFuncGetAttributes(&compiled, mma_chain);
    if (!b.has_wgmma && e != cudaSuccess)
        return skip_run("the GPU does not have compute capability 9.0");
    require(e, "cudaFuncGetAttributes");
    require(cudaMalloc(&b.on.a, (uint64_t)A_LINES * K * 2), "cudaMalloc");
    require(cudaMalloc(&b.on.b, (uint64_t)B_LINES * K * 2), "cudaMalloc");
    require(cudaMalloc(&b.on.c, OUTPUTS * 4), "cudaMalloc");
    require(cudaMalloc(&b.on.d, OUTPUTS * 4), "cudaMalloc");
    require(cudaMalloc(&b.on.sums, OUTPUTS * 8), "cudaMalloc");
    printf("%s, compute capability %d.%d\n1. of %llu outputs, bits other than "
           "those of mma.sync:\n  %-20s %9s %9s %9s %9s %9s\n",
           gpu.name, gpu.major, gpu.minor, (unsigned long long)OUTPUTS, "",
           "model", "step, 128", "256", "560, 128", "256");
    for (uint32_t kind = 0; kind < KINDS; kind++)
        compare_kind(&b, kind, differ);
    measure_bias(&b);
    if (argc > 1 && strcmp(argv[1], "cases") == 0)
        print_cases(&b);
    print_result("the model of a step", differ[0]);
    if (!b.has_wgmma)
        return skip_run("without compute capability 9.0 there is no wgmma");
    print_result("wgmma", differ[1]);
    return differ[0] || differ[1] ? 1 : 0;
}
