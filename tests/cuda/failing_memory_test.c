/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that an allocation of the cuda device that fails, whichever call of the
 * driver does, leaves neither memory nor addresses behind; and page-locked
 * memory, which can be had in two ways.
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

static uint64_t read_host_live(cuda_device *d)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    assert_int_equal(cuda_ops()->memory(d, &stats), XRAY_OK);
    return stats.host_live;
}

static void assert_zeroed(const unsigned char *p, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (p[i])
            fail_msg("byte %llu is %u", (unsigned long long)i, p[i]);
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
        assert_int_equal(read_host_live(d), large + 100);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_zeroed(p, large);
        memset(p, 1, large);
        cuda_ops()->host_free(d, p);
        assert_int_equal(emulate_locked(), 0);
        assert_int_equal(read_host_live(d), 100);
        cuda_ops()->host_free(d, q);
    }
    emulate_refuse("cudaMallocHost");
    void *p = NULL;
    assert_int_equal(cuda_ops()->host_alloc(d, "test", 100, &p), XRAY_E_NOMEM);
    emulate_refuse(NULL);
    assert_null(p);
    assert_int_equal(read_host_live(d), 0);
    destroy_cuda(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_allocations_leave_nothing),
        cmocka_unit_test(large_host_blocks_are_locked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
