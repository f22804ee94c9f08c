/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the passes of a validation and averages their scores per data source.
 */
#include "core/rl/validate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/monitor/metrics.h"
#include "core/monitor/samples_table.h"

#define DEFAULT_BATCH 1024u
#define TEXTS_MOST 100u /* of a validation */

static uint32_t find_source_index(xr_validation *v, const char *name)
{
    for (uint32_t i = 0; i < v->source_count; i++)
        if (strcmp(v->sources[i], name) == 0)
            return i;
    v->sources[v->source_count] = name;
    return v->source_count++;
}

xray_status xr_validation_init(xr_validation *v, xr_roles *roles,
                               const xr_dataset *set, xr_err *err)
{
    const xr_run_config *ini = &roles->run->ini;
    size_t rows = xr_dataset_count(set);
    uint64_t n = (uint64_t)(ini->rollout.val_n > 1 ? ini->rollout.val_n : 1);
    *v = (xr_validation){ .roles = roles, .set = set };
    v->batch = ini->data.val_batch_size ? (uint32_t)ini->data.val_batch_size
                                        : DEFAULT_BATCH;
    if (v->batch > rows)
        v->batch = (uint32_t)rows;
    v->rows = xr_calloc(v->batch + 1u, sizeof(*v->rows));
    v->sources = xr_calloc(rows + 1, sizeof(*v->sources));
    v->source_of = xr_calloc(rows + 1, sizeof(*v->source_of));
    v->counts = xr_calloc(rows + 1, sizeof(*v->counts));
    v->sums = xr_calloc(rows + 1, 2 * sizeof(*v->sums));
    if (!v->rows || !v->sources || !v->source_of || !v->counts || !v->sums) {
        xr_validation_free(v);
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for validation");
    }
    for (size_t i = 0; i < rows; i++) {
        const char *name = xr_dataset_row(set, i)->data_source;
        v->source_of[i] = find_source_index(v, *name ? name : "default");
        v->counts[v->source_of[i]]++;
    }
    xray_status status =
        xr_samples_init(&v->samples, v->batch * n,
                        (uint64_t)ini->data.max_response_length, err);
    if (status != XRAY_OK)
        xr_validation_free(v);
    return status;
}

void xr_validation_free(xr_validation *v)
{
    free(v->rows);
    free(v->sources);
    free(v->source_of);
    free(v->counts);
    free(v->sums);
    xr_samples_free(&v->samples);
    xr_str_free(&v->table);
    *v = (xr_validation){ .batch = 0 };
}

static void add_source_scores(xr_validation *v, size_t first, uint32_t count)
{
    const xr_samples *samples = &v->samples;
    for (uint32_t i = 0; i < count; i++) {
        double *sum = v->sums + 2 * (size_t)v->source_of[first + i];
        double mean = 0;
        double best = -INFINITY;
        for (uint32_t k = 0; k < samples->n; k++) {
            double score = samples->scores[i * samples->n + k].score;
            mean += score / samples->n;
            best = fmax(best, score);
        }
        sum[0] += mean;
        sum[1] += best;
    }
}

static const char *samples_folder(const xr_validation *v)
{
    const char *dir = v->roles->run->ini.trainer.validation_data_dir;
    return dir && *dir ? dir : NULL;
}

/* Appends the scored samples of a batch, with the fields that tell the passes
 * apart. */
static void append_sample_lines(const xr_validation *v, uint32_t count,
                                const xr_sampling *how, xr_str *lines)
{
    xr_str more = { 0 };
    for (uint32_t i = 0; i < count * v->samples.n; i++) {
        const char *source = v->rows[i / v->samples.n]->data_source;
        xr_str_clear(&more);
        xr_str_puts(&more, ",\"data_source\":");
        xr_str_json(&more, source, strlen(source));
        xr_str_printf(&more,
                      ",\"sample\":%u,\"temperature\":", i % v->samples.n);
        xr_str_number(&more, how->temperature);
        lines->failed |= more.failed;
        xr_samples_append_line(&v->samples, v->rows, i, v->step,
                               xr_str_text(&more), lines);
    }
    xr_str_free(&more);
}

/* Adds the samples of a batch that are shown: of `shown` rows, at even
 * distances in the set. */
static void show_batch(xr_validation *v, size_t first, uint32_t count,
                       unsigned columns)
{
    size_t rows = xr_dataset_count(v->set);
    size_t shown = v->shown < rows ? (size_t)v->shown : rows;
    for (uint32_t i = 0; i < count; i++) {
        const xray_sample_in *in = &v->samples.inputs[i * v->samples.n];
        if ((first + i) * shown % rows >= shown)
            continue;
        const xr_shown_sample sample = {
            .prompt = v->rows[i]->prompt,
            .prompt_size = (size_t)in->prompt_size,
            .answer = in->response,
            .answer_size = (size_t)in->response_size,
            .truth = v->rows[i]->ground_truth,
            .score = v->samples.scores[i * v->samples.n].score,
        };
        if (v->prints)
            xr_samples_table_row(&sample, columns, &v->table);
        if (v->texts && v->number < TEXTS_MOST)
            xr_sample_texts_add(v->texts, "validation", v->number++, &sample);
    }
}

