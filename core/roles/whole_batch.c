/* SPDX-License-Identifier: Apache-2.0
 *
 * Deals batches to the replicas of a model, and prompts to the engines.
 */
#include <string.h>

#include "core/roles/nonfinite.h"
#include "core/roles/whole_inner.h"
#include "core/roles/wire.h"

/* ---- dealing ------------------------------------------------------------ */

static uint32_t count_row_tokens(const xr_whole *w, uint32_t row)
{
    return w->start[row + 1] - w->start[row];
}

/* Measures the rows of the views, and the cost and the segment of each unit. A
 * unit goes to one replica: a row, or a group whose prompt is shared. */
static xray_status measure_units(xr_whole *w, const xr_views *views,
                                 uint32_t *out_units, xr_err *err)
{
    uint32_t rows = 0;
    uint32_t units = 0;
    w->start[0] = 0;
    for (uint32_t v = 0; v < views->count; v++) {
        const xray_batch *b = views->pointers[v];
        if (b->rows > w->row_cap - rows)
            return xr_fail(err, XRAY_E_BUG, "more rows than the %u of a step",
                           w->row_cap);
        for (uint32_t r = 0, n = 0; r < b->rows; r++, rows++, n--) {
            uint32_t tokens = (uint32_t)(b->row_start[r + 1] - b->row_start[r]);
            if (n == 0) {
                n = xr_rows_unit(b->group, r, b->rows, views->prompts);
                w->part[units] = b->segment;
                w->cost[units++] = 0;
            }
            w->start[rows + 1] = w->start[rows] + tokens;
            w->unit[rows] = units - 1;
            w->cost[units - 1] += xr_balance_cost(tokens, w->per_token);
        }
    }
    *out_units = units;
    return XRAY_OK;
}

/* Gives each unit to the replica that has its segment. */
static void deal_segments(xr_whole *w, uint32_t role, const xr_replicas *all,
                          uint32_t units, uint32_t segments)
{
    int in_turn =
        xr_run_layout(w->run, role)->segments == XRAY_SEGMENTS_IN_TURN;
    for (uint32_t i = 0; i < units; i++)
        w->part[i] = in_turn ? w->part[i] % all->count
                             : w->part[i] / (segments / all->count);
}

/* Returns the Workhorse that answers for replica r. */
static xr_horse *answering_horse(xr_whole *w, const xr_replicas *all,
                                 uint32_t r)
{
    return &w->horse[xr_replicas_answering(all, r)];
}

/* Counts rows, tokens and spans of each replica. */
static void count_replica_rows(xr_whole *w, const xr_replicas *all,
                               const xr_views *views)
{
    uint32_t row = 0;
    for (uint32_t i = 0; i < all->count; i++) {
        xr_horse *h = answering_horse(w, all, i);
        h->rows = h->tokens = h->spans = 0;
    }
    for (uint32_t v = 0; v < views->count; v++)
        for (uint32_t r = 0; r < views->pointers[v]->rows; r++, row++) {
            const xray_batch *b = views->pointers[v];
            xr_horse *h = answering_horse(w, all, w->part[w->unit[row]]);
            h->rows++;
            h->tokens += count_row_tokens(w, row);
            h->spans += xr_rows_find_span(b, r + 1) - xr_rows_find_span(b, r);
        }
}

/* All replicas get the number of micro-batches that the fullest one has, since
 * each is a collective call. */
static xray_status count_micro_batches(xr_whole *w, uint32_t role,
                                       const xr_replicas *all, xr_wire *wires,
                                       xr_err *err)
{
    xray_status status = XRAY_OK;
    uint32_t most = 0;
    for (uint32_t i = 0; i < all->count && status == XRAY_OK; i++) {
        status = xr_wire_cut(w->run, role, &wires[i], &w->views, err);
        most = w->views.count > most ? w->views.count : most;
    }
    for (uint32_t i = 0; i < all->count && status == XRAY_OK; i++)
        wires[i].header->views = most;
    return status;
}

