/* SPDX-License-Identifier: Apache-2.0
 *
 * Provides the suites of model/nn with a CPU device and small models on it.
 */
#ifndef XM_TEST_FIXTURE_H
#define XM_TEST_FIXTURE_H

#include "model/nn/decoder.h"

typedef struct fixture_device {
    const xray_device_ops *ops;
    void *self;
} fixture_device;

/* Opens device-cpu with its option `isa`; `self` is NULL if this processor
 * lacks that instruction set. */
fixture_device fixture_open(uint32_t threads, const char *isa);
void fixture_close(fixture_device *device);
void *fixture_alloc(const fixture_device *device, uint64_t bytes);
void fixture_free(const fixture_device *device, void *ptr);

typedef struct fixture {
    fixture_device device;
    xm_config config;
    xm_layout *layout;
    xm_weights *weights;
    xm_decoder *decoder;
} fixture;

/* The architectures that every suite runs. */
typedef struct fixture_kind {
    const char *name;
    xm_config config;
    int value_head;
} fixture_kind;
extern const fixture_kind fixture_kinds[];
extern const size_t fixture_kind_count;

/* The type of activations of the models that are made after it: XRAY_BF16, or
 * 0: fp32, as at the start. */
void fixture_activations(uint32_t dtype);
/* Loads a model from a directory of the test data. */
void fixture_load(fixture *f, const char *dir);
/* Makes a small model with random values; norms are near 1. The second form
 * takes ownership of the device. */
void fixture_make(fixture *f, const fixture_kind *kind, uint64_t seed);
void fixture_make_on(fixture *f, const fixture_kind *kind, uint64_t seed,
                     fixture_device device);
void fixture_end(fixture *f);

/* Packed rows of random token ids. */
typedef struct fixture_rows {
    xm_pack pack;
    int32_t *ids;
    int32_t *positions;
    int32_t *row_start;
} fixture_rows;
fixture_rows fixture_rows_make(const uint32_t *lengths, uint32_t rows,
                               uint32_t vocab, uint64_t seed);
/* Rows [first, end) as a pack of their own. */
fixture_rows fixture_rows_cut(const fixture_rows *all, uint32_t first,
                              uint32_t end);
void fixture_rows_free(fixture_rows *rows);

/* Items for every token that is followed by another in its row, with random
 * temperatures and loss coefficients. */
typedef struct fixture_items {
    xm_items items;
    int32_t *index;
    int32_t *target;
    float *temperature;
    float *dlogp;
    float *dentropy;
    float *dvalue;
} fixture_items;
fixture_items fixture_items_make(const fixture_rows *rows, int value,
                                 uint64_t seed);
/* The items of rows [first, end), with indices counted from row `first`. */
fixture_items fixture_items_cut(const fixture_items *all,
                                const fixture_rows *rows, uint32_t first,
                                uint32_t end);
void fixture_items_free(fixture_items *items);

/* Runs forward pass, outputs and, unless `grads` is NULL, the backward pass of
 * one micro-batch. `out`, unless NULL, has arrays of `items->count` or NULL. */
typedef struct fixture_out {
    float *logp;
    float *entropy;
    float *value;
} fixture_out;
void fixture_pass(const fixture *f, xm_space *space, const fixture_rows *rows,
                  const fixture_items *items, xm_grads *grads,
                  fixture_out *out);
xm_grads *fixture_grads(const fixture *f);
/* Returns 1 if all buckets hold the same bits. */
int fixture_grads_equal(const xm_grads *a, const xm_grads *b);

/* The logits of n hidden states, [n, vocab]. */
void fixture_logits(const fixture *f, const float *hidden, uint32_t n,
                    float *logits);
/* A cache of one sequence of up to `capacity` tokens, a multiple of 16:
 * [layers].
 */
xray_kv *fixture_cache_open(const fixture *f, uint32_t capacity);
void fixture_cache_close(const fixture *f, xray_kv *kv);
/* Fills ids[prompt, count) with the likeliest tokens, one at a time over a
 * cache of `capacity` tokens; logp[i] belongs to ids[i + 1]. */
void fixture_continue(const fixture *f, int32_t *ids, uint32_t prompt,
                      uint32_t count, uint32_t capacity, float *logp);

/* A random float in [-1, 1) that depends on `seed` and `i` alone. */
float fixture_draw(uint64_t seed, uint64_t i);
/* Fails the test with the sentence of `err`. */
void fixture_ok(xray_status status, const xr_err *err);

#endif
