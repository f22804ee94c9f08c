/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that rows, positions and activations of device-cuda give the CPU's
 * bits, for widths that suit 16-byte accesses and for others, and leave items
 * past `live` unchanged.
 */
#define _GNU_SOURCE
#include "tests/cuda/pair.h"

#include <sys/mman.h>

static const size_t dims[] = { 1, 3, 4, 37, 64, 132, 1028, 4100 };
#define DIMS (sizeof(dims) / sizeof(*dims))

static int32_t *random_ids(size_t n, size_t below)
{
    int32_t *ids = calloc(n, sizeof(*ids));
    assert_non_null(ids);
    for (size_t t = 0; t < n; t++)
        ids[t] = (int32_t)random_below(below);
    return ids;
}

/* ---- rows by index ------------------------------------------------------ */

enum { VOCAB = 13, TOKENS = 29, LIVE = 21 };

static void compare_embedding(const pair *p, size_t dim, uint32_t kind,
                              size_t off, uint32_t slice)
{
    int32_t *ids = random_ids(TOKENS, VOCAB);
    int32_t live = LIVE;
    buf table = make_random_buf(p, VOCAB * dim + 1, 1);
    buf y = make_random_buf(p, TOKENS * dim + 1, 1);
    buf at_ids = make_buf(p, ids, TOKENS * sizeof(*ids));
    buf at_live = make_buf(p, &live, sizeof(live));
    for (int s = 0; s < 2; s++) {
        xray_embedding op = { .header = XRAY_HEADER(xray_embedding),
                              .tokens = { TOKENS, at_live.p[s] },
                              .ids = at_ids.p[s],
                              .table = buf_floats(&table, s, off),
                              .y = buf_floats(&y, s, off),
                              .vocab = slice ? 5 : VOCAB,
                              .dim = dim,
                              .scale = 1.5f,
                              .table_dtype = type_in(kind, 0),
                              .y_dtype = type_in(kind, 1),
                              .vocab_first = slice ? 4 : 0,
                              .slice = slice };
        RUN_ON(p, s, embedding, &op);
    }
    assert_same_buf(p, &y, "embedding");
    free_buf(p, &table);
    free_buf(p, &y);
    free_buf(p, &at_ids);
    free_buf(p, &at_live);
    free(ids);
}

static void embeddings_equal_the_cpu(void **state)
{
    (void)state;
    pair p = open_pair();
    for (size_t i = 0; i < DIMS; i++)
        for (uint32_t kind = 0; kind < 8; kind++)
            compare_embedding(&p, dims[i], kind, kind / 4, kind % 3 == 0);
    xray_embedding op = { .header = XRAY_HEADER(xray_embedding) };
    REFUSED(&p, embedding, &op, XRAY_E_ARG);
    op.header.size -= 8;
    REFUSED(&p, embedding, &op, XRAY_E_ABI);
    close_pair(&p);
}

/* The host cannot read ids: a row with an invalid id is NaN, other rows are
 * right, and no memory outside is touched. In a slice only ids below 0 are
 * invalid. */
