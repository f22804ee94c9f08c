/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the cuda device apart from its operators: the errors of create,
 * memory, streams and graphs, and memory that processes share.
 */
#include "tests/growth.h"

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

static xray_status keep_failure(const xray_host *host, xray_status code,
                                const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(said, sizeof(said), "%s: %s", where, msg);
    return code;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = keep_failure };

static const xray_device_ops *device_calls(void)
{
    return xray_plugin_query_device_cuda(XRAY_ABI)->components[0]->ops;
}

static void require_ok(xray_status status)
{
    if (status != XRAY_OK)
        fail_msg("%d: %s", status, said);
}

static void *open_device(void)
{
    const cuda_config config = { .precision = CUDA_FLOAT32 };
    void *d = NULL;
    emulate_devices(1, 90, 8192 * MB);
    require_ok(device_calls()->create(&host, &config, 0, &d));
    return d;
}

static xray_memory_stats read_stats(void *d)
{
    xray_memory_stats s = { .header = XRAY_HEADER(xray_memory_stats) };
    require_ok(device_calls()->memory(d, &s));
    return s;
}

/* ---- create -------------------------------------------------------------- */

static void assert_create_refused(int64_t index, xray_status wanted,
                                  const char *text)
{
    const cuda_config config = { .index = index, .precision = CUDA_FLOAT32 };
    void *d = NULL;
    assert_int_equal(device_calls()->create(&host, &config, 0, &d), wanted);
    assert_null(d);
    if (!strstr(said, text))
        fail_msg("said: %s", said);
}

static void create_explains_its_failure(void **state)
{
    (void)state;
    emulate_devices(-1, 90, MB);
    assert_create_refused(0, XRAY_E_DEVICE,
                          "this machine has no NVIDIA driver");
    emulate_devices(0, 90, MB);
    assert_create_refused(0, XRAY_E_DEVICE, "the NVIDIA driver shows no GPU");
    emulate_devices(2, 90, MB);
    assert_create_refused(2, XRAY_E_CONFIG,
                          "index = 2, but this process sees 2 GPUs");
    emulate_devices(1, 75, MB);
    assert_create_refused(0, XRAY_E_DEVICE, "compute capability 7.5");
    emulate_devices(1, 90, 4);
    assert_create_refused(0, XRAY_E_NOMEM, "GPU 0 has no memory left");
    emulate_devices(1, 80, 64 * MB); /* the least capability that is accepted */
    cuda_config odd = { .precision = CUDA_FLOAT32 };
    void *d = NULL;
    require_ok(device_calls()->create(&host, &odd, 0, &d));
    device_calls()->destroy(d);
    d = NULL;
    for (int i = 0; i < 4; i++) {
        odd = (cuda_config){ .index = i == 0 ? -2 : 0,
                             .precision = i == 1   ? CUDA_FLOAT32 - 1
                                          : i == 2 ? CUDA_BFLOAT16 + 1
                                                   : CUDA_FLOAT32,
                             .products = i == 3 ? CUDA_PRODUCTS_CUBLASLT + 1
                                                : CUDA_PRODUCTS_OWN };
        assert_int_equal(device_calls()->create(&host, &odd, 0, &d),
                         XRAY_E_CONFIG);
        assert_string_equal(said, "device cuda: index, precision or products "
                                  "has an unknown value");
    }
    assert_int_equal(device_calls()->create(&host, NULL, 0, NULL), XRAY_E_ARG);
    d = open_device();
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    require_ok(device_calls()->info(d, &info));
    assert_string_equal(info.name, "emulated device, compute 9.0, 4 "
                                   "multiprocessors, float32");
    assert_int_equal(info.memory_bytes, 8192 * MB);
    assert_int_equal(info.host_memory, 0);
    assert_int_equal(info.features, XRAY_DEVICE_PARENTS);
    uint64_t before = info.memory_free;
    void *p = NULL;
    require_ok(device_calls()->alloc(d, "test", XRAY_TAG_KV, 8 * MB, &p));
    require_ok(device_calls()->info(d, &info));
    assert_int_equal(info.memory_free, before - 8 * MB);
    assert_null(device_calls()->extension(d, "no.such"));
    assert_null(device_calls()->extension(d, NULL));
    device_calls()->destroy(d);
}

