/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a resume gives the bits of a run that was never interrupted, and
 * that loading a damaged folder changes nothing.
 */
#include <xray/box.h>

#include "core/base/file.h"
#include "model/hf/safetensors.h"
#include "model/train/checkpoint.h"
#include "tests/train/rig.h"

static void train_step(const rig *r, uint32_t number)
{
    rows batch;
    rows_loss ctx = { .entropy_weight = 0.01 };
    rows_draw(&batch, 9, 24, 37, number);
    rows_cut(&batch, 2);
    xray_loss loss = rows_loss_of(&ctx, &batch);
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    assert_int_equal(
        r->ops->forward_backward(r->self, batch.pointers, 2, &loss), XRAY_OK);
    assert_int_equal(r->ops->optimizer_step(r->self, 5e-3, 1, &result),
                     XRAY_OK);
}

static uint64_t weights_version(const rig *r)
{
    const xray_weights *w = r->ops->weights(r->self);
    return w->version(w->owner);
}

static void save_instance(const rig *r, const char *dir)
{
    if (r->ops->save(r->self, dir) != XRAY_OK)
        fail_msg("save: %s", rig_error());
}

static void resume_exactly(const rig_spec *spec)
{
    char dir[256];
    rig_device device = rig_device_open(1);
    rig a, b;
    rig_spec other = *spec;
    other.seed += 1; /* the loaded state must not depend on the earlier one */
    assert_int_equal(rig_open(&device, spec, &a), XRAY_OK);
    for (uint32_t i = 0; i < 3; i++)
        train_step(&a, i);
    save_instance(&a, rig_mkdir(dir, sizeof(dir)));
    assert_int_equal(rig_open(&device, &other, &b), XRAY_OK);
    train_step(&b, 77);
    if (b.ops->load(b.self, dir) != XRAY_OK)
        fail_msg("load: %s", rig_error());
    assert_int_equal(weights_version(&b), 3);
    rig_same_weights(&a, &b);
    for (uint32_t i = 3; i < 6; i++) {
        train_step(&a, i);
        train_step(&b, i);
    }
    assert_int_equal(weights_version(&b), 6);
    rig_same_weights(&a, &b);
    rig_close(&a);
    rig_close(&b);
    rig_device_close(&device);
    rig_rmdir(dir);
}

static void resume_gives_the_same_bits(void **state)
{
    (void)state;
    rig_spec spec = { .seed = 3 };
    resume_exactly(&spec);
    spec.config_json = rig_tiny_tied;
    spec.outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY | XRAY_OUTPUT_VALUE;
    resume_exactly(&spec);
}

/* A load clears the gradients that were accumulated before it. */
static void load_clears_gradients(void **state)
{
    (void)state;
    char dir[256];
    rig_device device = rig_device_open(1);
    rig_spec spec = { .seed = 3 };
    rig a;
    assert_int_equal(rig_open(&device, &spec, &a), XRAY_OK);
    train_step(&a, 1);
    save_instance(&a, rig_mkdir(dir, sizeof(dir)));
    rows batch;
    rows_loss ctx = { 0 };
    rows_draw(&batch, 9, 24, 37, 5);
    xray_loss loss = rows_loss_of(&ctx, &batch);
    assert_int_equal(a.ops->forward_backward(a.self, batch.pointers, 1, &loss),
                     XRAY_OK);
    assert_int_equal(a.ops->load(a.self, dir), XRAY_OK);
    const xray_weights *grads = rig_debug(&a)->gradients(a.self);
    for (uint32_t i = 0; i < grads->tensor_count; i++)
        for (uint64_t k = 0; k < xray_box_count(&grads->tensors[i]); k++)
            assert_true(((const float *)grads->tensors[i].data)[k] == 0);
    rig_close(&a);
    rig_device_close(&device);
    rig_rmdir(dir);
}

