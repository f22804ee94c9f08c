/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that outputs and gradients of small models agree with a decoder in
 * double precision and its central differences.
 */
#include <math.h>

#include "tests/nn/fixture.h"
#include "tests/nn/reference.h"
#include "tests/testing.h"

static const uint32_t lengths[] = { 5, 1, 9, 2, 18 };
#define ROWS 5u
#define STEP 1e-5
#define HALF 0.002      /* bound of outputs with bf16 activations */
#define HALF_GRADS 0.12 /* bound of their gradients' relative error */

typedef struct setting {
    fixture model;
    reference ref;
    fixture_rows rows;
    fixture_items items;
    xm_space *space;
} setting;

static void begin_setting(setting *s, const fixture_kind *kind)
{
    xr_err err = { "" };
    print_message("%s\n", kind->name);
    fixture_make(&s->model, kind, 3);
    reference_make(&s->ref, &s->model);
    s->rows = fixture_rows_make(lengths, ROWS, kind->config.vocab, 5);
    s->items = fixture_items_make(&s->rows, kind->value_head, 7);
    fixture_ok(xm_space_create(s->model.decoder, 64, 8, 32, XM_SPACE_TRAIN,
                               "test", &err, &s->space),
               &err);
}

static void end_setting(setting *s)
{
    xm_space_destroy(s->space);
    fixture_items_free(&s->items);
    fixture_rows_free(&s->rows);
    reference_free(&s->ref);
    fixture_end(&s->model);
}

/* The reference rounds bf16 activations, too, but not always to the same side,
 * where a sum is just between two numbers. */
static double bound_of(const setting *s)
{
    return s->model.config.dtype == XRAY_BF16 ? HALF : 2e-5;
}

static void check_near(double got, double want, double bound, const char *what)
{
    if (!(fabs(got - want) <= bound))
        fail_msg("%s: got %.9g, want %.9g, bound %.3g", what, got, want, bound);
}

static void outputs_match_the_formulas(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        setting s;
        begin_setting(&s, &fixture_kinds[k]);
        float logp[64] = { 0 };
        float entropy[64] = { 0 };
        float value[64] = { 0 };
        fixture_out out = { logp, entropy, value };
        reference_out want[64];
        fixture_pass(&s.model, s.space, &s.rows, &s.items, NULL, &out);
        reference_run(&s.ref, &s.rows, &s.items, want);
        for (uint32_t i = 0; i < s.items.items.count; i++) {
            double bound = bound_of(&s);
            check_near((double)logp[i], want[i].logp, bound, "logp");
            check_near((double)entropy[i], want[i].entropy, bound, "entropy");
            if (s.items.items.value)
                check_near((double)value[i], want[i].value, bound, "value");
        }
        end_setting(&s);
    }
}

/* dL/d(direction) for one parameter, by central differences. */
static double central_difference(setting *s, const xm_param *param,
                                 const double *direction)
{
    double *at = s->ref.buckets[param->bucket] + param->offset;
    double loss[2];
    for (int side = 0; side < 2; side++) {
        double step = side ? -STEP : STEP;
        for (uint64_t i = 0; i < param->count; i++)
            at[i] += step * direction[i];
        loss[side] = reference_loss(&s->ref, &s->rows, &s->items);
        for (uint64_t i = 0; i < param->count; i++)
            at[i] -= step * direction[i];
    }
    return (loss[0] - loss[1]) / (2 * STEP);
}

/* Checks a random direction through all elements, then a few single elements;
 * these not under a sanitizer, to which the reference alone shows nothing. */
static void check_parameter(setting *s, const xm_param *param,
                            const float *grad)
{
    double *direction = calloc(param->count, sizeof *direction);
    assert_non_null(direction);
    double norm = 0;
    double sum = 0;
    for (uint64_t i = 0; i < param->count; i++) {
        direction[i] = (double)fixture_draw(99, i);
        sum += direction[i] * (double)grad[i];
        norm += (double)grad[i] * (double)grad[i];
    }
    norm = sqrt(norm);
    assert_true(norm > 1e-3);
    check_near(sum, central_difference(s, param, direction), 2e-4 * norm,
               param->name);
    for (uint64_t n = 0; n < 4 && TEST_STEP == 1; n++) {
        uint64_t at = (param->count - 1) * n / 3;
        memset(direction, 0, param->count * sizeof *direction);
        direction[at] = 1;
        check_near((double)grad[at], central_difference(s, param, direction),
                   1e-4 * norm, param->name);
    }
    free(direction);
}

