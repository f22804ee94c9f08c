/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout of ABI major 0, the device: every member of every struct. A draft may
 * change, but never by accident: whoever moves a member edits this file with
 * it.
 */
#include "tests/abi/layout.h"

#include <xray/device.h>
#include <xray/numerics.h>

AT(xray_extent, bound, 0);
AT(xray_extent, live, 8);
SIZE(xray_extent, 16);

AT(xray_weight_desc, header, 0);
AT(xray_weight_desc, data, 8);
AT(xray_weight_desc, rows, 16);
AT(xray_weight_desc, cols, 24);
AT(xray_weight_desc, dtype, 32);
AT(xray_weight_desc, uses, 36);
SIZE(xray_weight_desc, 40);

AT(xray_matmul, header, 0);
AT(xray_matmul, weight, 8);
AT(xray_matmul, tokens, 16);
AT(xray_matmul, x, 32);
AT(xray_matmul, y, 40);
AT(xray_matmul, x_stride, 48);
AT(xray_matmul, y_stride, 56);
AT(xray_matmul, bias, 64);
AT(xray_matmul, residual, 72);
AT(xray_matmul, residual_stride, 80);
AT(xray_matmul, kind, 88);
AT(xray_matmul, alpha, 92);
AT(xray_matmul, act, 96);
AT(xray_matmul, plain, 100);
SIZE(xray_matmul, 104);

AT(xray_matmul_grad, header, 0);
AT(xray_matmul_grad, tokens, 8);
AT(xray_matmul_grad, dy, 24);
AT(xray_matmul_grad, x, 32);
AT(xray_matmul_grad, dy_stride, 40);
AT(xray_matmul_grad, x_stride, 48);
AT(xray_matmul_grad, rows, 56);
AT(xray_matmul_grad, cols, 64);
AT(xray_matmul_grad, dw, 72);
AT(xray_matmul_grad, dbias, 80);
SIZE(xray_matmul_grad, 88);

AT(xray_embedding, header, 0);
AT(xray_embedding, tokens, 8);
AT(xray_embedding, ids, 24);
AT(xray_embedding, table, 32);
AT(xray_embedding, y, 40);
AT(xray_embedding, vocab, 48);
AT(xray_embedding, dim, 56);
AT(xray_embedding, scale, 64);
AT(xray_embedding, table_dtype, 68);
AT(xray_embedding, vocab_first, 72);
AT(xray_embedding, slice, 80);
AT(xray_embedding, reserved, 84);
SIZE(xray_embedding, 88);

AT(xray_embedding_grad, header, 0);
AT(xray_embedding_grad, tokens, 8);
AT(xray_embedding_grad, ids, 24);
AT(xray_embedding_grad, dy, 32);
AT(xray_embedding_grad, dtable, 40);
AT(xray_embedding_grad, vocab, 48);
AT(xray_embedding_grad, dim, 56);
AT(xray_embedding_grad, scale, 64);
AT(xray_embedding_grad, slice, 68);
AT(xray_embedding_grad, vocab_first, 72);
SIZE(xray_embedding_grad, 80);

AT(xray_rows, header, 0);
AT(xray_rows, count, 8);
AT(xray_rows, index, 24);
AT(xray_rows, x, 32);
AT(xray_rows, y, 40);
AT(xray_rows, dim, 48);
SIZE(xray_rows, 56);

AT(xray_rmsnorm, header, 0);
AT(xray_rmsnorm, tokens, 8);
AT(xray_rmsnorm, x, 24);
AT(xray_rmsnorm, residual, 32);
AT(xray_rmsnorm, weight, 40);
AT(xray_rmsnorm, y, 48);
AT(xray_rmsnorm, rstd, 56);
AT(xray_rmsnorm, x_stride, 64);
AT(xray_rmsnorm, y_stride, 72);
AT(xray_rmsnorm, groups, 80);
AT(xray_rmsnorm, dim, 84);
AT(xray_rmsnorm, eps, 88);
AT(xray_rmsnorm, offset, 92);
SIZE(xray_rmsnorm, 96);

