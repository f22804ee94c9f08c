/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/whole.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/collective.h"
#include "core/base/str.h"
#include "core/rl/whole_inner.h"
#include "core/rl/worker.h"
#include "model/hf/config.h"

#define LOOK_MS 100 /* how often a wait looks at the stop flag */

const xr_ranks *xr_whole_ranks(const xr_whole *w, uint32_t role)
{
    const xr_placement *p = &w->session->placement;
    switch (role) {
    case XRAY_ROLE_REFERENCE:
        return &p->reference;
    case XRAY_ROLE_CRITIC:
        return &p->critic;
    case XRAY_ROLE_REWARD:
        return &p->reward;
    case XRAY_ROLE_ROLLOUT:
        return &p->rollout;
    default:
        return &p->actor;
    }
}

/* ---- errors ------------------------------------------------------------- */

/* Where every rank stands: "rank 0 waits in all_gather of 4096 bytes". */
static void add_traces(const xr_whole *w, xr_err *err)
{
    const xr_board *board = xr_actors_board(w->actors);
    xr_str text = { 0 };
    if (w->size < 2 || !board)
        return;
    const xray_comm_trace *traces = board->extra;
    for (uint32_t r = 0; r < w->size; r++) {
        const xray_comm_trace *t = &traces[r];
        xr_str_printf(&text, "%srank %u ", r ? ", " : "", r);
        if (!t->calls)
            xr_str_puts(&text, "was in no collective yet");
        else if (t->state == 1 || t->state == 2)
            xr_str_printf(&text, "waits in %s of %" PRIu64 " bytes",
                          xr_collective_name(t->call), t->bytes);
        else
            xr_str_printf(&text, "left %s of %" PRIu64 " bytes",
                          xr_collective_name(t->call), t->bytes);
    }
    xr_err first = *err;
    (void)xr_fail(err, XRAY_E_PEER, "%s (%s)", first.text, xr_str_text(&text));
    xr_str_free(&text);
}

xray_status xr_whole_fit(const xr_whole *w, xr_err *err)
{
    return w->broken ? xr_fail(err, XRAY_E_PEER,
                               "the ranks are out of step after an error")
                     : XRAY_OK;
}

static void drop_calls(xr_whole *w)
{
    for (uint32_t r = 0; r < w->size; r++) {
        xr_future_drop(w->horse[r].future);
        w->horse[r].future = NULL;
    }
}

/* One answer, or XRAY_AGAIN. */
static xray_status next_answer(xr_whole *w, const xr_ranks *ranks, xr_err *err)
{
    xr_future *futures[XR_MAX_RANKS];
    size_t at = 0;
    for (uint32_t i = 0; i < ranks->count; i++)
        futures[i] = w->horse[ranks->rank[i]].future;
    xray_status status =
        xr_future_wait_any(futures, ranks->count, LOOK_MS, err, &at);
    if (status != XRAY_OK)
        return status;
    w->horse[ranks->rank[at]].future = NULL;
    return xr_future_wait(futures[at], -1, err);
}

static uint32_t waiting(const xr_whole *w, const xr_ranks *ranks)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < ranks->count; i++)
        count += w->horse[ranks->rank[i]].future != NULL;
    return count;
}

/* Patient: an error of one rank lets the others finish, for calls in which no
 * rank waits for another. */
static xray_status wait_all(xr_whole *w, const xr_ranks *ranks,
                            const volatile sig_atomic_t *stop, int patient,
                            xr_err *err)
{
    xray_status first = XRAY_OK;
    while (waiting(w, ranks)) {
        xr_err text = { "" };
        xray_status status = next_answer(w, ranks, &text);
        if (status == XRAY_AGAIN)
            status = xr_actors_check(w->actors, &text);
        if (status == XRAY_OK && stop && *stop >= 2)
            return XRAY_END;
        if (status != XRAY_OK && first == XRAY_OK) {
            first = status;
            *err = text;
        }
        if (status != XRAY_OK && (!patient || status == XRAY_E_PEER))
            return status;
    }
    return first;
}

