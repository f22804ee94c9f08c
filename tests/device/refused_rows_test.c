/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that attention, the LM head and the sampler of the cpu device refuse
 * invalid fields with the right status and sentence.
 */
#include "tests/device/refused.h"

/* `whole` has the rows [0, 2) and [2, 3). */
static void attention_refuses_bad_queries(xray_attention whole)
{
    static const int32_t start[] = { 0, 1, 2 };
    static const int32_t first[] = { 1, 0 };
    static const int32_t later[] = { 1, 1 };
    static const int32_t under[] = { -1, 0 };
    static const int32_t back[] = { 1, 0, 2 };
    static const int32_t low[] = { -1, 1, 2 };
    static const int32_t parents[] = { -1, -1 };
    xray_attention attention = whole;
    attention.queries.bound = 2;
    attention.query_start = start;
    attention.query_first = first;
    BAD(attention, query_first, NULL, XRAY_E_ARG,
        "query_first is NULL, but query_start is given");
    must(ops->attention(cpu.self, NULL, &attention));
    BAD(attention, parent, parents, XRAY_E_ARG,
        "query_start and parent are both given, but only rows without a "
        "parent may have fewer queries than keys");
    BAD(attention, query_start, back, XRAY_E_RANGE,
        "row 0 has queries [1, 0) from position 1 on: they must stand in its 2 "
        "tokens and among 2 queries");
    BAD(attention, query_start, low, XRAY_E_RANGE,
        "row 0 has queries [-1, 1) from position 1 on: they must stand in its "
        "2 tokens and among 2 queries");
    BAD(attention, query_first, under, XRAY_E_RANGE,
        "row 0 has queries [0, 1) from position -1 on: they must stand in its "
        "2 tokens and among 2 queries");
    BAD(attention, query_first, later, XRAY_E_RANGE,
        "row 1 has queries [1, 2) from position 1 on: they must stand in its 1 "
        "tokens and among 2 queries");
    BAD(attention, queries.bound, 1, XRAY_E_RANGE,
        "row 1 has queries [1, 2) from position 0 on: they must stand in its 1 "
        "tokens and among 1 queries");
}

static void attention_over_rows_refuses_bad_fields(void **state)
{
    (void)state;
    static const int32_t start[] = { 0, 2, 3 };
    static const int32_t back[] = { 2, 1, 3 };
    static const int32_t low[] = { -1, 2, 3 };
    static const int32_t past[] = { 0, 2, 4 };
    static const int32_t parents[] = { -1, 0 };
    static const int32_t later[] = { 1, -1 };
    static const int32_t none[] = { -1, 5 };
    const xray_attention attention = { .header = XRAY_HEADER(xray_attention),
                                       .tokens = { .bound = 3 },
                                       .row_start = start,
                                       .rows = 2,
                                       .row_bound = 2,
                                       .q = a,
                                       .k = b,
                                       .v = c,
                                       .o = e,
                                       .lse = w,
                                       .q_stride = 8,
                                       .k_stride = 4,
                                       .v_stride = 4,
                                       .o_stride = 8,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 4,
                                       .scale = 1 };
    BARE(attention);
    attention_refuses_bad_queries(attention);
    BAD(attention, q_stride, 7, XRAY_E_ARG, "a stride is shorter than a token");
    BAD(attention, k_stride, 3, XRAY_E_ARG, "a stride is shorter than a token");
    BAD(attention, v_stride, 3, XRAY_E_ARG, "a stride is shorter than a token");
    BAD(attention, o_stride, 7, XRAY_E_ARG, "a stride is shorter than a token");
    BAD(attention, row_bound, 1, XRAY_E_RANGE,
        "row 0 is tokens [0, 2): no row is longer than 1 or ends past 3");
    BAD(attention, row_start, back, XRAY_E_RANGE,
        "row 0 is tokens [2, 1): no row is longer than 2 or ends past 3");
    BAD(attention, row_start, low, XRAY_E_RANGE,
        "row 0 is tokens [-1, 2): no row is longer than 2 or ends past 3");
    BAD(attention, row_start, past, XRAY_E_RANGE,
        "row 1 is tokens [2, 4): no row is longer than 2 or ends past 3");
    BAD(attention, parent, parents, XRAY_E_RANGE,
        "row 1 is tokens [2, 3): no row is longer than 2 or ends past 3");
    BAD(attention, parent, later, XRAY_E_ARG,
        "row 0 continues row 1, expected -1 or -1, the last row before it "
        "that has no parent");
    BAD(attention, parent, none, XRAY_E_ARG,
        "row 1 continues row 5, expected -1 or 0, the last row before it "
        "that has no parent");
    xray_attention joined = attention;
    joined.parent = parents;
    joined.row_bound = 3;
    must(ops->attention(cpu.self, NULL, &joined));
    static float dq[32], dk[32], dv[32];
    const xray_attention_grad attention_grad = { .header = XRAY_HEADER(
                                                     xray_attention_grad),
                                                 .forward = &attention,
                                                 .d_o = e,
                                                 .dq = dq,
                                                 .dk = dk,
                                                 .dv = dv,
                                                 .dq_stride = 8,
                                                 .dk_stride = 4,
                                                 .dv_stride = 4 };
    BARE(attention_grad);
    BAD(attention_grad, dq_stride, 7, XRAY_E_ARG,
        "a stride is shorter than a token");
    BAD(attention_grad, dk_stride, 3, XRAY_E_ARG,
        "a stride is shorter than a token");
    BAD(attention_grad, dv_stride, 3, XRAY_E_ARG,
        "a stride is shorter than a token");
    xray_attention forgot = attention;
    forgot.lse = NULL;
    BAD(attention_grad, forward, &forgot, XRAY_E_ARG,
        "required pointer 6 of f->row_start, f->q, f->k, f->v, f->o, f->lse is "
        "NULL");
}

