/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that the shares of a model's weights hold, together, each element
 * once, whether they are loaded or imported, in memory that the host accesses
 * or not, and that an import which is refused changes no share.
 */
#include "model/hf/safetensors.h"
#include "model/nn/weights.h"
#include "tests/nn/fixture.h"
#include "tests/scratch.h"

enum { RANKS = 3 };

static const xray_device_ops *cpu_ops; /* those of device-cpu */
static int host_memory;                /* what the device says of its memory */
static int32_t copies_left; /* copies until one is refused; below 0: none is */

static xray_status tell_memory(void *self, xray_device_info *info)
{
    xray_status status = cpu_ops->info(self, info);
    info->host_memory = host_memory != 0;
    return status;
}

static xray_status try_copy(void *self, xray_stream *stream, void *to,
                            const void *from, uint64_t bytes, uint32_t kind)
{
    if (copies_left >= 0 && copies_left-- == 0)
        return XRAY_E_DEVICE;
    return cpu_ops->copy(self, stream, to, from, bytes, kind);
}

static void make_model(fixture *f, uint64_t seed)
{
    static xray_device_ops made;
    fixture_device device = fixture_open(1, "auto");
    fixture_kind kind = fixture_kinds[0];
    kind.config.tied = 0; /* lm_head spans the ranks as well */
    /* The embedding's share needs both halves of the staging buffer. */
    kind.config.vocab = 13 * (1u << 20) / kind.config.hidden / 2;
    cpu_ops = device.ops;
    made = *cpu_ops;
    made.info = tell_memory;
    made.copy = try_copy;
    device.ops = &made;
    host_memory = 1;
    copies_left = -1;
    fixture_make_on(f, &kind, seed, device);
}

typedef struct share {
    xm_layout *layout;
    float **memory; /* [bucket_count] */
    xm_weights *weights;
} share;

static void make_share(share *s, const fixture *f, uint32_t rank)
{
    xr_err err = { "" };
    fixture_ok(xm_layout_create(&f->config, 0, &err, &s->layout), &err);
    s->layout->ranks = RANKS;
    s->layout->rank = rank;
    s->memory = calloc(s->layout->bucket_count, sizeof *s->memory);
    assert_non_null(s->memory);
    for (uint32_t b = 0; b < s->layout->bucket_count; b++)
        s->memory[b] = fixture_alloc(
            &f->device, xm_bucket_share(s->layout, b).count * sizeof(float));
    fixture_ok(xm_weights_create_share(s->layout, f->device.ops, f->device.self,
                                       s->memory, &err, &s->weights),
               &err);
}

static void drop_share(share *s, const fixture *f)
{
    xm_weights_destroy_share(s->weights);
    for (uint32_t b = 0; b < s->layout->bucket_count; b++)
        fixture_free(&f->device, s->memory[b]);
    free(s->memory);
    xm_layout_destroy(s->layout);
}

/* Expects the elements of each parameter that the share says it has, and the
 * boxes that it publishes of them; adds their number to `found`, and expects
 * them to follow those before. */
static void check_share(const share *s, const fixture *f, uint64_t *found)
{
    const xray_weights *table = &s->weights->table;
    uint32_t box = 0;
    for (uint32_t i = 0; i < s->layout->param_count; i++) {
        const xm_held *mine = &s->weights->held[i];
        const xray_tensor *all = &f->weights->tensors[i];
        const float *at = mine->data;
        uint64_t left = mine->count;
        uint32_t boxes = 0;
        for (; box < table->tensor_count &&
               strcmp(table->tensors[box].name, all->name) == 0;
             box++, boxes++) {
            const xray_tensor *t = &table->tensors[box];
            uint64_t cols = t->dims == 2 ? t->shape[1] : 1;
            assert_true(xray_box_is_packed(t));
            if (!xray_box_count(t))
                continue;
            assert_ptr_equal(t->data, at);
            assert_int_equal(t->lo[0] * cols + t->lo[1],
                             mine->first + mine->count - left);
            at += xray_box_count(t);
            left -= xray_box_count(t);
        }
        assert_true(left == 0 && boxes > 0 && boxes <= XM_SHARE_BOXES);
        if (!mine->count)
            continue;
        assert_int_equal(mine->first, found[i]);
        found[i] += mine->count;
        assert_true(found[i] <= xray_box_count(all));
        assert_memory_equal(mine->data, (const float *)all->data + mine->first,
                            mine->count * sizeof(float));
    }
    assert_int_equal(box, table->tensor_count);
}

