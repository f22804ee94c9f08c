/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what the machine can do: the FMA rate and the read bandwidth to
 * which measured speeds are compared.
 */
#ifndef BENCH_PROBE_H
#define BENCH_PROBE_H

#include <immintrin.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define PROBE_MOST_THREADS 64
#define PROBE_FLOATS ((size_t)32 << 20) /* 128 MiB: beyond any cache */
#define PROBE_FMAS ((size_t)4 << 20)

/* Reads processor time for one thread, which other programs on a shared machine
 * do not extend, and wall-clock time for several. */
static inline double probe_seconds(uint32_t threads)
{
    struct timespec t;
    (void)clock_gettime(
        threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct probe_rates {
    double flops; /* fp32 operations per second by FMA, all threads */
    double bytes; /* bytes read from memory per second, all threads */
} probe_rates;

typedef struct probe_part {
    const float *data; /* NULL: arithmetic */
    size_t count;
    int wide;    /* arithmetic with AVX-512 */
    double work; /* operations or bytes done */
    float keep;
} probe_part;

__attribute__((target("avx512f"))) static inline float probe_fma_512(void)
{
    __m512 c[16];
    __m512 x = _mm512_set1_ps(0.999f);
    for (int i = 0; i < 16; i++)
        c[i] = _mm512_set1_ps((float)i);
    for (size_t r = 0; r < PROBE_FMAS; r++)
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++)
            c[i] = _mm512_fmadd_ps(c[i], x, x);
    for (int i = 1; i < 16; i++)
        c[0] = _mm512_add_ps(c[0], c[i]);
    return _mm512_cvtss_f32(c[0]);
}

__attribute__((target("avx2,fma"))) static inline float probe_fma_256(void)
{
    __m256 c[12];
    __m256 x = _mm256_set1_ps(0.999f);
    for (int i = 0; i < 12; i++)
        c[i] = _mm256_set1_ps((float)i);
    for (size_t r = 0; r < PROBE_FMAS; r++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++)
            c[i] = _mm256_fmadd_ps(c[i], x, x);
    for (int i = 1; i < 12; i++)
        c[0] = _mm256_add_ps(c[0], c[i]);
    return _mm256_cvtss_f32(c[0]);
}

__attribute__((target("avx2"))) static inline float
probe_read(const float *data, size_t count)
{
    __m256 c[8];
    for (int i = 0; i < 8; i++)
        c[i] = _mm256_setzero_ps();
    for (size_t i = 0; i + 64 <= count; i += 64)
#pragma GCC unroll 8
        for (int j = 0; j < 8; j++)
            c[j] = _mm256_add_ps(c[j], _mm256_loadu_ps(data + i + 8 * j));
    for (int i = 1; i < 8; i++)
        c[0] = _mm256_add_ps(c[0], c[i]);
    return _mm256_cvtss_f32(c[0]);
}

static inline void *probe_run_part(void *arg)
{
    probe_part *part = (probe_part *)arg;
    if (part->data) {
        part->keep = probe_read(part->data, part->count);
        part->work = (double)part->count * sizeof(float);
    } else if (part->wide) {
        part->keep = probe_fma_512();
        part->work = (double)PROBE_FMAS * 16 * 32;
    } else {
        part->keep = probe_fma_256();
        part->work = (double)PROBE_FMAS * 12 * 16;
    }
    return NULL;
}

/* Runs once on all threads and returns the rate; 0 if a thread cannot start. */
static inline double probe_run_once(uint32_t threads, int wide,
                                    const float *data)
{
    pthread_t id[PROBE_MOST_THREADS];
    probe_part part[PROBE_MOST_THREADS];
    double work = 0;
    double start = probe_seconds(threads);
    for (uint32_t i = 0; i < threads; i++) {
        size_t count = PROBE_FLOATS / threads;
        part[i] = (probe_part){ .data = data ? data + i * count : NULL,
                                .count = count,
                                .wide = wide };
        if (i > 0 &&
            pthread_create(&id[i], NULL, probe_run_part, &part[i]) != 0)
            return 0;
    }
    (void)probe_run_part(&part[0]);
    for (uint32_t i = 0; i < threads; i++) {
        if (i > 0)
            (void)pthread_join(id[i], NULL);
        work += part[i].work;
    }
    return work / (probe_seconds(threads) - start);
}

/* Returns the best rate of several runs. */
static inline double probe_best_rate(uint32_t threads, int wide,
                                     const float *data)
{
    double best = 0;
    for (int again = 0; again < 8; again++) {
        double rate = probe_run_once(threads, wide, data);
        best = rate > best ? rate : best;
    }
    return best;
}

/* Tells whether this processor has AVX-512. */
static inline int probe_has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") != 0;
}

/* Measures the peak rates, with AVX-512 if `wide`, otherwise with AVX2. It
 * takes about a tenth of a second and 128 MiB. */
static inline probe_rates probe_machine(uint32_t threads, int wide)
{
    probe_rates rates = { 0 };
    if (threads < 1 || threads > PROBE_MOST_THREADS ||
        !__builtin_cpu_supports("avx2"))
        return rates;
    float *data = (float *)malloc(PROBE_FLOATS * sizeof(float));
    if (!data)
        return rates;
    for (size_t i = 0; i < PROBE_FLOATS; i++)
        data[i] = (float)(i % 17);
    rates.flops = probe_best_rate(threads, wide, NULL);
    rates.bytes = probe_best_rate(threads, wide, data);
    free(data);
    return rates;
}

#endif
