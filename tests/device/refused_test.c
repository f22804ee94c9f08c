/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the calls of the cpu device refuse each invalid field with the
 * right status and sentence, and accept the value at the bound.
 */
#include "tests/device/refused.h"

static void rmsnorm_refuses_bad_fields(void **state)
{
    (void)state;
    const xray_rmsnorm rmsnorm = { .header = XRAY_HEADER(xray_rmsnorm),
                                   .tokens = { .bound = 2 },
                                   .x = a,
                                   .weight = w,
                                   .y = b,
                                   .x_stride = 8,
                                   .y_stride = 8,
                                   .groups = 2,
                                   .dim = 4,
                                   .eps = 1e-5f };
    BARE(rmsnorm);
    NONE(rmsnorm, x, 1, "op->x, op->weight, op->y");
    NONE(rmsnorm, weight, 2, "op->x, op->weight, op->y");
    NONE(rmsnorm, y, 3, "op->x, op->weight, op->y");
    BAD(rmsnorm, x_stride, 7, XRAY_E_ARG,
        "2 groups of 4 do not fit strides 7 and 8");
    BAD(rmsnorm, y_stride, 7, XRAY_E_ARG,
        "2 groups of 4 do not fit strides 8 and 7");
    BAD(rmsnorm, groups, 0, XRAY_E_ARG,
        "0 groups of 4 do not fit strides 8 and 8");
    BAD(rmsnorm, dim, 0, XRAY_E_ARG,
        "2 groups of 0 do not fit strides 8 and 8");
    BAD(rmsnorm, residual, e, XRAY_E_ARG, "residual needs groups = 1, not 2");
    const xray_rmsnorm_grad rmsnorm_grad = { .header =
                                                 XRAY_HEADER(xray_rmsnorm_grad),
                                             .tokens = { .bound = 2 },
                                             .x = a,
                                             .weight = w,
                                             .rstd = e,
                                             .dy = b,
                                             .dx = c,
                                             .x_stride = 8,
                                             .dy_stride = 8,
                                             .dx_stride = 8,
                                             .groups = 2,
                                             .dim = 4 };
#define LIST "op->x, op->weight, op->rstd, op->dy, op->dx"
    BARE(rmsnorm_grad);
    NONE(rmsnorm_grad, rstd, 3, LIST);
    NONE(rmsnorm_grad, dx, 5, LIST);
    BAD(rmsnorm_grad, x_stride, 7, XRAY_E_ARG,
        "2 groups of 4 do not fit strides 7, 8 and 8");
    BAD(rmsnorm_grad, dy_stride, 7, XRAY_E_ARG,
        "2 groups of 4 do not fit strides 8, 7 and 8");
    BAD(rmsnorm_grad, dx_stride, 7, XRAY_E_ARG,
        "2 groups of 4 do not fit strides 8, 8 and 7");
    BAD(rmsnorm_grad, groups, 0, XRAY_E_ARG,
        "0 groups of 4 do not fit strides 8, 8 and 8");
    FINE(rmsnorm_grad, segments, 2);
    BAD(rmsnorm_grad, segments, 3, XRAY_E_ARG,
        "3 segments do not divide 2 groups");
#undef LIST
}

static void layernorm_refuses_bad_fields(void **state)
{
    (void)state;
    const xray_layernorm layernorm = { .header = XRAY_HEADER(xray_layernorm),
                                       .tokens = { .bound = 2 },
                                       .x = a,
                                       .weight = w,
                                       .y = b,
                                       .x_stride = 8,
                                       .y_stride = 8,
                                       .dim = 8,
                                       .eps = 1e-5f };
    BARE(layernorm);
    NONE(layernorm, weight, 2, "op->x, op->weight, op->y");
    BAD(layernorm, x_stride, 7, XRAY_E_ARG,
        "dim 8 does not fit strides 7 and 8");
    BAD(layernorm, y_stride, 7, XRAY_E_ARG,
        "dim 8 does not fit strides 8 and 7");
    BAD(layernorm, dim, 0, XRAY_E_ARG, "dim 0 does not fit strides 8 and 8");
    const xray_layernorm_grad layernorm_grad = { .header = XRAY_HEADER(
                                                     xray_layernorm_grad),
                                                 .tokens = { .bound = 2 },
                                                 .x = a,
                                                 .weight = w,
                                                 .stat = e,
                                                 .dy = b,
                                                 .dx = c,
                                                 .x_stride = 8,
                                                 .dy_stride = 8,
                                                 .dx_stride = 8,
                                                 .dim = 8 };
    BARE(layernorm_grad);
    NONE(layernorm_grad, stat, 3,
         "op->x, op->weight, op->stat, op->dy, op->dx");
    BAD(layernorm_grad, x_stride, 7, XRAY_E_ARG,
        "dim 8 does not fit strides 7, 8 and 8");
    BAD(layernorm_grad, dy_stride, 7, XRAY_E_ARG,
        "dim 8 does not fit strides 8, 7 and 8");
    BAD(layernorm_grad, dx_stride, 7, XRAY_E_ARG,
        "dim 8 does not fit strides 8, 8 and 7");
    BAD(layernorm_grad, dim, 0, XRAY_E_ARG,
        "dim 0 does not fit strides 8, 8 and 8");
}

