/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements scripted Workhorses for tests of a WholeModel.
 */
#include "tests/rl/whole_rig.h"
#include "core/plugin/cancel.h"

#include <stdarg.h>

#include "core/base/str.h"
#include "core/roles/wire.h"

/* ---- Workhorses --------------------------------------------------------- */

struct xr_future {
    xray_status status; /* statuses of the answer */
    uint32_t rank;
    const char *says;
};
struct xr_actor {
    uint32_t rank;
};

whole_script script;
whole_trace whole_traces[RANKS];
static struct xr_actor actors[RANKS];
static struct xr_future futures[RANKS];

/* Workhorses share no memory with the WholeModel: each has a copy of what its
 * call carries, and the results that it sends are copied back. */
static xray_region receive_region(const xray_region *from)
{
    xray_region copy = *from;
    uint64_t count = from->count ? from->count : from->size - from->first;
    assert_true(from->first <= from->size && count <= from->size - from->first);
    copy.data = calloc(1, (size_t)from->size);
    assert_non_null(copy.data);
    memcpy((char *)copy.data + from->first, (char *)from->data + from->first,
           (size_t)count);
    return copy;
}

static void return_region(xray_region *copy, const xray_region *to, int answers)
{
    if (answers)
        memcpy((char *)to->data + copy->first, (char *)copy->data + copy->first,
               (size_t)copy->count);
    free(copy->data);
}

float whole_output(uint32_t row, uint32_t t, int k)
{
    return (float)(1000 * (uint32_t)k + 100 * row + t);
}

static void answer_forward(const xr_wire *wire)
{
    for (uint32_t r = 0; r < wire->rows.batch.rows; r++) {
        uint32_t first = (uint32_t)wire->rows.row_start[r];
        uint32_t end = (uint32_t)wire->rows.row_start[r + 1];
        for (uint32_t t = first; t < end; t++)
            for (int k = 0; k < 3; k++)
                wire->out[k][t] = whole_output(wire->index[r], t - first, k);
    }
}

static void answer_gradients(uint32_t rank, const xr_wire *wire)
{
    script.start[rank] = wire->header->names ? wire->sums[0] : 0;
    for (uint64_t k = 0; k < wire->header->names; k++) {
        wire->sums[k] += script.added[rank] * (double)(k + 1);
        wire->weights[k] += 1;
    }
    script.spec = (xr_loss_spec){ .kind = wire->header->loss,
                                  .outputs = wire->header->outputs,
                                  .context_size = wire->header->context_size,
                                  .names = wire->header->names };
    memcpy(script.context, wire->context, wire->header->context_size);
}

/* Every other row has two spans. */
static void check_spans(const xr_wire *wire, uint32_t r)
{
    const xray_batch *b = &wire->rows.batch;
    uint32_t first = xr_rows_find_span(b, r);
    uint32_t count = xr_rows_find_span(b, r + 1) - first;
    assert_int_equal(count, 1 + wire->index[r] % 2);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(b->spans[first + i].version, wire->index[r] + i);
    assert_int_equal(b->spans[first].first, 1);
    assert_int_equal(b->spans[first + count - 1].last,
                     b->row_start[r + 1] - b->row_start[r]);
}

/* Rows arrive with their numbers in the complete batch, ascending, and with
 * their own tokens. */
static void answer_batch(uint32_t rank, const char *method,
                         const xray_region *region)
{
    xr_wire wire;
    xr_err why = { "" };
    xray_region own = receive_region(region);
    int answers = xr_rank_answers(&run, XRAY_ROLE_ACTOR, rank);
    if (xr_wire_map(own.data, own.size, &why, &wire) != XRAY_OK)
        fail_msg("%s", why.text);
    script.views[rank] = wire.header->views;
    script.rows[rank] = wire.rows.batch.rows;
    if (xr_wire_cut(&run, XRAY_ROLE_ACTOR, &wire, &whole.views, &why) !=
        XRAY_OK)
        fail_msg("%s", why.text);
    script.needs[rank] = whole.views.count;
    for (uint32_t r = 0; r < wire.rows.batch.rows; r++) {
        assert_true(r == 0 || wire.index[r] > wire.index[r - 1]);
        assert_int_equal(wire.rows.ids[wire.rows.row_start[r]],
                         10 * wire.index[r]);
        assert_int_equal(wire.rows.row_id[r], wire.index[r]);
        check_spans(&wire, r);
        script.who[wire.index[r]] = rank;
    }
    script.region[rank] = region->data;
    xr_wire_carry_results(&wire, &own);
    if (answers && strcmp(method, "forward") == 0)
        answer_forward(&wire);
    else if (answers)
        answer_gradients(rank, &wire);
    return_region(&own, region, answers);
}

