/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that attention of rows with parents gives the bits of the joined rows,
 * and gradients that sum to theirs.
 */
#include "tests/device/attention_family.h"

static const form forms[] = {
    { 1, 1, 8, 0, 0.0f, { 1, -1, -2 }, 0.0f },
    { 4, 2, 16, 0, 0.0f, { 8, -5, -5, -4, 8, -5, -1 }, 0.0f },
    { 4, 4, 16, 0, 0.0f, { 16, -16, -3, 7, 15, -1, -2, 17 }, 0.0f },
    { 6, 2, 24, 0, 0.0f, { 17, -33, -1, 40, -2, -2 }, 0.0f },
    { 2, 1, 64, 0, 0.0f, { 130, -64, -65, 70, -1 }, 0.0f },
    { 4, 2, 16, 5, 0.0f, { 20, -30, -2, 9, -40, -3 }, 0.0f },
    { 3, 3, 20, 0, 2.0f, { 30, -20, -21, -5 }, 0.0f },
    { 2, 1, 32, 18, 1.5f, { 17, -50, -3, 40 }, 0.0f },
    { 8, 2, 128, 64, 0.0f, { 65, -63, -64, -2 }, 0.0f },
};
#define FORMS (sizeof(forms) / sizeof(*forms))

/* `parent` is that of f, or NULL where the rows of f are joined. */
static void run_family(const dev *d, const family *f, const int32_t *parent,
                       int backward)
{
    xray_attention op = make_attention(&f->r, f->r.o, f->r.lse);
    op.parent = parent;
    xray_attention_grad back = make_attention_grad(&f->r, &op, f->d_o, f->grad);
    must(d->ops->attention(d->self, NULL, &op));
    if (backward)
        must(d->ops->attention_grad(d->self, NULL, &back));
}

static void require_parent_support(const dev *d)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    must(d->ops->info(d->self, &info));
    assert_true(info.features & XRAY_DEVICE_PARENTS);
}

static void outputs_are_the_joined_rows(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < FORMS; i += TEST_STEP) {
        family f = make_family(forms[i]);
        family joined = join_family(&f, 0, f.r.count);
        run_family(&b.dev[0], &joined, NULL, 0);
        for (int d = 0; d < b.count; d++) {
            require_parent_support(&b.dev[d]);
            run_family(&b.dev[d], &f, f.parent, 0);
            for (size_t row = 0; row < f.r.count; row++)
                assert_same_family(&f, (size_t)f.r.start[row], &joined,
                                   (size_t)joined.r.start[row] +
                                       parent_length(&f, row),
                                   row_length(&f, row), b.dev[d].name);
        }
        free_family(&f);
        free_family(&joined);
    }
    close_devices(&b);
}

/* Sums the gradients of q, k and v over the joined rows, per token. */
static double *sum_joined_grads(const family *f, const family *joined)
{
    size_t stride = f->r.stride;
    double *sum = calloc(f->r.tokens * stride, sizeof(*sum));
    assert_non_null(sum);
    for (size_t row = 0; row < f->r.count; row++)
        for (size_t t = 0; t < row_length(joined, row); t++) {
            size_t own = joined_token(f, row, t);
            size_t in = (size_t)joined->r.start[row] + t;
            for (size_t e = 0; e < stride; e++)
                sum[own * stride + e] += (double)joined->grad[in * stride + e];
        }
    return sum;
}

/* Checks that rows without children have the bits of the joined rows. */
static void check_family_grads(const family *f, const family *joined,
                               const char *who)
{
    size_t stride = f->r.stride;
    double *want = sum_joined_grads(f, joined);
    for (size_t e = 0; e < f->r.tokens * stride; e++)
        assert_near(f->grad[e], want[e], 2e-5, who);
    free(want);
    for (size_t row = 0; row < f->r.count; row++)
        if (!has_children(f, row))
            assert_same_bits(f->grad + (size_t)f->r.start[row] * stride,
                             joined->grad + ((size_t)joined->r.start[row] +
                                             parent_length(f, row)) *
                                                stride,
                             row_length(f, row) * stride, "grad", who);
}

static void scale_values(float *x, size_t n, float scale)
{
    float *from = random_floats(n, scale);
    memcpy(x, from, n * sizeof(*x));
    free(from);
}

static void gradients_add_up(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 1 % TEST_STEP; i < FORMS; i += TEST_STEP) {
        family f = make_family(forms[i]);
        family joined = join_family(&f, 0, f.r.count);
        run_family(&b.dev[0], &joined, NULL, 1);
        run_family(&b.dev[0], &f, f.parent, 1);
        check_family_grads(&f, &joined, b.dev[0].name);
        size_t n = f.r.tokens * f.r.stride;
        float *first = copy_floats(f.grad, n);
        for (int d = 1; d < b.count; d++) {
            require_parent_support(&b.dev[d]);
            scale_values(f.grad, n, 1);
            run_family(&b.dev[d], &f, f.parent, 1);
            assert_same_bits(f.grad, first, n, "grad", b.dev[d].name);
        }
        family one = view_family_from(&f, find_last_family(&f));
        scale_values(one.grad, one.r.tokens * one.r.stride, 1);
        run_family(&b.dev[1], &one, one.parent, 1);
        assert_same_bits(one.grad, first + (one.grad - f.grad),
                         one.r.tokens * one.r.stride, "a family alone", "grad");
        free(first);
        free_family(&f);
        free_family(&joined);
    }
    close_devices(&b);
}

static void strange_parents_are_refused(void **state)
{
    (void)state;
    bench b;
    open_cpu_devices(&b);
    static const int32_t strange[] = { 2, 1, 3, -2, 7 };
    for (size_t i = 0; i < sizeof(strange) / sizeof(*strange); i++) {
        family f = make_family(forms[0]);
        f.parent[2] = strange[i];
        xray_attention op = make_attention(&f.r, f.r.o, NULL);
        op.parent = f.parent;
        assert_int_equal(b.dev[0].ops->attention(b.dev[0].self, NULL, &op),
                         XRAY_E_ARG);
        assert_non_null(strstr(last_failure, "row 2 continues row"));
        f.parent[2] = 0;
        op.row_bound = 2;
        assert_int_equal(b.dev[0].ops->attention(b.dev[0].self, NULL, &op),
                         XRAY_E_RANGE);
        free_family(&f);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_the_joined_rows),
        cmocka_unit_test(gradients_add_up),
        cmocka_unit_test(strange_parents_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
