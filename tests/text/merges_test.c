/* SPDX-License-Identifier: Apache-2.0
 *
 * BPE merges like a simple oracle, which merges the pair of the lowest rank at
 * its leftmost occurrence, again and again. The test compares ids, because
 * decoded texts are the same for any order of merges.
 */
#include <xray/numerics.h>

#include "core/base/json.h"
#include "tests/text/small_tokenizer.h"

#define IDS 512   /* above the largest golden vocabulary */
#define WORD 1000 /* most symbols of a word for the oracle */
#define NONE INT32_MAX

/* The merges, indexed by the ids of the two sides. */
typedef struct rules {
    int32_t rank[IDS][IDS];
    int32_t made[IDS][IDS];
    int32_t order[IDS][2]; /* by rank */
    int32_t count;
} rules;

static void add_merge_rule(rules *r, int32_t left, int32_t right, int32_t made)
{
    assert_true(left >= 0 && left < IDS && right >= 0 && right < IDS);
    if (r->count == 0)
        for (int32_t i = 0; i < IDS * IDS; i++)
            r->rank[i / IDS][i % IDS] = NONE;
    r->rank[left][right] = r->count;
    r->made[left][right] = made;
    r->order[r->count][0] = left;
    r->order[r->count++][1] = right;
}

static size_t merge_pair_at(const rules *r, int32_t *ids, size_t count,
                            size_t at)
{
    ids[at] = r->made[ids[at]][ids[at + 1]];
    memmove(ids + at + 1, ids + at + 2, (count - at - 2) * sizeof *ids);
    return count - 1;
}

/* The oracle. It takes quadratic time. */
static size_t merge_slowly(const rules *r, int32_t *ids, size_t count)
{
    for (;;) {
        int32_t best = NONE;
        size_t at = 0;
        for (size_t i = 0; i + 1 < count; i++)
            if (r->rank[ids[i]][ids[i + 1]] < best) {
                best = r->rank[ids[i]][ids[i + 1]];
                at = i;
            }
        if (best == NONE)
            return count;
        count = merge_pair_at(r, ids, count, at);
    }
}

/* A faster oracle: rank by rank, each from left to right. It is valid if the
 * sides of every merge are made by earlier merges, as in trained tokenizers. */
static size_t merge_in_passes(const rules *r, int32_t *ids, size_t count)
{
    for (int32_t rank = 0; rank < r->count; rank++) {
        size_t kept = 0;
        for (size_t i = 0; i < count; i++) {
            int pair = i + 1 < count && ids[i] == r->order[rank][0] &&
                       ids[i + 1] == r->order[rank][1];
            ids[kept] = pair ? r->made[ids[i]][ids[i + 1]] : ids[i];
            i += (size_t)pair;
            kept++;
        }
        count = kept;
    }
    return count;
}

