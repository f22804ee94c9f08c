/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the manifest in an ELF note. The file is untrusted: every offset is
 * checked before it is followed.
 */
#include <elf.h>
#include <stdint.h>
#include <string.h>

#include "core/plugin/plugin.h"

static size_t align_to_four(size_t n)
{
    return (n + 3) & ~(size_t)3;
}

/* Returns XRAY_END if the notes are valid, but ours is not among them. */
static xray_status scan_notes(const char *at, size_t size, char *out,
                              size_t cap)
{
    while (size >= sizeof(Elf64_Nhdr)) {
        Elf64_Nhdr header;
        memcpy(&header, at, sizeof(header));
        size_t name = align_to_four(header.n_namesz);
        size_t desc = align_to_four(header.n_descsz);
        size_t left = size - sizeof(header);
        if (name > left || desc > left - name)
            return XRAY_E_RANGE;

        const char *owner = at + sizeof(header);
        if (header.n_type == XRAY_NOTE_MANIFEST &&
            header.n_namesz == sizeof(XRAY_NOTE_NAME) &&
            memcmp(owner, XRAY_NOTE_NAME, sizeof(XRAY_NOTE_NAME)) == 0) {
            const char *text = owner + name;
            size_t length = strnlen(text, header.n_descsz);
            if (length == header.n_descsz || length >= cap)
                return XRAY_E_RANGE;
            memcpy(out, text, length + 1);
            return XRAY_OK;
        }
        at += sizeof(header) + name + desc;
        size -= sizeof(header) + name + desc;
    }
    return XRAY_END;
}

xray_status xr_note_find(const void *data, size_t size, char *out, size_t cap)
{
    const char *base = data;
    Elf64_Ehdr elf;
    if (size < SELFMAG || memcmp(base, ELFMAG, SELFMAG) != 0)
        return XRAY_E_ABI;
    if (size < sizeof(elf))
        return XRAY_E_RANGE;
    memcpy(&elf, base, sizeof(elf));
    if (elf.e_ident[EI_CLASS] != ELFCLASS64 ||
        elf.e_phentsize != sizeof(Elf64_Phdr))
        return XRAY_E_ABI;

    for (size_t i = 0; i < elf.e_phnum; i++) {
        Elf64_Phdr ph;
        size_t at = i * sizeof(ph);
        if (elf.e_phoff > size || at + sizeof(ph) > size - elf.e_phoff)
            return XRAY_E_RANGE;
        memcpy(&ph, base + elf.e_phoff + at, sizeof(ph));
        if (ph.p_offset > size || ph.p_filesz > size - ph.p_offset)
            return XRAY_E_RANGE;
        if (ph.p_type != PT_NOTE)
            continue;
        xray_status status =
            scan_notes(base + ph.p_offset, ph.p_filesz, out, cap);
        if (status != XRAY_END)
            return status;
    }
    return XRAY_END;
}
