/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the shares of all ranks into common files, and drops the files where a
 * rank fails.
 */
#include "model/train/save_shares.h"

#include <stdlib.h>

#include "core/base/file.h"
#include "core/base/str.h"

/* Number of elements that pass through host memory at a time. */
#define CHUNK ((uint64_t)1 << 18)

typedef struct share_writer {
    const xm_share_source *from;
    xm_st_parts *parts;
    float *copy; /* [CHUNK]; NULL: the host reads the device's memory itself */
    float *line; /* [CHUNK + 1] elements of one row of a transposed matrix */
} share_writer;

/* Visits the matrix column by column, since its columns are the rows of the
 * file. */
static xray_status write_transposed(const share_writer *w, size_t i,
                                    const xm_piece *p, xm_range range,
                                    const float *data, xr_err *err)
{
    xray_status status = XRAY_OK;
    uint64_t end = range.first + range.count;
    for (uint64_t c = 0; c < p->cols && status == XRAY_OK; c++) {
        uint64_t row =
            range.first > c ? (range.first - c + p->cols - 1) / p->cols : 0;
        uint64_t first = row;
        uint64_t n = 0;
        for (; row * p->cols + c < end; row++)
            w->line[n++] = data[row * p->cols + c - range.first];
        if (n)
            status = xm_st_parts_write(w->parts, i,
                                       (c * p->rows + first) * sizeof(float),
                                       w->line, (size_t)n * sizeof(float), err);
    }
    return status;
}

static xray_status copy_to_host(const share_writer *w, const float *data,
                                uint64_t count, xr_err *err)
{
    const xm_share_source *from = w->from;
    xray_status status =
        from->device->copy(from->device_self, NULL, w->copy, data,
                           count * sizeof(float), XRAY_COPY_TO_HOST);
    if (status == XRAY_OK)
        status = from->device->sync(from->device_self, NULL);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "copying from the device failed");
}

static xray_status write_piece(const share_writer *w, size_t i, xr_err *err)
{
    xm_piece p = w->from->piece(w->from->ctx, i);
    xray_status status = XRAY_OK;
    for (uint64_t done = 0; done < p.range.count && status == XRAY_OK;) {
        uint64_t left = p.range.count - done;
        xm_range range = { p.range.first + done, left < CHUNK ? left : CHUNK };
        const float *data = p.data + done;
        status = xr_stop_check(w->from->calls, err);
        if (status == XRAY_OK && w->copy) {
            status = copy_to_host(w, data, range.count, err);
            data = w->copy;
        }
        if (status == XRAY_OK && p.transposed)
            status = write_transposed(w, i, &p, range, data, err);
        else if (status == XRAY_OK)
            status = xm_st_parts_write(
                w->parts, i, range.first * sizeof(float), data,
                (size_t)range.count * sizeof(float), err);
        done += range.count;
    }
    return status;
}

static xray_status write_pieces(const xm_share_source *from, xm_st_parts *parts,
                                xr_err *err)
{
    share_writer w = { .from = from, .parts = parts };
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    xray_status status = from->device->info(from->device_self, &info);
    if (status == XRAY_OK)
        status = from->device->sync(from->device_self, NULL);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "the device gives no information about itself");
    w.line = malloc((CHUNK + 1) * sizeof(float));
    w.copy = info.host_memory ? NULL : malloc(CHUNK * sizeof(float));
    if (!w.line || (!info.host_memory && !w.copy))
        status = xr_fail(err, XRAY_E_NOMEM, "no memory to write a checkpoint");
    for (size_t i = 0; status == XRAY_OK && i < from->count; i++)
        status = write_piece(&w, i, err);
    free(w.line);
    free(w.copy);
    return status == XRAY_OK ? xm_st_parts_sync(parts, err) : status;
}

xray_status xm_share_save(const xm_share_source *from, xm_st_parts *parts,
                          xray_status ready, const xm_agreement *agreement,
                          xr_err *err)
{
    int first = agreement->rank == 0;
    xray_status status = ready;
    if (status == XRAY_OK && first)
        status = xm_st_parts_begin(parts, err);
    status = agreement->agree(agreement->ctx, status, err);
    if (status != XRAY_OK) {
        if (first && parts)
            xm_st_parts_drop(parts);
        return status;
    }
    status = write_pieces(from, parts, err);
    status = agreement->agree(agreement->ctx, status, err);
    if (status != XRAY_OK) {
        if (first)
            xm_st_parts_drop(parts);
        return status;
    }
    if (first)
        status = xm_st_parts_commit(parts, err);
    return agreement->agree(agreement->ctx, status, err);
}

/* ---- weights ------------------------------------------------------------ */

static xm_piece weight_piece(const void *ctx, size_t i)
{
    const xm_weights *w = ctx;
    const xm_param *param = &w->layout->params[i];
    const xm_held *held = &w->held[i];
    xm_range own =
        xm_param_in(param, xm_bucket_share(w->layout, param->bucket));
    const float *data = held->data;
    if (own.count == 0)
        return (xm_piece){ 0 };
    return (xm_piece){ .data = data + (own.first - held->first),
                       .range = own,
                       .rows = param->rows,
                       .cols = param->cols,
                       .transposed = param->transposed };
}

xray_status xm_weights_save_share(const xm_weights *weights, const char *dir,
                                  uint64_t max_shard,
                                  const xm_agreement *agreement, xr_err *err)
{
    const xm_layout *layout = weights->layout;
    xm_st_parts *parts = NULL;
    xray_status status = xr_dir_make(dir, err);
    xm_st_item *items = xr_calloc(layout->param_count, sizeof *items);
    if (status == XRAY_OK && !items)
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    if (status == XRAY_OK) {
        xm_layout_items(layout, items);
        status = xm_st_parts_model(dir, items, layout->param_count, max_shard,
                                   err, &parts);
    }
    xm_share_source from = { .device = weights->device,
                             .device_self = weights->device_self,
                             .count = layout->param_count,
                             .ctx = weights,
                             .piece = weight_piece,
                             .calls = weights->calls };
    status = xm_share_save(&from, parts, status, agreement, err);
    xm_st_parts_close(parts);
    free(items);
    return status;
}
