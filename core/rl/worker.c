/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "core/rl/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/why.h"
#include "core/rl/losses.h"
#include "core/rl/role.h"
#include "core/rl/ship.h"
#include "core/rl/turn.h"
#include "core/rl/wire.h"

typedef struct worker {
    const xr_actor_context *context;
    xr_config *config;
    xr_session *session;
    xr_board_group all; /* the exchange of all ranks */
    xr_err exchange_err;
    xr_views views;
    const xray_batch **padded; /* views, then empty ones */
    uint32_t padded_cap;
    xray_batch empty;
    int32_t no_start; /* row_start of the empty batch */
} worker;

/* ---- create ------------------------------------------------------------- */

static xray_status exchange(void *ctx, const void *mine, uint64_t size,
                            void *all)
{
    worker *w = ctx;
    return xr_board_exchange(&w->all, mine, size, all, &w->exchange_err);
}

/* The reader takes files. */
static xray_status read_text(worker *w, const char *text, xr_errors *errors,
                             xr_err *err)
{
    char path[64];
    size_t size = strlen(text);
    int fd = memfd_create("xray-ini", MFD_CLOEXEC);
    if (fd < 0)
        return xr_fail(err, XRAY_E_IO, "no memory for the configuration: %s",
                       XR_WHY(errno));
    size_t done = 0;
    while (done < size) {
        ssize_t wrote = write(fd, text + done, size - done);
        if (wrote <= 0)
            break;
        done += (size_t)wrote;
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    w->config = xr_config_new();
    if (w->config && done == size)
        xr_config_read(w->config, path, errors);
    (void)close(fd);
    if (!w->config || done < size)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the INI");
    return XRAY_OK;
}

static xray_status open_session(worker *w, const char *text, xr_err *err)
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
    xray_status status = read_text(w, rest + line + 1, &errors, err);
    if (status == XRAY_OK && !errors.count)
        w->session =
            xr_session_new(w->config, *folders ? folders : NULL, with, &errors);
    if (status == XRAY_OK && !w->session)
        status = xr_fail(err, XRAY_E_CONFIG, "%s",
                         errors.count ? errors.items[0] : "out of memory");
    xr_errors_free(&errors);
    return status;
}

static void worker_destroy(void *self)
{
    worker *w = self;
    xr_session_free(w->session);
    xr_config_free(w->config);
    xr_views_free(&w->views);
    free(w->padded);
    free(w);
}

static xray_status start(worker *w, const char *text, xr_err *err)
{
    uint32_t rank = xr_actor_index(w->context);
    const xr_board *board = xr_actor_board(w->context);
    xr_rank_link link = { .rank = rank,
                          .traces = board ? board->extra : NULL,
                          .exchange_ctx = w,
                          .exchange = exchange };
    char number[16];
    /* Devices of one kind are given out by it. */
    (void)snprintf(number, sizeof(number), "%u", rank);
    (void)setenv("XRAY_RANK", number, 1);
    xr_actor_phase(w->context, "reading the configuration");
    xray_status status = open_session(w, text, err);
    if (status != XRAY_OK)
        return status;
    const xr_run_config *run = &w->session->run;
    w->all = (xr_board_group){ .board = board,
                               .size = xr_actor_count(w->context),
                               .rank = rank,
                               .timeout_ms = (uint32_t)(run->run.comm_timeout /
                                                        1000000) };
    uint64_t rows = (uint64_t)run->data.train_batch_size *
                    (uint64_t)(run->rollout.n > 0 ? run->rollout.n : 1);
    if ((uint64_t)run->sft.train_batch_size > rows)
        rows = (uint64_t)run->sft.train_batch_size;
    w->padded_cap = (uint32_t)rows + 1;
    w->padded = xr_calloc(w->padded_cap, sizeof(const xray_batch *));
    if (!w->padded)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %u micro-batches",
                       w->padded_cap);
    w->empty = (xray_batch){ .head = XRAY_HEAD(xray_batch),
                             .span_stride = sizeof(xray_span),
                             .row_start = &w->no_start };
    status = xr_views_init(&w->views, rows, err);
    xr_actor_phase(w->context, "creating device, models and engine");
    if (status == XRAY_OK)
        status = xr_session_start_rank(w->session, &link, err);
    if (status != XRAY_OK && *w->exchange_err.text)
        (void)xr_fail_in(&w->exchange_err, status, "%s", err->text);
    return status;
}

