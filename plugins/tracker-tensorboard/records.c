/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames records with their checksums, and reads them back.
 */
#include "plugins/tracker-tensorboard/records.h"

#include <string.h>

enum { HEAD = 12, TAIL = 4 };

/* CRC32C (Castagnoli, RFC 3720) by half bytes: entry i is what remains of i
 * after four steps of the reflected polynomial 0x82f63b78. */
static const uint32_t crc_steps[16] = {
    0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
    0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
    0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
};

uint32_t tb_masked_crc(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        crc = crc >> 4 ^ crc_steps[crc & 15u];
        crc = crc >> 4 ^ crc_steps[crc & 15u];
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

size_t tb_record_begin(xr_str *out)
{
    static const char head[HEAD];
    size_t begun = out->size;
    xr_str_append(out, head, HEAD);
    return begun;
}

void tb_record_end(xr_str *out, size_t begun)
{
    if (out->failed)
        return;
    const uint64_t length = out->size - begun - HEAD;
    const uint32_t tail = tb_masked_crc(out->data + begun + HEAD, length);
    const uint32_t head = tb_masked_crc(&length, sizeof(length));
    memcpy(out->data + begun, &length, sizeof(length));
    memcpy(out->data + begun + sizeof(length), &head, sizeof(head));
    xr_str_append(out, &tail, sizeof(tail));
}

static int is_zero(const unsigned char *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (data[i])
            return 0;
    return 1;
}

int tb_record_read(const unsigned char *data, size_t size, size_t *at,
                   const unsigned char **out_data, size_t *out_size)
{
    const unsigned char *begin = data + *at;
    const size_t left = size - *at;
    uint64_t length = 0;
    uint32_t head = 0;
    uint32_t tail = 0;
    if (!left)
        return TB_RECORD_NONE;
    if (left < HEAD)
        return TB_RECORD_TORN;
    memcpy(&length, begin, sizeof(length));
    memcpy(&head, begin + sizeof(length), sizeof(head));
    if (head != tb_masked_crc(&length, sizeof(length)))
        return is_zero(begin, left) ? TB_RECORD_TORN : TB_RECORD_DAMAGED;
    if (left - HEAD < TAIL || length > left - HEAD - TAIL)
        return TB_RECORD_TORN;
    memcpy(&tail, begin + HEAD + length, sizeof(tail));
    if (tail != tb_masked_crc(begin + HEAD, (size_t)length))
        return is_zero(begin + HEAD, left - HEAD) ? TB_RECORD_TORN
                                                  : TB_RECORD_DAMAGED;
    *out_data = begin + HEAD;
    *out_size = (size_t)length;
    *at += HEAD + (size_t)length + TAIL;
    return TB_RECORD;
}
