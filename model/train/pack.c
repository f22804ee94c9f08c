/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a batch, packs the tokens that its outputs depend on, and moves
 * outputs and gradients between packed items and tokens.
 */
#include "model/train/pack.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/train/host_memory.h"

/* A slot of the host's arrays is part 1u << slot, and all others are this. */
#define PACKED_PART (1u << XM_PACK_SLOTS)

/* The arrays that host and device both hold, in one block of memory; each array
 * is padded to a cache line. */
typedef struct pack_arrays {
    int32_t *ids;
    int32_t *positions;
    int32_t *row_start;
    int32_t *parent;
    int32_t *index;
    int32_t *target;
    float *temperature;
    float *slots[XM_PACK_SLOTS];
    xm_context_arrays context; /* where ranks divide rows */
} pack_arrays;

struct xm_packer {
    const xray_device_ops *device;
    void *device_self;
    xm_pack_limits limits;
    int has_parents; /* 1: the device supports parent rows */
    void *device_block;
    xm_staging staging; /* the host's arrays; without memory where it reads and
                         * writes device memory itself */
    pack_arrays dev;
    pack_arrays host;
    void *whole_block; /* NULL: no ranks divide rows */
    pack_arrays whole; /* on the host, of all ranks that divide rows */
    int32_t *token;    /* [tokens] token of each item in the batch */
    int32_t *item_row; /* [tokens] row of each item */
    int32_t *item_col; /* [tokens] offset of each item's token in its row */
    int32_t *place;    /* [tokens] where each item is among those of all ranks,
                        * each of which has `most` */
    int32_t *item_of;  /* [tokens of all ranks] the item of a token, or -1 */
    uint32_t count;    /* number of items in the last batch, of all ranks, */
    uint32_t own;      /* of this one, */
    uint32_t most;     /* and of the rank that has most */
};

static uint64_t pad_count(uint64_t count)
{
    return (count + 15u) & ~(uint64_t)15u;
}

uint64_t xm_packed_rows(uint64_t rows)
{
    return rows + rows / 2;
}

static int is_divided(const xm_pack_limits *limits)
{
    return limits->context.ranks > 1;
}

/* Tokens for which an array has room: as many for each of the ranks. */
static uint64_t room_for_tokens(const xm_pack_limits *limits)
{
    return pad_count(limits->tokens +
                     (is_divided(limits) ? limits->context.ranks : 0));
}

/* Size of one block in words of 4 bytes. */
static uint64_t block_words(const xm_pack_limits *limits)
{
    uint64_t per_token = 5u + XM_PACK_SLOTS + (is_divided(limits) ? 1 : 0);
    uint64_t per_row = is_divided(limits) ? 6 : 2;
    return per_token * room_for_tokens(limits) +
           per_row * pad_count(xm_packed_rows(limits->rows) + 1);
}

static void divide_block(void *block, const xm_pack_limits *limits,
                         pack_arrays *out)
{
    int32_t *words = block;
    uint64_t step = room_for_tokens(limits);
    out->ids = words;
    out->positions = words + step;
    out->index = words + 2 * step;
    out->target = words + 3 * step;
    uint64_t rows = pad_count(xm_packed_rows(limits->rows) + 1);
    out->row_start = words + 4 * step;
    out->parent = out->row_start + rows;
    float *floats = (float *)block + 4 * step + 2 * rows;
    out->temperature = floats;
    for (uint32_t i = 0; i < XM_PACK_SLOTS; i++)
        out->slots[i] = floats + (1 + i) * step;
    if (!is_divided(limits))
        return;
    words += (5 + XM_PACK_SLOTS) * step + 2 * rows;
    out->context = (xm_context_arrays){ words,
                                        { words + step, words + step + rows },
                                        { words + step + 2 * rows,
                                          words + step + 3 * rows } };
}

uint64_t xm_packer_bytes(const xm_pack_limits *limits)
{
    return block_words(limits) * 4;
}

