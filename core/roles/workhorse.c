/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the methods of a Workhorse on the roles of its process.
 */
#include "core/roles/workhorse.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/roles/local.h"
#include "core/roles/plugin_metrics.h"
#include "core/roles/publish.h"
#include "core/roles/ship.h"
#include "core/roles/wire.h"
#include "core/run/replicas.h"
#include "core/run/resources.h"

typedef struct worker {
    const xr_actor_context *context;
    xr_config *config;
    xr_run *run;
    xr_roles *roles;
    xr_err gather_err;
    xr_views views;
    void *aside; /* results of calls for which another rank answers */
    uint64_t aside_bytes;
} worker;

/* ---- create ------------------------------------------------------------- */

static xray_status gather_from_ranks(void *ctx, const void *mine, uint64_t size,
                                     void *all)
{
    worker *w = ctx;
    return xr_actor_gather(w->context, mine, size,
                           (uint64_t)w->run->ini.run.comm_timeout / 1000000,
                           all, &w->gather_err);
}

/* Paths of the INI are relative to where the run was started. On another host
 * the folder may be missing, which then matters to no absolute path. */
static void enter_directory(const char *line)
{
    char here[XR_PATH_CAP];
    const size_t size = strcspn(line, "\n");
    if (!size || size >= sizeof(here))
        return;
    memcpy(here, line, size);
    here[size] = '\0';
    if (chdir(here) != 0)
        return;
}

/* Plugins choose the device of this rank by the first of these variables that
 * they know: its number among the ranks of its host, and of the run. */
static void name_rank(uint32_t rank, uint32_t local)
{
    char number[16];
    (void)snprintf(number, sizeof(number), "%u", rank);
    (void)setenv("XRAY_RANK", number, 1);
    (void)snprintf(number, sizeof(number), "%u", local);
    (void)setenv("XRAY_LOCAL_RANK", number, 1);
}

/* The line says which hosts an engine chose for the ranks. */
static void set_hosts(xr_config *config, const char *line, xr_errors *errors)
{
    xr_str text = { 0 };
    xr_str_printf(&text, "placement.hosts=%.*s", (int)strcspn(line, "\n"),
                  line);
    xr_config_set(config, xr_str_text(&text), errors);
    xr_str_free(&text);
}

static xray_status open_workhorse_run(worker *w, const char *text, xr_err *err)
{
    xr_errors errors = { 0 };
    char folders[XR_PATH_CAP];
    char *rest = NULL;
    uint32_t with = (uint32_t)strtoul(text, &rest, 10);
    size_t line = strcspn(rest, "\n");
    if (*rest != ' ' || line >= sizeof(folders) || rest[line] != '\n')
        return xr_fail(err, XRAY_E_BUG, "a Workhorse's text has no first line");
    memcpy(folders, rest + 1, line - 1);
    folders[line - 1] = '\0';
    const char *ini = rest + line + 1;
    enter_directory(ini);
    ini += strcspn(ini, "\n");
    ini += *ini == '\n';
    const char *hosts = ini;
    if (with & XR_IN_WORKHORSE)
        ini += strcspn(ini, "\n") + 1;
    w->config = xr_config_new();
    if (!w->config)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the INI");
    xr_config_read_text(w->config, "the run's INI", ini, &errors);
    if (with & XR_IN_WORKHORSE)
        set_hosts(w->config, hosts, &errors);
    if (!errors.count)
        w->run =
            xr_run_new(w->config, *folders ? folders : NULL, with, &errors);
    xray_status status = XRAY_OK;
    if (!w->run)
        status = xr_fail(err, XRAY_E_CONFIG, "%s",
                         errors.count ? errors.items[0] : "out of memory");
    xr_errors_free(&errors);
    return status;
}

static void workhorse_destroy(void *self)
{
    worker *w = self;
    xr_roles_free(w->roles);
    xr_run_free(w->run);
    xr_config_free(w->config);
    xr_views_free(&w->views);
    free(w->aside);
    free(w);
}

static xray_status start_workhorse(worker *w, const char *text, xr_err *err)
{
    uint32_t rank = xr_actor_index(w->context);
    xr_rank_link link = { .rank = rank,
                          .trace = xr_actor_extra(w->context),
                          .gather_ctx = w,
                          .gather = gather_from_ranks };
    link.traces = xr_actor_extras(w->context, &link.trace_stride);
    name_rank(rank, rank);
    xr_actor_phase(w->context, "reading the configuration");
    xray_status status = open_workhorse_run(w, text, err);
    if (status != XRAY_OK)
        return status;
    if (w->run->placement.hosts && rank < w->run->placement.size)
        name_rank(rank, w->run->placement.local[rank]);
    uint64_t rows = xr_run_max_rows(w->run);
    status = xr_views_init(&w->views, rows, err);
    xr_actor_phase(w->context, "creating device, models and engine");
    if (status == XRAY_OK)
        status = xr_roles_start_rank(w->run, &link, err, &w->roles);
    if (status != XRAY_OK && *w->gather_err.text) {
        (void)xr_fail_in(&w->gather_err, status, "%s", err->text);
        *err = w->gather_err;
    }
    return status;
}

