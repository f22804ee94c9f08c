/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans an instance of megatron, and creates it. The ranks of a replica follow
 * one another: rank r of the world has slice r % tp of replica r / tp.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xray/plugin.h>

#include "core/base/str.h"
#include "plugins/backend-megatron/megatron.h"

static xm_trainer_options convert_options(const mg_config *config,
                                          uint32_t stage)
{
    return (xm_trainer_options){
        .folder = { .section = MG_SECTION, .dir = config->offload_dir },
        .beta1 = config->beta1,
        .beta2 = config->beta2,
        .eps = config->eps,
        .weight_decay = config->weight_decay,
        .head_logits = config->head_logits,
        .recompute = config->recompute_granularity,
        .offload_moments = config->optimizer_cpu_offload,
        .all_moments = !config->use_distributed_optimizer,
        .overlap = config->overlap_grad_reduce,
        .sequence = config->sequence_parallel,
        .stages = (uint32_t)config->pipeline_model_parallel_size,
        .stage = stage
    };
}

static mg_sizes sizes_of(const mg_config *config)
{
    return (mg_sizes){ .tensor = (uint32_t)config->tensor_model_parallel_size,
                       .context = (uint32_t)config->context_parallel_size,
                       .stages =
                           (uint32_t)config->pipeline_model_parallel_size };
}

static uint32_t count_kv_ranks(const xm_config *slice)
{
    return slice->slice.kv_ranks ? slice->slice.kv_ranks : 1;
}

/* ---- what this backend refuses ------------------------------------------- */

static xray_status check_context(const mg_sizes *sizes, xr_err *err)
{
    uint32_t ranks = sizes->context;
    return ranks & (ranks - 1)
               ? xr_fail_key(err, XRAY_E_CONFIG, NULL, "context_parallel_size",
                             " = %" PRIu32 ": expected 1, 2, 4 or 8", ranks)
               : XRAY_OK;
}

/* Reads the model's configuration, and cuts what this rank has of it. */
static xray_status check_setup(const mg_config *config, const xray_model *model,
                               const xray_world *world,
                               const xray_workload *load, xr_err *err,
                               xm_config *out)
{
    xm_config whole;
    xm_config slice;
    mg_sizes sizes = sizes_of(config);
    uint32_t rank = world ? world->rank : 0;
    xray_status status =
        xm_trainer_check(MG_SECTION, model, world, load, err, &whole);
    if (status == XRAY_OK)
        status = check_context(&sizes, err);
    if (status == XRAY_OK)
        status = xm_config_share(&whole, mg_place_of(&sizes, rank).tensor,
                                 sizes.tensor, err, &slice);
    if (status == XRAY_OK)
        status = mg_cut_stage(config, &slice, mg_place_of(&sizes, rank).stage,
                              err, out);
    out->context_ranks = sizes.context;
    out->context_rank = mg_place_of(&sizes, rank).context;
    return status;
}

/* ---- plan --------------------------------------------------------------- */

static void fill_plan(const mg_config *config, const xm_config *slice,
                      const xm_layout *layout, const xray_workload *load,
                      const xray_world *world, xray_plan *out)
{
    mg_sizes sizes = sizes_of(config);
    mg_place place = mg_place_of(&sizes, world ? world->rank : 0);
    uint32_t ranks = world && world->size ? world->size : 1;
    xm_trainer_options options = convert_options(config, place.stage);
    xray_plan own = xm_trainer_plan(&options, slice, layout, load, ranks);
    mg_plan_axes(&sizes, count_kv_ranks(slice), &own);
    if (count_kv_ranks(slice) > 1)
        own.numerics = own.numerics ? XRAY_NUMERICS_BF16_SHARED_KV
                                    : XRAY_NUMERICS_FP32_SHARED_KV;
    own.sharded = mg_width(&sizes) > 1;
    own.chunks = (uint32_t)config->virtual_pipeline_model_parallel_size;
    /* The first rank of the last stage. */
    own.answers = mg_width(&sizes) / sizes.stages * (sizes.stages - 1);
    xray_fill(out, &own);
}

xray_status mg_plan(const xray_host *host, const void *options,
                    const xray_model *model, const xray_world *world,
                    const xray_workload *load, xray_plan *out)
{
    const mg_config *config = options;
    xr_err err = { "" };
    xm_config part;
    xm_layout *layout = NULL;
    uint32_t value_head = (load->outputs & XRAY_OUTPUT_VALUE) != 0;
    mg_sizes sizes = sizes_of(config);
    uint32_t width = mg_width(&sizes);
    uint32_t ranks = world && world->size ? world->size : 1;
    mg_place place = mg_place_of(&sizes, world ? world->rank : 0);
    /* Ranks that form no replicas are the core's to refuse. */
    xray_subgroup data = {
        .name = XRAY_AXIS_DATA,
        .rank = place.replica * sizes.context + place.context,
        .size = (ranks < width ? 1 : ranks / width) * sizes.context
    };
    xray_status status = check_setup(config, model, world, load, &err, &part);
    if (status == XRAY_OK)
        status = xm_trainer_create_layout(
            &part, value_head, &data,
            load->trainable ? load->trainable_from_layer : 0, &err, &layout);
    if (status == XRAY_OK)
        fill_plan(config, &part, layout, load, world, out);
    xm_layout_destroy(layout);
    return xm_trainer_report(host, status, "plan", &err);
}

/* ---- create ------------------------------------------------------------- */

static xray_subgroup find_subgroup(const xray_world *world, const char *name)
{
    for (uint32_t i = 0; world && i < world->subgroup_count; i++) {
        const void *at =
            (const char *)world->subgroups + (size_t)i * world->subgroup_stride;
        const xray_subgroup *group = at;
        if (strcmp(group->name, name) == 0)
            return *group;
    }
    return (xray_subgroup){ .name = name, .size = 1 };
}

