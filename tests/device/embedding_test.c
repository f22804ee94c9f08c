/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that embedding gives the rows of its table and folds gradients in token
 * order, and that the slices of a table give the bits of the whole.
 */
#include "tests/device/bench.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))

/* Token 17 has id VOCAB = 11. The host of a cuda device does not see ids. */
static void check_bad_id(const dev *d, const xray_embedding *op)
{
    xray_status status = d->ops->embedding(d->self, NULL, op);
    if (d->on_cuda) {
        assert_int_equal(status, XRAY_OK);
        assert_true(isnan(((const float *)op->y)[17 * op->dim]));
        return;
    }
    assert_int_equal(status, XRAY_E_RANGE);
    assert_non_null(strstr(last_failure, "id 11 of token 17"));
}

static void embedding_reads_and_folds_rows(void **state)
{
    (void)state;
    enum { VOCAB = 11, TOKENS = 301, DIM = 37 };
    bench b;
    open_devices(&b);
    float *table = random_floats((size_t)VOCAB * DIM, 1);
    float *dy = random_floats((size_t)TOKENS * DIM, 1);
    int32_t ids[TOKENS];
    for (size_t t = 0; t < TOKENS; t++)
        ids[t] = (int32_t)random_below(VOCAB);
    float *want = copy_floats(table, (size_t)VOCAB * DIM);
    for (size_t t = 0; t < TOKENS; t++)
        for (size_t i = 0; i < DIM; i++) {
            float *to = want + (size_t)ids[t] * DIM + i;
            *to = fmaf(1.5f, dy[t * DIM + i], *to);
        }
    for (int d = 0; d < b.count; d++) {
        float *y = alloc_floats((size_t)TOKENS * DIM);
        xray_embedding op = { .header = XRAY_HEADER(xray_embedding),
                              .tokens = { TOKENS, NULL },
                              .ids = ids,
                              .table = table,
                              .y = y,
                              .vocab = VOCAB,
                              .dim = DIM,
                              .scale = 1.5f };
        RUN(&b.dev[d], embedding, &op);
        for (size_t i = 0; i < (size_t)TOKENS * DIM; i++)
            assert_true(y[i] ==
                        1.5f * table[(size_t)ids[i / DIM] * DIM + i % DIM]);
        /* A table of bf16 is widened first. */
        uint16_t narrow[VOCAB * DIM];
        for (size_t i = 0; i < (size_t)VOCAB * DIM; i++)
            narrow[i] = cpu_to_bf16(table[i]);
        op.table = narrow;
        op.table_dtype = XRAY_BF16;
        RUN(&b.dev[d], embedding, &op);
        for (size_t i = 0; i < (size_t)TOKENS * DIM; i++)
            assert_true(y[i] ==
                        1.5f *
                            cpu_from_bf16(
                                narrow[(size_t)ids[i / DIM] * DIM + i % DIM]));
        op.table_dtype = XRAY_F16;
        assert_int_equal(b.dev[d].ops->embedding(b.dev[d].self, NULL, &op),
                         XRAY_E_UNSUPPORTED);
        op.table = table;
        op.table_dtype = 0;
        float *grad = copy_floats(table, (size_t)VOCAB * DIM);
        for (size_t first = 0; first < TOKENS;) {
            size_t n = 1 + random_below(100);
            n = n < TOKENS - first ? n : TOKENS - first;
            xray_embedding_grad g = { .header =
                                          XRAY_HEADER(xray_embedding_grad),
                                      .tokens = { n, NULL },
                                      .ids = ids + first,
                                      .dy = dy + first * DIM,
                                      .dtable = grad,
                                      .vocab = VOCAB,
                                      .dim = DIM,
                                      .scale = 1.5f };
            RUN(&b.dev[d], embedding_grad, &g);
            first += n;
        }
        assert_same_bits(grad, want, (size_t)VOCAB * DIM, "dtable",
                         b.dev[d].name);
        int32_t kept = ids[17];
        ids[17] = VOCAB;
        check_bad_id(&b.dev[d], &op);
        ids[17] = kept;
        free(y);
        free(grad);
    }
    free(want);
    free(table);
    free(dy);
    close_devices(&b);
}

enum { SLICED = 11, SLICED_TOKENS = 90, SLICED_DIM = 37 };

