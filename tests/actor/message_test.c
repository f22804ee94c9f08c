/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures are parsed, values survive encoding, and malformed messages are
 * refused.
 */
#include "core/actor/signature.h"
#include "tests/testing.h"

static void signatures_are_parsed(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_signature s;
    assert_int_equal(xr_signature_parse("u U d s b m -> U d b", &err, &s), 0);
    assert_string_equal(s.in, "uUdsbm");
    assert_string_equal(s.out, "Udb");
    assert_int_equal(s.in_count, 6);
    assert_int_equal(s.out_count, 3);
    assert_int_equal(xr_signature_parse("->", &err, &s), 0);
    assert_int_equal(s.in_count + s.out_count, 0);
    assert_int_equal(xr_signature_parse("uuuuuuuuuuuuuuuuuuuuuuu->u", &err, &s),
                     0);

    static const char *const bad[][2] = {
        { "u U", "or -> was expected" },
        { "", "or -> was expected" },
        { "u x -> d", "'x' at 3" },
        { "u -> d q", "'q' at 8" },
        { "u - > d", "'-'" },
        { "u -> d -> u", "'-'" },
        { "uuuuuuuuuuuuuuuuuuuuuuuu->u", "more than 24" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        err.text[0] = 0;
        assert_int_equal(xr_signature_parse(bad[i][0], &err, &s), XRAY_E_ARG);
        if (!strstr(err.text, bad[i][1]))
            fail_msg("\"%s\" does not say \"%s\"", err.text, bad[i][1]);
    }
}

static void encode_call(const char *letters, const xr_value *values,
                        xr_str *out)
{
    xr_err err = { "" };
    const xr_message header = {
        XR_MESSAGE_CALL, 0, UINT64_MAX, "step", NULL, 0
    };
    assert_int_equal(xr_message_encode(&header, letters, values, &err, out), 0);
}

static void limits_of_types_survive(void **state)
{
    (void)state;
    const char letters[] = "uuiiUUIIddssbbmmm";
    const xr_value in[] = { { .u = 0 },          { .u = UINT32_MAX },
                            { .i = INT32_MIN },  { .i = INT32_MAX },
                            { .U = 0 },          { .U = UINT64_MAX },
                            { .I = INT64_MIN },  { .I = INT64_MAX },
                            { .d = -0.0 },       { .d = 1e308 },
                            { .s = "" },         { .s = "\xc3\xa4 b" },
                            { .b = { "", 0 } },  { .b = { "a\0b", 3 } },
                            { .m = { 0 } },      { .m = { UINT64_MAX, 1, 0 } },
                            { .m = { 7, 1, 1 } } };
    xr_value out[sizeof(in) / sizeof(in[0])];
    xr_str text = { 0 };
    xr_err err = { "" };
    xr_message m;
    encode_call(letters, in, &text);
    assert_int_equal(xr_message_header(text.data, text.size, &err, &m), 0);
    assert_int_equal(m.kind, XR_MESSAGE_CALL);
    assert_true(m.call == UINT64_MAX);
    assert_string_equal(m.name, "step");
    assert_int_equal(xr_message_values(&m, letters, &err, out), 0);
    for (size_t i = 0; letters[i]; i++) {
        switch (letters[i]) {
        case 's':
            assert_string_equal(out[i].s, in[i].s);
            break;
        case 'b':
            assert_int_equal(out[i].b.size, in[i].b.size);
            assert_memory_equal(out[i].b.data, in[i].b.data, in[i].b.size);
            break;
        case 'm':
            assert_memory_equal(&out[i].m, &in[i].m, sizeof(in[i].m));
            break;
        case 'u':
        case 'i':
            assert_int_equal(out[i].u, in[i].u);
            break;
        default:
            assert_memory_equal(&out[i], &in[i], 8);
        }
    }
    xr_str_free(&text);
}

/* Encodes one value and decodes it again. */
static xray_status send_value(const char *wrote, const xr_value *in,
                              const char *read, xr_str *text, xr_value *out)
{
    xr_err err = { "" };
    xr_message m;
    encode_call(wrote, in, text);
    assert_int_equal(xr_message_header(text->data, text->size, &err, &m), 0);
    return xr_message_values(&m, read, &err, out);
}

/* Texts and bytes of every length that msgpack encodes differently. */
static void every_length_survives(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0,   1,   30,    31,    32,    254,
                                    255, 256, 65534, 65535, 65536, 70000 };
    char *data = malloc(70001);
    xr_str text = { 0 };
    xr_value out;
    assert_non_null(data);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        size_t n = sizes[i];
        memset(data, 'a' + (int)i, n);
        data[n] = '\0';
        const xr_value words = { .s = data };
        assert_int_equal(send_value("s", &words, "s", &text, &out), XRAY_OK);
        assert_int_equal(strlen(out.s), n);
        assert_string_equal(out.s, data);
        const xr_value bytes = { .b = { data, n } };
        assert_int_equal(send_value("b", &bytes, "b", &text, &out), XRAY_OK);
        assert_int_equal(out.b.size, n);
        assert_memory_equal(out.b.data, data, n);
    }
    free(data);
    xr_str_free(&text);
}

