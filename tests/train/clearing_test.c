/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that gradients which are cleared are gone - by a step, a failed call,
 * a discard or a load -, and that refused calls leave offloaded ones alone.
 */
#include <xray/box.h>

#include <math.h>

#include "tests/scratch.h"
#include "tests/train/scripted.h"

/* Fails the test unless all gradients are zero, seen as values and as the norm
 * of a step. */
static void expect_no_gradients(const rig *r, const char *after)
{
    xray_step_result result;
    const xray_weights *table = rig_debug(r)->gradients(r->self);
    assert_non_null(table);
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const float *data = table->tensors[i].data;
        for (uint64_t k = 0; k < xray_box_count(&table->tensors[i]); k++)
            if (data[k] != 0)
                fail_msg("%s, %s[%d] is %g", after, table->tensors[i].name,
                         (int)k, (double)data[k]);
    }
    assert_int_equal(scripted_step(r, &result), XRAY_OK);
    assert_true(result.grad_norm == 0);
}

static xray_status refuse_loss(void *ctx, const xray_loss_call *call)
{
    (void)ctx;
    (void)call;
    return XRAY_E_ARG;
}

/* The ways in which gradients are cleared. */
static const char *const clearings[] = { "after a step", "after a failed loss",
                                         "after a refused call",
                                         "after a discard", "after a load" };
#define CLEARINGS (sizeof(clearings) / sizeof(*clearings))

static void clear_gradients(const rig *r, size_t how)
{
    xray_step_result result;
    static const xray_loss refusing = { .header = XRAY_HEADER(xray_loss),
                                        .fn = refuse_loss };
    switch (how) {
    case 0:
        assert_int_equal(scripted_step(r, &result), XRAY_OK);
        assert_true(result.grad_norm > 0);
        break;
    case 1:
        assert_int_equal(r->ops->forward_backward(
                             r->self, scripted_rows.pointers, 1, &refusing),
                         XRAY_E_ARG);
        break;
    case 2:
        assert_int_equal(r->ops->offload(r->self, XRAY_TAG_ACTIVATIONS),
                         XRAY_OK);
        assert_int_equal(scripted_add_gradients(r), XRAY_E_STATE);
        assert_int_equal(r->ops->onload(r->self, XRAY_TAG_ACTIVATIONS),
                         XRAY_OK);
        break;
    case 3:
        assert_int_equal(r->ops->discard(r->self), XRAY_OK);
        break;
    default:
        assert_int_equal(r->ops->load(r->self, scratch_dir()), XRAY_OK);
        break;
    }
}

static void cleared_gradients_are_zero(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_spec spec = { .config_json = rig_tiny_tied };
    rig saved;
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    assert_int_equal(rig_open(&device, &spec, &saved), XRAY_OK);
    assert_int_equal(saved.ops->save(saved.self, scratch_dir()), XRAY_OK);
    rig_close(&saved);
    for (uint32_t stage = 0; stage < 4; stage++)
        for (uint32_t ranks = 1; ranks <= 2; ranks++)
            for (size_t how = 0; how < CLEARINGS; how++) {
                spec.stage_1 = stage + 1;
                rig r = scripted_open(&device, &spec, ranks);
                assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
                assert_non_null(
                    rig_debug(&r)->gradients(r.self)); /* summed now */
                clear_gradients(&r, how);
                expect_no_gradients(&r, clearings[how]);
                rig_close(&r);
            }
    rig_device_close(&device);
}

/* The sums that a failing pass has kept apart, such as the look-ups of a tied
 * table, are not in the next one. At stages 0 and 1 the step adds these. */
static void a_failed_pass_leaves_nothing_to_the_next(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t stage = 2; stage < 4; stage++) {
        double norm[2];
        for (uint32_t failed = 0; failed < 2; failed++) {
            const rig_spec spec = { .config_json = rig_tiny_tied,
                                    .stage_1 = stage + 1,
                                    .seed = 7 };
            xray_step_result result;
            rig r = scripted_open(&seen, &spec, 2);
            scripted_watched.fail_adds = failed;
            assert_int_equal(scripted_add_gradients(&r),
                             failed ? XRAY_E_DEVICE : XRAY_OK);
            scripted_watched.fail_adds = 0;
            if (failed)
                assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
            assert_int_equal(scripted_step(&r, &result), XRAY_OK);
            norm[failed] = result.grad_norm;
            rig_close(&r);
        }
        assert_true(norm[0] > 0 && norm[0] == norm[1]);
    }
    rig_device_close(&device);
}

