/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the optimizer with the same formula in float64, and tests the norm
 * of gradients and its clipping.
 */
#include <math.h>

#include <xray/numerics.h>

#include "model/train/adamw.h"
#include "model/train/norm.h"
#include "tests/train/rig.h"

typedef struct fixture {
    rig_device device;
    xm_config config;
    xm_layout *layout;
    xm_weights *weights;
    xm_grads *grads;
    xm_adamw *adamw;
} fixture;

static const xm_adamw_options options = {
    .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.1
};

static void open_fixture(fixture *f, rig_device device, const char *json)
{
    xr_err err = { "" };
    f->device = device;
    assert_int_equal(xm_config_parse(json, "test", &err, &f->config), XRAY_OK);
    assert_int_equal(xm_layout_create(&f->config, 1, &err, &f->layout),
                     XRAY_OK);
    assert_int_equal(xm_grads_create(&f->config, f->layout, device.ops,
                                     device.self, "test", &err, &f->grads),
                     XRAY_OK);
    assert_int_equal(xm_adamw_create(f->layout, device.ops, device.self,
                                     &options, "test", &err, &f->adamw),
                     XRAY_OK);
}

static void close_fixture(fixture *f)
{
    xm_adamw_destroy(f->adamw);
    xm_grads_destroy(f->grads);
    xm_layout_destroy(f->layout);
}

/* The norm, and the first bad parameter where it is not finite. */
static xray_status measure_norm(const fixture *f, double *out_norm,
                                const xm_param **out_bad)
{
    xr_err err = { "" };
    uint64_t squares[XRAY_SQUARES_WORDS] = { 0 };
    xm_grad_share grads = { .device = f->device.ops,
                            .device_self = f->device.self,
                            .layout = f->layout,
                            .data = f->grads->buckets,
                            .squares = f->adamw->squares };
    xray_status status = xm_grad_squares(&grads, &err, squares);
    *out_norm = sqrt(xray_squares_value(squares));
    *out_bad = NULL;
    return status == XRAY_OK && !isfinite(*out_norm)
               ? xm_grad_first_bad(&grads, &err, out_bad)
               : status;
}

static float draw_value(uint64_t seed, uint32_t bucket, uint64_t i)
{
    xray_philox_out bits = xray_philox(seed, bucket, (uint32_t)i, 0, 0);
    return xray_unit(bits.w[0]) - 0.5f;
}

/* Gradients of every parameter (the padding between stays 0). */
static void draw_grads(fixture *f, uint64_t seed, float scale)
{
    for (uint32_t i = 0; i < f->layout->param_count; i++) {
        const xm_param *p = &f->layout->params[i];
        for (uint64_t k = 0; k < p->count; k++)
            f->grads->buckets[p->bucket][p->offset + k] =
                scale * draw_value(seed, p->bucket, p->offset + k);
    }
}

static uint64_t count_elements(const fixture *f)
{
    uint64_t sum = 0;
    for (uint32_t b = 0; b < f->layout->bucket_count; b++)
        sum += f->layout->bucket_sizes[b];
    return sum;
}

typedef struct reference {
    double *p;
    double *m;
    double *v;
} reference;

static void reference_step(const fixture *f, reference *r, uint64_t step,
                           double lr, double clip)
{
    uint64_t base = 0;
    double c1 = 1 - pow(options.beta1, (double)step);
    double c2 = 1 - pow(options.beta2, (double)step);
    for (uint32_t b = 0; b < f->layout->bucket_count; b++) {
        for (uint32_t i = 0; i < f->layout->param_count; i++) {
            const xm_param *param = &f->layout->params[i];
            if (param->bucket != b)
                continue;
            double decay = param->cols ? options.weight_decay : 0;
            for (uint64_t k = 0; k < param->count; k++) {
                uint64_t at = base + param->offset + k;
                double g =
                    clip * (double)f->grads->buckets[b][param->offset + k];
                r->p[at] -= lr * decay * r->p[at];
                r->m[at] = options.beta1 * r->m[at] + (1 - options.beta1) * g;
                r->v[at] =
                    options.beta2 * r->v[at] + (1 - options.beta2) * g * g;
                r->p[at] -=
                    lr * (r->m[at] / c1) / (sqrt(r->v[at] / c2) + options.eps);
            }
        }
        base += f->layout->bucket_sizes[b];
    }
}

