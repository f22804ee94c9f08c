/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the calls of device-cuda refuse each invalid field with the status
 * and the sentence of the CPU, which tests/device pins, and that the valid call
 * succeeds.
 */
#include "tests/cuda/refused.h"

static void rmsnorm_refuses_bad_fields(void **state)
{
    (void)state;
    const xray_rmsnorm rmsnorm = { .header = XRAY_HEADER(xray_rmsnorm),
                                   .tokens = { .bound = 2 },
                                   .x = device_floats(&a),
                                   .weight = device_floats(&w),
                                   .y = device_floats(&b),
                                   .x_stride = 8,
                                   .y_stride = 8,
                                   .groups = 2,
                                   .dim = 4,
                                   .eps = 1e-5f };
    GOOD(rmsnorm);
    NEEDS3(rmsnorm, x, weight, y);
    BAD(rmsnorm, x_stride, 7, XRAY_E_ARG);
    BAD(rmsnorm, y_stride, 7, XRAY_E_ARG);
    BAD(rmsnorm, groups, 0, XRAY_E_ARG);
    BAD(rmsnorm, dim, 0, XRAY_E_ARG);
    BAD(rmsnorm, residual, device_floats(&e), XRAY_E_ARG);
    BAD(rmsnorm, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    BAD(rmsnorm, y_dtype, 4, XRAY_E_UNSUPPORTED);
    BAD(rmsnorm, residual_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    const xray_rmsnorm_grad rmsnorm_grad = { .header =
                                                 XRAY_HEADER(xray_rmsnorm_grad),
                                             .tokens = { .bound = 2 },
                                             .x = device_floats(&a),
                                             .weight = device_floats(&w),
                                             .rstd = device_floats(&e),
                                             .dy = device_floats(&b),
                                             .dx = device_floats(&c),
                                             .x_stride = 8,
                                             .dy_stride = 8,
                                             .dx_stride = 8,
                                             .groups = 2,
                                             .dim = 4 };
    GOOD(rmsnorm_grad);
    NEEDS5(rmsnorm_grad, x, weight, rstd, dy, dx);
    BAD(rmsnorm_grad, x_stride, 7, XRAY_E_ARG);
    BAD(rmsnorm_grad, dy_stride, 7, XRAY_E_ARG);
    BAD(rmsnorm_grad, dx_stride, 7, XRAY_E_ARG);
    BAD(rmsnorm_grad, groups, 0, XRAY_E_ARG);
    BAD(rmsnorm_grad, segments, 3, XRAY_E_ARG);
    BAD(rmsnorm_grad, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
}

static void layernorm_refuses_bad_fields(void **state)
{
    (void)state;
    const xray_layernorm layernorm = { .header = XRAY_HEADER(xray_layernorm),
                                       .tokens = { .bound = 2 },
                                       .x = device_floats(&a),
                                       .weight = device_floats(&w),
                                       .y = device_floats(&b),
                                       .x_stride = 8,
                                       .y_stride = 8,
                                       .dim = 8,
                                       .eps = 1e-5f };
    GOOD(layernorm);
    NEEDS3(layernorm, x, weight, y);
    BAD(layernorm, x_stride, 7, XRAY_E_ARG);
    BAD(layernorm, y_stride, 7, XRAY_E_ARG);
    BAD(layernorm, dim, 0, XRAY_E_ARG);
    BAD(layernorm, y_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    xray_layernorm wider = layernorm;
    wider.y = device_floats(&a);
    wider.x_dtype = XRAY_BF16;
    REFUSED(&both, layernorm, &wider, XRAY_E_ARG);
    const xray_layernorm_grad layernorm_grad = { .header = XRAY_HEADER(
                                                     xray_layernorm_grad),
                                                 .tokens = { .bound = 2 },
                                                 .x = device_floats(&a),
                                                 .weight = device_floats(&w),
                                                 .stat = device_floats(&e),
                                                 .dy = device_floats(&b),
                                                 .dx = device_floats(&c),
                                                 .x_stride = 8,
                                                 .dy_stride = 8,
                                                 .dx_stride = 8,
                                                 .dim = 8 };
    GOOD(layernorm_grad);
    NEEDS5(layernorm_grad, x, weight, stat, dy, dx);
    BAD(layernorm_grad, x_stride, 7, XRAY_E_ARG);
    BAD(layernorm_grad, dy_stride, 7, XRAY_E_ARG);
    BAD(layernorm_grad, dx_stride, 7, XRAY_E_ARG);
    BAD(layernorm_grad, dim, 0, XRAY_E_ARG);
    BAD(layernorm_grad, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
}

static void rows_refuse_bad_fields(void **state)
{
    (void)state;
    const xray_embedding embedding = { .header = XRAY_HEADER(xray_embedding),
                                       .tokens = { .bound = 2 },
                                       .ids = device_indices(&ids),
                                       .table = device_floats(&a),
                                       .y = device_floats(&b),
                                       .vocab = 6,
                                       .dim = 4,
                                       .scale = 1 };
    GOOD(embedding);
    NEEDS3(embedding, ids, table, y);
    BAD(embedding, table_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    BAD(embedding, slice, 2, XRAY_E_ARG);
    BAD(embedding, y_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    const xray_embedding_grad embedding_grad = { .header = XRAY_HEADER(
                                                     xray_embedding_grad),
                                                 .tokens = { .bound = 2 },
                                                 .ids = device_indices(&ids),
                                                 .dy = device_floats(&b),
                                                 .dtable = device_floats(&c),
                                                 .vocab = 6,
                                                 .dim = 4 };
    GOOD(embedding_grad);
    NEEDS3(embedding_grad, ids, dy, dtable);
    BAD(embedding_grad, slice, 2, XRAY_E_ARG);
    const xray_rope rope = { .header = XRAY_HEADER(xray_rope),
                             .tokens = { .bound = 2 },
                             .x = device_floats(&a),
                             .positions = device_indices(&ids),
                             .table = device_floats(&b),
                             .stride = 8,
                             .heads = 2,
                             .head_dim = 4,
                             .half = 2 };
    GOOD(rope);
    NEEDS3(rope, x, positions, table);
    BAD(rope, half, 3, XRAY_E_ARG);
    BAD(rope, stride, 7, XRAY_E_ARG);
    BAD(rope, dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    static const double slow[] = { 1, 0x1p26 };
    static const double fast[] = { 1, 0x1p27 };
    static const double less[] = { 0, -1 };
    const xray_rope_table rope_table = { .header = XRAY_HEADER(xray_rope_table),
                                         .inv_freq = slow,
                                         .table = device_floats(&a),
                                         .positions = 8,
                                         .half = 2,
                                         .scale = 1 };
    GOOD(rope_table);
    NEEDS2(rope_table, inv_freq, table);
    BAD(rope_table, inv_freq, fast, XRAY_E_RANGE);
    BAD(rope_table, inv_freq, less, XRAY_E_RANGE);
}

static void activations_refuse_bad_fields(void **state)
{
    (void)state;
    const xray_glu glu = { .header = XRAY_HEADER(xray_glu),
                           .tokens = { .bound = 2 },
                           .x = device_floats(&a),
                           .y = device_floats(&b),
                           .dim = 4,
                           .act = XRAY_ACT_SILU };
    GOOD(glu);
    NEEDS2(glu, x, y);
    BAD(glu, plain, 2, XRAY_E_ARG);
    BAD(glu, act, 99, XRAY_E_UNSUPPORTED);
    BAD(glu, dim, 0, XRAY_E_ARG);
    BAD(glu, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    const xray_glu_grad glu_grad = { .header = XRAY_HEADER(xray_glu_grad),
                                     .tokens = { .bound = 2 },
                                     .x = device_floats(&a),
                                     .dy = device_floats(&b),
                                     .dx = device_floats(&c),
                                     .dim = 4,
                                     .act = XRAY_ACT_SILU };
    GOOD(glu_grad);
    NEEDS3(glu_grad, x, dy, dx);
    BAD(glu_grad, plain, 2, XRAY_E_ARG);
    BAD(glu_grad, act, 99, XRAY_E_UNSUPPORTED);
    BAD(glu_grad, dim, 0, XRAY_E_ARG);
    xray_glu_grad narrow = glu_grad;
    narrow.x = narrow.dx;
    narrow.x_dtype = XRAY_BF16;
    REFUSED(&both, glu_grad, &narrow, XRAY_E_ARG);
}

static void elementwise_calls_refuse_bad_fields(void **state)
{
    (void)state;
    const xray_cast cast = { .header = XRAY_HEADER(xray_cast),
                             .count = 8,
                             .x = device_floats(&a),
                             .y = device_floats(&b),
                             .x_dtype = XRAY_F32,
                             .y_dtype = XRAY_BF16 };
    GOOD(cast);
    NEEDS2(cast, x, y);
    BAD(cast, y_dtype, 0, XRAY_E_UNSUPPORTED);
    BAD(cast, y_dtype, XRAY_F16 + 1, XRAY_E_UNSUPPORTED);
    BAD(cast, x_dtype, 4, XRAY_E_UNSUPPORTED);
    BAD(cast, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    BAD(cast, rows, 2, XRAY_E_ARG); /* with strides of 0 */
    const xray_axpby axpby = { .header = XRAY_HEADER(xray_axpby),
                               .count = 8,
                               .x = device_floats(&a),
                               .y = device_floats(&b) };
    GOOD(axpby);
    NEEDS1(axpby, y);
    BAD(axpby, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    BAD(axpby, y_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    const xray_sumsq sumsq = { .header = XRAY_HEADER(xray_sumsq),
                               .count = 8,
                               .x = device_floats(&a),
                               .result = (void *)device_floats(&c) };
    GOOD(sumsq);
    NEEDS2(sumsq, x, result);
    const xray_adamw adamw = { .header = XRAY_HEADER(xray_adamw),
                               .count = 8,
                               .p = device_floats(&a),
                               .g = device_floats(&b),
                               .m = device_floats(&c),
                               .v = device_floats(&e),
                               .out = device_floats(&w),
                               .scalars = device_floats(&w) + 32,
                               .out_dtype = XRAY_F16,
                               .beta1 = 0.9f,
                               .beta2 = 0.99f,
                               .eps = 1e-8f };
    GOOD(adamw);
    NEEDS5(adamw, p, g, m, v, scalars);
    BAD(adamw, out_dtype, 0, XRAY_E_UNSUPPORTED);
    BAD(adamw, out_dtype, XRAY_F16 + 1, XRAY_E_UNSUPPORTED);
}

/* A weight handle of each device; a call uses one of them. */
typedef struct handles {
    xray_weight *of[2];
} handles;

static handles create_weights(uint32_t uses)
{
    handles h;
    for (int s = 0; s < 2; s++) {
        const xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                        .data = w.p[s],
                                        .rows = 4,
                                        .cols = 8,
                                        .dtype = XRAY_F32,
                                        .uses = uses };
        must(both.d[s].ops->weight_create(both.d[s].self, &desc, &h.of[s]));
    }
    return h;
}

static void destroy_weights(const handles *h)
{
    for (int s = 0; s < 2; s++)
        both.d[s].ops->weight_destroy(both.d[s].self, h->of[s]);
}

static void products_refuse_bad_fields(void **state)
{
    (void)state;
    handles h = create_weights(XRAY_USE_NT | XRAY_USE_NN);
    const xray_matmul matmul = { .header = XRAY_HEADER(xray_matmul),
                                 .weight = h.of[CUDA],
                                 .tokens = { .bound = 2 },
                                 .x = device_floats(&a),
                                 .y = device_floats(&b),
                                 .x_stride = 8,
                                 .y_stride = 8,
                                 .kind = XRAY_NT };
    GOOD(matmul);
    NEEDS3(matmul, weight, x, y);
    BAD(matmul, kind, 99, XRAY_E_ARG);
    BAD(matmul, act, 99, XRAY_E_UNSUPPORTED);
    BAD(matmul, plain, 1, XRAY_E_ARG);
    BAD(matmul, segments, 3, XRAY_E_ARG);
    BAD(matmul, segments, 16, XRAY_E_ARG);
    BAD(matmul, part[1], 1, XRAY_E_ARG);
    BAD(matmul, part[2], 99, XRAY_E_ARG);
    BAD(matmul, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    BAD(matmul, y_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    BAD(matmul, residual_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    xray_matmul two = matmul;
    two.residual = device_floats(&c);
    two.residual_stride = 3;
    REFUSED(&both, matmul, &two, XRAY_E_ARG);
    two.residual_stride = 4;
    two.residual = two.y;
    two.y_dtype = XRAY_BF16;
    REFUSED(&both, matmul, &two, XRAY_E_ARG);
    two.y_dtype = XRAY_F32;
    two.act = XRAY_ACT_SILU;
    REFUSED(&both, matmul, &two, XRAY_E_ARG);
    two.residual = NULL;
    two.plain = 2;
    REFUSED(&both, matmul, &two, XRAY_E_ARG);
    two.plain = 0;
    two.kind = XRAY_NN;
    REFUSED(&both, matmul, &two, XRAY_E_ARG);
    const xray_matmul_grad matmul_grad = { .header =
                                               XRAY_HEADER(xray_matmul_grad),
                                           .tokens = { .bound = 2 },
                                           .dy = device_floats(&a),
                                           .x = device_floats(&b),
                                           .dy_stride = 4,
                                           .x_stride = 8,
                                           .rows = 4,
                                           .cols = 8,
                                           .dw = device_floats(&c) };
    GOOD(matmul_grad);
    NEEDS3(matmul_grad, dy, x, dw);
    BAD(matmul_grad, dy_stride, 3, XRAY_E_ARG);
    BAD(matmul_grad, x_stride, 7, XRAY_E_ARG);
    BAD(matmul_grad, rows, 0, XRAY_E_ARG);
    BAD(matmul_grad, cols, 0, XRAY_E_ARG);
    BAD(matmul_grad, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    destroy_weights(&h);
}

/* Tests the arguments that weight handles refuse on each device. */
static void weights_refuse_bad_shapes_and_types(void **state)
{
    (void)state;
    handles h = create_weights(XRAY_USE_NT);
    for (int s = 0; s < 2; s++) {
        const dev *d = &both.d[s];
        xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                           .weight = h.of[s],
                           .tokens = { .bound = 2 },
                           .x = a.p[s],
                           .y = b.p[s],
                           .x_stride = 8,
                           .y_stride = 4,
                           .kind = XRAY_NT };
        must(d->ops->matmul(d->self, NULL, &op));
        op.x_stride = 7;
        assert_int_equal(d->ops->matmul(d->self, NULL, &op), XRAY_E_ARG);
        assert_string_equal(
            last_failure, "matmul: strides 7 and 4 do not fit rows of 8 and 4");
        op.x_stride = 8;
        op.y_stride = 3;
        assert_int_equal(d->ops->matmul(d->self, NULL, &op), XRAY_E_ARG);
        op.y_stride = 8;
        op.kind = XRAY_NN;
        assert_int_equal(d->ops->matmul(d->self, NULL, &op), XRAY_E_STATE);
        assert_string_equal(last_failure, "matmul: XRAY_NN needs a weight with "
                                          "XRAY_USE_NN among its uses");
    }
    destroy_weights(&h);
    xray_weight *made = NULL;
    const xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                    .data = device_floats(&w),
                                    .rows = 4,
                                    .cols = 8,
                                    .dtype = XRAY_F32,
                                    .uses = XRAY_USE_NT };
    const dev *d = &both.d[CUDA];
    for (int i = 0; i < 10; i++) {
        xray_weight_desc odd = desc;
        odd.rows = i == 0 ? 0 : i == 1 ? UINT64_C(1) << 31 : desc.rows;
        odd.cols = i == 2 ? 0 : i == 3 ? UINT64_C(1) << 31 : desc.cols;
        odd.dtype = i == 4 ? 0 : i == 5 ? XRAY_F16 + 1 : desc.dtype;
        odd.product_dtype = i == 9 ? XRAY_F16 : 0;
        odd.data = i == 6 ? NULL : desc.data;
        odd.uses = i == 7 ? 0 : i == 8 ? 8 : desc.uses;
        assert_int_equal(d->ops->weight_create(d->self, &odd, &made),
                         i < 4             ? XRAY_E_RANGE
                         : i < 6 || i == 9 ? XRAY_E_UNSUPPORTED
                                           : XRAY_E_ARG);
    }
    assert_string_equal(last_failure,
                        "weight_create: product_dtype is 3, but must be 0 or "
                        "XRAY_BF16 (2)");
    assert_null(made);
    assert_int_equal(d->ops->weight_changed(d->self, NULL), XRAY_E_ARG);
    assert_int_equal(d->ops->weight_evict(d->self, NULL), XRAY_E_ARG);
}

static void attention_over_rows_refuses_bad_fields(void **state)
{
    (void)state;
    static const int32_t start[] = { 0, 2, 3 }; /* the CPU reads them */
    const xray_attention attention = { .header = XRAY_HEADER(xray_attention),
                                       .tokens = { .bound = 3 },
                                       .row_start = start,
                                       .rows = 2,
                                       .row_bound = 2,
                                       .q = device_floats(&a),
                                       .k = device_floats(&b),
                                       .v = device_floats(&c),
                                       .o = device_floats(&e),
                                       .lse = device_floats(&w),
                                       .q_stride = 8,
                                       .k_stride = 4,
                                       .v_stride = 4,
                                       .o_stride = 8,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 4,
                                       .scale = 1 };
    NEEDS5(attention, row_start, q, k, v, o);
    BAD(attention, query_start, attention.row_start, XRAY_E_ARG);
    BAD(attention, q_stride, 7, XRAY_E_ARG);
    BAD(attention, k_stride, 3, XRAY_E_ARG);
    BAD(attention, v_stride, 3, XRAY_E_ARG);
    BAD(attention, o_stride, 7, XRAY_E_ARG);
    BAD(attention, heads, 0, XRAY_E_ARG);
    BAD(attention, kv_heads, 0, XRAY_E_ARG);
    BAD(attention, head_dim, 0, XRAY_E_ARG);
    BAD(attention, kv_heads, 3, XRAY_E_ARG);
    const xray_attention_grad attention_grad = { .header = XRAY_HEADER(
                                                     xray_attention_grad),
                                                 .forward = &attention,
                                                 .d_o = device_floats(&e),
                                                 .dq = device_floats(&a) + 128,
                                                 .dk = device_floats(&b) + 128,
                                                 .dv = device_floats(&c) + 128,
                                                 .dq_stride = 8,
                                                 .dk_stride = 4,
                                                 .dv_stride = 4 };
    NEEDS5(attention_grad, forward, d_o, dq, dk, dv);
    BAD(attention_grad, dq_stride, 7, XRAY_E_ARG);
    BAD(attention_grad, dk_stride, 3, XRAY_E_ARG);
    BAD(attention_grad, dv_stride, 3, XRAY_E_ARG);
    xray_attention forgot = attention;
    forgot.lse = NULL;
    const xray_attention_grad kept = { .header =
                                           XRAY_HEADER(xray_attention_grad),
                                       .forward = &forgot,
                                       .d_o = device_floats(&e),
                                       .dq = device_floats(&a),
                                       .dk = device_floats(&b),
                                       .dv = device_floats(&c) };
    const dev *d = &both.d[CUDA];
    assert_int_equal(d->ops->attention_grad(d->self, NULL, &kept), XRAY_E_ARG);
    xray_attention some = attention;
    some.query_start = some.query_first = some.parent = some.row_start;
    assert_int_equal(d->ops->attention(d->self, NULL, &some), XRAY_E_ARG);
    assert_string_equal(
        last_failure,
        "attention: query_start and parent are both given, but only rows "
        "without a parent may have fewer queries than keys");
    some.parent = NULL;
    some.queries.bound = 0x7fffffffu;
    assert_int_equal(d->ops->attention(d->self, NULL, &some), XRAY_E_RANGE);
    xray_attention wide = attention;
    wide.head_dim = 257;
    wide.q_stride = wide.o_stride = 514;
    wide.k_stride = wide.v_stride = 257;
    assert_int_equal(d->ops->attention(d->self, NULL, &wide),
                     XRAY_E_UNSUPPORTED);
    assert_string_equal(
        last_failure,
        "attention: heads of dimension 257: at most 256 are supported");
}

static void attention_over_a_cache_refuses_bad_fields(void **state)
{
    (void)state;
    static const int32_t first[] = { 0, 1 };
    static const int32_t seq[] = { 0, 0 };
    const xray_kv kv = { .header = XRAY_HEADER(xray_kv),
                         .blocks = device_floats(&w),
                         .table_stride = 1,
                         .block_tokens = 16,
                         .kv_heads = 1,
                         .head_dim = 4,
                         .dtype = XRAY_F32 };
    const xray_attention_kv attention_kv = { .header =
                                                 XRAY_HEADER(xray_attention_kv),
                                             .tokens = { .bound = 2 },
                                             .kv = &kv,
                                             .seq = seq,
                                             .positions = first,
                                             .q = device_floats(&a),
                                             .k = device_floats(&b),
                                             .v = device_floats(&c),
                                             .o = device_floats(&e),
                                             .q_stride = 8,
                                             .k_stride = 4,
                                             .v_stride = 4,
                                             .o_stride = 8,
                                             .position_bound = 2,
                                             .heads = 2,
                                             .scale = 1 };
    NEEDS7(attention_kv, kv, seq, positions, q, k, v, o);
    BAD(attention_kv, q_stride, 7, XRAY_E_ARG);
    BAD(attention_kv, k_stride, 3, XRAY_E_ARG);
    BAD(attention_kv, v_stride, 3, XRAY_E_ARG);
    BAD(attention_kv, o_stride, 7, XRAY_E_ARG);
    BAD(attention_kv, heads, 0, XRAY_E_ARG);
    BAD(attention_kv, dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    xray_kv rounds = kv;
    rounds.dtype = XRAY_BF16;
    BAD(attention_kv, kv, &rounds, XRAY_E_UNSUPPORTED);
    const dev *d = &both.d[CUDA];
    assert_int_equal(d->ops->kv_block_bytes(d->self, &kv), 2 * 16 * 4 * 4);
    for (int i = 0; i < 4; i++) {
        xray_kv odd = kv;
        odd.dtype = i == 0 ? XRAY_F16 : XRAY_F32;
        odd.block_tokens = i == 1 ? 0 : i == 2 ? 24 : 16;
        odd.head_dim = i == 3 ? 257 : 4;
        assert_int_equal(d->ops->kv_block_bytes(d->self, &odd), 0);
        assert_string_equal(
            last_failure,
            "kv_block_bytes: blocks must hold F32 or BF16, a multiple of 16 "
            "positions, and heads of dimension 256 at most");
    }
    assert_int_equal(d->ops->kv_block_bytes(d->self, NULL), 0);
    xray_attention_kv far = attention_kv;
    far.position_bound = UINT64_C(1) << 31;
    assert_int_equal(d->ops->attention_kv(d->self, NULL, &far), XRAY_E_RANGE);
    assert_string_equal(last_failure,
                        "attention_kv: 2 tokens at up to 2147483648 positions "
                        "are too many for a call");
}

static void the_lm_head_refuses_bad_fields(void **state)
{
    (void)state;
    handles h = create_weights(XRAY_USE_NT | XRAY_USE_NN);
    static const int32_t targets[] = { 0, 3 };
    const xray_lm_head_logp lm_head_logp = { .header =
                                                 XRAY_HEADER(xray_lm_head_logp),
                                             .items = { .bound = 2 },
                                             .weight = h.of[CUDA],
                                             .x = device_floats(&a),
                                             .targets = targets,
                                             .logp = device_floats(&b),
                                             .lse = device_floats(&c) };
    NEEDS4(lm_head_logp, weight, x, targets, logp);
    BAD(lm_head_logp, kept, 1, XRAY_E_ARG);
    BAD(lm_head_logp, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    const xray_lm_head_grad lm_head_grad = { .header =
                                                 XRAY_HEADER(xray_lm_head_grad),
                                             .forward = &lm_head_logp,
                                             .dlogp = device_floats(&e),
                                             .dentropy = device_floats(&e),
                                             .dx = device_floats(&c) };
    REFUSED(&both, lm_head_grad, &lm_head_grad, XRAY_E_ARG);
    NEEDS3(lm_head_grad, forward, dlogp, dx);
    const xray_sample sample = {
        .header = XRAY_HEADER(xray_sample),
        .items = { .bound = 2 },
        .weight = h.of[CUDA],
        .x = device_floats(&a),
        .draws = (const xray_draw *)(void *)device_floats(&b),
        .token = (int32_t *)(void *)device_floats(&c),
        .raw_logp = device_floats(&e),
        .logp = device_floats(&e),
        .draw_stride = sizeof(xray_draw)
    };
    NEEDS4(sample, draws, token, raw_logp, logp);
    BAD(sample, draw_stride, sizeof(xray_draw) - 8, XRAY_E_ARG);
    xray_sample odd = sample;
    odd.draw_stride = sizeof(xray_draw) + 4;
    const dev *d = &both.d[CUDA];
    assert_int_equal(d->ops->sample(d->self, NULL, &odd), XRAY_E_ARG);
    assert_string_equal(
        last_failure,
        "sample: draw_stride is 36, which does not fit an array of draws");
    BAD(sample, logits, device_floats(&a), XRAY_E_ARG);
    BAD(sample, weight, NULL, XRAY_E_ARG);
    BAD(sample, x, NULL, XRAY_E_ARG);
    BAD(sample, changed, device_floats(&a), XRAY_E_ARG);
    BAD(sample, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED);
    destroy_weights(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_refuses_bad_fields),
        cmocka_unit_test(layernorm_refuses_bad_fields),
        cmocka_unit_test(rows_refuse_bad_fields),
        cmocka_unit_test(activations_refuse_bad_fields),
        cmocka_unit_test(elementwise_calls_refuse_bad_fields),
        cmocka_unit_test(products_refuse_bad_fields),
        cmocka_unit_test(weights_refuse_bad_shapes_and_types),
        cmocka_unit_test(attention_over_rows_refuses_bad_fields),
        cmocka_unit_test(attention_over_a_cache_refuses_bad_fields),
        cmocka_unit_test(the_lm_head_refuses_bad_fields),
    };
    return cmocka_run_group_tests_name("cuda.refused", tests, open_both,
                                       close_both);
}
