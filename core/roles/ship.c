/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes weights to a region of shared memory and loads them into an engine.
 */
#include "core/roles/ship.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/roles/memory_turns.h"
#include "core/roles/plugin_results.h"
#include "core/roles/publish.h"

#define NAME_CAP 192
#define LINE 64

typedef struct ship_header {
    uint64_t version;
    uint64_t used; /* bytes of the region in use */
    uint32_t count;
    uint32_t cap;
} ship_header;

typedef struct ship_tensor {
    char name[NAME_CAP];
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[4];
    uint64_t count;
    uint64_t offset;
    uint64_t bytes;
    uint64_t sum;
} ship_tensor;

typedef struct shipping {
    xr_roles *roles;
    ship_header *header; /* NULL: this rank only takes part in the export */
    ship_tensor *tensors;
    unsigned char *memory;
    uint64_t size;
} shipping;

static uint64_t round_up_to_line(uint64_t bytes)
{
    return (bytes + LINE - 1) / LINE * LINE;
}

static const xray_tensor *tensor_at(const xray_weights *table, uint32_t i)
{
    const unsigned char *base = (const unsigned char *)table->tensors;
    return (const xray_tensor *)(const void *)(base + (size_t)i *
                                                          table->tensor_stride);
}

static uint64_t tensor_bytes(const xray_tensor *t)
{
    uint64_t bytes = t->dtype == XRAY_F32 ? 4 : 2;
    for (uint32_t d = 0; d < t->dims && d < 4; d++)
        bytes *= t->shape[d];
    return bytes;
}

static const xray_weights *policy_weights(const xr_roles *roles)
{
    return xr_train(roles->run)->weights(roles->actor.self);
}

uint64_t xr_ship_bytes(const xr_roles *roles)
{
    const xray_weights *table = policy_weights(roles);
    uint64_t bytes =
        round_up_to_line(sizeof(ship_header)) +
        round_up_to_line(table->tensor_count * sizeof(ship_tensor));
    for (uint32_t i = 0; i < table->tensor_count; i++)
        bytes += round_up_to_line(tensor_bytes(tensor_at(table, i)));
    return bytes;
}

/* ---- writing ------------------------------------------------------------ */

static xray_status write_tensor(shipping *w, const xray_weights *part,
                                const xray_tensor *t, xr_err *err)
{
    const xr_part *device = w->roles->device.part;
    ship_tensor *to = &w->tensors[w->header->count];
    uint64_t bytes = tensor_bytes(t);
    if (w->header->count == w->header->cap || strlen(t->name) >= NAME_CAP ||
        bytes > w->size - w->header->used)
        return xr_fail(err, XRAY_E_BUG,
                       "tensor %s: %s exports more than it publishes", t->name,
                       w->roles->actor.part->instance);
    (void)snprintf(to->name, NAME_CAP, "%s", t->name);
    to->dtype = t->dtype;
    to->dims = t->dims;
    memcpy(to->shape, t->shape, sizeof(to->shape));
    to->count = t->count;
    to->offset = w->header->used;
    to->bytes = bytes;
    xray_status status = XR_CALL(
        device, "checksum",
        part->device->checksum(part->device_self, t->data, bytes, &to->sum));
    if (status == XRAY_OK)
        status = XR_CALL(device, "copy",
                         part->device->copy(part->device_self, NULL,
                                            w->memory + to->offset, t->data,
                                            bytes, XRAY_COPY_TO_HOST));
    if (status == XRAY_OK)
        status = XR_CALL(device, "sync",
                         part->device->sync(part->device_self, NULL));
    if (status != XRAY_OK)
        return xr_host_error(device->host, status, "export", err);
    w->header->used += round_up_to_line(bytes);
    w->header->count++;
    return XRAY_OK;
}

static xray_status write_table(shipping *w, const xray_weights *part,
                               xr_err *err)
{
    xray_status status = XRAY_OK;
    if (!w->header)
        return XRAY_OK;
    for (uint32_t i = 0; i < part->tensor_count && status == XRAY_OK; i++)
        status = write_tensor(w, part, tensor_at(part, i), err);
    return status;
}