static void ids_out_of_range_show_as_nan(void **state)
{
    (void)state;
    pair p = open_pair();
    enum { DIM = 8 };
    int32_t ids[4] = { 2, -1, 5, 1 };
    float x[5 * DIM];
    float y[5 * DIM] = { 0 };
    for (int i = 0; i < 5 * DIM; i++)
        x[i] = (float)i;
    buf at_ids = make_buf(&p, ids, sizeof(ids));
    buf at_x = make_buf(&p, x, sizeof(x));
    buf at_y = make_buf(&p, y, sizeof(y));
    const dev *d = &p.d[CUDA];
    xray_embedding op = { .header = XRAY_HEADER(xray_embedding),
                          .tokens = { 4, NULL },
                          .ids = at_ids.p[CUDA],
                          .table = at_x.p[CUDA],
                          .y = at_y.p[CUDA],
                          .vocab = 5,
                          .dim = DIM,
                          .scale = 1.0f };
    xray_embedding_grad grad = { .header = XRAY_HEADER(xray_embedding_grad),
                                 .tokens = { 4, NULL },
                                 .ids = at_ids.p[CUDA],
                                 .dy = at_x.p[CUDA],
                                 .dtable = at_y.p[CUDA],
                                 .vocab = 5,
                                 .dim = DIM,
                                 .scale = 1.0f };
    must(d->ops->embedding(d->self, NULL, &op));
    must(d->ops->copy(d->self, NULL, y, at_y.p[CUDA], sizeof(y),
                      XRAY_COPY_TO_HOST));
    must(d->ops->sync(d->self, NULL));
    for (int i = 0; i < DIM; i++) {
        assert_true(y[i] == x[2 * DIM + i] && y[3 * DIM + i] == x[DIM + i]);
        assert_true(isnan(y[DIM + i]) && isnan(y[2 * DIM + i]));
    }
    op.slice = 1;
    must(d->ops->embedding(d->self, NULL, &op));
    must(d->ops->copy(d->self, NULL, y, at_y.p[CUDA], sizeof(y),
                      XRAY_COPY_TO_HOST));
    must(d->ops->sync(d->self, NULL));
    for (int i = 0; i < DIM; i++)
        assert_true(isnan(y[DIM + i]) && y[2 * DIM + i] == 0);
    must(d->ops->zero(d->self, NULL, at_y.p[CUDA], sizeof(y)));
    must(d->ops->embedding_grad(d->self, NULL, &grad));
    must(d->ops->copy(d->self, NULL, y, at_y.p[CUDA], sizeof(y),
                      XRAY_COPY_TO_HOST));
    must(d->ops->sync(d->self, NULL));
    for (int i = 0; i < DIM; i++) {
        assert_true(y[2 * DIM + i] == x[i] && y[DIM + i] == x[3 * DIM + i]);
        assert_true(y[i] == 0 && y[3 * DIM + i] == 0 && y[4 * DIM + i] == 0);
    }
    free_buf(&p, &at_ids);
    free_buf(&p, &at_x);
    free_buf(&p, &at_y);
    close_pair(&p);
}

/* With `few` ids some are very frequent; some tokens are past the live
 * count. */
static void compare_embedding_grad(const pair *p, size_t tokens, size_t few,
                                   size_t dim, size_t off)
{
    int32_t *ids = random_ids(tokens, few);
    for (size_t t = 0; t < tokens; t += 3)
        ids[t] = (int32_t)few - 1;
    int32_t live = (int32_t)tokens - 3;
    buf dtable = make_random_buf(p, few * dim + 1, 1);
    buf dy = make_random_buf(p, tokens * dim + 1, 1);
    buf at_ids = make_buf(p, ids, tokens * sizeof(*ids));
    buf at_live = make_buf(p, &live, sizeof(live));
    for (int s = 0; s < 2; s++) {
        xray_embedding_grad op = { .header = XRAY_HEADER(xray_embedding_grad),
                                   .tokens = { tokens, at_live.p[s] },
                                   .ids = at_ids.p[s],
                                   .dy = buf_floats(&dy, s, off),
                                   .dtable = buf_floats(&dtable, s, off),
                                   .vocab = few,
                                   .dim = dim,
                                   .scale = 0.7f };
        RUN_ON(p, s, embedding_grad, &op);
    }
    assert_same_buf(p, &dtable, "dtable");
    free_buf(p, &dtable);
    free_buf(p, &dy);
    free_buf(p, &at_ids);
    free_buf(p, &at_live);
    free(ids);
}

static void embedding_gradients_go_in_token_order(void **state)
{
    (void)state;
    pair p = open_pair();
    compare_embedding_grad(&p, 5, 3, 4, 0);
    compare_embedding_grad(&p, 37, 9, 37, 0);
    compare_embedding_grad(&p, 130, 2, 132, 1);
    compare_embedding_grad(&p, 700, 60, 64, 0);
    compare_embedding_grad(&p, 2100, 1500, 12, 0);
    close_pair(&p);
}

