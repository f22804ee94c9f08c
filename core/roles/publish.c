/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans and carries out the transfer of weights from trainer to engine.
 */
#include "core/roles/publish.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/box.h"
#include "core/base/file.h"
#include "core/base/map.h"
#include "core/base/str.h"
#include "core/plugin/cancel.h"
#include "core/roles/memory_turns.h"
#include "core/roles/plugin_results.h"
#include "core/roles/role_calls.h"

#define OWNER "weight sync"

/* A box of the engine, and what it must hold after the transfer. Those of one
 * tensor follow each other. */
typedef struct box_move {
    const xray_tensor *to;
    uint64_t sum;  /* checksum of the trainer's values in the engine's type */
    uint64_t sent; /* number of its elements that were sent */
} box_move;

struct xr_transfer {
    const xray_weights *engine;
    box_move *moves;
    xr_map *by_name; /* engine's name of a tensor -> index of its first move */
    int exports;     /* 1: values come from export calls; 0: from the trainer's
                      * table */
    uint64_t bytes;  /* that were sent, in the trainer's type */
    /* The trainer's device, which holds `cast`. */
    const xray_device_ops *device;
    void *device_self;
    void *cast; /* one box in the engine's type; NULL: types are equal */
    uint64_t cast_bytes;
};

/* ---- tables ------------------------------------------------------------- */

static const xray_tensor *tensor_at(const xray_weights *table, uint32_t i)
{
    const unsigned char *base = (const unsigned char *)table->tensors;
    return (const xray_tensor *)(const void *)(base + (size_t)i *
                                                          table->tensor_stride);
}

int xr_weights_complete(const xray_weights *table)
{
    for (uint32_t i = 0; i < table->tensor_count; i++)
        if (!xray_box_is_plain(tensor_at(table, i)))
            return 0;
    return 1;
}

static void put_shape(const xray_tensor *t, xr_str *out)
{
    for (uint32_t d = 0; d < t->dims && d < 4; d++)
        xr_str_printf(out, "%s%" PRIu64, d ? ", " : "[", t->shape[d]);
    xr_str_puts(out, t->dims ? "]" : "[]");
}

static int same_shape(const xray_tensor *a, const xray_tensor *b)
{
    return a->dims == b->dims && a->dims <= 4 &&
           memcmp(a->shape, b->shape, a->dims * sizeof(a->shape[0])) == 0;
}

/* Checks that both tensors have the same shape, and types that can be converted
 * into each other. */
static xray_status check_tensor_pair(const xr_roles *roles,
                                     const xray_tensor *from,
                                     const xray_tensor *to, xr_err *err)
{
    xr_str sent = { 0 };
    xr_str kept = { 0 };
    xray_status status = XRAY_OK;
    put_shape(from, &sent);
    put_shape(to, &kept);
    if (!same_shape(from, to))
        status = xr_fail(err, XRAY_E_BUG,
                         "tensor %s has shape %s in %s and %s in %s", to->name,
                         xr_str_text(&sent), roles->actor.part->instance,
                         xr_str_text(&kept), roles->engine.part->instance);
    else if (!xray_dtype_bytes(from->dtype) || !xray_dtype_bytes(to->dtype))
        status = xr_fail(err, XRAY_E_BUG,
                         "tensor %s is of type %u in %s and %u in %s, which "
                         "this xray does not compare",
                         to->name, from->dtype, roles->actor.part->instance,
                         to->dtype, roles->engine.part->instance);
    xr_str_free(&sent);
    xr_str_free(&kept);
    return status;
}

/* The first move of a tensor, or NULL. */
static box_move *find_box_move(const xr_transfer *t, const char *name)
{
    uint64_t at = 0;
    return xr_map_get(t->by_name, name, strlen(name), &at) ? &t->moves[at]
                                                           : NULL;
}

/* The next move of the same tensor, or NULL. */
static box_move *next_box_move(const xr_transfer *t, box_move *m)
{
    const box_move *end = t->moves + t->engine->tensor_count;
    return m + 1 < end && strcmp(m[1].to->name, m->to->name) == 0 ? m + 1
                                                                  : NULL;
}

/* Returns 1 if entry `i` is a further box of the tensor before it. */
static int is_further_box(const xray_weights *table, uint32_t i)
{
    return i > 0 && strcmp(tensor_at(table, i)->name,
                           tensor_at(table, i - 1)->name) == 0;
}

