/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that slices and stages of a model hold their part of each tensor,
 * whether it is imported, loaded from files or drawn at random, and that the
 * boxes which all slices publish make up the model.
 */
#include <xray/operators.h>

#include "model/hf/safetensors.h"
#include "tests/nn/slice_kinds.h"
#include "tests/scratch.h"
#include "tests/testing.h"

static void expect_bits(const void *got, const void *want, size_t bytes,
                        const char *kind, uint32_t ranks, const char *what)
{
    if (memcmp(got, want, bytes) != 0)
        fail_msg("%s, %u ranks: %s: other bits", kind, ranks, what);
}

/* A slice of a model, or a stage of it, on the model's device. */
typedef struct cut_weights {
    xm_config config;
    xm_layout *layout;
    xm_weights *weights;
} cut_weights;

static cut_weights cut_model(const fixture *model, uint32_t rank,
                             uint32_t ranks, uint32_t layer, uint32_t layers)
{
    cut_weights c = { 0 };
    xm_config slice;
    xr_err err = { "" };
    int value = xm_layout_find(model->layout, XM_VALUE_HEAD) != NULL;
    fixture_ok(xm_config_slice(&model->config, rank, ranks, &err, &slice),
               &err);
    fixture_ok(xm_config_stage(&slice, layer, layers, &err, &c.config), &err);
    fixture_ok(xm_layout_create(&c.config, value, &err, &c.layout), &err);
    fixture_ok(xm_weights_create(c.layout, model->device.ops,
                                 model->device.self, "test", 0, &err,
                                 &c.weights),
               &err);
    return c;
}

/* The boxes of a matrix follow one another in it. */
static void check_matrix_row(const xray_tensor *boxes, uint32_t at)
{
    const xray_tensor *box = &boxes[at];
    uint64_t row = at && box[-1].weight == box->weight
                       ? box[-1].weight_row + box[-1].extent[0]
                       : 0;
    if (box->weight)
        assert_int_equal(box->weight_row, row);
}

/* Compares a slice with the model, and clears it. */
static void check_cut(const fixture *model, const cut_weights *c,
                      const char *kind)
{
    uint64_t found = 0;
    for (uint32_t i = 0; i < c->weights->table.tensor_count; i++) {
        const xray_tensor *box = &c->weights->tensors[i];
        const xm_param *whole = xm_layout_find(model->layout, box->name);
        const float *want =
            model->weights->buckets[whole->bucket] + whole->offset;
        uint64_t cols = whole->cols ? box->extent[1] : 1;
        assert_int_equal(box->shape[0], whole->rows);
        check_matrix_row(c->weights->tensors, i);
        for (uint64_t r = 0; r < box->extent[0]; r++) {
            float *row = (float *)box->data + r * box->stride[0];
            uint64_t at = whole->cols
                              ? (box->lo[0] + r) * whole->cols + box->lo[1]
                              : box->lo[0] + r;
            expect_bits(row, want + at, cols * sizeof(float), kind,
                        c->config.slice.ranks, box->name);
            memset(row, 0, cols * sizeof(float));
        }
        found += xray_box_count(box);
    }
    assert_int_equal(
        found,
        xm_config_param_count(&c->config) +
            (xm_layout_find(c->layout, XM_VALUE_HEAD) ? c->config.hidden : 0));
}

static void slices_hold_their_part_of_each_tensor(void **state)
{
    (void)state;
    for (size_t k = 0; k < slice_kind_count; k++) {
        fixture f;
        xr_err err = { "" };
        const char *dir = scratch_path("model");
        fixture_make(&f, &slice_kinds[k], 7);
        uint32_t ranks = slice_most_ranks(&f.config);
        for (uint32_t r = 0; r < ranks; r++) {
            cut_weights c = cut_model(&f, r, ranks, r % 2, 2 - r % 2);
            fixture_ok(xm_weights_import(c.weights, &f.weights->table, &err),
                       &err);
            check_cut(&f, &c, slice_kinds[k].name);
            fixture_ok(xm_weights_save(f.weights, dir, XM_ST_SHARD_BYTES, &err),
                       &err);
            fixture_ok(xm_weights_load(c.weights, dir, &err), &err);
            check_cut(&f, &c, slice_kinds[k].name);
            fixture_ok(xm_weights_random(f.weights, &f.config, 3, &err), &err);
            fixture_ok(xm_weights_random(c.weights, &f.config, 3, &err), &err);
            check_cut(&f, &c, slice_kinds[k].name);
            xm_weights_destroy(c.weights);
            xm_layout_destroy(c.layout);
        }
        fixture_end(&f);
    }
}

