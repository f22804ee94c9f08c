/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a function in C gets numbers, texts and lists as its signature
 * says, that what does not fit a type is a failure of the sample, and which
 * signatures are refused.
 */
#include "tests/reward/ffi_rig.h"

#define FIELD(value) "{\"x\":" value "}"

typedef struct fit {
    const char *fields;
    double expected;
    const char *reason; /* NULL: the function returns what is expected */
} fit;

static void check_fits(char letter, int list, const fit *fits, size_t count)
{
    rig r;
    char symbol[16];
    char signature[32];
    (void)snprintf(symbol, sizeof(symbol), "%s_%c", list ? "last" : "keep",
                   letter);
    (void)snprintf(signature, sizeof(signature),
                   list ? "x:[%c] -> %c" : "x:%c -> %c", letter, letter);
    rig_open(&r,
             C_KEYS("symbol", symbol, "signature", signature, "workers", "1"));
    for (size_t i = 0; i < count; i++) {
        xray_sample_in sample = make_sample(3, "a");
        sample.fields_json = fits[i].fields;
        if (fits[i].reason)
            expect_failure(&r, &sample, fits[i].reason);
        else if (score_one(&r, &sample) != fits[i].expected)
            fail_msg("%s of %s", signature, fits[i].fields);
    }
    r.ops->destroy(r.self);
}

#define CHECK_FITS(letter, list, ...)                                   \
    do {                                                                \
        static const fit fits[] = { __VA_ARGS__ };                      \
        check_fits(letter, list, fits, sizeof(fits) / sizeof(fits[0])); \
    } while (0)

static void numbers_fit_their_types(void **state)
{
    (void)state;
    CHECK_FITS('i', 0, { FIELD("2147483647"), 2147483647.0, NULL },
               { FIELD("-2147483648"), -2147483648.0, NULL },
               { FIELD("2147483648"), 0, "x is a number, which does not fit" },
               { FIELD("-2147483649"), 0, "does not fit the type i" },
               { FIELD("0.5"), 0, "does not fit the type i" },
               { FIELD("true"), 1, NULL }, { FIELD("false"), 0, NULL },
               { FIELD("null"), 0, "the data row has no field x" },
               { FIELD("\"1\""), 0, "x is a string, which does not fit" },
               { FIELD("[1]"), 0, "x is a list, which does not fit" },
               { FIELD("{}"), 0, "x is an object, which does not fit" },
               { "{}", 0, "the data row has no field x" });
    CHECK_FITS('u', 0, { FIELD("4294967295"), 4294967295.0, NULL },
               { FIELD("0"), 0, NULL },
               { FIELD("4294967296"), 0, "does not fit the type u" },
               { FIELD("-1"), 0, "does not fit the type u" });
    CHECK_FITS('I', 0, { FIELD("-9223372036854775808"), -0x1p63, NULL },
               { FIELD("9223372036854774784"), 0x1p63 - 1024, NULL },
               { FIELD("9223372036854775808"), 0, "does not fit the type I" },
               { FIELD("-9223372036854777856"), 0, "does not fit the type I" },
               { FIELD("-4294967297"), -4294967297.0, NULL });
    CHECK_FITS('U', 0, { FIELD("18446744073709549568"), 0x1p64 - 2048, NULL },
               { FIELD("18446744073709551616"), 0, "does not fit the type U" },
               { FIELD("-1"), 0, "does not fit the type U" });
    CHECK_FITS('d', 0, { FIELD("0.1"), 0.1, NULL }, { FIELD("true"), 1, NULL },
               { FIELD("-1e300"), -1e300, NULL },
               { FIELD("null"), 0, "the data row has no field x" });
}

static void elements_of_lists_fit_their_types(void **state)
{
    (void)state;
    CHECK_FITS('d', 1, { FIELD("[1,2.5]"), 2.5, NULL },
               { FIELD("[]"), 77, NULL },
               { FIELD("1"), 0, "x is a number, expected a list" },
               { FIELD("{}"), 0, "x is an object, expected a list" });
    CHECK_FITS(
        'i', 1, { FIELD("[1,true,-3]"), -3, NULL },
        { FIELD("[7,8.5]"), 0, "element 1 of x does not fit the type i" },
        { FIELD("[7,8,null]"), 0, "element 2 of x does not fit" });
    CHECK_FITS('I', 1, { FIELD("[1,2,-5000000000]"), -5000000000.0, NULL });
    CHECK_FITS('u', 1, { FIELD("[1,4294967295]"), 4294967295.0, NULL },
               { FIELD("[-1]"), 0, "element 0 of x does not fit the type u" });
    CHECK_FITS('U', 1, { FIELD("[5,9223372036854775808]"), 0x1p63, NULL });
}

