/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares reading of Parquet by DuckDB's C library, where this machine has it.
 */
#ifndef XR_DATA_DUCKDB_H
#define XR_DATA_DUCKDB_H

#include "core/base/services.h"
#include "core/base/str.h"

/* Appends the rows of a Parquet file to `out`, each as a line of JSON.
 * XRAY_E_UNSUPPORTED: there is no libduckdb.so, or one that lacks a function.
 * XRAY_E_IO: it cannot read the file, and the sentence says why. `calls` may
 * end the call (XRAY_E_CANCELED); NULL: it is never ended. */
xray_status xr_duckdb_read(const char *path, const xray_call_service *calls,
                           xr_err *err, xr_str *out);

#endif
