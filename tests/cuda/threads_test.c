/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that any thread works on the GPU of an instance of the cuda device: in
 * CUDA each thread has a GPU of its own, GPU 0 at first.
 */
#include "tests/cuda/products.h"

#include <pthread.h>

#include "emulate_runtime.h"

/* A thread that has never named its GPU works with these; they are on GPU 1. */
typedef struct elsewhere {
    void *device;
    void *block;
    xray_stream *stream;
    xray_event *event;
} elsewhere;

static void *work_elsewhere(void *ptr)
{
    const xray_device_ops *ops = cuda_ops();
    const elsewhere *e = ptr;
    const float values[4] = { 1, 2, 3, 4 };
    float got[4];
    const xray_axpby triple = {
        .header = XRAY_HEADER(xray_axpby), .count = 4, .y = e->block, .beta = 3
    };
    must(ops->copy(e->device, NULL, e->block, values, 16, XRAY_COPY_TO_DEVICE));
    must(ops->axpby(e->device, NULL, &triple));
    must(ops->event_record(e->device, NULL, e->event));
    must(ops->event_wait(e->device, e->stream, e->event));
    must(ops->axpby(e->device, e->stream, &triple));
    must(ops->event_query(e->device, e->event));
    must(ops->copy(e->device, e->stream, got, e->block, 16, XRAY_COPY_TO_HOST));
    must(ops->sync(e->device, e->stream));
    for (int i = 0; i < 4; i++)
        assert_true(got[i] == 9 * values[i]);
    return NULL;
}

static void any_thread_works_on_the_gpu_of_the_instance(void **state)
{
    (void)state;
    const cuda_config config = { .index = 1, .precision = CUDA_FLOAT32 };
    const xray_device_ops *ops = cuda_ops();
    elsewhere e = { 0 };
    pthread_t thread;
    emulate_devices(2, 90, 64u << 20);
    must(ops->create(&bench_host, &config, 0, &e.device));
    must(ops->alloc(e.device, "test", XRAY_TAG_WORKSPACE, 16, &e.block));
    must(ops->stream_create(e.device, &e.stream));
    must(ops->event_create(e.device, &e.event));
    assert_int_equal(pthread_create(&thread, NULL, work_elsewhere, &e), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    ops->event_destroy(e.device, e.event);
    ops->stream_destroy(e.device, e.stream);
    ops->destroy(e.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_thread_works_on_the_gpu_of_the_instance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