static void frozen_blocks_have_no_moments(void **state)
{
    (void)state;
    char dir[256];
    char path[512];
    rig_device device = rig_device_open(1);
    rig_spec spec = { .seed = 3, .frozen = 1 };
    rig a, b;
    assert_int_equal(rig_open(&device, &spec, &a), XRAY_OK);
    save_instance(&a, rig_mkdir(dir, sizeof(dir)));
    (void)snprintf(path, sizeof(path), "%s/" XM_OPTIM_FILE, dir);
    assert_false(xr_path_exists(path));
    spec.seed = 4;
    assert_int_equal(rig_open(&device, &spec, &b), XRAY_OK);
    assert_int_equal(b.ops->load(b.self, dir), XRAY_OK);
    rig_same_weights(&a, &b);
    /* A trainable instance also needs the optimizer's state. */
    rig_close(&b);
    spec.frozen = 0;
    assert_int_equal(rig_open(&device, &spec, &b), XRAY_OK);
    assert_true(b.ops->load(b.self, dir) < 0);
    assert_non_null(strstr(rig_error(), XM_OPTIM_FILE));
    rig_close(&a);
    rig_close(&b);
    rig_device_close(&device);
    rig_rmdir(dir);
}

static void imported_weights_train_alike(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_device other = rig_device_open(1);
    rig_spec spec = { .seed = 3 };
    rig a, b;
    assert_int_equal(rig_open(&device, &spec, &a), XRAY_OK);
    train_step(&a, 0);
    spec.seed = 4;
    spec.frozen = 1;
    assert_int_equal(rig_open(&other, &spec, &b), XRAY_OK);
    assert_int_equal(rig_debug(&b)->import(b.self, a.ops->weights(a.self)),
                     XRAY_OK);
    rig_same_weights(&a, &b);
    assert_int_equal(weights_version(&b), 1);
    rig_close(&a);
    rig_close(&b);
    rig_device_close(&device);
    rig_device_close(&other);
}

/* ---- damage ------------------------------------------------------------- */

typedef struct damage {
    rig_device device;
    rig saved;
    rig victim; /* one more step after the checkpoint */
    rig twin;   /* the same, but never loaded */
    char dir[256];
} damage;

static void open_damage(damage *d)
{
    rig_spec spec = { .seed = 3 };
    d->device = rig_device_open(1);
    assert_int_equal(rig_open(&d->device, &spec, &d->saved), XRAY_OK);
    assert_int_equal(rig_open(&d->device, &spec, &d->victim), XRAY_OK);
    assert_int_equal(rig_open(&d->device, &spec, &d->twin), XRAY_OK);
    train_step(&d->saved, 1);
    train_step(&d->victim, 2);
    train_step(&d->twin, 2);
    rig_mkdir(d->dir, sizeof(d->dir));
}

/* The load fails with a message that contains `part`, and leaves the victim as
 * it was: its next step equals its twin's. */
