/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares a decoder in double precision, written straight from the formulas.
 * The fp32 forward pass is compared with it, and it is differentiated
 * numerically.
 */
#ifndef XM_TEST_REFERENCE_H
#define XM_TEST_REFERENCE_H

#include "tests/nn/fixture.h"

typedef struct reference {
    const xm_config *config;
    const xm_layout *layout;
    double **buckets; /* values of the parameters, laid out like the weights */
} reference;

void reference_make(reference *ref, const fixture *f);
void reference_free(reference *ref);

/* The outputs of one item. */
typedef struct reference_out {
    double logp;
    double entropy;
    double value;
} reference_out;

/* Computes the outputs of all items [items->count]. */
void reference_run(const reference *ref, const fixture_rows *rows,
                   const fixture_items *items, reference_out *out);
/* Returns the sum of dlogp logp + dentropy entropy + dvalue value. */
double reference_loss(const reference *ref, const fixture_rows *rows,
                      const fixture_items *items);

#endif
