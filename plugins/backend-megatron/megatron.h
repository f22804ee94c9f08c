/* SPDX-License-Identifier: Apache-2.0
 *
 * The structs and functions that the files of backend-megatron share.
 */
#ifndef MG_MEGATRON_H
#define MG_MEGATRON_H

#include "model/train/trainer.h"

#define MG_SECTION "train.megatron"

/* The axis of neighbours that have the same KV head, where there are fewer KV
 * heads than ranks: with 8 ranks and 4 KV heads "kv" has 2 and "tp" 4. */
#define MG_AXIS_KV "kv"

/* Values of [train.megatron]. */
typedef struct mg_config {
    double beta1;
    double beta2;
    double eps;
    double weight_decay;
    int64_t tensor_model_parallel_size;
    int64_t context_parallel_size;
    int64_t pipeline_model_parallel_size;
    int64_t virtual_pipeline_model_parallel_size;
    int64_t decoder_first_pipeline_num_layers; /* 0: as the others */
    int64_t decoder_last_pipeline_num_layers;
    int64_t recompute_granularity; /* XM_TRAINER_RECOMPUTE_* */
    int64_t head_logits;           /* XM_TRAINER_LOGITS_* */
    const char *offload_dir; /* NULL or "": the system's temporary folder */
    uint32_t use_distributed_optimizer;
    uint32_t optimizer_cpu_offload;
    uint32_t overlap_grad_reduce;
    uint32_t sequence_parallel;
} mg_config;

/* The ranks of a replica along its axes, the fastest first. */
typedef struct mg_sizes {
    uint32_t tensor; /* ranks that share each layer; those of "kv" among them */
    uint32_t context; /* 1, 2, 4 or 8 */
    uint32_t stages;  /* at most MG_STAGES_MOST */
} mg_sizes;
#define MG_STAGES_MOST 8

/* Where a rank of the world is along each axis. */
typedef struct mg_place {
    uint32_t tensor;
    uint32_t context;
    uint32_t stage;
    uint32_t replica;
} mg_place;

/* Returns the number of ranks of a replica. */
uint32_t mg_width(const mg_sizes *sizes);
mg_place mg_place_of(const mg_sizes *sizes, uint32_t rank);
/* Sets the axes of a plan, of which `kv` neighbours have the same KV heads;
 * axes of one rank are left out at both ends. */
void mg_plan_axes(const mg_sizes *sizes, uint32_t kv, xray_plan *out);

xray_status mg_plan(const xray_host *host, const void *options,
                    const xray_model *model, const xray_world *world,
                    const xray_workload *load, xray_plan *out);
xray_status mg_create(const xray_setup *setup, const void *options,
                      const xray_workload *load, void **out_self);
void mg_destroy(void *self);

/* Cuts the stage of a slice that a rank computes; the error names the next
 * number of stages that works. */
xray_status mg_cut_stage(const mg_config *config, const xm_config *slice,
                         uint32_t stage, xr_err *err, xm_config *out);

#endif
