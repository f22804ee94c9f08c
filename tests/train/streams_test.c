/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that what runs beside the computation is in order with it. On this
 * device all streams but the default one do their work as late as events allow,
 * and none does before the computation that it must wait for: whoever forgets
 * to wait reads old values, which show in the weights.
 */
#include <xray/box.h>

#include "model/train/trainer.h"
#include "tests/train/ranks.h"

enum { STEPS_MOST = 4096 };

/* Work of a stream that is still to be done. */
typedef struct late_step {
    xray_status (*run)(const struct late_step *step);
    const void *in;
    void *out;
    uint64_t count; /* elements, or bytes of a copy, or steps to wait for */
    uint32_t kind;
    xray_axpby add;
} late_step;

struct xray_stream {
    late_step steps[STEPS_MOST];
    uint64_t count;
    uint64_t done;
    uint64_t seen; /* the computation that the stream has waited for */
};

struct xray_event {
    xray_stream *stream; /* NULL: the default one */
    uint64_t reached;
};

static const xray_device_ops *cpu;
static void *cpu_self;
static uint64_t computed; /* operators on the default stream so far */
static uint32_t at_once;  /* 1: no stream is late */
static uint32_t early;    /* work that did not wait for the computation */

/* ---- streams and events -------------------------------------------------- */

static void run_stream(xray_stream *stream, uint64_t end)
{
    while (stream->done < end) {
        const late_step *step = &stream->steps[stream->done++ % STEPS_MOST];
        assert_int_equal(step->run(step), XRAY_OK);
    }
}

static xray_status add_step(xray_stream *stream, late_step step)
{
    assert_true(stream->count - stream->done < STEPS_MOST);
    stream->steps[stream->count++ % STEPS_MOST] = step;
    if (at_once)
        run_stream(stream, stream->count);
    return XRAY_OK;
}

static xray_status create_stream(void *self, xray_stream **out)
{
    (void)self;
    *out = calloc(1, sizeof(**out));
    return *out ? XRAY_OK : XRAY_E_NOMEM;
}

static void destroy_stream(void *self, xray_stream *stream)
{
    (void)self;
    free(stream);
}

static xray_status create_event(void *self, xray_event **out)
{
    (void)self;
    *out = calloc(1, sizeof(**out));
    return *out ? XRAY_OK : XRAY_E_NOMEM;
}

static void destroy_event(void *self, xray_event *event)
{
    (void)self;
    free(event);
}

static xray_status record_event(void *self, xray_stream *stream,
                                xray_event *event)
{
    (void)self;
    event->stream = stream;
    event->reached = stream ? stream->count : computed;
    return XRAY_OK;
}

static xray_status sync_event(void *self, xray_event *event)
{
    (void)self;
    if (event->stream)
        run_stream(event->stream, event->reached);
    return XRAY_OK;
}

static xray_status run_wait(const late_step *step)
{
    run_stream(step->out, step->count);
    return XRAY_OK;
}

static xray_status wait_event(void *self, xray_stream *stream,
                              xray_event *event)
{
    if (!stream)
        return sync_event(self, event);
    if (event->stream)
        return add_step(stream, (late_step){ .run = run_wait,
                                             .out = event->stream,
                                             .count = event->reached });
    if (event->reached > stream->seen)
        stream->seen = event->reached;
    return XRAY_OK;
}

static xray_status sync_stream(void *self, xray_stream *stream)
{
    (void)self;
    if (stream)
        run_stream(stream, stream->count);
    return XRAY_OK;
}

/* ---- work ---------------------------------------------------------------- */

static xray_status run_copy(const late_step *step)
{
    return cpu->copy(cpu_self, NULL, step->out, step->in, step->count,
                     step->kind);
}

/* Records of ranks, with which no operator computes, are copied back and
 * forth at once. */
static int is_record(uint64_t bytes)
{
    return bytes % sizeof(xm_group_record) == 0 &&
           bytes <= 2 * sizeof(xm_group_record);
}

