/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a failed collective or operator of the device fails the call that
 * needed it, what an instance is afterwards, and what ranks agree on after
 * gradients that are not finite.
 */
#include <math.h>

#include "tests/train/scripted.h"

/* ---- failures ----------------------------------------------------------- */

static const xray_device_ops *inner; /* the device behind the refusing one */
static uint32_t allocations_left;    /* until one is refused */

static xray_status refuse_one_allocation(void *self, const char *owner,
                                         uint32_t tag, uint64_t bytes,
                                         void **out)
{
    return allocations_left-- ? inner->alloc(self, owner, tag, bytes, out)
                              : XRAY_E_DEVICE;
}

/* Whichever memory the device refuses, creation ends with its status. */
static void refused_memory_fails_the_creation(void **state)
{
    (void)state;
    const rig_spec spec = { .stage_1 = 3 + 1 };
    rig_device device = rig_device_open(1);
    xray_device_ops made = *device.ops;
    rig_device refusing = { &made, device.self, device.config };
    xray_status status = XRAY_E_DEVICE;
    uint32_t refused = 0;
    rig r;
    inner = device.ops;
    made.alloc = refuse_one_allocation;
    for (; status != XRAY_OK; refused++) {
        allocations_left = refused;
        status = scripted_try(&refusing, &spec, 2, &r);
        if (status != XRAY_OK)
            assert_int_equal(status, XRAY_E_DEVICE);
    }
    assert_true(refused > 5);
    rig_close(&r);
    rig_device_close(&device);
}

/* A sum over ranks that fails, fails the call that needs it. At stages 0 and 1
 * that is the step, which is complete if it is made again. */
static void failed_sums_fail_the_call(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t stage = 0; stage < 4; stage++) {
        const rig_spec spec = { .stage_1 = stage + 1 };
        xray_step_result result;
        rig r = scripted_open(&device, &spec, 2);
        if (stage < 2)
            assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
        scripted_other.fails =
            stage ? XRAY_COMM_REDUCE_SCATTER : XRAY_COMM_ALL_REDUCE;
        scripted_other.left = 1;
        assert_int_equal(stage < 2 ? scripted_step(&r, &result)
                                   : scripted_add_gradients(&r),
                         XRAY_E_PEER);
        scripted_other.fails = SCRIPTED_NEVER;
        scripted_other.calls = 0;
        if (stage < 2) {
            assert_int_equal(scripted_step(&r, &result), XRAY_OK);
            assert_int_equal(
                scripted_other.calls,
                ((const xm_trainer *)r.self)->layout->bucket_count);
            assert_int_equal(result.version, 1);
        }
        rig_close(&r);
    }
    rig_device_close(&device);
}

static uint32_t waits_left; /* calls with events until one is refused */

static int refuses_wait(void)
{
    return waits_left && --waits_left == 0;
}

static xray_status refuse_record(void *self, xray_stream *stream,
                                 xray_event *event)
{
    return refuses_wait() ? XRAY_E_DEVICE
                          : inner->event_record(self, stream, event);
}

static xray_status refuse_wait(void *self, xray_stream *stream,
                               xray_event *event)
{
    return refuses_wait() ? XRAY_E_DEVICE
                          : inner->event_wait(self, stream, event);
}

/* Whatever the device does not wait for may be read too early, so that each
 * refused wait fails the gradients or the step. */
static void refused_waits_fail_the_call(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    xray_device_ops made = *device.ops;
    const rig_device refusing = { &made, device.self, device.config };
    inner = device.ops;
    made.event_record = refuse_record;
    made.event_wait = refuse_wait;
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t stage = 0; stage < 4; stage++) {
        uint32_t first = 1;
        for (int refused = 1; refused; first++) {
            const rig_spec spec = { .stage_1 = stage + 1 };
            xray_step_result result;
            rig r = scripted_open(&refusing, &spec, 2);
            waits_left = first;
            xray_status status = scripted_add_gradients(&r);
            if (status == XRAY_OK)
                status = scripted_step(&r, &result);
            refused = waits_left == 0;
            waits_left = 0;
            if (status != (refused ? XRAY_E_DEVICE : XRAY_OK))
                fail_msg("stage %u, wait %u: status %d", stage, first,
                         (int)status);
            rig_close(&r);
        }
        assert_true(first > 4);
    }
    rig_device_close(&device);
}