static void expect_same_ids(const xm_tokenizer *tok, const char *text,
                            const int32_t *want, size_t count)
{
    xm_ids ids = { 0 };
    xr_err err = { "" };
    if (xm_tokenizer_encode(tok, text, strlen(text), 0, &ids, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count && i < ids.count; i++)
        if (ids.data[i] != want[i])
            fail_msg("id %zu of \"%.200s\" is %d, not %d", i, text, ids.data[i],
                     want[i]);
    assert_int_equal(ids.count, count);
    xm_ids_free(&ids);
}

/* ---- random tokenizers --------------------------------------------------- */

/* Makes a tokenizer of `letters` letters with random merges of two earlier
 * tokens. The ranks have any order: a merge may rank before those that make its
 * sides. */
static xm_tokenizer *make_random_rules(uint32_t seed, int32_t letters,
                                       rules *out)
{
    char token[IDS][64];
    int32_t tokens = letters;
    xr_str vocab = { 0 };
    xr_str merges = { 0 };
    int32_t planned[40][3];
    int32_t plans = 0;
    for (int32_t i = 0; i < letters; i++)
        (void)snprintf(token[i], sizeof token[i], "%c", 'a' + i);
    for (uint32_t k = 0; k < 40; k++) {
        xray_philox_out r = xray_philox(seed, k, 0, 0, 0);
        int32_t a = (int32_t)(r.w[0] % (uint32_t)tokens);
        int32_t b = (int32_t)(r.w[1] % (uint32_t)tokens);
        char made[130];
        (void)snprintf(made, sizeof made, "%s%s", token[a], token[b]);
        int32_t id = 0;
        while (id < tokens && strcmp(token[id], made) != 0)
            id++;
        int known = 0;
        for (int32_t i = 0; i < plans; i++)
            known |= planned[i][0] == a && planned[i][1] == b;
        if (known || strlen(made) > 24)
            continue;
        if (id == tokens)
            (void)snprintf(token[tokens++], sizeof token[0], "%.60s", made);
        planned[plans][0] = a;
        planned[plans][1] = b;
        planned[plans++][2] = id;
    }
    out->count = 0;
    for (int32_t i = 0; i < plans; i++) {
        /* Half of the tokenizers have their merges in reverse order. */
        const int32_t *p = planned[seed % 2 ? plans - 1 - i : i];
        add_merge_rule(out, p[0], p[1], p[2]);
        xr_str_printf(&merges, "%s[\"%s\",\"%s\"]", i ? "," : "", token[p[0]],
                      token[p[1]]);
    }
    for (int32_t i = 0; i < tokens; i++)
        xr_str_printf(&vocab, "%s\"%s\":%d", i ? "," : "", token[i], i);
    xr_str json = { 0 };
    xr_str_printf(&json,
                  "{\"model\":{\"type\":\"BPE\",\"vocab\":{%s},"
                  "\"merges\":[%s]}}",
                  xr_str_text(&vocab), xr_str_text(&merges));
    xm_tokenizer *tok = make_tokenizer(xr_str_text(&json));
    xr_str_free(&json);
    xr_str_free(&vocab);
    xr_str_free(&merges);
    return tok;
}

/* With few letters and many merges, many pairs occur several times. The lengths
 * lie on both sides of 48 symbols, where the method changes. */
static void random_merges_match_the_oracle(void **state)
{
    (void)state;
    static rules r;
    for (uint32_t seed = 0; seed < 120; seed++) {
        int32_t letters = 1 + (int32_t)(seed % 4);
        xm_tokenizer *tok = make_random_rules(seed, letters, &r);
        for (uint32_t k = 0; k < 24; k++) {
            char text[512];
            int32_t want[512];
            size_t count = k < 6 ? 45 + k : 2 + 15 * k;
            for (size_t i = 0; i < count; i++) {
                xray_philox_out d = xray_philox(seed, k, (uint32_t)i, 1, 0);
                want[i] = (int32_t)(d.w[0] % (uint32_t)letters);
                text[i] = (char)('a' + want[i]);
            }
            text[count] = '\0';
            expect_same_ids(tok, text, want, merge_slowly(&r, want, count));
        }
        xm_tokenizer_close(tok);
    }
}

/* ---- tokenizers of the goldens ------------------------------------------- */

typedef struct golden {
    xm_tokenizer *tok;
    rules rules;
    char text[IDS]
             [8]; /* text of tokens of one character; "" for other tokens */
    int32_t symbols[IDS];
    int32_t symbol_count;
} golden;

static int32_t find_token_id(const cJSON *vocab, const char *token, size_t size)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab)
    {
        if (strlen(item->string) == size &&
            memcmp(item->string, token, size) == 0)
            return item->valueint;
    }
    fail_msg("no token \"%.*s\"", (int)size, token);
    return -1;
}

static void read_merges(const cJSON *model, rules *out)
{
    const cJSON *vocab = xr_json_get(model, "vocab");
    const cJSON *item;
    out->count = 0;
    cJSON_ArrayForEach(item, xr_json_get(model, "merges"))
    {
        char both[128];
        const char *left = item->valuestring;
        const char *right;
        size_t size;
        if (cJSON_IsArray(item)) {
            left = item->child->valuestring;
            size = strlen(left);
            right = item->child->next->valuestring;
        } else {
            size = strcspn(left, " ");
            right = left + size + 1;
        }
        (void)snprintf(both, sizeof both, "%.*s%s", (int)size, left, right);
        add_merge_rule(out, find_token_id(vocab, left, size),
                       find_token_id(vocab, right, strlen(right)),
                       find_token_id(vocab, both, strlen(both)));
    }
}

static void read_symbols(const cJSON *vocab, golden *out)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, vocab)
    {
        uint32_t code;
        const char *text = item->string;
        size_t size = strlen(text);
        if (!size || size >= sizeof out->text[0] ||
            xr_utf8_decode(text, text + size, &code) != (int)size)
            continue;
        memcpy(out->text[item->valueint], text, size + 1);
        out->symbols[out->symbol_count++] = item->valueint;
    }
}

