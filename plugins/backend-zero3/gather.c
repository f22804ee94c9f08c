/* SPDX-License-Identifier: Apache-2.0
 *
 * Stage 3: a rank keeps its share of every bucket, and buckets are gathered
 * into slots when a pass comes to them, the next one while one is computed
 * with. What a slot still holds is not gathered again: the last blocks of the
 * forward pass serve the backward pass, its last ones the next forward pass.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "plugins/backend-zero3/zero3.h"

/* The embedding is the head too: both ends of a pass need it. */
static int tied(const xm_config *model)
{
    return model->tied != 0;
}

/* Matrix `index` of a bucket; NULL behind the last. */
static const xm_matrix *matrix_of(const xm_layout *layout, uint32_t bucket,
                                  uint32_t index)
{
    for (uint32_t i = 0; i < layout->matrix_count; i++)
        if (layout->matrices[i].bucket == bucket && index-- == 0)
            return &layout->matrices[i];
    return NULL;
}

static uint64_t packed_bytes(const xm_matrix *matrix, int trainable)
{
    uint64_t count = (matrix->rows + 15) / 16 * 16 * matrix->cols;
    if (trainable)
        count += (matrix->cols + 15) / 16 * 16 * matrix->rows;
    return count * sizeof(float);
}

static uint64_t share_count(const xm_layout *layout)
{
    uint64_t count = 0;
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        count += xm_bucket_share(layout, b).count;
    return count;
}

/* Handles of a slot are shared by its blocks: the first one's count. */
static uint64_t slot_packed(const xm_layout *layout, const z3_turn *turn,
                            uint32_t slot, int trainable)
{
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        const xm_matrix *matrix = matrix_of(layout, b, 0);
        if (turn->slot_of[b] != slot || !matrix)
            continue;
        for (uint32_t i = 0; (matrix = matrix_of(layout, b, i)); i++)
            bytes += packed_bytes(matrix, trainable);
        return bytes;
    }
    return bytes;
}

uint64_t z3_gather_bytes(const xm_layout *layout, const xm_config *model,
                         const z3_config *config, int trainable)
{
    z3_turn turn = { 0 };
    if (z3_turn_make(layout, Z3_GATHER_SLOTS, 0, tied(model), NULL, &turn) !=
        XRAY_OK)
        return 0;
    uint64_t bytes =
        config->offload_param ? 0 : share_count(layout) * sizeof(float);
    for (uint32_t s = 0; s < turn.slots; s++)
        bytes += turn.room[s] * sizeof(float) +
                 slot_packed(layout, &turn, s, trainable);
    z3_turn_free(&turn);
    return bytes;
}

/* ---- making ------------------------------------------------------------- */

static xray_status make_shares(z3 *self, const z3_config *config, xr_err *err)
{
    z3_gather *g = &self->gather;
    const xm_layout *layout = self->layout;
    uint64_t count = share_count(layout);
    xray_status status = XRAY_OK;
    if (config->offload_param)
        status = z3_map_open(config->offload_dir, count * sizeof(float), err,
                             &g->map);
    else
        status = z3_take(self, XRAY_TAG_WEIGHTS, count, err, &g->share_memory);
    float *at = config->offload_param ? g->map.data : g->share_memory;
    for (uint32_t b = 0; status == XRAY_OK && b < layout->bucket_count; b++) {
        g->shares[b] = at;
        at += xm_bucket_share(layout, b).count;
    }
    return status;
}

static xray_status make_slots(z3 *self, xr_err *err)
{
    z3_gather *g = &self->gather;
    xray_status status = XRAY_OK;
    for (uint32_t s = 0; status == XRAY_OK && s < g->turn.slots; s++) {
        z3_slot *slot = &g->slots[s];
        slot->holds = Z3_NONE;
        slot->handles =
            xr_calloc(self->layout->matrix_count + 1u, sizeof(xray_weight *));
        slot->matrices =
            xr_calloc(self->layout->matrix_count + 1u, sizeof(uint32_t));
        if (!slot->handles || !slot->matrices)
            return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->owner);
        status =
            z3_take(self, XRAY_TAG_WEIGHTS, g->turn.room[s], err, &slot->data);
        if (status == XRAY_OK) {
            status =
                self->device->event_create(self->device_self, &slot->ready);
            if (status != XRAY_OK)
                return xr_fail(err, status, "%s: no event", self->owner);
        }
    }
    return status;
}