/* A sum that cannot be added to the gradients of earlier micro-batches. */
static void failed_additions_fail_the_call(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    const rig_spec spec = { .stage_1 = 2 + 1 };
    rig r = scripted_open(&seen, &spec, 2);
    assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
    scripted_watched.fail_adds = 1;
    assert_int_equal(scripted_add_gradients(&r), XRAY_E_DEVICE);
    rig_close(&r);
    rig_device_close(&device);
}

/* The sums of segments are copied and added bucket by bucket; whichever fails,
 * others that succeed after it hide nothing. */
static void failed_sums_of_segments_fail_the_call(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (int adds = 0; adds < 2; adds++) {
        const rig_spec spec = { .stage_1 = 0 + 1, .segments = 4 };
        rig r = scripted_open(&seen, &spec, 1);
        scripted_watched.fail_adds = (uint32_t)adds;
        scripted_watched.fail_copy = adds ? 0 : XRAY_COPY_ON_DEVICE + 1;
        rig_clear();
        assert_int_equal(scripted_add_gradients(&r), XRAY_E_DEVICE);
        assert_non_null(
            strstr(rig_error(), "the device could not add up segments"));
        scripted_watched.fail_adds = scripted_watched.fail_copy = 0;
        rig_close(&r);
    }
    rig_device_close(&device);
}

/* An update whose weights cannot be gathered from the other ranks fails, and
 * the version stays. */
static void failed_gather_of_updated_weights(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t stage = 1; stage < 3; stage++) {
        const rig_spec spec = { .stage_1 = stage + 1 };
        xray_step_result result;
        rig r = scripted_open(&device, &spec, 2);
        assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
        scripted_other.fails = XRAY_COMM_ALL_GATHER;
        assert_int_equal(scripted_step(&r, &result), XRAY_E_PEER);
        assert_int_equal(result.version, 0);
        rig_close(&r);
    }
    rig_device_close(&device);
}

/* Weights that a pass cannot gather: the pass and an export fail, and the
 * sentence names the instance. */
static void failed_gather_of_a_pass_is_told(void **state)
{
    (void)state;
    static float logp[ROWS_TOKENS_MAX];
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t host = 0; host < 2; host++) {
        const rig_spec spec = { .offload_param = host };
        xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                             .logp = logp };
        const xray_weights *part = NULL;
        xray_status want = host ? XRAY_E_DEVICE : XRAY_E_PEER;
        rig r = scripted_open(&seen, &spec, host ? 1 : 2);
        for (int call = 0; call < 3; call++) {
            rig_clear();
            assert_int_equal(r.ops->export_begin(r.self), XRAY_OK);
            scripted_watched.fail_copy = host ? XRAY_COPY_TO_DEVICE + 1 : 0;
            scripted_other.fails = host ? SCRIPTED_NEVER : XRAY_COMM_ALL_GATHER;
            xray_status status =
                call == 0   ? r.ops->export_next(r.self, &part)
                : call == 1 ? forward_one(r.ops, r.self, &scripted_rows.batch,
                                          XRAY_OUTPUT_LOGP, &out)
                            : scripted_add_gradients(&r);
            r.ops->export_end(r.self);
            scripted_watched.fail_copy = 0;
            scripted_other.fails = SCRIPTED_NEVER;
            assert_int_equal(status, want);
            if (host == 0 || call == 0)
                assert_string_equal(
                    rig_error(),
                    "train.zero3/actor: the weights could not be gathered");
        }
        rig_close(&r);
    }
    rig_device_close(&device);
}

