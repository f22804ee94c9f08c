/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the services of a host.
 */
#include "core/base/services.h"

const xray_call_service *xr_calls_of(const xray_host *host)
{
    return host && host->service ? host->service(host, XRAY_SERVICE_CALLS)
                                 : NULL;
}

xray_status xr_stop_check(const xray_call_service *calls, xr_err *err)
{
    return calls && calls->stopping(calls)
               ? xr_fail(err, XRAY_E_CANCELED, "the run is stopped")
               : XRAY_OK;
}

int xr_host_logs(const xray_host *host, uint32_t level)
{
    const xray_log_service *log =
        host->service ? host->service(host, XRAY_SERVICE_LOG) : NULL;
    return !log || level <= log->level(log);
}
