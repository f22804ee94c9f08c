/* SPDX-License-Identifier: Apache-2.0
 *
 * Every function of model/rl gives the results that
 * tests/parity/algorithms.py, an independent program in float64, computes from
 * random inputs.
 */
#include <math.h>

#include <cjson/cJSON.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "tests/algo/formulas.h"
#include "tests/testing.h"

static int read_numbers(const cJSON *list, double *out)
{
    int count = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        assert_true(count < FORMULA_CAP && cJSON_IsNumber(item));
        out[count++] = item->valuedouble;
    }
    return count;
}

static void check_case(const cJSON *entry, double tolerance)
{
    double x[FORMULA_CAP];
    double want[FORMULA_CAP];
    formula_in in = { .x = x };
    formula_out out;
    const char *name = xr_json_get(entry, "f")->valuestring;
    in.count = read_numbers(xr_json_get(entry, "in"), x);
    int count = read_numbers(xr_json_get(entry, "out"), want);
    assert_int_equal(formula_eval(name, in, &out), 0);
    assert_int_equal(out.count, count);
    for (int i = 0; i < count; i++)
        if (!(fabs(out.x[i] - want[i]) <= tolerance * (1 + fabs(want[i]))))
            fail_msg("%s: number %d is %.17g, expected %.17g", name, i,
                     out.x[i], want[i]);
}

static void every_function_agrees_with_the_goldens(void **state)
{
    (void)state;
    char path[1024];
    const char *source = getenv("XRAY_SOURCE");
    (void)snprintf(path, sizeof(path), "%s/tests/algo/goldens/formulas.json",
                   source ? source : ".");
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s is missing", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    size_t size = fread(text, 1, (1 << 20) - 1, file);
    (void)fclose(file);
    xr_err err = { "" };
    cJSON *all = NULL;
    if (xr_json_parse(text, size, path, &err, &all) != XRAY_OK)
        fail_msg("%s", err.text);
    free(text);
    int cases = 0;
    const cJSON *entry;
    cJSON_ArrayForEach(entry, xr_json_get(all, "cases"))
    {
        check_case(entry, xr_json_get(all, "tolerance")->valuedouble);
        cases++;
    }
    assert_true(cases >= 100);
    cJSON_Delete(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        every_function_agrees_with_the_goldens) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
