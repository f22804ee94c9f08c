/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of a sample, while its tokens come: it ends before the first stop,
 * wherever tokens begin and end, and nothing is given that is taken back.
 */
#include "model/text/until.h"
#include "tests/text/small_tokenizer.h"

#define WORDS(decoder, ...)                                     \
    "{\"decoder\":" decoder                                     \
    ",\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"u\","   \
    "\"vocab\":{" __VA_ARGS__ "}},\"added_tokens\":[{\"id\":9," \
    "\"content\":\"</s>\",\"special\":true}]}"

/* Each has the letters a, b and "ab" and bytes of e-acute and of the euro
 * sign. */
static const char byte_tokens[] = WORDS(
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},"
    "{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
    "\"stop\":0}]}",
    "\"a\":0,\"b\":1,\"ab\":2,\"<0xC3>\":3,\"<0xA9>\":4,\"<0xE2>\":5,"
    "\"<0x82>\":6,\"<0xAC>\":7,\"<0x0A>\":8,\"u\":10,\" a\":11");
static const char byte_level[] =
    WORDS("{\"type\":\"ByteLevel\",\"add_prefix_space\":true}",
          "\"a\":0,\"b\":1,\"ab\":2,\"\\u00c3\":3,\"\\u00a9\":4,\"\\u00e2\":5,"
          "\"\\u0124\":6,\"\\u00ac\":7,\"\\u010a\":8,\"u\":10,\"\\u0120a\":11");
static const char suffixes[] =
    WORDS("{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}",
          "\"a\":0,\"b\":1,\"ab\":2,\"b</w>\":3,\"\\u00e9\":4,\"a</w>\":5,"
          "\"\\u20ac\":6,\"b</w>a\":7,\"\\n\":8,\"u\":10,\"</w>\":11");
static const char *const kinds[] = { byte_tokens, byte_level, suffixes };
enum { IDS = 12 };

typedef struct case_of_stops {
    const char *stops[3];
    size_t count;
} case_of_stops;

/* ---- a few by hand ------------------------------------------------------ */

typedef struct by_hand {
    const char *stop;
    int32_t ids[8];
    size_t count;
    size_t used; /* tokens up to that which completes the stop */
    const char *text;
} by_hand;

static void expect_text_until(const char *json, const by_hand *c)
{
    xr_err err = { "" };
    xm_tokenizer *tok = make_tokenizer(json);
    xm_until u = { .stops = &c->stop, .stop_count = c->stop ? 1 : 0 };
    size_t used = 0;
    while (used < c->count && !u.stopped)
        assert_int_equal(xm_until_push(&u, tok, c->ids[used++], &err), XRAY_OK);
    assert_int_equal(u.stopped, c->used > 0);
    assert_int_equal(used, c->used ? c->used : c->count);
    assert_int_equal(xm_until_end(&u, &err), XRAY_OK);
    assert_string_equal(xr_str_text(&u.text), c->text);
    assert_int_equal(u.ready, strlen(c->text));
    xm_until_free(&u);
    xm_tokenizer_close(tok);
}