static xray_status copy_late(void *self, xray_stream *stream, void *to,
                             const void *from, uint64_t bytes, uint32_t kind)
{
    if (!stream) {
        computed++;
        return cpu->copy(self, NULL, to, from, bytes, kind);
    }
    if (kind == XRAY_COPY_TO_HOST && !is_record(bytes))
        early += stream->seen < computed;
    return add_step(stream, (late_step){ .run = run_copy,
                                         .in = from,
                                         .out = to,
                                         .count = bytes,
                                         .kind = kind });
}

static xray_status run_axpby(const late_step *step)
{
    return cpu->axpby(cpu_self, NULL, &step->add);
}

static xray_status axpby_late(void *self, xray_stream *stream,
                              const xray_axpby *op)
{
    if (stream)
        return add_step(stream, (late_step){ .run = run_axpby, .add = *op });
    computed++;
    return cpu->axpby(self, NULL, op);
}

#define COUNTED(op)                                                \
    static xray_status count_##op(void *self, xray_stream *stream, \
                                  const xray_##op *call)           \
    {                                                              \
        assert_null(stream);                                       \
        computed++;                                                \
        return cpu->op(self, NULL, call);                          \
    }
COUNTED(matmul)
COUNTED(matmul_grad)
COUNTED(embedding_grad)
COUNTED(rmsnorm)
COUNTED(rmsnorm_grad)
COUNTED(glu_grad)
COUNTED(attention_grad)
COUNTED(lm_head_grad)
COUNTED(adamw)

static uint32_t host_memory;

static xray_status tell_memory(void *self, xray_device_info *info)
{
    xray_status status = cpu->info(self, info);
    info->host_memory = host_memory;
    return status;
}

static rig_device late_device(const rig_device *device)
{
    static xray_device_ops ops;
    cpu = device->ops;
    cpu_self = device->self;
    ops = *cpu;
    ops.info = tell_memory;
    ops.stream_create = create_stream;
    ops.stream_destroy = destroy_stream;
    ops.sync = sync_stream;
    ops.event_create = create_event;
    ops.event_destroy = destroy_event;
    ops.event_record = record_event;
    ops.event_wait = wait_event;
    ops.event_sync = sync_event;
    ops.copy = copy_late;
    ops.axpby = axpby_late;
    ops.matmul = count_matmul;
    ops.matmul_grad = count_matmul_grad;
    ops.embedding_grad = count_embedding_grad;
    ops.rmsnorm = count_rmsnorm;
    ops.rmsnorm_grad = count_rmsnorm_grad;
    ops.glu_grad = count_glu_grad;
    ops.attention_grad = count_attention_grad;
    ops.lm_head_grad = count_lm_head_grad;
    ops.adamw = count_adamw;
    return (rig_device){ .ops = &ops, .self = device->self };
}

/* ---- collectives, with a rank that has the same weights ------------------ */

static xray_status run_all_gather(const late_step *step)
{
    size_t bytes = step->count * sizeof(float);
    memmove((char *)step->out + bytes, step->in, bytes);
    memmove(step->out, (char *)step->out + bytes, bytes);
    return XRAY_OK;
}

static xray_status run_sum(const late_step *step)
{
    const float *in = step->in;
    float *out = step->out;
    for (uint64_t i = 0; i < step->count; i++)
        out[i] = in[i] + 1e-3f * (float)(i % 5);
    return XRAY_OK;
}

static xray_status begin_collective(xray_stream *stream, late_step step)
{
    if (!is_record(step.count * sizeof(float)))
        early += stream->seen < computed;
    return add_step(stream, step);
}

static xray_status all_gather(xray_comm_group *group, xray_stream *stream,
                              const void *in, void *out, uint64_t count,
                              uint32_t dtype)
{
    (void)group;
    (void)dtype;
    return begin_collective(stream, (late_step){ .run = run_all_gather,
                                                 .in = in,
                                                 .out = out,
                                                 .count = count });
}

