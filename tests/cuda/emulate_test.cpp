/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the emulator behaves as kernels expect, and that it reports
 * mistakes of kernels.
 */
#include "plugins/device-cuda/cu.h"
#include "tests/cuda/mma_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int failures;

#define EXPECT(what)                                                   \
    do {                                                               \
        if (!(what)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what); \
            failures++;                                                \
        }                                                              \
    } while (0)

/* ---- products ------------------------------------------------------------ */

static __global__ void tile(const uint16_t *a, const uint16_t *b, float *d)
{
    CU_DYNAMIC(uint16_t, s); /* a [16][16], then b as [n 8][k 16] */
    unsigned lane = threadIdx.x;
    cu_async16(s + lane * 8, a + lane * 8, 16);
    cu_async_commit();
    if (lane < 16)
        cu_async16(s + 256 + lane * 8, b + lane * 8, 16);
    cu_async_commit();
    cu_async_wait<0>();
    __syncwarp();
    uint32_t fa[4], fb[4];
    cu_ldmatrix4(fa, s + lane % 16 * 16 + lane / 16 * 8);
    cu_ldmatrix4(fb, s + 256 + lane % 8 * 16 + lane / 8 % 2 * 8);
    float c[4] = { 1, 1, 1, 1 };
    cu_mma_bf16(c, fa, fb);
    for (unsigned r = 0; r < 4; r++)
        d[(lane / 4 + r / 2 * 8) * 8 + lane % 4 * 2 + r % 2] = c[r];
}

static void tensor_products_are_right(void)
{
    alignas(16) uint16_t a[256], b[128];
    float d[128];
    for (int i = 0; i < 256; i++)
        a[i] = cu_to_bf16((float)(i * 7 % 11) - 5.0f);
    for (int i = 0; i < 128; i++)
        b[i] = cu_to_bf16((float)(i * 5 % 13) * 0.25f - 1.5f);
    for (int turn = 0; turn < 4; turn++) {
        CU_LAUNCH(tile, 1, 32, 768, nullptr, a, b, d);
        for (int m = 0; m < 16; m++) {
            for (int n = 0; n < 8; n++) {
                float sum = 1;
                for (int k = 0; k < 16; k++)
                    sum += cu_from_bf16(a[m * 16 + k]) *
                           cu_from_bf16(b[n * 16 + k]);
                EXPECT(d[m * 8 + n] == sum);
            }
        }
    }
}

/* Each block multiplies matrices [16, 16] and [16, 8] of its own. */
static __global__ void multiply(const uint16_t *a, const uint16_t *b, float *c)
{
    unsigned g = threadIdx.x / 4, t = threadIdx.x % 4 * 2;
    uint32_t fa[4], fb[2];
    float d[4];
    a += blockIdx.x * 256;
    b += blockIdx.x * 128;
    c += blockIdx.x * 128;
    for (unsigned r = 0; r < 4; r++) {
        const uint16_t *x = a + (g + r % 2 * 8) * 16 + t + r / 2 * 8;
        fa[r] = (uint32_t)x[0] | (uint32_t)x[1] << 16;
        d[r] = c[(g + r / 2 * 8) * 8 + t + r % 2];
    }
    for (unsigned r = 0; r < 2; r++) {
        const uint16_t *x = b + (t + r * 8) * 8 + g;
        fb[r] = (uint32_t)x[0] | (uint32_t)x[8] << 16;
    }
    cu_mma_bf16(d, fa, fb);
    for (unsigned r = 0; r < 4; r++)
        c[(g + r / 2 * 8) * 8 + t + r % 2] = d[r];
}

static uint64_t random_state = 1;

