/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which rows come out of data files of each format, the places that
 * errors name, and which files folders and patterns stand for.
 */
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "core/data/csv.h"
#include "core/data/file_list.h"
#include "core/data/source.h"
#include "core/data/text_out.h"
#include "tests/scratch.h"

/* Appends the text and a '|'. */
static void add_text(char *to, size_t cap, const char *text)
{
    size_t used = strlen(to);
    assert_true(used + strlen(text) + 2 < cap);
    (void)snprintf(to + used, cap - used, "%s|", text);
}

/* Writes `name` and returns its rows, one after the other and each followed by
 * a '|', or the error without the folder. */
static const char *read_file_rows(const char *name, const char *text)
{
    static char got[1024];
    const char *path = text ? scratch_write(name, text) : scratch_path(name);
    xr_err err = { "" };
    xr_source source;
    char *line;
    size_t size;
    got[0] = '\0';
    xray_status status = xr_source_open(path, NULL, &err, &source);
    while (status == XRAY_OK) {
        status = xr_source_next(&source, &err, &line, &size);
        if (status != XRAY_OK)
            break;
        assert_int_equal(strlen(line), size);
        add_text(got, sizeof got, line);
    }
    xr_source_close(&source);
    if (status == XRAY_END)
        return got;
    assert_int_equal(status, XRAY_E_CONFIG);
    const char *at = strstr(err.text, scratch_dir());
    (void)snprintf(got, sizeof got, "%s",
                   at ? at + strlen(scratch_dir()) + 1 : err.text);
    return got;
}

#define EXPECT(name, text, want) \
    assert_string_equal(read_file_rows(name, text), want)

static void csv_follows_its_rfc(void **state)
{
    (void)state;
    EXPECT("a.csv", "q,a\nx,1\ny z ,02\n",
           "{\"q\":\"x\",\"a\":\"1\"}|{\"q\":\"y z \",\"a\":\"02\"}|");
    EXPECT("a.CSV", "\xef\xbb\xbfq,\"a b\"\r\n\"x,\r\n\"\"y\"\"\",1\r\n",
           "{\"q\":\"x,\\r\\n\\\"y\\\"\",\"a b\":\"1\"}|");
    /* No characters are no value; quotes around none are an empty text. */
    EXPECT("a.csv", "q,a\n,\"\"\n\n\"\",",
           "{\"q\":null,\"a\":\"\"}|{\"q\":\"\",\"a\":null}|");
    EXPECT("a.tsv", "q\ta\nx,y\tcaf\xc3\xa9\n",
           "{\"q\":\"x,y\",\"a\":\"caf\xc3\xa9\"}|");
    EXPECT("a.csv", "q\nx", "{\"q\":\"x\"}|");
    EXPECT("a.csv", "q,a\n", "");
    EXPECT("a.csv", "", "");
}

static void csv_faults_name_row_and_line(void **state)
{
    (void)state;
    EXPECT("a.csv", "q,a\n\"x\ny\",1\nz\n",
           "a.csv: row 2 (line 5): 1 of the header's 2 fields");
    EXPECT("a.csv", "q,a\nx,1,2\n",
           "a.csv: row 1 (line 3): more fields than the 2 of the header");
    EXPECT("a.csv", "q,a\nx,\"1\n2\n",
           "a.csv: row 1 (line 4): the quote that opens in line 2 is never "
           "closed");
    EXPECT("a.csv", "q,a\nx,\"1\"2\n",
           "a.csv: row 1 (line 2): text after the closing quote of a field");
    EXPECT("a.csv", "q,a\n5\" pipe,1\n",
           "a.csv: row 1 (line 2): a quote within a field that has none around "
           "it; write the field in quotes and its quotes twice");
    EXPECT("a.csv", "q,\xe9\n",
           "a.csv: header (line 2): bytes that are not UTF-8, or a NUL; iconv "
           "-t UTF-8 converts such a file");
    EXPECT("a.csv", "\xff\xfeq",
           "a.csv: this is UTF-16 text; iconv -f UTF-16 "
           "-t UTF-8 makes UTF-8 of it");
}

