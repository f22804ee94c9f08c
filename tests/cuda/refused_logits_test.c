/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the calls of device-cuda that take logits refuse each invalid
 * field with the status and the sentence of the CPU, and ignore invalid ids.
 */
#include "tests/cuda/refused.h"

static void logits_refuse_bad_fields(void **state)
{
    (void)state;
    const xray_edit_logits edit_logits = {
        .header = XRAY_HEADER(xray_edit_logits),
        .items = { .bound = 2 },
        .logits = device_floats(&a),
        .changed = device_floats(&b),
        .stride = 4,
        .vocab = 4,
    };
    GOOD(edit_logits);
    NEEDS2(edit_logits, logits, changed);
    BAD(edit_logits, vocab, 0, XRAY_E_ARG);
    BAD(edit_logits, stride, 3, XRAY_E_ARG);
    BAD(edit_logits, edit_start, device_indices(&ids), XRAY_E_ARG);
    BAD(edit_logits, edits, (const void *)device_floats(&c), XRAY_E_ARG);
    BAD(edit_logits, allowed, (const void *)device_floats(&c), XRAY_E_ARG);
    BAD(edit_logits, allowed_set, device_indices(&ids), XRAY_E_ARG);
    xray_edit_logits odd = edit_logits;
    odd.edit_start = device_indices(&ids);
    odd.edits = (const void *)device_floats(&c);
    odd.edit_stride = 14;
    REFUSED(&both, edit_logits, &odd, XRAY_E_ARG);
    odd.edit_stride = 8;
    REFUSED(&both, edit_logits, &odd, XRAY_E_ARG);
    const xray_pick_logp pick_logp = { .header = XRAY_HEADER(xray_pick_logp),
                                       .items = { .bound = 2 },
                                       .logits = device_floats(&a),
                                       .stride = 4,
                                       .vocab = 4,
                                       .ids =
                                           (int32_t *)(void *)device_floats(&c),
                                       .logp = device_floats(&b),
                                       .count = 4 };
    GOOD(pick_logp);
    NEEDS3(pick_logp, logits, ids, logp);
    BAD(pick_logp, vocab, (uint64_t)INT32_MAX + 1, XRAY_E_ARG);
    BAD(pick_logp, count, 0, XRAY_E_ARG);
    BAD(pick_logp, count, 5, XRAY_E_ARG);
    const xray_lm_head_join lm_head_join = {
        .header = XRAY_HEADER(xray_lm_head_join),
        .items = { .bound = 2 },
        .partials = device_floats(&a),
        .slice_stride = 8,
        .logp = device_floats(&b),
        .slices = 2,
    };
    GOOD(lm_head_join);
    NEEDS2(lm_head_join, partials, logp);
    BAD(lm_head_join, slices, 0, XRAY_E_ARG);
    BAD(lm_head_join, slice_stride, 7, XRAY_E_ARG);
}

/* Edits of the first and last ids of blocks, and of ids that do not exist: what
 * follows an item's logits stays as it is. */
static void compare_edits(uint64_t vocab)
{
    const int32_t at[] = { -1,   INT32_MIN,      0,        255,
                           256,  4095,           4096,     4599,
                           4600, (int32_t)vocab, INT32_MAX };
    enum { EDITS = sizeof(at) / sizeof(*at) };
    xray_logit_edit edits[EDITS];
    const int32_t bounds[] = { 0, EDITS, EDITS };
    for (size_t i = 0; i < EDITS; i++)
        edits[i] = (xray_logit_edit){ at[i], 2.0f, (float)i };
    buf from = make_random_buf(&both, 2 * (vocab + 7), 1);
    buf to = make_random_buf(&both, 2 * (vocab + 7), 1);
    buf list = make_buf(&both, edits, sizeof(edits));
    buf start = make_buf(&both, bounds, sizeof(bounds));
    for (int s = 0; s < 2; s++) {
        const xray_edit_logits op = { .header = XRAY_HEADER(xray_edit_logits),
                                      .items = { .bound = 2 },
                                      .logits = buf_floats(&from, s, 0),
                                      .changed = buf_floats(&to, s, 0),
                                      .stride = vocab + 7,
                                      .vocab = vocab,
                                      .edit_start = start.p[s],
                                      .edits = list.p[s],
                                      .edit_stride = sizeof(*edits) };
        RUN_ON(&both, s, edit_logits, &op);
    }
    assert_same_buf(&both, &to, "edited logits");
    buf *const all[] = { &from, &to, &list, &start };
    for (size_t i = 0; i < 4; i++)
        free_buf(&both, all[i]);
}

