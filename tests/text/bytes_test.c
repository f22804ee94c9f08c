/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte-level tokenizers, and patterns that split text. Expected ids and texts
 * are those of the Hugging Face library for the same file.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "model/text/internal.h"
#include "tests/text/small_tokenizer.h"

#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":true}"
/* Tokens of the bytes F0 9F 98 80 ED A0 61 C3 A9 20 E2 82, then longer
 * tokens. */
#define BYTES                                                                \
    "{\"added_tokens\":[{\"id\":14,\"content\":\"x y\",\"special\":true}],"  \
    "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":" BYTE_LEVEL        \
    ",\"decoder\":" BYTE_LEVEL ",\"post_processor\":{\"type\":\"Sequence\"," \
    "\"processors\":[" BYTE_LEVEL ",{\"type\":\"TemplateProcessing\","       \
    "\"single\":[{\"SpecialToken\":{\"id\":\"x y\"}},{\"Sequence\":{"        \
    "\"id\":\"A\"}}],\"special_tokens\":{\"x y\":{\"ids\":[14]}}}]},"        \
    "\"model\":{\"type\":\"BPE\",\"ignore_merges\":true,\"merges\":[],"      \
    "\"vocab\":{\"\\u00f0\":0,\"\\u0141\":1,\"\\u013a\":2,\"\\u0122\":3,"    \
    "\"\\u00ed\":4,\"\\u0142\":5,\"a\":6,\"\\u00c3\":7,\"\\u00a9\":8,"       \
    "\"\\u0120\":9,\"\\u00e2\":10,\"\\u0124\":11,\"\\u00c3\\u00a9\":12,"     \
    "\"\\u0120a\":13,\"x y\":14}}}"

static void byte_level_text_becomes_ids(void **state)
{
    (void)state;
    xm_tokenizer *tok = make_tokenizer(BYTES);
    EXPECT_IDS(tok, "a", 1, 14, 13);
    EXPECT_IDS(tok, "a a", 0, 13, 13);
    EXPECT_IDS(tok, " a", 0, 13);
    EXPECT_IDS(tok, "\xC3\xA9", 0, 9, 7, 8);
    EXPECT_IDS(tok, "e\xCC\x81", 0, 9, 7, 8); /* composed first */
    EXPECT_IDS(tok, "\xF0\x9F\x98\x80", 0, 9, 0, 1, 2, 3);
    EXPECT_IDS(tok, "x yax y", 0, 14, 13, 14);
    EXPECT_IDS(tok, "zz", 0, 9); /* bytes without a token and no unk_token */
    expect_ids(tok, "", 0, NULL, 0);
    xm_tokenizer_close(tok);
}

static void broken_bytes_decode_to_replacement_characters(void **state)
{
    (void)state;
    static const struct {
        int32_t ids[5];
        size_t count;
        const char *text;
    } cases[] = {
        { { 0, 1, 2, 3 }, 4, "\xF0\x9F\x98\x80" },
        { { 0, 1, 6 },
          3,
          "\xEF\xBF\xBD"
          "a" },
        { { 0, 1, 2 }, 3, "\xEF\xBF\xBD" },
        { { 1, 3 }, 2, "\xEF\xBF\xBD\xEF\xBF\xBD" },
        { { 4, 5, 3 }, 3, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD" },
        { { 0, 5 }, 2, "\xEF\xBF\xBD" },
        { { 10, 5, 0, 3, 7 },
          5,
          "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD" },
        { { 10, 11, 6 },
          3,
          "\xEF\xBF\xBD"
          "a" },
        { { 12, 14, 13 }, 3, "\xC3\xA9x y a" },
    };
    xm_tokenizer *tok = make_tokenizer(BYTES);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_str text = { 0 };
        assert_int_equal(xm_tokenizer_decode(tok, cases[i].ids, cases[i].count,
                                             0, &text, NULL),
                         XRAY_OK);
        assert_string_equal(xr_str_text(&text), cases[i].text);
        xr_str_free(&text);
    }
    xm_tokenizer_close(tok);
}

/* A character is emitted with its last byte, and a broken one as soon as it is
 * known to be broken. */
