/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the largest differencing method. A tuple holds one slot per part,
 * and a slot is a list of items with the sum of their costs.
 */
#include "core/roles/balance.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

#define NONE UINT32_MAX

xray_status xr_balance_init(xr_balance *b, uint64_t items, uint64_t parts,
                            xr_err *err)
{
    *b = (xr_balance){ .part_cap = 0 };
    if (items >= NONE || parts >= NONE || parts == 0)
        return xr_fail(err, XRAY_E_BUG, "%llu rows for %llu replicas",
                       (unsigned long long)items, (unsigned long long)parts);
    size_t slots = (size_t)items * (size_t)parts;
    b->sums = xr_calloc(slots + 1, sizeof(*b->sums));
    b->first_items = xr_calloc(slots + 1, sizeof(*b->first_items));
    b->last_items = xr_calloc(slots + 1, sizeof(*b->last_items));
    b->next = xr_calloc((size_t)items + 1, sizeof(*b->next));
    b->heap = xr_calloc((size_t)items + 1, sizeof(*b->heap));
    b->sum_scratch = xr_calloc((size_t)parts, sizeof(*b->sum_scratch));
    b->first_scratch = xr_calloc((size_t)parts, sizeof(*b->first_scratch));
    b->last_scratch = xr_calloc((size_t)parts, sizeof(*b->last_scratch));
    if (!b->sums || !b->first_items || !b->last_items || !b->next || !b->heap ||
        !b->sum_scratch || !b->first_scratch || !b->last_scratch) {
        xr_balance_free(b);
        return xr_fail(err, XRAY_E_NOMEM,
                       "out of memory to deal %llu rows to %llu replicas",
                       (unsigned long long)items, (unsigned long long)parts);
    }
    b->part_cap = (uint32_t)parts;
    return XRAY_OK;
}

void xr_balance_free(xr_balance *b)
{
    free(b->sums);
    free(b->first_items);
    free(b->last_items);
    free(b->next);
    free(b->heap);
    free(b->sum_scratch);
    free(b->first_scratch);
    free(b->last_scratch);
    *b = (xr_balance){ .part_cap = 0 };
}

double xr_balance_cost(uint32_t tokens, double per_token)
{
    double s = tokens;
    return s * s + per_token * s;
}

/* ---- a heap of tuples, the one with the widest spread on top ------------- */

static double tuple_spread(const xr_balance *b, uint32_t parts, uint32_t tuple)
{
    const double *sums = b->sums + (size_t)tuple * b->part_cap;
    return sums[0] - sums[parts - 1];
}

/* Among equal spreads the earlier tuple wins, so that the result is unique. */
static int is_wider_tuple(const xr_balance *b, uint32_t parts, uint32_t x,
                          uint32_t y)
{
    double a = tuple_spread(b, parts, x);
    double c = tuple_spread(b, parts, y);
    return a > c || (a == c && x < y);
}

static void sift_tuple_down(xr_balance *b, uint32_t parts, uint32_t size,
                            uint32_t at)
{
    for (;;) {
        uint32_t best = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < size;
             child++)
            if (is_wider_tuple(b, parts, b->heap[child], b->heap[best]))
                best = child;
        if (best == at)
            return;
        uint32_t swap = b->heap[at];
        b->heap[at] = b->heap[best];
        b->heap[best] = swap;
        at = best;
    }
}

/* ---- tuples ------------------------------------------------------------- */

static void append_list(xr_balance *b, uint32_t *first, uint32_t *last,
                        uint32_t more_first, uint32_t more_last)
{
    if (more_first == NONE)
        return;
    if (*first == NONE)
        *first = more_first;
    else
        b->next[*last] = more_first;
    *last = more_last;
}

/* Sorts the slots of a tuple by their sums, largest first. Insertion sort keeps
 * the order of equal slots. */
static void sort_tuple_slots(xr_balance *b, uint32_t parts, uint32_t tuple)
{
    double *sums = b->sums + (size_t)tuple * b->part_cap;
    uint32_t *first_items = b->first_items + (size_t)tuple * b->part_cap;
    uint32_t *last_items = b->last_items + (size_t)tuple * b->part_cap;
    for (uint32_t i = 1; i < parts; i++)
        for (uint32_t j = i; j > 0 && sums[j] > sums[j - 1]; j--) {
            double sum = sums[j];
            uint32_t first = first_items[j];
            uint32_t last = last_items[j];
            sums[j] = sums[j - 1];
            first_items[j] = first_items[j - 1];
            last_items[j] = last_items[j - 1];
            sums[j - 1] = sum;
            first_items[j - 1] = first;
            last_items[j - 1] = last;
        }
}

/* Joins `from` into `into`: the largest slot of one tuple with the smallest of
 * the other, and so on. */
static void join_tuples(xr_balance *b, uint32_t parts, uint32_t into,
                        uint32_t from)
{
    size_t x = (size_t)into * b->part_cap;
    size_t y = (size_t)from * b->part_cap;
    for (uint32_t p = 0; p < parts; p++) {
        uint32_t other = parts - 1 - p;
        b->sum_scratch[p] = b->sums[x + p] + b->sums[y + other];
        b->first_scratch[p] = b->first_items[x + p];
        b->last_scratch[p] = b->last_items[x + p];
        append_list(b, &b->first_scratch[p], &b->last_scratch[p],
                    b->first_items[y + other], b->last_items[y + other]);
    }
    memcpy(b->sums + x, b->sum_scratch, parts * sizeof(*b->sums));
    memcpy(b->first_items + x, b->first_scratch,
           parts * sizeof(*b->first_items));
    memcpy(b->last_items + x, b->last_scratch, parts * sizeof(*b->last_items));
    sort_tuple_slots(b, parts, into);
}

static void start_tuples(xr_balance *b, const double *cost, uint32_t count,
                         uint32_t parts)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)i * b->part_cap;
        for (uint32_t p = 0; p < parts; p++) {
            b->sums[at + p] = p ? 0 : cost[i];
            b->first_items[at + p] = b->last_items[at + p] = p ? NONE : i;
        }
        b->next[i] = NONE;
        b->heap[i] = i;
    }
    for (uint32_t i = count / 2; i > 0; i--)
        sift_tuple_down(b, parts, count, i - 1);
}

/* Numbers the lists of a tuple by their lowest item. */
static void number_parts(xr_balance *b, uint32_t count, uint32_t parts,
                         uint32_t tuple, uint32_t *out_part)
{
    size_t at = (size_t)tuple * b->part_cap;
    uint32_t given = 0;
    for (uint32_t p = 0; p < parts; p++) {
        for (uint32_t i = b->first_items[at + p]; i != NONE; i = b->next[i])
            out_part[i] = p;
        b->first_scratch[p] = NONE;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (b->first_scratch[out_part[i]] == NONE)
            b->first_scratch[out_part[i]] = given++;
        out_part[i] = b->first_scratch[out_part[i]];
    }
}

void xr_balance_deal(xr_balance *b, const double *cost, uint32_t count,
                     uint32_t parts, uint32_t *out_part)
{
    uint32_t size = count;
    if (!count)
        return;
    start_tuples(b, cost, count, parts);
    while (size > 1) {
        uint32_t widest = b->heap[0];
        b->heap[0] = b->heap[--size];
        sift_tuple_down(b, parts, size, 0);
        join_tuples(b, parts, widest, b->heap[0]);
        b->heap[0] = widest;
        sift_tuple_down(b, parts, size, 0);
    }
    number_parts(b, count, parts, b->heap[0], out_part);
}
