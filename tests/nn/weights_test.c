/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how weights are laid out, loaded, saved, shared and leased, and what
 * is refused.
 */
#include <math.h>

#include "core/base/file.h"
#include "model/hf/param_slots.h"
#include "model/hf/safetensors.h"
#include "tests/nn/fixture.h"
#include "tests/testing.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/xray-nn-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    (void)state;
    xr_err err = { "" };
    return xr_dir_remove(folder, &err) == XRAY_OK ? 0 : -1;
}

static void assert_says(const xr_err *err, const char *part)
{
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

/* Fused parameters are adjacent, every matrix starts at a multiple of 64 bytes,
 * and no parameter overlaps another or leaves its bucket. */
static void layout_keeps_fused_matrices_together(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        xr_err err = { "" };
        xm_layout *layout = NULL;
        fixture_ok(xm_layout_create(&fixture_kinds[k].config,
                                    fixture_kinds[k].value_head, &err, &layout),
                   &err);
        uint64_t used = 0;
        for (uint32_t i = 0; i < layout->param_count; i++) {
            const xm_param *p = &layout->params[i];
            used = i && p[-1].bucket == p->bucket ? used : 0;
            assert_true(p->offset >= used);
            used = p->offset + p->count;
            assert_true(used <= layout->bucket_sizes[p->bucket]);
            if (p->matrix < 0)
                continue;
            const xm_matrix *m = &layout->matrices[p->matrix];
            assert_int_equal(m->offset % 16, 0);
            assert_int_equal(m->cols, p->cols);
            assert_int_equal(m->offset + p->matrix_row * p->cols, p->offset);
            assert_true(p->matrix_row + p->rows <= m->rows);
        }
        const xm_config *config = &fixture_kinds[k].config;
        const xm_param *q = xm_layout_at(layout, 2, XM_Q);
        const xm_param *v =
            xm_layout_at(layout, 2, config->fused ? XM_Q : XM_V);
        const xm_param *up = xm_layout_at(layout, 2, XM_UP);
        assert_int_equal(q->matrix, v->matrix);
        assert_int_equal(v->matrix_row + v->rows,
                         layout->matrices[v->matrix].rows);
        if (config->gated && !config->fused)
            assert_int_equal(up->matrix_row, config->ffn);
        xm_layout_destroy(layout);
    }
}

static void saved_weights_load_again(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        const fixture_kind *kind = &fixture_kinds[k];
        xr_err err = { "" };
        fixture f;
        fixture_make(&f, kind, 5);
        fixture_ok(xm_weights_save(f.weights, folder, XM_ST_SHARD_BYTES, &err),
                   &err);
        xm_weights *again = NULL;
        fixture_ok(xm_weights_create(f.layout, f.device.ops, f.device.self,
                                     "test", 0, &err, &again),
                   &err);
        fixture_ok(xm_weights_load(again, folder, &err), &err);
        for (uint32_t b = 0; b < f.layout->bucket_count; b++)
            assert_memory_equal(f.weights->buckets[b], again->buckets[b],
                                f.layout->bucket_sizes[b] * sizeof(float));
        xm_weights_destroy(again);
        fixture_end(&f);
    }
}

/* Saves a model of one kind and tries to load it as another; a refusal must
 * leave the weights as they were. */
static void check_load_as(const fixture_kind *kind, const fixture_kind *other,
                          xray_status want, const char *says)
{
    xr_err err = { "" };
    fixture f;
    fixture g;
    fixture_make(&f, kind, 5);
    fixture_ok(xm_weights_save(f.weights, folder, XM_ST_SHARD_BYTES, &err),
               &err);
    fixture h;
    fixture_make(&g, other, 6);
    fixture_make(&h, other, 6);
    assert_int_equal(xm_weights_load(g.weights, folder, &err), want);
    if (says)
        assert_says(&err, says);
    for (uint32_t b = 0; want != XRAY_OK && b < g.layout->bucket_count; b++)
        assert_memory_equal(g.weights->buckets[b], h.weights->buckets[b],
                            g.layout->bucket_sizes[b] * sizeof(float));
    fixture_end(&h);
    fixture_end(&g);
    fixture_end(&f);
}

