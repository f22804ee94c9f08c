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

/* Writes elements of a parameter in the runs that lie side by side in the file
 * as well. */
static xray_status write_runs(const share_writer *w, size_t i,
                              const xm_param *param, xm_range range,
                              const float *data, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint64_t done = 0; done < range.count && status == XRAY_OK;) {
        uint64_t at = 0;
        uint64_t run = xm_param_run(param, range.first + done, &at);
        if (run > range.count - done)
            run = range.count - done;
        status = xm_st_parts_write(w->parts, i, at * sizeof(float), data + done,
                                   (size_t)run * sizeof(float), err);
        done += run;
    }
    return status;
}

/* Writes rows [row, end) of column `col` of a matrix that is stored transposed,
 * where a column's rows are neighbours. data[0] is element `first`. */
static xray_status write_column(const share_writer *w, size_t i,
                                const xm_param *param, uint64_t col,
                                uint64_t row, uint64_t end, uint64_t first,
                                const float *data, xr_err *err)
{
    xray_status status = XRAY_OK;
    while (row < end && status == XRAY_OK) {
        uint64_t at = 0;
        uint64_t rows = xm_param_rows(param, row, &at);
        uint64_t n = 0;
        at += (param->col_first + col) * param->all_rows;
        for (; n < rows && row < end; row++)
            w->line[n++] = data[row * param->cols + col - first];
        status = xm_st_parts_write(w->parts, i, at * sizeof(float), w->line,
                                   (size_t)n * sizeof(float), err);
    }
    return status;
}

/* Visits the matrix column by column, since its columns are the rows of the
 * file. */
static xray_status write_transposed(const share_writer *w, size_t i,
                                    const xm_param *param, xm_range range,
                                    const float *data, xr_err *err)
{
    xray_status status = XRAY_OK;
    uint64_t cols = param->cols;
    uint64_t first = range.first;
    uint64_t past = first + range.count + cols - 1;
    for (uint64_t c = 0; c < cols && status == XRAY_OK; c++) {
        uint64_t row = first > c ? (first - c + cols - 1) / cols : 0;
        status = write_column(w, i, param, c, row, (past - c) / cols, first,
                              data, err);
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
    uint64_t end = p.range.first + p.range.count;
    if (end > p.param->own)
        end = p.param->own;
    for (uint64_t at = p.range.first; at < end && status == XRAY_OK;) {
        xm_range range = { at, end - at < CHUNK ? end - at : CHUNK };
        const float *data = p.data + (at - p.range.first);
        status = xr_stop_check(w->from->calls, err);
        if (status == XRAY_OK && w->copy) {
            status = copy_to_host(w, data, range.count, err);
            data = w->copy;
        }
        if (status == XRAY_OK)
            status = (p.transposed ? write_transposed : write_runs)(
                w, p.tensor, p.param, range, data, err);
        at += range.count;
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
    int direct = info.host_memory || from->on_host;
    w.copy = direct ? NULL : malloc(CHUNK * sizeof(float));
    if (!w.line || (!direct && !w.copy))
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

typedef struct weight_source {
    const xm_weights *weights;
    const xm_layout *whole;
} weight_source;

static xm_piece weight_piece(const void *ctx, size_t i)
{
    const weight_source *from = ctx;
    const xm_weights *w = from->weights;
    const xm_param *param = &w->layout->params[i];
    const xm_held *held = &w->held[i];
    xm_range own =
        xm_param_in(param, xm_bucket_share(w->layout, param->bucket));
    const float *data = held->data;
    return (
        xm_piece){ .data = own.count ? data + (own.first - held->first) : NULL,
                   .param = param,
                   .tensor = (size_t)(xm_layout_find(from->whole, param->name) -
                                      from->whole->params),
                   .range = own,
                   .transposed = param->transposed };
}

xray_status xm_weights_save_share(const xm_weights *weights,
                                  const xm_layout *whole, const char *dir,
                                  uint64_t max_shard,
                                  const xm_agreement *agreement, xr_err *err)
{
    xm_st_parts *parts = NULL;
    xray_status status = xr_dir_make(dir, err);
    xm_st_item *items = xr_calloc(whole->param_count, sizeof *items);
    if (status == XRAY_OK && !items)
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    if (status == XRAY_OK) {
        xm_layout_items(whole, items);
        status = xm_st_parts_model(dir, items, whole->param_count, max_shard,
                                   err, &parts);
    }
    const weight_source source = { weights, whole };
    xm_share_source from = { .device = weights->device,
                             .device_self = weights->device_self,
                             .count = weights->layout->param_count,
                             .ctx = &source,
                             .piece = weight_piece,
                             .calls = weights->calls };
    status = xm_share_save(&from, parts, status, agreement, err);
    xm_st_parts_close(parts);
    free(items);
    return status;
}
