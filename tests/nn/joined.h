/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of a fixture's model, on a rank that is joined with others.
 */
#ifndef TESTS_NN_JOINED_H
#define TESTS_NN_JOINED_H

#include "model/nn/join.h"
#include "tests/nn/fixture.h"

/* The groups of a rank. */
typedef struct joined {
    xm_join slices;  /* the ranks that share each layer */
    xm_join context; /* the ranks that divide rows */
} joined;

/* Makes a decoder for `positions` positions of the part of a model whose
 * configuration and device `f` has, with the model's weights. `by` outlives it.
 */
void joined_make(joined *by, const fixture *model, uint64_t positions,
                 fixture *f);

#endif
