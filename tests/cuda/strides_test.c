/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that each operand of attention is read and written with a stride of its
 * own, in both precisions.
 */
#include "tests/cuda/attention_run.h"

/* The arrays of a call, from token to token as many values apart as `stride`
 * says. What lies between is NaN. */
enum { Q, K, V, O, D_O, DQ, DK, DV, ARRAYS };
enum { STRIDED = 21 };
static const size_t widths[ARRAYS] = { 16, 8, 8, 16, 16, 16, 8, 8 };

static void place_arrays(const dev *d, const size_t stride[ARRAYS],
                         float *const in[ARRAYS], float *on[ARRAYS])
{
    for (size_t i = 0; i < ARRAYS; i++) {
        float *x = alloc_floats(STRIDED * stride[i]);
        memset(x, 0xff, STRIDED * stride[i] * sizeof(*x));
        for (size_t t = 0; t < STRIDED; t++)
            memcpy(x + t * stride[i], in[i] + t * widths[i],
                   widths[i] * sizeof(*x));
        on[i] = copy_to_device(d, x, STRIDED * stride[i] * sizeof(*x));
        free(x);
    }
}

/* Gets an array into `to` without what lies between, which must be as before,
 * and frees it. */
static void take_array(const dev *d, float *on, size_t stride, size_t width,
                       float *to)
{
    float *x = alloc_floats(STRIDED * stride);
    copy_from_device(d, x, on, STRIDED * stride * sizeof(*x));
    for (size_t t = 0; t < STRIDED; t++) {
        memcpy(to + t * width, x + t * stride, width * sizeof(*x));
        for (size_t i = width; i < stride; i++)
            assert_true(isnan(x[t * stride + i]));
    }
    free_on_device(d, on);
    free(x);
}

static void attend_cache(const dev *d, const size_t stride[ARRAYS],
                         float *on[ARRAYS])
{
    int32_t ids[2 * STRIDED] = { 0 };
    for (int32_t t = 0; t < STRIDED; t++)
        ids[STRIDED + t] = t;
    int32_t *seq = copy_to_device(d, ids, sizeof(ids));
    xray_kv kv = { .header = XRAY_HEADER(xray_kv),
                   .table_stride = 2,
                   .block_tokens = 16,
                   .kv_heads = 1,
                   .head_dim = 8,
                   .dtype = XRAY_F32 };
    kv.blocks =
        copy_to_device(d, NULL, 2 * d->ops->kv_block_bytes(d->self, &kv));
    const xray_attention_kv op = { .header = XRAY_HEADER(xray_attention_kv),
                                   .tokens = { STRIDED, NULL },
                                   .kv = &kv,
                                   .seq = seq,
                                   .positions = seq + STRIDED,
                                   .q = on[Q],
                                   .k = on[K],
                                   .v = on[V],
                                   .o = on[O],
                                   .q_stride = stride[Q],
                                   .k_stride = stride[K],
                                   .v_stride = stride[V],
                                   .o_stride = stride[O],
                                   .position_bound = STRIDED,
                                   .heads = 2,
                                   .scale = 0.5f };
    must(d->ops->attention_kv(d->self, NULL, &op));
    must(d->ops->sync(d->self, NULL));
    free_on_device(d, kv.blocks);
    free_on_device(d, seq);
}

static void attend_rows(const dev *d, const size_t stride[ARRAYS],
                        float *on[ARRAYS])
{
    static const int32_t start[] = { 0, STRIDED };
    int32_t *at = copy_to_device(d, start, sizeof(start));
    const xray_attention op = { .header = XRAY_HEADER(xray_attention),
                                .tokens = { STRIDED, NULL },
                                .row_start = at,
                                .rows = 1,
                                .row_bound = STRIDED,
                                .q = on[Q],
                                .k = on[K],
                                .v = on[V],
                                .o = on[O],
                                .lse = copy_to_device(
                                    d, NULL, 2 * STRIDED * sizeof(float)),
                                .q_stride = stride[Q],
                                .k_stride = stride[K],
                                .v_stride = stride[V],
                                .o_stride = stride[O],
                                .heads = 2,
                                .kv_heads = 1,
                                .head_dim = 8,
                                .scale = 0.5f };
    const xray_attention_grad back = { .header =
                                           XRAY_HEADER(xray_attention_grad),
                                       .forward = &op,
                                       .d_o = on[D_O],
                                       .dq = on[DQ],
                                       .dk = on[DK],
                                       .dv = on[DV],
                                       .dq_stride = stride[DQ],
                                       .dk_stride = stride[DK],
                                       .dv_stride = stride[DV] };
    must(d->ops->attention(d->self, NULL, &op));
    must(d->ops->attention_grad(d->self, NULL, &back));
    must(d->ops->sync(d->self, NULL));
    free_on_device(d, op.lse);
    free_on_device(d, at);
}

/* Each operand has a stride of its own, which does not change its values. */
static void strides_do_not_change_values(void **state)
{
    static const size_t apart[ARRAYS] = { 23, 9, 14, 19, 19, 17, 10, 12 };
    float *in[ARRAYS];
    (void)state;
    for (size_t i = 0; i < ARRAYS; i++)
        in[i] = random_floats(STRIDED * widths[i], 1);
    for (int run = 0; run < 4; run++) {
        dev d = open_attention(run % 2 ? CUDA_BFLOAT16 : CUDA_FLOAT32);
        float *got[2][ARRAYS];
        for (int far = 0; far < 2; far++) {
            const size_t *stride = far ? apart : widths;
            float *on[ARRAYS];
            place_arrays(&d, stride, in, on);
            (run < 2 ? attend_cache : attend_rows)(&d, stride, on);
            for (size_t i = 0; i < ARRAYS; i++) {
                got[far][i] = alloc_floats(STRIDED * widths[i]);
                take_array(&d, on[i], stride[i], widths[i], got[far][i]);
            }
        }
        assert_false(memcmp(got[0][O], in[O], sizeof(float)) == 0);
        for (size_t i = 0; i < ARRAYS; i++) {
            assert_same_bits(got[1][i], got[0][i], STRIDED * widths[i],
                             "strides", "attention");
            free(got[0][i]);
            free(got[1][i]);
        }
        d.ops->destroy(d.self);
    }
    for (size_t i = 0; i < ARRAYS; i++)
        free(in[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_do_not_change_values),
    };
    return cmocka_run_group_tests_name("cuda.strides", tests, NULL, NULL);
}
