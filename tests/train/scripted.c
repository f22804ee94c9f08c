/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the scripted rank and the watched device.
 */

#include "tests/train/scripted.h"

/* ---- the other rank ------------------------------------------------------ */

scripted_rank scripted_other;

static xray_status answer_call(uint32_t call)
{
    if (call != XRAY_COMM_ALL_GATHER)
        scripted_other.calls++;
    if (call != scripted_other.fails)
        return XRAY_OK;
    if (scripted_other.left == 0)
        return XRAY_E_PEER;
    scripted_other.left--;
    return XRAY_OK;
}

/* The other rank has the same values as this one. */
static xray_status all_gather(xray_comm_group *group, xray_stream *stream,
                              const void *in, void *out, uint64_t count,
                              uint32_t dtype)
{
    size_t bytes = count * sizeof(float);
    xm_group_record *records = out;
    (void)group;
    (void)stream;
    (void)dtype;
    if (bytes != sizeof(xm_group_record)) {
        scripted_other.gathers++;
        xray_status status = answer_call(XRAY_COMM_ALL_GATHER);
        if (status != XRAY_OK)
            return status;
    }
    memmove((char *)out + bytes, in, bytes);
    memmove(out, (char *)out + bytes, bytes);
    if (bytes == sizeof(xm_group_record) && scripted_other.bad_record) {
        records[1].squares[XRAY_SQUARES_WORDS - 1] = 1;
        records[1].first = scripted_other.first;
    }
    return XRAY_OK;
}

/* The other rank has no gradients. */
static xray_status all_reduce(xray_comm_group *group, xray_stream *stream,
                              void *buf, uint64_t count, uint32_t dtype)
{
    (void)group;
    (void)stream;
    (void)buf;
    (void)count;
    (void)dtype;
    return answer_call(XRAY_COMM_ALL_REDUCE);
}

static xray_status all_reduce_max(xray_comm_group *group, xray_stream *stream,
                                  void *buf, uint64_t count, uint32_t dtype)
{
    (void)group;
    (void)stream;
    (void)buf;
    (void)count;
    (void)dtype;
    return answer_call(XRAY_COMM_ALL_REDUCE_MAX);
}

static xray_status reduce_scatter(xray_comm_group *group, xray_stream *stream,
                                  const void *in, void *out, uint64_t count,
                                  uint32_t dtype)
{
    float *to = out;
    (void)group;
    (void)stream;
    (void)dtype;
    xray_status status = answer_call(XRAY_COMM_REDUCE_SCATTER);
    if (status != XRAY_OK)
        return status;
    memmove(out, in, count * sizeof(float));
    for (uint64_t i = 0; scripted_other.negative && i < count; i++)
        to[i] = -0.0f;
    return XRAY_OK;
}

/* Rank 0 keeps what it sends, and the other rank broadcasts the same. */
static xray_status broadcast(xray_comm_group *group, xray_stream *stream,
                             void *buf, uint64_t bytes, uint32_t root)
{
    (void)group;
    (void)stream;
    (void)buf;
    (void)bytes;
    (void)root;
    return answer_call(XRAY_COMM_BROADCAST);
}

static xray_status send_rows(xray_comm_group *group, xray_stream *stream,
                             const void *buf, uint64_t bytes, uint32_t peer)
{
    (void)group;
    (void)stream;
    (void)buf;
    (void)bytes;
    (void)peer;
    return answer_call(XRAY_COMM_SEND);
}

static const xray_comm_ops comm = { .header = XRAY_HEADER(xray_comm_ops),
                                    .all_reduce = all_reduce,
                                    .all_reduce_max = all_reduce_max,
                                    .reduce_scatter = reduce_scatter,
                                    .all_gather = all_gather,
                                    .broadcast = broadcast,
                                    .send = send_rows };

xray_status scripted_try(const rig_device *device, const rig_spec *spec,
                         uint32_t ranks, rig *out)
{
    static void *const nowhere = &scripted_other; /* stands for the group */
    const xray_subgroup groups[] = { { XRAY_AXIS_REPLICA, nowhere, 0, ranks },
                                     { XRAY_AXIS_DATA, NULL, 0, 1 } };
    const xray_world world = { .header = XRAY_HEADER(xray_world),
                               .size = ranks,
                               .comm = &comm,
                               .group = nowhere,
                               .subgroups = groups,
                               .subgroup_count = 2,
                               .subgroup_stride = sizeof(groups[0]) };
    rig_request request = rig_request_of(spec);
    const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                               .host = rig_host(),
                               .device = device->ops,
                               .device_self = device->self,
                               .model = &request.model,
                               .world = &world,
                               .role = XRAY_ROLE_ACTOR,
                               .trainable = 1 };
    *out = (rig){ .ops = rig_component_of(spec)->ops };
    memset(&scripted_other, 0, sizeof(scripted_other));
    scripted_other.fails = SCRIPTED_NEVER;
    rig_clear();
    xray_status status =
        out->ops->create(&setup, request.config, &request.load, &out->self);
    rig_request_free(&request);
    return status;
}