static xray_status worker_create(const xr_actor_context *context,
                                 const char *text, xr_err *err, void **out_self)
{
    worker *w = xr_calloc(1, sizeof(*w));
    if (!w)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for a Workhorse");
    /* Ctrl-C reaches every process of the terminal: only the run answers it. */
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    (void)sigaction(SIGINT, &ignore, NULL);
    w->context = context;
    xray_status status = start(w, text, err);
    if (status != XRAY_OK) {
        worker_destroy(w);
        return status;
    }
    *out_self = w;
    return XRAY_OK;
}

/* ---- models ------------------------------------------------------------- */

/* The model, which has the tags (core/rl/turn.h) on the device. */
static xray_status role_of(worker *w, uint32_t role, uint32_t tags, xr_err *err,
                           xr_role *out)
{
    xr_session *s = w->session;
    switch (role) {
    case XRAY_ROLE_ACTOR:
        *out = xr_role_actor(s);
        break;
    case XRAY_ROLE_REFERENCE:
        *out = xr_role_reference(s);
        break;
    case XRAY_ROLE_CRITIC:
        *out = xr_role_critic(s);
        break;
    case XRAY_ROLE_REWARD:
        *out = xr_role_score(s);
        break;
    default:
        return xr_fail(err, XRAY_E_BUG, "role %u is not a model", role);
    }
    if (!out->part->self)
        return xr_fail(err, XRAY_E_BUG, "rank %u does not hold the %s", s->rank,
                       out->name);
    return xr_turn_take(s, role, tags, err);
}

/* The batch cut into micro-batches, filled up with empty ones. */
static xray_status cut(worker *w, uint32_t role, const xr_wire *wire,
                       xr_err *err)
{
    const xr_session *s = w->session;
    uint64_t budget = xr_role_tokens(s, role);
    uint32_t views = wire->head->views;
    const xr_cut how = { .count = wire->rows.batch.rows,
                         .budget = budget,
                         .prompts = wire->head->prompts };
    xray_status status = xr_views_cut(&w->views, &wire->rows, &how, err);
    if (status != XRAY_OK)
        return status;
    if (views < w->views.count || views > w->padded_cap)
        return xr_fail(err, XRAY_E_BUG, "%u micro-batches where %u are due",
                       w->views.count, views);
    for (uint32_t i = 0; i < views; i++)
        w->padded[i] = i < w->views.count ? w->views.pointers[i] : &w->empty;
    return XRAY_OK;
}

static xray_status begin(worker *w, uint32_t role, const xray_region *region,
                         uint32_t tags, xr_err *err, xr_role *out_role,
                         xr_wire *out_wire)
{
    xr_actor_phase(w->context,
                   tags == XR_TURN_FORWARD ? "forward" : "forward_backward");
    xray_status status = role_of(w, role, tags, err, out_role);
    if (status == XRAY_OK)
        status = xr_wire_map(region->data, region->size, err, out_wire);
    if (status == XRAY_OK)
        status = cut(w, role, out_wire, err);
    return status;
}

static xray_status forward(void *self, uint32_t role, const xray_region *region,
                           xr_err *err)
{
    worker *w = self;
    xr_role model;
    xr_wire wire;
    size_t token = 0;
    xray_status status =
        begin(w, role, region, XR_TURN_FORWARD, err, &model, &wire);
    uint32_t outputs = status == XRAY_OK ? wire.head->outputs : 0;
    for (uint32_t i = 0; status == XRAY_OK && i < wire.head->views; i++) {
        xray_outputs out = { .head = XRAY_HEAD(xray_outputs) };
        out.logp = outputs & XRAY_HEAD_LOGP ? wire.out[0] + token : NULL;
        out.entropy = outputs & XRAY_HEAD_ENTROPY ? wire.out[1] + token : NULL;
        out.value = outputs & XRAY_HEAD_VALUE ? wire.out[2] + token : NULL;
        status = XR_CALL(
            model.part, "forward",
            model.ops->forward(model.part->self, w->padded[i], outputs, &out));
        if (status != XRAY_OK)
            status = xr_host_error(model.part->host, status, "forward", err);
        token += w->padded[i]->tokens;
    }
    return status;
}

