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
/* Reads an integer from bounds[0] to bounds[1]. A key that is missing or null
 * gives `preset`, which need not be within the bounds. */
xray_status xm_keys_integer(const xm_keys *keys, const char *key,
                            uint32_t preset, const uint32_t bounds[2],
                            uint32_t *out);
/* Reads a number above 0 and below 1e30, with `preset` as above. */
xray_status xm_keys_positive(const xm_keys *keys, const char *key,
                             double preset, double *out);
/* Reads true or false as 1 or 0, with `preset` as above. */
xray_status xm_keys_flag(const xm_keys *keys, const char *key, uint32_t preset,
                         uint32_t *out);
/* Refuses a flag that is set, with the message `"key" why`. */
xray_status xm_keys_refuse_flag(const xm_keys *keys, const char *key,
                                const char *why);

#endif