static xray_status write_export(shipping *w, xr_err *err)
{
    const xr_instance *train = &w->roles->actor;
    const xray_train_ops *ops = xr_train(w->roles->run);
    xray_status status =
        XR_CALL(train->part, "export_begin", ops->export_begin(train->self));
    while (status == XRAY_OK) {
        const xray_weights *part = NULL;
        status = XR_CALL(train->part, "export_next",
                         ops->export_next(train->self, &part));
        if (status == XRAY_OK) {
            xr_err text = { "" };
            if (xr_check_weights_table(train->part, part, &text) != XRAY_OK ||
                write_table(w, part, &text) != XRAY_OK) {
                ops->export_end(train->self);
                *err = text;
                return XRAY_E_BUG;
            }
        }
    }
    ops->export_end(train->self);
    return status == XRAY_END
               ? XRAY_OK
               : xr_host_error(train->part->host, status, "export", err);
}

xray_status xr_ship_write(xr_roles *roles, void *memory, uint64_t size,
                          xr_err *err)
{
    const xray_weights *table = policy_weights(roles);
    shipping w = { .roles = roles, .memory = memory, .size = size };
    xray_status turn = xr_turn_publish(roles, err);
    if (turn != XRAY_OK)
        return turn;
    if (memory && size < xr_ship_bytes(roles))
        return xr_fail(err, XRAY_E_BUG,
                       "the region is too small for the weights");
    if (memory) {
        w.header = memory;
        w.tensors =
            (ship_tensor *)(void *)(w.memory +
                                    round_up_to_line(sizeof(ship_header)));
        *w.header = (ship_header){
            .version = table->version(table->owner),
            .used = round_up_to_line(sizeof(ship_header)) +
                    round_up_to_line(table->tensor_count * sizeof(ship_tensor)),
            .cap = table->tensor_count
        };
    }
    /* The memory of a table may be offloaded from the device; exported parts
     * are always on it. */
    if (XRAY_HAS(xray_train_ops, xr_train(roles->run), export_begin))
        return write_export(&w, err);
    if (!xr_weights_complete(table))
        return xr_fail(err, XRAY_E_BUG,
                       "%s holds shards of its weights and offers no export",
                       roles->actor.part->instance);
    return write_table(&w, table, err);
}

/* ---- reading ------------------------------------------------------------ */

typedef struct shipped {
    uint64_t version;
} shipped;

static uint64_t shipped_version(void *owner)
{
    return ((const shipped *)owner)->version;
}

static xray_status shipped_lease(void *owner)
{
    (void)owner;
    return XRAY_OK;
}

static void shipped_release(void *owner)
{
    (void)owner;
}

/* Finds a tensor in the region. The region was written by another process, so
 * its contents are checked. */
static xray_status map_tensor(const ship_tensor *from, unsigned char *memory,
                              uint64_t size, xr_err *err, xray_tensor *out)
{
    if (memchr(from->name, 0, NAME_CAP) == NULL || from->offset > size ||
        from->bytes > size - from->offset)
        return xr_fail(err, XRAY_E_BUG, "a tensor lies outside of its region");
    *out = (xray_tensor){ .name = from->name,
                          .dtype = from->dtype,
                          .dims = from->dims,
                          .count = from->count,
                          .data = memory + from->offset };
    memcpy(out->shape, from->shape, sizeof(out->shape));
    return XRAY_OK;
}

/* Compares the checksum of `data`, which is memory of the device. */
static xray_status compare_checksum(const xr_roles *roles,
                                    const ship_tensor *from, const void *data,
                                    xr_err *err)
{
    const xray_device_ops *device =
        (const xray_device_ops *)roles->device.part->ops;
    uint64_t sum = 0;
    xray_status status =
        XR_CALL(roles->device.part, "checksum",
                device->checksum(roles->device.self, data, from->bytes, &sum));
    if (status != XRAY_OK)
        return xr_host_error(roles->device.part->host, status, "checksum", err);
    if (sum != from->sum)
        return xr_fail(err, XRAY_E_BUG,
                       "the checksum of tensor %s is %016" PRIx64
                       " where it arrived, %016" PRIx64
                       " where it was sent; it was damaged on the way",
                       from->name, sum, from->sum);
    return XRAY_OK;
}

/* The state of a transfer from the region, which is host memory, to a device
 * that cannot read it: tensors are copied one at a time. */
typedef struct arriving {
    const xr_roles *roles;
    const ship_tensor *from;
    xray_weights table; /* all tensors; `data` is in the region */
    xray_weights part;
    xray_tensor tensor;
    void *stage; /* device memory that fits any of the tensors */
    uint32_t next;
} arriving;

