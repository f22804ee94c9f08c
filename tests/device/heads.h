/* SPDX-License-Identifier: Apache-2.0
 *
 * Hidden states, the matrix of a head and targets to score.
 */
#ifndef DEVICE_HEADS_H
#define DEVICE_HEADS_H

#include "tests/device/numbers.h"

typedef struct heads {
    size_t items, vocab, dim;
    int tempered;
    float softcap;
    float *w, *x, *temperature;
    int32_t *targets;
} heads;

static inline heads heads_make(heads h)
{
    h.w = random_floats(h.vocab * h.dim, 1);
    h.x = random_floats(h.items * h.dim, 1.5);
    h.temperature = floats(h.items);
    h.targets = calloc(h.items, sizeof(*h.targets));
    assert_non_null(h.targets);
    for (size_t i = 0; i < h.items; i++) {
        h.targets[i] = (int32_t)random_below(h.vocab);
        h.temperature[i] = i % 3 ? (float)(0.3 + random_unit()) : 1.0f;
    }
    return h;
}

static inline void heads_free(heads *h)
{
    free(h->w);
    free(h->x);
    free(h->temperature);
    free(h->targets);
}

/* Room for logits that are kept. */
static inline float *logits_room(const heads *h)
{
    return floats(h->items * ((h->vocab + 15) / 16 * 16));
}

/* Where its outputs go is the caller's. */
static inline xray_lm_head_logp heads_op(const heads *h, const xray_weight *w)
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

typedef struct drawn {
    int32_t *token;
    float *raw, *logp, *logits;
} drawn;

/* Tokens by `draws`, an item each; `keep`: logits too. */
static inline drawn heads_draw(const xray_device_ops *ops, void *self,
                               const heads *h, const xray_draw *draws, int keep)
{
    drawn r = { calloc(h->items + 1, sizeof(int32_t)), floats(h->items),
                floats(h->items), floats(h->items * h->vocab) };
    assert_non_null(r.token);
    xray_weight *w = weight_on(ops, self, h->w, h->vocab, h->dim);
    xray_sample op = { .header = XRAY_HEADER(xray_sample),
                       .items = { h->items, NULL },
                       .weight = w,
                       .x = h->x,
                       .draws = draws,
                       .token = r.token,
                       .raw_logp = r.raw,
                       .logp = r.logp,
                       .logits = keep ? r.logits : NULL,
                       .softcap = h->softcap,
                       .draw_stride = sizeof(xray_draw) };
    must(ops->sample(self, NULL, &op));
    ops->weight_destroy(self, w);
    return r;
}

static inline void drawn_free(drawn *r)
{
    free(r->token);
    free(r->raw);
    free(r->logp);
    free(r->logits);
}

#endif
