/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a backend's option table alone decides whether it takes a
 * DeepSpeed JSON, and under which names.
 */
#include "core/config/sections.h"
#include "core/deepspeed/deepspeed.h"
#include "tests/config/config_testing.h"
#include "tests/deepspeed/backend.h"

typedef struct reading {
    xr_config *config;
    xr_errors errors;
} reading;

static void free_reading(reading *r)
{
    xr_errors_free(&r->errors);
    xr_config_free(r->config);
    (void)unlink("ds.json");
}

static void expect_set(const reading *r, const char *section, const char *key,
                       const char *text, const char *origin)
{
    const char *have = xr_config_get(r->config, section, key);
    assert_non_null(have);
    assert_string_equal(have, text);
    assert_string_equal(xr_config_origin(r->config, section, key), origin);
}

/* A backend of any name accepts the keys, and its section receives them. */
static const xray_option mine_options[] = {
    XRAY_INT(ds_backend_config, stage, "1", 0, 3, NULL, 0u, "0.1", "A stage."),
    XRAY_PATH(ds_backend_config, zero_file, "", XRAY_OPT_DEEPSPEED, "0.1",
              "A file."),
};
static const xray_option plain_options[] = {
    XRAY_PATH(ds_backend_config, zero_file, "", 0u, "0.1", "A file."),
};
static const char mine_ini[] = "[train.mine]\nzero_file = ds.json\n";

/* Reads ds.json and the INI for a backend "mine" with these options. */
static void read_with_table(reading *r, xr_table table, const char *json)
{
    xray_component mine = ds_backend;
    ds_backend_config own;
    xr_run_config run;
    mine.name = "mine";
    mine.options = table.options;
    mine.option_count = (uint32_t)table.count;
    r->config = xr_config_new();
    assert_non_null(r->config);
    write_text("run.ini", mine_ini);
    write_text("ds.json", json);
    xr_config_read(r->config, "run.ini", &r->errors);
    xr_deepspeed_read(r->config, &mine, 0, 1, &r->errors);
    xr_run_decode(r->config, &run, &r->errors);
    xr_config_decode(r->config, "train.mine", table, &own, &r->errors);
    xr_config_finish(r->config, &r->errors);
}

static void backend_of_any_name_takes_the_keys(void **state)
{
    reading r = { 0 };
    (void)state;
    read_with_table(
        &r, XR_TABLE(mine_options),
        "{\"zero_optimization\": {\"stage\": 2}, \"gradient_clipping\": "
        "0.5, \"activation_checkpointing\": {\"profile\": true}}");
    expect_errors(&r.errors, "");
    expect_set(&r, "train.mine", "stage", "2",
               "ds.json: zero_optimization.stage");
    expect_set(&r, "actor", "grad_clip", "0.5", "ds.json: gradient_clipping");
    assert_null(xr_config_get(r.config, "train.zero3", "stage"));
    assert_non_null(xr_config_notes(r.config));
    assert_string_equal(xr_config_notes(r.config)->text,
                        "ds.json: activation_checkpointing: no effect here: "
                        "the training backend's gradient_checkpointing "
                        "controls the recomputation of blocks");
    free_reading(&r);
    read_with_table(&r, XR_TABLE(mine_options), "{");
    expect_errors(&r.errors, "run.ini:2: [train.mine] zero_file: ds.json: "
                             "column 2: expected a key in double quotes");
    free_reading(&r);
}

static void missing_option_of_the_backend_is_named(void **state)
{
    reading r = { 0 };
    (void)state;
    read_with_table(
        &r, XR_TABLE(mine_options),
        "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"eps\": "
        "1e-7}}}");
    expect_errors(&r.errors, "ds.json: optimizer.params.eps: [train.mine] eps: "
                             "no such option");
    free_reading(&r);
}

static void other_backend_ignores_the_file(void **state)
{
    reading r = { 0 };
    (void)state;
    read_with_table(&r, XR_TABLE(plain_options), "{\"nonsense\": 1}");
    expect_errors(&r.errors, "");
    assert_string_equal(xr_config_get(r.config, "train.mine", "zero_file"),
                        "ds.json");
    free_reading(&r);
}

