/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads event files, which may be torn or damaged, as far as a resume needs it:
 * where the events of the steps that are kept end.
 */
#ifndef TB_READ_H
#define TB_READ_H

#include <stdint.h>

#include "core/base/err.h"

/* A file has this much of the steps that are kept. */
typedef struct tb_kept {
    size_t bytes;       /* the records before the first one that goes */
    uint64_t summaries; /* events with values in them */
    int settings;       /* 1: the settings of the run are one of them */
} tb_kept;

/* Measures the bytes of an event file: the kept records end with the file,
 * before the first event of a step after `last_step`, or before a torn record.
 * XRAY_E_IO, with the offset in the sentence, where a record is damaged or is
 * no event. `name` is what messages call the file. */
xray_status tb_measure(const char *name, const unsigned char *data, size_t size,
                       uint64_t last_step, xr_err *err, tb_kept *out);

#endif
