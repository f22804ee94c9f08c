/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/nn/reference.h"

#include <math.h>

#include "tests/testing.h"

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
}

void reference_free(reference *ref)
{
    for (uint32_t b = 0; b < ref->layout->bucket_count; b++)
        free(ref->buckets[b]);
    free(ref->buckets);
}

static double *param(const reference *ref, const char *name)
{
    const xm_param *p = xm_layout_find(ref->layout, name);
    return p ? ref->buckets[p->bucket] + p->offset : NULL;
}

static double *layer_param(const reference *ref, uint32_t layer,
                           const char *name)
{
    char full[XM_NAME_CAP];
    (void)snprintf(full, sizeof full, "model.layers.%u.%s", layer, name);
    return param(ref, full);
}

static double *room(uint64_t count)
{
    double *p = calloc(count + 1, sizeof *p);
    assert_non_null(p);
    return p;
}

/* y = W x + b */
static void linear(const double *w, const double *b, const double *x, double *y,
                   uint32_t rows, uint32_t cols)
{
    for (uint32_t i = 0; i < rows; i++) {
        double sum = b ? b[i] : 0;
        for (uint32_t j = 0; j < cols; j++)
            sum += w[(uint64_t)i * cols + j] * x[j];
        y[i] = sum;
    }
}

static void rmsnorm(const double *w, const double *x, double *y, uint32_t dim,
                    double eps)
{
    double sum = 0;
    for (uint32_t i = 0; i < dim; i++)
        sum += x[i] * x[i];
    double rstd = 1 / sqrt(sum / dim + eps);
    for (uint32_t i = 0; i < dim; i++)
        y[i] = x[i] * rstd * w[i];
}

