/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls a function of a shared object with parts of a sample.
 */
#ifndef REWARD_FFI_CALL_H
#define REWARD_FFI_CALL_H

#include <cjson/cJSON.h>
#include <ffi.h>

#include "plugins/reward-ffi/worker/signature.h"

typedef struct fn_call {
    fn_signature signature;
    void (*function)(void);
    ffi_cif cif;
    ffi_type *types[2 * FN_ARGS];
} fn_call;

/* Loads `library` and finds `symbol` in it. An empty signature is that which
 * the library exports as the text SYMBOL_sig; if both are given, they must say
 * the same. *out must not move afterwards. */
xray_status fn_call_open(const char *library, const char *symbol,
                         const char *signature, xr_err *err, fn_call *out);
/* 1 if the function takes token ids. */
int fn_call_takes_ids(const fn_call *call);
/* Calls the function for a sample, which xr_scores_sample wrote. */
xray_status fn_call_score(fn_call *call, const cJSON *sample, xr_err *err,
                          double *out);

#endif