static void rows_refuse_bad_ids_and_types(void **state)
{
    (void)state;
    static const int32_t outside[] = { 3, 5 };
    static const int32_t below[] = { 0, -1 };
    const xray_embedding embedding = { .header = XRAY_HEADER(xray_embedding),
                                       .tokens = { .bound = 2 },
                                       .ids = outside,
                                       .table = a,
                                       .y = b,
                                       .vocab = 6,
                                       .dim = 4,
                                       .scale = 1 };
    BARE(embedding);
    NONE(embedding, ids, 1, "op->ids, op->table, op->y");
    BAD(embedding, vocab, 5, XRAY_E_RANGE, "id 5 of token 1 is not in [0, 5)");
    BAD(embedding, ids, below, XRAY_E_RANGE,
        "id -1 of token 1 is not in [0, 6)");
    BAD(embedding, vocab_first, 6, XRAY_E_RANGE,
        "id 3 of token 0 is not in [6, 12)");
    BAD(embedding, slice, 2, XRAY_E_ARG, "slice is 2, but must be 0 or 1");
    xray_embedding slice = embedding;
    slice.slice = 1;
    slice.vocab_first = 6;
    must(ops->embedding(cpu.self, NULL, &slice));
    slice.ids = below;
    assert_refused(ops->embedding(cpu.self, NULL, &slice), XRAY_E_RANGE,
                   "embedding: id -1 of token 1 is not in [0, 2147483648)",
                   "embedding");
    FINE(embedding, table_dtype, XRAY_BF16);
    BAD(embedding, table_dtype, XRAY_F16, XRAY_E_UNSUPPORTED,
        "table has element type 3, but must be F32 or BF16");
    const xray_embedding_grad embedding_grad = { .header = XRAY_HEADER(
                                                     xray_embedding_grad),
                                                 .tokens = { .bound = 2 },
                                                 .ids = outside,
                                                 .dy = b,
                                                 .dtable = a,
                                                 .vocab = 6,
                                                 .dim = 4,
                                                 .scale = 1 };
    BARE(embedding_grad);
    NONE(embedding_grad, dtable, 3, "op->ids, op->dy, op->dtable");
    BAD(embedding_grad, vocab, 5, XRAY_E_RANGE,
        "id 5 of token 1 is not in [0, 5)");
    BAD(embedding_grad, vocab_first, 4, XRAY_E_RANGE,
        "id 3 of token 0 is not in [4, 10)");
    BAD(embedding_grad, slice, 2, XRAY_E_ARG, "slice is 2, but must be 0 or 1");
    const xray_rows rows = { .header = XRAY_HEADER(xray_rows),
                             .count = { .bound = 2 },
                             .index = below,
                             .x = a,
                             .y = b,
                             .dim = 4 };
    assert_refused(ops->gather(cpu.self, NULL, &rows), XRAY_E_RANGE,
                   "gather: id -1 of token 1 is not in [0, 2147483647)",
                   "gather");
    assert_refused(ops->scatter(cpu.self, NULL, &rows), XRAY_E_RANGE,
                   "scatter: id -1 of token 1 is not in [0, 2147483647)",
                   "scatter");
    assert_refused(ops->gather(cpu.self, NULL, NULL), XRAY_E_ARG,
                   "gather: argument struct is NULL", "gather");
}

