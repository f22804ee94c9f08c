/* SPDX-License-Identifier: Apache-2.0
 *
 * The float64 reference of attention in bfloat16 and of its gradient, over
 * operands rounded to bf16, for the rows of tests/device/attention_rows.h.
 */
#ifndef CUDA_ATTENTION_ROWS_H
#define CUDA_ATTENTION_ROWS_H

#include "tests/device/attention_rows.h"

#define MOST_KEYS 2048

REFERENCE static inline float round_to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof(u));
    u = (u + 0x7fffu + (u >> 16 & 1u)) & 0xffff0000u;
    memcpy(&x, &u, sizeof(x));
    return x;
}

static inline void round_all_to_bf16(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = round_to_bf16(x[i]);
}

/* The view of a query: its token and head, and the keys from..i of its row. */
typedef struct seen {
    const rows *r;
    size_t start, i, from;
    const float *q, *k, *v; /* k and v of the row's first token */
    double scale, cap;
} seen;

static inline seen make_query_view(const rows *r, size_t row, size_t i,
                                   size_t head)
{
    size_t w = r->f.window;
    size_t kv = head / (r->f.heads / r->f.kv_heads) * r->f.dim;
    size_t start = (size_t)r->start[row];
    const float *first = r->qkv + start * r->stride;
    return (seen){ .r = r,
                   .start = start,
                   .i = i,
                   .from = w && i + 1 > w ? i + 1 - w : 0,
                   .q = first + i * r->stride + head * r->f.dim,
                   .k = first + r->q_width + kv,
                   .v = first + r->q_width + r->kv_width + kv,
                   .scale = (double)score_scale(&r->f),
                   .cap = (double)r->f.softcap };
}

REFERENCE static inline double dot64(const float *a, const float *b, size_t n)
{
    double s = 0;
    for (size_t d = 0; d < n; d++)
        s += (double)a[d] * (double)b[d];
    return s;
}

/* Computes p[j] and the slope of the softcap; returns the log-sum-exp. */
REFERENCE static inline double compute_probs(const seen *q, double *p,
                                             double *slope)
{
    double max = -INFINITY;
    double sum = 0;
    for (size_t j = q->from; j <= q->i; j++) {
        double s = q->scale * dot64(q->q, q->k + j * q->r->stride, q->r->f.dim);
        slope[j] = 1;
        if (q->cap > 0) {
            double t = tanh(s / q->cap);
            slope[j] = 1 - t * t;
            s = q->cap * t;
        }
        p[j] = s;
        max = s > max ? s : max;
    }
    for (size_t j = q->from; j <= q->i; j++)
        sum += p[j] = exp(p[j] - max);
    for (size_t j = q->from; j <= q->i; j++)
        p[j] /= sum;
    return max + log(sum);
}

/* Computes o, and the sum of |p v|, to which the error of o is proportional. */
REFERENCE static inline void compute_values(const seen *q, const double *p,
                                            double *o, double *size)
{
    for (size_t d = 0; d < q->r->f.dim; d++) {
        o[d] = size[d] = 0;
        for (size_t j = q->from; j <= q->i; j++) {
            double x = p[j] * (double)q->v[j * q->r->stride + d];
            o[d] += x;
            size[d] += fabs(x);
        }
    }
}

/* Adds a query's gradient to `grad`, with the layout of qkv, and its magnitude
 * to `size`. */
REFERENCE static inline void add_query_grad(const seen *q, const float *g,
                                            double *grad, double *size)
{
    const rows *r = q->r;
    double p[MOST_KEYS];
    double slope[MOST_KEYS];
    double dp[MOST_KEYS];
    double mean = 0;
    /* O, and therefore the mean, is as exact as its terms. */
    double mean_size = 0;
    (void)compute_probs(q, p, slope);
    for (size_t j = q->from; j <= q->i; j++) {
        const float *v = q->v + j * r->stride;
        dp[j] = dot64(g, v, r->f.dim);
        mean += p[j] * dp[j];
        for (size_t d = 0; d < r->f.dim; d++)
            mean_size += p[j] * fabs((double)g[d] * (double)v[d]);
    }
    double *to_q = grad + (q->q - r->qkv);
    double *size_q = size + (q->q - r->qkv);
    for (size_t j = q->from; j <= q->i; j++) {
        size_t k = (size_t)(q->k - r->qkv) + j * r->stride;
        size_t v = (size_t)(q->v - r->qkv) + j * r->stride;
        double ds = p[j] * (dp[j] - mean) * slope[j] * q->scale;
        double most = p[j] * (fabs(dp[j]) + mean_size) * q->scale;
        for (size_t d = 0; d < r->f.dim; d++) {
            to_q[d] += ds * (double)r->qkv[k + d];
            size_q[d] += most * fabs((double)r->qkv[k + d]);
            grad[k + d] += ds * (double)q->q[d];
            size[k + d] += most * fabs((double)q->q[d]);
            grad[v + d] += p[j] * (double)g[d];
            size[v + d] += p[j] * fabs((double)g[d]);
        }
    }
}

/* Asserts |got - want| <= tolerance * size + 1e-6. */
static inline void assert_within(float got, double want, double size,
                                 double tolerance, const char *what, size_t at)
{
    if (!(fabs((double)got - want) <= tolerance * size + 1e-6))
        fail_msg("%s, entry %zu: %.9g, float64 gives %.9g of size %.3g", what,
                 at, (double)got, want, size);
}

#endif
