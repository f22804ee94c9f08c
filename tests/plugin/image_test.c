/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves notes and symbols of ELF images that the test builds byte by byte.
 */
#include "tests/plugin/image.h"

static xray_status find_note(image *i, char *out, size_t cap)
{
    image_end(i);
    (void)snprintf(out, cap, "untouched");
    return xr_note_find(i->bytes, i->size, out, cap);
}

static void note_is_found_among_others(void **state)
{
    (void)state;
    image i;
    char text[64];
    image_begin(&i);
    add_part(&i, PT_LOAD, i.size);
    add_note(&i, 3, "GNU", 4, "build-id", 9);
    add_part(&i, PT_NOTE, i.size - 28);
    size_t at = i.size;
    add_note(&i, 2, "XRAY", 5, "another type", 13);
    add_note(&i, 1, "XRAX", 5, "another name", 13);
    add_note(&i, 1, "XRAYS", 6, "a longer name", 14);
    add_note(&i, 1, "XRAY", 5, "ours", 5);
    add_note(&i, 1, "XRAY", 5, "later", 6);
    add_part(&i, PT_NOTE, at);
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_OK);
    assert_string_equal(text, "ours");
    assert_int_equal(find_note(&i, text, 5), XRAY_OK);
    assert_string_equal(text, "ours");
    assert_int_equal(find_note(&i, text, 4), XRAY_E_RANGE);
    /* Outside a note segment it is not a note. */
    i.parts[2].p_type = PT_LOAD;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_END);
}

static void truncated_image_is_refused(void **state)
{
    (void)state;
    image i;
    char text[64];
    image_begin(&i);
    size_t at = i.size;
    add_note(&i, 1, "XRAY", 5, "ours", 5);
    add_part(&i, PT_NOTE, at);
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_OK);
    /* A text without its NUL. */
    i.bytes[at + 12 + 8 + 4] = 'x';
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_E_RANGE);
    i.bytes[at + 12 + 8 + 4] = '\0';
    i.parts[0].p_filesz--;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_E_RANGE);
    i.parts[0].p_filesz += 2;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_E_RANGE);
    i.parts[0].p_filesz--;
    i.parts[0].p_offset = UINT64_MAX - 3;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_E_RANGE);
    i.parts[0].p_offset = at;
    /* Fewer bytes than a note's header end the notes. */
    i.parts[0].p_filesz = 11;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_END);
    i.parts[0].p_filesz = i.size - at;
    i.header.e_phoff = i.size - 55;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_E_RANGE);
    i.header.e_phoff = UINT64_MAX;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_E_RANGE);
    i.header.e_phoff = PARTS_AT;
    i.header.e_phentsize--;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_E_ABI);
    i.header.e_phentsize++;
    i.header.e_ident[EI_CLASS] = ELFCLASS32;
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_E_ABI);
    i.header.e_ident[EI_CLASS] = ELFCLASS64;
    i.header.e_phnum = 0;
    image_end(&i);
    assert_int_equal(xr_note_find(i.bytes, 64, text, sizeof(text)), XRAY_END);
    assert_int_equal(xr_note_find(i.bytes, 63, text, sizeof(text)),
                     XRAY_E_RANGE);
    assert_int_equal(xr_note_find(i.bytes, 4, text, sizeof(text)),
                     XRAY_E_RANGE);
    assert_int_equal(xr_note_find(i.bytes, 3, text, sizeof(text)), XRAY_E_ABI);
    i.bytes[0] = 'X';
    assert_int_equal(xr_note_find(i.bytes, i.size, text, sizeof(text)),
                     XRAY_E_ABI);
}

/* The headers may be the last bytes of the file. */
static void headers_may_end_the_file(void **state)
{
    (void)state;
    image i;
    char text[64];
    image_begin(&i);
    size_t at = i.size;
    add_note(&i, 1, "XRAY", 5, "ours", 5);
    add_part(&i, PT_NOTE, at);
    i.header.e_phoff = image_add(&i, i.parts, sizeof(i.parts[0]));
    assert_int_equal(find_note(&i, text, sizeof(text)), XRAY_OK);
    assert_string_equal(text, "ours");
}