AT(xray_rmsnorm_grad, header, 0);
AT(xray_rmsnorm_grad, tokens, 8);
AT(xray_rmsnorm_grad, x, 24);
AT(xray_rmsnorm_grad, weight, 32);
AT(xray_rmsnorm_grad, rstd, 40);
AT(xray_rmsnorm_grad, dy, 48);
AT(xray_rmsnorm_grad, dx, 56);
AT(xray_rmsnorm_grad, dweight, 64);
AT(xray_rmsnorm_grad, x_stride, 72);
AT(xray_rmsnorm_grad, dy_stride, 80);
AT(xray_rmsnorm_grad, dx_stride, 88);
AT(xray_rmsnorm_grad, groups, 96);
AT(xray_rmsnorm_grad, dim, 100);
AT(xray_rmsnorm_grad, accumulate, 104);
AT(xray_rmsnorm_grad, offset, 108);
SIZE(xray_rmsnorm_grad, 112);

AT(xray_layernorm, header, 0);
AT(xray_layernorm, tokens, 8);
AT(xray_layernorm, x, 24);
AT(xray_layernorm, weight, 32);
AT(xray_layernorm, bias, 40);
AT(xray_layernorm, y, 48);
AT(xray_layernorm, stat, 56);
AT(xray_layernorm, x_stride, 64);
AT(xray_layernorm, y_stride, 72);
AT(xray_layernorm, dim, 80);
AT(xray_layernorm, eps, 84);
SIZE(xray_layernorm, 88);

AT(xray_layernorm_grad, header, 0);
AT(xray_layernorm_grad, tokens, 8);
AT(xray_layernorm_grad, x, 24);
AT(xray_layernorm_grad, weight, 32);
AT(xray_layernorm_grad, stat, 40);
AT(xray_layernorm_grad, dy, 48);
AT(xray_layernorm_grad, dx, 56);
AT(xray_layernorm_grad, dweight, 64);
AT(xray_layernorm_grad, dbias, 72);
AT(xray_layernorm_grad, x_stride, 80);
AT(xray_layernorm_grad, dy_stride, 88);
AT(xray_layernorm_grad, dx_stride, 96);
AT(xray_layernorm_grad, dim, 104);
AT(xray_layernorm_grad, accumulate, 108);
SIZE(xray_layernorm_grad, 112);

AT(xray_rope_table, header, 0);
AT(xray_rope_table, inv_freq, 8);
AT(xray_rope_table, table, 16);
AT(xray_rope_table, positions, 24);
AT(xray_rope_table, half, 32);
AT(xray_rope_table, scale, 36);
SIZE(xray_rope_table, 40);

AT(xray_rope, header, 0);
AT(xray_rope, tokens, 8);
AT(xray_rope, x, 24);
AT(xray_rope, positions, 32);
AT(xray_rope, table, 40);
AT(xray_rope, stride, 48);
AT(xray_rope, heads, 56);
AT(xray_rope, head_dim, 60);
AT(xray_rope, half, 64);
AT(xray_rope, inverse, 68);
SIZE(xray_rope, 72);

AT(xray_glu, header, 0);
AT(xray_glu, tokens, 8);
AT(xray_glu, x, 24);
AT(xray_glu, y, 32);
AT(xray_glu, dim, 40);
AT(xray_glu, act, 44);
AT(xray_glu, plain, 48);
AT(xray_glu, reserved, 52);
SIZE(xray_glu, 56);

AT(xray_glu_grad, header, 0);
AT(xray_glu_grad, tokens, 8);
AT(xray_glu_grad, x, 24);
AT(xray_glu_grad, dy, 32);
AT(xray_glu_grad, dx, 40);
AT(xray_glu_grad, dim, 48);
AT(xray_glu_grad, act, 52);
AT(xray_glu_grad, plain, 56);
AT(xray_glu_grad, reserved, 60);
SIZE(xray_glu_grad, 64);

