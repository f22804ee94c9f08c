/* SPDX-License-Identifier: Apache-2.0
 *
 * The small model of the test material, in double precision and by its
 * formulas: a Llama with grouped queries. It shares no line with model/, so
 * that goldens made with it show faults of the reader, the layout and the
 * arithmetic alike.
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

/* The tensors of a layer in the order of the alphabet, as files have them. */
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

/* The tensors' names and shapes, with room for their values. */
tensor *tensors_make(void);
void tensors_free(tensor *t);
uint32_t tensor_count(const tensor *t);

/* What a row has left behind for the tokens to come. */
typedef struct decoder_row {
    uint32_t tokens;
    double k[LAYERS][POSITIONS][KV_HEADS * HEAD];
    double v[LAYERS][POSITIONS][KV_HEADS * HEAD];
} decoder_row;

/* Logits behind one more token of the row. */
void decoder_step(const tensor *model, decoder_row *row, int32_t id,
                  double logits[VOCAB]);
/* The logarithm of each probability; the result is the entropy. */
double decoder_logp(const double logits[VOCAB], double logp[VOCAB]);

#endif