/* Joins `count` ranks of each of `blocks` blocks of ranks, which are `width`
 * ranks long, into *out: of a block those from `first` on, `step` apart. The
 * group serves as long as the comm. */
typedef struct mg_members {
    uint32_t first;
    uint32_t step;
    uint32_t count;
    uint32_t width;
    uint32_t blocks;
} mg_members;

static xray_status join_members(const xray_world *world,
                                const mg_members *members, xr_err *err,
                                xray_comm_group **out)
{
    uint32_t ranks[XM_GROUP_RANKS];
    uint32_t size = members->count * members->blocks;
    *out = world->group;
    if (size == world->size)
        return XRAY_OK;
    for (uint32_t i = 0; i < size; i++) {
        uint32_t rank = i / members->count * members->width + members->first +
                        i % members->count * members->step;
        ranks[i] = world->global_ranks ? world->global_ranks[rank] : rank;
    }
    xray_status status = world->comm->group(world->comm_self, ranks, size, out);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "no group of %" PRIu32 " of the %" PRIu32 " ranks",
                         size, world->size);
}

/* The ranks that share each layer. */
static xray_status find_tensor(const mg_sizes *sizes, const xray_world *world,
                               uint32_t kv, xr_err *err, xray_subgroup *out)
{
    mg_place place = mg_place_of(sizes, world ? world->rank : 0);
    uint32_t size = sizes->tensor;
    const mg_members members = { (world ? world->rank : 0) - place.tensor, 1,
                                 size, 0, 1 };
    *out = find_subgroup(world, mg_width(sizes) == size ? XRAY_AXIS_REPLICA
                                                        : XRAY_AXIS_TENSOR);
    if (mg_width(sizes) == size || kv == 1)
        return XRAY_OK;
    out->rank = place.tensor;
    out->size = size;
    return join_members(world, &members, err, &out->group);
}

/* The ranks that have the same parameters, and divide what is summed over rows:
 * the replicas, and the ranks of a context in each of them. */
static xray_status find_data(const mg_sizes *sizes, const xray_world *world,
                             xr_err *err, xray_subgroup *out)
{
    mg_place place = mg_place_of(sizes, world ? world->rank : 0);
    xray_subgroup data = find_subgroup(world, XRAY_AXIS_DATA);
    const mg_members members = { place.stage * sizes->tensor * sizes->context +
                                     place.tensor,
                                 sizes->tensor, sizes->context, mg_width(sizes),
                                 data.size };
    *out = data;
    if (sizes->context == 1)
        return XRAY_OK;
    out->rank = data.rank * sizes->context + place.context;
    out->size = data.size * sizes->context;
    if (data.size > 1)
        return join_members(world, &members, err, &out->group);
    out->group = find_subgroup(world, XRAY_AXIS_CONTEXT).group;
    return XRAY_OK;
}

static xray_status open_instance(xm_trainer *self, const mg_config *config,
                                 const xray_setup *setup,
                                 const xray_workload *load, xr_err *err)
{
    const xray_world *world = setup->world;
    uint32_t ranks = world ? world->size : 1;
    mg_sizes sizes = sizes_of(config);
    uint32_t width = mg_width(&sizes);
    uint32_t kv = count_kv_ranks(&self->model);
    mg_place place = mg_place_of(&sizes, world ? world->rank : 0);
    xm_trainer_options options = convert_options(config, place.stage);
    uint32_t within = find_subgroup(world, XRAY_AXIS_REPLICA).size;
    self->replicas = find_subgroup(world, XRAY_AXIS_DATA);
    uint32_t replicas = self->replicas.size;
    self->kv = find_subgroup(world, MG_AXIS_KV);
    self->context = find_subgroup(world, XRAY_AXIS_CONTEXT);
    self->stages = find_subgroup(world, XRAY_AXIS_PIPELINE);
    if (within != width || self->kv.size != kv ||
        self->context.size != sizes.context ||
        self->stages.size != sizes.stages ||
        replicas * (uint64_t)width != ranks)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%" PRIu32 " ranks in replicas of %" PRIu32
                       " were planned, but the world has %" PRIu32
                       " ranks, replicas of %" PRIu32 " and %" PRIu32
                       " of them",
                       ranks, width, ranks, within, replicas);
    xray_status status = find_tensor(&sizes, world, kv, err, &self->tensor);
    if (status == XRAY_OK)
        status = find_data(&sizes, world, err, &self->data);
    if (status != XRAY_OK)
        return status;
    return xm_trainer_open(self, &options, setup, load, err);
}

xray_status mg_create(const xray_setup *setup, const void *options,
                      const xray_workload *load, void **out_self)
{
    const mg_config *config = options;
    xr_err err = { "" };
    xm_config part;
    xray_status status =
        check_setup(config, setup->model, setup->world, load, &err, &part);
    xm_trainer *self = status == XRAY_OK ? calloc(1, sizeof(*self)) : NULL;
    if (status == XRAY_OK && !self)
        status = xr_fail(&err, XRAY_E_NOMEM, "no memory for an instance");
    if (self) {
        self->model = part;
        status = open_instance(self, config, setup, load, &err);
    }
    if (status != XRAY_OK) {
        mg_destroy(self);
        return xm_trainer_report(setup->host, status, "create", &err);
    }
    *out_self = self;
    return XRAY_OK;
}

void mg_destroy(void *ptr)
{
    xm_trainer *self = ptr;
    if (!self)
        return;
    xm_trainer_close(self);
    free(self);
}
