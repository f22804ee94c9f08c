/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that every key of a config.json changes its own fields and nothing
 * else, or is refused with its sentence. keys.jsonl has a row for each case.
 */
#include "core/base/json.h"
#include "model/hf/config.h"
#include "tests/hf/config_counts.h"
#include "tests/scratch.h"

static void put_number(cJSON *out, const char *key, double value)
{
    assert_non_null(cJSON_AddNumberToObject(out, key, value));
}

static void put_rope_numbers(cJSON *out, const char *key, const xm_rope *rope)
{
    cJSON *list = cJSON_AddArrayToObject(out, key);
    const double all[] = { rope->kind,
                           rope->theta,
                           rope->factor,
                           rope->low_freq_factor,
                           rope->high_freq_factor,
                           rope->original_positions,
                           rope->beta_fast,
                           rope->beta_slow,
                           rope->scale,
                           rope->truncate };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_true(cJSON_AddItemToArray(list, cJSON_CreateNumber(all[i])));
}

/* Describes every field as JSON. The frequencies are left to hf.arch. */
static cJSON *describe_config(const xm_config *c)
{
    cJSON *out = cJSON_CreateObject();
    const struct {
        const char *key;
        double value;
    } all[] = {
        CONFIG_COUNTS(c),
        { "norm_eps", c->norm_eps },
        { "norm_offset", c->norm_offset },
        { "attn_scale", c->attn_scale },
        { "attn_softcap", c->attn_softcap },
        { "logit_softcap", c->logit_softcap },
        { "embed_scale", c->embed_scale },
        { "init_range", c->init_range },
        { "bos_id", c->bos_id },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        put_number(out, all[i].key, all[i].value);
    put_rope_numbers(out, "rope", &c->rope);
    put_rope_numbers(out, "rope_local", &c->rope_local);
    char slides[XM_MAX_LAYERS + 1] = "";
    for (uint32_t i = 0; i < c->layers && i < 128; i++)
        slides[i] = (char)('0' + xm_config_slides(c, i));
    assert_non_null(cJSON_AddStringToObject(out, "slides", slides));
    cJSON *ids = cJSON_AddArrayToObject(out, "end_ids");
    for (uint32_t i = 0; i < c->end_count; i++)
        assert_true(
            cJSON_AddItemToArray(ids, cJSON_CreateNumber(c->end_ids[i])));
    return out;
}

static void replace_keys(cJSON *in, const cJSON *with)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, with)
    {
        cJSON_DeleteItemFromObjectCaseSensitive(in, item->string);
        assert_true(
            cJSON_AddItemToObject(in, item->string, cJSON_Duplicate(item, 1)));
    }
}

/* Compares texts, because cJSON_Compare compares numbers within an epsilon. */
static void assert_json_equal(const cJSON *got, const cJSON *want,
                              const char *where)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, want)
    {
        const cJSON *mine = cJSON_GetObjectItemCaseSensitive(got, item->string);
        assert_non_null(mine);
        char *a = cJSON_PrintUnformatted(mine);
        char *b = cJSON_PrintUnformatted(item);
        if (strcmp(a, b) != 0)
            fail_msg("%s: %s is %s, not %s", where, item->string, a, b);
        cJSON_free(a);
        cJSON_free(b);
    }
    assert_int_equal(cJSON_GetArraySize(got), cJSON_GetArraySize(want));
}

/* The sentence begins with the name of the file, and the location is that
 * name, so that whoever reports it can give the file apart. */
static void assert_located(const xr_err *err, const char *file)
{
    if (err->location.name_begin != 0 ||
        err->location.name_end != strlen(file) ||
        strncmp(err->text, file, strlen(file)) != 0)
        fail_msg("[%s]: the location is [%u, %u), not %s", err->text,
                 err->location.name_begin, err->location.name_end, file);
}

/* Checks one row: "b" names the configuration with the keys "k"; "m" names a
 * configuration over which the keys "k" are laid; "v" has the expected fields,
 * or those that differ from the configuration "m"; "e" is the expected error.
 */