/* Matrices that the device cannot take over must not be computed with: the
 * pass fails, and the next one gathers them again. */
static void failed_change_of_weights_fails_the_pass(void **state)
{
    (void)state;
    static float logp[ROWS_TOKENS_MAX];
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    const rig_spec spec = { .offload_param = 1 };
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs), .logp = logp };
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    rig r = scripted_open(&seen, &spec, 1);
    for (int turn = 0; turn < 2; turn++) {
        scripted_watched.fail_changed = 1;
        assert_int_equal(forward_one(r.ops, r.self, &scripted_rows.batch,
                                     XRAY_OUTPUT_LOGP, &out),
                         XRAY_E_DEVICE);
        scripted_watched.fail_changed = 0;
        assert_int_equal(forward_one(r.ops, r.self, &scripted_rows.batch,
                                     XRAY_OUTPUT_LOGP, &out),
                         XRAY_OK);
    }
    rig_close(&r);
    rig_device_close(&device);
}

/* An update that fails may have changed a part of the weights, so the next pass
 * gathers all of them. */
static void failed_update_is_followed_by_a_full_gather(void **state)
{
    (void)state;
    static float logp[ROWS_TOKENS_MAX];
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    const rig_spec spec = { .stage_1 = 3 + 1 };
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs), .logp = logp };
    xray_step_result result;
    uint32_t gathers[2];
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    rig r = scripted_open(&seen, &spec, 2);
    for (int turn = 0; turn < 2; turn++) {
        scripted_other.gathers = 0;
        assert_int_equal(forward_one(r.ops, r.self, &scripted_rows.batch,
                                     XRAY_OUTPUT_LOGP, &out),
                         XRAY_OK);
        gathers[turn] = scripted_other.gathers;
        assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
        scripted_watched.fail_updates = 1;
        assert_int_equal(scripted_step(&r, &result), XRAY_E_DEVICE);
        scripted_watched.fail_updates = 0;
    }
    assert_true(gathers[0] > 0);
    assert_int_equal(gathers[1], gathers[0]);
    rig_close(&r);
    rig_device_close(&device);
}

/* A pass that fails is the last one of the call: no segment is ended after it,
 * and no other rank waits for this one. */
static void failed_pass_ends_no_segments(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_spec spec = { .stage_1 = 3 + 1, .segments = 4 };
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    rig r = scripted_open(&device, &spec, 2);
    for (uint32_t left = 0; left < 3; left++) {
        scripted_other.fails = XRAY_COMM_ALL_GATHER;
        scripted_other.left = left;
        scripted_other.gathers = scripted_other.calls = 0;
        assert_int_equal(scripted_add_gradients(&r), XRAY_E_PEER);
        assert_int_equal(scripted_other.gathers, left + 1);
        assert_int_equal(scripted_other.calls, 0);
    }
    rig_close(&r);
    rig_device_close(&device);
}

/* A tag whose values could not be copied stays where it is. */
static void failed_offload_leaves_the_tag_on_the_device(void **state)
{
    (void)state;
    static const uint32_t tags[] = { XRAY_TAG_WEIGHTS, XRAY_TAG_GRADS,
                                     XRAY_TAG_OPTIMIZER };
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    const rig_spec spec = { .stage_1 = 1 + 1 };
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    rig r = scripted_open(&seen, &spec, 1);
    for (size_t t = 0; t < 3; t++) {
        xray_step_result result;
        assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
        scripted_watched.fail_copy = XRAY_COPY_TO_HOST + 1;
        rig_clear();
        assert_int_equal(r.ops->offload(r.self, tags[t]), XRAY_E_DEVICE);
        assert_non_null(strstr(rig_error(), "could not be copied to host"));
        scripted_watched.fail_copy = 0;
        assert_int_equal(scripted_step(&r, &result), XRAY_OK);
        assert_true(result.grad_norm > 0);
    }
    rig_close(&r);
    rig_device_close(&device);
}