static void expect_damage_refused(damage *d, const char *part)
{
    rig_clear();
    assert_true(d->victim.ops->load(d->victim.self, d->dir) < 0);
    if (!strstr(rig_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", rig_error(), part);
    rig_same_weights(&d->victim, &d->twin);
    train_step(&d->victim, 9);
    train_step(&d->twin, 9);
    rig_same_weights(&d->victim, &d->twin);
    save_instance(&d->saved, d->dir);
}

static void close_damage(damage *d)
{
    rig_close(&d->saved);
    rig_close(&d->victim);
    rig_close(&d->twin);
    rig_device_close(&d->device);
    rig_rmdir(d->dir);
}

static void cut_file(const damage *d, const char *name, size_t keep)
{
    char path[512];
    char *data = NULL;
    size_t size = 0;
    xr_err err;
    (void)snprintf(path, sizeof(path), "%s/%s", d->dir, name);
    assert_int_equal(xr_file_read(path, 1u << 24, &err, &data, &size), XRAY_OK);
    assert_true(size > keep);
    assert_int_equal(xr_file_write(path, data, keep ? keep : size / 2, &err),
                     XRAY_OK);
    free(data);
}

#define DAMAGE_TENSORS 128

/* Rewrites a file without tensor `name` (height 0) or with that tensor in shape
 * [height, width], or as BF16 (width 0), and with other metadata. */
static void rewrite_tensor(const damage *d, const char *file, const char *name,
                           uint64_t height, uint64_t width,
                           const char *const *metadata)
{
    char path[512];
    xm_st *st = NULL;
    xr_err err = { "" };
    xm_st_item items[DAMAGE_TENSORS];
    size_t count = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", d->dir, file);
    assert_int_equal(xm_st_open(path, &err, &st), XRAY_OK);
    assert_true(xm_st_count(st) <= DAMAGE_TENSORS);
    for (size_t i = 0; i < xm_st_count(st); i++) {
        const xm_st_tensor *t = xm_st_at(st, i);
        int hit = name && strcmp(t->name, name) == 0;
        if (hit && height == 0)
            continue;
        items[count] = (xm_st_item){ .name = t->name,
                                     .dtype = t->dtype,
                                     .dims = t->dims,
                                     .shape = { t->shape[0], t->shape[1] },
                                     .data = t->data };
        if (hit && width == 0) {
            items[count].dtype = XM_ST_BF16;
        } else if (hit) {
            items[count].dims = 2;
            items[count].shape[0] = height;
            items[count].shape[1] = width;
        }
        count++;
    }
    assert_int_equal(xm_st_write(path, items, count, metadata, &err), XRAY_OK);
    xm_st_close(st);
}

#define FORMAT "format", "xray.adamw/1"
#define DOWN "model.layers.1.mlp.down_proj.weight"
static const char *const good[] = { FORMAT, "step", "1", "version", "1", NULL };

static void damaged_optimizer(void **state)
{
    (void)state;
    damage d;
    const char *down = DOWN ".exp_avg_sq";
    open_damage(&d);
    expect_damage_refused(&d, XM_OPTIM_FILE); /* does not exist */
    cut_file(&d, XM_OPTIM_FILE, 0);
    expect_damage_refused(&d, XM_OPTIM_FILE);
    cut_file(&d, XM_OPTIM_FILE, 6);
    expect_damage_refused(&d, XM_OPTIM_FILE);
    rewrite_tensor(&d, XM_OPTIM_FILE, down, 0, 0, good);
    expect_damage_refused(&d, "exp_avg_sq is missing");
    rewrite_tensor(&d, XM_OPTIM_FILE, down, 56, 32, good);
    expect_damage_refused(&d, "shape [56, 32], expected [32, 56]");
    rewrite_tensor(&d, XM_OPTIM_FILE, down, 32, 28, good);
    expect_damage_refused(&d, "shape [32, 28], expected [32, 56]");
    rewrite_tensor(&d, XM_OPTIM_FILE, down, 1, 0, good);
    expect_damage_refused(&d, "exp_avg_sq is not F32");
    /* The last one of the file. */
    rewrite_tensor(&d, XM_OPTIM_FILE, "lm_head.weight.exp_avg_sq", 1, 32, good);
    expect_damage_refused(&d, "exp_avg_sq has shape [1, 32], expected [");
    rewrite_tensor(&d, XM_OPTIM_FILE, "model.norm.weight.exp_avg", 1, 32, good);
    expect_damage_refused(&d, "exp_avg has shape [1, 32], expected [32]");
    close_damage(&d);
}

/* The last of the counts below would take a load minutes. */
static void damaged_metadata(void **state)
{
    (void)state;
    static const struct {
        const char *given[7];
        const char *says;
    } cases[] = {
        { { "step", "1", "version", "1" },
          "format is missing, expected xray.adamw/1" },
        { { "format", "other", "step", "1", "version", "1" },
          "format is other, expected xray.adamw/1" },
        { { FORMAT, "version", "1" }, "metadata step is missing, expected a" },
        { { FORMAT, "step", "1" }, "metadata version is missing, expected a" },
        { { FORMAT, "step", "-4", "version", "1" }, "metadata step is -4, " },
        { { FORMAT, "step", "1", "version", "-1" }, "metadata version is -1" },
        { { FORMAT, "step", "1.5", "version", "1" }, "metadata step is 1.5" },
        { { FORMAT, "step", "4294967297", "version", "1" },
          "metadata step is 4294967297, expected a count of steps" },
    };
    damage d;
    open_damage(&d);
    save_instance(&d.saved, d.dir);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rewrite_tensor(&d, XM_OPTIM_FILE, NULL, 0, 0, cases[i].given);
        expect_damage_refused(&d, cases[i].says);
    }
    close_damage(&d);
}

static void damaged_weights(void **state)
{
    (void)state;
    damage d;
    const char *weights = "model.safetensors", *down = DOWN;
    static const char *const format[] = { "format", "pt", NULL };
    open_damage(&d);
    save_instance(&d.saved, d.dir);
    cut_file(&d, weights, 0);
    expect_damage_refused(&d, weights);
    rewrite_tensor(&d, weights, down, 0, 0, format);
    expect_damage_refused(&d, "down_proj.weight is missing");
    rewrite_tensor(&d, weights, down, 56, 32, format);
    expect_damage_refused(&d, "[56, 32]");
    close_damage(&d);
}

static void checkpoint_of_another_model_is_refused(void **state)
{
    (void)state;
    damage d;
    rig other;
    rig_spec spec = { .config_json = rig_tiny_tied };
    open_damage(&d);
    assert_int_equal(rig_open(&d.device, &spec, &other), XRAY_OK);
    save_instance(&other, d.dir);
    expect_damage_refused(&d, d.dir);
    rig_close(&other);
    close_damage(&d);
}

/* Another model's state may contain all that this one needs, and more. */
static void optimizer_of_a_larger_model(void **state)
{
    (void)state;
    static const char two[] = "\"num_hidden_layers\":2";
    char three[1024];
    char path[512];
    char *data = NULL;
    size_t size = 0;
    damage d;
    rig other;
    xr_err err;
    (void)snprintf(three, sizeof(three), "%s", rig_tiny);
    *(strstr(three, two) + sizeof(two) - 2) = '3';
    rig_spec spec = { .config_json = three };
    open_damage(&d);
    assert_int_equal(rig_open(&d.device, &spec, &other), XRAY_OK);
    save_instance(&other, d.dir);
    (void)snprintf(path, sizeof(path), "%s/%s", d.dir, XM_OPTIM_FILE);
    assert_int_equal(xr_file_read(path, 1u << 24, &err, &data, &size), XRAY_OK);
    save_instance(&d.saved, d.dir);
    assert_int_equal(xr_file_write(path, data, size, &err), XRAY_OK);
    expect_damage_refused(&d, "the file belongs to another model");
    free(data);
    rig_close(&other);
    close_damage(&d);
}

static void missing_folder_is_refused(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { 0 };
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    assert_true(r.ops->save(r.self, "/proc/no/such") < 0);
    assert_non_null(strstr(rig_error(), "/proc/no"));
    assert_true(r.ops->load(r.self, "/proc/no/such") < 0);
    assert_non_null(strstr(rig_error(), "/proc/no"));
    train_step(&r, 1);
    rig_close(&r);
    rig_device_close(&device);
}

static xray_status agree_alone(void *ctx, xray_status mine, xr_err *err)
{
    (void)ctx;
    (void)err;
    return mine;
}

static void expect_same_file(const char *a, const char *b, const char *name)
{
    char path[512];
    char *text[2] = { NULL, NULL };
    size_t size[2] = { 0, 0 };
    xr_err err = { "" };
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", i ? b : a, name);
        if (xr_file_read(path, 1u << 24, &err, &text[i], &size[i]) != XRAY_OK)
            fail_msg("%s", err.text);
    }
    assert_int_equal(size[0], size[1]);
    assert_memory_equal(text[0], text[1], size[0]);
    free(text[0]);
    free(text[1]);
}

