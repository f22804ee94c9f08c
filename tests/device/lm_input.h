/* SPDX-License-Identifier: Apache-2.0
 *
 * Hidden states, the matrix of an LM head, and targets, for tests that score or
 * sample.
 */
#ifndef DEVICE_LM_INPUT_H
#define DEVICE_LM_INPUT_H

#include "tests/device/numbers.h"

typedef struct lm_input {
    size_t items, vocab, dim;
    int tempered;
    float softcap;
    float *w, *x, *temperature;
    int32_t *targets;
} lm_input;

static inline lm_input make_lm_input(lm_input h)
{
    h.w = random_floats(h.vocab * h.dim, 1);
    h.x = random_floats(h.items * h.dim, 1.5);
    h.temperature = alloc_floats(h.items);
    h.targets = calloc(h.items, sizeof(*h.targets));
    assert_non_null(h.targets);
    for (size_t i = 0; i < h.items; i++) {
        h.targets[i] = (int32_t)random_below(h.vocab);
        h.temperature[i] = i % 3 ? (float)(0.3 + random_unit()) : 1.0f;
    }
    return h;
}

static inline void free_lm_input(lm_input *h)
{
    free(h->w);
    free(h->x);
    free(h->temperature);
    free(h->targets);
}

/* Allocates space for logits that the caller keeps. */
static inline float *alloc_logits(const lm_input *h)
{
    return alloc_floats(h->items * ((h->vocab + 15) / 16 * 16));
}

/* Arguments without outputs, which the caller sets. */
static inline xray_lm_head_logp make_logp(const lm_input *h,
                                          const xray_weight *w)
{
    return (xray_lm_head_logp){ .header = XRAY_HEADER(xray_lm_head_logp),
                                .items = { h->items, NULL },
                                .weight = w,
                                .x = h->x,
                                .targets = h->targets,
                                .temperature =
                                    h->tempered ? h->temperature : NULL,
                                .softcap = h->softcap };
}

/* The results of scoring targets. */
typedef struct scored {
    float *logp, *entropy, *lse;
    float *logits; /* NULL: not kept */
} scored;

static inline scored make_scored(size_t n)
{
    return (scored){ alloc_floats(n), alloc_floats(n), alloc_floats(n), NULL };
}

static inline void free_scored(scored *o)
{
    free(o->logp);
    free(o->entropy);
    free(o->lse);
    free(o->logits);
}

static inline xray_lm_head_logp
make_logp_into(const lm_input *h, const xray_weight *w, const scored *o)
{
    xray_lm_head_logp op = make_logp(h, w);
    op.logp = o->logp;
    op.entropy = o->entropy;
    op.lse = o->lse;
    op.logits = o->logits;
    return op;
}

/* Computes logits as an engine does that looks at them: a product, then the
 * softcap where it is wanted. */
static inline void compute_logits(const xray_device_ops *ops, void *self,
                                  const lm_input *h, const xray_weight *w,
                                  float softcap, float *z, size_t stride)
{
    xray_matmul product = { .header = XRAY_HEADER(xray_matmul),
                            .weight = w,
                            .tokens = { h->items, NULL },
                            .x = h->x,
                            .y = z,
                            .x_stride = h->dim,
                            .y_stride = stride,
                            .kind = XRAY_NT };
    must(ops->matmul(self, NULL, &product));
    xray_edit_logits cap = { .header = XRAY_HEADER(xray_edit_logits),
                             .items = { h->items, NULL },
                             .logits = z,
                             .changed = z,
                             .stride = stride,
                             .vocab = h->vocab,
                             .softcap = softcap };
    if (softcap != 0.0f)
        must(ops->edit_logits(self, NULL, &cap));
}

/* The results of sampling. */
typedef struct sampled {
    int32_t *token;
    float *raw, *logp, *logits;
} sampled;

/* Samples one token per item with `draws`; with `keep` it also computes the
 * logits, with the softcap. */
static inline sampled sample_tokens(const xray_device_ops *ops, void *self,
                                    const lm_input *h, const xray_draw *draws,
                                    int keep)
{
    sampled r = { calloc(h->items + 1, sizeof(int32_t)), alloc_floats(h->items),
                  alloc_floats(h->items), alloc_floats(h->items * h->vocab) };
    assert_non_null(r.token);
    xray_weight *w = create_weight_on(ops, self, h->w, h->vocab, h->dim);
    xray_sample op = { .header = XRAY_HEADER(xray_sample),
                       .items = { h->items, NULL },
                       .weight = w,
                       .x = h->x,
                       .draws = draws,
                       .token = r.token,
                       .raw_logp = r.raw,
                       .logp = r.logp,
                       .softcap = h->softcap,
                       .draw_stride = sizeof(xray_draw) };
    must(ops->sample(self, NULL, &op));
    if (keep)
        compute_logits(ops, self, h, w, h->softcap, r.logits, h->vocab);
    ops->weight_destroy(self, w);
    return r;
}

static inline void free_sampled(sampled *r)
{
    free(r->token);
    free(r->raw);
    free(r->logp);
    free(r->logits);
}

#endif