/* Allocates what ranks that divide rows have of all of them. */
static xray_status alloc_whole(xm_packer *packer, const char *owner,
                               xr_err *err)
{
    const xm_pack_limits *limits = &packer->limits;
    uint64_t room = room_for_tokens(limits);
    packer->whole_block = xr_calloc(block_words(limits), 4);
    packer->place = xr_calloc(2 * (size_t)room, 4);
    if (!packer->whole_block || !packer->place)
        return xr_fail(err, XRAY_E_NOMEM, "%s: no host memory for packing",
                       owner);
    packer->item_of = packer->place + room;
    divide_block(packer->whole_block, limits, &packer->whole);
    return XRAY_OK;
}

static xray_status alloc_packer(xm_packer *packer, const char *owner,
                                xr_err *err)
{
    const xm_pack_limits *limits = &packer->limits;
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    xray_status status = packer->device->info(packer->device_self, &info);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "the device gives no information about itself");
    packer->has_parents = (info.features & XRAY_DEVICE_PARENTS) != 0;
    status =
        packer->device->alloc(packer->device_self, owner, XRAY_TAG_WORKSPACE,
                              xm_packer_bytes(limits), &packer->device_block);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: no %" PRIu64 " bytes of device memory for packing",
                       owner, xm_packer_bytes(limits));
    divide_block(packer->device_block, limits, &packer->dev);
    packer->host = packer->dev;
    packer->token = xr_calloc(3 * (size_t)limits->tokens + 1, 4);
    if (!info.host_memory)
        status = xm_staging_open(&packer->staging, packer->device,
                                 packer->device_self, owner,
                                 xm_packer_bytes(limits), err);
    if (status != XRAY_OK)
        return status;
    if (!packer->token)
        return xr_fail(err, XRAY_E_NOMEM, "%s: no host memory for packing",
                       owner);
    packer->item_row = packer->token + limits->tokens;
    packer->item_col = packer->item_row + limits->tokens;
    if (packer->staging.memory.data)
        divide_block(packer->staging.memory.data, limits, &packer->host);
    packer->whole = packer->host;
    return is_divided(limits) ? alloc_whole(packer, owner, err) : XRAY_OK;
}

xray_status xm_packer_create(const xm_pack_limits *limits,
                             const xray_device_ops *device, void *device_self,
                             const char *owner, xr_err *err, xm_packer **out)
{
    if (limits->tokens > INT32_MAX || limits->rows > INT32_MAX)
        return xr_fail(err, XRAY_E_RANGE,
                       "%s: a micro-batch of %" PRIu64 " tokens and %" PRIu64
                       " rows is larger than 2^31 - 1",
                       owner, limits->tokens, limits->rows);
    xm_packer *packer = calloc(1, sizeof(*packer));
    if (!packer)
        return xr_fail(err, XRAY_E_NOMEM, "%s: no memory for packing", owner);
    packer->device = device;
    packer->device_self = device_self;
    packer->limits = *limits;
    xray_status status = alloc_packer(packer, owner, err);
    if (status != XRAY_OK) {
        xm_packer_destroy(packer);
        return status;
    }
    *out = packer;
    return XRAY_OK;
}

void xm_packer_destroy(xm_packer *packer)
{
    if (!packer)
        return;
    xm_staging_close(&packer->staging);
    packer->device->free(packer->device_self, packer->device_block);
    free(packer->whole_block);
    free(packer->place);
    free(packer->token);
    free(packer);
}

/* ---- checking ----------------------------------------------------------- */