static void positions_refuse_bad_fields(void **state)
{
    (void)state;
    static const int32_t below[] = { 0, -1 };
    static const double fast[] = { 1, 0x1p27 };
    static const double slow[] = { 1, 0x1p26 };
    static const double less[] = { 0, -1 };
    const xray_rope rope = { .header = XRAY_HEADER(xray_rope),
                             .tokens = { .bound = 2 },
                             .x = a,
                             .positions = ids,
                             .table = b,
                             .stride = 8,
                             .heads = 2,
                             .head_dim = 4,
                             .half = 2 };
    BARE(rope);
    NONE(rope, table, 3, "op->x, op->positions, op->table");
    BAD(rope, half, 3, XRAY_E_ARG,
        "2 heads of 4, 6 of them rotary, do not fit stride 8");
    BAD(rope, stride, 7, XRAY_E_ARG,
        "2 heads of 4, 4 of them rotary, do not fit stride 7");
    BAD(rope, positions, below, XRAY_E_RANGE,
        "id -1 of token 1 is not in [0, 2147483647)");
    const xray_rope_table rope_table = { .header = XRAY_HEADER(xray_rope_table),
                                         .inv_freq = slow,
                                         .table = a,
                                         .positions = 8,
                                         .half = 2,
                                         .scale = 1 };
    BARE(rope_table);
    BAD(rope_table, inv_freq, fast, XRAY_E_RANGE,
        "frequency 1, 1.34218e+08, is not in range");
    BAD(rope_table, inv_freq, less, XRAY_E_RANGE,
        "frequency 1, -1, is not in range");
}

static void activations_refuse_bad_fields(void **state)
{
    (void)state;
    const xray_glu glu = { .header = XRAY_HEADER(xray_glu),
                           .tokens = { .bound = 2 },
                           .x = a,
                           .y = b,
                           .dim = 4,
                           .act = XRAY_ACT_SILU };
    BARE(glu);
    FINE(glu, plain, 1);
    FINE(glu, act, XRAY_ACT_GELU_TANH);
    BAD(glu, plain, 2, XRAY_E_ARG, "plain is 2, but must be 0 or 1");
    BAD(glu, act, 99, XRAY_E_UNSUPPORTED, "activation 99 is not supported");
    BAD(glu, dim, 0, XRAY_E_ARG, "dim is 0");
    const xray_glu_grad glu_grad = { .header = XRAY_HEADER(xray_glu_grad),
                                     .tokens = { .bound = 2 },
                                     .x = a,
                                     .dy = b,
                                     .dx = c,
                                     .dim = 4,
                                     .act = XRAY_ACT_SILU };
    BARE(glu_grad);
    BAD(glu_grad, plain, 2, XRAY_E_ARG, "plain is 2, but must be 0 or 1");
    BAD(glu_grad, act, 99, XRAY_E_UNSUPPORTED,
        "activation 99 is not supported");
    BAD(glu_grad, dim, 0, XRAY_E_ARG, "dim is 0");
}

static void products_refuse_bad_segments(void **state)
{
    (void)state;
    xray_weight *weight = create_weight_on(ops, cpu.self, w, 4, 8);
    const xray_matmul matmul = { .header = XRAY_HEADER(xray_matmul),
                                 .weight = weight,
                                 .tokens = { .bound = 2 },
                                 .x = a,
                                 .y = b,
                                 .x_stride = 8,
                                 .y_stride = 4,
                                 .kind = XRAY_NT };
    BAD(matmul, segments, 3, XRAY_E_ARG,
        "segments is 3, but must be a power of two up to 8");
    BAD(matmul, segments, 16, XRAY_E_ARG,
        "segments is 16, but must be a power of two up to 8");
    FINE(matmul, segments, 8);
    BAD(matmul, part[0], 4, XRAY_E_ARG,
        "parts of 4, 0 and 0 do not add up to 8");
    BAD(matmul, part[1], 9, XRAY_E_ARG,
        "parts of 0, 9 and 0 do not add up to 8");
    BAD(matmul, part[0], 7, XRAY_E_ARG,
        "parts of 7, 0 and 0 do not add up to 8");
    BAD(matmul, part[2], 9, XRAY_E_ARG,
        "parts of 0, 0 and 9 do not add up to 8");
    FINE(matmul, part[2], 8);
    xray_matmul cut = matmul;
    cut.segments = 2;
    cut.part[0] = 3;
    cut.part[1] = 5;
    assert_refused(ops->matmul(cpu.self, NULL, &cut), XRAY_E_ARG,
                   "matmul: a part of 3 cannot be cut into 2 segments",
                   "matmul");
    cut.act = XRAY_ACT_SILU;
    assert_refused(ops->matmul(cpu.self, NULL, &cut), XRAY_E_ARG,
                   "matmul: an activation needs a sum of one segment, not of 2",
                   "matmul");
    ops->weight_destroy(cpu.self, weight);
}

