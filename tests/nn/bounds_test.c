/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that decoders, spaces and gradients occupy exactly the bytes that were
 * planned, and that positions beyond the model's are refused.
 */
#include "tests/nn/fixture.h"
#include "tests/testing.h"

static xray_memory_stats read_memory_stats(const fixture *f)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    fixture_ok(f->device.ops->memory(f->device.self, &stats), NULL);
    return stats;
}

static const fixture_kind *find_kind(const char *name)
{
    for (size_t k = 0; k < fixture_kind_count; k++) {
        if (strcmp(fixture_kinds[k].name, name) == 0)
            return &fixture_kinds[k];
    }
    fail_msg("no kind \"%s\"", name);
    return NULL;
}

static void assert_says(const xr_err *err, const char *part)
{
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

static void check_rotary_bytes(const fixture *f, const char *name)
{
    static const uint64_t positions[] = { 1, 33, 64 };
    for (int i = 0; i < 3; i++) {
        xr_err err = { "" };
        xm_decoder *decoder = NULL;
        uint64_t before = read_memory_stats(f).live[XRAY_TAG_WORKSPACE];
        fixture_ok(xm_decoder_create(&f->config, &f->weights->table,
                                     positions[i], "test", &err, &decoder),
                   &err);
        uint64_t taken = read_memory_stats(f).live[XRAY_TAG_WORKSPACE] - before;
        if (taken != xm_decoder_bytes(&f->config, positions[i]))
            fail_msg("%s: a decoder takes %llu bytes", name,
                     (unsigned long long)taken);
        xm_decoder_destroy(decoder);
    }
}

static void rotary_tables_occupy_the_planned_bytes(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        fixture f;
        fixture_make(&f, &fixture_kinds[k], 5);
        check_rotary_bytes(&f, fixture_kinds[k].name);
        fixture_end(&f);
    }
    uint64_t pairs = 10 * 8 * sizeof(float);
    const xm_config *gemma3 = &find_kind("gemma 3")->config;
    const xm_config *gpt2 = &find_kind("gpt2, tied")->config;
    const xm_config *phi3 = &find_kind("phi3, part of a head turns")->config;
    assert_int_equal(xm_decoder_bytes(gemma3, 10), 2 * pairs);
    assert_int_equal(xm_decoder_bytes(gpt2, 10), 0);
    assert_int_equal(xm_decoder_bytes(phi3, 10), pairs / 8 * 6);
}

/* Runs a model in one kind of space and checks that its memory stays as
 * planned. */
static void check_space(const fixture_kind *kind, uint32_t flags)
{
    static const uint32_t lengths[] = { 7, 12, 1 };
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, kind, 5);
    fixture_rows rows = fixture_rows_make(lengths, 3, kind->config.vocab, 1);
    fixture_items items = fixture_items_make(&rows, kind->value_head, 1);
    xm_grads *grads = flags ? fixture_grads(&f) : NULL;
    xm_space *space = NULL;
    fixture_ok(
        xm_space_create(f.decoder, 20, 3, 12, flags, "test", &err, &space),
        &err);
    fixture_pass(&f, space, &rows, &items, grads, NULL);
    xray_memory_stats after = read_memory_stats(&f);
    assert_int_equal(after.high[XRAY_TAG_ACTIVATIONS],
                     xm_space_bytes(&f.config, 20, 3, 12, flags));
    if (grads)
        assert_int_equal(after.high[XRAY_TAG_GRADS],
                         xm_grads_bytes(&f.config, f.layout));
    xm_grads_destroy(grads);
    xm_space_destroy(space);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
    fixture_end(&f);
}

static void passes_occupy_the_planned_bytes(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        check_space(&fixture_kinds[k], 0);
        check_space(&fixture_kinds[k], XM_SPACE_TRAIN);
        check_space(&fixture_kinds[k], XM_SPACE_RECOMPUTE);
        check_space(&fixture_kinds[k], XM_SPACE_TRAIN | XM_SPACE_LOGITS);
    }
}

/* A decoder that is asked for more positions than its learned table has is
 * limited to the table. */
static void rows_longer_than_learned_positions_are_refused(void **state)
{
    (void)state;
    const fixture_kind *kind = find_kind("gpt2, tied");
    uint32_t most = kind->config.max_positions;
    xr_err err = { "" };
    fixture f;
    fixture_make(&f, kind, 5);
    xm_space *space = NULL;
    fixture_ok(xm_space_create(f.decoder, most + 1, 1, most + 1, 0, "test",
                               &err, &space),
               &err);
    for (uint32_t more = 0; more < 2; more++) {
        uint32_t length = most + more;
        int32_t seq = 0;
        fixture_rows rows =
            fixture_rows_make(&length, 1, kind->config.vocab, 1);
        xray_status want = more ? XRAY_E_RANGE : XRAY_OK;
        assert_int_equal(xm_forward(f.decoder, space, &rows.pack, &err), want);
        fixture_rows_free(&rows);
        if (!more)
            continue;
        assert_says(&err, "64 positions");
        xm_decode_batch step = { .tokens = 1,
                                 .position_bound = length,
                                 .ids = &seq,
                                 .seq = &seq,
                                 .positions = &seq };
        const void *hidden = NULL;
        assert_int_equal(xm_decode(f.decoder, space, &step, &hidden, &err),
                         XRAY_E_RANGE);
    }
    xm_space_destroy(space);
    fixture_end(&f);
}

