/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: memory that the parent and all actors of one runtime share. It
 * holds `extra` bytes per actor for any use, and slots through which ranks
 * exchange the small data with which they set up faster ways to communicate.
 */
#ifndef XR_BOARD_H
#define XR_BOARD_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

#define XR_BOARD_CHANNELS 4u
#define XR_BOARD_CHUNK 1024u /* bytes exchanged at once; more go in chunks */

typedef struct xr_board_slot xr_board_slot;

typedef struct xr_board {
    xr_board_slot *slots;
    _Atomic uint32_t *canceled; /* 1: the parent wants every call to end */
    void *extra; /* [actors][extra_size], readable and writable by all */
    uint64_t extra_size;
    uint32_t actors;
    uint32_t reserved;
} xr_board;

/* Bytes of a board; its memory must be zero at first. */
uint64_t xr_board_bytes(uint32_t actors, uint64_t extra_size);
/* Finds the parts of a formatted board in its memory. */
xray_status xr_board_map(void *memory, uint64_t bytes, xr_err *err,
                         xr_board *out);
/* Writes the header of the board; the parent does so once, before any
 * xr_board_map. */
void xr_board_format(void *memory, uint32_t actors, uint64_t extra_size);

/* The actors of an exchange: rank r is the actor `members[r]`, or actor r if
 * that is NULL. A channel (0 .. XR_BOARD_CHANNELS - 1) serves the same actors
 * as long as the board lives, and one thread of each uses it. */
typedef struct xr_board_group {
    const xr_board *board;
    const uint32_t *members;
    uint32_t size;
    uint32_t rank; /* of the caller */
    uint32_t channel;
    uint32_t timeout_ms;
} xr_board_group;

/* All ranks of the group call this with the same `bytes`; `all` [size][bytes]
 * then holds every rank's `mine`. XRAY_E_PEER names the ranks that did not
 * arrive before the timeout, or that have another size; the channel cannot be
 * used any more, nor after XRAY_E_CANCELED. Without a board (`board` NULL)
 * XRAY_E_UNSUPPORTED. Does not allocate. */
xray_status xr_board_exchange(const xr_board_group *group, const void *mine,
                              uint64_t bytes, void *all, xr_err *err);

#endif