static xray_status check_row(const xm_pack_limits *limits,
                             const xray_batch *batch, uint32_t row, xr_err *err)
{
    int64_t first = batch->row_start[row];
    int64_t last = batch->row_start[row + 1];
    if (last < first || last > (int64_t)batch->tokens)
        return xr_fail(err, XRAY_E_ARG,
                       "row %" PRIu32 ": row_start goes from %" PRId64
                       " to %" PRId64 " in a batch of %" PRIu32 " tokens",
                       row, first, last, batch->tokens);
    if ((uint64_t)(last - first) > limits->row_tokens)
        return xr_fail(err, XRAY_E_RANGE,
                       "row %" PRIu32 " has %" PRId64
                       " tokens, but the instance was made for %" PRIu64,
                       row, last - first, limits->row_tokens);
    for (int64_t t = first; t < last; t++)
        if (batch->ids[t] < 0 || (uint64_t)batch->ids[t] >= limits->vocab)
            return xr_fail(err, XRAY_E_RANGE,
                           "row %" PRIu32 ", token %" PRId64 ": id %" PRId32
                           " is outside the vocabulary of %" PRIu64,
                           row, t - first, batch->ids[t], limits->vocab);
    float temperature = batch->temperature ? batch->temperature[row] : 1.0f;
    if (!isfinite(temperature) || temperature <= 0)
        return xr_fail(err, XRAY_E_ARG,
                       "row %" PRIu32
                       ": temperature %g is not a finite number above 0",
                       row, (double)temperature);
    return XRAY_OK;
}

