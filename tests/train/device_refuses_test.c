/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that whichever call a device refuses while a batch is packed, an
 * optimizer works or a checkpoint is written or read, that refusal is what the
 * caller is told, with a sentence: nothing more is asked of the device, no
 * memory is kept, no step counts as made, and no file takes the place of
 * another.
 */
#include <dirent.h>

#include "core/base/file.h"
#include "model/nn/decoder.h"
#include "model/train/checkpoint.h"
#include "model/train/moments.h"
#include "model/train/norm.h"
#include "model/train/pack.h"
#include "tests/scratch.h"
#include "tests/train/rig.h"

static const xray_device_ops *inner; /* the device behind the refusing one */
static int32_t calls_left; /* calls until one is refused; below 0: none is */
static int refused;        /* a call was refused */
static int later_calls;    /* calls after that one */
static int held;           /* blocks of memory and events that exist */
static int info_answers;   /* 1: `info` is never refused */

static int should_refuse(void)
{
    later_calls += refused;
    if (refused || calls_left < 0 || calls_left-- > 0)
        return 0;
    refused = 1;
    return 1;
}

#define REFUSABLE(op, params, args)                              \
    static xray_status try_##op params                           \
    {                                                            \
        return should_refuse() ? XRAY_E_DEVICE : inner->op args; \
    }
REFUSABLE(copy,
          (void *self, xray_stream *stream, void *to, const void *from,
           uint64_t bytes, uint32_t kind),
          (self, stream, to, from, bytes, kind))
REFUSABLE(zero, (void *self, xray_stream *stream, void *ptr, uint64_t bytes),
          (self, stream, ptr, bytes))
REFUSABLE(sync, (void *self, xray_stream *stream), (self, stream))
REFUSABLE(event_record, (void *self, xray_stream *stream, xray_event *event),
          (self, stream, event))
REFUSABLE(event_wait, (void *self, xray_stream *stream, xray_event *event),
          (self, stream, event))
REFUSABLE(event_sync, (void *self, xray_event *event), (self, event))
REFUSABLE(sumsq, (void *self, xray_stream *stream, const xray_sumsq *call),
          (self, stream, call))

static xray_status try_info(void *self, xray_device_info *info)
{
    return !info_answers && should_refuse() ? XRAY_E_DEVICE
                                            : inner->info(self, info);
}

/* The plain device has no such operator; what it computes does not matter. */
static xray_status try_adamw(void *self, xray_stream *stream,
                             const xray_adamw *call)
{
    (void)self;
    (void)stream;
    (void)call;
    return should_refuse() ? XRAY_E_DEVICE : XRAY_OK;
}

static xray_status try_alloc(void *self, const char *owner, uint32_t tag,
                             uint64_t bytes, void **out)
{
    xray_status status = should_refuse()
                             ? XRAY_E_DEVICE
                             : inner->alloc(self, owner, tag, bytes, out);
    held += status == XRAY_OK;
    return status;
}

static void count_free(void *self, void *ptr)
{
    held -= ptr != NULL;
    inner->free(self, ptr);
}

static xray_status try_host_alloc(void *self, const char *owner, uint64_t bytes,
                                  void **out)
{
    xray_status status = should_refuse()
                             ? XRAY_E_DEVICE
                             : inner->host_alloc(self, owner, bytes, out);
    held += status == XRAY_OK;
    return status;
}

static void count_host_free(void *self, void *ptr)
{
    held -= ptr != NULL;
    inner->host_free(self, ptr);
}

static xray_status try_event_create(void *self, xray_event **out)
{
    xray_status status =
        should_refuse() ? XRAY_E_DEVICE : inner->event_create(self, out);
    held += status == XRAY_OK;
    return status;
}

static void count_event_destroy(void *self, xray_event *event)
{
    held -= event != NULL;
    inner->event_destroy(self, event);
}

/* All streams are one. */
static xray_status try_stream_create(void *self, xray_stream **out)
{
    static int one;
    (void)self;
    if (should_refuse())
        return XRAY_E_DEVICE;
    held++;
    *out = (void *)&one;
    return XRAY_OK;
}

static void count_stream_destroy(void *self, xray_stream *stream)
{
    (void)self;
    held -= stream != NULL;
}

