/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of parameters in their buckets.
 */
#include "model/nn/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/nn/internal.h"

static const char *const slot_names[XM_SLOTS] = {
    [XM_NORM1] = "input_layernorm.weight",
    [XM_Q] = "self_attn.q_proj.weight",
    [XM_K] = "self_attn.k_proj.weight",
    [XM_V] = "self_attn.v_proj.weight",
    [XM_Q_BIAS] = "self_attn.q_proj.bias",
    [XM_K_BIAS] = "self_attn.k_proj.bias",
    [XM_V_BIAS] = "self_attn.v_proj.bias",
    [XM_Q_NORM] = "self_attn.q_norm.weight",
    [XM_K_NORM] = "self_attn.k_norm.weight",
    [XM_O] = "self_attn.o_proj.weight",
    [XM_NORM2] = "post_attention_layernorm.weight",
    [XM_GATE] = "mlp.gate_proj.weight",
    [XM_UP] = "mlp.up_proj.weight",
    [XM_DOWN] = "mlp.down_proj.weight",
    [XM_EMBED] = "model.embed_tokens.weight",
    [XM_NORM] = "model.norm.weight",
    [XM_HEAD] = "lm_head.weight",
    [XM_VALUE] = XM_VALUE_HEAD,
};

int xm_slot_joins(uint32_t slot)
{
    return slot == XM_K || slot == XM_V || slot == XM_K_BIAS ||
           slot == XM_V_BIAS || slot == XM_UP;
}

static int find_slot(const char *name, uint32_t first, uint32_t end,
                     uint32_t *out)
{
    for (uint32_t slot = first; slot < end; slot++) {
        if (strcmp(slot_names[slot], name) == 0) {
            *out = slot;
            return 0;
        }
    }
    return -1;
}

/* Bucket and slot of a HF name; -1 when it is none of a decoder's. */
static int place(const char *name, uint32_t layers, xm_param *param)
{
    if (find_slot(name, XM_EMBED, XM_SLOTS, &param->slot) == 0) {
        param->bucket = param->slot == XM_EMBED ? 0 : layers + 1;
        return 0;
    }
    static const char prefix[] = "model.layers.";
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return -1;
    char *rest = NULL;
    unsigned long layer = strtoul(name + sizeof prefix - 1, &rest, 10);
    if (layer >= layers || *rest != '.')
        return -1;
    param->bucket = (uint32_t)layer + 1;
    return find_slot(rest + 1, 0, XM_BLOCK_SLOTS, &param->slot);
}

typedef struct build {
    xm_layout *layout;
    uint32_t layers;
    uint32_t tied;
    uint32_t cap;
    xr_err *err;
} build;

static xray_status count_param(void *ctx, const char *name, uint64_t rows,
                               uint64_t cols)
{
    (void)name;
    (void)rows;
    (void)cols;
    ((build *)ctx)->cap++;
    return XRAY_OK;
}

static xray_status add_param(void *ctx, const char *name, uint64_t rows,
                             uint64_t cols)
{
    build *b = ctx;
    xm_param *param = &b->layout->params[b->layout->param_count];
    int n = snprintf(param->name, sizeof param->name, "%s", name);
    if (n < 0 || (size_t)n >= sizeof param->name ||
        place(name, b->layers, param) != 0)
        return xr_fail(b->err, XRAY_E_BUG,
                       "%s: the layout has no place for this parameter", name);
    param->rows = rows;
    param->cols = cols;
    param->count = cols ? rows * cols : rows;
    param->decay = cols != 0;
    b->layout->param_count++;
    return XRAY_OK;
}

