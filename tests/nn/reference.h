/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder in double precision, straight from the formulas: what the fp32
 * forward is compared with, and what is differentiated numerically.
 */
#ifndef XM_TEST_REFERENCE_H
#define XM_TEST_REFERENCE_H

#include "tests/nn/fixture.h"

typedef struct reference {
    const xm_config *config;
    const xm_layout *layout;
    double **buckets; /* values of the parameters, laid out as the weights */
} reference;

void reference_make(reference *ref, const fixture *f);
void reference_free(reference *ref);

/* One output of an item. */
typedef struct reference_out {
    double logp;
    double entropy;
    double value;
} reference_out;

/* Outputs of all items [items->count]. */
void reference_run(const reference *ref, const fixture_rows *rows,
                   const fixture_items *items, reference_out *out);
/* sum of dlogp logp + dentropy entropy + dvalue value. */
double reference_loss(const reference *ref, const fixture_rows *rows,
                      const fixture_items *items);

#endif
