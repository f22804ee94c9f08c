/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds DeepSpeed files as they are used: in the style of DeepSpeed's own
 * documentation, of OpenRLHF and of the Hugging Face integration.
 */
#ifndef XR_DEEPSPEED_FILES_H
#define XR_DEEPSPEED_FILES_H

/* The documentation's first example: Adam, a warm-up, ZeRO 2 with offload. */
static const char ds_documentation[] =
    "{\n"
    "  \"train_batch_size\": 8,\n"
    "  \"gradient_accumulation_steps\": 1,\n"
    "  \"optimizer\": {\n"
    "    \"type\": \"Adam\",\n"
    "    \"params\": {\"lr\": 0.00015, \"betas\": [0.8, 0.95],\n"
    "               \"eps\": 1e-7, \"weight_decay\": 3e-7,\n"
    "               \"torch_adam\": true, \"adam_w_mode\": true}\n"
    "  },\n"
    "  \"scheduler\": {\n"
    "    \"type\": \"WarmupLR\",\n"
    "    \"params\": {\"warmup_min_lr\": 0, \"warmup_max_lr\": 0.00015,\n"
    "               \"warmup_num_steps\": 10, \"warmup_type\": \"linear\"}\n"
    "  },\n"
    "  \"gradient_clipping\": 0.5,\n"
    "  \"prescale_gradients\": false,\n"
    "  \"zero_optimization\": {\n"
    "    \"stage\": 2,\n"
    "    \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true},\n"
    "    \"contiguous_gradients\": true,\n"
    "    \"overlap_comm\": true,\n"
    "    \"reduce_scatter\": true,\n"
    "    \"reduce_bucket_size\": 5e8,\n"
    "    \"allgather_bucket_size\": 5e8\n"
    "  },\n"
    "  \"wall_clock_breakdown\": false,\n"
    "  \"steps_per_print\": 10\n"
    "}\n";

/* Hugging Face: nearly all values are left to the trainer's own arguments. */
static const char ds_hugging_face[] =
    "{\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": 0,\n"
    "  \"loss_scale_window\": 1000, \"initial_scale_power\": 16,\n"
    "  \"hysteresis\": 2, \"min_loss_scale\": 1},\n"
    " \"bf16\": {\"enabled\": \"auto\"},\n"
    " \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\",\n"
    "  \"betas\": \"auto\", \"eps\": \"auto\", \"weight_decay\": \"auto\"}},\n"
    " \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\n"
    "  \"warmup_min_lr\": \"auto\", \"warmup_max_lr\": \"auto\",\n"
    "  \"warmup_num_steps\": \"auto\"}},\n"
    " \"zero_optimization\": {\"stage\": 3,\n"
    "  \"offload_optimizer\": {\"device\": \"none\", \"pin_memory\": true},\n"
    "  \"offload_param\": {\"device\": \"none\", \"pin_memory\": true},\n"
    "  \"overlap_comm\": true, \"contiguous_gradients\": true,\n"
    "  \"sub_group_size\": 1e9, \"reduce_bucket_size\": \"auto\",\n"
    "  \"stage3_prefetch_bucket_size\": \"auto\",\n"
    "  \"stage3_param_persistence_threshold\": \"auto\",\n"
    "  \"stage3_max_live_parameters\": 1e9,\n"
    "  \"stage3_max_reuse_distance\": 1e9,\n"
    "  \"stage3_gather_16bit_weights_on_model_save\": true},\n"
    " \"gradient_accumulation_steps\": \"auto\",\n"
    " \"gradient_clipping\": \"auto\", \"steps_per_print\": 2000,\n"
    " \"train_batch_size\": \"auto\",\n"
    " \"train_micro_batch_size_per_gpu\": \"auto\",\n"
    " \"wall_clock_breakdown\": false}\n";

