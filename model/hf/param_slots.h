/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers the parameters of a decoder by their role, whatever an architecture
 * calls them.
 */
#ifndef XM_PARAM_SLOTS_H
#define XM_PARAM_SLOTS_H

#include <stdint.h>

/* Parameters of a block, in their order in its bucket. Where a file stores q, k
 * and v (or gate and up) as one tensor, that tensor has the first one's slot.
 */
enum {
    XM_NORM1,
    XM_NORM1_BIAS,
    XM_Q,
    XM_K,
    XM_V,
    XM_Q_BIAS,
    XM_K_BIAS,
    XM_V_BIAS,
    XM_Q_NORM,
    XM_K_NORM,
    XM_O,
    XM_O_BIAS,
    XM_POST_NORM1, /* after attention */
    XM_NORM2,
    XM_NORM2_BIAS,
    XM_GATE,
    XM_UP, /* also the only matrix of an MLP without a gate */
    XM_GATE_BIAS,
    XM_UP_BIAS,
    XM_DOWN,
    XM_DOWN_BIAS,
    XM_POST_NORM2, /* after the MLP */
    XM_BLOCK_SLOTS
};

/* Parameters outside the blocks. */
enum {
    XM_EMBED = XM_BLOCK_SLOTS,
    XM_POSITIONS, /* learned positions */
    XM_NORM,
    XM_NORM_BIAS,
    XM_LM_HEAD,
    XM_VALUE,
    XM_SLOTS
};

#endif