typedef xray_status (*filling)(const share *s, const fixture *f, xr_err *err);

static xray_status load_share(const share *s, const fixture *f, xr_err *err)
{
    (void)f;
    return xm_weights_load(s->weights, scratch_dir(), err);
}

/* Imports a table of a later version, whose entries are longer. */
static xray_status import_share(const share *s, const fixture *f, xr_err *err)
{
    typedef struct later_tensor {
        xray_tensor tensor;
        char more[24];
    } later_tensor;
    xray_weights table = f->weights->table;
    later_tensor *tensors = calloc(table.tensor_count, sizeof *tensors);
    assert_non_null(tensors);
    for (uint32_t i = 0; i < table.tensor_count; i++) {
        memset(&tensors[i], 0x5A, sizeof *tensors);
        tensors[i].tensor = table.tensors[i];
    }
    table.tensors = &tensors->tensor;
    table.tensor_stride = sizeof *tensors;
    xray_status status = xm_weights_import_share(s->weights, &table, err);
    free(tensors);
    return status;
}

static void fill_all_shares(const fixture *f, filling fill)
{
    xr_err err = { "" };
    uint64_t *found = calloc(f->layout->param_count, sizeof *found);
    assert_non_null(found);
    for (uint32_t rank = 0; rank < RANKS; rank++) {
        share s;
        make_share(&s, f, rank);
        fixture_ok(fill(&s, f, &err), &err);
        check_share(&s, f, found);
        drop_share(&s, f);
    }
    for (uint32_t i = 0; i < f->layout->param_count; i++)
        assert_int_equal(found[i], xray_box_count(&f->weights->tensors[i]));
    free(found);
}

static void shares_hold_each_element_once(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    make_model(&f, 5);
    fixture_ok(
        xm_weights_save(f.weights, scratch_dir(), XM_ST_SHARD_BYTES, &err),
        &err);
    fill_all_shares(&f, import_share);
    fill_all_shares(&f, load_share);
    host_memory = 0;
    fill_all_shares(&f, load_share);
    fixture_end(&f);
}

static void an_imported_share_takes_the_version(void **state)
{
    (void)state;
    xr_err err = { "" };
    fixture f;
    share s;
    make_model(&f, 5);
    make_share(&s, &f, 1);
    const xray_weights *table = &s.weights->table;
    fixture_ok(xm_weights_changed(f.weights, 42, &err), &err);
    fixture_ok(import_share(&s, &f, &err), &err);
    assert_int_equal(table->version(table->owner), 42);
    /* Readers hold it; a release too many does no harm. */
    fixture_ok(table->lease(table->owner), NULL);
    assert_int_equal(import_share(&s, &f, &err), XRAY_E_STATE);
    table->release(table->owner);
    table->release(table->owner);
    fixture_ok(import_share(&s, &f, &err), &err);
    drop_share(&s, &f);
    fixture_end(&f);
}

/* Imports a table of which tensor `at` was edited. */
static void expect_import_refused(const share *s, const fixture *f, uint32_t at,
                                  const xray_tensor *edited, xray_status want,
                                  const char *says)
{
    xr_err err = { "" };
    uint32_t count = f->layout->param_count;
    xray_tensor *tensors = calloc(count, sizeof *tensors);
    assert_non_null(tensors);
    memcpy(tensors, f->weights->tensors, count * sizeof *tensors);
    tensors[at] = *edited;
    xray_weights table = f->weights->table;
    table.tensors = tensors;
    assert_int_equal(xm_weights_import_share(s->weights, &table, &err), want);
    if (!strstr(err.text, says))
        fail_msg("%s", err.text);
    free(tensors);
    /* The shares are still 0. */
    assert_int_equal(s->weights->version, 0);
    for (uint32_t b = 0; b < s->layout->bucket_count; b++)
        assert_true(s->memory[b][0] == 0);
}