static int has_export(const xr_roles *roles)
{
    const xray_train_ops *ops = xr_train(roles->run);
    return roles->actor.self && XRAY_HAS(xray_train_ops, ops, export_begin) &&
           XRAY_HAS(xray_train_ops, ops, export_next) &&
           XRAY_HAS(xray_train_ops, ops, export_end);
}

/* ---- the plan, made once ------------------------------------------------ */

static xray_status plan_engine_tensors(const xr_roles *roles, xr_transfer *t,
                                       xr_err *err)
{
    const xray_weights *table = t->engine;
    t->moves = xr_calloc((size_t)table->tensor_count + 1, sizeof(*t->moves));
    t->by_name = xr_map_new(table->tensor_count);
    if (!t->moves || !t->by_name)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the transfer");
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const xray_tensor *to = tensor_at(table, i);
        t->moves[i].to = to;
        if (is_further_box(table, i))
            continue;
        if (find_box_move(t, to->name))
            return xr_fail(err, XRAY_E_BUG, "%s publishes tensor %s twice",
                           roles->engine.part->instance, to->name);
        if (xr_map_put(t->by_name, to->name, strlen(to->name), i) != 0)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for the transfer");
    }
    return XRAY_OK;
}

static void begin_counting(xr_transfer *t)
{
    t->bytes = 0;
    for (uint32_t i = 0; i < t->engine->tensor_count; i++)
        t->moves[i].sum = t->moves[i].sent = 0;
}

/* Counts for each of the engine's boxes what `from` has of it, and finds the
 * most memory that a conversion needs. */
static xray_status plan_trainer_box(const xr_roles *roles, xr_transfer *t,
                                    const xray_tensor *from, xr_err *err)
{
    xray_status status = xr_cancel_check(err);
    for (box_move *m = find_box_move(t, from->name); m && status == XRAY_OK;
         m = next_box_move(t, m)) {
        xray_tensor part;
        uint64_t bytes = xray_box_count(m->to) * xray_dtype_bytes(m->to->dtype);
        status = check_tensor_pair(roles, from, m->to, err);
        if (status == XRAY_OK)
            m->sent += xray_box_cut(m->to, from, &part);
        if (from->dtype != m->to->dtype && bytes > t->cast_bytes)
            t->cast_bytes = bytes;
    }
    return status;
}

/* Matches every box of the engine with those of the trainer. Tensors that only
 * the trainer has, such as a value head, are not sent. */
static xray_status plan_trainer_tensors(const xr_roles *roles, xr_transfer *t,
                                        const xray_weights *table, xr_err *err)
{
    xray_status status = XRAY_OK;
    uint64_t at = 0;
    xr_map *seen = xr_map_new(table->tensor_count);
    if (!seen)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the transfer");
    for (uint32_t i = 0; i < table->tensor_count && status == XRAY_OK; i++) {
        const xray_tensor *from = tensor_at(table, i);
        size_t size = strlen(from->name);
        if (!is_further_box(table, i) &&
            xr_map_get(seen, from->name, size, &at))
            status = xr_fail(err, XRAY_E_BUG, "%s publishes tensor %s twice",
                             roles->actor.part->instance, from->name);
        else if (xr_map_put(seen, from->name, size, i) != 0)
            status =
                xr_fail(err, XRAY_E_NOMEM, "out of memory for the transfer");
        else
            status = plan_trainer_box(roles, t, from, err);
    }
    for (uint32_t i = 0; i < t->engine->tensor_count && status == XRAY_OK;
         i++) {
        const xray_tensor *to = t->moves[i].to;
        if (!xr_map_get(seen, to->name, strlen(to->name), &at))
            status = xr_fail(err, XRAY_E_BUG,
                             "tensor %s of %s is not among the weights of %s",
                             to->name, roles->engine.part->instance,
                             roles->actor.part->instance);
        else if (!t->exports && t->moves[i].sent != xray_box_count(to))
            status = xr_fail(err, XRAY_E_BUG,
                             "%s holds shards of its weights and offers no "
                             "export, so that %s cannot have them",
                             roles->actor.part->instance,
                             roles->engine.part->instance);
    }
    xr_map_free(seen);
    return status;
}

