/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that weights are saved and loaded as Hugging Face stores them (shards,
 * transposed matrices, names with and without a prefix), and that random
 * weights have the right deviation.
 */
#include <math.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "model/hf/param_slots.h"
#include "model/hf/safetensors.h"
#include "tests/nn/fixture.h"
#include "tests/scratch.h"

static const fixture_kind *find_kind(const char *name)
{
    for (size_t k = 0; k < fixture_kind_count; k++)
        if (strcmp(fixture_kinds[k].name, name) == 0)
            return &fixture_kinds[k];
    fail_msg("no kind %s", name);
    return NULL;
}

static int scratch_file_exists(const char *name)
{
    char path[XR_PATH_CAP];
    assert_int_equal(xr_path_join(scratch_dir(), name, path, sizeof path, NULL),
                     XRAY_OK);
    return xr_path_exists(path);
}

static void save_to_scratch(const xm_weights *weights, uint64_t max_shard)
{
    xr_err err = { "" };
    fixture_ok(xm_weights_save(weights, scratch_dir(), max_shard, &err), &err);
}

static void assert_weights_equal(const xm_weights *a, const xm_weights *b)
{
    for (uint32_t i = 0; i < a->layout->bucket_count; i++)
        assert_memory_equal(a->buckets[i], b->buckets[i],
                            a->layout->bucket_sizes[i] * sizeof(float));
}

/* Loads the scratch folder into new weights and compares them. */
static void assert_reload_is_equal(const fixture *f)
{
    xr_err err = { "" };
    xm_weights *again = NULL;
    fixture_ok(xm_weights_create(f->layout, f->device.ops, f->device.self,
                                 "test", 0, &err, &again),
               &err);
    fixture_ok(xm_weights_load(again, scratch_dir(), &err), &err);
    assert_weights_equal(f->weights, again);
    xm_weights_destroy(again);
}

static void assert_load_refused(const fixture *f, const char *says)
{
    xr_err err = { "" };
    xray_status status = xm_weights_load(f->weights, scratch_dir(), &err);
    if (status == XRAY_OK || !strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void every_architecture_survives_shards(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        fixture f;
        fixture_make(&f, &fixture_kinds[k], 5);
        save_to_scratch(f.weights, 4000);
        assert_true(scratch_file_exists("model.safetensors.index.json"));
        assert_false(scratch_file_exists("model.safetensors"));
        assert_reload_is_equal(&f);
        if (k % 9 == 0) {
            save_to_scratch(f.weights, 1); /* one file per tensor, so many calls
                                            * of fsync */
            assert_reload_is_equal(&f);
        }
        save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
        assert_true(scratch_file_exists("model.safetensors"));
        assert_false(scratch_file_exists("model.safetensors.index.json"));
        assert_reload_is_equal(&f);
        fixture_end(&f);
    }
}

static void conv1d_matrices_are_saved_transposed(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, find_kind("gpt2, tied"), 5);
    save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
    const xm_param *p =
        xm_layout_find(f.layout, "transformer.h.1.attn.c_attn.weight");
    xm_st *st = NULL;
    assert_int_equal(xm_st_open(scratch_dir(), NULL, &st), XRAY_OK);
    const xm_st_tensor *t = xm_st_find(st, p->name);
    assert_non_null(t);
    assert_int_equal(t->shape[0], f.config.hidden);
    assert_int_equal(t->shape[1], 3 * f.config.hidden);
    const float *mine = f.weights->buckets[p->bucket] + p->offset;
    for (uint64_t out = 0; out < p->rows; out++)
        for (uint64_t in = 0; in < p->cols; in++) {
            float value;
            assert_int_equal(
                xm_st_read_f32(t, in * p->rows + out, 1, &value, NULL),
                XRAY_OK);
            assert_true(value == mine[out * p->cols + in]);
        }
    /* The table of positions and the embedding are not transposed. */
    t = xm_st_find(st, "transformer.wpe.weight");
    assert_int_equal(t->shape[1], f.config.hidden);
    xm_st_close(st);
    fixture_end(&f);
}

/* Saves one value that is not finite and expects the refusal to name it. `at`
 * counts elements in the file's order. */
static void assert_value_refused(const fixture *f, const char *name,
                                 uint64_t at, float value, const char *says)
{
    char text[200];
    const xm_param *p = xm_layout_find(f->layout, name);
    assert_non_null(p);
    uint64_t mine = p->transposed ? at % p->rows * p->cols + at / p->rows : at;
    float *value_at = f->weights->buckets[p->bucket] + p->offset + mine;
    float kept = *value_at;
    *value_at = value;
    save_to_scratch(f->weights, XM_ST_SHARD_BYTES);
    (void)snprintf(text, sizeof text, "%s: tensor %s: element %llu is %s,",
                   scratch_dir(), name, (unsigned long long)at, says);
    assert_load_refused(f, text);
    *value_at = kept; /* values loaded before the refusal equal those that were
                       * there */
    save_to_scratch(f->weights, XM_ST_SHARD_BYTES);
    assert_reload_is_equal(f);
}

