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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_cpu),
    };
    return cmocka_run_group_tests_name("serve.cuda", tests, NULL, NULL);
}
