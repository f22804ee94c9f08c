/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor-core products of the emulator: sixteen products are added to an
 * accumulator as Hopper does (docs/numerics.md). All terms are aligned to the
 * largest exponent and cut toward zero 25 bits below it, and so is their sum to
 * fp32. The eight columns of a row are computed side by side with AVX2.
 * tests/cuda/mma_reference.h has the same model one term at a time.
 */
#include "emulate.h"

#include <immintrin.h>

/* Below its exponent a product has 14 bits, an accumulator 23. */
enum { KEPT = 25, PRODUCT_UP = KEPT - 14, SUM_UP = KEPT - 23 };

/* Of the shift of a product each factor has a part, with which its significand
 * still fits 16 bits. */
enum { LEFT_UP = 4, RIGHT_UP = PRODUCT_UP - LEFT_UP };

enum { NONE = -100000 }; /* the exponent of zeros */

static uint32_t mark_lanes(__m256i lanes)
{
    return (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(lanes));
}

/* A factor [ROWS, COLS] of bf16, taken apart. */
template <unsigned ROWS, unsigned COLS> struct factor {
    alignas(32) uint32_t half[ROWS][COLS];
    alignas(32) int32_t value[ROWS][COLS]; /* signed significand, in 16 bits */
    alignas(32) int32_t exponent[ROWS][COLS];
    uint32_t infinite[ROWS]; /* one bit per column, modulo 8 */

    void take_apart(int up)
    {
        const __m256i ones = _mm256_set1_epi32(0xff);
        const __m256i low = _mm256_set1_epi32(0xffff);
        const __m256i one = _mm256_set1_epi32(1);
        const __m256i zero = _mm256_setzero_si256();
        for (unsigned row = 0; row < ROWS; row++)
            infinite[row] = 0;
        for (unsigned i = 0; i < ROWS * COLS; i += 8) {
            __m256i h = _mm256_load_si256((const __m256i *)(&half[0][0] + i));
            __m256i e8 = _mm256_and_si256(_mm256_srli_epi32(h, 7), ones);
            __m256i normal = _mm256_cmpgt_epi32(e8, zero);
            __m256i m = _mm256_or_si256(
                _mm256_and_si256(h, _mm256_set1_epi32(0x7f)),
                _mm256_and_si256(normal, _mm256_set1_epi32(0x80)));
            __m256i e = _mm256_sub_epi32(_mm256_max_epi32(e8, one),
                                         _mm256_set1_epi32(127));
            __m256i none = _mm256_cmpeq_epi32(m, zero);
            e = _mm256_blendv_epi8(e, _mm256_set1_epi32(NONE), none);
            __m256i sign = _mm256_srai_epi32(_mm256_slli_epi32(h, 16), 31);
            m = _mm256_slli_epi32(m, up);
            m = _mm256_sub_epi32(_mm256_xor_si256(m, sign), sign);
            _mm256_store_si256((__m256i *)(&value[0][0] + i),
                               _mm256_and_si256(m, low));
            _mm256_store_si256((__m256i *)(&exponent[0][0] + i), e);
            infinite[i / COLS] |= mark_lanes(_mm256_cmpeq_epi32(e8, ones));
        }
    }

    float get(unsigned row, unsigned col) const
    {
        return cu_float(half[row][col] << 16);
    }
};

typedef factor<16, 16> left;
typedef factor<16, 8> right;

/* The eight accumulators of a row, taken apart. */
struct sums {
    __m256i value; /* signed significand, aligned to `top` */
    __m256i top;   /* the largest exponent of all terms */
};

/* Cuts x 2^unit toward zero to fp32. */
static float cut_to_float(int64_t x, int32_t unit)
{
    uint64_t magnitude = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    if (magnitude == 0)
        return 0.0f;
    int32_t last = 63 - __builtin_clzll(magnitude) + unit - 23;
    last = last < -149 ? -149 : last;
    int32_t cut = last - unit;
    uint64_t kept = cut > 63   ? 0
                    : cut <= 0 ? magnitude << -cut
                               : magnitude >> cut;
    uint64_t bits = ((uint64_t)(last + 149) << 23) + kept;
    bits = bits > 0x7f800000u ? 0x7f800000u : bits;
    return cu_float((uint32_t)bits | (x < 0 ? 0x80000000u : 0u));
}

