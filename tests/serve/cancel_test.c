/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that the engine's long calls end when the host wants them to, that
 * only the thread that drives the run may use it, and what it tells of its
 * work.
 */
#include <pthread.h>

#include "tests/serve/engine.h"
#include "tests/stopper.h"

/* Large enough that each call takes longer than a look may be away. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WIDTH "\"hidden_size\": 128, \"intermediate_size\": 352, "
#else
#define WIDTH "\"hidden_size\": 256, \"intermediate_size\": 704, "
#endif
static const char wide[] =
    "{\"model_type\": \"llama\", " WIDTH "\"num_hidden_layers\": 6, "
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
    "\"vocab_size\": 4000, \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000, "
    "\"tie_word_embeddings\": false, \"max_position_embeddings\": 512}";

#define PROMPT 400
#define SAMPLES 3

static const engine_size size = { .rows = 6,
                                  .row_tokens = 512,
                                  .config = { .max_num_batched_tokens = 2048,
                                              .kv_memory = 1u << 30 } };

typedef struct fixture {
    rig *r;
    model m;
    stopper stop;
    xray_metrics_service metrics;
    double rows; /* the last of this metric */
    void *engine;
    int32_t prompt[PROMPT];
} fixture;

static xray_status keep_rows(const xray_metrics_service *service,
                             const char *name, double value)
{
    fixture *f = service->host_data;
    if (strcmp(name, "rows") == 0)
        f->rows = value;
    return XRAY_OK;
}

static void open_engine(fixture *f)
{
    if (engine_try(f->r, &f->m, NULL, &size, &f->engine) != XRAY_OK)
        fail_msg("%s", f->r->said);
}

static void submit_prompts(fixture *f)
{
    for (uint32_t i = 0; i < 2; i++) {
        xray_request q = request_make(i, f->prompt, PROMPT, 4 + i);
        q.count = SAMPLES;
        engine_submit(f->r, f->engine, &q);
    }
}

static void creation_is_canceled(void **state)
{
    fixture *f = *state;
    stopper_begin(&f->stop, 0);
    open_engine(f);
    stopper_mark(&f->stop);
    assert_true(f->stop.longest < STOPPER_LIMIT);
    uint32_t asked = f->stop.asked;
    assert_true(asked > 10);
    f->r->ops->destroy(f->engine);
    f->engine = NULL;
    stopper_begin(&f->stop, asked / 2);
    assert_int_equal(engine_try(f->r, &f->m, NULL, &size, &f->engine),
                     XRAY_E_CANCELED);
    rig_expect_said(f->r, "the run is stopped");
    assert_null(f->engine);
}

/* Before a step nothing changes; within one the samples are lost, and only the
 * end of the engine may follow. */
static void steps_are_canceled(void **state)
{
    fixture *f = *state;
    results out = { 0 };
    stopper_begin(&f->stop, 0);
    open_engine(f);
    submit_prompts(f);
    stopper_begin(&f->stop, 1);
    assert_int_equal(f->r->ops->step(f->engine), XRAY_E_CANCELED);
    rig_expect_said(f->r, "the run is stopped");
    stopper_begin(&f->stop, 0);
    engine_run(f->r, f->engine, &out);
    stopper_mark(&f->stop);
    assert_int_equal(out.count, 2 * SAMPLES);
    print_message("    %u questions, at most %.3f s apart\n", f->stop.asked,
                  f->stop.longest);
    assert_true(f->stop.longest < STOPPER_LIMIT);
    submit_prompts(f);
    stopper_begin(&f->stop, 4); /* in the third block of the prompts */
    assert_int_equal(f->r->ops->step(f->engine), XRAY_E_CANCELED);
    assert_int_equal(f->r->ops->abort(f->engine, 0, XRAY_ALL_SAMPLES), XRAY_OK);
    assert_int_equal(f->r->ops->step(f->engine), XRAY_E_STATE);
}

/* The first step draws for the two prompts, the next three for all samples, and
 * a fifth one for those of the second request. */
static void rows_of_a_step_are_told(void **state)
{
    fixture *f = *state;
    results out = { 0 };
    open_engine(f);
    for (uint32_t again = 0; again < 2; again++) {
        submit_prompts(f);
        engine_run(f->r, f->engine, &out);
        assert_true(f->rows > 0 && f->rows <= 6);
        double first = f->rows;
        f->rows = again ? f->rows : 0;
        if (again)
            assert_true(first > (2.0 + 6 + 6 + 6 + 3) / 5 - 1e-9 &&
                        first < (2.0 + 6 + 6 + 6 + 3) / 5 + 1e-9);
    }
}

static uint32_t never_on_control(const xray_call_service *service)
{
    (void)service;
    return 0;
}

static void another_thread_is_refused(void **state)
{
    fixture *f = *state;
    open_engine(f);
    f->stop.service.on_control = never_on_control;
    xray_request q = request_make(1, f->prompt, 4, 2);
    assert_int_equal(f->r->ops->submit(f->engine, &q), XRAY_E_ARG);
    rig_expect_said(f->r, "dsinf: only the thread that drives the run may make "
                          "this call");
}

static int open_fixture(void **state)
{
    xr_err err = { "" };
    fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->r = rig_open(1);
    f->m = (model){ .json = wide, .seed = 5 };
    assert_int_equal(xm_config_parse(wide, "test", &err, &f->m.config),
                     XRAY_OK);
    stopper_begin(&f->stop, 0);
    f->metrics =
        (xray_metrics_service){ .header = XRAY_HEADER(xray_metrics_service),
                                .host_data = f,
                                .put = keep_rows };
    f->r->calls = &f->stop.service;
    f->r->metrics = &f->metrics;
    for (uint32_t i = 0; i < PROMPT; i++)
        f->prompt[i] = (int32_t)(i * 37 % 4000);
    *state = f;
    return 0;
}

static int close_fixture(void **state)
{
    fixture *f = *state;
    f->r->ops->destroy(f->engine);
    rig_close(f->r);
    free(f);
    return 0;
}

#define CASE(test) \
    cmocka_unit_test_setup_teardown(test, open_fixture, close_fixture)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(creation_is_canceled),
        CASE(steps_are_canceled),
        CASE(rows_of_a_step_are_told),
        CASE(another_thread_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