/* Memory behind the text is not looked at. */
static void csv_ends_with_its_text(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t size;
        const char *want; /* NULL: the text is refused */
    } cases[] = {
        { "a,b\n1,2\"", 7, "{\"a\":\"1\",\"b\":\"2\"}\n" },
        { "a,b\n1,2\n3", 7, "{\"a\":\"1\",\"b\":\"2\"}\n" },
        { "a,b\n1,2\r\n", 8, "{\"a\":\"1\",\"b\":\"2\\r\"}\n" },
        { "a,b\n1,\"2\"\"", 9, "{\"a\":\"1\",\"b\":\"2\"}\n" },
        { "a,b\n1,\"2\"", 8, NULL },
        { "a,b\n1,,", 6, "{\"a\":\"1\",\"b\":null}\n" },
        { "a,b\n1,\"\"", 6, "{\"a\":\"1\",\"b\":null}\n" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_str lines = { 0 };
        xr_err err = { "" };
        xray_status status = xr_csv_lines("a.csv", cases[i].text, cases[i].size,
                                          ',', NULL, &err, &lines);
        assert_int_equal(status, cases[i].want ? XRAY_OK : XRAY_E_CONFIG);
        if (cases[i].want)
            assert_string_equal(xr_str_text(&lines), cases[i].want);
        xr_str_free(&lines);
    }
}

static void array_entries_are_rows(void **state)
{
    (void)state;
    EXPECT("a.json",
           " [ {\"a\": [1, {\"b\": \"]}\\\"\\\\\"}]} ,\n{\n\"a\":2}]\n",
           "{\"a\": [1, {\"b\": \"]}\\\"\\\\\"}]}|{ \"a\":2}|");
    EXPECT("a.jsonl", "\xef\xbb\xbf[{},{}]", "{}|{}|");
    /* A row is one line, however it was written. */
    EXPECT("a.json", "[{\r\n\"a\":\r1,\n\"b\":[\r\n]}]\r\n",
           "{  \"a\": 1, \"b\":[  ]}|");
    EXPECT("a.json", "[ ]", "");
    EXPECT("a.json",
           "{\"n\":{\"data\":[{}]},\"m\":\"data\",\"data\":[{\"a\":1}"
           ",{\"a\":2}],\"z\":[3]}",
           "{\"a\":1}|{\"a\":2}|");
    /* As most programs write it, with blanks. */
    EXPECT("a.json",
           "{ \"v\" : 1.0 , \"m\" :  \"data\", \"data\" :  [ {\"a\": 1} , "
           "{\"a\": 2} ] }",
           "{\"a\": 1}|{\"a\": 2}|");
    /* Objects in lines, whatever the name; an object of no list is a row. */
    EXPECT("a.json", "{\"a\":1}\n{\"a\":2}\n", "{\"a\":1}|{\"a\":2}|");
    EXPECT("a.json", "{\"data\":1}", "{\"data\":1}|");
    EXPECT("a.jsonl", "{\"data\":[{}]}", "{\"data\":[{}]}|");
}

static void array_faults_name_the_row(void **state)
{
    (void)state;
    EXPECT("a.json", "[{\"a\":1},\n2]",
           "a.json: row 2: each entry of the array must be an object");
    EXPECT("a.json", "[{\"a\":1},\n{\"a\":\"}",
           "a.json: row 2: the file ends within the row");
    EXPECT("a.json", "[{\"a\":1}",
           "a.json: the file ends within the array, after row 1");
    EXPECT("a.json", "[{\"a\":1},",
           "a.json: row 2: the file ends within the row");
    EXPECT("a.json", "[{\"a\":1} {\"a\":2}]",
           "a.json: expected ',' or ']' after row 1");
    EXPECT("a.json", "[{\"a\":1}],", "a.json: text after the array's end");
}

static void places_count_from_one(void **state)
{
    (void)state;
    static const char *const files[][3] = {
        { "a.jsonl", "\n{}\n", "a.jsonl:2" },
        { "a.json", "[{}]", "a.json: row 1" },
        { "a.csv", "a\n1\n", "a.csv: row 1" },
    };
    for (size_t i = 0; i < 3; i++) {
        xr_source source;
        char *line;
        size_t size;
        const char *path = scratch_write(files[i][0], files[i][1]);
        assert_int_equal(xr_source_open(path, NULL, NULL, &source), XRAY_OK);
        assert_int_equal(xr_source_next(&source, NULL, &line, &size), XRAY_OK);
        assert_string_equal(source.where + strlen(scratch_dir()) + 1,
                            files[i][2]);
        xr_source_close(&source);
    }
}

