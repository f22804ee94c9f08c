/* SPDX-License-Identifier: Apache-2.0
 *
 * xray config schema is well formed and has every key that the examples use or
 * the program prints.
 */
#include <dirent.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static cJSON *schema;

static int read_schema(void **state)
{
    xr_err err = { "" };
    if (scratch_make(state) != 0)
        return -1;
    const program_result *r = RUN(NULL, "config", "schema");
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    if (xr_json_parse(r->out, strlen(r->out), "schema", &err, &schema) !=
        XRAY_OK)
        fail_msg("%s", err.text);
    return 0;
}

static int free_schema(void **state)
{
    cJSON_Delete(schema);
    return program_done(state);
}

static const cJSON *reward_section(void)
{
    const cJSON *all = xr_json_get(schema, "patternProperties");
    assert_int_equal(cJSON_GetArraySize(all), 1);
    assert_string_equal(all->child->string,
                        "^reward\\.(?!train\\.)[A-Za-z0-9_.-]+$");
    return all->child;
}

/* ---- structure ---------------------------------------------------------- */

static int has_type(const cJSON *type, const char *name)
{
    const cJSON *item = NULL;
    if (cJSON_IsString(type))
        return strcmp(type->valuestring, name) == 0;
    cJSON_ArrayForEach(item,
                       type) if (strcmp(item->valuestring, name) == 0) return 1;
    return 0;
}

static void check_default(const cJSON *option)
{
    const cJSON *value = xr_json_get(option, "default");
    const cJSON *type = xr_json_get(option, "type");
    const cJSON *min = xr_json_get(option, "minimum");
    const cJSON *max = xr_json_get(option, "maximum");
    const cJSON *choices = xr_json_get(option, "enum");
    const cJSON *item = NULL;
    int among = choices == NULL;
    assert_true((cJSON_IsBool(value) && has_type(type, "boolean")) ||
                (cJSON_IsNumber(value) &&
                 (has_type(type, "integer") || has_type(type, "number"))) ||
                (cJSON_IsString(value) && has_type(type, "string")) ||
                (cJSON_IsArray(value) && has_type(type, "array")));
    if (cJSON_IsNumber(value) && min)
        assert_true(value->valuedouble >= min->valuedouble);
    if (cJSON_IsNumber(value) && max)
        assert_true(value->valuedouble <= max->valuedouble);
    cJSON_ArrayForEach(item, choices) among |= cJSON_Compare(item, value, 1);
    assert_true(among);
    /* A tristate, the only choice with a boolean, has no docs of its values. */
    if (!has_type(type, "boolean"))
        assert_int_equal(
            cJSON_GetArraySize(choices),
            cJSON_GetArraySize(xr_json_get(option, "x-enum-docs")));
}

static void check_options(const cJSON *section)
{
    const cJSON *option = NULL;
    cJSON_ArrayForEach(option, xr_json_get(section, "properties"))
    {
        if (cJSON_IsTrue(option)) /* of a reward that its name selects */
            continue;
        assert_true(cJSON_IsString(xr_json_get(option, "description")));
        assert_non_null(xr_json_get(option, "type"));
        if (xr_json_get(option, "default"))
            check_default(option);
    }
}

static void schema_is_well_formed(void **state)
{
    (void)state;
    const cJSON *section = NULL;
    const cJSON *variant = NULL;
    assert_string_equal(xr_json_get(schema, "$schema")->valuestring,
                        "https://json-schema.org/draft/2020-12/schema");
    assert_true(cJSON_IsFalse(xr_json_get(schema, "additionalProperties")));
    cJSON_ArrayForEach(section, xr_json_get(schema, "properties"))
    {
        if (strcmp(section->string, "include") == 0 ||
            xr_json_get(section, "$ref"))
            continue;
        assert_string_equal(xr_json_get(section, "type")->valuestring,
                            "object");
        assert_true(
            cJSON_IsFalse(xr_json_get(section, "additionalProperties")));
        check_options(section);
    }
    assert_true(
        cJSON_IsFalse(xr_json_get(reward_section(), "unevaluatedProperties")));
    check_options(reward_section());
    assert_true(cJSON_GetArraySize(xr_json_get(reward_section(), "allOf")) > 0);
    cJSON_ArrayForEach(variant, xr_json_get(reward_section(), "allOf"))
        check_options(xr_json_get(variant, "then"));
}

/* A role's section of the backend's options is described once, and is not a
 * reward for the pattern of rewards. */
