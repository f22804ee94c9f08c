/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the tensors of parameters in a published table of weights, and checks
 * their shapes.
 */
#include <stdio.h>
#include <string.h>

#include "model/nn/weights_internal.h"

/* Formats a shape as "[3, 4]". */
static void format_shape(const uint64_t *shape, uint32_t dims, char *out,
                         size_t cap)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < dims && used < cap; i++) {
        int n = snprintf(out + used, cap - used, "%s%llu", i ? ", " : "[",
                         (unsigned long long)shape[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < cap)
        (void)snprintf(out + used, cap - used, dims ? "]" : "[]");
}

xray_status xm_param_check_shape(const xm_param *param, int on_disk,
                                 const uint64_t *shape, uint32_t dims,
                                 const char *where, xr_err *err)
{
    uint32_t want_dims = param->cols ? 2 : 1;
    int turned = on_disk && param->transposed;
    uint64_t want[2] = { turned ? param->all_cols : param->all_rows,
                         turned ? param->all_rows : param->all_cols };
    if (dims == want_dims && shape[0] == want[0] &&
        (dims == 1 || shape[1] == want[1]))
        return XRAY_OK;
    char got_text[128];
    char want_text[64];
    format_shape(shape, dims, got_text, sizeof got_text);
    format_shape(want, want_dims, want_text, sizeof want_text);
    return xr_fail(err, XRAY_E_CONFIG,
                   "%s: tensor %s has shape %s, the model's config says %s",
                   where, param->name, got_text, want_text);
}

const xray_tensor *xm_find_tensor(const xray_weights *table, const char *name)
{
    const char *at = (const char *)table->tensors;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const xray_tensor *tensor =
            (const void *)(at + (uint64_t)i * table->tensor_stride);
        if (strcmp(tensor->name, name) == 0)
            return tensor;
    }
    return NULL;
}

const xray_tensor *xm_next_box(const xray_weights *table,
                               const xray_tensor *box)
{
    const char *next = (const char *)box + table->tensor_stride;
    const char *end = (const char *)table->tensors +
                      (uint64_t)table->tensor_count * table->tensor_stride;
    const xray_tensor *tensor = (const void *)next;
    return next < end && strcmp(tensor->name, box->name) == 0 ? tensor : NULL;
}

xray_status xm_find_param_tensor(const xray_weights *table,
                                 const xm_param *param, xr_err *err,
                                 const xray_tensor **out)
{
    *out = xm_find_tensor(table, param->name);
    if (!*out)
        return xr_fail(err, XRAY_E_CONFIG,
                       "tensor %s is not among the published weights",
                       param->name);
    return xm_param_check_shape(param, 0, (*out)->shape, (*out)->dims,
                                "published weights", err);
}

/* Tells whether the first boxes of the tensor are a parameter's pieces, one
 * after another in memory. */
static int holds_in_one_piece(const xray_weights *table, const xm_param *param,
                              const xray_tensor *box)
{
    const unsigned char *data = box->data;
    for (uint32_t p = 0; p < param->piece_count; p++) {
        if (!box || box->lo[0] != param->pieces[p].first ||
            box->extent[0] != param->pieces[p].rows ||
            (param->cols && (box->lo[1] != param->col_first ||
                             box->extent[1] != param->cols)) ||
            !xray_box_is_packed(box) || box->data != data)
            return 0;
        data += xray_box_count(box) * xray_dtype_bytes(box->dtype);
        box = xm_next_box(table, box);
    }
    return 1;
}

xray_status xm_tensor_find(const xray_weights *table, const xm_param *param,
                           xr_err *err, const xray_tensor **out)
{
    const xray_tensor *tensor = NULL;
    xray_status status = xm_find_param_tensor(table, param, err, &tensor);
    if (status != XRAY_OK)
        return status;
    if (!holds_in_one_piece(table, param, tensor))
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: boxes of it are published, but all of it in "
                       "one piece is needed",
                       param->name);
    int narrow = tensor->dtype == XRAY_BF16 && param->cols;
    if ((tensor->dtype != XRAY_F32 && !narrow) || !tensor->data)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: its published element type is %u, expected "
                       "fp32 (or bf16 for a matrix)",
                       param->name, tensor->dtype);
    *out = tensor;
    return XRAY_OK;
}
