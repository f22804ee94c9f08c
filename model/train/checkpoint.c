/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the optimizer's state to a safetensors file, alone or together with
 * the other ranks, and restores it.
 */
#include "model/train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "model/hf/safetensors.h"
#include "model/train/host_memory.h"

#define FORMAT "xray.adamw/1"
#define STATE_NAME_CAP (XM_NAME_CAP + 16)
/* More steps than any run makes: the bound keeps a damaged count from stalling
 * a load. */
#define STEP_LIMIT ((int64_t)1 << 32)

/* Elements that are read at a time, between two looks at the stop. */
#define PIECE ((uint64_t)1 << 20)

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

/* The range of a parameter's elements whose moments are on this rank. */
static xm_range state_range(const xm_adamw *adamw, const xm_param *param)
{
    return xm_param_in(param, xm_adamw_range(adamw->layout, param->bucket,
                                             adamw->options.all_elements));
}

static float *state_data(const xm_adamw *adamw, const xm_param *param,
                         unsigned moment, uint64_t element)
{
    float **buckets = moment == 0 ? adamw->m : adamw->v;
    xm_range range = xm_adamw_range(adamw->layout, param->bucket,
                                    adamw->options.all_elements);
    return buckets[param->bucket] + (param->offset + element - range.first);
}

/* Index of the first parameter with moments. Frozen parameters have none and
 * come first. */
static uint32_t first_trained_param(const xm_layout *layout)
{
    uint32_t i = 0;
    while (i < layout->param_count && layout->params[i].bucket < layout->frozen)
        i++;
    return i;
}

static size_t state_count(const xm_layout *layout)
{
    return 2 * (size_t)(layout->param_count - first_trained_param(layout));
}

static const xm_param *state_param(const xm_layout *layout, size_t i)
{
    return &layout->params[first_trained_param(layout) + i / 2];
}

/* ---- writing ------------------------------------------------------------ */

/* The tensors of a file to be written. */
typedef struct optim_out {
    xm_st_item *items;
    char (*names)[STATE_NAME_CAP];
    size_t count;
} optim_out;

static void free_optim_out(optim_out *out)
{
    free(out->items);
    free(out->names);
}

static xray_status describe_items(const xm_layout *layout, optim_out *out,
                                  xr_err *err)
{
    out->count = state_count(layout);
    out->items = xr_calloc(out->count + 1, sizeof(*out->items));
    out->names = xr_calloc(out->count + 1, sizeof(*out->names));
    if (!out->items || !out->names)
        return xr_fail(err, XRAY_E_NOMEM,
                       "no memory to write the optimizer's state");
    for (size_t i = 0; i < out->count; i++) {
        const xm_param *param = state_param(layout, i);
        state_name(param, i % 2, out->names[i]);
        out->items[i] =
            (xm_st_item){ .name = out->names[i],
                          .dtype = XM_ST_F32,
                          .dims = param->cols ? 2 : 1,
                          .shape = { param->all_rows, param->all_cols } };
    }
    return XRAY_OK;
}

/* Number of the first moment of a parameter in the file. */
static size_t find_state(const xm_layout *whole, const xm_param *param)
{
    size_t at = (size_t)(xm_layout_find(whole, param->name) - whole->params);
    return 2 * (at - first_trained_param(whole));
}

typedef struct optim_source {
    const xm_adamw *adamw;
    const xm_layout *whole;
} optim_source;

static xm_piece optim_piece(const void *ctx, size_t i)
{
    const optim_source *from = ctx;
    const xm_adamw *adamw = from->adamw;
    const xm_layout *layout = adamw->layout;
    const xm_param *param = state_param(layout, i);
    xm_range own = xm_param_in(param, xm_bucket_share(layout, param->bucket));
    return (xm_piece){ .data = own.count
                                   ? state_data(adamw, param, i % 2, own.first)
                                   : NULL,
                       .param = param,
                       .tensor = find_state(from->whole, param) + i % 2,
                       .range = own };
}

xray_status xm_optim_save_share(const xm_adamw *adamw, const xm_layout *whole,
                                const char *dir, uint64_t version,
                                const xm_agreement *agreement, xr_err *err)
{
    char path[XR_PATH_CAP];
    char step_text[24];
    char version_text[24];
    optim_out out = { 0 };
    xm_st_parts *parts = NULL;
    (void)snprintf(step_text, sizeof(step_text), "%" PRIu64, adamw->steps);
    (void)snprintf(version_text, sizeof(version_text), "%" PRIu64, version);
    const char *metadata[] = { "format",  FORMAT,       "step", step_text,
                               "version", version_text, NULL };
    xray_status status =
        xr_path_join(dir, XM_OPTIM_FILE, path, sizeof(path), err);
    if (status == XRAY_OK)
        status = describe_items(whole, &out, err);
    if (status == XRAY_OK)
        status =
            xm_st_parts_file(path, out.items, out.count, metadata, err, &parts);
    const optim_source source = { adamw, whole };
    xm_share_source from = { .device = adamw->device,
                             .device_self = adamw->device_self,
                             .count = state_count(adamw->layout),
                             .ctx = &source,
                             .piece = optim_piece,
                             .calls = adamw->calls,
                             .on_host = adamw->options.streamed };
    status = xm_share_save(&from, parts, status, agreement, err);
    xm_st_parts_close(parts);
    free_optim_out(&out);
    return status;
}

static xray_status agree_alone(void *ctx, xray_status mine, xr_err *err)
{
    (void)ctx;
    (void)err;
    return mine;
}

