/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts and ends the Workhorses of a WholeModel, and makes the calls that have
 * no batch.
 */
#include "core/roles/whole.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/roles/whole_inner.h"
#include "core/roles/workhorse.h"
#include "core/run/hosts.h"
#include "core/run/replicas.h"
#include "model/hf/config.h"

/* ---- opening ------------------------------------------------------------ */

/* Returns the cost of one token in pairs of tokens. The matrix products of a
 * row of s tokens take 2 P s operations. Attention takes 2 s^2 h L, if only the
 * causal half is counted, which gives c = P / (h L), or 4 s^2 h L for the full
 * square, which gives c = P / (2 h L). The latter is returned, as in verl
 * (24576 for a 7 B model). */
static double cost_per_token(const xr_run *run)
{
    xm_config config;
    if (xm_config_parse(run->actor.json, "config.json", NULL, &config) !=
            XRAY_OK ||
        !config.hidden || !config.layers)
        return 4096;
    return (double)xm_config_param_count(&config) /
           (2.0 * config.hidden * config.layers);
}

static xray_status allocate_arrays(xr_whole *w, xr_err *err)
{
    uint64_t rows = xr_run_max_rows(w->run);
    w->row_cap = (uint32_t)rows;
    w->cost = xr_calloc((size_t)rows + 1, sizeof(*w->cost));
    w->part = xr_calloc((size_t)rows + 1, sizeof(*w->part));
    w->unit = xr_calloc((size_t)rows + 1, sizeof(*w->unit));
    w->start = xr_calloc((size_t)rows + 2, sizeof(*w->start));
    if (!w->cost || !w->part || !w->unit || !w->start)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %" PRIu64 " rows",
                       rows);
    xray_status status = xr_views_init(&w->views, rows, err);
    return status == XRAY_OK ? xr_balance_init(&w->balance, rows, w->size, err)
                             : status;
}

/* A Workhorse is created with a text: the parts of the run, the folders of its
 * plugins, the working directory, to which paths are relative, the hosts that
 * an engine chose, if there is one, and the INI. */
static void write_text(const xr_whole *w, xr_str *out)
{
    char here[XR_PATH_CAP];
    const xr_run *run = w->run;
    const char *folders = run->plugin_path;
    const uint32_t with = run->with & ~(XR_WITH_REWARD | XR_WITH_TOKENIZER);
    xr_str_printf(
        out, "%u %s\n%s\n", with | (w->launched ? XR_IN_WORKHORSE : 0),
        folders ? folders : "", getcwd(here, sizeof(here)) ? here : "");
    if (w->launched)
        xr_str_printf(out, "%s\n", xr_launched_hosts(w->launched));
    xr_config_print(run->config, 0, out);
}

/* The command line to which the runtime appends its address. With the runtime
 * of several hosts that says everything, unless the launcher is to be asked
 * what the process is. */
static void make_command(const xr_whole *w, const char **argv)
{
    const xr_run *run = w->run;
    const char *folders = run->plugin_path ? run->plugin_path : "";
    const char *name =
        run->runtime.ops ? run->runtime.component->name : XR_WORKHORSE_LOCAL;
    if (xr_hosts_on(run))
        name = w->launched && xr_launched_enters(run)
                   ? run->launcher.component->name
                   : NULL;
    argv[0] = w->launched ? xr_launched_program(w->launched) : "/proc/self/exe";
    argv[1] = XR_WORKHORSE_COMMAND;
    argv[2] = name;
    argv[3] = name ? folders : NULL;
    argv[4] = NULL;
}

static const char *name_host(const xr_whole *w, uint32_t rank, char *room)
{
    if (w->launched)
        return xr_launched_host_of(w->launched, rank);
    return xr_hosts_name(&w->run->ini, &w->run->placement, rank, room);
}

static xray_status spawn_workhorses(xr_whole *w, xr_err *err)
{
    const char *argv[5];
    xr_str text = { 0 };
    make_command(w, argv);
    write_text(w, &text);
    xray_status status =
        text.failed ? xr_fail(err, XRAY_E_NOMEM, "out of memory for the INI")
                    : XRAY_OK;
    for (uint32_t r = 0; r < w->size && status == XRAY_OK; r++) {
        char name[32 + XR_HOST_NAME_CAP];
        char room[XR_HOST_NAME_CAP];
        const char *host = name_host(w, r, room);
        (void)snprintf(name, sizeof(name), "workhorse %u%s%s", r,
                       host ? " on " : "", host ? host : "");
        xr_actor_spawn_spec spec = { .class_ = &xr_workhorse_class,
                                     .argv = argv,
                                     .name = name,
                                     .text = xr_str_text(&text),
                                     .host = host,
                                     .devices = 1,
                                     .index = r,
                                     .count = w->size };
        status = xr_actor_spawn(w->actors, &spec, err, &w->horse[r].actor);
        if (status != XRAY_OK && w->launched)
            xr_launched_explain(w->launched, err);
    }
    xr_str_free(&text);
    return status;
}

