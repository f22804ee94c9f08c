/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules of tokenizers, each with a small tokenizer made for it.
 */
#include <xray/numerics.h>

#include "tests/text/small_tokenizer.h"

#define CHARS                                                                 \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\"},"     \
    "\"behavior\":\"Isolated\",\"invert\":false},\"decoder\":{\"type\":"      \
    "\"Fuse\"},\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"<unk>\":0,"     \
    "\"a\":1,\"b\":2,\"\\n\":3,\"\xC3\xA9\":4,\" \":5,\"<s>\":6,\"</s>\":7}," \
    "\"unk_token\":\"<unk>\"}"
#define ENDS                                                             \
    "\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"special\":true}," \
    "{\"id\":7,\"content\":\"</s>\",\"special\":true}],"

static void characters_become_ids_and_back(void **state)
{
    (void)state;
    (void)unlink(scratch_path("tokenizer_config.json"));
    xm_tokenizer *tok = make_tokenizer("{" ENDS CHARS "}");
    EXPECT_IDS(tok, "ab\n\xC3\xA9 x</s>a", 1, 1, 2, 3, 4, 5, 0, 7, 1);
    expect_ids(tok, "", 1, NULL, 0);
    assert_int_equal(xm_tokenizer_vocab(tok), 8);
    const int32_t ids[] = { 6, 1, 3, 4, 7 };
    xr_str text = { 0 };
    assert_int_equal(xm_tokenizer_decode(tok, ids, 5, 1, &text, NULL), XRAY_OK);
    assert_string_equal(text.data, "a\n\xC3\xA9");
    xr_str_clear(&text);
    assert_int_equal(xm_tokenizer_decode(tok, ids, 5, 0, &text, NULL), XRAY_OK);
    assert_string_equal(text.data, "<s>a\n\xC3\xA9</s>");
    xr_str_free(&text);
    const int32_t out = 8;
    assert_int_equal(xm_tokenizer_decode(tok, &out, 1, 0, &text, NULL),
                     XRAY_E_RANGE);
    assert_int_equal(xm_tokenizer_decode(tok, &out, 1, 1, &text, NULL),
                     XRAY_E_RANGE);
    /* Ids that a model with a padded vocabulary may sample. */
    const int32_t padded[] = { 1, 8, 7, 2, 100000, -1 };
    assert_int_equal(xm_tokenizer_decode(tok, padded, 6, 2, &text, NULL),
                     XRAY_OK);
    assert_string_equal(text.data, "ab");
    xr_str_free(&text);
    xm_ids none = { 0 };
    xr_err err = { "" };
    assert_int_equal(xm_tokenizer_encode(tok, "ab\xFF", 3, 0, &none, &err),
                     XRAY_E_ARG);
    assert_non_null(strstr(err.text, "offset 2"));
    assert_int_equal(none.count, 0);
    xm_ids_free(&none);
    xm_tokenizer_close(tok);
}

/* A text that the model has no tokens for is an error with the part of the text
 * in question, and adds no ids; a refused list of ids adds no text. */
static void what_has_no_tokens_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        const char *message;
    } cases[] = {
        { "{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}",
          "tokenizer: \"ab\" is not in the vocabulary, which has no "
          "unk_token" },
        { "{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[],"
          "\"unk_token\":\"?\"}",
          "tokenizer: \"ab\" needs the unk_token, which is not in the "
          "vocabulary" },
        { "{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1.0]]}",
          "tokenizer: \"b\" is not in the vocabulary, which has no unk_id" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[300];
        xm_ids ids = { 0 };
        xr_err err = { "" };
        (void)snprintf(json, sizeof json, "{\"model\":%s}", cases[i].model);
        xm_tokenizer *tok = make_tokenizer(json);
        assert_int_equal(xm_tokenizer_encode(tok, "ab", 2, 0, &ids, &err),
                         XRAY_E_CONFIG);
        assert_string_equal(err.text, cases[i].message);
        assert_int_equal(ids.count, 0);
        if (i)
            EXPECT_IDS(tok, "aa", 0, 0, 0);
        assert_int_equal(
            xm_tokenizer_encode(tok, "a", ((size_t)1 << 30) + 1, 0, &ids, &err),
            XRAY_E_RANGE);
        const int32_t list[] = { 0, 0, 1 };
        xr_str text = { 0 };
        xr_str_puts(&text, "kept");
        assert_int_equal(xm_tokenizer_decode(tok, list, 3, 0, &text, &err),
                         XRAY_E_RANGE);
        assert_string_equal(err.text, "id 1 (number 2 of the list) is not in "
                                      "the tokenizer's vocabulary");
        assert_string_equal(text.data, "kept");
        assert_int_equal(text.size, 4);
        xr_str_free(&text);
        xm_ids_free(&ids);
        xm_tokenizer_close(tok);
    }
}