static void compare_moves(const pair *p, size_t dim, uint32_t dtype)
{
    int32_t index[LIVE];
    for (int32_t i = 0; i < LIVE; i++)
        index[i] = (i * 8 + 3) % TOKENS;
    buf x = make_random_buf(p, TOKENS * dim, 1);
    buf y = make_random_buf(p, LIVE * dim, 1);
    buf back = make_random_buf(p, TOKENS * dim, 1);
    buf at_index = make_buf(p, index, sizeof(index));
    for (int s = 0; s < 2; s++) {
        xray_rows op = { .header = XRAY_HEADER(xray_rows),
                         .count = { LIVE, NULL },
                         .index = at_index.p[s],
                         .x = x.p[s],
                         .y = y.p[s],
                         .dim = dim,
                         .dtype = dtype };
        RUN_ON(p, s, gather, &op);
        op.x = y.p[s];
        op.y = back.p[s];
        RUN_ON(p, s, scatter, &op);
    }
    assert_same_buf(p, &y, "gather");
    assert_same_buf(p, &back, "scatter");
    free_buf(p, &x);
    free_buf(p, &y);
    free_buf(p, &back);
    free_buf(p, &at_index);
}

static void moved_rows_equal_the_cpu(void **state)
{
    (void)state;
    pair p = open_pair();
    for (size_t i = 0; i < DIMS; i++)
        for (uint32_t kind = 0; kind < 2; kind++)
            compare_moves(&p, dims[i], type_in(kind, 0));
    close_pair(&p);
}

/* ---- bytes of rows ------------------------------------------------------ */

enum { PITCHED = 3, BYTES = 5, PITCH = 9 }; /* rows, of device memory */

static void read_bytes(const dev *d, void *to, const void *from, size_t bytes)
{
    must(d->ops->copy(d->self, NULL, to, from, bytes, XRAY_COPY_TO_HOST));
    must(d->ops->sync(d->self, NULL));
}

/* Copies rows from `host` to the device, and back to host + 64. */
static void check_pitched(const dev *d, unsigned char *host, uint64_t pitch)
{
    unsigned char seen[PITCHED * PITCH + 2];
    unsigned char *at = NULL;
    must(d->ops->alloc(d->self, "test", XRAY_TAG_KV, sizeof(seen),
                       (void **)&at));
    for (uint64_t i = 0; i < PITCHED * BYTES; i++)
        host[i / BYTES * pitch + i % BYTES] = (unsigned char)(i + 1);
    xray_copy_rows rows = { .header = XRAY_HEADER(xray_copy_rows),
                            .to = at + 1,
                            .from = host,
                            .rows = PITCHED,
                            .bytes = BYTES,
                            .to_pitch = PITCH,
                            .from_pitch = pitch,
                            .kind = XRAY_COPY_TO_DEVICE };
    must(d->ops->copy_rows(d->self, NULL, &rows));
    read_bytes(d, seen, at, sizeof(seen));
    for (uint64_t i = 0; i < sizeof(seen); i++) {
        uint64_t in = (i + PITCH - 1) % PITCH;
        int inside = i >= 1 && i <= PITCHED * PITCH && in < BYTES;
        assert_int_equal(seen[i],
                         inside ? (i - 1) / PITCH * BYTES + in + 1 : 0);
    }
    rows.to = host + 64;
    rows.from = at + 1;
    rows.to_pitch = pitch;
    rows.from_pitch = PITCH;
    rows.kind = XRAY_COPY_TO_HOST;
    must(d->ops->copy_rows(d->self, NULL, &rows));
    must(d->ops->sync(d->self, NULL));
    for (uint64_t r = 0; r < PITCHED; r++) {
        const unsigned char *row = host + 64 + r * pitch;
        for (uint64_t k = 0; k < BYTES; k++)
            assert_int_equal(row[k], r * BYTES + k + 1);
        assert_int_equal(row[BYTES], 0);
    }
    d->ops->free(d->self, at);
}

/* CUDA itself takes no pitch above 2^31 - 1. */
static void copied_rows_keep_their_pitches(void **state)
{
    static const uint64_t pitches[] = { 7, INT32_MAX, UINT64_C(1) << 31 };
    (void)state;
    pair p = open_pair();
    for (size_t i = 0; i < sizeof(pitches) / sizeof(*pitches); i++) {
        size_t bytes = (PITCHED - 1) * pitches[i] + 4096;
        void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        assert_true(host != MAP_FAILED);
        for (int s = 0; s < 2; s++) {
            check_pitched(&p.d[s], host, pitches[i]);
            for (uint64_t r = 0; r < PITCHED; r++)
                memset((char *)host + r * pitches[i], 0, 128);
        }
        (void)munmap(host, bytes);
    }
    close_pair(&p);
}

