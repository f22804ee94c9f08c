/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares docs/deepspeed.md, which lists the result of each DeepSpeed key,
 * with the actual results.
 */
#include "core/base/str.h"
#include "core/deepspeed/deepspeed.h"
#include "core/deepspeed/keys.h"
#include "tests/config/config_testing.h"
#include "tests/deepspeed/backend.h"

static char page[1 << 17];

static void read_page(void)
{
    char path[4096];
    const char *source = getenv("XRAY_SOURCE");
    assert_non_null(source);
    (void)snprintf(path, sizeof(path), "%s/docs/deepspeed.md", source);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(page, 1, sizeof(page) - 1, file);
    assert_int_equal(fclose(file), 0);
    assert_true(size > 1000);
}

/* The page lists every key of the table. */
static void page_lists_every_key(void **state)
{
    const xr_ds_key *k = NULL;
    (void)state;
    read_page();
    for (size_t i = 0; (k = xr_ds_keys(i)); i++) {
        char entry[160];
        (void)snprintf(entry, sizeof(entry), "`%s`", k->path);
        if (k->kind != XR_DS_OPEN && !strstr(page, entry))
            fail_msg("docs/deepspeed.md lacks %s", k->path);
    }
}

/* Expects that a file with that value at that path is refused for that
 * reason. */
static void expect_refused(const char *path, const char *value,
                           const char *reason)
{
    xr_config *config = xr_config_new();
    xr_errors errors = { 0 };
    xr_str json = { 0 };
    char sentence[320];
    int said = 0;
    size_t depth = 0;
    for (const char *at = path; *at; depth++) {
        size_t size = strcspn(at, ".");
        xr_str_printf(&json, "{\"%.*s\": ", (int)size, at);
        at += size + (at[size] == '.');
    }
    xr_str_puts(&json, value);
    for (; depth; depth--)
        xr_str_puts(&json, "}");
    write_text("ds.json", xr_str_text(&json));
    assert_non_null(config);
    xr_config_read(config, "run.ini", &errors);
    xr_deepspeed_read(config, &ds_backend, 0, 1, &errors);
    (void)snprintf(sentence, sizeof(sentence), "is refused: %s; expected ",
                   reason);
    for (size_t i = 0; i < errors.count; i++)
        said +=
            strstr(errors.items[i], path) && strstr(errors.items[i], sentence);
    if (said != 1)
        fail_msg("%s is not refused", xr_str_text(&json));
    xr_str_free(&json);
    xr_errors_free(&errors);
    xr_config_free(config);
    (void)unlink("ds.json");
}

/* Exactly the keys that the page lists as refused are refused. */
static void page_lists_what_is_refused(void **state)
{
    const xr_ds_key *k = NULL;
    size_t rows = 0;
    (void)state;
    write_text("run.ini", "[train.zero3]\ndeepspeed_config = ds.json\n");
    read_page();
    const char *row = strstr(page, "## Keys that are refused");
    assert_non_null(row);
    while ((row = strstr(row, "\n| `"))) {
        char path[80];
        char when[40];
        char reason[160];
        row++;
        if (sscanf(row, "| `%79[^`]` | %39[^|]| %159[^|\n]", path, when,
                   reason) != 3)
            fail_msg("a row of another form: %.60s", row);
        reason[strlen(reason) - 1] = '\0'; /* the blank before the bar */
        expect_refused(path,
                       strcmp(when, "when it is on ") == 0
                           ? "{\"enabled\": true}"
                       : strcmp(when, "other than true ") == 0  ? "false"
                       : strcmp(when, "other than false ") == 0 ? "true"
                       : strcmp(when, "other than fp32 ") == 0  ? "\"bf16\""
                                                                : "77",
                       reason);
        rows++;
    }
    for (size_t i = 0; (k = xr_ds_keys(i)); i++)
        rows -= k->kind == XR_DS_WANT || k->kind == XR_DS_OFF;
    assert_int_equal(rows, 0);
}

static const xr_ds_key *find_key(const char *path)
{
    const xr_ds_key *k = NULL;
    for (size_t i = 0; (k = xr_ds_keys(i)); i++)
        if (strcmp(k->path, path) == 0)
            return k;
    fail_msg("docs/deepspeed.md lists %s, which is no key", path);
    return NULL;
}

/* Checks a key that the row `at` names, with the value in parentheses behind
 * it, against its entry. Returns the rest of the row, NULL behind the last
 * key. */
static const char *check_idle_key(const char *at, const char *reason)
{
    char path[80];
    char agrees[20] = "";
    if (sscanf(at, "`%79[^`]`", path) != 1)
        fail_msg("a row of another form: %.60s", at);
    at += strlen(path) + 2;
    if (sscanf(at, " (%19[^)])", agrees) == 1)
        at += strlen(agrees) + 3;
    const xr_ds_key *k = find_key(path);
    const char *have = k->agrees ? k->agrees : "";
    assert_true(k->kind == XR_DS_IDLE || k->kind == XR_DS_UNUSED);
    if (strncmp(have, agrees, strcspn(have, " ")) != 0 ||
        strlen(agrees) != strcspn(have, " "))
        fail_msg("%s: (%s), not (%s)", path, have, agrees);
    if (strcmp(k->why, reason) != 0)
        fail_msg("%s: \"%s\", not \"%s\"", path, k->why, reason);
    return *at == ',' ? at + 2 : NULL;
}

/* The values that agree and the reasons are those that a note follows. */
static void page_lists_what_has_no_effect(void **state)
{
    const xr_ds_key *k = NULL;
    size_t keys = 0;
    (void)state;
    read_page();
    const char *end = strstr(page, "## Keys that are refused");
    const char *row = strstr(page, "## Keys without effect");
    assert_true(row && end);
    while ((row = strstr(row, "\n| `")) && row < end) {
        char reason[160];
        row += 3;
        const char *bar = strchr(row, '|');
        if (!bar || sscanf(bar, "| %159[^|\n]", reason) != 1)
            fail_msg("a row of another form: %.60s", row);
        reason[strlen(reason) - 1] = '\0'; /* the blank before the bar */
        for (const char *at = row; at; keys++)
            at = check_idle_key(at, reason);
    }
    for (size_t i = 0; (k = xr_ds_keys(i)); i++)
        keys -= k->kind == XR_DS_IDLE || k->kind == XR_DS_UNUSED;
    assert_int_equal(keys, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(page_lists_every_key),
        cmocka_unit_test(page_lists_what_has_no_effect),
        cmocka_unit_test(page_lists_what_is_refused),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
