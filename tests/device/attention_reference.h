/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention and its gradient in float64, one query at a time.
 */
#ifndef DEVICE_ATTENTION_REFERENCE_H
#define DEVICE_ATTENTION_REFERENCE_H

#include "tests/device/attention_rows.h"

#define REF_KEYS 512 /* most keys of a row */

typedef struct query {
    const rows *r;
    size_t row, i, head;
} query;

REFERENCE static inline size_t first_visible_key(const query *q)
{
    size_t w = q->r->f.window;
    return w && q->i + 1 > w ? q->i + 1 - w : 0;
}

REFERENCE static inline const float *key_vector(const query *q, size_t j,
                                                int part)
{
    const rows *r = q->r;
    size_t group = r->f.heads / r->f.kv_heads;
    const float *token = r->qkv + ((size_t)r->start[q->row] + j) * r->stride;
    size_t kv = q->head / group * r->f.dim;
    return part == 0   ? token + q->head * r->f.dim
           : part == 1 ? token + r->q_width + kv
                       : token + r->q_width + r->kv_width + kv;
}

/* Computes the probabilities of the visible keys and returns the log-sum-exp.
 * `slope` is the derivative of the capped score. */
REFERENCE static inline double ref_probs(const query *q, double *p,
                                         double *slope)
{
    double max = -INFINITY;
    double sum = 0;
    double cap = (double)q->r->f.softcap;
    for (size_t j = first_visible_key(q); j <= q->i; j++) {
        double s = 0;
        for (size_t d = 0; d < q->r->f.dim; d++)
            s += (double)key_vector(q, q->i, 0)[d] *
                 (double)key_vector(q, j, 1)[d];
        s *= (double)score_scale(&q->r->f);
        slope[j] = 1;
        if (cap > 0) {
            double t = tanh(s / cap);
            slope[j] = 1 - t * t;
            s = cap * t;
        }
        p[j] = s;
        max = s > max ? s : max;
    }
    for (size_t j = first_visible_key(q); j <= q->i; j++)
        sum += p[j] = exp(p[j] - max);
    for (size_t j = first_visible_key(q); j <= q->i; j++)
        p[j] /= sum;
    return max + log(sum);
}

/* Compares o and the log-sum-exp of one query. */
REFERENCE static inline void check_ref_query(const query *q, const float *o,
                                             float lse)
{
    double p[REF_KEYS];
    double slope[REF_KEYS];
    double l = ref_probs(q, p, slope);
    assert_near(lse, l, 3e-6, "attention lse");
    for (size_t d = 0; d < q->r->f.dim; d++) {
        double sum = 0;
        for (size_t j = first_visible_key(q); j <= q->i; j++)
            sum += p[j] * (double)key_vector(q, j, 2)[d];
        assert_near(o[d], sum, 3e-6, "attention o");
    }
}

/* Adds one query's part to grad [tokens, stride]: dq, dk, dv side by side. */
REFERENCE static inline void add_ref_query_grad(const query *q,
                                                const float *d_o, double *grad)
{
    const rows *r = q->r;
    double p[REF_KEYS];
    double slope[REF_KEYS];
    double dp[REF_KEYS];
    double mean = 0;
    double scale = (double)score_scale(&r->f);
    const float *g = d_o + ((size_t)r->start[q->row] + q->i) * r->q_width +
                     q->head * r->f.dim;
    (void)ref_probs(q, p, slope);
    for (size_t j = first_visible_key(q); j <= q->i; j++) {
        dp[j] = 0;
        for (size_t d = 0; d < r->f.dim; d++)
            dp[j] += (double)g[d] * (double)key_vector(q, j, 2)[d];
        mean += p[j] * dp[j];
    }
    for (size_t j = first_visible_key(q); j <= q->i; j++) {
        double ds = p[j] * (dp[j] - mean) * slope[j] * scale;
        double *to_q = grad + (key_vector(q, q->i, 0) - r->qkv);
        double *to_k = grad + (key_vector(q, j, 1) - r->qkv);
        double *to_v = grad + (key_vector(q, j, 2) - r->qkv);
        for (size_t d = 0; d < r->f.dim; d++) {
            to_q[d] += ds * (double)key_vector(q, j, 1)[d];
            to_k[d] += ds * (double)key_vector(q, q->i, 0)[d];
            to_v[d] += p[j] * (double)g[d];
        }
    }
}

#endif