static xray_status spoiled(xr_whole *w, xray_status status, xr_err *err)
{
    w->broken = 1;
    drop_calls(w);
    if (status == XRAY_E_PEER)
        add_traces(w, err);
    return status;
}

/* A call that did not reach a rank that is gone: others may have theirs. */
static xray_status unsent(xr_whole *w, xray_status status, xr_err *err)
{
    return w->broken ? status : spoiled(w, status, err);
}

xray_status xr_whole_wait(xr_whole *w, const xr_ranks *ranks, xray_status sent,
                          xr_err *err)
{
    if (sent != XRAY_OK)
        return unsent(w, sent, err);
    xray_status status = wait_all(w, ranks, NULL, 0, err);
    return status == XRAY_OK ? status : spoiled(w, status, err);
}

xray_status xr_whole_wait_each(xr_whole *w, const xr_ranks *ranks,
                               xray_status sent,
                               const volatile sig_atomic_t *stop, xr_err *err)
{
    if (sent != XRAY_OK)
        return unsent(w, sent, err);
    xray_status status = wait_all(w, ranks, stop, 1, err);
    return waiting(w, ranks) || status == XRAY_E_PEER ? spoiled(w, status, err)
                                                      : status;
}

void xr_whole_put_regions(xr_whole *w)
{
    for (uint32_t r = 0; r < w->size; r++) {
        xr_region_put(w->actors, w->horse[r].region);
        w->horse[r].region = NULL;
    }
}

/* ---- open --------------------------------------------------------------- */

/* Attention of a row costs 2 s^2 h L operations for the causal half, the
 * products 2 P s: in units of the former c = P / (h L), twice that for whole
 * rows; verl's 24576 for 7 B is P / (2 h L). */
static double per_token(const xr_session *s)
{
    xm_config config;
    if (xm_config_parse(s->config_json, "config.json", NULL, &config) !=
            XRAY_OK ||
        !config.hidden || !config.layers)
        return 4096;
    return (double)xm_config_param_count(&config) /
           (2.0 * config.hidden * config.layers);
}

static xray_status take_memory(xr_whole *w, xr_err *err)
{
    const xr_run_config *run = &w->session->run;
    uint64_t rows = (uint64_t)run->data.train_batch_size *
                    (uint64_t)(run->rollout.n > 0 ? run->rollout.n : 1);
    if ((uint64_t)run->sft.train_batch_size > rows)
        rows = (uint64_t)run->sft.train_batch_size;
    w->row_cap = (uint32_t)rows;
    w->cost = xr_calloc((size_t)rows + 1, sizeof(*w->cost));
    w->part = xr_calloc((size_t)rows + 1, sizeof(*w->part));
    w->unit = xr_calloc((size_t)rows + 1, sizeof(*w->unit));
    w->start = xr_calloc((size_t)rows + 2, sizeof(*w->start));
    if (!w->cost || !w->part || !w->unit || !w->start)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %" PRIu64 " rows",
                       rows);
    return xr_balance_init(&w->balance, rows, w->size, err);
}

static xray_status spawn_all(xr_whole *w, xr_err *err)
{
    const char *folders = w->session->plugin_path;
    const xr_part *runtime = &w->session->runtime;
    const char *const argv[] = { "/proc/self/exe", XR_WORKER_COMMAND,
                                 runtime->ops ? runtime->component->name
                                              : XR_WORKER_LOCAL,
                                 folders ? folders : "", NULL };
    xr_str text = { 0 };
    xr_str_printf(&text, "%u %s\n",
                  w->session->with & ~(XR_WITH_REWARD | XR_WITH_TOKENIZER),
                  folders ? folders : "");
    xr_config_print(w->session->config, 0, &text);
    xray_status status =
        text.failed ? xr_fail(err, XRAY_E_NOMEM, "out of memory for the INI")
                    : XRAY_OK;
    for (uint32_t r = 0; r < w->size && status == XRAY_OK; r++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "workhorse %u", r);
        xr_actor_spawn_spec spec = { .class_ = &xr_worker_class,
                                     .argv = argv,
                                     .name = name,
                                     .text = xr_str_text(&text),
                                     .index = r,
                                     .count = w->size };
        status = xr_actor_spawn(w->actors, &spec, err, &w->horse[r].actor);
    }
    xr_str_free(&text);
    return status;
}