static uint32_t random_bits(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* How operands are made: exponents from `low` on, of `range` values, in every
 * second one or in all. Significands are random or all ones. */
struct operands {
    const char *name;
    uint32_t low_a, low_b, low_c, range;
    bool sparse, ones, cancel;
};

static uint32_t random_float(const operands &o, uint32_t low)
{
    uint32_t u = random_bits();
    if (o.sparse && u % 3 == 0)
        return u & 0x80000000u;
    uint32_t e = low + random_bits() % o.range;
    e = e > 255 ? 255 : e;
    return (u & 0x807fffffu) | e << 23 | (o.ones ? 0x7fffffu : 0u);
}

enum { TILES = 60 };

static void fill_operands(const operands &o, uint16_t *a, uint16_t *b, float *c)
{
    for (unsigned i = 0; i < TILES * 256; i++)
        a[i] = (uint16_t)(random_float(o, o.low_a) >> 16);
    for (unsigned i = 0; i < TILES * 128; i++)
        b[i] = (uint16_t)(random_float(o, o.low_b) >> 16);
    for (unsigned i = 0; i < TILES * 128; i++)
        c[i] = cu_float(random_float(o, o.low_c));
    if (!o.cancel)
        return;
    /* Every second product is the negative of the one before it, but for the
     * last bit of some. */
    for (unsigned i = 0; i < TILES * 256; i += 2)
        a[i + 1] = a[i] ^ (random_bits() % 8 == 0);
    for (unsigned i = 0; i < TILES * 128; i++)
        if (i / 8 % 2)
            b[i] = b[i - 8] ^ 0x8000u;
}

static void tensor_products_are_those_of_the_model(void)
{
    static const operands cases[] = {
        { "close exponents", 120, 120, 120, 14, false, false, false },
        { "zeros", 120, 120, 127, 14, true, false, false },
        { "far exponents", 0, 0, 0, 254, false, false, false },
        { "far apart, zeros", 60, 60, 40, 134, true, false, false },
        { "all bits set", 127, 127, 127, 1, false, true, false },
        { "sums that cancel", 124, 124, 90, 6, false, false, true },
        { "sums that cancel, small", 60, 61, 0, 6, true, false, true },
        { "overflow", 187, 187, 250, 6, false, false, false },
        { "overflow, all bits set", 189, 189, 253, 2, false, true, false },
        { "denormal sums", 45, 55, 0, 20, false, false, false },
        { "denormal factors", 0, 125, 0, 3, false, false, false },
        { "vanishing products", 0, 0, 0, 2, true, false, false },
        { "infinities", 240, 100, 100, 16, false, false, false },
        { "any", 0, 0, 0, 256, true, false, false },
    };
    static uint16_t a[TILES * 256], b[TILES * 128];
    static float c[TILES * 128], d[TILES * 128];
    for (const operands &o : cases) {
        fill_operands(o, a, b, c);
        memcpy(d, c, sizeof(d));
        CU_LAUNCH(multiply, TILES, 32, 0, nullptr, a, b, d);
        for (unsigned i = 0; i < TILES * 128; i++) {
            float x[16], y[16];
            for (unsigned k = 0; k < 16; k++) {
                x[k] = cu_from_bf16(a[i / 8 * 16 + k]);
                y[k] = cu_from_bf16(b[i / 128 * 128 + k * 8 + i % 8]);
            }
            float want = mma_reference(x, y, c[i]);
            if (cu_bits(want) == cu_bits(d[i]) ||
                (want != want && d[i] != d[i]))
                continue;
            fprintf(stderr, "%s: output %u is %a, the model gives %a\n", o.name,
                    i, (double)d[i], (double)want);
            failures++;
        }
    }
}

static __global__ void transposed(uint32_t *out)
{
    __shared__ __align__(16) uint16_t s[4][8][8];
    for (unsigned i = threadIdx.x; i < 256; i += 32)
        s[i / 64][i / 8 % 8][i % 8] = (uint16_t)i;
    __syncwarp();
    uint32_t r[4];
    cu_ldmatrix4_t(r, s[threadIdx.x / 8][threadIdx.x % 8]);
    for (unsigned m = 0; m < 4; m++)
        out[threadIdx.x * 4 + m] = r[m];
}

static void transposed_loads_are_right(void)
{
    uint32_t out[128];
    CU_LAUNCH(transposed, 1, 32, 0, nullptr, out);
    for (unsigned l = 0; l < 32; l++) {
        for (unsigned m = 0; m < 4; m++) {
            unsigned row = l % 4 * 2, col = l / 4;
            EXPECT(out[l * 4 + m] == ((m * 64 + row * 8 + col) |
                                      (m * 64 + (row + 1) * 8 + col) << 16));
        }
    }
}

/* ---- shuffles, barriers -------------------------------------------------- */

static __global__ void sums(const float *x, float *y, unsigned *seen, int n)
{
    __shared__ float part[8];
    CU_DYNAMIC(float, all);
    float v =
        (int)threadIdx.x < n ? x[blockIdx.x * blockDim.x + threadIdx.x] : 0.0f;
    float poison = all[threadIdx.x];
    for (int by = 16; by; by /= 2)
        v += __shfl_xor_sync(0xffffffffu, v, by);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = v;
    int bad = __syncthreads_count(poison == poison);
    if (threadIdx.x == 0) {
        float s = 0;
        for (unsigned w = 0; w < blockDim.x / 32; w++)
            s += part[w];
        y[blockIdx.x] = bad ? -1.0f : s;
    }
    if (threadIdx.x < 32) {
        double up = __shfl_up_sync(0xffffffffu, (double)threadIdx.x, 3, 8);
        double want = threadIdx.x % 8 < 3 ? threadIdx.x : threadIdx.x - 3;
        unsigned down = __shfl_down_sync(0xffffffffu, threadIdx.x, 30);
        unsigned ok =
            up == want &&
            down == (threadIdx.x < 2 ? threadIdx.x + 30 : threadIdx.x) &&
            __shfl_sync(0xffffffffu, (int)threadIdx.x, 5) == 5;
        unsigned half_mask = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
        ok &= __ballot_sync(half_mask, threadIdx.x % 2) ==
              (0xaaaaaaaau & half_mask);
        ok &= __all_sync(0xffffffffu, 1) && !__any_sync(0xffffffffu, 0);
        if (__all_sync(0xffffffffu, (int)ok) && threadIdx.x == 0)
            atomicAdd(seen, 1u);
    }
}

static void shuffles_and_barriers_are_right(void)
{
    float x[3 * 256], y[3];
    unsigned seen = 0;
    for (int i = 0; i < 3 * 256; i++)
        x[i] = (float)(i % 17);
    CU_LAUNCH(sums, 3, 256, 1024, nullptr, x, y, &seen, 250);
    for (int b = 0; b < 3; b++) {
        float s = 0;
        for (int i = 0; i < 250; i++)
            s += x[b * 256 + i];
        EXPECT(y[b] == s);
    }
    EXPECT(seen == 3);
}

/* The second half of the block meets twice while the first half meets once. */
static __global__ void halves(unsigned *y)
{
    CU_DYNAMIC(unsigned, all);
    unsigned half = threadIdx.x / 64;
    for (unsigned turn = 0; turn <= half; turn++) {
        all[threadIdx.x] = threadIdx.x + turn;
        cu_meet<64>(1 + half);
        unsigned other = all[threadIdx.x ^ 63];
        cu_meet<64>(1 + half);
        all[threadIdx.x] = other;
    }
    __syncthreads();
    y[blockIdx.x * 128 + threadIdx.x] = all[127 - threadIdx.x];
}

static void numbered_barriers_are_right(void)
{
    unsigned y[2 * 128];
    CU_LAUNCH(halves, 2, 128, 512, nullptr, y);
    for (unsigned i = 0; i < 2 * 128; i++) {
        unsigned from = 127 - i % 128;
        EXPECT(y[i] == (from ^ 63) + from / 64);
    }
}

/* ---- graphs -------------------------------------------------------------- */

static __global__ void add(float *x, float by)
{
    x[blockIdx.x * blockDim.x + threadIdx.x] += by;
}

static void graphs_replay_their_calls(void)
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t e;
    float x[64] = { 0 };
    EXPECT(cudaStreamCreateWithFlags(&s, 0) == cudaSuccess);
    EXPECT(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal) ==
           cudaSuccess);
    CU_LAUNCH(add, dim3(2), dim3(32), 0, s, x, 1.5f);
    EXPECT(cudaStreamSynchronize(s) != cudaSuccess);
    EXPECT(x[63] == 0.0f);
    EXPECT(cudaStreamEndCapture(s, &g) == cudaSuccess);
    EXPECT(cudaGraphInstantiate(&e, g, 0) == cudaSuccess);
    EXPECT(cudaGraphDestroy(g) == cudaSuccess);
    EXPECT(cudaGraphLaunch(e, s) == cudaSuccess);
    EXPECT(cudaGraphLaunch(e, s) == cudaSuccess);
    EXPECT(x[0] == 3.0f && x[63] == 3.0f);
    EXPECT(cudaGraphExecDestroy(e) == cudaSuccess);
    EXPECT(cudaStreamDestroy(s) == cudaSuccess);
}