static void stream_emits_only_complete_characters(void **state)
{
    (void)state;
    static const struct {
        int32_t id;
        const char *comes;
    } steps[] = { { 0, "" },
                  { 1, "" },
                  { 2, "" },
                  { 3, "\xF0\x9F\x98\x80" },
                  { 13, " a" },
                  { 10, "" },
                  { 6, "\xEF\xBF\xBD"
                       "a" },
                  { 12, "\xC3\xA9" },
                  { 7, "" } };
    xm_tokenizer *tok = make_tokenizer(BYTES);
    xm_stream *stream;
    xr_str out = { 0 };
    assert_int_equal(xm_stream_open(tok, 0, NULL, &stream), XRAY_OK);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
            xr_str_clear(&out);
            assert_int_equal(xm_stream_push(stream, steps[i].id, &out, NULL),
                             XRAY_OK);
            assert_string_equal(xr_str_text(&out), steps[i].comes);
        }
        xr_str_clear(&out);
        assert_int_equal(xm_stream_end(stream, &out, NULL), XRAY_OK);
        assert_string_equal(xr_str_text(&out), "\xEF\xBF\xBD");
    }
    assert_int_equal(xm_stream_push(stream, 99, &out, NULL), XRAY_E_RANGE);
    xm_stream_close(stream);
    xr_str_free(&out);
    xm_tokenizer_close(tok);
}

/* The characters that one character decomposes into have its span. The library
 * gives the same spans, in characters. */
static void parts_of_a_character_have_its_span(void **state)
{
    (void)state;
    static const char text[] = "a\xC3\xA9\xEF\xAC\x81"
                               "a";
    static const int32_t want[] = { 0, 1, 2, 3, 4, 0 };
    static const xm_token_span at[] = { { 0, 1 }, { 1, 3 }, { 1, 3 },
                                        { 3, 6 }, { 3, 6 }, { 6, 7 } };
    xm_tokenizer *tok = make_tokenizer(
        "{\"normalizer\":{\"type\":\"NFKD\"},\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"a\":0,\"e\":1,\"\xCC\x81\":2,\"f\":3,\"i\":4},"
        "\"merges\":[]}}");
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    assert_int_equal(xm_tokenizer_encode_spans(tok, text, sizeof text - 1, 0,
                                               &ids, &spans, NULL),
                     XRAY_OK);
    assert_int_equal(ids.count, 6);
    assert_memory_equal(ids.data, want, sizeof want);
    assert_int_equal(spans.count, 6);
    for (size_t i = 0; i < 6; i++)
        if (spans.data[i].from != at[i].from || spans.data[i].to != at[i].to)
            fail_msg("span %zu: %zu to %zu", i, spans.data[i].from,
                     spans.data[i].to);
    xm_token_spans_free(&spans);
    xm_ids_free(&ids);
    xm_tokenizer_close(tok);
}

/* A token that a post-processor adds has an empty span at the end of the text
 * that it stands at, so that spans are in order. */
static void added_ends_have_empty_spans_at_the_ends(void **state)
{
    (void)state;
    static const int32_t want[] = { 2, 2, 0, 1, 3, 2 };
    static const xm_token_span at[] = { { 0, 0 }, { 0, 0 }, { 0, 1 },
                                        { 1, 2 }, { 2, 2 }, { 2, 2 } };
    xm_tokenizer *tok = make_tokenizer(
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1},"
        "\"merges\":[]},\"added_tokens\":["
        "{\"id\":2,\"content\":\"S\",\"special\":true},"
        "{\"id\":3,\"content\":\"E\",\"special\":true}],"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
        "{\"SpecialToken\":{\"id\":\"S\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"S\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"E\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"S\",\"type_id\":0}}],"
        "\"special_tokens\":{\"S\":{\"id\":\"S\",\"ids\":[2]},"
        "\"E\":{\"id\":\"E\",\"ids\":[3]}}}}");
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    assert_int_equal(
        xm_tokenizer_encode_spans(tok, "ab", 2, 1, &ids, &spans, NULL),
        XRAY_OK);
    assert_int_equal(ids.count, 6);
    assert_memory_equal(ids.data, want, sizeof want);
    assert_int_equal(spans.count, 6);
    assert_memory_equal(spans.data, at, sizeof at);
    xm_token_spans_free(&spans);
    xm_ids_free(&ids);
    xm_tokenizer_close(tok);
}

/* Spans count bytes of the text before NFC and before the added space; the
 * library's count characters. A space alone has an empty span after
 * trim_offsets. */
