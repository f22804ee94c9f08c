/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that operators of the cpu device on activations take fp32 and bf16, and
 * refuse other types, and one buffer with two types, with one sentence.
 */
#include "tests/device/refused.h"

/* Makes the call with each type of a member: 0 and F32, BF16, others. */
#define TYPES(op, member, name)                                    \
    do {                                                           \
        FINE(op, member, XRAY_F32);                                \
        FINE(op, member, XRAY_BF16);                               \
        BAD(op, member, XRAY_F16, XRAY_E_UNSUPPORTED,              \
            name " has element type 3, but must be F32 or BF16");  \
        BAD(op, member, 99, XRAY_E_UNSUPPORTED,                    \
            name " has element type 99, but must be F32 or BF16"); \
    } while (0)

/* Makes the call, whose operands `one` and `two` are the same, with each of the
 * types. */
#define ALIAS(op, one, two, member)                                        \
    do {                                                                   \
        FINE(op, member, XRAY_F32);                                        \
        BAD(op, member, XRAY_BF16, XRAY_E_ARG,                             \
            one " and " two " are one buffer, but one of them is F32 and " \
                "the other BF16");                                         \
    } while (0)

static void norms_refuse_other_types(void **state)
{
    (void)state;
    xray_rmsnorm rmsnorm = { .header = XRAY_HEADER(xray_rmsnorm),
                             .tokens = { .bound = 2 },
                             .x = a,
                             .residual = c,
                             .weight = w,
                             .y = b,
                             .x_stride = 8,
                             .y_stride = 8,
                             .groups = 1,
                             .dim = 8,
                             .eps = 1e-5f };
    TYPES(rmsnorm, x_dtype, "x");
    TYPES(rmsnorm, y_dtype, "y");
    TYPES(rmsnorm, residual_dtype, "residual");
    rmsnorm.y = a;
    ALIAS(rmsnorm, "x", "y", y_dtype);
    xray_layernorm layernorm = { .header = XRAY_HEADER(xray_layernorm),
                                 .tokens = { .bound = 2 },
                                 .x = a,
                                 .weight = w,
                                 .y = b,
                                 .x_stride = 8,
                                 .y_stride = 8,
                                 .dim = 8,
                                 .eps = 1e-5f };
    TYPES(layernorm, x_dtype, "x");
    TYPES(layernorm, y_dtype, "y");
    layernorm.y = a;
    ALIAS(layernorm, "x", "y", x_dtype);
}

static void gradients_of_norms_refuse_other_types(void **state)
{
    (void)state;
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
    TYPES(rmsnorm_grad, x_dtype, "x");
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
    TYPES(layernorm_grad, x_dtype, "x");
}

static void rows_refuse_other_types(void **state)
{
    (void)state;
    const xray_embedding embedding = { .header = XRAY_HEADER(xray_embedding),
                                       .tokens = { .bound = 2 },
                                       .ids = ids,
                                       .table = a,
                                       .y = b,
                                       .vocab = 6,
                                       .dim = 4,
                                       .scale = 1 };
    TYPES(embedding, table_dtype, "table");
    TYPES(embedding, y_dtype, "y");
    xray_rows rows = { .header = XRAY_HEADER(xray_rows),
                       .count = { .bound = 2 },
                       .index = ids,
                       .x = a,
                       .y = b,
                       .dim = 4,
                       .dtype = XRAY_F16 };
    assert_refused(ops->gather(cpu.self, NULL, &rows), XRAY_E_UNSUPPORTED,
                   "gather: x has element type 3, but must be F32 or BF16",
                   "gather");
    assert_refused(ops->scatter(cpu.self, NULL, &rows), XRAY_E_UNSUPPORTED,
                   "scatter: x has element type 3, but must be F32 or BF16",
                   "scatter");
    const xray_rope rope = { .header = XRAY_HEADER(xray_rope),
                             .tokens = { .bound = 2 },
                             .x = a,
                             .positions = ids,
                             .table = b,
                             .stride = 8,
                             .heads = 2,
                             .head_dim = 4,
                             .half = 2 };
    TYPES(rope, dtype, "x");
}

