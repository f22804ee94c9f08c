/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage 3: a rank keeps its share of every bucket. Buckets are gathered into
 * slots as a pass comes to them, and the next one is gathered while one is
 * computed with. A bucket that is still in its slot is not gathered again: the
 * backward pass finds the last blocks of the forward pass, and the next forward
 * pass finds the last blocks of the backward pass.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "plugins/backend-zero3/zero3.h"

/* A tied embedding is also the LM head, so both ends of a pass need it. */
static int is_tied(const xm_config *model)
{
    return model->tied != 0;
}

static uint64_t count_share_elements(const xm_layout *layout)
{
    uint64_t count = 0;
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        count += xm_bucket_share(layout, b).count;
    return count;
}

/* All blocks of a slot share its handles, so a handle serves what any of them
 * uses it for. */
static xray_weight_desc describe_matrix(const xm_layout *layout,
                                        const z3_slot_table *table, uint32_t m,
                                        int trainable)
{
    const xm_matrix *matrix = &layout->matrices[m];
    uint32_t uses = 0;
    for (uint32_t i = 0; i < layout->matrix_count; i++)
        if (table->slot_of[layout->matrices[i].bucket] ==
            table->slot_of[matrix->bucket])
            uses |= xm_layout_uses(layout, i, trainable);
    return (xray_weight_desc){ XRAY_HEADER(xray_weight_desc),
                               .rows = matrix->rows,
                               .cols = matrix->cols,
                               .dtype = XRAY_F32,
                               .uses = uses,
                               .product_dtype = matrix->product_dtype };
}

/* The bytes of the packed copies in a slot, which are those of its first
 * bucket with matrices. */
static uint64_t slot_packed_bytes(const xm_layout *layout,
                                  const z3_slot_table *table, uint32_t slot,
                                  const xray_workload *load)
{
    uint64_t bytes = 0;
    uint32_t bucket = UINT32_MAX;
    for (uint32_t m = 0; load->device && m < layout->matrix_count; m++) {
        uint32_t own = layout->matrices[m].bucket;
        if (table->slot_of[own] != slot ||
            (bucket != UINT32_MAX && own != bucket))
            continue;
        bucket = own;
        xray_weight_desc desc =
            describe_matrix(layout, table, m, load->trainable != 0);
        bytes += load->device->plan_weight(load->device_config, &desc);
    }
    return bytes;
}

uint64_t z3_gather_bytes(const xm_layout *layout, const xm_config *model,
                         const z3_config *config, const xray_workload *load)
{
    z3_slot_table table = { 0 };
    if (z3_slot_table_create(layout, Z3_GATHER_SLOTS, 0, is_tied(model), NULL,
                             &table) != XRAY_OK)
        return 0;
    uint64_t bytes = config->offload_param
                         ? 0
                         : count_share_elements(layout) * sizeof(float);
    for (uint32_t s = 0; s < table.slots; s++)
        bytes += table.capacity[s] * sizeof(float) +
                 slot_packed_bytes(layout, &table, s, load);
    z3_slot_table_free(&table);
    return bytes;
}

/* ---- creating ----------------------------------------------------------- */

static xray_status alloc_shares(z3 *self, xr_err *err)
{
    z3_gather *g = &self->gather;
    const xm_layout *layout = self->base.layout;
    uint64_t count = count_share_elements(layout);
    xray_status status = XRAY_OK;
    if (g->offloaded)
        status = xm_host_memory_map_file(
            &self->base.folder, count * sizeof(float), err, &g->memory);
    else
        status = xm_trainer_alloc_floats(&self->base, XRAY_TAG_WEIGHTS, count,
                                         err, &g->share_memory);
    float *at = g->offloaded ? g->memory.data : g->share_memory;
    for (uint32_t b = 0; status == XRAY_OK && b < layout->bucket_count; b++) {
        g->shares[b] = at;
        at += xm_bucket_share(layout, b).count;
    }
    return status;
}

