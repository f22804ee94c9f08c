/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes a message to an actor: a signature up to the first NUL, then the
 * bytes. An accepted message is the same after it is written and read again.
 */
#include "core/actor/signature.h"
#include "tests/fuzz/fuzz.h"

/* Reads all of it. */
static uint64_t touch(const char *letters, const xr_value *values)
{
    uint64_t sum = 0;
    for (size_t i = 0; letters[i]; i++) {
        const unsigned char *bytes = values[i].b.data;
        if (letters[i] == 's')
            sum += strlen(values[i].s);
        for (uint64_t n = 0; letters[i] == 'b' && n < values[i].b.size; n++)
            sum += bytes[n];
    }
    return sum;
}

static void check_rewritten(const xr_message *message, const char *letters,
                            const xr_value *values)
{
    xr_str first = { 0 };
    xr_str second = { 0 };
    xr_err err = { "" };
    xr_message read;
    xr_value copy[XR_ACTOR_LETTERS];
    FUZZ_CHECK(!xr_message_encode(message, letters, values, &err, &first));
    FUZZ_CHECK(!xr_message_header(first.data, first.size, &err, &read));
    FUZZ_CHECK(!xr_message_values(&read, letters, &err, copy));
    FUZZ_CHECK(!xr_message_encode(&read, letters, copy, &err, &second));
    FUZZ_CHECK(first.size == second.size &&
               !memcmp(first.data, second.data, first.size));
    xr_str_free(&first);
    xr_str_free(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const fuzz_two two = fuzz_split(data, size);
    char *text = fuzz_text(two.first, two.first_size);
    xr_err err = { "" };
    xr_signature signature;
    xr_message message;
    xr_value values[XR_ACTOR_LETTERS];
    if (xr_signature_parse(text, &err, &signature)) {
        fuzz_said(&err);
        signature = (xr_signature){ .in_count = 3, .in = "usb" };
    }
    free(text);
    FUZZ_CHECK(strlen(signature.in) == signature.in_count);
    FUZZ_CHECK(signature.in_count + signature.out_count <= XR_ACTOR_LETTERS);
    err.text[0] = '\0';
    if (xr_message_header(two.second, two.second_size, &err, &message) ||
        xr_message_values(&message, signature.in, &err, values)) {
        fuzz_said(&err);
        return 0;
    }
    FUZZ_CHECK(touch(signature.in, values) < UINT64_MAX);
    check_rewritten(&message, signature.in, values);
    return 0;
}