xray_status xm_optim_save(const xm_adamw *adamw, const char *dir,
                          uint64_t version, xr_err *err)
{
    const xm_agreement alone = { .agree = agree_alone };
    return xm_optim_save_share(adamw, adamw->layout, dir, version, &alone, err);
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
                       "%s: metadata %s is %s, expected a count of steps", path,
                       key, text ? text : "missing");
    *out = (uint64_t)value;
    return XRAY_OK;
}

static xray_status check_state_tensor(const xm_st *file, const xm_param *param,
                                      unsigned moment, const char *path,
                                      xr_err *err)
{
    char name[STATE_NAME_CAP];
    state_name(param, moment, name);
    const xm_st_tensor *tensor = xm_st_find(file, name);
    if (!tensor)
        return xr_fail(err, XRAY_E_IO, "%s: tensor %s is missing", path, name);
    if (tensor->dtype != XM_ST_F32)
        return xr_fail(err, XRAY_E_IO, "%s: tensor %s is not F32", path, name);
    uint32_t dims = param->cols ? 2 : 1;
    if (tensor->dims == dims && tensor->shape[0] == param->all_rows &&
        (dims == 1 || tensor->shape[1] == param->all_cols))
        return XRAY_OK;
    xr_str shape = { 0 };
    for (uint32_t i = 0; i < tensor->dims && i < XM_ST_DIMS; i++)
        xr_str_printf(&shape, "%s%" PRIu64, i ? ", " : "", tensor->shape[i]);
    xray_status status =
        dims == 2
            ? xr_fail(err, XRAY_E_IO,
                      "%s: tensor %s has shape [%s], expected [%" PRIu64
                      ", %" PRIu64 "]",
                      path, name, xr_str_text(&shape), param->all_rows,
                      param->all_cols)
            : xr_fail(err, XRAY_E_IO,
                      "%s: tensor %s has shape [%s], expected [%" PRIu64 "]",
                      path, name, xr_str_text(&shape), param->all_rows);
    xr_str_free(&shape);
    return status;
}

static xray_status check_optim_file(xm_optim *optim, const char *path,
                                    xr_err *err)
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
    size_t expected = state_count(layout);
    for (size_t i = 0; status == XRAY_OK && i < expected; i++)
        status = check_state_tensor(optim->file, state_param(layout, i), i % 2,
                                    path, err);
    if (status != XRAY_OK)
        return status;
    if (xm_st_count(optim->file) != expected)
        return xr_fail(err, XRAY_E_IO,
                       "%s holds %zu tensors, but this model has %zu: the file "
                       "belongs to another model",
                       path, xm_st_count(optim->file), expected);
    return XRAY_OK;
}

xray_status xm_optim_open(const xm_layout *whole, const char *dir, xr_err *err,
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
    optim->layout = whole;
    status = xm_st_open(path, err, &optim->file);
    if (status == XRAY_OK)
        status = check_optim_file(optim, path, err);
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

/* Reads elements of a parameter's tensor. */
static xray_status read_moments(const xm_st_tensor *tensor,
                                const xm_param *param, xm_range piece,
                                float *out, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint64_t done = 0; done < piece.count && status == XRAY_OK;) {
        uint64_t at = 0;
        uint64_t run = xm_param_run(param, piece.first + done, &at);
        if (run > piece.count - done)
            run = piece.count - done;
        status = xm_st_read_f32(tensor, at, run, out + done, err);
        done += run;
    }
    return status;
}

static xray_status restore_piece(const xm_adamw *adamw, const xm_param *param,
                                 const xm_st_tensor *tensor, xm_range piece,
                                 float *buffer, float *to, xr_err *err)
{
    xray_status status =
        read_moments(tensor, param, piece, buffer ? buffer : to, err);
    if (status != XRAY_OK || !buffer)
        return status;
    status =
        adamw->device->copy(adamw->device_self, NULL, to, buffer,
                            piece.count * sizeof(float), XRAY_COPY_TO_DEVICE);
    if (status == XRAY_OK)
        status = adamw->device->sync(adamw->device_self, NULL);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "writing the optimizer's state failed");
}

static xray_status restore_moments(const xm_optim *optim, const xm_adamw *adamw,
                                   size_t i, float *buffer, xr_err *err)
{
    char name[STATE_NAME_CAP];
    const xm_param *param = state_param(adamw->layout, i);
    xm_range own = state_range(adamw, param);
    if (own.count == 0)
        return XRAY_OK;
    state_name(param, i % 2, name);
    const xm_st_tensor *tensor = xm_st_find(optim->file, name);
    if (!tensor)
        return xr_fail(err, XRAY_E_BUG,
                       "tensor %s was found when the file was opened, but not "
                       "when it is read",
                       name);
    for (uint64_t at = 0; at < own.count; at += PIECE) {
        xm_range piece = { own.first + at,
                           own.count - at < PIECE ? own.count - at : PIECE };
        float *to = state_data(adamw, param, i % 2, piece.first);
        xray_status status = xr_stop_check(adamw->calls, err);
        if (status == XRAY_OK)
            status =
                restore_piece(adamw, param, tensor, piece, buffer, to, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

xray_status xm_optim_restore(const xm_optim *optim, xm_adamw *adamw,
                             xr_err *err)
{
    const xm_layout *layout = adamw->layout;
    float *buffer = NULL;
    if (!adamw->options.streamed &&
        !xm_computes_on_host(adamw->device, adamw->device_self)) {
        buffer = xr_calloc(PIECE, sizeof(float));
        if (!buffer)
            return xr_fail(err, XRAY_E_NOMEM,
                           "no memory to read the optimizer's state");
    }
    xray_status status = XRAY_OK;
    for (size_t i = 0; status == XRAY_OK && i < state_count(layout); i++)
        status = restore_moments(optim, adamw, i, buffer, err);
    free(buffer);
    if (status == XRAY_OK)
        xm_adamw_set_steps(adamw, optim->steps);
    return status;
}
