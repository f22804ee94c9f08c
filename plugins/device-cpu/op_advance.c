/* SPDX-License-Identifier: Apache-2.0
 *
 * From the drawn tokens to the next step of their sequences, on the CPU.
 */
#include "plugins/device-cpu/device.h"

static int is_stop_id(const xray_advance *op, size_t i, int32_t token)
{
    if (!op->stop_start)
        return 0;
    for (int32_t n = op->stop_start[i]; n < op->stop_start[i + 1]; n++)
        if (op->stop_ids[n] == token)
            return 1;
    return 0;
}

static void advance_item(const xray_advance *op, size_t i)
{
    xray_draw *draw = (void *)((char *)op->draws + i * (size_t)op->draw_stride);
    if (op->stop[i])
        return;
    op->ids[i] = op->token[i];
    op->positions[i]++;
    draw->position++;
    op->stop[i] = is_stop_id(op, i, op->token[i]) ||
                  (int64_t)draw->position >= op->limit[i];
}

xray_status cpu_advance(void *self, xray_stream *stream, const xray_advance *op)
{
    cpu_device *d = self;
    (void)stream;
    CPU_CHECK(d, op, "advance", op->token, op->ids, op->positions, op->draws,
              op->stop, op->limit);
    if (!op->stop_start != !op->stop_ids)
        return cpu_fail(d, XRAY_E_ARG, "advance",
                        "stop_start needs stop_ids, and the other way round");
    if (op->draw_stride < sizeof(xray_draw) || op->draw_stride % 8 != 0)
        return cpu_fail(
            d, XRAY_E_ARG, "advance",
            "draw_stride is %u, which does not fit an array of draws",
            op->draw_stride);
    size_t n = cpu_count(&op->items);
    for (size_t i = 0; i < n; i++)
        advance_item(op, i);
    return XRAY_OK;
}
