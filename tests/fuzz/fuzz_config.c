/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes config.json and the results of one that is accepted: frequencies, the
 * list of parameters, the layout of weights.
 */
#include <math.h>

#include "model/nn/layout.h"
#include "tests/fuzz/fuzz.h"
#include "tests/hf/config_counts.h"

static xray_status count_param(void *ctx, const xm_param_info *info)
{
    uint64_t *sum = ctx;
    FUZZ_CHECK(info->name && info->name[0]);
    fuzz_saw_text("parameter", info->name);
    fuzz_saw_u64("rows", info->rows);
    fuzz_saw_u64("columns", info->cols);
    fuzz_saw_u64("transposed", info->transposed);
    fuzz_saw_u64("layer", info->layer);
    *sum += info->rows * (info->cols ? info->cols : 1);
    return XRAY_OK;
}

static void check_rope(const xm_config *config, const xm_rope *rope)
{
    static double frequencies[XM_MAX_ROTARY];
    xm_rope_frequencies(config, rope, frequencies);
    fuzz_saw_u64("rope", rope->kind);
    fuzz_saw_real("theta", rope->theta);
    fuzz_saw_real("factor", rope->factor);
    fuzz_saw_real("low", rope->low_freq_factor);
    fuzz_saw_real("high", rope->high_freq_factor);
    fuzz_saw_real("original", rope->original_positions);
    fuzz_saw_real("fast", rope->beta_fast);
    fuzz_saw_real("slow", rope->beta_slow);
    fuzz_saw_rounded("scale", rope->scale);
    fuzz_saw_u64("truncate", rope->truncate);
    for (uint32_t i = 0; i < config->rotary / 2; i++) {
        FUZZ_CHECK(isfinite(frequencies[i]));
        fuzz_saw_rounded("frequency", frequencies[i]);
    }
}

static void report_config(const xm_config *c)
{
    const struct {
        const char *name;
        uint64_t value;
    } sizes[] = {
        CONFIG_COUNTS(c),
        { "segments", xm_segments(c) },
        { "vocab_segment", xm_vocab_segment(c) },
        { "parameters", xm_config_param_count(c) },
    };
    if (!fuzz_sees())
        return;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        fuzz_saw_u64(sizes[i].name, sizes[i].value);
    for (uint32_t l = 0; l < c->layers && l < XM_MAX_LAYERS; l++)
        fuzz_saw_u64("slides", (uint64_t)xm_config_slides(c, l));
    fuzz_saw_real("norm_eps", c->norm_eps);
    fuzz_saw_real("norm_offset", c->norm_offset);
    fuzz_saw_rounded("attn_scale", c->attn_scale);
    fuzz_saw_real("attn_softcap", c->attn_softcap);
    fuzz_saw_real("logit_softcap", c->logit_softcap);
    fuzz_saw_rounded("embed_scale", c->embed_scale);
    fuzz_saw_real("init_range", c->init_range);
    fuzz_saw_i64("bos", c->bos_id);
    for (uint32_t i = 0; i < c->end_count; i++)
        fuzz_saw_i64("end", c->end_ids[i]);
}

static void report_layout(const xm_layout *layout)
{
    if (!fuzz_sees())
        return;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *p = &layout->params[i];
        fuzz_saw_text("laid out", p->name);
        fuzz_saw_u64("rows", p->rows);
        fuzz_saw_u64("columns", p->cols);
        fuzz_saw_u64("all rows", p->all_rows);
        fuzz_saw_u64("all columns", p->all_cols);
        fuzz_saw_u64("first column", p->col_first);
        for (uint32_t k = 0; k < p->piece_count; k++) {
            fuzz_saw_u64("piece", p->pieces[k].first);
            fuzz_saw_u64("its rows", p->pieces[k].rows);
        }
        fuzz_saw_u64("own", p->own);
        fuzz_saw_u64("shared", p->shared);
        fuzz_saw_u64("offset", p->offset);
        fuzz_saw_u64("bucket", p->bucket);
        fuzz_saw_i64("matrix", p->matrix);
        fuzz_saw_u64("matrix row", p->matrix_row);
        fuzz_saw_u64("decay", p->decay);
        fuzz_saw_u64("joined", p->joined);
        fuzz_saw_u64("transposed", p->transposed);
    }
    for (uint32_t i = 0; i < layout->matrix_count; i++) {
        fuzz_saw_u64("matrix", layout->matrices[i].rows);
        fuzz_saw_u64("columns", layout->matrices[i].cols);
        fuzz_saw_u64("offset", layout->matrices[i].offset);
        fuzz_saw_u64("type", layout->matrices[i].product_dtype);
    }
    for (uint32_t i = 0; i < layout->bucket_count; i++)
        fuzz_saw_u64("bucket", layout->bucket_sizes[i]);
}

/* The part of the model that one of several ranks has. */
static void report_part(xm_config *part, xray_status status, xr_err *err)
{
    xm_layout *layout = NULL;
    if (status != XRAY_OK) {
        fuzz_said(err);
    } else {
        report_config(part);
        part->dtype = XRAY_BF16;
        if (xm_layout_create(part, 1, err, &layout))
            fuzz_said(err);
        else
            report_layout(layout);
    }
    err->text[0] = '\0';
    xm_layout_destroy(layout);
}

static void report_parts(const xm_config *config)
{
    static xm_config part;
    const xm_stage_layers chunks = { 0, 2, 2, 2 };
    xr_err err = { "" };
    if (!fuzz_sees() || config->layers > 8)
        return;
    for (uint32_t ranks = 2; ranks <= 4; ranks++)
        report_part(&part,
                    xm_config_share(config, ranks - 1, ranks, &err, &part),
                    &err);
    report_part(&part, xm_config_stage(config, 1, 1, &err, &part), &err);
    report_part(&part, xm_config_chunks(config, &chunks, &err, &part), &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static xm_config config;
    xr_err err = { "" };
    uint64_t sum = 0;
    xm_layout *layout = NULL;
    char *text = fuzz_text(data, size);
    if (xm_config_parse(text, "config.json", &err, &config)) {
        fuzz_said(&err);
        free(text);
        return 0;
    }
    free(text);
    report_config(&config);
    if (!config.learned_positions) {
        check_rope(&config, &config.rope);
        check_rope(&config, &config.rope_local);
    }
    FUZZ_CHECK(xm_config_params(&config, count_param, &sum) == XRAY_OK);
    FUZZ_CHECK(sum == xm_config_param_count(&config));
    if (xm_layout_create(&config, 1, &err, &layout))
        fuzz_said(&err);
    else
        report_layout(layout);
    xm_layout_destroy(layout);
    report_parts(&config);
    return 0;
}