static void wrong_checkpoints_are_refused(void **state)
{
    (void)state;
    const fixture_kind *tied = &fixture_kinds[0];
    const fixture_kind *untied = &fixture_kinds[1];
    const fixture_kind *biased = &fixture_kinds[3];
    check_load_as(tied, untied, XRAY_E_CONFIG, "lm_head.weight");
    check_load_as(tied, biased, XRAY_E_CONFIG, "q_proj.bias");
    check_load_as(biased, tied, XRAY_E_CONFIG, "q_proj.bias");
    fixture_kind wider = *tied;
    wider.config.ffn += 4;
    check_load_as(tied, &wider, XRAY_E_CONFIG, "mlp.gate_proj.weight");
    check_load_as(tied, &wider, XRAY_E_CONFIG, "[20, 24]");
    /* An lm_head that a tied model does not read is no error. */
    check_load_as(untied, tied, XRAY_OK, NULL);
}

static void a_missing_value_head_starts_at_zero(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture g;
    fixture_make(&f, &fixture_kinds[0], 5);
    fixture_make(&g, &fixture_kinds[2], 6);
    fixture_ok(xm_weights_save(f.weights, folder, XM_ST_SHARD_BYTES, &err),
               &err);
    fixture_ok(xm_weights_load(g.weights, folder, &err), &err);
    const xm_param *value_head = xm_layout_find(g.layout, XM_VALUE_HEAD);
    for (uint64_t i = 0; i < value_head->count; i++)
        assert_true(
            g.weights->buckets[value_head->bucket][value_head->offset + i] ==
            0);
    fixture_end(&g);
    fixture_end(&f);
}

/* A policy can be loaded from a folder with a value head, and a value head
 * under its name in transformers. */
static void value_heads_load_under_both_names(void **state)
{
    static const char ours[] = "\"value_head.weight\"";
    static const char theirs[] = "\"score.weight\"     ";
    (void)state;
    xr_err err = { "" };
    char path[128];
    char *text = NULL;
    size_t size = 0;
    fixture f;
    fixture g;
    fixture_make(&f, &fixture_kinds[0], 5);
    fixture_make(&g, &fixture_kinds[2], 6);
    const xm_param *value_head = xm_layout_find(g.layout, XM_VALUE_HEAD);
    float *values = g.weights->buckets[value_head->bucket] + value_head->offset;
    for (uint64_t i = 0; i < value_head->count; i++)
        values[i] = (float)(i + 1);
    fixture_ok(xm_weights_save(g.weights, folder, XM_ST_SHARD_BYTES, &err),
               &err);
    fixture_ok(xm_weights_load(f.weights, folder, &err), &err);
    (void)snprintf(path, sizeof path, "%s/model.safetensors", folder);
    fixture_ok(xr_file_read(path, 1u << 26, &err, &text, &size), &err);
    size_t at = 0;
    while (at + sizeof ours < size &&
           memcmp(text + at, ours, sizeof ours - 1) != 0)
        at++;
    assert_true(at + sizeof ours < size);
    memcpy(text + at, theirs, sizeof ours - 1);
    fixture_ok(xr_file_write(path, text, size, &err), &err);
    free(text);
    for (uint64_t i = 0; i < value_head->count; i++)
        values[i] = 0;
    fixture_ok(xm_weights_load(g.weights, folder, &err), &err);
    for (uint64_t i = 0; i < value_head->count; i++)
        assert_true(values[i] == (float)(i + 1));
    fixture_ok(xm_weights_load(f.weights, folder, &err), &err);
    fixture_end(&g);
    fixture_end(&f);
}

static double root_mean_square(const fixture *f, const char *name)
{
    const xm_param *p = xm_layout_find(f->layout, name);
    const float *x = f->weights->buckets[p->bucket] + p->offset;
    double sum = 0;
    for (uint64_t i = 0; i < p->count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)p->count);
}

