/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of attention over some of the queries of each row: they have the bits
 * that they have among all, and the gradients of keys and values are the part
 * that these queries add.
 */
#include "tests/device/attention_reference.h"

static const form forms[] = {
    { 2, 1, 8, 0, 0.0f, { 14, 3 }, 0.0f },
    { 4, 2, 24, 0, 0.0f, { 130, 1, 33 }, 0.0f },
    { 4, 2, 16, 5, 0.0f, { 1, 40, 90 }, 0.0f },
    { 3, 3, 20, 0, 2.0f, { 70 }, 0.0f },
    { 2, 1, 16, 18, 1.5f, { 150, 3 }, 0.0f },
    { 3, 1, 32, 64, 0.0f, { 65, 140 }, 0.0f },
    { 2, 1, 256, 33, 0.0f, { 70 }, 0.0f },
    { 2, 2, 96, 40, 0.7f, { 81 }, 0.2f },
    /* More keys than a split of bfloat16 has. */
    { 1, 1, 16, 0, 0.0f, { 300 }, 0.0f },
};
#define FORMS (sizeof(forms) / sizeof(*forms))

/* Adds bfloat16 to the devices, where the kernels of a GPU run. */
static void open_all(bench *b)
{
    open_devices(b);
#ifdef BENCH_CUDA
    b->dev[b->count++] = open_cuda(CUDA_BFLOAT16, "cuda, bf16");
#endif
}

/* All queries of rows: o and lse are those of `r`. */
typedef struct whole {
    rows r;
    float *d_o;  /* [tokens, q_width] */
    float *grad; /* with the layout of qkv */
} whole;

static void run_whole_grad(const dev *d, const whole *w, const float *d_o,
                           float *grad)
{
    xray_attention op = make_attention(&w->r, w->r.o, w->r.lse);
    xray_attention_grad g = make_attention_grad(&w->r, &op, d_o, grad);
    must(d->ops->attention_grad(d->self, NULL, &g));
}

static whole run_whole(const dev *d, form f)
{
    random_state = 11;
    whole w = { .r = make_rows(f) };
    w.d_o = random_floats(w.r.tokens * w.r.q_width, 1);
    w.grad = random_floats(w.r.tokens * w.r.stride, 1);
    xray_attention op = make_attention(&w.r, w.r.o, w.r.lse);
    must(d->ops->attention(d->self, NULL, &op));
    run_whole_grad(d, &w, w.d_o, w.grad);
    return w;
}

static void free_whole(whole *w)
{
    free_rows(&w->r);
    free(w->d_o);
    free(w->grad);
}

/* Some queries of the rows, one after the other. A row without keys stands
 * after the first row, and what the call does not have to write is random. */
typedef struct part {
    size_t rows, queries;
    int32_t row_start[MOST_ROWS + 2];
    int32_t start[MOST_ROWS + 2];
    int32_t first[MOST_ROWS + 1];
    int32_t token[REF_KEYS]; /* of each query in the whole */
    float *q, *o, *lse, *d_o, *dq;
    float *dkv; /* [tokens, 2 * kv_width] dk, dv */
} part;

/* Adds a row with the queries from `cut[0]` to before `cut[1]`. */
static void add_part_row(part *p, int32_t start, int32_t length,
                         const int32_t cut[2])
{
    int32_t from = cut[0] < length ? cut[0] : length;
    int32_t to = cut[1] < length ? cut[1] : length;
    for (int32_t i = from; i < to; i++)
        p->token[p->queries++] = start + i;
    p->first[p->rows++] = from;
    p->row_start[p->rows] = start + length;
    p->start[p->rows] = (int32_t)p->queries;
}

/* The cut of row i is 3 i positions later than the first row's. */
static part run_part(const dev *d, const whole *w, int32_t from, int32_t to)
{
    static const int32_t none[2];
    const rows *r = &w->r;
    part p = { .rows = 0 };
    for (size_t row = 0; row < r->count; row++) {
        int32_t by = 3 * (int32_t)row;
        const int32_t cut[2] = { from ? from + by : 0, to + by };
        add_part_row(&p, r->start[row], r->f.lengths[row], cut);
        if (row == 0)
            add_part_row(&p, p.row_start[1], 0, none);
    }
    p.q = alloc_floats(p.queries * r->q_width);
    p.d_o = alloc_floats(p.queries * r->q_width);
    for (size_t t = 0; t < p.queries; t++) {
        size_t at = (size_t)p.token[t];
        memcpy(p.q + t * r->q_width, r->qkv + at * r->stride,
               r->q_width * sizeof(*p.q));
        memcpy(p.d_o + t * r->q_width, w->d_o + at * r->q_width,
               r->q_width * sizeof(*p.q));
    }
    p.o = random_floats(p.queries * r->q_width, 1);
    p.lse = random_floats(p.queries * r->f.heads, 1);
    p.dq = random_floats(p.queries * r->q_width, 1);
    p.dkv = random_floats(r->tokens * 2 * r->kv_width, 1);
    xray_attention op = make_attention(r, p.o, p.lse);
    op.row_start = p.row_start;
    op.rows = p.rows;
    op.q = p.q;
    op.q_stride = r->q_width;
    op.queries.bound = p.queries;
    op.query_start = p.start;
    op.query_first = p.first;
    xray_attention_grad g = make_attention_grad(r, &op, p.d_o, NULL);
    g.dq = p.dq;
    g.dk = p.dkv;
    g.dv = p.dkv + r->kv_width;
    g.dq_stride = r->q_width;
    g.dk_stride = g.dv_stride = 2 * r->kv_width;
    must(d->ops->attention(d->self, NULL, &op));
    must(d->ops->attention_grad(d->self, NULL, &g));
    return p;
}