static xray_status workhorse_create(const xr_actor_context *context,
                                    const char *text, xr_err *err,
                                    void **out_self)
{
    worker *w = xr_calloc(1, sizeof(*w));
    if (!w)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for a Workhorse");
    /* Ctrl-C reaches every process of the terminal; only the main process
     * handles it. */
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    (void)sigaction(SIGINT, &ignore, NULL);
    w->context = context;
    xray_status status = start_workhorse(w, text, err);
    if (status != XRAY_OK) {
        workhorse_destroy(w);
        return status;
    }
    *out_self = w;
    return XRAY_OK;
}

/* ---- models ------------------------------------------------------------- */

static xray_status check_role_is_held(const worker *w, uint32_t role,
                                      xr_err *err)
{
    if (role < XRAY_ROLE_ACTOR || role > XRAY_ROLE_REWARD ||
        role == XRAY_ROLE_ROLLOUT)
        return xr_fail(err, XRAY_E_BUG, "role %u is not a model", role);
    if (!xr_roles_at(w->roles, role)->self)
        return xr_fail(err, XRAY_E_BUG, "rank %u does not hold the %s",
                       w->roles->rank, xr_role_name(role));
    return XRAY_OK;
}

/* Cuts the batch into micro-batches, of which the other ranks may have more. */
static xray_status cut_micro_batches(worker *w, uint32_t role,
                                     const xr_wire *wire, xr_err *err)
{
    uint32_t views = wire->header->views;
    xray_status status = xr_wire_cut(w->run, role, wire, &w->views, err);
    if (status != XRAY_OK)
        return status;
    if (views < w->views.count || views > w->views.cap)
        return xr_fail(err, XRAY_E_BUG, "%u micro-batches where %u are due",
                       w->views.count, views);
    return XRAY_OK;
}

/* Makes room for results of this rank that nobody reads. */
static xray_status reserve_aside(worker *w, uint64_t bytes, xr_err *err)
{
    if (bytes <= w->aside_bytes)
        return XRAY_OK;
    free(w->aside);
    w->aside = xr_calloc(1, (size_t)bytes);
    w->aside_bytes = w->aside ? bytes : 0;
    return w->aside ? XRAY_OK
                    : xr_fail(err, XRAY_E_NOMEM,
                              "out of memory for results of %llu bytes",
                              (unsigned long long)bytes);
}

static int answers_for_replica(const worker *w, uint32_t role)
{
    return xr_rank_answers(w->run, role, w->roles->rank);
}

/* Maps the batch of a region. *out_results is the region if this rank writes
 * its results to it, or NULL. */
static xray_status read_batch(worker *w, const char *phase, uint32_t role,
                              xray_region *region, xr_err *err,
                              xr_wire *out_wire, xray_region **out_results)
{
    xr_actor_phase(w->context, phase);
    xray_status status = check_role_is_held(w, role, err);
    if (status == XRAY_OK)
        status = xr_wire_map(region->data, region->size, err, out_wire);
    if (status == XRAY_OK && answers_for_replica(w, role)) {
        xr_wire_carry_results(out_wire, region);
        *out_results = region;
    } else if (status == XRAY_OK) {
        status = reserve_aside(w, xr_wire_aside(out_wire, NULL), err);
        if (status == XRAY_OK)
            (void)xr_wire_aside(out_wire, w->aside);
    }
    return status == XRAY_OK ? cut_micro_batches(w, role, out_wire, err)
                             : status;
}

static xray_status workhorse_forward(void *self, uint32_t role,
                                     xray_region *region,
                                     xray_region **out_results, xr_err *err)
{
    worker *w = self;
    xr_wire wire;
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs) };
    xray_status status =
        read_batch(w, "forward", role, region, err, &wire, out_results);
    if (status != XRAY_OK)
        return status;
    uint32_t outputs = wire.header->outputs;
    out.logp = outputs & XRAY_OUTPUT_LOGP ? wire.out[0] : NULL;
    out.entropy = outputs & XRAY_OUTPUT_ENTROPY ? wire.out[1] : NULL;
    out.value = outputs & XRAY_OUTPUT_VALUE ? wire.out[2] : NULL;
    return xr_local_forward(w->roles, role, &w->views, wire.header->views,
                            outputs, &out, err);
}