/* The environment names the file where no file has the section. */
static void environment_names_the_file(void **state)
{
    static char variable[] = "XRAY_TRAIN_ZERO3__DEEPSPEED_CONFIG=ds.json";
    static char *environment[] = { variable, NULL };
    reading r = { 0 };
    (void)state;
    r.config = xr_config_new();
    assert_non_null(r.config);
    write_text("ds.json", "{\"gradient_clipping\": 0.5}");
    xr_config_environment(r.config, environment, &r.errors);
    xr_deepspeed_read(r.config, &ds_backend, 0, 1, &r.errors);
    expect_errors(&r.errors, "");
    expect_set(&r, "actor", "grad_clip", "0.5", "ds.json: gradient_clipping");
    free_reading(&r);
}

static const struct contradiction {
    int sft;
    const char *section;
    const char *key;
    const char *values[2]; /* of the INI, of the variable */
    const char *variable;
    const char *json;
} contradictions[] = {
    { 0,
      "model",
      "dtype",
      { "bfloat16", "bfloat16" },
      "XRAY_MODEL__DTYPE",
      "{\"bf16\": {\"enabled\": false}}" },
    { 0,
      "actor",
      "grad_clip",
      { "1", "2" },
      "XRAY_ACTOR__GRAD_CLIP",
      "{\"gradient_clipping\": 0.5}" },
    { 0,
      "actor.optim",
      "lr",
      { "0.1", "0.2" },
      "XRAY_ACTOR_OPTIM__LR",
      "{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
      "{\"lr\": 0.5}}}" },
    { 0,
      "trainer",
      "total_training_steps",
      { "3", "4" },
      "XRAY_TRAINER__TOTAL_TRAINING_STEPS",
      "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
      "{\"total_num_steps\": 5}}}" },
    { 1,
      "sft",
      "total_steps",
      { "3", "4" },
      "XRAY_SFT__TOTAL_STEPS",
      "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
      "{\"total_num_steps\": 5}}}" },
    { 1,
      "sft.optim",
      "lr",
      { "0.1", "0.2" },
      "XRAY_SFT_OPTIM__LR",
      "{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
      "{\"lr\": 0.5}}}" },
    { 0,
      "train.zero3",
      "stage",
      { "1", "2" },
      "XRAY_TRAIN_ZERO3__STAGE",
      "{\"zero_optimization\": {\"stage\": 3}}" },
};

/* A variable has the last word: where it sets a key, a contradiction between
 * the two files is none. */
static void variables_settle_contradictions(void **state)
{
    (void)state;
    const size_t count = sizeof(contradictions) / sizeof(contradictions[0]);
    for (size_t i = 0; i < 2 * count; i++) {
        const struct contradiction *c = &contradictions[i / 2];
        const int with = i % 2 != 0;
        char variable[80];
        char ini[160];
        char *environment[] = { with ? variable : NULL, NULL };
        reading r = { .config = xr_config_new() };
        assert_non_null(r.config);
        (void)snprintf(variable, sizeof(variable), "%s=%s", c->variable,
                       c->values[1]);
        (void)snprintf(ini, sizeof(ini),
                       "[%s]\n%s = %s\n[train.zero3]\n"
                       "deepspeed_config = ds.json\n",
                       c->section, c->key, c->values[0]);
        write_text("run.ini", ini);
        write_text("ds.json", c->json);
        xr_config_read(r.config, "run.ini", &r.errors);
        xr_config_environment(r.config, environment, &r.errors);
        xr_deepspeed_read(r.config, &ds_backend, c->sft, 1, &r.errors);
        assert_int_equal(r.errors.count, !with);
        if (with)
            assert_string_equal(xr_config_get(r.config, c->section, c->key),
                                c->values[1]);
        else
            assert_non_null(strstr(r.errors.items[0], " contradicts ["));
        free_reading(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backend_of_any_name_takes_the_keys),
        cmocka_unit_test(missing_option_of_the_backend_is_named),
        cmocka_unit_test(other_backend_ignores_the_file),
        cmocka_unit_test(environment_names_the_file),
        cmocka_unit_test(variables_settle_contradictions),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