rig scripted_open(const rig_device *device, const rig_spec *spec,
                  uint32_t ranks)
{
    rig r;
    assert_int_equal(scripted_try(device, spec, ranks, &r), XRAY_OK);
    return r;
}

/* ---- the device ------------------------------------------------------- */

static const xray_device_ops *cpu;
scripted_device scripted_watched;

static xray_status watch_alloc(void *self, const char *owner, uint32_t tag,
                               uint64_t bytes, void **out)
{
    if (scripted_watched.fail_alloc && --scripted_watched.fail_alloc == 0)
        return XRAY_E_NOMEM;
    return cpu->alloc(self, owner, tag, bytes, out);
}

static xray_status watch_copy(void *self, xray_stream *stream, void *to,
                              const void *from, uint64_t bytes, uint32_t kind)
{
    if (scripted_watched.fail_copy == kind + 1)
        return XRAY_E_DEVICE;
    if (kind == XRAY_COPY_TO_HOST)
        scripted_watched.to_host += bytes;
    return cpu->copy(self, stream, to, from, bytes, kind);
}

static xray_status watch_axpby(void *self, xray_stream *stream,
                               const xray_axpby *op)
{
    return scripted_watched.fail_adds ? XRAY_E_DEVICE
                                      : cpu->axpby(self, stream, op);
}

static xray_status watch_restore(void *self, void *ptr)
{
    return scripted_watched.fail_restore ? XRAY_E_DEVICE
                                         : cpu->restore(self, ptr);
}

static xray_status watch_changed(void *self, xray_weight *weight)
{
    return scripted_watched.fail_changed ? XRAY_E_DEVICE
                                         : cpu->weight_changed(self, weight);
}

static xray_status watch_adamw(void *self, xray_stream *stream,
                               const xray_adamw *op)
{
    return scripted_watched.fail_updates ? XRAY_E_DEVICE
                                         : cpu->adamw(self, stream, op);
}

static xray_status watch_event_create(void *self, xray_event **out)
{
    scripted_watched.events++;
    return cpu->event_create(self, out);
}

static void watch_event_destroy(void *self, xray_event *event)
{
    scripted_watched.events--;
    cpu->event_destroy(self, event);
}

static xray_status watch_weight_create(void *self, const xray_weight_desc *desc,
                                       xray_weight **out)
{
    scripted_watched.handles++;
    return cpu->weight_create(self, desc, out);
}

static void watch_weight_destroy(void *self, xray_weight *weight)
{
    scripted_watched.handles--;
    cpu->weight_destroy(self, weight);
}

rig_device scripted_watch(const rig_device *device)
{
    static xray_device_ops ops;
    memset(&scripted_watched, 0, sizeof(scripted_watched));
    cpu = device->ops;
    ops = *cpu;
    ops.alloc = watch_alloc;
    ops.copy = watch_copy;
    ops.axpby = watch_axpby;
    ops.restore = watch_restore;
    ops.weight_changed = watch_changed;
    ops.adamw = watch_adamw;
    ops.event_create = watch_event_create;
    ops.event_destroy = watch_event_destroy;
    ops.weight_create = watch_weight_create;
    ops.weight_destroy = watch_weight_destroy;
    return (rig_device){ .ops = &ops, .self = device->self };
}

/* ---- calls -------------------------------------------------------------- */

rows scripted_rows;

xray_status scripted_add_gradients(const rig *r)
{
    static rows_loss ctx;
    ctx = (rows_loss){ .poison_token = -1 };
    const xray_loss loss = rows_loss_of(&ctx, &scripted_rows);
    return r->ops->forward_backward(r->self, scripted_rows.pointers, 1, &loss);
}

xray_status scripted_step(const rig *r, xray_step_result *out)
{
    *out = (xray_step_result){ .header = XRAY_HEADER(xray_step_result) };
    return r->ops->optimizer_step(r->self, 1e-2, 1, out);
}
