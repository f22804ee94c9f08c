/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the small model of the test material.
 */
#include "tests/material/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/material/material.h"

static const double epsilon = 1e-5;
static const double theta = 10000;

static void set_tensor(tensor *t, const char *name, uint32_t rows,
                       uint32_t cols)
{
    (void)snprintf(t->name, sizeof t->name, "model.%s.weight", name);
    t->rows = rows;
    t->cols = cols;
    t->values = allocate_zeroed(tensor_count(t), sizeof *t->values);
}

tensor *tensors_make(void)
{
    static const struct {
        const char *name;
        uint32_t rows;
        uint32_t cols;
    } layer[LAYER_TENSORS] = {
        { "input_layernorm", HIDDEN, 0 },
        { "mlp.down_proj", HIDDEN, FFN },
        { "mlp.gate_proj", FFN, HIDDEN },
        { "mlp.up_proj", FFN, HIDDEN },
        { "post_attention_layernorm", HIDDEN, 0 },
        { "self_attn.k_proj", KV_HEADS * HEAD, HIDDEN },
        { "self_attn.o_proj", HIDDEN, HEADS * HEAD },
        { "self_attn.q_proj", HEADS * HEAD, HIDDEN },
        { "self_attn.v_proj", KV_HEADS * HEAD, HIDDEN },
    };
    tensor *t = allocate_zeroed(TENSORS, sizeof *t);
    set_tensor(&t[EMBED], "embed_tokens", VOCAB, HIDDEN);
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < LAYER_TENSORS; i++) {
            char name[48];
            (void)snprintf(name, sizeof name, "layers.%d.%s", l, layer[i].name);
            set_tensor(&t[FIRST_LAYER + l * LAYER_TENSORS + i], name,
                       layer[i].rows, layer[i].cols);
        }
    set_tensor(&t[NORM], "norm", HIDDEN, 0);
    return t;
}

void tensors_free(tensor *t)
{
    for (int i = 0; i < TENSORS; i++)
        free(t[i].values);
    free(t);
}

uint32_t tensor_count(const tensor *t)
{
    return t->rows * (t->cols ? t->cols : 1);
}

/* y = W x */
static void multiply_matrix(const tensor *w, const double *x, double *y)
{
    for (uint32_t i = 0; i < w->rows; i++) {
        const double *row = w->values + (size_t)i * w->cols;
        double sum[4] = { 0 }; /* four chains, so that additions need not wait
                                * for each other */
        for (uint32_t j = 0; j < w->cols; j += 4)
            for (uint32_t k = 0; k < 4; k++)
                sum[k] += row[j + k] * x[j + k];
        y[i] = sum[0] + sum[1] + sum[2] + sum[3];
    }
}

static void apply_rmsnorm(const tensor *w, const double *x, double *y)
{
    double sum = 0;
    for (int i = 0; i < HIDDEN; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < HIDDEN; i++)
        y[i] = x[i] / sqrt(sum / HIDDEN + epsilon) * w->values[i];
}

/* Rotates each pair (i, i + HEAD / 2) of a head by its angle. */
static void rotate_head(double *head, uint32_t position)
{
    for (int i = 0; i < HEAD / 2; i++) {
        double angle = position * pow(theta, -2.0 * i / HEAD);
        double a = head[i];
        double b = head[i + HEAD / 2];
        head[i] = a * cos(angle) - b * sin(angle);
        head[i + HEAD / 2] = b * cos(angle) + a * sin(angle);
    }
}

static void attend_with_head(const decoder_row *row, int layer, int head,
                             const double *q, double *out)
{
    int first = head / (HEADS / KV_HEADS) * HEAD;
    double p[POSITIONS];
    double sum = 0;
    for (uint32_t t = 0; t <= row->tokens; t++) {
        double dot = 0;
        for (int i = 0; i < HEAD; i++)
            dot += q[i] * row->k[layer][t][first + i];
        p[t] = exp(dot / sqrt(HEAD));
        sum += p[t];
    }
    for (int i = 0; i < HEAD; i++) {
        out[i] = 0;
        for (uint32_t t = 0; t <= row->tokens; t++)
            out[i] += p[t] / sum * row->v[layer][t][first + i];
    }
}

static void add_attention(const tensor *w, decoder_row *row, int layer,
                          double *x)
{
    double h[HIDDEN];
    double q[HEADS * HEAD];
    double o[HEADS * HEAD];
    double *k = row->k[layer][row->tokens];
    apply_rmsnorm(&w[NORM_1], x, h);
    multiply_matrix(&w[Q], h, q);
    multiply_matrix(&w[K], h, k);
    multiply_matrix(&w[V], h, row->v[layer][row->tokens]);
    for (int i = 0; i < KV_HEADS; i++)
        rotate_head(k + i * HEAD, row->tokens);
    for (int i = 0; i < HEADS; i++) {
        rotate_head(q + i * HEAD, row->tokens);
        attend_with_head(row, layer, i, q + i * HEAD, o + i * HEAD);
    }
    multiply_matrix(&w[O], o, h);
    for (int i = 0; i < HIDDEN; i++)
        x[i] += h[i];
}

static void add_mlp(const tensor *w, double *x)
{
    double h[HIDDEN];
    double gate[FFN];
    double up[FFN];
    apply_rmsnorm(&w[NORM_2], x, h);
    multiply_matrix(&w[GATE], h, gate);
    multiply_matrix(&w[UP], h, up);
    for (int i = 0; i < FFN; i++)
        up[i] *= gate[i] / (1 + exp(-gate[i]));
    multiply_matrix(&w[DOWN], up, h);
    for (int i = 0; i < HIDDEN; i++)
        x[i] += h[i];
}

void decoder_step(const tensor *model, decoder_row *row, int32_t id,
                  double logits[VOCAB])
{
    double x[HIDDEN];
    double h[HIDDEN];
    if (row->tokens == POSITIONS || id < 0 || id >= VOCAB)
        stop_with_error("a row outside of the model", "goldens");
    memcpy(x, model[EMBED].values + (size_t)id * HIDDEN, sizeof x);
    for (int l = 0; l < LAYERS; l++) {
        const tensor *w = model + FIRST_LAYER + l * LAYER_TENSORS;
        add_attention(w, row, l, x);
        add_mlp(w, x);
    }
    row->tokens++;
    apply_rmsnorm(&model[NORM], x, h);
    multiply_matrix(&model[EMBED], h, logits);
}

double decoder_logp(const double logits[VOCAB], double logp[VOCAB])
{
    double most = logits[0];
    double sum = 0;
    double entropy = 0;
    for (int i = 1; i < VOCAB; i++)
        most = logits[i] > most ? logits[i] : most;
    for (int i = 0; i < VOCAB; i++)
        sum += exp(logits[i] - most);
    for (int i = 0; i < VOCAB; i++) {
        logp[i] = logits[i] - most - log(sum);
        entropy -= exp(logp[i]) * logp[i];
    }
    return entropy;
}
