/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the reference decoder in double precision.
 */
#include "tests/nn/reference.h"

#include <math.h>

#include "model/hf/param_slots.h"
#include "model/hf/safetensors.h"
#include "tests/testing.h"

#define PI 3.14159265358979323846

/* Rounds what a decoder stores, if its activations are bf16. */
static void store(const xm_config *c, double *x, uint64_t count)
{
    for (uint64_t i = 0; c->dtype == XRAY_BF16 && i < count; i++)
        x[i] = (double)xm_bf16_to_f32(xm_f32_to_bf16((float)x[i]));
}

void reference_make(reference *ref, const fixture *f)
{
    *ref = (reference){ .config = &f->config, .layout = f->layout };
    ref->buckets = calloc(f->layout->bucket_count, sizeof *ref->buckets);
    assert_non_null(ref->buckets);
    for (uint32_t b = 0; b < f->layout->bucket_count; b++) {
        uint64_t count = f->layout->bucket_sizes[b];
        ref->buckets[b] = calloc(count + 1, sizeof(double));
        assert_non_null(ref->buckets[b]);
        for (uint64_t i = 0; i < count; i++)
            ref->buckets[b][i] = (double)f->weights->buckets[b][i];
    }
    for (uint32_t i = 0; i < f->layout->param_count; i++) {
        const xm_param *p = &f->layout->params[i];
        if (p->cols && p->slot != XM_VALUE)
            store(ref->config, ref->buckets[p->bucket] + p->offset, p->count);
    }
}

void reference_free(reference *ref)
{
    for (uint32_t b = 0; b < ref->layout->bucket_count; b++)
        free(ref->buckets[b]);
    free(ref->buckets);
}

static const double *find_outer_param(const reference *ref, uint32_t slot)
{
    for (uint32_t i = 0; i < ref->layout->param_count; i++) {
        const xm_param *p = &ref->layout->params[i];
        if (p->slot == slot)
            return ref->buckets[p->bucket] + p->offset;
    }
    return NULL;
}

static const double *find_layer_param(const reference *ref, uint32_t layer,
                                      uint32_t slot)
{
    const xm_param *p = xm_layout_at(ref->layout, layer + 1, slot);
    return p ? ref->buckets[p->bucket] + p->offset : NULL;
}

/* Finds the parameter at `slot`, or, where the model fuses it with the
 * parameter at `fused`, element `first` of that one. */
static const double *find_param_part(const reference *ref, uint32_t layer,
                                     uint32_t slot, uint32_t fused,
                                     uint64_t first)
{
    const double *one = find_layer_param(ref, layer, slot);
    const double *all = find_layer_param(ref, layer, fused);
    return one || !all || !ref->config->fused ? one : all + first;
}

