/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the host whether the call in progress shall end, as every long loop of
 * the core, the model library and the plugins does, and what is logged. Where a
 * function takes the service of calls, NULL means that the call never ends
 * early.
 */
#ifndef XR_SERVICES_H
#define XR_SERVICES_H

#include <xray/services.h>

#include "core/base/err.h"

/* Returns the host's service; NULL if `host` is NULL or has none. */
const xray_call_service *xr_calls_of(const xray_host *host);

/* Returns XRAY_OK, or XRAY_E_CANCELED and a sentence if the call shall end. */
xray_status xr_stop_check(const xray_call_service *calls, xr_err *err);

/* Returns 0 if the host drops lines of this level, XRAY_LOG_*, so that they
 * need not be formatted. */
int xr_host_logs(const xray_host *host, uint32_t level);

#endif