static sums align_sums(const float c[8], __m256i top)
{
    const __m256i zero = _mm256_setzero_si256();
    __m256i u = _mm256_castps_si256(_mm256_loadu_ps(c));
    __m256i e8 =
        _mm256_and_si256(_mm256_srli_epi32(u, 23), _mm256_set1_epi32(0xff));
    __m256i m =
        _mm256_or_si256(_mm256_and_si256(u, _mm256_set1_epi32(0x7fffff)),
                        _mm256_and_si256(_mm256_cmpgt_epi32(e8, zero),
                                         _mm256_set1_epi32(0x800000)));
    __m256i e = _mm256_sub_epi32(_mm256_max_epi32(e8, _mm256_set1_epi32(1)),
                                 _mm256_set1_epi32(127));
    e = _mm256_blendv_epi8(e, _mm256_set1_epi32(NONE),
                           _mm256_cmpeq_epi32(m, zero));
    sums s;
    s.top = _mm256_max_epi32(top, e);
    m = _mm256_srlv_epi32(_mm256_slli_epi32(m, SUM_UP),
                          _mm256_sub_epi32(s.top, e));
    __m256i sign = _mm256_srai_epi32(u, 31);
    s.value = _mm256_sub_epi32(_mm256_xor_si256(m, sign), sign);
    return s;
}

/* Cuts (a + b) 2^(top - KEPT) toward zero. Doubles have every bit of the sum,
 * and those below fp32 are masked away; `far` is set where the result is
 * smaller or larger than normal numbers are. */
static __m128 cut_four(__m128i a, __m128i b, __m128i top, __m256d *far)
{
    __m256d sum = _mm256_add_pd(_mm256_cvtepi32_pd(a), _mm256_cvtepi32_pd(b));
    __m256i power = _mm256_slli_epi64(
        _mm256_cvtepi32_epi64(_mm_add_epi32(top, _mm_set1_epi32(1023 - KEPT))),
        52);
    __m256d x = _mm256_mul_pd(sum, _mm256_castsi256_pd(power));
    __m256d size = _mm256_andnot_pd(_mm256_set1_pd(-0.0), x);
    __m256d small = _mm256_cmp_pd(size, _mm256_set1_pd(0x1p-126), _CMP_LT_OQ);
    __m256d large = _mm256_cmp_pd(size, _mm256_set1_pd(0x1p128), _CMP_GE_OQ);
    __m256d some = _mm256_cmp_pd(size, _mm256_setzero_pd(), _CMP_NEQ_OQ);
    *far = _mm256_or_pd(large, _mm256_and_pd(small, some));
    const __m256i mask = _mm256_set1_epi64x(-(1ll << 29));
    return _mm256_cvtpd_ps(_mm256_and_pd(x, _mm256_castsi256_pd(mask)));
}

static __m256 join(__m128 low, __m128 high)
{
    return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}

