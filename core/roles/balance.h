/* SPDX-License-Identifier: Apache-2.0
 *
 * Deals rows to the replicas of a model so that all replicas have about the
 * same amount to compute.
 */
#ifndef XR_BALANCE_H
#define XR_BALANCE_H

#include <stdint.h>

#include "core/base/err.h"

/* Working memory for so many items and up to `part_cap` parts, allocated
 * once. */
typedef struct xr_balance {
    uint32_t part_cap;
    double *sums; /* [items, parts] sums of a tuple's slots, largest first */
    uint32_t *first_items; /* [items, parts] first item in the list of a slot */
    uint32_t *last_items;
    uint32_t *next; /* [items] item after this one in its list */
    uint32_t *heap; /* [items] tuples, the one with the widest spread on top */
    double *sum_scratch;
    uint32_t *first_scratch;
    uint32_t *last_scratch;
} xr_balance;

xray_status xr_balance_init(xr_balance *balance, uint64_t items, uint64_t parts,
                            xr_err *err);
void xr_balance_free(xr_balance *balance);

/* Writes a part out_part[i] < parts for each of `count` items. It uses the
 * largest differencing method (Karmarkar and Karp 1982; for more than two parts
 * as in Michiels et al. 2003). Parts are numbered by their first item, empty
 * ones last, so the same costs always give the same parts. Does not allocate.
 */
void xr_balance_deal(xr_balance *balance, const double *cost, uint32_t count,
                     uint32_t parts, uint32_t *out_part);

/* Returns the cost of a row in units of one pair of tokens: tokens^2 +
 * per_token * tokens. */
double xr_balance_cost(uint32_t tokens, double per_token);

#endif
