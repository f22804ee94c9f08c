/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves into how many segments the sums of a model are cut, and what each
 * tensor-parallel rank and each stage has of it.
 */
#include "model/hf/config.h"
#include "tests/testing.h"

typedef struct sizes {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t ffn;
    uint32_t vocab;
    uint32_t segments;
    uint64_t vocab_segment;
} sizes;

static const sizes models[] = {
    { 14, 2, 4864, 151936, 2, 75968 },
    { 32, 8, 14336, 128256, 8, 16032 },
    { 64, 64, 1024, 50257, 8, 6288 },
    { 12, 12, 3072, 50257, 4, 12576 },
    { 32, 4, 18944, 152064, 4, 38016 },
    { 8, 8, 28, 37, 4, 32 },
    { 9, 3, 1536, 49152, 1, 0 },
    { 4, 1, 16, 100, 1, 0 },
    { 8, 8, 9, 512, 1, 0 },
};

static xm_config make_config(const sizes *s)
{
    return (xm_config){ .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .ffn = s->ffn,
                        .vocab = s->vocab };
}

static void shapes_give_the_segments(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        xm_config config = make_config(&models[i]);
        assert_int_equal(xm_segments(&config), models[i].segments);
        assert_int_equal(xm_vocab_segment(&config), models[i].vocab_segment);
    }
}

/* The segments of slices are those of the model. */
static void slices_are_equal_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        const sizes *s = &models[i];
        xm_config model = make_config(s);
        for (uint32_t n = 2; n <= s->segments; n *= 2) {
            xm_config part;
            uint32_t ids = 0;
            uint64_t rows = s->vocab_segment * (s->segments / n);
            if (rows * (n - 1) >= s->vocab)
                continue;
            for (uint32_t r = 0; r < n; r++) {
                xr_err err = { "" };
                assert_int_equal(xm_config_slice(&model, r, n, &err, &part),
                                 XRAY_OK);
                assert_int_equal(part.heads, s->heads / n);
                assert_int_equal(part.kv_heads, s->kv_heads / n);
                assert_int_equal(part.ffn, s->ffn / n);
                assert_int_equal(part.slice.vocab_first, r * rows);
                assert_int_equal(xm_segments(&part), s->segments / n);
                assert_int_equal(xm_vocab_segment(&part), s->vocab_segment);
                ids += part.vocab;
            }
            assert_int_equal(ids, s->vocab);
        }
    }
}

static void ranks_may_have_the_same_kv_head(void **state)
{
    (void)state;
    const sizes shapes = {
        .heads = 16, .kv_heads = 2, .ffn = 4096, .vocab = 32000
    };
    xm_config model = make_config(&shapes);
    xm_config part;
    xr_err err = { "" };
    for (uint32_t ranks = 1; ranks <= 8; ranks *= 2) {
        assert_int_equal(xm_config_slice(&model, 0, ranks, &err, &part),
                         XRAY_OK);
        assert_int_equal(part.heads, 16 / ranks);
        assert_int_equal(part.kv_heads, ranks < 2 ? 2 : 1);
        assert_int_equal(part.slice.kv_ranks, ranks < 2 ? 0 : ranks / 2);
    }
}