static void ranks_are_spread_over_gpus(void **state)
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
        require_ok(device_calls()->create(&host, &config, 0, &d));
        const xray_cuda_ops *more = device_calls()->extension(d, XRAY_EXT_CUDA);
        assert_int_equal(more->index(d), cases[i].index);
        device_calls()->destroy(d);
    }
    (void)unsetenv("XRAY_RANK");
}

/* A graph holds addresses of scratch memory, which larger work moves. */
static void stale_graphs_are_refused(void **state)
{
    (void)state;
    void *d = open_device();
    xray_stream *s = NULL;
    xray_graph *g = NULL;
    float *x = NULL;
    uint64_t *sums = NULL;
    require_ok(device_calls()->alloc(d, "x", XRAY_TAG_KV, 100000, (void **)&x));
    require_ok(device_calls()->alloc(d, "x", XRAY_TAG_KV, 256, (void **)&sums));
    require_ok(device_calls()->stream_create(d, &s));
    xray_sumsq op = {
        .header = XRAY_HEADER(xray_sumsq), .count = 8, .x = x, .result = sums
    };
    require_ok(device_calls()->sumsq(d, s, &op));
    require_ok(device_calls()->graph_begin(d, s));
    require_ok(device_calls()->sumsq(d, s, &op));
    require_ok(device_calls()->graph_end(d, s, &g));
    require_ok(device_calls()->graph_launch(d, s, g));
    require_ok(device_calls()->sync(d, s));
    op.count = 100000 / sizeof(*x);
    require_ok(device_calls()->sumsq(d, s, &op));
    require_ok(device_calls()->graph_launch(d, s, g));
    xray_device_work more = { .header = XRAY_HEADER(xray_device_work),
                              .tokens = 1u << 20,
                              .passes = XRAY_PASS_GRADS };
    require_ok(device_calls()->reserve(d, &more, 1, sizeof(more)));
    assert_int_equal(device_calls()->graph_launch(d, s, g), XRAY_E_STATE);
    assert_string_equal(said, "graph_launch: the scratch memory has moved "
                              "since the graph was recorded; record it again");
    device_calls()->graph_destroy(d, g);
    require_ok(device_calls()->graph_begin(d, s));
    require_ok(device_calls()->sumsq(d, s, &op));
    require_ok(device_calls()->graph_end(d, s, &g));
    require_ok(device_calls()->graph_launch(d, s, g));
    device_calls()->graph_destroy(d, g);
    device_calls()->stream_destroy(d, s);
    device_calls()->destroy(d);
}

static void events_tell_when_work_is_done(void **state)
{
    (void)state;
    void *d = open_device();
    xray_event *e = NULL;
    require_ok(device_calls()->event_create(d, &e));
    require_ok(device_calls()->event_query(d, e));
    require_ok(device_calls()->event_record(d, NULL, e));
    emulate_hold(1);
    assert_int_equal(device_calls()->event_query(d, e), XRAY_AGAIN);
    emulate_hold(0);
    require_ok(device_calls()->event_query(d, e));
    require_ok(device_calls()->event_sync(d, e));
    device_calls()->event_destroy(d, e);
    device_calls()->destroy(d);
}

static void plans_need_no_device(void **state)
{
    (void)state;
    emulate_devices(-1, 90, 0);
    cuda_config config = { .memory = 77, .precision = CUDA_BFLOAT16 };
    xray_device_plan plan = { .header = XRAY_HEADER(xray_device_plan) };
    require_ok(device_calls()->plan(&host, &config, &plan));
    assert_int_equal(plan.memory_bytes, 77);
    assert_int_equal(plan.host_memory, 0);
    EXPECT_FILLED_IN_REACH(xray_device_plan, plan, memory_bytes,
                           device_calls()->plan(&host, &config, &plan));
    assert_string_equal(plan.numerics, XRAY_NUMERICS_CUDA_BF16);
    require_ok(device_calls()->plan(&host, NULL, &plan)); /* all defaults */
    assert_int_equal(plan.memory_bytes, 0);
    assert_string_equal(plan.numerics, XRAY_NUMERICS_CUDA_BF16);
    config.precision = CUDA_FLOAT32;
    require_ok(device_calls()->plan(&host, &config, &plan));
    assert_null(plan.numerics);
    /* Products of bfloat16 alone can be cuBLASLt's, with room for it. */
    config.products = CUDA_PRODUCTS_CUBLASLT;
    assert_int_equal(device_calls()->plan_scratch(&config, 1, NULL, 0, 0), 0);
    config.precision = CUDA_BFLOAT16;
    assert_int_equal(device_calls()->plan_scratch(&config, 1, NULL, 0, 0),
                     32 * MB);
    config.precision = 9;
    assert_int_equal(device_calls()->plan(&host, &config, &plan),
                     XRAY_E_CONFIG);
}

