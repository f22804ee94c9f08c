/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that results have equal bits whatever the way to them: decoding with a
 * KV cache or a pass over complete rows, any cut into micro-batches,
 * recomputation, any number of threads, any instruction set; with fp32
 * activations and with bf16 ones.
 */
#include "tests/nn/fixture.h"
#include "tests/testing.h"

static const uint32_t lengths[] = { 21, 3, 50, 1, 17, 34 };
#define ROWS 6u
#define TOKENS 126u
#define SLOT_TOKENS 64u

static xm_space *make_space(const fixture *f, uint32_t flags)
{
    xr_err err = { "" };
    xm_space *space = NULL;
    fixture_ok(xm_space_create(f->decoder, TOKENS, ROWS, SLOT_TOKENS, flags,
                               "test", &err, &space),
               &err);
    return space;
}

static void assert_same(const void *a, const void *b, size_t size,
                        const char *what)
{
    if (memcmp(a, b, size) != 0)
        fail_msg("%s: bits differ", what);
}

/* ---- gradients ---------------------------------------------------------- */

/* Sums the gradients of all rows, cut into micro-batches after each row whose
 * bit is set. */
static xm_grads *sum_gradients(const fixture *f, const fixture_rows *rows,
                               const fixture_items *items, uint32_t cuts,
                               uint32_t flags)
{
    xr_err err = { "" };
    xm_grads *grads = fixture_grads(f);
    xm_space *space = make_space(f, flags);
    uint32_t first = 0;
    for (uint32_t r = 0; r < ROWS; r++) {
        if (r + 1 < ROWS && !(cuts >> r & 1))
            continue;
        fixture_rows part = fixture_rows_cut(rows, first, r + 1);
        fixture_items its = fixture_items_cut(items, rows, first, r + 1);
        fixture_pass(f, space, &part, &its, grads, NULL);
        fixture_items_free(&its);
        fixture_rows_free(&part);
        first = r + 1;
    }
    fixture_ok(xm_grads_finish(grads, &err), &err);
    xm_space_destroy(space);
    return grads;
}

/* A model and its gradients. */
typedef struct gradients {
    fixture f;
    xm_grads *grads;
} gradients;

static void make_gradients(const fixture_kind *kind, uint32_t cuts,
                           uint32_t flags, fixture_device device, gradients *g)
{
    fixture_make_on(&g->f, kind, 11, device);
    fixture_rows rows = fixture_rows_make(lengths, ROWS, kind->config.vocab, 5);
    fixture_items items = fixture_items_make(&rows, kind->value_head, 7);
    g->grads = sum_gradients(&g->f, &rows, &items, cuts, flags);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
}

static void free_gradients(gradients *g)
{
    xm_grads_destroy(g->grads);
    fixture_end(&g->f);
}

/* Of each kind: one micro-batch on one thread, made when it is first needed. */
static gradients *uncut;

static int begin_group(void **state)
{
    (void)state;
    uncut = calloc(fixture_kind_count, sizeof(*uncut));
    return uncut ? 0 : -1;
}

static int end_group(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++)
        if (uncut[k].grads)
            free_gradients(&uncut[k]);
    free(uncut);
    return 0;
}

/* Compares the gradients with those from another cut, space or device. */
static void compare_grads(const fixture_kind *kind, uint32_t cuts,
                          uint32_t flags, fixture_device device)
{
    gradients *want = &uncut[kind - fixture_kinds];
    gradients got;
    if (!want->grads)
        make_gradients(kind, 0, XM_SPACE_TRAIN, fixture_open(1, "auto"), want);
    make_gradients(kind, cuts, flags, device, &got);
    if (!fixture_grads_equal(want->grads, got.grads))
        fail_msg("%s: cuts %x, flags %u change gradients", kind->name, cuts,
                 flags);
    free_gradients(&got);
}

static void micro_batch_cuts_change_no_gradient(void **state)
{
    (void)state;
    static const uint32_t cuts[] = { 0x1f, 0x04, 0x0a, 0x10 };
    for (size_t k = 0; k < fixture_kind_count; k++) {
        for (size_t c = k % TEST_STEP; c < sizeof cuts / sizeof cuts[0];
             c += TEST_STEP)
            compare_grads(&fixture_kinds[k], cuts[c], XM_SPACE_TRAIN,
                          fixture_open(1, "auto"));
    }
}

