/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads keys of config.json. A value of another type or outside its bounds is
 * an error, and a missing or null key has its preset.
 */
#include "model/hf/config_keys.h"

xray_status xm_keys_refuse(const xm_keys *keys, const char *key,
                           const char *why)
{
    return xr_fail(keys->err, XRAY_E_UNSUPPORTED, "%s: \"%s\" %s", keys->where,
                   key, why);
}

int xm_keys_is_null(const xm_keys *keys, const char *key)
{
    return cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(keys->root, key));
}

xray_status xm_keys_integer(const xm_keys *keys, const char *key,
                            uint32_t preset, const uint32_t bounds[2],
                            uint32_t *out)
{
    int64_t value;
    xray_status status =
        xr_json_int_or(keys->root, key, preset, keys->where, keys->err, &value);
    if (status || !xr_json_get(keys->root, key)) {
        *out = preset;
        return status;
    }
    if (value < (int64_t)bounds[0] || value > (int64_t)bounds[1])
        return xr_fail(keys->err, XRAY_E_CONFIG,
                       "%s: \"%s\" must be from %u to %u, not %lld",
                       keys->where, key, (unsigned)bounds[0],
                       (unsigned)bounds[1], (long long)value);
    *out = (uint32_t)value;
    return XRAY_OK;
}

xray_status xm_keys_positive(const xm_keys *keys, const char *key,
                             double preset, double *out)
{
    xray_status status =
        xr_json_real_or(keys->root, key, preset, keys->where, keys->err, out);
    if (!status && xr_json_get(keys->root, key) && !(*out > 0 && *out < 1e30))
        return xr_fail(keys->err, XRAY_E_CONFIG,
                       "%s: \"%s\" must be above 0 and below 1e30, not %g",
                       keys->where, key, *out);
    return status;
}

xray_status xm_keys_flag(const xm_keys *keys, const char *key, uint32_t preset,
                         uint32_t *out)
{
    int flag = 0;
    xray_status status = xr_json_bool_or(keys->root, key, (int)preset,
                                         keys->where, keys->err, &flag);
    *out = flag != 0;
    return status;
}

xray_status xm_keys_refuse_flag(const xm_keys *keys, const char *key,
                                const char *why)
{
    uint32_t flag;
    xray_status status = xm_keys_flag(keys, key, 0, &flag);
    return !status && flag ? xm_keys_refuse(keys, key, why) : status;
}
