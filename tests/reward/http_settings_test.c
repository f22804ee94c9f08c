/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that the settings of reward.http are in force: what a request to a
 * judge holds, proxies, certificates, keys of every size, and patterns of
 * characters.
 */
#include <sys/stat.h>

#include "tests/reward/http_rig.h"

/* What the server got last holds the words, or does not. */
static void check_request(rig *r, const char *words, int there)
{
    (void)pthread_mutex_lock(&r->server.lock);
    if ((strstr(r->server.last, words) != NULL) != there)
        fail_msg("the request has %s '%s': %s", there ? "no" : "", words,
                 r->server.last);
    (void)pthread_mutex_unlock(&r->server.lock);
}

static void judges_get_the_settings_of_the_run(void **state)
{
    static const struct {
        const char *temperature;
        const char *max_tokens;
        const char *has[2]; /* NULL: no such member */
    } rows[] = {
        { "0", "1024", { "\"temperature\":0,", "\"max_tokens\":1024," } },
        { "0.5", "1", { "\"temperature\":0.5,", "\"max_tokens\":1," } },
        { "-1", "1048576", { NULL, "\"max_tokens\":1048576," } },
        { "2", "0", { "\"temperature\":2,", NULL } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        rig_open(&r, "/quote",
                 CHAT("{response}", "pattern", "[0-9]+", "temperature",
                      rows[i].temperature, "max_tokens", rows[i].max_tokens));
        assert_true(score_text(&r, "12") == 12);
        check_request(&r, "\"model\":\"judge\",", 1);
        check_request(&r, "[{\"role\":\"user\",\"content\":\"12\"}]", 1);
        check_request(&r, rows[i].has[0] ? rows[i].has[0] : "temperature",
                      rows[i].has[0] != NULL);
        check_request(&r, rows[i].has[1] ? rows[i].has[1] : "max_tokens",
                      rows[i].has[1] != NULL);
        rig_close(&r);
    }
}

/* The server stands for a proxy: no name server knows judge.invalid. */
static void check_proxy(int by_key)
{
    rig r;
    char proxy[64];
    const char *const by_environment[] = { NULL };
    const char *const keys[] = { "proxy", proxy, NULL };
    memset(&r, 0, sizeof(r));
    server_open(&r.server);
    (void)snprintf(proxy, sizeof(proxy), "http://127.0.0.1:%u", r.server.port);
    if (!by_key)
        assert_int_equal(setenv("http_proxy", proxy, 1), 0);
    assert_int_equal(try_create(&r, "http://judge.invalid/rows",
                                by_key ? keys : by_environment),
                     XRAY_OK);
    assert_true(score_text(&r, "abc") == 3);
    check_request(&r, "POST http://judge.invalid/rows HTTP/1.1\r\n", 1);
    rig_close(&r);
    assert_int_equal(unsetenv("http_proxy"), 0);
}

static void requests_go_through_the_proxy(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("no_proxy"), 0);
    assert_int_equal(unsetenv("NO_PROXY"), 0);
    assert_int_equal(unsetenv("http_proxy"), 0);
    check_proxy(1);
    check_proxy(0);
}

/* A file that cannot be read is told of; without the key, the certificates of
 * the system would be taken. */
static void certificates_come_from_the_file(void **state)
{
    (void)state;
    rig r;
    char url[64];
    memset(&r, 0, sizeof(r));
    server_open(&r.server);
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u/rows",
                   r.server.port);
    assert_int_equal(try_create(&r, url,
                                RIG_KEYS("ca_file", scratch_path("no-such-ca"),
                                         "retries", "0", "timeout", "10s")),
                     XRAY_OK);
    expect_failure(&r, "abc", "no-such-ca");
    rig_close(&r);
}

/* Writes a key of `size` letters and returns the path of its file. */
static const char *write_key(size_t size)
{
    static char key[9000];
    assert_true(size < sizeof(key));
    memset(key, 'k', size);
    key[size] = '\0';
    const char *path = scratch_write("long", key);
    assert_int_equal(chmod(path, 0600), 0);
    return path;
}

static void a_key_has_less_than_8192_bytes(void **state)
{
    (void)state;
    rig r;
    memset(&r, 0, sizeof(r));
    if (try_create(&r, "https://localhost/",
                   RIG_KEYS("key_file", write_key(8191))) != XRAY_OK)
        fail_msg("%s", r.host.reason);
    r.ops->destroy(r.self);
    expect_refusal("https://localhost/", RIG_KEYS("key_file", write_key(8192)),
                   "a key has less than 8192 bytes");
    expect_refusal("https://localhost/", RIG_KEYS("key_file", write_key(8999)),
                   "a key has less than 8192 bytes");
}

/* A dot is a character, however many bytes it has, and an error is where the
 * character is that does not fit. */
static void patterns_are_of_characters(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, "/quote", CHAT("{response}", "pattern", "^.: ([0-9])$"));
    assert_true(score_text(&r, "a: 3") == 3);
    assert_true(score_text(&r, "\xC3\xA9: 4") == 4);
    assert_true(score_text(&r, "\xE2\x82\xAC: 5") == 5);
    expect_failure(&r, "ab: 3", "no match of the pattern");
    rig_close(&r);
    expect_refusal("https://localhost/", CHAT("{response}", "pattern", "(a"),
                   " at 3");
    expect_refusal("https://localhost/", CHAT("{response}", "pattern", "[0-9"),
                   " at 5");
}

/* A body of any size is sent at once, without asking whether it may. */
static void requests_have_the_headers_of_json(void **state)
{
    (void)state;
    static char large[(2 << 20) + 1];
    rig r;
    rig_open(&r, "/rows", NULL);
    memset(large, 'a', sizeof(large) - 1);
    assert_true(score_text(&r, large) == 2 << 20);
    check_request(&r, "POST /rows HTTP/1.1\r\n", 1);
    check_request(&r, "Content-Type: application/json\r\n", 1);
    check_request(&r, "User-Agent: xray\r\n", 1);
    check_request(&r, "Expect:", 0);
    check_request(&r, "Authorization:", 0);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(judges_get_the_settings_of_the_run),
        cmocka_unit_test(requests_have_the_headers_of_json),
        cmocka_unit_test(requests_go_through_the_proxy),
        cmocka_unit_test(certificates_come_from_the_file),
        cmocka_unit_test(a_key_has_less_than_8192_bytes),
        cmocka_unit_test(patterns_are_of_characters),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
