/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes steps ahead: from the draws of the last step, on the device, and as a
 * graph where the device offers graphs.
 */
#include "model/serve/engine_internal.h"

/* A graph serves positions up to a multiple of this. */
#define POSITIONS 256u

static xray_status enqueue_ahead(xm_engine *self, const xm_sched_step *step,
                                 const int32_t *live, xr_err *err)
{
    const xm_engine_arrays *d = &self->device_arrays;
    const xray_extent rows = { step->rows, live };
    const xray_advance call = {
        .header = XRAY_HEADER(xray_advance),
        .items = rows,
        .token = d->drawn[self->turn].token,
        .ids = d->ids,
        .positions = d->positions,
        .draws = d->draws,
        .stop = d->stop,
        .limit = d->limit,
        .draw_stride = sizeof(xray_draw),
    };
    const void *hidden = NULL;
    xray_status status = self->device->advance(self->device_self, NULL, &call);
    if (status != XRAY_OK)
        return xr_fail(err, status, "%s: the device does not advance",
                       self->name);
    status = xm_engine_compute(self, step, live, &hidden, err);
    if (status != XRAY_OK)
        return status;
    status = xm_engine_draw(self, hidden, rows, self->turn ^ 1, 0);
    return status == XRAY_OK
               ? status
               : xr_fail(err, status, "%s: sampling failed", self->name);
}

/* ---- graphs -------------------------------------------------------------- */

static void forget_graph(xm_engine *self, xm_engine_graph *g)
{
    if (g->graph)
        self->device->graph_destroy(self->device_self, g->graph);
    *g = (xm_engine_graph){ 0 };
}

void xm_engine_forget_graphs(xm_engine *self)
{
    for (int i = 0; i < 2; i++)
        forget_graph(self, &self->graphs[i]);
}

static xray_status record_ahead(xm_engine *self, const xm_sched_step *step,
                                xm_engine_graph *g, xr_err *err)
{
    const xray_device_ops *device = self->device;
    xray_status status = device->graph_begin(self->device_self, NULL);
    if (status != XRAY_OK)
        return xr_fail(err, status, "%s: the device records no graph",
                       self->name);
    status = enqueue_ahead(self, step, self->device_arrays.rows, err);
    xray_status ended = device->graph_end(self->device_self, NULL, &g->graph);
    if (status == XRAY_OK && ended != XRAY_OK)
        status =
            xr_fail(err, ended, "%s: the device records no graph", self->name);
    return status;
}

/* The step with space for more rows and positions, so that its graph lasts. */
static xm_sched_step widen_step(const xm_engine *self)
{
    xm_sched_step step = self->ahead;
    uint32_t rows = 1;
    while (rows < step.rows)
        rows *= 2;
    rows = rows < self->bounds.slots ? rows : self->bounds.slots;
    step.tokens = step.last_count = step.rows = rows;
    step.position_bound =
        (step.position_bound + POSITIONS - 1) / POSITIONS * POSITIONS;
    if (step.position_bound > self->bounds.row_bound)
        step.position_bound = self->bounds.row_bound;
    return step;
}

/* A step is recorded when it comes for the second time: the first one lets the
 * device's scratch memory grow, which a graph must not. */
static xray_status launch_ahead(xm_engine *self, xr_err *err)
{
    const xm_sched_step step = widen_step(self);
    const int32_t *live = self->device_arrays.rows;
    xm_engine_graph *g = &self->graphs[self->turn];
    if (g->rows != step.rows || g->position_bound != step.position_bound) {
        forget_graph(self, g);
        g->rows = step.rows;
        g->position_bound = step.position_bound;
        return enqueue_ahead(self, &step, live, err);
    }
    xray_status status = XRAY_OK;
    if (!g->graph)
        status = record_ahead(self, &step, g, err);
    if (status != XRAY_OK)
        return status;
    status = self->device->graph_launch(self->device_self, NULL, g->graph);
    if (status == XRAY_E_STATE) { /* scratch memory has moved since then */
        forget_graph(self, g);
        return enqueue_ahead(self, &step, live, err);
    }
    return status == XRAY_OK
               ? status
               : xr_fail(err, status, "%s: a graph of the device failed",
                         self->name);
}

xray_status xm_engine_make_ahead(xm_engine *self, xr_err *err)
{
    int graphs = XRAY_HAS(xray_device_ops, self->device, graph_begin) &&
                 XRAY_HAS(xray_device_ops, self->device, graph_end) &&
                 XRAY_HAS(xray_device_ops, self->device, graph_launch) &&
                 XRAY_HAS(xray_device_ops, self->device, graph_destroy);
    xray_status status = xm_engine_upload_table(self);
    if (status == XRAY_OK)
        status = xm_engine_mark_uploads(self);
    if (status != XRAY_OK)
        return xr_fail(err, status, "%s: a copy to the device failed",
                       self->name);
    status = graphs ? launch_ahead(self, err)
                    : enqueue_ahead(self, &self->ahead, NULL, err);
    if (status != XRAY_OK)
        return status;
    status = self->device->event_record(self->device_self, NULL,
                                        self->done[self->turn ^ 1]);
    if (status != XRAY_OK)
        return xr_fail(err, status, "%s: the device records no event",
                       self->name);
    self->going = 1;
    return XRAY_OK;
}
