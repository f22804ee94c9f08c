/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: memory that the parent and all actors of one runtime share. It
 * holds one area of `extra` bytes an actor for any use, and slots for small
 * exchanges that set up faster ways of talking.
 */
#ifndef XR_BOARD_H
#define XR_BOARD_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

#define XR_BOARD_CHANNELS 4u
#define XR_BOARD_CHUNK 1024u /* bytes that go at a time; more take turns */

typedef struct xr_board_slot xr_board_slot;

typedef struct xr_board {
    xr_board_slot *slots;
    void *extra; /* [actors][extra_size], readable and writable by all */
    uint64_t extra_size;
    uint32_t actors;
    uint32_t reserved;
} xr_board;

/* Bytes of a board, and its parts in such memory (zero at first). */
uint64_t xr_board_bytes(uint32_t actors, uint64_t extra_size);
xray_status xr_board_map(void *memory, uint64_t bytes, xr_err *err,
                         xr_board *out);
/* Writes how it is laid out; the parent does it once, before it is mapped. */
void xr_board_format(void *memory, uint32_t actors, uint64_t extra_size);

/* Who exchanges: rank r is the actor `members[r]`, NULL: actor r. A channel
 * (0 .. XR_BOARD_CHANNELS - 1) serves one set of actors as long as the board
 * lives, and is driven by one thread of each. */
typedef struct xr_board_group {
    const xr_board *board;
    const uint32_t *members;
    uint32_t size;
    uint32_t rank; /* of the caller */
    uint32_t channel;
    uint32_t timeout_ms;
} xr_board_group;

/* `all` [size][bytes] = what every rank has in `mine`. All call it alike. After
 * the timeout XRAY_E_PEER names the ranks that did not come, or that came with
 * another size; the channel is of no use then. Does not allocate. Without a
 * board (`board` NULL) XRAY_E_UNSUPPORTED. */
xray_status xr_board_exchange(const xr_board_group *group, const void *mine,
                              uint64_t bytes, void *all, xr_err *err);

#endif
