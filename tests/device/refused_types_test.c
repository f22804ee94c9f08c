/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that operators of the cpu device on activations take fp32 and bf16, and
 * refuse other types, and one buffer with two types, with one sentence; and
 * that every operator names the pointer that it needs and was not given.
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

/* Makes the call of operator `op` with each pointer of `list` as NULL in turn,
 * and the others not. */
#define AT(field) offsetof(operands, field)
#define NEEDS(type, op, list, ...)                                             \
    do {                                                                       \
        typedef type operands;                                                 \
        const size_t at_[] = { __VA_ARGS__ };                                  \
        for (size_t i_ = 0; i_ < sizeof(at_) / sizeof(*at_); i_++) {           \
            char says_[256];                                                   \
            operands call_ = { XRAY_HEADER(type) };                            \
            put_pointers(&call_, at_, sizeof(at_) / sizeof(*at_), i_);         \
            (void)snprintf(says_, sizeof(says_),                               \
                           "%s: required pointer %zu of %s is NULL", #op,      \
                           i_ + 1, list);                                      \
            assert_refused(ops->op(cpu.self, NULL, &call_), XRAY_E_ARG, says_, \
                           #op);                                               \
        }                                                                      \
    } while (0)

static void put_pointers(void *call, const size_t *at, size_t count,
                         size_t missing)
{
    void *const some = a;
    for (size_t i = 0; i < count; i++)
        if (i != missing)
            memcpy((char *)call + at[i], &some, sizeof(some));
}

static void each_required_pointer_is_named(void **state)
{
    (void)state;
    NEEDS(xray_advance, advance,
          "op->token, op->ids, op->positions, op->draws, op->stop, op->limit",
          AT(token), AT(ids), AT(positions), AT(draws), AT(stop), AT(limit));
    NEEDS(xray_attention, attention,
          "op->row_start, op->q, op->k, op->v, op->o", AT(row_start), AT(q),
          AT(k), AT(v), AT(o));
    NEEDS(xray_attention_grad, attention_grad,
          "op->forward, op->d_o, op->dq, op->dk, op->dv", AT(forward), AT(d_o),
          AT(dq), AT(dk), AT(dv));
    NEEDS(xray_attention_kv, attention_kv,
          "op->kv, op->seq, op->positions, op->q, op->k, op->v, op->o", AT(kv),
          AT(seq), AT(positions), AT(q), AT(k), AT(v), AT(o));
    NEEDS(xray_cast, cast, "op->x, op->y", AT(x), AT(y));
    NEEDS(xray_axpby, axpby, "op->y", AT(y));
    NEEDS(xray_sumsq, sumsq, "op->x, op->result", AT(x), AT(result));
    NEEDS(xray_adamw, adamw, "op->p, op->g, op->m, op->v, op->scalars", AT(p),
          AT(g), AT(m), AT(v), AT(scalars));
    NEEDS(xray_lm_head_grad, lm_head_grad, "op->forward, op->dlogp, op->dx",
          AT(forward), AT(dlogp), AT(dx));
    NEEDS(xray_sample, sample, "op->draws, op->token, op->raw_logp, op->logp",
          AT(draws), AT(token), AT(raw_logp), AT(logp));
    NEEDS(xray_edit_logits, edit_logits, "op->logits, op->changed", AT(logits),
          AT(changed));
    NEEDS(xray_pick_logp, pick_logp, "op->logits, op->ids, op->logp",
          AT(logits), AT(ids), AT(logp));
    NEEDS(xray_lm_head_join, lm_head_join, "op->partials, op->logp",
          AT(partials), AT(logp));
    NEEDS(xray_matmul, matmul, "op->weight, op->x, op->y", AT(weight), AT(x),
          AT(y));
    NEEDS(xray_matmul_grad, matmul_grad, "op->dy, op->x, op->dw", AT(dy), AT(x),
          AT(dw));
    NEEDS(xray_embedding, embedding, "op->ids, op->table, op->y", AT(ids),
          AT(table), AT(y));
    NEEDS(xray_embedding_grad, embedding_grad, "op->ids, op->dy, op->dtable",
          AT(ids), AT(dy), AT(dtable));
    NEEDS(xray_rmsnorm, rmsnorm, "op->x, op->weight, op->y", AT(x), AT(weight),
          AT(y));
    NEEDS(xray_rmsnorm_grad, rmsnorm_grad,
          "op->x, op->weight, op->rstd, op->dy, op->dx", AT(x), AT(weight),
          AT(rstd), AT(dy), AT(dx));
    NEEDS(xray_layernorm, layernorm, "op->x, op->weight, op->y", AT(x),
          AT(weight), AT(y));
    NEEDS(xray_layernorm_grad, layernorm_grad,
          "op->x, op->weight, op->stat, op->dy, op->dx", AT(x), AT(weight),
          AT(stat), AT(dy), AT(dx));
    NEEDS(xray_rope_table, rope_table, "op->inv_freq, op->table", AT(inv_freq),
          AT(table));
    NEEDS(xray_rope, rope, "op->x, op->positions, op->table", AT(x),
          AT(positions), AT(table));
    NEEDS(xray_glu, glu, "op->x, op->y", AT(x), AT(y));
    NEEDS(xray_glu_grad, glu_grad, "op->x, op->dy, op->dx", AT(x), AT(dy),
          AT(dx));
    NEEDS(xray_rows, gather, "op->index, op->x, op->y", AT(index), AT(x),
          AT(y));
    NEEDS(xray_rows, scatter, "op->index, op->x, op->y", AT(index), AT(x),
          AT(y));
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
        cmocka_unit_test(each_required_pointer_is_named),
    };
    return cmocka_run_group_tests_name("device.refused_types", tests, open_cpu,
                                       close_cpu);
}
