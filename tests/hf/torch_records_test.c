/* SPDX-License-Identifier: Apache-2.0
 *
 * A zip archive one of whose records says something else than the others is
 * refused with what is wrong, whether its sizes are narrow or of zip64.
 */
#include "model/hf/torch_file.h"
#include "tests/scratch.h"
#include "tests/torch_archive.h"

/* With long names the directory has space for more records than there are. */
#define FOLDER "a-folder-whose-name-is-rather-long/"

enum { ENTRIES = 3, LAST = ENTRIES - 1 };

typedef enum place { LOCAL, CENTRAL, END, END64, LOCATOR } place;

typedef struct archive {
    torch_archive a;
    size_t local[ENTRIES];
    size_t central[ENTRIES];
    size_t directory;
} archive;

static const float values[] = { 1.5f, -2, 0.25f };

static void make_archive(archive *out, int wide)
{
    static const char *const names[ENTRIES] = { FOLDER "data.pkl",
                                                FOLDER "byteorder",
                                                FOLDER "data/0" };
    const torch_tensor tensor = { "t", "FloatStorage", "0",  3, 0,
                                  1,   { 3 },          { 1 } };
    xr_str pickle = { 0 };
    torch_state(&pickle, &tensor, 1);
    const void *const data[ENTRIES] = { pickle.data, "little", values };
    const size_t sizes[ENTRIES] = { pickle.size, 6, sizeof values };
    *out = (archive){ .a = { .wide = wide } };
    for (size_t i = 0; i < ENTRIES; i++) {
        out->local[i] = out->a.file.size;
        out->central[i] = out->a.directory.size;
        torch_add(&out->a, names[i], data[i], sizes[i]);
    }
    out->directory = out->a.file.size;
    torch_finish(&out->a);
    xr_str_free(&pickle);
}

/* A field of `bytes` bytes, and what is added to it. */
typedef struct change {
    place where;
    size_t entry;
    size_t offset;
    unsigned bytes; /* 0: there is no change */
    int64_t add;
} change;

static void apply_change(archive *a, const change *c)
{
    const size_t places[] = {
        [LOCAL] = a->local[c->entry],
        [CENTRAL] = a->directory + a->central[c->entry],
        [END] = a->a.file.size - 22,
        [END64] = a->directory + a->a.directory.size,
        [LOCATOR] = a->a.file.size - 42,
    };
    unsigned char *at =
        (unsigned char *)a->a.file.data + places[c->where] + c->offset;
    uint64_t value = 0;
    for (unsigned i = c->bytes; i--;)
        value = value << 8 | at[i];
    value += (uint64_t)c->add;
    for (unsigned i = 0; i < c->bytes; i++, value >>= 8)
        at[i] = (unsigned char)(value & 255);
}

#define EARLY "its directory ends too early"
#define OUTSIDE "its directory does not lie in the file"
#define ELSEWHERE "its header is not where the directory says"
#define NO_DATA "its data does not lie in the file"
#define NO_SIZES "its zip64 sizes are missing"
#define NO_END "there is no record of its end"
#define NO_END64 "the zip64 record is not where it should be"

static const struct {
    int wide;
    change changes[2];
    const char *says; /* NULL: it opens */
} cases[] = {
    { 0, { { END, 0, 0, 0, 0 } }, NULL },
    { 1, { { END, 0, 0, 0, 0 } }, NULL },
    /* the record of the end */
    { 0, { { END, 0, 0, 4, 1 } }, NO_END },
    { 0, { { END, 0, 20, 2, 1 } }, NO_END },
    { 0, { { END, 0, 10, 2, 1 } }, EARLY },
    { 0, { { END, 0, 10, 2, 100 } }, OUTSIDE },
    { 0, { { END, 0, 10, 2, -ENTRIES } }, "the zip archive holds no data.pkl" },
    { 0, { { END, 0, 12, 4, 1 } }, OUTSIDE },
    { 0, { { END, 0, 12, 4, -1 } }, EARLY },
    { 0, { { END, 0, 16, 4, 1 } }, OUTSIDE },
    { 0, { { END, 0, 16, 4, 1 }, { END, 0, 12, 4, -1 } }, EARLY },
    { 0, { { END, 0, 16, 4, 1 << 20 } }, OUTSIDE },
    { 1, { { END64, 0, 0, 4, 1 } }, NO_END64 },
    { 1, { { END64, 0, 32, 8, 1 } }, EARLY },
    { 1, { { END64, 0, 40, 8, -1 } }, EARLY },
    { 1, { { END64, 0, 40, 8, INT64_MAX } }, OUTSIDE },
    { 1, { { END64, 0, 48, 8, INT64_MAX } }, OUTSIDE },
    { 1, { { LOCATOR, 0, 8, 8, 1 } }, NO_END64 },
    { 1, { { LOCATOR, 0, 8, 8, INT64_MAX } }, NO_END64 },
    /* Without its locator the narrow fields count, which say nothing here. */
    { 1, { { LOCATOR, 0, 0, 4, 1 } }, OUTSIDE },
    /* the directory */
    { 0, { { CENTRAL, 0, 0, 4, 1 } }, EARLY },
    { 0, { { CENTRAL, LAST, 28, 2, 1 } }, EARLY },
    { 0, { { CENTRAL, LAST, 30, 2, 1 } }, EARLY },
    { 0, { { CENTRAL, LAST, 32, 2, 1 } }, EARLY },
    { 0, { { CENTRAL, LAST, 28, 2, -1 } }, "its header has another name" },
    { 0, { { CENTRAL, LAST, 46, 1, 1 } }, "its header has another name" },
    { 0, { { CENTRAL, LAST, 42, 4, 1 } }, ELSEWHERE },
    { 0, { { CENTRAL, LAST, 42, 4, 1 << 20 } }, ELSEWHERE },
    { 0, { { CENTRAL, LAST, 20, 4, 1 } }, "is compressed" },
    { 0, { { CENTRAL, LAST, 24, 4, 1 } }, "is compressed" },
    { 0,
      { { CENTRAL, LAST, 20, 4, 1 }, { CENTRAL, LAST, 24, 4, 1 } },
      NO_DATA },
    { 1, { { CENTRAL, LAST, 46 + sizeof FOLDER + 5, 2, 1 } }, NO_SIZES },
    { 1, { { CENTRAL, LAST, 46 + sizeof FOLDER + 7, 2, -1 } }, NO_SIZES },
    { 1, { { CENTRAL, LAST, 46 + sizeof FOLDER + 7, 2, 1 } }, NO_SIZES },
    /* An entry's own record */
    { 0, { { LOCAL, LAST, 0, 4, 1 } }, ELSEWHERE },
    { 0,
      { { LOCAL, LAST, 26, 2, 1 }, { LOCAL, LAST, 28, 2, -1 } },
      "its header has another name" },
    { 0, { { LOCAL, LAST, 30, 1, 1 } }, "its header has another name" },
    { 0, { { LOCAL, LAST, 28, 2, 1 } }, NO_DATA },
    { 0, { { LOCAL, LAST, 28, 2, 1000 } }, NO_DATA },
};