/* Sample k of prompt p has p + k + 1 tokens, each 100 p + 10 k + its index. */
static void answer_generate(uint32_t rank, const xray_region *region)
{
    xr_wire_rollout rollout;
    xr_err err = { "" };
    xray_region own = receive_region(region);
    int answers = xr_rank_answers(&run, XRAY_ROLE_ROLLOUT, rank);
    if (xr_wire_rollout_map(own.data, own.size, &err, &rollout) != XRAY_OK)
        fail_msg("%s", err.text);
    script.rows[rank] = rollout.header->prompts;
    script.region[rank] = region->data;
    xr_wire_rollout_carry_results(&rollout, &own);
    for (uint32_t p = 0; answers && p < rollout.header->prompts; p++) {
        uint32_t id = (uint32_t)rollout.prompt_id[p];
        assert_int_equal(rollout.prompt_start[p + 1] - rollout.prompt_start[p],
                         1 + id % 2);
        assert_int_equal(rollout.prompt[rollout.prompt_start[p]], 50 + id);
        for (uint32_t k = 0; k < rollout.header->how.n; k++) {
            uint32_t at = p * rollout.header->how.n + k;
            rollout.sizes[at] = id + k + 1;
            rollout.finish[at] = k;
            rollout.versions[at] = 7 + id;
            for (uint32_t t = 0; t < id + k + 1; t++) {
                rollout.tokens[at * rollout.header->how.max_tokens + t] =
                    (int32_t)(100 * id + 10 * k + t);
                rollout.logp[at * rollout.header->how.max_tokens + t] =
                    (float)id;
            }
        }
    }
    return_region(&own, region, answers);
}

static void answer_step(uint32_t rank, va_list args)
{
    assert_int_equal(va_arg(args, uint32_t), XRAY_ROLE_ACTOR);
    assert_true(va_arg(args, double) == 0.5);
    assert_true(va_arg(args, double) == 2);
    *va_arg(args, double *) = script.norm[rank];
    *va_arg(args, uint32_t *) = script.skipped[rank];
    *va_arg(args, uint64_t *) = script.version[rank];
    xr_str *bad = va_arg(args, xr_str *);
    if (script.skipped[rank])
        xr_str_puts(bad, "a tensor");
}

/* The sections follow each other in the region, and an engine reads all. */
static void expect_section(uint32_t rank, const char *method, va_list args)
{
    uint64_t before = 0;
    uint64_t all = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        before += r < rank ? script.ship_bytes[r] : 0;
        all += script.ship_bytes[r];
    }
    const xray_region *region = va_arg(args, const xray_region *);
    assert_true(region->size >= all);
    /* The calls to write carry nothing, those to read all that was written. */
    assert_int_equal(region->first, *method == 's' ? region->size : 0);
    assert_int_equal(region->count, *method == 's' ? 0 : all);
    if (*method == 's')
        assert_int_equal(va_arg(args, uint64_t), before);
    assert_int_equal(va_arg(args, uint64_t),
                     *method == 's' ? script.ship_bytes[rank] : all);
    if (*method == 'r')
        *va_arg(args, uint64_t *) = rank + 1;
}

xray_status __wrap_xr_actor_call(xr_actor *actor, const char *method,
                                 xr_err *err, xr_future **out, ...);
xray_status __wrap_xr_actor_call(xr_actor *actor, const char *method,
                                 xr_err *err, xr_future **out, ...)
{
    uint32_t rank = actor->rank;
    size_t used = strlen(script.log);
    va_list args;
    (void)snprintf(script.log + used, sizeof(script.log) - used, "%s %u; ",
                   method, rank);
    if (script.unsent[rank] != XRAY_OK)
        return xr_fail(err, script.unsent[rank], "rank %u is gone", rank);
    va_start(args, out);
    if (strcmp(method, "step") == 0) {
        answer_step(rank, args);
    } else if (strcmp(method, "ship") == 0 || strcmp(method, "receive") == 0) {
        expect_section(rank, method, args);
    } else if (strcmp(method, "publish") == 0) {
        *va_arg(args, uint64_t *) = rank + 1;
    } else if (strcmp(method, "metrics") == 0) {
        xr_str_puts(va_arg(args, xr_str *), script.metrics[rank]);
    } else if (strcmp(method, "generate") == 0) {
        answer_generate(rank, va_arg(args, const xray_region *));
    } else if (strcmp(method, "forward") == 0 ||
               strcmp(method, "gradients") == 0) {
        assert_int_equal(va_arg(args, uint32_t), XRAY_ROLE_ACTOR);
        answer_batch(rank, method, va_arg(args, const xray_region *));
        assert_null(va_arg(args, xray_region **));
        if (*method == 'g' && script.fault[rank])
            xr_str_puts(va_arg(args, xr_str *), script.fault[rank]);
    }
    va_end(args);
    assert_null(*out); /* the call before has been awaited */
    futures[rank] =
        (struct xr_future){ script.answer[rank], rank, script.says[rank] };
    *out = &futures[rank];
    return XRAY_OK;
}