static void log_workhorse_memory(const xr_whole *w)
{
    const xr_log_sink *sink = &w->run->sink;
    if (!sink->write || sink->level < XRAY_LOG_INFO)
        return;
    for (uint32_t r = 0; r < w->size; r++)
        sink->write(sink->ctx, XRAY_LOG_INFO, xr_actor_name(w->horse[r].actor),
                    xr_str_text(&w->horse[r].memory));
}

static xray_status wait_until_ready(xr_whole *w, xr_err *err)
{
    int64_t limit = w->run->ini.run.plugin_timeout;
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
        log_workhorse_memory(w);
    return status;
}

static void free_whole(xr_whole *w)
{
    xr_whole_drop_calls(w);
    xr_whole_put_regions(w);
    for (uint32_t r = 0; r < w->size && !w->broken; r++)
        xr_actor_leave(w->horse[r].actor);
    for (uint32_t r = 0; r < w->size; r++) {
        if (w->broken)
            xr_actor_kill(w->horse[r].actor);
        else
            (void)xr_actor_stop(w->horse[r].actor, 5000, NULL);
        xr_str_free(&w->horse[r].bad);
        xr_str_free(&w->horse[r].fault);
        xr_str_free(&w->horse[r].memory);
        xr_str_free(&w->horse[r].metrics);
    }
    xr_actors_free(w->actors);
    xr_host_free(w->host);
    xr_balance_free(&w->balance);
    xr_views_free(&w->views);
    free(w->cost);
    free(w->part);
    free(w->unit);
    free(w->start);
    free(w);
}

static xray_status start_runtime(xr_whole *w, xr_err *err)
{
    const xr_part *runtime = &w->run->runtime;
    const xr_runtime_section *ini = &w->run->ini.runtime;
    const xr_hosts_config hosts = {
        .interface = ini->interface,
        .launch = w->launched ? NULL : ini->launch,
        .tls = ini->tls,
        .launcher = w->launched ? &xr_launched_ops : NULL,
        .launcher_self = w->launched,
    };
    const uint64_t silence = (uint64_t)ini->silence / 1000000;
    xr_actors_setup setup = {
        .ops = runtime->ops,
        .config = runtime->config,
        .host = runtime->host ? xr_host_api(runtime->host) : NULL,
        .actors = w->size,
        .hang_ms = silence < UINT32_MAX ? (uint32_t)silence : UINT32_MAX,
        .fail_together = 1,
        .extra = sizeof(xray_comm_trace)
    };
    if (xr_hosts_on(w->run)) {
        w->host = xr_host_new("runtime.hosts", &w->run->sink);
        if (!w->host)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for the hosts");
        setup.ops = &xr_hosts_runtime;
        setup.config = &hosts;
        setup.host = xr_host_api(w->host);
    }
    return xr_actors_new(&setup, err, &w->actors);
}

xray_status xr_whole_open(xr_roles *roles, xr_err *err, xr_whole **out)
{
    xr_whole *w = xr_calloc(1, sizeof(*w));
    if (!w)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the Workhorses");
    w->run = roles->run;
    w->launched = roles->launched;
    w->size = roles->run->placement.size;
    w->per_token = cost_per_token(roles->run);
    xray_status status = allocate_arrays(w, err);
    if (status == XRAY_OK)
        status = start_runtime(w, err);
    if (status == XRAY_OK)
        status = spawn_workhorses(w, err);
    if (status == XRAY_OK)
        status = wait_until_ready(w, err);
    if (status != XRAY_OK) {
        free_whole(w);
        return status;
    }
    *out = w;
    return XRAY_OK;
}

/* ---- calls without a batch ---------------------------------------------- */

static xray_status check_same_step(const xr_whole *w, const xr_ranks *ranks,
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

static xray_status whole_step(xr_roles *roles, uint32_t role, double lr,
                              double max_norm, xray_step_result *out,
                              xr_err *err)
{
    xr_whole *w = roles->whole;
    const xr_ranks *ranks = xr_run_ranks(w->run, role);
    xray_status status = xr_whole_check_fit(w, err);
    for (uint32_t i = 0; i < ranks->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[ranks->rank[i]];
        xr_str_clear(&h->bad);
        status =
            xr_actor_call(h->actor, "step", err, &h->future, role, lr, max_norm,
                          &h->norm, &h->skipped, &h->version, &h->bad);
    }
    status = xr_whole_wait(w, ranks, status, err);
    if (status == XRAY_OK)
        status = check_same_step(w, ranks, err);
    const xr_horse *first = &w->horse[ranks->rank[0]];
    *out = (xray_step_result){ .header = XRAY_HEADER(xray_step_result),
                               .grad_norm = first->norm,
                               .skipped = first->skipped,
                               .version = first->version,
                               .bad_tensor = first->bad.size
                                                 ? xr_str_text(&first->bad)
                                                 : NULL };
    return status;
}

/* Asks each rank, once, how much of the weights it writes. */
static xray_status ask_ship_bytes(xr_whole *w, const xr_ranks *from,
                                  xr_err *err)
{
    xray_status status = XRAY_OK;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < from->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[from->rank[i]];
        status = xr_actor_ask(h->actor, "ship_bytes", -1, err, &h->ship_bytes);
        bytes += h->ship_bytes;
    }
    if (status == XRAY_OK)
        w->ship_bytes = bytes;
    return status;
}

