/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves for prompts that the rows of a group share: outputs keep their bits,
 * gradients are those of separate rows except for rounding, and their bits do
 * not depend on how groups are divided among micro-batches.
 */
#include <xray/box.h>

#include <math.h>

#include <xray/numerics.h>

#include "tests/train/rig.h"

#define GROUPS 5
#define SAMPLES 3

/* Groups of three samples with prompts of 1 to 13 tokens; one sample is empty,
 * and one continues with the tokens of its prompt. */
typedef struct groups {
    rows r;
    int32_t prompt_len[GROUPS * SAMPLES];
    int32_t group[GROUPS * SAMPLES];
} groups;

static int32_t draw_token(uint32_t a, uint32_t b, uint32_t c, uint32_t below)
{
    return (int32_t)(xray_philox(77, a, b, c, 0).w[0] % below);
}

static void draw_groups(groups *g)
{
    int32_t at = 0;
    memset(g, 0, sizeof(*g));
    for (uint32_t row = 0; row < GROUPS * SAMPLES; row++) {
        uint32_t group = row / SAMPLES;
        int32_t prompt = 1 + 3 * (int32_t)group;
        int32_t response = row == 4 ? 0 : 1 + draw_token(row, 1, 0, 9);
        for (int32_t i = 0; i < prompt; i++)
            g->r.ids[at + i] = draw_token(group, 2, (uint32_t)i, 37);
        for (int32_t i = prompt; i < prompt + response; i++) {
            g->r.ids[at + i] =
                draw_token(row == 7 ? group : row, 2, (uint32_t)i, 37);
            g->r.mask[at + i] = row != 10 || i != prompt;
        }
        g->r.temperature[row] = 0.5f + 0.25f * (float)(row % 4);
        g->prompt_len[row] = prompt;
        g->group[row] = (int32_t)group;
        at += prompt + response;
        g->r.row_start[row + 1] = at;
    }
    g->r.batch = (xray_batch){ .header = XRAY_HEADER(xray_batch),
                               .rows = GROUPS * SAMPLES,
                               .tokens = (uint32_t)at,
                               .ids = g->r.ids,
                               .row_start = g->r.row_start,
                               .loss_mask = g->r.mask,
                               .temperature = g->r.temperature };
}

/* Divides the rows into `parts` micro-batches of complete groups. */
static void cut_groups(groups *g, uint32_t parts, uint32_t share)
{
    const int32_t *start = g->r.row_start;
    for (uint32_t row = 0; row < GROUPS * SAMPLES; row++)
        g->r.row_index[row] = row;
    for (uint32_t p = 0; p < parts; p++) {
        uint32_t first = GROUPS * p / parts * SAMPLES;
        uint32_t last = GROUPS * (p + 1) / parts * SAMPLES;
        int32_t token = start[first];
        for (uint32_t i = first; i <= last; i++)
            g->r.part_start[p][i - first] = start[i] - token;
        g->r.parts[p] = g->r.batch;
        g->r.parts[p].rows = last - first;
        g->r.parts[p].tokens = (uint32_t)(start[last] - token);
        g->r.parts[p].ids = g->r.ids + token;
        g->r.parts[p].row_start = g->r.part_start[p];
        g->r.parts[p].loss_mask = g->r.mask + token;
        g->r.parts[p].temperature = g->r.temperature + first;
        g->r.parts[p].prompt_len = g->prompt_len + first;
        g->r.parts[p].group = g->group + first;
        g->r.parts[p].row_index = g->r.row_index + first;
        g->r.parts[p].share_prompts = share;
        g->r.pointers[p] = &g->r.parts[p];
    }
}

static void fold_gradients(const rig *r, groups *g, uint32_t parts,
                           uint32_t share)
{
    rows_loss ctx = { .entropy_weight = 0.02, .value_weight = 0.1 };
    cut_groups(g, parts, share);
    xray_loss loss = rows_loss_of(&ctx, &g->r);
    assert_int_equal(
        r->ops->forward_backward(r->self, g->r.pointers, parts, &loss),
        XRAY_OK);
}