xray_status __wrap_xr_actor_ask(xr_actor *actor, const char *method,
                                int64_t timeout_ms, xr_err *err, ...);
xray_status __wrap_xr_actor_ask(xr_actor *actor, const char *method,
                                int64_t timeout_ms, xr_err *err, ...)
{
    va_list args;
    size_t used = strlen(script.log);
    (void)timeout_ms;
    (void)snprintf(script.log + used, sizeof(script.log) - used, "%s %u; ",
                   method, actor->rank);
    if (script.unasked[actor->rank] != XRAY_OK)
        return xr_fail(err, script.unasked[actor->rank], "rank %u is gone",
                       actor->rank);
    va_start(args, err);
    *va_arg(args, uint64_t *) = script.ship_bytes[actor->rank];
    va_end(args);
    return XRAY_OK;
}

/* Of those that are ready the last one answers first. */
xray_status __wrap_xr_future_wait_any(xr_future *const *all, size_t count,
                                      int64_t timeout_ms, xr_err *err,
                                      size_t *out);
xray_status __wrap_xr_future_wait_any(xr_future *const *all, size_t count,
                                      int64_t timeout_ms, xr_err *err,
                                      size_t *out)
{
    assert_in_range(timeout_ms, 1, 1000); /* a signal must not wait longer */
    for (size_t i = count; i-- > 0;)
        if (all[i] && script.late[all[i]->rank] <= script.looks) {
            *out = i;
            return XRAY_OK;
        }
    return script.looks++ < PATIENCE ? XRAY_AGAIN : xr_cancel_check(err);
}

xray_status __wrap_xr_future_wait(xr_future *future, int64_t timeout_ms,
                                  xr_err *err);
xray_status __wrap_xr_future_wait(xr_future *future, int64_t timeout_ms,
                                  xr_err *err)
{
    (void)timeout_ms;
    return future->status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, future->status, "%s", future->says);
}

void __wrap_xr_future_drop(xr_future *future);
void __wrap_xr_future_drop(xr_future *future)
{
    script.dropped += future != NULL;
}

xray_status __wrap_xr_actors_check(xr_actors *all, xr_err *err);
xray_status __wrap_xr_actors_check(xr_actors *all, xr_err *err)
{
    (void)all;
    return script.lost ? xr_fail(err, XRAY_E_PEER, "an actor is lost")
                       : XRAY_OK;
}

const void *__wrap_xr_actor_extra_of(const xr_actor *actor);
const void *__wrap_xr_actor_extra_of(const xr_actor *actor)
{
    return &whole_traces[actor->rank].own;
}

xray_status __wrap_xr_region_get(xr_actors *all, uint64_t size, xr_err *err,
                                 xray_region **out);
xray_status __wrap_xr_region_get(xr_actors *all, uint64_t size, xr_err *err,
                                 xray_region **out)
{
    (void)all;
    (void)err;
    *out = calloc(1, sizeof(**out));
    assert_non_null(*out);
    (*out)->size = size;
    (*out)->data = malloc(size);
    assert_non_null((*out)->data);
    memset((*out)->data, 0xee, size); /* what its last user left behind */
    script.regions++;
    return XRAY_OK;
}

void __wrap_xr_region_put(xr_actors *all, xray_region *region);
void __wrap_xr_region_put(xr_actors *all, xray_region *region)
{
    (void)all;
    if (!region)
        return;
    free(region->data);
    free(region);
    script.regions--;
}

/* ---- a fixture ---------------------------------------------------------- */

xr_run run;
xr_roles roles;
xr_whole whole;
xr_rows whole_rows;
xr_views views;
xr_err whole_err;

const uint32_t whole_lengths[ROWS] = { 3, 9, 2, 7, 5, 4, 8 };