/* ---- memory -------------------------------------------------------------- */

static void memory_is_counted_and_zeroed(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 0, 1, 100, MB - 1, MB, 3 * MB + 5 };
    void *d = open_device();
    uint64_t own = read_stats(d).live[XRAY_TAG_WORKSPACE];
    uint64_t sum = 0;
    char *p[6];
    for (int i = 0; i < 6; i++) {
        require_ok(device_calls()->alloc(d, "test", XRAY_TAG_KV, sizes[i],
                                         (void **)&p[i]));
        sum += sizes[i];
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        for (uint64_t k = 0; k < sizes[i]; k++)
            assert_int_equal(p[i][k], 0);
        memset(p[i], 7, sizes[i]);
    }
    assert_int_equal(read_stats(d).live[XRAY_TAG_KV], sum);
    for (int i = 0; i < 6; i++)
        device_calls()->free(d, p[i]);
    device_calls()->free(d, NULL);
    assert_int_equal(read_stats(d).live[XRAY_TAG_KV], 0);
    assert_int_equal(read_stats(d).high[XRAY_TAG_KV], sum);
    assert_int_equal(read_stats(d).high_all, sum + own);
    void *q = NULL;
    assert_int_equal(
        device_calls()->alloc(d, "the kv cache", XRAY_TAG_KV, 9000 * MB, &q),
        XRAY_E_NOMEM);
    assert_non_null(strstr(said, "the kv cache: no device memory for "
                                 "9437184000 bytes of kv; GPU 0 has"));
    assert_int_equal(device_calls()->alloc(d, "x", 99, 1, &q), XRAY_E_ARG);
    device_calls()->destroy(d);
}

static void evicted_memory_keeps_its_address(void **state)
{
    (void)state;
    void *d = open_device();
    emulate_devices(1, 90, 32 * MB);
    char *p = NULL;
    char *q = NULL;
    uint64_t n = 20 * MB; /* twice as much does not fit the device */
    require_ok(
        device_calls()->alloc(d, "a", XRAY_TAG_OPTIMIZER, n, (void **)&p));
    p[0] = 1;
    p[n - 1] = 2;
    require_ok(device_calls()->evict(d, p));
    require_ok(device_calls()->evict(d, p));
    assert_int_equal(read_stats(d).live[XRAY_TAG_OPTIMIZER], 0);
    require_ok(device_calls()->alloc(d, "b", XRAY_TAG_KV, n, (void **)&q));
    assert_int_equal(device_calls()->restore(d, p), XRAY_E_NOMEM);
    assert_non_null(strstr(said, "restore: no device memory for 20971520 "
                                 "bytes of optimizer;"));
    require_ok(device_calls()->evict(d, q));
    require_ok(device_calls()->restore(d, p));
    assert_int_equal(read_stats(d).live[XRAY_TAG_OPTIMIZER], n);
    assert_int_equal(p[0], 0);
    assert_int_equal(p[n - 1], 0);
    device_calls()->free(d, q);
    assert_int_equal(device_calls()->evict(d, p + 1), XRAY_E_ARG);
    assert_int_equal(device_calls()->restore(d, p + 1), XRAY_E_ARG);
    assert_int_equal(device_calls()->evict(d, NULL), XRAY_E_ARG);
    /* A small block, which keeps its memory, is zeroed when it is restored. An
     * evicted block can be freed and is not uncounted twice. */
    require_ok(device_calls()->alloc(d, "c", XRAY_TAG_KV, 100, (void **)&q));
    uint64_t kv = read_stats(d).live[XRAY_TAG_KV];
    memset(q, 7, 100);
    require_ok(device_calls()->evict(d, q));
    assert_int_equal(read_stats(d).live[XRAY_TAG_KV], kv - 100);
    require_ok(device_calls()->restore(d, q));
    assert_int_equal(read_stats(d).live[XRAY_TAG_KV], kv);
    for (int i = 0; i < 100; i++)
        assert_int_equal(q[i], 0);
    require_ok(device_calls()->evict(d, q));
    device_calls()->free(d, q);
    assert_int_equal(read_stats(d).live[XRAY_TAG_KV], kv - 100);
    assert_int_equal(
        device_calls()->alloc(d, "all", XRAY_TAG_KV, UINT64_MAX, (void **)&q),
        XRAY_E_NOMEM);
    device_calls()->destroy(d);
}