static void random_weights_follow_the_seed(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture_kind kind = fixture_kinds[2];
    kind.config.hidden = 120;
    kind.config.ffn = 240;
    kind.config.vocab = 300;
    fixture f[3];
    static const uint64_t seeds[] = { 1, 1, 2 };
    for (int i = 0; i < 3; i++) {
        fixture_make(&f[i], &kind, 5 + (uint64_t)i);
        fixture_ok(
            xm_weights_random(f[i].weights, &kind.config, seeds[i], &err),
            &err);
    }
    for (uint32_t b = 0; b < f[0].layout->bucket_count; b++) {
        size_t size = f[0].layout->bucket_sizes[b] * sizeof(float);
        assert_memory_equal(f[0].weights->buckets[b], f[1].weights->buckets[b],
                            size);
        /* The last bucket holds only a norm and the value head. */
        if (b + 1 < f[0].layout->bucket_count)
            assert_memory_not_equal(f[0].weights->buckets[b],
                                    f[2].weights->buckets[b], size);
    }
    double sigma = kind.config.init_range;
    double down =
        root_mean_square(&f[0], "model.layers.1.mlp.down_proj.weight");
    double gate =
        root_mean_square(&f[0], "model.layers.1.mlp.gate_proj.weight");
    assert_true(fabs(gate / sigma - 1) < 0.03);
    assert_true(fabs(down / sigma * sqrt(2.0 * kind.config.layers) - 1) < 0.03);
    assert_true(root_mean_square(&f[0], XM_VALUE_HEAD) == 0);
    assert_true(root_mean_square(&f[0], "model.norm.weight") == 1);
    for (int i = 0; i < 3; i++)
        fixture_end(&f[i]);
}

/* The operators of a CPU device that claims the host cannot access its memory.
 */
static const xray_device_ops *host_ops;

static xray_status device_memory_info(void *self, xray_device_info *info)
{
    xray_status status = host_ops->info(self, info);
    info->host_memory = 0;
    return status;
}

static void weights_reach_device_memory_by_copies(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, &fixture_kinds[2], 5);
    host_ops = f.device.ops;
    xray_device_ops ops = *host_ops;
    ops.info = device_memory_info;
    xm_weights *far[2];
    for (int i = 0; i < 2; i++)
        fixture_ok(xm_weights_create(f.layout, &ops, f.device.self, "test", 0,
                                     &err, &far[i]),
                   &err);
    fixture_ok(xm_weights_random(f.weights, &f.config, 8, &err), &err);
    fixture_ok(xm_weights_random(far[0], &f.config, 8, &err), &err);
    fixture_ok(xm_weights_save(far[0], folder, XM_ST_SHARD_BYTES, &err), &err);
    fixture_ok(xm_weights_load(far[1], folder, &err), &err);
    for (uint32_t b = 0; b < f.layout->bucket_count; b++) {
        size_t size = f.layout->bucket_sizes[b] * sizeof(float);
        assert_memory_equal(f.weights->buckets[b], far[0]->buckets[b], size);
        assert_memory_equal(f.weights->buckets[b], far[1]->buckets[b], size);
    }
    xm_weights_destroy(far[0]);
    xm_weights_destroy(far[1]);
    fixture_end(&f);
}

static void imported_weights_are_equal(void **state)
{
    (void)state;
    xr_err err = { "" };
    const fixture_kind *kind = &fixture_kinds[3];
    fixture f;
    fixture g;
    fixture_make(&f, kind, 5);
    fixture_make(&g, kind, 6);
    fixture_ok(xm_weights_changed(f.weights, 42, &err), &err);
    fixture_ok(xm_weights_import(g.weights, &f.weights->table, &err), &err);
    for (uint32_t b = 0; b < f.layout->bucket_count; b++)
        assert_memory_equal(f.weights->buckets[b], g.weights->buckets[b],
                            f.layout->bucket_sizes[b] * sizeof(float));
    assert_int_equal(g.weights->table.version(g.weights->table.owner), 42);
    fixture_end(&g);
    fixture_end(&f);
}

/* The part of every matrix from column `from` on, or before it, and of every
 * vector the same rows; without elements the box is still listed. */
static void cut_columns(const fixture *f, uint64_t from, int before,
                        xray_tensor *out)
{
    for (uint32_t i = 0; i < f->layout->param_count; i++) {
        const xray_tensor *t = &f->weights->tensors[i];
        xray_tensor by = *t;
        uint32_t axis = t->dims - 1;
        uint64_t at = from < t->shape[axis] ? from : t->shape[axis];
        by.lo[axis] = before ? 0 : at;
        by.extent[axis] = before ? at : t->shape[axis] - at;
        (void)xray_box_cut(t, &by, &out[i]);
    }
}

/* Column cuts in memory of the complete matrix, imported one after the other,
 * as fp32 and rounded to bf16. */
