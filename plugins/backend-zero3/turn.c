/* SPDX-License-Identifier: Apache-2.0
 *
 * Which bucket goes where: blocks take turns in a few slots, what lies outside
 * of them has slots of its own. The order of a pass is known, so the places
 * are, and nothing is looked for while it runs.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "plugins/backend-zero3/zero3.h"

static void place(const xm_layout *layout, z3_turn *turn, uint32_t bucket,
                  uint32_t slot)
{
    uint64_t room = xm_bucket_capacity(layout, bucket);
    turn->slot_of[bucket] = slot;
    if (turn->room[slot] < room)
        turn->room[slot] = room;
    if (turn->slots <= slot)
        turn->slots = slot + 1;
}

xray_status z3_turn_make(const xm_layout *layout, uint32_t width, uint32_t from,
                         int apart, xr_err *err, z3_turn *out)
{
    uint32_t last = layout->bucket_count - 1;
    z3_turn turn = { .slot_of =
                         xr_calloc(layout->bucket_count, sizeof(uint32_t)),
                     .room = xr_calloc(width + 2u, sizeof(uint64_t)) };
    if (!turn.slot_of || !turn.room) {
        z3_turn_free(&turn);
        return xr_fail(err, XRAY_E_NOMEM, "no memory for %" PRIu32 " slots",
                       width);
    }
    for (uint32_t b = 0; b <= last; b++)
        turn.slot_of[b] = Z3_NONE;
    place(layout, &turn, last, 0);
    if (from == 0)
        place(layout, &turn, 0, apart ? 1 : 0);
    uint32_t first = turn.slots;
    for (uint32_t b = from ? from : 1; b < last; b++)
        place(layout, &turn, b, first + b % width);
    /* Fewer blocks than slots may leave the first one of them empty. */
    *out = turn;
    return XRAY_OK;
}

void z3_turn_free(z3_turn *turn)
{
    free(turn->slot_of);
    free(turn->room);
    *turn = (z3_turn){ 0 };
}
