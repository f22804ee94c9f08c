/* SPDX-License-Identifier: Apache-2.0
 *
 * Offloads tags between calls: the values of a tag are copied to host memory,
 * and its blocks are evicted from the device, which keeps their addresses.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "model/train/trainer_internal.h"

#define BIT(tag) (1u << (tag))

static const char *const names[XRAY_TAG_COUNT] = {
    "weights", "gradients", "moments", "activations", "keys", "workspace",
};

/* One allocation of a tag. Without `keep` its values are not needed between
 * calls. */
typedef struct block {
    float *data;
    uint64_t bytes;
    int keep;
} block;

typedef xray_status visit_fn(xm_trainer *self, void *ctx, const block *b);

struct xm_block_visit {
    xm_trainer *self;
    visit_fn *fn;
    void *ctx;
    xray_status status;
};

void xm_visit_block(xm_block_visit *w, float *data, uint64_t count, int keep)
{
    block b = { data, count * sizeof(float), keep };
    if (data && count && w->status == XRAY_OK)
        w->status = w->fn(w->self, w->ctx, &b);
}

static void visit_weights(xm_block_visit *w)
{
    const xm_trainer *self = w->self;
    const xm_layout *layout = self->layout;
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        if (!self->hooks.open_weights)
            xm_visit_block(w, self->weights->buckets[b],
                           xm_bucket_capacity(layout, b), 1);
}

static void visit_grads(xm_block_visit *w)
{
    const xm_trainer *self = w->self;
    const xm_layout *layout = self->layout;
    int keep = self->has_grads != 0;
    if (!self->grads)
        return;
    xm_visit_block(w, self->grads->aside.data, self->grads->aside.count, keep);
    xm_visit_block(w, self->folds.spares,
                   xm_folds_elements(&self->model, layout, self->folds.mode,
                                     self->load.segments),
                   0);
    for (uint32_t b = layout->frozen; b < layout->bucket_count; b++)
        if (self->grad_shares)
            xm_visit_block(w, self->grad_shares[b],
                           xm_bucket_share(layout, b).count, keep);
        else
            xm_visit_block(w, self->grads->buckets[b],
                           xm_bucket_capacity(layout, b), keep);
}

static void visit_moments(xm_block_visit *w)
{
    const xm_adamw *adamw = w->self->adamw;
    if (!adamw || adamw->options.memory || adamw->options.streamed)
        return;
    for (uint32_t b = 0; b < adamw->layout->bucket_count; b++) {
        uint64_t count =
            xm_adamw_range(adamw->layout, b, adamw->options.all_elements).count;
        xm_visit_block(w, adamw->m[b], count, 1);
        xm_visit_block(w, adamw->v[b], count, 1);
    }
}

static xray_status visit_tag_blocks(xm_trainer *self, uint32_t tag,
                                    visit_fn *fn, void *ctx)
{
    xm_block_visit w = { .self = self, .fn = fn, .ctx = ctx };
    if (tag == XRAY_TAG_WEIGHTS)
        visit_weights(&w);
    else if (tag == XRAY_TAG_GRADS)
        visit_grads(&w);
    else if (tag == XRAY_TAG_OPTIMIZER)
        visit_moments(&w);
    if (self->hooks.visit_blocks)
        self->hooks.visit_blocks(self, tag, &w);
    return w.status;
}

/* ---- one block ---------------------------------------------------------- */

static xray_status add_kept_bytes(xm_trainer *self, void *ctx, const block *b)
{
    uint64_t *sum = ctx;
    (void)self;
    *sum += b->keep ? b->bytes : 0;
    return XRAY_OK;
}

static xray_status copy_block_out(xm_trainer *self, void *ctx, const block *b)
{
    char **at = ctx;
    if (!b->keep)
        return XRAY_OK;
    xray_status status = self->device->copy(
        self->device_self, NULL, *at, b->data, b->bytes, XRAY_COPY_TO_HOST);
    *at += b->bytes;
    return status;
}

static xray_status copy_block_in(xm_trainer *self, void *ctx, const block *b)
{
    char **at = ctx;
    if (!b->keep)
        return XRAY_OK;
    xray_status status = self->device->copy(self->device_self, NULL, b->data,
                                            *at, b->bytes, XRAY_COPY_TO_DEVICE);
    *at += b->bytes;
    return status;
}

static xray_status evict_block(xm_trainer *self, void *ctx, const block *b)
{
    (void)ctx;
    return self->device->evict(self->device_self, b->data);
}

static xray_status restore_block(xm_trainer *self, void *ctx, const block *b)
{
    (void)ctx;
    return self->device->restore(self->device_self, b->data);
}

/* ---- matrices that the device packs ------------------------------------- */

static xray_status for_each_handle(xm_trainer *self,
                                   xray_status (*fn)(void *, xray_weight *))
{
    xray_status status = XRAY_OK;
    if (self->hooks.open_weights)
        return self->hooks.visit_handles(self, fn);
    for (uint32_t i = 0; status == XRAY_OK && i < self->layout->matrix_count;
         i++)
        if (self->weights->handles[i])
            status = fn(self->device_self, self->weights->handles[i]);
    return status;
}

/* ---- a tag -------------------------------------------------------------- */

static xray_status sync_streams(xm_trainer *self)
{
    xray_status status = self->device->sync(self->device_self, NULL);
    if (status == XRAY_OK && self->group.stream)
        status = self->device->sync(self->device_self, self->group.stream);
    return status;
}

/* Takes memory for the values of a tag: a mapped file where the device computes
 * in host memory, elsewhere page-locked memory. */