/* ---- mistakes ------------------------------------------------------------ */

static __global__ void returns_early(float *x)
{
    if (threadIdx.x == 7)
        return;
    __syncthreads();
    x[threadIdx.x] = 1;
}

static __global__ void half_a_warp(float *x)
{
    if (threadIdx.x < 16)
        x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

static __global__ void two_barriers(float *x)
{
    if (threadIdx.x < 32)
        __syncthreads();
    else
        __syncthreads();
    x[0] = 1;
}

static __global__ void missed_meeting(float *x)
{
    if (threadIdx.x < 32)
        cu_meet<64>(1);
    else
        cu_meet<64>(2);
    x[0] = 1;
}

static __global__ void unequal_meetings(float *x)
{
    if (threadIdx.x < 32)
        cu_meet<64>(1);
    else
        cu_meet<32>(1);
    x[0] = 1;
}

static __global__ void unaligned(uint16_t *x)
{
    cu_async16(x + 1, x, 16);
}

static __global__ void unwaited(const uint16_t *from, float *out)
{
    CU_DYNAMIC(uint16_t, s);
    cu_async16(s, from, 16);
    cu_async_commit();
    out[blockIdx.x] = cu_from_bf16(s[3]);
    cu_async_wait<0>();
}

static float sink[1024];

static void launch_early_return(void)
{
    CU_LAUNCH(returns_early, 1, 64, 0, nullptr, sink);
}

static void launch_half_a_warp(void)
{
    CU_LAUNCH(half_a_warp, 1, 32, 0, nullptr, sink);
}

static void launch_two_barriers(void)
{
    CU_LAUNCH(two_barriers, 1, 64, 0, nullptr, sink);
}

static void launch_missed_meeting(void)
{
    CU_LAUNCH(missed_meeting, 1, 64, 0, nullptr, sink);
}

static void launch_unequal_meetings(void)
{
    CU_LAUNCH(unequal_meetings, 1, 64, 0, nullptr, sink);
}

static void launch_unaligned_copy(void)
{
    alignas(16) static uint16_t x[32];
    CU_LAUNCH(unaligned, 1, 1, 0, nullptr, x);
}

static void launch_large_block(void)
{
    CU_LAUNCH(add, 1, 1056, 0, nullptr, sink, 1.0f);
}

static void launch_large_shared(void)
{
    CU_LAUNCH(add, 1, 32, 49u << 10, nullptr, sink, 1.0f);
}

static void launch_empty_grid(void)
{
    CU_LAUNCH(add, 0, 32, 0, nullptr, sink, 1.0f);
}

/* Runs `what` in a child process, which must abort and print `text`. */
static void expect_report(void (*what)(void), const char *text)
{
    int pipes[2];
    char said[1024];
    size_t have = 0;
    ssize_t got;
    int status = 0;
    EXPECT(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipes[1], 2);
        what();
        _exit(0);
    }
    close(pipes[1]);
    while ((got = read(pipes[0], said + have, sizeof(said) - 1 - have)) > 0)
        have += (size_t)got;
    said[have] = 0;
    close(pipes[0]);
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT ||
        !strstr(said, text)) {
        fprintf(stderr, "wanted \"%s\", got status %d and: %s\n", text, status,
                said);
        failures++;
    }
}

