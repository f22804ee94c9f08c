/* SPDX-License-Identifier: Apache-2.0
 *
 * Where values of weights come from and go to: model directories, random
 * numbers, other tables.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/map.h"
#include "core/base/philox.h"
#include "core/base/str.h"
#include "model/hf/safetensors.h"
#include "model/nn/internal.h"

/* Values pass through here on their way to a device whose memory the host
 * cannot reach. A multiple of 4, so that random draws are never cut. */
#define STAGE_COUNT ((uint64_t)1 << 20)

typedef struct stage {
    const xray_device_ops *device;
    void *device_self;
    int direct; /* the host writes device memory itself */
    float *buffer;
} stage;

static xray_status stage_open(const xm_weights *w, xr_err *err, stage *out)
{
    xray_device_info info = { .head = XRAY_HEAD(xray_device_info) };
    xray_status status = w->device->info(w->device_self, &info);
    if (status != XRAY_OK)
        return xr_fail(err, status, "the device tells nothing about itself");
    *out = (stage){ .device = w->device,
                    .device_self = w->device_self,
                    .direct = info.host_memory != 0 };
    if (out->direct)
        return XRAY_OK;
    out->buffer = malloc(STAGE_COUNT * sizeof(float));
    if (!out->buffer)
        return xr_fail(err, XRAY_E_NOMEM, "weights: out of memory");
    return XRAY_OK;
}

static void stage_close(stage *s)
{
    free(s->buffer);
    s->buffer = NULL;
}

static xray_status move(const stage *s, void *to, const void *from,
                        uint64_t count, uint32_t kind)
{
    xray_status status = s->device->copy(s->device_self, NULL, to, from,
                                         count * sizeof(float), kind);
    return status == XRAY_OK ? s->device->sync(s->device_self, NULL) : status;
}

/* Gives elements [first, first + count) of a parameter. */
typedef xray_status (*source)(void *ctx, uint64_t first, uint64_t count,
                              float *out, xr_err *err);

static float *param_data(const xm_weights *w, const xm_param *param)
{
    return w->buckets[param->bucket] + param->offset;
}

static xray_status fill_param(const xm_weights *w, const xm_param *param,
                              const stage *s, source from, void *ctx,
                              xr_err *err)
{
    float *data = param_data(w, param);
    if (s->direct)
        return from(ctx, 0, param->count, data, err);
    for (uint64_t first = 0; first < param->count; first += STAGE_COUNT) {
        uint64_t left = param->count - first;
        uint64_t count = left < STAGE_COUNT ? left : STAGE_COUNT;
        xray_status status = from(ctx, first, count, s->buffer, err);
        if (status != XRAY_OK)
            return status;
        status = move(s, data + first, s->buffer, count, XRAY_COPY_TO_DEVICE);
        if (status != XRAY_OK)
            return xr_fail(err, status, "%s: copy to the device failed",
                           param->name);
    }
    return XRAY_OK;
}

static xray_status no_lease(const xm_weights *w, xr_err *err)
{
    if (w->leases == 0)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_STATE,
                   "the weights cannot change while %u reader%s hold%s them",
                   w->leases, w->leases == 1 ? "" : "s",
                   w->leases == 1 ? "s" : "");
}

/* ---- from a model directory --------------------------------------------- */

static xray_status from_file(void *ctx, uint64_t first, uint64_t count,
                             float *out, xr_err *err)
{
    return xm_st_read_f32(ctx, first, count, out, err);
}

static xray_status zeros(void *ctx, uint64_t first, uint64_t count, float *out,
                         xr_err *err)
{
    (void)ctx;
    (void)first;
    (void)err;
    memset(out, 0, count * sizeof *out);
    return XRAY_OK;
}

