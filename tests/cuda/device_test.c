/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda device as such: what create refuses, memory, streams and graphs, and
 * memory that processes share.
 */
#include "tests/testing.h"

#include <spawn.h>
#include <sys/wait.h>

#include <xray/cuda.h>
#include <xray/device.h>
#include <xray/plugin.h>

#include "emulate_runtime.h"
#include "plugins/device-cuda/config.h"

const xray_plugin *xray_plugin_query_device_cuda(uint32_t host_abi);
const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

#define MB ((uint64_t)1 << 20)

static char said[1024];

static xray_status on_fail(const xray_host *host, xray_status code,
                           const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(said, sizeof(said), "%s: %s", where, msg);
    return code;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = on_fail };

static const xray_device_ops *ops(void)
{
    return xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
}

static void must(xray_status status)
{
    if (status != XRAY_OK)
        fail_msg("%d: %s", status, said);
}

static void *open_device(void)
{
    const cuda_config config = { .precision = CUDA_FLOAT32 };
    void *d = NULL;
    emulate_devices(1, 90, 8192 * MB);
    must(ops()->create(&host, &config, 0, &d));
    return d;
}

static xray_memory_stats stats_of(void *d)
{
    xray_memory_stats s = { .header = XRAY_HEADER(xray_memory_stats) };
    must(ops()->memory(d, &s));
    return s;
}

/* ---- create -----------------------------------------------------------------
 */

static void refused(int64_t index, xray_status wanted, const char *text)
{
    const cuda_config config = { .index = index, .precision = CUDA_FLOAT32 };
    void *d = NULL;
    assert_int_equal(ops()->create(&host, &config, 0, &d), wanted);
    assert_null(d);
    if (!strstr(said, text))
        fail_msg("said: %s", said);
}

static void create_says_why_not(void **state)
{
    (void)state;
    emulate_devices(-1, 90, MB);
    refused(0, XRAY_E_DEVICE, "this machine has no NVIDIA driver");
    emulate_devices(0, 90, MB);
    refused(0, XRAY_E_DEVICE, "the NVIDIA driver shows no GPU");
    emulate_devices(2, 90, MB);
    refused(2, XRAY_E_CONFIG, "index = 2, but this process sees 2 GPUs");
    emulate_devices(1, 75, MB);
    refused(0, XRAY_E_DEVICE, "compute capability 7.5");
    emulate_devices(1, 90, 4);
    refused(0, XRAY_E_NOMEM, "GPU 0 has no memory left");
    emulate_devices(1, 80, 64 * MB); /* the least there may be */
    cuda_config odd = { .precision = CUDA_FLOAT32 };
    void *d = NULL;
    must(ops()->create(&host, &odd, 0, &d));
    ops()->destroy(d);
    d = NULL;
    for (int i = 0; i < 4; i++) {
        odd = (cuda_config){ .index = i == 0 ? -2 : 0,
                             .precision = i == 1   ? CUDA_FLOAT32 - 1
                                          : i == 2 ? CUDA_BFLOAT16 + 1
                                                   : CUDA_FLOAT32,
                             .products = i == 3 ? CUDA_PRODUCTS_CUBLASLT + 1
                                                : CUDA_PRODUCTS_OWN };
        assert_int_equal(ops()->create(&host, &odd, 0, &d), XRAY_E_CONFIG);
        assert_string_equal(said, "device cuda: index, precision or products "
                                  "has an unknown value");
    }
    assert_int_equal(ops()->create(&host, NULL, 0, NULL), XRAY_E_ARG);
    d = open_device();
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    must(ops()->info(d, &info));
    assert_string_equal(info.name, "emulated device, compute 9.0, 4 "
                                   "multiprocessors, float32");
    assert_int_equal(info.memory_bytes, 8192 * MB);
    assert_int_equal(info.host_memory, 0);
    assert_int_equal(info.features, XRAY_DEVICE_PARENTS);
    uint64_t before = info.memory_free;
    void *p = NULL;
    must(ops()->alloc(d, "test", XRAY_TAG_KV, 8 * MB, &p));
    must(ops()->info(d, &info));
    assert_int_equal(info.memory_free, before - 8 * MB);
    assert_null(ops()->extension(d, "no.such"));
    assert_null(ops()->extension(d, NULL));
    ops()->destroy(d);
}

