/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the symbols that a shared object exports from its dynamic symbol table.
 * The file is untrusted: every offset is checked before it is followed.
 */
#include <elf.h>
#include <stdio.h>
#include <string.h>

#include "core/plugin/internal.h"

typedef struct image {
    const unsigned char *data;
    size_t size;
} image;

static int is_inside(const image *file, uint64_t at, uint64_t size)
{
    return at <= file->size && size <= file->size - at;
}

static int read_section_header(const image *file, const Elf64_Ehdr *elf,
                               uint64_t i, Elf64_Shdr *out)
{
    if (i >= elf->e_shnum ||
        !is_inside(file, elf->e_shoff, (i + 1) * sizeof(*out)))
        return 0;
    memcpy(out, file->data + elf->e_shoff + i * sizeof(*out), sizeof(*out));
    return 1;
}

/* True for names that the plugin's author did not choose to export: those of
 * older linkers and of sanitizers. */
static int is_toolchain_symbol(const char *name)
{
    static const char *const names[] = { "_init", "_fini", "__bss_start",
                                         "_edata", "_end" };
    static const char *const prefixes[] = { "__asan",      "__odr_asan",
                                            "__sanitizer", "__tsan",
                                            "__ubsan",     "__gcov",
                                            "__llvm" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i]) == 0)
            return 1;
    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return 1;
    return 0;
}

static int is_exported(const Elf64_Sym *symbol)
{
    unsigned visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    return symbol->st_shndx != SHN_UNDEF &&
           ELF64_ST_BIND(symbol->st_info) != STB_LOCAL &&
           (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
}

/* Finds the symbol table and its names. Both must lie in the file, and the
 * names must end with NUL. */
static int find_symbol_table(const image *file, Elf64_Shdr *out_table,
                             Elf64_Shdr *out_names)
{
    Elf64_Ehdr elf;
    if (file->size < sizeof(elf))
        return 0;
    memcpy(&elf, file->data, sizeof(elf));
    if (elf.e_shentsize != sizeof(Elf64_Shdr))
        return 0;
    for (uint64_t i = 0; read_section_header(file, &elf, i, out_table); i++) {
        if (out_table->sh_type != SHT_DYNSYM)
            continue;
        return read_section_header(file, &elf, out_table->sh_link, out_names) &&
               out_names->sh_size &&
               is_inside(file, out_table->sh_offset, out_table->sh_size) &&
               is_inside(file, out_names->sh_offset, out_names->sh_size) &&
               file->data[out_names->sh_offset + out_names->sh_size - 1] ==
                   '\0';
    }
    return 0;
}

void xr_symbols_read(const void *data, size_t size, xr_symbols *out)
{
    const image file = { data, size };
    Elf64_Shdr table;
    Elf64_Shdr names;
    *out = (xr_symbols){ .extra = 0 };
    if (!find_symbol_table(&file, &table, &names))
        return;
    out->known = 1;
    for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size;
         at += sizeof(Elf64_Sym)) {
        Elf64_Sym symbol;
        memcpy(&symbol, file.data + table.sh_offset + at, sizeof(symbol));
        if (!is_exported(&symbol) || symbol.st_name >= names.sh_size)
            continue;
        const char *name =
            (const char *)file.data + names.sh_offset + symbol.st_name;
        if (strcmp(name, XRAY_PLUGIN_QUERY) == 0)
            out->query = 1;
        else if (!is_toolchain_symbol(name) && !out->extra++)
            (void)snprintf(out->first, sizeof(out->first), "%s", name);
    }
}
