/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the tiles of attention over a cache whose warps share the keys: few
 * tokens, so that tools which watch every access of a GPU are done with it in
 * seconds. attention_test.c has more.
 */
#include "tests/cuda/attention_run.h"

static const form forms[] = {
    { 7, 1, 64, 0, 0.0f, { 300, 17 }, 0.0f },
    { 4, 1, 128, 0, 0.0f, { 66, 130 }, 0.0f },
    { 2, 1, 256, 33, 0.0f, { 70 }, 0.0f },
    { 3, 1, 80, 0, 20.0f, { 65 }, 0.0f },
};

static void few_tokens_have_the_bits_of_rows(void **state)
{
    (void)state;
    dev d = open_attention(CUDA_BFLOAT16);
    for (size_t f = 0; f < sizeof(forms) / sizeof(*forms); f++) {
        rows r = make_rows(forms[f]);
        size_t outputs = r.tokens * r.q_width;
        float *o = alloc_floats(outputs);
        run_rows(&d, &r, r.o, r.lse, NULL, NULL);
        for (size_t chunk = 1; chunk <= 2; chunk++) {
            cache_run w = { 16, chunk, r.longest - 4, chunk == 1, 0, 0 };
            run_over_cache(&d, &r, w, o);
            assert_same_bits(o, r.o, outputs, "attention_kv", "a row");
        }
        free(o);
        free_rows(&r);
    }
    d.ops->destroy(d.self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_tokens_have_the_bits_of_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
