/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how losses are carried out for a backend and how values that are not
 * finite are treated: gradients, sums, single rows, and which failure is
 * reported.
 */
#include "tests/testing.h"

#include <math.h>

#include "core/roles/losses.h"
#include "core/roles/nonfinite.h"
#include "core/roles/ratios.h"
#include "core/run/rows.h"
#include "tests/rl/fake_roles.h"

#define TOKENS 9
#define NAMES 2

/* ---- a batch and an algorithm ------------------------------------------- */

static char said[2048];    /* what the algorithm received */
static xray_status answer; /* status that it returns */
static const char *reason; /* its sentence, or NULL */

typedef struct fixture {
    xr_run of;
    xr_roles roles;
    xr_rows rows; /* of 3, 2 and 4 tokens; the first one of each is masked */
    float given[3][TOKENS];
    float out[3][TOKENS];
    double sums[NAMES];
    double weights[NAMES];
    xr_loss_spec spec;
    xr_loss_run run;
    xray_loss_call call;
    char warned[1100];
} fixture;

static void note_text(const char *fmt, ...)
{
    size_t used = strlen(said);
    va_list list;
    va_start(list, fmt);
    (void)vsnprintf(said + used, sizeof(said) - used, fmt, list);
    va_end(list);
}

/* Notes token 0 of an array that holds 100 * its number + the token. */
static void note_first(const float *values)
{
    if (values)
        note_text(" %g", (double)values[0]);
    else
        note_text(" -");
}

static xray_status call_loss(const char *name, const void *context,
                             uint64_t size, const xray_loss_call *call,
                             xray_metric_sums *sums)
{
    const xray_batch *b = call->batch;
    note_text("%s %s:%u index", name, (const char *)context, (unsigned)size);
    for (uint32_t r = 0; r < b->rows; r++)
        note_text(" %u", b->row_index[r]);
    note_text(" tokens %u+%d ids %d", b->tokens, b->row_start[0], b->ids[0]);
    note_text(" row %u %u %d %d span %u/%u temperature", (unsigned)b->row_id[0],
              (unsigned)b->prompt_id[0], b->group[0], b->prompt_len[0],
              (unsigned)b->spans[0].version, b->span_count);
    note_first(b->temperature);
    note_first(b->baseline);
    note_text(" floats");
    const float *all[] = { b->loss_mask,   b->rollout_logp, b->old_logp,
                           b->ref_logp,    b->value,        b->reward,
                           b->advantage,   b->returns,      call->logp,
                           call->entropy,  call->value,     call->dlogp,
                           call->dentropy, call->dvalue };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        note_first(all[i]);
    note_text("\n");
    sums->sum[0] += b->tokens;
    sums->weight[sums->count - 1] += 1;
    if (call->dlogp)
        call->dlogp[b->tokens - 1] = 0.5f;
    return reason ? (call->host->fail)(call->host, answer, name, reason)
                  : answer;
}

static xray_status policy_loss(const void *context, uint64_t size,
                               const xray_loss_call *call,
                               xray_metric_sums *sums)
{
    return call_loss("policy", context, size, call, sums);
}

static xray_status critic_loss(const void *context, uint64_t size,
                               const xray_loss_call *call,
                               xray_metric_sums *sums)
{
    return call_loss("critic", context, size, call, sums);
}

static const xray_algo_ops ops = { .header = XRAY_HEADER(xray_algo_ops),
                                   .loss = policy_loss,
                                   .critic_loss = critic_loss };

static void note_warning(void *ctx, uint32_t level, const char *instance,
                         const char *text)
{
    fixture *f = ctx;
    assert_int_equal(level, XRAY_LOG_WARN);
    (void)snprintf(f->warned, sizeof(f->warned), "%s: %s", instance, text);
}