static void spans_are_bytes_of_the_original_text(void **state)
{
    (void)state;
    static const char text[] = "e\xCC\x81"
                               "ax y\xF0\x9F\x98\x80";
    static const xm_token_span want[] = { { 0, 0 },   { 0, 0 },  { 0, 1 },
                                          { 0, 1 },   { 3, 4 },  { 4, 7 },
                                          { 11, 11 }, { 7, 11 }, { 7, 11 },
                                          { 7, 11 },  { 7, 11 } };
    xm_tokenizer *tok = make_tokenizer(BYTES);
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    for (int round = 0; round < 2;
         round++) { /* the second time from the cache */
        ids.count = 0;
        spans.count = 0;
        assert_int_equal(xm_tokenizer_encode_spans(tok, text, sizeof text - 1,
                                                   1, &ids, &spans, NULL),
                         XRAY_OK);
        assert_int_equal(ids.count, 11);
        assert_int_equal(spans.count, 11);
        for (size_t i = 0; i < 11; i++) {
            if (spans.data[i].from != want[i].from ||
                spans.data[i].to != want[i].to)
                fail_msg("span %zu: %zu to %zu", i, spans.data[i].from,
                         spans.data[i].to);
        }
    }
    xm_token_spans_free(&spans);
    xm_ids_free(&ids);
    xm_tokenizer_close(tok);
}

static xm_tokenizer *make_split_tokenizer(const char *kind, const char *pattern)
{
    char json[1024];
    (void)snprintf(json, sizeof json,
                   "{\"pre_tokenizer\":{\"type\":\"Sequence\","
                   "\"pretokenizers\":[{\"type\":\"Split\",\"behavior\":"
                   "\"Isolated\",\"invert\":false,\"pattern\":{\"%s\":\"%s\"}}]"
                   "},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\","
                   "\"vocab\":{\"?\":0,\"a\":1,\"b\":2,\"c\":3,\"xx\":4,"
                   "\"\\n\\n\":5,\"123\":6,\"45\":7,\"a.c\":8,\"abcx\":9,"
                   "\"k\\u212aK\":10,\"a\\u180eb\":11,\" \":12,"
                   "\"\\u2003\\u0085\":13,\"z\":14}}}",
                   kind, pattern);
    return make_tokenizer(json);
}