static void ranks_take_turns(void **state)
{
    (void)state;
    static const struct {
        const char *rank;
        uint32_t index;
    } cases[] = { { NULL, 0 }, { "0", 0 }, { "1", 1 }, { "5", 2 }, { "x", 0 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const cuda_config config = { .index = -1, .precision = CUDA_FLOAT32 };
        void *d = NULL;
        emulate_devices(3, 90, 64 * MB);
        if (cases[i].rank)
            (void)setenv("XRAY_RANK", cases[i].rank, 1);
        else
            (void)unsetenv("XRAY_RANK");
        must(ops()->create(&host, &config, 0, &d));
        const xray_cuda_ops *more = ops()->extension(d, XRAY_EXT_CUDA);
        assert_int_equal(more->index(d), cases[i].index);
        ops()->destroy(d);
    }
    (void)unsetenv("XRAY_RANK");
}

static void plan_asks_no_device(void **state)
{
    (void)state;
    emulate_devices(-1, 90, 0);
    cuda_config config = { .memory = 77 };
    xray_device_plan plan = { .header = XRAY_HEADER(xray_device_plan) };
    must(ops()->plan(&host, &config, &plan));
    assert_int_equal(plan.memory_bytes, 77);
    assert_int_equal(plan.host_memory, 0);
    config.precision = 9;
    assert_int_equal(ops()->plan(&host, &config, &plan), XRAY_E_CONFIG);
}

/* ---- memory
 * ------------------------------------------------------------------- */

static void memory_is_counted_and_zeroed(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 0, 1, 100, MB - 1, MB, 3 * MB + 5 };
    void *d = open_device();
    uint64_t own = stats_of(d).live[XRAY_TAG_WORKSPACE];
    uint64_t sum = 0;
    char *p[6];
    for (int i = 0; i < 6; i++) {
        must(ops()->alloc(d, "test", XRAY_TAG_KV, sizes[i], (void **)&p[i]));
        sum += sizes[i];
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        for (uint64_t k = 0; k < sizes[i]; k++)
            assert_int_equal(p[i][k], 0);
        memset(p[i], 7, sizes[i]);
    }
    assert_int_equal(stats_of(d).live[XRAY_TAG_KV], sum);
    for (int i = 0; i < 6; i++)
        ops()->free(d, p[i]);
    ops()->free(d, NULL);
    assert_int_equal(stats_of(d).live[XRAY_TAG_KV], 0);
    assert_int_equal(stats_of(d).high[XRAY_TAG_KV], sum);
    assert_int_equal(stats_of(d).high_all, sum + own);
    void *q = NULL;
    assert_int_equal(
        ops()->alloc(d, "the kv cache", XRAY_TAG_KV, 9000 * MB, &q),
        XRAY_E_NOMEM);
    assert_non_null(strstr(said, "the kv cache: no device memory for "
                                 "9437184000 bytes of kv; GPU 0 has"));
    assert_int_equal(ops()->alloc(d, "x", 99, 1, &q), XRAY_E_ARG);
    ops()->destroy(d);
}