/* Writes the rows of each replica, in ascending order, to a region. */
static xray_status pack_replica_rows(xr_whole *w, const xr_replicas *all,
                                     const xr_views *views,
                                     const xr_wire_header *shape,
                                     xr_wire *wires, xr_err *err)
{
    xray_status status = XRAY_OK;
    uint32_t row = 0;
    for (uint32_t i = 0; i < all->count && status == XRAY_OK; i++) {
        xr_horse *h = answering_horse(w, all, i);
        xr_wire_header header = *shape;
        header.row_cap = h->rows;
        header.token_cap = h->tokens;
        header.spans = h->spans;
        status =
            xr_region_get(w->actors, xr_wire_bytes(&header), err, &h->region);
        if (status == XRAY_OK)
            xr_wire_begin(h->region->data, &header, &wires[i]);
    }
    for (uint32_t v = 0; v < views->count && status == XRAY_OK; v++)
        for (uint32_t r = 0; r < views->pointers[v]->rows; r++, row++) {
            xr_wire *wire = &wires[w->part[w->unit[row]]];
            wire->index[wire->rows.batch.rows] = row;
            wire->segment[wire->rows.batch.rows] = views->pointers[v]->segment;
            status = xr_rows_copy_from(&wire->rows, views->pointers[v], r, err);
            if (status != XRAY_OK)
                return status;
        }
    for (uint32_t i = 0; i < all->count && status == XRAY_OK; i++) {
        xr_wire_close(&wires[i]);
        xr_wire_carry_inputs(&wires[i], answering_horse(w, all, i)->region);
    }
    return status;
}

static xray_status deal_rows(xr_whole *w, uint32_t role, const xr_views *views,
                             const xr_wire_header *shape, xr_wire *wires,
                             xr_err *err)
{
    const xr_replicas all = xr_replicas_of(w->run, role);
    uint32_t units = 0;
    xray_status status = xr_whole_check_fit(w, err);
    if (status == XRAY_OK)
        status = measure_units(w, views, &units, err);
    if (status != XRAY_OK)
        return status;
    if (shape->segments)
        deal_segments(w, role, &all, units, shape->segments);
    else
        xr_balance_deal(&w->balance, w->cost, units, all.count, w->part);
    count_replica_rows(w, &all, views);
    status = pack_replica_rows(w, &all, views, shape, wires, err);
    return status == XRAY_OK ? count_micro_batches(w, role, &all, wires, err)
                             : status;
}

/* Finds the Workhorse at a position of the role, and the region of its replica.
 */
static xr_horse *horse_at(xr_whole *w, const xr_replicas *all, uint32_t at,
                          xray_region **out_region)
{
    *out_region = answering_horse(w, all, at / all->width)->region;
    return &w->horse[all->ranks->rank[at]];
}

/* ---- forward ------------------------------------------------------------ */

/* Copies the outputs of a replica back to the rows they belong to. */
static void restore_outputs(const xr_whole *w, const xr_wire *wire,
                            const xray_outputs *out)
{
    float *const to[3] = { out->logp, out->entropy, out->value };
    for (uint32_t r = 0; r < wire->rows.batch.rows; r++) {
        size_t from = (size_t)wire->rows.row_start[r];
        size_t at = w->start[wire->index[r]];
        size_t bytes = count_row_tokens(w, wire->index[r]) * sizeof(float);
        for (int k = 0; k < 3; k++)
            if (to[k])
                memcpy(to[k] + at, wire->out[k] + from, bytes);
    }
}

static xray_status call_forward(xr_whole *w, const xr_replicas *all,
                                uint32_t role, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t at = 0; at < all->ranks->count && status == XRAY_OK; at++) {
        xray_region *region = NULL;
        xr_horse *h = horse_at(w, all, at, &region);
        status = xr_actor_call(h->actor, "forward", err, &h->future, role,
                               region, XR_NO_REGION);
    }
    return xr_whole_wait(w, all->ranks, status, err);
}

xray_status xr_whole_forward(xr_roles *roles, uint32_t role,
                             const xr_views *views, uint32_t outputs,
                             const xray_outputs *out, xr_err *err)
{
    xr_whole *w = roles->whole;
    const xr_replicas all = xr_replicas_of(w->run, role);
    xr_wire wires[XR_MAX_RANKS];
    xr_wire_header shape = { .outputs = outputs, .prompts = views->prompts };
    xray_status status = deal_rows(w, role, views, &shape, wires, err);
    if (status == XRAY_OK)
        status = call_forward(w, &all, role, err);
    for (uint32_t i = 0; i < all.count && status == XRAY_OK; i++)
        restore_outputs(w, &wires[i], out);
    xr_whole_put_regions(w);
    return status;
}

/* ---- gradients ---------------------------------------------------------- */