static void recomputation_changes_no_gradient(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++)
        compare_grads(&fixture_kinds[k], 0x04,
                      XM_SPACE_TRAIN | XM_SPACE_RECOMPUTE,
                      fixture_open(1, "auto"));
}

static void keeping_logits_changes_no_gradient(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        compare_grads(&fixture_kinds[k], 0x04, XM_SPACE_TRAIN | XM_SPACE_LOGITS,
                      fixture_open(1, "auto"));
        compare_grads(&fixture_kinds[k], 0,
                      XM_SPACE_RECOMPUTE | XM_SPACE_LOGITS,
                      fixture_open(3, "auto"));
    }
}

static void threads_change_no_gradient(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        compare_grads(&fixture_kinds[k], 0, XM_SPACE_TRAIN,
                      fixture_open(2, "auto"));
        compare_grads(&fixture_kinds[k], 0x0a, XM_SPACE_RECOMPUTE,
                      fixture_open(3, "auto"));
    }
}

static void instruction_sets_change_no_gradient(void **state)
{
    (void)state;
    static const char *const isas[] = { "scalar", "avx2", "avx512" };
    for (size_t i = 0; i < 3; i++) {
        for (size_t k = i % TEST_STEP; k < fixture_kind_count; k += TEST_STEP) {
            fixture_device device = fixture_open(2, isas[i]);
            if (device.self)
                compare_grads(&fixture_kinds[k], 0x04, XM_SPACE_TRAIN, device);
        }
    }
}

static void empty_batches_add_nothing(void **state)
{
    (void)state;
    const fixture_kind *kind = &fixture_kinds[0];
    fixture f;
    fixture_make(&f, kind, 11);
    fixture_rows rows = fixture_rows_make(lengths, 0, 8, 5);
    fixture_items items = fixture_items_make(&rows, 0, 7);
    xm_grads *grads = fixture_grads(&f);
    xm_grads *clear = fixture_grads(&f);
    xm_space *space = make_space(&f, XM_SPACE_TRAIN);
    fixture_pass(&f, space, &rows, &items, grads, NULL);
    assert_true(fixture_grads_equal(grads, clear));
    xm_space_destroy(space);
    xm_grads_destroy(grads);
    xm_grads_destroy(clear);
    fixture_items_free(&items);
    fixture_rows_free(&rows);
    fixture_end(&f);
}

/* ---- forward ------------------------------------------------------------ */

static void training_and_scoring_have_equal_outputs(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        const fixture_kind *kind = &fixture_kinds[k];
        fixture f;
        fixture_make(&f, kind, 11);
        fixture_rows rows =
            fixture_rows_make(lengths, ROWS, kind->config.vocab, 5);
        fixture_items items = fixture_items_make(&rows, kind->value_head, 7);
        float got[2][3][TOKENS] = { 0 };
        uint32_t flags[2] = { 0, XM_SPACE_TRAIN };
        for (int i = 0; i < 2; i++) {
            xm_space *space = make_space(&f, flags[i]);
            fixture_out out = { got[i][0], got[i][1], got[i][2] };
            fixture_pass(&f, space, &rows, &items, NULL, &out);
            xm_space_destroy(space);
        }
        assert_same(got[0], got[1], sizeof got[0], kind->name);
        fixture_items_free(&items);
        fixture_rows_free(&rows);
        fixture_end(&f);
    }
}

/* ---- decoding ----------------------------------------------------------- */

#define BLOCK_TOKENS 16u
#define SLOT_BLOCKS (SLOT_TOKENS / BLOCK_TOKENS)

typedef struct cache {
    xray_kv *kv;
    int32_t *table;
} cache;

/* Creates a cache whose slots are contiguous, or mapped by a table in reverse
 * order. */
