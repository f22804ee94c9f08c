/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that an allocation of the cuda device that fails, whichever call of the
 * driver does, leaves neither memory nor addresses behind; page-locked memory,
 * which can be had in two ways; evicted copies of weights; and the sentences of
 * calls that lack an argument.
 */
#include "emulate_runtime.h"
#include "tests/cuda/products.h"

static uint64_t count_free(cuda_device *d)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    assert_int_equal(cuda_ops()->info(d, &info), XRAY_OK);
    return info.memory_free;
}

static void failed_allocations_leave_nothing(void **state)
{
    static const char *const calls[] = { "cuMemAddressReserve", "cuMemCreate",
                                         "cuMemMap", "cuMemSetAccess" };
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    const uint64_t addresses = emulate_addresses();
    const uint64_t memory = count_free(d);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        void *p = NULL;
        emulate_refuse(calls[i]);
        assert_int_equal(cuda_ops()->alloc(d, "test", XRAY_TAG_KV, 1 << 20, &p),
                         XRAY_E_NOMEM);
        emulate_refuse(NULL);
        assert_null(p);
        assert_int_equal(emulate_addresses(), addresses);
        assert_int_equal(count_free(d), memory);
        assert_int_equal(cuda_ops()->alloc(d, "test", XRAY_TAG_KV, 1 << 20, &p),
                         XRAY_OK);
        assert_int_equal(emulate_addresses(), addresses + (2 << 20));
        assert_int_equal(count_free(d), memory - (1 << 20));
        cuda_ops()->free(d, p);
        assert_int_equal(emulate_addresses(), addresses);
    }
    destroy_cuda(d);
}

/* The sentence names the owner, the request, the GPU, what is free of what it
 * has, and what the instance holds with each tag. */
static void a_refused_allocation_tells_what_is_held(void **state)
{
    static const char *const tags[XRAY_TAG_COUNT] = {
        "weights", "grads", "optimizer", "activations", "kv", "workspace",
    };
    const cuda_config config = { .index = 1, .precision = CUDA_FLOAT32 };
    void *d = NULL;
    void *p[XRAY_TAG_COUNT];
    (void)state;
    emulate_devices(2, 90, 1u << 30);
    must(cuda_ops()->create(&bench_host, &config, 1, &d));
    for (uint32_t t = 0; t < XRAY_TAG_COUNT; t++)
        must(cuda_ops()->alloc(d, "test", t, 1000 * (t + 1), &p[t]));
    for (uint32_t t = 0; t < XRAY_TAG_COUNT; t++) {
        char text[512];
        void *none = NULL;
        const char *owner = t % 2 ? "the actor" : "the critic";
        (void)snprintf(text, sizeof(text),
                       "alloc: %s: no device memory for %u bytes of %s; GPU 1 "
                       "has 1073720816 of 1073741824 bytes free, and this "
                       "instance holds weights 1000, grads 2000, optimizer "
                       "3000, activations 4000, kv 5000, workspace 6008",
                       owner, 0x80000000u + t, tags[t]);
        assert_int_equal(cuda_ops()->alloc(d, owner, t, 0x80000000u + t, &none),
                         XRAY_E_NOMEM);
        assert_string_equal(last_failure, text);
        assert_null(none);
    }
    cuda_ops()->destroy(d);
    emulate_devices(1, 90, 8ull << 30);
}

static xray_memory_stats read_stats(cuda_device *d)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    must(cuda_ops()->memory(d, &stats));
    return stats;
}

static void assert_zeroed(const unsigned char *p, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (p[i])
            fail_msg("byte %llu is %u", (unsigned long long)i, p[i]);
}

