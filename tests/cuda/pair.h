/* SPDX-License-Identifier: Apache-2.0
 *
 * The same call on device-cpu (scalar) and on device-cuda: memory that exists
 * on both, and the comparison of the results in it.
 */
#ifndef CUDA_TEST_PAIR_H
#define CUDA_TEST_PAIR_H

#include "tests/device/bench.h"

#include "plugins/device-cuda/config.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);

#define CPU 0
#define CUDA 1

typedef struct pair {
    dev d[2];
} pair;

typedef struct buf {
    void *p[2]; /* on each device */
    size_t bytes;
} buf;

static inline pair open_pair(void)
{
    pair p;
    cpu_config cpu = { .isa = CPU_ISA_SCALAR };
    cuda_config cuda = { .precision = CUDA_FLOAT32 };
    p.d[CPU] = (dev){ .ops = device_ops(), .name = "cpu" };
    must(p.d[CPU].ops->create(&bench_host, &cpu, 1, &p.d[CPU].self));
    const xray_plugin *q = xray_plugin_query_device_cuda(XRAY_ABI);
    assert_non_null(q);
    p.d[CUDA] = (dev){ .ops = q->components[0]->ops, .name = "cuda" };
    xray_status s =
        p.d[CUDA].ops->create(&bench_host, &cuda, 1, &p.d[CUDA].self);
    if (s == XRAY_E_DEVICE) { /* the emulated device always exists */
        (void)printf("skipped: %s\n", last_failure);
        (void)fflush(stdout);
        _exit(77);
    }
    assert_int_equal(s, XRAY_OK);
    return p;
}

static inline void close_pair(pair *p)
{
    for (int s = 0; s < 2; s++)
        p->d[s].ops->destroy(p->d[s].self);
}

static inline buf make_buf(const pair *p, const void *data, size_t bytes)
{
    buf b = { .bytes = bytes };
    for (int s = 0; s < 2; s++) {
        const dev *d = &p->d[s];
        must(d->ops->alloc(d->self, "test", XRAY_TAG_WORKSPACE, bytes + 64,
                           &b.p[s]));
        must(d->ops->copy(d->self, NULL, b.p[s], data, bytes,
                          XRAY_COPY_TO_DEVICE));
        must(d->ops->sync(d->self, NULL));
    }
    return b;
}

/* n random values around 0, which are 2 n of them as bf16. */
static inline buf make_random_buf(const pair *p, size_t n, double scale)
{
    float *x = random_floats(n, scale);
    float *y = random_floats(n, scale);
    for (size_t i = 0; i < n; i++) {
        uint32_t both = (uint32_t)cpu_to_bf16(x[i]) << 16 | cpu_to_bf16(y[i]);
        memcpy(&x[i], &both, sizeof(both));
    }
    free(y);
    buf b = make_buf(p, x, n * sizeof(*x));
    free(x);
    return b;
}

static inline void free_buf(const pair *p, const buf *b)
{
    for (int s = 0; s < 2; s++)
        p->d[s].ops->free(p->d[s].self, b->p[s]);
}

static inline float *buf_floats(const buf *b, int s, size_t offset)
{
    return (float *)b->p[s] + offset;
}

/* Asserts that both have the same bits, or both NaN, in every float. */
static inline void assert_same_buf(const pair *p, const buf *b,
                                   const char *what)
{
    float *x[2];
    size_t n = b->bytes / sizeof(float);
    for (int s = 0; s < 2; s++) {
        const dev *d = &p->d[s];
        x[s] = alloc_floats(n + 1);
        must(d->ops->sync(d->self, NULL));
        must(d->ops->copy(d->self, NULL, x[s], b->p[s], b->bytes,
                          XRAY_COPY_TO_HOST));
        must(d->ops->sync(d->self, NULL));
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t u[2];
        memcpy(&u[CPU], &x[CPU][i], sizeof(u[CPU]));
        memcpy(&u[CUDA], &x[CUDA][i], sizeof(u[CUDA]));
        if (u[CPU] != u[CUDA] && !(isnan(x[CPU][i]) && isnan(x[CUDA][i])))
            fail_msg("%s: entry %zu of %zu is %a, on the CPU %a", what, i, n,
                     (double)x[CUDA][i], (double)x[CPU][i]);
    }
    assert_memory_equal((char *)x[CPU] + n * sizeof(float),
                        (char *)x[CUDA] + n * sizeof(float),
                        b->bytes - n * sizeof(float));
    free(x[CPU]);
    free(x[CUDA]);
}

/* The type of one operand in the `kind`th choice of types for several. */
static inline uint32_t type_in(uint32_t kind, uint32_t operand)
{
    return kind >> operand & 1 ? XRAY_BF16 : XRAY_F32;
}

/* The call of `op` on side s, which must succeed. */
#define RUN_ON(pair_, s, op, args) \
    must((pair_)->d[s].ops->op((pair_)->d[s].self, NULL, args))

/* Both refuse the call with the same status and the same sentence. */
#define REFUSED(pair_, op, args, status)                                 \
    do {                                                                 \
        char first_[512];                                                \
        assert_int_equal(                                                \
            (pair_)->d[CPU].ops->op((pair_)->d[CPU].self, NULL, args),   \
            status);                                                     \
        memcpy(first_, last_failure, sizeof(first_));                    \
        assert_int_equal(                                                \
            (pair_)->d[CUDA].ops->op((pair_)->d[CUDA].self, NULL, args), \
            status);                                                     \
        assert_string_equal(last_failure, first_);                       \
    } while (0)

#endif