int whole_begin(void **state)
{
    int32_t ids[16] = { 0 };
    (void)state;
    memset(&script, 0, sizeof(script));
    memset(&whole_traces, 0, sizeof(whole_traces));
    run = (xr_run){ .placement = { .size = RANKS } };
    run.placement.actor = (xr_ranks){ .count = 3, .rank = { 0, 1, 3 } };
    run.placement.rollout = (xr_ranks){ .count = 2, .rank = { 1, 2 } };
    run.actor.load.tokens = 16;
    make_fake_roles(&run, &roles);
    whole = (xr_whole){ .run = &run,
                        .size = RANKS,
                        .row_cap = ROWS,
                        .per_token = 4,
                        .unit = calloc(ROWS, sizeof(uint32_t)),
                        .cost = calloc(ROWS, sizeof(double)),
                        .part = calloc(ROWS, sizeof(uint32_t)),
                        .start = calloc(ROWS + 1, sizeof(uint32_t)) };
    roles.whole = &whole;
    for (uint32_t r = 0; r < RANKS; r++) {
        actors[r].rank = r;
        whole.horse[r].actor = &actors[r];
    }
    assert_int_equal(xr_balance_init(&whole.balance, ROWS, RANKS, &whole_err),
                     XRAY_OK);
    assert_int_equal(xr_views_init(&whole.views, ROWS, &whole_err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, ROWS, &whole_err), XRAY_OK);
    assert_int_equal(xr_rows_init(&whole_rows, ROWS, TOKENS, &whole_err),
                     XRAY_OK);
    for (uint32_t r = 0; r < ROWS; r++) {
        ids[0] = (int32_t)(10 * r);
        const xray_span spans[] = {
            { .first = 1, .last = 2, .version = r },
            { .first = 2, .last = whole_lengths[r], .version = r + 1 },
        };
        const xr_row_in row = { .prompt = ids,
                                .prompt_count = 1,
                                .response = ids + 1,
                                .response_count = whole_lengths[r] - 1,
                                .row_id = r,
                                .version = r,
                                .spans = r % 2 ? spans : NULL,
                                .span_count = 2,
                                .group = (int32_t)r,
                                .temperature = 1 };
        assert_int_equal(xr_rows_add(&whole_rows, &row, &whole_err), XRAY_OK);
    }
    const xr_cut cut = { .count = ROWS, .budget = 16 };
    assert_int_equal(xr_views_cut(&views, &whole_rows, &cut, &whole_err),
                     XRAY_OK);
    whole_err.text[0] = '\0';
    return 0;
}

int whole_end(void **state)
{
    (void)state;
    assert_int_equal(script.regions, 0);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_null(whole.horse[r].future); /* so has the last one */
        xr_str_free(&whole.horse[r].bad);
        xr_str_free(&whole.horse[r].fault);
    }
    xr_balance_free(&whole.balance);
    xr_views_free(&whole.views);
    xr_views_free(&views);
    xr_rows_free(&whole_rows);
    free(whole.unit);
    free(whole.cost);
    free(whole.part);
    free(whole.start);
    return 0;
}

/* ---- calls --------------------------------------------------------------- */

void expect_calls(const char *want)
{
    assert_string_equal(script.log, want);
    script.log[0] = '\0';
}

xray_status call_forward(float out[3][TOKENS], uint32_t outputs)
{
    const xray_outputs to = {
        .header = XRAY_HEADER(xray_outputs),
        .logp = outputs & XRAY_OUTPUT_LOGP ? out[0] : NULL,
        .entropy = outputs & XRAY_OUTPUT_ENTROPY ? out[1] : NULL,
        .value = outputs & XRAY_OUTPUT_VALUE ? out[2] : NULL,
    };
    return xr_whole_calls.forward(&roles, XRAY_ROLE_ACTOR, &views, outputs, &to,
                                  &whole_err);
}

double sums[2];
double weights[2];

xray_status call_gradients(xr_err *fault, int weighted)
{
    const xr_loss_spec spec = { .kind = 1,
                                .outputs = XRAY_OUTPUT_LOGP,
                                .context = "contex",
                                .context_size = 7,
                                .sums = sums,
                                .weights = weighted ? weights : NULL,
                                .names = 2 };
    sums[0] = 5;
    sums[1] = 7;
    weights[0] = weights[1] = 2;
    (void)snprintf(fault->text, sizeof(fault->text), "of an earlier call");
    return xr_whole_calls.gradients(&roles, XRAY_ROLE_ACTOR, &views, &spec,
                                    fault, &whole_err);
}

xray_status call_generate(xr_samples *out, uint32_t count)
{
    static const int32_t ids[] = { 50, 1, 51, 1, 52, 1, 53, 1, 54, 1 };
    const xr_sampling how = { .n = 2, .max_tokens = 6 };
    xr_row data[5];
    const xr_row *pointers[5];
    for (uint32_t p = 0; p < 5; p++) {
        data[p] = (xr_row){ .id = p,
                            .ids = ids + 2 * p,
                            .id_count = 2,
                            .prompt_count = 1 + p % 2 };
        pointers[p] = &data[p];
    }
    memset(out->sizes, 0, out->cap * sizeof(*out->sizes));
    return xr_whole_calls.generate(&roles, out, pointers, count, &how,
                                   &whole_err);
}