static void rotate(double *x, uint32_t dim, double theta, int32_t position)
{
    for (uint32_t i = 0; i < dim / 2; i++) {
        double angle = position * pow(theta, -2.0 * i / dim);
        double a = x[i];
        double b = x[i + dim / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + dim / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void attend(const xm_config *c, const double *q, const double *k,
                   const double *v, uint32_t tokens, double *o)
{
    uint32_t dim = c->head_dim;
    uint32_t q_dim = c->heads * dim;
    uint32_t kv_dim = c->kv_heads * dim;
    double *p = room(tokens);
    for (uint32_t t = 0; t < tokens; t++) {
        for (uint32_t h = 0; h < c->heads; h++) {
            uint32_t g = h / (c->heads / c->kv_heads);
            double sum = 0;
            for (uint32_t s = 0; s <= t; s++) {
                double dot = 0;
                for (uint32_t i = 0; i < dim; i++)
                    dot += q[t * q_dim + h * dim + i] *
                           k[s * kv_dim + g * dim + i];
                p[s] = exp(dot / sqrt(dim));
                sum += p[s];
            }
            for (uint32_t i = 0; i < dim; i++) {
                double mix = 0;
                for (uint32_t s = 0; s <= t; s++)
                    mix += p[s] / sum * v[s * kv_dim + g * dim + i];
                o[t * q_dim + h * dim + i] = mix;
            }
        }
    }
    free(p);
}

static void project_heads(const reference *ref, uint32_t l, const char *which,
                          const double *h, int32_t position, double *out)
{
    const xm_config *c = ref->config;
    char name[64];
    uint32_t heads = which[0] == 'q' ? c->heads : c->kv_heads;
    (void)snprintf(name, sizeof name, "self_attn.%s_proj.weight", which);
    const double *w = layer_param(ref, l, name);
    (void)snprintf(name, sizeof name, "self_attn.%s_proj.bias", which);
    const double *b = layer_param(ref, l, name);
    linear(w, b, h, out, heads * c->head_dim, c->hidden);
    if (which[0] == 'v')
        return;
    (void)snprintf(name, sizeof name, "self_attn.%s_norm.weight", which);
    const double *norm = layer_param(ref, l, name);
    for (uint32_t i = 0; i < heads; i++) {
        double *head = out + i * c->head_dim;
        if (norm)
            rmsnorm(norm, head, head, c->head_dim, c->norm_eps);
        rotate(head, c->head_dim, c->rope.theta, position);
    }
}

static void attention_half(const reference *ref, uint32_t l, double *x,
                           uint32_t tokens)
{
    const xm_config *c = ref->config;
    uint32_t q_dim = c->heads * c->head_dim;
    uint32_t kv_dim = c->kv_heads * c->head_dim;
    double *h = room(c->hidden);
    double *q = room((uint64_t)tokens * q_dim);
    double *k = room((uint64_t)tokens * kv_dim);
    double *v = room((uint64_t)tokens * kv_dim);
    double *o = room((uint64_t)tokens * q_dim);
    for (uint32_t t = 0; t < tokens; t++) {
        rmsnorm(layer_param(ref, l, "input_layernorm.weight"),
                x + t * c->hidden, h, c->hidden, c->norm_eps);
        project_heads(ref, l, "q", h, (int32_t)t, q + t * q_dim);
        project_heads(ref, l, "k", h, (int32_t)t, k + t * kv_dim);
        project_heads(ref, l, "v", h, (int32_t)t, v + t * kv_dim);
    }
    attend(c, q, k, v, tokens, o);
    for (uint32_t t = 0; t < tokens; t++) {
        linear(layer_param(ref, l, "self_attn.o_proj.weight"), NULL,
               o + t * q_dim, h, c->hidden, q_dim);
        for (uint32_t i = 0; i < c->hidden; i++)
            x[t * c->hidden + i] += h[i];
    }
    free(h);
    free(q);
    free(k);
    free(v);
    free(o);
}

static void mlp_half(const reference *ref, uint32_t l, double *x,
                     uint32_t tokens)
{
    const xm_config *c = ref->config;
    double *h = room(c->hidden);
    double *gate = room(c->ffn);
    double *up = room(c->ffn);
    for (uint32_t t = 0; t < tokens; t++) {
        rmsnorm(layer_param(ref, l, "post_attention_layernorm.weight"),
                x + t * c->hidden, h, c->hidden, c->norm_eps);
        linear(layer_param(ref, l, "mlp.gate_proj.weight"), NULL, h, gate,
               c->ffn, c->hidden);
        linear(layer_param(ref, l, "mlp.up_proj.weight"), NULL, h, up, c->ffn,
               c->hidden);
        for (uint32_t i = 0; i < c->ffn; i++)
            up[i] *= gate[i] / (1 + exp(-gate[i]));
        linear(layer_param(ref, l, "mlp.down_proj.weight"), NULL, up, h,
               c->hidden, c->ffn);
        for (uint32_t i = 0; i < c->hidden; i++)
            x[t * c->hidden + i] += h[i];
    }
    free(h);
    free(gate);
    free(up);
}

/* Normed hidden states of one row. */
static void run_row(const reference *ref, const int32_t *ids, uint32_t tokens,
                    double *x)
{
    const xm_config *c = ref->config;
    const double *table = param(ref, "model.embed_tokens.weight");
    for (uint32_t t = 0; t < tokens; t++)
        memcpy(x + t * c->hidden, table + (uint32_t)ids[t] * c->hidden,
               c->hidden * sizeof *x);
    for (uint32_t l = 0; l < c->layers; l++) {
        attention_half(ref, l, x, tokens);
        mlp_half(ref, l, x, tokens);
    }
    for (uint32_t t = 0; t < tokens; t++)
        rmsnorm(param(ref, "model.norm.weight"), x + t * c->hidden,
                x + t * c->hidden, c->hidden, c->norm_eps);
}

static reference_out head(const reference *ref, const double *x, int32_t target,
                          double temperature)
{
    const xm_config *c = ref->config;
    const double *w =
        param(ref, c->tied ? "model.embed_tokens.weight" : "lm_head.weight");
    const double *value = param(ref, XM_VALUE_HEAD);
    double *z = room(c->vocab);
    linear(w, NULL, x, z, c->vocab, c->hidden);
    double sum = 0;
    double mean = 0;
    for (uint32_t i = 0; i < c->vocab; i++) {
        z[i] /= temperature;
        sum += exp(z[i]);
    }
    for (uint32_t i = 0; i < c->vocab; i++)
        mean += exp(z[i]) / sum * z[i];
    reference_out out = { .logp = z[target] - log(sum),
                          .entropy = log(sum) - mean };
    if (value)
        linear(value, NULL, x, &out.value, 1, c->hidden);
    free(z);
    return out;
}

void reference_run(const reference *ref, const fixture_rows *rows,
                   const fixture_items *items, reference_out *out)
{
    uint32_t dim = ref->config->hidden;
    double *x = room((uint64_t)rows->pack.tokens * dim);
    for (uint32_t r = 0; r < rows->pack.rows; r++) {
        int32_t from = rows->row_start[r];
        run_row(ref, rows->ids + from,
                (uint32_t)(rows->row_start[r + 1] - from),
                x + (uint32_t)from * dim);
    }
    for (uint32_t i = 0; i < items->items.count; i++)
        out[i] = head(ref, x + (uint32_t)items->index[i] * dim,
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
