/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of ABI major 0: every member of every struct. A draft may change,
 * but never by accident: whoever moves a member edits this file with it.
 */
#include "tests/abi/layout.h"

#include <xray/abi.h>
#include <xray/algo.h>
#include <xray/batch.h>
#include <xray/host.h>
#include <xray/infer.h>
#include <xray/option.h>
#include <xray/plugin.h>
#include <xray/reward.h>
#include <xray/services.h>
#include <xray/setup.h>
#include <xray/tracker.h>
#include <xray/train.h>

AT(xray_header, size, 0);
AT(xray_header, abi, 4);
SIZE(xray_header, 8);

AT(xray_location, header, 0);
AT(xray_location, section, 8);
AT(xray_location, key, 16);
AT(xray_location, file, 24);
SIZE(xray_location, 32);

AT(xray_host, header, 0);
AT(xray_host, host_data, 8);
AT(xray_host, version, 16);
AT(xray_host, log, 24);
AT(xray_host, fail, 32);
AT(xray_host, service, 40);
AT(xray_host, fail_at, 48);
SIZE(xray_host, 56);

AT(xray_call_service, header, 0);
AT(xray_call_service, host_data, 8);
AT(xray_call_service, stopping, 16);
AT(xray_call_service, on_control, 24);
SIZE(xray_call_service, 32);

AT(xray_log_service, header, 0);
AT(xray_log_service, host_data, 8);
AT(xray_log_service, level, 16);
SIZE(xray_log_service, 24);

AT(xray_metrics_service, header, 0);
AT(xray_metrics_service, host_data, 8);
AT(xray_metrics_service, put, 16);
SIZE(xray_metrics_service, 24);

AT(xray_list, items, 0);
AT(xray_list, count, 8);
SIZE(xray_list, 16);

AT(xray_choice, name, 0);
AT(xray_choice, value, 8);
AT(xray_choice, doc, 16);
SIZE(xray_choice, 24);

AT(xray_option, name, 0);
AT(xray_option, type, 8);
AT(xray_option, flags, 12);
AT(xray_option, offset, 16);
AT(xray_option, preset, 24);
AT(xray_option, doc, 32);
AT(xray_option, min, 40);
AT(xray_option, max, 48);
AT(xray_option, choices, 56);
AT(xray_option, unit, 64);
AT(xray_option, since, 72);
AT(xray_option, choice_stride, 80);
AT(xray_option, reserved, 84);
SIZE(xray_option, 88);

AT(xray_component, header, 0);
AT(xray_component, iface, 8);
AT(xray_component, name, 16);
AT(xray_component, summary, 24);
AT(xray_component, ops, 32);
AT(xray_component, options, 40);
AT(xray_component, option_count, 48);
AT(xray_component, option_stride, 52);
AT(xray_component, config_size, 56);
AT(xray_component, numerics, 64);
SIZE(xray_component, 72);

AT(xray_plugin, header, 0);
AT(xray_plugin, abi_needed, 8);
AT(xray_plugin, component_count, 12);
AT(xray_plugin, name, 16);
AT(xray_plugin, version, 24);
AT(xray_plugin, vendor, 32);
AT(xray_plugin, license, 40);
AT(xray_plugin, components, 48);
SIZE(xray_plugin, 56);

AT(xray_span, row, 0);
AT(xray_span, first, 4);
AT(xray_span, last, 8);
AT(xray_span, reserved, 12);
AT(xray_span, version, 16);
SIZE(xray_span, 24);

AT(xray_batch, header, 0);
AT(xray_batch, rows, 8);
AT(xray_batch, tokens, 12);
AT(xray_batch, span_count, 16);
AT(xray_batch, span_stride, 20);
AT(xray_batch, spans, 24);
AT(xray_batch, ids, 32);
AT(xray_batch, row_start, 40);
AT(xray_batch, prompt_len, 48);
AT(xray_batch, loss_mask, 56);
AT(xray_batch, row_id, 64);
AT(xray_batch, prompt_id, 72);
AT(xray_batch, group, 80);
AT(xray_batch, temperature, 88);
AT(xray_batch, rollout_logp, 96);
AT(xray_batch, old_logp, 104);
AT(xray_batch, ref_logp, 112);
AT(xray_batch, value, 120);
AT(xray_batch, reward, 128);
AT(xray_batch, advantage, 136);
AT(xray_batch, returns, 144);
AT(xray_batch, baseline, 152);
AT(xray_batch, scores, 160);
AT(xray_batch, score_weight, 168);
AT(xray_batch, score_count, 176);
AT(xray_batch, share_prompts, 180);
AT(xray_batch, row_index, 184);
AT(xray_batch, segment, 192);
AT(xray_batch, reserved, 196);
SIZE(xray_batch, 200);

