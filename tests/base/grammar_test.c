/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which JSON documents, JSON lines and foreign formats are refused, by
 * the complete sentence of each.
 */
#include <float.h>

#include "core/base/file_format.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/scratch.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

typedef struct row {
    const char *text;
    const char *said; /* "": it is fine */
} row;

static const row documents[] = {
    { "", "column 1: the text ends where a value should be" },
    { "  ", "column 3: the text ends where a value should be" },
    { "\xEF\xBB\xBF{}", "" },
    { "nul", "column 1: expected a JSON value" },
    { "null", "" },
    { "true", "" },
    { "fals", "column 1: expected a JSON value" },
    { "false ", "" },
    { "truefalse", "column 5: text after the JSON value" },
    { "'a'", "column 1: expected a JSON value" },
    { "{a: 1}", "column 2: expected a key in double quotes" },
    { "{\"a\": 1,}", "column 9: expected a key in double quotes" },
    { "{\"a\"", "column 5: expected ':' after the key" },
    { "{\"a\":", "column 6: the text ends where a value should be" },
    { "{\"a\":1", "column 7: expected ',' or '}'" },
    { "{\"a\":1]", "column 7: expected ',' or '}'" },
    { "[1}", "column 3: expected ',' or ']'" },
    { "[,1]", "column 2: expected a JSON value" },
    { "]", "column 1: expected a JSON value" },
    { "[ ]", "" },
    { "{ }", "" },
    { "[[],{},[{\"a\":[]}]]", "" },
    { "[]]", "column 3: text after the JSON value" },
    { "[\n1,\n x]", "line 3, column 2: expected a JSON value" },
    /* numbers */
    { "-", "column 2: a number needs a digit here" },
    { "-0", "" },
    { "-01", "column 4: a number starts with 0" },
    { "0.", "column 3: a number needs a digit here" },
    { "0.5e", "column 5: a number needs a digit here" },
    { "1e+", "column 4: a number needs a digit here" },
    { "1E-7", "" },
    { "+1", "column 1: expected a JSON value" },
    { ".5", "column 1: expected a JSON value" },
    { "1a", "column 2: text after the JSON value" },
    { "1234567890123456789012345678901234567890123456789012345678901", "" },
    { "12345678901234567890123456789012345678901234567890123456789012",
      "column 63: a number with too many digits" },
    { "-1234567890123456789012345678901234567890123456789012345678901", "" },
    { "-12345678901234567890123456789012345678901234567890123456789012",
      "column 64: a number with too many digits" },
    /* strings */
    { "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\uABCD\"", "" },
    { "\"\\a\"", "column 3: an unknown escape" },
    { "\"\\", "column 3: an unknown escape" },
    { "\"\\u12g4\"", "column 4: \\u needs four hexadecimal digits" },
    { "\"\\u12\"", "column 4: \\u needs four hexadecimal digits" },
    { "\"\\u0000\"", "column 8: \\u0000, the NUL character, is not allowed in "
                     "text; remove it" },
    { "\"\\uDBFF\\uDFFF\"", "" },
    { "\"\\uD800\\uDC00\"", "" },
    { "\"\\uDC00\"", "column 8: a lone surrogate" },
    { "\"\\uDFFF\"", "column 8: a lone surrogate" },
    { "\"\\uD800x\"", "column 8: a lone surrogate" },
    { "\"\\uD800\\n\"", "column 8: a lone surrogate" },
    { "\"\\uD800\\uD800\"", "column 14: a lone surrogate" },
    { "\"\\uD800\\uE000\"", "column 14: a lone surrogate" },
    { "\"\\uD7FF\\uE000\"", "" },
    { "\"\x1f\"", "column 2: a control character inside a string" },
    { "\" \x7f\"", "" },
    { "\"\xC3\"", "column 2: a byte that is not UTF-8" },
    { "\"a", "column 3: the text ends inside a string" },
    /* keys that occur twice */
    { "{\"a\": 1, \"b\": {\"a\": 2}}", "" },
    { "{\"a\": 1, \"A\": 2}", "" },
    { "{\"a\": 1, \"b\": 2, \"a\": 3}", "\"a\" occurs twice in one object" },
    { "[{\"x\": [{\"y\": 1, \"y\": 2}]}]", "\"y\" occurs twice in one object" },
    { "{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1}", "" },
    { "{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"1\":1}",
      "\"1\" occurs twice in one object" },
    { "{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,"
      "\"9\":1}",
      "" },
    { "{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,"
      "\"1\":1}",
      "\"1\" occurs twice in one object" },
    { "{\"1\":1,\"2\":1,\"3\":1,\"4\":1,\"5\":1,\"6\":1,\"7\":1,\"8\":1,"
      "\"8\":1}",
      "\"8\" occurs twice in one object" },
    /* other formats are named */
    { "PAR1",
      "this is a Parquet file; [data] train_files takes it, and xray data "
      "convert FILE OUT.jsonl makes JSON lines of it" },
    { "  <!DOCTYPE HTML>",
      "this is an HTML page, as from a failed download; fetch the file again" },
};