static void values_must_be_finite(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, &fixture_kinds[0], 5);
    for (uint32_t i = 0; i < f.layout->param_count; i++) {
        const xm_param *p = &f.layout->params[i];
        assert_value_refused(&f, p->name, p->count - 1, NAN, "NaN");
    }
    fixture_end(&f);
    fixture_make(&f, find_kind("gpt2, tied"), 5);
    const char *turned = "transformer.h.1.attn.c_attn.weight";
    assert_value_refused(&f, turned, 0, NAN, "NaN");
    assert_value_refused(&f, turned, 101, INFINITY, "Inf");
    assert_value_refused(&f, turned,
                         xm_layout_find(f.layout, turned)->count - 1, -INFINITY,
                         "-Inf");
    assert_value_refused(&f, "transformer.wpe.weight", 7, INFINITY, "Inf");
    fixture_end(&f);
}

/* Rewrites the scratch folder's file with `skip` letters less in each name, and
 * with further tensors of one element each. */
static void rewrite_scratch(size_t skip, const char *const *more,
                            size_t more_count)
{
    static const float one = 1;
    char path[XR_PATH_CAP];
    xm_st *st = NULL;
    assert_int_equal(xm_st_open(scratch_dir(), NULL, &st), XRAY_OK);
    size_t count = xm_st_count(st);
    xm_st_item *items = calloc(count + more_count, sizeof *items);
    assert_non_null(items);
    for (size_t i = 0; i < count; i++) {
        const xm_st_tensor *t = xm_st_at(st, i);
        int is_lm_head = strncmp(t->name, "lm_head", 7) == 0;
        items[i] = (xm_st_item){ .name = t->name + (is_lm_head ? 0 : skip),
                                 .dtype = t->dtype,
                                 .dims = t->dims,
                                 .data = t->data };
        memcpy(items[i].shape, t->shape, sizeof t->shape);
    }
    for (size_t i = 0; i < more_count; i++)
        items[count + i] = (xm_st_item){
            .name = more[i], .dtype = XM_ST_F32, .shape = { 1 }, .data = &one
        };
    assert_int_equal(xr_path_join(scratch_dir(), "model.safetensors", path,
                                  sizeof path, NULL),
                     XRAY_OK);
    assert_int_equal(xm_st_write(path, items, count + more_count, NULL, NULL),
                     XRAY_OK);
    free(items);
    xm_st_close(st);
}

static void bare_names_and_buffers_are_accepted(void **state)
{
    (void)state;
    static const char *const buffers[] = { "h.0.attn.bias", "h.1.attn.bias",
                                           "h.0.attn.masked_bias",
                                           "lm_head.weight" };
    static const char *const freq[] = { "layers.0.self_attn.rotary_emb."
                                        "inv_freq" };
    static const char *const twice[] = { "transformer.h.0.ln_1.bias" };
    static const char *const foreign[] = { "h.0.attn.c_attn.lora" };
    fixture f;
    fixture_make(&f, find_kind("gpt2, tied"), 5);
    save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
    rewrite_scratch(strlen("transformer."), buffers, 4);
    assert_reload_is_equal(&f);
    save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
    rewrite_scratch(0, foreign, 1);
    assert_load_refused(&f, "h.0.attn.c_attn.lora is not part of the model");
    save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
    rewrite_scratch(strlen("transformer."), twice, 1);
    /* The tensor of the full name has the wrong shape, and the bare name is a
     * duplicate. */
    assert_load_refused(&f, "h.0.ln_1.bias");
    /* It is one too where the full name has what the model needs. */
    static const char *const bare[] = { "h.0.ln_1.bias" };
    save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
    rewrite_scratch(0, bare, 1);
    assert_load_refused(&f, "h.0.ln_1.bias is not part of the model");
    fixture_end(&f);
    fixture_make(&f, find_kind("llama, untied"), 5);
    save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
    rewrite_scratch(strlen("model."), freq, 1);
    assert_reload_is_equal(&f);
    fixture_end(&f);
}