/* ---- symbols ------------------------------------------------------------ */

static void exports_are_counted(void **state)
{
    (void)state;
    image i;
    static const symbol few[] = {
        { "undefined", STB_GLOBAL, STV_DEFAULT, SHN_UNDEF },
        { "local", STB_LOCAL, STV_DEFAULT, 1 },
        { "hidden", STB_GLOBAL, STV_HIDDEN, 1 },
        { "internal", STB_GLOBAL, STV_INTERNAL, 1 },
        { "_init", STB_GLOBAL, STV_DEFAULT, 1 },
        { "_fini", STB_GLOBAL, STV_DEFAULT, 1 },
        { "__bss_start", STB_GLOBAL, STV_DEFAULT, 1 },
        { "_edata", STB_GLOBAL, STV_DEFAULT, 1 },
        { "_end", STB_GLOBAL, STV_DEFAULT, 1 },
        { "__asan_init", STB_GLOBAL, STV_DEFAULT, 1 },
        { "__odr_asan.x", STB_GLOBAL, STV_DEFAULT, 1 },
        { "__gcov_var", STB_GLOBAL, STV_DEFAULT, 1 },
        QUERY,
    };
    static const symbol more[] = {
        { "_end2", STB_GLOBAL, STV_PROTECTED, 1 },
        { "weak", STB_WEAK, STV_DEFAULT, 1 },
        { "__sanitizer_x", STB_GLOBAL, STV_DEFAULT, 1 },
        { "__tsan_x", STB_GLOBAL, STV_DEFAULT, 1 },
        { "__ubsan_x", STB_GLOBAL, STV_DEFAULT, 1 },
        { "__llvm_x", STB_GLOBAL, STV_DEFAULT, 1 },
    };
    xr_symbols s = read_symbols(&i, few, sizeof(few) / sizeof(few[0]));
    assert_int_equal(s.known, 1);
    assert_int_equal(s.query, 1);
    assert_int_equal(s.extra, 0);
    assert_string_equal(s.first, "");
    s = read_symbols(&i, more, sizeof(more) / sizeof(more[0]));
    assert_int_equal(s.known, 1);
    assert_int_equal(s.query, 0);
    assert_int_equal(s.extra, 2);
    assert_string_equal(s.first, "_end2");
    s = read_symbols(&i, few, 0);
    assert_int_equal(s.known, 1);
    assert_int_equal(s.query, 0);
}

static int is_known(image *i)
{
    xr_symbols out;
    image_end(i);
    xr_symbols_read(i->bytes, i->size, &out);
    return out.known;
}

/* An incomplete table counts as missing and gives no error. */
static void unreadable_tables_are_skipped(void **state)
{
    (void)state;
    image i;
    static const symbol one[] = { QUERY };
    assert_int_equal(read_symbols(&i, one, 1).query, 1);
    Elf64_Shdr table = i.sections[1];
    Elf64_Shdr names = i.sections[2];
    i.sections[1].sh_link = 3; /* past the last section */
    i.sections[3] = names;
    assert_int_equal(is_known(&i), 0);
    i.sections[1] = table;
    i.sections[1].sh_type = SHT_SYMTAB;
    assert_int_equal(is_known(&i), 0);
    i.sections[1] = table;
    i.sections[1].sh_offset = i.size - table.sh_size + 1;
    assert_int_equal(is_known(&i), 0);
    i.sections[1] = table;
    i.sections[2].sh_size = 0;
    assert_int_equal(is_known(&i), 0);
    i.sections[2] = names;
    i.sections[2].sh_size--; /* the last name has no end */
    assert_int_equal(is_known(&i), 0);
    i.sections[2] = names;
    i.sections[2].sh_offset++;
    assert_int_equal(is_known(&i), 0);
    i.sections[2] = names;
    i.header.e_shentsize++;
    assert_int_equal(is_known(&i), 0);
    i.header.e_shentsize--;
    i.header.e_shnum = 1;
    assert_int_equal(is_known(&i), 0);
    i.header.e_shnum = 3;
    i.header.e_shoff = i.size - 64;
    assert_int_equal(is_known(&i), 0);
    i.header.e_shoff = SECTIONS_AT;
    assert_int_equal(is_known(&i), 1);
    xr_symbols out;
    xr_symbols_read(i.bytes, 63, &out);
    assert_int_equal(out.known, 0);
    /* A name past the table of names belongs to no symbol. */
    Elf64_Sym bad = { .st_name = (Elf64_Word)names.sh_size };
    memcpy(&bad.st_info, i.bytes + table.sh_offset + 4, 4);
    memcpy(i.bytes + table.sh_offset, &bad, 8);
    xr_symbols_read(i.bytes, i.size, &out);
    assert_int_equal(out.known, 1);
    assert_int_equal(out.query, 0);
    assert_int_equal(out.extra, 0);
}

