/* SPDX-License-Identifier: Apache-2.0
 *
 * Small models of which slices are made.
 */
#ifndef XM_TEST_SLICE_KINDS_H
#define XM_TEST_SLICE_KINDS_H

#include "tests/nn/fixture.h"

extern const fixture_kind slice_kinds[];
extern const size_t slice_kind_count;

/* The largest number of tensor-parallel ranks that can share a model. */
uint32_t slice_most_ranks(const xm_config *model);

#endif