/* The first sum after a clearing replaces what was there, as the first one of
 * all does: 0 + x is not x for x = -0. */
static void first_sum_keeps_the_sign_of_zero(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t stage = 2; stage < 4; stage++) {
        const rig_spec spec = { .stage_1 = stage + 1 };
        rig r = scripted_open(&device, &spec, 2);
        for (int turn = 0; turn < 2; turn++) {
            scripted_other.negative = 1;
            assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
            const xray_weights *table = rig_debug(&r)->gradients(r.self);
            for (uint32_t i = 0; i < table->tensor_count; i++) {
                const float *data = table->tensors[i].data;
                for (uint64_t k = 0; k < xray_box_count(&table->tensors[i]);
                     k++)
                    assert_true(data[k] == 0 && signbit(data[k]));
            }
            scripted_other.negative = 0;
            assert_int_equal(r.ops->discard(r.self), XRAY_OK);
        }
        rig_close(&r);
    }
    rig_device_close(&device);
}

/* ---- offloaded gradients ------------------------------------------------- */

/* Gradients that were cleared are not copied to host memory. */
static void cleared_gradients_cost_no_copy(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t stage = 0; stage < 4; stage++)
        for (size_t how = 0; how + 1 < CLEARINGS; how++) {
            const rig_spec spec = { .stage_1 = stage + 1 };
            rig r = scripted_open(&seen, &spec, 2);
            assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
            scripted_watched.to_host = 0;
            assert_int_equal(r.ops->offload(r.self, XRAY_TAG_GRADS), XRAY_OK);
            assert_true(scripted_watched.to_host > 0);
            assert_int_equal(r.ops->onload(r.self, XRAY_TAG_GRADS), XRAY_OK);
            clear_gradients(&r, how);
            scripted_watched.to_host = 0;
            assert_int_equal(r.ops->offload(r.self, XRAY_TAG_GRADS), XRAY_OK);
            assert_true(scripted_watched.to_host == 0);
            assert_int_equal(r.ops->onload(r.self, XRAY_TAG_GRADS), XRAY_OK);
            expect_no_gradients(&r, clearings[how]);
            rig_close(&r);
        }
    rig_device_close(&device);
}

/* A call that is refused because the gradients are offloaded does not touch
 * them: the next step is that of an instance that never saw the call. */
static void refused_calls_keep_offloaded_gradients(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t stage = 0; stage < 4; stage++) {
        double norm[2];
        for (int refused = 0; refused < 2; refused++) {
            const rig_spec spec = { .stage_1 = stage + 1, .seed = 7 };
            xray_step_result result;
            rig r = scripted_open(&device, &spec, 2);
            assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
            if (refused) {
                assert_int_equal(r.ops->offload(r.self, XRAY_TAG_GRADS),
                                 XRAY_OK);
                assert_int_equal(scripted_add_gradients(&r), XRAY_E_STATE);
                assert_int_equal(r.ops->discard(r.self), XRAY_E_STATE);
                assert_int_equal(scripted_step(&r, &result), XRAY_E_STATE);
                assert_int_equal(r.ops->onload(r.self, XRAY_TAG_GRADS),
                                 XRAY_OK);
            }
            assert_int_equal(scripted_step(&r, &result), XRAY_OK);
            norm[refused] = result.grad_norm;
            rig_close(&r);
        }
        assert_true(norm[0] > 0 && norm[0] == norm[1]);
    }
    rig_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleared_gradients_are_zero),
        cmocka_unit_test(a_failed_pass_leaves_nothing_to_the_next),
        cmocka_unit_test(first_sum_keeps_the_sign_of_zero),
        cmocka_unit_test(cleared_gradients_cost_no_copy),
        cmocka_unit_test(refused_calls_keep_offloaded_gradients),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
