/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the training backend: two tables that are cut over the
 * ranks of a replica, how they are published, exported and stored.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/fakes/grid_trainer.h"

#define OWNER "train.grid"

/* ---- the instance -------------------------------------------------------- */

static xray_status plan_train(const xray_host *host, const void *options,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    static const xray_axis axes[3][2] = {
        { { .name = XRAY_AXIS_TENSOR, .size = 1 },
          { .name = XRAY_AXIS_PIPELINE, .size = 1 } },
        { { .name = XRAY_AXIS_TENSOR, .size = 2 },
          { .name = XRAY_AXIS_PIPELINE, .size = 1 } },
        { { .name = XRAY_AXIS_TENSOR, .size = 1 },
          { .name = XRAY_AXIS_PIPELINE, .size = 2 } },
    };
    static const xray_axis square[2] = {
        { .name = XRAY_AXIS_TENSOR, .size = 2 },
        { .name = XRAY_AXIS_PIPELINE, .size = 2 }
    };
    const grid_config *config = options;
    uint64_t width = (uint64_t)(config->tp * config->pp);
    (void)load;
    if (model->vocab_size < 2 || world->size % width)
        return host->fail(host, XRAY_E_CONFIG, NULL,
                          "tp times pp must divide the ranks");
    xray_plan own = {
        .header = XRAY_HEADER(xray_plan),
        .axes = width == 4 ? square
                           : axes[config->tp == 2   ? 1
                                  : config->pp == 2 ? 2
                                                    : 0],
        .axis_count = 2,
        .axis_stride = sizeof(xray_axis),
        /* The first rank of the last stage. */
        .answers = config->pp == 2 ? (uint32_t)config->tp : 0,
        .sharded = width > 1,
        .micro_multiple = (uint64_t)config->micro_multiple,
        .token_multiple = (uint64_t)config->token_multiple,
    };
    own.bytes[XRAY_TAG_WEIGHTS] =
        2 * sizeof(float) * HIDDEN * model->vocab_size / width;
    xray_fill(out, &own);
    return XRAY_OK;
}

static void destroy_train(void *ptr)
{
    trainer *self = ptr;
    if (!self)
        return;
    const grid_world *w = &self->world;
    void *const device[] = {
        self->table[0],   self->table[1], self->all_grads,   self->complete,
        self->gathered,   self->hidden,   self->grad[0],     self->grad[1],
        self->parts,      self->slopes,   self->both_slopes, self->squares,
        self->all_squares
    };
    for (size_t i = 0; i < sizeof(device) / sizeof(device[0]); i++)
        if (device[i])
            w->device->free(w->device_self, device[i]);
    for (size_t i = 0; i < 4; i++)
        free(self->values[i]);
    free(self->logits);
    free(self);
}

/* The rows and tables of this rank. */
static void cut_tables(trainer *self, const grid_config *config)
{
    for (uint32_t stage = 0; stage < STAGES; stage++)
        for (uint32_t half = 0; half < HALVES; half++)
            if ((config->tp == 1 || half == self->world.tp.rank) &&
                (config->pp == 1 || stage == self->world.pp.rank)) {
                grid_rows rows = grid_half(self->vocab, half);
                if (!holds_stage(self, stage))
                    self->held[stage].first = rows.first;
                self->held[stage].end = rows.end;
                self->held_parts |= 1u << (stage * HALVES + half);
            }
}