static void documents_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(documents); i++) {
        const row *r = &documents[i];
        xr_err err = { "" };
        cJSON *tree = NULL;
        xray_status status =
            xr_json_parse(r->text, strlen(r->text), "f", &err, &tree);
        const char *said = *err.text ? err.text + 3 : "";
        if (strcmp(said, r->said) != 0)
            fail_msg("%s: '%s', not '%s'", r->text, said, r->said);
        assert_int_equal(status, *r->said ? XRAY_E_CONFIG : XRAY_OK);
        assert_true((tree != NULL) == !*r->said);
        cJSON_Delete(tree);
    }
}

static void depth_is_bounded(void **state)
{
    (void)state;
    char text[2002];
    for (size_t deep = 999; deep <= 1000; deep++) {
        xr_err err = { "" };
        cJSON *tree = NULL;
        memset(text, '[', deep);
        memset(text + deep, ']', deep);
        assert_int_equal(xr_json_parse(text, 2 * deep, "f", &err, &tree),
                         deep == 999 ? XRAY_OK : XRAY_E_CONFIG);
        assert_string_equal(
            err.text, deep == 999 ? ""
                                  : "f: column 1000: values are nested too "
                                    "deeply");
        cJSON_Delete(tree);
    }
}

static const row lines[] = {
    { "{\"a\": 1}", "" },
    { "{\"a\": 1} \t\r", "" },
    { "", "the line is blank, but a JSON object is expected" },
    { " \r", "the line is blank, but a JSON object is expected" },
    { "3", "a line must be a JSON object" },
    { "\"x\"", "a line must be a JSON object" },
    { "[", "this line begins a JSON array, but each line must be an object; jq "
           "-c '.[]' FILE "
           "writes one entry per line" },
    { "[{}]", "this line begins a JSON array, but each line must be an object; "
              "jq -c '.[]' "
              "FILE writes one entry per line" },
    { "{", "the object continues after this line; jq -c . FILE writes each "
           "object as one line" },
    { "{\"a\": 1,", "column 9: expected a key in double quotes" },
};

static void lines_are_objects(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(lines); i++) {
        const row *r = &lines[i];
        xr_err err = { "" };
        cJSON *tree = NULL;
        xray_status status =
            xr_json_line(r->text, strlen(r->text), "f:3", &err, &tree);
        const char *said = *err.text ? err.text + 5 : "";
        if (strcmp(said, r->said) != 0)
            fail_msg("%s: '%s', not '%s'", r->text, said, r->said);
        assert_int_equal(status, *r->said ? XRAY_E_CONFIG : XRAY_OK);
        assert_true((tree != NULL) == !*r->said);
        cJSON_Delete(tree);
    }
}

static void files_are_read(void **state)
{
    (void)state;
    char want[512];
    xr_err err = { "" };
    cJSON *tree = NULL;
    const char *path = scratch_write("a.json", "{\"a\":\n 1}");
    assert_int_equal(xr_json_file(path, &err, &tree), XRAY_OK);
    assert_non_null(xr_json_get(tree, "a"));
    cJSON_Delete(tree);
    path = scratch_write("a.json", "{\"a\":\n !}");
    assert_int_equal(xr_json_file(path, &err, &tree), XRAY_E_CONFIG);
    (void)snprintf(want, sizeof(want),
                   "%s: line 2, column 2: expected a JSON value", path);
    assert_string_equal(err.text, want);
    /* A file is read to its end, not to its first zero byte. */
    static const char zeros[] = "{\"a\": 1}\0\0";
    assert_int_equal(xr_file_write(path, zeros, sizeof(zeros) - 1, &err),
                     XRAY_OK);
    assert_int_equal(xr_json_file(path, &err, &tree), XRAY_E_CONFIG);
    assert_int_equal(xr_json_file(scratch_path("none"), &err, &tree),
                     XRAY_E_IO);
}