static void wrong_transposed_shapes_are_refused(void **state)
{
    (void)state;
    fixture f;
    fixture g;
    fixture_kind other = *find_kind("gpt2, tied");
    fixture_make(&f, &other, 5);
    save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
    other.config.ffn += 4;
    fixture_make(&g, &other, 5);
    assert_load_refused(&g, "mlp.c_fc.weight");
    char want[64];
    (void)snprintf(want, sizeof want, "config says [%u, %u]", f.config.hidden,
                   other.config.ffn);
    assert_load_refused(&g, want);
    fixture_end(&g);
    fixture_end(&f);
}

/* ---- memory that the host cannot access --------------------------------- */

static const xray_device_ops *host_ops;

static xray_status device_memory_info(void *self, xray_device_info *info)
{
    xray_status status = host_ops->info(self, info);
    info->host_memory = 0;
    return status;
}

/* One matrix crosses the staging buffer's boundary in the middle of a row. */
static void transposed_matrices_reach_device_memory(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_kind kind = *find_kind("gpt2, tied");
    kind.config.layers = 1;
    kind.config.ffn = (1u << 20) / kind.config.hidden + 37;
    fixture_make(&f, &kind, 5);
    host_ops = f.device.ops;
    xray_device_ops ops = *host_ops;
    ops.info = device_memory_info;
    xm_weights *far = NULL;
    fixture_ok(
        xm_weights_create(f.layout, &ops, f.device.self, "test", 0, &err, &far),
        &err);
    save_to_scratch(f.weights, XM_ST_SHARD_BYTES);
    fixture_ok(xm_weights_load(far, scratch_dir(), &err), &err);
    assert_weights_equal(f.weights, far);
    save_to_scratch(far, 100000);
    assert_reload_is_equal(&f);
    xm_weights_destroy(far);
    fixture_end(&f);
}

/* ---- random ------------------------------------------------------------- */

static void assert_all_equal(const fixture *f, const char *name, double value)
{
    const xm_param *p = xm_layout_find(f->layout, name);
    assert_non_null(p);
    const float *x = f->weights->buckets[p->bucket] + p->offset;
    for (uint64_t i = 0; i < p->count; i++)
        assert_true((double)x[i] == value);
}

static double root_mean_square(const fixture *f, const char *name)
{
    const xm_param *p = xm_layout_find(f->layout, name);
    assert_non_null(p);
    const float *x = f->weights->buckets[p->bucket] + p->offset;
    double sum = 0;
    for (uint64_t i = 0; i < p->count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)p->count);
}

static void assert_near_deviation(double got, double want)
{
    if (fabs(got / want - 1) > 0.05)
        fail_msg("deviation %g, expected %g", got, want);
}

static void random_weights_have_the_right_deviation(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, find_kind("gemma 3"), 5);
    fixture_ok(xm_weights_random(f.weights, &f.config, 3, &err), &err);
    /* Norms multiply by 1 + w. */
    assert_all_equal(&f, "model.layers.0.input_layernorm.weight", 0);
    assert_all_equal(&f, "model.layers.1.post_feedforward_layernorm.weight", 0);
    assert_all_equal(&f, "model.layers.1.self_attn.k_norm.weight", 0);
    assert_all_equal(&f, "model.norm.weight", 0);
    fixture_end(&f);
    fixture_kind kind = *find_kind("gpt2, tied");
    kind.config.ffn = 2000;
    kind.config.vocab = 2000;
    kind.config.max_positions = 2000;
    fixture_make(&f, &kind, 5);
    fixture_ok(xm_weights_random(f.weights, &f.config, 3, &err), &err);
    double sigma = f.config.init_range;
    assert_all_equal(&f, "transformer.h.0.ln_1.weight", 1);
    assert_all_equal(&f, "transformer.h.0.ln_1.bias", 0);
    assert_all_equal(&f, "transformer.h.1.attn.c_attn.bias", 0);
    assert_all_equal(&f, "transformer.ln_f.weight", 1);
    assert_all_equal(&f, "transformer.ln_f.bias", 0);
    assert_near_deviation(root_mean_square(&f, "transformer.wpe.weight"),
                          sigma);
    assert_near_deviation(
        root_mean_square(&f, "transformer.h.0.mlp.c_fc.weight"), sigma);
    assert_near_deviation(
        root_mean_square(&f, "transformer.h.0.mlp.c_proj.weight"),
        sigma / sqrt(2.0 * f.config.layers));
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_architecture_survives_shards,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(conv1d_matrices_are_saved_transposed,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(values_must_be_finite, scratch_make,
                                        scratch_drop),
        cmocka_unit_test_setup_teardown(bare_names_and_buffers_are_accepted,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(wrong_transposed_shapes_are_refused,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(transposed_matrices_reach_device_memory,
                                        scratch_make, scratch_drop),
        cmocka_unit_test(random_weights_have_the_right_deviation),
    };
    return cmocka_run_group_tests_name("nn.files", tests, NULL, NULL);
}