/* ---- rotary positions --------------------------------------------------- */

static void compare_rope(const pair *p, uint32_t heads, uint32_t dim,
                         uint32_t half, uint32_t dtype)
{
    enum { POSITIONS = 50 };
    double freq[300];
    int32_t live = LIVE;
    size_t stride = (size_t)heads * dim + (half % 4 ? 3 : 8);
    int32_t *positions = random_ids(TOKENS, POSITIONS);
    for (uint32_t i = 0; i < half; i++)
        freq[i] = pow(10000.0, -(double)i / half);
    buf table = make_random_buf(p, (size_t)POSITIONS * half * 2, 1);
    buf x = make_random_buf(p, TOKENS * stride, 1);
    buf at_positions = make_buf(p, positions, TOKENS * sizeof(*positions));
    buf at_live = make_buf(p, &live, sizeof(live));
    for (int s = 0; s < 2; s++) {
        xray_rope_table make = { .header = XRAY_HEADER(xray_rope_table),
                                 .inv_freq = freq,
                                 .table = table.p[s],
                                 .positions = POSITIONS,
                                 .half = half,
                                 .scale = 1.25f };
        xray_rope op = { .header = XRAY_HEADER(xray_rope),
                         .tokens = { TOKENS, at_live.p[s] },
                         .x = x.p[s],
                         .positions = at_positions.p[s],
                         .table = table.p[s],
                         .stride = stride,
                         .heads = heads,
                         .head_dim = dim,
                         .half = half,
                         .inverse = heads % 2,
                         .dtype = dtype };
        RUN_ON(p, s, rope_table, &make);
        RUN_ON(p, s, rope, &op);
    }
    assert_same_buf(p, &table, "rope_table");
    assert_same_buf(p, &x, "rope");
    free_buf(p, &table);
    free_buf(p, &x);
    free_buf(p, &at_positions);
    free_buf(p, &at_live);
    free(positions);
}

static void rotated_positions_equal_the_cpu(void **state)
{
    (void)state;
    pair p = open_pair();
    for (uint32_t kind = 0; kind < 2; kind++) {
        uint32_t dtype = type_in(kind, 0);
        compare_rope(&p, 1, 4, 2, dtype);
        compare_rope(&p, 2, 16, 8, dtype);
        compare_rope(&p, 3, 13, 5, dtype);
        compare_rope(&p, 14, 64, 32, dtype);
        compare_rope(&p, 5, 64, 12, dtype);
        compare_rope(&p, 9, 600, 299, dtype);
        compare_rope(&p, 40, 128, 64, dtype);
    }
    double freq[2] = { 1.0, -1.0 };
    float table[4] = { 0 };
    xray_rope_table make = { .header = XRAY_HEADER(xray_rope_table),
                             .inv_freq = freq,
                             .table = table,
                             .positions = 1,
                             .half = 2,
                             .scale = 1 };
    REFUSED(&p, rope_table, &make, XRAY_E_RANGE);
    int32_t position = 0;
    xray_rope op = { .header = XRAY_HEADER(xray_rope),
                     .tokens = { 1, NULL },
                     .x = table,
                     .positions = &position,
                     .table = table,
                     .stride = 4,
                     .heads = 2,
                     .head_dim = 3,
                     .half = 1 };
    REFUSED(&p, rope, &op, XRAY_E_ARG);
    close_pair(&p);
}

/* ---- activations -------------------------------------------------------- */

