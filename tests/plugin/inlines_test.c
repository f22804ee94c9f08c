/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the inline functions of the headers that plugins compile into
 * themselves: what a request needs of an engine, and boxes of tensors.
 */
#include <math.h>

#include <xray/box.h>
#include <xray/infer.h>

#include "tests/testing.h"

/* ---- what a request needs ----------------------------------------------- */

static xray_request make_plain_request(void)
{
    return (xray_request){ .header = XRAY_HEADER(xray_request),
                           .count = 4,
                           .max_tokens = 9,
                           .temperature = 0.5f,
                           .top_p = 1 };
}

static void each_wish_needs_its_bit(void **state)
{
    static const int32_t id = 3;
    (void)state;
#define NEEDS(bits, ...)                                \
    do {                                                \
        xray_request q = make_plain_request();          \
        __VA_ARGS__;                                    \
        assert_int_equal(xray_request_needs(&q), bits); \
    } while (0)
    NEEDS(0, q.hold = 1);
    NEEDS(0, q.stop_ids = &id, q.stop_count = 1);
    NEEDS(XRAY_INFER_TRUNCATION, q.top_p = 0.9f);
    NEEDS(XRAY_INFER_TRUNCATION, q.min_p = 0.1f);
    NEEDS(XRAY_INFER_TRUNCATION, q.top_k = 1);
    NEEDS(XRAY_INFER_STREAM, q.stream = 1);
    NEEDS(XRAY_INFER_STOP_LISTS, q.stop_list_count = 1);
    NEEDS(XRAY_INFER_REPEATS, q.repeat_size = 1);
    NEEDS(XRAY_INFER_REPEATS, q.repeat_count = 2);
    NEEDS(XRAY_INFER_MIN_TOKENS, q.min_tokens = 1);
    NEEDS(XRAY_INFER_PENALTIES, q.repetition_penalty = 1.5f);
    NEEDS(XRAY_INFER_PENALTIES, q.frequency_penalty = -0.5f);
    NEEDS(XRAY_INFER_PENALTIES, q.presence_penalty = 0.5f);
    NEEDS(XRAY_INFER_BIASES, q.bias_count = 1);
    NEEDS(XRAY_INFER_MASKS, q.allowed_count = 1);
    NEEDS(XRAY_INFER_MASKS, q.banned_list_count = 1);
    NEEDS(XRAY_INFER_FORCED_IDS, q.forced_count = 1);
    NEEDS(XRAY_INFER_TOP_LOGP, q.top_count = 1);
    NEEDS(XRAY_INFER_LOGP_IDS, q.logp_id_count = 1);
    NEEDS(XRAY_INFER_PROMPT_LOGP, q.prompt_logp = 1);
    /* 0 and 1 penalise nothing, and NaN is not taken for them. */
    NEEDS(0, q.repetition_penalty = 1);
    NEEDS(0, q.repetition_penalty = 0);
    NEEDS(XRAY_INFER_TRUNCATION, q.top_p = NAN);
    NEEDS(XRAY_INFER_PENALTIES, q.presence_penalty = NAN);
    NEEDS(XRAY_INFER_STREAM | XRAY_INFER_MASKS, q.stream = q.allowed_count = 1);
#undef NEEDS
}

/* ---- boxes -------------------------------------------------------------- */

static float memory[24];

static xray_tensor make_matrix(void)
{
    xray_tensor t = { .name = "t",
                      .dtype = XRAY_F32,
                      .dims = 2,
                      .shape = { 6, 4 },
                      .data = memory };
    xray_box_make_plain(&t);
    return t;
}

static void elements_have_their_bytes(void **state)
{
    (void)state;
    assert_int_equal(xray_dtype_bytes(XRAY_F32), 4);
    assert_int_equal(xray_dtype_bytes(XRAY_BF16), 2);
    assert_int_equal(xray_dtype_bytes(XRAY_F16), 2);
    assert_int_equal(xray_dtype_bytes(0), 0);
    assert_int_equal(xray_dtype_bytes(4), 0);
}

static void a_box_tells_how_it_lies(void **state)
{
    const xray_tensor whole = make_matrix();
    xray_tensor t = whole;
    (void)state;
    assert_int_equal(xray_box_count(&t), 24);
    assert_true(xray_box_is_plain(&t));
    t.extent[0] = 1; /* as many elements, elsewhere */
    t.shape[0] = 1;
    t.lo[0] = 1;
    assert_false(xray_box_is_complete(&t));
    t = whole;
    t.stride[0] = 5; /* rows are padded */
    assert_true(xray_box_is_complete(&t));
    assert_false(xray_box_is_packed(&t));
    assert_false(xray_box_is_plain(&t));
    t.extent[0] = 1; /* one row has no padding */
    assert_true(xray_box_is_packed(&t));
    assert_false(xray_box_is_plain(&t));
    assert_int_equal(xray_box_count(&t), 4);
    assert_int_equal(xray_shape_count(&t), 24);
    t = (xray_tensor){ .name = "one", .dtype = XRAY_F32 };
    assert_int_equal(xray_box_count(&t), 1);
    assert_true(xray_box_is_plain(&t));
}

static void a_cut_is_what_two_boxes_have_in_common(void **state)
{
    const xray_tensor whole = make_matrix();
    xray_tensor right = whole;
    xray_tensor cut;
    (void)state;
    right.lo[1] = 2;
    right.extent[1] = 2;
    right.lo[0] = 3;
    right.extent[0] = 3;
    assert_int_equal(xray_box_cut(&whole, &right, &cut), 6);
    assert_ptr_equal(cut.data, memory + 3 * 4 + 2);
    assert_true(cut.lo[0] == 3 && cut.lo[1] == 2 && cut.extent[0] == 3 &&
                cut.extent[1] == 2 && cut.stride[0] == 4);
    /* The neighbours of a box have nothing of it, and no memory. */
    xray_tensor left = right;
    left.lo[1] = 0;
    left.data = memory;
    assert_int_equal(xray_box_cut(&left, &right, &cut), 0);
    assert_null(cut.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_wish_needs_its_bit),
        cmocka_unit_test(elements_have_their_bytes),
        cmocka_unit_test(a_box_tells_how_it_lies),
        cmocka_unit_test(a_cut_is_what_two_boxes_have_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