/* ---- manifests ---------------------------------------------------------- */

#define FINE                                                      \
    "{\"manifest\":1,\"abi\":\"0.3\",\"name\":\"n\",\"version\":" \
    "\"2\",\"provides\":\"xray.algo/0:a\"}"

static void expect_manifest(const char *json, const char *want)
{
    image i;
    xr_err err = { "" };
    xr_manifest m;
    static const symbol one[] = { QUERY };
    const char *path = scratch_path("m.so");
    (void)read_symbols(&i, one, 1);
    size_t at = i.size;
    add_note(&i, 1, "XRAY", 5, json, (uint32_t)strlen(json) + 1);
    add_part(&i, PT_NOTE, at);
    image_end(&i);
    assert_int_equal(xr_file_write(path, i.bytes, i.size, NULL), XRAY_OK);
    xray_status status = xr_manifest_read(path, &err, &m);
    assert_int_equal(status != XRAY_OK, *want != '\0');
    if (!*want) {
        assert_string_equal(m.name, "n");
        assert_string_equal(m.version, "2");
        assert_string_equal(m.provides, "xray.algo/0:a");
        return;
    }
    assert_memory_equal(err.text, path, strlen(path));
    assert_string_equal(err.text + strlen(path), want);
}

static void incomplete_manifests_are_refused(void **state)
{
    (void)state;
    char json[8192];
    expect_manifest(FINE, "");
    expect_manifest("{", ": column 2: expected a key in double quotes");
    expect_manifest("{\"abi\":\"0.3\"}", ": \"manifest\" is missing");
    expect_manifest("{\"manifest\":2}",
                    ": its note has format 2, but this xray reads 1");
    expect_manifest("{\"manifest\":0}",
                    ": its note has format 0, but this xray reads 1");
    expect_manifest("{\"manifest\":1}", ": \"abi\" is missing");
    expect_manifest("{\"manifest\":1,\"abi\":0.1}",
                    ": \"abi\" must be a string, not a number");
    expect_manifest("{\"manifest\":1,\"abi\":\"0.4\"}",
                    ": built for xray ABI 0.4, but this is 0.3; a draft ABI "
                    "runs only on its own minor version");
    expect_manifest("{\"manifest\":1,\"abi\":\"0.3\",\"needs\":\"0.4\"}",
                    ": needs xray ABI 0.4, but this is 0.3");
    expect_manifest("{\"manifest\":1,\"abi\":\"0.3\",\"needs\":2}",
                    ": \"needs\" must be a string, not a number");
    static const char *const odd[] = { "",     "0",       "0.",
                                       "0.3 ", "0.2x",    "+0.3",
                                       "0.-2", "0.70000", "2" };
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        char note[64];
        char want[128];
        (void)snprintf(note, sizeof(note), "{\"manifest\":1,\"abi\":\"%s\"}",
                       odd[i]);
        (void)snprintf(want, sizeof(want),
                       ": \"abi\" of its note is '%s', expected a version such "
                       "as 0.2",
                       odd[i]);
        expect_manifest(note, want);
    }
    expect_manifest("{\"manifest\":1,\"abi\":\"0.3\",\"needs\":\"0.3\"}",
                    ": \"name\" is missing");
    expect_manifest("{\"manifest\":1,\"abi\":\"0.3\"}",
                    ": \"name\" is missing");
    expect_manifest("{\"manifest\":1,\"abi\":\"0.3\",\"name\":\"n\"}",
                    ": \"version\" is missing");
    expect_manifest("{\"manifest\":1,\"abi\":\"0.3\",\"name\":\"n\","
                    "\"version\":\"2\"}",
                    ": \"provides\" is missing");
    (void)snprintf(json, sizeof(json),
                   "{\"manifest\":1,\"abi\":\"0.3\",\"name\":\"%0128d\"}", 0);
    expect_manifest(json, ": name of its note is longer than 127 bytes");
    (void)snprintf(json, sizeof(json),
                   "{\"manifest\":1,\"abi\":\"0.3\",\"name\":\"%0127d\"}", 0);
    expect_manifest(json, ": \"version\" is missing");
    (void)snprintf(json, sizeof(json),
                   "{\"manifest\":1,\"abi\":\"0.3\",\"name\":\"n\",\"version\":"
                   "\"%064d\"}",
                   0);
    expect_manifest(json, ": version of its note is longer than 63 bytes");
    (void)snprintf(json, sizeof(json),
                   "{\"manifest\":1,\"abi\":\"0.3\",\"name\":\"n\",\"version\":"
                   "\"2\",\"provides\":\"%02048d\"}",
                   0);
    expect_manifest(json, ": provides of its note is longer than 2047 bytes");
    (void)snprintf(json, sizeof(json), "%s%*s", FINE,
                   (int)(4095 - strlen(FINE)), "");
    expect_manifest(json, "");
    (void)snprintf(json, sizeof(json), "%s%*s", FINE,
                   (int)(4096 - strlen(FINE)), "");
    expect_manifest(json, ": the file is cut off or damaged");
}