static void attention_over_a_cache_refuses_bad_fields(void **state)
{
    (void)state;
    static float blocks[2 * 16 * 4];
    static const int32_t first[] = { 0, 1 };
    static const int32_t below[] = { 0, -1 };
    const xray_kv kv = { .header = XRAY_HEADER(xray_kv),
                         .blocks = blocks,
                         .table = ids,
                         .table_stride = 1,
                         .block_tokens = 16,
                         .kv_heads = 1,
                         .head_dim = 4,
                         .dtype = XRAY_F32 };
    const xray_attention_kv attention_kv = { .header =
                                                 XRAY_HEADER(xray_attention_kv),
                                             .tokens = { .bound = 2 },
                                             .kv = &kv,
                                             .seq = ids,
                                             .positions = first,
                                             .q = a,
                                             .k = b,
                                             .v = c,
                                             .o = e,
                                             .q_stride = 8,
                                             .k_stride = 4,
                                             .v_stride = 4,
                                             .o_stride = 8,
                                             .position_bound = 2,
                                             .heads = 2,
                                             .scale = 1 };
    BARE(attention_kv);
    BAD(attention_kv, q_stride, 7, XRAY_E_ARG,
        "a stride is shorter than a token");
    BAD(attention_kv, o_stride, 7, XRAY_E_ARG,
        "a stride is shorter than a token");
    BAD(attention_kv, k_stride, 3, XRAY_E_ARG,
        "a stride is shorter than a token");
    BAD(attention_kv, v_stride, 3, XRAY_E_ARG,
        "a stride is shorter than a token");
    BAD(attention_kv, position_bound, 1, XRAY_E_RANGE,
        "token 1 has sequence 0 and position 1 of 1, which is not in range");
    BAD(attention_kv, seq, below, XRAY_E_RANGE,
        "token 1 has sequence -1 and position 1 of 2, which is not in range");
    BAD(attention_kv, positions, below, XRAY_E_RANGE,
        "token 1 has sequence 0 and position -1 of 2, which is not in range");
    assert_int_equal(ops->kv_block_bytes(cpu.self, &kv), 2 * 16 * 4 * 4);
    for (int i = 0; i < 3; i++) {
        xray_kv odd = kv;
        odd.dtype = i == 0 ? XRAY_F16 : XRAY_F32;
        odd.block_tokens = i == 1 ? 0 : i == 2 ? 24 : 16;
        BAD(attention_kv, kv, &odd, XRAY_E_UNSUPPORTED,
            "blocks must hold F32 or BF16 and a multiple of 16 positions");
        if (i != 1)
            assert_int_equal(ops->kv_block_bytes(cpu.self, &odd), 0);
    }
    xray_kv bare = kv;
    bare.blocks = NULL;
    BAD(attention_kv, kv, &bare, XRAY_E_ARG,
        "required pointer 1 of op->kv->blocks is NULL");
    bare = kv;
    bare.header.size = 8;
    BAD(attention_kv, kv, &bare, XRAY_E_ABI, "argument struct is too short");
    xray_kv narrow = kv;
    narrow.dtype = XRAY_BF16;
    assert_int_equal(ops->kv_block_bytes(cpu.self, &narrow), 2 * 16 * 4 * 2);
    BAD(attention_kv, kv, &narrow, XRAY_E_UNSUPPORTED,
        "a cache of BF16 would round keys and values of F32; they must be "
        "BF16, too");
    BAD(attention_kv, dtype, XRAY_F16, XRAY_E_UNSUPPORTED,
        "q has element type 3, but must be F32 or BF16");
}

