/* SPDX-License-Identifier: Apache-2.0
 *
 * The WholeModel: the models of a run as one thing each, whatever Workhorses
 * hold their shards. One call deals a batch to the replicas, waits for all of
 * them and puts the answers back in order.
 */
#ifndef XR_WHOLE_H
#define XR_WHOLE_H

#include <signal.h>

#include "core/rl/losses.h"
#include "core/rl/rows.h"
#include "core/rl/samples.h"

typedef struct xr_whole xr_whole;

/* Starts a Workhorse a rank, in parallel, and waits until all are ready. Each
 * says what memory it took, at log level info. */
xray_status xr_whole_open(xr_session *session, xr_err *err, xr_whole **out);
/* Ends them, whatever they do. Accepts NULL. */
void xr_whole_close(xr_whole *whole);

/* The calls below give an error that names actor, rank, phase and the last
 * collective; the loss of a Workhorse is XRAY_E_PEER, and every later call
 * fails. `role` is XRAY_ROLE_*. */

/* Outputs of all tokens of the views, in their order. */
xray_status xr_whole_forward(xr_whole *whole, uint32_t role,
                             const xr_views *views, uint32_t outputs,
                             const xray_outputs *out, xr_err *err);
/* Gradients of all views; adds to the spec's sums. A value that is not finite
 * goes to `fault`, and no gradient is kept then. */
xray_status xr_whole_gradients(xr_whole *whole, uint32_t role,
                               const xr_views *views, const xr_loss_spec *spec,
                               xr_err *fault, xr_err *err);
/* out->bad_tensor lives until the next call. */
xray_status xr_whole_step(xr_whole *whole, uint32_t role, double lr,
                          double max_norm, xray_step_result *out, xr_err *err);
/* As xr_samples_draw, the prompts dealt to the engines. */
xray_status xr_whole_draw(xr_whole *whole, xr_samples *samples,
                          const xr_row *const *rows, uint32_t count,
                          const xr_sampling *how,
                          const volatile sig_atomic_t *stop, xr_err *err);
/* Every engine takes the policy's weights. */
xray_status xr_whole_publish(xr_whole *whole, xr_err *err);
/* Each rank its own ranges of one folder. */
xray_status xr_whole_save(xr_whole *whole, uint32_t role, const char *dir,
                          xr_err *err);
xray_status xr_whole_load(xr_whole *whole, uint32_t role, const char *dir,
                          xr_err *err);

#endif