static void fill_rows(xr_rows *rows)
{
    static const int32_t ids[] = { 10, 11, 12, 13, 14, 15, 16, 17, 18 };
    static const uint32_t size[] = { 3, 2, 4 };
    xr_err err = { "" };
    uint32_t at = 0;
    assert_int_equal(xr_rows_init(rows, 3, TOKENS, &err), XRAY_OK);
    for (uint32_t r = 0; r < 3; r++) {
        xr_row_in in = { .prompt = ids + at,
                         .prompt_count = 1,
                         .response = ids + at + 1,
                         .response_count = size[r] - 1,
                         .row_id = 20 + r,
                         .prompt_id = 30 + r,
                         .version = 40 + r,
                         .group = (int32_t)(r + 1),
                         .temperature = (float)(50 + r),
                         .baseline = (float)(60 + r) };
        assert_int_equal(xr_rows_add(rows, &in, &err), XRAY_OK);
        at += size[r];
    }
    float *all[] = { rows->batch.rollout_logp, rows->batch.old_logp,
                     rows->batch.ref_logp,     rows->batch.value,
                     rows->batch.reward,       rows->batch.advantage,
                     rows->batch.returns };
    for (size_t i = 0; i < 7; i++)
        for (uint32_t t = 0; t < TOKENS; t++)
            all[i][t] = (float)(100 * (i + 1) + t);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof(*f));
    fill_rows(&f->rows);
    said[0] = '\0';
    answer = XRAY_OK;
    f->of.algo = (xr_part){ .ops = &ops,
                            .instance = "algo.fake",
                            .host = xr_host_new("algo.fake", NULL) };
    f->of.sink = (xr_log_sink){ .ctx = f,
                                .write = note_warning,
                                .level = XRAY_LOG_WARN };
    make_fake_roles(&f->of, &f->roles);
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < TOKENS; t++)
            f->given[i][t] = (float)(-10 * (i + 1) - t);
    f->spec =
        (xr_loss_spec){ .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY |
                                   XRAY_OUTPUT_VALUE,
                        .context = "ctx",
                        .context_size = 4,
                        .sums = f->sums,
                        .weights = f->weights,
                        .names = NAMES };
    f->run = (xr_loss_run){ .roles = &f->roles,
                            .who = "train.fake",
                            .spec = &f->spec };
    f->call = (xray_loss_call){ .header = XRAY_HEADER(xray_loss_call),
                                .batch = &f->rows.batch,
                                .logp = f->given[0],
                                .entropy = f->given[1],
                                .value = f->given[2],
                                .dlogp = f->out[0],
                                .dentropy = f->out[1],
                                .dvalue = f->out[2] };
    static const uint32_t index[] = { 7, 8, 9 };
    f->rows.batch.row_index = index;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    xr_rows_free(&f->rows);
    xr_host_free(f->of.algo.host);
    free(f);
    return 0;
}

/* ---- losses ------------------------------------------------------------- */

/* The loss is the mean negative log-likelihood over all tokens of the step,
 * with gradients of -1 / N; masked tokens do not count. */
static void likelihood_is_a_mean_over_the_step(void **state)
{
    fixture *f = *state;
    double tokens = 8; /* this call has 6 of them */
    f->spec.kind = XR_LOSS_SFT;
    f->spec.outputs = XRAY_OUTPUT_LOGP;
    f->spec.context = &tokens;
    f->spec.context_size = sizeof(tokens);
    f->rows.loss_mask[4] = 0.5f;
    f->given[0][0] = NAN; /* the first token of a row is in no loss */
    f->sums[0] = 1000;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_OK);
    const float want[] = { 0, -0.125f, -0.125f, 0,      -0.0625f,
                           0, -0.125f, -0.125f, -0.125f };
    assert_memory_equal(f->out[0], want, sizeof(want));
    assert_true(f->sums[0] == 1000 + 11 + 12 + 7 + 16 + 17 + 18);
    assert_true(f->out[1][8] == 0 && f->out[2][8] == 0);
    assert_string_equal(said, "");
}