static cache create_cache(const fixture *f, int paged)
{
    cache c = { .kv = calloc(f->config.layers, sizeof *c.kv),
                .table = calloc(ROWS * SLOT_BLOCKS, sizeof *c.table) };
    assert_true(c.kv && c.table);
    for (uint32_t i = 0; i < ROWS * SLOT_BLOCKS; i++)
        c.table[i] = (int32_t)(ROWS * SLOT_BLOCKS - 1 - i);
    for (uint32_t l = 0; l < f->config.layers; l++) {
        xray_kv *kv = &c.kv[l];
        *kv = (xray_kv){ .header = XRAY_HEADER(xray_kv),
                         .table = paged ? c.table : NULL,
                         .table_stride = SLOT_BLOCKS,
                         .block_tokens = BLOCK_TOKENS,
                         .kv_heads = f->config.kv_heads,
                         .head_dim = f->config.head_dim,
                         .dtype = f->config.dtype ? XRAY_BF16 : XRAY_F32 };
        kv->blocks = fixture_alloc(
            &f->device, f->device.ops->kv_block_bytes(f->device.self, kv) *
                            ROWS * SLOT_BLOCKS);
    }
    return c;
}

static void destroy_cache(const fixture *f, cache *c)
{
    for (uint32_t l = 0; l < f->config.layers; l++)
        fixture_free(&f->device, c->kv[l].blocks);
    free(c->kv);
    free(c->table);
}

/* Runs the tokens [done[r], done[r] + take[r]) of every row in one pass, and
 * stores their hidden states at their positions in the packed batch. */
static void decode_tokens(const fixture *f, xm_space *space, const cache *c,
                          const fixture_rows *rows, uint32_t *done,
                          const uint32_t *take, char *hidden)
{
    int32_t ids[TOKENS];
    int32_t seq[TOKENS];
    int32_t positions[TOKENS];
    int32_t last[TOKENS];
    int32_t packed[TOKENS];
    xr_err err = { "" };
    uint32_t n = 0;
    for (uint32_t r = 0; r < ROWS; r++) {
        for (uint32_t i = 0; i < take[r]; i++, n++) {
            packed[n] = rows->row_start[r] + (int32_t)(done[r] + i);
            ids[n] = rows->ids[packed[n]];
            seq[n] = (int32_t)r;
            positions[n] = (int32_t)(done[r] + i);
            last[n] = (int32_t)n;
        }
        done[r] += take[r];
    }
    xm_decode_batch step = { .tokens = n,
                             .position_bound = SLOT_TOKENS,
                             .ids = ids,
                             .seq = seq,
                             .positions = positions,
                             .kv = c->kv,
                             .last = last,
                             .last_count = n };
    const void *out = NULL;
    fixture_ok(xm_decode(f->decoder, space, &step, &out, &err), &err);
    fixture_ok(f->device.ops->sync(f->device.self, NULL), NULL);
    uint64_t row = f->config.hidden * xm_config_act_bytes(&f->config);
    for (uint32_t i = 0; i < n; i++)
        memcpy(hidden + (uint64_t)packed[i] * row, (const char *)out + i * row,
               row);
}

/* The number of tokens of a row in one pass, by a pattern. */
static uint32_t count_next_tokens(int pattern, uint32_t row, uint32_t round)
{
    switch (pattern) {
    case 0: /* complete prompts */
        return SLOT_TOKENS;
    case 1: /* chunks */
        return 5;
    case 2: /* token by token */
        return 1;
    default: /* prompts enter while others decode */
        return round < row ? 0 : round == row ? 13 : 1;
    }
}

static void decode_all_rows(const fixture *f, const fixture_rows *rows,
                            int pattern, int paged, char *hidden)
{
    xm_space *space = make_space(f, 0);
    cache c = create_cache(f, paged);
    uint32_t done[ROWS] = { 0 };
    uint32_t left = rows->pack.tokens;
    for (uint32_t round = 0; left > 0; round++) {
        uint32_t take[ROWS];
        for (uint32_t r = 0; r < ROWS; r++) {
            uint32_t rest = lengths[r] - done[r];
            take[r] = count_next_tokens(pattern, r, round);
            take[r] = take[r] < rest ? take[r] : rest;
            left -= take[r];
        }
        decode_tokens(f, space, &c, rows, done, take, hidden);
    }
    destroy_cache(f, &c);
    xm_space_destroy(space);
}

