/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a device of host memory that copy, round and sum rows, for
 * suites with a device of their own.
 */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include <string.h>

#include <xray/device_info.h>
#include <xray/numerics.h>
#include <xray/operators.h>

static inline void fake_copy_rows(const xray_copy_rows *rows)
{
    for (uint64_t i = 0; i < rows->rows; i++)
        memcpy((char *)rows->to + i * rows->to_pitch,
               (const char *)rows->from + i * rows->from_pitch, rows->bytes);
}

/* The upper half of a float, which is its bf16 where the lower half is 0. */
static inline uint16_t fake_narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* From float to bf16, of values that bf16 has. */
static inline void fake_cast(const xray_cast *op)
{
    const float *x = op->x;
    uint16_t *y = op->y;
    for (uint64_t r = 0; r < op->rows; r++)
        for (uint64_t i = 0; i < op->count; i++)
            y[r * op->y_stride + i] = fake_narrow(x[r * op->x_stride + i]);
}

/* Byte by byte, as the definition of xray_checksum_word allows. */
static inline uint64_t fake_sum_rows(const xray_checksum_rows *rows)
{
    uint64_t sum = xray_checksum_length(rows->rows * rows->bytes);
    for (uint64_t i = 0; i < rows->rows; i++)
        for (uint64_t k = 0; k < rows->bytes; k++) {
            uint64_t at = rows->at + i * rows->at_pitch + k;
            uint64_t byte =
                ((const unsigned char *)rows->data)[i * rows->pitch + k];
            sum += xray_checksum_word(at / 8, byte << at % 8 * 8);
        }
    return sum;
}

static inline uint64_t fake_sum(const void *data, uint64_t bytes)
{
    const xray_checksum_rows rows = { .data = data, .rows = 1, .bytes = bytes };
    return fake_sum_rows(&rows);
}

#endif