/* Shards that the ranks write together equal, byte for byte, those that a
 * single rank writes, even over an older single file; the index is written with
 * them. */
static void shards_together(void **state)
{
    (void)state;
    char one[256];
    char many[256];
    char path[512];
    xr_err err = { "" };
    rig_device device = rig_device_open(1);
    xm_config config;
    xm_layout *layout = NULL;
    xm_weights *w = NULL;
    const xm_agreement together = { .agree = agree_alone };
    assert_int_equal(xm_config_parse(rig_tiny, "test", &err, &config), XRAY_OK);
    assert_int_equal(xm_layout_create(&config, 1, &err, &layout), XRAY_OK);
    assert_int_equal(
        xm_weights_create(layout, device.ops, device.self, "test", 0, &err, &w),
        XRAY_OK);
    assert_int_equal(xm_weights_random(w, &config, 3, &err), XRAY_OK);
    rig_mkdir(one, sizeof(one));
    rig_mkdir(many, sizeof(many));
    assert_int_equal(xm_weights_save(w, one, 20000, &err), XRAY_OK);
    assert_int_equal(
        xm_weights_save_share(w, w->layout, many, UINT64_MAX, &together, &err),
        XRAY_OK);
    assert_int_equal(
        xm_weights_save_share(w, w->layout, many, 20000, &together, &err),
        XRAY_OK);
    expect_same_file(one, many, "model.safetensors.index.json");
    xm_st *st = NULL;
    assert_int_equal(xm_st_open(many, &err, &st), XRAY_OK);
    assert_int_equal(xm_st_count(st), layout->param_count);
    xm_st_close(st);
    for (unsigned i = 1; i < 100; i++) {
        char name[64];
        unsigned of = 1;
        for (; of < 100; of++) {
            (void)snprintf(name, sizeof(name), "model-%05u-of-%05u.safetensors",
                           i, of);
            (void)snprintf(path, sizeof(path), "%s/%s", one, name);
            if (xr_path_exists(path))
                break;
        }
        if (of == 100) {
            assert_true(i > 3);
            break;
        }
        expect_same_file(one, many, name);
    }
    (void)snprintf(path, sizeof(path), "%s/model.safetensors", many);
    assert_false(xr_path_exists(path));
    /* Back to a single file. */
    assert_int_equal(
        xm_weights_save_share(w, w->layout, many, UINT64_MAX, &together, &err),
        XRAY_OK);
    (void)snprintf(path, sizeof(path), "%s/model.safetensors.index.json", many);
    assert_false(xr_path_exists(path));
    rig_rmdir(one);
    rig_rmdir(many);
    xm_weights_destroy(w);
    xm_layout_destroy(layout);
    rig_device_close(&device);
}