static xray_status take_memory(const xm_trainer *self, uint64_t bytes,
                               xr_err *err, xm_host_memory *out)
{
    xm_host_memory_unmap(out);
    return xm_computes_on_host(self->device, self->device_self)
               ? xm_host_memory_map_file(&self->folder, bytes, err, out)
               : xm_host_memory_lock(self->device, self->device_self,
                                     self->owner, bytes, err, out);
}

/* Copies the values of a tag to host memory, which is kept for the next time.
 * No copy uses it at that time: evict_tag, the only caller, syncs the streams
 * first, and a tag is saved again only after restore_tag has synced them behind
 * its copies. */
static xray_status save_values(xm_trainer *self, uint32_t tag, xr_err *err)
{
    xm_host_memory *memory = &self->host_copies[tag];
    uint64_t bytes = 0;
    (void)visit_tag_blocks(self, tag, add_kept_bytes, &bytes);
    if (bytes == 0)
        return XRAY_OK;
    xray_status status = XRAY_OK;
    if (memory->bytes < bytes)
        status = take_memory(self, bytes, err, memory);
    if (status != XRAY_OK)
        return status;
    char *at = memory->data;
    status = visit_tag_blocks(self, tag, copy_block_out, &at);
    if (status == XRAY_OK)
        status = sync_streams(self);
    return status == XRAY_OK ? XRAY_OK
                             : xr_fail(err, status,
                                       "%s: %s could not be copied to host "
                                       "memory",
                                       self->owner, names[tag]);
}

static xray_status for_each_space(const xm_trainer *self,
                                  xray_status (*fn)(xm_space *space))
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < self->flight_count && status == XRAY_OK; i++)
        status = fn(self->flights[i].space);
    return status;
}

static xray_status evict_tag(xm_trainer *self, uint32_t tag, xr_err *err)
{
    xray_status status = sync_streams(self);
    if (status == XRAY_OK)
        status = save_values(self, tag, err);
    if (status != XRAY_OK)
        return status;
    if (tag == XRAY_TAG_ACTIVATIONS)
        status = for_each_space(self, xm_space_evict);
    if (tag == XRAY_TAG_WEIGHTS)
        status = for_each_handle(self, self->device->weight_evict);
    if (status == XRAY_OK)
        status = visit_tag_blocks(self, tag, evict_block, NULL);
    xm_trainer_forget(self);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "%s: the device could not evict the memory of %s",
                         self->owner, names[tag]);
}

static xray_status restore_tag(xm_trainer *self, uint32_t tag, xr_err *err)
{
    char *at = self->host_copies[tag].data;
    xray_status status = XRAY_OK;
    if (tag == XRAY_TAG_ACTIVATIONS)
        status = for_each_space(self, xm_space_restore);
    if (status == XRAY_OK)
        status = visit_tag_blocks(self, tag, restore_block, NULL);
    if (status == XRAY_OK)
        status = visit_tag_blocks(self, tag, copy_block_in, &at);
    if (status == XRAY_OK && tag == XRAY_TAG_WEIGHTS)
        status = for_each_handle(self, self->device->weight_changed);
    if (status == XRAY_OK)
        status = sync_streams(self);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "%s: the device could not restore the memory of %s",
                         self->owner, names[tag]);
}

static xray_status check_tag(const xm_trainer *self, uint32_t tag, xr_err *err)
{
    const xray_device_ops *device = self->device;
    if (tag >= XRAY_TAG_COUNT || !(BIT(tag) & XM_TRAINER_EVICTABLE))
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: weights, gradients, optimizer and activations can "
                       "be offloaded, but tag %" PRIu32 " cannot",
                       self->owner, tag);
    if (!XRAY_HAS(xray_device_ops, device, evict) ||
        !XRAY_HAS(xray_device_ops, device, restore) ||
        !XRAY_HAS(xray_device_ops, device, weight_evict))
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: the device cannot evict memory", self->owner);
    return XRAY_OK;
}

xray_status xm_trainer_offload(void *ptr, uint32_t tag)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status = check_tag(self, tag, &err);
    if (status == XRAY_OK && (self->offloaded & BIT(tag)))
        return XRAY_OK;
    if (status == XRAY_OK && tag == XRAY_TAG_WEIGHTS && self->weights->leases)
        status = xr_fail(&err, XRAY_E_STATE,
                         "the weights of %s are held by %" PRIu32
                         " lease(s) and cannot be offloaded",
                         self->owner, self->weights->leases);
    if (status == XRAY_OK)
        status = evict_tag(self, tag, &err);
    if (status == XRAY_OK)
        self->offloaded |= BIT(tag);
    return xm_trainer_report(self->host, status, "offload", &err);
}

xray_status xm_trainer_onload(void *ptr, uint32_t tag)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status = check_tag(self, tag, &err);
    if (status == XRAY_OK && !(self->offloaded & BIT(tag)))
        return XRAY_OK;
    if (status == XRAY_OK)
        status = restore_tag(self, tag, &err);
    if (status == XRAY_OK)
        self->offloaded &= ~BIT(tag);
    return xm_trainer_report(self->host, status, "onload", &err);
}

xray_status xm_trainer_check_resident(const xm_trainer *self, uint32_t tags,
                                      xr_err *err)
{
    uint32_t missing = self->offloaded & tags;
    for (uint32_t tag = 0; missing && tag < XRAY_TAG_COUNT; tag++)
        if (missing & BIT(tag))
            return xr_fail(err, XRAY_E_STATE,
                           "%s: the %s are offloaded; onload them first",
                           self->owner, names[tag]);
    return XRAY_OK;
}

void xm_trainer_drop_copies(xm_trainer *self)
{
    for (uint32_t tag = 0; tag < XRAY_TAG_COUNT; tag++)
        xm_host_memory_unmap(&self->host_copies[tag]);
}