static int by_place(const void *a, const void *b)
{
    const xm_param *x = a;
    const xm_param *y = b;
    if (x->bucket != y->bucket)
        return x->bucket < y->bucket ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* A look-up table that no product reads needs no handle. */
static int is_matrix(const build *b, const xm_param *param)
{
    return param->cols != 0 && (param->slot != XM_EMBED || b->tied);
}

static void add_matrix(xm_layout *layout, xm_param *param, xm_matrix *joined)
{
    if (joined) {
        param->matrix = (int32_t)(joined - layout->matrices);
        param->matrix_row = joined->rows;
        joined->rows += param->rows;
        return;
    }
    param->matrix = (int32_t)layout->matrix_count;
    xm_matrix *matrix = &layout->matrices[layout->matrix_count++];
    matrix->rows = param->rows;
    matrix->cols = param->cols;
    matrix->offset = param->offset;
    matrix->bucket = param->bucket;
}

static void lay_out(build *b)
{
    xm_layout *layout = b->layout;
    qsort(layout->params, layout->param_count, sizeof *layout->params,
          by_place);
    for (uint32_t i = 0; i < layout->param_count; i++) {
        xm_param *param = &layout->params[i];
        uint64_t *used = &layout->bucket_sizes[param->bucket];
        int joins = xm_slot_joins(param->slot);
        param->offset = joins ? *used : xm_round16(*used);
        param->matrix = -1;
        *used = param->offset + param->count;
        if (is_matrix(b, param))
            add_matrix(layout, param,
                       joins ? &layout->matrices[layout->matrix_count - 1]
                             : NULL);
    }
    for (uint32_t i = 0; i < layout->bucket_count; i++)
        layout->bucket_sizes[i] = xm_round16(layout->bucket_sizes[i]);
}

static xray_status fill(const xm_config *config, int value_head, build *b)
{
    xray_status status = xm_config_params(config, add_param, b);
    if (status == XRAY_OK && value_head)
        status = add_param(b, XM_VALUE_HEAD, 1, config->hidden);
    if (status == XRAY_OK)
        lay_out(b);
    return status;
}

xray_status xm_layout_create(const xm_config *config, int value_head,
                             xr_err *err, xm_layout **out)
{
    build b = { .layers = config->layers, .tied = config->tied, .err = err };
    (void)xm_config_params(config, count_param, &b);
    b.cap += value_head ? 1 : 0;

    xm_layout *layout = xr_calloc(1, sizeof *layout);
    if (!layout)
        return xr_fail(err, XRAY_E_NOMEM, "layout: out of memory");
    layout->bucket_count = config->layers + 2;
    layout->params = xr_calloc(b.cap, sizeof *layout->params);
    layout->matrices = xr_calloc(b.cap, sizeof *layout->matrices);
    layout->bucket_sizes =
        xr_calloc(layout->bucket_count, sizeof *layout->bucket_sizes);
    b.layout = layout;
    xray_status status = XRAY_E_NOMEM;
    if (layout->params && layout->matrices && layout->bucket_sizes)
        status = fill(config, value_head, &b);
    else
        (void)xr_fail(err, XRAY_E_NOMEM, "layout: out of memory");
    if (status != XRAY_OK) {
        xm_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return XRAY_OK;
}

void xm_layout_destroy(xm_layout *layout)
{
    if (!layout)
        return;
    free(layout->params);
    free(layout->matrices);
    free(layout->bucket_sizes);
    free(layout);
}

const xm_param *xm_layout_find(const xm_layout *layout, const char *name)
{
    for (uint32_t i = 0; i < layout->param_count; i++) {
        if (strcmp(layout->params[i].name, name) == 0)
            return &layout->params[i];
    }
    return NULL;
}

uint64_t xm_layout_bytes(const xm_layout *layout)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < layout->bucket_count; i++)
        count += layout->bucket_sizes[i];
    return count * sizeof(float);
}

uint64_t xm_layout_packed_bytes(const xm_layout *layout, int trainable)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < layout->matrix_count; i++) {
        uint64_t rows = layout->matrices[i].rows;
        uint64_t cols = layout->matrices[i].cols;
        count += ((rows + 15) & ~(uint64_t)15) * cols;
        if (trainable)
            count += ((cols + 15) & ~(uint64_t)15) * rows;
    }
    return count * sizeof(float);
}
