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

static void put_on_cuda(rig *r)
{
    const cuda_config config = { .precision = CUDA_FLOAT32 };
    r->device->destroy(r->device_self);
    r->device = xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
    assert_int_equal(r->device->create(&r->host, &config, 1, &r->device_self),
                     XRAY_OK);
}

static void run_requests(int on_cuda, results *out)
{
    const engine_size size = { .rows = 3,
                               .row_tokens = 24,
                               .config = { .max_num_batched_tokens = 8 } };
    rig *r = rig_open(1);
    if (on_cuda)
        put_on_cuda(r);
    model *m = model_open(r, MODEL_LLAMA_UNTIED);
    void *engine = engine_open(r, m, &size);
    for (uint64_t id = 1; id <= 3; id++) {
        xray_request q =
            request_make(id, prompt + id, 4 + (uint32_t)id, 3 * (uint32_t)id);
        q.count = 2;
        q.temperature = id == 2 ? 0.0f : 1.3f;
        q.stop_ids = prompt;
        q.stop_count = 12;
        engine_submit(r, engine, &q);
    }
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
    emulate_hold(1);
    run_requests(1, &all[2]);
    emulate_hold(0);
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
