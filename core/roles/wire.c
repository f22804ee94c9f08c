/* SPDX-License-Identifier: Apache-2.0
 *
 * Lays out regions that are shared with Workhorses, and checks those that
 * another process wrote.
 */
#include "core/roles/wire.h"

#include <string.h>

#include "core/roles/ratios.h"

/* Takes `bytes` from the block. Without a block, only adds up what is needed.
 */
static void *carve_array(char *base, uint64_t *used, uint64_t bytes)
{
    void *at = base ? base + *used : NULL;
    *used += (bytes + 63) & ~(uint64_t)63;
    return at;
}

static uint64_t lay_out_batch(char *base, const xr_wire_header *shape,
                              xr_wire *out)
{
    uint64_t used = 0;
    uint64_t rows = shape->row_cap;
    uint64_t tokens = shape->token_cap;
    uint64_t sums = shape->names * xr_loss_slots(shape->segments);
    out->header = carve_array(base, &used, sizeof(*out->header));
    out->index = carve_array(base, &used, rows * sizeof(uint32_t));
    out->segment = carve_array(base, &used, rows * sizeof(uint32_t));
    out->context = carve_array(base, &used, shape->context_size);
    void *memory =
        carve_array(base, &used, xr_rows_bytes(rows, tokens, shape->spans));
    out->sums = carve_array(base, &used, sums * sizeof(double));
    out->weights = carve_array(base, &used, sums * sizeof(double));
    for (int i = 0; i < 3; i++)
        out->out[i] = carve_array(base, &used, tokens * sizeof(float));
    if (base)
        xr_rows_attach(&out->rows, shape->row_cap, shape->token_cap,
                       shape->spans, memory);
    return used;
}

uint64_t xr_wire_bytes(const xr_wire_header *shape)
{
    xr_wire wire;
    return lay_out_batch(NULL, shape, &wire);
}

void xr_wire_begin(void *memory, const xr_wire_header *shape, xr_wire *out)
{
    (void)lay_out_batch(memory, shape, out);
    *out->header = *shape;
    xr_rows_clear(&out->rows);
    out->rows.row_start[0] = 0;
}

void xr_wire_close(xr_wire *wire)
{
    wire->header->rows = wire->rows.batch.rows;
    wire->header->tokens = wire->rows.batch.tokens;
    wire->header->spans = wire->rows.batch.span_count;
}

/* Has messages carry the bytes from `first` to `end`. */
static void carry_bytes(xray_region *region, const void *first, const void *end)
{
    const char *base = region->data;
    region->first = (uint64_t)((const char *)first - base);
    region->count = (uint64_t)((const char *)end - (const char *)first);
}

void xr_wire_carry_inputs(const xr_wire *wire, xray_region *region)
{
    carry_bytes(region, region->data, wire->out[0]);
}

void xr_wire_carry_results(const xr_wire *wire, xray_region *region)
{
    carry_bytes(region, wire->sums,
                (const char *)region->data + xr_wire_bytes(wire->header));
}

xray_status xr_wire_map(void *memory, uint64_t size, xr_err *err, xr_wire *out)
{
    xr_wire_header header;
    if (size < sizeof(header))
        return xr_fail(err, XRAY_E_BUG, "a batch of %llu bytes has no header",
                       (unsigned long long)size);
    memcpy(&header, memory, sizeof(header));
    if (header.names > size || header.context_size > size ||
        header.rows > header.row_cap || header.tokens > header.token_cap ||
        header.segments > size || header.row_cap >= INT32_MAX ||
        header.ratios > header.names ||
        (header.ratios && header.ratios != XR_RATIO_BUCKETS) ||
        header.token_cap > INT32_MAX || xr_wire_bytes(&header) > size)
        return xr_fail(err, XRAY_E_BUG,
                       "a batch of %u rows and %u tokens is not in its %llu "
                       "bytes",
                       header.rows, header.tokens, (unsigned long long)size);
    (void)lay_out_batch(memory, &header, out);
    out->rows.batch.rows = header.rows;
    out->rows.batch.tokens = header.tokens;
    out->rows.batch.span_count = header.spans;
    for (uint32_t r = 0; header.segments && r < header.rows; r++)
        if (out->segment[r] >= header.segments)
            return xr_fail(err, XRAY_E_BUG,
                           "row %u is of segment %u, expected one below %u", r,
                           out->segment[r], header.segments);
    return XRAY_OK;
}