static void against_float64(void **state)
{
    (void)state;
    fixture f = { 0 };
    rig_device device = rig_device_open(2);
    open_fixture(&f, device, rig_tiny);
    xr_err err = { "" };
    assert_int_equal(xm_weights_create(f.layout, device.ops, device.self,
                                       "test", 1, &err, &f.weights),
                     XRAY_OK);
    assert_int_equal(xm_weights_random(f.weights, &f.config, 5, &err), XRAY_OK);
    uint64_t count = count_elements(&f);
    reference r = { calloc(count, sizeof(double)),
                    calloc(count, sizeof(double)),
                    calloc(count, sizeof(double)) };
    uint64_t at = 0;
    for (uint32_t b = 0; b < f.layout->bucket_count; b++)
        for (uint64_t i = 0; i < f.layout->bucket_sizes[b]; i++)
            r.p[at++] = (double)f.weights->buckets[b][i];

    for (uint64_t step = 1; step <= 5; step++) {
        double lr = 1e-3 * (double)step;
        draw_grads(&f, step, 0.01f);
        assert_int_equal(xm_adamw_step(f.adamw, f.weights->buckets,
                                       f.grads->buckets, lr, 0.37, &err),
                         XRAY_OK);
        reference_step(&f, &r, step, lr, 0.37);
    }
    at = 0;
    for (uint32_t b = 0; b < f.layout->bucket_count; b++)
        for (uint64_t i = 0; i < f.layout->bucket_sizes[b]; i++, at++)
            if (fabs(r.p[at] - (double)f.weights->buckets[b][i]) >
                2e-6 * (fabs(r.p[at]) + 1))
                fail_msg("bucket %u element %llu: %.9g, expected %.9g", b,
                         (unsigned long long)i,
                         (double)f.weights->buckets[b][i], r.p[at]);
    assert_int_equal(f.adamw->steps, 5);
    free(r.p);
    free(r.m);
    free(r.v);
    xm_weights_destroy(f.weights);
    close_fixture(&f);
    rig_device_close(&device);
}

/* With gradients 0, decay is all there is: matrices shrink, the rest stays. */
static void decay_of_matrices_only(void **state)
{
    (void)state;
    fixture f = { 0 };
    rig_device device = rig_device_open(1);
    open_fixture(&f, device, rig_tiny_tied);
    xr_err err = { "" };
    assert_int_equal(xm_weights_create(f.layout, device.ops, device.self,
                                       "test", 1, &err, &f.weights),
                     XRAY_OK);
    for (uint32_t b = 0; b < f.layout->bucket_count; b++)
        for (uint64_t i = 0; i < f.layout->bucket_sizes[b]; i++)
            f.weights->buckets[b][i] = 1;
    assert_int_equal(xm_adamw_step(f.adamw, f.weights->buckets,
                                   f.grads->buckets, 0.5, 1, &err),
                     XRAY_OK);
    for (uint32_t i = 0; i < f.layout->param_count; i++) {
        const xm_param *p = &f.layout->params[i];
        const float *x = f.weights->buckets[p->bucket] + p->offset;
        float expected = p->cols ? 0.95f : 1.0f;
        for (uint64_t k = 0; k < p->count; k++)
            assert_true(fabsf(x[k] - expected) < 1e-6f);
    }
    xm_weights_destroy(f.weights);
    close_fixture(&f);
    rig_device_close(&device);
}

static void norm_names_the_first_bad_parameter(void **state)
{
    (void)state;
    fixture f = { 0 };
    rig_device device = rig_device_open(2);
    open_fixture(&f, device, rig_tiny);
    const xm_param *bad = NULL;
    double norm = 0;
    double sum = 0;
    draw_grads(&f, 3, 1);
    for (uint32_t b = 0; b < f.layout->bucket_count; b++)
        for (uint64_t i = 0; i < f.layout->bucket_sizes[b]; i++)
            sum +=
                (double)f.grads->buckets[b][i] * (double)f.grads->buckets[b][i];
    assert_int_equal(measure_norm(&f, &norm, &bad), XRAY_OK);
    assert_null(bad);
    assert_true(fabs(norm - sqrt(sum)) < 1e-5 * sqrt(sum));

    static const char *const names[] = { "model.layers.1.mlp.up_proj.weight",
                                         "model.norm.weight",
                                         "model.embed_tokens.weight",
                                         XM_VALUE_HEAD };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const xm_param *p = xm_layout_find(f.layout, names[i]);
        assert_non_null(p);
        float *x = f.grads->buckets[p->bucket] + p->offset + p->count - 1;
        float kept = *x;
        *x = i % 2 ? INFINITY : NAN;
        assert_int_equal(measure_norm(&f, &norm, &bad), XRAY_OK);
        assert_true(isfinite(norm) == 0);
        assert_ptr_equal(bad, p);
        *x = kept;
    }
    close_fixture(&f);
    rig_device_close(&device);
}

/* The same with memory that only copies reach. */
static void norm_is_the_same_through_copies(void **state)
{
    (void)state;
    fixture f = { 0 };
    const xm_param *bad = NULL;
    double norm = 1;
    open_fixture(&f, plain_device_open(), rig_tiny);
    float three = 3;
    f.device.ops->copy(NULL, NULL, f.grads->buckets[1] + 4, &three, 4,
                       XRAY_COPY_TO_DEVICE);
    assert_int_equal(measure_norm(&f, &norm, &bad), XRAY_OK);
    assert_true(norm == 3.0);
    close_fixture(&f);
}