/* Lists the boxes of a tensor that no slice before has; returns their number.
 * Boxes that two slices have are the same. */
static uint32_t list_boxes(const cut_weights *cuts, uint32_t ranks,
                           const char *name, xray_tensor *out)
{
    uint32_t used = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        const xray_weights *table = &cuts[r].weights->table;
        for (uint32_t i = 0; i < table->tensor_count; i++) {
            const xray_tensor *box = &table->tensors[i];
            int listed = strcmp(box->name, name) != 0;
            for (uint32_t k = 0; k < used && !listed; k++) {
                xray_tensor both;
                listed = xray_box_cut(box, &out[k], &both) != 0;
                if (listed)
                    assert_true(memcmp(box->lo, out[k].lo, sizeof box->lo) ==
                                    0 &&
                                memcmp(box->extent, out[k].extent,
                                       sizeof box->extent) == 0);
            }
            if (!listed)
                out[used++] = *box;
        }
    }
    return used;
}

/* An engine has the entire model and takes what the slices publish. */
static void import_all_slices(const fixture *model, const cut_weights *cuts,
                              uint32_t ranks)
{
    xr_err err = { "" };
    xm_weights *engine = NULL;
    uint32_t count = model->layout->param_count;
    xray_weights table = cuts[0].weights->table;
    xray_tensor *boxes =
        calloc((size_t)count * ranks * XM_PIECES, sizeof *boxes);
    assert_non_null(boxes);
    table.tensors = boxes;
    table.tensor_count = 0;
    for (uint32_t i = 0; i < count; i++)
        table.tensor_count +=
            list_boxes(cuts, ranks, model->layout->params[i].name,
                       boxes + table.tensor_count);
    fixture_ok(xm_weights_create(model->layout, model->device.ops,
                                 model->device.self, "test", 0, &err, &engine),
               &err);
    fixture_ok(xm_weights_import(engine, &table, &err), &err);
    for (uint32_t b = 0; b < model->layout->bucket_count; b++)
        assert_memory_equal(engine->buckets[b], model->weights->buckets[b],
                            model->layout->bucket_sizes[b] * sizeof(float));
    xm_weights_destroy(engine);
    free(boxes);
}

static void all_slices_publish_the_model(void **state)
{
    (void)state;
    for (size_t k = 0; k < slice_kind_count; k++) {
        fixture f;
        xr_err err = { "" };
        fixture_make(&f, &slice_kinds[k], 7);
        uint32_t most = slice_most_ranks(&f.config);
        for (uint32_t ranks = 2; ranks <= most; ranks *= 2) {
            cut_weights cuts[XRAY_SEGMENTS];
            for (uint32_t r = 0; r < ranks; r++) {
                cuts[r] = cut_model(&f, r, ranks, 0, f.config.layers);
                fixture_ok(
                    xm_weights_import(cuts[r].weights, &f.weights->table, &err),
                    &err);
            }
            import_all_slices(&f, cuts, ranks);
            for (uint32_t r = 0; r < ranks; r++) {
                xm_weights_destroy(cuts[r].weights);
                xm_layout_destroy(cuts[r].layout);
            }
        }
        fixture_end(&f);
    }
}

static void what_a_slice_cannot_do_is_refused(void **state)
{
    (void)state;
    fixture f;
    xm_decoder *decoder = NULL;
    xr_err err = { "" };
    fixture_make(&f, &slice_kinds[0], 7);
    cut_weights half = cut_model(&f, 1, 2, 0, 2);
    assert_int_equal(xm_weights_save(half.weights, scratch_path("half"),
                                     XM_ST_SHARD_BYTES, &err),
                     XRAY_E_UNSUPPORTED);
    assert_non_null(
        strstr(err.text, "half: a slice of a model cannot be saved"));
    /* The weights of one slice do not serve another, nor the model. */
    cut_weights other = cut_model(&f, 0, 2, 0, 2);
    assert_int_equal(
        xm_weights_import(other.weights, &half.weights->table, &err),
        XRAY_E_UNSUPPORTED);
    assert_int_equal(xm_decoder_create(&other.config, &half.weights->table, 8,
                                       "test", &err, &decoder),
                     XRAY_E_UNSUPPORTED);
    assert_int_equal(xm_decoder_create(&f.config, &half.weights->table, 8,
                                       "test", &err, &decoder),
                     XRAY_E_UNSUPPORTED);
    xm_weights_destroy(other.weights);
    xm_layout_destroy(other.layout);
    xm_weights_destroy(half.weights);
    xm_layout_destroy(half.layout);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_hold_their_part_of_each_tensor),
        cmocka_unit_test(all_slices_publish_the_model),
        cmocka_unit_test(what_a_slice_cannot_do_is_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