static rig_device open_refusing_device(void)
{
    static xray_device_ops made;
    rig_device device = plain_device_open();
    inner = device.ops;
    made = *inner;
    made.info = try_info;
    made.alloc = try_alloc;
    made.free = count_free;
    made.copy = try_copy;
    made.zero = try_zero;
    made.sync = try_sync;
    made.host_alloc = try_host_alloc;
    made.host_free = count_host_free;
    made.event_create = try_event_create;
    made.event_destroy = count_event_destroy;
    made.event_record = try_event_record;
    made.event_sync = try_event_sync;
    made.event_wait = try_event_wait;
    made.stream_create = try_stream_create;
    made.stream_destroy = count_stream_destroy;
    made.sumsq = try_sumsq;
    made.adamw = try_adamw;
    device.ops = &made;
    calls_left = -1;
    refused = info_answers = 0;
    return device;
}

typedef struct trainer {
    rig_device device;
    xm_config config;
    xm_layout *layout;
    xm_grads *grads;
    xm_adamw *adamw;
    xm_packer *packer;
} trainer;

static const xm_adamw_options options = { .beta1 = 0.5,
                                          .beta2 = 0.25,
                                          .eps = 1e-8 };
static const xm_pack_limits limits = {
    .tokens = 8, .rows = 2, .row_tokens = 8, .vocab = 30
};

static void open_trainer(trainer *t)
{
    xr_err err = { "" };
    *t = (trainer){ .device = open_refusing_device() };
    assert_int_equal(xm_config_parse(rig_tiny, "test", &err, &t->config),
                     XRAY_OK);
    assert_int_equal(xm_layout_create(&t->config, 0, &err, &t->layout),
                     XRAY_OK);
    assert_int_equal(xm_grads_create(&t->config, t->layout, t->device.ops, NULL,
                                     "test", &err, &t->grads),
                     XRAY_OK);
    assert_int_equal(xm_adamw_create(t->layout, t->device.ops, NULL, &options,
                                     "test", &err, &t->adamw),
                     XRAY_OK);
    assert_int_equal(xm_packer_create(&limits, t->device.ops, NULL, "test",
                                      &err, &t->packer),
                     XRAY_OK);
}

static void close_trainer(trainer *t)
{
    xm_packer_destroy(t->packer);
    xm_adamw_destroy(t->adamw);
    xm_grads_destroy(t->grads);
    xm_layout_destroy(t->layout);
    assert_int_equal(held, 0);
}

typedef xray_status (*operation)(trainer *t, xr_err *err);

/* Refuses the first call of the operation, then the second and so on, until
 * none is left. */
static void refuse_each_call(trainer *t, operation run, int32_t at_least)
{
    int32_t calls = 0;
    int before = held;
    for (;; calls++) {
        xr_err err = { "" };
        uint64_t steps = t->adamw->steps;
        double power = t->adamw->power1;
        calls_left = calls;
        refused = later_calls = 0;
        xray_status status = run(t, &err);
        if (!refused) {
            if (status != XRAY_OK)
                fail_msg("%s", err.text);
            break;
        }
        if (status != XRAY_E_DEVICE || !err.text[0] || later_calls ||
            held != before)
            fail_msg("call %d: status %d, \"%s\", %d calls after it, %d of %d "
                     "blocks",
                     (int)calls, (int)status, err.text, later_calls, held,
                     before);
        assert_int_equal(t->adamw->steps, steps);
        assert_true(t->adamw->power1 == power);
    }
    calls_left = -1;
    if (calls < at_least)
        fail_msg("only %d calls", (int)calls);
}

static xray_status create_grads(trainer *t, xr_err *err)
{
    xm_grads *made = NULL;
    xray_status status = xm_grads_create(&t->config, t->layout, t->device.ops,
                                         NULL, "test", err, &made);
    xm_grads_destroy(made);
    return status;
}

static xray_status create_adamw(trainer *t, xr_err *err)
{
    xm_adamw *made = NULL;
    xray_status status = xm_adamw_create(t->layout, t->device.ops, NULL,
                                         &options, "test", err, &made);
    xm_adamw_destroy(made);
    return status;
}

static xray_status create_packer(trainer *t, xr_err *err)
{
    xm_packer *made = NULL;
    xray_status status =
        xm_packer_create(&limits, t->device.ops, NULL, "test", err, &made);
    xm_packer_destroy(made);
    return status;
}