AT(xray_attention, header, 0);
AT(xray_attention, tokens, 8);
AT(xray_attention, row_start, 24);
AT(xray_attention, rows, 32);
AT(xray_attention, row_bound, 40);
AT(xray_attention, q, 48);
AT(xray_attention, k, 56);
AT(xray_attention, v, 64);
AT(xray_attention, o, 72);
AT(xray_attention, lse, 80);
AT(xray_attention, q_stride, 88);
AT(xray_attention, k_stride, 96);
AT(xray_attention, v_stride, 104);
AT(xray_attention, o_stride, 112);
AT(xray_attention, heads, 120);
AT(xray_attention, kv_heads, 124);
AT(xray_attention, head_dim, 128);
AT(xray_attention, window, 132);
AT(xray_attention, scale, 136);
AT(xray_attention, softcap, 140);
AT(xray_attention, parent, 144);
SIZE(xray_attention, 152);

AT(xray_attention_grad, header, 0);
AT(xray_attention_grad, forward, 8);
AT(xray_attention_grad, d_o, 16);
AT(xray_attention_grad, dq, 24);
AT(xray_attention_grad, dk, 32);
AT(xray_attention_grad, dv, 40);
AT(xray_attention_grad, dq_stride, 48);
AT(xray_attention_grad, dk_stride, 56);
AT(xray_attention_grad, dv_stride, 64);
SIZE(xray_attention_grad, 72);

AT(xray_kv, header, 0);
AT(xray_kv, blocks, 8);
AT(xray_kv, table, 16);
AT(xray_kv, table_stride, 24);
AT(xray_kv, block_tokens, 32);
AT(xray_kv, kv_heads, 36);
AT(xray_kv, head_dim, 40);
AT(xray_kv, dtype, 44);
SIZE(xray_kv, 48);

AT(xray_attention_kv, header, 0);
AT(xray_attention_kv, tokens, 8);
AT(xray_attention_kv, kv, 24);
AT(xray_attention_kv, seq, 32);
AT(xray_attention_kv, positions, 40);
AT(xray_attention_kv, q, 48);
AT(xray_attention_kv, k, 56);
AT(xray_attention_kv, v, 64);
AT(xray_attention_kv, o, 72);
AT(xray_attention_kv, q_stride, 80);
AT(xray_attention_kv, k_stride, 88);
AT(xray_attention_kv, v_stride, 96);
AT(xray_attention_kv, o_stride, 104);
AT(xray_attention_kv, position_bound, 112);
AT(xray_attention_kv, heads, 120);
AT(xray_attention_kv, window, 124);
AT(xray_attention_kv, scale, 128);
AT(xray_attention_kv, softcap, 132);
SIZE(xray_attention_kv, 136);

AT(xray_lm_head_logp, header, 0);
AT(xray_lm_head_logp, items, 8);
AT(xray_lm_head_logp, weight, 24);
AT(xray_lm_head_logp, x, 32);
AT(xray_lm_head_logp, targets, 40);
AT(xray_lm_head_logp, temperature, 48);
AT(xray_lm_head_logp, logp, 56);
AT(xray_lm_head_logp, entropy, 64);
AT(xray_lm_head_logp, lse, 72);
AT(xray_lm_head_logp, partial, 80);
AT(xray_lm_head_logp, vocab_first, 88);
AT(xray_lm_head_logp, softcap, 96);
AT(xray_lm_head_logp, reserved, 100);
AT(xray_lm_head_logp, logits, 104);
SIZE(xray_lm_head_logp, 112);

AT(xray_lm_head_grad, header, 0);
AT(xray_lm_head_grad, forward, 8);
AT(xray_lm_head_grad, dlogp, 16);
AT(xray_lm_head_grad, dentropy, 24);
AT(xray_lm_head_grad, dx, 32);
AT(xray_lm_head_grad, dweight, 40);
SIZE(xray_lm_head_grad, 48);

