/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the table of kernels for the instruction set that the including file
 * chose. KERNELS is the table's symbol, KERNELS_NAME the name that users see.
 */
#include "plugins/device-cpu/k_attention.h"
#include "plugins/device-cpu/k_decode.h"
#include "plugins/device-cpu/k_lm_head.h"
#include "plugins/device-cpu/k_matmul.h"
#include "plugins/device-cpu/k_norm.h"
#include "plugins/device-cpu/k_rows.h"
#include "plugins/device-cpu/k_squares.h"

const cpu_kernels KERNELS = {
    .name = KERNELS_NAME,
    .rows = VEC_ROWS,
    .gemm = gemm,
    .gemm_t = gemm_t,
    .pack = pack_b,
    .widen = widen_row,
    .narrow = narrow_row,
    .attend = attend,
    .decode = decode,
    .attend_grad = attend_grad,
    .scaled = scaled,
    .embed = embed,
    .axpby = axpby,
    .fma = fma_row,
    .rmsnorm = rmsnorm,
    .rmsnorm_dx = rmsnorm_dx,
    .rmsnorm_dw = rmsnorm_dw,
    .layernorm = layernorm,
    .layernorm_dx = layernorm_dx,
    .layernorm_dw = layernorm_dw,
    .rope = rotate_heads,
    .glu = compute_glu,
    .activate = activate,
    .glu_grad = glu_grad,
    .bias_grad = bias_grad,
    .softcap = softcap_row,
    .divide = divide,
    .lse = lse_row,
    .lm_head_dz = lm_head_dz,
    .log = log_one,
    .exp_row = exp_row,
    .gumbel = gumbel_row,
    .argmax = argmax_row,
    .sum_from = sum_from,
    .sumsq = sumsq,
    .adamw = adamw,
    .map = map_row,
};