/* "[3, 4]" */
static void shape_text(const uint64_t *shape, uint32_t dims, char *out,
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

static xray_status check_shape(const xm_param *param, const uint64_t *shape,
                               uint32_t dims, const char *where, xr_err *err)
{
    uint32_t want_dims = param->cols ? 2 : 1;
    uint64_t want[2] = { param->rows, param->cols };
    if (dims == want_dims && shape[0] == want[0] &&
        (dims == 1 || shape[1] == want[1]))
        return XRAY_OK;
    char got_text[128];
    char want_text[64];
    shape_text(shape, dims, got_text, sizeof got_text);
    shape_text(want, want_dims, want_text, sizeof want_text);
    return xr_fail(err, XRAY_E_CONFIG,
                   "%s: tensor %s has shape %s, the model's config says %s",
                   where, param->name, got_text, want_text);
}

static xray_status check_param(const xm_param *param, const xm_st *st,
                               const char *dir, xr_err *err)
{
    const xm_st_tensor *tensor = xm_st_find(st, param->name);
    if (!tensor && param->slot == XM_VALUE)
        return XRAY_OK;
    if (!tensor)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: tensor %s is missing, the model's config asks for "
                       "it",
                       dir, param->name);
    xray_status status =
        check_shape(param, tensor->shape, tensor->dims, dir, err);
    float first = 0; /* reading it says whether the type converts */
    return status == XRAY_OK ? xm_st_read_f32(tensor, 0, 1, &first, err)
                             : status;
}

static xray_status load_param(xm_weights *w, const xm_param *param,
                              const xm_st *st, const stage *s, xr_err *err)
{
    const xm_st_tensor *tensor = xm_st_find(st, param->name);
    if (!tensor)
        return fill_param(w, param, s, zeros, NULL, err);
    xm_st_tensor copy = *tensor;
    return fill_param(w, param, s, from_file, &copy, err);
}

static int ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text);
    size_t m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

/* Tensors of the files that the model has no use for. Old Llama checkpoints
 * carry their rotary frequencies along; those follow from the config. */
static xray_status check_extra(const xm_weights *w, const xm_st *st,
                               const char *dir, xr_err *err)
{
    int tied = xm_layout_find(w->layout, "lm_head.weight") == NULL;
    for (size_t i = 0; i < xm_st_count(st); i++) {
        const char *name = xm_st_at(st, i)->name;
        if (xm_layout_find(w->layout, name) ||
            (tied && strcmp(name, "lm_head.weight") == 0) ||
            ends_with(name, ".rotary_emb.inv_freq"))
            continue;
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: tensor %s has no place in the model that "
                       "config.json describes",
                       dir, name);
    }
    return XRAY_OK;
}

xray_status xm_weights_load(xm_weights *w, const char *dir, xr_err *err)
{
    xm_st *st = NULL;
    stage s = { 0 };
    xray_status status = no_lease(w, err);
    if (status == XRAY_OK)
        status = xm_st_open(dir, err, &st);
    if (status != XRAY_OK)
        return status;
    /* All is checked before the first value is taken: a refused checkpoint
     * leaves the weights as they were. */
    status = check_extra(w, st, dir, err);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++)
        status = check_param(&w->layout->params[i], st, dir, err);
    if (status == XRAY_OK)
        status = stage_open(w, err, &s);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++)
        status = load_param(w, &w->layout->params[i], st, &s, err);
    stage_close(&s);
    xm_st_close(st);
    return status == XRAY_OK ? xm_weights_changed(w, w->version, err) : status;
}

/* ---- random ------------------------------------------------------------- */

/* Natural logarithm from arithmetic alone, so that initial weights do not
 * depend on the C library: with x = m 2^e, ln m = 2 atanh((m-1)/(m+1)). */
static double plain_log(double x)
{
    int e = 0;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1);
    double s2 = s * s;
    double sum = 0;
    for (int k = 21; k >= 1; k -= 2)
        sum = sum * s2 + 1.0 / k;
    return 2 * s * sum + e * 0.69314718055994531;
}

/* Two normal numbers by the polar method (Marsaglia, 1964); each attempt has
 * its own counter. */
static void normal_pair(uint64_t key, uint64_t pair, double out[2])
{
    double u = 0;
    double v = 0;
    double r = 0;
    for (uint32_t attempt = 0;; attempt++) {
        xr_philox_out bits =
            xr_philox(key, (uint32_t)pair, (uint32_t)(pair >> 32), attempt, 0);
        u = ((double)bits.w[0] + 0.5) * 0x1p-31 - 1;
        v = ((double)bits.w[1] + 0.5) * 0x1p-31 - 1;
        r = u * u + v * v;
        if (r > 0 && r < 1)
            break;
    }
    double scale = sqrt(-2 * plain_log(r) / r);
    out[0] = u * scale;
    out[1] = v * scale;
}