/* A tag that could not be restored stays offloaded, and can be onloaded
 * later. */
static void failed_onload_leaves_the_tag_offloaded(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    const rig_spec spec = { 0 };
    xray_step_result result;
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    rig r = scripted_open(&seen, &spec, 1);
    for (uint32_t how = 0; how < 4; how++) {
        uint32_t tag = how > 1 ? XRAY_TAG_WEIGHTS : XRAY_TAG_OPTIMIZER;
        assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
        assert_int_equal(r.ops->offload(r.self, tag), XRAY_OK);
        scripted_watched.fail_restore = how == 0;
        scripted_watched.fail_copy = how % 2 ? XRAY_COPY_TO_DEVICE + 1 : 0;
        scripted_watched.fail_changed = how == 2;
        rig_clear();
        assert_int_equal(r.ops->onload(r.self, tag), XRAY_E_DEVICE);
        assert_non_null(strstr(rig_error(), "could not restore the memory of"));
        scripted_watched.fail_restore = scripted_watched.fail_copy = 0;
        scripted_watched.fail_changed = 0;
        assert_int_equal(scripted_step(&r, &result), XRAY_E_STATE);
        assert_int_equal(r.ops->onload(r.self, tag), XRAY_OK);
        assert_int_equal(scripted_step(&r, &result), XRAY_OK);
    }
    rig_close(&r);
    rig_device_close(&device);
}

/* An instance destroys all events and handles that it created. */
static void instances_return_what_they_created(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_device seen = scripted_watch(&device);
    for (uint32_t stage = 0; stage < 4; stage++) {
        const rig_spec spec = { .stage_1 = stage + 1 };
        rig r = scripted_open(&seen, &spec, 2);
        assert_true(scripted_watched.events > 0 &&
                    scripted_watched.handles > 0);
        rig_close(&r);
        assert_int_equal(scripted_watched.events, 0);
        assert_int_equal(scripted_watched.handles, 0);
    }
    rig_device_close(&device);
}

/* A loss that returns no error but a positive number has failed as well: a
 * caller takes such a number for success. */
static xray_status return_positive(void *ctx, const xray_loss_call *call)
{
    (void)ctx;
    (void)call;
    return XRAY_AGAIN;
}

/* A gradient of the loss that is not finite fails the call of this rank, after
 * the sums for which the others wait. */
static void poisoned_loss_leaves_nobody_waiting(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_spec spec = { .stage_1 = 2 + 1 };
    rows_loss ctx = { 0 };
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    const xray_loss loss = rows_loss_of(&ctx, &scripted_rows);
    ctx.poison_token = scripted_rows.row_start[1] + 2;
    scripted_rows.mask[ctx.poison_token] = 1;
    rig r = scripted_open(&device, &spec, 2);
    scripted_other.calls = 0;
    assert_int_equal(
        r.ops->forward_backward(r.self, scripted_rows.pointers, 1, &loss),
        XRAY_E_NUMERIC);
    assert_int_equal(scripted_other.calls,
                     ((const xm_trainer *)r.self)->layout->bucket_count);
    rig_close(&r);
    rig_device_close(&device);
}

static void positive_status_of_a_loss_is_a_fault(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    const rig_spec spec = { 0 };
    const xray_loss loss = { .header = XRAY_HEADER(xray_loss),
                             .fn = return_positive };
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    rig r = scripted_open(&device, &spec, 1);
    assert_int_equal(
        r.ops->forward_backward(r.self, scripted_rows.pointers, 1, &loss),
        XRAY_E_BUG);
    assert_string_equal(rig_error(),
                        "the loss failed on the micro-batch from row 0");
    rig_close(&r);
    rig_device_close(&device);
}