static void sections_of_a_role_refer_to_the_backends(void **state)
{
    static const char *const sections[] = { "ref.train.zero3",
                                            "critic.train.zero3",
                                            "reward.train.zero3" };
    (void)state;
    const cJSON *all = xr_json_get(schema, "properties");
    assert_non_null(xr_json_get(all, "train.zero3"));
    for (size_t i = 0; i < 3; i++) {
        const cJSON *section = xr_json_get(all, sections[i]);
        assert_string_equal(xr_json_get(section, "$ref")->valuestring,
                            "#/properties/train.zero3");
    }
    assert_null(xr_json_get(all, "critic.infer.dsinf"));
}

/* The schema keeps ranges, units, choices and lists of the tables. */
static void details_of_tables_are_kept(void **state)
{
    (void)state;
    const cJSON *all = xr_json_get(schema, "properties");
#define OPTION(section, key) \
    xr_json_get(xr_json_get(xr_json_get(all, section), "properties"), key)
    const cJSON *n = OPTION("rollout", "n");
    assert_true(xr_json_get(n, "minimum")->valuedouble == 1);
    assert_true(xr_json_get(n, "default")->valuedouble == 1);
    assert_string_equal(xr_json_get(n, "x-unit")->valuestring, "samples");
    const cJSON *dtype = OPTION("model", "dtype");
    assert_string_equal(xr_json_get(dtype, "enum")->child->valuestring,
                        "float32");
    const cJSON *logger = OPTION("trainer", "logger");
    assert_int_equal(cJSON_GetArraySize(xr_json_get(logger, "default")), 2);
    const cJSON *files = OPTION("data", "train_files");
    assert_true(cJSON_IsTrue(xr_json_get(files, "x-path")));
    assert_int_equal(cJSON_GetArraySize(xr_json_get(files, "default")), 0);
    const cJSON *kv = OPTION("infer.dsinf", "kv_memory");
    assert_true(has_type(xr_json_get(kv, "type"), "string"));
    assert_non_null(OPTION("algo.grpo", "clip_ratio"));
    assert_non_null(OPTION("train.zero3", "beta1"));
    assert_non_null(OPTION("device.cpu", "isa"));
#undef OPTION
}

/* ---- rewards ------------------------------------------------------------ */

static int has_all(const cJSON *section, const cJSON *names)
{
    const cJSON *name = NULL;
    int all = 1;
    cJSON_ArrayForEach(name, names) all &=
        xr_json_get(section, name->valuestring) != NULL;
    return all;
}

/* Tests a section against those words of a schema that conditions use. */
static int meets_condition(const cJSON *rule, const cJSON *section)
{
    const cJSON *item = NULL;
    const cJSON *any = xr_json_get(rule, "anyOf");
    const cJSON *not = xr_json_get(rule, "not");
    int one = any == NULL;
    cJSON_ArrayForEach(item, xr_json_get(rule, "properties"))
    {
        const cJSON *value = xr_json_get(section, item->string);
        if (value && strcmp(value->valuestring,
                            xr_json_get(item, "const")->valuestring) != 0)
            return 0;
    }
    cJSON_ArrayForEach(item, any) one |= meets_condition(item, section);
    if (not &&meets_condition(not, section))
        return 0;
    return one && has_all(section, xr_json_get(rule, "required"));
}

static int allows_key(const char *text, const char *key)
{
    xr_err err = { "" };
    cJSON *section = NULL;
    const cJSON *variant = NULL;
    assert_int_equal(
        xr_json_parse(text, strlen(text), "section", &err, &section), XRAY_OK);
    int allowed =
        xr_json_get(xr_json_get(reward_section(), "properties"), key) != NULL;
    cJSON_ArrayForEach(variant, xr_json_get(reward_section(), "allOf"))
    {
        const cJSON *then = xr_json_get(variant, "then");
        if (meets_condition(xr_json_get(variant, "if"), section))
            allowed |=
                xr_json_get(xr_json_get(then, "properties"), key) != NULL;
    }
    cJSON_Delete(section);
    return allowed;
}

/* `plugin` selects the options, else `grader` those of rule, else the name. */
static void reward_allows_the_options_of_its_plugin(void **state)
{
    (void)state;
    assert_true(allows_key("{\"plugin\":\"rule\"}", "pattern"));
    assert_true(allows_key("{\"grader\":\"regex\"}", "pattern"));
    assert_true(
        allows_key("{\"plugin\":\"rule\",\"grader\":\"regex\"}", "pattern"));
    assert_true(allows_key("{}", "pattern"));
    assert_false(allows_key("{\"plugin\":\"other\"}", "pattern"));
    assert_false(
        allows_key("{\"plugin\":\"other\",\"grader\":\"regex\"}", "pattern"));
    assert_true(allows_key("{}", "path"));
    assert_false(allows_key("{\"plugin\":\"rule\"}", "path"));
    assert_false(allows_key("{\"grader\":\"regex\"}", "path"));
}

