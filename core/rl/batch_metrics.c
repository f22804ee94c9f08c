/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the metrics of a batch under verl's names and by its definitions:
 * scores are taken before the KL penalty and rewards after it; advantages and
 * returns are taken over the tokens in the loss.
 */
#include "core/rl/learner.h"

static void put_token_stats(xr_learner *learner, const xr_rows *rows,
                            const char *name, const float *values)
{
    size_t n = 0;
    for (uint32_t t = 0; t < rows->batch.tokens; t++)
        if (rows->loss_mask[t] != 0)
            learner->scratch[n++] = values[t];
    xr_metrics_stats(learner->metrics, name, learner->scratch, n);
}

static void put_row_sum_stats(xr_learner *learner, const xr_rows *rows,
                              const char *name)
{
    for (uint32_t r = 0; r < rows->batch.rows; r++) {
        double sum = 0;
        for (int32_t t = rows->row_start[r]; t < rows->row_start[r + 1]; t++)
            sum += (double)rows->batch.reward[t];
        learner->scratch[r] = (float)sum;
    }
    xr_metrics_stats(learner->metrics, name, learner->scratch,
                     rows->batch.rows);
}

/* Returns the unbiased variance of returns - scale * values over the tokens in
 * the loss. */
static double residual_variance(const xray_batch *b, double scale)
{
    double n = 0;
    double mean = 0;
    double squares = 0;
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t t = 0; t < b->tokens; t++) {
            if (b->loss_mask[t] == 0)
                continue;
            double x = (double)b->returns[t] - scale * (double)b->value[t];
            n += pass == 0;
            mean += pass == 0 ? x : 0;
            squares += pass == 0 ? 0 : (x - mean / n) * (x - mean / n);
        }
    return n > 1 ? squares / (n - 1) : 0;
}

/* Returns the share of the variance of returns that the values explain: 1 -
 * Var(R - V) / (Var(R) + 1e-5). */
static double explained_variance(const xray_batch *b)
{
    return 1 - residual_variance(b, 1) / (residual_variance(b, 0) + 1e-5);
}

static void put_length_stats(xr_learner *learner, const xr_rows *rows)
{
    int64_t cap = learner->roles->run->ini.data.max_response_length;
    uint32_t n = rows->batch.rows;
    uint32_t clipped = 0;
    for (uint32_t r = 0; r < n; r++) {
        int32_t size =
            rows->row_start[r + 1] - rows->row_start[r] - rows->prompt_len[r];
        learner->scratch[r] = (float)size;
        clipped += size >= cap;
    }
    xr_metrics_stats(learner->metrics, "response_length", learner->scratch, n);
    xr_metrics_put(learner->metrics, "response_length/clip_ratio",
                   n ? (double)clipped / n : 0);
    for (uint32_t r = 0; r < n; r++)
        learner->scratch[r] = (float)rows->prompt_len[r];
    xr_metrics_stats(learner->metrics, "prompt_length", learner->scratch, n);
}

void xr_learner_stats(xr_learner *learner, const xr_rows *rows,
                      const xr_samples *samples)
{
    uint32_t aborted = 0;
    for (uint32_t i = 0; i < samples->count; i++) {
        learner->scratch[i] = (float)samples->scores[i].score;
        aborted += samples->finish[i] == XRAY_FINISH_ABORT;
    }
    xr_metrics_stats(learner->metrics, "critic/score", learner->scratch,
                     samples->count);
    put_row_sum_stats(learner, rows, "critic/rewards");
    put_token_stats(learner, rows, "critic/advantages", rows->batch.advantage);
    put_token_stats(learner, rows, "critic/returns", rows->batch.returns);
    if (learner->has_values) {
        put_token_stats(learner, rows, "critic/values", rows->batch.value);
        xr_metrics_put(learner->metrics, "critic/vf_explained_var",
                       explained_variance(&rows->batch));
    }
    put_length_stats(learner, rows);
    xr_metrics_put(learner->metrics, "response/aborted_ratio",
                   samples->count ? (double)aborted / samples->count : 0);
}
