/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the sizes of an engine by hand: slots, tokens per step and draws
 * that follow from options, model and workload, and the nearest values that are
 * refused.
 */
#include "model/nn/weights.h"
#include "plugins/infer-dsinf/dsinf.h"
#include "tests/testing.h"

/* A slot of one block takes 16 tokens of keys and values in 2 layers of 2 heads
 * of 8 floats. */
#define BLOCK (UINT64_C(2) * 16 * 2 * 2 * 8 * 4)

static const struct {
    uint64_t rows;
    uint64_t row_tokens;
    int64_t max_num_seqs;
    int64_t max_num_batched_tokens;
    uint64_t kv_memory;
    xm_engine_bounds want;
    const char *says;
} cases[] = {
    /* There are as many slots as rows, and a step has as many tokens as
     * requested. */
    { 5,
      20,
      0,
      50,
      0,
      { .slots = 5,
        .row_bound = 20,
        .slot_blocks = 2,
        .step_tokens = 50,
        .draws = 64 },
      NULL },
    { 5,
      16,
      0,
      50,
      0,
      { .slots = 5,
        .row_bound = 16,
        .slot_blocks = 1,
        .step_tokens = 50,
        .draws = 64 },
      NULL },
    { 5,
      17,
      0,
      50,
      0,
      { .slots = 5,
        .row_bound = 17,
        .slot_blocks = 2,
        .step_tokens = 50,
        .draws = 64 },
      NULL },
    /* No row is longer than the model's positions. */
    { 1,
      99,
      0,
      99,
      0,
      { .slots = 1,
        .row_bound = 40,
        .slot_blocks = 3,
        .step_tokens = 40,
        .draws = 64 },
      NULL },
    /* Every slot gets its token, and no step has more tokens than all rows
     * have. */
    { 5,
      2,
      0,
      3,
      0,
      { .slots = 5,
        .row_bound = 2,
        .slot_blocks = 1,
        .step_tokens = 5,
        .draws = 64 },
      NULL },
    { 5,
      2,
      0,
      30,
      0,
      { .slots = 5,
        .row_bound = 2,
        .slot_blocks = 1,
        .step_tokens = 10,
        .draws = 64 },
      NULL },
    { 65,
      2,
      0,
      100,
      0,
      { .slots = 65,
        .row_bound = 2,
        .slot_blocks = 1,
        .step_tokens = 100,
        .draws = 65 },
      NULL },
    /* An option or the memory allows fewer slots. */
    { 5,
      16,
      3,
      50,
      0,
      { .slots = 3,
        .row_bound = 16,
        .slot_blocks = 1,
        .step_tokens = 48,
        .draws = 64 },
      NULL },
    { 5,
      16,
      9,
      50,
      0,
      { .slots = 5,
        .row_bound = 16,
        .slot_blocks = 1,
        .step_tokens = 50,
        .draws = 64 },
      NULL },
    { 5,
      16,
      0,
      50,
      4 * BLOCK - 1,
      { .slots = 3,
        .row_bound = 16,
        .slot_blocks = 1,
        .step_tokens = 48,
        .draws = 64 },
      NULL },
    { 5,
      16,
      4,
      50,
      4 * BLOCK,
      { .slots = 4,
        .row_bound = 16,
        .slot_blocks = 1,
        .step_tokens = 50,
        .draws = 64 },
      NULL },
    /* An option may allow more slots than there are rows. */
    { 3,
      16,
      9,
      48,
      3 * BLOCK,
      { .slots = 3,
        .row_bound = 16,
        .slot_blocks = 1,
        .step_tokens = 48,
        .draws = 64 },
      NULL },
    { 5,
      16,
      4,
      50,
      4 * BLOCK - 1,
      { 0 },
      "dsinf: max_num_seqs = 4 rows of 16 tokens take 16384 bytes, more than "
      "kv_memory = 16383; 3 rows fit" },
    { 5,
      16,
      0,
      50,
      BLOCK - 1,
      { 0 },
      "dsinf: kv_memory of 4095 bytes is too small: one row of 16 tokens takes "
      "4096 bytes" },
    { 0,
      16,
      0,
      50,
      0,
      { 0 },
      "dsinf: the workload has 0 rows of 16 tokens, expected at least one row "
      "of two tokens" },
    { 1,
      1,
      0,
      50,
      0,
      { 0 },
      "dsinf: the workload has 1 rows of 1 tokens, expected at least one row "
      "of two tokens" },
    { 1ull << 31,
      16,
      0,
      50,
      0,
      { 0 },
      "dsinf: the workload has 2147483648 rows of 16 tokens, expected at least "
      "one row of two tokens" },
};

static void sizes_follow_from_the_options(void **state)
{
    const xm_config model = {
        .layers = 2, .kv_heads = 2, .head_dim = 8, .max_positions = 40
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const dsinf_config config = {
            .max_num_seqs = cases[i].max_num_seqs,
            .max_num_batched_tokens = cases[i].max_num_batched_tokens,
            .kv_memory = cases[i].kv_memory,
        };
        const xray_workload load = { .header = XRAY_HEADER(xray_workload),
                                     .rows = cases[i].rows,
                                     .row_tokens = cases[i].row_tokens };
        const xm_engine_bounds *want = &cases[i].want;
        xm_engine_bounds b = { 0 };
        xr_err err = { "" };
        xray_status status =
            dsinf_find_bounds(&config, &model, &load, &err, &b);
        assert_string_equal(err.text, cases[i].says ? cases[i].says : "");
        assert_int_equal(status, cases[i].says ? XRAY_E_CONFIG : XRAY_OK);
        if (cases[i].says)
            continue;
        if (b.slots != want->slots || b.row_bound != want->row_bound ||
            b.slot_blocks != want->slot_blocks ||
            b.step_tokens != want->step_tokens || b.draws != want->draws)
            fail_msg("case %zu: %u slots of %u in %u blocks, %u tokens, %u "
                     "draws",
                     i, b.slots, b.row_bound, b.slot_blocks, b.step_tokens,
                     b.draws);
        assert_int_equal(b.slot_bytes, BLOCK * want->slot_blocks);
    }
}

/* When the engine keeps its own copy of the weights, and in which type. */
static void weights_are_shared_or_copied(void **state)
{
    static const struct {
        int64_t weights;
        uint32_t dtype;
        int alone;
        int copy;
        int flags;
    } of[] = {
        { XM_ENGINE_WEIGHTS_AUTO, XRAY_F32, 0, 0, 0 },
        { XM_ENGINE_WEIGHTS_AUTO, XRAY_F32, 1, 1, 0 },
        { XM_ENGINE_WEIGHTS_AUTO, XRAY_BF16, 1, 1, XM_WEIGHTS_BF16 },
        { XM_ENGINE_WEIGHTS_FLOAT32, XRAY_F32, 0, 1, 0 },
        { XM_ENGINE_WEIGHTS_FLOAT32, XRAY_BF16, 0, 1, 0 },
        { XM_ENGINE_WEIGHTS_BFLOAT16, XRAY_F32, 0, 1, XM_WEIGHTS_BF16 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        const xray_model model = { .header = XRAY_HEADER(xray_model),
                                   .dtype = of[i].dtype };
        assert_int_equal(xm_engine_keeps_copy(of[i].weights, of[i].alone),
                         of[i].copy);
        assert_int_equal(xm_engine_copy_flags(of[i].weights, &model),
                         of[i].flags);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_from_the_options),
        cmocka_unit_test(weights_are_shared_or_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
