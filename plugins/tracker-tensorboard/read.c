/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the records of an event file up to a step.
 */
#include "plugins/tracker-tensorboard/read.h"

#include <string.h>

#include "plugins/tracker-tensorboard/events.h"
#include "plugins/tracker-tensorboard/protobuf.h"
#include "plugins/tracker-tensorboard/records.h"

typedef struct read_event {
    uint64_t step;
    int summary;  /* 1: it has values */
    int settings; /* 1: one of them is the run's settings */
} read_event;

/* Returns 1 if a Summary.Value is the run's settings, 0 if not, -1 if it is no
 * such message. */
static int is_settings(const tb_field *value)
{
    enum { TAG = 1 };
    const size_t length = strlen(TB_SETTINGS_TAG);
    tb_field field;
    size_t at = 0;
    int found = 0;
    int more;
    while ((more = tb_next(value->data, value->size, &at, &field)) == 1)
        if (field.number == TAG && field.wire == TB_BYTES)
            found = field.size == length &&
                    memcmp(field.data, TB_SETTINGS_TAG, length) == 0;
    return more ? -1 : found;
}

static int read_summary(const tb_field *summary, read_event *out)
{
    enum { VALUE = 1 };
    tb_field field;
    size_t at = 0;
    int more;
    while ((more = tb_next(summary->data, summary->size, &at, &field)) == 1) {
        if (field.number != VALUE || field.wire != TB_BYTES)
            continue;
        int settings = is_settings(&field);
        if (settings < 0)
            return -1;
        out->summary = 1;
        out->settings |= settings;
    }
    return more;
}

/* Returns 0, or -1 if the bytes are no event. */
static int decode_event(const unsigned char *data, size_t size, read_event *out)
{
    enum { STEP = 2, SUMMARY = 5 };
    tb_field field;
    size_t at = 0;
    int more;
    *out = (read_event){ .step = 0 };
    while ((more = tb_next(data, size, &at, &field)) == 1) {
        if (field.number == STEP && field.wire == TB_VARINT)
            out->step = field.value;
        if (field.number == SUMMARY && field.wire == TB_BYTES &&
            read_summary(&field, out))
            return -1;
    }
    return more;
}

xray_status tb_measure(const char *name, const unsigned char *data, size_t size,
                       uint64_t last_step, xr_err *err, tb_kept *out)
{
    size_t at = 0;
    *out = (tb_kept){ .bytes = 0 };
    for (;;) {
        const unsigned char *content = NULL;
        size_t content_size = 0;
        read_event event;
        int found = tb_record_read(data, size, &at, &content, &content_size);
        if (found == TB_RECORD_DAMAGED)
            return xr_fail(err, XRAY_E_IO,
                           "%s: the record at byte %zu does not have its "
                           "checksum",
                           name, out->bytes);
        if (found != TB_RECORD)
            return XRAY_OK;
        if (decode_event(content, content_size, &event))
            return xr_fail(err, XRAY_E_IO,
                           "%s: the record at byte %zu is no event", name,
                           out->bytes);
        if (event.step > last_step)
            return XRAY_OK;
        out->bytes = at;
        out->summaries += (uint64_t)event.summary;
        out->settings |= event.settings;
    }
}