static xray_status gradients(void *self, uint32_t role,
                             const xray_region *region, xr_err *err)
{
    worker *w = self;
    xr_role model;
    xr_wire wire;
    xray_status status =
        begin(w, role, region, XR_TURN_GRADS, err, &model, &wire);
    if (status != XRAY_OK)
        return status;
    xr_loss_spec spec = { .kind = wire.head->loss,
                          .outputs = wire.head->outputs,
                          .context = wire.context,
                          .context_size = wire.head->context_size,
                          .sums = wire.sums,
                          .weights = wire.weights,
                          .names = wire.head->names };
    xr_loss_run run = { .session = w->session,
                        .who = model.part->instance,
                        .spec = &spec,
                        .index = wire.index,
                        .goes_on = 1 };
    xray_loss loss = { .head = XRAY_HEAD(xray_loss),
                       .ctx = &run,
                       .fn = xr_loss_call,
                       .outputs = spec.outputs };
    status = XR_CALL(model.part, "forward_backward",
                     model.ops->forward_backward(model.part->self, w->padded,
                                                 wire.head->views, &loss));
    status = xr_loss_result(&run, model.part, status, err);
    _Static_assert(sizeof(wire.head->fault) == sizeof(run.fault.text), "fault");
    memcpy(wire.head->fault, run.fault.text, sizeof(run.fault.text));
    return status;
}

static xray_status step(void *self, uint32_t role, double lr, double max_norm,
                        double *out_norm, uint32_t *out_skipped,
                        uint64_t *out_version, xr_str *out_bad, xr_err *err)
{
    worker *w = self;
    xr_role model;
    xray_step_result result = { .head = XRAY_HEAD(xray_step_result) };
    xr_actor_phase(w->context, "optimizer_step");
    xray_status status = role_of(w, role, XR_TURN_STEP, err, &model);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(
        model.part, "optimizer_step",
        model.ops->optimizer_step(model.part->self, lr, max_norm, &result));
    if (status != XRAY_OK)
        status = xr_host_error(model.part->host, status, "optimizer_step", err);
    *out_norm = result.grad_norm;
    *out_skipped = result.skipped;
    *out_version = result.version;
    if (result.bad_tensor)
        xr_str_puts(out_bad, result.bad_tensor);
    return status;
}

static xray_status discard(void *self, uint32_t role, xr_err *err)
{
    worker *w = self;
    xr_role model;
    xray_status status = role_of(w, role, XR_TURN_GRADS, err, &model);
    if (status != XRAY_OK)
        return status;
    if (!XRAY_HAS(xray_train_ops, model.ops, discard))
        return xr_fail(err, XRAY_E_UNSUPPORTED, "%s cannot take gradients back",
                       model.part->instance);
    status =
        XR_CALL(model.part, "discard", model.ops->discard(model.part->self));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(model.part->host, status, "discard", err);
}

static xray_status files(worker *w, uint32_t role, const char *dir, int write,
                         xr_err *err)
{
    xr_role model;
    xray_status status = role_of(w, role, XR_TURN_STEP, err, &model);
    if (status != XRAY_OK)
        return status;
    const char *call = write ? "save" : "load";
    xr_actor_phase(w->context, call);
    status =
        write
            ? XR_CALL(model.part, call, model.ops->save(model.part->self, dir))
            : XR_CALL(model.part, call, model.ops->load(model.part->self, dir));
    if (status != XRAY_OK)
        status = xr_host_error(model.part->host, status, call, err);
    return status;
}

static xray_status save(void *self, uint32_t role, const char *dir, xr_err *err)
{
    return files(self, role, dir, 1, err);
}

static xray_status load(void *self, uint32_t role, const char *dir, xr_err *err)
{
    return files(self, role, dir, 0, err);
}

/* ---- the engine --------------------------------------------------------- */

static xray_status draw_rows(worker *w, const xr_draw *draw, xr_err *err)
{
    uint32_t prompts = draw->head->prompts;
    xr_row *rows = xr_calloc((size_t)prompts + 1, sizeof(*rows));
    const xr_row **pointers = xr_calloc((size_t)prompts + 1, sizeof(*pointers));
    xray_status status = XRAY_OK;
    if (!rows || !pointers)
        status =
            xr_fail(err, XRAY_E_NOMEM, "out of memory for %u prompts", prompts);
    for (uint32_t i = 0; status == XRAY_OK && i < prompts; i++) {
        rows[i].id = draw->prompt_id[i];
        rows[i].ids = draw->prompt + draw->prompt_start[i];
        rows[i].prompt_count =
            draw->prompt_start[i + 1] - draw->prompt_start[i];
        rows[i].id_count = rows[i].prompt_count;
        pointers[i] = &rows[i];
    }
    xr_samples samples = { .cap = prompts * draw->head->how.n,
                           .max_tokens = draw->head->how.max_tokens,
                           .tokens = draw->tokens,
                           .logp = draw->logp,
                           .sizes = draw->sizes,
                           .finish = draw->finish,
                           .versions = draw->versions };
    if (status == XRAY_OK)
        status = xr_samples_draw(w->session, &samples, pointers, prompts,
                                 &draw->head->how, NULL, err);
    free(rows);
    free(pointers);
    return status;
}

