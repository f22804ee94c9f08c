/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans an instance of zero3, and creates it.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "plugins/backend-zero3/zero3.h"

static xray_status check_options(const z3_config *config, int on_host,
                                 xr_err *err)
{
    if (config->offload_param && config->stage != 3)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "offload_param",
                           " = host needs stage = 3: at stage %" PRIi64
                           " every rank computes with all weights at once",
                           config->stage);
    if (config->offload_param && !on_host)
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "offload_param",
                           " = host needs a device that computes in host "
                           "memory, as cpu does");
    return XRAY_OK;
}

/* How a configuration divides the model among a given number of ranks. */
typedef struct sharding {
    int gathers;  /* weights are kept as shares and gathered */
    int scatters; /* gradients are kept as shares */
} sharding;

static sharding sharding_of(const z3_config *config, uint32_t ranks)
{
    int several = ranks > 1;
    return (sharding){ .gathers = (several && config->stage == 3) ||
                                  config->offload_param,
                       .scatters = several && config->stage >= 2 };
}

static xm_trainer_options convert_options(const z3_config *config,
                                          uint32_t ranks)
{
    return (xm_trainer_options){
        .folder = { .section = Z3_SECTION, .dir = config->offload_dir },
        .beta1 = config->beta1,
        .beta2 = config->beta2,
        .eps = config->eps,
        .weight_decay = config->weight_decay,
        .head_logits = config->head_logits,
        .recompute = config->gradient_checkpointing
                         ? XM_TRAINER_RECOMPUTE_FULL
                         : XM_TRAINER_RECOMPUTE_SELECTIVE,
        .offload_moments = config->offload_optimizer != Z3_OFFLOAD_NONE,
        .all_moments = ranks > 1 && config->stage == 0
    };
}

/* Every rank computes rows of its own: all ranks divide the buckets. */
static xray_subgroup all_ranks(const xray_world *world)
{
    xray_subgroup all = { .name = XRAY_AXIS_DATA, .size = 1 };
    if (world && world->size > 1) {
        all.group = world->group;
        all.rank = world->rank;
        all.size = world->size;
    }
    return all;
}

static xray_status check_setup(const z3_config *config, const xray_model *model,
                               const xray_world *world,
                               const xray_workload *load, int on_host,
                               xr_err *err, xm_config *out)
{
    xray_status status = check_options(config, on_host, err);
    return status == XRAY_OK
               ? xm_trainer_check(Z3_SECTION, model, world, load, err, out)
               : status;
}

static void fill_plan(const z3_config *config, const xm_config *model,
                      const xm_layout *layout, const xray_workload *load,
                      xray_plan *out)
{
    uint32_t ranks = layout->ranks;
    xm_trainer_options options = convert_options(config, ranks);
    sharding shares = sharding_of(config, ranks);
    xray_plan own = xm_trainer_plan(&options, model, layout, load, ranks);
    own.sharded = shares.gathers != 0;
    if (shares.gathers)
        own.bytes[XRAY_TAG_WEIGHTS] =
            z3_gather_bytes(layout, model, config, load);
    if (shares.scatters)
        own.segments = XRAY_SEGMENTS_IN_TURN;
    if (shares.scatters && load->trainable)
        own.bytes[XRAY_TAG_GRADS] =
            z3_reduce_bytes(layout, model, load->segments);
    xray_fill(out, &own);
}

xray_status z3_plan(const xray_host *host, const void *config,
                    const xray_model *model, const xray_world *world,
                    const xray_workload *load, xray_plan *out)
{
    xr_err err = { "" };
    xm_config parsed;
    xm_layout *layout = NULL;
    xray_subgroup all = all_ranks(world);
    xray_status status = check_setup(config, model, world, load,
                                     xm_plans_on_host(load), &err, &parsed);
    if (status == XRAY_OK)
        status = xm_trainer_create_layout(
            &parsed, load->outputs & XRAY_OUTPUT_VALUE, &all,
            load->trainable ? load->trainable_from_layer : 0, &err, &layout);
    if (status == XRAY_OK)
        fill_plan(config, &parsed, layout, load, out);
    xm_layout_destroy(layout);
    return xm_trainer_report(host, status, "plan", &err);
}

/* Shares that offload_param put into host memory are not blocks of the
 * device. */
static void visit_blocks(const xm_trainer *base, uint32_t tag,
                         xm_block_visit *visit)
{
    if (tag == XRAY_TAG_WEIGHTS)
        z3_gather_visit((const z3 *)base, visit);
    else if (tag == XRAY_TAG_GRADS)
        z3_reduce_visit((const z3 *)base, visit);
}

/* ---- create ------------------------------------------------------------- */

static xray_status open_instance(z3 *self, const z3_config *config,
                                 const xray_setup *setup,
                                 const xray_workload *load, xr_err *err)
{
    self->base.data = self->base.replicas = all_ranks(setup->world);
    uint32_t ranks = self->base.data.size;
    sharding shares = sharding_of(config, ranks);
    xm_trainer_options options = convert_options(config, ranks);
    self->gather.offloaded = config->offload_param != Z3_OFFLOAD_NONE;
    self->gather.prefetch = config->prefetch;
    if (shares.gathers)
        z3_gather_hook(self);
    if (shares.scatters)
        z3_reduce_hook(self);
    self->base.hooks.visit_blocks = visit_blocks;
    return xm_trainer_open(&self->base, &options, setup, load, err);
}

xray_status z3_create(const xray_setup *setup, const void *config,
                      const xray_workload *load, void **out_self)
{
    xr_err err = { "" };
    xm_config model;
    int on_host = xm_computes_on_host(setup->device, setup->device_self);
    xray_status status = check_setup(config, setup->model, setup->world, load,
                                     on_host, &err, &model);
    z3 *self = status == XRAY_OK ? calloc(1, sizeof(*self)) : NULL;
    if (status == XRAY_OK && !self)
        status = xr_fail(&err, XRAY_E_NOMEM, "no memory for an instance");
    if (self) {
        self->base.model = model;
        status = open_instance(self, config, setup, load, &err);
    }
    if (status != XRAY_OK) {
        z3_destroy(self);
        return xm_trainer_report(setup->host, status, "create", &err);
    }
    *out_self = self;
    return XRAY_OK;
}

void z3_destroy(void *ptr)
{
    z3 *self = ptr;
    if (!self)
        return;
    xm_trainer_close(&self->base);
    free(self);
}
