/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the smallest logit that min_p, top_k and top_p leave to be sampled. A
 * heap hands out the logits in descending order, so a small support costs much
 * less than a sort of the vocabulary.
 */
#include "plugins/device-cpu/support.h"

#include <math.h>

/* A max-heap of floats. Elements that were taken are kept after its end, so the
 * i-th largest stays at v[count - 1 - i]. */
typedef struct heap {
    float *v;
    size_t count;
    size_t left;
} heap;

static void sift_down(heap *h, size_t at)
{
    float moved = h->v[at];
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= h->left)
            break;
        if (child + 1 < h->left && h->v[child + 1] > h->v[child])
            child++;
        if (!(h->v[child] > moved))
            break;
        h->v[at] = h->v[child];
        at = child;
    }
    h->v[at] = moved;
}

/* Returns the i-th largest element; i may exceed the number of elements taken
 * so far by at most one. */
static float take_nth_largest(heap *h, size_t i)
{
    size_t taken = h->count - h->left;
    if (i >= taken) {
        float top = h->v[0];
        h->left--;
        h->v[0] = h->v[h->left];
        h->v[h->left] = top;
        if (h->left > 1)
            sift_down(h, 0);
    }
    return h->v[h->count - 1 - i];
}

static void fill_heap(heap *h, const float *z, size_t n, float floor)
{
    h->count = 0;
    for (size_t j = 0; j < n; j++)
        if (z[j] >= floor)
            h->v[h->count++] = z[j];
    h->left = h->count;
    for (size_t i = h->count / 2; i-- > 0;)
        sift_down(h, i);
}

static float cut_min_p(const float *z, const float *e, size_t n, float min_p)
{
    float floor = INFINITY;
    for (size_t j = 0; j < n; j++)
        if (e[j] >= min_p && z[j] < floor)
            floor = z[j];
    return floor;
}

float cpu_support_floor(const cpu_kernels *k, const float *z, size_t n,
                        const xray_draw *draw, float max, float *work)
{
    float floor = -INFINITY;
    float *e = work;
    heap h = { .v = work + (n + 15) / 16 * 16 };
    int by_p = draw->top_p < 1.0f;
    if (draw->min_p > 0.0f || by_p)
        k->exp_row(e, z, max, n);
    if (draw->min_p > 0.0f)
        floor = cut_min_p(z, e, n, draw->min_p);
    size_t top_k = draw->top_k > 0 ? (size_t)draw->top_k : n;
    if (top_k >= n && !by_p)
        return floor;
    fill_heap(&h, z, n, floor);
    if (top_k < h.count)
        for (size_t i = 0; i < top_k; i++)
            floor = take_nth_largest(&h, i);
    if (!by_p)
        return floor;
    float wanted = draw->top_p * k->sum_from(e, z, floor, n);
    float sum = 0.0f;
    for (size_t i = 0; i < h.count; i++) {
        float value = take_nth_largest(&h, i);
        float p;
        if (value < floor)
            break;
        k->exp_row(&p, &value, max, 1);
        sum += p;
        if (sum >= wanted)
            return value;
    }
    return floor;
}