static void say_memory(const xr_whole *w)
{
    const xr_log_sink *sink = &w->session->sink;
    if (!sink->write || sink->level < XRAY_LOG_INFO)
        return;
    for (uint32_t r = 0; r < w->size; r++)
        sink->write(sink->ctx, XRAY_LOG_INFO, xr_actor_name(w->horse[r].actor),
                    xr_str_text(&w->horse[r].memory));
}

static xray_status ready(xr_whole *w, xr_err *err)
{
    int64_t limit = w->session->run.run.plugin_timeout;
    xray_status status = XRAY_OK;
    xr_ranks all = { .count = w->size };
    for (uint32_t r = 0; r < w->size && status == XRAY_OK; r++) {
        all.rank[r] = r;
        status = xr_actor_ready(w->horse[r].actor,
                                limit > 0 ? limit / 1000000 + 1 : -1, err);
    }
    if (status != XRAY_OK)
        return status;
    for (uint32_t r = 0; r < w->size && status == XRAY_OK; r++)
        status = xr_actor_call(w->horse[r].actor, "memory", err,
                               &w->horse[r].future, &w->horse[r].memory);
    status = xr_whole_wait(w, &all, status, err);
    if (status == XRAY_OK)
        say_memory(w);
    return status;
}

xray_status xr_whole_open(xr_session *s, xr_err *err, xr_whole **out)
{
    xr_whole *w = xr_calloc(1, sizeof(*w));
    if (!w)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the Workhorses");
    w->session = s;
    w->size = s->placement.size;
    w->per_token = per_token(s);
    const xr_part *runtime = &s->runtime;
    xr_actors_setup setup = { .ops = runtime->ops,
                              .config = runtime->config,
                              .host = runtime->host ? xr_host_api(runtime->host)
                                                    : NULL,
                              .actors = w->size,
                              .fail_together = 1,
                              .extra = sizeof(xray_comm_trace) };
    xray_status status = take_memory(w, err);
    if (status == XRAY_OK)
        status = xr_actors_new(&setup, err, &w->actors);
    /* Before a rank waits for another that cannot answer. */
    if (status == XRAY_OK && w->size > 1 && !xr_actors_board(w->actors))
        status = xr_fail(err, XRAY_E_UNSUPPORTED,
                         "[run] runtime %s gives its Workhorses no memory in "
                         "common, by which %u ranks would find each other; it "
                         "serves one rank",
                         runtime->component ? runtime->component->name
                                            : XR_WORKER_LOCAL,
                         w->size);
    if (status == XRAY_OK)
        status = spawn_all(w, err);
    if (status == XRAY_OK)
        status = ready(w, err);
    if (status != XRAY_OK) {
        xr_whole_close(w);
        return status;
    }
    *out = w;
    return XRAY_OK;
}

void xr_whole_close(xr_whole *w)
{
    if (!w)
        return;
    drop_calls(w);
    xr_whole_put_regions(w);
    for (uint32_t r = 0; r < w->size; r++) {
        if (w->broken)
            xr_actor_kill(w->horse[r].actor);
        else
            (void)xr_actor_stop(w->horse[r].actor, 5000, NULL);
        xr_str_free(&w->horse[r].bad);
        xr_str_free(&w->horse[r].memory);
    }
    xr_actors_free(w->actors);
    xr_balance_free(&w->balance);
    free(w->cost);
    free(w->part);
    free(w->unit);
    free(w->start);
    free(w);
}

/* ---- calls without a batch ---------------------------------------------- */

static xray_status same_step(const xr_whole *w, const xr_ranks *ranks,
                             xr_err *err)
{
    const xr_horse *first = &w->horse[ranks->rank[0]];
    for (uint32_t i = 1; i < ranks->count; i++) {
        const xr_horse *h = &w->horse[ranks->rank[i]];
        if (h->version != first->version || h->skipped != first->skipped ||
            memcmp(&h->norm, &first->norm, sizeof(h->norm)) != 0)
            return xr_fail(err, XRAY_E_PEER,
                           "ranks %u and %u made different steps: versions "
                           "%" PRIu64 " and %" PRIu64
                           ", gradient norms %.17g and %.17g",
                           ranks->rank[0], ranks->rank[i], first->version,
                           h->version, first->norm, h->norm);
    }
    return XRAY_OK;
}

