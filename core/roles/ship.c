/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes weights to a region of shared memory and loads them into an engine.
 * The region has a section for each rank that writes, with the boxes that it
 * holds, each packed. If the trainer's ranks hold different boxes, each writes
 * its own, so that no rank gathers the model; otherwise only the first does.
 * Weights that are offloaded come from an export.
 */
#include "core/roles/ship.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/box.h"
#include "core/base/str.h"
#include "core/plugin/cancel.h"
#include "core/roles/memory_turns.h"
#include "core/roles/plugin_results.h"
#include "core/roles/publish.h"
#include "core/run/replicas.h"

#define NAME_CAP 192
#define LINE 64

typedef struct ship_header {
    uint64_t version;
    uint64_t size; /* bytes of the section */
    uint64_t used; /* those in use */
    uint32_t count;
    uint32_t cap;
} ship_header;

typedef struct ship_box {
    char name[NAME_CAP];
    uint32_t dtype;
    uint32_t dims;
    uint64_t shape[4];
    uint64_t lo[4];
    uint64_t extent[4];
    uint64_t offset; /* from the section's start */
    uint64_t bytes;
    uint64_t sum;
} ship_box;

typedef struct shipping {
    xr_roles *roles;
    ship_header *header; /* NULL: this rank only takes part in the export */
    ship_box *boxes;
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

static const xray_weights *policy_weights(const xr_roles *roles)
{
    return xr_train(roles->run)->weights(roles->actor.self);
}

static int exports_parts(const xr_roles *roles)
{
    const xray_weights *table = policy_weights(roles);
    return XRAY_HAS(xray_weights, table, offloaded) &&
           XRAY_HAS(xray_train_ops, xr_train(roles->run), export_begin);
}

/* Every rank that exports gets the same parts, and every rank with complete
 * tensors has the same: the first one writes them. Otherwise each rank writes
 * its boxes, of a replica of several ranks those of the first replica. */
static int must_write(const xr_roles *roles, const xray_weights *table)
{
    int64_t at =
        xr_ranks_find(xr_run_ranks(roles->run, XRAY_ROLE_ACTOR), roles->rank);
    uint32_t width = xr_replicas_of(roles->run, XRAY_ROLE_ACTOR).width;
    if (at <= 0)
        return 1;
    return !exports_parts(roles) && !xr_weights_complete(table) &&
           (width == 1 || at < width);
}

/* Bytes of entry `i`: of its box, or of the entire tensor, once, where an
 * export gives that. */
static uint64_t entry_bytes(const xray_weights *table, uint32_t i, int entire)
{
    const xray_tensor *t = tensor_at(table, i);
    uint64_t size = xray_dtype_bytes(t->dtype);
    if (!entire)
        return xray_box_count(t) * size;
    int further = i > 0 && strcmp(tensor_at(table, i - 1)->name, t->name) == 0;
    return further ? 0 : xray_shape_count(t) * size;
}

uint64_t xr_ship_bytes(const xr_roles *roles)
{
    const xray_weights *table = policy_weights(roles);
    int entire = exports_parts(roles);
    if (!must_write(roles, table))
        return 0;
    uint64_t bytes = round_up_to_line(sizeof(ship_header)) +
                     round_up_to_line(table->tensor_count * sizeof(ship_box));
    for (uint32_t i = 0; i < table->tensor_count; i++)
        bytes += round_up_to_line(entry_bytes(table, i, entire));
    return bytes;
}

/* ---- writing ------------------------------------------------------------ */

static xray_status write_box(shipping *w, const xray_weights *part,
                             const xray_tensor *t, xr_err *err)
{
    const xr_box_device device = { part->device, part->device_self };
    const xr_part *owner = w->roles->device.part;
    ship_box *to = &w->boxes[w->header->count];
    uint64_t bytes = xray_box_count(t) * xray_dtype_bytes(t->dtype);
    xray_tensor packed;
    if (w->header->count == w->header->cap || strlen(t->name) >= NAME_CAP ||
        bytes > w->size - w->header->used)
        return xr_fail(err, XRAY_E_BUG,
                       "tensor %s: %s exports more than it publishes", t->name,
                       w->roles->actor.part->instance);
    (void)snprintf(to->name, NAME_CAP, "%s", t->name);
    to->dtype = t->dtype;
    to->dims = t->dims;
    memcpy(to->shape, t->shape, sizeof(to->shape));
    memcpy(to->lo, t->lo, sizeof(to->lo));
    memcpy(to->extent, t->extent, sizeof(to->extent));
    to->offset = w->header->used;
    to->bytes = bytes;
    xr_box_pack(t, t->dtype, w->memory + to->offset, &packed);
    xray_status status =
        XR_CALL(owner, "checksum", xr_box_checksum(device, t, &to->sum));
    if (status == XRAY_OK)
        status = XR_CALL(owner, "copy",
                         xr_box_copy(device, &packed, t, XRAY_COPY_TO_HOST));
    if (status == XRAY_OK)
        status =
            XR_CALL(owner, "sync", part->device->sync(part->device_self, NULL));
    if (status != XRAY_OK)
        return xr_host_error(owner->host, status, "export", err);
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
    for (uint32_t i = 0; i < part->tensor_count && status == XRAY_OK; i++) {
        status = xr_cancel_check(err);
        if (status == XRAY_OK)
            status = write_box(w, part, tensor_at(part, i), err);
    }
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
            xray_status wrong =
                xr_check_weights_table(train->part, part, &text);
            if (wrong == XRAY_OK)
                wrong = write_table(w, part, &text);
            if (wrong != XRAY_OK) {
                ops->export_end(train->self);
                *err = text;
                return wrong;
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
        w.boxes = (ship_box *)(void *)(w.memory +
                                       round_up_to_line(sizeof(ship_header)));
        *w.header = (ship_header){
            .version = table->version(table->owner),
            .size = size,
            .used = round_up_to_line(sizeof(ship_header)) +
                    round_up_to_line(table->tensor_count * sizeof(ship_box)),
            .cap = table->tensor_count
        };
    }
    return exports_parts(roles) ? write_export(&w, err)
                                : write_table(&w, table, err);
}

/* ---- reading ------------------------------------------------------------ */

static uint64_t shipped_version(void *owner)
{
    return *(const uint64_t *)owner;
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

/* A box in the region, and the section that it is in. */
typedef struct arrived_box {
    const ship_box *from;
    const unsigned char *section;
} arrived_box;

/* Describes a box of the region. The region was written by another process, so
 * its contents are checked. */
static xray_status map_box(const arrived_box *box, const xr_roles *roles,
                           xr_err *err, xray_tensor *out)
{
    const ship_box *from = box->from;
    const ship_header *section =
        (const ship_header *)(const void *)box->section;
    /* The engine reads through a table whose data pointers are not const. */
    union {
        const unsigned char *in;
        unsigned char *out;
    } at = { box->section };
    if (memchr(from->name, 0, NAME_CAP) == NULL || from->dims > 4 ||
        from->offset > section->size ||
        from->bytes > section->size - from->offset)
        return xr_fail(err, XRAY_E_BUG, "a tensor lies outside of its region");
    xray_tensor t = { .name = from->name,
                      .dtype = from->dtype,
                      .dims = from->dims };
    memcpy(t.shape, from->shape, sizeof(t.shape));
    memcpy(t.lo, from->lo, sizeof(t.lo));
    memcpy(t.extent, from->extent, sizeof(t.extent));
    xr_box_pack(&t, t.dtype, at.out + from->offset, out);
    const xray_weights alone = { .header = XRAY_HEADER(xray_weights),
                                 .tensor_count = 1,
                                 .tensor_stride = sizeof(*out),
                                 .tensors = out,
                                 .device = roles->device.part->ops,
                                 .version = shipped_version };
    xray_status status = xr_check_weights_table(roles->actor.part, &alone, err);
    if (status == XRAY_OK &&
        from->bytes != xray_box_count(out) * xray_dtype_bytes(out->dtype))
        status =
            xr_fail(err, XRAY_E_BUG,
                    "tensor %s has other bytes than its box needs", from->name);
    return status;
}

/* Compares the checksum of a box in memory of the device. */
static xray_status compare_checksum(const xr_roles *roles, const ship_box *from,
                                    const xray_tensor *t, xr_err *err)
{
    const xr_box_device device = { roles->device.part->ops,
                                   roles->device.self };
    uint64_t sum = 0;
    xray_status status = xr_cancel_check(err);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(roles->device.part, "checksum",
                     xr_box_checksum(device, t, &sum));
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
    xr_roles *roles;
    arrived_box *boxes;
    xray_tensor *tensors;
    xray_weights table; /* all boxes; `data` is in the region */
    xray_weights part;
    xray_tensor tensor;
    void *stage; /* device memory that fits any of the boxes */
    uint64_t version;
    uint32_t next;
} arriving;

static xray_status stage_next_box(void *ctx, const xray_weights **out,
                                  xr_err *err)
{
    arriving *a = ctx;
    const xr_roles *roles = a->roles;
    const xray_device_ops *device = a->table.device;
    if (a->next == a->table.tensor_count)
        return XRAY_END;
    const ship_box *from = a->boxes[a->next].from;
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
    return compare_checksum(roles, from, &a->tensor, err);
}

static xray_status publish_staged(xr_roles *roles, arriving *a, xr_err *err)
{
    const xray_device_ops *device = a->table.device;
    const xr_parts parts = { a, stage_next_box };
    uint64_t most = 1;
    for (uint32_t i = 0; i < a->table.tensor_count; i++)
        most = a->boxes[i].from->bytes > most ? a->boxes[i].from->bytes : most;
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
        status = compare_checksum(roles, a->boxes[i].from, &a->tensors[i], err);
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

/* Counts the boxes of all sections, and checks that these fill the region. With
 * `out`, notes where each box is. */
static xray_status find_boxes(const void *memory, uint64_t size, xr_err *err,
                              uint64_t *out_count, arrived_box *out)
{
    const uint64_t first = round_up_to_line(sizeof(ship_header));
    const unsigned char *at = memory;
    uint64_t version = ((const ship_header *)memory)->version;
    *out_count = 0;
    while (size > 0) {
        const ship_header *header = (const ship_header *)(const void *)at;
        if (size < first || header->size < first || header->size > size ||
            header->count > (header->size - first) / sizeof(ship_box))
            return xr_fail(err, XRAY_E_BUG, "the weights' region is cut off");
        if (header->version != version)
            return xr_fail(err, XRAY_E_BUG,
                           "ranks shipped weights of versions %" PRIu64
                           " and %" PRIu64,
                           version, header->version);
        const ship_box *boxes = (const ship_box *)(const void *)(at + first);
        for (uint32_t i = 0; i < header->count; i++, (*out_count)++)
            if (out)
                out[*out_count] = (arrived_box){ &boxes[i], at };
        at += header->size;
        size -= header->size;
    }
    return XRAY_OK;
}

static int compare_boxes(const void *a, const void *b)
{
    const ship_box *x = ((const arrived_box *)a)->from;
    const ship_box *y = ((const arrived_box *)b)->from;
    int order = strncmp(x->name, y->name, NAME_CAP);
    for (uint32_t d = 0; d < 4 && order == 0; d++)
        order = (x->lo[d] > y->lo[d]) - (x->lo[d] < y->lo[d]);
    for (uint32_t d = 0; d < 4 && order == 0; d++)
        order = (x->extent[d] > y->extent[d]) - (x->extent[d] < y->extent[d]);
    return order;
}

/* Brings the boxes of a tensor together, and keeps one of those that several
 * ranks hold. */
static xray_status join_sections(arriving *a, uint64_t *count, xr_err *err)
{
    uint64_t kept = 0;
    qsort(a->boxes, *count, sizeof(*a->boxes), compare_boxes);
    for (uint64_t i = 0; i < *count; i++) {
        const ship_box *box = a->boxes[i].from;
        if (kept == 0 || compare_boxes(&a->boxes[kept - 1], &a->boxes[i]) != 0)
            a->boxes[kept++] = a->boxes[i];
        else if (a->boxes[kept - 1].from->sum != box->sum)
            return xr_fail(err, XRAY_E_BUG,
                           "tensor %.*s: two ranks hold the same elements with "
                           "different values",
                           NAME_CAP - 1, box->name);
    }
    *count = kept;
    return XRAY_OK;
}

static xray_status read_boxes(arriving *a, uint64_t count, int several,
                              xr_err *err)
{
    xray_status status = several ? join_sections(a, &count, err) : XRAY_OK;
    for (uint64_t i = 0; i < count && status == XRAY_OK; i++)
        status = map_box(&a->boxes[i], a->roles, err, &a->tensors[i]);
    a->table = (xray_weights){ .header = XRAY_HEADER(xray_weights),
                               .tensor_count = (uint32_t)count,
                               .tensor_stride = sizeof(xray_tensor),
                               .tensors = a->tensors,
                               .device = a->roles->device.part->ops,
                               .device_self = a->roles->device.self,
                               .owner = &a->version,
                               .version = shipped_version,
                               .lease = shipped_lease,
                               .release = shipped_release };
    if (status == XRAY_OK)
        status = xr_check_weights_table(a->roles->actor.part, &a->table, err);
    return status == XRAY_OK ? publish_region(a->roles, a, err) : status;
}

xray_status xr_ship_read(xr_roles *roles, const void *memory, uint64_t size,
                         xr_err *err)
{
    uint64_t count = 0;
    if (size < sizeof(ship_header))
        return xr_fail(err, XRAY_E_BUG, "the weights' region is cut off");
    const ship_header *header = memory;
    xray_status status = find_boxes(memory, size, err, &count, NULL);
    if (status != XRAY_OK)
        return status;
    arriving a = { .roles = roles,
                   .boxes = xr_calloc(count + 1, sizeof(*a.boxes)),
                   .tensors = xr_calloc(count + 1, sizeof(*a.tensors)),
                   .version = header->version };
    if (!a.boxes || !a.tensors)
        status = xr_fail(err, XRAY_E_NOMEM,
                         "out of memory for %" PRIu64 " tensors", count);
    if (status == XRAY_OK)
        status = find_boxes(memory, size, err, &count, a.boxes);
    if (status == XRAY_OK)
        status = read_boxes(&a, count, header->size != size, err);
    free(a.tensors);
    free(a.boxes);
    return status;
}