static int same_matrix(const xm_matrix *a, const xm_matrix *b)
{
    return a->rows == b->rows && a->cols == b->cols && a->offset == b->offset;
}

/* The handle of matrix `m`, which is number `index` of its bucket. */
static xray_status make_handle(z3 *self, uint32_t m, uint32_t index,
                               xr_err *err)
{
    z3_gather *g = &self->gather;
    const xm_matrix *matrix = &self->layout->matrices[m];
    z3_slot *slot = &g->slots[g->turn.slot_of[matrix->bucket]];
    if (index < slot->handle_count) {
        g->handles[m] = slot->handles[index];
        if (same_matrix(matrix, &self->layout->matrices[slot->matrices[index]]))
            return XRAY_OK;
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "stage 3 needs blocks of one shape, block %" PRIu32
                       " has another",
                       matrix->bucket - 1);
    }
    xray_weight_desc desc = { XRAY_HEADER(xray_weight_desc),
                              .data = slot->data + matrix->offset,
                              .rows = matrix->rows,
                              .cols = matrix->cols,
                              .dtype = XRAY_F32,
                              .trainable = self->trainable != 0 };
    xray_status status = self->device->weight_create(self->device_self, &desc,
                                                     &slot->handles[index]);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "the device made no handle for matrix %" PRIu32, m);
    slot->matrices[index] = m;
    slot->handle_count = index + 1;
    g->handles[m] = slot->handles[index];
    return XRAY_OK;
}

static xray_status make_handles(z3 *self, xr_err *err)
{
    const xm_layout *layout = self->layout;
    uint32_t index = 0;
    xray_status status = XRAY_OK;
    for (uint32_t m = 0; status == XRAY_OK && m < layout->matrix_count; m++) {
        int next = m > 0 &&
                   layout->matrices[m].bucket == layout->matrices[m - 1].bucket;
        index = next ? index + 1 : 0;
        status = make_handle(self, m, index, err);
    }
    return status;
}

static uint64_t view_version(void *owner)
{
    return ((const z3 *)owner)->weights->version;
}

static xray_status view_lease(void *owner)
{
    ((z3 *)owner)->weights->leases++;
    return XRAY_OK;
}

static void view_release(void *owner)
{
    z3 *self = owner;
    if (self->weights->leases > 0)
        self->weights->leases--;
}

static void make_view(z3 *self)
{
    z3_gather *g = &self->gather;
    const xm_layout *layout = self->layout;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        const z3_slot *slot = &g->slots[g->turn.slot_of[param->bucket]];
        g->tensors[i] = (xray_tensor){
            .name = param->name,
            .dtype = XRAY_F32,
            .dims = param->cols ? 2 : 1,
            .shape = { param->rows, param->cols },
            .count = param->count,
            .data = slot->data + param->offset,
            .weight = param->matrix >= 0 ? g->handles[param->matrix] : NULL,
            .weight_row = param->matrix >= 0 ? param->matrix_row : 0,
        };
    }
    g->view = (xray_weights){ XRAY_HEADER(xray_weights),
                              .tensor_count = layout->param_count,
                              .tensor_stride = sizeof(xray_tensor),
                              .tensors = g->tensors,
                              .device = self->device,
                              .device_self = self->device_self,
                              .owner = self,
                              .version = view_version,
                              .lease = view_lease,
                              .release = view_release };
}