/* Looks `ids` up in the slice of `table` that begins with row `first`, adds the
 * result to y, and folds dy into the slice of `grad`. */
static void run_slice(const dev *d, const int32_t *ids, const void *table,
                      uint32_t dtype, const uint64_t rows[2], float *y,
                      const float *dy, float *grad)
{
    size_t n = (size_t)SLICED_TOKENS * SLICED_DIM;
    size_t skip = rows[0] * SLICED_DIM;
    float *part = random_floats(n, 1);
    xray_embedding op = { .header = XRAY_HEADER(xray_embedding),
                          .tokens = { SLICED_TOKENS, NULL },
                          .ids = ids,
                          .table = (const char *)table +
                                   skip * (dtype == XRAY_BF16 ? 2 : 4),
                          .y = part,
                          .vocab = rows[1] - rows[0],
                          .dim = SLICED_DIM,
                          .scale = 1.5f,
                          .table_dtype = dtype,
                          .vocab_first = rows[0],
                          .slice = 1 };
    xray_embedding_grad g = { .header = XRAY_HEADER(xray_embedding_grad),
                              .tokens = { SLICED_TOKENS, NULL },
                              .ids = ids,
                              .dy = dy,
                              .dtable = grad + skip,
                              .vocab = rows[1] - rows[0],
                              .dim = SLICED_DIM,
                              .scale = 1.5f,
                              .slice = 1,
                              .vocab_first = rows[0] };
    RUN(d, embedding, &op);
    for (size_t i = 0; i < n; i++)
        y[i] = y[i] + part[i];
    RUN(d, embedding_grad, &g);
    free(part);
}

/* Also where a value is -0, which +0 of another slice would turn into +0. */
static void slices_of_a_table_add_up_to_it(void **state)
{
    (void)state;
    size_t n = (size_t)SLICED_TOKENS * SLICED_DIM;
    size_t size = (size_t)SLICED * SLICED_DIM;
    bench b;
    open_devices(&b);
    float *table = random_floats(size, 1);
    float *dy = random_floats(n, 1);
    uint16_t narrow[SLICED * SLICED_DIM];
    int32_t ids[SLICED_TOKENS];
    for (size_t i = 0; i < size; i++) {
        table[i] = i % 7 == 3 ? -0.0f : cpu_from_bf16(cpu_to_bf16(table[i]));
        narrow[i] = cpu_to_bf16(table[i]);
    }
    for (size_t t = 0; t < SLICED_TOKENS; t++)
        ids[t] = (int32_t)random_below(SLICED);
    for (int d = 0; d < b.count; d++) {
        float *want = alloc_floats(n);
        float *want_grad = copy_floats(table, size);
        const uint64_t all[2] = { 0, SLICED };
        for (size_t i = 0; i < n; i++)
            want[i] = -0.0f;
        run_slice(&b.dev[d], ids, table, XRAY_F32, all, want, dy, want_grad);
        for (uint64_t cut = 0; cut <= SLICED; cut++) {
            uint32_t dtype = cut % 2 ? XRAY_BF16 : XRAY_F32;
            const void *from = cut % 2 ? (void *)narrow : table;
            const uint64_t low[2] = { 0, cut };
            const uint64_t high[2] = { cut, SLICED };
            float *y = alloc_floats(n);
            float *grad = copy_floats(table, size);
            for (size_t i = 0; i < n; i++)
                y[i] = -0.0f;
            run_slice(&b.dev[d], ids, from, dtype, low, y, dy, grad);
            run_slice(&b.dev[d], ids, from, dtype, high, y, dy, grad);
            assert_same_bits(y, want, n, "two slices", b.dev[d].name);
            assert_same_bits(grad, want_grad, size, "two slices' gradients",
                             b.dev[d].name);
            free(y);
            free(grad);
        }
        for (size_t i = 0; i < n; i++) {
            float x = 1.5f * table[(size_t)ids[i / SLICED_DIM] * SLICED_DIM +
                                   i % SLICED_DIM];
            assert_true(want[i] == x && signbit(want[i]) == signbit(x));
        }
        free(want);
        free(want_grad);
    }
    free(table);
    free(dy);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embedding_reads_and_folds_rows),
        cmocka_unit_test(slices_of_a_table_add_up_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