AT(xray_model, header, 0);
AT(xray_model, path, 8);
AT(xray_model, config_json, 16);
AT(xray_model, dtype, 24);
AT(xray_model, vocab_size, 28);
AT(xray_model, max_positions, 32);
AT(xray_model, random_init, 36);
AT(xray_model, seed, 40);
SIZE(xray_model, 48);

AT(xray_axis, name, 0);
AT(xray_axis, size, 8);
AT(xray_axis, reserved, 12);
SIZE(xray_axis, 16);

AT(xray_subgroup, name, 0);
AT(xray_subgroup, group, 8);
AT(xray_subgroup, rank, 16);
AT(xray_subgroup, size, 20);
SIZE(xray_subgroup, 24);

AT(xray_world, header, 0);
AT(xray_world, rank, 8);
AT(xray_world, size, 12);
AT(xray_world, comm, 16);
AT(xray_world, comm_self, 24);
AT(xray_world, group, 32);
AT(xray_world, global_ranks, 40);
AT(xray_world, subgroups, 48);
AT(xray_world, subgroup_count, 56);
AT(xray_world, subgroup_stride, 60);
SIZE(xray_world, 64);

AT(xray_tensor, name, 0);
AT(xray_tensor, dtype, 8);
AT(xray_tensor, dims, 12);
AT(xray_tensor, shape, 16);
AT(xray_tensor, lo, 48);
AT(xray_tensor, extent, 80);
AT(xray_tensor, stride, 112);
AT(xray_tensor, data, 144);
AT(xray_tensor, weight, 152);
AT(xray_tensor, weight_row, 160);
SIZE(xray_tensor, 168);

AT(xray_weights, header, 0);
AT(xray_weights, tensor_count, 8);
AT(xray_weights, tensor_stride, 12);
AT(xray_weights, tensors, 16);
AT(xray_weights, device, 24);
AT(xray_weights, device_self, 32);
AT(xray_weights, owner, 40);
AT(xray_weights, version, 48);
AT(xray_weights, lease, 56);
AT(xray_weights, release, 64);
AT(xray_weights, offloaded, 72);
SIZE(xray_weights, 80);

AT(xray_setup, header, 0);
AT(xray_setup, host, 8);
AT(xray_setup, device, 16);
AT(xray_setup, device_self, 24);
AT(xray_setup, model, 32);
AT(xray_setup, world, 40);
AT(xray_setup, weights, 48);
AT(xray_setup, role, 56);
AT(xray_setup, trainable, 60);
AT(xray_setup, trainable_from_layer, 64);
AT(xray_setup, reserved, 68);
SIZE(xray_setup, 72);

AT(xray_workload, header, 0);
AT(xray_workload, tokens, 8);
AT(xray_workload, rows, 16);
AT(xray_workload, row_tokens, 24);
AT(xray_workload, outputs, 32);
AT(xray_workload, trainable, 36);
AT(xray_workload, shared, 40);
AT(xray_workload, trainable_from_layer, 44);
AT(xray_workload, device, 48);
AT(xray_workload, device_config, 56);
AT(xray_workload, device_work, 64);
AT(xray_workload, segments, 72);
AT(xray_workload, prompt_tokens, 76);
SIZE(xray_workload, 80);

AT(xray_plan, header, 0);
AT(xray_plan, bytes, 8);
AT(xray_plan, micro_multiple, 136);
AT(xray_plan, token_multiple, 144);
AT(xray_plan, evictable, 152);
AT(xray_plan, sharded, 156);
AT(xray_plan, axes, 160);
AT(xray_plan, axis_count, 168);
AT(xray_plan, axis_stride, 172);
AT(xray_plan, answers, 176);
AT(xray_plan, segments, 180);
AT(xray_plan, numerics, 184);
AT(xray_plan, recompute, 192);
AT(xray_plan, sequence, 196);
AT(xray_plan, chunks, 200);
AT(xray_plan, reserved, 204);
AT(xray_plan, offloaded, 208);
SIZE(xray_plan, 216);