static void compare_activation(const pair *p, uint32_t dim, uint32_t act,
                               uint32_t plain, uint32_t kind)
{
    uint32_t x_dtype = type_in(kind, 0);
    int32_t live = LIVE;
    size_t width = (size_t)dim * (plain ? 1 : 2);
    buf x = make_random_buf(p, TOKENS * width, dim % 3 ? 4 : 120);
    buf y = make_random_buf(p, (size_t)TOKENS * dim, 1);
    buf dy = make_random_buf(p, (size_t)TOKENS * dim, 1);
    buf dx = make_random_buf(p, TOKENS * width, 1);
    buf at_live = make_buf(p, &live, sizeof(live));
    for (int s = 0; s < 2; s++) {
        xray_glu op = { .header = XRAY_HEADER(xray_glu),
                        .tokens = { TOKENS, at_live.p[s] },
                        .x = x.p[s],
                        .y = y.p[s],
                        .dim = dim,
                        .act = act,
                        .plain = plain,
                        .x_dtype = x_dtype,
                        .y_dtype = type_in(kind, 1) };
        xray_glu_grad grad = { .header = XRAY_HEADER(xray_glu_grad),
                               .tokens = { TOKENS, at_live.p[s] },
                               .x = x.p[s],
                               .dy = dy.p[s],
                               .dx = kind ? dx.p[s] : x.p[s],
                               .dim = dim,
                               .act = act,
                               .plain = plain,
                               .x_dtype = x_dtype };
        RUN_ON(p, s, glu, &op);
        RUN_ON(p, s, glu_grad, &grad);
    }
    assert_same_buf(p, &y, "glu");
    assert_same_buf(p, &x, "glu_grad over x");
    assert_same_buf(p, &dx, "glu_grad");
    free_buf(p, &x);
    free_buf(p, &y);
    free_buf(p, &dy);
    free_buf(p, &dx);
    free_buf(p, &at_live);
}

static void activations_equal_the_cpu(void **state)
{
    (void)state;
    pair p = open_pair();
    for (uint32_t act = XRAY_ACT_SILU; act <= XRAY_ACT_GELU_TANH; act++)
        for (uint32_t plain = 0; plain < 2; plain++)
            for (size_t i = 0; i < DIMS; i++)
                for (uint32_t kind = 0; kind < 4; kind++)
                    compare_activation(&p, (uint32_t)dims[i], act, plain, kind);
    float x[2] = { 0 };
    xray_glu op = { .header = XRAY_HEADER(xray_glu), .x = x, .y = x, .dim = 1 };
    REFUSED(&p, glu, &op, XRAY_E_UNSUPPORTED);
    op.act = XRAY_ACT_SILU;
    op.plain = 2;
    REFUSED(&p, glu, &op, XRAY_E_ARG);
    close_pair(&p);
}

/* ---- a bias ------------------------------------------------------------- */

/* Rows past the live ones do not count, and what follows dbias stays. */
static void gradients_of_a_bias_equal_the_cpu(void **state)
{
    enum { ROWS = 67, COLS = 5 };
    const int32_t live = LIVE;
    (void)state;
    pair p = open_pair();
    buf x = make_random_buf(&p, (size_t)TOKENS * COLS, 1);
    buf dy = make_random_buf(&p, (size_t)TOKENS * ROWS, 1);
    buf dw = make_random_buf(&p, (size_t)ROWS * COLS, 1);
    buf dbias = make_random_buf(&p, ROWS + 3, 1);
    buf at_live = make_buf(&p, &live, sizeof(live));
    for (int s = 0; s < 2; s++) {
        const xray_matmul_grad op = { .header = XRAY_HEADER(xray_matmul_grad),
                                      .tokens = { TOKENS, at_live.p[s] },
                                      .dy = dy.p[s],
                                      .x = x.p[s],
                                      .dy_stride = ROWS,
                                      .x_stride = COLS,
                                      .rows = ROWS,
                                      .cols = COLS,
                                      .dw = dw.p[s],
                                      .dbias = dbias.p[s] };
        RUN_ON(&p, s, matmul_grad, &op);
    }
    assert_same_buf(&p, &dw, "dw");
    assert_same_buf(&p, &dbias, "dbias");
    buf *const all[] = { &x, &dy, &dw, &dbias, &at_live };
    for (size_t i = 0; i < 5; i++)
        free_buf(&p, all[i]);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_equal_the_cpu),
        cmocka_unit_test(ids_out_of_range_show_as_nan),
        cmocka_unit_test(embedding_gradients_go_in_token_order),
        cmocka_unit_test(moved_rows_equal_the_cpu),
        cmocka_unit_test(copied_rows_keep_their_pitches),
        cmocka_unit_test(rotated_positions_equal_the_cpu),
        cmocka_unit_test(activations_equal_the_cpu),
        cmocka_unit_test(gradients_of_a_bias_equal_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
