/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds ELF images with notes and symbols byte by byte.
 */
#ifndef XR_PLUGIN_IMAGE_H
#define XR_PLUGIN_IMAGE_H

#include <elf.h>

#include "core/plugin/internal.h"
#include "tests/scratch.h"

/* An image: header, program headers, section headers, then what they name. */
typedef struct image {
    unsigned char bytes[16384];
    size_t size;
    Elf64_Ehdr header;
    Elf64_Phdr parts[4];
    Elf64_Shdr sections[4];
} image;

enum { PARTS_AT = 64, SECTIONS_AT = 64 + 4 * 56, BYTES_AT = 1024 };

static inline void image_begin(image *i)
{
    memset(i, 0, sizeof(*i));
    memcpy(i->header.e_ident, ELFMAG, SELFMAG);
    i->header.e_ident[EI_CLASS] = ELFCLASS64;
    i->header.e_phentsize = sizeof(Elf64_Phdr);
    i->header.e_phoff = PARTS_AT;
    i->header.e_shentsize = sizeof(Elf64_Shdr);
    i->header.e_shoff = SECTIONS_AT;
    i->size = BYTES_AT;
}

static inline size_t image_add(image *i, const void *bytes, size_t size)
{
    size_t at = i->size;
    assert_true(at + size <= sizeof(i->bytes));
    memcpy(i->bytes + at, bytes, size);
    i->size += size;
    return at;
}

/* A note with its name and text padded to four bytes. */
static inline void add_note(image *i, uint32_t type, const char *name,
                            uint32_t name_size, const char *text,
                            uint32_t text_size)
{
    static const char zeros[4];
    Elf64_Nhdr header = { name_size, text_size, type };
    (void)image_add(i, &header, sizeof(header));
    (void)image_add(i, name, name_size);
    (void)image_add(i, zeros, -name_size & 3u);
    (void)image_add(i, text, text_size);
    (void)image_add(i, zeros, -text_size & 3u);
}

static inline void add_part(image *i, uint32_t type, size_t from)
{
    i->parts[i->header.e_phnum++] = (Elf64_Phdr){ .p_type = type,
                                                  .p_offset = from,
                                                  .p_filesz = i->size - from };
}

static inline void image_end(image *i)
{
    memcpy(i->bytes, &i->header, sizeof(i->header));
    memcpy(i->bytes + PARTS_AT, i->parts, sizeof(i->parts));
    memcpy(i->bytes + SECTIONS_AT, i->sections, sizeof(i->sections));
}

typedef struct symbol {
    const char *name;
    unsigned bind;
    unsigned visibility;
    uint16_t section; /* 0: undefined */
} symbol;

static inline xr_symbols read_symbols(image *i, const symbol *symbols,
                                      size_t count)
{
    xr_symbols out;
    char names[512] = "";
    size_t used = 1;
    Elf64_Sym table[16];
    image_begin(i);
    memset(table, 0, sizeof(table));
    for (size_t k = 0; k < count; k++) {
        table[k] = (Elf64_Sym){
            .st_name = (Elf64_Word)used,
            .st_info = (unsigned char)ELF64_ST_INFO(symbols[k].bind, STT_FUNC),
            .st_other = (unsigned char)symbols[k].visibility,
            .st_shndx = symbols[k].section
        };
        used += 1 + (size_t)snprintf(names + used, sizeof(names) - used, "%s",
                                     symbols[k].name);
    }
    i->header.e_shnum = 3;
    i->sections[1] =
        (Elf64_Shdr){ .sh_type = SHT_DYNSYM,
                      .sh_link = 2,
                      .sh_offset = image_add(i, table, count * sizeof(*table)),
                      .sh_size = count * sizeof(*table) };
    i->sections[2] = (Elf64_Shdr){ .sh_type = SHT_STRTAB,
                                   .sh_offset = image_add(i, names, used),
                                   .sh_size = used };
    image_end(i);
    xr_symbols_read(i->bytes, i->size, &out);
    return out;
}

#define QUERY                                           \
    {                                                   \
        "xray_plugin_query", STB_GLOBAL, STV_DEFAULT, 1 \
    }

/* Writes a file with a note that exports that symbol; none of it can be
 * loaded. */
static inline void write_exporting(const char *path, const char *name,
                                   const char *provides, const char *export)
{
    const symbol one[] = { { export, STB_GLOBAL, STV_DEFAULT, 1 } };
    image i;
    char json[2048];
    int size = snprintf(json, sizeof(json),
                        "{\"manifest\":1,\"abi\":\"0.3\",\"name\":\"%s\","
                        "\"version\":\"7\",\"provides\":\"%s\"}",
                        name, provides);
    (void)read_symbols(&i, one, 1);
    size_t at = i.size;
    add_note(&i, 1, "XRAY", 5, json, (uint32_t)size + 1);
    add_part(&i, PT_NOTE, at);
    image_end(&i);
    assert_int_equal(xr_file_write(path, i.bytes, i.size, NULL), XRAY_OK);
}

/* Writes a file that lists as a plugin of that name. */
static inline void write_plugin(const char *path, const char *name,
                                const char *provides)
{
    write_exporting(path, name, provides, "xray_plugin_query");
}

#endif