typedef struct draw {
    uint64_t key;
    double deviation; /* 0: all elements are `value` */
    float value;
} draw;

static xray_status from_draw(void *ctx, uint64_t first, uint64_t count,
                             float *out, xr_err *err)
{
    const draw *d = ctx;
    (void)err;
    for (uint64_t i = 0; i < count; i++)
        out[i] = d->value;
    if (d->deviation <= 0)
        return XRAY_OK;
    for (uint64_t i = 0; i < count; i += 2) {
        double pair[2];
        normal_pair(d->key, (first + i) / 2, pair);
        out[i] = (float)(pair[0] * d->deviation);
        if (i + 1 < count)
            out[i + 1] = (float)(pair[1] * d->deviation);
    }
    return XRAY_OK;
}

static draw draw_of(const xm_param *param, const xm_config *config,
                    uint64_t seed)
{
    draw d = { .key = xr_mix64(xr_mix64(0, seed),
                               xr_hash(param->name, strlen(param->name))) };
    if (param->slot == XM_VALUE)
        return d;
    if (param->cols == 0) {
        d.value = ends_with(param->name, ".bias") ? 0.0f : 1.0f;
        return d;
    }
    d.deviation = config->init_range;
    if (param->slot == XM_O || param->slot == XM_DOWN)
        d.deviation /= sqrt(2.0 * config->layers);
    return d;
}

xray_status xm_weights_random(xm_weights *w, const xm_config *config,
                              uint64_t seed, xr_err *err)
{
    stage s = { 0 };
    xray_status status = no_lease(w, err);
    if (status == XRAY_OK)
        status = stage_open(w, err, &s);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        const xm_param *param = &w->layout->params[i];
        draw d = draw_of(param, config, seed);
        status = fill_param(w, param, &s, from_draw, &d, err);
    }
    stage_close(&s);
    return status == XRAY_OK ? xm_weights_changed(w, w->version, err) : status;
}

/* ---- from another table ------------------------------------------------- */

static const xray_tensor *find_tensor(const xray_weights *table,
                                      const char *name)
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

xray_status xm_tensor_find(const xray_weights *table, const xm_param *param,
                           xr_err *err, const xray_tensor **out)
{
    const xray_tensor *tensor = find_tensor(table, param->name);
    if (!tensor)
        return xr_fail(err, XRAY_E_CONFIG,
                       "tensor %s is not among the published weights",
                       param->name);
    xray_status status = check_shape(param, tensor->shape, tensor->dims,
                                     "published weights", err);
    if (status != XRAY_OK)
        return status;
    if (tensor->first != 0 || tensor->count != param->count)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: only elements [%llu, %llu) of it are "
                       "published, the whole is needed",
                       param->name, (unsigned long long)tensor->first,
                       (unsigned long long)(tensor->first + tensor->count));
    if (tensor->dtype != XRAY_F32 || !tensor->data)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: element type %u is published, fp32 is "
                       "needed",
                       param->name, tensor->dtype);
    *out = tensor;
    return XRAY_OK;
}

typedef struct remote {
    stage from;
    const float *data;
} remote;

static xray_status from_remote(void *ctx, uint64_t first, uint64_t count,
                               float *out, xr_err *err)
{
    const remote *r = ctx;
    xray_status status =
        move(&r->from, out, r->data + first, count, XRAY_COPY_TO_HOST);
    if (status != XRAY_OK)
        return xr_fail(err, status, "copy from the source's device failed");
    return XRAY_OK;
}

/* The source's tensor; NULL for a value head that it does not have. */
static xray_status find_source(const xm_param *param, const xray_weights *table,
                               xr_err *err, const xray_tensor **out)
{
    *out = NULL;
    if (param->slot == XM_VALUE && !find_tensor(table, param->name))
        return XRAY_OK;
    return xm_tensor_find(table, param, err, out);
}

