/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in files as Hugging Face has them: shards, matrices that lie the
 * other way round, names with and without a prefix, what is drawn at random.
 */
#include <math.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "model/hf/param_slots.h"
#include "model/hf/safetensors.h"
#include "tests/nn/fixture.h"
#include "tests/scratch.h"

static const fixture_kind *kind_named(const char *name)
{
    for (size_t k = 0; k < fixture_kind_count; k++)
        if (strcmp(fixture_kinds[k].name, name) == 0)
            return &fixture_kinds[k];
    fail_msg("no kind %s", name);
    return NULL;
}

static int there(const char *name)
{
    char path[XR_PATH_CAP];
    assert_int_equal(xr_path_join(scratch_dir(), name, path, sizeof path, NULL),
                     XRAY_OK);
    return xr_path_exists(path);
}

static void save(const xm_weights *weights, uint64_t max_shard)
{
    xr_err err = { "" };
    fixture_ok(xm_weights_save(weights, scratch_dir(), max_shard, &err), &err);
}

static void assert_equal(const xm_weights *a, const xm_weights *b)
{
    for (uint32_t i = 0; i < a->layout->bucket_count; i++)
        assert_memory_equal(a->buckets[i], b->buckets[i],
                            a->layout->bucket_sizes[i] * sizeof(float));
}

/* Loads the scratch folder into weights of their own and compares. */
static void assert_loads(const fixture *f)
{
    xr_err err = { "" };
    xm_weights *again = NULL;
    fixture_ok(xm_weights_create(f->layout, f->device.ops, f->device.self,
                                 "test", 0, &err, &again),
               &err);
    fixture_ok(xm_weights_load(again, scratch_dir(), &err), &err);
    assert_equal(f->weights, again);
    xm_weights_destroy(again);
}

static void assert_refused(const fixture *f, const char *says)
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
        save(f.weights, 4000);
        assert_true(there("model.safetensors.index.json"));
        assert_false(there("model.safetensors"));
        assert_loads(&f);
        if (k % 9 == 0) {
            save(f.weights, 1); /* a file each, and many an fsync */
            assert_loads(&f);
        }
        save(f.weights, XM_ST_SHARD_BYTES);
        assert_true(there("model.safetensors"));
        assert_false(there("model.safetensors.index.json"));
        assert_loads(&f);
        fixture_end(&f);
    }
}

static void conv1d_lies_the_other_way_round(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, kind_named("gpt2, tied"), 5);
    save(f.weights, XM_ST_SHARD_BYTES);
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
    /* A table of positions and the embedding stay as they are. */
    t = xm_st_find(st, "transformer.wpe.weight");
    assert_int_equal(t->shape[1], f.config.hidden);
    xm_st_close(st);
    fixture_end(&f);
}

/* One value that is no number, wherever it lies: `at` counts as the file does.
 */
static void expect_named(const fixture *f, const char *name, uint64_t at,
                         float value, const char *says)
{
    char text[200];
    const xm_param *p = xm_layout_find(f->layout, name);
    assert_non_null(p);
    uint64_t mine = p->transposed ? at % p->rows * p->cols + at / p->rows : at;
    float *place = f->weights->buckets[p->bucket] + p->offset + mine;
    float kept = *place;
    *place = value;
    save(f->weights, XM_ST_SHARD_BYTES);
    (void)snprintf(text, sizeof text, "%s: tensor %s: element %llu is %s,",
                   scratch_dir(), name, (unsigned long long)at, says);
    assert_refused(f, text);
    *place = kept; /* what was taken before the bad piece is what was there */
    save(f->weights, XM_ST_SHARD_BYTES);
    assert_loads(f);
}

static void values_must_be_finite(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, &fixture_kinds[0], 5);
    for (uint32_t i = 0; i < f.layout->param_count; i++) {
        const xm_param *p = &f.layout->params[i];
        expect_named(&f, p->name, p->count - 1, NAN, "NaN");
    }
    fixture_end(&f);
    fixture_make(&f, kind_named("gpt2, tied"), 5);
    const char *turned = "transformer.h.1.attn.c_attn.weight";
    expect_named(&f, turned, 0, NAN, "NaN");
    expect_named(&f, turned, 101, INFINITY, "Inf");
    expect_named(&f, turned, xm_layout_find(f.layout, turned)->count - 1,
                 -INFINITY, "-Inf");
    expect_named(&f, "transformer.wpe.weight", 7, INFINITY, "Inf");
    fixture_end(&f);
}

/* Writes the scratch folder's tensors again, without a prefix, and with more
 * tensors of one number each. */
static void rewrite(size_t skip, const char *const *more, size_t more_count)
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
        int whole = strncmp(t->name, "lm_head", 7) == 0;
        items[i] = (xm_st_item){ .name = t->name + (whole ? 0 : skip),
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

static void bare_names_and_buffers_are_known(void **state)
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
    fixture_make(&f, kind_named("gpt2, tied"), 5);
    save(f.weights, XM_ST_SHARD_BYTES);
    rewrite(strlen("transformer."), buffers, 4);
    assert_loads(&f);
    save(f.weights, XM_ST_SHARD_BYTES);
    rewrite(0, foreign, 1);
    assert_refused(&f, "h.0.attn.c_attn.lora has no place");
    save(f.weights, XM_ST_SHARD_BYTES);
    rewrite(strlen("transformer."), twice, 1);
    /* The full name's shape is wrong, and the bare name is one too many. */
    assert_refused(&f, "h.0.ln_1.bias");
    fixture_end(&f);
    fixture_make(&f, kind_named("llama, untied"), 5);
    save(f.weights, XM_ST_SHARD_BYTES);
    rewrite(strlen("model."), freq, 1);
    assert_loads(&f);
    fixture_end(&f);
}

