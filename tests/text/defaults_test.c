/* SPDX-License-Identifier: Apache-2.0
 *
 * A key of tokenizer.json that may be left out has a value then. The values are
 * those of the Hugging Face library.
 */
#include "tests/text/small_tokenizer.h"

typedef struct optional_key {
    const char *part;    /* of tokenizer.json, with %s where the key is */
    const char *key;     /* with its default, and a comma before it */
    const char *another; /* the same with another value */
    const char *text;
} optional_key;

#define VOCAB                                                                 \
    "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":" \
    "0,\"a\":1,\"b\":2,\"_a\":3,\"_b\":4,\"_a_b\":5,\"1\":6,\"12\":7,\"!\":"  \
    "8,\"!!\":9,\"ab\":10,\"aaaaa\":11,\"aa\":12,\" a\":13,\"A\":14,"         \
    "\"\\u00e9\":15,\"e\":16,\"<s>\":17,\"\\u4e2d\":18,\"a b\":19,"           \
    "\"\\u0120a\":20,\"a\\u0120b\":21,\"\\u0120a\\u0120b\":22,"               \
    "\"\\u0120b\":23,\" \":24,\"aaaa\":25,\"a\\u4e2d\":26,\" A\":27,"         \
    "\"b \":28,\"a\\u00adb\":29,\"##b\":30,\"b</w>\":31,\".\":32}}"
#define ADDED                                                                \
    "\"added_tokens\":[{\"id\":17,\"content\":\"<s>\",\"special\":true%s}]," \
    "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\"},"    \
    "\"behavior\":\"Isolated\"},"
#define PRE(type) "\"pre_tokenizer\":{\"type\":\"" type "\"%s},"
#define NORM(type) "\"normalizer\":{\"type\":\"" type "\"%s},"
#define META "Metaspace\",\"replacement\":\"_"

static const optional_key keys[] = {
    { PRE(META) "\"added_tokens\":[{\"id\":17,\"content\":\"<s>\"}],",
      ",\"prepend_scheme\":\"always\"", ",\"prepend_scheme\":\"first\"",
      "a<s>b" },
    { PRE(META), ",\"add_prefix_space\":true", ",\"add_prefix_space\":false",
      "a b" },
    { PRE(META), ",\"split\":true", ",\"split\":false", "a b" },
    { PRE("ByteLevel"), ",\"add_prefix_space\":true",
      ",\"add_prefix_space\":false", "a b" },
    { PRE("ByteLevel"), ",\"use_regex\":true", ",\"use_regex\":false", "a b" },
    { PRE("Digits"), ",\"individual_digits\":false",
      ",\"individual_digits\":true", "12" },
    { PRE("Punctuation"), ",\"behavior\":\"Isolated\"",
      ",\"behavior\":\"Contiguous\"", "!!" },
    { PRE("FixedLength"), ",\"length\":5", ",\"length\":4", "aaaaa" },
    { PRE("Split\",\"behavior\":\"Removed\",\"pattern\":{\"String\":\"a\"},"
          "\"x\":\""),
      ",\"invert\":false", ",\"invert\":true", "ab" },
    { NORM("BertNormalizer"), ",\"clean_text\":true", ",\"clean_text\":false",
      "a\xC2\xAD"
      "b" },
    { NORM("BertNormalizer"), ",\"handle_chinese_chars\":true",
      ",\"handle_chinese_chars\":false", "a\xE4\xB8\xAD" },
    { NORM("BertNormalizer"), ",\"lowercase\":true", ",\"lowercase\":false",
      "A" },
    { NORM("BertNormalizer"), ",\"strip_accents\":true",
      ",\"strip_accents\":false", "\xC3\xA9" },
    { NORM("BertNormalizer\",\"lowercase\":false,\"x\":\""),
      ",\"strip_accents\":false", ",\"strip_accents\":true", "\xC3\xA9" },
    { NORM("Strip"), ",\"strip_left\":false", ",\"strip_left\":true", " a" },
    { NORM("Strip"), ",\"strip_right\":false", ",\"strip_right\":true", "b " },
    { ADDED, ",\"lstrip\":false", ",\"lstrip\":true", "a <s>" },
    { ADDED, ",\"rstrip\":false", ",\"rstrip\":true", "<s> a" },
    { ADDED, ",\"single_word\":false", ",\"single_word\":true", "a<s>" },
    { "\"normalizer\":{\"type\":\"Lowercase\"}," ADDED, ",\"normalized\":false",
      ",\"normalized\":true", "<S>" },
    { NULL, NULL, NULL, NULL },
};