/* ---- keys --------------------------------------------------------------- */

static int reward_has_key(const cJSON *section, const char *key)
{
    const cJSON *variant = NULL;
    if (xr_json_get(xr_json_get(section, "properties"), key))
        return 1;
    cJSON_ArrayForEach(variant, xr_json_get(section, "allOf"))
    {
        const cJSON *then = xr_json_get(variant, "then");
        if (xr_json_get(xr_json_get(then, "properties"), key))
            return 1;
    }
    return 0;
}

static int schema_has_key(const char *section, const char *key)
{
    const cJSON *all = xr_json_get(schema, "properties");
    if (!*section)
        return xr_json_get(all, key) != NULL;
    if (strncmp(section, "reward.", 7) == 0)
        return reward_has_key(reward_section(), key);
    return xr_json_get(xr_json_get(xr_json_get(all, section), "properties"),
                       key) != NULL;
}

/* Counts the keys of an INI that the schema lacks; adds all keys to `seen`. */
static int count_unknown_keys(const char *where, const char *text, int *seen)
{
    char section[128] = "";
    char key[128];
    int unknown = 0;
    for (const char *at = text; *at;
         at += strcspn(at, "\n"), at += *at == '\n') {
        size_t size = strspn(at, "abcdefghijklmnopqrstuvwxyz"
                                 "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
        if (*at == '[') {
            (void)snprintf(section, sizeof section, "%.*s",
                           (int)strcspn(at + 1, "]"), at + 1);
            continue;
        }
        if (!size || at[size + strspn(at + size, " ")] != '=')
            continue;
        (void)snprintf(key, sizeof key, "%.*s", (int)size, at);
        ++*seen;
        /* Not every build has the plugin. */
        if (strcmp(section, "device.cuda") == 0)
            continue;
        if (!schema_has_key(section, key)) {
            unknown++;
            print_error("%s: [%s] %s is not in the schema\n", where, section,
                        key);
        }
    }
    return unknown;
}

static void read_folder(const char *path, int *seen, int *unknown)
{
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        char file[600];
        char *text = NULL;
        size_t size = strlen(e->d_name);
        (void)snprintf(file, sizeof file, "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.' && xr_path_is_dir(file)) {
            read_folder(file, seen, unknown);
        } else if (size > 4 && strcmp(e->d_name + size - 4, ".ini") == 0) {
            assert_int_equal(xr_file_read(file, 1u << 20, NULL, &text, &size),
                             XRAY_OK);
            *unknown += count_unknown_keys(file, text, seen);
            free(text);
        }
    }
    (void)closedir(dir);
}

static void keys_of_examples_are_known(void **state)
{
    (void)state;
    char path[400];
    const char *source = getenv("XRAY_SOURCE");
    int seen = 0;
    int unknown = 0;
    assert_non_null(source);
    (void)snprintf(path, sizeof path, "%s/examples", source);
    read_folder(path, &seen, &unknown);
    assert_true(seen > 50);
    assert_int_equal(unknown, 0);
    assert_true(
        schema_has_key("reward.judge", "path")); /* of the core's reward */
    assert_false(schema_has_key("rollout", "temprature"));
    assert_false(schema_has_key("rolout", "n"));
}

/* All keys of a resolved configuration. */
static void printed_keys_are_known(void **state)
{
    (void)state;
    int seen = 0;
    const char *run = scratch_write("run.ini", "[run]\nseed = 1\n");
    const program_result *r = RUN(NULL, "config", "print", run);
    assert_int_equal(count_unknown_keys("config print", r->out, &seen), 0);
    assert_true(seen > 80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(schema_is_well_formed),
        cmocka_unit_test(sections_of_a_role_refer_to_the_backends),
        cmocka_unit_test(details_of_tables_are_kept),
        cmocka_unit_test(reward_allows_the_options_of_its_plugin),
        cmocka_unit_test(keys_of_examples_are_known),
        cmocka_unit_test(printed_keys_are_known),
    };
    return cmocka_run_group_tests_name("cli.schema", tests, read_schema,
                                       free_schema);
}
