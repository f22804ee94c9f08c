/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that error sentences keep the key or file that they are about. cmocka
 * has a macro named fail, hence the parentheses around the callback.
 */
#include "core/base/err.h"
#include "core/base/services.h"
#include "tests/testing.h"

static void key_is_named_and_kept(void **state)
{
    (void)state;
    xr_err err;
    assert_int_equal(xr_fail_key(&err, XRAY_E_CONFIG, "data", "filters",
                                 ": '%s' is none", "a"),
                     XRAY_E_CONFIG);
    assert_string_equal(err.text, "[data] filters: 'a' is none");
    (void)xr_fail_in(&err, XRAY_E_CONFIG, "rank %d", 3);
    assert_string_equal(err.text, "rank 3: [data] filters: 'a' is none");
    assert_string_equal(err.location.section, "data");
    assert_string_equal(err.location.key, "filters");
    assert_string_equal(err.text + err.location.name_begin,
                        "[data] filters: 'a' is none");
    assert_string_equal(err.text + err.location.name_end, ": 'a' is none");
    (void)xr_fail(&err, XRAY_E_CONFIG, "[data] filters: it reads so");
    assert_int_equal(err.location.name_end, 0);
    assert_string_equal(err.location.key, "");
    assert_int_equal(xr_fail_key(NULL, XRAY_E_IO, NULL, "a", "b"), XRAY_E_IO);
}

static void truncated_name_has_no_location(void **state)
{
    (void)state;
    char name[200];
    char most[1023];
    xr_err err;
    memset(name, 'k', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "data", name, ": too long");
    assert_int_equal(err.location.name_end, 0);
    assert_non_null(strstr(err.text, ": too long"));
    memset(most, 'm', sizeof(most) - 1);
    most[sizeof(most) - 1] = '\0';
    (void)xr_fail_key(&err, XRAY_E_CONFIG, "data", "filters", ": %s", most);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_string_equal(err.location.key, "filters");
    most[1015] = '\0';
    (void)xr_fail_in(&err, XRAY_E_CONFIG, "%s", most);
    assert_int_equal(strlen(err.text), sizeof(err.text) - 1);
    assert_int_equal(err.location.name_end, 0);
    assert_string_equal(err.location.key, "");
}

/* ---- reporting to a host
 * ------------------------------------------------------ */

typedef struct told {
    char where[64];
    char text[64];
    char key[64];
    char file[64];
    int sections;
} told;

static xray_status record_failure(const xray_host *api, xray_status code,
                                  const char *where, const char *text)
{
    told *t = api->host_data;
    *t = (told){ .sections = 0 };
    (void)snprintf(t->where, sizeof(t->where), "%s", where);
    (void)snprintf(t->text, sizeof(t->text), "%s", text);
    return code;
}

static xray_status record_located_failure(const xray_host *api,
                                          xray_status code, const char *where,
                                          const xray_location *location,
                                          const char *text)
{
    told *t = api->host_data;
    (void)record_failure(api, code, where, text);
    (void)snprintf(t->key, sizeof(t->key), "%s",
                   location->key ? location->key : "");
    (void)snprintf(t->file, sizeof(t->file), "%s",
                   location->file ? location->file : "");
    t->sections = location->section != NULL;
    return code;
}

static void host_receives_the_location(void **state)
{
    (void)state;
    told t;
    xr_err err;
    const xray_host host = { .header = XRAY_HEADER(xray_host),
                             .host_data = &t,
                             .fail = record_failure,
                             .fail_at = record_located_failure };
    xray_host older = host;
    older.header.size = offsetof(xray_host, fail_at);
    (void)xr_fail_key(&err, XRAY_E_CONFIG, NULL, "size", " = %d fits", 3);
    (void)xr_fail_in(&err, XRAY_E_CONFIG, "engine");
    assert_int_equal(xr_host_tell(&host, XRAY_E_CONFIG, "plan", &err),
                     XRAY_E_CONFIG);
    assert_string_equal(t.where, "plan");
    assert_string_equal(t.key, "size");
    assert_string_equal(t.text, " = 3 fits");
    assert_int_equal(t.sections, 0);
    (void)xr_host_tell(&older, XRAY_E_CONFIG, "plan", &err);
    assert_string_equal(t.text, "engine: size = 3 fits");
    (void)xr_fail(&err, XRAY_E_IO, "m/c: is short");
    (void)xr_host_tell(&host, XRAY_E_IO, "plan", &err);
    assert_string_equal(t.text, "m/c: is short");
    xr_err_file(&err, "m/c");
    (void)xr_host_tell(&host, XRAY_E_IO, "plan", &err);
    assert_string_equal(t.file, "m/c");
    assert_string_equal(t.key, "");
    assert_string_equal(t.text, ": is short");
    (void)xr_fail_in(&err, XRAY_E_IO, "engine");
    (void)xr_host_tell(&host, XRAY_E_IO, "plan", &err);
    assert_string_equal(t.file, "m/c");
    assert_string_equal(t.text, ": is short");
}

static uint32_t give_level(const xray_log_service *service)
{
    return *(const uint32_t *)service->host_data;
}

static const void *give_service(const xray_host *host, const char *id)
{
    return strcmp(id, XRAY_SERVICE_LOG) == 0 ? host->host_data : NULL;
}

/* A host that does not say up to which level it logs is given every line. */
static void lines_that_the_host_drops_are_known(void **state)
{
    (void)state;
    uint32_t level = XRAY_LOG_WARN;
    xray_log_service log = { .header = XRAY_HEADER(xray_log_service),
                             .host_data = &level,
                             .level = give_level };
    xray_host host = { .header = XRAY_HEADER(xray_host),
                       .host_data = &log,
                       .service = give_service };
    assert_int_equal(xr_host_logs(&host, XRAY_LOG_WARN), 1);
    assert_int_equal(xr_host_logs(&host, XRAY_LOG_WARN - 1), 1);
    assert_int_equal(xr_host_logs(&host, XRAY_LOG_WARN + 1), 0);
    level = 0;
    assert_int_equal(xr_host_logs(&host, 1), 0);
    host.host_data = NULL;
    assert_int_equal(xr_host_logs(&host, XRAY_LOG_WARN + 1), 1);
    host.service = NULL;
    assert_int_equal(xr_host_logs(&host, XRAY_LOG_WARN + 1), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(key_is_named_and_kept),
        cmocka_unit_test(truncated_name_has_no_location),
        cmocka_unit_test(host_receives_the_location),
        cmocka_unit_test(lines_that_the_host_drops_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