static void ids_outside_of_the_vocabulary_are_ignored(void **state)
{
    static const uint64_t sizes[] = { 1, 255, 256, 4096, 4600, 8192 };
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
        compare_edits(sizes[i]);
}

static void assert_segment_refused(xray_status status, const char *call)
{
    char text[128];
    (void)snprintf(text, sizeof(text),
                   "%s: segment is 1, but a vocabulary of 9 must have at most "
                   "8 segments",
                   call);
    assert_int_equal(status, XRAY_E_ARG);
    assert_string_equal(last_failure, text);
}

static void a_vocabulary_has_at_most_8_segments(void **state)
{
    (void)state;
    const dev *d = &both.d[CUDA];
    xray_weight *head = NULL;
    const xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                                    .data = device_floats(&w),
                                    .rows = 9,
                                    .cols = 7,
                                    .dtype = XRAY_F32,
                                    .uses = XRAY_USE_NT | XRAY_USE_NN };
    must(d->ops->weight_create(d->self, &desc, &head));
    xray_lm_head_logp logp = { .header = XRAY_HEADER(xray_lm_head_logp),
                               .items = { .bound = 2 },
                               .weight = head,
                               .x = device_floats(&a),
                               .targets = device_indices(&ids),
                               .logp = device_floats(&b),
                               .lse = device_floats(&c),
                               .segment = 2 };
    must(d->ops->lm_head_logp(d->self, NULL, &logp));
    logp.segment = 1;
    assert_segment_refused(d->ops->lm_head_logp(d->self, NULL, &logp),
                           "lm_head_logp");
    const xray_lm_head_grad grad = { .header = XRAY_HEADER(xray_lm_head_grad),
                                     .forward = &logp,
                                     .dlogp = device_floats(&e),
                                     .dx = device_floats(&e) };
    assert_segment_refused(d->ops->lm_head_grad(d->self, NULL, &grad),
                           "lm_head_grad");
    const xray_sample sample = {
        .header = XRAY_HEADER(xray_sample),
        .items = { .bound = 2 },
        .weight = head,
        .x = device_floats(&a),
        .draws = (const xray_draw *)(void *)device_floats(&b),
        .token = (int32_t *)(void *)device_floats(&c),
        .raw_logp = device_floats(&e),
        .logp = device_floats(&e),
        .draw_stride = sizeof(xray_draw),
        .segment = 1
    };
    assert_segment_refused(d->ops->sample(d->self, NULL, &sample), "sample");
    const xray_pick_logp pick_logp = { .header = XRAY_HEADER(xray_pick_logp),
                                       .items = { .bound = 2 },
                                       .logits = device_floats(&a),
                                       .stride = 9,
                                       .vocab = 9,
                                       .ids =
                                           (int32_t *)(void *)device_floats(&c),
                                       .logp = device_floats(&b),
                                       .count = 1,
                                       .segment = 2 };
    GOOD(pick_logp);
    BAD(pick_logp, segment, 1, XRAY_E_ARG);
    d->ops->weight_destroy(d->self, head);
}

static void advance_refuses_bad_fields(void **state)
{
    (void)state;
    int32_t *some = (int32_t *)(void *)device_floats(&a);
    const xray_advance advance = { .header = XRAY_HEADER(xray_advance),
                                   .items = { .bound = 1 },
                                   .token = device_indices(&ids),
                                   .ids = some,
                                   .positions = some,
                                   .draws = (void *)device_floats(&b),
                                   .stop = (void *)device_floats(&c),
                                   .limit = device_indices(&ids),
                                   .draw_stride = sizeof(xray_draw) };
    GOOD(advance);
    NEEDS6(advance, token, ids, positions, draws, stop, limit);
    BAD(advance, stop_start, device_indices(&ids), XRAY_E_ARG);
    BAD(advance, stop_ids, device_indices(&ids), XRAY_E_ARG);
    BAD(advance, draw_stride, sizeof(xray_draw) - 8, XRAY_E_ARG);
    BAD(advance, draw_stride, sizeof(xray_draw) + 4, XRAY_E_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_refuse_bad_fields),
        cmocka_unit_test(ids_outside_of_the_vocabulary_are_ignored),
        cmocka_unit_test(a_vocabulary_has_at_most_8_segments),
        cmocka_unit_test(advance_refuses_bad_fields),
    };
    return cmocka_run_group_tests_name("cuda.refused_logits", tests, open_both,
                                       close_both);
}