static void compressed_files_are_read_by_their_inner_name(void **state)
{
    (void)state;
    static const char text[] = "q,a\nx,1\n";
    char packed[128];
    gzFile file = gzopen(scratch_path("a.csv.gz"), "wb");
    assert_non_null(file);
    assert_int_equal(gzwrite(file, text, sizeof text - 1), sizeof text - 1);
    assert_int_equal(gzclose(file), Z_OK);
    EXPECT("a.csv.gz", NULL, "{\"q\":\"x\",\"a\":\"1\"}|");
    size_t size = ZSTD_compress(packed, sizeof packed, "[{\"a\":1}]", 9, 1);
    assert_false(ZSTD_isError(size));
    FILE *out = fopen(scratch_path("a.json.zst"), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(packed, 1, size, out), size);
    assert_int_equal(fclose(out), 0);
    EXPECT("a.json.zst", NULL, "{\"a\":1}|");
}

/* Bytes that no packer makes smaller, so that each piece of output is full. */
static void fill_noise(char *text, size_t size)
{
    uint64_t state = 7;
    for (size_t i = 0; i < size; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        text[i] = (char)(state >> 56);
    }
}

/* Reads as much of a file in the format of its name as `cap` has space for. */
static size_t unpack(const char *path, char *to, size_t cap)
{
    char *packed = NULL;
    size_t size = 0;
    size_t got = 0;
    if (!strstr(path, ".zst")) {
        gzFile file = gzopen(path, "rb"); /* it reads plain files, too */
        assert_non_null(file);
        got = gzfread(to, 1, cap, file);
        assert_int_equal(gzclose(file), Z_OK);
        return got;
    }
    assert_int_equal(xr_file_read(path, 2 * cap, NULL, &packed, &size),
                     XRAY_OK);
    got = ZSTD_decompress(to, cap, packed, size);
    free(packed);
    return got;
}

static void written_texts_are_packed_as_they_are_named(void **state)
{
    (void)state;
    enum { SIZE = 300000, CAP = SIZE + 1 };
    static const char *const names[] = { "t.gz", "t.GZ", "t.zst", "t" };
    static const size_t parts[] = { SIZE, 100001, 65536, 65537 };
    char *text = malloc(SIZE);
    char *got = malloc(CAP);
    assert_true(text && got);
    fill_noise(text, SIZE);
    for (size_t i = 0; i < sizeof names / sizeof names[0] * 4; i++) {
        const char *path = scratch_path(names[i / 4]);
        const size_t part = parts[i % 4];
        xr_text_out out;
        struct stat st;
        assert_int_equal(xr_text_begin(path, NULL, &out), XRAY_OK);
        for (size_t at = 0; at < SIZE; at += part)
            assert_int_equal(xr_text_append(&out, text + at,
                                            SIZE - at < part ? SIZE - at : part,
                                            NULL),
                             XRAY_OK);
        assert_int_equal(xr_text_finish(&out, NULL), XRAY_OK);
        assert_int_equal(unpack(path, got, CAP), SIZE);
        assert_memory_equal(got, text, SIZE);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size == SIZE, i / 4 == 3);
        assert_int_equal(unlink(path), 0);
    }
    free(got);
    free(text);
}

/* A text that cannot be written to its end leaves neither a file nor memory.
 * The header in gzip format is written with the first bytes. */
static void written_texts_may_fail_at_their_end(void **state)
{
    (void)state;
    static const char *const names[] = { "full.gz", "full.zst" };
    if (access("/dev/full", W_OK) != 0)
        skip();
    for (size_t i = 0; i < 2; i++) {
        xr_text_out out;
        xr_err err = { "" };
        const char *path = scratch_path(names[i]);
        assert_int_equal(symlink("/dev/full", path), 0);
        assert_int_equal(xr_text_begin(path, &err, &out), XRAY_OK);
        xray_status begun = xr_text_append(&out, "few", 3, &err);
        assert_int_equal(begun, i ? XRAY_OK : XRAY_E_IO);
        assert_int_equal(xr_text_finish(&out, &err),
                         i ? XRAY_E_IO : XRAY_E_STATE);
        assert_non_null(strstr(err.text, i ? "cannot write" : "write failed"));
        assert_null(out.packer);
        assert_int_equal(out.file.fd, -1);
    }
}

/* ---- names -------------------------------------------------------------- */

/* Compares the files found for `name`, or for it and `second`, without the
 * folder and each followed by a '|', or the error. */