AT(xray_draw, key, 0);
AT(xray_draw, sample, 8);
AT(xray_draw, position, 12);
AT(xray_draw, temperature, 16);
AT(xray_draw, top_p, 20);
AT(xray_draw, min_p, 24);
AT(xray_draw, top_k, 28);
SIZE(xray_draw, 32);

AT(xray_philox_out, w, 0);
SIZE(xray_philox_out, 16);

AT(xray_sample, header, 0);
AT(xray_sample, items, 8);
AT(xray_sample, weight, 24);
AT(xray_sample, x, 32);
AT(xray_sample, draws, 40);
AT(xray_sample, token, 48);
AT(xray_sample, raw_logp, 56);
AT(xray_sample, logp, 64);
AT(xray_sample, logits, 72);
AT(xray_sample, softcap, 80);
AT(xray_sample, draw_stride, 84);
SIZE(xray_sample, 88);

AT(xray_axpby, header, 0);
AT(xray_axpby, count, 8);
AT(xray_axpby, x, 16);
AT(xray_axpby, y, 24);
AT(xray_axpby, alpha, 32);
AT(xray_axpby, beta, 36);
SIZE(xray_axpby, 40);

AT(xray_cast, header, 0);
AT(xray_cast, count, 8);
AT(xray_cast, x, 16);
AT(xray_cast, y, 24);
AT(xray_cast, x_dtype, 32);
AT(xray_cast, y_dtype, 36);
SIZE(xray_cast, 40);

AT(xray_sumsq, header, 0);
AT(xray_sumsq, count, 8);
AT(xray_sumsq, x, 16);
AT(xray_sumsq, result, 24);
SIZE(xray_sumsq, 32);

AT(xray_adamw, header, 0);
AT(xray_adamw, count, 8);
AT(xray_adamw, p, 16);
AT(xray_adamw, g, 24);
AT(xray_adamw, m, 32);
AT(xray_adamw, v, 40);
AT(xray_adamw, out, 48);
AT(xray_adamw, scalars, 56);
AT(xray_adamw, beta1, 64);
AT(xray_adamw, beta2, 68);
AT(xray_adamw, eps, 72);
AT(xray_adamw, weight_decay, 76);
AT(xray_adamw, out_dtype, 80);
AT(xray_adamw, reserved, 84);
SIZE(xray_adamw, 88);

AT(xray_device_info, header, 0);
AT(xray_device_info, name, 8);
AT(xray_device_info, memory_bytes, 16);
AT(xray_device_info, memory_free, 24);
AT(xray_device_info, threads, 32);
AT(xray_device_info, host_memory, 36);
AT(xray_device_info, features, 40);
AT(xray_device_info, reserved, 44);
SIZE(xray_device_info, 48);

AT(xray_device_plan, header, 0);
AT(xray_device_plan, memory_bytes, 8);
AT(xray_device_plan, host_memory, 16);
AT(xray_device_plan, reserved, 20);
SIZE(xray_device_plan, 24);

AT(xray_device_work, header, 0);
AT(xray_device_work, tokens, 8);
AT(xray_device_work, row_tokens, 16);
AT(xray_device_work, width, 24);
AT(xray_device_work, sides, 32);
AT(xray_device_work, vocab, 40);
AT(xray_device_work, hidden, 48);
AT(xray_device_work, elements, 56);
AT(xray_device_work, heads, 64);
AT(xray_device_work, kv_heads, 68);
AT(xray_device_work, head_dim, 72);
AT(xray_device_work, passes, 76);
SIZE(xray_device_work, 80);

AT(xray_memory_stats, header, 0);
AT(xray_memory_stats, live, 8);
AT(xray_memory_stats, high, 136);
AT(xray_memory_stats, high_all, 264);
SIZE(xray_memory_stats, 272);