static const rig_spec specs[] = {
    { .tokens = 400, .row_tokens = 24, .seed = 4 },
    { .config_json = rig_tiny_tied,
      .tokens = 400,
      .row_tokens = 24,
      .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY | XRAY_OUTPUT_VALUE,
      .seed = 5 },
    { .tokens = 400, .row_tokens = 24, .seed = 6, .checkpointing = 1 },
};

static void outputs_keep_their_bits(void **state)
{
    static float got[2][3][ROWS_TOKENS_MAX];
    (void)state;
    for (size_t s = 0; s < sizeof(specs) / sizeof(*specs); s++) {
        rig_device device = rig_device_open(2);
        rig r;
        groups g;
        uint32_t heads = specs[s].outputs
                             ? specs[s].outputs
                             : XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY;
        assert_int_equal(rig_open(&device, &specs[s], &r), XRAY_OK);
        draw_groups(&g);
        for (uint32_t share = 0; share < 2; share++) {
            xray_outputs out = { XRAY_HEADER(xray_outputs), got[share][0],
                                 got[share][1], got[share][2] };
            cut_groups(&g, 1, share);
            assert_int_equal(
                forward_one(r.ops, r.self, g.r.pointers[0], heads, &out),
                XRAY_OK);
        }
        assert_memory_equal(got[0], got[1], sizeof(got[0]));
        rig_close(&r);
        rig_device_close(&device);
    }
}

/* The largest difference of two gradients relative to the largest entry. */
static double largest_difference(const xray_weights *a, const xray_weights *b)
{
    double most = 0;
    double apart = 0;
    assert_int_equal(a->tensor_count, b->tensor_count);
    for (uint32_t i = 0; i < a->tensor_count; i++) {
        const float *x = a->tensors[i].data;
        const float *y = b->tensors[i].data;
        for (uint64_t e = 0; e < xray_box_count(&a->tensors[i]); e++) {
            most = fmax(most, fabs((double)x[e]));
            apart = fmax(apart, fabs((double)x[e] - (double)y[e]));
        }
    }
    assert_true(most > 0);
    return apart / most;
}

static void gradients_agree(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof(specs) / sizeof(*specs); s++) {
        rig_device device = rig_device_open(1);
        rig apart;
        rig shared;
        groups g;
        assert_int_equal(rig_open(&device, &specs[s], &apart), XRAY_OK);
        assert_int_equal(rig_open(&device, &specs[s], &shared), XRAY_OK);
        draw_groups(&g);
        fold_gradients(&apart, &g, 1, 0);
        fold_gradients(&shared, &g, 1, 1);
        double d =
            largest_difference(rig_debug(&apart)->gradients(apart.self),
                               rig_debug(&shared)->gradients(shared.self));
        if (d > 2e-6 || d == 0) /* 0: nothing was shared */
            fail_msg("spec %zu: gradients differ by %g of the largest", s, d);
        rig_close(&apart);
        rig_close(&shared);
        rig_device_close(&device);
    }
}

/* The updates are the same however groups are assigned to micro-batches and
 * threads. */
static void any_cut_between_groups_gives_the_same_bits(void **state)
{
    static const uint32_t cuts[] = { 1, 2, 3, 5, 5 };
    (void)state;
    for (size_t s = 0; s < sizeof(specs) / sizeof(*specs); s++) {
        rig_device device = rig_device_open(1);
        rig first;
        groups g;
        xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
        draw_groups(&g);
        assert_int_equal(rig_open(&device, &specs[s], &first), XRAY_OK);
        fold_gradients(&first, &g, 1, 1);
        assert_int_equal(
            first.ops->optimizer_step(first.self, 1e-2, 0.5, &result), XRAY_OK);
        for (size_t c = 1; c < sizeof(cuts) / sizeof(*cuts); c++) {
            rig_device other = rig_device_open(1 + c % 2);
            rig r;
            assert_int_equal(rig_open(&other, &specs[s], &r), XRAY_OK);
            fold_gradients(&r, &g, cuts[c], 1);
            assert_int_equal(r.ops->optimizer_step(r.self, 1e-2, 0.5, &result),
                             XRAY_OK);
            rig_same_weights(&first, &r);
            rig_close(&r);
            rig_device_close(&other);
        }
        rig_close(&first);
        rig_device_close(&device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_keep_their_bits),
        cmocka_unit_test(gradients_agree),
        cmocka_unit_test(any_cut_between_groups_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