static xray_status reduce_scatter(xray_comm_group *group, xray_stream *stream,
                                  const void *in, void *out, uint64_t count,
                                  uint32_t dtype)
{
    (void)group;
    (void)dtype;
    return begin_collective(
        stream,
        (late_step){ .run = run_sum, .in = in, .out = out, .count = count });
}

static xray_status all_reduce(xray_comm_group *group, xray_stream *stream,
                              void *buf, uint64_t count, uint32_t dtype)
{
    return reduce_scatter(group, stream, buf, buf, count, dtype);
}

static const xray_comm_ops comm = { .header = XRAY_HEADER(xray_comm_ops),
                                    .all_reduce = all_reduce,
                                    .reduce_scatter = reduce_scatter,
                                    .all_gather = all_gather };

/* ---- runs ---------------------------------------------------------------- */

static rig open_rank(const rig_device *device, const rig_spec *spec,
                     uint32_t ranks)
{
    static void *const nowhere = &early; /* stands for the group */
    const xray_subgroup data = { XRAY_AXIS_DATA, nowhere, 0, ranks };
    const xray_world world = { .header = XRAY_HEADER(xray_world),
                               .size = ranks,
                               .comm = &comm,
                               .group = nowhere,
                               .subgroups = &data,
                               .subgroup_count = 1,
                               .subgroup_stride = sizeof(data) };
    rig_request request = rig_request_of(spec);
    const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                               .host = rig_host(),
                               .device = device->ops,
                               .device_self = device->self,
                               .model = &request.model,
                               .world = &world,
                               .role = XRAY_ROLE_ACTOR,
                               .trainable = 1 };
    rig r = { .ops = rig_component_of(spec)->ops };
    if (r.ops->create(&setup, request.config, &request.load, &r.self) !=
        XRAY_OK)
        fail_msg("%s", rig_error());
    rig_request_free(&request);
    return r;
}

/* Cuts rows into micro-batches; with segments, one for each. */
static void draw_rows(rows *batch, const rig_spec *spec, uint64_t seed)
{
    const rows_deal deal = { spec->segments, 1, 0, 0, 1, 0 };
    static rows whole;
    if (!spec->segments) {
        rows_draw(batch, 8, 20, 37, seed);
        rows_cut(batch, 2);
        return;
    }
    rows_draw(&whole, 8, 20, 37, seed);
    assert_int_equal(rows_take_segments(batch, &whole, &deal), deal.segments);
}

/* Rank 0 of two has every second one of twice as many segments, or the first
 * half of them. */
static uint32_t set_segments(rows *batch, const rig_spec *spec, uint32_t ranks)
{
    for (uint32_t i = 0; i < spec->segments / ranks; i++)
        batch->parts[i].segment =
            spec->stage_1 > 2 && ranks > 1 ? ranks * i : i;
    return spec->segments ? spec->segments / ranks : 2;
}

static void train(const rig *r, const rig_spec *spec, uint32_t ranks,
                  double norms[3])
{
    static rows batch;
    static float logp[ROWS_TOKENS_MAX];
    for (uint32_t i = 0; i < 3; i++) {
        rows_loss ctx = { .entropy_weight = 0.01 };
        xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                             .logp = logp };
        xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
        draw_rows(&batch, spec, i);
        const xray_loss loss = rows_loss_of(&ctx, &batch);
        assert_int_equal(
            forward_one(r->ops, r->self, &batch.batch, XRAY_OUTPUT_LOGP, &out),
            XRAY_OK);
        uint32_t count = set_segments(&batch, spec, ranks);
        if (r->ops->forward_backward(r->self, batch.pointers, count, &loss) !=
                XRAY_OK ||
            r->ops->optimizer_step(r->self, 1e-2, 1, &result) != XRAY_OK)
            fail_msg("%s", rig_error());
        norms[i] = result.grad_norm;
    }
}

