/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the engine's work, from the first request that finds it idle until
 * nothing is left to compute, and reports it as metrics.
 */
#include "model/serve/engine_internal.h"

static xray_infer_stats read_stats(const xm_engine *self)
{
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    xm_sched_stats(self->sched, &stats);
    return stats;
}

void xm_engine_begin_work(xm_engine *self)
{
    if (!xm_sched_has_work(self->sched))
        self->work = (xm_engine_work){ .before = read_stats(self) };
}

static void put_metric(const xm_engine *self, const char *name, double value)
{
    (void)self->metrics->put(self->metrics, name, value);
}

static double divide_counts(uint64_t part, uint64_t all)
{
    return all ? (double)part / (double)all : 0;
}

void xm_engine_measure_step(xm_engine *self, uint32_t rows)
{
    xm_engine_work *w = &self->work;
    if (!self->metrics)
        return;
    const xray_infer_stats now = read_stats(self);
    w->steps++;
    w->rows += rows;
    w->kv_tokens = now.kv_tokens > w->kv_tokens ? now.kv_tokens : w->kv_tokens;
    if (xm_sched_has_work(self->sched))
        return;
    uint64_t computed = now.prompt_tokens - w->before.prompt_tokens;
    uint64_t saved = now.prefix_tokens_saved - w->before.prefix_tokens_saved;
    put_metric(self, "rows", divide_counts(w->rows, w->steps));
    put_metric(self, "kv_usage", divide_counts(w->kv_tokens, now.kv_capacity));
    put_metric(self, "prefix_share", divide_counts(saved, saved + computed));
    put_metric(self, "preemptions",
               (double)(now.preemptions - w->before.preemptions));
    put_metric(self, "recomputed_tokens",
               (double)(now.recomputed_tokens - w->before.recomputed_tokens));
    if (!self->bounds.speculate)
        return;
    put_metric(self, "num_draft_tokens",
               (double)(now.num_draft_tokens - w->before.num_draft_tokens));
    put_metric(
        self, "num_accepted_tokens",
        (double)(now.num_accepted_tokens - w->before.num_accepted_tokens));
}
