/* SPDX-License-Identifier: Apache-2.0
 *
 * Assigns buckets to slots of memory: blocks rotate through a few slots, and
 * the embedding and the last bucket have slots of their own. The order of a
 * pass is known, so the assignment is fixed and nothing is looked up while it
 * runs.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "plugins/backend-zero3/zero3.h"

static void assign_slot(const xm_layout *layout, z3_slot_table *table,
                        uint32_t bucket, uint32_t slot)
{
    uint64_t capacity = xm_bucket_capacity(layout, bucket);
    table->slot_of[bucket] = slot;
    if (table->capacity[slot] < capacity)
        table->capacity[slot] = capacity;
    if (table->slots <= slot)
        table->slots = slot + 1;
}

xray_status z3_slot_table_create(const xm_layout *layout, uint32_t width,
                                 uint32_t from, int separate, xr_err *err,
                                 z3_slot_table *out)
{
    uint32_t last = layout->bucket_count - 1;
    z3_slot_table table = {
        .slot_of = xr_calloc(layout->bucket_count, sizeof(uint32_t)),
        .capacity = xr_calloc(width + 2u, sizeof(uint64_t))
    };
    if (!table.slot_of || !table.capacity) {
        z3_slot_table_free(&table);
        return xr_fail(err, XRAY_E_NOMEM, "no memory for %" PRIu32 " slots",
                       width);
    }
    for (uint32_t b = 0; b <= last; b++)
        table.slot_of[b] = Z3_NONE;
    assign_slot(layout, &table, last, 0);
    if (from == 0)
        assign_slot(layout, &table, 0, separate ? 1 : 0);
    uint32_t first = table.slots;
    for (uint32_t b = from ? from : 1; b < last; b++)
        assign_slot(layout, &table, b, first + b % width);
    /* With fewer blocks than slots the first slot may stay empty. */
    *out = table;
    return XRAY_OK;
}

void z3_slot_table_free(z3_slot_table *table)
{
    free(table->slot_of);
    free(table->capacity);
    *table = (z3_slot_table){ 0 };
}
