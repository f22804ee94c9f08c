/* SPDX-License-Identifier: Apache-2.0
 *
 * The framing of event files, TensorFlow's TFRecord: the length of the data (8
 * bytes), its checksum, the data, the data's checksum. Numbers are
 * little-endian. A checksum is CRC32C, rotated and shifted by a constant.
 */
#ifndef TB_RECORDS_H
#define TB_RECORDS_H

#include "core/base/str.h"

uint32_t tb_masked_crc(const void *data, size_t size);

/* Begins a record, and ends it: what was appended in between is its data. */
size_t tb_record_begin(xr_str *out);
void tb_record_end(xr_str *out, size_t begun);

enum {
    TB_RECORD,      /* a record was read */
    TB_RECORD_NONE, /* the file ends here */
    TB_RECORD_TORN, /* the file ends within the record, as after a kill, or with
                     * zeros, as after a loss of power */
    TB_RECORD_DAMAGED
};

/* Reads the record at data[*at] and moves *at behind it. Only TB_RECORD sets
 * anything. */
int tb_record_read(const unsigned char *data, size_t size, size_t *at,
                   const unsigned char **out_data, size_t *out_size);

#endif