static xray_status draw(void *self, const xray_region *region, xr_err *err)
{
    worker *w = self;
    xr_draw wire;
    xr_actor_phase(w->context, "rollout");
    if (!w->session->infer.self)
        return xr_fail(err, XRAY_E_BUG, "rank %u has no engine",
                       w->session->rank);
    xray_status status = xr_draw_map(region->data, region->size, err, &wire);
    if (status == XRAY_OK)
        status = draw_rows(w, &wire, err);
    return status;
}

static xray_status publish(void *self, uint64_t *out_version, xr_err *err)
{
    worker *w = self;
    const xr_session *s = w->session;
    xr_actor_phase(w->context, "weights to the engine");
    xray_status status = xr_publish(w->session, err);
    if (status == XRAY_OK && s->train.self) {
        const xray_weights *weights = xr_train(s)->weights(s->train.self);
        *out_version = weights->version(weights->owner);
    }
    return status;
}

static xray_status ship_bytes(void *self, uint64_t *out, xr_err *err)
{
    worker *w = self;
    (void)err;
    *out = xr_ship_bytes(w->session);
    return XRAY_OK;
}

/* The weights go where engines of other ranks are. */
static xray_status ship(void *self, const xray_region *region, xr_err *err)
{
    worker *w = self;
    xr_actor_phase(w->context, "weights to other ranks");
    return xr_ship_write(w->session, region->data, region->size, err);
}

static xray_status ship_along(void *self, xr_err *err)
{
    worker *w = self;
    xr_actor_phase(w->context, "weights to other ranks");
    return xr_ship_write(w->session, NULL, 0, err);
}

static xray_status receive(void *self, const xray_region *region, xr_err *err)
{
    worker *w = self;
    xr_actor_phase(w->context, "weights from other ranks");
    return xr_ship_read(w->session, region->data, region->size, err);
}

static xray_status memory(void *self, xr_str *out, xr_err *err)
{
    static const char *const names[XRAY_TAG_COUNT] = {
        "weights", "gradients", "optimizer", "activations", "kv", "workspace",
    };
    worker *w = self;
    const xr_part *device = &w->session->device;
    const xray_device_ops *ops = device->ops;
    xray_memory_stats stats = { .head = XRAY_HEAD(xray_memory_stats) };
    xray_status status =
        XR_CALL(device, "memory", ops->memory(device->self, &stats));
    if (status != XRAY_OK)
        return xr_host_error(device->host, status, "memory", err);
    for (uint32_t i = 0; i < XRAY_TAG_COUNT; i++)
        if (stats.live[i])
            xr_str_printf(out, "%s%s %.1f MiB", out->size ? ", " : "", names[i],
                          (double)stats.live[i] / 1048576);
    return XRAY_OK;
}

static const xr_actor_method methods[] = {
    { "forward", "u m ->", XR_METHOD(forward) },
    { "gradients", "u m ->", XR_METHOD(gradients) },
    { "step", "u d d -> d u U s", XR_METHOD(step) },
    { "discard", "u ->", XR_METHOD(discard) },
    { "draw", "m ->", XR_METHOD(draw) },
    { "publish", "-> U", XR_METHOD(publish) },
    { "ship_bytes", "-> U", XR_METHOD(ship_bytes) },
    { "ship", "m ->", XR_METHOD(ship) },
    { "ship_along", "->", XR_METHOD(ship_along) },
    { "receive", "m ->", XR_METHOD(receive) },
    { "save", "u s ->", XR_METHOD(save) },
    { "load", "u s ->", XR_METHOD(load) },
    { "memory", "-> s", XR_METHOD(memory) },
};

const xr_actor_class xr_worker_class = {
    .name = "workhorse",
    .methods = methods,
    .method_count = sizeof(methods) / sizeof(methods[0]),
    .create = worker_create,
    .destroy = worker_destroy,
};