static void decoding_equals_the_forward_pass(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        const fixture_kind *kind = &fixture_kinds[k];
        xr_err err = { "" };
        fixture f;
        fixture_make_on(&f, kind, 11, fixture_open(1 + k % 2, "auto"));
        fixture_rows rows =
            fixture_rows_make(lengths, ROWS, kind->config.vocab, 5);
        xm_space *space = make_space(&f, XM_SPACE_TRAIN);
        fixture_ok(xm_forward(f.decoder, space, &rows.pack, &err), &err);
        fixture_ok(f.device.ops->sync(f.device.self, NULL), NULL);
        size_t size = TOKENS * f.config.hidden * xm_config_act_bytes(&f.config);
        char *hidden = calloc(1, size);
        assert_non_null(hidden);
        for (int pattern = 0; pattern < 4; pattern++) {
            for (int paged = 0; paged < 2; paged++) {
                memset(hidden, 0, size);
                decode_all_rows(&f, &rows, pattern, paged, hidden);
                assert_same(hidden, xm_space_hidden(space), size, kind->name);
            }
        }
        free(hidden);
        xm_space_destroy(space);
        fixture_rows_free(&rows);
        fixture_end(&f);
    }
}

/* The log-probability that the sampler returns has the bits of the trainer's.
 */
static void sampled_logp_equals_scored_logp(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        const fixture_kind *kind = &fixture_kinds[k];
        fixture f;
        fixture_make(&f, kind, 11);
        fixture_rows rows =
            fixture_rows_make(lengths, ROWS, kind->config.vocab, 5);
        fixture_items items = fixture_items_make(&rows, 0, 7);
        xm_space *space = make_space(&f, XM_SPACE_TRAIN);
        fixture_pass(&f, space, &rows, &items, NULL, NULL);
        uint32_t n = items.items.count;
        size_t row = f.config.hidden * xm_config_act_bytes(&f.config);
        char *x = calloc(n, row);
        xray_draw *draws = calloc(n, sizeof *draws);
        int32_t token[TOKENS];
        float raw[TOKENS];
        float tempered[TOKENS];
        assert_true(x && draws);
        for (uint32_t i = 0; i < n; i++) {
            memcpy(x + i * row,
                   (const char *)xm_space_hidden(space) +
                       (uint32_t)items.index[i] * row,
                   row);
            draws[i] = (xray_draw){ .key = 9,
                                    .sample = i,
                                    .temperature = items.temperature[i],
                                    .top_p = 1 };
        }
        xray_sample call = { .header = XRAY_HEADER(xray_sample),
                             .items = { .bound = n },
                             .weight = xm_decoder_lm_head(f.decoder),
                             .x = x,
                             .draws = draws,
                             .token = token,
                             .raw_logp = raw,
                             .logp = tempered,
                             .softcap = (float)kind->config.logit_softcap,
                             .draw_stride = sizeof(xray_draw),
                             .segment = xm_vocab_segment(&f.config),
                             .x_dtype = f.config.dtype };
        fixture_ok(f.device.ops->sample(f.device.self, NULL, &call), NULL);
        fixture_ok(f.device.ops->sync(f.device.self, NULL), NULL);
        memcpy(items.target, token, n * sizeof *token);
        float logp[TOKENS];
        fixture_out out = { .logp = logp };
        fixture_pass(&f, space, &rows, &items, NULL, &out);
        assert_same(logp, tempered, n * sizeof(float), "at temperature");
        items.items.temperature = NULL;
        fixture_pass(&f, space, &rows, &items, NULL, &out);
        assert_same(logp, raw, n * sizeof(float), "raw");
        free(x);
        free(draws);
        xm_space_destroy(space);
        fixture_items_free(&items);
        fixture_rows_free(&rows);
        fixture_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(micro_batch_cuts_change_no_gradient),
        cmocka_unit_test(recomputation_changes_no_gradient),
        cmocka_unit_test(keeping_logits_changes_no_gradient),
        cmocka_unit_test(threads_change_no_gradient),
        cmocka_unit_test(instruction_sets_change_no_gradient),
        cmocka_unit_test(empty_batches_add_nothing),
        cmocka_unit_test(training_and_scoring_have_equal_outputs),
        cmocka_unit_test(decoding_equals_the_forward_pass),
        cmocka_unit_test(sampled_logp_equals_scored_logp),
    };
    int failed =
        cmocka_run_group_tests_name("nn.bits", tests, begin_group, end_group);
    fixture_activations(XRAY_BF16);
    return failed + cmocka_run_group_tests_name("nn.bits, bf16", tests,
                                                begin_group, end_group);
}
