/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts values in buckets.
 */
#include "core/monitor/histograms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

/* The memory that a histogram points to. */
typedef struct room {
    char name[128];
    double edges[XR_BUCKETS_MOST + 1];
    double counts[XR_BUCKETS_MOST];
} room;

struct xr_histograms {
    xray_histogram *items; /* [count] */
    room **rooms;          /* [cap], of which `made` are allocated */
    size_t count;
    size_t made;
    size_t cap;
    int failed;
};

xr_histograms *xr_histograms_new(void)
{
    return xr_calloc(1, sizeof(xr_histograms));
}

void xr_histograms_free(xr_histograms *h)
{
    if (!h)
        return;
    for (size_t i = 0; i < h->made; i++)
        free(h->rooms[i]);
    free(h->rooms);
    free(h->items);
    free(h);
}

void xr_histograms_clear(xr_histograms *h)
{
    h->count = 0;
    h->failed = 0;
}

const xray_histogram *xr_histograms_list(const xr_histograms *h,
                                         size_t *out_count)
{
    *out_count = h->count;
    return h->items;
}

int xr_histograms_failed(const xr_histograms *h)
{
    return h->failed;
}

static int reserve_room(xr_histograms *h)
{
    if (h->count == h->cap) {
        size_t cap = h->cap ? 2 * h->cap : 8;
        xray_histogram *items = realloc(h->items, cap * sizeof(*items));
        if (!items)
            return -1;
        h->items = items;
        room **rooms = realloc(h->rooms, cap * sizeof(*rooms));
        if (!rooms)
            return -1;
        h->rooms = rooms;
        h->cap = cap;
    }
    if (h->count < h->made)
        return 0;
    h->rooms[h->made] = xr_calloc(1, sizeof(room));
    if (!h->rooms[h->made])
        return -1;
    h->made++;
    return 0;
}

/* Begins a histogram with counts of 0; NULL when out of memory. */
static room *begin_histogram(xr_histograms *h, const char *name, size_t buckets)
{
    if (reserve_room(h)) {
        h->failed = 1;
        return NULL;
    }
    room *own = h->rooms[h->count];
    size_t size = strnlen(name, sizeof(own->name) - 1);
    memcpy(own->name, name, size);
    own->name[size] = '\0';
    memset(own->counts, 0, sizeof(own->counts));
    h->items[h->count++] =
        (xray_histogram){ own->name, own->edges, own->counts, buckets };
    return own;
}

/* Half the width of the bucket of equal values: an edge differs from them. */
static double half_width(double value)
{
    return fabs(value) < 0x1p40 ? 0.5 : 0.5 * fabs(value);
}

void xr_histograms_add(xr_histograms *h, const char *name, const float *values,
                       size_t count)
{
    double least = INFINITY;
    double most = -INFINITY;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) {
            least = fmin(least, (double)values[i]);
            most = fmax(most, (double)values[i]);
        }
    if (most < least)
        return;
    const int equal = !(least < most);
    const size_t buckets = equal ? 1 : XR_BUCKETS;
    room *own = begin_histogram(h, name, buckets);
    if (!own)
        return;
    const double from = equal ? least - half_width(least) : least;
    const double to = equal ? most + half_width(most) : most;
    const double width = (to - from) / (double)buckets;
    for (size_t b = 0; b < buckets; b++)
        own->edges[b] = from + width * (double)b;
    own->edges[buckets] = to;
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(values[i]))
            continue;
        size_t b = (size_t)(((double)values[i] - from) / width);
        b = b < buckets ? b : buckets - 1;
        /* The quotient may be rounded to the other side of an edge. */
        if (b + 1 < buckets && (double)values[i] >= own->edges[b + 1])
            b++;
        else if (b && (double)values[i] < own->edges[b])
            b--;
        own->counts[b]++;
    }
}

void xr_histograms_add_counts(xr_histograms *h, const char *name,
                              const double *edges, const double *counts,
                              size_t buckets)
{
    double all = 0;
    for (size_t b = 0; b < buckets; b++)
        all += counts[b];
    if (!(all > 0) || buckets > XR_BUCKETS_MOST)
        return;
    room *own = begin_histogram(h, name, buckets);
    if (!own)
        return;
    memcpy(own->edges, edges, (buckets + 1) * sizeof(*edges));
    memcpy(own->counts, counts, buckets * sizeof(*counts));
}