static void extra_exports_are_refused(void **state)
{
    (void)state;
    image i;
    xr_err err = { "" };
    xr_manifest m;
    const char *path = scratch_path("s.so");
    static const symbol two[] = { { "one", STB_GLOBAL, STV_DEFAULT, 1 },
                                  { "two", STB_GLOBAL, STV_DEFAULT, 1 },
                                  QUERY };
    static const char *const wants[] = {
        ": exports no xray_plugin_query of its own; XRAY_PLUGIN_ENTRY defines "
        "it",
        ": exports one and more besides xray_plugin_query; hide all other "
        "symbols, as "
        "xray_add_plugin does",
        ": exports two besides xray_plugin_query; hide all other symbols, as "
        "xray_add_plugin does",
    };
    for (size_t k = 0; k < 3; k++) {
        (void)read_symbols(&i, two + (k == 2), k == 0 ? 2 : k == 1 ? 3 : 2);
        size_t at = i.size;
        add_note(&i, 1, "XRAY", 5, FINE, (uint32_t)sizeof(FINE));
        add_part(&i, PT_NOTE, at);
        image_end(&i);
        assert_int_equal(xr_file_write(path, i.bytes, i.size, NULL), XRAY_OK);
        assert_int_equal(xr_manifest_read(path, &err, &m), XRAY_E_ABI);
        assert_string_equal(err.text + strlen(path), wants[k]);
    }
    /* Without section headers, exports are unknown, which is not a fault. */
    i.header.e_shnum = 0;
    image_end(&i);
    assert_int_equal(xr_file_write(path, i.bytes, i.size, NULL), XRAY_OK);
    assert_int_equal(xr_manifest_read(path, &err, &m), XRAY_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(note_is_found_among_others),
        cmocka_unit_test(truncated_image_is_refused),
        cmocka_unit_test(headers_may_end_the_file),
        cmocka_unit_test(exports_are_counted),
        cmocka_unit_test(unreadable_tables_are_skipped),
        cmocka_unit_test(incomplete_manifests_are_refused),
        cmocka_unit_test(extra_exports_are_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
