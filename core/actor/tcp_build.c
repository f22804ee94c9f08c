/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out which build of the program this is, so that processes of different
 * builds do not work together by accident.
 */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <unistd.h>

#include "core/actor/tcp_hello.h"
#include "core/base/sha256.h"

#define LEAST 16u /* bytes of a note that is an id */

/* Looks through the notes of a segment for the one of the linker's
 * --build-id. */
static int read_notes(const char *at, size_t size, unsigned char *out)
{
    ElfW(Nhdr) note;
    while (size >= sizeof(note)) {
        memcpy(&note, at, sizeof(note));
        const size_t name = (note.n_namesz + 3u) & ~(size_t)3;
        const size_t id = (note.n_descsz + 3u) & ~(size_t)3;
        if (size - sizeof(note) < name || size - sizeof(note) - name < id)
            return 0;
        const char *bytes = at + sizeof(note);
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(bytes, "GNU", 4) == 0 && note.n_descsz >= LEAST) {
            memset(out, 0, XR_TCP_TOKEN);
            memcpy(out, bytes + name,
                   note.n_descsz < XR_TCP_TOKEN ? note.n_descsz : XR_TCP_TOKEN);
            return 1;
        }
        at += sizeof(note) + name + id;
        size -= sizeof(note) + name + id;
    }
    return 0;
}

/* Only the first object, which is the program, is looked at: 1 and its id, or
 * 2. */
static int look_at_program(struct dl_phdr_info *info, size_t size, void *out)
{
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        const union {
            ElfW(Addr) number;
            const char *bytes;
        } at = { .number = info->dlpi_addr + segment->p_vaddr };
        if (segment->p_type == PT_NOTE &&
            read_notes(at.bytes, segment->p_memsz, out))
            return 1;
    }
    return 2;
}

static int sum_program(unsigned char *out)
{
    unsigned char piece[4096];
    xr_sha256 sha;
    ssize_t n;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    xr_sha256_init(&sha);
    while ((n = read(fd, piece, sizeof(piece))) > 0)
        xr_sha256_add(&sha, piece, (size_t)n);
    const int bad = n < 0 ? errno : 0;
    (void)close(fd);
    xr_sha256_end(&sha, out);
    return bad;
}

int xr_tcp_build_id(unsigned char *out)
{
    return dl_iterate_phdr(look_at_program, out) == 1 ? 0 : sum_program(out);
}