/* The algorithm receives the complete call, its context and its sums. */
static void losses_receive_the_complete_batch(void **state)
{
    fixture *f = *state;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_OK);
    f->spec.kind = XR_LOSS_CRITIC;
    f->call.logp = f->call.entropy = NULL;
    f->call.dlogp = f->call.dentropy = NULL;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_OK);
    assert_string_equal(
        said,
        "policy ctx:4 index 7 8 9 tokens 9+0 ids 10 row 20 30 1 1 "
        "span 40/3 temperature 50 60 floats 0 100 200 300 400 500 600 700 "
        "-10 -20 -30 0 0 0\n"
        "critic ctx:4 index 7 8 9 tokens 9+0 ids 10 row 20 30 1 1 "
        "span 40/3 temperature 50 60 floats 0 100 200 300 400 500 600 700 "
        "- - -30 - - 0\n");
    assert_true(f->sums[0] == 18 && f->weights[1] == 2);
    assert_true(f->out[0][8] == 0.5f);
}

/* The ratios of a policy's tokens are counted behind the metrics of the batch's
 * segment; those of a critic are not. Here they all are 1. */
static void ratios_are_counted_behind_the_sums(void **state)
{
    enum { ALL = NAMES + XR_RATIO_BUCKETS, ONE = 16 };
    static double sums[3 * ALL], weights[3 * ALL];
    fixture *f = *state;
    assert_true(xr_ratio_edges[ONE] < 1 && xr_ratio_edges[ONE + 1] > 1);
    f->spec.sums = sums;
    f->spec.weights = weights;
    f->spec.names = ALL;
    f->spec.ratios = XR_RATIO_BUCKETS;
    f->rows.batch.segment = 1;
    memcpy(f->rows.batch.old_logp, f->given[0], sizeof(f->given[0]));
    for (double calls = 1; calls < 3; calls++) {
        assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_OK);
        for (int i = 0; i < 3 * ALL; i++)
            assert_true(sums[i] == (i == ALL                 ? 9 * calls
                                    : i == ALL + NAMES + ONE ? 6
                                                             : 0));
        f->spec.kind = XR_LOSS_CRITIC;
        f->out[0][3] = f->out[1][3] = NAN; /* not of this loss */
    }
}

/* The rows of a replica come from anywhere in the mini-batch, so that each has
 * its own index. */
static void rows_of_a_replica_keep_their_index(void **state)
{
    static const uint32_t index[] = { 4, 5, 9 };
    fixture *f = *state;
    f->rows.batch.row_index = index;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_OK);
    assert_non_null(strstr(said, "policy ctx:4 index 4 5 9 tokens 9+0"));
}

/* The loss neither sees rows of padding nor the values that belong to them. */
static void rows_of_padding_are_in_no_loss(void **state)
{
    static const uint32_t index[] = { 7, 8, XRAY_NO_ROW };
    fixture *f = *state;
    f->rows.batch.row_index = index;
    f->given[0][6] = NAN;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_OK);
    assert_non_null(strstr(said, "policy ctx:4 index 7 8 tokens 5+0"));
    assert_non_null(strstr(said, "span 40/2 "));
    assert_true(f->sums[0] == 5 && f->out[0][4] == 0.5f);
    assert_true(f->out[0][8] == 0);
}

/* A loss that fails says why through the host of the algorithm, whatever the
 * backend set. */
static void a_loss_says_why_it_fails(void **state)
{
    fixture *f = *state;
    answer = XRAY_E_NUMERIC;
    reason = "the ratio of row 3 is not finite";
    f->call.host = NULL;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_E_NUMERIC);
    assert_non_null(strstr(f->run.why.text, reason));
    reason = NULL;
}

/* After the first failure there are no more calls, for rows and for
 * micro-batches. */