static xray_status create_slots(z3 *self, xr_err *err)
{
    z3_gather *g = &self->gather;
    xray_status status = XRAY_OK;
    for (uint32_t s = 0; status == XRAY_OK && s < g->table.slots; s++) {
        z3_gather_slot *slot = &g->slots[s];
        slot->holds = Z3_NONE;
        slot->handles = xr_calloc(self->base.layout->matrix_count + 1u,
                                  sizeof(xray_weight *));
        slot->matrices =
            xr_calloc(self->base.layout->matrix_count + 1u, sizeof(uint32_t));
        if (!slot->handles || !slot->matrices)
            return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory",
                           self->base.owner);
        status =
            xm_trainer_alloc_floats(&self->base, XRAY_TAG_WEIGHTS,
                                    g->table.capacity[s], err, &slot->data);
        if (status == XRAY_OK) {
            status = self->base.device->event_create(self->base.device_self,
                                                     &slot->ready);
            if (status != XRAY_OK)
                return xr_fail(err, status, "%s: the device created no event",
                               self->base.owner);
        }
    }
    return status;
}

static int has_same_shape(const xm_matrix *a, const xm_matrix *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->offset == b->offset;
}

/* Sets the handle of matrix `m`, which is number `index` of its bucket. */
static xray_status create_handle(z3 *self, uint32_t m, uint32_t index,
                                 xr_err *err)
{
    z3_gather *g = &self->gather;
    const xm_matrix *matrix = &self->base.layout->matrices[m];
    z3_gather_slot *slot = &g->slots[g->table.slot_of[matrix->bucket]];
    if (index < slot->handle_count) {
        g->handles[m] = slot->handles[index];
        if (has_same_shape(matrix,
                           &self->base.layout->matrices[slot->matrices[index]]))
            return XRAY_OK;
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "stage 3 needs blocks of one shape, but block %" PRIu32
                       " has another",
                       matrix->bucket - 1);
    }
    xray_weight_desc desc = describe_matrix(self->base.layout, &g->table, m,
                                            self->base.trainable != 0);
    desc.data = slot->data + matrix->offset;
    xray_status status = self->base.device->weight_create(
        self->base.device_self, &desc, &slot->handles[index]);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "the device created no handle for matrix %" PRIu32, m);
    slot->matrices[index] = m;
    slot->handle_count = index + 1;
    g->handles[m] = slot->handles[index];
    return XRAY_OK;
}

static xray_status create_handles(z3 *self, xr_err *err)
{
    const xm_layout *layout = self->base.layout;
    uint32_t index = 0;
    xray_status status = XRAY_OK;
    for (uint32_t m = 0; status == XRAY_OK && m < layout->matrix_count; m++) {
        int next = m > 0 &&
                   layout->matrices[m].bucket == layout->matrices[m - 1].bucket;
        index = next ? index + 1 : 0;
        status = create_handle(self, m, index, err);
    }
    return status;
}

static uint64_t view_version(void *owner)
{
    return ((const z3 *)owner)->base.weights->version;
}

static xray_status view_lease(void *owner)
{
    ((z3 *)owner)->base.weights->leases++;
    return XRAY_OK;
}

static void view_release(void *owner)
{
    z3 *self = owner;
    if (self->base.weights->leases > 0)
        self->base.weights->leases--;
}

static void fill_view(z3 *self)
{
    z3_gather *g = &self->gather;
    const xm_layout *layout = self->base.layout;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        const z3_gather_slot *slot = &g->slots[g->table.slot_of[param->bucket]];
        g->tensors[i] = (xray_tensor){
            .name = param->name,
            .dtype = XRAY_F32,
            .dims = param->cols ? 2 : 1,
            .shape = { param->rows, param->cols },
            .data = slot->data + param->offset,
            .weight = param->matrix >= 0 ? g->handles[param->matrix] : NULL,
            .weight_row = param->matrix >= 0 ? param->matrix_row : 0,
        };
        xray_box_make_plain(&g->tensors[i]);
    }
    g->view = (xray_weights){ XRAY_HEADER(xray_weights),
                              .tensor_count = layout->param_count,
                              .tensor_stride = sizeof(xray_tensor),
                              .tensors = g->tensors,
                              .device = self->base.device,
                              .device_self = self->base.device_self,
                              .owner = self,
                              .version = view_version,
                              .lease = view_lease,
                              .release = view_release };
}

