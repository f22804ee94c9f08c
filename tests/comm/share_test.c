/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests shared blocks of the cpu device: what `share`, `attach` and `detach`
 * promise within a process and between two.
 */
#define _GNU_SOURCE
#include <fcntl.h>

#include "tests/comm/ranks.h"

#include "tests/testing.h"

#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>

#include "plugins/device-cpu/device.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

static const xray_device_ops *cpu_ops(void)
{
    return xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
}

static char said[1024];

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(said, sizeof(said), "%s: %s", where, msg);
    return code;
}

static const xray_host quiet = { .header = XRAY_HEADER(xray_host),
                                 .fail = record_failure };

static void *open_device(int64_t share, int ask)
{
    cpu_config config = { .share = share };
    void *d = NULL;
    assert_int_equal(cpu_ops()->create(&quiet, &config, 1, &d), XRAY_OK);
    if (ask)
        assert_int_equal(cpu_ops()->shareable(d, 1), XRAY_OK);
    return d;
}

static char *alloc_block(void *d, uint64_t bytes)
{
    void *p = NULL;
    assert_int_equal(cpu_ops()->alloc(d, "test", XRAY_TAG_KV, bytes, &p),
                     XRAY_OK);
    return p;
}

static uint64_t live_bytes(void *d)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    assert_int_equal(cpu_ops()->memory(d, &stats), XRAY_OK);
    return stats.live[XRAY_TAG_KV];
}

/* Blocks are aligned, zeroed, separate and counted, even after others were
 * freed. */
static void blocks_are_aligned_zeroed_and_counted(void **state)
{
    (void)state;
    static const uint64_t sizes[] = { 0,       1,       64,     4096,
                                      65535,   65536,   65537,  1 << 20,
                                      4 << 20, 5000000, 9 << 20 };
    enum { N = sizeof(sizes) / sizeof(*sizes) };
    void *d = open_device(CPU_SHARE_AUTO, 1);
    char *p[N] = { NULL };
    uint64_t sum = 0;
    for (int turn = 0; turn < 40; turn++) {
        int i = turn * 7 % N;
        if (p[i]) {
            cpu_ops()->free(d, p[i]);
            sum -= sizes[i];
            p[i] = NULL;
            continue;
        }
        p[i] = alloc_block(d, sizes[i]);
        sum += sizes[i];
        assert_int_equal((uintptr_t)p[i] % 64, 0);
        for (uint64_t k = 0; k < sizes[i]; k++)
            assert_int_equal(p[i][k], 0);
        memset(p[i], i + 1, sizes[i]);
        for (int j = 0; j < N; j++)
            for (uint64_t k = 0; p[j] && k < sizes[j]; k += 61)
                assert_int_equal(p[j][k], j + 1);
        assert_int_equal(live_bytes(d), sum);
    }
    for (int i = 0; i < N; i++)
        cpu_ops()->free(d, p[i]);
    assert_int_equal(live_bytes(d), 0);
    cpu_ops()->free(d, NULL);
    cpu_ops()->destroy(d);
}

/* A handle of this process gives the block itself, at any offset in it. */
static void own_handle_gives_the_block_itself(void **state)
{
    (void)state;
    void *a = open_device(CPU_SHARE_AUTO, 1);
    void *b = open_device(CPU_SHARE_ON, 0);
    char *p = alloc_block(a, 100000);
    uint8_t handle[XRAY_HANDLE_BYTES];
    void *q = NULL;
    assert_int_equal(cpu_ops()->share(a, p + 99, handle), XRAY_OK);
    assert_int_equal(cpu_ops()->attach(b, handle, 100000 - 99, &q), XRAY_OK);
    assert_ptr_equal(q, p + 99);
    cpu_ops()->detach(b, q);
    cpu_ops()->detach(b, NULL);
    assert_int_equal(cpu_ops()->attach(b, handle, 100000 - 98, &q),
                     XRAY_E_RANGE);
    cpu_ops()->destroy(b);
    cpu_ops()->destroy(a);
}

static void expect_refused(void *d, const uint8_t *handle, const char *why)
{
    void *q = &q;
    void *before = q;
    said[0] = '\0';
    assert_int_equal(cpu_ops()->attach(d, handle, 8, &q), XRAY_E_ARG);
    assert_non_null(strstr(said, why));
    assert_ptr_equal(q, before);
}