static void stops_are_found_across_tokens(void **state)
{
    (void)state;
    static const by_hand cases[] = {
        { "ba", { 2, 2, 1 }, 3, 2, "a" },       /* in "ab" + "ab" */
        { "babab", { 2, 2, 2, 0 }, 4, 3, "a" }, /* begun, then found later */
        { "aba", { 0, 2, 0, 1 }, 4, 3, "a" },   /* begun twice */
        { "abc", { 2, 2 }, 2, 0, "abab" },      /* begun and never complete */
        { "a", { 2, 1 }, 2, 1, "" },
        { "\n", { 0, 8, 1 }, 3, 2, "a" }, /* held back by the decoder */
        { "\xC3\xA9", { 0, 3, 4, 1 }, 4, 3, "a" },
        { "\xE2\x82\xAC\n", { 0, 5, 6, 7, 8 }, 5, 5, "a" },
        { "a", { 9, 1, 9, 0 }, 4, 4, "b" }, /* special tokens have no text */
        { NULL, { 3, 4, 5, 6 }, 4, 0, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        by_hand c = cases[i];
        /* An incomplete character: one for its bytes, or for each of a run. */
        static const char two[] = "\xC3\xA9\xEF\xBF\xBD";
        static const char four[] =
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD";
        c.text = c.text ? cases[i].text : four;
        expect_text_until(byte_tokens, &c);
        c.text = cases[i].text ? cases[i].text : two;
        expect_text_until(byte_level, &c);
    }
}

/* ---- all, against the decoder ------------------------------------------- */

/* Returns the number of ids up to the first at which their text has a stop, or
 * 0; `text` is the text before it, or the entire text. */
static size_t find_by_decoding(const xm_tokenizer *tok, const int32_t *ids,
                               size_t count, const case_of_stops *c,
                               xr_str *text)
{
    xr_err err = { "" };
    for (size_t n = 1; n <= count; n++) {
        const char *first = NULL;
        xr_str_clear(text);
        assert_int_equal(xm_tokenizer_decode(tok, ids, n, 2, text, &err),
                         XRAY_OK);
        for (size_t i = 0; i < c->count; i++) {
            const char *at = strstr(xr_str_text(text), c->stops[i]);
            first = at && (!first || at < first) ? at : first;
        }
        if (!first)
            continue;
        text->size = (size_t)(first - text->data);
        text->data[text->size] = '\0';
        return n;
    }
    return 0;
}

static void expect_complete_characters(const char *text, size_t size)
{
    uint32_t code;
    for (size_t at = 0; at < size;) {
        int n = xr_utf8_decode(text + at, text + size, &code);
        assert_true(n > 0);
        at += (size_t)n;
    }
}

static void expect_same_as_decoded(const xm_tokenizer *tok, const int32_t *ids,
                                   size_t count, const case_of_stops *c)
{
    xr_err err = { "" };
    xr_str want = { 0 };
    xr_str given = { 0 }; /* what is final, put together piece by piece */
    xm_until u = { .stops = c->stops, .stop_count = c->count };
    size_t end = find_by_decoding(tok, ids, count, c, &want);
    size_t n = 0;
    while (n < count && !u.stopped) {
        assert_int_equal(xm_until_push(&u, tok, ids[n++], &err), XRAY_OK);
        assert_true(u.ready >= given.size && u.ready <= u.text.size);
        xr_str_append(&given, xr_str_text(&u.text) + given.size,
                      u.ready - given.size);
        expect_complete_characters(xr_str_text(&given), given.size);
    }
    assert_int_equal(u.stopped, end > 0);
    assert_int_equal(n, end ? end : count);
    assert_int_equal(xm_until_end(&u, &err), XRAY_OK);
    xr_str_append(&given, xr_str_text(&u.text) + given.size,
                  u.ready - given.size);
    assert_string_equal(xr_str_text(&u.text), xr_str_text(&want));
    assert_string_equal(xr_str_text(&given), xr_str_text(&want));
    xm_until_free(&u);
    xr_str_free(&given);
    xr_str_free(&want);
}

static void texts_are_those_of_the_decoder(void **state)
{
    (void)state;
    static const case_of_stops cases[] = {
        { { NULL }, 0 },
        { { "ab" }, 1 },
        { { "bab", "aa" }, 2 },
        { { "\xC3\xA9", "abab" }, 2 },
        { { "a\n", "\xE2\x82\xAC", "b b" }, 3 },
        { { "\n\n" }, 1 },
        { { "b a", "\xEF\xBF\xBD\xEF\xBF\xBD" }, 2 },
        { { "aabbaabb", "aabba\xC3\xA9", "bbbb" }, 3 },
    };
    uint32_t random = 1;
    for (size_t kind = 0; kind < sizeof kinds / sizeof kinds[0]; kind++) {
        xm_tokenizer *tok = make_tokenizer(kinds[kind]);
        for (int round = 0; round < 4000; round++) {
            int32_t ids[24];
            size_t count = 1 + (size_t)round % 24;
            for (size_t i = 0; i < count; i++) {
                random = random * 1664525u + 1013904223u;
                ids[i] = (int32_t)((random >> 16) % IDS);
            }
            expect_same_as_decoded(
                tok, ids, count,
                &cases[(size_t)round % (sizeof cases / sizeof cases[0])]);
        }
        xm_tokenizer_close(tok);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_are_found_across_tokens),
        cmocka_unit_test(texts_are_those_of_the_decoder),
    };
    return cmocka_run_group_tests_name("text.until", tests, scratch_make,
                                       scratch_drop);
}
