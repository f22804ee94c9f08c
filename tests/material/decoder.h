/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the small model of the test material, a Llama with grouped queries,
 * in double precision and written from the formulas. It shares no line with
 * model/, so that goldens made with it reveal faults of the reader, the layout
 * and the arithmetic.
 */
#ifndef MATERIAL_DECODER_H
#define MATERIAL_DECODER_H

#include <stdint.h>

enum {
    HIDDEN = 32,
    LAYERS = 3,
    HEADS = 4,
    KV_HEADS = 2,
    HEAD = 8,
    FFN = 88,
    VOCAB = 512,
    POSITIONS = 512
};

/* The tensors of a layer in alphabetical order, as in files. */
enum { NORM_1, DOWN, GATE, UP, NORM_2, K, O, Q, V, LAYER_TENSORS };
enum {
    EMBED = 0,
    FIRST_LAYER = 1,
    NORM = FIRST_LAYER + LAYERS * LAYER_TENSORS,
    TENSORS
};

typedef struct tensor {
    char name[64];
    uint32_t rows;
    uint32_t cols; /* 0: a vector */
    double *values;
} tensor;

/* Makes the tensors with names and shapes, and allocates their values. */
tensor *tensors_make(void);
void tensors_free(tensor *t);
uint32_t tensor_count(const tensor *t);

/* The keys and values of a row's earlier tokens. */
typedef struct decoder_row {
    uint32_t tokens;
    double k[LAYERS][POSITIONS][KV_HEADS * HEAD];
    double v[LAYERS][POSITIONS][KV_HEADS * HEAD];
} decoder_row;

/* Computes the logits after one more token of the row. */
void decoder_step(const tensor *model, decoder_row *row, int32_t id,
                  double logits[VOCAB]);
/* Computes the logarithm of each probability, and returns the entropy. */
double decoder_logp(const double logits[VOCAB], double logp[VOCAB]);

#endif