static void checksums_equal_those_of_the_cpu(void **state)
{
    (void)state;
    const xray_device_ops *cpu =
        xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
    void *d = open_device();
    char *p = NULL;
    uint64_t n = 70000;
    require_ok(device_calls()->alloc(d, "test", XRAY_TAG_KV, n, (void **)&p));
    for (uint64_t i = 0; i < n; i++)
        p[i] = (char)(i * 37 >> 3);
    for (uint64_t at = 0; at < 10; at++) {
        for (uint64_t bytes = at; bytes < n - at - 500; bytes += 6997) {
            uint64_t a = 1;
            uint64_t b = 2;
            xray_checksum_rows rows = { .header =
                                            XRAY_HEADER(xray_checksum_rows),
                                        .data = p + at,
                                        .rows = 1,
                                        .bytes = bytes };
            require_ok(device_calls()->checksum(d, &rows, &a));
            require_ok(cpu->checksum(NULL, &rows, &b));
            assert_int_equal(a, b);
            rows.at = 3 * at; /* the same bytes elsewhere, and cut into rows */
            rows.rows = 1 + bytes / 500;
            rows.bytes = rows.rows > 1 ? 490 + at : bytes;
            rows.pitch = 500;
            rows.at_pitch = 523;
            require_ok(device_calls()->checksum(d, &rows, &a));
            require_ok(cpu->checksum(NULL, &rows, &b));
            assert_int_equal(a, b);
        }
    }
    device_calls()->destroy(d);
}

/* ---- streams, graphs ----------------------------------------------------- */

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
    require_ok(device_calls()->alloc(d, "x", XRAY_TAG_KV, 64, (void **)&x));
    require_ok(device_calls()->stream_create(d, &s));
    require_ok(device_calls()->event_create(d, &e));
    require_ok(device_calls()->copy(d, s, x, ones, 32, XRAY_COPY_TO_DEVICE));
    require_ok(device_calls()->graph_begin(d, s));
    xray_axpby op = { .header = XRAY_HEADER(xray_axpby),
                      .count = 8,
                      .x = x,
                      .y = x,
                      .alpha = 1.0f,
                      .beta = 1.0f };
    require_ok(device_calls()->axpby(d, s, &op));
    op.y = NULL; /* a captured call holds its arguments by value */
    assert_int_equal(device_calls()->graph_begin(d, s), XRAY_E_STATE);
    void *none = NULL;
    assert_int_equal(device_calls()->alloc(d, "x", XRAY_TAG_KV, 64, &none),
                     XRAY_E_STATE);
    require_ok(device_calls()->graph_end(d, s, &g));
    assert_int_equal(device_calls()->graph_end(d, s, &g), XRAY_E_STATE);
    for (int i = 0; i < 3; i++)
        require_ok(device_calls()->graph_launch(d, s, g));
    require_ok(device_calls()->event_record(d, s, e));
    require_ok(device_calls()->event_wait(d, NULL, e));
    require_ok(device_calls()->copy(d, NULL, back, x, 32, XRAY_COPY_TO_HOST));
    require_ok(device_calls()->sync(d, NULL));
    assert_true(back[0] == 8.0f && back[7] == 8.0f);
    require_ok(device_calls()->zero(d, s, x, 4));
    require_ok(device_calls()->sync(d, s));
    assert_true(x[0] == 0.0f && x[1] == 8.0f);
    assert_int_equal(
        device_calls()->copy(d, s, x, back, 4, XRAY_COPY_ON_DEVICE + 1),
        XRAY_E_ARG);
    assert_int_equal(device_calls()->copy(d, s, x, back, 4, 0), XRAY_E_ARG);
    assert_int_equal(
        device_calls()->copy(d, s, NULL, back, 4, XRAY_COPY_TO_DEVICE),
        XRAY_E_ARG);
    require_ok(device_calls()->copy(d, s, NULL, NULL, 0, XRAY_COPY_TO_DEVICE));
    assert_int_equal(device_calls()->zero(d, s, NULL, 4), XRAY_E_ARG);
    require_ok(device_calls()->zero(d, s, NULL, 0));
    const xray_cuda_ops *more = device_calls()->extension(d, XRAY_EXT_CUDA);
    assert_non_null(more);
    assert_int_equal(more->index(d), 0);
    assert_ptr_equal(more->stream(d, s), s);
    assert_non_null(more->stream(d, NULL));
    device_calls()->graph_destroy(d, g);
    device_calls()->graph_destroy(d, NULL);
    device_calls()->event_destroy(d, e);
    device_calls()->event_destroy(d, NULL);
    device_calls()->stream_destroy(d, s);
    device_calls()->stream_destroy(d, NULL); /* not the instance's own */
    require_ok(device_calls()->zero(d, NULL, x, 64));
    require_ok(device_calls()->sync(d, NULL));
    device_calls()->destroy(d);
}

