/* SPDX-License-Identifier: Apache-2.0
 *
 * The passes and messages of which a call on a pipeline is made.
 */
#ifndef XM_TRAIN_PIPE_H
#define XM_TRAIN_PIPE_H

#include "model/train/trainer_internal.h"

#define XM_PIPE_OUTPUTS \
    (XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY | XRAY_OUTPUT_VALUE)

/* ---- messages ------------------------------------------------------------ */

/* Returns the bytes of a message about the packed tokens, of `size` each. */
uint64_t xm_pipe_bytes(const xm_trainer *self, const xm_flight *flight,
                       uint64_t size);
/* Send rows [dev] to a stage, and receive them; nothing of a pass without
 * tokens. [collective] */
xray_status xm_pipe_send(const xm_trainer *self, const void *rows,
                         uint64_t bytes, uint32_t to);
xray_status xm_pipe_receive(const xm_trainer *self, void *rows, uint64_t bytes,
                            uint32_t from);
/* The neighbours of this stage; the first one is after the last. */
uint32_t xm_pipe_before(const xm_trainer *self);
uint32_t xm_pipe_after(const xm_trainer *self);
/* The hidden states of a packed flight. [collective] */
xray_status xm_pipe_receive_hidden(const xm_trainer *self, xm_flight *flight);
xray_status xm_pipe_send_hidden(const xm_trainer *self,
                                const xm_flight *flight);

/* ---- the order ----------------------------------------------------------- */

#define XM_PIPE_ABSENT UINT32_MAX

/* 1: a chunk begins, or ends, the model. */
int xm_pipe_begins(const xm_trainer *self, uint32_t chunk);
int xm_pipe_ends(const xm_trainer *self, uint32_t chunk);
/* Works out the steps of a call: self->flow. */
xray_status xm_pipe_plan(xm_trainer *self, const xray_batch *const *batches,
                         uint32_t count, int forward, xr_err *err);
/* Returns the micro-batch of a step, or XM_PIPE_ABSENT. */
uint32_t xm_pipe_batch(const xm_trainer *self, const xm_flow_step *step);

/* ---- a pass -------------------------------------------------------------- */

/* Packs a batch. Zero rows in `packed` mean that no output of the batch is
 * wanted. */
xray_status xm_pipe_pack(xm_flight *flight, const xray_batch *batch,
                         uint32_t outputs, xr_err *err);
/* Runs the packed rows through a chunk, and up to the outputs where it ends the
 * model. Without rows it only takes part in the collectives of the other ranks'
 * passes. [collective] */
xray_status xm_pipe_forward(xm_trainer *self, xm_flight *flight, uint32_t chunk,
                            xr_err *err);
/* Fills the arrays of the outputs that are wanted, for `tokens` tokens. */
xray_status xm_pipe_collect(const xm_flight *flight, uint32_t tokens,
                            uint32_t outputs, const xray_outputs *out,
                            xr_err *err);

#endif