static void bos_follows_config_or_post_processor(void **state)
{
    (void)state;
    (void)scratch_write(
        "tokenizer_config.json",
        "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"},"
        "\"add_bos_token\":true}");
    xm_tokenizer *tok = make_tokenizer("{" ENDS CHARS "}");
    EXPECT_IDS(tok, "a", 1, 6, 1);
    EXPECT_IDS(tok, "a", 0, 1);
    assert_int_equal(xm_tokenizer_eos(tok), 7);
    xm_tokenizer_close(tok);
    /* With a post_processor, the rules of tokenizer_config.json do not
     * apply. */
    tok = make_tokenizer(
        "{" ENDS CHARS ",\"post_processor\":{\"type\":\"TemplateProcessing\","
        "\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"E\",\"type_id\":0}}],"
        "\"special_tokens\":{\"E\":{\"id\":\"E\",\"ids\":[7]}}}}");
    EXPECT_IDS(tok, "a", 1, 1, 7);
    assert_int_equal(xm_tokenizer_bos(tok), 6);
    xm_tokenizer_close(tok);
    (void)unlink(scratch_path("tokenizer_config.json"));
}

/* The expected ids are those of the Hugging Face library for the same file. */
static void added_tokens_match_longest_and_strip(void **state)
{
    (void)state;
    xm_tokenizer *tok = make_tokenizer(
        "{\"added_tokens\":["
        "{\"id\":8,\"content\":\"L\",\"lstrip\":true},"
        "{\"id\":9,\"content\":\"R\",\"rstrip\":true},"
        "{\"id\":10,\"content\":\"bb\",\"single_word\":true},"
        "{\"id\":11,\"content\":\"aa\"},{\"id\":12,\"content\":\"aab\"}]," CHARS
        "}");
    EXPECT_IDS(tok, "a \nL b", 0, 1, 8, 5, 2);
    EXPECT_IDS(tok, "a R \n b", 0, 1, 5, 9, 2);
    EXPECT_IDS(tok, "abb bb", 0, 1, 2, 2, 5, 10);
    EXPECT_IDS(tok, "aaab", 0, 11, 1, 2);
    EXPECT_IDS(tok, "aab", 0, 12);
    xm_tokenizer_close(tok);
}

/* As in the library, an added token without text is none: it takes no id, and
 * no place in a text. */
static void empty_added_tokens_are_none(void **state)
{
    (void)state;
    xm_tokenizer *tok =
        make_tokenizer("{\"added_tokens\":[{\"id\":8,\"content\":\"\"},"
                       "{\"id\":1,\"content\":\"\",\"special\":true},"
                       "{\"id\":9,\"content\":\"aa\"}]," CHARS "}");
    EXPECT_IDS(tok, "aaa b", 0, 9, 1, 5, 2);
    expect_ids(tok, "", 0, NULL, 0);
    assert_int_equal(xm_tokenizer_vocab(tok), 10);
    const int32_t ids[] = { 1, 9 };
    xr_str text = { 0 };
    assert_int_equal(xm_tokenizer_decode(tok, ids, 2, 1, &text, NULL), XRAY_OK);
    assert_string_equal(text.data, "aaa");
    xr_str_clear(&text);
    xr_str_free(&text);
    xm_tokenizer_close(tok);
}