static void split_patterns_mean_what_oniguruma_means(void **state)
{
    (void)state;
    static const struct {
        const char *kind;
        const char *pattern;
        const char *text;
        int32_t ids[6];
        size_t count;
    } cases[] = {
        /* The \s of PCRE2 would match U+180E. */
        { "Regex",
          "\\\\s+",
          "a\xE1\xA0\x8E"
          "b",
          { 11 },
          1 },
        { "Regex",
          "\\\\s+",
          "a\xE2\x80\x83\xC2\x85"
          "b",
          { 1, 13, 2 },
          3 },
        { "Regex",
          "[^\\\\s]+",
          "a\xE1\xA0\x8E"
          "b c",
          { 11, 12, 3 },
          3 },
        { "Regex", "[\\\\S]", "ab c", { 1, 2, 12, 3 }, 4 },
        { "Regex", "\\\\S", "ab c", { 1, 2, 12, 3 }, 4 },
        { "String", "a.c", "a.cabcxa.c", { 8, 9, 8 }, 3 },
        { "Regex",
          "\\\\p{N}{1,3}|(?i:k)+",
          "12345k\xE2\x84\xAAKz",
          { 6, 7, 10, 14 },
          4 },
        { "Regex", "x*", "axxb", { 1, 4, 2 }, 3 },
        { "Regex", ".", "ab\n\nc", { 1, 2, 5, 3 }, 4 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xm_tokenizer *tok =
            make_split_tokenizer(cases[i].kind, cases[i].pattern);
        expect_ids(tok, cases[i].text, 0, cases[i].ids, cases[i].count);
        xm_tokenizer_close(tok);
    }
}

static int has_match(const char *pattern, const char *text)
{
    xr_err err = { "" };
    xm_regex *regex = NULL;
    void *workspace = xm_regex_workspace();
    size_t begin = 0;
    size_t end = 0;
    int found = 0;
    if (xm_regex_open(pattern, "test", &err, &regex) != XRAY_OK)
        fail_msg("%s", err.text);
    xm_matches m = { .regex = regex,
                     .workspace = workspace,
                     .text = text,
                     .size = strlen(text) };
    assert_int_equal(xm_regex_next(&m, &err, &found, &begin, &end), XRAY_OK);
    xm_regex_workspace_free(workspace);
    xm_regex_close(regex);
    return found;
}

/* Oniguruma's word characters, as the library finds them, of every kind and of
 * Unicode 15 and 16; some are none in brackets. */
static void classes_hold_what_oniguruma_holds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        char
            kind; /* w: a word character; a: one outside of brackets; n: none */
        const char *category;
    } rows[] = {
        { "0", 'w', "Nd" },
        { "_", 'w', "Pc" },
        { "-", 'n', "Pd" },
        { " ", 'n', "Zs" },
        { "\xC3\xA9", 'w', "Ll" },
        { "\xCC\x81", 'w', "Mn" },
        { "\xE0\xA4\xBE", 'w', "Mc" },
        { "\xE2\x83\x9D", 'w', "Me" },
        { "\xD9\xA3", 'w', "Nd" },
        { "\xE2\x85\xA7", 'w', "Nl" },
        { "\xE2\x80\xBF", 'w', "Pc" },
        { "\xE2\x92\xB6", 'w', "So" },     /* U+24B6, a letter in a circle */
        { "\xE2\x91\xA0", 'n', "No" },     /* U+2460, a digit in one */
        { "\xF0\x9F\x84\xB0", 'w', "So" }, /* U+1F130 */
        { "\xF0\x9F\x85\x8A", 'n', "So" }, /* U+1F14A */
        { "\xF0\x9F\x85\xB0", 'w', "So" }, /* U+1F170 */
        { "\xC2\xB2", 'a', "No" },
        { "\xC2\xBD", 'a', "No" },
        { "\xE2\x82\x80", 'n', "No" },
        { "\xE2\x80\x8D", 'n', "Cf" },
        { "\xE0\xA2\x97", 'w', "Mn" },     /* U+0897, of Unicode 16 */
        { "\xE0\xB3\xB3", 'w', "Mc" },     /* U+0CF3, of Unicode 15 */
        { "\xEA\x9F\x8B", 'w', "Lu" },     /* U+A7CB */
        { "\xF0\x90\xB5\x80", 'w', "Nd" }, /* U+10D40 */
        { "\xF0\x9E\x93\xAC", 'w', "Mn" }, /* U+1E4EC */
        { "\xE2\x90\xA7", 'n', "So" },     /* U+2427 */
        { "\xF0\x9F\xAB\xA8", 'n', "So" }, /* U+1FAE8 */
    };
    static const char *const categories[] = { "L",  "M",  "N",  "P",  "S",
                                              "Z",  "Lu", "Ll", "Mn", "Mc",
                                              "Nd", "Nl", "No", "Pc", "Pd",
                                              "So", "Zs" };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *text = rows[i].text;
        int word = rows[i].kind != 'n';
        int in_class = rows[i].kind == 'w';
        char after[8];
        (void)snprintf(after, sizeof after, "a%s", text);
        if (has_match("\\w", text) != word || has_match("\\W", text) == word ||
            has_match("[\\w]", text) != in_class ||
            has_match("^a\\b", after) == word ||
            has_match("^a\\B", after) != word)
            fail_msg("row %zu as a word character", i);
        for (size_t c = 0; c < sizeof categories / sizeof categories[0]; c++) {
            const char *name = categories[c];
            int is = strncmp(rows[i].category, name, strlen(name)) == 0;
            static const char *const forms[] = { "\\p{%s}", "[\\p{%s}]",
                                                 "\\P{%s}", "\\p{^%s}" };
            for (int f = 0; f < 4; f++) {
                char pattern[20];
                (void)snprintf(pattern, sizeof pattern, forms[f], name);
                if (has_match(pattern, text) != (f < 2 ? is : !is))
                    fail_msg("row %zu: %s", i, pattern);
            }
        }
    }
}

/* A script or a category is inverted by \P, by ^ in its braces and by ^ before
 * the class, each of which undoes the other. */
static void each_inversion_of_a_property_counts(void **state)
{
    (void)state;
    static const char *const names[] = { "Han", "Latin", "L", "N" };
    static const char *const texts[] = { "\xE4\xB8\xAD", "a", "7" };
    static const int holds[4][3] = {
        { 1, 0, 0 }, { 0, 1, 0 }, { 1, 1, 0 }, { 0, 0, 1 }
    };
    for (unsigned i = 0; i < 4 * 3 * 16; i++) {
        unsigned name = i / 16 % 4;
        unsigned text = i / 64;
        int in_class = (i & 4) != 0;
        int outer = in_class && i & 8;
        char pattern[32];
        (void)snprintf(pattern, sizeof pattern, "%s%s\\%c{%s%s}%s",
                       in_class ? "[" : "", outer ? "^" : "", i & 1 ? 'P' : 'p',
                       i & 2 ? "^" : "", names[name], in_class ? "]" : "");
        int inverted = (int)(i & 1) ^ (int)(i >> 1 & 1) ^ outer;
        if (has_match(pattern, texts[text]) != (holds[name][text] ^ inverted))
            fail_msg("%s on \"%s\"", pattern, texts[text]);
    }
}