static void free_part(part *p)
{
    float *all[] = { p->q, p->o, p->lse, p->d_o, p->dq, p->dkv };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

/* o, lse and dq have the bits of the whole call; dk and dv have those of a
 * whole call in which d_o of the other queries is 0, so that they add nothing.
 */
static void check_part(const dev *d, const whole *w, const part *p)
{
    const rows *r = &w->r;
    float *d_o = alloc_floats(r->tokens * r->q_width);
    float *grad = alloc_floats(r->tokens * r->stride);
    for (size_t t = 0; t < p->queries; t++) {
        size_t at = (size_t)p->token[t];
        size_t own = t * r->q_width;
        assert_same_bits(p->o + own, r->o + at * r->q_width, r->q_width, "o",
                         d->name);
        assert_same_bits(p->lse + t * r->f.heads, r->lse + at * r->f.heads,
                         r->f.heads, "lse", d->name);
        assert_same_bits(p->dq + own, w->grad + at * r->stride, r->q_width,
                         "dq", d->name);
        memcpy(d_o + at * r->q_width, p->d_o + own, r->q_width * sizeof(*d_o));
    }
    run_whole_grad(d, w, d_o, grad);
    for (size_t t = 0; t < r->tokens; t++)
        assert_same_bits(p->dkv + t * 2 * r->kv_width,
                         grad + t * r->stride + r->q_width, 2 * r->kv_width,
                         "dk and dv", d->name);
    free(d_o);
    free(grad);
}

/* ---- tests -------------------------------------------------------------- */

static const int32_t cuts[][2] = { { 0, 0 },    { 0, 1 },    { 0, 16 },
                                   { 0, 512 },  { 7, 40 },   { 16, 17 },
                                   { 33, 512 }, { 63, 129 }, { 64, 512 },
                                   { 65, 80 },  { 512, 512 } };
#define CUTS (sizeof(cuts) / sizeof(*cuts))

static void queries_have_the_bits_of_the_whole(void **state)
{
    (void)state;
    bench b;
    open_all(&b);
    for (size_t i = 0; i < FORMS; i++)
        for (int d = 0; d < b.count; d++) {
            if ((i + (size_t)d) % TEST_STEP)
                continue;
            whole w = run_whole(&b.dev[d], forms[i]);
            size_t first = (i + (size_t)d) / TEST_STEP % TEST_STEP;
            for (size_t c = first; c < CUTS; c += TEST_STEP) {
                part p = run_part(&b.dev[d], &w, cuts[c][0], cuts[c][1]);
                check_part(&b.dev[d], &w, &p);
                free_part(&p);
            }
            free_whole(&w);
        }
    close_devices(&b);
}

static void every_split_adds_up_to_the_whole(void **state)
{
    (void)state;
    bench b;
    open_all(&b);
    for (int d = 0; d < b.count; d++) {
        whole w = run_whole(&b.dev[d], forms[0]);
        const rows *r = &w.r;
        for (int32_t cut = 0; cut <= (int32_t)r->longest; cut += TEST_STEP) {
            part low = run_part(&b.dev[d], &w, 0, cut);
            part high = run_part(&b.dev[d], &w, cut, REF_KEYS);
            check_part(&b.dev[d], &w, &low);
            check_part(&b.dev[d], &w, &high);
            for (size_t t = 0; cut && t < r->tokens; t++)
                for (size_t e = 0; e < 2 * r->kv_width; e++) {
                    size_t at = t * 2 * r->kv_width + e;
                    float all = w.grad[t * r->stride + r->q_width + e];
                    assert_near(low.dkv[at] + high.dkv[at], (double)all, 1e-6,
                                "dk and dv of two parts");
                }
            free_part(&low);
            free_part(&high);
        }
        free_whole(&w);
    }
    close_devices(&b);
}

/* Compares a part with float64. */
static void check_against_float64(const whole *w, const part *p)
{
    const rows *r = &w->r;
    double *want = calloc(r->tokens * r->stride, sizeof(*want));
    assert_non_null(want);
    for (size_t t = 0; t < p->queries; t++) {
        size_t row = 0;
        while (p->token[t] >= r->start[row + 1])
            row++;
        size_t i = (size_t)(p->token[t] - r->start[row]);
        for (size_t h = 0; h < r->f.heads; h++) {
            query q = { r, row, i, h };
            check_ref_query(&q, p->o + t * r->q_width + h * r->f.dim,
                            p->lse[t * r->f.heads + h]);
            add_ref_query_grad(&q, w->d_o, want);
        }
    }
    for (size_t t = 0; t < p->queries; t++)
        for (size_t e = 0; e < r->q_width; e++)
            assert_near(p->dq[t * r->q_width + e],
                        want[(size_t)p->token[t] * r->stride + e], 2e-5, "dq");
    for (size_t t = 0; t < r->tokens; t++)
        for (size_t e = 0; e < 2 * r->kv_width; e++)
            assert_near(p->dkv[t * 2 * r->kv_width + e],
                        want[t * r->stride + r->q_width + e], 2e-5,
                        "dk and dv");
    free(want);
}

static void queries_match_float64(void **state)
{
    (void)state;
    bench b;
    open_cpu_devices(&b);
    for (size_t i = 0; i < FORMS; i++) {
        whole w = run_whole(&b.dev[0], forms[i]);
        for (size_t c = i % TEST_STEP; c < CUTS; c += TEST_STEP) {
            part p = run_part(&b.dev[0], &w, cuts[c][0], cuts[c][1]);
            check_against_float64(&w, &p);
            free_part(&p);
        }
        free_whole(&w);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queries_have_the_bits_of_the_whole),
        cmocka_unit_test(every_split_adds_up_to_the_whole),
        cmocka_unit_test(queries_match_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