static xray_status import_param(const xm_weights *w, const xm_param *param,
                                const xray_weights *table, const stage *s,
                                xr_err *err)
{
    const xray_tensor *tensor = NULL;
    xray_status status = find_source(param, table, err, &tensor);
    if (status != XRAY_OK || !tensor)
        return status;
    if (table->device_self == w->device_self) {
        status = move(s, param_data(w, param), tensor->data, param->count,
                      XRAY_COPY_ON_DEVICE);
        return status == XRAY_OK
                   ? status
                   : xr_fail(err, status, "%s: copy failed", param->name);
    }
    remote r = { .from = { .device = table->device,
                           .device_self = table->device_self },
                 .data = tensor->data };
    return fill_param(w, param, s, from_remote, &r, err);
}

static xray_status check_source(const xm_weights *w, const xray_weights *table,
                                xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        const xray_tensor *tensor = NULL;
        status = find_source(&w->layout->params[i], table, err, &tensor);
    }
    return status;
}

xray_status xm_weights_import(xm_weights *w, const xray_weights *from,
                              xr_err *err)
{
    stage s = { 0 };
    xray_status status = no_lease(w, err);
    if (status == XRAY_OK)
        status = check_source(w, from, err);
    if (status == XRAY_OK)
        status = stage_open(w, err, &s);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++)
        status = import_param(w, &w->layout->params[i], from, &s, err);
    stage_close(&s);
    if (status != XRAY_OK)
        return status;
    uint64_t version = from->version ? from->version(from->owner) : w->version;
    return xm_weights_changed(w, version, err);
}

/* ---- to a model directory ----------------------------------------------- */

/* Values of a parameter in host memory; *out_copy is to be freed. */
static xray_status host_values(const xm_weights *w, const xm_param *param,
                               const stage *s, xr_err *err,
                               const float **out_data, float **out_copy)
{
    *out_copy = NULL;
    *out_data = param_data(w, param);
    if (s->direct)
        return XRAY_OK;
    float *copy = xr_calloc(param->count, sizeof(float));
    if (!copy)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", param->name);
    *out_copy = copy;
    xray_status status =
        move(s, copy, *out_data, param->count, XRAY_COPY_TO_HOST);
    if (status != XRAY_OK)
        return xr_fail(err, status, "%s: copy from the device failed",
                       param->name);
    *out_data = copy;
    return XRAY_OK;
}

static xray_status write_items(const xm_weights *w, const char *path,
                               const stage *s, xm_st_item *items,
                               float **copies, xr_err *err)
{
    uint32_t count = w->layout->param_count;
    for (uint32_t i = 0; i < count; i++) {
        const xm_param *param = &w->layout->params[i];
        const float *data = NULL;
        xray_status status = host_values(w, param, s, err, &data, &copies[i]);
        if (status != XRAY_OK)
            return status;
        items[i] = (xm_st_item){ .name = param->name,
                                 .dtype = XM_ST_F32,
                                 .dims = param->cols ? 2 : 1,
                                 .shape = { param->rows, param->cols },
                                 .data = data };
    }
    static const char *const metadata[] = { "format", "pt", NULL };
    return xm_st_write(path, items, count, metadata, err);
}

static xray_status save_to(const xm_weights *w, const char *path,
                           const stage *s, xr_err *err)
{
    uint32_t count = w->layout->param_count;
    xm_st_item *items = xr_calloc(count, sizeof *items);
    float **copies = xr_calloc(count, sizeof *copies);
    xray_status status = XRAY_E_NOMEM;
    if (items && copies)
        status = write_items(w, path, s, items, copies, err);
    else
        (void)xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    for (uint32_t i = 0; copies && i < count; i++)
        free(copies[i]);
    free(copies);
    free(items);
    return status;
}

xray_status xm_weights_save(const xm_weights *w, const char *dir, xr_err *err)
{
    char path[XR_PATH_CAP];
    stage s = { 0 };
    xray_status status = xr_dir_make(dir, err);
    if (status == XRAY_OK)
        status = xr_path_join(dir, "model.safetensors", path, sizeof path, err);
    if (status == XRAY_OK)
        status = stage_open(w, err, &s);
    if (status == XRAY_OK)
        status = w->device->sync(w->device_self, NULL);
    if (status == XRAY_OK)
        status = save_to(w, path, &s, err);
    stage_close(&s);
    return status;
}