static void evicted_memory_keeps_its_address(void **state)
{
    (void)state;
    void *d = open_device();
    emulate_devices(1, 90, 32 * MB);
    char *p = NULL;
    char *q = NULL;
    uint64_t n = 20 * MB; /* twice is more than there is */
    must(ops()->alloc(d, "a", XRAY_TAG_OPTIMIZER, n, (void **)&p));
    p[0] = 1;
    p[n - 1] = 2;
    must(ops()->evict(d, p));
    must(ops()->evict(d, p));
    assert_int_equal(stats_of(d).live[XRAY_TAG_OPTIMIZER], 0);
    must(ops()->alloc(d, "b", XRAY_TAG_KV, n, (void **)&q));
    assert_int_equal(ops()->restore(d, p), XRAY_E_NOMEM);
    assert_non_null(strstr(said, "restore: no device memory for"));
    must(ops()->evict(d, q));
    must(ops()->restore(d, p));
    assert_int_equal(stats_of(d).live[XRAY_TAG_OPTIMIZER], n);
    assert_int_equal(p[0], 0);
    assert_int_equal(p[n - 1], 0);
    ops()->free(d, q);
    assert_int_equal(ops()->evict(d, p + 1), XRAY_E_ARG);
    assert_int_equal(ops()->restore(d, p + 1), XRAY_E_ARG);
    assert_int_equal(ops()->evict(d, NULL), XRAY_E_ARG);
    /* A small one, which keeps its memory, comes back as empty; one that is
     * away can be freed, and is not counted twice. */
    must(ops()->alloc(d, "c", XRAY_TAG_KV, 100, (void **)&q));
    uint64_t kv = stats_of(d).live[XRAY_TAG_KV];
    memset(q, 7, 100);
    must(ops()->evict(d, q));
    assert_int_equal(stats_of(d).live[XRAY_TAG_KV], kv - 100);
    must(ops()->restore(d, q));
    assert_int_equal(stats_of(d).live[XRAY_TAG_KV], kv);
    for (int i = 0; i < 100; i++)
        assert_int_equal(q[i], 0);
    must(ops()->evict(d, q));
    ops()->free(d, q);
    assert_int_equal(stats_of(d).live[XRAY_TAG_KV], kv - 100);
    assert_int_equal(
        ops()->alloc(d, "all", XRAY_TAG_KV, UINT64_MAX, (void **)&q),
        XRAY_E_NOMEM);
    ops()->destroy(d);
}

static void checksums_are_the_cpu_s(void **state)
{
    (void)state;
    const xray_device_ops *cpu =
        xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
    void *d = open_device();
    char *p = NULL;
    uint64_t n = 70000;
    must(ops()->alloc(d, "test", XRAY_TAG_KV, n, (void **)&p));
    for (uint64_t i = 0; i < n; i++)
        p[i] = (char)(i * 37 >> 3);
    for (uint64_t at = 0; at < 10; at++) {
        for (uint64_t bytes = at; bytes < n - at; bytes += 6997) {
            uint64_t a = 1;
            uint64_t b = 2;
            must(ops()->checksum(d, p + at, bytes, &a));
            must(cpu->checksum(NULL, p + at, bytes, &b));
            assert_int_equal(a, b);
        }
    }
    ops()->destroy(d);
}

/* ---- streams, graphs
 * ------------------------------------------------------------- */

static void graphs_replay(void **state)
{
    (void)state;
    void *d = open_device();
    xray_stream *s = NULL;
    xray_event *e = NULL;
    xray_graph *g = NULL;
    float *x = NULL;
    const float ones[8] = { 1, 1, 1, 1, 1, 1, 1, 1 };
    float back[8] = { 0 };
    must(ops()->alloc(d, "x", XRAY_TAG_KV, 64, (void **)&x));
    must(ops()->stream_create(d, &s));
    must(ops()->event_create(d, &e));
    must(ops()->copy(d, s, x, ones, 32, XRAY_COPY_TO_DEVICE));
    must(ops()->graph_begin(d, s));
    xray_axpby op = { .header = XRAY_HEADER(xray_axpby),
                      .count = 8,
                      .x = x,
                      .y = x,
                      .alpha = 1.0f,
                      .beta = 1.0f };
    must(ops()->axpby(d, s, &op));
    op.y = NULL; /* a recorded call has its arguments by value */
    assert_int_equal(ops()->graph_begin(d, s), XRAY_E_STATE);
    void *none = NULL;
    assert_int_equal(ops()->alloc(d, "x", XRAY_TAG_KV, 64, &none),
                     XRAY_E_STATE);
    must(ops()->graph_end(d, s, &g));
    assert_int_equal(ops()->graph_end(d, s, &g), XRAY_E_STATE);
    for (int i = 0; i < 3; i++)
        must(ops()->graph_launch(d, s, g));
    must(ops()->event_record(d, s, e));
    must(ops()->event_wait(d, NULL, e));
    must(ops()->copy(d, NULL, back, x, 32, XRAY_COPY_TO_HOST));
    must(ops()->sync(d, NULL));
    assert_true(back[0] == 8.0f && back[7] == 8.0f);
    must(ops()->zero(d, s, x, 4));
    must(ops()->sync(d, s));
    assert_true(x[0] == 0.0f && x[1] == 8.0f);
    assert_int_equal(ops()->copy(d, s, x, back, 4, XRAY_COPY_ON_DEVICE + 1),
                     XRAY_E_ARG);
    assert_int_equal(ops()->copy(d, s, x, back, 4, 0), XRAY_E_ARG);
    assert_int_equal(ops()->copy(d, s, NULL, back, 4, XRAY_COPY_TO_DEVICE),
                     XRAY_E_ARG);
    must(ops()->copy(d, s, NULL, NULL, 0, XRAY_COPY_TO_DEVICE));
    assert_int_equal(ops()->zero(d, s, NULL, 4), XRAY_E_ARG);
    must(ops()->zero(d, s, NULL, 0));
    assert_int_equal(ops()->event_record(d, s, NULL), XRAY_E_ARG);
    assert_int_equal(ops()->event_wait(d, s, NULL), XRAY_E_ARG);
    assert_int_equal(ops()->graph_launch(d, s, NULL), XRAY_E_ARG);
    assert_int_equal(ops()->stream_create(d, NULL), XRAY_E_ARG);
    assert_int_equal(ops()->event_create(d, NULL), XRAY_E_ARG);
    assert_int_equal(ops()->graph_end(d, s, NULL), XRAY_E_ARG);
    const xray_cuda_ops *more = ops()->extension(d, XRAY_EXT_CUDA);
    assert_non_null(more);
    assert_int_equal(more->index(d), 0);
    assert_ptr_equal(more->stream(d, s), s);
    assert_non_null(more->stream(d, NULL));
    ops()->graph_destroy(d, g);
    ops()->event_destroy(d, e);
    ops()->stream_destroy(d, s);
    ops()->destroy(d);
}