static xm_grads *sum_gradients(const setting *s)
{
    xr_err err = { "" };
    xm_grads *grads = fixture_grads(&s->model);
    fixture_pass(&s->model, s->space, &s->rows, &s->items, grads, NULL);
    fixture_ok(xm_grads_finish(grads, &err), &err);
    return grads;
}

static void check_all_gradients(setting *s)
{
    xm_grads *grads = sum_gradients(s);
    for (uint32_t p = 0; p < s->model.layout->param_count; p++) {
        const xm_param *param = &s->model.layout->params[p];
        check_parameter(s, param,
                        grads->buckets[param->bucket] + param->offset);
    }
    xm_grads_destroy(grads);
}

static void gradients_match_finite_differences(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        setting s;
        begin_setting(&s, &fixture_kinds[k]);
        check_all_gradients(&s);
        end_setting(&s);
    }
}

/* A rounding has the slope 1, so differences say nothing about gradients of
 * bf16 activations: those of fp32 ones are as near as the outputs are. */
static void gradients_of_bf16_are_near(void **state)
{
    (void)state;
    for (size_t k = 0; k < fixture_kind_count; k++) {
        setting s[2];
        xm_grads *grads[2];
        for (int i = 0; i < 2; i++) {
            fixture_activations(i ? XRAY_BF16 : 0);
            begin_setting(&s[i], &fixture_kinds[k]);
            grads[i] = sum_gradients(&s[i]);
        }
        for (uint32_t p = 0; p < s[0].model.layout->param_count; p++) {
            const xm_param *m = &s[0].model.layout->params[p];
            double error = 0;
            double norm = 0;
            for (uint64_t i = 0; i < m->count; i++) {
                double want =
                    (double)grads[0]->buckets[m->bucket][m->offset + i];
                double got =
                    (double)grads[1]->buckets[m->bucket][m->offset + i];
                error += (got - want) * (got - want);
                norm += want * want;
            }
            check_near(sqrt(error), 0, HALF_GRADS * sqrt(norm), m->name);
        }
        for (int i = 0; i < 2; i++) {
            xm_grads_destroy(grads[i]);
            end_setting(&s[i]);
        }
    }
    fixture_activations(0);
}

/* With each kind of coefficient alone, absent arrays count as zeros. */
static void absent_coefficients_are_zero(void **state)
{
    (void)state;
    setting s;
    begin_setting(&s, &fixture_kinds[2]);
    for (int only = 0; only < 3; only++) {
        xr_err err = { "" };
        xm_grads *with = fixture_grads(&s.model);
        xm_grads *without = fixture_grads(&s.model);
        const float *dhidden = NULL;
        float zeros[64] = { 0 };
        fixture_items *it = &s.items;
        xm_output_grads full = { only == 0 ? it->dlogp : zeros,
                                 only == 1 ? it->dentropy : zeros,
                                 only == 2 ? it->dvalue : zeros };
        xm_output_grads bare = { only == 0 ? it->dlogp : NULL,
                                 only == 1 ? it->dentropy : NULL,
                                 only == 2 ? it->dvalue : NULL };
        xm_output_grads *given[] = { &full, &bare };
        xm_grads *into[] = { with, without };
        for (int i = 0; i < 2; i++) {
            fixture_pass(&s.model, s.space, &s.rows, it, NULL, NULL);
            fixture_ok(xm_outputs_backward(s.model.decoder, s.space, &it->items,
                                           given[i], into[i], &dhidden, &err),
                       &err);
            fixture_ok(xm_backward(s.model.decoder, s.space, &s.rows.pack,
                                   dhidden, into[i], &err),
                       &err);
            fixture_ok(xm_grads_finish(into[i], &err), &err);
        }
        for (uint32_t p = 0; p < s.model.layout->param_count; p++) {
            const xm_param *m = &s.model.layout->params[p];
            for (uint64_t i = 0; i < m->count; i++)
                check_near((double)with->buckets[m->bucket][m->offset + i],
                           (double)without->buckets[m->bucket][m->offset + i],
                           0, m->name);
        }
        xm_grads_destroy(with);
        xm_grads_destroy(without);
    }
    end_setting(&s);
}

/* ---- calls of a watch --------------------------------------------------- */

/* The calls as text: "2 " need in a forward pass, "2b " need in a backward
 * pass, "+2 " begin, "-2 " done. */
typedef struct call_record {
    char text[256];
    size_t used;
    uint32_t fails; /* begin fails for this bucket; UINT32_MAX: for none */
} call_record;