static void check_row(cJSON *bases, const cJSON *row, const char *where)
{
    const cJSON *name = xr_json_get(row, "m");
    const cJSON *base =
        name ? cJSON_GetObjectItemCaseSensitive(bases, name->valuestring)
             : NULL;
    assert_true(!name || base);
    cJSON *config = name ? cJSON_Duplicate(xr_json_get(base, "k"), 1)
                         : cJSON_CreateObject();
    cJSON *want = name ? cJSON_Duplicate(xr_json_get(base, "v"), 1)
                       : cJSON_CreateObject();
    replace_keys(config, xr_json_get(row, "k"));
    replace_keys(want, xr_json_get(row, "v"));
    char *text = cJSON_PrintUnformatted(config);
    const cJSON *says = xr_json_get(row, "e");
    xm_config c;
    xr_err err = { "" };
    memset(&c, 0x5A, sizeof c); /* as if it had held another config */
    xray_status status = xm_config_parse(text, "c.json", &err, &c);
    if (says && !status)
        fail_msg("%s is accepted: %s", where, text);
    if (says)
        assert_located(&err, "c.json");
    if (says && strcmp(err.text, says->valuestring) != 0)
        fail_msg("%s: [%s], not [%s]", where, err.text, says->valuestring);
    if (!says && status)
        fail_msg("%s: %s", where, err.text);
    if (!says) {
        cJSON *got = describe_config(&c);
        assert_json_equal(got, want, where);
        cJSON_Delete(got);
    }
    cJSON_free(text);
    cJSON_Delete(want);
    cJSON_Delete(config);
}

static void every_key_changes_only_its_own_fields(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    char where[64];
    char *text;
    size_t size;
    int number = 0;
    const char *source = getenv("XRAY_SOURCE");
    cJSON *bases = cJSON_CreateObject();
    (void)snprintf(path, sizeof path, "%s/tests/hf/keys.jsonl",
                   source ? source : ".");
    assert_int_equal(xr_file_read(path, 1u << 20, NULL, &text, &size), XRAY_OK);
    for (char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        cJSON *row;
        xr_err err = { "" };
        (void)snprintf(where, sizeof where, "keys.jsonl:%d", ++number);
        if (xr_json_parse(line, length, where, &err, &row))
            fail_msg("%s", err.text);
        check_row(bases, row, where);
        const cJSON *name = xr_json_get(row, "b");
        if (name)
            assert_true(cJSON_AddItemToObject(bases, name->valuestring, row));
        else
            cJSON_Delete(row);
        line += length + (line[length] == '\n');
    }
    assert_true(number > 150);
    cJSON_Delete(bases);
    free(text);
}

#define SMALL                                                              \
    "{\"model_type\":\"llama\",\"vocab_size\":100,\"eos_token_id\":[1,2]," \
    "\"bos_token_id\":3"

/* The end ids of generation_config.json take precedence. */
static void generation_config_overrides_the_end_ids(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        const char *generation; /* NULL: there is none */
        uint32_t count;
        int32_t ids[3];
        const char *says;
    } cases[] = {
        { SMALL "}", NULL, 2, { 1, 2 }, NULL },
        { SMALL "}", "{}", 2, { 1, 2 }, NULL },
        { SMALL "}", "{\"eos_token_id\":7}", 1, { 7 }, NULL },
        { SMALL "}", "{\"eos_token_id\":[5,6,0]}", 3, { 5, 6, 0 }, NULL },
        { SMALL "}", "{\"eos_token_id\":null}", 2, { 1, 2 }, NULL },
        { SMALL "}", "{\"eos_token_id\":[]}", 0, { 0 }, NULL },
        { SMALL "}", "{\"bos_token_id\":9}", 2, { 1, 2 }, NULL },
        { SMALL "}",
          "{\"eos_token_id\":100}",
          0,
          { 0 },
          "generation_config.json: \"eos_token_id\" must hold ids from 0 to "
          "99" },
        { SMALL "}", "{", 0, { 0 }, "generation_config.json:" },
        { "[]", NULL, 0, { 0 }, "config.json: must be a JSON object" },
        { "", NULL, 0, { 0 }, "config.json" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xm_config c;
        xr_err err = { "" };
        char *text = NULL;
        (void)scratch_write("config.json", cases[i].config);
        (void)unlink(scratch_path("generation_config.json"));
        if (cases[i].generation)
            (void)scratch_write("generation_config.json", cases[i].generation);
        xray_status status = xm_config_read(scratch_dir(), &err, &c, &text);
        if (cases[i].says) {
            assert_true(status < 0);
            if (!strstr(err.text, cases[i].says))
                fail_msg("%zu: %s", i, err.text);
            if (!cases[i].generation)
                assert_located(&err, scratch_path("config.json"));
            continue;
        }
        if (status)
            fail_msg("%zu: %s", i, err.text);
        assert_string_equal(text, cases[i].config);
        assert_int_equal(c.bos_id, 3);
        assert_int_equal(c.end_count, cases[i].count);
        for (uint32_t k = 0; k < c.end_count; k++)
            assert_int_equal(c.end_ids[k], cases[i].ids[k]);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_changes_only_its_own_fields),
        cmocka_unit_test(generation_config_overrides_the_end_ids),
    };
    return cmocka_run_group_tests_name("hf.keys", tests, scratch_make,
                                       scratch_drop);
}