static void bpe_merges_by_rank_then_leftmost(void **state)
{
    (void)state;
    static const char *const forms[] = { "[\"a b\",\"ab a\",\"b a\",\"b b\"]",
                                         "[[\"a\",\"b\"],[\"ab\",\"a\"],"
                                         "[\"b\",\"a\"],[\"b\",\"b\"]]" };
    for (size_t i = 0; i < 2; i++) {
        char json[1024];
        (void)snprintf(
            json, sizeof json,
            "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,"
            "\"b\":1,\"ab\":2,\"aba\":3,\"ba\":4,\"?\":5,"
            "\"<0x0A>\":6,\"bb\":7},\"merges\":%s,\"unk_token\":\"?\","
            "\"fuse_unk\":%s,\"byte_fallback\":true}}",
            forms[i], i ? "true" : "false");
        xm_tokenizer *tok = make_tokenizer(json);
        EXPECT_IDS(tok, "abab", 0, 2, 2);
        EXPECT_IDS(tok, "bababa", 0, 1, 2, 3);
        EXPECT_IDS(tok, "bbb", 0, 7, 1); /* the leftmost first */
        EXPECT_IDS(tok, "bbbbb", 0, 7, 7, 1);
        EXPECT_IDS(tok, "a\nb", 0, 0, 6, 1);
        if (i)
            EXPECT_IDS(tok, "axyb", 0, 0, 5, 1);
        else
            EXPECT_IDS(tok, "axyb", 0, 0, 5, 5, 1);
        xm_tokenizer_close(tok);
    }
}

/* Of several paths with the best score the one found first is kept. Pieces are
 * offered from left to right, so it is the one whose last piece starts earlier,
 * as in the library. */