static xray_status allocate_cast(const xr_roles *roles, xr_transfer *t,
                                 xr_err *err)
{
    if (!t->cast_bytes)
        return XRAY_OK;
    xray_status status =
        XR_CALL(roles->device.part, "alloc",
                t->device->alloc(t->device_self, OWNER, XRAY_TAG_WORKSPACE,
                                 t->cast_bytes, &t->cast));
    if (status != XRAY_OK)
        return xr_host_error(roles->device.part->host, status, "alloc", err);
    return t->cast ? XRAY_OK
                   : xr_fail(err, XRAY_E_BUG,
                             "%s: alloc gave neither memory nor an error",
                             roles->device.part->instance);
}

static xray_status plan_transfer(xr_roles *roles, const xray_weights *table,
                                 const xray_weights *engine, int by_export,
                                 xr_err *err)
{
    xr_transfer *t = xr_calloc(1, sizeof(*t));
    if (!t)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the transfer");
    roles->published.transfer =
        t; /* owned by the roles, even if the plan fails */
    t->engine = engine;
    t->exports = by_export;
    t->device = table->device;
    t->device_self = table->device_self;
    xray_status status =
        xr_check_weights_table(roles->engine.part, engine, err);
    if (status != XRAY_OK)
        return status;
    status = plan_engine_tensors(roles, t, err);
    if (status != XRAY_OK)
        return status;
    status = plan_trainer_tensors(roles, t, table, err);
    if (status != XRAY_OK)
        return status;
    return allocate_cast(roles, t, err);
}

void xr_transfer_free(xr_roles *roles)
{
    xr_transfer *t = roles->published.transfer;
    if (!t)
        return;
    if (t->cast)
        t->device->free(t->device_self, t->cast);
    xr_map_free(t->by_name);
    free(t->moves);
    free(t);
    roles->published.transfer = NULL;
}

/* ---- a transfer --------------------------------------------------------- */

/* Adds the checksum of those of the trainer's values that are to be in a box of
 * the engine, in its type. */
static xray_status add_checksum(const xr_roles *roles, xr_transfer *t,
                                const xray_weights *part,
                                const xray_tensor *from, box_move *m,
                                xr_err *err)
{
    const xr_box_device device = { part->device, part->device_self };
    const xr_part *owner = roles->device.part;
    xray_tensor values;
    uint64_t sum = 0;
    uint64_t count = xray_box_cut(from, m->to, &values);
    xray_status status = XRAY_OK;
    if (count == 0)
        return XRAY_OK;
    if (from->dtype != m->to->dtype) {
        xray_tensor wide = values;
        if (part->device_self != t->device_self ||
            count * xray_dtype_bytes(m->to->dtype) > t->cast_bytes)
            return xr_fail(err, XRAY_E_BUG,
                           "tensor %s: %s exports it otherwise than it "
                           "publishes it",
                           from->name, roles->actor.part->instance);
        xr_box_pack(&wide, m->to->dtype, t->cast, &values);
        status = XR_CALL(owner, "cast", xr_box_cast(device, &values, &wide));
        if (status == XRAY_OK)
            status = XR_CALL(owner, "sync",
                             part->device->sync(part->device_self, NULL));
    }
    if (status == XRAY_OK)
        status =
            XR_CALL(owner, "checksum", xr_box_checksum(device, &values, &sum));
    m->sum += sum;
    m->sent += count;
    t->bytes += count * xray_dtype_bytes(from->dtype);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(owner->host, status, "checksum", err);
}

/* Prepares one box of a table for all boxes of the engine that have elements of
 * it. */
static xray_status send_box(const xr_roles *roles, xr_transfer *t,
                            const xray_weights *part, const xray_tensor *from,
                            xr_err *err)
{
    xray_status status = xr_cancel_check(err);
    for (box_move *m = find_box_move(t, from->name); m && status == XRAY_OK;
         m = next_box_move(t, m)) {
        status = check_tensor_pair(roles, from, m->to, err);
        if (status == XRAY_OK)
            status = add_checksum(roles, t, part, from, m, err);
        if (status == XRAY_OK && m->sent > xray_box_count(m->to))
            status = xr_fail(err, XRAY_E_BUG, "tensor %s: %s exports it twice",
                             from->name, roles->actor.part->instance);
    }
    return status;
}