static void boxes_are_imported(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, &fixture_kinds[3], 5);
    uint32_t count = f.layout->param_count;
    xray_tensor *boxes = calloc(count, sizeof *boxes);
    uint64_t *came = calloc(count, sizeof *came);
    assert_true(boxes && came);
    for (int narrow = 0; narrow < 2; narrow++) {
        xm_weights *want = NULL;
        xm_weights *got = NULL;
        int flags = narrow ? XM_WEIGHTS_BF16 : 0;
        fixture_ok(xm_weights_create(f.layout, f.device.ops, f.device.self,
                                     "want", flags, &err, &want),
                   &err);
        fixture_ok(xm_weights_create(f.layout, f.device.ops, f.device.self,
                                     "got", flags, &err, &got),
                   &err);
        fixture_ok(xm_weights_import(want, &f.weights->table, &err), &err);
        xray_weights table = f.weights->table;
        table.tensors = boxes;
        memset(came, 0, count * sizeof *came);
        for (int before = 0; before < 2; before++) {
            cut_columns(&f, 5, before, boxes);
            fixture_ok(xm_weights_import_part(got, &table, came, &err), &err);
        }
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(came[i], f.layout->params[i].count);
        for (uint32_t i = 0; i < count; i++)
            assert_memory_equal(want->tensors[i].data, got->tensors[i].data,
                                f.layout->params[i].count *
                                    xray_dtype_bytes(want->tensors[i].dtype));
        /* Half of it is not enough where all are needed. */
        assert_int_equal(xm_weights_import(got, &table, &err),
                         XRAY_E_UNSUPPORTED);
        assert_says(&err, "are published, but all are needed");
        xm_weights_destroy(want);
        xm_weights_destroy(got);
    }
    free(came);
    free(boxes);
    fixture_end(&f);
}

static void leased_weights_do_not_change(void **state)
{
    (void)state;
    xr_err err = { "" };
    const fixture_kind *kind = &fixture_kinds[0];
    fixture f;
    fixture_make(&f, kind, 5);
    const xray_weights *table = &f.weights->table;
    fixture_ok(table->lease(table->owner), NULL);
    assert_int_equal(xm_weights_random(f.weights, &f.config, 1, &err),
                     XRAY_E_STATE);
    assert_int_equal(xm_weights_changed(f.weights, 1, &err), XRAY_E_STATE);
    table->release(table->owner);
    fixture_ok(xm_weights_changed(f.weights, 1, &err), &err);
    fixture_end(&f);
}

/* Expects a decoder to refuse a table in which one tensor was edited. */
static void assert_binding_refused(const fixture *f, const char *name,
                                   void (*edit)(xray_tensor *),
                                   const char *says)
{
    xr_err err = { "" };
    xm_decoder *decoder = NULL;
    uint32_t count = f->layout->param_count;
    xray_tensor *tensors = calloc(count, sizeof *tensors);
    assert_non_null(tensors);
    memcpy(tensors, f->weights->tensors, count * sizeof *tensors);
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(tensors[i].name, name) == 0)
            edit(&tensors[i]);
    }
    xray_weights table = f->weights->table;
    table.tensors = tensors;
    assert_int_not_equal(
        xm_decoder_create(&f->config, &table, 16, "test", &err, &decoder),
        XRAY_OK);
    assert_null(decoder);
    assert_says(&err, name);
    assert_says(&err, says);
    free(tensors);
}

static void shift_row(xray_tensor *tensor)
{
    tensor->weight_row++;
}

static void forget_handle(xray_tensor *tensor)
{
    tensor->weight = NULL;
}

static void move_data(xray_tensor *tensor)
{
    tensor->data = (float *)tensor->data + 1;
}

static void cut_shard(xray_tensor *tensor)
{
    tensor->extent[0] /= 2;
}

static void change_shape(xray_tensor *tensor)
{
    tensor->shape[0]++;
}

static void tables_that_cannot_be_shared_are_refused(void **state)
{
    (void)state;
    fixture f;
    fixture_make(&f, &fixture_kinds[3], 5);
    static const char k[] = "model.layers.1.self_attn.k_proj.weight";
    static const char bias[] = "model.layers.0.self_attn.v_proj.bias";
    static const char up[] = "model.layers.0.mlp.up_proj.weight";
    static const char down[] = "model.layers.0.mlp.down_proj.weight";
    assert_binding_refused(&f, k, shift_row, "does not follow");
    assert_binding_refused(&f, up, shift_row, "does not follow");
    assert_binding_refused(&f, down, shift_row, "expected row 0");
    assert_binding_refused(&f, bias, move_data, "does not follow");
    assert_binding_refused(&f, down, forget_handle, "handle");
    assert_binding_refused(&f, down, cut_shard, "in one piece is needed");
    assert_binding_refused(&f, down, change_shape, "shape");
    assert_binding_refused(&f, "model.norm.weight", cut_shard,
                           "in one piece is needed");
    fixture_end(&f);
}

