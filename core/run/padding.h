/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills up micro-batches as a backend wants them: their number to a multiple,
 * with empty ones, and the tokens of each to a multiple, with rows of padding.
 */
#ifndef XR_PADDING_H
#define XR_PADDING_H

#include <xray/train.h>

#include "core/run/rows.h"

/* The micro-batches of one call, and how they are to be filled up. */
typedef struct xr_micro {
    const xray_batch *const *batches; /* [count] views of xr_rows */
    uint32_t count;
    uint32_t least; /* micro-batches that the other replicas have */
    uint32_t most;  /* micro-batches that a later call may have */
    uint32_t reserved;
    uint64_t micro_multiple; /* 0 and 1: any number */
    uint64_t token_multiple; /* 0 and 1: any number */
    uint64_t row_tokens;     /* the longest row that the backend takes */
} xr_micro;

/* Working memory, zeroed at first, that grows as needed and is freed once. */
typedef struct xr_padding {
    const xray_batch *const *batches; /* [count] what the backend gets */
    const xray_batch **pointers;      /* [cap] memory of `batches` */
    uint32_t count;
    uint32_t cap;
    xr_rows rows; /* micro-batches, each with its padding */
    xr_views views;
    float *out[3]; /* outputs with those of the padding */
    uint32_t out_cap;
    uint32_t padded; /* 1: there are rows of padding */
} xr_padding;

/* Sets `batches`. A row of padding has the id 0, the loss_mask 0 and the
 * row_index XRAY_NO_ROW; such rows are the last ones of a micro-batch. Nothing
 * is copied or allocated where nothing is to be filled up. An empty micro-batch
 * stays empty. */
xray_status xr_padding_fill(xr_padding *padding, const xr_micro *micro,
                            xr_err *err);
/* Returns the arrays to which a forward pass of the micro-batches writes the
 * outputs: those of `out`, or memory with room for the padding. */
xray_status xr_padding_outputs(xr_padding *padding, const xray_outputs *out,
                               xr_err *err, xray_outputs *to);
/* Copies the outputs of all rows but the padding to `out`. */
void xr_padding_drop(const xr_padding *padding, const xray_outputs *from,
                     const xray_outputs *out);
/* Returns the batch without its rows of padding. */
xray_batch xr_padding_strip(const xray_batch *batch);
void xr_padding_free(xr_padding *padding);

#endif