xray_status xr_whole_step(xr_whole *w, uint32_t role, double lr,
                          double max_norm, xray_step_result *out, xr_err *err)
{
    const xr_ranks *ranks = xr_whole_ranks(w, role);
    xray_status status = xr_whole_fit(w, err);
    for (uint32_t i = 0; i < ranks->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[ranks->rank[i]];
        xr_str_clear(&h->bad);
        status =
            xr_actor_call(h->actor, "step", err, &h->future, role, lr, max_norm,
                          &h->norm, &h->skipped, &h->version, &h->bad);
    }
    status = xr_whole_wait(w, ranks, status, err);
    if (status == XRAY_OK)
        status = same_step(w, ranks, err);
    const xr_horse *first = &w->horse[ranks->rank[0]];
    *out = (xray_step_result){ .head = XRAY_HEAD(xray_step_result),
                               .grad_norm = first->norm,
                               .skipped = first->skipped,
                               .version = first->version,
                               .bad_tensor = first->bad.size
                                                 ? xr_str_text(&first->bad)
                                                 : NULL };
    return status;
}

/* To engines on ranks of their own: once out of the trainer, then to all of
 * them at a time. */
static xray_status ship(xr_whole *w, const xr_ranks *from, const xr_ranks *to,
                        xr_err *err)
{
    xray_region *region = NULL;
    xr_horse *first = &w->horse[from->rank[0]];
    xray_status status = XRAY_OK;
    if (!w->ship_bytes)
        status =
            xr_actor_ask(first->actor, "ship_bytes", -1, err, &w->ship_bytes);
    if (status == XRAY_OK)
        status = xr_region_get(w->actors, w->ship_bytes, err, &region);
    if (status == XRAY_OK)
        status =
            xr_actor_call(first->actor, "ship", err, &first->future, region);
    for (uint32_t i = 1; i < from->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[from->rank[i]];
        status = xr_actor_call(h->actor, "ship_along", err, &h->future);
    }
    status = xr_whole_wait(w, from, status, err);
    for (uint32_t i = 0; i < to->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[to->rank[i]];
        status = xr_actor_call(h->actor, "receive", err, &h->future, region);
    }
    status = xr_whole_wait(w, to, status, err);
    xr_region_put(w->actors, region);
    return status;
}

xray_status xr_whole_publish(xr_whole *w, xr_err *err)
{
    const xr_ranks *ranks = xr_whole_ranks(w, XRAY_ROLE_ACTOR);
    const xr_ranks *engines = xr_whole_ranks(w, XRAY_ROLE_ROLLOUT);
    xray_status status = xr_whole_fit(w, err);
    if (status == XRAY_OK && !xr_ranks_equal(ranks, engines))
        return ship(w, ranks, engines, err);
    for (uint32_t i = 0; i < ranks->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[ranks->rank[i]];
        status =
            xr_actor_call(h->actor, "publish", err, &h->future, &h->version);
    }
    return xr_whole_wait(w, ranks, status, err);
}

static xray_status files(xr_whole *w, const char *method, uint32_t role,
                         const char *dir, xr_err *err)
{
    const xr_ranks *ranks = xr_whole_ranks(w, role);
    xray_status status = xr_whole_fit(w, err);
    for (uint32_t i = 0; i < ranks->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[ranks->rank[i]];
        status = xr_actor_call(h->actor, method, err, &h->future, role, dir);
    }
    return xr_whole_wait(w, ranks, status, err);
}

xray_status xr_whole_save(xr_whole *w, uint32_t role, const char *dir,
                          xr_err *err)
{
    return files(w, "save", role, dir, err);
}

xray_status xr_whole_load(xr_whole *w, uint32_t role, const char *dir,
                          xr_err *err)
{
    return files(w, "load", role, dir, err);
}