static void clipping_scales_down_only(void **state)
{
    (void)state;
    assert_true(xm_clip_coefficient(10, 0) == 1);
    assert_true(xm_clip_coefficient(10, -1) == 1);
    assert_true(xm_clip_coefficient(0.5, 1) == 1);
    assert_true(xm_clip_coefficient(0, 1) == 1);
    assert_true(fabs(xm_clip_coefficient(4, 1) - 0.25) < 1e-6);
    assert_true(4 * xm_clip_coefficient(4, 1) < 1);
}

/* Bias corrections come from products, so a resume finds the same bits. */
static void bias_corrections_survive_a_resume(void **state)
{
    (void)state;
    xm_adamw a = { .options = options };
    xm_adamw b = { .options = options };
    xm_adamw_set_steps(&a, 0);
    for (int i = 0; i < 1000; i++) {
        a.power1 *= options.beta1;
        a.power2 *= options.beta2;
    }
    xm_adamw_set_steps(&b, 1000);
    assert_true(a.power1 == b.power1 && a.power2 == b.power2);
    assert_true(fabs(b.power2 - pow(options.beta2, 1000)) < 1e-12);
}

static xray_status update_nothing(void *self, xray_stream *stream,
                                  const xray_adamw *call)
{
    (void)self;
    (void)stream;
    (void)call;
    return XRAY_OK;
}

/* Updates follow each other without a wait for the device. */
static void scalars_are_read_before_they_change(void **state)
{
    (void)state;
    fixture f = { 0 };
    xr_err err = { "" };
    rig_device device = plain_device_open();
    xray_device_ops ops = *device.ops;
    ops.adamw = update_nothing;
    device.ops = &ops;
    open_fixture(&f, device, rig_tiny);
    for (int i = 0; i < 5; i++)
        assert_int_equal(xm_adamw_step(f.adamw, f.grads->buckets,
                                       f.grads->buckets, 1.0 / (i + 1), 1,
                                       &err),
                         XRAY_OK);
    assert_int_equal(ops.sync(device.self, NULL), XRAY_OK);
    close_fixture(&f);
}

/* Moments in host memory, of more pieces than there are slots. */
static void streamed_moments_have_the_same_bits(void **state)
{
    (void)state;
    enum { ROUNDS = 2 };
    const uint64_t n = 4 * (uint64_t)XM_MOMENT_PIECE + 5;
    rig_device device = rig_device_open(1);
    xr_err err = { "" };
    xm_moments stream;
    float *data = calloc(5 * n, sizeof(*data));
    float scalars[4] = { 1e-2f, 0.5f, 0.1f, 0.001f };
    assert_non_null(data);
    for (uint64_t i = 0; i < n; i++)
        data[i] = data[n + i] = (float)(i % 1013) - 500.0f;
    assert_int_equal(xm_moments_open(&stream, device.ops, device.self,
                                     2 * n * sizeof(float), "test", &err),
                     XRAY_OK);
    xray_adamw near = { .header = XRAY_HEADER(xray_adamw),
                        .count = n,
                        .p = data,
                        .g = data + 2 * n,
                        .m = data + 3 * n,
                        .v = data + 4 * n,
                        .scalars = scalars,
                        .beta1 = 0.9f,
                        .beta2 = 0.999f,
                        .eps = 1e-8f,
                        .weight_decay = 0.01f,
                        .out_dtype = XRAY_F32 };
    xray_adamw far = near;
    far.p = data + n;
    far.m = stream.host;
    far.v = stream.host + n;
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < n; i++)
            data[2 * n + i] = (float)((i + (uint64_t)round) % 97) * 0.25f;
        assert_int_equal(device.ops->adamw(device.self, NULL, &near), XRAY_OK);
        assert_int_equal(xm_moments_update(&stream, &far), XRAY_OK);
        assert_int_equal(xm_moments_join(&stream), XRAY_OK);
    }
    assert_memory_equal(far.p, near.p, n * sizeof(float));
    assert_memory_equal(far.m, near.m, n * sizeof(float));
    assert_memory_equal(far.v, near.v, n * sizeof(float));
    xm_moments_close(&stream);
    rig_device_close(&device);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(against_float64),
        cmocka_unit_test(decay_of_matrices_only),
        cmocka_unit_test(norm_names_the_first_bad_parameter),
        cmocka_unit_test(norm_is_the_same_through_copies),
        cmocka_unit_test(clipping_scales_down_only),
        cmocka_unit_test(bias_corrections_survive_a_resume),
        cmocka_unit_test(scalars_are_read_before_they_change),
        cmocka_unit_test(streamed_moments_have_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