static void host_memory_is_counted_and_zeroed(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    unsigned char *p = NULL;
    void *q = NULL;
    xray_memory_stats before = read_stats(d);
    must(cuda_ops()->host_alloc(d, "test", 1000, (void **)&p));
    must(cuda_ops()->host_alloc(d, "test", 0, &q));
    assert_int_equal((uintptr_t)p % 64, 0);
    assert_zeroed(p, 1000);
    xray_memory_stats now = read_stats(d);
    assert_int_equal(now.host_live, 1000);
    assert_int_equal(now.high_all, before.high_all);
    cuda_ops()->host_free(d, p);
    cuda_ops()->host_free(d, NULL);
    assert_int_equal(read_stats(d).host_live, 0);
    assert_int_equal(read_stats(d).host_high, 1000);
    assert_int_equal(cuda_ops()->host_alloc(d, "test", 1, NULL), XRAY_E_ARG);
    destroy_cuda(d);
}

/* A large block of page-locked memory is mapped, or comes from cudaMallocHost
 * where it cannot be locked. */
static void large_host_blocks_are_locked(void **state)
{
    const uint64_t large = (64u << 20) + 100;
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    for (int refused = 0; refused < 2; refused++) {
        void *p = NULL;
        void *q = NULL;
        emulate_refuse(refused ? "cudaHostRegister" : NULL);
        assert_int_equal(cuda_ops()->host_alloc(d, "test", large, &p), XRAY_OK);
        assert_int_equal(cuda_ops()->host_alloc(d, "test", 100, &q), XRAY_OK);
        emulate_refuse(NULL);
        assert_int_equal(emulate_locked(), refused ? 0 : 66u << 20);
        assert_int_equal(read_stats(d).host_live, large + 100);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_zeroed(p, large);
        memset(p, 1, large);
        cuda_ops()->host_free(d, p);
        assert_int_equal(emulate_locked(), 0);
        assert_int_equal(read_stats(d).host_live, 100);
        cuda_ops()->host_free(d, q);
    }
    emulate_refuse("cudaMallocHost");
    void *p = NULL;
    assert_int_equal(cuda_ops()->host_alloc(d, "test", 100, &p), XRAY_E_NOMEM);
    emulate_refuse(NULL);
    assert_null(p);
    assert_int_equal(read_stats(d).host_live, 0);
    destroy_cuda(d);
}

/* An engine may run one between the eviction of a weight and its return. */
static void run_empty_graph(cuda_device *d)
{
    xray_stream *s = NULL;
    xray_graph *g = NULL;
    must(cuda_ops()->stream_create(d, &s));
    must(cuda_ops()->graph_begin(d, s));
    must(cuda_ops()->graph_end(d, s, &g));
    must(cuda_ops()->graph_launch(d, s, g));
    must(cuda_ops()->sync(d, s));
    cuda_ops()->graph_destroy(d, g);
    cuda_ops()->stream_destroy(d, s);
}

/* A copy of 1.2 MB gives its memory back. Until `weight_changed` brings it back
 * nothing writes to it, even if it is older than the weight, and products are
 * refused. */
static void evicted_copies_come_back(void **state)
{
    enum { N = 768 };
    float *data = random_floats((size_t)N * N, 1);
    float *x = random_floats(N, 1);
    float y[2][N];
    xray_weight *w = NULL;
    const xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                    .data = data,
                                    .rows = N,
                                    .cols = N,
                                    .dtype = XRAY_F32,
                                    .uses = XRAY_USE_NT };
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    must(cuda_ops()->weight_create(d, &desc, &w));
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { 1, NULL },
                       .x = x,
                       .y = y[0],
                       .x_stride = N,
                       .y_stride = N,
                       .kind = XRAY_NT };
    const uint64_t held = read_stats(d).live[XRAY_TAG_WEIGHTS];
    must(cuda_ops()->matmul(d, NULL, &op));
    const uint64_t memory = count_free(d);
    must(cuda_ops()->weight_changed(d, w));
    for (int i = 0; i < 2; i++) {
        must(cuda_ops()->weight_evict(d, w));
        assert_int_equal(read_stats(d).live[XRAY_TAG_WEIGHTS], 0);
        assert_true(count_free(d) >= memory + held);
    }
    run_empty_graph(d);
    op.y = y[1];
    assert_int_equal(cuda_ops()->matmul(d, NULL, &op), XRAY_E_STATE);
    assert_string_equal(last_failure,
                        "matmul: the weight was evicted; call weight_changed");
    for (int i = 0; i < 2; i++) {
        must(cuda_ops()->weight_changed(d, w));
        assert_int_equal(read_stats(d).live[XRAY_TAG_WEIGHTS], held);
        assert_int_equal(count_free(d), memory);
    }
    must(cuda_ops()->matmul(d, NULL, &op));
    assert_memory_equal(y[0], y[1], sizeof(y[0]));
    must(cuda_ops()->weight_evict(d, w));
    cuda_ops()->weight_destroy(d, w);
    destroy_cuda(d);
    free(data);
    free(x);
}

