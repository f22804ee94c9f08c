/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that the config.json of every architecture is read as transformers
 * reads it: sizes, scales, windows, rotary frequencies, names and shapes of
 * parameters. tests/parity/hf_configs.py wrote the expected values.
 */
#include <math.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "model/hf/config.h"
#include "model/hf/param_slots.h"
#include "tests/testing.h"

static cJSON *read_goldens(void)
{
    char path[XR_PATH_CAP];
    const char *root = getenv("XRAY_SOURCE");
    (void)snprintf(path, sizeof path, "%s/tests/hf/architectures.json",
                   root ? root : ".");
    cJSON *json = NULL;
    xr_err err = { "" };
    if (xr_json_file(path, &err, &json) != XRAY_OK)
        fail_msg("%s", err.text);
    return json;
}

static double expected_number(const cJSON *expect, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(expect, key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static void assert_number_equal(const char *name, const char *key, double got,
                                double want)
{
    if (!(fabs(got - want) <= 1e-12 * fabs(want)))
        fail_msg("%s: %s is %.17g, transformers has %.17g", name, key, got,
                 want);
}

static void check_numbers(const char *name, const cJSON *expect,
                          const xm_config *c)
{
    const struct {
        const char *key;
        double got;
    } all[] = {
        { "hidden", c->hidden },
        { "layers", c->layers },
        { "heads", c->heads },
        { "kv_heads", c->kv_heads },
        { "head_dim", c->head_dim },
        { "ffn", c->ffn },
        { "vocab", c->vocab },
        { "max_positions", c->max_positions },
        { "tied", c->tied },
        { "act", c->act },
        { "norm_eps", c->norm_eps },
        { "init_range", c->init_range },
        { "attn_scale", c->attn_scale },
        { "attn_softcap", c->attn_softcap },
        { "logit_softcap", c->logit_softcap },
        { "parameters", (double)xm_config_param_count(c) },
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_number_equal(name, all[i].key, all[i].got,
                            expected_number(expect, all[i].key));
    double scale = expected_number(expect, "embed_scale");
    assert_number_equal(name, "embed_scale", c->embed_scale,
                        (double)(float)scale);
    const char *sliding = xr_json_get(expect, "sliding")->valuestring;
    assert_int_equal(strlen(sliding), c->layers);
    for (uint32_t layer = 0; layer < c->layers; layer++)
        assert_number_equal(name, "sliding", xm_config_slides(c, layer),
                            sliding[layer] - '0');
    if (strchr(sliding, '1'))
        assert_number_equal(name, "window", c->window,
                            expected_number(expect, "window"));
}

static void check_rope(const char *name, const cJSON *rope, const xm_config *c,
                       const xm_rope *mine)
{
    double got[XM_MAX_ROTARY];
    const cJSON *want = rope->child;
    xm_rope_frequencies(c, mine, got);
    assert_int_equal(cJSON_GetArraySize(want), c->rotary / 2);
    uint32_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, want)
        assert_number_equal(name, "inv_freq", got[i++], item->valuedouble);
    assert_number_equal(name, "rope scale", mine->scale,
                        want->next->valuedouble);
}

typedef struct tensor_names {
    const char *name;
    const cJSON *tensors;
    uint32_t count;
    uint32_t reserved;
} tensor_names;

static xray_status check_tensor_name(void *ctx, const xm_param_info *info)
{
    tensor_names *n = ctx;
    const cJSON *shape =
        cJSON_GetObjectItemCaseSensitive(n->tensors, info->name);
    if (!shape)
        fail_msg("%s: transformers has no %s", n->name, info->name);
    uint64_t rows = info->transposed ? info->cols : info->rows;
    uint64_t cols = info->transposed ? info->rows : info->cols;
    assert_number_equal(n->name, info->name, (double)rows,
                        shape->child->valuedouble);
    assert_int_equal(cJSON_GetArraySize(shape), info->cols ? 2 : 1);
    if (info->cols)
        assert_number_equal(n->name, info->name, (double)cols,
                            shape->child->next->valuedouble);
    n->count++;
    return XRAY_OK;
}

static void check_case(const cJSON *item)
{
    const char *name = xr_json_get(item, "name")->valuestring;
    const cJSON *expect = xr_json_get(item, "expect");
    char *text = cJSON_Print(xr_json_get(item, "config"));
    xm_config c;
    xr_err err = { "" };
    assert_non_null(text);
    if (xm_config_parse(text, name, &err, &c) != XRAY_OK)
        fail_msg("%s", err.text);
    cJSON_free(text);
    check_numbers(name, expect, &c);
    const cJSON *rope = xr_json_get(expect, "rope");
    const cJSON *local = xr_json_get(expect, "rope_local");
    /* Without both nothing rotates. With one, all layers are of that kind. */
    assert_int_equal(c.rotary != 0, rope || local);
    if (rope)
        check_rope(name, rope, &c, &c.rope);
    if (local)
        check_rope(name, local, &c, &c.rope_local);
    tensor_names n = { .name = name,
                       .tensors = xr_json_get(expect, "tensors") };
    if (!n.tensors)
        return;
    assert_int_equal(xm_config_params(&c, check_tensor_name, &n), XRAY_OK);
    assert_int_equal(cJSON_GetArraySize(n.tensors), n.count);
}

static void every_config_is_read_as_by_transformers(void **state)
{
    (void)state;
    cJSON *json = read_goldens();
    int seen = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, xr_json_get(json, "cases"))
    {
        check_case(item);
        seen++;
    }
    assert_true(seen >= 40);
    cJSON_Delete(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_config_is_read_as_by_transformers),
    };
    return cmocka_run_group_tests_name("hf.arch", tests, NULL, NULL);
}