static void products_refuse_bad_fields(void **state)
{
    (void)state;
    xray_weight *weight = create_weight_on(ops, cpu.self, w, 4, 8);
    const xray_matmul matmul = { .header = XRAY_HEADER(xray_matmul),
                                 .weight = weight,
                                 .tokens = { .bound = 2 },
                                 .x = a,
                                 .y = b,
                                 .x_stride = 8,
                                 .y_stride = 8,
                                 .kind = XRAY_NT };
    BARE(matmul);
    FINE(matmul, y_stride, 4);
    BAD(matmul, x_stride, 7, XRAY_E_ARG,
        "strides 7 and 8 do not fit rows of 8 and 4");
    BAD(matmul, y_stride, 3, XRAY_E_ARG,
        "strides 8 and 3 do not fit rows of 8 and 4");
    BAD(matmul, kind, 99, XRAY_E_ARG, "unknown kind 99");
    BAD(matmul, act, 3, XRAY_E_UNSUPPORTED, "activation 3 is not supported");
    BAD(matmul, plain, 1, XRAY_E_ARG,
        "plain is 1, but must be 0, or 1 with an activation");
    xray_matmul both = matmul;
    both.residual = c;
    both.residual_stride = 3;
    assert_refused(ops->matmul(cpu.self, NULL, &both), XRAY_E_ARG,
                   "matmul: residual_stride 3 does not fit rows of 4",
                   "matmul");
    both.residual_stride = 4;
    both.act = XRAY_ACT_SILU;
    assert_refused(ops->matmul(cpu.self, NULL, &both), XRAY_E_ARG,
                   "matmul: an activation needs kind XRAY_NT and no residual",
                   "matmul");
    both.residual = NULL;
    both.plain = 2;
    assert_refused(ops->matmul(cpu.self, NULL, &both), XRAY_E_ARG,
                   "matmul: plain is 2, but must be 0, or 1 with an activation",
                   "matmul");
    both.plain = 0;
    both.kind = XRAY_NN;
    assert_refused(ops->matmul(cpu.self, NULL, &both), XRAY_E_ARG,
                   "matmul: an activation needs kind XRAY_NT and no residual",
                   "matmul");
    xray_matmul back = matmul;
    back.kind = XRAY_NN;
    back.x_stride = 4;
    must(ops->matmul(cpu.self, NULL, &back));
    back.y_stride = 7;
    assert_refused(ops->matmul(cpu.self, NULL, &back), XRAY_E_ARG,
                   "matmul: strides 4 and 7 do not fit rows of 4 and 8",
                   "matmul");
    const xray_matmul_grad matmul_grad = { .header =
                                               XRAY_HEADER(xray_matmul_grad),
                                           .tokens = { .bound = 2 },
                                           .dy = a,
                                           .x = b,
                                           .dy_stride = 4,
                                           .x_stride = 8,
                                           .rows = 4,
                                           .cols = 8,
                                           .dw = c };
    BARE(matmul_grad);
    BAD(matmul_grad, dy_stride, 3, XRAY_E_ARG,
        "strides 3 and 8 do not fit rows of 4 and 8");
    BAD(matmul_grad, x_stride, 7, XRAY_E_ARG,
        "strides 4 and 7 do not fit rows of 4 and 8");
    BAD(matmul_grad, rows, 0, XRAY_E_ARG,
        "strides 4 and 8 do not fit rows of 0 and 8");
    BAD(matmul_grad, cols, 0, XRAY_E_ARG,
        "strides 4 and 8 do not fit rows of 4 and 0");
    ops->weight_destroy(cpu.self, weight);
}

