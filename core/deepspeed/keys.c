/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists DeepSpeed's keys with their types, their counterparts, and the reasons
 * for those that have none.
 */
#include "core/deepspeed/keys.h"

#define SET(p, t, s, k)                                               \
    {                                                                 \
        .path = (p), .kind = XR_DS_SET, .types = (t), .section = (s), \
        .key = (k)                                                    \
    }
#define USED(p, t)                                    \
    {                                                 \
        .path = (p), .kind = XR_DS_USED, .types = (t) \
    }
#define IDLE(p, t, a, w)                                              \
    {                                                                 \
        .path = (p), .kind = XR_DS_IDLE, .types = (t), .agrees = (a), \
        .why = (w)                                                    \
    }
#define IDLE_WARN(p, t, a, w)                                         \
    {                                                                 \
        .path = (p), .kind = XR_DS_IDLE, .types = (t), .agrees = (a), \
        .why = (w), .warn = 1                                         \
    }
#define WANT(p, t, a, w)                                              \
    {                                                                 \
        .path = (p), .kind = XR_DS_WANT, .types = (t), .agrees = (a), \
        .why = (w)                                                    \
    }
#define OPEN(p)                                                \
    {                                                          \
        .path = (p), .kind = XR_DS_OPEN, .types = XR_DS_OBJECT \
    }
#define UNUSED(p, m, w)                                                       \
    {                                                                         \
        .path = (p), .kind = XR_DS_UNUSED, .types = XR_DS_OBJECT, .why = (w), \
        .members = (m)                                                        \
    }
#define OFF(p, m, w)                                                       \
    {                                                                      \
        .path = (p), .kind = XR_DS_OFF, .types = XR_DS_OBJECT, .why = (w), \
        .members = (m)                                                     \
    }

#define BOOL XR_DS_BOOL
#define INT XR_DS_INT
#define REAL XR_DS_REAL
#define STRING XR_DS_STRING
#define LIST XR_DS_LIST

#define ZERO "zero_optimization."
#define BUCKETS "buckets are complete transformer blocks, laid out at the start"
#define GATHERS "blocks are gathered by a fixed plan, the next one ahead"
#define OVERLAP "the fixed plan determines what overlaps"
#define COMPLETE_WEIGHTS \
    "checkpoints hold complete weights by their Hugging Face names"
#define ANY_RANKS "a checkpoint loads at any number of ranks and any stage"
#define NO_NVME "nothing is written to NVMe; offload uses host memory"
#define PINNED "the device manages pinned host memory itself"
#define FLOAT32_SUMS                                                         \
    "gradients are summed in float32; the loss divides by the mini-batch's " \
    "counts"
#define LOGGER "metrics go where [trainer] logger says"
#define RECOMPUTE                                                 \
    "the training backend's gradient_checkpointing controls the " \
    "recomputation of blocks"
#define ADAM "the backend has its own AdamW over flat buckets"
#define UNCOMPRESSED "values are sent uncompressed"
#define SCALING "float16 with loss scaling is not supported"
#define NOT_APPLICABLE \
    "it concerns a launcher or profiler, which X-ray does not have"