/* Every part by its name, and each kind of a field as text. */
static void texts_are_parts_or_json(void **state)
{
    static const struct {
        const char *name;
        const char *truth; /* what the text must hold */
        int fits;
    } rows[] = {
        { "response", "the response", 1 },
        { "prompt", "the prompt", 1 },
        { "data_source", "the source", 1 },
        { "ground_truth", "the truth", 1 },
        { "text", "text", 1 },
        { "list", "[1,\"a\"]", 1 },
        { "object", "{\"a\":[2]}", 1 },
        { "fields", "\"list\":[1,\"a\"]", 1 },
        { "object.a", "[2]", 1 },
        { "number", "", 0 },
        { "true", "", 0 },
        { "none", "", 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        char signature[64];
        xray_sample_in sample = make_sample(3, "the response");
        sample.prompt = "the prompt";
        sample.prompt_size = 10;
        sample.data_source = "the source";
        sample.ground_truth = "the truth";
        char fields[256];
        (void)snprintf(fields, sizeof(fields),
                       "{\"text\":\"text\",\"list\":[1,\"a\"],\"object\":"
                       "{\"a\":[2]},\"number\":1,\"true\":true}");
        sample.fields_json = fields;
        (void)snprintf(signature, sizeof(signature), "%s:s -> d", rows[i].name);
        rig_open(&r, C_KEYS("symbol", "measure", "signature", signature,
                            "workers", "1"));
        if (!rows[i].fits)
            expect_failure(&r, &sample,
                           strcmp(rows[i].name, "none") == 0
                               ? "the data row has no field none"
                               : "does not fit the type s");
        else if (strcmp(rows[i].name, "fields") == 0)
            assert_true(score_one(&r, &sample) == (double)strlen(fields));
        else
            assert_true(score_one(&r, &sample) ==
                        (double)strlen(rows[i].truth));
        r.ops->destroy(r.self);
    }
}

static void token_ids_are_lists(void **state)
{
    static const char *const names[] = { "ids", "prompt_ids" };
    (void)state;
    for (int i = 0; i < 2; i++) {
        rig r;
        char signature[32];
        xray_sample_in sample = make_sample(3, "a");
        sample.ids = (const int32_t[]){ 7, 8 };
        sample.id_count = 2;
        sample.prompt_ids = (const int32_t[]){ 4, 5, 6 };
        sample.prompt_id_count = 3;
        (void)snprintf(signature, sizeof(signature), "%s:[u] -> u", names[i]);
        rig_open(&r, C_KEYS("symbol", "last_u", "signature", signature));
        assert_true(score_one(&r, &sample) == (i ? 6 : 8));
        r.ops->destroy(r.self);
    }
}

static void expect_signature(const char *symbol, const char *signature,
                             const char *words)
{
    const char *const keys[] = { "library", library(),   "symbol",
                                 symbol,    "signature", signature,
                                 "workers", "1",         NULL };
    rig r;
    if (words) {
        expect_refusal(keys, words);
        return;
    }
    rig_open(&r, keys);
    r.ops->destroy(r.self);
}

static void signatures_have_a_form(void **state)
{
    (void)state;
    static const struct {
        const char *symbol;
        const char *signature;
        const char *words; /* NULL: accepted */
    } rows[] = {
        { "keep_d", "", NULL },
        { "keep_d", "  x : d  ->  d ", NULL },
        { "keep_d", "x:d->d", NULL },
        { "keep_d", "y:d -> d", "the library's own keep_d_sig is" },
        { "keep_d", "x:I -> d", "the library's own keep_d_sig is" },
        { "keep_d", "x:[d] -> d", "the library's own keep_d_sig is" },
        { "keep_d", "x:d -> f", "the library's own keep_d_sig is" },
        { "keep_d", "x:d, x:d -> d", "the library's own keep_d_sig is" },
        { "keep_d", "-> d", "the library's own keep_d_sig is" },
        { "measure", "-> d", NULL },
        { "measure", "_a1.b_C9:d -> d", NULL },
        { "measure", "A:d, z:d, Z:d, a:d -> d", NULL },
        { "measure", ".a:d -> d", "'.' at 1, expected the name" },
        { "measure", "1a:d -> d", "'1' at 1, expected the name" },
        { "measure", "a-b:d -> d", "'-' at 2, expected : and a type" },
        { "measure", "x:f -> d", "expected one of the types s d i I u U [" },
        { "measure", "x:[f] -> d", "expected one of the types d i I u U" },
        { "measure", "x:d, -> d", "expected the name of an argument" },
        { "measure", "x:d -> [d]", "expected the type of the result" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_signature(rows[i].symbol, rows[i].signature, rows[i].words);
}

/* A name has up to 63 characters, and a function up to 32 arguments. */
static void signatures_have_limits(void **state)
{
    (void)state;
    char text[512];
    char words[64];
    for (int size = 63; size <= 64; size++) {
        size_t used = (size_t)snprintf(text, sizeof(text), "a:d, ");
        memset(text + used, 'b', (size_t)size);
        (void)snprintf(text + used + size, sizeof(text) - used - 64, ":d -> d");
        expect_signature("measure", text,
                         size > 63 ? "the name at 6 has more than 63 characters"
                                   : NULL);
    }
    for (int count = 32; count <= 33; count++) {
        size_t used = 0;
        for (int i = 0; i < count; i++)
            used += (size_t)snprintf(text + used, sizeof(text) - used,
                                     "%sa%d:[d]", i ? "," : "", i);
        (void)snprintf(text + used, sizeof(text) - used, "->d");
        (void)snprintf(words, sizeof(words), "more than 32 arguments");
        expect_signature("measure", text, count > 32 ? words : NULL);
    }
}

/* More than the buffers of a socket hold goes in several parts. */
static void long_samples_arrive_whole(void **state)
{
    (void)state;
    enum { SIZE = 3000000 };
    rig r;
    char *text = malloc(SIZE + 1);
    assert_non_null(text);
    memset(text, 'a', SIZE);
    text[SIZE] = '\0';
    rig_open(&r, C_KEYS("symbol", "measure", "signature", "response:s -> d",
                        "workers", "1"));
    for (int i = 0; i < 2; i++) {
        assert_true(score_text(&r, text) == SIZE);
        assert_true(score_text(&r, "abc") == 3);
    }
    r.ops->destroy(r.self);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_fit_their_types),
        cmocka_unit_test(elements_of_lists_fit_their_types),
        cmocka_unit_test(texts_are_parts_or_json),
        cmocka_unit_test(token_ids_are_lists),
        cmocka_unit_test(signatures_have_a_form),
        cmocka_unit_test(signatures_have_limits),
        cmocka_unit_test(long_samples_arrive_whole),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
