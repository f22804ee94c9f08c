/* SPDX-License-Identifier: Apache-2.0 */
#include "model/train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "model/hf/safetensors.h"

#define FORMAT "xray.adamw/1"
#define STATE_NAME_CAP (XM_NAME_CAP + 16)
/* More steps than any run makes; keeps a damaged count from stalling a load. */
#define STEP_LIMIT ((int64_t)1 << 32)

static const char *const suffixes[2] = { "exp_avg", "exp_avg_sq" };

struct xm_optim {
    xm_st *file;
    const xm_layout *layout;
    uint64_t steps;
    uint64_t version;
};

static void state_name(const xm_param *param, unsigned moment,
                       char name[STATE_NAME_CAP])
{
    (void)snprintf(name, STATE_NAME_CAP, "%s.%s", param->name,
                   suffixes[moment]);
}

static float *state_data(const xm_adamw *adamw, const xm_param *param,
                         unsigned moment)
{
    float **buckets = moment == 0 ? adamw->m : adamw->v;
    return buckets[param->bucket] + param->offset;
}

static int host_memory(const xray_device_ops *device, void *self)
{
    xray_device_info info = { .head = XRAY_HEAD(xray_device_info) };
    return device->info(self, &info) == XRAY_OK && info.host_memory;
}

/* ---- writing ------------------------------------------------------------ */

/* What a file is written from; `copy` holds moments the host cannot read. */
typedef struct optim_out {
    xm_st_item *items;
    char (*names)[STATE_NAME_CAP];
    float *copy;
    size_t count;
} optim_out;

static void optim_out_free(optim_out *out)
{
    free(out->items);
    free(out->names);
    free(out->copy);
}

static xray_status fetch(const xm_adamw *adamw, const float *from,
                         uint64_t count, float *to, xr_err *err)
{
    xray_status status =
        adamw->device->copy(adamw->device_self, NULL, to, from,
                            count * sizeof(float), XRAY_COPY_TO_HOST);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "reading the optimizer's state failed");
}

static uint64_t param_elements(const xm_layout *layout)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < layout->param_count; i++)
        sum += layout->params[i].count;
    return sum;
}

static xray_status optim_out_memory(const xm_adamw *adamw, optim_out *out,
                                    xr_err *err)
{
    const xm_layout *layout = adamw->layout;
    int direct = host_memory(adamw->device, adamw->device_self);
    out->count = 2 * (size_t)layout->param_count;
    out->items = xr_calloc(out->count, sizeof(*out->items));
    out->names = xr_calloc(out->count, sizeof(*out->names));
    if (!direct)
        out->copy = xr_calloc(2 * param_elements(layout), sizeof(float));
    if (!out->items || !out->names || (!direct && !out->copy))
        return xr_fail(err, XRAY_E_NOMEM,
                       "no memory to write the optimizer's state");
    return XRAY_OK;
}

static xray_status collect(const xm_adamw *adamw, optim_out *out, xr_err *err)
{
    const xm_layout *layout = adamw->layout;
    float *copy = out->copy;
    xray_status status = adamw->device->sync(adamw->device_self, NULL);
    for (size_t i = 0; status == XRAY_OK && i < out->count; i++) {
        const xm_param *param = &layout->params[i / 2];
        const float *data = state_data(adamw, param, i % 2);
        state_name(param, i % 2, out->names[i]);
        if (copy) {
            status = fetch(adamw, data, param->count, copy, err);
            data = copy;
            copy += param->count;
        }
        out->items[i] = (xm_st_item){
            .name = out->names[i],
            .dtype = XM_ST_F32,
            .dims = param->cols ? 2 : 1,
            .shape = { param->rows, param->cols },
            .data = data,
        };
    }
    if (status == XRAY_OK)
        status = adamw->device->sync(adamw->device_self, NULL);
    return status;
}

xray_status xm_optim_save(const xm_adamw *adamw, const char *dir,
                          uint64_t version, xr_err *err)
{
    char path[XR_PATH_CAP];
    char step_text[24];
    char version_text[24];
    optim_out out = { 0 };
    xray_status status =
        xr_path_join(dir, XM_OPTIM_FILE, path, sizeof(path), err);
    if (status != XRAY_OK)
        return status;
    (void)snprintf(step_text, sizeof(step_text), "%" PRIu64, adamw->steps);
    (void)snprintf(version_text, sizeof(version_text), "%" PRIu64, version);
    const char *metadata[] = { "format",  FORMAT,       "step", step_text,
                               "version", version_text, NULL };
    status = optim_out_memory(adamw, &out, err);
    if (status == XRAY_OK)
        status = collect(adamw, &out, err);
    if (status == XRAY_OK)
        status = xm_st_write(path, out.items, out.count, metadata, err);
    optim_out_free(&out);
    return status;
}

/* ---- reading ------------------------------------------------------------ */

static xray_status read_count(const xm_st *file, const char *key,
                              const char *path, xr_err *err, uint64_t *out)
{
    const char *text = xm_st_metadata(file, key);
    int64_t value = -1;
    if (!text || xr_parse_int(text, &value) != 0 || value < 0 ||
        value > STEP_LIMIT)
        return xr_fail(err, XRAY_E_IO,
                       "%s: metadata %s is %s, expected a count", path, key,
                       text ? text : "missing");
    *out = (uint64_t)value;
    return XRAY_OK;
}