static void passes_out_of_order_are_refused(void **state)
{
    (void)state;
    xr_err err = { "" };
    static const uint32_t lengths[] = { 6, 7 };
    const fixture_kind *kind = &fixture_kinds[0];
    fixture f;
    fixture_make(&f, kind, 5);
    fixture_rows rows = fixture_rows_make(lengths, 2, 30, 1);
    fixture_items items = fixture_items_make(&rows, 0, 1);
    xm_space *small = NULL;
    xm_space *space = NULL;
    fixture_ok(xm_space_create(f.decoder, 8, 4, 8, 0, "test", &err, &small),
               &err);
    fixture_ok(xm_space_create(f.decoder, 16, 4, 8, XM_SPACE_TRAIN, "test",
                               &err, &space),
               &err);
    xm_token_outputs out;
    assert_int_equal(xm_forward(f.decoder, small, &rows.pack, &err),
                     XRAY_E_RANGE);
    assert_int_equal(xm_outputs(f.decoder, space, &items.items, &out, &err),
                     XRAY_E_STATE);
    /* Each forward pass allows one backward pass. */
    xm_grads *grads = fixture_grads(&f);
    fixture_pass(&f, space, &rows, &items, grads, NULL);
    assert_int_equal(xm_backward(f.decoder, space, &rows.pack,
                                 xm_space_hidden(space), grads, &err),
                     XRAY_E_STATE);
    /* Values of a model without a value head. */
    fixture_ok(xm_forward(f.decoder, space, &rows.pack, &err), &err);
    items.items.value = 1;
    assert_int_equal(xm_outputs(f.decoder, space, &items.items, &out, &err),
                     XRAY_E_ARG);
    assert_says(&err, XM_VALUE_HEAD);
    xm_grads_destroy(grads);
    xm_space_destroy(small);
    xm_space_destroy(space);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
    fixture_end(&f);
}

/* The device allocates exactly the planned bytes. */
static void spaces_occupy_the_planned_bytes(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        xr_err err = { "" };
        fixture f;
        fixture_make(&f, &fixture_kinds[k], 5);
        static const uint32_t flags[] = { 0, XM_SPACE_TRAIN,
                                          XM_SPACE_RECOMPUTE };
        for (int i = 0; i < 3; i++) {
            xray_memory_stats before = { .header =
                                             XRAY_HEADER(xray_memory_stats) };
            xray_memory_stats after = { .header =
                                            XRAY_HEADER(xray_memory_stats) };
            xm_space *space = NULL;
            f.device.ops->memory(f.device.self, &before);
            fixture_ok(xm_space_create(f.decoder, 33, 4, 16, flags[i], "test",
                                       &err, &space),
                       &err);
            f.device.ops->memory(f.device.self, &after);
            assert_int_equal(after.live[XRAY_TAG_ACTIVATIONS] -
                                 before.live[XRAY_TAG_ACTIVATIONS],
                             xm_space_bytes(&f.config, 33, 4, 16, flags[i]));
            xm_space_destroy(space);
        }
        fixture_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_keeps_fused_matrices_together),
        cmocka_unit_test_setup_teardown(saved_weights_load_again, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(wrong_checkpoints_are_refused,
                                        make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_missing_value_head_starts_at_zero,
                                        make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(value_heads_load_under_both_names,
                                        make_folder, drop_folder),
        cmocka_unit_test(random_weights_follow_the_seed),
        cmocka_unit_test_setup_teardown(weights_reach_device_memory_by_copies,
                                        make_folder, drop_folder),
        cmocka_unit_test(imported_weights_are_equal),
        cmocka_unit_test(boxes_are_imported),
        cmocka_unit_test(leased_weights_do_not_change),
        cmocka_unit_test(tables_that_cannot_be_shared_are_refused),
        cmocka_unit_test(passes_out_of_order_are_refused),
        cmocka_unit_test(spaces_occupy_the_planned_bytes),
    };
    return cmocka_run_group_tests_name("nn.weights", tests, NULL, NULL);
}