static xray_status discard_gradients(xr_whole *w, const xr_ranks *ranks,
                                     uint32_t role, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < ranks->count && status == XRAY_OK; i++) {
        xr_horse *h = &w->horse[ranks->rank[i]];
        status = xr_actor_call(h->actor, "discard", err, &h->future, role);
    }
    return xr_whole_wait(w, ranks, status, err);
}

/* The first replica continues from the present sums, so that a single replica
 * adds exactly like a model in this process, bit for bit. */
static void start_loss_sums(xr_wire *wire, const xr_loss_spec *from)
{
    const xr_wire_header *shape = wire->header;
    uint64_t sums = shape->names * xr_loss_slots(shape->segments);
    for (uint64_t k = 0; k < sums; k++) {
        wire->sums[k] = from ? from->sums[k] : 0;
        wire->weights[k] = from && from->weights ? from->weights[k] : 0;
    }
}

static void take_loss_sums(const xr_wire *wire, int add, const xr_loss_spec *to)
{
    uint64_t sums = to->names * xr_loss_slots(to->segments);
    for (uint64_t k = 0; k < sums; k++) {
        to->sums[k] = wire->sums[k] + (add ? to->sums[k] : 0);
        if (to->weights)
            to->weights[k] = wire->weights[k] + (add ? to->weights[k] : 0);
    }
}

static xray_status call_gradients(xr_whole *w, const xr_replicas *all,
                                  uint32_t role, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t at = 0; at < all->ranks->count && status == XRAY_OK; at++) {
        xray_region *region = NULL;
        xr_horse *h = horse_at(w, all, at, &region);
        xr_str_clear(&h->fault);
        status = xr_actor_call(h->actor, "gradients", err, &h->future, role,
                               region, XR_NO_REGION, &h->fault);
    }
    return xr_whole_wait(w, all->ranks, status, err);
}

/* Takes the first fault. One that only another rank of the replica found counts
 * as well, because its part of the gradients is wrong. */
static void take_fault(const xr_whole *w, const xr_ranks *ranks, xr_err *fault)
{
    for (uint32_t i = 0; i < ranks->count && !*fault->text; i++) {
        const xr_str *text = &w->horse[ranks->rank[i]].fault;
        if (text->size)
            (void)xr_fail(fault, XRAY_E_NUMERIC, "%s", xr_str_text(text));
    }
}

xray_status xr_whole_gradients(xr_roles *roles, uint32_t role,
                               const xr_views *views, const xr_loss_spec *spec,
                               xr_err *fault, xr_err *err)
{
    xr_whole *w = roles->whole;
    const xr_replicas all = xr_replicas_of(w->run, role);
    xr_wire wires[XR_MAX_RANKS];
    xr_wire_header shape = { .outputs = spec->outputs,
                             .loss = spec->kind,
                             .prompts = views->prompts,
                             .names = spec->names,
                             .ratios = spec->ratios,
                             .segments = spec->segments,
                             .context_size = spec->context_size };
    fault->text[0] = '\0';
    xray_status status = deal_rows(w, role, views, &shape, wires, err);
    for (uint32_t i = 0; i < all.count && status == XRAY_OK; i++) {
        start_loss_sums(&wires[i], i == 0 ? spec : NULL);
        memcpy(wires[i].context, spec->context, spec->context_size);
    }
    if (status == XRAY_OK)
        status = call_gradients(w, &all, role, err);
    for (uint32_t i = 0; i < all.count && status == XRAY_OK; i++)
        take_loss_sums(&wires[i], i > 0, spec);
    if (status == XRAY_OK)
        take_fault(w, all.ranks, fault);
    xr_whole_put_regions(w);
    if (status == XRAY_OK && *fault->text)
        status = discard_gradients(w, all.ranks, role, err);
    /* The call fails as it does for models in this process. */
    return status == XRAY_OK && *fault->text
               ? xr_fail(err, xr_nonfinite_loss(roles), "%s", fault->text)
               : status;
}

/* ---- rollout ------------------------------------------------------------ */

/* Prompts i, i + engines, i + 2 engines, ... go to engine i. */
static uint32_t count_engine_prompts(uint32_t count, uint32_t engines,
                                     uint32_t i)
{
    return count > i ? (count - i - 1) / engines + 1 : 0;
}