static void a_failed_loss_is_not_called_again(void **state)
{
    static const struct {
        xray_status answer;
        xray_status want;
        const char *why;
    } cases[] = {
        { XRAY_E_RANGE, XRAY_E_RANGE,
          "algo.fake: loss failed with status -101 (size or value out of "
          "range)" },
        { 7, XRAY_E_BUG,
          "algo.fake: loss failed with status 7 (a status this xray does not "
          "know)" },
    };
    fixture *f = *state;
    xr_part backend = { .instance = "train.fake", .host = f->of.algo.host };
    for (size_t i = 0; i < 2; i++) {
        xr_err err = { "" };
        char want[256];
        f->run.failed = 0;
        said[0] = '\0';
        answer = cases[i].answer;
        assert_int_equal(xr_loss_call(&f->run, &f->call), cases[i].want);
        assert_non_null(strstr(said, "ids 10"));
        answer = XRAY_OK;
        said[0] = '\0';
        assert_int_equal(xr_loss_call(&f->run, &f->call), cases[i].want);
        assert_string_equal(said, "");
        assert_string_equal(f->run.why.text, cases[i].why);
        /* This failure is reported, whatever the backend returned. */
        assert_int_equal(xr_loss_result(&f->run, &backend, XRAY_E_DEVICE, &err),
                         cases[i].want);
        assert_string_equal(err.text, cases[i].why);
        assert_int_equal(xr_loss_result(&f->run, &backend, XRAY_OK, &err),
                         XRAY_E_BUG);
        (void)snprintf(want, sizeof(want),
                       "%s; train.fake did not pass on that the loss failed",
                       cases[i].why);
        assert_string_equal(err.text, want);
    }
    /* A critic's loss by its own name. */
    f->run.failed = 0;
    f->spec.kind = XR_LOSS_CRITIC;
    answer = XRAY_E_RANGE;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_E_RANGE);
    assert_string_equal(f->run.why.text,
                        "algo.fake: critic_loss failed with status -101 (size "
                        "or value out of range)");
    /* Without a failure the status of the backend is returned. */
    xr_err err = { "" };
    f->run.failed = 0;
    assert_int_equal(xr_loss_result(&f->run, &backend, XRAY_OK, &err), XRAY_OK);
    assert_string_equal(err.text, "");
    assert_int_equal(xr_loss_result(&f->run, &backend, XRAY_E_RANGE, &err),
                     XRAY_E_RANGE);
    assert_string_equal(err.text, "algo.fake: forward_backward failed with "
                                  "status -101 (size or value out of range)");
}

/* ---- values that are not finite ----------------------------------------- */

/* A bad output is found before the algorithm receives it, if its loss reads it.
 */
static void bad_outputs_are_named(void **state)
{
    static const struct {
        uint32_t kind;
        uint32_t outputs;
        int array; /* 0: log-prob, 2: value */
        int token;
        const char *fault; /* "": the loss does not read it */
    } cases[] = {
        { XR_LOSS_POLICY, XRAY_OUTPUT_LOGP, 0, 4,
          "train.fake gave the log-prob nan for token 1 of row 21 (prompt 31), "
          "expected a finite number" },
        { XR_LOSS_SFT, XRAY_OUTPUT_LOGP, 0, 8,
          "train.fake gave the log-prob nan for token 3 of row 22 (prompt 32), "
          "expected a finite number" },
        { XR_LOSS_POLICY, XRAY_OUTPUT_LOGP, 0, 5, "" },
        { XR_LOSS_POLICY, XRAY_OUTPUT_LOGP, 2, 4, "" },
        { XR_LOSS_POLICY, XRAY_OUTPUT_LOGP | XRAY_OUTPUT_VALUE, 2, 4,
          "train.fake gave the value nan for token 1 of row 21 (prompt 31), "
          "expected a finite number" },
        { XR_LOSS_CRITIC, XRAY_OUTPUT_VALUE, 0, 4, "" },
        { XR_LOSS_CRITIC, XRAY_OUTPUT_VALUE, 2, 1,
          "train.fake gave the value nan for token 1 of row 20 (prompt 30), "
          "expected a finite number" },
    };
    fixture *f = *state;
    double tokens = 6;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        float *bad = &f->given[cases[i].array][cases[i].token];
        float good = *bad;
        int sft = cases[i].kind == XR_LOSS_SFT;
        f->spec.kind = cases[i].kind;
        f->spec.outputs = cases[i].outputs;
        f->spec.context = sft ? (const void *)&tokens : "ctx";
        f->run.fault.text[0] = said[0] = '\0';
        memset(f->out, 0, sizeof(f->out));
        *bad = (float)NAN;
        assert_int_equal(xr_loss_call(&f->run, &f->call),
                         *cases[i].fault ? XRAY_E_NUMERIC : XRAY_OK);
        assert_string_equal(f->run.fault.text, cases[i].fault);
        assert_int_equal(*said == '\0', *cases[i].fault != '\0');
        *bad = good;
    }
    /* A run that continues needs a backend that stays usable. */
    f->of.ini.trainer.on_nonfinite = XR_NONFINITE_SKIP;
    f->given[2][1] = INFINITY;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_E_ARG);
    assert_int_equal(xr_nonfinite_loss(&f->roles), XRAY_E_ARG);
}

