/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which texts are ids of the Hugging Face hub, in which folders their
 * snapshots are looked for, and that a missing one is an error which says where
 * it was looked for and how it is fetched.
 */
#include "core/base/hub.h"
#include "core/base/str.h"
#include "tests/scratch.h"

#define ONE "1111111111111111111111111111111111111111"
#define TWO "2222222222222222222222222222222222222222"

static void ids_have_a_form(void **state)
{
    static const char *const ids[] = {
        "gpt2",           "Qwen/Qwen2.5-0.5B-Instruct",
        "a/b@main",       "a/b@refs/pr/1",
        "a_b/c.d-e@v1.0", "a/b@" ONE,
    };
    static const char *const paths[] = {
        "",       "/a/b",   "./a/b",  "../a",    "a/b/c",       "a/",
        "/",      "a/..",   "a/.b",   "a//b",    "a b/c",       "a/b@",
        "a/b@..", "a/b@/x", "a/b@x/", "a/b@x y", "a--b/c",      "a/b..c",
        "-a/b",   "~/a",    "a:b/c",  "a@b@c",   "a/b@../../c",
    };
    char wide[400];
    (void)state;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        if (!xr_hub_is_id(ids[i]))
            fail_msg("%s is no id", ids[i]);
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (xr_hub_is_id(paths[i]))
            fail_msg("%s is an id", paths[i]);
    memset(wide, 'a', sizeof wide - 1);
    wide[sizeof wide - 1] = '\0';
    assert_false(xr_hub_is_id(wide));
}

/* Makes a cache with a model of two snapshots, below the scratch folder. */
static void make_cache(const char *cache)
{
    static const char *const dirs[] = { "refs/refs/pr", "snapshots/" ONE,
                                        "snapshots/" TWO };
    char path[256];
    char name[128];
    for (size_t i = 0; i < 3; i++) {
        (void)snprintf(path, sizeof path, "%s/%s/models--acme--tiny/%s",
                       scratch_dir(), cache, dirs[i]);
        assert_int_equal(xr_dir_make(path, NULL), XRAY_OK);
    }
    (void)snprintf(name, sizeof name, "%s/models--acme--tiny/refs/main", cache);
    (void)scratch_write(name, ONE);
    (void)snprintf(name, sizeof name, "%s/models--acme--tiny/refs/v2", cache);
    (void)scratch_write(name, TWO "\n");
    (void)snprintf(name, sizeof name, "%s/models--acme--tiny/refs/refs/pr/1",
                   cache);
    (void)scratch_write(name, TWO);
}

static void clear_environment(void)
{
    static const char *const names[] = { "HF_HUB_CACHE",
                                         "HUGGINGFACE_HUB_CACHE", "HF_HOME",
                                         "XDG_CACHE_HOME", "HOME" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(unsetenv(names[i]), 0);
}

static void expect_found(const char *id, const char *cache, const char *commit)
{
    char got[512];
    char want[512];
    xr_err err = { "" };
    if (xr_hub_find(id, got, sizeof got, &err) != XRAY_OK)
        fail_msg("%s: %s", id, err.text);
    (void)snprintf(want, sizeof want, "%s/%s/models--acme--tiny/snapshots/%s",
                   scratch_dir(), cache, commit);
    assert_string_equal(got, want);
}

/* `says` stands after the path of the scratch folder. */
static void expect_missing(const char *id, const char *before, const char *says)
{
    char got[512];
    char want[1024];
    xr_err err = { "" };
    assert_int_equal(xr_hub_find(id, got, sizeof got, &err), XRAY_E_IO);
    (void)snprintf(want, sizeof want, "%s%s%s", before, scratch_dir(), says);
    assert_string_equal(err.text, want);
}

static void the_first_cache_that_is_named_is_used(void **state)
{
    static const struct {
        const char *variable;
        const char *value;
        const char *cache;
    } places[] = {
        { "HOME", "home", "home/.cache/huggingface/hub" },
        { "XDG_CACHE_HOME", "xdg", "xdg/huggingface/hub" },
        { "HF_HOME", "hf", "hf/hub" },
        { "HUGGINGFACE_HUB_CACHE", "old", "old" },
        { "HF_HUB_CACHE", "new", "new" },
    };
    xr_err err = { "" };
    char got[64];
    (void)state;
    clear_environment();
    assert_int_equal(xr_hub_find("acme/tiny", got, sizeof got, &err),
                     XRAY_E_IO);
    assert_string_equal(err.text, "the environment names no cache of the "
                                  "Hugging Face hub (HF_HUB_CACHE, HF_HOME or "
                                  "HOME)");
    /* Each one is taken before those that were set earlier. */
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        make_cache(places[i].cache);
        assert_int_equal(
            setenv(places[i].variable, scratch_path(places[i].value), 1), 0);
        expect_found("acme/tiny", places[i].cache, ONE);
    }
    assert_int_equal(setenv("HF_HUB_CACHE", "", 1), 0);
    expect_found("acme/tiny", "old", ONE);
}