static void weights_refuse_bad_shapes_and_types(void **state)
{
    (void)state;
    static const struct {
        uint64_t rows;
        uint64_t cols;
        uint32_t dtype;
        uint32_t uses;
        xray_status want;
        const char *says;
    } cases[] = {
        { 0, 4, XRAY_F32, 1, XRAY_E_RANGE,
          "weight_create: a matrix of 0 x 4 is empty or too large" },
        { 4, 0, XRAY_F32, 1, XRAY_E_RANGE,
          "weight_create: a matrix of 4 x 0 is empty or too large" },
        { UINT64_C(1) << 31, 1, XRAY_F32, 1, XRAY_E_RANGE,
          "weight_create: a matrix of 2147483648 x 1 is empty or too large" },
        { 1, UINT64_C(1) << 31, XRAY_F32, 1, XRAY_E_RANGE,
          "weight_create: a matrix of 1 x 2147483648 is empty or too large" },
        { 4, 4, 0, 1, XRAY_E_UNSUPPORTED,
          "weight_create: element type 0 is not supported" },
        { 4, 4, XRAY_F16 + 1, 1, XRAY_E_UNSUPPORTED,
          "weight_create: element type 4 is not supported" },
        { 4, 4, XRAY_F32, 0, XRAY_E_ARG,
          "weight_create: uses is 0x0, which is not a set of XRAY_USE_*" },
        { 4, 4, XRAY_F32, 9, XRAY_E_ARG,
          "weight_create: uses is 0x9, which is not a set of XRAY_USE_*" },
    };
    xray_weight *made = NULL;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                        .data = w,
                                        .rows = cases[i].rows,
                                        .cols = cases[i].cols,
                                        .dtype = cases[i].dtype,
                                        .uses = cases[i].uses };
        assert_refused(ops->weight_create(cpu.self, &desc, &made),
                       cases[i].want, cases[i].says, cases[i].says);
    }
    assert_refused(ops->weight_changed(cpu.self, NULL), XRAY_E_ARG,
                   "weight_changed: weight is NULL", "weight_changed");
    assert_refused(ops->weight_evict(cpu.self, NULL), XRAY_E_ARG,
                   "weight_evict: weight is NULL", "weight_evict");
}

static void elementwise_calls_refuse_bad_types(void **state)
{
    (void)state;
    const xray_cast cast = { .header = XRAY_HEADER(xray_cast),
                             .count = 8,
                             .x = a,
                             .y = b,
                             .x_dtype = XRAY_F32,
                             .y_dtype = XRAY_BF16 };
    BARE(cast);
    FINE(cast, y_dtype, XRAY_F16);
    FINE(cast, y_dtype, XRAY_F32);
    BAD(cast, y_dtype, 0, XRAY_E_UNSUPPORTED,
        "a cast from element type 1 to 0 is not supported; one of them must be "
        "F32");
    BAD(cast, y_dtype, 4, XRAY_E_UNSUPPORTED,
        "a cast from element type 1 to 4 is not supported; one of them must be "
        "F32");
    BAD(cast, x_dtype, 4, XRAY_E_UNSUPPORTED,
        "a cast from element type 4 to 2 is not supported; one of them must be "
        "F32");
    BAD(cast, x_dtype, XRAY_F16, XRAY_E_UNSUPPORTED,
        "a cast from element type 3 to 2 is not supported; one of them must be "
        "F32");
    xray_cast rows = cast;
    rows.rows = 2;
    rows.x_stride = rows.y_stride = 8;
    must(ops->cast(cpu.self, NULL, &rows));
    rows.x_stride = 7;
    assert_refused(ops->cast(cpu.self, NULL, &rows), XRAY_E_ARG,
                   "cast: a stride is shorter than the row", "x_stride");
    rows.x_stride = 8;
    rows.y_stride = 7;
    assert_refused(ops->cast(cpu.self, NULL, &rows), XRAY_E_ARG,
                   "cast: a stride is shorter than the row", "y_stride");
    static const float scalars[4] = { 0.1f, 1, 0.1f, 0.1f };
    const xray_adamw adamw = { .header = XRAY_HEADER(xray_adamw),
                               .count = 8,
                               .p = a,
                               .g = b,
                               .m = c,
                               .v = e,
                               .scalars = scalars,
                               .beta1 = 0.9f,
                               .beta2 = 0.99f,
                               .eps = 1e-8f };
    BARE(adamw);
    NONE(adamw, scalars, 5, "op->p, op->g, op->m, op->v, op->scalars");
    BAD(adamw, out, w, XRAY_E_UNSUPPORTED, "element type 0 is not supported");
    xray_adamw rounded = adamw;
    rounded.out = w;
    for (rounded.out_dtype = XRAY_F32; rounded.out_dtype <= XRAY_F16;
         rounded.out_dtype++)
        must(ops->adamw(cpu.self, NULL, &rounded));
    assert_refused(ops->adamw(cpu.self, NULL, &rounded), XRAY_E_UNSUPPORTED,
                   "adamw: element type 4 is not supported", "adamw");
}