static cJSON *read_golden_json(const char *name)
{
    char path[XR_PATH_CAP];
    cJSON *json = NULL;
    xr_err err = { "" };
    const char *source = getenv("XRAY_SOURCE");
    (void)snprintf(path, sizeof path, "%s/tests/text/goldens/%s/tokenizer.json",
                   source ? source : ".", name);
    if (xr_json_file(path, &err, &json))
        fail_msg("%s", err.text);
    return json;
}

/* `alone`: only the model, without normalizer, pre-tokenizer and so on, so that
 * a text of its symbols is one word. */
static golden *open_golden(const char *name, int alone)
{
    static golden g;
    cJSON *json = read_golden_json(name);
    g.symbol_count = 0;
    memset(g.text, 0, sizeof g.text);
    read_merges(xr_json_get(json, "model"), &g.rules);
    read_symbols(xr_json_get(xr_json_get(json, "model"), "vocab"), &g);
    static const char *const around[] = { "normalizer", "pre_tokenizer",
                                          "post_processor", "decoder" };
    for (size_t i = 0; alone && i < 4; i++)
        cJSON_DeleteItemFromObject(json, around[i]);
    char *text = cJSON_PrintUnformatted(json);
    assert_non_null(text);
    g.tok = make_tokenizer(text);
    cJSON_free(text);
    cJSON_Delete(json);
    return &g;
}

/* Returns the id of a symbol, given as a character of the byte-level
 * alphabet. */
static int32_t find_symbol_id(const golden *g, const char *text)
{
    for (int32_t i = 0; i < g->symbol_count; i++)
        if (strcmp(g->text[g->symbols[i]], text) == 0)
            return g->symbols[i];
    fail_msg("no symbol \"%s\"", text);
    return -1;
}

/* Words consist of sides of merges, so that most neighbours can merge. */
static void golden_merges_match_the_oracle(void **state)
{
    (void)state;
    static const char *const names[] = { "qwen2", "llama3", "llama2",
                                         "gemma3" };
    static int32_t want[WORD];
    for (size_t n = 0; n < 4; n++) {
        golden *g = open_golden(names[n], 1);
        for (uint32_t k = 0; k < 40; k++) {
            xr_str text = { 0 };
            size_t count = 2 + 20 * k;
            for (size_t i = 0; i < count; i++) {
                xray_philox_out d =
                    xray_philox(3, k, (uint32_t)i, (uint32_t)n, 0);
                int32_t id =
                    g->rules
                        .order[d.w[0] % (uint32_t)g->rules.count][d.w[1] % 2];
                if (!*g->text[id])
                    id = g->symbols[d.w[2] % (uint32_t)g->symbol_count];
                want[i] = id;
                xr_str_puts(&text, g->text[id]);
            }
            expect_same_ids(g->tok, xr_str_text(&text), want,
                            merge_slowly(&g->rules, want, count));
            xr_str_free(&text);
        }
        xm_tokenizer_close(g->tok);
    }
}

/* A run of one kind of character is one word of the complete tokenizer.
 * Splitting and merging it takes nearly linear time, does not overflow a stack,
 * and gives the right ids. */
static void long_words_merge_in_linear_time(void **state)
{
    (void)state;
    /* A text, and its bytes as symbols of a byte-level vocabulary. */
    static const struct {
        const char *unit;
        const char *symbols[3];
    } units[] = { { " ", { "\xC4\xA0" } },
                  { "a", { "a" } },
                  { "the", { "t", "h", "e" } },
                  { "\n", { "\xC4\x8A" } },
                  { "!", { "!" } },
                  { "\xE4\xB8\xAD", { "\xC3\xA4", "\xC2\xB8", "\xC5\x83" } } };
    enum { COUNT = 100000 };
    golden *g = open_golden("qwen2", 0);
    int32_t *want = calloc(3 * COUNT, sizeof *want);
    assert_non_null(want);
    for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
        xr_str text = { 0 };
        size_t count = 0;
        int32_t symbols[3];
        size_t size = 0;
        for (; size < 3 && units[u].symbols[size]; size++)
            symbols[size] = find_symbol_id(g, units[u].symbols[size]);
        for (int k = 0; k < COUNT; k++) {
            xr_str_puts(&text, units[u].unit);
            for (size_t i = 0; i < size; i++)
                want[count++] = symbols[i];
        }
        expect_same_ids(g->tok, xr_str_text(&text), want,
                        merge_in_passes(&g->rules, want, count));
        xr_str_free(&text);
    }
    free(want);
    xm_tokenizer_close(g->tok);
}

/* A tokenizer with tokens for all bytes but `missing`, whose ids begin at 16.
 */
