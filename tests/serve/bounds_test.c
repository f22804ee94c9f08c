/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the sizes of an engine by hand: slots, blocks, tokens per step and
 * draws that follow from options, model and workload, and the nearest values
 * that are refused.
 */
#include <xray/plugin.h>

#include "model/nn/weights.h"
#include "model/serve/engine_internal.h"
#include "plugins/infer-dsinf/dsinf.h"
#include "plugins/infer-paged/paged.h"
#include "tests/testing.h"

const xray_plugin *xray_plugin_query_infer_dsinf(uint32_t host_abi);
const xray_plugin *xray_plugin_query_infer_paged(uint32_t host_abi);

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
      "dsinf: max_num_seqs = 4: 4 rows of 16 tokens take 16384 bytes, more "
      "than kv_memory = 16383; 3 rows fit" },
    { 5,
      16,
      9,
      50,
      4 * BLOCK - 1,
      { 0 },
      "dsinf: max_num_seqs = 9: 5 rows of 16 tokens take 20480 bytes, more "
      "than kv_memory = 16383; 3 rows fit" },
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

/* Ranks that share a vocabulary compute logits for as many draws as 2^24 of
 * them allow, but for 32 at least and for no more than a step has; each knows
 * how many ids the others have at most. */
static void ranks_share_logits_of_some_draws(void **state)
{
    (void)state;
    static const struct {
        uint32_t vocab;
        uint32_t part; /* ids of each rank but the last */
        uint32_t ranks;
        uint32_t slots;
        uint32_t draws;
    } of[] = {
        { 128, 64, 2, 5, 64 },
        { 128, 64, 2, 100, 100 },
        { 151936, 75968, 2, 200, 110 },
        { 1 << 19, 1 << 18, 2, 200, 32 },
        { 1 << 20, 1 << 19, 2, 200, 32 },
        { 300, 128, 3, 70, 70 },
        { 151936, 50688, 3, 200, 110 },
    };
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
        for (uint32_t rank = 0; rank < of[i].ranks; rank++) {
            const uint32_t first = rank * of[i].part;
            const uint32_t left = of[i].vocab - first;
            const xm_config model = { .layers = 2,
                                      .kv_heads = 2,
                                      .head_dim = 8,
                                      .max_positions = 40,
                                      .vocab =
                                          left < of[i].part ? left : of[i].part,
                                      .slice = { .ranks = of[i].ranks,
                                                 .rank = rank,
                                                 .vocab = of[i].vocab,
                                                 .vocab_first = first } };
            xm_engine_bounds b = { .slots = of[i].slots, .row_bound = 16 };
            xm_engine_find_bounds(&model, 1024, &b);
            assert_int_equal(b.ranks, of[i].ranks);
            assert_int_equal(b.logits, of[i].ranks * of[i].part);
            assert_int_equal(b.logit_draws, of[i].draws);
            assert_int_equal(b.draws, of[i].draws);
            assert_int_equal(b.words, (of[i].vocab + 31) / 32);
            /* what all ranks have, the parts of each, and those changed */
            assert_int_equal(xm_engine_count_logits(&b),
                             (2ull * b.logit_draws + XM_LOGIT_DRAWS) *
                                 b.logits);
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
        { XM_ENGINE_WEIGHTS_AUTO, XRAY_BF16, 0, 0, XM_WEIGHTS_BF16 },
        { XM_ENGINE_WEIGHTS_FLOAT32, XRAY_F32, 1, 1, 0 },
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

/* ---- pools of blocks ---------------------------------------------------- */

static const char json[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":16,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":2,\"head_dim\":8,"
    "\"intermediate_size\":24,\"vocab_size\":60,\"rms_norm_eps\":1e-5,"
    "\"max_position_embeddings\":40,\"rope_theta\":10000.0,"
    "\"tie_word_embeddings\":true}";

typedef struct told {
    char key[32]; /* or the file */
    char text[256];
} told;

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *text)
{
    told *t = host->host_data;
    assert_string_equal(where, "plan");
    (void)snprintf(t->text, sizeof(t->text), "%s", text);
    return code;
}

static xray_status record_key(const xray_host *host, xray_status code,
                              const char *where, const xray_location *location,
                              const char *text)
{
    told *t = host->host_data;
    (void)snprintf(t->key, sizeof(t->key), "%s",
                   location->key ? location->key : location->file);
    return record_failure(host, code, where, text);
}

static const xray_model whole = { .header = XRAY_HEADER(xray_model),
                                  .config_json = json,
                                  .dtype = XRAY_F32 };

/* Plans an engine of the plugin; the sentence of a refusal is in *out_told. */
static xray_status make_plan(const xray_plugin *from, const xray_model *model,
                             const void *config, const xray_workload *load,
                             xray_plan *out, told *out_told)
{
    const xray_infer_ops *infer = from->components[0]->ops;
    const xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    const xray_host host = { .header = XRAY_HEADER(xray_host),
                             .host_data = out_told,
                             .fail = record_failure,
                             .fail_at = record_key };
    *out = (xray_plan){ .header = XRAY_HEADER(xray_plan) };
    *out_told = (told){ "", "" };
    return infer->plan(&host, config, model, &world, load, out);
}

static const struct {
    uint64_t rows;
    uint64_t row_tokens;
    uint32_t prompt_tokens;
    paged_config config; /* block_size 0: 16; max_num_batched_tokens 0: 64 */
    uint64_t blocks;     /* of 16 positions; 0: it is refused */
    const char *key;     /* that is refused, or NULL: it is the workload */
    const char *says;
} pools[] = {
    /* All sequences at their longest, which is that of the model at most. */
    { 5, 20, 0, { .max_num_seqs = 0 }, 10, NULL, NULL },
    { 5, 16, 0, { .max_num_seqs = 0 }, 5, NULL, NULL },
    { 5, 99, 0, { .max_num_seqs = 0 }, 15, NULL, NULL },
    { 5, 33, 0, { .block_size = 32 }, 20, NULL, NULL },
    { 1, 2, 0, { .max_num_seqs = 0 }, 1, NULL, NULL },
    /* Fewer sequences, or shorter ones; never more than there are. */
    { 5, 20, 0, { .max_num_seqs = 3 }, 6, NULL, NULL },
    { 5, 20, 0, { .max_num_seqs = 9 }, 10, NULL, NULL },
    { 5, 20, 0, { .max_model_len = 16 }, 5, NULL, NULL },
    { 5, 20, 0, { .max_model_len = 17 }, 10, NULL, NULL },
    { 5, 20, 0, { .max_model_len = 33 }, 10, NULL, NULL },
    { 5, 20, 0, { .max_model_len = 2 }, 5, NULL, NULL },
    { 5, 20, 8, { .max_model_len = 9 }, 5, NULL, NULL },
    { 5, 20, 0, { .max_model_len = 1 }, 0, "max_model_len", "at least 2 " },
    { 5, 20, 8, { .max_model_len = 8 }, 0, "max_model_len", "at least 9 " },
    /* No more than the memory takes, but always one row. */
    { 5, 20, 0, { .kv_memory = 8 * BLOCK - 1 }, 7, NULL, NULL },
    { 5, 20, 0, { .kv_memory = 8 * BLOCK }, 8, NULL, NULL },
    { 5, 20, 0, { .kv_memory = 99 * BLOCK }, 10, NULL, NULL },
    { 5, 20, 0, { .kv_memory = 2 * BLOCK }, 2, NULL, NULL },
    { 5,
      20,
      0,
      { .kv_memory = 2 * BLOCK - 1 },
      0,
      "kv_memory",
      " of 8191 bytes is too small: one row of 20 tokens takes 8192 bytes" },
    { 1u << 29, 40, 0, { .max_num_seqs = 0 }, 1u << 30, NULL, NULL },
    /* Each sequence has a token in every step. */
    { 5,
      20,
      0,
      { .max_num_seqs = 4, .max_num_batched_tokens = 4 },
      8,
      NULL,
      NULL },
    { 5, 20, 0, { .max_num_batched_tokens = 1 }, 10, NULL, NULL },
    { 5,
      20,
      0,
      { .max_num_seqs = 5, .max_num_batched_tokens = 4 },
      0,
      "max_num_batched_tokens",
      " = 4, at least max_num_seqs = 5 was expected" },
    { 5, 20, 0, { .block_size = 24 }, 0, "block_size", "multiple of 16" },
    { 0, 20, 0, { .max_num_seqs = 0 }, 0, NULL, "0 rows of 20 tokens" },
    { 5, 1, 0, { .max_num_seqs = 0 }, 0, NULL, "5 rows of 1 tokens" },
    { 1u << 31, 20, 0, { .max_num_seqs = 0 }, 0, NULL, "2147483648 rows of" },
};

static void pools_follow_from_the_options(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(pools) / sizeof(pools[0]); i++) {
        told t;
        xray_plan plan;
        paged_config config = pools[i].config;
        const xray_workload load = { .header = XRAY_HEADER(xray_workload),
                                     .rows = pools[i].rows,
                                     .row_tokens = pools[i].row_tokens,
                                     .prompt_tokens = pools[i].prompt_tokens };
        config.block_size = config.block_size ? config.block_size : 16;
        if (!config.max_num_batched_tokens)
            config.max_num_batched_tokens = 64;
        xray_status status = make_plan(xray_plugin_query_infer_paged(XRAY_ABI),
                                       &whole, &config, &load, &plan, &t);
        const char *says = pools[i].says;
        if (status != (says ? XRAY_E_CONFIG : XRAY_OK) ||
            (says && !strstr(t.text, says)))
            fail_msg("pool %zu: %d, %s%s", i, status, t.key, t.text);
        assert_string_equal(t.key, pools[i].key ? pools[i].key : "");
        assert_int_equal(plan.bytes[XRAY_TAG_KV], BLOCK * pools[i].blocks);
    }
}

/* A sequence with drafts has more draws in a step, whose hidden states are
 * kept: 100 sequences have 100 draws, or with 3 drafts each 400. */
static void drafts_are_planned(void **state)
{
    (void)state;
    const xray_workload load = { .header = XRAY_HEADER(xray_workload),
                                 .rows = 100,
                                 .row_tokens = 32 };
    for (int paged = 0; paged < 2; paged++) {
        uint64_t bytes[2];
        for (int i = 0; i < 2; i++) {
            told t;
            xray_plan plan;
            const dsinf_config one = { .speculate = i ? 3 : 0,
                                       .max_num_batched_tokens = 2048 };
            const paged_config other = { .speculate = i ? 3 : 0,
                                         .block_size = 16,
                                         .max_num_batched_tokens = 2048 };
            const xray_plugin *from =
                paged ? xray_plugin_query_infer_paged(XRAY_ABI)
                      : xray_plugin_query_infer_dsinf(XRAY_ABI);
            const void *config = paged ? (const void *)&other : &one;
            assert_int_equal(make_plan(from, &whole, config, &load, &plan, &t),
                             XRAY_OK);
            bytes[i] = plan.bytes[XRAY_TAG_WORKSPACE];
        }
        assert_true(bytes[1] - bytes[0] > 300ull * 16 * sizeof(float));
        assert_true(bytes[1] - bytes[0] < 2 * 300ull * 16 * sizeof(float));
    }
}

static void models_that_cannot_be_read_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        const char *path;
        uint32_t dtype;
        const char *key;
        const char *says;
    } models[] = {
        { NULL, NULL, XRAY_F32, "", "dsinf: the model has no config.json" },
        { json, NULL, XRAY_F16, "dtype",
          ": this engine computes in float32 or bfloat16" },
        { "{", NULL, XRAY_F32, "model/config.json", "expected a key" },
        { "{", "some/folder", XRAY_F32, "some/folder/config.json",
          "expected a key" },
    };
    const dsinf_config config = { .max_num_batched_tokens = 64 };
    const xray_workload load = { .header = XRAY_HEADER(xray_workload),
                                 .rows = 2,
                                 .row_tokens = 20 };
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        told t;
        xray_plan plan;
        const xray_model model = { .header = XRAY_HEADER(xray_model),
                                   .config_json = models[i].json,
                                   .path = models[i].path,
                                   .dtype = models[i].dtype };
        assert_int_equal(make_plan(xray_plugin_query_infer_dsinf(XRAY_ABI),
                                   &model, &config, &load, &plan, &t),
                         XRAY_E_CONFIG);
        assert_string_equal(t.key, models[i].key);
        if (!strstr(t.text, models[i].says))
            fail_msg("model %zu: %s", i, t.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_follow_from_the_options),
        cmocka_unit_test(ranks_share_logits_of_some_draws),
        cmocka_unit_test(weights_are_shared_or_copied),
        cmocka_unit_test(pools_follow_from_the_options),
        cmocka_unit_test(drafts_are_planned),
        cmocka_unit_test(models_that_cannot_be_read_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
