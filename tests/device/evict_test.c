/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that evicted memory is released and comes back zeroed at the same
 * address, and that handles and matrix products survive an eviction.
 */
#include "tests/device/bench.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static xray_memory_stats read_stats(const dev *d)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    must(d->ops->memory(d->self, &stats));
    return stats;
}

/* Reads the resident bytes of this process. */
static uint64_t read_resident(void)
{
    char line[128] = "";
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof(line), file));
    (void)fclose(file);
    const char *second = strchr(line, ' ');
    assert_non_null(second);
    uint64_t pages = strtoull(second, NULL, 10);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void assert_all_bytes(const unsigned char *p, size_t bytes, int value)
{
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != value)
            fail_msg("byte %zu of %zu is %d", i, bytes, p[i]);
}

static void check_block(const dev *d, size_t bytes)
{
    void *a = NULL;
    void *b = NULL;
    void *c = NULL;
    must(d->ops->alloc(d->self, "test", XRAY_TAG_KV, bytes, &a));
    must(d->ops->alloc(d->self, "test", XRAY_TAG_GRADS, bytes, &b));
    must(d->ops->alloc(d->self, "test", XRAY_TAG_KV, bytes, &c));
    memset(a, 1, bytes);
    memset(b, 2, bytes);
    memset(c, 3, bytes);
    uint64_t before = read_resident();
    must(d->ops->evict(d->self, b));
    must(d->ops->evict(d->self, b)); /* a second eviction changes nothing */
    assert_int_equal(read_stats(d).live[XRAY_TAG_GRADS], 0);
    if (bytes >= 1u << 22)
        assert_true(read_resident() + bytes / 2 < before);
    must(d->ops->restore(d->self, b));
    must(d->ops->restore(d->self, b));
    assert_int_equal(read_stats(d).live[XRAY_TAG_GRADS], bytes);
    assert_all_bytes(b, bytes, 0);
    memset(b, 4, bytes);
    assert_all_bytes(a, bytes, 1);
    assert_all_bytes(b, bytes, 4);
    assert_all_bytes(c, bytes, 3);
    /* An evicted block can be freed. */
    must(d->ops->evict(d->self, b));
    d->ops->free(d->self, a);
    d->ops->free(d->self, b);
    d->ops->free(d->self, c);
    assert_int_equal(read_stats(d).live[XRAY_TAG_GRADS], 0);
}

static const size_t sizes[] = { 1, 63, 4096, 70000, 1u << 20, 9000001 };

static void evicted_blocks_come_back_zeroed(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check_block(&b.dev[0], sizes[i]);
    assert_int_equal(b.dev[0].ops->evict(b.dev[0].self, NULL), XRAY_E_ARG);
    assert_int_equal(b.dev[0].ops->restore(b.dev[0].self, NULL), XRAY_E_ARG);
    close_devices(&b);
}

/* A block that others map keeps its handle, and they see the new values. */
static void shared_blocks_keep_their_handle(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    must(d->ops->shareable(d->self, 1));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        check_block(d, sizes[i]);
    void *block = NULL;
    void *seen = NULL;
    uint8_t handle[XRAY_HANDLE_BYTES];
    must(d->ops->alloc(d->self, "test", XRAY_TAG_GRADS, 100000, &block));
    must(d->ops->share(d->self, block, handle));
    must(d->ops->evict(d->self, block));
    must(d->ops->restore(d->self, block));
    must(d->ops->attach(d->self, handle, 100000, &seen));
    memset(block, 5, 100000);
    assert_all_bytes(seen, 100000, 5);
    d->ops->free(d->self, block);
    assert_int_equal(d->ops->attach(d->self, handle, 100000, &seen),
                     XRAY_E_ARG);
    close_devices(&b);
}

/* The next device may have the same file number and place for a block, yet not
 * its handle. */
static void handles_end_with_their_device(void **state)
{
    (void)state;
    const xray_device_ops *ops = device_ops();
    const cpu_config config = { .isa = CPU_ISA_SCALAR, .share = CPU_SHARE_ON };
    uint8_t handle[2][XRAY_HANDLE_BYTES];
    for (size_t i = 0; i < 2; i++) {
        void *self = NULL;
        void *block = NULL;
        void *seen = NULL;
        must(ops->create(&bench_host, &config, 1, &self));
        must(ops->alloc(self, "test", XRAY_TAG_GRADS, 100000, &block));
        must(ops->share(self, block, handle[i]));
        must(ops->attach(self, handle[i], 100000, &seen));
        if (i == 1)
            assert_int_equal(ops->attach(self, handle[0], 100000, &seen),
                             XRAY_E_ARG);
        ops->free(self, block);
        ops->destroy(self);
    }
}

/* Finds the file whose pages are the memory of a shareable device. */
static int find_memory_file(void)
{
    for (int fd = 3; fd < 1024; fd++) {
        char link[64];
        char name[64] = "";
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        if (readlink(link, name, sizeof(name) - 1) > 0 &&
            strncmp(name, "/memfd:xray-device", 18) == 0)
            return fd;
    }
    return -1;
}