static xm_tokenizer *make_byte_tokens(const char *keys, const char *merges,
                                      int missing)
{
    xr_str json = { 0 };
    xr_str_printf(&json,
                  "{\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
                  "\"unk_token\":\"?\",%s,\"merges\":[%s],\"vocab\":{"
                  "\"a\":0,\"b\":1,\"ab\":2,\"babababababababababababababa\""
                  ":3,\"<0x9F><0xC3>\":4,\"a</w>\":5,\"##a\":6,\"##b\":7,"
                  "\"?\":8",
                  keys, merges);
    for (int i = 0; i < 256; i++)
        if (i != missing)
            xr_str_printf(&json, ",\"<0x%02X>\":%d", (unsigned)i, 16 + i);
    xr_str_puts(&json, "}}}");
    xm_tokenizer *tok = make_tokenizer(xr_str_text(&json));
    xr_str_free(&json);
    return tok;
}

/* Where no token has two characters side by side, a long word may be merged in
 * parts. Its ids are nevertheless those of one word: whole where merges do not
 * count, with one prefix and one suffix, with one unknown token, and with
 * merges of bytes of two characters. */
static void long_words_are_one_word(void **state)
{
    (void)state;
    static const char ab[] = "[\"a\",\"b\"]";
    static const char eszett[] = "\xC3\x9F";
    static const struct {
        const char *keys;
        const char *merges;
        int missing;
        const char *text[2]; /* at the start, and then 13 times */
        int32_t first;
        int32_t repeated[2]; /* 13 times */
        int32_t last;
    } cases[] = {
        { "\"fuse_unk\":false", ab, -1, { "b", "ab" }, 1, { 2, -1 }, 0 },
        { "\"ignore_merges\":true", ab, -1, { "b", "ab" }, 3, { -1, -1 }, -1 },
        { "\"continuing_subword_prefix\":\"##\"",
          "",
          -1,
          { "b", "ab" },
          1,
          { 6, 7 },
          6 },
        { "\"end_of_word_suffix\":\"</w>\"",
          "",
          -1,
          { "b", "ab" },
          1,
          { 0, 1 },
          5 },
        { "\"fuse_unk\":true",
          ab,
          0x9F,
          { eszett, eszett },
          8,
          { -1, -1 },
          -1 },
        { "\"fuse_unk\":true",
          "[\"<0x9F>\",\"<0xC3>\"]",
          -1,
          { eszett, eszett },
          16 + 0xC3,
          { 4, -1 },
          16 + 0x9F },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t want[32] = { cases[i].first };
        size_t count = 1;
        xr_str text = { 0 };
        xr_str_puts(&text, cases[i].text[0]);
        for (size_t n = 0; n < 13; n++) {
            xr_str_puts(&text, cases[i].text[1]);
            for (size_t k = 0; k < 2 && cases[i].repeated[k] >= 0; k++)
                want[count++] = cases[i].repeated[k];
        }
        if (cases[i].text[0][0] == 'b')
            xr_str_puts(&text, "a");
        if (cases[i].last >= 0)
            want[count++] = cases[i].last;
        xm_tokenizer *tok =
            make_byte_tokens(cases[i].keys, cases[i].merges, cases[i].missing);
        expect_same_ids(tok, xr_str_text(&text), want, count);
        xm_tokenizer_close(tok);
        xr_str_free(&text);
    }
}

/* The two oracles agree where both are valid. */
static void both_oracles_agree(void **state)
{
    (void)state;
    golden *g = open_golden("qwen2", 1);
    for (uint32_t k = 0; k < 20; k++) {
        int32_t slow[300];
        int32_t passes[300];
        for (uint32_t i = 0; i < 300; i++) {
            xray_philox_out d = xray_philox(9, k, i, 0, 0);
            slow[i] = passes[i] =
                g->rules.order[d.w[0] % (uint32_t)g->rules.count][d.w[1] % 2];
        }
        size_t count = merge_slowly(&g->rules, slow, 300);
        assert_int_equal(merge_in_passes(&g->rules, passes, 300), count);
        assert_memory_equal(slow, passes, count * sizeof *slow);
        assert_true(count < 300);
    }
    xm_tokenizer_close(g->tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_oracles_agree),
        cmocka_unit_test(random_merges_match_the_oracle),
        cmocka_unit_test(golden_merges_match_the_oracle),
        cmocka_unit_test(long_words_are_one_word),
        cmocka_unit_test(long_words_merge_in_linear_time),
    };
    return cmocka_run_group_tests_name("text.merges", tests, scratch_make,
                                       scratch_drop);
}