static xray_status workhorse_gradients(void *self, uint32_t role,
                                       xray_region *region,
                                       xray_region **out_results,
                                       xr_str *out_fault, xr_err *err)
{
    worker *w = self;
    xr_wire wire;
    xray_status status = read_batch(w, "forward_backward", role, region, err,
                                    &wire, out_results);
    if (status != XRAY_OK)
        return status;
    xr_loss_spec spec = { .kind = wire.header->loss,
                          .outputs = wire.header->outputs,
                          .context = wire.context,
                          .context_size = wire.header->context_size,
                          .sums = wire.sums,
                          .weights = wire.weights,
                          .names = wire.header->names,
                          .ratios = wire.header->ratios,
                          .segments = wire.header->segments };
    xr_loss_run run = { .roles = w->roles,
                        .who = xr_roles_at(w->roles, role)->part->instance,
                        .spec = &spec,
                        .continues = 1 };
    status = xr_local_gradients(w->roles, role, &w->views, wire.header->views,
                                &run, err);
    xr_str_puts(out_fault, run.fault.text);
    return status;
}

static xray_status workhorse_step(void *self, uint32_t role, double lr,
                                  double max_norm, double *out_norm,
                                  uint32_t *out_skipped, uint64_t *out_version,
                                  xr_str *out_bad, xr_err *err)
{
    worker *w = self;
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    xr_actor_phase(w->context, "optimizer_step");
    xray_status status = check_role_is_held(w, role, err);
    if (status == XRAY_OK)
        status = xr_local_step(w->roles, role, lr, max_norm, &result, err);
    *out_norm = result.grad_norm;
    *out_skipped = result.skipped;
    *out_version = result.version;
    if (result.bad_tensor)
        xr_str_puts(out_bad, result.bad_tensor);
    return status;
}

static xray_status workhorse_discard(void *self, uint32_t role, xr_err *err)
{
    worker *w = self;
    xray_status status = check_role_is_held(w, role, err);
    return status == XRAY_OK ? xr_local_discard(w->roles, role, err) : status;
}

static xray_status workhorse_save(void *self, uint32_t role, const char *dir,
                                  xr_err *err)
{
    worker *w = self;
    xr_actor_phase(w->context, "save");
    xray_status status = check_role_is_held(w, role, err);
    return status == XRAY_OK ? xr_local_save(w->roles, role, dir, err) : status;
}

static xray_status workhorse_load(void *self, uint32_t role, const char *dir,
                                  xr_err *err)
{
    worker *w = self;
    xr_actor_phase(w->context, "load");
    xray_status status = check_role_is_held(w, role, err);
    return status == XRAY_OK ? xr_local_load(w->roles, role, dir, err) : status;
}

/* ---- the engine --------------------------------------------------------- */

static xray_status generate_samples(worker *w, const xr_wire_rollout *rollout,
                                    xr_err *err)
{
    uint32_t prompts = rollout->header->prompts;
    xr_row *rows = xr_calloc((size_t)prompts + 1, sizeof(*rows));
    const xr_row **pointers = xr_calloc((size_t)prompts + 1, sizeof(*pointers));
    xray_status status = XRAY_OK;
    if (!rows || !pointers)
        status =
            xr_fail(err, XRAY_E_NOMEM, "out of memory for %u prompts", prompts);
    for (uint32_t i = 0; status == XRAY_OK && i < prompts; i++) {
        rows[i].id = rollout->prompt_id[i];
        rows[i].ids = rollout->prompt + rollout->prompt_start[i];
        rows[i].prompt_count =
            rollout->prompt_start[i + 1] - rollout->prompt_start[i];
        rows[i].id_count = rows[i].prompt_count;
        pointers[i] = &rows[i];
    }
    xr_samples samples = { .cap = prompts * rollout->header->how.n,
                           .max_tokens = rollout->header->how.max_tokens,
                           .tokens = rollout->tokens,
                           .logp = rollout->logp,
                           .sizes = rollout->sizes,
                           .finish = rollout->finish,
                           .versions = rollout->versions };
    if (status == XRAY_OK)
        status = xr_samples_generate(w->roles, &samples, pointers, prompts,
                                     &rollout->header->how, err);
    free(rows);
    free(pointers);
    return status;
}