static void what_is_not_created_leaves_no_memory(void **state)
{
    (void)state;
    trainer t;
    open_trainer(&t);
    refuse_each_call(&t, create_grads, 4);
    refuse_each_call(&t, create_adamw, 9);
    refuse_each_call(&t, create_packer, 2);
    close_trainer(&t);
}

static xray_status clear_grads(trainer *t, xr_err *err)
{
    return xm_grads_zero(t->grads, err);
}

static xray_status measure_grads(trainer *t, xr_err *err)
{
    const xm_grad_share share = { .device = t->device.ops,
                                  .layout = t->layout,
                                  .data = t->grads->buckets,
                                  .squares = t->adamw->squares };
    uint64_t squares[XRAY_SQUARES_WORDS];
    const xm_param *bad = NULL;
    xray_status status = xm_grad_squares(&share, err, squares);
    if (status == XRAY_OK)
        status = xm_grad_first_bad(&share, err, &bad);
    assert_null(bad);
    return status;
}

static xray_status update_weights(trainer *t, xr_err *err)
{
    return xm_adamw_step(t->adamw, t->grads->buckets, t->grads->buckets, 1, 1,
                         err);
}

static void refused_updates_are_not_counted(void **state)
{
    (void)state;
    trainer t;
    open_trainer(&t);
    refuse_each_call(&t, clear_grads, 4);
    refuse_each_call(&t, measure_grads, 20);
    refuse_each_call(&t, update_weights, 4);
    assert_int_equal(t.adamw->steps, 1);
    assert_true(t.adamw->power1 == 0.5 && t.adamw->power2 == 0.25);
    close_trainer(&t);
}

static const xm_adamw_options streamed = {
    .beta1 = 0.5, .beta2 = 0.25, .eps = 1e-8, .streamed = 1
};

/* Memory that copies may still use is freed after them. */
static xray_status open_moments(trainer *t, xr_err *err)
{
    xm_moments made;
    xray_status status =
        xm_moments_open(&made, t->device.ops, NULL, 64, "test", err);
    int later = later_calls;
    calls_left = -1;
    xm_moments_close(&made);
    later_calls = later;
    return status;
}

static void stream_moments(trainer *t)
{
    xr_err err = { "" };
    xm_adamw_destroy(t->adamw);
    assert_int_equal(xm_adamw_create(t->layout, t->device.ops, NULL, &streamed,
                                     "test", &err, &t->adamw),
                     XRAY_OK);
}

/* Moments in host memory go to the device and back piece by piece. */
static void refused_updates_of_streamed_moments_are_not_counted(void **state)
{
    (void)state;
    trainer t;
    open_trainer(&t);
    refuse_each_call(&t, open_moments, 13);
    stream_moments(&t);
    refuse_each_call(&t, update_weights, 10);
    assert_int_equal(t.adamw->steps, 1);
    close_trainer(&t);
}

static xray_status pack_a_batch(trainer *t, xr_err *err)
{
    static const int32_t ids[] = { 1, 2, 3, 4, 5 };
    static const int32_t row_start[] = { 0, 3, 5 };
    const xray_batch batch = { .header = XRAY_HEADER(xray_batch),
                               .tokens = 5,
                               .rows = 2,
                               .ids = ids,
                               .row_start = row_start };
    float per_token[5] = { 0 };
    const float *items = NULL;
    xm_packed packed;
    xray_status status = xm_packer_fill(t->packer, &batch, 0, err, &packed);
    if (status == XRAY_OK)
        status =
            xm_packer_spread(t->packer, per_token, 0, "dlogp", err, &items);
    if (status == XRAY_OK)
        status = xm_packer_collect(t->packer, items, per_token, err);
    return status;
}

static void refusals_end_a_batch(void **state)
{
    (void)state;
    trainer t;
    open_trainer(&t);
    /* Six arrays of the batch and one of its gradients, with an event after
     * either, on which the next batch waits, and the way back. */
    refuse_each_call(&t, pack_a_batch, 7 + 2 + 1 + 2);
    close_trainer(&t);
}

/* ---- checkpoints -------------------------------------------------------- */

static xray_status save_alone(trainer *t, xr_err *err)
{
    return xm_optim_save(t->adamw, scratch_dir(), 3, err);
}

static xray_status agree_alone(void *ctx, xray_status mine, xr_err *err)
{
    (void)ctx;
    (void)err;
    return mine;
}