static xray_status open_gather(z3 *self, xr_err *err)
{
    z3_gather *g = &self->gather;
    const xm_layout *layout = self->base.layout;
    g->layout = layout;
    g->group = &self->base.group;
    xray_status status = z3_slot_table_create(
        layout, Z3_GATHER_SLOTS, 0, is_tied(&self->base.model), err, &g->table);
    if (status != XRAY_OK)
        return status;
    g->backward_end = layout->frozen ? layout->frozen : 1;
    g->slots = xr_calloc(g->table.slots, sizeof(*g->slots));
    g->shares = xr_calloc(layout->bucket_count, sizeof(float *));
    g->handles = xr_calloc(layout->matrix_count + 1u, sizeof(xray_weight *));
    g->tensors = xr_calloc(layout->param_count, sizeof(xray_tensor));
    if (!g->slots || !g->shares || !g->handles || !g->tensors)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory",
                       self->base.owner);
    status = alloc_shares(self, err);
    if (status == XRAY_OK)
        status = create_slots(self, err);
    if (status == XRAY_OK)
        status = create_handles(self, err);
    if (status == XRAY_OK)
        fill_view(self);
    return status;
}

static xray_status open_weights(xm_trainer *base, xr_err *err)
{
    z3 *self = (z3 *)base;
    xray_status status = open_gather(self, err);
    base->table = &self->gather.view;
    if (status == XRAY_OK)
        status = xm_weights_create_share(base->layout, base->device,
                                         base->device_self, self->gather.shares,
                                         err, &base->weights);
    if (status == XRAY_OK)
        base->weights->table.offloaded = self->gather.offloaded != 0;
    return status;
}

static void close_weights(xm_trainer *base)
{
    z3 *self = (z3 *)base;
    xm_weights_destroy_share(base->weights);
    z3_gather *g = &self->gather;
    const xray_device_ops *device = self->base.device;
    for (uint32_t s = 0; g->slots && s < g->table.slots; s++) {
        z3_gather_slot *slot = &g->slots[s];
        for (uint32_t i = 0; slot->handles && i < slot->handle_count; i++)
            device->weight_destroy(self->base.device_self, slot->handles[i]);
        device->free(self->base.device_self, slot->data);
        if (slot->ready)
            device->event_destroy(self->base.device_self, slot->ready);
        free(slot->handles);
        free(slot->matrices);
    }
    device->free(self->base.device_self, g->share_memory);
    xm_host_memory_unmap(&g->memory);
    z3_slot_table_free(&g->table);
    free(g->slots);
    free(g->shares);
    free(g->handles);
    free(g->tensors);
    *g = (z3_gather){ 0 };
}

/* ---- gathering ---------------------------------------------------------- */

/* Copies the rank's share into the slot if it is offloaded, and gathers the
 * other ranks' shares. */
static xray_status gather_share(const z3_gather *g, uint32_t bucket, float *to)
{
    const xm_group *group = g->group;
    xm_range share = xm_bucket_share(g->layout, bucket);
    const float *from = g->shares[bucket];
    xray_status status = XRAY_OK;
    if (g->offloaded) { /* on one rank this is always so */
        status = group->device->copy(
            group->device_self, group->stream, to + share.first, from,
            share.count * sizeof(float), XRAY_COPY_TO_DEVICE);
        from = to + share.first;
    }
    if (status != XRAY_OK || group->size < 2)
        return status;
    return group->comm->all_gather(group->group, group->stream, from, to,
                                   share.count, XRAY_F32);
}

static xray_status mark_changed(const z3_gather *g, uint32_t bucket)
{
    const xm_group *group = g->group;
    xray_status status = XRAY_OK;
    for (uint32_t m = 0; m < g->layout->matrix_count; m++)
        if (status == XRAY_OK && g->layout->matrices[m].bucket == bucket)
            status = group->device->weight_changed(group->device_self,
                                                   g->handles[m]);
    return status;
}