#define LOGP_NEEDS                                             \
    "op->weight, op->kept ? op->logits : op->x, op->targets, " \
    "op->partial ? op->partial : op->logp"

#define BAD_SEGMENT(op, call, vocab)                                 \
    (call).segment = 1;                                              \
    assert_refused(ops->op(cpu.self, NULL, &call), XRAY_E_ARG,       \
                   #op ": segment is 1, but a vocabulary of " #vocab \
                       " must have at most 8 segments",              \
                   #op)

static void the_lm_head_refuses_bad_fields(void **state)
{
    (void)state;
    static const int32_t targets[] = { 0, 3 };
    static const int32_t below[] = { -1, 0 };
    static const float cold[] = { 1, 0 };
    xray_weight *weight = create_weight_on(ops, cpu.self, w, 4, 8);
    static float lse[16], logp[16], entropy[16];
    const xray_lm_head_logp lm_head_logp = { .header =
                                                 XRAY_HEADER(xray_lm_head_logp),
                                             .items = { .bound = 2 },
                                             .weight = weight,
                                             .x = a,
                                             .targets = targets,
                                             .logp = logp,
                                             .entropy = entropy,
                                             .lse = lse };
    BARE(lm_head_logp);
    BAD(lm_head_logp, targets, below, XRAY_E_RANGE,
        "target -1 of item 0 is not in [0, 4)");
    BAD(lm_head_logp, vocab_first, 1, XRAY_E_RANGE,
        "target 0 of item 0 is not in [1, 5)");
    xray_lm_head_logp part =
        lm_head_logp; /* of a vocabulary that several ranks share */
    part.partial = a + 64;
    part.vocab_first = 2;
    must(ops->lm_head_logp(cpu.self, NULL, &part));
    part.targets = below;
    assert_refused(ops->lm_head_logp(cpu.self, NULL, &part), XRAY_E_RANGE,
                   "lm_head_logp: target -1 of item 0 is not in [2, 6)",
                   "lm_head_logp");
    NONE(lm_head_logp, x, 2, LOGP_NEEDS);
    BAD(lm_head_logp, kept, 1, XRAY_E_ARG,
        "required pointer 2 of " LOGP_NEEDS " is NULL");
    xray_lm_head_logp wide = lm_head_logp;
    xray_weight *tall = create_weight_on(ops, cpu.self, w, 16, 4);
    wide.weight = tall;
    BAD_SEGMENT(lm_head_logp, wide, 16);
    ops->weight_destroy(cpu.self, tall);
    BAD(lm_head_logp, temperature, cold, XRAY_E_RANGE,
        "temperature 0 of item 1 is not above 0");
    const xray_lm_head_grad lm_head_grad = { .header =
                                                 XRAY_HEADER(xray_lm_head_grad),
                                             .forward = &lm_head_logp,
                                             .dlogp = e,
                                             .dentropy = e,
                                             .dx = c };
    BARE(lm_head_grad);
    xray_lm_head_logp plain = lm_head_logp;
    plain.entropy = NULL;
    BAD(lm_head_grad, forward, &plain, XRAY_E_ARG,
        "dentropy is given, but the forward call did not keep entropy");
    plain = lm_head_logp;
    plain.targets = below;
    BAD(lm_head_grad, forward, &plain, XRAY_E_RANGE,
        "target -1 of item 0 is not in [0, 4)");
    ops->weight_destroy(cpu.self, weight);
}

static void the_sampler_refuses_bad_draws(void **state)
{
    (void)state;
    xray_weight *weight = create_weight_on(ops, cpu.self, w, 4, 8);
    static int32_t token[2];
    static float raw[2], logp[2];
    static const struct {
        float temperature;
        float top_p;
        float min_p;
        int32_t top_k;
        const char *says; /* NULL: the draw is valid */
    } cases[] = {
        { 0, 0, 1, 0, NULL },
        { -1, 1, 0, 0,
          "item 1 has a draw out of range: temperature -1, top_p 1, min_p 0, "
          "top_k 0" },
        { 1, -0.5f, 0, 0,
          "item 1 has a draw out of range: temperature 1, top_p -0.5, min_p 0, "
          "top_k 0" },
        { 1, 1, 1.5f, 0,
          "item 1 has a draw out of range: temperature 1, top_p 1, min_p 1.5, "
          "top_k 0" },
        { 1, 1, 0, -1,
          "item 1 has a draw out of range: temperature 1, top_p 1, min_p 0, "
          "top_k -1" },
        { NAN, 1, 0, 0,
          "item 1 has a draw out of range: temperature nan, top_p 1, min_p 0, "
          "top_k 0" },
        { 1, NAN, 0, 0,
          "item 1 has a draw out of range: temperature 1, top_p nan, min_p 0, "
          "top_k 0" },
        { 1, 1, NAN, 0,
          "item 1 has a draw out of range: temperature 1, top_p 1, min_p nan, "
          "top_k 0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const xray_draw draws[2] = { { .temperature = 1, .top_p = 1 },
                                     { .temperature = cases[i].temperature,
                                       .top_p = cases[i].top_p,
                                       .min_p = cases[i].min_p,
                                       .top_k = cases[i].top_k } };
        const xray_sample sample = { .header = XRAY_HEADER(xray_sample),
                                     .items = { .bound = 2 },
                                     .weight = weight,
                                     .x = a,
                                     .draws = draws,
                                     .token = token,
                                     .raw_logp = raw,
                                     .logp = logp,
                                     .draw_stride = sizeof(xray_draw) };
        char says[160];
        (void)snprintf(says, sizeof says, "sample: %s",
                       cases[i].says ? cases[i].says : "");
        assert_refused(ops->sample(cpu.self, NULL, &sample),
                       cases[i].says ? XRAY_E_RANGE : XRAY_OK, says, says);
        if (i == 0)
            BAD(sample, draw_stride, sizeof(xray_draw) - 1, XRAY_E_ARG,
                "draw_stride is 31, which does not fit an array of draws");
    }
    ops->weight_destroy(cpu.self, weight);
}

#define ONE_SOURCE                                                            \
    "either a weight and x or logits, and with logits perhaps changed ones, " \
    "must be given"

static void a_draw_needs_one_source_of_logits(void **state)
{
    (void)state;
    xray_weight *weight = create_weight_on(ops, cpu.self, w, 4, 8);
    const xray_draw draws[2] = { { .top_p = 1 }, { .top_p = 1 } };
    const xray_sample sample = { .header = XRAY_HEADER(xray_sample),
                                 .items = { .bound = 2 },
                                 .draws = draws,
                                 .token = ids,
                                 .raw_logp = b,
                                 .logp = c,
                                 .logits = a,
                                 .logits_stride = 5,
                                 .vocab = 4,
                                 .draw_stride = sizeof(xray_draw) };
    BARE(sample);
    FINE(sample, changed, e);
    xray_sample wide = sample;
    wide.vocab = wide.logits_stride = 9;
    BAD_SEGMENT(sample, wide, 9);
    NONE(sample, draws, 1, "op->draws, op->token, op->raw_logp, op->logp");
    BAD(sample, logits, NULL, XRAY_E_ARG, ONE_SOURCE);
    BAD(sample, weight, weight, XRAY_E_ARG, ONE_SOURCE);
    BAD(sample, vocab, 6, XRAY_E_ARG,
        "a vocabulary of 6 must have 1 to 2147483647 ids and fit a stride of "
        "5");
    xray_sample fused = sample;
    fused.logits = NULL;
    fused.weight = weight;
    fused.x = a;
    must(ops->sample(cpu.self, NULL, &fused));
    fused.changed = e;
    assert_refused(ops->sample(cpu.self, NULL, &fused), XRAY_E_ARG,
                   "sample: " ONE_SOURCE, "sample");
    fused.changed = NULL;
    fused.x = NULL;
    assert_refused(ops->sample(cpu.self, NULL, &fused), XRAY_E_ARG,
                   "sample: " ONE_SOURCE, "sample");
    ops->weight_destroy(cpu.self, weight);
}

static void edits_of_logits_refuse_bad_fields(void **state)
{
    (void)state;
    static const int32_t start[] = { 0, 1, 1 };
    static const int32_t falling[] = { 0, 1, 0 };
    static const int32_t below[] = { -1, 1, 1 };
    static const int32_t sets[] = { 0, -1 };
    static const uint32_t allowed[] = { 15 };
    const xray_logit_edit edits[] = { { .id = 3, .add = 1 } };
    const xray_edit_logits edit_logits = { .header =
                                               XRAY_HEADER(xray_edit_logits),
                                           .items = { .bound = 2 },
                                           .logits = a,
                                           .changed = b,
                                           .stride = 4,
                                           .vocab = 4,
                                           .edit_start = start,
                                           .edits = edits,
                                           .allowed = allowed,
                                           .allowed_set = sets,
                                           .edit_stride = sizeof edits[0] };
    static const char pairs[] =
        "edits need edit_start, allowed needs allowed_set, and the other way "
        "round";
    char says[160];
    (void)snprintf(says, sizeof says, "edit_logits: %s", pairs);
    BARE(edit_logits);
    NONE(edit_logits, logits, 1, "op->logits, op->changed");
    NONE(edit_logits, changed, 2, "op->logits, op->changed");
    BAD(edit_logits, vocab, 0, XRAY_E_ARG,
        "a vocabulary of 0 must have 1 to 2147483647 ids and fit a stride of "
        "4");
    BAD(edit_logits, stride, 3, XRAY_E_ARG,
        "a vocabulary of 4 must have 1 to 2147483647 ids and fit a stride of "
        "3");
    BAD(edit_logits, edit_start, falling, XRAY_E_RANGE,
        "item 1 has edits 1 to 0");
    BAD(edit_logits, edit_start, below, XRAY_E_RANGE,
        "item 0 has edits -1 to 1");
    BAD(edit_logits, edit_stride, 8, XRAY_E_ARG,
        "edit_stride is 8, which does not fit an array of edits");
    BAD(edit_logits, edit_stride, 14, XRAY_E_ARG,
        "edit_stride is 14, which does not fit an array of edits");
    for (int i = 0; i < 4; i++) {
        xray_edit_logits half = edit_logits;
        half.edit_start = i == 0 ? NULL : start;
        half.edits = i == 1 ? NULL : edits;
        half.allowed = i == 2 ? NULL : allowed;
        half.allowed_set = i == 3 ? NULL : sets;
        assert_refused(ops->edit_logits(cpu.self, NULL, &half), XRAY_E_ARG,
                       says, "edit_logits");
    }
}

static void log_probabilities_of_ids_refuse_bad_fields(void **state)
{
    (void)state;
    const xray_pick_logp pick_logp = { .header = XRAY_HEADER(xray_pick_logp),
                                       .items = { .bound = 2 },
                                       .logits = a,
                                       .stride = 4,
                                       .vocab = 4,
                                       .ids = ids,
                                       .logp = b,
                                       .count = 4 };
    BARE(pick_logp);
    NONE(pick_logp, ids, 2, "op->logits, op->ids, op->logp");
    BAD(pick_logp, vocab, (uint64_t)INT32_MAX + 1, XRAY_E_ARG,
        "a vocabulary of 2147483648 must have 1 to 2147483647 ids and fit a "
        "stride of 4");
    BAD(pick_logp, count, 0, XRAY_E_ARG,
        "count is 0, not 1 to the vocabulary's 4");
    BAD(pick_logp, count, 5, XRAY_E_ARG,
        "count is 5, not 1 to the vocabulary's 4");
    xray_pick_logp wide = pick_logp;
    wide.vocab = wide.stride = 9;
    wide.segment = 2;
    must(ops->pick_logp(cpu.self, NULL, &wide));
    BAD_SEGMENT(pick_logp, wide, 9);
    xray_pick_logp given = pick_logp;
    given.given = 1;
    given.count = 5;
    must(ops->pick_logp(cpu.self, NULL, &given));
    const xray_lm_head_join lm_head_join = { .header =
                                                 XRAY_HEADER(xray_lm_head_join),
                                             .items = { .bound = 2 },
                                             .partials = a,
                                             .slice_stride = 8,
                                             .logp = b,
                                             .slices = 2 };
    BARE(lm_head_join);
    NONE(lm_head_join, partials, 1, "op->partials, op->logp");
    NONE(lm_head_join, logp, 2, "op->partials, op->logp");
    BAD(lm_head_join, slices, 0, XRAY_E_ARG,
        "0 slices of 2 items do not fit stride 8");
    BAD(lm_head_join, slice_stride, 7, XRAY_E_ARG,
        "2 slices of 2 items do not fit stride 7");
}

static void advance_refuses_bad_fields(void **state)
{
    (void)state;
    static const int32_t tokens[] = { 1, 2 };
    static const int32_t starts[] = { 0, 1, 2 };
    static int32_t some[2], positions[2], stop[2];
    static xray_draw draws[2];
    const xray_advance advance = { .header = XRAY_HEADER(xray_advance),
                                   .items = { .bound = 2 },
                                   .token = tokens,
                                   .ids = some,
                                   .positions = positions,
                                   .draws = draws,
                                   .stop = stop,
                                   .limit = tokens,
                                   .draw_stride = sizeof(xray_draw) };
    BARE(advance);
#define LIST "op->token, op->ids, op->positions, op->draws, op->stop, op->limit"
    NONE(advance, token, 1, LIST);
    NONE(advance, draws, 4, LIST);
    NONE(advance, limit, 6, LIST);
    BAD(advance, stop_start, starts, XRAY_E_ARG,
        "stop_start needs stop_ids, and the other way round");
    BAD(advance, stop_ids, tokens, XRAY_E_ARG,
        "stop_start needs stop_ids, and the other way round");
    BAD(advance, draw_stride, sizeof(xray_draw) - 8, XRAY_E_ARG,
        "draw_stride is 24, which does not fit an array of draws");
    BAD(advance, draw_stride, sizeof(xray_draw) + 4, XRAY_E_ARG,
        "draw_stride is 36, which does not fit an array of draws");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_over_rows_refuses_bad_fields),
        cmocka_unit_test(attention_over_a_cache_refuses_bad_fields),
        cmocka_unit_test(the_lm_head_refuses_bad_fields),
        cmocka_unit_test(the_sampler_refuses_bad_draws),
        cmocka_unit_test(a_draw_needs_one_source_of_logits),
        cmocka_unit_test(edits_of_logits_refuse_bad_fields),
        cmocka_unit_test(log_probabilities_of_ids_refuse_bad_fields),
        cmocka_unit_test(advance_refuses_bad_fields),
    };
    return cmocka_run_group_tests_name("device.refused_rows", tests, open_cpu,
                                       close_cpu);
}