/* ---- shared memory
 * ----------------------------------------------------------------- */

typedef struct channel {
    int to[2];
    int from[2];
} channel;

static void put(int fd, const void *data, size_t bytes)
{
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
}

static void take(int fd, void *data, size_t bytes)
{
    assert_int_equal(read(fd, data, bytes), (ssize_t)bytes);
}

#define CHILD_IN 0
#define CHILD_OUT 3

/* This program once more, as another process. */
static pid_t spawn_child(const channel *c)
{
    static char name[] = "child";
    char *const args[] = { name, name, NULL };
    extern char **environ;
    posix_spawn_file_actions_t files;
    pid_t child = 0;
    assert_int_equal(posix_spawn_file_actions_init(&files), 0);
    posix_spawn_file_actions_adddup2(&files, c->to[0], CHILD_IN);
    posix_spawn_file_actions_adddup2(&files, c->from[1], CHILD_OUT);
    assert_int_equal(
        posix_spawn(&child, "/proc/self/exe", &files, NULL, args, environ), 0);
    posix_spawn_file_actions_destroy(&files);
    return child;
}

/* The other process: attaches, reads, writes, and says how it went. */
static int child_main(void)
{
    const cuda_config config = { .precision = CUDA_FLOAT32 };
    uint8_t handle[XRAY_HANDLE_BYTES];
    void *d = NULL;
    int *p = NULL;
    int *again = NULL;
    int32_t results[6] = { 0 };
    if (ops()->create(&host, &config, 0, &d) != XRAY_OK ||
        read(CHILD_IN, handle, sizeof(handle)) != (ssize_t)sizeof(handle))
        return 1;
    results[0] = ops()->attach(d, handle, 4000, (void **)&p);
    if (results[0] != XRAY_OK)
        (void)fprintf(stderr, "%s\n", said);
    results[1] = ops()->attach(d, handle, 4000, (void **)&again);
    results[2] = p && p == again ? p[1] : -1;
    results[3] = ops()->attach(d, handle, 1 << 20, (void **)&again);
    if (p)
        p[2] = 99;
    if (write(CHILD_OUT, results, sizeof(results)) < 0 ||
        read(CHILD_IN, handle, 1) != 1)
        return 1;
    /* The block is gone there, but stays mapped here. */
    results[4] = ops()->attach(d, handle, 4000, (void **)&again);
    results[5] = p ? p[2] : -1;
    ops()->detach(d, p);
    ops()->detach(d, p);
    ops()->detach(d, NULL);
    ops()->destroy(d);
    return write(CHILD_OUT, results, sizeof(results)) < 0;
}