/* If other ranks wait in a collective, the loss continues with zero gradients
 * for this micro-batch and all that follow. */
static void ranks_continue_without_gradients(void **state)
{
    static const float none[3][TOKENS] = { { 0 } };
    fixture *f = *state;
    f->run.continues = 1;
    f->given[0][1] = INFINITY;
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < TOKENS; t++)
            f->out[i][t] = 1;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_OK);
    assert_memory_equal(f->out, none, sizeof(none));
    assert_string_equal(f->run.fault.text,
                        "train.fake gave the log-prob inf for token 1 of row "
                        "20 (prompt 30), expected a finite number");
    f->given[0][1] = -1;
    assert_int_equal(xr_loss_call(&f->run, &f->call), XRAY_OK);
    assert_string_equal(said, "");
    assert_memory_equal(f->out, none, sizeof(none));
    assert_non_null(strstr(f->run.fault.text, "token 1 of row 20"));
    assert_int_equal(f->roles.nonfinite, 0);
}

/* Only in a run that is to continue, only after such a value, and only once. */
static void steps_are_skipped_if_the_ini_says_so(void **state)
{
    fixture *f = *state;
    xr_roles *roles = &f->roles;
    xr_err err = { "" };
    f->of.ini.trainer.on_nonfinite = XR_NONFINITE_SKIP;
    assert_int_equal(xr_nonfinite(roles, &err, "%d of %s", 3, "it"),
                     XRAY_E_NUMERIC);
    assert_string_equal(err.text, "3 of it");
    assert_int_equal(roles->nonfinite, 1);
    assert_int_equal(xr_nonfinite_skips(roles, XRAY_E_NUMERIC), 1);
    assert_int_equal(xr_nonfinite_skips(roles, XRAY_E_NUMERIC), 0);
    assert_int_equal(xr_nonfinite(roles, NULL, "unheard"), XRAY_E_NUMERIC);
    assert_int_equal(xr_nonfinite_skips(roles, XRAY_E_BUG), 0);
    assert_int_equal(roles->nonfinite, 0);
    f->of.ini.trainer.on_nonfinite = XR_NONFINITE_STOP;
    (void)xr_nonfinite(roles, &err, "again");
    assert_int_equal(xr_nonfinite_skips(roles, XRAY_E_NUMERIC), 0);
    assert_int_equal(roles->nonfinite, 0);
    /* At log level error there are no warnings. */
    xr_nonfinite_warn(roles, &err);
    assert_string_equal(f->warned, "left out: again");
    f->warned[0] = '\0';
    f->of.sink.level = XRAY_LOG_ERROR;
    xr_nonfinite_warn(roles, &err);
    assert_string_equal(f->warned, "");
    f->of.sink.write = NULL;
    xr_nonfinite_warn(roles, &err);
}

/* A fault found by a loss, and the status returned by the backend. */
static void faults_of_a_loss_end_or_are_noted(void **state)
{
    static const struct {
        int skip;
        xray_status status;
        xray_status want;
        const char *says;
        const char *warns;
    } cases[] = {
        { 0, XRAY_E_NUMERIC, XRAY_E_NUMERIC, "nan there", "" },
        { 0, XRAY_OK, XRAY_E_NUMERIC, "nan there", "" },
        { 1, XRAY_E_ARG, XRAY_OK, "", "left out: nan there" },
        { 1, XRAY_OK, XRAY_E_BUG,
          "nan there; critic did not pass on that the loss failed", "" },
        { 1, XRAY_E_NUMERIC, XRAY_E_BUG,
          "nan there; critic did not pass on that the loss failed", "" },
    };
    fixture *f = *state;
    xr_err fault = { "nan there" };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err err = { "" };
        f->roles.nonfinite = 0;
        f->warned[0] = '\0';
        f->of.ini.trainer.on_nonfinite =
            cases[i].skip ? XR_NONFINITE_SKIP : XR_NONFINITE_STOP;
        assert_int_equal(xr_nonfinite_fault(&f->roles, "critic", &fault,
                                            cases[i].status, &err),
                         cases[i].want);
        assert_string_equal(err.text, cases[i].says);
        assert_string_equal(f->warned, cases[i].warns);
        assert_int_equal(f->roles.nonfinite, !cases[i].skip);
    }
}