static void record_call(call_record *h, const char *before, uint32_t bucket,
                        const char *after)
{
    int n = snprintf(h->text + h->used, sizeof h->text - h->used, "%s%u%s ",
                     before, bucket, after);
    assert_true(n > 0 && h->used + (size_t)n < sizeof h->text);
    h->used += (size_t)n;
}

static xray_status record_need(void *ctx, uint32_t bucket, int backward,
                               xr_err *err)
{
    (void)err;
    record_call(ctx, "", bucket, backward ? "b" : "");
    return XRAY_OK;
}

static xray_status record_begin(void *ctx, uint32_t bucket, xr_err *err)
{
    call_record *h = ctx;
    record_call(h, "+", bucket, "");
    return bucket == h->fails ? xr_fail(err, XRAY_E_PEER, "no bucket")
                              : XRAY_OK;
}

static xray_status record_done(void *ctx, uint32_t bucket, xr_err *err)
{
    (void)err;
    record_call(ctx, "-", bucket, "");
    return XRAY_OK;
}

/* Runs a pass in which the first `frozen` buckets have no gradients. `rows` 0:
 * an empty pass, which makes the same calls. */
static void check_watch_calls(setting *s, uint32_t frozen, int rows,
                              uint32_t fails, const char *want)
{
    xr_err err = { "" };
    call_record h = { .fails = fails };
    const xm_watch watch = { &h, record_need, record_begin, record_done };
    const xm_pack no_rows = { .tokens = 0 };
    const xm_pack *pack = rows ? &s->rows.pack : &no_rows;
    const xm_items nothing = { .count = 0 };
    const xm_output_grads given = { s->items.dlogp, s->items.dentropy,
                                    s->items.dvalue };
    const xm_items *items = rows ? &s->items.items : &nothing;
    const fixture *f = &s->model;
    xm_layout part = *f->layout;
    xm_grads *grads = NULL;
    xm_token_outputs out = { 0 };
    const float *dhidden = NULL;
    part.frozen = frozen;
    fixture_ok(xm_grads_create(&f->config, &part, f->device.ops, f->device.self,
                               "test", &err, &grads),
               &err);
    fixture_ok(xm_grads_zero(grads, &err), &err);
    xm_decoder_watch(f->decoder, &watch);
    fixture_ok(xm_forward(f->decoder, s->space, pack, &err), &err);
    fixture_ok(xm_outputs(f->decoder, s->space, items, &out, &err), &err);
    fixture_ok(xm_outputs_backward(f->decoder, s->space, items, &given, grads,
                                   &dhidden, &err),
               &err);
    assert_int_equal(
        xm_backward(f->decoder, s->space, pack, dhidden, grads, &err),
        fails == UINT32_MAX ? XRAY_OK : XRAY_E_PEER);
    xm_decoder_watch(f->decoder, &(xm_watch){ 0 });
    assert_string_equal(h.text, want);
    xm_grads_destroy(grads);
}

static void a_watch_is_told_of_each_bucket(void **state)
{
    (void)state;
    static const struct {
        size_t kind;
        uint32_t frozen;
        uint32_t fails;
        const char *want;
    } cases[] = {
        { 0, 0, UINT32_MAX, "0 1 2 3 +3 +0 3b -3 2b +2 -2 1b +1 -1 -0 " },
        { 1, 0, UINT32_MAX, "0 1 2 3 +3 3b -3 2b +2 -2 1b +1 -1 +0 -0 " },
        { 0, 2, UINT32_MAX, "0 1 2 3 +3 3b -3 2b +2 -2 " },
        { 1, 2, UINT32_MAX, "0 1 2 3 +3 3b -3 2b +2 -2 " },
        { 1, 0, 2, "0 1 2 3 +3 3b -3 2b +2 " },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        setting s;
        begin_setting(&s, &fixture_kinds[cases[i].kind]);
        for (int rows = 0; rows < 2; rows++)
            check_watch_calls(&s, cases[i].frozen, rows, cases[i].fails,
                              cases[i].want);
        end_setting(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_match_the_formulas),
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(absent_coefficients_are_zero),
        cmocka_unit_test(a_watch_is_told_of_each_bucket),
    };
    const struct CMUnitTest half[] = {
        cmocka_unit_test(outputs_match_the_formulas),
        cmocka_unit_test(absent_coefficients_are_zero),
        cmocka_unit_test(gradients_of_bf16_are_near),
    };
    int failed = cmocka_run_group_tests_name("nn.gradient", tests, NULL, NULL);
    fixture_activations(XRAY_BF16);
    return failed +
           cmocka_run_group_tests_name("nn.gradient, bf16", half, NULL, NULL);
}