static xray_status pack_prompts(xr_whole *w, const xr_replicas *engines,
                                uint32_t i, const xr_row *const *rows,
                                uint32_t count, const xr_sampling *how,
                                xr_wire_rollout *out, xr_err *err)
{
    xr_horse *h = answering_horse(w, engines, i);
    xr_wire_rollout_header header = {
        .prompts = count_engine_prompts(count, engines->count, i), .how = *how
    };
    for (uint32_t k = i; k < count; k += engines->count)
        header.ids += rows[k]->prompt_count;
    xray_status status = xr_region_get(
        w->actors, xr_wire_rollout_bytes(&header), err, &h->region);
    if (status != XRAY_OK)
        return status;
    xr_wire_rollout_begin(h->region->data, &header, out);
    for (uint32_t k = i, p = 0; k < count; k += engines->count, p++) {
        uint32_t at = out->prompt_start[p];
        out->prompt_id[p] = rows[k]->id;
        memcpy(out->prompt + at, rows[k]->ids,
               rows[k]->prompt_count * sizeof(int32_t));
        out->prompt_start[p + 1] = at + rows[k]->prompt_count;
    }
    xr_wire_rollout_carry_inputs(out, h->region);
    return XRAY_OK;
}

/* The samples of a call, which are taken engine by engine. */
typedef struct rollout {
    xr_roles *roles;
    xr_samples *samples;
    xr_replicas engines;
    xr_wire_rollout wires[XR_MAX_RANKS];
    uint8_t taken[XR_MAX_RANKS];
} rollout;

/* Copies the samples of engine i to their places. */
static xray_status take_engine_samples(rollout *r, uint32_t i, xr_err *err)
{
    xr_samples *to = r->samples;
    const xr_wire_rollout *from = &r->wires[i];
    uint32_t n = from->header->how.n;
    size_t max = from->header->how.max_tokens;
    xray_status status = XRAY_OK;
    for (size_t source = 0;
         source < (size_t)from->header->prompts * n && status == XRAY_OK;
         source++) {
        size_t at = (i + source / n * r->engines.count) * n + source % n;
        uint32_t size = from->sizes[source];
        size = size < to->max_tokens ? size : to->max_tokens;
        memcpy(to->tokens + at * to->max_tokens, from->tokens + source * max,
               size * sizeof(int32_t));
        memcpy(to->logp + at * to->max_tokens, from->logp + source * max,
               size * sizeof(float));
        to->sizes[at] = size;
        to->finish[at] = from->finish[source];
        to->versions[at] = from->versions[source];
        status = xr_samples_arrived(r->roles, to, (uint32_t)at, err);
    }
    return status;
}

/* Takes the samples of the engines that have answered. */
static xray_status take_answered(void *ctx, xr_err *err)
{
    rollout *r = ctx;
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < r->engines.count && status == XRAY_OK; i++) {
        if (r->taken[i] ||
            answering_horse(r->roles->whole, &r->engines, i)->future)
            continue;
        r->taken[i] = 1;
        status = take_engine_samples(r, i, err);
    }
    return status == XRAY_OK ? xr_samples_look(r->samples, err) : status;
}

/* The ranks of one engine get the same requests in the same order. */
static xray_status generate_on_engines(rollout *r, xr_err *err)
{
    xr_whole *w = r->roles->whole;
    xray_status status = XRAY_OK;
    for (uint32_t at = 0; at < r->engines.ranks->count && status == XRAY_OK;
         at++) {
        xray_region *region = NULL;
        xr_horse *h = horse_at(w, &r->engines, at, &region);
        status = xr_actor_call(h->actor, "generate", err, &h->future, region,
                               XR_NO_REGION);
    }
    w->beside = take_answered;
    w->beside_ctx = r;
    status = xr_whole_wait_each(w, &r->engines, status, err);
    w->beside = NULL;
    return status;
}

xray_status xr_whole_generate(xr_roles *roles, xr_samples *samples,
                              const xr_row *const *rows, uint32_t count,
                              const xr_sampling *how, xr_err *err)
{
    xr_whole *w = roles->whole;
    rollout r = { .roles = roles,
                  .samples = samples,
                  .engines = xr_replicas_of(w->run, XRAY_ROLE_ROLLOUT) };
    xray_status status = xr_whole_check_fit(w, err);
    for (uint32_t i = 0; i < r.engines.count && status == XRAY_OK; i++)
        status =
            pack_prompts(w, &r.engines, i, rows, count, how, &r.wires[i], err);
    if (status == XRAY_OK)
        status = generate_on_engines(&r, err);
    if (status == XRAY_E_NUMERIC)
        roles->nonfinite = 1;
    xr_whole_put_regions(w);
    return status;
}
