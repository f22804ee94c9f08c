/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves for keys of a DeepSpeed JSON without effect which values agree with
 * this program's behaviour, and how severely others are noted.
 */
#include <xray/host.h>

#include "core/deepspeed/deepspeed.h"
#include "tests/config/config_testing.h"
#include "tests/deepspeed/backend.h"

/* Values that agree give no note; `other` gives one. */
static const struct idle {
    const char *path;
    const char *agrees; /* NULL: none does */
    const char *other;
    const char *level;
} idles[] = {
    { "optimizer.params.torch_adam", "false", "true", "info" },
    { "optimizer.params.fused", NULL, "true", "info" },
    { "optimizer.params.foreach", NULL, "true", "info" },
    { "optimizer.params.set_grad_none", NULL, "true", "info" },
    { "optimizer.params.fp32_optimizer_states", "true", "false", "info" },
    { "optimizer.legacy_fusion", "false", "true", "info" },
    { "bf16.immediate_grad_update", NULL, "true", "info" },
    { "bf16.check_grad_overflow", "true", "false", "info" },
    { "communication_data_type", "\"fp32\"", "\"other\"", "info" },
    { "seq_parallel_communication_data_type", "\"fp32\"", "\"other\"", "info" },
    { "fp32_allreduce", "true", "false", "info" },
    { "prescale_gradients", "false", "true", "info" },
    { "gradient_predivide_factor", "1", "77", "info" },
    { "sparse_gradients", "false", "true", "info" },
    { "zero_optimization.offload_optimizer.pin_memory", "false", "true",
      "info" },
    { "zero_optimization.offload_optimizer.nvme_path", NULL, "\"other\"",
      "warn" },
    { "zero_optimization.offload_optimizer.buffer_count", NULL, "77", "info" },
    { "zero_optimization.offload_optimizer.pipeline", "false", "true", "info" },
    { "zero_optimization.offload_optimizer.pipeline_read", "false", "true",
      "info" },
    { "zero_optimization.offload_optimizer.pipeline_write", "false", "true",
      "info" },
    { "zero_optimization.offload_optimizer.fast_init", "false", "true",
      "info" },
    { "zero_optimization.offload_optimizer.ratio", "1", "77", "warn" },
    { "zero_optimization.offload_optimizer.super_offload", "false", "true",
      "info" },
    { "zero_optimization.offload_param.pin_memory", "false", "true", "info" },
    { "zero_optimization.offload_param.nvme_path", NULL, "\"other\"", "warn" },
    { "zero_optimization.offload_param.buffer_count", NULL, "77", "info" },
    { "zero_optimization.offload_param.buffer_size", NULL, "77", "info" },
    { "zero_optimization.offload_param.max_in_cpu", NULL, "77", "info" },
    { "zero_optimization.cpu_offload_use_pin_memory", "false", "true", "info" },
    { "zero_optimization.overlap_comm", NULL, "true", "info" },
    { "zero_optimization.contiguous_gradients", "true", "false", "info" },
    { "zero_optimization.reduce_bucket_size", NULL, "77", "info" },
    { "zero_optimization.allgather_bucket_size", NULL, "77", "info" },
    { "zero_optimization.allgather_partitions", "true", "false", "info" },
    { "zero_optimization.reduce_scatter", "true", "false", "info" },
    { "zero_optimization.use_multi_rank_bucket_allreduce", NULL, "true",
      "info" },
    { "zero_optimization.round_robin_gradients", "false", "true", "info" },
    { "zero_optimization.grad_hooks", NULL, "true", "info" },
    { "zero_optimization.legacy_stage1", "false", "true", "info" },
    { "zero_optimization.sub_group_size", NULL, "77", "info" },
    { "zero_optimization.stage3_max_live_parameters", NULL, "77", "info" },
    { "zero_optimization.stage3_max_reuse_distance", NULL, "77", "info" },
    { "zero_optimization.stage3_prefetch_bucket_size", NULL, "77", "info" },
    { "zero_optimization.stage3_param_persistence_threshold", NULL, "77",
      "info" },
    { "zero_optimization.stage3_model_persistence_threshold", NULL, "77",
      "info" },
    { "zero_optimization.stage3_module_granularity_threshold", NULL, "77",
      "info" },
    { "zero_optimization.stage3_use_all_reduce_for_fetch_params", "false",
      "true", "info" },
    { "zero_optimization.stage3_gather_16bit_weights_on_model_save", "true",
      "false", "info" },
    { "zero_optimization.stage3_gather_fp16_weights_on_model_save", "true",
      "false", "info" },
    { "zero_optimization.max_live_parameters", NULL, "77", "info" },
    { "zero_optimization.max_reuse_distance", NULL, "77", "info" },
    { "zero_optimization.prefetch_bucket_size", NULL, "77", "info" },
    { "zero_optimization.param_persistence_threshold", NULL, "77", "info" },
    { "zero_optimization.model_persistence_threshold", NULL, "77", "info" },
    { "zero_optimization.module_granularity_threshold", NULL, "77", "info" },
    { "zero_optimization.gather_16bit_weights_on_model_save", "true", "false",
      "info" },
    { "zero_optimization.ignore_unused_parameters", NULL, "true", "info" },
    { "zero_optimization.elastic_checkpoint", "true", "false", "info" },
    { "zero_optimization.load_from_fp32_weights", "true", "false", "info" },
    { "zero_optimization.zero_hpz_partition_size", "1", "77", "warn" },
    { "zero_optimization.zero_quantized_weights", "false", "true", "warn" },
    { "zero_optimization.zero_quantized_nontrainable_weights", "false", "true",
      "warn" },
    { "zero_optimization.zero_quantized_gradients", "false", "true", "warn" },
    { "zero_optimization.mics_shard_size", "-1", "77", "warn" },
    { "zero_optimization.mics_hierarchical_params_gather", "false", "true",
      "info" },
    { "zero_optimization.memory_efficient_linear", NULL, "true", "info" },
    { "zero_optimization.pipeline_loading_checkpoint", "false", "true",
      "info" },
    { "zero_optimization.override_module_apply", NULL, "true", "info" },
    { "zero_optimization.log_trace_cache_warnings", NULL, "true", "info" },
    { "steps_per_print", NULL, "77", "info" },
    { "wall_clock_breakdown", "false", "true", "info" },
    { "memory_breakdown", "false", "true", "info" },
    { "dump_state", "false", "true", "info" },
    { "disable_allgather", "false", "true", "info" },
    { "graph_harvesting", "false", "true", "info" },
    { "dataloader_drop_last", "true", "false", "info" },
    { "zero_allow_untested_optimizer", NULL, "true", "info" },
    { "zero_force_ds_cpu_optimizer", NULL, "true", "info" },
    { "checkpoint_tag_validation_enabled", NULL, "true", "info" },
    { "load_universal_checkpoint", NULL, "true", "info" },
};

