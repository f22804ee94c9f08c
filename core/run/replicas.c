/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the replicas of a role from its ranks and its layout.
 */
#include "core/run/replicas.h"

#include <string.h>

xr_replicas xr_replicas_of(const xr_run *run, uint32_t role)
{
    const xr_layout *layout = xr_run_layout(run, role);
    xr_replicas out = { .ranks = xr_run_ranks(run, role), .width = 1 };
    if (layout->width > 1) {
        out.width = layout->width;
        out.answers = layout->answers;
    }
    out.count = out.ranks->count / out.width;
    return out;
}

uint32_t xr_replicas_answering(const xr_replicas *replicas, uint32_t r)
{
    return replicas->ranks->rank[r * replicas->width + replicas->answers];
}

int xr_rank_answers(const xr_run *run, uint32_t role, uint32_t rank)
{
    const xr_replicas all = xr_replicas_of(run, role);
    int64_t at = xr_ranks_find(all.ranks, rank);
    return all.width == 1 || at < 0 || (uint32_t)at % all.width == all.answers;
}

/* Returns the next axis of more than one rank, from *at on; NULL: there is
 * none. An axis of one rank cuts nothing. */
static const xr_axis *next_cut(const xr_layout *layout, uint32_t *at)
{
    while (*at < layout->axis_count && layout->axes[*at].size == 1)
        ++*at;
    return *at < layout->axis_count ? &layout->axes[(*at)++] : NULL;
}

int xr_replicas_match(const xr_run *run, uint32_t role, uint32_t other)
{
    const xr_layout *a = xr_run_layout(run, role);
    const xr_layout *b = xr_run_layout(run, other);
    uint32_t of_a = 0;
    uint32_t of_b = 0;
    if (!xr_ranks_equal(xr_run_ranks(run, role), xr_run_ranks(run, other)))
        return 0;
    for (;;) {
        const xr_axis *x = next_cut(a, &of_a);
        const xr_axis *y = next_cut(b, &of_b);
        if (!x || !y)
            return x == y;
        if (x->size != y->size || strcmp(x->name, y->name) != 0)
            return 0;
    }
}