static double *allocate_doubles(uint64_t count)
{
    double *p = calloc(count + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* y = W x + b */
static void apply_linear(const double *w, const double *b, const double *x,
                         double *y, uint32_t rows, uint32_t cols)
{
    for (uint32_t i = 0; i < rows; i++) {
        double sum = b ? b[i] : 0;
        for (uint32_t j = 0; j < cols; j++)
            sum += w[(uint64_t)i * cols + j] * x[j];
        y[i] = sum;
    }
}

static void apply_rmsnorm(const xm_config *c, const double *w, const double *x,
                          double *y, uint32_t dim)
{
    double sum = 0;
    for (uint32_t i = 0; i < dim; i++)
        sum += x[i] * x[i];
    double rstd = 1 / sqrt(sum / dim + c->norm_eps);
    for (uint32_t i = 0; i < dim; i++)
        y[i] = x[i] * rstd * (w[i] + c->norm_offset);
}

static void apply_layernorm(const xm_config *c, const double *w,
                            const double *b, const double *x, double *y)
{
    double mean = 0;
    double var = 0;
    for (uint32_t i = 0; i < c->hidden; i++)
        mean += x[i] / c->hidden;
    for (uint32_t i = 0; i < c->hidden; i++)
        var += (x[i] - mean) * (x[i] - mean) / c->hidden;
    for (uint32_t i = 0; i < c->hidden; i++)
        y[i] = (x[i] - mean) / sqrt(var + c->norm_eps) * w[i] + b[i];
}

static void apply_stream_norm(const xm_config *c, const double *w,
                              const double *b, const double *x, double *y)
{
    if (c->layer_norm)
        apply_layernorm(c, w, b, x, y);
    else
        apply_rmsnorm(c, w, x, y, c->hidden);
    store(c, y, c->hidden);
}

/* ---- positions ---------------------------------------------------------- */

static double clamp_to_unit(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* The index of the pair that makes `turns` full rotations over the original
 * context, as a real number. */
static double yarn_pair(const xm_rope *r, uint32_t dim, double turns)
{
    return dim * log(r->original_positions / (turns * 2 * PI)) /
           (2 * log(r->theta));
}

static double yarn_frequency(const xm_rope *r, uint32_t dim, uint32_t i,
                             double freq)
{
    double low = yarn_pair(r, dim, r->beta_fast);
    double high = yarn_pair(r, dim, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low < 0 ? 0 : low;
    high = high > dim - 1 ? dim - 1 : high;
    double ramp = clamp_to_unit((i - low) / (high > low ? high - low : 0.001));
    return freq / r->factor * ramp + freq * (1 - ramp);
}

static double llama3_frequency(const xm_rope *r, double freq)
{
    double turns = r->original_positions * freq / (2 * PI);
    double keep = clamp_to_unit((turns - r->low_freq_factor) /
                                (r->high_freq_factor - r->low_freq_factor));
    return (1 - keep) * freq / r->factor + keep * freq;
}

static double rope_frequency(const xm_rope *r, uint32_t dim, uint32_t i)
{
    double freq = pow(r->theta, -2.0 * i / dim);
    switch (r->kind) {
    case XM_ROPE_LINEAR:
        return freq / r->factor;
    case XM_ROPE_LLAMA3:
        return llama3_frequency(r, freq);
    case XM_ROPE_YARN:
        return yarn_frequency(r, dim, i, freq);
    default:
        return freq;
    }
}

static void rotate_head(const xm_config *c, const xm_rope *r, double *x,
                        int32_t position)
{
    uint32_t half = c->rotary / 2;
    for (uint32_t i = 0; i < half; i++) {
        double angle = position * rope_frequency(r, c->rotary, i);
        double a = x[i];
        double b = x[i + half];
        x[i] = r->scale * (a * cos(angle) - b * sin(angle));
        x[i + half] = r->scale * (b * cos(angle) + a * sin(angle));
    }
}

/* ---- attention ---------------------------------------------------------- */

static double apply_softcap(double x, double cap)
{
    return cap > 0 ? cap * tanh(x / cap) : x;
}

/* The query of one head and one token. */
typedef struct query {
    const double *q;
    const double *k; /* of the head's group, at token 0 */
    const double *v;
    uint32_t stride;
    uint32_t first; /* attends to keys [first, last] */
    uint32_t last;
} query;

static void attend_token(const xm_config *c, const query *a, double *p,
                         double *o)
{
    double sum = 0;
    for (uint32_t s = a->first; s <= a->last; s++) {
        double dot = 0;
        for (uint32_t i = 0; i < c->head_dim; i++)
            dot += a->q[i] * a->k[s * a->stride + i];
        p[s] = exp(apply_softcap(dot * c->attn_scale, c->attn_softcap));
        sum += p[s];
    }
    for (uint32_t i = 0; i < c->head_dim; i++) {
        o[i] = 0;
        for (uint32_t s = a->first; s <= a->last; s++)
            o[i] += p[s] / sum * a->v[s * a->stride + i];
    }
}

static void attend_row(const xm_config *c, uint32_t layer, const double *qkv[3],
                       uint32_t tokens, double *o)
{
    uint32_t q_dim = c->heads * c->head_dim;
    uint32_t kv_dim = c->kv_heads * c->head_dim;
    int slides = (int)(c->sliding[layer / 64] >> (layer % 64) & 1);
    double *p = allocate_doubles(tokens);
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t h = 0; h < c->heads; h++) {
            uint32_t g = h / (c->heads / c->kv_heads) * c->head_dim;
            query a = { .q = qkv[0] + t * q_dim + h * c->head_dim,
                        .k = qkv[1] + g,
                        .v = qkv[2] + g,
                        .stride = kv_dim,
                        .last = t };
            if (slides && t >= c->window)
                a.first = t - c->window + 1;
            attend_token(c, &a, p, o + t * q_dim + h * c->head_dim);
        }
    }
    free(p);
}

/* q, k or v (which = 0, 1, 2) of one token. */
static void project_heads(const reference *ref, uint32_t l, uint32_t which,
                          const double *h, int32_t position, double *out)
{
    const xm_config *c = ref->config;
    uint32_t heads = which == 0 ? c->heads : c->kv_heads;
    uint64_t before = which == 0   ? 0
                      : which == 1 ? c->heads
                                   : c->heads + c->kv_heads;
    before *= c->head_dim;
    apply_linear(
        find_param_part(ref, l, XM_Q + which, XM_Q, before * c->hidden),
        find_param_part(ref, l, XM_Q_BIAS + which, XM_Q_BIAS, before), h, out,
        heads * c->head_dim, c->hidden);
    store(c, out, heads * c->head_dim);
    if (which == 2)
        return;
    const double *norm = find_layer_param(ref, l, XM_Q_NORM + which);
    int slides = (int)(c->sliding[l / 64] >> (l % 64) & 1);
    for (uint32_t i = 0; i < heads; i++) {
        double *head = out + i * c->head_dim;
        if (norm)
            apply_rmsnorm(c, norm, head, head, c->head_dim);
        store(c, head, c->head_dim);
        if (!c->learned_positions)
            rotate_head(c, slides ? &c->rope_local : &c->rope, head, position);
        store(c, head, c->head_dim);
    }
}

/* x += h, after the post-norm at `slot` if the model has one. */
static void add_branch(const reference *ref, uint32_t l, uint32_t slot,
                       double *h, double *x)
{
    const xm_config *c = ref->config;
    if (c->post_norms) {
        store(c, h, c->hidden);
        apply_rmsnorm(c, find_layer_param(ref, l, slot), h, h, c->hidden);
        store(c, h, c->hidden);
    }
    for (uint32_t i = 0; i < c->hidden; i++)
        x[i] += h[i];
    store(c, x, c->hidden);
}

static void add_attention(const reference *ref, uint32_t l, double *x,
                          uint32_t tokens)
{
    const xm_config *c = ref->config;
    uint32_t q_dim = c->heads * c->head_dim;
    uint32_t kv_dim = c->kv_heads * c->head_dim;
    double *h = allocate_doubles(c->hidden);
    double *q = allocate_doubles((uint64_t)tokens * q_dim);
    double *k = allocate_doubles((uint64_t)tokens * kv_dim);
    double *v = allocate_doubles((uint64_t)tokens * kv_dim);
    double *o = allocate_doubles((uint64_t)tokens * q_dim);
    const double *qkv[3] = { q, k, v };
    for (uint32_t t = 0; t < tokens; t++) {
        apply_stream_norm(c, find_layer_param(ref, l, XM_NORM1),
                          find_layer_param(ref, l, XM_NORM1_BIAS),
                          x + t * c->hidden, h);
        project_heads(ref, l, 0, h, (int32_t)t, q + t * q_dim);
        project_heads(ref, l, 1, h, (int32_t)t, k + t * kv_dim);
        project_heads(ref, l, 2, h, (int32_t)t, v + t * kv_dim);
    }
    attend_row(c, l, qkv, tokens, o);
    store(c, o, (uint64_t)tokens * q_dim);
    for (uint32_t t = 0; t < tokens; t++) {
        apply_linear(find_layer_param(ref, l, XM_O),
                     find_layer_param(ref, l, XM_O_BIAS), o + t * q_dim, h,
                     c->hidden, q_dim);
        add_branch(ref, l, XM_POST_NORM1, h, x + t * c->hidden);
    }
    free(h);
    free(q);
    free(k);
    free(v);
    free(o);
}

/* ---- MLP ---------------------------------------------------------------- */

static double activation(const xm_config *c, double x)
{
    if (c->act == XM_ACT_GELU_TANH)
        return x / 2 * (1 + tanh(sqrt(2 / PI) * (x + 0.044715 * x * x * x)));
    return x / (1 + exp(-x));
}

static void add_mlp(const reference *ref, uint32_t l, double *x,
                    uint32_t tokens)
{
    const xm_config *c = ref->config;
    uint64_t size = (uint64_t)c->ffn * c->hidden;
    double *h = allocate_doubles(c->hidden);
    double *gate = allocate_doubles(c->ffn);
    double *up = allocate_doubles(c->ffn);
    for (uint32_t t = 0; t < tokens; t++) {
        apply_stream_norm(c, find_layer_param(ref, l, XM_NORM2),
                          find_layer_param(ref, l, XM_NORM2_BIAS),
                          x + t * c->hidden, h);
        apply_linear(find_param_part(ref, l, XM_UP, XM_GATE, size),
                     find_param_part(ref, l, XM_UP_BIAS, XM_GATE_BIAS, c->ffn),
                     h, up, c->ffn, c->hidden);
        if (c->gated)
            apply_linear(find_layer_param(ref, l, XM_GATE),
                         find_layer_param(ref, l, XM_GATE_BIAS), h, gate,
                         c->ffn, c->hidden);
        store(c, up, c->ffn);
        store(c, gate, c->ffn);
        for (uint32_t i = 0; i < c->ffn; i++)
            up[i] = c->gated ? activation(c, gate[i]) * up[i]
                             : activation(c, up[i]);
        store(c, up, c->ffn);
        apply_linear(find_layer_param(ref, l, XM_DOWN),
                     find_layer_param(ref, l, XM_DOWN_BIAS), up, h, c->hidden,
                     c->ffn);
        add_branch(ref, l, XM_POST_NORM2, h, x + t * c->hidden);
    }
    free(h);
    free(gate);
    free(up);
}

/* ---- the decoder -------------------------------------------------------- */

/* Computes the normed hidden states of one row. */
static void compute_hidden_row(const reference *ref, const int32_t *ids,
                               uint32_t tokens, double *x)
{
    const xm_config *c = ref->config;
    const double *table = find_outer_param(ref, XM_EMBED);
    const double *positions = find_outer_param(ref, XM_POSITIONS);
    for (uint32_t t = 0; t < tokens; t++) {
        double *at = x + t * c->hidden;
        for (uint32_t i = 0; i < c->hidden; i++)
            at[i] = table[(uint32_t)ids[t] * c->hidden + i] * c->embed_scale;
        store(c, at, c->hidden);
        for (uint32_t i = 0; positions && i < c->hidden; i++)
            at[i] += positions[t * c->hidden + i];
        store(c, at, c->hidden);
    }
    for (uint32_t l = 0; l < c->layers; l++) {
        add_attention(ref, l, x, tokens);
        add_mlp(ref, l, x, tokens);
    }
    double *h = allocate_doubles(c->hidden);
    for (uint32_t t = 0; t < tokens; t++) {
        apply_stream_norm(c, find_outer_param(ref, XM_NORM),
                          find_outer_param(ref, XM_NORM_BIAS),
                          x + t * c->hidden, h);
        memcpy(x + t * c->hidden, h, c->hidden * sizeof *h);
    }
    free(h);
}

static reference_out compute_outputs(const reference *ref, const double *x,
                                     int32_t target, double temperature)
{
    const xm_config *c = ref->config;
    const double *w = find_outer_param(ref, c->tied ? XM_EMBED : XM_LM_HEAD);
    const double *value = find_outer_param(ref, XM_VALUE);
    double *z = allocate_doubles(c->vocab);
    apply_linear(w, NULL, x, z, c->vocab, c->hidden);
    double sum = 0;
    double mean = 0;
    for (uint32_t i = 0; i < c->vocab; i++) {
        z[i] = apply_softcap(z[i], c->logit_softcap) / temperature;
        double e = exp(z[i]);
        sum += e;
        mean += e * z[i];
    }
    mean /= sum;
    reference_out out = { .logp = z[target] - log(sum),
                          .entropy = log(sum) - mean };
    if (value)
        apply_linear(value, NULL, x, &out.value, 1, c->hidden);
    free(z);
    return out;
}

void reference_run(const reference *ref, const fixture_rows *rows,
                   const fixture_items *items, reference_out *out)
{
    uint32_t dim = ref->config->hidden;
    double *x = allocate_doubles((uint64_t)rows->pack.tokens * dim);
    for (uint32_t r = 0; r < rows->pack.rows; r++) {
        int32_t from = rows->row_start[r];
        compute_hidden_row(ref, rows->ids + from,
                           (uint32_t)(rows->row_start[r + 1] - from),
                           x + (uint32_t)from * dim);
    }
    for (uint32_t i = 0; i < items->items.count; i++)
        out[i] =
            compute_outputs(ref, x + (uint32_t)items->index[i] * dim,
                            items->target[i], (double)items->temperature[i]);
    free(x);
}

double reference_loss(const reference *ref, const fixture_rows *rows,
                      const fixture_items *items)
{
    reference_out *out = calloc(items->items.count + 1u, sizeof *out);
    assert_non_null(out);
    reference_run(ref, rows, items, out);
    double loss = 0;
    for (uint32_t i = 0; i < items->items.count; i++)
        loss +=
            (double)items->dlogp[i] * out[i].logp +
            (double)items->dentropy[i] * out[i].entropy +
            (items->items.value ? (double)items->dvalue[i] * out[i].value : 0);
    free(out);
    return loss;
}