static void activations_and_sums_refuse_other_types(void **state)
{
    (void)state;
    xray_glu glu = { .header = XRAY_HEADER(xray_glu),
                     .tokens = { .bound = 2 },
                     .x = a,
                     .y = b,
                     .dim = 4,
                     .act = XRAY_ACT_SILU,
                     .plain = 1 };
    TYPES(glu, x_dtype, "x");
    TYPES(glu, y_dtype, "y");
    glu.y = a;
    ALIAS(glu, "x", "y", y_dtype);
    xray_glu_grad glu_grad = { .header = XRAY_HEADER(xray_glu_grad),
                               .tokens = { .bound = 2 },
                               .x = a,
                               .dy = b,
                               .dx = c,
                               .dim = 4,
                               .act = XRAY_ACT_SILU };
    TYPES(glu_grad, x_dtype, "x");
    glu_grad.dx = a;
    ALIAS(glu_grad, "x", "dx", x_dtype);
    xray_axpby axpby = { .header = XRAY_HEADER(xray_axpby),
                         .count = 8,
                         .x = a,
                         .y = b,
                         .alpha = 1,
                         .beta = 1 };
    TYPES(axpby, x_dtype, "x");
    TYPES(axpby, y_dtype, "y");
    axpby.y = a;
    ALIAS(axpby, "x", "y", y_dtype);
}

static void products_refuse_other_types(void **state)
{
    (void)state;
    xray_weight *weight = create_weight_on(ops, cpu.self, w, 4, 8);
    xray_matmul matmul = { .header = XRAY_HEADER(xray_matmul),
                           .weight = weight,
                           .tokens = { .bound = 2 },
                           .x = a,
                           .y = b,
                           .x_stride = 8,
                           .y_stride = 4,
                           .residual = c,
                           .residual_stride = 4,
                           .kind = XRAY_NT };
    TYPES(matmul, x_dtype, "x");
    TYPES(matmul, y_dtype, "y");
    TYPES(matmul, residual_dtype, "residual");
    matmul.residual = b;
    ALIAS(matmul, "y", "residual", residual_dtype);
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
    TYPES(matmul_grad, x_dtype, "x");
    ops->weight_destroy(cpu.self, weight);
    const xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                    .data = w,
                                    .rows = 4,
                                    .cols = 8,
                                    .dtype = XRAY_F32,
                                    .uses = XRAY_USE_NT,
                                    .product_dtype = XRAY_F16 };
    assert_refused(ops->weight_create(cpu.self, &desc, &weight),
                   XRAY_E_UNSUPPORTED,
                   "weight_create: product_dtype is 3, but must be 0 or "
                   "XRAY_BF16 (2)",
                   "weight_create");
}

static void the_lm_head_refuses_other_types(void **state)
{
    (void)state;
    xray_weight *weight = create_weight_on(ops, cpu.self, w, 4, 8);
    const xray_lm_head_logp lm_head_logp = { .header =
                                                 XRAY_HEADER(xray_lm_head_logp),
                                             .items = { .bound = 2 },
                                             .weight = weight,
                                             .x = a,
                                             .targets = ids,
                                             .logp = b };
    TYPES(lm_head_logp, x_dtype, "x");
    static const xray_draw draws[2];
    const xray_sample sample = { .header = XRAY_HEADER(xray_sample),
                                 .items = { .bound = 2 },
                                 .weight = weight,
                                 .x = a,
                                 .draws = draws,
                                 .token = ids,
                                 .raw_logp = b,
                                 .logp = c,
                                 .draw_stride = sizeof(xray_draw) };
    TYPES(sample, x_dtype, "x");
    memset(ids, 0, sizeof(ids));
    ops->weight_destroy(cpu.self, weight);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_refuse_other_types),
        cmocka_unit_test(gradients_of_norms_refuse_other_types),
        cmocka_unit_test(rows_refuse_other_types),
        cmocka_unit_test(activations_and_sums_refuse_other_types),
        cmocka_unit_test(products_refuse_other_types),
        cmocka_unit_test(the_lm_head_refuses_other_types),
    };
    return cmocka_run_group_tests_name("device.refused_types", tests, open_cpu,
                                       close_cpu);
}