/* ---- members ------------------------------------------------------------ */

static const char object[] =
    "{\"i\": -3, \"most\": 9007199254740992, \"over\": 9007199254740994, "
    "\"least\": -9007199254740992, \"under\": -9007199254740994, \"f\": 2.5, "
    "\"huge\": 1e999, \"s\": \"x\", \"t\": true, \"no\": false, \"n\": null, "
    "\"a\": [], \"o\": {}}";

typedef struct member {
    const char *key;
    const char *as_int; /* the value, or the message after "w: " */
    const char *as_real;
    const char *as_bool;
    const char *as_string;
} member;

#define NOT(key, wanted, is) "\"" key "\" must be " wanted ", not " is
static const member members[] = {
    { "i", "-3", "-3", NOT("i", "true or false", "a number"),
      NOT("i", "a string", "a number") },
    { "most", "9007199254740992", "9007199254740992",
      NOT("most", "true or false", "a number"),
      NOT("most", "a string", "a number") },
    { "over", "\"over\" must be an integer, not 9007199254740994",
      "9007199254740994", NOT("over", "true or false", "a number"),
      NOT("over", "a string", "a number") },
    { "least", "-9007199254740992", "-9007199254740992",
      NOT("least", "true or false", "a number"),
      NOT("least", "a string", "a number") },
    { "under", "\"under\" must be an integer, not -9007199254740994",
      "-9007199254740994", NOT("under", "true or false", "a number"),
      NOT("under", "a string", "a number") },
    { "f", "\"f\" must be an integer, not 2.5", "2.5",
      NOT("f", "true or false", "a number"), NOT("f", "a string", "a number") },
    { "huge", "\"huge\" must be an integer, not inf", "\"huge\" is too large",
      NOT("huge", "true or false", "a number"),
      NOT("huge", "a string", "a number") },
    { "s", NOT("s", "an integer", "a string"), NOT("s", "a number", "a string"),
      NOT("s", "true or false", "a string"), "x" },
    { "t", NOT("t", "an integer", "a boolean"),
      NOT("t", "a number", "a boolean"), "1",
      NOT("t", "a string", "a boolean") },
    { "no", NOT("no", "an integer", "a boolean"),
      NOT("no", "a number", "a boolean"), "0",
      NOT("no", "a string", "a boolean") },
    { "a", NOT("a", "an integer", "an array"), NOT("a", "a number", "an array"),
      NOT("a", "true or false", "an array"), NOT("a", "a string", "an array") },
    { "o", NOT("o", "an integer", "an object"),
      NOT("o", "a number", "an object"), NOT("o", "true or false", "an object"),
      NOT("o", "a string", "an object") },
    /* Missing and null members are treated the same. */
    { "n", "77", "7.5", "1", "preset" },
    { "none", "77", "7.5", "1", "preset" },
};

static void members_have_types(void **state)
{
    (void)state;
    xr_err err = { "" };
    cJSON *o = NULL;
    assert_int_equal(xr_json_parse(object, sizeof(object) - 1, "w", &err, &o),
                     XRAY_OK);
    for (size_t i = 0; i < COUNT(members); i++) {
        const member *m = &members[i];
        const char *const wants[] = { m->as_int, m->as_real, m->as_bool,
                                      m->as_string };
        for (int k = 0; k < 4; k++) {
            char got[1200];
            int64_t integer = 0;
            double real = 0;
            int flag = 0;
            const char *text = NULL;
            xray_status status =
                k == 0   ? xr_json_int_or(o, m->key, 77, "w", &err, &integer)
                : k == 1 ? xr_json_real_or(o, m->key, 7.5, "w", &err, &real)
                : k == 2
                    ? xr_json_bool_or(o, m->key, 1, "w", &err, &flag)
                    : xr_json_string_or(o, m->key, "preset", "w", &err, &text);
            if (status != XRAY_OK)
                (void)snprintf(got, sizeof(got), "%s", err.text + 3);
            else if (k == 0 || k == 2)
                (void)snprintf(got, sizeof(got), "%lld",
                               k ? (long long)flag : (long long)integer);
            else if (k == 1)
                (void)snprintf(got, sizeof(got), "%.17g", real);
            else
                (void)snprintf(got, sizeof(got), "%s", text);
            assert_string_equal(got, wants[k]);
            assert_int_equal(status,
                             strchr(wants[k], ' ') ? XRAY_E_CONFIG : XRAY_OK);
        }
    }
    int64_t integer = 0;
    const char *text = NULL;
    assert_int_equal(xr_json_string(o, "n", "w", &err, &text), XRAY_E_CONFIG);
    assert_string_equal(err.text, "w: \"n\" is missing");
    assert_int_equal(xr_json_int(o, "none", "w", &err, &integer),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "w: \"none\" is missing");
    cJSON_Delete(o);
}