AT(xray_outputs, header, 0);
AT(xray_outputs, logp, 8);
AT(xray_outputs, entropy, 16);
AT(xray_outputs, value, 24);
SIZE(xray_outputs, 32);

AT(xray_loss_call, header, 0);
AT(xray_loss_call, batch, 8);
AT(xray_loss_call, logp, 16);
AT(xray_loss_call, entropy, 24);
AT(xray_loss_call, value, 32);
AT(xray_loss_call, dlogp, 40);
AT(xray_loss_call, dentropy, 48);
AT(xray_loss_call, dvalue, 56);
AT(xray_loss_call, host, 64);
SIZE(xray_loss_call, 72);

AT(xray_loss, header, 0);
AT(xray_loss, ctx, 8);
AT(xray_loss, fn, 16);
AT(xray_loss, outputs, 24);
AT(xray_loss, reserved, 28);
SIZE(xray_loss, 32);

AT(xray_step_result, header, 0);
AT(xray_step_result, grad_norm, 8);
AT(xray_step_result, skipped, 16);
AT(xray_step_result, reserved, 20);
AT(xray_step_result, version, 24);
AT(xray_step_result, bad_tensor, 32);
SIZE(xray_step_result, 40);

AT(xray_train_debug, header, 0);
AT(xray_train_debug, gradients, 8);
AT(xray_train_debug, import, 16);
SIZE(xray_train_debug, 24);

AT(xray_train_ops, header, 0);
AT(xray_train_ops, plan, 8);
AT(xray_train_ops, create, 16);
AT(xray_train_ops, destroy, 24);
AT(xray_train_ops, weights, 32);
AT(xray_train_ops, forward, 40);
AT(xray_train_ops, forward_backward, 48);
AT(xray_train_ops, optimizer_step, 56);
AT(xray_train_ops, save, 64);
AT(xray_train_ops, load, 72);
AT(xray_train_ops, offload, 80);
AT(xray_train_ops, onload, 88);
AT(xray_train_ops, extension, 96);
AT(xray_train_ops, export_begin, 104);
AT(xray_train_ops, export_next, 112);
AT(xray_train_ops, export_end, 120);
AT(xray_train_ops, discard, 128);
SIZE(xray_train_ops, 136);

AT(xray_id_list, ids, 0);
AT(xray_id_list, count, 8);
AT(xray_id_list, reserved, 12);
SIZE(xray_id_list, 16);

AT(xray_bias, id, 0);
AT(xray_bias, bias, 4);
SIZE(xray_bias, 8);

AT(xray_request, header, 0);
AT(xray_request, id, 8);
AT(xray_request, ids, 16);
AT(xray_request, id_count, 24);
AT(xray_request, count, 28);
AT(xray_request, first_sample, 32);
AT(xray_request, max_tokens, 36);
AT(xray_request, seed, 40);
AT(xray_request, step, 48);
AT(xray_request, prompt_id, 56);
AT(xray_request, temperature, 64);
AT(xray_request, top_p, 68);
AT(xray_request, min_p, 72);
AT(xray_request, top_k, 76);
AT(xray_request, stop_ids, 80);
AT(xray_request, stop_count, 88);
AT(xray_request, hold, 92);
AT(xray_request, stream, 96);
AT(xray_request, stop_list_count, 100);
AT(xray_request, stop_list_stride, 104);
AT(xray_request, repeat_size, 108);
AT(xray_request, stop_lists, 112);
AT(xray_request, repeat_count, 120);
AT(xray_request, min_tokens, 124);
AT(xray_request, repetition_penalty, 128);
AT(xray_request, frequency_penalty, 132);
AT(xray_request, presence_penalty, 136);
AT(xray_request, bias_count, 140);
AT(xray_request, biases, 144);
AT(xray_request, bias_stride, 152);
AT(xray_request, allowed_count, 156);
AT(xray_request, allowed_ids, 160);
AT(xray_request, banned_lists, 168);
AT(xray_request, banned_list_count, 176);
AT(xray_request, banned_list_stride, 180);
AT(xray_request, forced_ids, 184);
AT(xray_request, forced_count, 192);
AT(xray_request, top_count, 196);
AT(xray_request, logp_ids, 200);
AT(xray_request, logp_id_count, 208);
AT(xray_request, prompt_logp, 212);
SIZE(xray_request, 216);