/* Weights in host memory are imported from one instance and exported to
 * another. */
static void offloaded_values(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .seed = 3 };
    rig_spec mapped = { .seed = 4, .offload_param = 1, .offload_optimizer = 1 };
    rig a, b;
    rig c;
    assert_int_equal(rig_open(&device, &spec, &a), XRAY_OK);
    assert_int_equal(rig_open(&device, &mapped, &b), XRAY_OK);
    spec.seed = 5;
    assert_int_equal(rig_open(&device, &spec, &c), XRAY_OK);
    train_step(&a, 1);
    train_step(&b, 2);
    assert_true(
        rig_weights_differ(a.ops->weights(a.self), b.ops->weights(b.self)));
    assert_int_equal(rig_debug(&b)->import(b.self, a.ops->weights(a.self)),
                     XRAY_OK);
    assert_int_equal(rig_debug(&c)->import(c.self, b.ops->weights(b.self)),
                     XRAY_OK);
    assert_int_equal(weights_version(&b), 1);
    rig_same_weights(&a, &b);
    rig_same_weights(&a, &c);
    /* Weights that were gathered before must not be used any more. */
    rows batch;
    float logp[2][ROWS_TOKENS_MAX];
    rows_draw(&batch, 5, 20, 37, 9);
    for (int i = 0; i < 2; i++) {
        const rig *r = i ? &b : &a;
        xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                             .logp = logp[i] };
        assert_int_equal(
            forward_one(r->ops, r->self, &batch.batch, XRAY_OUTPUT_LOGP, &out),
            XRAY_OK);
    }
    assert_memory_equal(logp[0], logp[1], batch.batch.tokens * sizeof(float));
    const xray_weights *w = b.ops->weights(b.self);
    assert_null(w->tensors[0].weight);
    assert_int_equal(w->lease(w->owner), XRAY_OK);
    assert_int_equal(rig_debug(&b)->import(b.self, a.ops->weights(a.self)),
                     XRAY_E_STATE);
    w->release(w->owner);
    rig_close(&a);
    rig_close(&b);
    rig_close(&c);
    rig_device_close(&device);
}