/* Samples and scores the set once; sums means and bests per source. */
static xray_status validate_once(xr_validation *v, const xr_sampling *how,
                                 xr_str *lines, xr_err *err)
{
    size_t rows = xr_dataset_count(v->set);
    int show = v->shown > 0;
    unsigned columns = xr_terminal_columns();
    memset(v->sums, 0, v->source_count * 2 * sizeof(*v->sums));
    for (size_t first = 0; first < rows; first += v->batch) {
        size_t left = rows - first;
        uint32_t count = left < v->batch ? (uint32_t)left : v->batch;
        for (uint32_t i = 0; i < count; i++)
            v->rows[i] = xr_dataset_row(v->set, first + i);
        xray_status status = xr_samples_generate(v->roles, &v->samples, v->rows,
                                                 count, how, err);
        if (status == XRAY_OK)
            status = xr_samples_score(v->roles, &v->samples, v->rows, NULL,
                                      NULL, err);
        if (status != XRAY_OK)
            return status;
        add_source_scores(v, first, count);
        if (show)
            show_batch(v, first, count, columns);
        if (samples_folder(v))
            append_sample_lines(v, count, how, lines);
    }
    return XRAY_OK;
}

static void put_pass_metrics(const xr_validation *v, uint32_t n,
                             const char *kind, xr_metrics *metrics)
{
    char name[256];
    for (uint32_t i = 0; i < v->source_count; i++) {
        double rows = (double)v->counts[i];
        (void)snprintf(name, sizeof(name), "val-core/%s/reward/%smean@%u",
                       v->sources[i], kind, n);
        xr_metrics_put(metrics, name, v->sums[2 * i] / rows);
        if (n < 2)
            continue;
        (void)snprintf(name, sizeof(name), "val-aux/%s/reward/best@%u",
                       v->sources[i], n);
        xr_metrics_put(metrics, name, v->sums[2 * i + 1] / rows);
    }
}

static xray_status run_validation_passes(xr_validation *v, xr_metrics *metrics,
                                         double *out_sum, xr_str *lines,
                                         xr_err *err)
{
    const xr_run_config *ini = &v->roles->run->ini;
    xr_sampling how = {
        .n = 1,
        .max_tokens = (uint32_t)ini->data.max_response_length,
        .temperature = 0,
        .top_p = 1,
        .repetition_penalty = ini->rollout.repetition_penalty,
        .frequency_penalty = ini->rollout.frequency_penalty,
        .presence_penalty = ini->rollout.presence_penalty,
        .min_tokens = (uint32_t)ini->rollout.min_tokens,
        .seed = (uint64_t)ini->run.seed ^ 0x76616c6964617465u,
        .ignore_eos = ini->rollout.ignore_eos,
    };
    xray_status status = validate_once(v, &how, lines, err);
    if (status != XRAY_OK)
        return status;
    put_pass_metrics(v, 1, "", metrics);
    v->shown = 0; /* of the greedy samples only */
    for (uint32_t i = 0; i < v->source_count; i++)
        *out_sum += v->sums[2 * i];
    if (ini->rollout.val_n > 0) {
        how.n = (uint32_t)ini->rollout.val_n;
        how.temperature = ini->rollout.val_temperature;
        how.top_p = ini->rollout.val_top_p;
        how.top_k = ini->rollout.val_top_k;
        status = validate_once(v, &how, lines, err);
        if (status != XRAY_OK)
            return status;
        put_pass_metrics(v, how.n, how.n == 1 ? "sampled/" : "", metrics);
    }
    return xr_metrics_failed(metrics)
               ? xr_fail(err, XRAY_E_NOMEM, "out of memory for metrics")
               : XRAY_OK;
}

xray_status xr_validation_run(xr_validation *v, xr_metrics *metrics,
                              double *out_score, xr_err *err)
{
    size_t rows = xr_dataset_count(v->set);
    double sum = 0;
    xr_str lines = { 0 };
    *out_score = NAN;
    xr_str_clear(&v->table);
    if (!rows)
        return XRAY_OK;
    v->number = 0;
    if (v->shown && v->prints)
        xr_samples_table_head(xr_terminal_columns(), &v->table);
    xray_status status = run_validation_passes(v, metrics, &sum, &lines, err);
    if (status == XRAY_OK && samples_folder(v))
        status = xr_samples_write(samples_folder(v), v->step, &lines, err);
    xr_str_free(&lines);
    if (status == XRAY_OK)
        *out_score = sum / (double)rows;
    return status;
}