/* OpenRLHF's training configuration with Adam offloaded. */
static const char ds_openrlhf[] =
    "{\"steps_per_print\": 100,\n"
    " \"zero_optimization\": {\"stage\": 3,\n"
    "  \"offload_param\": {\"device\": \"none\"},\n"
    "  \"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": true},\n"
    "  \"sub_group_size\": \"auto\", \"stage3_max_live_parameters\": "
    "\"auto\",\n"
    "  \"stage3_max_reuse_distance\": \"auto\",\n"
    "  \"stage3_param_persistence_threshold\": \"auto\",\n"
    "  \"stage3_prefetch_bucket_size\": \"auto\",\n"
    "  \"reduce_bucket_size\": \"auto\", \"overlap_comm\": false,\n"
    "  \"zero_hpz_partition_size\": 1, \"zero_quantized_weights\": false,\n"
    "  \"zero_quantized_gradients\": false},\n"
    " \"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0,\n"
    " \"prescale_gradients\": false, \"wall_clock_breakdown\": false,\n"
    " \"data_types\": {\"grad_accum_dtype\": \"fp32\"},\n"
    " \"train_micro_batch_size_per_gpu\": 2, \"train_batch_size\": 16,\n"
    " \"tensor_parallel\": {\"autotp_size\": 1},\n"
    " \"checkpoint\": {\"load_universal\": false}}\n";

/* A linear schedule to zero, everything in host memory, and old names. */
static const char ds_decay[] =
    "{\"train_micro_batch_size_per_gpu\": 4,\n"
    " \"gradient_accumulation_steps\": 2,\n"
    " \"optimizer\": {\"type\": \"adamw\",\n"
    "  \"params\": {\"lr\": 2e-5, \"weight_decay\": 0.1}},\n"
    " \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\n"
    "  \"last_batch_iteration\": -1, \"total_num_steps\": 40,\n"
    "  \"warmup_min_lr\": 0, \"warmup_max_lr\": 2e-5,\n"
    "  \"warmup_num_steps\": 4, \"warmup_type\": \"linear\"}},\n"
    " \"zero_optimization\": {\"stage\": 3, \"cpu_offload\": true,\n"
    "  \"cpu_offload_params\": true, \"round_robin_gradients\": true,\n"
    "  \"zero_hpz_partition_size\": 8}}\n";

/* A cosine schedule and sections of tools, which do not change the model. */
static const char ds_cosine[] =
    "{\"optimizer\": {\"type\": \"AdamW\",\n"
    "  \"params\": {\"lr\": 3e-4, \"betas\": [0.9, 0.95]}},\n"
    " \"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\n"
    "  \"total_num_steps\": 100, \"warmup_min_ratio\": 0.0,\n"
    "  \"warmup_num_steps\": 10, \"cos_min_ratio\": 0.1,\n"
    "  \"warmup_type\": \"linear\"}},\n"
    " \"communication_data_type\": \"bf16\", \"dump_state\": true,\n"
    " \"flops_profiler\": {\"enabled\": false, \"profile_step\": 1},\n"
    " \"tensorboard\": {\"enabled\": true, \"output_path\": \"logs\"},\n"
    " \"activation_checkpointing\": {\"partition_activations\": true,\n"
    "  \"cpu_checkpointing\": false},\n"
    " \"aio\": {\"block_size\": 1048576, \"queue_depth\": 8},\n"
    " \"zero_optimization\": {\"stage\": 1, \"offload_param\": null}}\n";

/* DeepSpeed-Chat's form: half precision disabled, a hybrid engine. */
static const char ds_chat[] =
    "{\"train_batch_size\": 32, \"train_micro_batch_size_per_gpu\": 8,\n"
    " \"steps_per_print\": 10, \"gradient_clipping\": 1,\n"
    " \"zero_optimization\": {\"stage\": 3,\n"
    "  \"offload_param\": {\"device\": \"cpu\"},\n"
    "  \"offload_optimizer\": {\"device\": \"cpu\"},\n"
    "  \"stage3_param_persistence_threshold\": 10000.0,\n"
    "  \"stage3_max_live_parameters\": 30000000.0,\n"
    "  \"stage3_prefetch_bucket_size\": 30000000.0,\n"
    "  \"memory_efficient_linear\": false},\n"
    " \"fp16\": {\"enabled\": false, \"loss_scale_window\": 100},\n"
    " \"prescale_gradients\": false, \"wall_clock_breakdown\": false,\n"
    " \"hybrid_engine\": {\"enabled\": true, \"max_out_tokens\": 512,\n"
    "  \"inference_tp_size\": 1, \"release_inference_cache\": false,\n"
    "  \"pin_parameters\": true, \"tp_gather_partition_size\": 8}}\n";

#endif