static void stale_handles_are_refused(void **state)
{
    (void)state;
    void *a = open_device(CPU_SHARE_AUTO, 1);
    void *b = open_device(CPU_SHARE_AUTO, 1);
    uint8_t handle[XRAY_HANDLE_BYTES];
    uint8_t other[XRAY_HANDLE_BYTES] = { 0 };
    char *p = alloc_block(a, 70000);
    assert_int_equal(cpu_ops()->share(a, p, handle), XRAY_OK);
    expect_refused(b, other, "not a handle of a cpu device");
    memset(other, 0xff, sizeof(other));
    expect_refused(b, other, "not a handle of a cpu device");
    memcpy(other, handle, sizeof(other));
    other[0] ^= 1; /* another region */
    expect_refused(b, other, "stale or foreign");
    memcpy(other, handle, sizeof(other));
    uint32_t pid = 1; /* another process, which has no such memory */
    memcpy(other + 56, &pid, sizeof(pid));
    expect_refused(b, other, "stale or foreign");
    cpu_ops()->free(a, p);
    expect_refused(b, handle, "the block was freed");
    p = alloc_block(a, 70000); /* the same address in another block */
    expect_refused(b, handle, "the block was freed");
    assert_int_equal(cpu_ops()->share(a, p, handle), XRAY_OK);
    cpu_ops()->destroy(a);
    expect_refused(b, handle, "stale or foreign");
    cpu_ops()->destroy(b);
}

static void what_cannot_be_shared(void **state)
{
    (void)state;
    uint8_t handle[XRAY_HANDLE_BYTES];
    void *d = open_device(CPU_SHARE_AUTO, 0);
    char *early = alloc_block(d, 70000);
    assert_int_equal(cpu_ops()->share(d, early, handle), XRAY_E_ARG);
    assert_int_equal(cpu_ops()->shareable(d, 1), XRAY_OK);
    char *late = alloc_block(d, 70000);
    assert_int_equal(cpu_ops()->share(d, early, handle), XRAY_E_ARG);
    assert_non_null(strstr(said, "lies in no block"));
    assert_int_equal(cpu_ops()->share(d, late, handle), XRAY_OK);
    assert_int_equal(cpu_ops()->share(d, late + 200000, handle), XRAY_E_ARG);
    assert_int_equal(cpu_ops()->share(d, late - 1, handle), XRAY_E_ARG);
    char *small = alloc_block(d, 128); /* of no more than its bytes */
    assert_int_equal(cpu_ops()->share(d, small + 127, handle), XRAY_OK);
    assert_int_equal(cpu_ops()->share(d, small + 128, handle), XRAY_E_ARG);
    cpu_ops()->free(d, small);
    assert_int_equal(cpu_ops()->share(d, &handle, handle), XRAY_E_ARG);
    assert_int_equal(cpu_ops()->share(d, NULL, handle), XRAY_E_ARG);
    cpu_ops()->free(d, early);
    cpu_ops()->free(d, late);
    assert_int_equal(live_bytes(d), 0);
    cpu_ops()->destroy(d);
    d = open_device(CPU_SHARE_OFF, 0);
    assert_int_equal(cpu_ops()->shareable(d, 1), XRAY_E_CONFIG);
    assert_non_null(strstr(said, "share = off"));
    cpu_ops()->destroy(d);
}

static void share_on_needs_no_asking(void **state)
{
    (void)state;
    uint8_t handle[XRAY_HANDLE_BYTES];
    void *d = open_device(CPU_SHARE_ON, 0);
    for (int round = 0; round < 2; round++) {
        char *p = alloc_block(d, 4096);
        assert_int_equal(cpu_ops()->share(d, p, handle), XRAY_OK);
        cpu_ops()->free(d, p);
        assert_int_equal(cpu_ops()->shareable(d, 0), XRAY_OK);
    }
    cpu_ops()->destroy(d);
}

/* A peer that maps shared memory would crash if it became shorter. */
static void shared_memory_keeps_its_size(void **state)
{
    (void)state;
    void *d = open_device(CPU_SHARE_ON, 0);
    int sealed = 0;
    for (int fd = 3; fd < 256; fd++) {
        int seals = fcntl(fd, F_GET_SEALS);
        if (seals < 0)
            continue;
        sealed++;
        assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW),
                         F_SEAL_SHRINK | F_SEAL_GROW);
    }
    assert_int_equal(sealed, 1);
    cpu_ops()->destroy(d);
}

/* A process that may open no more files gets no device with share = on; one
 * that is asked later says so, and computes on without shared memory. */
