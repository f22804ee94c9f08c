/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs a batch into the inputs of a decoder and the items whose outputs are
 * wanted. Only inputs that an item depends on are packed: a row ends before its
 * last wanted token, and a row without wanted tokens is left out. The outputs
 * of a row depend on that row alone, so results do not depend on how rows are
 * divided into micro-batches.
 *
 * Where a batch sets `share_prompts` and the device supports parent rows, rows
 * of one group with the same prompt are packed as one parent row, which holds
 * all but the prompt's last token, and one child row each: 8 samples of 64 + 64
 * tokens are 575 inputs, not 1,016. The last token of the prompt stays in the
 * child, so that each item has a hidden state of its own.
 *
 * Ranks that divide the tokens of rows (xm_context) are given the same batches.
 * Each packs its own tokens and their items; outputs are collected from all of
 * them, so that every rank has those of all tokens, and no rows share a prompt.
 */
#ifndef XM_TRAIN_PACK_H
#define XM_TRAIN_PACK_H

#include <xray/batch.h>

#include "model/nn/join.h"

/* The limits that every batch must keep. */
typedef struct xm_pack_limits {
    uint64_t tokens;     /* per batch */
    uint64_t rows;       /* per batch */
    uint64_t row_tokens; /* per row */
    uint64_t vocab;      /* every id is below */
    xm_join context; /* the ranks that divide rows; `ranks` 0 and 1: none do */
} xm_pack_limits;

/* The last batch in the form that the decoder takes; it is owned by the
 * packer. */
typedef struct xm_packed {
    xm_pack pack;   /* rows 0: no output of the batch is wanted */
    xm_items items; /* item i is the output for token token[i] of the batch,
                     * unless ranks divide the rows */
    const int32_t *token; /* host, ascending, of the items of all ranks */
} xm_packed;

typedef struct xm_packer xm_packer;

/* Allocates all arrays once (tag WORKSPACE). */
xray_status xm_packer_create(const xm_pack_limits *limits,
                             const xray_device_ops *device, void *device_self,
                             const char *owner, xr_err *err, xm_packer **out);
void xm_packer_destroy(xm_packer *packer); /* accepts NULL */
/* Upper bound of the packed rows of a batch of `rows`: there is at most one
 * parent for every two rows. */
uint64_t xm_packed_rows(uint64_t rows);
/* Device memory that the packer allocates, in bytes. Pure. */
uint64_t xm_packer_bytes(const xm_pack_limits *limits);

/* Packs a batch. A token is wanted if it has one before it in its row and,
 * where batch->loss_mask is set, its mask is not 0. With `value`, values are
 * wanted too. Returns XRAY_E_RANGE with a sentence about the limit that is
 * exceeded, or XRAY_E_ARG if the batch is malformed; the last batch then
 * stays. */
xray_status xm_packer_fill(xm_packer *packer, const xray_batch *batch,
                           int value, xr_err *err, xm_packed *out);

/* Sets per_token[token[i]] = items[i] ([dev], for as many tokens as the pack
 * has) and leaves all other entries alone. Waits for the device. Collective
 * among ranks that divide the rows, which all get the outputs of all. */
xray_status xm_packer_collect(xm_packer *packer, const float *items,
                              float *per_token, xr_err *err);

#define XM_PACK_SLOTS 3u
/* Does the reverse, for this rank's items, into slot `slot` < XM_PACK_SLOTS:
 * *out_items ([dev] [items.count]) is valid until the slot is used again. An
 * entry that is not finite is refused with XRAY_E_NUMERIC; the sentence names
 * row, token and `what`. */
xray_status xm_packer_spread(xm_packer *packer, const float *per_token,
                             uint32_t slot, const char *what, xr_err *err,
                             const float **out_items);

#endif