static int do_floats_differ(const float *x, const float *y, uint64_t count)
{
    return count && memcmp(x, y, count * sizeof(*x)) != 0;
}

/* A rank may have several boxes of a tensor. */
static int do_weights_differ(const rig *a, const rig *b)
{
    const xray_weights *x = a->ops->weights(a->self);
    const xray_weights *y = b->ops->weights(b->self);
    int differ = x->tensor_count != y->tensor_count;
    for (uint32_t i = 0; i < x->tensor_count && !differ; i++)
        differ = do_floats_differ(x->tensors[i].data, y->tensors[i].data,
                                  xray_box_count(&x->tensors[i]));
    return differ;
}

/* Moments in host memory, once the default stream has done its work. */
static int do_moments_differ(const rig *a, const rig *b)
{
    const xm_adamw *x = ((const xm_trainer *)a->self)->adamw;
    const xm_adamw *y = ((const xm_trainer *)b->self)->adamw;
    int differ = 0;
    for (uint32_t i = 0; i < x->layout->bucket_count && !differ; i++) {
        uint64_t count = xm_adamw_range(x->layout, i, 0).count;
        differ = do_floats_differ(x->m[i], y->m[i], count) ||
                 do_floats_differ(x->v[i], y->v[i], count);
    }
    return differ;
}

typedef struct late_case {
    rig_spec spec;
    uint32_t ranks;
    uint32_t apart; /* 1: the device does not compute in host memory */
} late_case;

static void expect_order(size_t number, const late_case *c)
{
    rig_device device = rig_device_open(1);
    const rig_device late = late_device(&device);
    rig r[2];
    double norms[2][3];
    early = 0;
    host_memory = !c->apart;
    for (uint32_t k = 0; k < 2; k++) {
        at_once = k == 0;
        r[k] = open_rank(&late, &c->spec, c->ranks);
        train(&r[k], &c->spec, c->ranks, norms[k]);
    }
    if (early)
        fail_msg("case %zu: %u times too early", number, early);
    if (memcmp(norms[0], norms[1], sizeof(norms[0])) != 0 ||
        do_weights_differ(&r[0], &r[1]) || do_moments_differ(&r[0], &r[1]))
        fail_msg("case %zu: other values than in order", number);
    rig_close(&r[0]);
    rig_close(&r[1]);
    rig_device_close(&device);
}

static void work_beside_the_computation_is_in_order_with_it(void **state)
{
    (void)state;
    const late_case cases[] = {
        { { .stage_1 = 0 + 1 }, 2, 0 },
        { { .stage_1 = 1 + 1, .config_json = rig_tiny_tied }, 2, 0 },
        { { .stage_1 = 1 + 1, .config_json = rig_tiny_tied, .segments = 4 },
          2,
          0 },
        { { .stage_1 = 2 + 1, .config_json = rig_tiny_tied }, 2, 0 },
        { { .stage_1 = 3 + 1, .config_json = rig_tiny_tied }, 2, 0 },
        { { .stage_1 = 3 + 1, .config_json = rig_tiny_tied, .segments = 4 },
          2,
          0 },
        { { .stage_1 = 3 + 1, .config_json = ranks_deep, .no_prefetch = 1 },
          2,
          0 },
        { { .stage_1 = 3 + 1, .config_json = ranks_deep, .offload_param = 1 },
          2,
          0 },
        { { .tensor = 1, .config_json = rig_tiny_tied }, 2, 0 },
        { { .tensor = 1, .config_json = ranks_deep, .no_overlap = 1 }, 2, 0 },
        { { .tensor = 1, .config_json = ranks_deep, .all_moments = 1 }, 2, 0 },
        { { .stage_1 = 1 + 1, .offload_optimizer = 1 }, 1, 1 },
        { { .stage_1 = 3 + 1, .offload_optimizer = 1 }, 2, 1 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        expect_order(i, &cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_beside_the_computation_is_in_order_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