/* The state on a device whose memory can only be copied. */
static void copied_state(void **state)
{
    (void)state;
    char dir[256];
    xr_err err = { "" };
    xm_config config;
    xm_layout *layout = NULL;
    xm_adamw *a = NULL;
    xm_adamw *b = NULL;
    xm_optim *optim = NULL;
    const xm_adamw_options options = { .beta1 = 0.9,
                                       .beta2 = 0.999,
                                       .eps = 1e-8 };
    rig_device device = plain_device_open();
    assert_int_equal(xm_config_parse(rig_tiny, "test", &err, &config), XRAY_OK);
    assert_int_equal(xm_layout_create(&config, 0, &err, &layout), XRAY_OK);
    assert_int_equal(xm_adamw_create(layout, device.ops, device.self, &options,
                                     "a", &err, &a),
                     XRAY_OK);
    assert_int_equal(xm_adamw_create(layout, device.ops, device.self, &options,
                                     "b", &err, &b),
                     XRAY_OK);
    const xm_param *p = &layout->params[layout->param_count / 2];
    float value[2] = { 1.5f, -2.25f };
    float back[2] = { 0, 0 };
    device.ops->copy(NULL, NULL, a->m[p->bucket] + p->offset, &value[0], 4,
                     XRAY_COPY_TO_DEVICE);
    device.ops->copy(NULL, NULL, a->v[p->bucket] + p->offset + p->count - 1,
                     &value[1], 4, XRAY_COPY_TO_DEVICE);
    xm_adamw_set_steps(a, 12);
    assert_int_equal(xm_optim_save(a, rig_mkdir(dir, sizeof(dir)), 15, &err),
                     XRAY_OK);
    assert_int_equal(xm_optim_open(layout, dir, &err, &optim), XRAY_OK);
    assert_int_equal(xm_optim_version(optim), 15);
    assert_int_equal(xm_optim_restore(optim, b, &err), XRAY_OK);
    device.ops->copy(NULL, NULL, &back[0], b->m[p->bucket] + p->offset, 4,
                     XRAY_COPY_TO_HOST);
    device.ops->copy(NULL, NULL, &back[1],
                     b->v[p->bucket] + p->offset + p->count - 1, 4,
                     XRAY_COPY_TO_HOST);
    assert_memory_equal(back, value, sizeof(value));
    assert_int_equal(b->steps, 12);
    assert_true(a->power2 == b->power2);
    xm_optim_close(optim);
    xm_adamw_destroy(a);
    xm_adamw_destroy(b);
    xm_layout_destroy(layout);
    rig_rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resume_gives_the_same_bits),
        cmocka_unit_test(load_clears_gradients),
        cmocka_unit_test(frozen_blocks_have_no_moments),
        cmocka_unit_test(imported_weights_train_alike),
        cmocka_unit_test(damaged_optimizer),
        cmocka_unit_test(damaged_metadata),
        cmocka_unit_test(damaged_weights),
        cmocka_unit_test(checkpoint_of_another_model_is_refused),
        cmocka_unit_test(optimizer_of_a_larger_model),
        cmocka_unit_test(missing_folder_is_refused),
        cmocka_unit_test(shards_together),
        cmocka_unit_test(offloaded_values),
        cmocka_unit_test(copied_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
