/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that attention with a window ignores the keys before it, in the result
 * and in the time.
 */
#include "tests/device/attention_rows.h"

#include <time.h>

/* A key before the window does not enter the result, whatever its value is. */
static void keys_before_the_window_do_not_enter(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    rows r = make_rows((form){ 4, 2, 24, 19, 0.0f, { 70 }, 0.0f });
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
        run_cached(v, &r, &kv, 29, o);
        assert_same_bits(o + at, r.o + at, n, "attention_kv", v->name);
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

/* The seconds of this thread for `op`: the minimum of three calls. */
static double least_seconds(xray_status (*op)(void *, xray_stream *,
                                              const void *),
                            const dev *d, const void *args)
{
    double least = INFINITY;
    for (int i = 0; i < 3; i++) {
        struct timespec a;
        struct timespec z;
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
        must(op(d->self, NULL, args));
        (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &z);
        double s = (double)(z.tv_sec - a.tv_sec) +
                   (double)(z.tv_nsec - a.tv_nsec) * 1e-9;
        least = s < least ? s : least;
    }
    return least;
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

/* The window has 16 keys of 1024, in a row where a query sees 512 on average
 * without a window, under a sanitizer of 512 and 256. A tenth of the work would
 * be enough; the test allows a third. */
static void windows_cost_what_they_see(void **state)
{
    (void)state;
    enum { LONG = TEST_STEP > 1 ? 512 : 1024 };
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[1]; /* vectors, one thread */
    double seconds[2][3];
    for (size_t w = 0; w < 2; w++) {
        rows r =
            make_rows((form){ 2, 1, 64, w ? 16 : 0, 0.0f, { LONG }, 0.0f });
        float *grad = alloc_floats(r.tokens * r.stride);
        float *o = alloc_floats(r.tokens * r.q_width);
        int32_t *ids = calloc(2 * LONG, sizeof(*ids));
        assert_non_null(ids);
        cache c = make_cache(d, &r, 32, 1);
        c.kv.table = c.table;
        for (int32_t i = 0; i < LONG; i++)
            ids[LONG + i] = i;
        xray_attention f = make_attention(&r, r.o, r.lse);
        xray_attention_grad g = make_attention_grad(&r, &f, r.o, grad);
        xray_attention_kv kv = make_attention_kv(&r, &c.kv, r.qkv, o);
        kv.tokens.bound = LONG;
        kv.seq = ids;
        kv.positions = ids + LONG;
        seconds[w][0] = least_seconds(call_forward, d, &f);
        seconds[w][1] = least_seconds(call_backward, d, &g);
        seconds[w][2] = least_seconds(call_cached, d, &kv);
        assert_same_bits(o, r.o, r.tokens * r.q_width, "attention_kv", d->name);
        free(ids);
        free(grad);
        free(o);
        d->ops->free(d->self, c.kv.blocks);
        free_rows(&r);
    }
    for (size_t i = 0; i < 3; i++) {
        print_message("complete row %.2f ms, 16 keys %.2f ms\n",
                      seconds[0][i] * 1e3, seconds[1][i] * 1e3);
        assert_true(seconds[1][i] * 3 < seconds[0][i]);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_before_the_window_do_not_enter),
        cmocka_unit_test(long_rows_give_the_engines_bits),
        cmocka_unit_test(windows_cost_what_they_see),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
