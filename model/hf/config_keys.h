/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads keys of config.json with types and bounds, and refuses keys by name.
 */
#ifndef XM_CONFIG_KEYS_H
#define XM_CONFIG_KEYS_H

#include <stdint.h>

#include "core/base/json.h"

typedef struct xm_keys {
    const cJSON *root;
    const char *where; /* begins every message */
    xr_err *err;
} xm_keys;

/* Refuses a key as not supported; the message is `"key" why`. */
xray_status xm_keys_refuse(const xm_keys *keys, const char *key,
                           const char *why);
/* Returns 1 if the key is present and null, which for some keys differs from
 * missing. */
int xm_keys_is_null(const xm_keys *keys, const char *key);
/* Reads an integer within `bounds`; `preset` (any value) if the key is missing.
 */
xray_status xm_keys_integer(const xm_keys *keys, const char *key,
                            uint32_t preset, const uint32_t bounds[2],
                            uint32_t *out);
/* Reads a number above 0; `preset` (any value) if the key is missing. */
xray_status xm_keys_real(const xm_keys *keys, const char *key, double preset,
                         double *out);
xray_status xm_keys_flag(const xm_keys *keys, const char *key, uint32_t preset,
                         uint32_t *out);
/* Refuses a flag that is set, with the message `"key" why`. */
xray_status xm_keys_refuse_flag(const xm_keys *keys, const char *key,
                                const char *why);

#endif
