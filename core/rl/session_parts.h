/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside a session: its parts, one file each.
 */
#ifndef XR_SESSION_PARTS_H
#define XR_SESSION_PARTS_H

#include "core/rl/session.h"

/* Loads the selected components and decodes their options. */
void xr_session_find_parts(xr_session *session, xr_errors *errors);
/* Destroys what runs and frees options and hosts, in reverse order. */
void xr_session_stop_parts(xr_session *session);
/* Batch arithmetic: divisibility, lengths against the model. */
void xr_session_check_batch(xr_session *session, xr_errors *errors);

#endif