AT(xray_sample_out, header, 0);
AT(xray_sample_out, id, 8);
AT(xray_sample_out, sample, 16);
AT(xray_sample_out, token_count, 20);
AT(xray_sample_out, tokens, 24);
AT(xray_sample_out, raw_logp, 32);
AT(xray_sample_out, logp, 40);
AT(xray_sample_out, finish, 48);
AT(xray_sample_out, span_count, 52);
AT(xray_sample_out, spans, 56);
AT(xray_sample_out, span_stride, 64);
AT(xray_sample_out, first, 68);
AT(xray_sample_out, prompt_logp, 72);
AT(xray_sample_out, prompt_count, 80);
AT(xray_sample_out, top_count, 84);
AT(xray_sample_out, top_ids, 88);
AT(xray_sample_out, top_logp, 96);
AT(xray_sample_out, logp_of_ids, 104);
SIZE(xray_sample_out, 112);

AT(xray_infer_stats, header, 0);
AT(xray_infer_stats, requests_running, 8);
AT(xray_infer_stats, requests_waiting, 16);
AT(xray_infer_stats, prompt_tokens, 24);
AT(xray_infer_stats, generation_tokens, 32);
AT(xray_infer_stats, steps, 40);
AT(xray_infer_stats, kv_tokens, 48);
AT(xray_infer_stats, kv_capacity, 56);
AT(xray_infer_stats, prefix_tokens_saved, 64);
AT(xray_infer_stats, preemptions, 72);
AT(xray_infer_stats, recomputed_tokens, 80);
AT(xray_infer_stats, num_draft_tokens, 88);
AT(xray_infer_stats, num_accepted_tokens, 96);
SIZE(xray_infer_stats, 104);

AT(xray_infer_ops, header, 0);
AT(xray_infer_ops, capabilities, 8);
AT(xray_infer_ops, plan, 16);
AT(xray_infer_ops, create, 24);
AT(xray_infer_ops, destroy, 32);
AT(xray_infer_ops, submit, 40);
AT(xray_infer_ops, step, 48);
AT(xray_infer_ops, poll, 56);
AT(xray_infer_ops, abort, 64);
AT(xray_infer_ops, stats, 72);
AT(xray_infer_ops, update, 80);
AT(xray_infer_ops, extend, 88);
AT(xray_infer_ops, release, 96);
AT(xray_infer_ops, pause, 104);
AT(xray_infer_ops, resume, 112);
AT(xray_infer_ops, sleep, 120);
AT(xray_infer_ops, wake, 128);
AT(xray_infer_ops, extension, 136);
AT(xray_infer_ops, weights, 144);
SIZE(xray_infer_ops, 152);

AT(xray_needs, header, 0);
AT(xray_needs, flags, 8);
AT(xray_needs, reserved, 12);
SIZE(xray_needs, 16);

AT(xray_totals, header, 0);
AT(xray_totals, rows, 8);
AT(xray_totals, tokens, 16);
AT(xray_totals, max_response, 24);
SIZE(xray_totals, 32);

AT(xray_metric_sums, header, 0);
AT(xray_metric_sums, sum, 8);
AT(xray_metric_sums, weight, 16);
AT(xray_metric_sums, count, 24);
SIZE(xray_metric_sums, 32);

AT(xray_metric_sink, header, 0);
AT(xray_metric_sink, ctx, 8);
AT(xray_metric_sink, put, 16);
SIZE(xray_metric_sink, 24);

