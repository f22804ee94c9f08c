/* SPDX-License-Identifier: Apache-2.0
 *
 * From a batch to what a decoder runs: packed inputs, and the items whose
 * outputs are wanted. Only inputs that an item depends on are packed: a row
 * ends before its last wanted token, and a row without any is left out. What a
 * row gives depends on that row alone, so results do not depend on the cut
 * into micro-batches.
 *
 * Where a batch says `share_prompts` and the device knows parents, rows of one
 * group with the same prompt become a parent, all but the prompt's last token,
 * and a child each: 8 samples of 64 + 64 tokens are 575 inputs, not 1,016. The
 * last token stays with the child, so that each item has a hidden state of its
 * own.
 */
#ifndef XM_TRAIN_PACK_H
#define XM_TRAIN_PACK_H

#include <xray/batch.h>

#include "model/nn/decoder.h"

/* What every batch must fit. */
typedef struct xm_pack_limits {
    uint64_t tokens;     /* in a batch */
    uint64_t rows;       /* in a batch */
    uint64_t row_tokens; /* in a row */
    uint64_t vocab;      /* ids are below */
} xm_pack_limits;

/* The last batch as the decoder takes it; lives in the packer. */
typedef struct xm_packed {
    xm_pack pack;         /* rows 0: nothing is wanted of the batch */
    xm_items items;       /* item i concerns token token[i] of the batch */
    const int32_t *token; /* host, [items.count] ascending */
} xm_packed;

typedef struct xm_packer xm_packer;

/* Lays out all arrays once (tag WORKSPACE). */
xray_status xm_packer_create(const xm_pack_limits *limits,
                             const xray_device_ops *device, void *device_self,
                             const char *owner, xr_err *err, xm_packer **out);
void xm_packer_destroy(xm_packer *packer); /* accepts NULL */
/* Packed rows of a batch of `rows`: a parent for two of them at most. */
uint64_t xm_packed_rows(uint64_t rows);
/* Device bytes that takes. Pure. */
uint64_t xm_packer_bytes(const xm_pack_limits *limits);

/* Packs a batch. Wanted is each token that has one before it in its row and,
 * where batch->loss_mask is set, a mask other than 0. `value`: values are
 * wanted too. XRAY_E_RANGE names what exceeds the limits, XRAY_E_ARG what makes
 * no sense; then the last batch stays. */
xray_status xm_packer_fill(xm_packer *packer, const xray_batch *batch,
                           int value, xr_err *err, xm_packed *out);

/* per_token[token[i]] = items[i] [dev]; other entries are left alone. Waits
 * for the device. */
xray_status xm_packer_collect(xm_packer *packer, const float *items,
                              float *per_token, xr_err *err);

#define XM_PACK_SLOTS 3u
/* The reverse into slot `slot` < XM_PACK_SLOTS: *out_items [dev] [items.count],
 * valid until the slot is used again. An entry that is not finite is
 * XRAY_E_NUMERIC, named by row, token and `what`. */
xray_status xm_packer_spread(xm_packer *packer, const float *per_token,
                             uint32_t slot, const char *what, xr_err *err,
                             const float **out_items);

#endif