/* Adds sixteen products to each accumulator of a row. */
static void add_row(const left *a, const right *b, unsigned row, float c[8])
{
    __m256i e[16];
    __m256i top = _mm256_set1_epi32(NONE);
    for (unsigned k = 0; k < 16; k++) {
        e[k] = _mm256_add_epi32(
            _mm256_set1_epi32(a->exponent[row][k]),
            _mm256_load_si256((const __m256i *)b->exponent[k]));
        top = _mm256_max_epi32(top, e[k]);
    }
    sums s = align_sums(c, top);
    /* Each product is below 2^27, hence their sum below 2^31. */
    __m256i sum = _mm256_setzero_si256();
    for (unsigned k = 0; k < 16; k++) {
        __m256i x =
            _mm256_madd_epi16(_mm256_set1_epi32(a->value[row][k]),
                              _mm256_load_si256((const __m256i *)b->value[k]));
        __m256i cut = _mm256_srlv_epi32(_mm256_abs_epi32(x),
                                        _mm256_sub_epi32(s.top, e[k]));
        sum = _mm256_add_epi32(sum, _mm256_sign_epi32(cut, x));
    }
    __m256d far[2];
    __m128 low =
        cut_four(_mm256_castsi256_si128(sum), _mm256_castsi256_si128(s.value),
                 _mm256_castsi256_si128(s.top), &far[0]);
    __m128 high = cut_four(_mm256_extracti128_si256(sum, 1),
                           _mm256_extracti128_si256(s.value, 1),
                           _mm256_extracti128_si256(s.top, 1), &far[1]);
    /* Zeros alone leave the accumulator as it is, also -0. */
    __m256 some = _mm256_castsi256_ps(
        _mm256_cmpgt_epi32(s.top, _mm256_set1_epi32(NONE / 2)));
    unsigned scalar = (unsigned)_mm256_movemask_pd(far[0]) |
                      (unsigned)_mm256_movemask_pd(far[1]) << 4;
    scalar &= (unsigned)_mm256_movemask_ps(some);
    _mm256_storeu_ps(
        c, _mm256_blendv_ps(_mm256_loadu_ps(c), join(low, high), some));
    if (!scalar)
        return;
    alignas(32) int32_t part[3][8];
    _mm256_store_si256((__m256i *)part[0], sum);
    _mm256_store_si256((__m256i *)part[1], s.value);
    _mm256_store_si256((__m256i *)part[2], s.top);
    for (unsigned n = 0; n < 8; n++)
        if (scalar >> n & 1u)
            c[n] = cut_to_float((int64_t)part[0][n] + part[1][n],
                                part[2][n] - KEPT);
}

/* The columns of a row in which a value is not finite. */
static uint32_t find_infinite(const left *a, const right *b, unsigned row,
                              const float c[8])
{
    const __m256i mask = _mm256_set1_epi32(0x7f800000);
    __m256i u = _mm256_castps_si256(_mm256_loadu_ps(c));
    uint32_t found =
        mark_lanes(_mm256_cmpeq_epi32(_mm256_and_si256(u, mask), mask));
    for (unsigned k = 0; k < 16; k++)
        found |= b->infinite[k];
    return a->infinite[row] ? 0xffu : found;
}

static float add_infinite(const left *a, const right *b, unsigned row,
                          unsigned n, float c)
{
    double sum = c;
    for (unsigned k = 0; k < 16; k++)
        sum += (double)a->get(row, k) * (double)b->get(k, n);
    return (float)sum;
}

void emu_multiply(void *const args[32])
{
    left a;
    right b;
    alignas(32) float c[16][8];
    for (unsigned i = 0; i < 32; i++) {
        const emu_product *p = static_cast<emu_product *>(args[i]);
        unsigned g = i / 4, t = i % 4 * 2;
        for (unsigned r = 0; r < 4; r++) {
            uint32_t *to = &a.half[g + r % 2 * 8][t + r / 2 * 8];
            to[0] = p->a[r] & 0xffffu;
            to[1] = p->a[r] >> 16;
        }
        for (unsigned r = 0; r < 2; r++) {
            b.half[t + r * 8][g] = p->b[r] & 0xffffu;
            b.half[t + r * 8 + 1][g] = p->b[r] >> 16;
            memcpy(&c[g + r * 8][t], &p->d[r * 2], 8);
        }
    }
    a.take_apart(LEFT_UP);
    b.take_apart(RIGHT_UP);
    for (unsigned row = 0; row < 16; row++) {
        float before[8];
        memcpy(before, c[row], sizeof(before));
        add_row(&a, &b, row, c[row]);
        uint32_t infinite = find_infinite(&a, &b, row, before);
        for (unsigned n = 0; infinite >> n; n++)
            if (infinite >> n & 1u)
                c[row][n] = add_infinite(&a, &b, row, n, before[n]);
    }
    for (unsigned i = 0; i < 32; i++) {
        emu_product *p = static_cast<emu_product *>(args[i]);
        for (unsigned r = 0; r < 2; r++)
            memcpy(&p->d[r * 2], &c[i / 4 + r * 8][i % 4 * 2], 8);
    }
}
