/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts elements of a tensor to floats. They may be unaligned, so they are
 * copied.
 */
#include <string.h>

#include "model/hf/safetensors.h"

static void convert_from_f64(const unsigned char *data, uint64_t count,
                             float *out)
{
    for (uint64_t i = 0; i < count; i++) {
        double value;
        memcpy(&value, data + i * sizeof value, sizeof value);
        out[i] = (float)value;
    }
}

static void convert_from_half(const unsigned char *data, uint64_t count,
                              uint32_t dtype, float *out)
{
    for (uint64_t i = 0; i < count; i++) {
        uint16_t bits;
        memcpy(&bits, data + i * sizeof bits, sizeof bits);
        out[i] =
            dtype == XM_ST_BF16 ? xm_bf16_to_f32(bits) : xm_f16_to_f32(bits);
    }
}

xray_status xm_st_read_f32(const xm_st_tensor *tensor, uint64_t first,
                           uint64_t count, float *out, xr_err *err)
{
    if (first > tensor->count || count > tensor->count - first)
        return xr_fail(err, XRAY_E_RANGE,
                       "tensor \"%.200s\": elements %llu to %llu were asked "
                       "for, but it has %llu",
                       tensor->name, (unsigned long long)first,
                       (unsigned long long)(first + count),
                       (unsigned long long)tensor->count);
    if (!count)
        return XRAY_OK;
    const unsigned char *data = tensor->data;
    switch (tensor->dtype) {
    case XM_ST_F32:
        memcpy(out, data + first * 4, (size_t)count * 4);
        return XRAY_OK;
    case XM_ST_BF16:
    case XM_ST_F16:
        convert_from_half(data + first * 2, count, tensor->dtype, out);
        return XRAY_OK;
    case XM_ST_F64:
        convert_from_f64(data + first * 8, count, out);
        return XRAY_OK;
    default:
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor \"%.200s\": its type %s cannot be read as "
                       "floats; F32, BF16, F16 and F64 can",
                       tensor->name, tensor->type);
    }
}
