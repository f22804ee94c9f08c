/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that every long call of backend-zero3 asks often enough whether it
 * shall end, and that a canceled one leaves the instance as documented.
 */
#include <dirent.h>
#include <math.h>

#include <xray/box.h>

#include "tests/stopper.h"
#include "tests/train/rig.h"

#if defined(__SANITIZE_ADDRESS__) /* many times slower */
#define WIDTH "\"hidden_size\": 128, \"intermediate_size\": 352, "
#define ROW_TOKENS 64
#else
#define WIDTH "\"hidden_size\": 256, \"intermediate_size\": 704, "
#define ROW_TOKENS 256
#endif

/* Large enough that each call takes longer than a look may be away. */
static const char wide[] =
    "{\"model_type\": \"llama\", " WIDTH "\"num_hidden_layers\": 6, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"vocab_size\": 4000, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, "
    "\"tie_word_embeddings\": false, \"max_position_embeddings\": 512}";

#define ROWS 8
#define TOKENS (ROWS * ROW_TOKENS)
#define CUTS 4

typedef struct fixture {
    stopper stop;
    rig_device device;
    rig r;
    rows rows;
    rows_loss loss_ctx;
    xray_loss loss;
    float logp[ROWS_TOKENS_MAX];
    char folder[256];
} fixture;

typedef xray_status (*long_call)(fixture *f);

static const rig_spec spec = { .config_json = wide,
                               .tokens = TOKENS,
                               .rows = ROWS,
                               .row_tokens = ROW_TOKENS };

static xray_status call_create(fixture *f)
{
    return rig_open(&f->device, &spec, &f->r);
}

static xray_status call_create_from_files(fixture *f)
{
    rig_spec from = spec;
    from.path = f->folder;
    return rig_open(&f->device, &from, &f->r);
}

static xray_status call_forward(fixture *f)
{
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs), .logp = f->logp };
    return f->r.ops->forward(f->r.self, f->rows.pointers, CUTS,
                             XRAY_OUTPUT_LOGP, &out);
}

static xray_status call_forward_backward(fixture *f)
{
    f->loss_ctx = (rows_loss){ .poison_token = -1 };
    f->loss = rows_loss_of(&f->loss_ctx, &f->rows);
    return f->r.ops->forward_backward(f->r.self, f->rows.pointers, CUTS,
                                      &f->loss);
}

static xray_status call_step(fixture *f)
{
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    return f->r.ops->optimizer_step(f->r.self, 1e-3, 1, &result);
}

static xray_status call_import(fixture *f)
{
    return rig_debug(&f->r)->import(f->r.self, f->r.ops->weights(f->r.self));
}

static xray_status call_save(fixture *f)
{
    return f->r.ops->save(f->r.self, f->folder);
}

static xray_status call_load(fixture *f)
{
    return f->r.ops->load(f->r.self, f->folder);
}

static uint32_t count_files(const char *path)
{
    uint32_t count = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *e = readdir(dir); e; e = readdir(dir))
        count += e->d_name[0] != '.';
    (void)closedir(dir);
    return count;
}

/* Runs a call to its end; returns how often it asked. */
static uint32_t watch_call(fixture *f, long_call call)
{
    double start = stopper_clock();
    stopper_begin(&f->stop, 0);
    xray_status status = call(f);
    if (status != XRAY_OK)
        fail_msg("%d: %s", (int)status, rig_error());
    stopper_mark(&f->stop);
    print_message("    %.3f s, %u questions, at most %.3f s apart\n",
                  stopper_clock() - start, f->stop.asked, f->stop.longest);
    assert_true(f->stop.longest < STOPPER_LIMIT);
    assert_true(f->stop.asked > 3);
    return f->stop.asked;
}

static void cancel_call(fixture *f, long_call call, uint32_t at)
{
    stopper_begin(&f->stop, at);
    rig_clear();
    assert_int_equal(call(f), XRAY_E_CANCELED);
    if (call != call_create) /* where what was being made is named */
        assert_string_equal(rig_error(), "the run is stopped");
    assert_int_equal(f->stop.asked, at); /* it does not go on asking */
    stopper_begin(&f->stop, 0);
}

/* The first question, one in the middle, and the last one. */
static uint32_t choose_question(uint32_t asked, uint32_t i)
{
    return i == 0 ? 1 : i == 1 ? asked / 2 : asked;
}

static void creation_is_canceled(void **state)
{
    fixture *f = *state;
    rig_close(&f->r);
    uint32_t asked = watch_call(f, call_create);
    rig_close(&f->r);
    for (uint32_t i = 0; i < 3; i++) {
        cancel_call(f, call_create, choose_question(asked, i));
        assert_null(f->r.self);
    }
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    rig_device used = f->device;
    f->device = rig_device_open(1);
    cancel_call(f, call_create, 1);
    assert_int_equal(f->device.ops->memory(f->device.self, &stats), XRAY_OK);
    assert_int_equal(stats.high[XRAY_TAG_WEIGHTS], 0); /* it asked before */
    rig_device_close(&f->device);
    f->device = used;
    assert_int_equal(call_create(f), XRAY_OK);
}