/* Who maps the memory would crash if its file became shorter. */
static void shared_memory_keeps_its_size(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    struct stat info;
    must(d->ops->shareable(d->self, 1));
    int fd = find_memory_file();
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &info), 0);
    const off_t sizes_tried[] = { 0, info.st_size - 4096, info.st_size + 4096 };
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(ftruncate(fd, sizes_tried[i]), -1);
        assert_int_equal(errno, EPERM);
    }
    close_devices(&b);
}

/* The maximum of all tags together is less than the sum of the maxima of each
 * tag. */
static void maximum_of_all_tags_is_counted(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    xray_memory_stats first = read_stats(d);
    void *kv = NULL;
    void *moments = NULL;
    must(d->ops->alloc(d->self, "test", XRAY_TAG_KV, 5000000, &kv));
    must(d->ops->evict(d->self, kv));
    must(d->ops->alloc(d->self, "test", XRAY_TAG_OPTIMIZER, 7000000, &moments));
    must(d->ops->evict(d->self, moments));
    must(d->ops->restore(d->self, kv));
    xray_memory_stats last = read_stats(d);
    assert_int_equal(last.high[XRAY_TAG_KV], 5000000);
    assert_int_equal(last.high[XRAY_TAG_OPTIMIZER], 7000000);
    assert_int_equal(last.high_all, first.high_all + 7000000);
    d->ops->free(d->self, kv);
    d->ops->free(d->self, moments);
    close_devices(&b);
}

/* Host memory is no device's memory, even where both are the same. */
static void host_memory_is_counted_apart(void **state)
{
    (void)state;
    bench b;
    open_cpu_devices(&b);
    const dev *d = &b.dev[0];
    xray_memory_stats before = read_stats(d);
    void *p = NULL;
    must(d->ops->host_alloc(d->self, "test", 5000000, &p));
    assert_all_bytes(p, 5000000, 0);
    xray_memory_stats now = read_stats(d);
    assert_int_equal(now.host_live, 5000000);
    assert_memory_equal(now.live, before.live, sizeof(now.live));
    assert_int_equal(now.high_all, before.high_all);
    d->ops->host_free(d->self, p);
    d->ops->host_free(d->self, NULL);
    now = read_stats(d);
    assert_int_equal(now.host_live, 0);
    assert_int_equal(now.host_high, 5000000);
    close_devices(&b);
}

static void multiply_tokens(const dev *d, const xray_weight *w, const float *x,
                            uint32_t kind, float *y)
{
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { 3, NULL },
                       .x = x,
                       .y = y,
                       .x_stride = 40,
                       .y_stride = 40,
                       .kind = kind };
    must(d->ops->matmul(d->self, NULL, &op));
}

static void check_eviction(const dev *d, uint32_t product_dtype)
{
    float *data = random_floats((size_t)40 * 40, 1);
    float *x = random_floats(120, 1);
    float y[2][120];
    float again[2][120];
    xray_weight *w = NULL;
    xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                              .data = data,
                              .rows = 40,
                              .cols = 40,
                              .dtype = XRAY_F32,
                              .uses = XRAY_USE_NT | XRAY_USE_NN,
                              .product_dtype = product_dtype };
    must(d->ops->weight_create(d->self, &desc, &w));
    uint64_t packed = read_stats(d).live[XRAY_TAG_WEIGHTS];
    multiply_tokens(d, w, x, XRAY_NT, y[0]);
    multiply_tokens(d, w, x, XRAY_NN, y[1]);
    must(d->ops->weight_evict(d->self, w));
    must(d->ops->weight_evict(d->self, w));
    assert_int_equal(read_stats(d).live[XRAY_TAG_WEIGHTS], 0);
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { 3, NULL },
                       .x = x,
                       .y = again[0],
                       .x_stride = 40,
                       .y_stride = 40,
                       .kind = XRAY_NT };
    assert_int_equal(d->ops->matmul(d->self, NULL, &op), XRAY_E_STATE);
    assert_non_null(strstr(last_failure, "evicted"));
    /* A second call of weight_changed does not allocate the panels again. */
    for (int i = 0; i < 2; i++) {
        must(d->ops->weight_changed(d->self, w));
        assert_int_equal(read_stats(d).live[XRAY_TAG_WEIGHTS], packed);
    }
    multiply_tokens(d, w, x, XRAY_NT, again[0]);
    multiply_tokens(d, w, x, XRAY_NN, again[1]);
    assert_memory_equal(y, again, sizeof(y));
    must(d->ops->weight_evict(d->self, w));
    d->ops->weight_destroy(d->self, w);
    free(data);
    free(x);
}

static void evicted_matrices_give_the_same_bits(void **state)
{
    (void)state;
    bench b;
    open_cpu_devices(&b);
    check_eviction(&b.dev[b.count - 1], 0);
    check_eviction(&b.dev[b.count - 1], XRAY_BF16);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evicted_blocks_come_back_zeroed),
        cmocka_unit_test(shared_blocks_keep_their_handle),
        cmocka_unit_test(handles_end_with_their_device),
        cmocka_unit_test(shared_memory_keeps_its_size),
        cmocka_unit_test(maximum_of_all_tags_is_counted),
        cmocka_unit_test(host_memory_is_counted_apart),
        cmocka_unit_test(evicted_matrices_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