static void other_numbers_of_ranks_are_refused(void **state)
{
    (void)state;
    const struct {
        sizes model;
        uint32_t ranks;
        const char *why;
    } cases[] = {
        { { .heads = 14, .kv_heads = 2, .ffn = 4864, .vocab = 151936 },
          4,
          "a model of 14 query heads, 2 KV heads and 4864 MLP columns can be "
          "shared by at most 2 tensor-parallel ranks, in a power of two, not "
          "by 4" },
        { { .heads = 12, .kv_heads = 6, .ffn = 4096, .vocab = 32000 },
          4,
          "shared by at most 2 tensor-parallel ranks" },
        { { .heads = 16, .kv_heads = 2, .ffn = 4096, .vocab = 32000 },
          16,
          "shared by at most 8 tensor-parallel ranks" },
        { { .heads = 12, .kv_heads = 12, .ffn = 3072, .vocab = 50257 },
          3,
          "at most 4 tensor-parallel ranks, in a power of two, not by 3" },
        { { .heads = 8, .kv_heads = 8, .ffn = 64, .vocab = 112 },
          8,
          "a vocabulary of 112 ids has no row for the last of 8 "
          "tensor-parallel ranks, each of which has 16" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xm_config model = make_config(&cases[i].model);
        xm_config part;
        xr_err err = { "" };
        assert_int_equal(
            xm_config_slice(&model, 0, cases[i].ranks, &err, &part),
            XRAY_E_CONFIG);
        assert_non_null(strstr(err.text, cases[i].why));
    }
    xm_config model = make_config(&models[0]);
    xm_config same;
    xr_err err = { "" };
    assert_int_equal(xm_config_slice(&model, 0, 1, &err, &same), XRAY_OK);
    assert_memory_equal(&same, &model, sizeof same);
}

static void stages_are_runs_of_layers(void **state)
{
    (void)state;
    const uint32_t refused[][2] = { { 0, 0 }, { 6, 1 }, { 2, 5 }, { 0, 7 } };
    xm_config model = { .layers = 6, .sliding = { 0x2d } };
    xm_config stage;
    xr_err err = { "" };
    assert_int_equal(xm_config_stage(&model, 2, 3, &err, &stage), XRAY_OK);
    assert_int_equal(stage.layers, 3);
    assert_int_equal(stage.sliding[0], 3);
    assert_false(xm_config_is_first(&stage) || xm_config_is_last(&stage));
    assert_int_equal(xm_config_stage(&model, 0, 2, &err, &stage), XRAY_OK);
    assert_true(xm_config_is_first(&stage) && !xm_config_is_last(&stage));
    assert_int_equal(xm_config_stage(&model, 5, 1, &err, &stage), XRAY_OK);
    assert_true(!xm_config_is_first(&stage) && xm_config_is_last(&stage));
    assert_true(xm_config_is_first(&model) && xm_config_is_last(&model));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_int_equal(
            xm_config_stage(&model, refused[i][0], refused[i][1], &err, &stage),
            XRAY_E_CONFIG);
    assert_string_equal(err.text, "a stage of 7 layers from layer 0 on is not "
                                  "part of a model of 6 layers");
}

/* The second of two stages with two chunks each, of two layers and of one. */
static void stages_may_have_chunks_that_lie_apart(void **state)
{
    (void)state;
    const xm_stage_layers layers = { 2, 1, 3, 2 };
    const xm_stage_layers refused[] = {
        { 2, 2, 3, 2 }, { 0, 2, 1, 2 }, { 0, 1, 3, 3 }, { 0, 1, 3, 0 }
    };
    xm_config model = { .layers = 6, .sliding = { 0x2c } };
    xm_config stage;
    xr_err err = { "" };
    assert_int_equal(xm_config_chunks(&model, &layers, &err, &stage), XRAY_OK);
    assert_int_equal(stage.layers, 2);
    assert_int_equal(xm_config_chunk(&stage), 1);
    assert_int_equal(xm_config_layer(&stage, 0), 2);
    assert_int_equal(xm_config_layer(&stage, 1), 5);
    assert_int_equal(stage.sliding[0], 3);
    assert_true(!xm_config_is_first(&stage) && xm_config_is_last(&stage));
    const xm_stage_layers first = { 0, 2, 3, 2 };
    assert_int_equal(xm_config_chunks(&model, &first, &err, &stage), XRAY_OK);
    assert_int_equal(xm_config_layer(&stage, 3), 4);
    assert_int_equal(stage.sliding[0], 4);
    assert_true(xm_config_is_first(&stage) && !xm_config_is_last(&stage));
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        assert_int_equal(xm_config_chunks(&model, &refused[i], &err, &stage),
                         XRAY_E_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_give_the_segments),
        cmocka_unit_test(slices_are_equal_parts),
        cmocka_unit_test(ranks_may_have_the_same_kv_head),
        cmocka_unit_test(other_numbers_of_ranks_are_refused),
        cmocka_unit_test(stages_are_runs_of_layers),
        cmocka_unit_test(stages_may_have_chunks_that_lie_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