static void transposed_shapes_are_told_apart(void **state)
{
    (void)state;
    fixture f;
    fixture g;
    fixture_kind other = *kind_named("gpt2, tied");
    fixture_make(&f, &other, 5);
    save(f.weights, XM_ST_SHARD_BYTES);
    other.config.ffn += 4;
    fixture_make(&g, &other, 5);
    assert_refused(&g, "mlp.c_fc.weight");
    char want[64];
    (void)snprintf(want, sizeof want, "config says [%u, %u]", f.config.hidden,
                   other.config.ffn);
    assert_refused(&g, want);
    fixture_end(&g);
    fixture_end(&f);
}

/* ---- memory that the host cannot reach ---------------------------------- */

static const xray_device_ops *far_ops;

static xray_status far_info(void *self, xray_device_info *info)
{
    xray_status status = far_ops->info(self, info);
    info->host_memory = 0;
    return status;
}

/* With a matrix that crosses the stage's boundary in the middle of a row. */
static void turned_matrices_reach_far_memory(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_kind kind = *kind_named("gpt2, tied");
    kind.config.layers = 1;
    kind.config.ffn = (1u << 20) / kind.config.hidden + 37;
    fixture_make(&f, &kind, 5);
    far_ops = f.device.ops;
    xray_device_ops ops = *far_ops;
    ops.info = far_info;
    xm_weights *far = NULL;
    fixture_ok(
        xm_weights_create(f.layout, &ops, f.device.self, "test", 0, &err, &far),
        &err);
    save(f.weights, XM_ST_SHARD_BYTES);
    fixture_ok(xm_weights_load(far, scratch_dir(), &err), &err);
    assert_equal(f.weights, far);
    save(far, 100000);
    assert_loads(&f);
    xm_weights_destroy(far);
    fixture_end(&f);
}

/* ---- random ------------------------------------------------------------- */

static void assert_all(const fixture *f, const char *name, double value)
{
    const xm_param *p = xm_layout_find(f->layout, name);
    assert_non_null(p);
    const float *x = f->weights->buckets[p->bucket] + p->offset;
    for (uint64_t i = 0; i < p->count; i++)
        assert_true((double)x[i] == value);
}

static double deviation(const fixture *f, const char *name)
{
    const xm_param *p = xm_layout_find(f->layout, name);
    assert_non_null(p);
    const float *x = f->weights->buckets[p->bucket] + p->offset;
    double sum = 0;
    for (uint64_t i = 0; i < p->count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)p->count);
}

static void near(double got, double want)
{
    if (fabs(got / want - 1) > 0.05)
        fail_msg("deviation %g, expected %g", got, want);
}

static void random_weights_start_every_architecture(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, kind_named("gemma 3"), 5);
    fixture_ok(xm_weights_random(f.weights, &f.config, 3, &err), &err);
    /* Norms multiply by 1 + w. */
    assert_all(&f, "model.layers.0.input_layernorm.weight", 0);
    assert_all(&f, "model.layers.1.post_feedforward_layernorm.weight", 0);
    assert_all(&f, "model.layers.1.self_attn.k_norm.weight", 0);
    assert_all(&f, "model.norm.weight", 0);
    fixture_end(&f);
    fixture_kind kind = *kind_named("gpt2, tied");
    kind.config.ffn = 2000;
    kind.config.vocab = 2000;
    kind.config.max_positions = 2000;
    fixture_make(&f, &kind, 5);
    fixture_ok(xm_weights_random(f.weights, &f.config, 3, &err), &err);
    double sigma = f.config.init_range;
    assert_all(&f, "transformer.h.0.ln_1.weight", 1);
    assert_all(&f, "transformer.h.0.ln_1.bias", 0);
    assert_all(&f, "transformer.h.1.attn.c_attn.bias", 0);
    assert_all(&f, "transformer.ln_f.weight", 1);
    assert_all(&f, "transformer.ln_f.bias", 0);
    near(deviation(&f, "transformer.wpe.weight"), sigma);
    near(deviation(&f, "transformer.h.0.mlp.c_fc.weight"), sigma);
    near(deviation(&f, "transformer.h.0.mlp.c_proj.weight"),
         sigma / sqrt(2.0 * f.config.layers));
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_architecture_survives_shards,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(conv1d_lies_the_other_way_round,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(values_must_be_finite, scratch_make,
                                        scratch_drop),
        cmocka_unit_test_setup_teardown(bare_names_and_buffers_are_known,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(transposed_shapes_are_told_apart,
                                        scratch_make, scratch_drop),
        cmocka_unit_test_setup_teardown(turned_matrices_reach_far_memory,
                                        scratch_make, scratch_drop),
        cmocka_unit_test(random_weights_start_every_architecture),
    };
    return cmocka_run_group_tests_name("nn.files", tests, NULL, NULL);
}
