/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists the models of tests/nn/goldens, reads their files and runs a check over
 * each.
 */
#ifndef XM_TEST_GOLDENS_H
#define XM_TEST_GOLDENS_H

#include <math.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "tests/testing.h"

#define GOLDEN_BOUND 1e-4

/* Writes the folder of a golden to `out`. */
static inline void golden_dir(const char *name, char out[XR_PATH_CAP])
{
    const char *source = getenv("XRAY_SOURCE");
    (void)snprintf(out, XR_PATH_CAP, "%s/tests/nn/goldens/%s",
                   source ? source : "..", name);
}

static inline cJSON *golden_read(const char *dir)
{
    char path[XR_PATH_CAP];
    xr_err err = { "" };
    cJSON *json = NULL;
    if (xr_path_join(dir, "golden.json", path, sizeof path, &err) ||
        xr_json_file(path, &err, &json))
        fail_msg("%s", err.text);
    return json;
}

static inline const cJSON *golden_part(const cJSON *object, const char *key)
{
    const cJSON *found = xr_json_get(object, key);
    if (!found)
        fail_msg("no \"%s\"", key);
    return found;
}

static inline double golden_at(const cJSON *array, uint32_t i)
{
    const cJSON *item = cJSON_GetArrayItem(array, (int)i);
    if (!cJSON_IsNumber(item))
        fail_msg("entry %u is no number", i);
    return item->valuedouble;
}

static inline void golden_near(double got, double want, const char *what,
                               uint32_t index)
{
    if (!(fabs(got - want) <= GOLDEN_BOUND))
        fail_msg("%s[%u]: got %.9g, transformers has %.9g", what, index, got,
                 want);
}

/* Runs `check` for each golden, whose name is its state. */
static inline int golden_run(const char *suite, CMUnitTestFunction check,
                             CMFixtureFunction start, CMFixtureFunction done)
{
    char names[][24] = {
        "llama",
        "llama_tied",
        "llama_biases",
        "llama_llama3",
        "llama_linear",
        "llama_yarn",
        "llama_yarn_mscale",
        "mistral",
        "mistral_full",
        "qwen2",
        "qwen2_window",
        "qwen3",
        "qwen3_window",
        "gemma",
        "gemma2",
        "gemma3",
        "gemma3_pattern",
        "gpt2",
        "gpt2_untied",
        "phi3",
        "phi3_full",
    };
    struct CMUnitTest tests[sizeof names / sizeof names[0]] = { 0 };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        tests[i] = (struct CMUnitTest){ .name = names[i],
                                        .test_func = check,
                                        .initial_state = names[i] };
    return cmocka_run_group_tests_name(suite, tests, start, done);
}

#endif
