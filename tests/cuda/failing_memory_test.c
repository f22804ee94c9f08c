/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that an allocation of the cuda device that fails, whichever call of the
 * driver does, leaves neither memory nor addresses behind.
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_allocations_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