static void memory_calls_refuse_bad_arguments(void **state)
{
    (void)state;
    void *ptr = NULL;
    uint64_t sum = 0;
    assert_refused(ops->alloc(cpu.self, "me", XRAY_TAG_COUNT, 8, &ptr),
                   XRAY_E_ARG, "alloc: me: unknown memory tag", "alloc");
    assert_refused(ops->alloc(cpu.self, NULL, 0, 8, NULL), XRAY_E_ARG,
                   "alloc: alloc: out is NULL", "alloc");
    assert_refused(
        ops->alloc(cpu.self, "me", 0, UINT64_MAX, &ptr), XRAY_E_NOMEM,
        "alloc: me: no memory for 18446744073709551615 bytes", "alloc");
    assert_null(ptr);
    assert_refused(ops->evict(cpu.self, NULL), XRAY_E_ARG,
                   "evict: the pointer is NULL", "evict");
    assert_refused(ops->restore(cpu.self, NULL), XRAY_E_ARG,
                   "restore: the pointer is NULL", "restore");
    assert_refused(ops->copy(cpu.self, NULL, a, NULL, 1, XRAY_COPY_ON_DEVICE),
                   XRAY_E_ARG, "copy: a pointer is NULL", "copy");
    assert_refused(ops->copy(cpu.self, NULL, NULL, a, 1, XRAY_COPY_ON_DEVICE),
                   XRAY_E_ARG, "copy: a pointer is NULL", "copy");
    must(ops->copy(cpu.self, NULL, NULL, NULL, 0, XRAY_COPY_ON_DEVICE));
    assert_refused(ops->copy(cpu.self, NULL, a, b, 1, XRAY_COPY_ON_DEVICE + 1),
                   XRAY_E_ARG, "copy: unknown kind 4", "copy");
    assert_refused(ops->copy(cpu.self, NULL, a, b, 1, 0), XRAY_E_ARG,
                   "copy: unknown kind 0", "copy");
    assert_refused(ops->zero(cpu.self, NULL, NULL, 1), XRAY_E_ARG,
                   "zero: the pointer is NULL", "zero");
    must(ops->zero(cpu.self, NULL, NULL, 0));
    xray_checksum_rows sums = { .header = XRAY_HEADER(xray_checksum_rows),
                                .rows = 1,
                                .bytes = 1 };
    assert_refused(ops->checksum(cpu.self, &sums, &sum), XRAY_E_ARG,
                   "checksum: a pointer is NULL", "checksum");
    sums.data = a;
    assert_refused(ops->checksum(cpu.self, &sums, NULL), XRAY_E_ARG,
                   "checksum: a pointer is NULL", "checksum");
    sums.header.size = 8;
    assert_refused(ops->checksum(cpu.self, &sums, &sum), XRAY_E_ABI,
                   "checksum: argument struct is too short", "checksum");
    xray_copy_rows rows = { .header = XRAY_HEADER(xray_copy_rows),
                            .from = b,
                            .rows = 2,
                            .bytes = 2,
                            .to_pitch = 2,
                            .from_pitch = 2,
                            .kind = XRAY_COPY_ON_DEVICE };
    assert_refused(ops->copy_rows(cpu.self, NULL, NULL), XRAY_E_ARG,
                   "copy_rows: argument struct is NULL", "copy_rows");
    assert_refused(ops->copy_rows(cpu.self, NULL, &rows), XRAY_E_ARG,
                   "copy_rows: a pointer is NULL", "copy_rows");
    rows.to = a;
    rows.from_pitch = 1;
    assert_refused(ops->copy_rows(cpu.self, NULL, &rows), XRAY_E_ARG,
                   "copy_rows: a pitch is shorter than the row", "copy_rows");
    rows.kind = 4;
    assert_refused(ops->copy_rows(cpu.self, NULL, &rows), XRAY_E_ARG,
                   "copy_rows: unknown kind 4", "copy_rows");
    assert_refused(ops->event_record(cpu.self, NULL, NULL), XRAY_E_ARG,
                   "event_record: event is NULL", "event_record");
    assert_refused(ops->event_wait(cpu.self, NULL, NULL), XRAY_E_ARG,
                   "event_wait: event is NULL", "event_wait");
    assert_refused(ops->event_query(cpu.self, NULL), XRAY_E_ARG,
                   "event_query: event is NULL", "event_query");
    assert_refused(ops->event_sync(cpu.self, NULL), XRAY_E_ARG,
                   "event_sync: event is NULL", "event_sync");
    assert_refused(ops->host_alloc(cpu.self, "me", 1, NULL), XRAY_E_ARG,
                   "host_alloc: me: out is NULL", "host_alloc");
}

