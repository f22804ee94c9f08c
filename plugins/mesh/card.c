/* SPDX-License-Identifier: Apache-2.0
 *
 * Before ranks have lines they tell each other through the gather of the setup
 * who and where they are, or why they cannot take part.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/hash.h"
#include "plugins/mesh/mesh.h"

static uint64_t hash_link(const char *path, uint64_t seed)
{
    char text[128];
    ssize_t n = readlink(path, text, sizeof(text));
    return xr_hash64(text, n > 0 ? (size_t)n : 0, seed);
}

static uint64_t find_host(char *name, uint32_t cap)
{
    char text[64];
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text)) : 0;
    if (fd >= 0)
        (void)close(fd);
    if (gethostname(name, cap) != 0)
        name[0] = '\0';
    name[cap - 1] = '\0';
    uint64_t id = xr_hash64(text, n > 0 ? (size_t)n : 0, 1);
    id = xr_hash64(name, strlen(name), id);
    id = hash_link("/proc/self/ns/net", id);
    return hash_link("/proc/self/ns/pid", id);
}

void mesh_fill_card(const mesh_comm *comm, xray_status ready, mesh_card *out)
{
    *out = (mesh_card){ .status = ready,
                        .size = comm->size,
                        .pid = (uint32_t)getpid() };
    out->host = find_host(out->name, sizeof(out->name));
}

void mesh_refuse_card(mesh_card *card, xray_status status, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (card->status == XRAY_OK) {
        (void)vsnprintf(card->why, sizeof(card->why), fmt, args);
        card->status = status;
    }
    va_end(args);
}

static const mesh_card *card_at(const void *all, uint64_t size, uint32_t rank)
{
    return (const mesh_card *)(const void *)((const char *)all + rank * size);
}

static xray_status check_card(const mesh_comm *comm, const char *where,
                              const mesh_card *card, uint32_t rank)
{
    if (card->size != comm->size)
        return xr_host_fail(
            comm->host, XRAY_E_PEER, where,
            "rank %u was created for %u ranks, but this one for %u", rank,
            card->size, comm->size);
    if (card->status != XRAY_OK)
        return xr_host_fail(comm->host, XRAY_E_PEER, where,
                            "rank %u (pid %u on %.*s) cannot take part%s%.*s",
                            rank, card->pid, (int)sizeof(card->name) - 1,
                            card->name, *card->why ? ": " : "",
                            (int)sizeof(card->why) - 1, card->why);
    return XRAY_OK;
}

xray_status mesh_gather_cards(const mesh_comm *comm,
                              const xray_comm_setup *setup, const void *mine,
                              uint64_t size, void *all)
{
    char where[24];
    xray_status status = XRAY_OK;
    (void)snprintf(where, sizeof(where), "comm %s", comm->via->name);
    if (comm->size == 1)
        memcpy(all, mine, size);
    else
        status = setup->gather(setup->gather_ctx, mine, size, all);
    if (status != XRAY_OK)
        return xr_host_fail(comm->host, status, where,
                            "the ranks could not exchange their addresses");
    /* Who waited in vain knows less than whom it waited for. */
    for (uint32_t i = 0; status == XRAY_OK && i < 2 * comm->size; i++) {
        const mesh_card *card = card_at(all, size, i % comm->size);
        if ((card->status == XRAY_AGAIN) == (i >= comm->size))
            status = check_card(comm, where, card, i % comm->size);
    }
    return status;
}

void mesh_keep_cards(mesh_comm *comm, const void *all, uint64_t size)
{
    const mesh_card *own = card_at(all, size, comm->rank);
    for (uint32_t r = 0; r < comm->size; r++) {
        const mesh_card *card = card_at(all, size, r);
        mesh_peer *peer = &comm->peers[r];
        peer->pid = card->pid;
        peer->is_local = card->host == own->host;
        peer->host_id = card->host;
        memcpy(peer->host, card->name, sizeof(peer->host) - 1);
    }
}