static xray_status workhorse_generate(void *self, xray_region *region,
                                      xray_region **out_results, xr_err *err)
{
    worker *w = self;
    xr_wire_rollout wire;
    xr_actor_phase(w->context, "rollout");
    if (!w->roles->engine.self)
        return xr_fail(err, XRAY_E_BUG, "rank %u has no engine",
                       w->roles->rank);
    xray_status status =
        xr_wire_rollout_map(region->data, region->size, err, &wire);
    if (status == XRAY_OK && answers_for_replica(w, XRAY_ROLE_ROLLOUT)) {
        xr_wire_rollout_carry_results(&wire, region);
        *out_results = region;
    } else if (status == XRAY_OK) {
        status = reserve_aside(w, xr_wire_rollout_aside(&wire, NULL), err);
        if (status == XRAY_OK)
            (void)xr_wire_rollout_aside(&wire, w->aside);
    }
    if (status == XRAY_OK)
        status = generate_samples(w, &wire, err);
    return status;
}

static xray_status workhorse_publish(void *self, uint64_t *out_bytes,
                                     xr_err *err)
{
    worker *w = self;
    xr_actor_phase(w->context, "weights to the engine");
    w->roles->published.bytes = 0;
    xray_status status = xr_publish(w->roles, err);
    *out_bytes = w->roles->published.bytes;
    return status;
}

static xray_status workhorse_ship_bytes(void *self, uint64_t *out, xr_err *err)
{
    worker *w = self;
    (void)err;
    *out = xr_ship_bytes(w->roles);
    return XRAY_OK;
}

/* Writes the weights for engines of other ranks. */
static xray_status workhorse_ship(void *self, xray_region *region, uint64_t at,
                                  uint64_t bytes, xray_region **out_results,
                                  xr_err *err)
{
    worker *w = self;
    unsigned char *memory = region->data;
    xr_actor_phase(w->context, "weights to other ranks");
    if (at > region->size || bytes > region->size - at)
        return xr_fail(err, XRAY_E_BUG,
                       "the region is too small for the weights");
    region->first = at;
    region->count = bytes;
    *out_results = region;
    return xr_ship_write(w->roles, memory + at, bytes, err);
}

static xray_status workhorse_ship_along(void *self, xr_err *err)
{
    worker *w = self;
    xr_actor_phase(w->context, "weights to other ranks");
    return xr_ship_write(w->roles, NULL, 0, err);
}

static xray_status workhorse_receive(void *self, const xray_region *region,
                                     uint64_t bytes, uint64_t *out_bytes,
                                     xr_err *err)
{
    worker *w = self;
    xr_actor_phase(w->context, "weights from other ranks");
    w->roles->published.bytes = 0;
    xray_status status =
        xr_ship_read(w->roles, region->data,
                     bytes < region->size ? bytes : region->size, err);
    *out_bytes = w->roles->published.bytes;
    return status;
}

static xray_status workhorse_memory(void *self, xr_str *out, xr_err *err)
{
    worker *w = self;
    const xr_part *part = w->roles->device.part;
    const xray_device_ops *ops = part->ops;
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    xray_status status =
        XR_CALL(part, "memory", ops->memory(w->roles->device.self, &stats));
    if (status != XRAY_OK)
        return xr_host_error(part->host, status, "memory", err);
    for (uint32_t i = 0; i < XRAY_TAG_COUNT; i++)
        if (stats.live[i])
            xr_str_printf(out, "%s%s %.1f MiB", out->size ? ", " : "",
                          xr_tag_name(i), (double)stats.live[i] / 1048576);
    return XRAY_OK;
}

static xray_status workhorse_metrics(void *self, xr_str *out, xr_err *err)
{
    worker *w = self;
    (void)err;
    xr_plugin_metrics_print(w->roles, out);
    return XRAY_OK;
}

static const xr_actor_method methods[] = {
    { "forward", "u m -> m", XR_METHOD(workhorse_forward) },
    { "gradients", "u m -> m s", XR_METHOD(workhorse_gradients) },
    { "step", "u d d -> d u U s", XR_METHOD(workhorse_step) },
    { "discard", "u ->", XR_METHOD(workhorse_discard) },
    { "generate", "m -> m", XR_METHOD(workhorse_generate) },
    { "publish", "-> U", XR_METHOD(workhorse_publish) },
    { "ship_bytes", "-> U", XR_METHOD(workhorse_ship_bytes) },
    { "ship", "m U U -> m", XR_METHOD(workhorse_ship) },
    { "ship_along", "->", XR_METHOD(workhorse_ship_along) },
    { "receive", "m U -> U", XR_METHOD(workhorse_receive) },
    { "save", "u s ->", XR_METHOD(workhorse_save) },
    { "load", "u s ->", XR_METHOD(workhorse_load) },
    { "memory", "-> s", XR_METHOD(workhorse_memory) },
    { "metrics", "-> s", XR_METHOD(workhorse_metrics) },
};

const xr_actor_class xr_workhorse_class = {
    .name = "workhorse",
    .methods = methods,
    .method_count = sizeof(methods) / sizeof(methods[0]),
    .create = workhorse_create,
    .destroy = workhorse_destroy,
};