/* Has each rank write its section of the region, one after the other in it;
 * ranks without a section take part in the export. */
static xray_status write_sections(xr_whole *w, const xr_ranks *from,
                                  xray_region *region, xr_err *err)
{
    xray_status status = XRAY_OK;
    uint64_t at = 0;
    region->first = region->size; /* the calls carry none of its bytes */
    region->count = 0;
    for (uint32_t i = 0; i < from->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[from->rank[i]];
        status = h->ship_bytes
                     ? xr_actor_call(h->actor, "ship", err, &h->future, region,
                                     at, h->ship_bytes, XR_NO_REGION)
                     : xr_actor_call(h->actor, "ship_along", err, &h->future);
        at += h->ship_bytes;
    }
    return xr_whole_wait(w, from, status, err);
}

/* Ships weights to engines on ranks of their own: once from the trainer, then
 * to all engines at the same time. */
static xray_status ship_weights(xr_whole *w, const xr_ranks *from,
                                const xr_ranks *to, xr_err *err)
{
    xray_region *region = NULL;
    xray_status status = XRAY_OK;
    if (!w->ship_bytes)
        status = ask_ship_bytes(w, from, err);
    if (status == XRAY_OK)
        status = xr_region_get(w->actors, w->ship_bytes, err, &region);
    if (status == XRAY_OK)
        status = write_sections(w, from, region, err);
    if (status == XRAY_OK) {
        region->first = 0;
        region->count = w->ship_bytes;
    }
    for (uint32_t i = 0; i < to->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[to->rank[i]];
        status = xr_actor_call(h->actor, "receive", err, &h->future, region,
                               w->ship_bytes, &h->received);
    }
    status = xr_whole_wait(w, to, status, err);
    xr_region_put(w->actors, region);
    return status;
}

/* Brings the policy's weights to every engine. */
static xray_status whole_publish(xr_roles *roles, xr_err *err)
{
    xr_whole *w = roles->whole;
    const xr_ranks *ranks = xr_run_ranks(w->run, XRAY_ROLE_ACTOR);
    const xr_ranks *engines = xr_run_ranks(w->run, XRAY_ROLE_ROLLOUT);
    xray_status status = xr_whole_check_fit(w, err);
    if (status == XRAY_OK &&
        !xr_replicas_match(w->run, XRAY_ROLE_ACTOR, XRAY_ROLE_ROLLOUT)) {
        status = ship_weights(w, ranks, engines, err);
    } else {
        for (uint32_t i = 0; i < ranks->count && status == XRAY_OK; i++) {
            xr_horse *h = &w->horse[ranks->rank[i]];
            status = xr_actor_call(h->actor, "publish", err, &h->future,
                                   &h->received);
        }
        status = xr_whole_wait(w, ranks, status, err);
    }
    for (uint32_t i = 0; i < engines->count && status == XRAY_OK; i++)
        roles->published.bytes += w->horse[engines->rank[i]].received;
    return status;
}

static xray_status call_file_method(xr_whole *w, const char *method,
                                    uint32_t role, const char *dir, xr_err *err)
{
    const xr_ranks *ranks = xr_run_ranks(w->run, role);
    xray_status status = xr_whole_check_fit(w, err);
    for (uint32_t i = 0; i < ranks->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[ranks->rank[i]];
        status = xr_actor_call(h->actor, method, err, &h->future, role, dir);
    }
    return xr_whole_wait(w, ranks, status, err);
}

/* Each rank saves and loads its own ranges in one folder. */
static xray_status whole_save(xr_roles *roles, uint32_t role, const char *dir,
                              xr_err *err)
{
    return call_file_method(roles->whole, "save", role, dir, err);
}

static xray_status whole_load(xr_roles *roles, uint32_t role, const char *dir,
                              xr_err *err)
{
    return call_file_method(roles->whole, "load", role, dir, err);
}

/* The instances end with the Workhorses. */
static void whole_close(xr_roles *roles)
{
    free_whole(roles->whole);
    roles->whole = NULL;
    for (uint32_t role = 1; role < XR_ROLES; role++)
        xr_roles_at(roles, role)->self = NULL;
}

const xr_role_ops xr_whole_calls = {
    .forward = xr_whole_forward,
    .gradients = xr_whole_gradients,
    .step = whole_step,
    .save = whole_save,
    .load = whole_load,
    .generate = xr_whole_generate,
    .publish = whole_publish,
    .close = whole_close,
};