/* Memory that the ranks exchange is the device's. */
static xray_status allocate_train(trainer *self)
{
    const uint64_t size = table_size(self);
    const uint64_t tokens = self->tokens;
    const uint32_t width = self->world.replica.size;
    const struct {
        void *to;
        uint64_t bytes;
    } blocks[] = {
        { &self->table[0], size * sizeof(float) },
        { &self->table[1], size * sizeof(float) },
        { &self->grad[0], (size + 1) * sizeof(int64_t) },
        { &self->grad[1], (size + 1) * sizeof(int64_t) },
        { &self->all_grads,
          self->world.data.size * (size + 1) * sizeof(int64_t) },
        { &self->complete, size * sizeof(float) },
        { &self->gathered, width * size * sizeof(float) },
        { &self->hidden, tokens * HIDDEN * sizeof(float) },
        { &self->parts, HALVES * tokens * sizeof(grid_part) },
        { &self->slopes, (tokens * HIDDEN + 1) * sizeof(double) },
        { &self->both_slopes, HALVES * tokens * HIDDEN * sizeof(double) },
        { &self->squares, STAGES * HALVES * sizeof(double) },
        { &self->all_squares, width * STAGES * HALVES * sizeof(double) },
    };
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
        void *block = NULL;
        if (status == XRAY_OK)
            status = grid_alloc(&self->world, OWNER, XRAY_TAG_WORKSPACE,
                                blocks[i].bytes, &block);
        memcpy(blocks[i].to, &block, sizeof(block));
    }
    for (size_t i = 0; i < 4; i++)
        self->values[i] = calloc(tokens, sizeof(float));
    self->logits = calloc(self->half_rows, sizeof(float));
    for (size_t i = 0; i < 4; i++)
        if (!self->values[i] || !self->logits)
            return XRAY_E_NOMEM;
    return status;
}

/* Takes the rows held from complete tables, one after the other. */
static void take_tables(trainer *self, const float *tables)
{
    for (uint32_t stage = 0; stage < STAGES; stage++)
        if (holds_stage(self, stage))
            memcpy(self->table[stage],
                   tables + stage * table_size(self) +
                       (size_t)self->held[stage].first * HIDDEN,
                   (size_t)(self->held[stage].end - self->held[stage].first) *
                       HIDDEN * sizeof(float));
}

static xray_status load_train(void *ptr, const char *dir)
{
    trainer *self = ptr;
    const uint64_t size = table_size(self);
    float *tables = calloc(STAGES * size, sizeof(float));
    if (!tables)
        return refuse_call(self, XRAY_E_NOMEM, __func__, "out of memory");
    xray_status status =
        grid_read(self->world.host, dir, tables, STAGES * size, &self->version);
    if (status == XRAY_OK)
        take_tables(self, tables);
    free(tables);
    return status;
}

static xray_status start_tables(trainer *self, const xray_model *model)
{
    float *tables = calloc(STAGES * table_size(self), sizeof(float));
    if (!tables)
        return refuse_call(self, XRAY_E_NOMEM, __func__, "out of memory");
    xray_status status = grid_start(self->world.host, model, tables);
    if (status == XRAY_OK)
        take_tables(self, tables);
    free(tables);
    return status;
}

static uint64_t weights_version(void *owner)
{
    return ((const trainer *)owner)->version;
}

static xray_status lease_weights(void *owner)
{
    ((trainer *)owner)->leases++;
    return XRAY_OK;
}

static void release_weights(void *owner)
{
    ((trainer *)owner)->leases--;
}

/* Describes rows of a table; none if `data` is NULL. */
static xray_tensor describe_tensor(const trainer *self, uint32_t stage,
                                   grid_rows rows, float *data)
{
    return (xray_tensor){
        .name = stage == EMBED ? "embed" : "head",
        .dtype = XRAY_F32,
        .dims = 2,
        .shape = { self->vocab, HIDDEN },
        .lo = { data ? rows.first : 0 },
        .extent = { data ? rows.end - rows.first : 0, HIDDEN },
        .stride = { HIDDEN, 1 },
        .data = data,
    };
}

static void publish_tables(trainer *self)
{
    self->weights = (xray_weights){
        .header = XRAY_HEADER(xray_weights),
        .tensor_count = STAGES,
        .tensor_stride = sizeof(xray_tensor),
        .tensors = self->tensors,
        .device = self->world.device,
        .device_self = self->world.device_self,
        .owner = self,
        .version = weights_version,
        .lease = lease_weights,
        .release = release_weights,
    };
    self->part = self->weights;
    self->part.tensor_count = 1;
    self->part.tensors = &self->part_tensor;
    for (uint32_t stage = 0; stage < STAGES; stage++)
        self->tensors[stage] = describe_tensor(
            self, stage, self->held[stage],
            holds_stage(self, stage) ? self->table[stage] : NULL);
}