/* The output of NFC is looked up as one word. */
static void nfc_composes_like_the_library(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int32_t id;
    } cases[] = {
        { "\xE1\x84\x8D\xE1\x85\xA3\xE1\x86\xA7", 1 }, /* U+11A7 stays */
        { "\xE1\x84\x8D\xE1\x85\xA3\xE1\x86\xA8", 2 },
        { "a\xCC\x81\xCC\xA3", 3 }, /* the dot below comes first */
        { "\xE2\x84\xAB", 4 },      /* Angstrom */
        { "\xE0\xA5\x98", 5 },      /* a composition exclusion */
    };
    xm_tokenizer *tok = make_tokenizer(
        "{\"normalizer\":{\"type\":\"NFC\"},\"model\":{\"type\":"
        "\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,"
        "\"\\uca14\\u11a7\":1,\"\\uca15\":2,\"\\u1ea1\\u0301\":3,"
        "\"\\u00c5\":4,\"\\u0915\\u093c\":5}}}");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_ids(tok, cases[i].text, 0, &cases[i].id, 1);
    /* Runs of marks do not take quadratic time. */
    xr_str marks = { 0 };
    for (int i = 0; i < 200000; i++)
        xr_str_puts(&marks, "\xCC\x81\xCC\x96");
    const int32_t unknown = 0;
    expect_ids(tok, marks.data, 0, &unknown, 1);
    xr_str_free(&marks);
    xm_tokenizer_close(tok);
}

/* A pattern that backtracks without end is an error, not a hang. */
static void endless_backtracking_is_an_error(void **state)
{
    (void)state;
    char text[200];
    xm_ids ids = { 0 };
    xr_err err = { "" };
    xm_tokenizer *tok = make_split_tokenizer("Regex", "(a+|aa)+(a|aa)+[bc]");
    memset(text, 'a', sizeof text);
    assert_int_equal(xm_tokenizer_encode(tok, text, sizeof text, 0, &ids, &err),
                     XRAY_E_RANGE);
    assert_non_null(strstr(err.text, "takes too long"));
    assert_int_equal(ids.count, 0);
    xm_ids_free(&ids);
    xm_tokenizer_close(tok);
}

/* The message names the size that a text of one byte may grow to. */
static void growth_of_a_text_is_bounded(void **state)
{
    (void)state;
    char json[2000];
    char many[201] = "";
    xm_ids ids = { 0 };
    xr_err err = { "" };
    memset(many, 'a', sizeof many - 1);
#define GROW "{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},"
    (void)snprintf(
        json, sizeof json,
        "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[" GROW
        "\"content\":\"%s\"}," GROW "\"content\":\"%s\"}," GROW
        "\"content\":\"%s\"}]},\"model\":{\"type\":"
        "\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}}}",
        many, many, many);
    xm_tokenizer *tok = make_tokenizer(json);
    assert_int_equal(xm_tokenizer_encode(tok, "a", 1, 0, &ids, &err),
                     XRAY_E_RANGE);
    assert_string_equal(err.text, "tokenizer: the normalizer or pre_tokenizer "
                                  "makes a text grow beyond 1048640 bytes");
    assert_int_equal(ids.count, 0);
    xm_ids_free(&ids);
    xm_tokenizer_close(tok);
}

/* Expected for Unicode 15 and 16: runs, characters, and the sum of the first
 * code points of the runs. */