static const xr_ds_key keys[] = {
    /* ---- batch ---- */
    USED("train_batch_size", INT),
    USED("train_micro_batch_size_per_gpu", INT),
    USED("gradient_accumulation_steps", INT),

    /* ---- optimizer ---- */
    OPEN("optimizer"),
    USED("optimizer.type", STRING),
    OPEN("optimizer.params"),
    SET("optimizer.params.lr", REAL, XR_DS_OPTIM, "lr"),
    USED("optimizer.params.betas", LIST),
    SET("optimizer.params.eps", REAL, XR_DS_TRAIN, "eps"),
    SET("optimizer.params.weight_decay", REAL, XR_DS_TRAIN, "weight_decay"),
    USED("optimizer.params.adam_w_mode", BOOL),
    IDLE("optimizer.params.torch_adam", BOOL, "false", ADAM),
    IDLE("optimizer.params.fused", BOOL, NULL, ADAM),
    IDLE("optimizer.params.foreach", BOOL, NULL, ADAM),
    IDLE("optimizer.params.set_grad_none", BOOL, NULL, ADAM),
    IDLE("optimizer.params.fp32_optimizer_states", BOOL, "true",
         "moments are always float32"),
    WANT("optimizer.params.bias_correction", BOOL, "true",
         "Adam's moments are always bias-corrected"),
    WANT("optimizer.params.amsgrad", BOOL, "false", "AMSGrad is not supported"),
    IDLE("optimizer.legacy_fusion", BOOL, "false", ADAM),

    /* ---- scheduler ---- */
    OPEN("scheduler"),
    USED("scheduler.type", STRING),
    OPEN("scheduler.params"),
    USED("scheduler.params.warmup_min_lr", REAL),
    USED("scheduler.params.warmup_max_lr", REAL),
    USED("scheduler.params.warmup_num_steps", INT),
    USED("scheduler.params.warmup_type", STRING),
    USED("scheduler.params.total_num_steps", INT),
    USED("scheduler.params.warmup_min_ratio", REAL),
    USED("scheduler.params.cos_min_ratio", REAL),
    WANT("scheduler.params.last_batch_iteration", INT, "-1",
         "a resumed run knows its step"),

    SET("gradient_clipping", REAL, XR_DS_JOB, "grad_clip"),

    /* ---- precision ---- */
    OPEN("bf16"),
    USED("bf16.enabled", BOOL),
    IDLE("bf16.immediate_grad_update", BOOL, NULL, FLOAT32_SUMS),
    IDLE("bf16.check_grad_overflow", BOOL, "true",
         "non-finite gradients are always detected"),
    WANT("bf16.bf16_master_weights_and_grads", BOOL, "false",
         "master weights and gradients are float32"),
    WANT("bf16.bf16_optimizer_states", BOOL, "false", "moments are float32"),
    OPEN("bfloat16"),
    USED("bfloat16.enabled", BOOL),
    OFF("fp16",
        "enabled auto_cast loss_scale initial_scale_power loss_scale_window "
        "hysteresis consecutive_hysteresis min_loss_scale "
        "fp16_master_weights_and_grads",
        SCALING),
    OFF("amp", NULL, SCALING),
    OFF("torch_autocast", "enabled dtype lower_precision_safe_modules",
        "types are not chosen per operator"),
    OPEN("data_types"),
    WANT("data_types.grad_accum_dtype", STRING, "fp32 float32",
         "gradients are added in float32"),
    IDLE("communication_data_type", STRING, "fp32 float32", FLOAT32_SUMS),
    IDLE("seq_parallel_communication_data_type", STRING, "fp32", FLOAT32_SUMS),
    IDLE("fp32_allreduce", BOOL, "true", FLOAT32_SUMS),
    IDLE("prescale_gradients", BOOL, "false", FLOAT32_SUMS),
    IDLE("gradient_predivide_factor", REAL, "1", FLOAT32_SUMS),
    IDLE("sparse_gradients", BOOL, "false", FLOAT32_SUMS),

    /* ---- ZeRO ---- */
    OPEN("zero_optimization"),
    SET(ZERO "stage", INT, XR_DS_TRAIN, "stage"),
    OPEN(ZERO "offload_optimizer"),
    USED(ZERO "offload_optimizer.device", STRING),
    IDLE(ZERO "offload_optimizer.pin_memory", BOOL, "false", PINNED),
    IDLE_WARN(ZERO "offload_optimizer.nvme_path", STRING, NULL, NO_NVME),
    IDLE(ZERO "offload_optimizer.buffer_count", INT, NULL, NO_NVME),
    IDLE(ZERO "offload_optimizer.pipeline", BOOL, "false", NO_NVME),
    IDLE(ZERO "offload_optimizer.pipeline_read", BOOL, "false", NO_NVME),
    IDLE(ZERO "offload_optimizer.pipeline_write", BOOL, "false", NO_NVME),
    IDLE(ZERO "offload_optimizer.fast_init", BOOL, "false", NO_NVME),
    IDLE_WARN(ZERO "offload_optimizer.ratio", REAL, "1",
              "either all of the optimizer's state is offloaded or none of it"),
    IDLE(ZERO "offload_optimizer.super_offload", BOOL, "false", OVERLAP),
    OPEN(ZERO "offload_param"),
    USED(ZERO "offload_param.device", STRING),
    IDLE(ZERO "offload_param.pin_memory", BOOL, "false", PINNED),
    IDLE_WARN(ZERO "offload_param.nvme_path", STRING, NULL, NO_NVME),
    IDLE(ZERO "offload_param.buffer_count", INT, NULL, NO_NVME),
    IDLE(ZERO "offload_param.buffer_size", INT, NULL, NO_NVME),
    IDLE(ZERO "offload_param.max_in_cpu", INT, NULL, NO_NVME),
    USED(ZERO "cpu_offload", BOOL),
    USED(ZERO "cpu_offload_params", BOOL),
    IDLE(ZERO "cpu_offload_use_pin_memory", BOOL, "false", PINNED),
    IDLE(ZERO "overlap_comm", BOOL, NULL, OVERLAP),
    IDLE(ZERO "contiguous_gradients", BOOL, "true", BUCKETS),
    IDLE(ZERO "reduce_bucket_size", INT, NULL, BUCKETS),
    IDLE(ZERO "allgather_bucket_size", INT, NULL, BUCKETS),
    IDLE(ZERO "allgather_partitions", BOOL, "true", GATHERS),
    IDLE(ZERO "reduce_scatter", BOOL, "true",
         "stages 2 and 3 always reduce-scatter"),
    IDLE(ZERO "use_multi_rank_bucket_allreduce", BOOL, NULL, BUCKETS),
    IDLE(ZERO "round_robin_gradients", BOOL, "false", BUCKETS),
    IDLE(ZERO "grad_hooks", BOOL, NULL, OVERLAP),
    IDLE(ZERO "legacy_stage1", BOOL, "false", BUCKETS),
    IDLE(ZERO "sub_group_size", INT, NULL,
         "the optimizer processes complete shards of blocks"),
    IDLE(ZERO "stage3_max_live_parameters", INT, NULL, GATHERS),
    IDLE(ZERO "stage3_max_reuse_distance", INT, NULL, GATHERS),
    IDLE(ZERO "stage3_prefetch_bucket_size", INT, NULL, GATHERS),
    IDLE(ZERO "stage3_param_persistence_threshold", INT, NULL, GATHERS),
    IDLE(ZERO "stage3_model_persistence_threshold", INT, NULL, GATHERS),
    IDLE(ZERO "stage3_module_granularity_threshold", INT, NULL, GATHERS),
    IDLE(ZERO "stage3_use_all_reduce_for_fetch_params", BOOL, "false", GATHERS),
    IDLE(ZERO "stage3_gather_16bit_weights_on_model_save", BOOL, "true",
         COMPLETE_WEIGHTS),
    IDLE(ZERO "stage3_gather_fp16_weights_on_model_save", BOOL, "true",
         COMPLETE_WEIGHTS),
    IDLE(ZERO "max_live_parameters", INT, NULL, GATHERS),
    IDLE(ZERO "max_reuse_distance", INT, NULL, GATHERS),
    IDLE(ZERO "prefetch_bucket_size", INT, NULL, GATHERS),
    IDLE(ZERO "param_persistence_threshold", INT, NULL, GATHERS),
    IDLE(ZERO "model_persistence_threshold", INT, NULL, GATHERS),
    IDLE(ZERO "module_granularity_threshold", INT, NULL, GATHERS),
    IDLE(ZERO "gather_16bit_weights_on_model_save", BOOL, "true",
         COMPLETE_WEIGHTS),
    IDLE(ZERO "ignore_unused_parameters", BOOL, NULL,
         "every parameter has a gradient or is frozen"),
    IDLE(ZERO "elastic_checkpoint", BOOL, "true", ANY_RANKS),
    IDLE(ZERO "load_from_fp32_weights", BOOL, "true",
         "master weights are stored in float32"),
    IDLE_WARN(ZERO "zero_hpz_partition_size", INT, "1",
              "weights are sharded over all ranks, with no second partition"),
    IDLE_WARN(ZERO "zero_quantized_weights", BOOL, "false", UNCOMPRESSED),
    IDLE_WARN(ZERO "zero_quantized_nontrainable_weights", BOOL, "false",
              UNCOMPRESSED),
    IDLE_WARN(ZERO "zero_quantized_gradients", BOOL, "false", UNCOMPRESSED),
    IDLE_WARN(ZERO "mics_shard_size", INT, "-1",
              "weights are sharded over all ranks, with no groups among them"),
    IDLE(ZERO "mics_hierarchical_params_gather", BOOL, "false", GATHERS),
    IDLE(ZERO "memory_efficient_linear", BOOL, NULL, GATHERS),
    IDLE(ZERO "pipeline_loading_checkpoint", BOOL, "false", ANY_RANKS),
    IDLE(ZERO "override_module_apply", BOOL, NULL, GATHERS),
    IDLE(ZERO "log_trace_cache_warnings", BOOL, NULL, "there is no trace"),
    UNUSED(ZERO "leaf_module", NULL, "blocks are the leaves"),
    OFF(ZERO "zenflow", NULL, "asynchronous updates are not supported"),

    /* ---- changes of the model or the data ---- */
    OFF("sparse_attention", NULL, "attention is dense"),
    OFF("progressive_layer_drop", "enabled theta gamma",
        "every block takes part in every step"),
    OFF("curriculum_learning", NULL, "[data] determines the order of rows"),
    OFF("data_efficiency", NULL, "[data] determines the order of rows"),
    OFF("compression_training", NULL, "weights are not compressed"),
    OFF("quantize_training", NULL, "weights are not quantised"),
    OFF("elasticity", NULL,
        "the INI determines the batch at any number of ranks"),
    OPEN("tensor_parallel"),
    WANT("tensor_parallel.autotp_size", INT, "1 0",
         "this backend has no tensor parallelism"),
    WANT("sequence_parallel_size", INT, "1",
         "this backend has no sequence parallelism"),
    OFF("pipeline", NULL, "this backend has no pipeline"),

    /* ---- no counterpart ---- */
    UNUSED("activation_checkpointing",
           "partition_activations cpu_checkpointing "
           "contiguous_memory_optimization number_checkpoints "
           "synchronize_checkpoint_boundary profile",
           RECOMPUTE),
    UNUSED("checkpoint",
           "tag_validation load_universal use_node_local_storage "
           "parallel_write writer",
           ANY_RANKS),
    UNUSED("aio",
           "block_size queue_depth thread_count intra_op_parallelism "
           "single_submit overlap_events use_gds",
           NO_NVME),
    UNUSED("hybrid_engine", NULL, "rollouts have an engine of their own"),
    UNUSED("flops_profiler",
           "enabled profile_step module_depth top_modules detailed "
           "output_file recompute_fwd_factor",
           NOT_APPLICABLE),
    UNUSED("comms_logger", "enabled verbose prof_all debug prof_ops",
           NOT_APPLICABLE),
    UNUSED("tensorboard", "enabled output_path job_name", LOGGER),
    UNUSED("wandb", "enabled group team project", LOGGER),
    UNUSED("csv_monitor", "enabled output_path job_name", LOGGER),
    UNUSED("comet", NULL, LOGGER),
    UNUSED("monitor_config", NULL, LOGGER),
    UNUSED("autotuning", NULL, NOT_APPLICABLE),
    UNUSED("eigenvalue", NULL, NOT_APPLICABLE),
    UNUSED("nebula", NULL, ANY_RANKS),
    UNUSED("compile", NULL, NOT_APPLICABLE),
    UNUSED("timers", NULL, NOT_APPLICABLE),
    IDLE("steps_per_print", INT, NULL, LOGGER),
    IDLE("wall_clock_breakdown", BOOL, "false",
         "timing_s/* of the metrics are always there"),
    IDLE("memory_breakdown", BOOL, "false", "xray check prints the plan"),
    IDLE("dump_state", BOOL, "false", "xray config print shows the values"),
    IDLE("disable_allgather", BOOL, "false", GATHERS),
    IDLE("graph_harvesting", BOOL, "false", NOT_APPLICABLE),
    IDLE("dataloader_drop_last", BOOL, "true", "a step is always full"),
    IDLE("zero_allow_untested_optimizer", BOOL, NULL, ADAM),
    IDLE("zero_force_ds_cpu_optimizer", BOOL, NULL, ADAM),
    IDLE("checkpoint_tag_validation_enabled", BOOL, NULL, ANY_RANKS),
    IDLE("load_universal_checkpoint", BOOL, NULL, ANY_RANKS),
};

const xr_ds_key *xr_ds_keys(size_t i)
{
    return i < sizeof(keys) / sizeof(keys[0]) ? &keys[i] : NULL;
}