/* ---- shared memory ------------------------------------------------------- */

typedef struct channel {
    int to[2];
    int from[2];
} channel;

static void write_all(int fd, const void *data, size_t bytes)
{
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
}

static void read_all(int fd, void *data, size_t bytes)
{
    assert_int_equal(read(fd, data, bytes), (ssize_t)bytes);
}

#define CHILD_IN 0
#define CHILD_OUT 3

/* Starts this program again as another process. */
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

/* The other process: it attaches, reads, writes, and reports the results. */
static int run_child(void)
{
    const cuda_config config = { .precision = CUDA_FLOAT32 };
    uint8_t handle[XRAY_HANDLE_BYTES];
    void *d = NULL;
    int *p = NULL;
    int *again = NULL;
    int32_t results[7] = { 0 };
    if (device_calls()->create(&host, &config, 0, &d) != XRAY_OK ||
        read(CHILD_IN, handle, sizeof(handle)) != (ssize_t)sizeof(handle))
        return 1;
    const uint64_t addresses = emulate_addresses();
    results[0] = device_calls()->attach(d, handle, 4000, (void **)&p);
    if (results[0] != XRAY_OK)
        (void)fprintf(stderr, "%s\n", said);
    results[1] = device_calls()->attach(d, handle, 4000, (void **)&again);
    results[2] = p && p == again ? p[1] : -1;
    results[3] = device_calls()->attach(d, handle, 1 << 20, (void **)&again);
    if (p)
        p[2] = 99;
    if (write(CHILD_OUT, results, sizeof(results)) < 0 ||
        read(CHILD_IN, handle, 1) != 1)
        return 1;
    /* The other process has freed the block, but it stays mapped here. */
    results[4] = device_calls()->attach(d, handle, 4000, (void **)&again);
    results[5] = p ? p[2] : -1;
    device_calls()->detach(d, p);
    device_calls()->detach(d, p);
    device_calls()->detach(d, NULL);
    results[6] = emulate_addresses() == addresses;
    device_calls()->destroy(d);
    return write(CHILD_OUT, results, sizeof(results)) < 0;
}

