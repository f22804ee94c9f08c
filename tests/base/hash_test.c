/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the checksum with values of the reference implementation.
 */
#include <stdlib.h>

#include "core/base/hash.h"
#include "tests/testing.h"

static void reference_values_are_reproduced(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t hash;
    } known[] = {
        { "", 0xef46db3751d8e999u },
        { "abc", 0x44bc2cf5ad770999u },
        { "Nobody inspects the spammish repetition", 0xfbcea83c8a378bf1u },
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        assert_true(xr_hash64(known[i].text, strlen(known[i].text), 0) ==
                    known[i].hash);
}

/* Every length up to 200, each with the previous hash as seed. */
static void every_length_is_hashed(void **state)
{
    (void)state;
    unsigned char bytes[200];
    uint64_t hash = 0;
    for (unsigned i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(i * 131 + 7);
    for (size_t n = 0; n <= sizeof(bytes); n++)
        hash = xr_hash64(bytes, n, hash);
    assert_true(hash == 0x0fc2e9d7552e1e6fu);
}

static uint32_t looks; /* that are left until the stop */

static uint32_t stop_after_looks(const xray_call_service *service)
{
    (void)service;
    return looks-- == 0;
}

/* Long data is hashed in pieces, between which the host may stop it. */
static void long_data_can_be_stopped(void **state)
{
    (void)state;
    const xray_call_service calls = { .stopping = stop_after_looks };
    size_t size = ((size_t)16 << 20) + 45;
    unsigned char *bytes = malloc(size);
    uint64_t hash = 0;
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (unsigned char)(i * 131 + (i >> 9));
    looks = UINT32_MAX;
    assert_int_equal(xr_hash64_long(bytes, size, &calls, NULL, &hash), XRAY_OK);
    assert_true(hash == xr_hash64(bytes, size, 0));
    assert_int_equal(UINT32_MAX - looks, 3);
    for (looks = 0; looks < 3; looks++) {
        uint32_t want = looks;
        assert_int_equal(xr_hash64_long(bytes, size, &calls, NULL, &hash),
                         XRAY_E_CANCELED);
        looks = want;
    }
    assert_int_equal(xr_hash64_long(bytes, 31, NULL, NULL, &hash), XRAY_OK);
    assert_true(hash == xr_hash64(bytes, 31, 0));
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_values_are_reproduced),
        cmocka_unit_test(every_length_is_hashed),
        cmocka_unit_test(long_data_can_be_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