static xray_status send_table(const xr_roles *roles, xr_transfer *t,
                              const xray_weights *part, uint64_t version,
                              xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < part->tensor_count && status == XRAY_OK; i++)
        status = send_box(roles, t, part, tensor_at(part, i), err);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(
        roles->engine.part, "update",
        xr_infer(roles->run)->update(roles->engine.self, part, version));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(roles->engine.part->host, status, "update", err);
}

/* Sends the parts of an export one after the other; a part is freed when the
 * next one is made. */
static xray_status send_export_parts(const xr_roles *roles, xr_transfer *t,
                                     uint64_t version, xr_err *err)
{
    const xray_train_ops *ops = xr_train(roles->run);
    const xr_instance *train = &roles->actor;
    xray_status status =
        XR_CALL(train->part, "export_begin", ops->export_begin(train->self));
    if (status != XRAY_OK)
        return xr_host_error(train->part->host, status, "export_begin", err);
    while (status == XRAY_OK) {
        const xray_weights *part = NULL;
        xray_status next = XR_CALL(train->part, "export_next",
                                   ops->export_next(train->self, &part));
        if (next == XRAY_END)
            break;
        if (next != XRAY_OK)
            status = xr_host_error(train->part->host, next, "export_next", err);
        else
            status = xr_check_weights_table(train->part, part, err);
        if (status == XRAY_OK)
            status = send_table(roles, t, part, version, err);
    }
    xr_guard_enter(train->part->instance, "export_end", 0);
    ops->export_end(train->self);
    (void)xr_guard_leave(XRAY_OK);
    return status;
}

static xray_status send_staged_parts(const xr_roles *roles, xr_transfer *t,
                                     const xr_parts *parts, uint64_t version,
                                     xr_err *err)
{
    const xray_weights *part = NULL;
    xray_status status = parts->next(parts->ctx, &part, err);
    while (status == XRAY_OK) {
        status = send_table(roles, t, part, version, err);
        if (status == XRAY_OK)
            status = parts->next(parts->ctx, &part, err);
    }
    return status == XRAY_END ? XRAY_OK : status;
}

static xray_status check_all_sent(const xr_roles *roles, const xr_transfer *t,
                                  xr_err *err)
{
    for (uint32_t i = 0; i < t->engine->tensor_count; i++) {
        const box_move *m = &t->moves[i];
        if (m->sent != xray_box_count(m->to))
            return xr_fail(err, XRAY_E_BUG, "tensor %s: %s %s", m->to->name,
                           roles->actor.part->instance,
                           m->sent ? "exports only a part of it"
                                   : "did not export it");
    }
    return XRAY_OK;
}

static xray_status compare_checksums(const xr_roles *roles,
                                     const xr_transfer *t, uint64_t version,
                                     xr_err *err)
{
    const xray_weights *engine = t->engine;
    const xr_box_device device = { engine->device, engine->device_self };
    for (uint32_t i = 0; i < engine->tensor_count; i++) {
        const xray_tensor *to = t->moves[i].to;
        uint64_t sum = 0;
        xray_status status = xr_cancel_check(err);
        if (status != XRAY_OK)
            return status;
        status = XR_CALL(roles->device.part, "checksum",
                         xr_box_checksum(device, to, &sum));
        if (status != XRAY_OK)
            return xr_host_error(roles->device.part->host, status, "checksum",
                                 err);
        if (sum != t->moves[i].sum)
            return xr_fail(err, XRAY_E_BUG,
                           "weights of version %" PRIu64
                           ": the checksum of tensor %s is %016" PRIx64
                           " in %s, that of the values from %s is %016" PRIx64
                           "; they were damaged on the way",
                           version, to->name, sum, roles->engine.part->instance,
                           roles->actor.part->instance, t->moves[i].sum);
    }
    return XRAY_OK;
}

static xray_status check_engine_version(const xr_roles *roles,
                                        const xray_weights *engine,
                                        uint64_t version, xr_err *err)
{
    uint64_t now = engine->version(engine->owner);
    if (now == version)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_BUG,
                   "%s says that its weights are of version %" PRIu64
                   ", version %" PRIu64 " was published",
                   roles->engine.part->instance, now, version);
}

static xray_status finish_engine_update(const xr_roles *roles, uint64_t version,
                                        xr_err *err)
{
    xray_status status = XR_CALL(
        roles->engine.part, "update",
        xr_infer(roles->run)->update(roles->engine.self, NULL, version));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(roles->engine.part->host, status, "update", err);
}