AT(xray_copy_rows, header, 0);
AT(xray_copy_rows, to, 8);
AT(xray_copy_rows, from, 16);
AT(xray_copy_rows, rows, 24);
AT(xray_copy_rows, bytes, 32);
AT(xray_copy_rows, to_pitch, 40);
AT(xray_copy_rows, from_pitch, 48);
AT(xray_copy_rows, kind, 56);
AT(xray_copy_rows, reserved, 60);
SIZE(xray_copy_rows, 64);

AT(xray_checksum_rows, header, 0);
AT(xray_checksum_rows, data, 8);
AT(xray_checksum_rows, rows, 16);
AT(xray_checksum_rows, bytes, 24);
AT(xray_checksum_rows, pitch, 32);
AT(xray_checksum_rows, at, 40);
AT(xray_checksum_rows, at_pitch, 48);
SIZE(xray_checksum_rows, 56);

AT(xray_device_ops, header, 0);
AT(xray_device_ops, plan, 8);
AT(xray_device_ops, plan_weight, 16);
AT(xray_device_ops, plan_kv_block, 24);
AT(xray_device_ops, plan_scratch, 32);
AT(xray_device_ops, create, 40);
AT(xray_device_ops, destroy, 48);
AT(xray_device_ops, info, 56);
AT(xray_device_ops, alloc, 64);
AT(xray_device_ops, free, 72);
AT(xray_device_ops, memory, 80);
AT(xray_device_ops, copy, 88);
AT(xray_device_ops, zero, 96);
AT(xray_device_ops, copy_rows, 104);
AT(xray_device_ops, checksum, 112);
AT(xray_device_ops, stream_create, 120);
AT(xray_device_ops, stream_destroy, 128);
AT(xray_device_ops, sync, 136);
AT(xray_device_ops, event_create, 144);
AT(xray_device_ops, event_destroy, 152);
AT(xray_device_ops, event_record, 160);
AT(xray_device_ops, event_wait, 168);
AT(xray_device_ops, weight_create, 176);
AT(xray_device_ops, weight_destroy, 184);
AT(xray_device_ops, weight_changed, 192);
AT(xray_device_ops, kv_block_bytes, 200);
AT(xray_device_ops, matmul, 208);
AT(xray_device_ops, matmul_grad, 216);
AT(xray_device_ops, embedding, 224);
AT(xray_device_ops, embedding_grad, 232);
AT(xray_device_ops, gather, 240);
AT(xray_device_ops, scatter, 248);
AT(xray_device_ops, rmsnorm, 256);
AT(xray_device_ops, rmsnorm_grad, 264);
AT(xray_device_ops, layernorm, 272);
AT(xray_device_ops, layernorm_grad, 280);
AT(xray_device_ops, rope_table, 288);
AT(xray_device_ops, rope, 296);
AT(xray_device_ops, glu, 304);
AT(xray_device_ops, glu_grad, 312);
AT(xray_device_ops, attention, 320);
AT(xray_device_ops, attention_grad, 328);
AT(xray_device_ops, attention_kv, 336);
AT(xray_device_ops, lm_head_logp, 344);
AT(xray_device_ops, lm_head_grad, 352);
AT(xray_device_ops, sample, 360);
AT(xray_device_ops, axpby, 368);
AT(xray_device_ops, cast, 376);
AT(xray_device_ops, sumsq, 384);
AT(xray_device_ops, adamw, 392);
AT(xray_device_ops, graph_begin, 400);
AT(xray_device_ops, graph_end, 408);
AT(xray_device_ops, graph_launch, 416);
AT(xray_device_ops, graph_destroy, 424);
AT(xray_device_ops, share, 432);
AT(xray_device_ops, attach, 440);
AT(xray_device_ops, extension, 448);
AT(xray_device_ops, detach, 456);
AT(xray_device_ops, shareable, 464);
AT(xray_device_ops, evict, 472);
AT(xray_device_ops, restore, 480);
AT(xray_device_ops, weight_evict, 488);
AT(xray_device_ops, probe, 496);
SIZE(xray_device_ops, 504);