static void unigram_keeps_the_first_of_equal_paths(void **state)
{
    (void)state;
    (void)unlink(scratch_path("tokenizer_config.json"));
    xm_tokenizer *tok = make_tokenizer(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[["
        "\"<unk>\",0],[\"a\",-1],[\"b\",-1],[\"ab\",-2],[\"c\",-1],["
        "\"bc\",-2],[\"abc\",-3.5]]}}");
    EXPECT_IDS(tok, "ab", 0, 3);
    EXPECT_IDS(tok, "abc", 0, 1, 5);
    EXPECT_IDS(tok, "abab", 0, 3, 3);
    EXPECT_IDS(tok, "cab", 0, 4, 3);
    EXPECT_IDS(tok, "aabbcc", 0, 1, 3, 5, 4);
    xm_tokenizer_close(tok);
}

/* A character that only longer pieces begin with may still be unknown, which
 * costs 10 below the worst piece; the ids are the library's. */
static void unigram_weighs_unknown_characters(void **state)
{
    (void)state;
    xm_tokenizer *tok = make_tokenizer(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[["
        "\"<unk>\",0],[\"ab\",-5],[\"b\",-1]]}}");
    EXPECT_IDS(tok, "ab", 0, 1);
    EXPECT_IDS(tok, "abb", 0, 1, 2);
    EXPECT_IDS(tok, "bab", 0, 2, 1);
    xm_tokenizer_close(tok);
    /* Two unknown characters that are better than their piece are one piece,
     * which is looked up again; so is the text of the unknown token. */
    tok = make_tokenizer(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":2,\"byte_fallback\":"
        "true,\"vocab\":[[\"ab\",30],[\"c\",40],[\"<unk>\",50],[\"<0x61>\","
        "30],[\"<0x62>\",30]]}}");
    EXPECT_IDS(tok, "cabc", 0, 1, 0, 1);
    EXPECT_IDS(tok, "bac<unk>c", 0, 4, 3, 1, 2, 1);
    EXPECT_IDS(tok, "c\xC3\xA9x", 0, 1, 2);
    xm_tokenizer_close(tok);
}

/* The last entry of a piece gives its id and its score, as in the library. */
static void unigram_takes_the_last_of_repeated_pieces(void **state)
{
    (void)state;
    xm_tokenizer *tok = make_tokenizer(
        "{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[["
        "\"<unk>\",0],[\"a\",-1],[\"b\",-1],[\"ab\",-5],[\"a\",-9],"
        "[\"b\",-3]]}}");
    EXPECT_IDS(tok, "aa", 0, 4, 4);
    EXPECT_IDS(tok, "ba", 0, 5, 4);
    EXPECT_IDS(tok, "ab", 0, 3);
    xm_tokenizer_close(tok);
}

/* Without one of these keys, or with null, the model is the same. */
static void keys_of_a_bpe_model_are_optional(void **state)
{
    (void)state;
    static const char *const keys[][2] = {
        { "dropout", "0" },           { "continuing_subword_prefix", "\"\"" },
        { "unk_token", "\"?\"" },     { "end_of_word_suffix", "\"\"" },
        { "fuse_unk", "false" },      { "byte_fallback", "false" },
        { "ignore_merges", "false" }, { "merges", "[]" }
    };
    const size_t count = sizeof keys / sizeof keys[0];
    for (size_t i = 0; i < 2 * count; i++) {
        char json[512] = "{\"model\":{\"type\":\"BPE\",";
        for (size_t k = 0; k < count; k++) {
            size_t at = strlen(json);
            if (k != i)
                (void)snprintf(json + at, sizeof json - at, "\"%s\":%s,",
                               keys[k][0],
                               i == count + k ? "null" : keys[k][1]);
        }
        size_t at = strlen(json);
        (void)snprintf(json + at, sizeof json - at,
                       "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"?\":3}}}");
        xm_tokenizer *tok = make_tokenizer(json);
        EXPECT_IDS(tok, "ab", 0, 0, 1);
        xm_tokenizer_close(tok);
    }
}

/* A model of four tokens, whose ids begin at any of them. */
static xm_tokenizer *
make_shifted_tokenizer(const char *type, const char *const tokens[4], int shift)
{
    int pairs = strcmp(type, "Unigram") == 0;
    char json[1024];
    char vocab[256] = "";
    for (int id = 0; id < 4; id++) {
        const char *token = tokens[(id + 4 - shift) % 4];
        size_t at = strlen(vocab);
        (void)snprintf(vocab + at, sizeof vocab - at,
                       pairs ? "%s[\"%s\",-1]" : "%s\"%s\":%d", id ? "," : "",
                       token, id);
    }
    (void)snprintf(json, sizeof json,
                   "{\"added_tokens\":[{\"id\":%d,\"content\":\"%s\","
                   "\"special\":true}],\"post_processor\":{\"type\":"
                   "\"TemplateProcessing\",\"single\":[{\"SpecialToken\":"
                   "{\"id\":\"S\"}},{\"Sequence\":{\"id\":\"A\"}}],"
                   "\"special_tokens\":{\"S\":{\"ids\":[%d]}}},"
                   "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":"
                   "{\"String\":\"-\"},\"behavior\":\"Removed\"},\"model\":"
                   "{\"type\":\"%s\",\"byte_fallback\":true,\"unk_token\":"
                   "\"%s\",\"unk_id\":%d,\"vocab\":%s%s%s}}",
                   shift, tokens[0], shift, type, tokens[1], (shift + 1) % 4,
                   pairs ? "[" : "{", vocab, pairs ? "]" : "}");
    return make_tokenizer(json);
}

/* An id of 0 is a token like any other, for words, parts of words, bytes,
 * unknown characters, and the token at the start. */
static void ids_may_begin_at_any_token(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        const char *tokens[4];
        const char *text;
        int32_t ids[6];
    } cases[] = {
        { "BPE",
          { "<s>", "?", "a", "<0x0A>" },
          "a\n-x<s>",
          { 0, 2, 3, 1, 0, -1 } },
        { "Unigram",
          { "<s>", "?", "a", "<0x0A>" },
          "a\n-x<s>",
          { 0, 2, 3, 1, 0, -1 } },
        { "WordPiece",
          { "<s>", "?", "a", "##b" },
          "ab-x<s>",
          { 0, 2, 3, 1, 0, -1 } },
        { "WordLevel",
          { "<s>", "?", "ab", "c" },
          "ab-c-x<s>",
          { 0, 2, 3, 1, 0, -1 } },
    };
    for (size_t i = 0; i < 4 * sizeof cases / sizeof cases[0]; i++) {
        const size_t kind = i / 4;
        int shift = (int)(i % 4);
        int32_t want[6];
        size_t count = 0;
        for (; cases[kind].ids[count] >= 0; count++)
            want[count] = (cases[kind].ids[count] + shift) % 4;
        xm_tokenizer *tok =
            make_shifted_tokenizer(cases[kind].type, cases[kind].tokens, shift);
        expect_ids(tok, cases[kind].text, 1, want, count);
        assert_int_equal(xm_tokenizer_bos(tok), shift);
        for (int id = 0; id < 4; id++) {
            const int32_t at = (id + shift) % 4;
            xr_str text = { 0 };
            assert_int_equal(xm_tokenizer_decode(tok, &at, 1, 0, &text, NULL),
                             XRAY_OK);
            assert_string_equal(text.data, cases[kind].tokens[id]);
            xr_str_free(&text);
        }
        xm_tokenizer_close(tok);
    }
}

/* The limit counts characters, and a word of exactly the limit is still
 * encoded. */
static void longest_word_counts_characters(void **state)
{
    (void)state;
    xm_tokenizer *tok =
        make_tokenizer("{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
                       "\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"?\","
                       "\"continuing_subword_prefix\":\"##\","
                       "\"max_input_chars_per_word\":4,"
                       "\"vocab\":{\"?\":0,\"\xC3\xA9\":1,\"##\xC3\xA9\":2}}}");
    EXPECT_IDS(tok, "\xC3\xA9\xC3\xA9\xC3\xA9 \xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9",
               0, 1, 2, 2, 1, 2, 2, 2);
    EXPECT_IDS(tok, "\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9\xC3\xA9 \xC3\xA9", 0, 0,
               1);
    xm_tokenizer_close(tok);
}

#define WORDS_OF(pattern)                                                    \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","      \
    "\"pattern\":{\"Regex\":\"" pattern                                      \
    "\"}},\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{" \
    "\"?\":0,\"a\":1,\"'s\":2,\"'t\":3,\"'re\":4,\"'ve\":5,\"'m\":6,"        \
    "\"'ll\":7,\"'d\":8,\"'\":9,\"'M\":10,\"'RE\":11,\"M\":12,\"RE\":13,"    \
    "\"'x\":14,\"'l\":15,\"x\":16,\"l\":17}}}"
#define REST "[^\\\\s\\\\p{L}\\\\p{N}]+"
#define SPACES "\\\\s+(?!\\\\S)|\\\\s+"

/* Every contraction of the two patterns that most models have, before a letter,
 * and texts that are no contraction. GPT-2's pattern has lower case only, the
 * later one either case. */
static void short_forms_split_like_the_patterns(void **state)
{
    (void)state;
    static const char small[] = "a'sa a'ta a'rea a'vea a'ma a'lla a'da";
    xm_tokenizer *tok = make_tokenizer(WORDS_OF(
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\\\p{L}+| ?\\\\p{N}+| ?" REST "|" SPACES));
    EXPECT_IDS(tok, small, 0, 1, 2, 1, 0, 3, 1, 0, 4, 1, 0, 5, 1, 0, 6, 1, 0, 7,
               1, 0, 8, 1);
    EXPECT_IDS(tok, "a'M", 0, 1, 9, 12);
    EXPECT_IDS(tok, "a'RE", 0, 1, 9, 13);
    EXPECT_IDS(tok, "a'x", 0, 1, 9, 16);
    EXPECT_IDS(tok, "a'l", 0, 1, 9, 17);
    xm_tokenizer_close(tok);
    tok = make_tokenizer(WORDS_OF("(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
                                  "[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|"
                                  "\\\\p{N}| ?" REST "[\\\\r\\\\n]*|"
                                  "\\\\s*[\\\\r\\\\n]+|" SPACES));
    EXPECT_IDS(tok, small, 0, 1, 2, 1, 0, 3, 1, 0, 4, 1, 0, 5, 1, 0, 6, 1, 0, 7,
               1, 0, 8, 1);
    EXPECT_IDS(tok, "a'Ma", 0, 1, 10, 1);
    EXPECT_IDS(tok, "a'REa", 0, 1, 11, 1);
    EXPECT_IDS(tok, "a'x", 0, 1, 14);
    EXPECT_IDS(tok, "a'l", 0, 1, 15);
    xm_tokenizer_close(tok);
}

/* The cache has one slot for several words. Words that differ only in the
 * middle stay apart, also if they share a slot. */
static void words_in_one_cache_slot_stay_apart(void **state)
{
    (void)state;
    enum { WORDS = 6000 };
    static int32_t want[2 * WORDS];
    xr_str json = { 0 };
    xr_str text = { 0 };
    xr_str_puts(&json, "{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
                       "\"model\":{\"type\":\"WordLevel\","
                       "\"unk_token\":\"?\",\"vocab\":{\"?\":0");
    for (int32_t i = 0; i < 2 * WORDS; i++) {
        char word[] = "thequick???brownfox";
        for (int32_t k = 0, rest = i % WORDS; k < 3; k++, rest /= 26)
            word[8 + k] = (char)('a' + rest % 26);
        if (i < WORDS)
            xr_str_printf(&json, ",\"%s\":%d", word + i % 3, i + 1);
        want[i] = i % WORDS + 1;
        xr_str_printf(&text, "%s ", word + i % WORDS % 3);
    }
    xr_str_puts(&json, "}}}");
    xm_tokenizer *tok = make_tokenizer(xr_str_text(&json));
    expect_ids(tok, xr_str_text(&text), 0, want, 2 * WORDS);
    xr_str_free(&json);
    xr_str_free(&text);
    xm_tokenizer_close(tok);
}

#define CHARSMAP(base64)                         \
    "{\"normalizer\":{\"type\":\"Precompiled\"," \
    "\"precompiled_charsmap\":\"" base64 "\"}," CHARS "}"

/* Charsmaps with the one entry "a", whose replacement begins at byte 0, 1 or 4
 * of the three bytes "\xC3\xA9\0". An entry that points into a character or
 * behind the texts leaves the text as it is. */
static void damaged_charsmaps_replace_nothing(void **state)
{
    (void)state;
    xm_tokenizer *tok =
        make_tokenizer(CHARSMAP("DAAAAACAAQBhDQAAAAAAgMOpAA=="));
    EXPECT_IDS(tok, "ab", 0, 4, 2);
    xm_tokenizer_close(tok);
    tok = make_tokenizer(CHARSMAP("DAAAAACAAQBhDQAAAQAAgMOpAA=="));
    EXPECT_IDS(tok, "ab", 0, 1, 2);
    xm_tokenizer_close(tok);
    tok = make_tokenizer(CHARSMAP("DAAAAACAAQBhDQAABAAAgMOpAA=="));
    EXPECT_IDS(tok, "ab", 0, 1, 2);
    xm_tokenizer_close(tok);
}

#define SPLIT(pattern)                                       \
    "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":"   \
    "\"Isolated\",\"pattern\":{\"Regex\":\"" pattern "\"}}," \
    "\"model\":{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}}"

static void refused_files_name_the_reason(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *named;
    } cases[] = {
        { "{}", "\"type\" is missing" },
        { "{\"model\":{\"type\":\"Trigram\"}}", "model Trigram" },
        { "{\"model\":{\"type\":\"Unigram\"}}", "must be an array" },
        { "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}}", "entry 0" },
        { "{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0]],"
          "\"unk_id\":1}}",
          "unk_id" },
        { "{\"normalizer\":{\"type\":\"NFX\"}}", "normalizer NFX" },
        { "{\"normalizer\":{\"type\":\"Precompiled\","
          "\"precompiled_charsmap\":\"AAA=\"}}",
          "not a SentencePiece charsmap" },
        { "{\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}",
          "pre_tokenizer UnicodeScripts" },
        { "{\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Dropped\","
          "\"pattern\":{\"Regex\":\"\"}}}",
          "MergedWithPrevious" },
        { "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}}",
          "one character" },
        { SPLIT("[a-z&&[aeiou]]"), "\"&&[a\" at offset 4" },
        { SPLIT("a\\\\h+"), "\"\\h+\" at offset 1" },
        { SPLIT("\\\\p{Hxx}"), "\\p{H" },
        { SPLIT("a(?m)"), "\"(?m)\" at offset 1" },
        { SPLIT("(*LIMIT_MATCH=1)a"), "(*LI" },
        { SPLIT("a("), "not a regular expression" },
        { "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
          "{\"type\":\"ByteLevel\"},{\"type\":\"Figures\"}]}}",
          "pre_tokenizer Figures" },
        { "{\"decoder\":{\"type\":\"CTC\"}}", "decoder CTC" },
        { "{" CHARS ",\"post_processor\":{\"type\":\"Bert\"}}", "Bert" },
        { "{" CHARS ",\"post_processor\":{\"type\":\"Sequence\","
          "\"processors\":[{\"type\":\"ByteLevel\"},{\"type\":\"Roberta\"}]}}",
          "Roberta" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":"
          "[\"a b\"]}}",
          "merge 0" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0}}}",
          "twice" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1}}}", "\"a\"" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"dropout\":0.1}}",
          "dropout" },
        { "{\"added_tokens\":[{\"id\":1,\"content\":\"zz\"}]," CHARS "}",
          "added token \"zz\"" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xm_tokenizer *tok;
        xr_err err = { "" };
        (void)scratch_write("tokenizer.json", cases[i].json);
        assert_true(xm_tokenizer_open(scratch_dir(), &err, &tok) < 0);
        if (!strstr(err.text, cases[i].named))
            fail_msg("%s: %s", cases[i].json, err.text);
    }
}