/* Integers of each width, and the types that can hold them. */
static void integers_keep_their_range(void **state)
{
    (void)state;
    static const struct {
        int64_t value;
        const char *fits; /* of "uiUI" */
    } rows[] = {
        { 0, "uiUI" },
        { 127, "uiUI" },
        { 128, "uiUI" },
        { 255, "uiUI" },
        { 256, "uiUI" },
        { 65535, "uiUI" },
        { 65536, "uiUI" },
        { INT32_MAX, "uiUI" },
        { INT64_C(1) << 31, "uUI" },
        { UINT32_MAX, "uUI" },
        { INT64_C(1) << 32, "UI" },
        { INT64_MAX, "UI" },
        { -1, "iI" },
        { -32, "iI" },
        { -33, "iI" },
        { -128, "iI" },
        { -129, "iI" },
        { -32768, "iI" },
        { -32769, "iI" },
        { INT32_MIN, "iI" },
        { (int64_t)INT32_MIN - 1, "I" },
        { INT64_MIN, "I" },
    };
    xr_str text = { 0 };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (const char *type = "uiUI"; *type; type++) {
            const xr_value in = { .I = rows[i].value };
            const char read[2] = { *type, '\0' };
            xr_value out = { .I = 0 };
            int fits = strchr(rows[i].fits, *type) != NULL;
            assert_int_equal(send_value("I", &in, read, &text, &out),
                             fits ? XRAY_OK : XRAY_E_ARG);
            if (fits && (*type == 'u' || *type == 'i'))
                assert_true(out.u == (uint32_t)rows[i].value);
            else if (fits)
                assert_true(out.I == rows[i].value);
        }
    const xr_value most = { .U = UINT64_MAX };
    xr_value out;
    assert_int_equal(send_value("U", &most, "U", &text, &out), XRAY_OK);
    assert_true(out.U == UINT64_MAX);
    assert_int_equal(send_value("U", &most, "I", &text, &out), XRAY_E_ARG);
    xr_str_free(&text);
}

/* A wrong type, a value too many or too few, or a cut message is an error. */
static void malformed_messages_are_refused(void **state)
{
    (void)state;
    const xr_value in[] = { { .u = 70000 }, { .s = "x" } };
    static const char *const bad[] = { "uu", "ub", "ds", "u",  "uss",
                                       "",   "bs", "ms", "ums" };
    xr_value out[4];
    xr_str text = { 0 };
    xr_message m;
    encode_call("us", in, &text);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        xr_err err = { "" };
        assert_int_equal(xr_message_header(text.data, text.size, &err, &m), 0);
        assert_int_equal(xr_message_values(&m, bad[i], &err, out), XRAY_E_ARG);
        assert_true(err.text[0]);
    }
    for (size_t size = 0; size < text.size; size++) {
        xr_err err = { "" };
        char *cut = malloc(size + 1);
        assert_non_null(cut);
        memcpy(cut, text.data, size);
        if (!xr_message_header(cut, size, &err, &m))
            assert_int_equal(xr_message_values(&m, "us", &err, out),
                             XRAY_E_ARG);
        assert_true(err.text[0]);
        free(cut);
    }
    xr_str_free(&text);
}

/* Objects that claim more elements than they have. */
static void huge_claims_take_no_memory(void **state)
{
    (void)state;
    static const unsigned char starts[][6] = {
        { 0xdd, 0xff, 0xff, 0xff, 0xff, 0 }, /* array */
        { 0xdf, 0xff, 0xff, 0xff, 0xff, 0 }, /* map */
        { 0xc6, 0xff, 0xff, 0xff, 0xff, 0 }, /* bin */
        { 0xdb, 0xff, 0xff, 0xff, 0xff, 0 }, /* str */
        { 0xc9, 0xff, 0xff, 0xff, 0xff, 0 }, /* ext */
        { 0x9f, 0x01, 0x01, 0x01, 0x01, 1 },
    };
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        xr_err err = { "" };
        xr_message m;
        assert_int_equal(xr_message_header(starts[i], 6, &err, &m), XRAY_E_ARG);
        assert_true(err.text[0]);
    }
}

/* A sender uses one buffer for all of its messages: nothing of an earlier one,
 * or of one that there was no memory for, is in the next. */
static void a_buffer_serves_one_message_after_another(void **state)
{
    (void)state;
    const xr_value in[] = { { .U = 7 }, { .s = "text" } };
    xr_str fresh = { 0 };
    xr_str used = { 0 };
    encode_call("Us", in, &fresh);
    for (int failed = 0; failed < 2; failed++) {
        xr_str_puts(&used, "what an earlier message left");
        used.failed = failed;
        encode_call("Us", in, &used);
        assert_int_equal(used.size, fresh.size);
        assert_memory_equal(used.data, fresh.data, fresh.size);
    }
    xr_str_free(&fresh);
    xr_str_free(&used);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_are_parsed),
        cmocka_unit_test(limits_of_types_survive),
        cmocka_unit_test(every_length_survives),
        cmocka_unit_test(integers_keep_their_range),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(huge_claims_take_no_memory),
        cmocka_unit_test(a_buffer_serves_one_message_after_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
