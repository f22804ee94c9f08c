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

static void report_value(char letter, const xr_value *value)
{
    const char name[] = { letter, '\0' };
    switch (letter) {
    case 'u':
        fuzz_saw_u64(name, value->u);
        break;
    case 'i':
        fuzz_saw_i64(name, value->i);
        break;
    case 'U':
        fuzz_saw_u64(name, value->U);
        break;
    case 'I':
        fuzz_saw_i64(name, value->I);
        break;
    case 'd':
        fuzz_saw_real(name, value->d);
        break;
    case 's':
        fuzz_saw_text(name, value->s);
        break;
    case 'b':
        fuzz_saw(name, value->b.data, (size_t)value->b.size);
        break;
    default:
        fuzz_saw_u64("present", value->m.present);
        fuzz_saw_u64("senders", value->m.senders);
        fuzz_saw_u64(name, value->m.present ? value->m.id : 0);
    }
}

static void report_message(const xr_message *message, const char *letters,
                           const xr_value *values)
{
    if (!fuzz_sees())
        return;
    fuzz_saw_u64("kind", message->kind);
    fuzz_saw_u64("call", message->call);
    fuzz_saw_text("name", message->name);
    for (size_t i = 0; letters[i]; i++)
        report_value(letters[i], &values[i]);
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
    fuzz_saw("rewritten", first.data, first.size);
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
    fuzz_saw_text("in", signature.in);
    fuzz_saw_text("out", signature.out);
    FUZZ_CHECK(strlen(signature.in) == signature.in_count);
    FUZZ_CHECK(signature.in_count + signature.out_count <= XR_ACTOR_LETTERS);
    err.text[0] = '\0';
    if (xr_message_header(two.second, two.second_size, &err, &message) ||
        xr_message_values(&message, signature.in, &err, values)) {
        fuzz_said(&err);
        return 0;
    }
    report_message(&message, signature.in, values);
    FUZZ_CHECK(touch(signature.in, values) < UINT64_MAX);
    check_rewritten(&message, signature.in, values);
    return 0;
}