/* The last matrix of which the rank has elements, but neither the first nor the
 * last ones; further ones come before it. */
static uint32_t find_inner_tensor(const share *s, const fixture *f)
{
    for (uint32_t i = f->layout->param_count - 1; i > 0; i--) {
        const xm_held *mine = &s->weights->held[i];
        if (mine->count && mine->first && f->weights->tensors[i].dims == 2 &&
            mine->first + mine->count < f->layout->params[i].count)
            return i;
    }
    fail_msg("no tensor spans the ranks");
    return 0;
}

static void tables_without_the_share_are_refused(void **state)
{
    (void)state;
    fixture f;
    fixture other;
    share s;
    xr_err err = { "" };
    make_model(&f, 5);
    make_model(&other, 6);
    make_share(&s, &f, 1);
    uint32_t last = find_inner_tensor(&s, &f);
    const xm_held *mine = &s.weights->held[last];
    const xray_tensor *all = &f.weights->tensors[last];
    uint64_t cols = all->shape[1];
    xray_tensor edited = *all;
    edited.lo[0] = mine->first / cols + 1; /* lacks the first elements */
    edited.extent[0] -= edited.lo[0];
    expect_import_refused(&s, &f, last, &edited, XRAY_E_UNSUPPORTED,
                          "are needed");
    edited.lo[0] = 0; /* the last ones */
    edited.extent[0] = (mine->first + mine->count - 1) / cols;
    expect_import_refused(&s, &f, last, &edited, XRAY_E_UNSUPPORTED,
                          "are needed");
    edited = *all;
    edited.dtype = XRAY_BF16;
    expect_import_refused(&s, &f, last, &edited, XRAY_E_UNSUPPORTED,
                          "expected fp32");
    edited = *all;
    edited.shape[0]++;
    expect_import_refused(&s, &f, last, &edited, XRAY_E_CONFIG, "has shape");
    assert_int_equal(
        xm_weights_import_share(s.weights, &other.weights->table, &err),
        XRAY_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "same device only"));
    /* A table of exactly these elements is enough. */
    uint32_t count = f.layout->param_count;
    xray_tensor *tensors = calloc(count + XM_SHARE_BOXES, sizeof *tensors);
    assert_non_null(tensors);
    memcpy(tensors, f.weights->tensors, last * sizeof *tensors);
    uint32_t boxes = xm_range_boxes(
        &f.layout->params[last], (xm_range){ mine->first, mine->count },
        (float *)all->data + mine->first, tensors + last);
    memcpy(tensors + last + boxes, f.weights->tensors + last + 1,
           (count - last - 1) * sizeof *tensors);
    xray_weights table = f.weights->table;
    table.tensors = tensors;
    table.tensor_count = count - 1 + boxes;
    fixture_ok(xm_weights_import_share(s.weights, &table, &err), &err);
    assert_memory_equal(mine->data, (const float *)all->data + mine->first,
                        mine->count * sizeof(float));
    free(tensors);
    drop_share(&s, &f);
    fixture_end(&other);
    fixture_end(&f);
}

static void a_refused_copy_ends_the_import(void **state)
{
    (void)state;
    fixture f;
    share s;
    make_model(&f, 5);
    make_share(&s, &f, 1);
    fixture_ok(xm_weights_changed(f.weights, 42, NULL), NULL);
    int32_t copies = 0;
    for (;; copies++) {
        xr_err err = { "" };
        copies_left = copies;
        xray_status status = import_share(&s, &f, &err);
        if (copies_left >= 0) {
            fixture_ok(status, &err);
            break;
        }
        assert_int_equal(status, XRAY_E_DEVICE);
        assert_non_null(strstr(err.text, "copy failed"));
        assert_int_equal(s.weights->version, 0);
    }
    copies_left = -1;
    assert_true(copies > 4);
    drop_share(&s, &f);
    fixture_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares_hold_each_element_once),
        cmocka_unit_test(an_imported_share_takes_the_version),
        cmocka_unit_test(tables_without_the_share_are_refused),
        cmocka_unit_test(a_refused_copy_ends_the_import),
    };
    return cmocka_run_group_tests_name("nn.share", tests, scratch_make,
                                       scratch_drop);
}