static void characters_of_unicode_16_are_complete(void **state)
{
    static const struct {
        const char *name;
        unsigned runs;
        unsigned characters;
        unsigned sum;
    } rows[] = {
        { "L", 46, 9272, 3881468 }, { "M", 34, 93, 2456792 },
        { "N", 10, 120, 956545 },   { "P", 10, 36, 660854 },
        { "S", 25, 773, 2682756 },  { "Z", 0, 0, 0 },
        { "Lu", 5, 27, 205146 },    { "Ll", 5, 31, 284871 },
        { "Lm", 6, 70, 572035 },    { "Lo", 30, 9144, 2819416 },
        { "Mn", 22, 71, 1645412 },  { "Mc", 12, 22, 811380 },
        { "Nd", 9, 100, 837057 },   { "No", 1, 20, 119488 },
        { "Pd", 1, 1, 68974 },      { "Po", 9, 35, 591880 },
        { "Sm", 1, 2, 69006 },      { "So", 24, 771, 2613750 },
        { "Arabic", 3, 8, 140885 }, { "Cyrillic", 3, 65, 253256 },
        { "Han", 3, 4815, 571001 }, { "Devanagari", 1, 10, 72448 },
        { "Lao", 1, 1, 3790 },      { "Hiragana", 1, 1, 110898 },
        { "Kannada", 1, 1, 3315 },  { "Katakana", 1, 1, 110933 },
        { "Latin", 3, 12, 208586 }, { "Myanmar", 1, 20, 71376 },
        { "Greek", 0, 0, 0 },
    };
    char version[32] = "";
    (void)state;
    (void)pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    int known = strtol(version, NULL, 10) >= 16;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        xr_str text = { 0 };
        unsigned runs = 0;
        unsigned characters = 0;
        unsigned sum = 0;
        if (rows[i].name[1] && rows[i].name[2])
            xm_unicode16_script(rows[i].name, &text);
        else
            xm_unicode16_category(rows[i].name, &text);
        for (const char *at = xr_str_text(&text); *at; runs++) {
            char *end;
            assert_memory_equal(at, "\\x{", 3);
            unsigned long from = strtoul(at + 3, &end, 16);
            assert_memory_equal(end, "}-\\x{", 5);
            characters += (unsigned)(strtoul(end + 5, &end, 16) - from + 1);
            sum += (unsigned)from;
            assert_int_equal(*end, '}');
            at = end + 1;
        }
        if (runs != (known ? 0 : rows[i].runs) ||
            (!known &&
             (characters != rows[i].characters || sum != rows[i].sum)))
            fail_msg("%s: %u runs, %u characters, sum %u", rows[i].name, runs,
                     characters, sum);
        xr_str_free(&text);
    }
}

/* The pages hold what the runs say, for every character; and the letters of
 * blocks that fill many pages, from the Unicode Character Database. */
static void every_character_has_its_class(void **state)
{
    (void)state;
    static const uint32_t letters[][2] = {
        { 0x1401, 0x166C },   { 0x3400, 0x4DBF },   { 0x4E00, 0x9FFF },
        { 0xAC00, 0xD7A3 },   { 0x14400, 0x14646 }, { 0x17000, 0x187F7 },
        { 0x20000, 0x2A6DF }, { 0x2F800, 0x2FA1D }, { 0x30000, 0x3134A },
    };
    xm_char_classes classes = { .page_count = 0 };
    uint32_t code = 0;
    assert_int_equal(xm_char_classes_init(&classes), 0);
    for (size_t i = 0; i < xm_char_class_run_count; i++)
        for (uint32_t n = xm_char_class_runs[i] >> 13; n; n--, code++)
            if (xm_char_class(&classes, code) !=
                (xm_char_class_runs[i] & 0x1FFF))
                fail_msg("U+%04X", code);
    assert_int_equal(code, 0x110000);
    for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
        for (code = letters[i][0]; code <= letters[i][1]; code++)
            if (!(xm_char_class(&classes, code) & XM_C_LETTER))
                fail_msg("U+%04X", code);
    /* Equal pages are stored once, or the table has no room for all. */
    assert_in_range(classes.page_count, 100, 200);
    xm_char_classes_free(&classes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_level_text_becomes_ids),
        cmocka_unit_test(broken_bytes_decode_to_replacement_characters),
        cmocka_unit_test(stream_emits_only_complete_characters),
        cmocka_unit_test(spans_are_bytes_of_the_original_text),
        cmocka_unit_test(parts_of_a_character_have_its_span),
        cmocka_unit_test(added_ends_have_empty_spans_at_the_ends),
        cmocka_unit_test(split_patterns_mean_what_oniguruma_means),
        cmocka_unit_test(classes_hold_what_oniguruma_holds),
        cmocka_unit_test(each_inversion_of_a_property_counts),
        cmocka_unit_test(nfc_composes_like_the_library),
        cmocka_unit_test(endless_backtracking_is_an_error),
        cmocka_unit_test(growth_of_a_text_is_bounded),
        cmocka_unit_test(characters_of_unicode_16_are_complete),
        cmocka_unit_test(every_character_has_its_class),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