/* Starts to gather a bucket unless its slot holds it already. */
static xray_status fetch_bucket(z3_gather *g, uint32_t bucket)
{
    const xm_group *group = g->group;
    z3_gather_slot *slot = &g->slots[g->table.slot_of[bucket]];
    if (slot->holds == bucket)
        return XRAY_OK;
    slot->holds = Z3_NONE;
    /* Computation that reads the slot's old values has been enqueued by now. */
    xray_status status = xm_group_wait_compute(group);
    if (status == XRAY_OK)
        status = gather_share(g, bucket, slot->data);
    if (status == XRAY_OK)
        status = group->device->event_record(group->device_self, group->stream,
                                             slot->ready);
    if (status == XRAY_OK)
        status = mark_changed(g, bucket);
    if (status == XRAY_OK)
        slot->holds = bucket;
    return status;
}

/* Gathers the bucket and, where it is worth it, starts on the next one. */
static xray_status gather_with_next(z3_gather *g, uint32_t bucket, int backward)
{
    const xm_group *group = g->group;
    xray_status status = fetch_bucket(g, bucket);
    if (status == XRAY_OK)
        status = group->device->event_wait(
            group->device_self, NULL, g->slots[g->table.slot_of[bucket]].ready);
    if (status != XRAY_OK || !g->prefetch)
        return status;
    if (backward)
        return bucket > g->backward_end ? fetch_bucket(g, bucket - 1) : XRAY_OK;
    return bucket + 1 < g->layout->bucket_count ? fetch_bucket(g, bucket + 1)
                                                : XRAY_OK;
}

static xray_status need_bucket(void *ctx, uint32_t bucket, int backward,
                               xr_err *err)
{
    z3 *self = ctx;
    xray_status status = gather_with_next(&self->gather, bucket, backward);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "%s: the weights could not be gathered",
                         self->base.owner);
}

static void forget_slots(xm_trainer *base)
{
    const z3_gather *g = &((z3 *)base)->gather;
    for (uint32_t s = 0; s < g->table.slots; s++)
        g->slots[s].holds = Z3_NONE;
}

/* Each part of an export is the tensors of a bucket, which are consecutive in
 * the table. */
static xray_status export_bucket(xm_trainer *base, uint32_t bucket, xr_err *err,
                                 const xray_weights **out)
{
    z3 *self = (z3 *)base;
    const xm_layout *layout = base->layout;
    uint32_t first = 0;
    if (bucket >= layout->bucket_count)
        return XRAY_END;
    xray_status status = need_bucket(self, bucket, 0, err);
    if (status == XRAY_OK)
        status = base->device->sync(base->device_self, NULL);
    while (first < layout->param_count &&
           layout->params[first].bucket != bucket)
        first++;
    uint32_t end = first;
    while (end < layout->param_count && layout->params[end].bucket == bucket)
        end++;
    self->gather.part = self->gather.view;
    self->gather.part.tensors = self->gather.tensors + first;
    self->gather.part.tensor_count = end - first;
    *out = &self->gather.part;
    return status;
}

static xray_status visit_handles(const xm_trainer *base,
                                 xray_status (*fn)(void *, xray_weight *))
{
    const z3_gather *g = &((const z3 *)base)->gather;
    xray_status status = XRAY_OK;
    for (uint32_t s = 0; g->slots && s < g->table.slots; s++)
        for (uint32_t i = 0; status == XRAY_OK && i < g->slots[s].handle_count;
             i++)
            status = fn(base->device_self, g->slots[s].handles[i]);
    return status;
}

void z3_gather_visit(const z3 *self, xm_block_visit *visit)
{
    const z3_gather *g = &self->gather;
    if (!g->slots)
        return;
    xm_visit_block(visit, g->share_memory, count_share_elements(g->layout), 1);
    for (uint32_t s = 0; s < g->table.slots; s++)
        xm_visit_block(visit, g->slots[s].data, g->table.capacity[s], 0);
}

void z3_gather_hook(z3 *self)
{
    xm_trainer_hooks *hooks = &self->base.hooks;
    hooks->open_weights = open_weights;
    hooks->close_weights = close_weights;
    hooks->forget = forget_slots;
    hooks->export_part = export_bucket;
    hooks->visit_handles = visit_handles;
    hooks->watch.need = need_bucket;
}
