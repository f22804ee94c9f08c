/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts between fp32 and the 16-bit types by integer arithmetic on their
 * bits, so results are exact on every machine.
 */
#include <string.h>

#include "model/hf/safetensors.h"

static float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t float_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

float xm_bf16_to_f32(uint16_t bits)
{
    return float_from_bits((uint32_t)bits << 16);
}

uint16_t xm_f32_to_bf16(float value)
{
    uint32_t bits = float_to_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) /* a NaN stays a NaN and becomes
                                             * quiet */
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float xm_f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31u;
    uint32_t mantissa = half & 0x3FFu;
    if (exponent == 31)
        return float_from_bits(sign | 0x7F800000u | mantissa << 13);
    if (exponent)
        return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    float tiny = (float)mantissa * 0x1p-24f;
    return sign ? -tiny : tiny;
}

uint16_t xm_f32_to_f16(float value)
{
    uint32_t bits = float_to_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t size = bits & 0x7FFFFFFFu;
    if (size > 0x7F800000u)
        return (uint16_t)(sign | 0x7E00u | (size >> 13 & 0x3FFu));
    if (size >= 0x477FF000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7C00u);
    if (size >= 0x38800000u) { /* 2^-14: the smallest normal fp16 number */
        uint32_t half = size - (112u << 23);
        return (uint16_t)(sign | (half + 0xFFFu + (half >> 13 & 1u)) >> 13);
    }
    if (size < 0x33000000u) /* below half of the smallest fp16 number */
        return (uint16_t)sign;
    uint32_t shift = 126u - (size >> 23);
    uint32_t mantissa = (size & 0x7FFFFFu) | 0x800000u;
    uint32_t half = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1u);
    uint32_t middle = 1u << (shift - 1);
    half += rest > middle || (rest == middle && (half & 1u));
    return (uint16_t)(sign | half);
}