static xray_status check_batch(const xm_pack_limits *limits,
                               const xray_batch *batch, xr_err *err)
{
    if (batch->tokens > limits->tokens || batch->rows > limits->rows)
        return xr_fail(err, XRAY_E_RANGE,
                       "a batch of %" PRIu32 " tokens in %" PRIu32
                       " rows, but the instance was made for %" PRIu64
                       " tokens in %" PRIu64 " rows",
                       batch->tokens, batch->rows, limits->tokens,
                       limits->rows);
    if (batch->rows == 0)
        return XRAY_OK;
    if (!batch->ids || !batch->row_start)
        return xr_fail(err, XRAY_E_ARG, "the batch has no ids or no row_start");
    if (batch->row_start[0] != 0 ||
        batch->row_start[batch->rows] != (int32_t)batch->tokens)
        return xr_fail(err, XRAY_E_ARG,
                       "row_start goes from %" PRId32 " to %" PRId32
                       ", expected 0 to %" PRIu32,
                       batch->row_start[0], batch->row_start[batch->rows],
                       batch->tokens);
    for (uint32_t row = 0; row < batch->rows; row++) {
        xray_status status = check_row(limits, batch, row, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

/* ---- packing ------------------------------------------------------------ */

static int is_wanted(const xray_batch *batch, int32_t token)
{
    return !batch->loss_mask || batch->loss_mask[token] != 0;
}

/* Number of tokens of a row that its outputs depend on. */
static int32_t count_inputs(const xray_batch *batch, uint32_t row)
{
    int32_t first = batch->row_start[row];
    for (int32_t t = batch->row_start[row + 1] - 1; t > first; t--)
        if (is_wanted(batch, t))
            return t - first;
    return 0;
}

/* True if no output of a prompt is wanted, but some output after it is. */
static int is_prompt_shareable(const xray_batch *batch, uint32_t row,
                               int32_t prompt)
{
    int32_t first = batch->row_start[row];
    if (count_inputs(batch, row) < prompt)
        return 0;
    for (int32_t t = first + 1; t < first + prompt; t++)
        if (is_wanted(batch, t))
            return 0;
    return 1;
}

static int has_same_prompt(const xray_batch *batch, uint32_t row,
                           uint32_t other)
{
    int32_t prompt = batch->prompt_len[row];
    return batch->group[other] == batch->group[row] &&
           batch->prompt_len[other] == prompt &&
           is_prompt_shareable(batch, other, prompt) &&
           memcmp(batch->ids + batch->row_start[row],
                  batch->ids + batch->row_start[other],
                  (size_t)prompt * sizeof(*batch->ids)) == 0;
}

/* Number of rows from `row` on that share one prompt; 1 if `row` shares its
 * prompt with no other. */
static uint32_t count_sharing_rows(const xm_packer *packer,
                                   const xray_batch *batch, uint32_t row)
{
    uint32_t end = row + 1;
    if (!packer->has_parents || is_divided(&packer->limits) ||
        !XRAY_HAS(xray_batch, batch, share_prompts) || !batch->group ||
        !batch->prompt_len || batch->prompt_len[row] < 2 ||
        !is_prompt_shareable(batch, row, batch->prompt_len[row]))
        return 1;
    while (end < batch->rows && has_same_prompt(batch, row, end))
        end++;
    return end - row;
}

/* Appends the inputs first <= i < last of a row as the next packed row. */
static void pack_row(xm_packer *packer, const xray_batch *batch, uint32_t row,
                     const int32_t range[2], int32_t parent, xm_pack *pack)
{
    const pack_arrays *whole = &packer->whole;
    int32_t *ids = whole->ids + pack->tokens;
    int32_t *positions = whole->positions + pack->tokens;
    int32_t count = range[1] - range[0];
    memcpy(ids, batch->ids + batch->row_start[row] + range[0],
           (size_t)count * sizeof(*ids));
    for (int32_t i = 0; i < count; i++)
        positions[i] = range[0] + i;
    whole->parent[pack->rows] = parent;
    pack->tokens += (uint32_t)count;
    whole->row_start[++pack->rows] = (int32_t)pack->tokens;
    if ((uint64_t)range[1] > pack->row_bound)
        pack->row_bound = (uint64_t)range[1];
}

/* Appends the items of the inputs first <= i < last, of which the first is
 * packed token `base`. */
static void pack_items(xm_packer *packer, const xray_batch *batch, uint32_t row,
                       const int32_t range[2], int32_t base)
{
    int32_t first = batch->row_start[row];
    for (int32_t i = range[0]; i < range[1]; i++) {
        int32_t token = first + i + 1;
        if (!is_wanted(batch, token))
            continue;
        uint32_t item = packer->count++;
        packer->whole.index[item] = base + i - range[0];
        packer->whole.target[item] = batch->ids[token];
        packer->whole.temperature[item] =
            batch->temperature ? batch->temperature[row] : 1.0f;
        packer->token[item] = token;
        packer->item_row[item] = (int32_t)row;
        packer->item_col[item] = i + 1;
    }
}

/* Packs the rows [row, row + count), which share a prompt if there are several.
 * Returns whether they do. */
static int pack_rows(xm_packer *packer, const xray_batch *batch, uint32_t row,
                     uint32_t count, xm_pack *pack)
{
    int32_t shared = count > 1 ? batch->prompt_len[row] - 1 : 0;
    int32_t parent = count > 1 ? (int32_t)pack->rows : -1;
    const int32_t prompt[2] = { 0, shared };
    if (count > 1)
        pack_row(packer, batch, row, prompt, -1, pack);
    for (uint32_t r = row; r < row + count; r++) {
        const int32_t range[2] = { shared, count_inputs(batch, r) };
        int32_t base = (int32_t)pack->tokens;
        if (range[1] == 0)
            continue;
        pack_row(packer, batch, r, range, parent, pack);
        pack_items(packer, batch, r, range, base);
    }
    return count > 1;
}

/* ---- ranks that divide rows --------------------------------------------- */

static uint64_t tokens_of_each(const xm_packer *packer, uint64_t tokens)
{
    return xm_context_each(tokens, packer->limits.context.ranks);
}

/* Takes the rank's items, in the order of its tokens, and finds the place of
 * every item among those of all ranks. */
static void divide_items(xm_packer *packer, uint64_t tokens)
{
    const xm_join *context = &packer->limits.context;
    const pack_arrays *whole = &packer->whole;
    const int32_t *order = packer->host.context.order;
    int32_t each = (int32_t)tokens_of_each(packer, tokens);
    int32_t counts[XM_CONTEXT_RANKS] = { 0 };
    for (int32_t t = 0; t < each * (int32_t)context->ranks; t++)
        packer->item_of[t] = -1;
    for (uint32_t i = 0; i < packer->count; i++)
        packer->item_of[order[whole->index[i]]] = (int32_t)i;
    for (int32_t t = 0; t < each * (int32_t)context->ranks; t++) {
        int32_t item = packer->item_of[t];
        if (item < 0)
            continue;
        int32_t at = counts[t / each]++;
        packer->place[item] = at;
        if ((uint32_t)(t / each) != context->rank)
            continue;
        packer->host.index[at] = t % each;
        packer->host.target[at] = whole->target[item];
        packer->host.temperature[at] = whole->temperature[item];
    }
    packer->own = (uint32_t)counts[context->rank];
    packer->most = 0;
    for (uint32_t r = 0; r < context->ranks; r++)
        if ((uint32_t)counts[r] > packer->most)
            packer->most = (uint32_t)counts[r];
    for (uint32_t i = 0; i < packer->count; i++)
        packer->place[i] +=
            order[whole->index[i]] / each * (int32_t)packer->most;
}

/* Leaves of the whole rows what this rank has. */
static void divide_pack(xm_packer *packer, xm_pack *pack)
{
    const xm_join *context = &packer->limits.context;
    const pack_arrays *whole = &packer->whole;
    const pack_arrays *host = &packer->host;
    const xm_context_arrays *dev = &packer->dev.context;
    uint32_t tokens = pack->tokens;
    int32_t each = (int32_t)tokens_of_each(packer, tokens);
    memcpy(host->row_start, whole->row_start,
           (pack->rows + 1u) * sizeof(*host->row_start));
    pack->tokens =
        xm_context_divide(host->row_start, pack->rows, context->ranks,
                          context->rank, &host->context);
    pack->context = (xm_context){ tokens,
                                  dev->order,
                                  { dev->start[0], dev->start[1] },
                                  { dev->first[0], dev->first[1] } };
    for (uint32_t t = 0; t < tokens; t++) {
        int32_t at = host->context.order[t];
        if ((uint32_t)(at / each) != context->rank)
            continue;
        host->ids[at % each] = whole->ids[t];
        host->positions[at % each] = whole->positions[t];
    }
    divide_items(packer, tokens);
}

/* Where item i is among those of all ranks. */
static uint32_t find_place(const xm_packer *packer, uint32_t item)
{
    return packer->place ? (uint32_t)packer->place[item] : item;
}

/* Returns [dev] the outputs of all ranks' items. */
static xray_status gather_items(xm_packer *packer, const float *items,
                                const float **out)
{
    const xm_parts call = { .what = XM_PARTS_GATHER,
                            .in = items,
                            .out = packer->dev.slots[0],
                            .tokens = packer->most,
                            .dim = 1 };
    *out = items;
    if (!is_divided(&packer->limits) || packer->count == 0)
        return XRAY_OK;
    *out = packer->dev.slots[0];
    return xm_join_parts(&packer->limits.context, &call);
}

/* ---- moving to the device, and back ------------------------------------- */

static xray_status upload_pack(xm_packer *packer, const xm_pack *pack,
                               xr_err *err)
{
    const pack_arrays *h = &packer->host;
    const pack_arrays *d = &packer->dev;
    uint64_t runs = pack->context.tokens ? (uint64_t)pack->rows + 1 : 0;
    struct {
        void *to;
        const void *from;
        uint64_t words;
    } parts[] = {
        { d->ids, h->ids, pack->tokens },
        { d->positions, h->positions, pack->tokens },
        { d->row_start, h->row_start, (uint64_t)pack->rows + 1 },
        { d->parent, h->parent, pack->parent ? pack->rows : 0 },
        { d->index, h->index, packer->own },
        { d->target, h->target, packer->own },
        { d->temperature, h->temperature, packer->own },
        { d->context.order, h->context.order, pack->context.tokens },
        { d->context.start[0], h->context.start[0], runs },
        { d->context.start[1], h->context.start[1], runs },
        { d->context.first[0], h->context.first[0], runs },
        { d->context.first[1], h->context.first[1], runs },
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        xray_status status =
            xm_staging_copy(&packer->staging, parts[i].to, parts[i].from,
                            parts[i].words * 4, err);
        if (status != XRAY_OK)
            return status;
    }
    return xm_staging_end(&packer->staging, err);
}

xray_status xm_packer_fill(xm_packer *packer, const xray_batch *batch,
                           int value, xr_err *err, xm_packed *out)
{
    xray_status status = check_batch(&packer->limits, batch, err);
    if (status == XRAY_OK)
        status = xm_staging_begin(&packer->staging, PACKED_PART, err);
    if (status != XRAY_OK)
        return status;
    xm_pack pack = { .ids = packer->dev.ids,
                     .positions = packer->dev.positions,
                     .row_start = packer->dev.row_start };
    int shared = 0;
    packer->count = 0;
    packer->whole.row_start[0] = 0;
    for (uint32_t row = 0, count; row < batch->rows; row += count) {
        count = count_sharing_rows(packer, batch, row);
        shared |= pack_rows(packer, batch, row, count, &pack);
    }
    pack.parent = shared ? packer->dev.parent : NULL;
    packer->own = packer->most = packer->count;
    if (is_divided(&packer->limits) && pack.tokens)
        divide_pack(packer, &pack);
    *out = (xm_packed){
        .pack = pack,
        .items = { .count = packer->own,
                   .value = value != 0,
                   .index = packer->dev.index,
                   .target = packer->dev.target,
                   .temperature =
                       batch->temperature ? packer->dev.temperature : NULL },
        .token = packer->token,
    };
    return upload_pack(packer, &pack, err);
}

xray_status xm_packer_collect(xm_packer *packer, const float *items,
                              float *per_token, xr_err *err)
{
    const float *from = items;
    uint64_t count = packer->count;
    xray_status status = gather_items(packer, items, &from);
    if (is_divided(&packer->limits))
        count = (uint64_t)packer->most * packer->limits.context.ranks;
    if (status == XRAY_OK && packer->staging.memory.data && count) {
        status = packer->device->copy(packer->device_self, NULL,
                                      packer->host.slots[0], from,
                                      count * sizeof(float), XRAY_COPY_TO_HOST);
        from = packer->host.slots[0];
    }
    if (status == XRAY_OK)
        status = packer->device->sync(packer->device_self, NULL);
    if (status != XRAY_OK)
        return xr_fail(err, status, "reading outputs from the device failed");
    for (uint32_t i = 0; i < packer->count; i++)
        per_token[packer->token[i]] = from[find_place(packer, i)];
    return XRAY_OK;
}

xray_status xm_packer_spread(xm_packer *packer, const float *per_token,
                             uint32_t slot, const char *what, xr_err *err,
                             const float **out_items)
{
    float *host = packer->host.slots[slot];
    uint32_t first = packer->limits.context.rank * packer->most;
    xray_status status = xm_staging_begin(&packer->staging, 1u << slot, err);
    if (status != XRAY_OK)
        return status;
    for (uint32_t i = 0; i < packer->count; i++) {
        float value = per_token[packer->token[i]];
        uint32_t place = find_place(packer, i) - first;
        if (!isfinite(value))
            return xr_fail(err, XRAY_E_NUMERIC,
                           "the loss returned %s = %g for row %" PRId32
                           ", token %" PRId32 " of the micro-batch",
                           what, (double)value, packer->item_row[i],
                           packer->item_col[i]);
        if (place < packer->own)
            host[place] = value;
    }
    *out_items = packer->dev.slots[slot];
    status = xm_staging_copy(&packer->staging, packer->dev.slots[slot], host,
                             packer->own * sizeof(*host), err);
    return status == XRAY_OK ? xm_staging_end(&packer->staging, err) : status;
}
