/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes safetensors files to accept and to refuse, each with one feature that
 * decides.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/material/material.h"

#define F32(name, shape, offsets)                      \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape \
    ",\"data_offsets\":" offsets "}"

/* A header, the length that the file claims for it (0: the true one), and after
 * it values 0, 1, 2 or, with `ten`, 10, 20, cut to `bytes`. */
typedef struct one_case {
    const char *name;
    const char *header;
    uint64_t claim;
    size_t bytes;
    int ten;
} one_case;

static const one_case cases[] = {
    { "ok_f32_1x2x3", "{" F32("attn.0", "[1,2,3]", "[0,24]") "}", 0, 24, 0 },
    { "ok_forced_alignment_padding",
      "{" F32("attn.0", "[1,1,2,3]", "[0,24]") "}      ", 0, 24, 0 },
    { "ok_empty", "{}      ", 0, 0, 0 },
    { "ok_i32_2x2",
      "{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
      0, 16, 0 },
    { "ok_whitespace_trailing", "{}    ", 0, 0, 0 },
    { "ok_whitespace_leading", "\t\n  {}", 0, 0, 0 },
    { "ok_unsorted_offsets",
      "{" F32("z", "[1]", "[4,8]") "," F32("a", "[1]", "[0,4]") "}", 0, 8, 1 },
    { "ok_unicode_and_escapes",
      "{" F32("\\u5c42\\ud83d\\ude00\xC3\xA9\\\"w\\n", "[1]", "[0,4]") "}", 0,
      4, 0 },
    { "ok_unaligned_header_len", "{" F32("odd", "[1]", "[0,4]") " }", 0, 4, 0 },
    { "bad_missing_2_bytes",
      "{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
      0, 14, 0 },
    { "bad_2_bytes_more", "{" F32("test", "[1]", "[0,4]") "}", 0, 6, 0 },
    { "bad_header_too_large", "{}", UINT64_C(18446744073709486080), 0, 0 },
    { "bad_header_claims_100MB_plus_1", "{}", 100000001, 0, 0 },
    { "bad_header_beyond_the_file", "{}", 3, 0, 0 },
    { "bad_non_utf8", "\xFF", 0, 0, 0 },
    { "bad_not_json", "{", 0, 0, 0 },
    { "bad_shape_vs_offsets", "{" F32("test", "[2]", "[0,4]") "}", 0, 4, 0 },
    { "bad_shape_beyond_64_bits",
      "{" F32("test", "[4611686018427387904,4]", "[0,0]") "}", 0, 0, 0 },
    { "bad_offsets_turned_round", "{" F32("test", "[1]", "[4,0]") "}", 0, 4,
      0 },
    { "bad_dtype",
      "{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4,
      0 },
    { "bad_no_dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 0, 4,
      0 },
    { "bad_hole_at_start", "{" F32("a", "[1]", "[4,8]") "}", 0, 8, 0 },
    { "bad_hole_between",
      "{" F32("a", "[1]", "[0,4]") "," F32("b", "[1]", "[8,12]") "}", 0, 12,
      0 },
    { "bad_json_attack_overlap",
      "{" F32("weight_0", "[2]", "[0,8]") "," F32(
          "weight_1", "[2]", "[0,8]") "," F32("weight_2", "[2]", "[0,8]") "}",
      0, 8, 0 },
    { "bad_overlap_by_one",
      "{" F32("a", "[2]", "[0,8]") "," F32("b", "[2]", "[7,15]") "}", 0, 15,
      0 },
    { "bad_negative_offset", "{" F32("a", "[1]", "[-4,0]") "}", 0, 4, 0 },
    { "bad_negative_dim", "{" F32("a", "[-1]", "[0,4]") "}", 0, 4, 0 },
    { "bad_float_dim", "{" F32("a", "[1.5]", "[0,4]") "}", 0, 4, 0 },
    { "bad_three_offsets", "{" F32("a", "[1]", "[0,4,8]") "}", 0, 4, 0 },
    { "bad_top_level_array", "[1, 2]  ", 0, 0, 0 },
    { "bad_metadata_non_string", "{\"__metadata__\":{\"n\":1}}", 0, 0, 0 },
    { "spec_duplicate_key",
      "{" F32("a", "[1]", "[0,4]") "," F32("a", "[1]", "[4,8]") "}", 0, 8, 0 },
};
enum { CASES = sizeof cases / sizeof cases[0], DEEP = 100000 };

static void write_length(FILE *file, uint64_t length)
{
    for (int i = 0; i < 8; i++)
        (void)fputc((int)(length >> (8 * i) & 255), file);
}

static FILE *open_case_file(const material *m, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof path, "safetensors/cases/%s.safetensors", name);
    return file_open(m, path);
}

static void write_case_file(const material *m, const one_case *c)
{
    FILE *file = open_case_file(m, c->name);
    write_length(file, c->claim ? c->claim : strlen(c->header));
    (void)fputs(c->header, file);
    for (size_t i = 0; i < c->bytes; i++) {
        size_t word = i / 4;
        float value = c->ten ? 10 * (float)(word + 1) : (float)word;
        unsigned char bytes[sizeof value];
        memcpy(bytes, &value, sizeof value);
        (void)fputc(bytes[i % 4], file);
    }
    file_close(file, c->name);
}

void cases_write(const material *m)
{
    FILE *file = file_open(m, "safetensors/cases/bad_empty_file.safetensors");
    file_close(file, "bad_empty_file");
    file = open_case_file(m, "spec_deep_nesting");
    write_length(file, DEEP);
    for (int i = 0; i < DEEP; i++)
        (void)fputc('[', file);
    file_close(file, "spec_deep_nesting");
    file = file_open(m, "safetensors/manifest.json");
    (void)fputc('[', file);
    for (int i = 0; i < CASES; i++) {
        write_case_file(m, &cases[i]);
        (void)fprintf(file, "{\"file\": \"cases/%s.safetensors\", ",
                      cases[i].name);
        (void)fprintf(file, "\"expect\": \"%s\"},\n",
                      cases[i].name[0] == 'o' ? "accept" : "reject");
    }
    (void)fprintf(file, "{\"file\": \"cases/bad_empty_file.safetensors\", "
                        "\"expect\": \"reject\"},\n"
                        "{\"file\": \"cases/spec_deep_nesting.safetensors\", "
                        "\"expect\": \"reject\"}]\n");
    file_close(file, "manifest.json");
}