static void unwaited_copies_are_nan(void)
{
    alignas(16) uint16_t from[8];
    float out[4];
    int nans = 0;
    for (int i = 0; i < 8; i++)
        from[i] = cu_to_bf16(2.0f);
    CU_LAUNCH(unwaited, 4, 1, 16, nullptr, from, out);
    for (int i = 0; i < 4; i++)
        nans += out[i] != out[i];
    EXPECT(nans == 2);
}

int main(void)
{
    tensor_products_are_right();
    tensor_products_are_those_of_the_model();
    transposed_loads_are_right();
    shuffles_and_barriers_are_right();
    numbered_barriers_are_right();
    graphs_replay_their_calls();
    unwaited_copies_are_nan();
    expect_report(launch_early_return, "threads returned before it (one is 7)");
    expect_report(launch_half_a_warp, "returned");
    expect_report(launch_two_barriers, "while others wait at");
    expect_report(launch_missed_meeting, "waits at cu_meet");
    expect_report(launch_unequal_meetings, "while others wait for");
    expect_report(launch_unaligned_copy, "16 must divide");
    expect_report(launch_large_block, "a block of 1056");
    expect_report(launch_large_shared, "without cudaFuncSetAttribute");
    expect_report(launch_empty_grid, "a grid of 0");
    if (!failures)
        printf("emulate: ok\n");
    return failures != 0;
}