AT(xray_algo_ops, header, 0);
AT(xray_algo_ops, create, 8);
AT(xray_algo_ops, destroy, 16);
AT(xray_algo_ops, needs, 24);
AT(xray_algo_ops, prepare, 32);
AT(xray_algo_ops, context, 40);
AT(xray_algo_ops, metric_names, 48);
AT(xray_algo_ops, loss, 56);
AT(xray_algo_ops, accept, 64);
AT(xray_algo_ops, select, 72);
AT(xray_algo_ops, observe, 80);
AT(xray_algo_ops, save, 88);
AT(xray_algo_ops, load, 96);
AT(xray_algo_ops, extension, 104);
AT(xray_algo_ops, critic_loss, 112);
SIZE(xray_algo_ops, 120);

AT(xray_algo_presets, header, 0);
AT(xray_algo_presets, columns, 8);
AT(xray_algo_presets, rows, 12);
AT(xray_algo_presets, titles, 16);
AT(xray_algo_presets, cells, 24);
SIZE(xray_algo_presets, 32);

AT(xray_sample_in, header, 0);
AT(xray_sample_in, id, 8);
AT(xray_sample_in, prompt, 16);
AT(xray_sample_in, response, 24);
AT(xray_sample_in, ground_truth, 32);
AT(xray_sample_in, data_source, 40);
AT(xray_sample_in, fields_json, 48);
AT(xray_sample_in, prompt_size, 56);
AT(xray_sample_in, response_size, 64);
AT(xray_sample_in, ids, 72);
AT(xray_sample_in, id_count, 80);
AT(xray_sample_in, finish, 84);
AT(xray_sample_in, prompt_ids, 88);
AT(xray_sample_in, prompt_id_count, 96);
AT(xray_sample_in, reserved, 100);
SIZE(xray_sample_in, 104);

AT(xray_named_value, name, 0);
AT(xray_named_value, value, 8);
SIZE(xray_named_value, 16);

AT(xray_score, header, 0);
AT(xray_score, id, 8);
AT(xray_score, score, 16);
AT(xray_score, token_scores, 24);
AT(xray_score, values, 32);
AT(xray_score, value_count, 40);
AT(xray_score, value_stride, 44);
SIZE(xray_score, 48);

AT(xray_reward_ops, header, 0);
AT(xray_reward_ops, create, 8);
AT(xray_reward_ops, destroy, 16);
AT(xray_reward_ops, submit, 24);
AT(xray_reward_ops, poll, 32);
AT(xray_reward_ops, extension, 40);
AT(xray_reward_ops, capabilities, 48);
SIZE(xray_reward_ops, 56);

AT(xray_named_text, name, 0);
AT(xray_named_text, text, 8);
AT(xray_named_text, size, 16);
SIZE(xray_named_text, 24);

AT(xray_histogram, name, 0);
AT(xray_histogram, edges, 8);
AT(xray_histogram, counts, 16);
AT(xray_histogram, count, 24);
SIZE(xray_histogram, 32);

AT(xray_track_setup, header, 0);
AT(xray_track_setup, job, 8);
AT(xray_track_setup, run, 16);
AT(xray_track_setup, folder, 24);
AT(xray_track_setup, project, 32);
AT(xray_track_setup, experiment, 40);
AT(xray_track_setup, settings, 48);
AT(xray_track_setup, setting_count, 56);
AT(xray_track_setup, setting_stride, 64);
AT(xray_track_setup, step, 72);
AT(xray_track_setup, resumed, 80);
AT(xray_track_setup, reserved, 84);
SIZE(xray_track_setup, 88);

AT(xray_track_step, header, 0);
AT(xray_track_step, step, 8);
AT(xray_track_step, time, 16);
AT(xray_track_step, scalars, 24);
AT(xray_track_step, scalar_count, 32);
AT(xray_track_step, scalar_stride, 40);
AT(xray_track_step, histograms, 48);
AT(xray_track_step, histogram_count, 56);
AT(xray_track_step, histogram_stride, 64);
AT(xray_track_step, texts, 72);
AT(xray_track_step, text_count, 80);
AT(xray_track_step, text_stride, 88);
SIZE(xray_track_step, 96);

AT(xray_tracker_ops, header, 0);
AT(xray_tracker_ops, create, 8);
AT(xray_tracker_ops, destroy, 16);
AT(xray_tracker_ops, submit, 24);
AT(xray_tracker_ops, flush, 32);
AT(xray_tracker_ops, probe, 40);
AT(xray_tracker_ops, extension, 48);
SIZE(xray_tracker_ops, 56);