static xray_status create_train(const xray_setup *setup, const void *options,
                                const xray_workload *load, void **out_self)
{
    const grid_config *config = options;
    trainer *self = calloc(1, sizeof(*self));
    if (!self)
        return setup->host->fail(setup->host, XRAY_E_NOMEM, __func__,
                                 "out of memory");
    self->vocab = setup->model->vocab_size;
    self->half_rows = grid_half(self->vocab, 0).end;
    self->tokens = load->tokens;
    self->row_tokens = load->row_tokens;
    self->micro_multiple = (uint32_t)config->micro_multiple;
    self->token_multiple = (uint32_t)config->token_multiple;
    self->rank = setup->world->rank;
    xray_status status = grid_open_world(setup, config, &self->world);
    if (status == XRAY_OK)
        status = allocate_train(self);
    if (status == XRAY_OK) {
        cut_tables(self, config);
        publish_tables(self);
        status = start_tables(self, setup->model);
    }
    if (status != XRAY_OK) {
        destroy_train(self);
        return status;
    }
    *out_self = self;
    return XRAY_OK;
}

static const xray_weights *train_weights(void *self)
{
    return &((const trainer *)self)->weights;
}

/* ---- export and files ---------------------------------------------------- */

/* Gathers a table of which each rank of a replica holds a part or nothing. */
static xray_status complete_table(trainer *self, uint32_t stage)
{
    const grid_world *w = &self->world;
    const uint64_t size = table_size(self);
    const grid_rows held = self->held[stage];
    memset(self->complete, 0, size * sizeof(float));
    if (holds_stage(self, stage))
        memcpy(self->complete + (size_t)held.first * HIDDEN, self->table[stage],
               (size_t)(held.end - held.first) * HIDDEN * sizeof(float));
    xray_status status = grid_gather(w, &w->replica, self->complete,
                                     self->gathered, size * sizeof(float));
    for (uint32_t half = 0; half < HALVES; half++) {
        const grid_rows rows = grid_half(self->vocab, half);
        uint32_t holder = (w->tp.size == 2 ? half : 0) +
                          (w->pp.size == 2 ? stage * w->tp.size : 0);
        memcpy(self->complete + (size_t)rows.first * HIDDEN,
               self->gathered + holder * size + (size_t)rows.first * HIDDEN,
               (size_t)(rows.end - rows.first) * HIDDEN * sizeof(float));
    }
    return status;
}

static xray_status begin_export(void *self)
{
    ((trainer *)self)->exported = 0;
    return XRAY_OK;
}

static xray_status export_table(void *ptr, const xray_weights **out)
{
    trainer *self = ptr;
    if (self->exported == STAGES)
        return XRAY_END;
    uint32_t stage = self->exported++;
    self->part_tensor = describe_tensor(
        self, stage, (grid_rows){ 0, self->vocab }, self->complete);
    *out = &self->part;
    return complete_table(self, stage);
}

static void end_export(void *self)
{
    (void)self;
}

/* All ranks gather the tables, and the first one writes them. */
static xray_status save_train(void *ptr, const char *dir)
{
    trainer *self = ptr;
    const uint64_t size = table_size(self);
    float *tables = calloc(STAGES * size, sizeof(float));
    xray_status status = XRAY_OK;
    if (!tables)
        return refuse_call(self, XRAY_E_NOMEM, __func__, "out of memory");
    for (uint32_t stage = 0; stage < STAGES && status == XRAY_OK; stage++) {
        status = complete_table(self, stage);
        memcpy(tables + stage * size, self->complete, size * sizeof(float));
    }
    if (status == XRAY_OK && self->rank == 0)
        status = grid_write(self->world.host, dir, tables, STAGES * size,
                            self->version);
    free(tables);
    return status;
}

const xray_train_ops grid_train_ops = {
    .header = XRAY_HEADER(xray_train_ops),
    .plan = plan_train,
    .create = create_train,
    .destroy = destroy_train,
    .weights = train_weights,
    .forward = grid_forward,
    .forward_backward = grid_backward,
    .optimizer_step = grid_step,
    .save = save_train,
    .load = load_train,
    .export_begin = begin_export,
    .export_next = export_table,
    .export_end = end_export,
    .discard = grid_discard,
};