static xray_status check_state(const xm_st *file, const xm_param *param,
                               unsigned moment, const char *path, xr_err *err)
{
    char name[STATE_NAME_CAP];
    state_name(param, moment, name);
    const xm_st_tensor *tensor = xm_st_find(file, name);
    if (!tensor)
        return xr_fail(err, XRAY_E_IO, "%s: tensor %s is missing", path, name);
    if (tensor->dtype != XM_ST_F32)
        return xr_fail(err, XRAY_E_IO, "%s: tensor %s is not F32", path, name);
    uint32_t dims = param->cols ? 2 : 1;
    if (tensor->dims == dims && tensor->shape[0] == param->rows &&
        (dims == 1 || tensor->shape[1] == param->cols))
        return XRAY_OK;
    xr_str shape = { 0 };
    for (uint32_t i = 0; i < tensor->dims && i < XM_ST_DIMS; i++)
        xr_str_printf(&shape, "%s%" PRIu64, i ? ", " : "", tensor->shape[i]);
    xray_status status =
        dims == 2
            ? xr_fail(err, XRAY_E_IO,
                      "%s: tensor %s has shape [%s], expected [%" PRIu64
                      ", %" PRIu64 "]",
                      path, name, xr_str_text(&shape), param->rows, param->cols)
            : xr_fail(err, XRAY_E_IO,
                      "%s: tensor %s has shape [%s], expected [%" PRIu64 "]",
                      path, name, xr_str_text(&shape), param->rows);
    xr_str_free(&shape);
    return status;
}

static xray_status check_file(xm_optim *optim, const char *path, xr_err *err)
{
    const xm_layout *layout = optim->layout;
    const char *format = xm_st_metadata(optim->file, "format");
    if (!format || strcmp(format, FORMAT) != 0)
        return xr_fail(err, XRAY_E_IO, "%s: format is %s, expected " FORMAT,
                       path, format ? format : "missing");
    xray_status status =
        read_count(optim->file, "step", path, err, &optim->steps);
    if (status == XRAY_OK)
        status = read_count(optim->file, "version", path, err, &optim->version);
    for (uint32_t i = 0; status == XRAY_OK && i < 2 * layout->param_count; i++)
        status =
            check_state(optim->file, &layout->params[i / 2], i % 2, path, err);
    if (status != XRAY_OK)
        return status;
    size_t expected = 2 * (size_t)layout->param_count;
    if (xm_st_count(optim->file) != expected)
        return xr_fail(err, XRAY_E_IO,
                       "%s holds %zu tensors, this model has %zu: it belongs "
                       "to another model",
                       path, xm_st_count(optim->file), expected);
    return XRAY_OK;
}

xray_status xm_optim_open(const xm_layout *layout, const char *dir, xr_err *err,
                          xm_optim **out)
{
    char path[XR_PATH_CAP];
    xray_status status =
        xr_path_join(dir, XM_OPTIM_FILE, path, sizeof(path), err);
    if (status != XRAY_OK)
        return status;
    xm_optim *optim = calloc(1, sizeof(*optim));
    if (!optim)
        return xr_fail(err, XRAY_E_NOMEM, "no memory to read %s", path);
    optim->layout = layout;
    status = xm_st_open(path, err, &optim->file);
    if (status == XRAY_OK)
        status = check_file(optim, path, err);
    if (status != XRAY_OK) {
        xm_optim_close(optim);
        return status;
    }
    *out = optim;
    return XRAY_OK;
}

void xm_optim_close(xm_optim *optim)
{
    if (!optim)
        return;
    xm_st_close(optim->file);
    free(optim);
}

uint64_t xm_optim_version(const xm_optim *optim)
{
    return optim->version;
}

static xray_status restore_state(const xm_optim *optim, const xm_adamw *adamw,
                                 uint32_t i, float *buffer, xr_err *err)
{
    char name[STATE_NAME_CAP];
    const xm_param *param = &adamw->layout->params[i / 2];
    state_name(param, i % 2, name);
    const xm_st_tensor *tensor = xm_st_find(optim->file, name);
    if (!tensor)
        return xr_fail(err, XRAY_E_BUG, "tensor %s vanished", name);
    float *to = state_data(adamw, param, i % 2);
    if (!buffer)
        return xm_st_read_f32(tensor, 0, param->count, to, err);
    xray_status status = xm_st_read_f32(tensor, 0, param->count, buffer, err);
    if (status != XRAY_OK)
        return status;
    status =
        adamw->device->copy(adamw->device_self, NULL, to, buffer,
                            param->count * sizeof(float), XRAY_COPY_TO_DEVICE);
    if (status == XRAY_OK)
        status = adamw->device->sync(adamw->device_self, NULL);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "writing the optimizer's state failed");
}

xray_status xm_optim_restore(const xm_optim *optim, xm_adamw *adamw,
                             xr_err *err)
{
    const xm_layout *layout = adamw->layout;
    float *buffer = NULL;
    if (!host_memory(adamw->device, adamw->device_self)) {
        uint64_t largest = 1;
        for (uint32_t i = 0; i < layout->param_count; i++)
            if (layout->params[i].count > largest)
                largest = layout->params[i].count;
        buffer = xr_calloc(largest, sizeof(float));
        if (!buffer)
            return xr_fail(err, XRAY_E_NOMEM,
                           "no memory to read the optimizer's state");
    }
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; status == XRAY_OK && i < 2 * layout->param_count; i++)
        status = restore_state(optim, adamw, i, buffer, err);
    free(buffer);
    if (status == XRAY_OK)
        xm_adamw_set_steps(adamw, optim->steps);
    return status;
}