uint64_t xr_wire_aside(xr_wire *wire, void *memory)
{
    const xr_wire_header *shape = wire->header;
    uint64_t used = 0;
    uint64_t count = shape->names * xr_loss_slots(shape->segments);
    double *sums = carve_array(memory, &used, count * sizeof(double));
    double *weights = carve_array(memory, &used, count * sizeof(double));
    float *out[3];
    for (int i = 0; i < 3; i++)
        out[i] = carve_array(memory, &used, shape->token_cap * sizeof(*out[i]));
    if (!memory)
        return used;
    memset(memory, 0, (size_t)used);
    wire->sums = sums;
    wire->weights = weights;
    memcpy(wire->out, out, sizeof(out));
    return used;
}

xray_status xr_wire_cut(const xr_run *run, uint32_t role, const xr_wire *wire,
                        xr_views *views, xr_err *err)
{
    const xr_cut cut = { .count = wire->rows.batch.rows,
                         .budget = xr_run_workload(run, role).tokens,
                         .prompts = wire->header->prompts,
                         .row_index = wire->index,
                         .segment =
                             wire->header->segments ? wire->segment : NULL };
    return xr_views_cut(views, &wire->rows, &cut, err);
}

/* ---- prompts and samples ------------------------------------------------ */

static void lay_out_samples(char *base, const xr_wire_rollout_header *shape,
                            uint64_t *used, xr_wire_rollout *out)
{
    uint64_t samples = (uint64_t)shape->prompts * shape->how.n;
    uint64_t tokens = samples * shape->how.max_tokens;
    out->versions = carve_array(base, used, samples * sizeof(uint64_t));
    out->sizes = carve_array(base, used, samples * sizeof(uint32_t));
    out->finish = carve_array(base, used, samples * sizeof(uint32_t));
    out->tokens = carve_array(base, used, tokens * sizeof(int32_t));
    out->logp = carve_array(base, used, tokens * sizeof(float));
}

static uint64_t lay_out_rollout(char *base, const xr_wire_rollout_header *shape,
                                xr_wire_rollout *out)
{
    uint64_t used = 0;
    uint64_t prompts = shape->prompts;
    out->header = carve_array(base, &used, sizeof(*out->header));
    out->prompt_id = carve_array(base, &used, prompts * sizeof(uint64_t));
    out->prompt_start =
        carve_array(base, &used, (prompts + 1) * sizeof(uint32_t));
    out->prompt = carve_array(base, &used, shape->ids * sizeof(int32_t));
    lay_out_samples(base, shape, &used, out);
    return used;
}

uint64_t xr_wire_rollout_aside(xr_wire_rollout *rollout, void *memory)
{
    xr_wire_rollout copy = *rollout;
    uint64_t used = 0;
    lay_out_samples(memory, rollout->header, &used, &copy);
    if (memory)
        *rollout = copy;
    return used;
}

uint64_t xr_wire_rollout_bytes(const xr_wire_rollout_header *shape)
{
    xr_wire_rollout rollout;
    return lay_out_rollout(NULL, shape, &rollout);
}

void xr_wire_rollout_begin(void *memory, const xr_wire_rollout_header *shape,
                           xr_wire_rollout *out)
{
    (void)lay_out_rollout(memory, shape, out);
    *out->header = *shape;
    out->prompt_start[0] = 0;
}

void xr_wire_rollout_carry_inputs(const xr_wire_rollout *rollout,
                                  xray_region *region)
{
    carry_bytes(region, region->data, rollout->versions);
}

void xr_wire_rollout_carry_results(const xr_wire_rollout *rollout,
                                   xray_region *region)
{
    carry_bytes(region, rollout->versions,
                (const char *)region->data +
                    xr_wire_rollout_bytes(rollout->header));
}

xray_status xr_wire_rollout_map(void *memory, uint64_t size, xr_err *err,
                                xr_wire_rollout *out)
{
    xr_wire_rollout_header header;
    if (size < sizeof(header))
        return xr_fail(err, XRAY_E_BUG, "prompts of %llu bytes have no header",
                       (unsigned long long)size);
    memcpy(&header, memory, sizeof(header));
    if (header.prompts > size || header.ids > size || header.how.n > size ||
        header.how.max_tokens > size ||
        (double)header.prompts * header.how.n * header.how.max_tokens >
            (double)size ||
        xr_wire_rollout_bytes(&header) > size)
        return xr_fail(err, XRAY_E_BUG,
                       "%u prompts are not in their %llu bytes", header.prompts,
                       (unsigned long long)size);
    (void)lay_out_rollout(memory, &header, out);
    for (uint32_t i = 0; i < header.prompts; i++)
        if (out->prompt_start[i + 1] < out->prompt_start[i] ||
            out->prompt_start[i + 1] > header.ids)
            return xr_fail(err, XRAY_E_BUG, "prompt %u ends outside of them",
                           i);
    return XRAY_OK;
}
