/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves into how many segments the sums of a model are cut.
 */
#include "model/hf/config.h"
#include "tests/testing.h"

typedef struct sizes {
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t ffn;
    uint32_t vocab;
    uint32_t segments;
    uint64_t vocab_segment;
} sizes;

static const sizes models[] = {
    { 14, 2, 4864, 151936, 2, 75968 },
    { 32, 8, 14336, 128256, 8, 16032 },
    { 64, 64, 1024, 50257, 8, 6288 },
    { 12, 12, 3072, 50257, 4, 12576 },
    { 32, 4, 18944, 152064, 4, 38016 },
    { 8, 8, 28, 37, 4, 32 },
    { 9, 3, 1536, 49152, 1, 0 },
    { 4, 1, 16, 100, 1, 0 },
    { 8, 8, 9, 512, 1, 0 },
};

static xm_config make_config(const sizes *s)
{
    return (xm_config){ .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .ffn = s->ffn,
                        .vocab = s->vocab };
}

static void shapes_give_the_segments(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        xm_config config = make_config(&models[i]);
        assert_int_equal(xm_segments(&config), models[i].segments);
        assert_int_equal(xm_vocab_segment(&config), models[i].vocab_segment);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_give_the_segments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