static xray_status fail_and_count(void *ctx, const xray_loss_call *call)
{
    uint32_t *calls = ctx;
    (void)call;
    ++*calls;
    return *calls == 1 ? XRAY_E_NUMERIC : XRAY_E_BUG;
}

/* The other ranks wait for this one's further micro-batches, but its loss is
 * not asked again, and the first failure is the one that is told. */
static void failed_loss_is_not_called_again(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    rows_cut(&scripted_rows, 3);
    for (uint32_t stage = 0; stage < 4; stage++) {
        const rig_spec spec = { .stage_1 = stage + 1 };
        uint32_t calls = 0;
        const xray_loss loss = { .header = XRAY_HEADER(xray_loss),
                                 .fn = fail_and_count,
                                 .ctx = &calls };
        rig r = scripted_open(&device, &spec, 2);
        rig_clear();
        assert_int_equal(
            r.ops->forward_backward(r.self, scripted_rows.pointers, 3, &loss),
            XRAY_E_NUMERIC);
        assert_int_equal(calls, 1);
        assert_string_equal(rig_error(),
                            "the loss failed on the micro-batch from row 0");
        rig_close(&r);
    }
    rig_device_close(&device);
}

/* ---- results ------------------------------------------------------------ */

/* All ranks name the first tensor that is not finite on any of them, and a
 * later step that is made takes the name back. */
static void first_bad_tensor_of_all_ranks_is_named(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rows_draw(&scripted_rows, 6, 20, 37, 5);
    for (uint32_t mine = 2; mine <= 6; mine += 2) {
        const rig_spec spec = { .stage_1 = 0 + 1 };
        rig r = scripted_open(&device, &spec, 2);
        const xm_layout *layout = ((const xm_trainer *)r.self)->layout;
        xray_step_result result;
        assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
        if (mine < 6) /* otherwise only the other rank has one */
            ((float *)rig_tensor(rig_debug(&r)->gradients(r.self),
                                 layout->params[mine].name)
                 ->data)[0] = NAN;
        scripted_other.bad_record = 1;
        scripted_other.first = 3;
        assert_int_equal(scripted_step(&r, &result), XRAY_OK);
        assert_int_equal(result.skipped, 1);
        assert_string_equal(result.bad_tensor,
                            layout->params[mine < 3 ? mine : 3].name);
        scripted_other.bad_record = 0;
        assert_int_equal(scripted_add_gradients(&r), XRAY_OK);
        assert_int_equal(r.ops->optimizer_step(r.self, 1e-2, 1, &result),
                         XRAY_OK);
        assert_int_equal(result.skipped, 0);
        assert_null(result.bad_tensor);
        assert_int_equal(result.version, 1);
        rig_close(&r);
    }
    rig_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refused_memory_fails_the_creation),
        cmocka_unit_test(failed_sums_fail_the_call),
        cmocka_unit_test(refused_waits_fail_the_call),
        cmocka_unit_test(failed_additions_fail_the_call),
        cmocka_unit_test(failed_sums_of_segments_fail_the_call),
        cmocka_unit_test(failed_gather_of_updated_weights),
        cmocka_unit_test(failed_gather_of_a_pass_is_told),
        cmocka_unit_test(failed_change_of_weights_fails_the_pass),
        cmocka_unit_test(failed_update_is_followed_by_a_full_gather),
        cmocka_unit_test(failed_pass_ends_no_segments),
        cmocka_unit_test(failed_offload_leaves_the_tag_on_the_device),
        cmocka_unit_test(failed_onload_leaves_the_tag_offloaded),
        cmocka_unit_test(instances_return_what_they_created),
        cmocka_unit_test(poisoned_loss_leaves_nobody_waiting),
        cmocka_unit_test(positive_status_of_a_loss_is_a_fault),
        cmocka_unit_test(failed_loss_is_not_called_again),
        cmocka_unit_test(first_bad_tensor_of_all_ranks_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