static void mutated_files_open_or_are_errors(void **state)
{
    (void)state;
    const char *const good =
        "{" ENDS
        "\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"_\"}," CHARS
        ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":"
        "[{\"SpecialToken\":{\"id\":\"S\"}},{\"Sequence\":{\"id\":\"A\"}}],"
        "\"special_tokens\":{\"S\":{\"ids\":[6]}}}}";
    char text[2048];
    size_t size = strlen(good);
    enum { ROUNDS = 350 };
    int accepted = 0;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        xray_philox_out r = xray_philox(3, i, 0, 0, 0);
        memcpy(text, good, size + 1);
        text[r.w[0] % size] = (char)(1 + r.w[1] % 255);
        if (r.w[2] % 2)
            text[r.w[3] % size] = "0123456789\"{}[],:"[r.w[2] / 2 % 17];
        (void)scratch_write("tokenizer.json", text);
        xm_tokenizer *tok;
        xr_err err = { "" };
        if (xm_tokenizer_open(scratch_dir(), &err, &tok)) {
            assert_true(err.text[0] != '\0');
            continue;
        }
        xm_ids ids = { 0 };
        xr_str back = { 0 };
        if (!xm_tokenizer_encode(tok, "a</s>bz", 7, 1, &ids, &err))
            (void)xm_tokenizer_decode(tok, ids.data, ids.count, 0, &back, &err);
        xr_str_free(&back);
        xm_ids_free(&ids);
        xm_tokenizer_close(tok);
        accepted++;
    }
    assert_true(accepted > 0 && accepted < ROUNDS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_become_ids_and_back),
        cmocka_unit_test(what_has_no_tokens_is_named),
        cmocka_unit_test(bos_follows_config_or_post_processor),
        cmocka_unit_test(added_tokens_match_longest_and_strip),
        cmocka_unit_test(empty_added_tokens_are_none),
        cmocka_unit_test(bpe_merges_by_rank_then_leftmost),
        cmocka_unit_test(unigram_keeps_the_first_of_equal_paths),
        cmocka_unit_test(unigram_weighs_unknown_characters),
        cmocka_unit_test(unigram_takes_the_last_of_repeated_pieces),
        cmocka_unit_test(keys_of_a_bpe_model_are_optional),
        cmocka_unit_test(ids_may_begin_at_any_token),
        cmocka_unit_test(longest_word_counts_characters),
        cmocka_unit_test(short_forms_split_like_the_patterns),
        cmocka_unit_test(words_in_one_cache_slot_stay_apart),
        cmocka_unit_test(damaged_charsmaps_replace_nothing),
        cmocka_unit_test(refused_files_name_the_reason),
        cmocka_unit_test(mutated_files_open_or_are_errors),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
