/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading keys of config.json: typed, bounded, refused by name.
 */
#ifndef XM_CONFIG_KEYS_H
#define XM_CONFIG_KEYS_H

#include <stdint.h>

#include "core/base/json.h"

typedef struct xm_keys {
    const cJSON *root;
    const char *where; /* starts every message */
    xr_err *err;
} xm_keys;

/* `"key" why`, as something not supported. */
xray_status xm_keys_refuse(const xm_keys *keys, const char *key,
                           const char *why);
/* 1 if the key is there and null, which some keys tell from a missing one. */
int xm_keys_is_null(const xm_keys *keys, const char *key);
/* A whole number in [least, most]; `preset` (any value) where it is missing. */
xray_status xm_keys_integer(const xm_keys *keys, const char *key,
                            uint32_t preset, const uint32_t bounds[2],
                            uint32_t *out);
/* A number above 0; `preset` (any value) where it is missing. */
xray_status xm_keys_real(const xm_keys *keys, const char *key, double preset,
                         double *out);
xray_status xm_keys_flag(const xm_keys *keys, const char *key, uint32_t preset,
                         uint32_t *out);
/* Refuses a flag that is on, with `why` behind its name. */
xray_status xm_keys_refuse_flag(const xm_keys *keys, const char *key,
                                const char *why);

#endif