static xray_status stage_next_tensor(void *ctx, const xray_weights **out,
                                     xr_err *err)
{
    arriving *a = ctx;
    const xr_roles *roles = a->roles;
    const xray_device_ops *device = a->table.device;
    if (a->next == a->table.tensor_count)
        return XRAY_END;
    const ship_tensor *from = &a->from[a->next];
    a->tensor = a->table.tensors[a->next++];
    xray_status status =
        XR_CALL(roles->device.part, "copy",
                device->copy(roles->device.self, NULL, a->stage, a->tensor.data,
                             from->bytes, XRAY_COPY_TO_DEVICE));
    if (status == XRAY_OK)
        status = XR_CALL(roles->device.part, "sync",
                         device->sync(roles->device.self, NULL));
    if (status != XRAY_OK)
        return xr_host_error(roles->device.part->host, status, "copy", err);
    a->tensor.data = a->stage;
    a->part = a->table;
    a->part.tensors = &a->tensor;
    a->part.tensor_count = 1;
    *out = &a->part;
    return compare_checksum(roles, from, a->stage, err);
}

static xray_status publish_staged(xr_roles *roles, arriving *a, xr_err *err)
{
    const xray_device_ops *device = a->table.device;
    const xr_parts parts = { a, stage_next_tensor };
    uint64_t most = 1;
    for (uint32_t i = 0; i < a->table.tensor_count; i++)
        most = a->from[i].bytes > most ? a->from[i].bytes : most;
    xray_status status =
        XR_CALL(roles->device.part, "alloc",
                device->alloc(roles->device.self, "weight sync",
                              XRAY_TAG_WORKSPACE, most, &a->stage));
    if (status != XRAY_OK)
        return xr_host_error(roles->device.part->host, status, "alloc", err);
    status = xr_publish_table(roles, &a->table, &parts, err);
    device->free(roles->device.self, a->stage);
    return status;
}

static xray_status publish_in_place(xr_roles *roles, const arriving *a,
                                    xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < a->table.tensor_count && status == XRAY_OK; i++)
        status =
            compare_checksum(roles, &a->from[i], a->table.tensors[i].data, err);
    return status == XRAY_OK ? xr_publish_table(roles, &a->table, NULL, err)
                             : status;
}

/* Loads straight from the region if the device can read host memory. */
static xray_status publish_region(xr_roles *roles, arriving *a, xr_err *err)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    xray_status status =
        XR_CALL(roles->device.part, "info",
                a->table.device->info(roles->device.self, &info));
    if (status != XRAY_OK)
        return xr_host_error(roles->device.part->host, status, "info", err);
    return info.host_memory ? publish_in_place(roles, a, err)
                            : publish_staged(roles, a, err);
}

xray_status xr_ship_read(xr_roles *roles, const void *memory, uint64_t size,
                         xr_err *err)
{
    const unsigned char *base = memory;
    const ship_header *header = memory;
    const ship_tensor *from =
        (const ship_tensor *)(const void *)(base +
                                            round_up_to_line(sizeof(*header)));
    if (size < round_up_to_line(sizeof(*header)) ||
        header->count >
            (size - round_up_to_line(sizeof(*header))) / sizeof(*from))
        return xr_fail(err, XRAY_E_BUG, "the weights' region is cut off");
    xray_tensor *tensors = xr_calloc(header->count + 1, sizeof(*tensors));
    if (!tensors)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %u tensors",
                       header->count);
    shipped owner = { header->version };
    arriving a = {
        .roles = roles,
        .from = from,
        .table = { .header = XRAY_HEADER(xray_weights),
                   .tensor_count = header->count,
                   .tensor_stride = sizeof(xray_tensor),
                   .tensors = tensors,
                   .device = (const xray_device_ops *)roles->device.part->ops,
                   .device_self = roles->device.self,
                   .owner = &owner,
                   .version = shipped_version,
                   .lease = shipped_lease,
                   .release = shipped_release }
    };
    xray_status status = XRAY_OK;
    /* The engine reads through a table whose data pointers are not const. */
    union {
        const unsigned char *in;
        unsigned char *out;
    } at = { base };
    for (uint32_t i = 0; i < header->count && status == XRAY_OK; i++)
        status = map_tensor(&from[i], at.out, size, err, &tensors[i]);
    if (status == XRAY_OK)
        status = publish_region(roles, &a, err);
    free(tensors);
    return status;
}