/* An update by its norm, and whether the backend skipped it. */
static void updates_with_a_bad_norm_end_or_are_noted(void **state)
{
    static const char *const gave =
        "critic gave the gradient norm inf, first in tensor norm.weight";
    static const struct {
        int skip;
        uint32_t skipped;
        double norm;
        xray_status want;
        int bad; /* roles.nonfinite */
        const char *tail;
    } cases[] = {
        { 0, 0, 2, XRAY_OK, 0, NULL },
        { 1, 0, 2, XRAY_OK, 0, NULL },
        { 0, 1, INFINITY, XRAY_E_NUMERIC, 1, "" },
        { 1, 1, INFINITY, XRAY_OK, 0, NULL },
        { 0, 0, INFINITY, XRAY_E_BUG, 0,
          "; it applied the update nevertheless, so the weights are corrupt" },
        { 1, 0, INFINITY, XRAY_E_BUG, 0,
          "; it applied the update nevertheless, so the weights are corrupt" },
    };
    fixture *f = *state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err err = { "" };
        char want[200] = "";
        int skipped = 7;
        xray_step_result result = { .header = XRAY_HEADER(xray_step_result),
                                    .grad_norm = cases[i].norm,
                                    .skipped = cases[i].skipped,
                                    .bad_tensor = "norm.weight" };
        f->roles.nonfinite = 0;
        f->warned[0] = '\0';
        f->of.ini.trainer.on_nonfinite =
            cases[i].skip ? XR_NONFINITE_SKIP : XR_NONFINITE_STOP;
        assert_int_equal(
            xr_nonfinite_update(&f->roles, "critic", &result, &skipped, &err),
            cases[i].want);
        assert_int_equal(skipped, cases[i].skipped);
        assert_int_equal(f->roles.nonfinite, cases[i].bad);
        if (cases[i].tail)
            (void)snprintf(want, sizeof(want), "%s%s", gave, cases[i].tail);
        assert_string_equal(err.text, want);
        (void)snprintf(want, sizeof(want), "left out: %s", gave);
        assert_string_equal(f->warned,
                            cases[i].skip && cases[i].skipped ? want : "");
    }
    xr_err err = { "" };
    int skipped = 0;
    const xray_step_result unknown = { .header = XRAY_HEADER(xray_step_result),
                                       .grad_norm = 1,
                                       .skipped = 1 };
    f->of.ini.trainer.on_nonfinite = XR_NONFINITE_STOP;
    assert_int_equal(
        xr_nonfinite_update(&f->roles, "actor", &unknown, &skipped, &err),
        XRAY_E_NUMERIC);
    assert_string_equal(
        err.text, "actor gave the gradient norm 1, first in tensor unknown");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(likelihood_is_a_mean_over_the_step),
        CASE(losses_receive_the_complete_batch),
        CASE(ratios_are_counted_behind_the_sums),
        CASE(rows_of_a_replica_keep_their_index),
        CASE(rows_of_padding_are_in_no_loss),
        CASE(a_loss_says_why_it_fails),
        CASE(a_failed_loss_is_not_called_again),
        CASE(bad_outputs_are_named),
        CASE(ranks_continue_without_gradients),
        CASE(steps_are_skipped_if_the_ini_says_so),
        CASE(faults_of_a_loss_end_or_are_noted),
        CASE(updates_with_a_bad_norm_end_or_are_noted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