/* Tests the description of an instance, and the arguments that create
 * refuses. */
static void create_refuses_bad_options(void **state)
{
    (void)state;
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    must(ops->info(cpu.self, &info));
    assert_string_equal(info.name, "x86-64, scalar, 1 thread");
    assert_int_equal(info.threads, 1);
    assert_int_equal(info.host_memory, 1);
    assert_int_equal(info.features, XRAY_DEVICE_PARENTS);
    assert_true(info.memory_free > 0 && info.memory_free <= info.memory_bytes);
    assert_refused(ops->info(cpu.self, NULL), XRAY_E_ARG, "info: info is NULL",
                   "info");
    assert_refused(ops->memory(cpu.self, NULL), XRAY_E_ARG,
                   "memory: stats is NULL", "memory");
    xray_device_plan plan = { .header = XRAY_HEADER(xray_device_plan) };
    cpu_config config = { .isa = CPU_ISA_SCALAR + 1 };
    void *self = NULL;
    assert_refused(ops->plan(&bench_host, &config, &plan), XRAY_E_CONFIG,
                   "device cpu: isa has an unknown value", "plan");
    assert_refused(ops->create(&bench_host, &config, 1, &self), XRAY_E_CONFIG,
                   "device cpu: isa has an unknown value", "create");
    config.isa = CPU_ISA_AUTO - 1;
    assert_refused(ops->create(&bench_host, &config, 1, &self), XRAY_E_CONFIG,
                   "device cpu: isa has an unknown value", "create");
    assert_refused(ops->plan(&bench_host, NULL, NULL), XRAY_E_ARG,
                   "device cpu: out is NULL", "plan");
    assert_refused(ops->create(&bench_host, NULL, 1, NULL), XRAY_E_ARG,
                   "device cpu: out_self is NULL", "create");
    config.isa = CPU_ISA_AVX2;
    must(ops->create(&bench_host, &config, 3, &self));
    must(ops->info(self, &info));
    assert_string_equal(info.name, "x86-64, AVX2, 3 threads");
    ops->destroy(self);
    ops->destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_refuses_bad_fields),
        cmocka_unit_test(layernorm_refuses_bad_fields),
        cmocka_unit_test(rows_refuse_bad_ids_and_types),
        cmocka_unit_test(positions_refuse_bad_fields),
        cmocka_unit_test(activations_refuse_bad_fields),
        cmocka_unit_test(products_refuse_bad_segments),
        cmocka_unit_test(products_refuse_bad_fields),
        cmocka_unit_test(weights_refuse_bad_shapes_and_types),
        cmocka_unit_test(elementwise_calls_refuse_bad_types),
        cmocka_unit_test(memory_calls_refuse_bad_arguments),
        cmocka_unit_test(create_refuses_bad_options),
    };
    return cmocka_run_group_tests_name("device.refused", tests, open_cpu,
                                       close_cpu);
}