static xray_status save_together(trainer *t, xr_err *err)
{
    const xm_agreement alone = { .agree = agree_alone };
    return xm_optim_save_share(t->adamw, t->adamw->layout, scratch_dir(), 3,
                               &alone, err);
}

static xray_status restore_file(trainer *t, xr_err *err)
{
    xm_optim *file = NULL;
    assert_int_equal(xm_optim_open(t->layout, scratch_dir(), err, &file),
                     XRAY_OK);
    xray_status status = xm_optim_restore(file, t->adamw, err);
    xm_optim_close(file);
    return status;
}

static uint64_t saved_version(const trainer *t)
{
    xm_optim *file = NULL;
    xr_err err = { "" };
    if (xm_optim_open(t->layout, scratch_dir(), &err, &file) != XRAY_OK)
        fail_msg("%s", err.text);
    uint64_t version = xm_optim_version(file);
    xm_optim_close(file);
    return version;
}

static size_t count_scratch_files(void)
{
    size_t count = 0;
    DIR *dir = opendir(scratch_dir());
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e; e = readdir(dir))
        count += e->d_name[0] != '.';
    (void)closedir(dir);
    return count;
}

static xray_status keep_file_if_refused(trainer *t, xr_err *err, operation save)
{
    xray_status status = save(t, err);
    assert_int_equal(saved_version(t), status == XRAY_OK ? 3 : 2);
    assert_int_equal(count_scratch_files(), 1);
    return status;
}

static xray_status save_alone_over(trainer *t, xr_err *err)
{
    return keep_file_if_refused(t, err, save_alone);
}

static xray_status save_together_over(trainer *t, xr_err *err)
{
    return keep_file_if_refused(t, err, save_together);
}

static void a_checkpoint_not_written_leaves_the_older_one(void **state)
{
    (void)state;
    static const operation saves[] = { save_alone_over, save_together_over };
    trainer t;
    open_trainer(&t);
    info_answers = 1; /* without an answer the moments are copied */
    for (size_t i = 0; i < 2; i++) {
        xr_err err = { "" };
        assert_int_equal(xm_optim_save(t.adamw, scratch_dir(), 2, &err),
                         XRAY_OK);
        refuse_each_call(&t, saves[i], 10);
    }
    close_trainer(&t);
}

/* The file is of step 7, the optimizer of step 1 until all is restored. */
static void a_checkpoint_not_read_leaves_the_steps(void **state)
{
    (void)state;
    trainer t;
    xr_err err = { "" };
    open_trainer(&t);
    info_answers = 1; /* without an answer the moments are copied */
    xm_adamw_set_steps(t.adamw, 7);
    assert_int_equal(xm_optim_save(t.adamw, scratch_dir(), 2, &err), XRAY_OK);
    xm_adamw_set_steps(t.adamw, 1);
    refuse_each_call(&t, restore_file, 10);
    assert_int_equal(t.adamw->steps, 7);
    close_trainer(&t);
}

/* Host memory is not copied as if it were the device's. */
static void streamed_moments_are_saved_from_where_they_are(void **state)
{
    (void)state;
    trainer t;
    xr_err err = { "" };
    open_trainer(&t);
    stream_moments(&t);
    t.adamw->m[1][0] = 3;
    t.adamw->v[1][0] = 5;
    assert_int_equal(xm_optim_save(t.adamw, scratch_dir(), 2, &err), XRAY_OK);
    t.adamw->m[1][0] = t.adamw->v[1][0] = 0;
    assert_int_equal(restore_file(&t, &err), XRAY_OK);
    assert_true(t.adamw->m[1][0] == 3 && t.adamw->v[1][0] == 5);
    close_trainer(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_created_leaves_no_memory),
        cmocka_unit_test(refused_updates_are_not_counted),
        cmocka_unit_test(refused_updates_of_streamed_moments_are_not_counted),
        cmocka_unit_test(refusals_end_a_batch),
        cmocka_unit_test(a_checkpoint_not_written_leaves_the_older_one),
        cmocka_unit_test(a_checkpoint_not_read_leaves_the_steps),
        cmocka_unit_test(streamed_moments_are_saved_from_where_they_are),
    };
    return cmocka_run_group_tests_name("train.device_refuses", tests,
                                       scratch_make, scratch_drop);
}