static void processes_share(void **state)
{
    (void)state;
    channel c;
    uint8_t handle[XRAY_HANDLE_BYTES];
    int32_t results[6];
    int status = 0;
    int *p = NULL;
    int *own = NULL;
    assert_int_equal(pipe(c.to) | pipe(c.from), 0);
    pid_t child = spawn_child(&c);
    void *d = open_device();
    must(ops()->alloc(d, "early", XRAY_TAG_WORKSPACE, 4096, (void **)&p));
    assert_int_equal(ops()->share(d, p, handle), XRAY_E_ARG);
    must(ops()->shareable(d, 1));
    must(ops()->alloc(d, "late", XRAY_TAG_WORKSPACE, 4096, (void **)&p));
    p[0] = 41;
    p[25] = 42;
    must(ops()->share(d, p + 24, handle));
    must(ops()->attach(d, handle, 8, (void **)&own));
    assert_ptr_equal(own, p + 24);
    assert_int_equal(ops()->attach(d, handle, 4096 - 96, (void **)&own),
                     XRAY_OK);
    assert_int_equal(ops()->attach(d, handle, 4096 - 95, (void **)&own),
                     XRAY_E_RANGE);
    assert_string_equal(
        said, "attach: 4001 bytes were requested, but the handle has 4000");
    uint8_t wrong[XRAY_HANDLE_BYTES] = { 0 };
    assert_int_equal(ops()->attach(d, wrong, 8, (void **)&own), XRAY_E_ARG);
    assert_int_equal(ops()->share(d, NULL, handle), XRAY_E_ARG);
    /* Others may have it mapped: it stays, and stays counted. */
    uint64_t held = stats_of(d).live[XRAY_TAG_WORKSPACE];
    must(ops()->evict(d, p));
    assert_int_equal(stats_of(d).live[XRAY_TAG_WORKSPACE], held);
    assert_int_equal(p[25], 42);
    int *away = NULL;
    uint8_t other[XRAY_HANDLE_BYTES];
    must(ops()->alloc(d, "away", XRAY_TAG_KV, 4096, (void **)&away));
    must(ops()->evict(d, away));
    assert_int_equal(ops()->share(d, away, other), XRAY_E_STATE);
    must(ops()->restore(d, away));
    must(ops()->share(d, away, other));
    assert_int_equal(ops()->share(d, away + 1024, other), XRAY_E_ARG);
    must(ops()->shareable(d, 0));
    must(ops()->alloc(d, "own", XRAY_TAG_KV, 4096, (void **)&away));
    assert_int_equal(ops()->share(d, away, other), XRAY_E_ARG);
    put(c.to[1], handle, sizeof(handle));
    take(c.from[0], results, sizeof(results));
    if (results[0] == XRAY_E_PEER) {
        print_message("skipped: this system forbids pidfd_getfd\n");
    } else {
        assert_int_equal(results[0], XRAY_OK);
        assert_int_equal(results[1], XRAY_OK);
        assert_int_equal(results[2], 42);
        assert_int_equal(results[3], XRAY_E_RANGE);
        assert_int_equal(p[26], 99);
    }
    ops()->free(d, p);
    put(c.to[1], handle, 1);
    take(c.from[0], results, sizeof(results));
    if (results[0] == XRAY_OK) {
        assert_int_equal(results[4], XRAY_E_ARG);
        assert_int_equal(results[5], 99);
    }
    assert_int_equal(ops()->attach(d, handle, 8, (void **)&own), XRAY_E_ARG);
    assert_non_null(strstr(said, "stale"));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    ops()->destroy(d);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return child_main();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_share),
        cmocka_unit_test(create_says_why_not),
        cmocka_unit_test(ranks_take_turns),
        cmocka_unit_test(plan_asks_no_device),
        cmocka_unit_test(memory_is_counted_and_zeroed),
        cmocka_unit_test(evicted_memory_keeps_its_address),
        cmocka_unit_test(checksums_are_the_cpu_s),
        cmocka_unit_test(graphs_replay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
