/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which call is blamed for a crash, and that symbols of damaged files
 * are read safely.
 */
#include "core/base/file.h"
#include "core/plugin/guard.h"
#include "core/plugin/internal.h"
#include "tests/testing.h"

static xray_status inspect_nested_call(void)
{
    xr_guard_call call;
    assert_int_equal(xr_guard_now(&call), 1);
    assert_string_equal(call.plugin, "algo.a");
    assert_string_equal(call.call, "loss");
    assert_true(call.deadline_ns == 0);
    return XRAY_AGAIN;
}

static void calls_nest(void **state)
{
    (void)state;
    const struct {
        const char *instance;
    } algo = { "algo.a" }, train = { "train.t" };
    xr_guard_call call;
    assert_int_equal(xr_guard_now(&call), 0);
    xr_guard_limit(5000000000);
    int64_t before = xr_guard_clock();
    xr_guard_enter(train.instance, "create", 1);
    assert_int_equal(XR_CALL(&algo, "loss", inspect_nested_call()), XRAY_AGAIN);
    assert_int_equal(xr_guard_now(&call), 1);
    assert_string_equal(call.plugin, "train.t");
    assert_true(call.deadline_ns >= before + 5000000000);
    assert_int_equal(xr_guard_leave(XRAY_END), XRAY_END);
    assert_int_equal(xr_guard_now(&call), 0);
    xr_guard_limit(0);
    xr_guard_enter("x", "create", 1);
    assert_int_equal(xr_guard_now(&call), 1);
    assert_true(call.deadline_ns == 0);
    /* Deeper than calls are recorded, and back. */
    for (int i = 0; i < 20; i++)
        xr_guard_enter("y", "deep", 0);
    assert_int_equal(xr_guard_now(&call), 1);
    for (int i = 0; i < 21; i++)
        (void)xr_guard_leave(XRAY_OK);
    assert_int_equal(xr_guard_now(&call), 0);
    (void)xr_guard_leave(XRAY_OK);
    assert_int_equal(xr_guard_now(&call), 0);
}

/* Eight calls are recorded; a deeper one is attributed to the eighth. */
static void eight_calls_are_remembered(void **state)
{
    (void)state;
    static const char *const names[] = { "0", "1", "2", "3", "4",
                                         "5", "6", "7", "8", "9" };
    xr_guard_call call;
    for (int i = 0; i < 10; i++) {
        xr_guard_enter(names[i], "call", 0);
        assert_int_equal(xr_guard_now(&call), 1);
        assert_string_equal(call.plugin, names[i < 8 ? i : 7]);
    }
    for (int i = 8; i >= 0; i--) {
        assert_int_equal(xr_guard_leave(XRAY_E_IO), XRAY_E_IO);
        assert_int_equal(xr_guard_now(&call), 1);
        assert_string_equal(call.plugin, names[i < 8 ? i : 7]);
    }
    (void)xr_guard_leave(XRAY_OK);
    assert_int_equal(xr_guard_now(&call), 0);
    /* The limit applies to timed calls from their beginning. */
    xr_guard_limit(7);
    assert_int_equal(xr_guard_limit_now(), 7);
    xr_guard_enter("a", "call", 0);
    assert_int_equal(xr_guard_now(&call), 1);
    assert_int_equal(call.deadline_ns, 0);
    (void)xr_guard_leave(XRAY_OK);
    xr_guard_limit(0);
}

static void damaged_symbols_are_survived(void **state)
{
    (void)state;
    char path[4096];
    xr_symbols symbols;
    char *data = NULL;
    size_t size = 0;
    xr_err err = { "" };
    const char *build = getenv("XRAY_BUILD");
    (void)snprintf(path, sizeof(path), "%s/tests/zoo/extra_symbols.so",
                   build ? build : ".");
    assert_int_equal(xr_file_read(path, 1 << 26, &err, &data, &size), XRAY_OK);
    xr_symbols_read(data, size, &symbols);
    assert_int_equal(symbols.known, 1);
    assert_int_equal(symbols.query, 1);
    assert_int_equal(symbols.extra, 1);
    assert_string_equal(symbols.first, "zoo_helper");
    for (size_t cut = 0; cut < size; cut += 1 + cut / 16) {
        char *part = malloc(cut + 1);
        memcpy(part, data, cut);
        xr_symbols_read(part, cut, &symbols);
        free(part);
    }
    /* Each byte of the header and section headers is inverted. */
    uint64_t sections = 0;
    memcpy(&sections, data + 40, sizeof(sections));
    for (size_t at = 0; at < size; at = at == 63 ? (size_t)sections : at + 1) {
        data[at] = (char)~data[at];
        xr_symbols_read(data, size, &symbols);
        data[at] = (char)~data[at];
    }
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_nest),
        cmocka_unit_test(eight_calls_are_remembered),
        cmocka_unit_test(damaged_symbols_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