static void without_a_memory_file_nothing_is_shared(void **state)
{
    (void)state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    const struct rlimit none = { 0, before.rlim_max };
    cpu_config config = { .share = CPU_SHARE_ON };
    void *d = open_device(CPU_SHARE_AUTO, 0);
    void *other = NULL;
    uint8_t handle[XRAY_HANDLE_BYTES];
    said[0] = '\0';
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    xray_status created = cpu_ops()->create(&quiet, &config, 1, &other);
    int told = strstr(said, "gave no memory file") != NULL;
    said[0] = '\0';
    xray_status asked = cpu_ops()->shareable(d, 1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(created, XRAY_E_IO);
    assert_true(told);
    assert_null(other);
    assert_int_equal(asked, XRAY_E_IO);
    assert_non_null(strstr(said, "gave no memory file"));
    char *p = alloc_block(d, 4096);
    assert_int_equal(cpu_ops()->share(d, p, handle), XRAY_E_ARG);
    cpu_ops()->free(d, p);
    assert_int_equal(cpu_ops()->shareable(d, 1), XRAY_OK);
    p = alloc_block(d, 4096);
    assert_int_equal(cpu_ops()->share(d, p, handle), XRAY_OK);
    cpu_ops()->free(d, p);
    cpu_ops()->destroy(d);
}

/* Shares an address, and takes the handle of the other process. */
static void swap_handles(ranks_env *e, const char *p,
                         uint8_t handle[XRAY_HANDLE_BYTES])
{
    CHECK_OK(e, e->dev->share(e->dev_self, p, handle));
    for (int i = 0; i < 8; i++) {
        uint64_t word;
        memcpy(&word, handle + 8 * i, 8);
        atomic_store(&e->all->notes[e->rank][i], word);
    }
    ranks_meet(e);
    for (int i = 0; i < 8; i++) {
        uint64_t word = atomic_load(&e->all->notes[1 - e->rank][i]);
        memcpy(handle + 8 * i, &word, 8);
    }
}

/* A block of another process has the same bytes on both sides, and stays mapped
 * after that process has died. */
static void share_between_processes(ranks_env *e)
{
    char *p = ranks_alloc(e, 300000);
    uint8_t handle[XRAY_HANDLE_BYTES];
    p[1000] = (char)('a' + e->rank);
    swap_handles(e, p + 1000, handle);
    void *q = NULL;
    CHECK_OK(e, e->dev->attach(e->dev_self, handle, 290000, &q));
    CHECK(e, *(char *)q == (char)('b' - e->rank));
    ((char *)q)[5] = (char)('x' + e->rank);
    ranks_meet(e);
    CHECK(e, p[1005] == (char)('y' - e->rank));
    ranks_meet(e);
    if (e->rank == 1)
        (void)raise(SIGKILL);
    uint64_t start = ranks_ms();
    while (ranks_barrier(e, e->world) == XRAY_OK)
        CHECK(e, ranks_ms() - start < 20000);
    CHECK(e, *(char *)q == 'b');
    e->dev->detach(e->dev_self, q);
    /* No process holds it now, and its owner is gone. */
    CHECK(e, e->dev->attach(e->dev_self, handle, 8, &q) == XRAY_E_ARG);
    CHECK(e, ranks_said(e, "stale or foreign"));
}

/* A block that was attached twice stays until it is detached twice, or until
 * the device is destroyed. */
static void attach_twice(ranks_env *e)
{
    char *p = ranks_alloc(e, 300000);
    uint8_t handle[XRAY_HANDLE_BYTES];
    void *q = NULL;
    void *again = NULL;
    p[0] = (char)('a' + e->rank);
    swap_handles(e, p, handle);
    CHECK_OK(e, e->dev->attach(e->dev_self, handle, 300000, &q));
    CHECK_OK(e, e->dev->attach(e->dev_self, handle, 300000, &again));
    e->dev->detach(e->dev_self, q);
    CHECK(e, *(char *)again == (char)('b' - e->rank));
    ranks_meet(e);
}

const scenario ranks_scenarios[] = {
    { "twice", attach_twice, 60000 },
    { "between", share_between_processes, 60000 },
    { NULL, NULL, 0 },
};

/* Fuzz targets have folders there and may run at the same time. */
static uint64_t names_in_shm(void)
{
    uint64_t n = 0;
    DIR *dir = opendir("/dev/shm");
    for (const struct dirent *d; dir && (d = readdir(dir));)
        n += strstr(d->d_name, "xray") && !strstr(d->d_name, "xray-fuzz-");
    if (dir)
        (void)closedir(dir);
    return n;
}

static void two_processes(void **state)
{
    (void)state;
    uint64_t before = names_in_shm();
    ranks_run("between", 2, ".k");
    ranks_run("twice", 2, NULL);
    assert_int_equal(names_in_shm(), before);
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_aligned_zeroed_and_counted),
        cmocka_unit_test(own_handle_gives_the_block_itself),
        cmocka_unit_test(stale_handles_are_refused),
        cmocka_unit_test(what_cannot_be_shared),
        cmocka_unit_test(share_on_needs_no_asking),
        cmocka_unit_test(shared_memory_keeps_its_size),
        cmocka_unit_test(without_a_memory_file_nothing_is_shared),
        cmocka_unit_test(two_processes),
    };
    return cmocka_run_group_tests_name("comm.share", tests, NULL, NULL);
}