static void a_revision_is_a_branch_a_tag_or_a_commit(void **state)
{
    (void)state;
    clear_environment();
    make_cache("c");
    assert_int_equal(setenv("HF_HUB_CACHE", scratch_path("c"), 1), 0);
    expect_found("acme/tiny@main", "c", ONE);
    expect_found("acme/tiny@v2", "c", TWO);
    expect_found("acme/tiny@refs/pr/1", "c", TWO);
    expect_found("acme/tiny@" TWO, "c", TWO);
}

static void a_missing_snapshot_is_an_error_with_its_command(void **state)
{
    char small[8];
    xr_err err = { "" };
    (void)state;
    clear_environment();
    make_cache("m");
    assert_int_equal(setenv("HF_HUB_CACHE", scratch_path("m"), 1), 0);
    expect_missing("acme/other", "the Hugging Face cache ",
                   "/m has no acme/other; hf download acme/other fetches it");
    expect_missing("other@v1", "the Hugging Face cache ",
                   "/m has no other; hf download other --revision v1 fetches "
                   "it");
    expect_missing("acme/tiny@v3", "",
                   "/m/models--acme--tiny has no revision v3; hf download "
                   "acme/tiny --revision v3 fetches it");
    (void)scratch_write("m/models--acme--tiny/refs/main",
                        "3333333333333333333333333333333333333333");
    expect_missing("acme/tiny", "",
                   "/m/models--acme--tiny has no snapshot "
                   "3333333333333333333333333333333333333333; hf download "
                   "acme/tiny --revision "
                   "3333333333333333333333333333333333333333 fetches it");
    (void)scratch_write("m/models--acme--tiny/refs/main", "../../../etc");
    expect_missing("acme/tiny", "",
                   "/m/models--acme--tiny has no revision main; hf download "
                   "acme/tiny fetches it");
    assert_int_equal(xr_hub_find("acme/tiny@v2", small, sizeof small, &err),
                     XRAY_E_RANGE);
    assert_int_equal(xr_hub_find("./a", small, sizeof small, &err), XRAY_E_ARG);
}

static void a_snapshot_tells_its_command(void **state)
{
    static const char *const others[] = {
        "/c/models--a--b",
        "/c/models--a--b/snapshots/123",
        "/c/models--a--b/snapshots/" ONE "1",
        "/c/models--a--b/snapshots/" ONE "/sub",
        "/c/data--a--b/snapshots/" ONE,
        "/snapshots/" ONE,
    };
    char line[256];
    (void)state;
    assert_true(
        xr_hub_download("/c/models--a--b-c/snapshots/" ONE, line, sizeof line));
    assert_string_equal(line, "hf download a/b-c --revision " ONE);
    assert_true(
        xr_hub_download("models--gpt2/snapshots/" ONE "/", line, sizeof line));
    assert_string_equal(line, "hf download gpt2 --revision " ONE);
    assert_false(xr_hub_download("models--gpt2/snapshots/" ONE, line, 8));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (xr_hub_download(others[i], line, sizeof line))
            fail_msg("%s: %s", others[i], line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_have_a_form),
        cmocka_unit_test(the_first_cache_that_is_named_is_used),
        cmocka_unit_test(a_revision_is_a_branch_a_tag_or_a_commit),
        cmocka_unit_test(a_missing_snapshot_is_an_error_with_its_command),
        cmocka_unit_test(a_snapshot_tells_its_command),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