static void records_that_do_not_agree_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        archive a;
        xr_err err = { "" };
        xm_torch *torch = NULL;
        make_archive(&a, cases[i].wide);
        for (size_t k = 0; k < 2; k++)
            if (cases[i].changes[k].bytes)
                apply_change(&a, &cases[i].changes[k]);
        const char *path = scratch_path("records.bin");
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(a.a.file.data, 1, a.a.file.size, file),
                         a.a.file.size);
        assert_int_equal(fclose(file), 0);
        torch_archive_free(&a.a);
        xray_status status = xm_torch_open(path, &err, &torch);
        if (cases[i].says
                ? status != XRAY_E_CONFIG || !strstr(err.text, cases[i].says)
                : status != XRAY_OK)
            fail_msg("case %zu: %d, %s", i, status, err.text);
        if (status == XRAY_OK)
            xm_torch_close(torch);
    }
}

/* The comment follows the record of the end, however long it is. */
static void an_archive_may_have_a_comment(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 21, 22, 65535 };
    static const char text[65535] = "PK";
    for (size_t i = 0; i < 4; i++) {
        archive a;
        xr_err err = { "" };
        xm_torch *torch = NULL;
        make_archive(&a, 1);
        apply_change(&a, &(change){ END, 0, 20, 2, (int64_t)sizes[i] });
        xr_str_append(&a.a.file, text, sizes[i]);
        const char *path = scratch_path("comment.bin");
        assert_int_equal(
            xr_file_write(path, a.a.file.data, a.a.file.size, NULL), XRAY_OK);
        torch_archive_free(&a.a);
        if (xm_torch_open(path, &err, &torch) != XRAY_OK)
            fail_msg("%zu: %s", sizes[i], err.text);
        xm_torch_close(torch);
    }
}

/* The bytes that tell an older format are enough, and fewer tell none. */
static void older_formats_are_told_by_their_first_bytes(void **state)
{
    (void)state;
    static const char stream[] =
        "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
    char tar[262] = "storages";
    memcpy(tar + 257, "ustar", 5);
    const struct {
        const char *data;
        size_t size;
        const char *says;
    } files[] = {
        { stream, sizeof stream - 1, "PyTorch before 1.6" },
        { stream, sizeof stream - 2, "is not a file that torch.save wrote" },
        { tar, sizeof tar, "PyTorch before 0.1.10" },
        { tar, sizeof tar - 1, "is not a file that torch.save wrote" },
        { "PK\x03\x04", 3, "is not a file that torch.save wrote" },
        { "PK\x03\x04", 4, NO_END },
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        xr_err err = { "" };
        xm_torch *torch = NULL;
        const char *path = scratch_path("older.bin");
        assert_int_equal(
            xr_file_write(path, files[i].data, files[i].size, NULL), XRAY_OK);
        assert_int_equal(xm_torch_open(path, &err, &torch), XRAY_E_CONFIG);
        if (!strstr(err.text, files[i].says))
            fail_msg("file %zu: %s", i, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_that_do_not_agree_are_refused),
        cmocka_unit_test(an_archive_may_have_a_comment),
        cmocka_unit_test(older_formats_are_told_by_their_first_bytes),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
