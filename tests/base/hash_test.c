/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the checksum with values of the reference implementation.
 */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_values_are_reproduced),
        cmocka_unit_test(every_length_is_hashed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
