/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the engine on the cuda device, whose kernels run on the host and
 * whose streams seem to be at work until they are waited for, has the CPU's
 * results.
 */
#include "tests/serve/engine.h"

#include "emulate_runtime.h"
#include "plugins/device-cuda/config.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);

static const int32_t prompt[12] = { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8 };

static uint32_t launches;
static uint32_t stale;

static const xray_device_ops *cuda_ops(void)
{
    return xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
}

static xray_status count_launch(void *self, xray_stream *stream,
                                xray_graph *graph)
{
    xray_status status = cuda_ops()->graph_launch(self, stream, graph);
    launches += status == XRAY_OK;
    stale += status == XRAY_E_STATE;
    return status;
}

static void put_on_cuda(rig *r)
{
    const cuda_config config = { .precision = CUDA_FLOAT32 };
    r->device->destroy(r->device_self);
    r->late = *cuda_ops();
    r->late.graph_launch = count_launch;
    r->device = &r->late;
    assert_int_equal(r->device->create(&r->host, &config, 1, &r->device_self),
                     XRAY_OK);
}

/* Moves the device's scratch memory, as another user of it might. */
static void move_scratch(rig *r)
{
    const xray_device_work more = { .header = XRAY_HEADER(xray_device_work),
                                    .tokens = 1u << 20,
                                    .passes = XRAY_PASS_GRADS };
    assert_int_equal(r->device->reserve(r->device_self, &more, 1, sizeof(more)),
                     XRAY_OK);
}

static void run_requests(int on_cuda, results *out)
{
    const engine_size size = { .rows = 3,
                               .row_tokens = 48,
                               .config = { .max_num_batched_tokens = 8 } };
    rig *r = rig_open(1);
    if (on_cuda)
        put_on_cuda(r);
    model *m = model_open(r, MODEL_LLAMA_UNTIED);
    void *engine = engine_open(r, m, &size);
    for (uint64_t id = 1; id <= 3; id++) {
        xray_request q =
            request_make(id, prompt + id, 4 + (uint32_t)id, 7 * (uint32_t)id);
        q.count = 2;
        q.temperature = id == 2 ? 0.0f : 1.3f;
        q.stop_ids = prompt;
        q.stop_count = id == 1 ? 12 : 0;
        engine_submit(r, engine, &q);
    }
    for (int i = 0; i < 12; i++)
        assert_int_equal(r->ops->step(engine), XRAY_OK);
    if (on_cuda)
        move_scratch(r);
    engine_run(r, engine, out);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

static void results_are_those_of_the_cpu(void **state)
{
    (void)state;
    static results all[3];
    run_requests(0, &all[0]);
    run_requests(1, &all[1]);
    assert_int_equal(launches, 0);
    emulate_hold(1);
    run_requests(1, &all[2]);
    emulate_hold(0);
    assert_true(launches > 8 && stale > 0);
    results_equal(&all[0], &all[1]);
    results_equal(&all[0], &all[2]);
}

/* ---- step arrays --------------------------------------------------------- */

/* Copies to the device that may not have read their host memory yet. */
typedef struct upload {
    const void *from;
    void *copy;
    uint64_t bytes;
} upload;

#define UPLOADS 4096
#define EVENTS 8

static upload uploads[UPLOADS];
static uint32_t upload_count;
static uint32_t most_uploads;
static struct {
    const xray_event *event;
    uint32_t covers; /* uploads before it */
} marks[EVENTS];

/* The device has read the first uploads: each must be as it was enqueued. */
static void settle_uploads(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        assert_memory_equal(uploads[i].from, uploads[i].copy, uploads[i].bytes);
        free(uploads[i].copy);
    }
    upload_count -= count;
    memmove(uploads, uploads + count, upload_count * sizeof(*uploads));
    for (int e = 0; e < EVENTS; e++)
        marks[e].covers -= marks[e].covers < count ? marks[e].covers : count;
}

static xray_status note_copy(void *self, xray_stream *stream, void *to,
                             const void *from, uint64_t bytes, uint32_t kind)
{
    if (kind == XRAY_COPY_TO_DEVICE) {
        assert_true(upload_count < UPLOADS);
        upload *u = &uploads[upload_count++];
        *u = (upload){ from, malloc(bytes + 1), bytes };
        assert_non_null(u->copy);
        memcpy(u->copy, from, bytes);
        most_uploads =
            upload_count > most_uploads ? upload_count : most_uploads;
    }
    return cuda_ops()->copy(self, stream, to, from, bytes, kind);
}

static xray_status note_sync(void *self, xray_stream *stream)
{
    settle_uploads(upload_count);
    return cuda_ops()->sync(self, stream);
}

static xray_status note_record(void *self, xray_stream *stream,
                               xray_event *event)
{
    int e = 0;
    while (e + 1 < EVENTS && marks[e].event && marks[e].event != event)
        e++;
    marks[e].event = event;
    marks[e].covers = upload_count;
    return cuda_ops()->event_record(self, stream, event);
}

static xray_status note_event_sync(void *self, xray_event *event)
{
    for (int e = 0; e < EVENTS; e++)
        if (marks[e].event == event)
            settle_uploads(marks[e].covers);
    return cuda_ops()->event_sync(self, event);
}

/* The steps of a long prompt are enqueued one after the other without a wait
 * for results; what they copy must stay until it has been read. */
static void uploads_are_read_before_they_change(void **state)
{
    (void)state;
    const engine_size size = { .rows = 3,
                               .row_tokens = 64,
                               .config = { .max_num_batched_tokens = 8 } };
    static results all;
    int32_t ids[48];
    rig *r = rig_open(1);
    put_on_cuda(r);
    model *m = model_open(r, MODEL_LLAMA_UNTIED);
    void *engine = engine_open(r, m, &size);
    settle_uploads(upload_count);
    r->late.copy = note_copy;
    r->late.sync = note_sync;
    r->late.event_record = note_record;
    r->late.event_sync = note_event_sync;
    for (uint32_t i = 0; i < 48; i++)
        ids[i] = prompt[i * 7 % 12];
    for (uint64_t id = 1; id <= 3; id++) {
        xray_request q = request_make(id, ids, 48 - (uint32_t)id, 6);
        engine_submit(r, engine, &q);
    }
    emulate_hold(1);
    engine_run(r, engine, &all);
    emulate_hold(0);
    assert_true(most_uploads > 5); /* more than a step has */
    settle_uploads(upload_count);
    r->ops->destroy(engine);
    model_close(m);
    rig_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_cpu),
        cmocka_unit_test(uploads_are_read_before_they_change),
    };
    return cmocka_run_group_tests_name("serve.cuda", tests, NULL, NULL);
}