/* Members of objects that are not examined; "": any. */
static const struct closed {
    const char *path;
    const char *members;
    int refused; /* if it is switched on */
} closed[] = {
    { "fp16",
      "enabled auto_cast loss_scale initial_scale_power loss_scale_window "
      "hysteresis consecutive_hysteresis min_loss_scale "
      "fp16_master_weights_and_grads",
      1 },
    { "amp", "", 1 },
    { "torch_autocast", "enabled dtype lower_precision_safe_modules", 1 },
    { "zero_optimization.leaf_module", "", 0 },
    { "zero_optimization.zenflow", "", 1 },
    { "sparse_attention", "", 1 },
    { "progressive_layer_drop", "enabled theta gamma", 1 },
    { "curriculum_learning", "", 1 },
    { "data_efficiency", "", 1 },
    { "compression_training", "", 1 },
    { "quantize_training", "", 1 },
    { "elasticity", "", 1 },
    { "pipeline", "", 1 },
    { "activation_checkpointing",
      "partition_activations cpu_checkpointing contiguous_memory_optimization "
      "number_checkpoints synchronize_checkpoint_boundary profile",
      0 },
    { "checkpoint",
      "tag_validation load_universal use_node_local_storage parallel_write "
      "writer",
      0 },
    { "aio",
      "block_size queue_depth thread_count intra_op_parallelism single_submit "
      "overlap_events use_gds",
      0 },
    { "hybrid_engine", "", 0 },
    { "flops_profiler",
      "enabled profile_step module_depth top_modules detailed output_file "
      "recompute_fwd_factor",
      0 },
    { "comms_logger", "enabled verbose prof_all debug prof_ops", 0 },
    { "tensorboard", "enabled output_path job_name", 0 },
    { "wandb", "enabled group team project", 0 },
    { "csv_monitor", "enabled output_path job_name", 0 },
    { "comet", "", 0 },
    { "monitor_config", "", 0 },
    { "autotuning", "", 0 },
    { "eigenvalue", "", 0 },
    { "nebula", "", 0 },
    { "compile", "", 0 },
    { "timers", "", 0 },
};