xray_status z3_gather_open(z3 *self, const z3_config *config, xr_err *err)
{
    z3_gather *g = &self->gather;
    const xm_layout *layout = self->layout;
    *g = (z3_gather){ .layout = layout, .group = &self->group };
    xray_status status = z3_turn_make(layout, Z3_GATHER_SLOTS, 0,
                                      tied(&self->model), err, &g->turn);
    if (status != XRAY_OK)
        return status;
    g->offloaded = config->offload_param != 0;
    g->prefetch = config->prefetch;
    g->back_to = layout->frozen ? layout->frozen : 1;
    g->slots = xr_calloc(g->turn.slots, sizeof(*g->slots));
    g->shares = xr_calloc(layout->bucket_count, sizeof(float *));
    g->handles = xr_calloc(layout->matrix_count + 1u, sizeof(xray_weight *));
    g->tensors = xr_calloc(layout->param_count, sizeof(xray_tensor));
    if (!g->slots || !g->shares || !g->handles || !g->tensors)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->owner);
    status = make_shares(self, config, err);
    if (status == XRAY_OK)
        status = make_slots(self, err);
    if (status == XRAY_OK)
        status = make_handles(self, err);
    if (status == XRAY_OK)
        make_view(self);
    return status;
}

void z3_gather_close(z3 *self)
{
    z3_gather *g = &self->gather;
    const xray_device_ops *device = self->device;
    for (uint32_t s = 0; g->slots && s < g->turn.slots; s++) {
        z3_slot *slot = &g->slots[s];
        for (uint32_t i = 0; slot->handles && i < slot->handle_count; i++)
            device->weight_destroy(self->device_self, slot->handles[i]);
        device->free(self->device_self, slot->data);
        if (slot->ready)
            device->event_destroy(self->device_self, slot->ready);
        free(slot->handles);
        free(slot->matrices);
    }
    device->free(self->device_self, g->share_memory);
    z3_map_close(&g->map);
    z3_turn_free(&g->turn);
    free(g->slots);
    free(g->shares);
    free(g->handles);
    free(g->tensors);
    *g = (z3_gather){ 0 };
}

/* ---- gathering ---------------------------------------------------------- */

/* The rank's share on its way into the slot and to all ranks. */
static xray_status move(const z3_gather *g, uint32_t bucket, float *to)
{
    const z3_group *group = g->group;
    xm_range share = xm_bucket_share(g->layout, bucket);
    const float *from = g->shares[bucket];
    xray_status status = XRAY_OK;
    if (g->offloaded) { /* as on one rank, always */
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

static xray_status changed(const z3_gather *g, const z3_slot *slot,
                           uint32_t bucket)
{
    const z3_group *group = g->group;
    xray_status status = XRAY_OK;
    for (uint32_t m = 0; m < g->layout->matrix_count; m++)
        if (status == XRAY_OK && g->layout->matrices[m].bucket == bucket)
            status = group->device->weight_changed(group->device_self,
                                                   g->handles[m]);
    (void)slot;
    return status;
}

/* Starts the gathering of a bucket whose slot holds another one. */
static xray_status fetch(z3_gather *g, uint32_t bucket)
{
    const z3_group *group = g->group;
    z3_slot *slot = &g->slots[g->turn.slot_of[bucket]];
    if (slot->holds == bucket)
        return XRAY_OK;
    slot->holds = Z3_NONE;
    /* What is computed with the slot's old values has been enqueued. */
    xray_status status = z3_group_behind(group);
    if (status == XRAY_OK)
        status = move(g, bucket, slot->data);
    if (status == XRAY_OK)
        status = group->device->event_record(group->device_self, group->stream,
                                             slot->ready);
    if (status == XRAY_OK)
        status = changed(g, slot, bucket);
    if (status == XRAY_OK)
        slot->holds = bucket;
    return status;
}

xray_status z3_gather_need(void *ctx, uint32_t bucket, int backward,
                           xr_err *err)
{
    z3_gather *g = &((z3 *)ctx)->gather;
    const z3_group *group = g->group;
    (void)err;
    xray_status status = fetch(g, bucket);
    if (status == XRAY_OK)
        status = group->device->event_wait(
            group->device_self, NULL, g->slots[g->turn.slot_of[bucket]].ready);
    if (status != XRAY_OK || !g->prefetch)
        return status;
    if (backward)
        return bucket > g->back_to ? fetch(g, bucket - 1) : XRAY_OK;
    return bucket + 1 < g->layout->bucket_count ? fetch(g, bucket + 1)
                                                : XRAY_OK;
}

void z3_gather_forget(z3_gather *g)
{
    for (uint32_t s = 0; s < g->turn.slots; s++)
        g->slots[s].holds = Z3_NONE;
}