/* The ids of the key's text, each as a character behind 'A'. */
static void encode_with(const optional_key *k, const char *key, char out[64])
{
    char json[2048] = "{";
    (void)snprintf(json + 1, sizeof json - 1, k->part, key);
    size_t at = strlen(json);
    (void)snprintf(json + at, sizeof json - at, VOCAB "}");
    xm_tokenizer *tok = make_tokenizer(json);
    xm_ids ids = { 0 };
    xr_err err = { "" };
    if (xm_tokenizer_encode(tok, k->text, strlen(k->text), 0, &ids, &err))
        fail_msg("%s", err.text);
    assert_true(ids.count < 64);
    for (size_t i = 0; i < ids.count; i++)
        out[i] = (char)('A' + ids.data[i]);
    out[ids.count] = '\0';
    xm_ids_free(&ids);
    xm_tokenizer_close(tok);
}

/* Without the key, the ids are those of its default, which another value would
 * change. */
static void keys_left_out_have_their_defaults(void **state)
{
    (void)state;
    for (const optional_key *k = keys; k->text; k++) {
        char without[64];
        char with[64];
        char another[64];
        encode_with(k, "", without);
        encode_with(k, k->key, with);
        encode_with(k, k->another, another);
        if (strcmp(without, with) != 0)
            fail_msg("\"%s\": [%s] without%s, [%s] with it", k->text, without,
                     k->key, with);
        if (strcmp(another, with) == 0)
            fail_msg("\"%s\": [%s] for any%s", k->text, with, k->key);
    }
}

/* Without a post-processor, tokenizer_config.json says which ids are put around
 * a text: none, unless it asks for them. Nothing is cut or padded. */
static void ids_around_a_text_are_asked_for(void **state)
{
    static const struct {
        const char *keys;
        int32_t ids[3];
        size_t count;
    } rows[] = {
        { "", { 1 }, 1 },
        { ",\"add_bos_token\":false,\"add_eos_token\":false", { 1 }, 1 },
        { ",\"add_bos_token\":true", { 2, 1 }, 2 },
        { ",\"add_eos_token\":true", { 1, 3 }, 2 },
        { ",\"add_bos_token\":true,\"add_eos_token\":true", { 2, 1, 3 }, 3 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char config[128];
        (void)snprintf(config, sizeof config,
                       "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"%s}",
                       rows[i].keys);
        (void)scratch_write("tokenizer_config.json", config);
        xm_tokenizer *tok = make_tokenizer(
            "{\"truncation\":{\"direction\":\"Right\",\"max_length\":1,"
            "\"strategy\":\"LongestFirst\",\"stride\":0},\"padding\":{"
            "\"strategy\":{\"Fixed\":8},\"direction\":\"Right\","
            "\"pad_to_multiple_of\":null,\"pad_id\":0,\"pad_type_id\":0,"
            "\"pad_token\":\"?\"},\"added_tokens\":[{\"id\":2,\"content\":\"<s>"
            "\",\"special\":"
            "true},{\"id\":3,\"content\":\"</s>\",\"special\":true}],"
            "\"model\":{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":"
            "{\"?\":0,\"a\":1}}}");
        expect_ids(tok, "a", 1, rows[i].ids, rows[i].count);
        expect_ids(tok, "a", 0, rows[0].ids, 1);
        xm_tokenizer_close(tok);
    }
    (void)unlink(scratch_path("tokenizer_config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_left_out_have_their_defaults),
        cmocka_unit_test(ids_around_a_text_are_asked_for),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