#define LACKS(call, text)                               \
    do {                                                \
        assert_int_equal(cuda_ops()->call, XRAY_E_ARG); \
        assert_string_equal(last_failure, text);        \
    } while (0)

static void what_a_call_lacks_is_named(void **state)
{
    const xray_checksum_rows checksum = {
        .header = XRAY_HEADER(xray_checksum_rows), .rows = 1, .bytes = 8
    };
    const xray_copy_rows copy = { .header = XRAY_HEADER(xray_copy_rows),
                                  .rows = 1,
                                  .bytes = 8,
                                  .kind = XRAY_COPY_ON_DEVICE };
    uint64_t sum = 0;
    (void)state;
    cuda_device *d = create_cuda(CUDA_FLOAT32);
    LACKS(info(d, NULL), "info: info is NULL");
    LACKS(alloc(d, "actor", XRAY_TAG_KV, 8, NULL), "alloc: actor: out is NULL");
    LACKS(host_alloc(d, "actor", 8, NULL), "host_alloc: actor: out is NULL");
    LACKS(memory(d, NULL), "memory: stats is NULL");
    LACKS(copy(d, NULL, NULL, &sum, 8, XRAY_COPY_TO_HOST),
          "copy: a pointer is NULL");
    LACKS(copy(d, NULL, &sum, NULL, 8, XRAY_COPY_TO_HOST),
          "copy: a pointer is NULL");
    LACKS(zero(d, NULL, NULL, 8), "zero: the pointer is NULL");
    LACKS(copy_rows(d, NULL, &copy), "copy_rows: a pointer is NULL");
    LACKS(checksum(d, &checksum, NULL), "checksum: a pointer is NULL");
    LACKS(checksum(d, &checksum, &sum), "checksum: a pointer is NULL");
    LACKS(stream_create(d, NULL), "stream_create: out is NULL");
    LACKS(event_create(d, NULL), "event_create: out is NULL");
    LACKS(event_record(d, NULL, NULL), "event_record: event is NULL");
    LACKS(event_wait(d, NULL, NULL), "event_wait: event is NULL");
    LACKS(event_query(d, NULL), "event_query: event is NULL");
    LACKS(event_sync(d, NULL), "event_sync: event is NULL");
    LACKS(graph_end(d, NULL, NULL), "graph_end: out is NULL");
    LACKS(graph_launch(d, NULL, NULL), "graph_launch: graph is NULL");
    LACKS(weight_changed(d, NULL), "weight_changed: weight is NULL");
    LACKS(weight_evict(d, NULL), "weight_evict: weight is NULL");
    LACKS(share(d, NULL, NULL), "share: a pointer is NULL");
    destroy_cuda(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_allocations_leave_nothing),
        cmocka_unit_test(a_refused_allocation_tells_what_is_held),
        cmocka_unit_test(host_memory_is_counted_and_zeroed),
        cmocka_unit_test(large_host_blocks_are_locked),
        cmocka_unit_test(evicted_copies_come_back),
        cmocka_unit_test(what_a_call_lacks_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
