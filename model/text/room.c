/* SPDX-License-Identifier: Apache-2.0
 *
 * Working memory of encoding. A tokenizer keeps the rooms of finished calls, so
 * that the next starts with their memory and their cache of words.
 */
#include <stdlib.h>

#include "model/text/cache.h"
#include "model/text/tok.h"

void xm_room_free(xm_room *room)
{
    if (!room)
        return;
    xm_regex_room_free(room->regex);
    for (size_t i = 0; i < 2; i++)
        xm_text_free(&room->norm[i]);
    for (size_t i = 0; i < XM_STEPS; i++)
        xm_text_free(&room->pre[i]);
    xr_str_free(&room->scratch);
    free(room->symbols);
    free(room->heap);
    free(room->nodes);
    free(room->cache);
    free(room);
}

xm_room *xm_room_take(const xm_tokenizer *tok)
{
    for (size_t i = 0; i < XM_ROOMS; i++) {
        xm_room *room = atomic_exchange(&tok->rooms[i], NULL);
        if (room)
            return room;
    }
    xm_room *room = xr_calloc(1, sizeof *room);
    if (!room)
        return NULL;
    room->regex = xm_regex_room();
    room->cache = xr_calloc(XM_CACHE_SLOTS, sizeof *room->cache);
    if (!room->regex || !room->cache) {
        xm_room_free(room);
        return NULL;
    }
    return room;
}

void xm_room_give(const xm_tokenizer *tok, xm_room *room)
{
    for (size_t i = 0; room && i < XM_ROOMS; i++) {
        xm_room *none = NULL;
        if (atomic_compare_exchange_strong(&tok->rooms[i], &none, room))
            return;
    }
    xm_room_free(room);
}

int xm_room_grow(void **buffer, size_t *cap, size_t count, size_t element)
{
    if (count <= *cap)
        return 0;
    size_t more = count + count / 2 + 64;
    void *grown =
        more <= SIZE_MAX / element ? realloc(*buffer, more * element) : NULL;
    if (!grown)
        return -1;
    *buffer = grown;
    *cap = more;
    return 0;
}
