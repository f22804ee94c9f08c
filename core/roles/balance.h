/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows dealt to replicas so that all have about as much to compute.
 */
#ifndef XR_BALANCE_H
#define XR_BALANCE_H

#include <stdint.h>

#include "core/base/err.h"

/* Workspace for up to `items` items and `parts` parts, made once. */
typedef struct xr_balance {
    uint32_t item_cap;
    uint32_t part_cap;
    double *sums;          /* [items, parts] of a tuple, largest first */
    uint32_t *first_items; /* [items, parts] first item of a slot's list */
    uint32_t *last_items;
    uint32_t *next; /* [items] */
    uint32_t *heap; /* [items] tuples, the widest on top */
    double *sum_scratch;
    uint32_t *first_scratch;
    uint32_t *last_scratch;
} xr_balance;

xray_status xr_balance_init(xr_balance *balance, uint64_t items, uint64_t parts,
                            xr_err *err);
void xr_balance_free(xr_balance *balance);

/* out_part[i] < parts of each of `count` items, by the largest differencing
 * method (Karmarkar and Karp 1982, for more than two parts as in Michiels et
 * al. 2003). Parts are numbered by their first item, empty ones last; the same
 * costs give the same parts. Does not allocate. */
void xr_balance_deal(xr_balance *balance, const double *cost, uint32_t count,
                     uint32_t parts, uint32_t *out_part);

/* What a row of `tokens` costs in units of one token pair: s * s + c * s. */
double xr_balance_cost(uint32_t tokens, double per_token);

#endif