/* Returns the notes and errors for a file with that value at that path. */
static const char *read_single_key(const char *path, const char *value)
{
    static char said[512];
    xr_config *config = xr_config_new();
    xr_errors errors = { 0 };
    xr_str json = { 0 };
    size_t depth = 0;
    const char *open = "{";
    assert_non_null(config);
    for (const char *at = path; *at; depth++) {
        size_t size = strcspn(at, ".");
        xr_str_printf(&json, "%s\"%.*s\": ", open, (int)size, at);
        open =
            strncmp(at, "optimizer.", 10) == 0 ? "{\"type\": \"AdamW\", " : "{";
        at += size + (at[size] == '.');
    }
    xr_str_puts(&json, value);
    for (; depth; depth--)
        xr_str_puts(&json, "}");
    write_text("ds.json", xr_str_text(&json));
    xr_config_read(config, "run.ini", &errors);
    xr_deepspeed_read(config, &ds_backend, 0, 1, &errors);
    const xr_note *n = xr_config_notes(config);
    said[0] = '\0';
    if (errors.count)
        (void)snprintf(said, sizeof(said), "error %s", errors.items[0]);
    else if (n)
        (void)snprintf(said, sizeof(said), "%s %s",
                       n->level == XRAY_LOG_WARN ? "warn" : "info", n->text);
    assert_true(!n || !n->next);
    xr_str_free(&json);
    xr_errors_free(&errors);
    xr_config_free(config);
    (void)unlink("ds.json");
    return said;
}

static void each_key_agrees_or_is_noted(void **state)
{
    (void)state;
    write_text("run.ini", "[train.zero3]\ndeepspeed_config = ds.json\n");
    for (size_t i = 0; i < sizeof(idles) / sizeof(idles[0]); i++) {
        const struct idle *k = &idles[i];
        char want[200];
        const char *said = k->agrees ? read_single_key(k->path, k->agrees) : "";
        if (*said)
            fail_msg("%s = %s: %s", k->path, k->agrees, said);
        (void)snprintf(want, sizeof(want),
                       "%s ds.json: %s: no effect here: ", k->level, k->path);
        said = read_single_key(k->path, k->other);
        if (strncmp(said, want, strlen(want)) != 0)
            fail_msg("%s = %s: %s", k->path, k->other, said);
    }
}

static void each_member_is_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(closed) / sizeof(closed[0]); i++) {
        const struct closed *k = &closed[i];
        char want[200];
        char value[128];
        (void)snprintf(want, sizeof(want),
                       k->refused ? "error ds.json: %s: is refused: "
                                  : "info ds.json: %s: no effect here: ",
                       k->path);
        const char *said = read_single_key(k->path, "{}");
        if (*said)
            fail_msg("%s = {}: %s", k->path, said);
        for (const char *at = *k->members ? k->members : "anything"; *at;) {
            size_t size = strcspn(at, " ");
            (void)snprintf(value, sizeof(value), "{\"%.*s\": true}", (int)size,
                           at);
            said = read_single_key(k->path, value);
            if (strncmp(said, want, strlen(want)) != 0)
                fail_msg("%s = %s: %s", k->path, value, said);
            at += size + strspn(at + size, " ");
        }
        said = read_single_key(k->path, "{\"qqqqqqqqqqqq\": true}");
        (void)snprintf(want, sizeof(want),
                       "error ds.json: %s.qqqqqqqqqqqq: no such key", k->path);
        if (*k->members && strcmp(said, want) != 0)
            fail_msg("%s: %s", k->path, said);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_key_agrees_or_is_noted),
        cmocka_unit_test(each_member_is_known),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
