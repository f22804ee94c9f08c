/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a device of host memory that copy and sum rows, for suites with
 * a device of their own.
 */
#ifndef FAKE_MEMORY_H
#define FAKE_MEMORY_H

#include <string.h>

#include <xray/device_info.h>
#include <xray/numerics.h>

static inline void fake_copy_rows(const xray_copy_rows *rows)
{
    for (uint64_t i = 0; i < rows->rows; i++)
        memcpy((char *)rows->to + i * rows->to_pitch,
               (const char *)rows->from + i * rows->from_pitch, rows->bytes);
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
