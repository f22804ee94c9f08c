/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that attention with a window ignores the keys before it: they do not
 * enter the result, and no work is done for them.
 */
#include "tests/device/attention_rows.h"

#include <fenv.h>
#include <float.h>
#include <stdbool.h>

/* A key before the window does not enter the result, whatever its value is. */
static void keys_before_the_window_do_not_enter(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    rows r = make_rows((form){ 4, 2, 32, 19, 0.0f, { 70 }, 0.0f });
    xray_attention op = make_attention(&r, r.o, r.lse);
    must(b.dev[0].ops->attention(b.dev[0].self, NULL, &op));
    for (size_t j = 0; j < 6; j++)
        for (size_t d = r.q_width; d < r.stride; d++)
            r.qkv[j * r.stride + d] = NAN;
    for (int d = 0; d < b.count; d++) {
        const dev *v = &b.dev[d];
        cache kv = make_cache(v, &r, 16, 1);
        float *o = alloc_floats(r.tokens * r.q_width);
        /* The first position that sees none of these keys */
        size_t at = (6 + 18) * r.q_width;
        size_t n = r.tokens * r.q_width - at;
        op = make_attention(&r, o, r.lse);
        must(v->ops->attention(v->self, NULL, &op));
        assert_same_bits(o + at, r.o + at, n, "attention", v->name);
        assert_true(isnan(o[at - 1]));
        for (size_t chunk = 1; chunk < 30; chunk += 28) { /* decode, prefill */
            run_cached(v, &r, &kv, chunk, o);
            assert_same_bits(o + at, r.o + at, n, "attention_kv", v->name);
        }
        free(o);
        v->ops->free(v->self, kv.kv.blocks);
    }
    free_rows(&r);
    close_devices(&b);
}

/* A long row is cut by query, and each part packs only the keys that it
 * sees. */
static void long_rows_give_the_engines_bits(void **state)
{
    (void)state;
    static const uint32_t windows[] = { 20, 0, 800, 257 };
    for (size_t w = 0; w < sizeof(windows) / sizeof(*windows); w += TEST_STEP) {
        /* Opened again, so that scratch holds no keys of another run. */
        bench b;
        open_devices(&b);
        rows r = make_rows((form){ 4, 1, 64, windows[w], 0.0f, { 800 }, 0.0f });
        size_t n = r.tokens * r.q_width;
        cache kv = make_cache(&b.dev[1], &r, 16, 1);
        run_cached(&b.dev[1], &r, &kv, 300, r.o);
        b.dev[1].ops->free(b.dev[1].self, kv.kv.blocks);
        for (int d = 0; d < b.count; d++) {
            float *o = alloc_floats(n);
            xray_attention op = make_attention(&r, o, r.lse);
            must(b.dev[d].ops->attention(b.dev[d].self, NULL, &op));
            assert_same_bits(o, r.o, n, "long row", b.dev[d].name);
            free(o);
        }
        free_rows(&r);
        close_devices(&b);
    }
}

static xray_status call_forward(void *self, xray_stream *s, const void *args)
{
    return device_ops()->attention(self, s, args);
}

static xray_status call_backward(void *self, xray_stream *s, const void *args)
{
    return device_ops()->attention_grad(self, s, args);
}

static xray_status call_cached(void *self, xray_stream *s, const void *args)
{
    return device_ops()->attention_kv(self, s, args);
}

/* Whether `op` multiplied two numbers whose product is too large for a float.
 */
static bool overflows(xray_status (*op)(void *, xray_stream *, const void *),
                      const dev *d, const void *args)
{
    (void)feclearexcept(FE_OVERFLOW);
    must(op(d->self, NULL, args));
    return fetestexcept(FE_OVERFLOW) != 0;
}

/* A query costs what its window costs: the keys and values before it, and
 * before the tile of queries that it belongs to, are not even multiplied. The
 * first keys are so large that their product with a query overflows. The
 * queries that see some of them, directly or through their tile, are 0. */
static void keys_before_the_window_cost_nothing(void **state)
{
    (void)state;
    enum { LARGE = 96, WINDOW = 16, TILE = 64, LONG = 256 };
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[1]; /* vectors; one thread, whose flags these are */
    for (size_t w = 0; w < 2; w++) {
        rows r =
            make_rows((form){ 2, 1, 64, w ? WINDOW : 0, 0.0f, { LONG }, 0.0f });
        float *d_o = random_floats(r.tokens * r.q_width, 3);
        for (size_t i = 0; i < LONG; i++) {
            float *k = r.qkv + i * r.stride + r.q_width;
            float *v = k + r.kv_width;
            for (size_t j = 0; i < LARGE && j < r.kv_width; j++) {
                k[j] = 0.9f * FLT_MAX;
                v[j] = 1e-3f * FLT_MAX;
            }
            float by = i < LARGE + WINDOW + TILE ? 0.0f : 1.0f;
            for (size_t j = 0; j < r.q_width; j++) {
                r.qkv[i * r.stride + j] *= by;
                d_o[i * r.q_width + j] *= by * 1e4f;
            }
        }
        float *grad = alloc_floats(r.tokens * r.stride);
        float *o = alloc_floats(r.tokens * r.q_width);
        int32_t ids[2 * LONG] = { 0 };
        cache c = make_cache(d, &r, 32, 1);
        c.kv.table = c.table;
        for (int32_t i = 0; i < LONG; i++)
            ids[LONG + i] = i;
        xray_attention f = make_attention(&r, r.o, r.lse);
        xray_attention_grad g = make_attention_grad(&r, &f, d_o, grad);
        xray_attention_kv kv = make_attention_kv(&r, &c.kv, r.qkv, o);
        kv.tokens.bound = LONG;
        kv.seq = ids;
        kv.positions = ids + LONG;
        assert_int_equal(overflows(call_forward, d, &f), w == 0);
        assert_int_equal(overflows(call_backward, d, &g), w == 0);
        assert_int_equal(overflows(call_cached, d, &kv), w == 0);
        kv = make_attention_kv(&r, &c.kv, r.qkv + (LONG - 1) * r.stride, o);
        kv.tokens.bound = 1; /* the last token alone, as an engine decodes */
        kv.seq = ids;
        kv.positions = ids + 2 * LONG - 1;
        assert_int_equal(overflows(call_cached, d, &kv), w == 0);
        free(grad);
        free(d_o);
        free(o);
        d->ops->free(d->self, c.kv.blocks);
        free_rows(&r);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_before_the_window_do_not_enter),
        cmocka_unit_test(long_rows_give_the_engines_bits),
        cmocka_unit_test(keys_before_the_window_cost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
