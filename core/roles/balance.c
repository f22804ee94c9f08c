/* SPDX-License-Identifier: Apache-2.0 */
#include "core/roles/balance.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

#define NONE UINT32_MAX

xray_status xr_balance_init(xr_balance *b, uint64_t items, uint64_t parts,
                            xr_err *err)
{
    *b = (xr_balance){ .item_cap = 0 };
    if (items >= NONE || parts >= NONE || parts == 0)
        return xr_fail(err, XRAY_E_BUG, "%llu rows for %llu replicas",
                       (unsigned long long)items, (unsigned long long)parts);
    size_t slots = (size_t)items * (size_t)parts;
    b->sums = xr_calloc(slots + 1, sizeof(*b->sums));
    b->heads = xr_calloc(slots + 1, sizeof(*b->heads));
    b->tails = xr_calloc(slots + 1, sizeof(*b->tails));
    b->next = xr_calloc((size_t)items + 1, sizeof(*b->next));
    b->heap = xr_calloc((size_t)items + 1, sizeof(*b->heap));
    b->sum_scratch = xr_calloc((size_t)parts, sizeof(*b->sum_scratch));
    b->head_scratch = xr_calloc((size_t)parts, sizeof(*b->head_scratch));
    b->tail_scratch = xr_calloc((size_t)parts, sizeof(*b->tail_scratch));
    if (!b->sums || !b->heads || !b->tails || !b->next || !b->heap ||
        !b->sum_scratch || !b->head_scratch || !b->tail_scratch) {
        xr_balance_free(b);
        return xr_fail(err, XRAY_E_NOMEM,
                       "out of memory to deal %llu rows to %llu replicas",
                       (unsigned long long)items, (unsigned long long)parts);
    }
    b->item_cap = (uint32_t)items;
    b->part_cap = (uint32_t)parts;
    return XRAY_OK;
}

void xr_balance_free(xr_balance *b)
{
    free(b->sums);
    free(b->heads);
    free(b->tails);
    free(b->next);
    free(b->heap);
    free(b->sum_scratch);
    free(b->head_scratch);
    free(b->tail_scratch);
    *b = (xr_balance){ .item_cap = 0 };
}

double xr_balance_cost(uint32_t tokens, double per_token)
{
    double s = tokens;
    return s * s + per_token * s;
}

/* ---- a heap of tuples, the one with the widest spread on top ------------- */

static double spread(const xr_balance *b, uint32_t parts, uint32_t tuple)
{
    const double *sums = b->sums + (size_t)tuple * b->part_cap;
    return sums[0] - sums[parts - 1];
}

/* Of equal ones the earlier tuple, so that the order is one order. */
static int above(const xr_balance *b, uint32_t parts, uint32_t x, uint32_t y)
{
    double a = spread(b, parts, x);
    double c = spread(b, parts, y);
    return a > c || (a == c && x < y);
}

static void sift_down(xr_balance *b, uint32_t parts, uint32_t size, uint32_t at)
{
    for (;;) {
        uint32_t best = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < size;
             child++)
            if (above(b, parts, b->heap[child], b->heap[best]))
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

static void append(xr_balance *b, uint32_t *head, uint32_t *tail,
                   uint32_t more_head, uint32_t more_tail)
{
    if (more_head == NONE)
        return;
    if (*head == NONE)
        *head = more_head;
    else
        b->next[*tail] = more_head;
    *tail = more_tail;
}

/* Sorts a tuple's slots by sum, largest first; insertion keeps equal ones in
 * order. */
static void sort_slots(xr_balance *b, uint32_t parts, uint32_t tuple)
{
    double *sums = b->sums + (size_t)tuple * b->part_cap;
    uint32_t *heads = b->heads + (size_t)tuple * b->part_cap;
    uint32_t *tails = b->tails + (size_t)tuple * b->part_cap;
    for (uint32_t i = 1; i < parts; i++)
        for (uint32_t j = i; j > 0 && sums[j] > sums[j - 1]; j--) {
            double sum = sums[j];
            uint32_t head = heads[j];
            uint32_t tail = tails[j];
            sums[j] = sums[j - 1];
            heads[j] = heads[j - 1];
            tails[j] = tails[j - 1];
            sums[j - 1] = sum;
            heads[j - 1] = head;
            tails[j - 1] = tail;
        }
}

/* Joins `from` into `into`: the largest slot of one with the smallest of the
 * other. */
static void join(xr_balance *b, uint32_t parts, uint32_t into, uint32_t from)
{
    size_t x = (size_t)into * b->part_cap;
    size_t y = (size_t)from * b->part_cap;
    for (uint32_t p = 0; p < parts; p++) {
        uint32_t other = parts - 1 - p;
        b->sum_scratch[p] = b->sums[x + p] + b->sums[y + other];
        b->head_scratch[p] = b->heads[x + p];
        b->tail_scratch[p] = b->tails[x + p];
        append(b, &b->head_scratch[p], &b->tail_scratch[p], b->heads[y + other],
               b->tails[y + other]);
    }
    memcpy(b->sums + x, b->sum_scratch, parts * sizeof(*b->sums));
    memcpy(b->heads + x, b->head_scratch, parts * sizeof(*b->heads));
    memcpy(b->tails + x, b->tail_scratch, parts * sizeof(*b->tails));
    sort_slots(b, parts, into);
}

static void start(xr_balance *b, const double *cost, uint32_t count,
                  uint32_t parts)
{
    for (uint32_t i = 0; i < count; i++) {
        size_t at = (size_t)i * b->part_cap;
        for (uint32_t p = 0; p < parts; p++) {
            b->sums[at + p] = p ? 0 : cost[i];
            b->heads[at + p] = b->tails[at + p] = p ? NONE : i;
        }
        b->next[i] = NONE;
        b->heap[i] = i;
    }
    for (uint32_t i = count / 2; i > 0; i--)
        sift_down(b, parts, count, i - 1);
}

/* Numbers the lists of a tuple by their lowest item. */
static void number(xr_balance *b, uint32_t count, uint32_t parts,
                   uint32_t tuple, uint32_t *out_part)
{
    size_t at = (size_t)tuple * b->part_cap;
    uint32_t given = 0;
    for (uint32_t p = 0; p < parts; p++) {
        for (uint32_t i = b->heads[at + p]; i != NONE; i = b->next[i])
            out_part[i] = p;
        b->head_scratch[p] = NONE;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (b->head_scratch[out_part[i]] == NONE)
            b->head_scratch[out_part[i]] = given++;
        out_part[i] = b->head_scratch[out_part[i]];
    }
}

void xr_balance_deal(xr_balance *b, const double *cost, uint32_t count,
                     uint32_t parts, uint32_t *out_part)
{
    uint32_t size = count;
    if (!count)
        return;
    start(b, cost, count, parts);
    while (size > 1) {
        uint32_t widest = b->heap[0];
        b->heap[0] = b->heap[--size];
        sift_down(b, parts, size, 0);
        join(b, parts, widest, b->heap[0]);
        b->heap[0] = widest;
        sift_down(b, parts, size, 0);
    }
    number(b, count, parts, b->heap[0], out_part);
}