/* Sends `table`, which is the trainer's own or, with `parts`, came from another
 * process; parts->next may be NULL. */
static xray_status copy_weights(xr_roles *roles, const xray_weights *table,
                                const xray_weights *engine,
                                const xr_parts *parts, xr_err *err)
{
    xray_status status = XRAY_OK;
    uint64_t version = table->version(table->owner);
    if (!roles->published.transfer)
        status = plan_transfer(roles, table, engine,
                               !parts && has_export(roles), err);
    if (status != XRAY_OK) {
        xr_transfer_free(roles);
        return status;
    }
    xr_transfer *t = roles->published.transfer;
    if (t->engine != engine)
        return xr_fail(err, XRAY_E_BUG,
                       "%s publishes another table than before",
                       roles->engine.part->instance);
    begin_counting(t);
    /* The memory of a table may be offloaded from the device; exported parts
     * are always on it. */
    if (parts && parts->next)
        status = send_staged_parts(roles, t, parts, version, err);
    else
        status = t->exports ? send_export_parts(roles, t, version, err)
                            : send_table(roles, t, table, version, err);
    if (status == XRAY_OK)
        status = check_all_sent(roles, t, err);
    if (status == XRAY_OK)
        status = finish_engine_update(roles, version, err);
    if (status == XRAY_OK)
        status = check_engine_version(roles, engine, version, err);
    roles->published.bytes += t->bytes;
    return status == XRAY_OK ? compare_checksums(roles, t, version, err)
                             : status;
}

static xray_status share_weights(const xr_roles *roles,
                                 const xray_weights *table, uint64_t version,
                                 xr_err *err)
{
    if (roles->run->ini.rollout.share_weights == XR_SHARE_OFF)
        return xr_fail(
            err, XRAY_E_CONFIG,
            "%s: [rollout] share_weights: off needs an engine that "
            "shows its own weights, %s does not",
            xr_config_location(roles->run->config, "rollout", "share_weights"),
            roles->engine.part->instance);
    if (!xr_weights_complete(table))
        return xr_fail(err, XRAY_E_BUG,
                       "%s keeps no weights of its own, and %s holds shards",
                       roles->engine.part->instance,
                       roles->actor.part->instance);
    return finish_engine_update(roles, version, err);
}

xray_status xr_publish_later(xr_roles *roles, xr_err *err)
{
    if (!roles->run->ini.rollout.free_cache_engine)
        return xr_publish(roles, err);
    roles->published.due = 1;
    return XRAY_OK;
}

xray_status xr_publish(xr_roles *roles, xr_err *err)
{
    double start = xr_now();
    roles->published.due = 0;
    xray_status status = roles->calls->publish(roles, err);
    roles->published.seconds += xr_now() - start;
    return status;
}

xray_status xr_publish_here(xr_roles *roles, xr_err *err)
{
    xray_status turn = xr_turn_publish(roles, err);
    if (turn != XRAY_OK)
        return turn;
    const xray_infer_ops *ops = xr_infer(roles->run);
    const xray_weights *table =
        xr_train(roles->run)->weights(roles->actor.self);
    const xray_weights *engine = XRAY_HAS(xray_infer_ops, ops, weights)
                                     ? ops->weights(roles->engine.self)
                                     : NULL;
    uint64_t version = table->version(table->owner);
    xray_status status = engine ? copy_weights(roles, table, engine, NULL, err)
                                : share_weights(roles, table, version, err);
    if (status != XRAY_OK)
        return status;
    roles->published.version = version;
    roles->published.synced = 1;
    return XRAY_OK;
}

xray_status xr_publish_table(xr_roles *roles, const xray_weights *table,
                             const xr_parts *parts, xr_err *err)
{
    static const xr_parts none = { NULL, NULL };
    const xray_infer_ops *ops = xr_infer(roles->run);
    const xray_weights *engine = XRAY_HAS(xray_infer_ops, ops, weights)
                                     ? ops->weights(roles->engine.self)
                                     : NULL;
    if (!engine)
        return xr_fail(err, XRAY_E_BUG,
                       "%s keeps no weights of its own that others could be "
                       "copied to",
                       roles->engine.part->instance);
    xray_status status = xr_turn_publish(roles, err);
    if (status != XRAY_OK)
        return status;
    return copy_weights(roles, table, engine, parts ? parts : &none, err);
}