static void invalid_rotary_dimensions_are_refused(void **state)
{
    (void)state;
    static const uint32_t wrong[] = { 0, 5, 8 };
    fixture f;
    fixture_make(&f, &fixture_kinds[0], 5);
    for (int i = 0; i < 3; i++) {
        xr_err err = { "" };
        xm_decoder *decoder = NULL;
        xm_config config = f.config;
        config.rotary = wrong[i];
        assert_int_equal(xm_decoder_create(&config, &f.weights->table, 8,
                                           "test", &err, &decoder),
                         XRAY_E_ARG);
        assert_says(&err, "rotary dimensions");
    }
    fixture_end(&f);
}

/* Frozen buckets have panels of forward products only, but for a tied
 * lm_head. */
static void check_frozen_panels(const xm_layout *layout,
                                const xray_workload *load)
{
    uint64_t bytes = xm_packed_bytes(layout, 0, load);
    for (uint32_t i = 0; i < layout->matrix_count; i++) {
        const xm_matrix *m = &layout->matrices[i];
        if (m->bucket >= layout->frozen || m->bucket == 0)
            bytes += (m->cols + 15) / 16 * 16 * m->rows * 4;
    }
    assert_int_equal(xm_packed_bytes(layout, XM_WEIGHTS_TRAINABLE, load),
                     bytes);
}

/* Packed panels have sixteen rows each, and frozen buckets have no gradients.
 */
static void gradient_and_packed_bytes_are_exact(void **state)
{
    (void)state;
    for (size_t k = 0; k < 2; k++) { /* tied, untied */
        xr_err err = { "" };
        fixture f;
        fixture_make(&f, &fixture_kinds[k], 3);
        uint64_t panels[2] = { 0, 0 };
        for (uint32_t i = 0; i < f.layout->matrix_count; i++) {
            uint64_t rows = f.layout->matrices[i].rows;
            uint64_t cols = f.layout->matrices[i].cols;
            panels[0] += (rows + 15) / 16 * 16 * cols * 4;
            panels[1] += (cols + 15) / 16 * 16 * rows * 4;
        }
        xray_workload load = { .header = XRAY_HEADER(xray_workload) };
        assert_int_equal(xm_packed_bytes(f.layout, 0, &load), 0);
        load.device = f.device.ops;
        assert_int_equal(xm_packed_bytes(f.layout, 0, &load), panels[0]);
        assert_int_equal(xm_packed_bytes(f.layout, XM_WEIGHTS_TRAINABLE, &load),
                         panels[0] + panels[1]);
        for (uint32_t i = 0; i < f.layout->param_count; i++)
            assert_int_equal(f.layout->params[i].decay,
                             f.layout->params[i].cols ? 1 : 0);
        for (uint32_t frozen = 0; frozen < 3; frozen++) {
            xm_layout part = *f.layout;
            xm_grads *grads = NULL;
            part.frozen = frozen;
            check_frozen_panels(&part, &load);
            uint64_t lookup =
                f.config.tied && !frozen ? xm_bucket_capacity(&part, 0) : 0;
            uint32_t segments = f.config.qk_norm ? xm_segments(&f.config) : 1;
            uint32_t blocks = f.config.layers - (frozen > 1 ? frozen - 1 : 0);
            uint64_t bytes = lookup * 4;
            if (segments > 1)
                bytes += 8ull * segments * f.config.head_dim * blocks;
            for (uint32_t b = frozen; b < part.bucket_count; b++)
                bytes += xm_bucket_capacity(&part, b) * 4;
            assert_int_equal(xm_grads_bytes(&f.config, &part), bytes);
            fixture_ok(xm_grads_create(&f.config, &part, f.device.ops,
                                       f.device.self, "test", &err, &grads),
                       &err);
            assert_int_equal(read_memory_stats(&f).live[XRAY_TAG_GRADS], bytes);
            assert_int_equal(grads->aside.lookup, lookup);
            if (lookup) {
                grads->aside.data[0] = 2; /* must be added once */
                fixture_ok(xm_grads_finish(grads, &err), &err);
                fixture_ok(xm_grads_finish(grads, &err), &err);
                const xm_param *embed = &f.layout->params[0];
                assert_true(grads->buckets[0][embed->offset] == 2);
            }
            xm_grads_destroy(grads);
        }
        fixture_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rotary_tables_occupy_the_planned_bytes),
        cmocka_unit_test(passes_occupy_the_planned_bytes),
        cmocka_unit_test(rows_longer_than_learned_positions_are_refused),
        cmocka_unit_test(invalid_rotary_dimensions_are_refused),
        cmocka_unit_test(gradient_and_packed_bytes_are_exact),
    };
    return cmocka_run_group_tests_name("nn.bounds", tests, NULL, NULL);
}