static void forward_is_canceled(void **state)
{
    static float before[ROWS_TOKENS_MAX];
    fixture *f = *state;
    uint32_t asked = watch_call(f, call_forward);
    memcpy(before, f->logp, sizeof(before));
    for (uint32_t i = 0; i < 3; i++)
        cancel_call(f, call_forward, choose_question(asked, i));
    memset(f->logp, 0, sizeof(f->logp));
    assert_int_equal(call_forward(f), XRAY_OK);
    assert_memory_equal(before, f->logp, TOKENS * sizeof(float));
}

/* The gradients of a canceled call do not get into the next update. */
static void gradients_of_a_canceled_call_are_cleared(void **state)
{
    fixture *f = *state;
    uint32_t asked = watch_call(f, call_forward_backward);
    assert_int_equal(f->r.ops->discard(f->r.self), XRAY_OK);
    for (uint32_t i = 0; i < 3; i++) {
        cancel_call(f, call_forward_backward, choose_question(asked, i));
        const xray_weights *grads = rig_debug(&f->r)->gradients(f->r.self);
        for (uint32_t t = 0; t < grads->tensor_count; t++) {
            const float *data = grads->tensors[t].data;
            for (uint64_t k = 0; k < xray_box_count(&grads->tensors[t]); k++)
                assert_true(data[k] == 0.0F);
        }
    }
}

/* The norm of the gradients and the update ask before each bucket, which are
 * the layers and others. The update is left out if the norm is not finite. */
static void steps_are_canceled(void **state)
{
    fixture *f = *state;
    assert_int_equal(call_forward_backward(f), XRAY_OK);
    uint32_t asked = watch_call(f, call_step);
    for (uint32_t i = 0; i < 3; i++)
        cancel_call(f, call_step, choose_question(asked, i));
    const xray_weights *grads = rig_debug(&f->r)->gradients(f->r.self);
    *(float *)grads->tensors[0].data = INFINITY;
    uint32_t skipped = watch_call(f, call_step);
    assert_true(skipped > 6 && asked > skipped + 6);
}

static void imports_are_canceled(void **state)
{
    fixture *f = *state;
    uint32_t asked = watch_call(f, call_import);
    for (uint32_t i = 0; i < 3; i++)
        cancel_call(f, call_import, choose_question(asked, i));
}

static void canceled_save_leaves_no_file(void **state)
{
    fixture *f = *state;
    char folder[sizeof(f->folder)];
    memcpy(folder, f->folder, sizeof(folder));
    uint32_t asked = watch_call(f, call_save);
    (void)rig_mkdir(f->folder, sizeof(f->folder));
    /* The weights' file is complete before the optimizer's begins. */
    cancel_call(f, call_save, 1);
    assert_int_equal(count_files(f->folder), 0);
    cancel_call(f, call_save, asked);
    assert_int_equal(count_files(f->folder), 1);
    rig_rmdir(f->folder);
    memcpy(f->folder, folder, sizeof(folder));
}

/* Weights that are a share in host memory are written piece by piece. */
static void canceled_save_of_shares_leaves_no_file(void **state)
{
    fixture *f = *state;
    const rig before = f->r;
    char folder[sizeof(f->folder)];
    rig_spec shares = spec;
    shares.offload_param = 1;
    memcpy(folder, f->folder, sizeof(folder));
    (void)rig_mkdir(f->folder, sizeof(f->folder));
    assert_int_equal(rig_open(&f->device, &shares, &f->r), XRAY_OK);
    cancel_call(f, call_save, 1);
    assert_int_equal(count_files(f->folder), 0);
    uint32_t asked = watch_call(f, call_save);
    cancel_call(f, call_save, asked / 2);
    rig_close(&f->r);
    f->r = before;
    rig_rmdir(f->folder);
    memcpy(f->folder, folder, sizeof(folder));
}

static void loading_is_canceled(void **state)
{
    fixture *f = *state;
    assert_int_equal(call_save(f), XRAY_OK);
    uint32_t asked = watch_call(f, call_load);
    for (uint32_t i = 0; i < 3; i++)
        cancel_call(f, call_load, choose_question(asked, i));
    assert_int_equal(call_load(f), XRAY_OK);
    rig_close(&f->r);
    asked = watch_call(f, call_create_from_files);
    rig_close(&f->r);
    cancel_call(f, call_create_from_files, asked);
    assert_null(f->r.self);
    assert_int_equal(call_create(f), XRAY_OK);
}

static int open_fixture(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    stopper_begin(&f->stop, 0);
    rig_calls = &f->stop.service;
    f->device = rig_device_open(1);
    (void)rig_mkdir(f->folder, sizeof(f->folder));
    rows_full(&f->rows, ROWS, ROW_TOKENS, 4000);
    rows_cut(&f->rows, CUTS);
    assert_int_equal(call_create(f), XRAY_OK);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    rig_close(&f->r);
    rig_device_close(&f->device);
    rig_rmdir(f->folder);
    rig_calls = NULL;
    free(f);
    return 0;
}

#define CASE(test) \
    cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(creation_is_canceled),
        CASE(forward_is_canceled),
        CASE(gradients_of_a_canceled_call_are_cleared),
        CASE(steps_are_canceled),
        CASE(imports_are_canceled),
        CASE(canceled_save_leaves_no_file),
        CASE(canceled_save_of_shares_leaves_no_file),
        CASE(loading_is_canceled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