static void expect_files_of(const char *name, const char *second,
                            const char *want)
{
    char got[1024] = "";
    char paths[2][600];
    const char *both[] = { name, second };
    for (size_t i = 0; i < 2 && both[i]; i++)
        (void)snprintf(paths[i], sizeof paths[i], "%s%s", scratch_dir(),
                       both[i]);
    const char *names[] = { paths[0], paths[1] };
    const xray_list list = { names, second ? 2 : 1 };
    xr_file_list found;
    xr_err err = { "" };
    if (xr_file_list_find(&list, &err, &found) != XRAY_OK) {
        const char *at = strstr(err.text, scratch_dir());
        assert_non_null(at);
        assert_string_equal(at + strlen(scratch_dir()), want);
        assert_int_equal(found.count, 0);
        return;
    }
    for (uint64_t i = 0; i < found.count; i++)
        add_text(got, sizeof got, found.items[i] + strlen(scratch_dir()));
    assert_string_equal(got, want);
    xr_file_list_free(&found);
}

static void expect_files(const char *name, const char *want)
{
    expect_files_of(name, NULL, want);
}

static void folders_and_patterns_stand_for_their_files(void **state)
{
    (void)state;
    static const char *const names[] = {
        "set/b.jsonl", "set/B.parquet", "set/a-2.json.zst", "set/a-10.csv.gz",
        "set/notes.txt", "set/.hidden.csv", "set/c.parquet.zst", "set/[x].tsv",
        /* beside the files of a set that the datasets library wrote */
        "set/state.json", "set/dataset_info.json", "set/dataset_infos.json",
        "set/dataset_dict.json"
    };
    assert_int_equal(mkdir(scratch_path("set"), 0777), 0);
    assert_int_equal(mkdir(scratch_path("none"), 0777), 0);
    assert_int_equal(mkdir(scratch_path("set/d.jsonl"), 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        (void)scratch_write(names[i], "");
    expect_files("/set", "/set/B.parquet|/set/[x].tsv|/set/a-10.csv.gz|/set/"
                         "a-2.json.zst|/set/b.jsonl|/set/c.parquet.zst|");
    expect_files("/set/a-*", "/set/a-10.csv.gz|/set/a-2.json.zst|");
    expect_files("/set/?.*", "/set/B.parquet|/set/b.jsonl|/set/c.parquet.zst|");
    expect_files("/set/[x].tsv", "/set/[x].tsv|");
    expect_files("/set/[a-c].jsonl", "/set/b.jsonl|");
    /* In the order of the names, and only those of one name are sorted. */
    expect_files_of("/set/b.jsonl", "/set/a-*",
                    "/set/b.jsonl|/set/a-10.csv.gz|/set/a-2.json.zst|");
    assert_int_equal(mkdir(scratch_path("other"), 0777), 0);
    (void)scratch_write("other/2.csv", "");
    (void)scratch_write("other/1.csv", "");
    expect_files_of("/set/b.jsonl", "/other",
                    "/set/b.jsonl|/other/1.csv|/other/2.csv|");
    expect_files_of("/set/b.jsonl", "/none",
                    "/none: the folder holds no data files (.jsonl, .json, "
                    ".csv, .tsv, .parquet, .arrow or .feather)");
    expect_files_of("/set/b.jsonl", "/set/*.xml", "/set/*.xml");
    expect_files("/set/missing.csv", "/set/missing.csv|");
    expect_files("/set/*.xml", "/set/*.xml");
    /* A folder has data files of every form. */
    static const char *const forms[] = { "1.jsonl",   "2.ndjson", "3.json",
                                         "4.parquet", "5.arrow",  "6.feather",
                                         "7.csv",     "8.tsv" };
    assert_int_equal(mkdir(scratch_path("forms"), 0777), 0);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "forms/%s", forms[i]);
        (void)scratch_write(name, "");
    }
    expect_files("/forms", "/forms/1.jsonl|/forms/2.ndjson|/forms/3.json|"
                           "/forms/4.parquet|/forms/5.arrow|/forms/6.feather|"
                           "/forms/7.csv|/forms/8.tsv|");
    expect_files("/none",
                 "/none: the folder holds no data files (.jsonl, .json, .csv, "
                 ".tsv, .parquet, .arrow or .feather)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(csv_follows_its_rfc),
        cmocka_unit_test(csv_faults_name_row_and_line),
        cmocka_unit_test(csv_ends_with_its_text),
        cmocka_unit_test(array_entries_are_rows),
        cmocka_unit_test(array_faults_name_the_row),
        cmocka_unit_test(places_count_from_one),
        cmocka_unit_test(compressed_files_are_read_by_their_inner_name),
        cmocka_unit_test(written_texts_are_packed_as_they_are_named),
        cmocka_unit_test(written_texts_may_fail_at_their_end),
        cmocka_unit_test(folders_and_patterns_stand_for_their_files),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