static void processes_share_blocks(void **state)
{
    (void)state;
    channel c;
    uint8_t handle[XRAY_HANDLE_BYTES];
    int32_t results[7];
    int status = 0;
    int *p = NULL;
    int *own = NULL;
    assert_int_equal(pipe(c.to) | pipe(c.from), 0);
    pid_t child = spawn_child(&c);
    void *d = open_device();
    require_ok(device_calls()->alloc(d, "early", XRAY_TAG_WORKSPACE, 4096,
                                     (void **)&p));
    assert_int_equal(device_calls()->share(d, p, handle), XRAY_E_ARG);
    require_ok(device_calls()->shareable(d, 1));
    require_ok(device_calls()->alloc(d, "late", XRAY_TAG_WORKSPACE, 4096,
                                     (void **)&p));
    p[0] = 41;
    p[25] = 42;
    require_ok(device_calls()->share(d, p + 24, handle));
    require_ok(device_calls()->attach(d, handle, 8, (void **)&own));
    assert_ptr_equal(own, p + 24);
    assert_int_equal(
        device_calls()->attach(d, handle, 4096 - 96, (void **)&own), XRAY_OK);
    assert_int_equal(
        device_calls()->attach(d, handle, 4096 - 95, (void **)&own),
        XRAY_E_RANGE);
    assert_string_equal(
        said, "attach: 4001 bytes were requested, but the handle has 4000");
    uint8_t wrong[XRAY_HANDLE_BYTES] = { 0 };
    assert_int_equal(device_calls()->attach(d, wrong, 8, (void **)&own),
                     XRAY_E_ARG);
    assert_int_equal(device_calls()->share(d, NULL, handle), XRAY_E_ARG);
    /* Others may have the block mapped, so it stays and stays counted. */
    uint64_t held = read_stats(d).live[XRAY_TAG_WORKSPACE];
    require_ok(device_calls()->evict(d, p));
    assert_int_equal(read_stats(d).live[XRAY_TAG_WORKSPACE], held);
    assert_int_equal(p[25], 42);
    int *away = NULL;
    uint8_t other[XRAY_HANDLE_BYTES];
    require_ok(
        device_calls()->alloc(d, "away", XRAY_TAG_KV, 4096, (void **)&away));
    require_ok(device_calls()->evict(d, away));
    assert_int_equal(device_calls()->share(d, away, other), XRAY_E_STATE);
    require_ok(device_calls()->restore(d, away));
    require_ok(device_calls()->share(d, away, other));
    assert_int_equal(device_calls()->share(d, away + 1024, other), XRAY_E_ARG);
    require_ok(device_calls()->shareable(d, 0));
    require_ok(
        device_calls()->alloc(d, "own", XRAY_TAG_KV, 4096, (void **)&away));
    assert_int_equal(device_calls()->share(d, away, other), XRAY_E_ARG);
    write_all(c.to[1], handle, sizeof(handle));
    read_all(c.from[0], results, sizeof(results));
    if (results[0] == XRAY_E_PEER) {
        print_message("skipped: this system forbids pidfd_getfd\n");
    } else {
        assert_int_equal(results[0], XRAY_OK);
        assert_int_equal(results[1], XRAY_OK);
        assert_int_equal(results[2], 42);
        assert_int_equal(results[3], XRAY_E_RANGE);
        assert_int_equal(p[26], 99);
    }
    device_calls()->free(d, p);
    write_all(c.to[1], handle, 1);
    read_all(c.from[0], results, sizeof(results));
    if (results[0] == XRAY_OK) {
        assert_int_equal(results[4], XRAY_E_ARG);
        assert_int_equal(results[5], 99);
        assert_int_equal(results[6], 1); /* detached, it took no addresses */
    }
    assert_int_equal(device_calls()->attach(d, handle, 8, (void **)&own),
                     XRAY_E_ARG);
    assert_non_null(strstr(said, "stale"));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    device_calls()->destroy(d);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "child") == 0)
        return run_child();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_share_blocks),
        cmocka_unit_test(create_explains_its_failure),
        cmocka_unit_test(ranks_are_spread_over_gpus),
        cmocka_unit_test(plans_need_no_device),
        cmocka_unit_test(memory_is_counted_and_zeroed),
        cmocka_unit_test(evicted_memory_keeps_its_address),
        cmocka_unit_test(checksums_equal_those_of_the_cpu),
        cmocka_unit_test(graphs_replay),
        cmocka_unit_test(stale_graphs_are_refused),
        cmocka_unit_test(events_tell_when_work_is_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
