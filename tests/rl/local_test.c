/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how calls to a model of this process reach its plugin: filled up as
 * its layout wants it, under their names, with what comes back.
 */
#include "tests/growth.h"
#include "tests/testing.h"

#include "core/plugin/guard.h"
#include "tests/rl/fake_roles.h"

/* ---- a backend ----------------------------------------------------------- */

static char said[512];
static xray_status answer;

static void note_call(const char *fmt, ...)
{
    const size_t used = strlen(said);
    xr_guard_call call;
    va_list list;
    assert_int_equal(xr_guard_now(&call), 1);
    assert_string_equal(call.plugin, "critic");
    va_start(list, fmt);
    (void)vsnprintf(said + used, sizeof(said) - used, fmt, list);
    va_end(list);
    assert_int_equal(strncmp(said + used, call.call, strlen(call.call)), 0);
}

/* The value of a token is ten times its id; that of padding is far off. */
static xray_status forward_all(void *self, const xray_batch *const *batches,
                               uint32_t count, uint32_t outputs,
                               xray_outputs *out)
{
    uint32_t at = 0;
    assert_string_equal(self, "self");
    note_call("forward %u:", outputs);
    assert_null(out->logp);
    for (uint32_t i = 0; i < count; i++) {
        const xray_batch *b = batches[i];
        (void)snprintf(said + strlen(said), sizeof(said) - strlen(said), " %u",
                       b->tokens);
        for (uint32_t t = 0; t < b->tokens; t++)
            out->value[at++] = b->ids[t] ? 10 * (float)b->ids[t] : -1;
    }
    (void)snprintf(said + strlen(said), sizeof(said) - strlen(said), "\n");
    return answer;
}

static xray_status forward_backward(void *self,
                                    const xray_batch *const *batches,
                                    uint32_t count, const xray_loss *loss)
{
    assert_string_equal(self, "self");
    assert_ptr_equal(loss->fn, xr_loss_call);
    note_call("forward_backward %u of %u, first %u\n", loss->outputs, count,
              batches[0]->tokens);
    return answer;
}

static xray_status take_step(void *self, double lr, double max_norm,
                             xray_step_result *out)
{
    assert_string_equal(self, "self");
    assert_int_equal(out->header.size, sizeof(*out));
    assert_int_equal(out->skipped, 0);
    out->grad_norm = 3;
    note_call("optimizer_step %g %g\n", lr, max_norm);
    return answer;
}

static xray_status save_model(void *self, const char *dir)
{
    assert_string_equal(self, "self");
    note_call("save %s\n", dir);
    return answer;
}

static xray_status load_model(void *self, const char *dir)
{
    assert_string_equal(self, "self");
    note_call("load %s\n", dir);
    return answer;
}

static xray_status discard_grads(void *self)
{
    assert_string_equal(self, "self");
    note_call("discard\n");
    return answer;
}

static xray_status load_memory(void *self, uint32_t tag)
{
    assert_string_equal(self, "self");
    note_call("onload %u\n", tag);
    return XRAY_E_NOMEM;
}

static const xray_train_ops ops = { .header = XRAY_HEADER(xray_train_ops),
                                    .forward = forward_all,
                                    .forward_backward = forward_backward,
                                    .optimizer_step = take_step,
                                    .save = save_model,
                                    .load = load_model,
                                    .discard = discard_grads,
                                    .onload = load_memory };

/* ---- a critic with three rows -------------------------------------------- */

static xr_run run;
static xr_roles roles;
static xr_rows rows;
static xr_views views;
static xr_err err;

/* Rows of 3, 4 and 2 tokens, in views of two rows and of one. */
static int begin_test(void **state)
{
    static const uint32_t counts[] = { 3, 4, 2 };
    static const int32_t ids[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    static char self[] = "self";
    const xr_cut cut = { .count = 3, .budget = 7 };
    const int32_t *at = ids;
    (void)state;
    said[0] = '\0';
    answer = XRAY_OK;
    err.text[0] = '\0';
    run = (xr_run){ .train = { .ops = &ops, .instance = "train.fake" } };
    run.critic.load.row_tokens = 8;
    run.layouts[XRAY_ROLE_CRITIC] = (xr_layout){
        .width = 1, .replicas = 1, .micro_multiple = 1, .token_multiple = 1
    };
    make_fake_roles(&run, &roles);
    roles.named[XRAY_ROLE_CRITIC] = (xr_part){
        .ops = &ops, .instance = "critic", .host = xr_host_new("critic", NULL)
    };
    xr_roles_at(&roles, XRAY_ROLE_CRITIC)->self = self;
    assert_int_equal(xr_rows_init(&rows, 3, 9, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, 6, &err), XRAY_OK);
    for (uint32_t r = 0; r < 3; at += counts[r++]) {
        const xr_row_in in = { .prompt = at,
                               .prompt_count = 1,
                               .response = at + 1,
                               .response_count = counts[r] - 1,
                               .temperature = 1 };
        assert_int_equal(xr_rows_add(&rows, &in, &err), XRAY_OK);
    }
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 2);
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    xr_padding_free(&roles.padding);
    xr_host_free(roles.named[XRAY_ROLE_CRITIC].host);
    xr_views_free(&views);
    xr_rows_free(&rows);
    return 0;
}

static xray_status pass_forward(float *values)
{
    const xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                               .value = values };
    return roles.calls->forward(&roles, XRAY_ROLE_CRITIC, &views,
                                XRAY_OUTPUT_VALUE, &out, &err);
}

/* ---- cases --------------------------------------------------------------- */

/* Without multiples nothing is filled up; with them the values of padding are
 * dropped. */