static void ids_are_nonnegative_integers(void **state)
{
    (void)state;
    static const row rows[] = {
        { "[]", "" },
        { "[0, 2147483647]", "" },
        { "[0, 2147483648]", "id 1 of the array must be an integer from 0 to "
                             "2147483647" },
        { "[-1]", "id 0 of the array must be an integer from 0 to 2147483647" },
        { "[1, 2, 1.5]",
          "id 2 of the array must be an integer from 0 to 2147483647" },
        { "[\"1\"]",
          "id 0 of the array must be an integer from 0 to 2147483647" },
        { "{}", "ids must be an array" },
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        xr_err err = { "" };
        cJSON *tree = NULL;
        int32_t *ids = NULL;
        size_t count = 9;
        assert_int_equal(
            xr_json_parse(rows[i].text, strlen(rows[i].text), "f", &err, &tree),
            XRAY_OK);
        xray_status status = xr_json_ids(tree, "w", &err, &ids, &count);
        assert_int_equal(status, *rows[i].said ? XRAY_E_CONFIG : XRAY_OK);
        assert_string_equal(*err.text ? err.text + 3 : "", rows[i].said);
        if (!*rows[i].said) {
            assert_int_equal(count, i ? 2 : 0);
            assert_true(!i || (ids[0] == 0 && ids[1] == INT32_MAX));
        }
        free(ids);
        cJSON_Delete(tree);
    }
}

/* ---- other formats ------------------------------------------------------ */

static const struct format {
    const char *bytes;
    size_t size;
    const char *said; /* how the sentence begins */
} formats[] = {
    { "PAR1", 4, "a Parquet file; " },
    { "PAR", 3, NULL },
    { "ARROW1", 6, "an Arrow file; " },
    { "ARROW", 5, NULL },
    { "version https://git-lfs", 23, "a Git LFS pointer " },
    { "version https://git-lf", 22, NULL },
    { "\x1f\x8b\x08", 3, "a gzip file; " },
    { "\x28\xb5\x2f\xfd", 4, "a zstd file; " },
    { "\xfd"
      "7zXZ",
      5, "an xz file; " },
    { "BZh", 3, "a bzip2 file; " },
    { "PK\x03\x04", 4, "a zip archive, " },
    { "GGUF", 4, "a GGUF file; " },
    { "\xff\xfe", 2, "UTF-16 text; " },
    { "\xfe\xff", 2, "UTF-16 text; " },
    { "<html", 5, "an HTML page, " },
    { "<HTML>", 6, "an HTML page, " },
    { "\xEF\xBB\xBF\n <!DocType HTML", 19, "an HTML page, " },
    { "<htm", 4, NULL },
    { "<!doctype xml", 13, NULL },
    { "x<html", 6, NULL },
    { "", 0, NULL },
    { "\0<html", 6, NULL },
};

static void formats_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(formats); i++) {
        char want[64];
        xr_err err = { "" };
        xray_status status =
            xr_format_check(formats[i].bytes, formats[i].size, "x.ini", &err);
        assert_int_equal(status, formats[i].said ? XRAY_E_CONFIG : XRAY_OK);
        (void)snprintf(want, sizeof(want), "x.ini: this is %s",
                       formats[i].said ? formats[i].said : "");
        if (formats[i].said)
            assert_memory_equal(err.text, want, strlen(want));
        else
            assert_string_equal(err.text, "");
    }
    assert_int_equal(xr_bom_size("\xEF\xBB\xBF", 3), 3);
    assert_int_equal(xr_bom_size("\xEF\xBB\xBF", 2), 0);
    assert_int_equal(xr_bom_size("\xEF\xBB\xBE", 3), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_are_checked),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(lines_are_objects),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(members_have_types),
        cmocka_unit_test(ids_are_nonnegative_integers),
        cmocka_unit_test(formats_are_named),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
