/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares SHA-256 and HMAC with the examples of FIPS 180-4 and RFC 4231, and
 * with what Python's hashlib and hmac give for every length.
 */
#include "core/base/sha256.h"

#include <stdio.h>

#include "tests/testing.h"

static void assert_digest(const uint8_t *digest, const char *hex)
{
    char text[2 * XR_SHA256_BYTES + 1];
    for (uint32_t i = 0; i < XR_SHA256_BYTES; i++)
        (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(text, hex);
}

static void compute_digest(const void *data, size_t size, uint8_t *out)
{
    xr_sha256 s;
    xr_sha256_init(&s);
    xr_sha256_add(&s, data, size);
    xr_sha256_end(&s, out);
}

static void published_examples_are_reproduced(void **state)
{
    static const char two[] =
        "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    uint8_t digest[XR_SHA256_BYTES];
    (void)state;
    compute_digest("abc", 3, digest);
    assert_digest(
        digest,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    compute_digest(two, strlen(two), digest);
    assert_digest(
        digest,
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    xr_hmac_sha256("Jefe", 4, "what do ya want for nothing?", 28, digest);
    assert_digest(
        digest,
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

static void fill_bytes(uint8_t *bytes, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)(i * 131 + 7);
}

/* Every length up to 200, each after the previous digest, in two pieces. */
static void every_length_is_hashed(void **state)
{
    uint8_t bytes[200];
    uint8_t digest[XR_SHA256_BYTES];
    xr_sha256 s;
    (void)state;
    fill_bytes(bytes, sizeof(bytes));
    for (size_t n = 0; n <= sizeof(bytes); n++) {
        xr_sha256_init(&s);
        if (n)
            xr_sha256_add(&s, digest, sizeof(digest));
        xr_sha256_add(&s, bytes, n);
        xr_sha256_end(&s, digest);
    }
    assert_digest(
        digest,
        "cb1f269a852a8b28c7309eb4b87de5446ce2f7d12394a6b9338b5ff9f7d80ce3");
}

static void every_length_of_key_and_message_is_coded(void **state)
{
    uint8_t bytes[200];
    uint8_t text[XR_SHA256_BYTES + sizeof(bytes)];
    uint8_t mac[XR_SHA256_BYTES];
    size_t before = 0;
    (void)state;
    fill_bytes(bytes, sizeof(bytes));
    for (size_t n = 0; n <= sizeof(bytes); n++) {
        memcpy(text, mac, before);
        memcpy(text + before, bytes, n);
        xr_hmac_sha256(bytes, n % 65, text, before + n, mac);
        before = sizeof(mac);
    }
    assert_digest(
        mac,
        "4f00cc9e790fc62cb77cadc6e1b090e208ac9dc44c7ccfe11c950a486dbe47fc");
}

static void equal_codes_are_told(void **state)
{
    uint8_t a[XR_SHA256_BYTES] = { 0 };
    uint8_t b[XR_SHA256_BYTES] = { 0 };
    (void)state;
    assert_true(xr_mac_is_equal(a, b));
    for (uint32_t i = 0; i < XR_SHA256_BYTES; i++) {
        b[i] = 1;
        assert_false(xr_mac_is_equal(a, b));
        b[i] = 0;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_examples_are_reproduced),
        cmocka_unit_test(every_length_is_hashed),
        cmocka_unit_test(every_length_of_key_and_message_is_coded),
        cmocka_unit_test(equal_codes_are_told),
    };
    return cmocka_run_group_tests_name("base.sha256", tests, NULL, NULL);
}