static void values_are_those_of_the_rows_alone(void **state)
{
    static const struct {
        uint64_t micro, tokens;
        const char *want;
    } cases[] = {
        { 1, 1, "forward 4: 7 2\n" },
        { 1, 4, "forward 4: 8 4\n" },
        { 4, 1, "forward 4: 7 2 0 0\n" },
        { 3, 4, "forward 4: 8 4 0\n" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_layout *layout = &run.layouts[XRAY_ROLE_CRITIC];
        float values[12] = { 0 };
        layout->micro_multiple = cases[i].micro;
        layout->token_multiple = cases[i].tokens;
        said[0] = '\0';
        assert_int_equal(pass_forward(values), XRAY_OK);
        assert_string_equal(said, cases[i].want);
        for (int t = 0; t < 12; t++)
            assert_true(values[t] == (t < 9 ? 10 * (float)(t + 1) : 0));
    }
}

static void gradients_are_filled_up_too(void **state)
{
    xr_err fault = { "old" };
    const xr_loss_spec spec = { .outputs = XRAY_OUTPUT_VALUE };
    (void)state;
    run.layouts[XRAY_ROLE_CRITIC].micro_multiple = 4;
    run.layouts[XRAY_ROLE_CRITIC].token_multiple = 4;
    assert_int_equal(roles.calls->gradients(&roles, XRAY_ROLE_CRITIC, &views,
                                            &spec, &fault, &err),
                     XRAY_OK);
    assert_string_equal(said, "forward_backward 4 of 4, first 8\n");
    assert_string_equal(fault.text, "");
}

static void calls_have_their_arguments_and_results(void **state)
{
    xray_step_result result = { .skipped = 7 };
    (void)state;
    assert_int_equal(
        roles.calls->step(&roles, XRAY_ROLE_CRITIC, 0.5, 2, &result, &err),
        XRAY_OK);
    assert_true(result.grad_norm == 3 && result.skipped == 0);
    assert_int_equal(roles.calls->save(&roles, XRAY_ROLE_CRITIC, "a", &err),
                     XRAY_OK);
    assert_int_equal(roles.calls->load(&roles, XRAY_ROLE_CRITIC, "b", &err),
                     XRAY_OK);
    assert_int_equal(xr_local_discard(&roles, XRAY_ROLE_CRITIC, &err), XRAY_OK);
    assert_string_equal(said,
                        "optimizer_step 0.5 2\nsave a\nload b\ndiscard\n");
    assert_string_equal(err.text, "");
}

/* Makes call `i` of the six. */
static xray_status call_number(int i, float *values)
{
    static const xr_loss_spec spec = { .outputs = XRAY_OUTPUT_VALUE };
    const uint32_t role = XRAY_ROLE_CRITIC;
    const xr_role_ops *calls = roles.calls;
    xray_step_result result;
    xr_err fault = { "" };
    return i == 0 ? pass_forward(values)
           : i == 1
               ? calls->gradients(&roles, role, &views, &spec, &fault, &err)
           : i == 2 ? calls->step(&roles, role, 1, 1, &result, &err)
           : i == 3 ? calls->save(&roles, role, "a", &err)
           : i == 4 ? calls->load(&roles, role, "a", &err)
                    : xr_local_discard(&roles, role, &err);
}

static void failures_name_the_call(void **state)
{
    static const char *const names[] = { "forward",        "forward_backward",
                                         "optimizer_step", "save",
                                         "load",           "discard" };
    (void)state;
    answer = XRAY_E_DEVICE;
    for (int i = 0; i < 6; i++) {
        char want[80];
        float values[9] = { 0 };
        run.layouts[XRAY_ROLE_CRITIC].token_multiple = 4;
        assert_int_equal(call_number(i, values), XRAY_E_DEVICE);
        (void)snprintf(want, sizeof(want), "critic: %s failed with status -300",
                       names[i]);
        assert_memory_equal(err.text, want, strlen(want));
        assert_true(values[8] == 0); /* of a failed call nothing is taken */
    }
}

/* A model whose memory does not come back to the device is not called. */
static void a_model_without_its_memory_is_not_called(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        float values[9] = { 0 };
        roles.turns.movable[XRAY_ROLE_CRITIC] = UINT32_MAX;
        roles.turns.offloaded[XRAY_ROLE_CRITIC] = UINT32_MAX;
        said[0] = '\0';
        assert_int_equal(call_number(i, values), XRAY_E_NOMEM);
        assert_int_equal(strncmp(said, "onload ", 7), 0);
        assert_string_equal(strchr(said, '\n'), "\n");
        assert_non_null(strstr(err.text, "critic: onload failed"));
    }
}

static void a_backend_may_keep_its_gradients(void **state)
{
    (void)state;
    for (int way = 0; way < LACK_WAYS; way++) {
        xray_train_ops without = { .header = XRAY_HEADER(xray_train_ops),
                                   .discard = discard_grads };
        LACK_MEMBER(xray_train_ops, without, discard, way);
        run.train.ops = &without;
        assert_int_equal(xr_local_discard(&roles, XRAY_ROLE_CRITIC, &err),
                         XRAY_E_UNSUPPORTED);
        assert_string_equal(err.text, "critic cannot take gradients back");
        assert_string_equal(said, "");
    }
    run.train.ops = NULL;
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, begin_test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(values_are_those_of_the_rows_alone),
        CASE(gradients_are_filled_up_too),
        CASE(calls_have_their_arguments_and_results),
        CASE(failures_name_the_call),
        CASE(a_model_without_its_memory_is_not_called),
        CASE(a_backend_may_keep_its_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
