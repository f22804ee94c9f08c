/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which arrays of an operator every device refuses, and in which words,
 * and of which kind a device is.
 */
#include "core/base/collective.h"
#include "core/base/operand.h"
#include "tests/testing.h"

static char reason[256];

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *text)
{
    (void)host;
    assert_string_equal(where, "matmul");
    (void)snprintf(reason, sizeof(reason), "%s", text);
    return code;
}

static xray_status check_all(const xr_operand *operands, size_t count)
{
    const xray_host host = { .header = XRAY_HEADER(xray_host),
                             .fail = record_failure };
    reason[0] = '\0';
    return xr_operands_check(&host, "matmul", operands, count);
}

static void types_are_known(void **state)
{
    (void)state;
    int at[3];
    static const uint32_t known[] = { 0, XRAY_F32, XRAY_BF16 };
    for (size_t i = 0; i < 3; i++) {
        const xr_operand one = { "x", at, known[i] };
        assert_int_equal(check_all(&one, 1), XRAY_OK);
    }
    for (size_t i = 0; i < 3; i++) {
        char want[80];
        xr_operand all[] = { { "x", &at[0], XRAY_F32 },
                             { "y", &at[1], XRAY_F32 },
                             { "out", &at[2], XRAY_BF16 } };
        all[i].dtype = XRAY_BF16 + 1;
        assert_int_equal(check_all(all, 3), XRAY_E_UNSUPPORTED);
        (void)snprintf(want, sizeof want,
                       "%s has element type %u, but must be F32 or BF16",
                       all[i].name, XRAY_BF16 + 1);
        assert_string_equal(reason, want);
    }
}

/* Each pair of a list is compared; an array that is not there is none. */
static void a_buffer_has_one_type(void **state)
{
    (void)state;
    int at[3];
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < i; j++) {
            char want[120];
            xr_operand all[] = { { "x", &at[0], 0 },
                                 { "y", &at[1], 0 },
                                 { "z", &at[2], 0 } };
            all[i].data = all[j].data;
            assert_int_equal(check_all(all, 3), XRAY_OK);
            all[j].dtype = XRAY_F32;
            assert_int_equal(check_all(all, 3), XRAY_OK);
            all[i].dtype = XRAY_BF16;
            assert_int_equal(check_all(all, 3), XRAY_E_ARG);
            (void)snprintf(want, sizeof want,
                           "%s and %s are one buffer, but one of them is F32 "
                           "and the other BF16",
                           all[j].name, all[i].name);
            assert_string_equal(reason, want);
            all[j].dtype = XRAY_BF16;
            assert_int_equal(check_all(all, 3), XRAY_OK);
            all[j].dtype = 0;
            all[i].data = all[j].data = NULL;
            assert_int_equal(check_all(all, 3), XRAY_OK);
        }
}

static void devices_have_a_kind(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t is_cuda;
    } rows[] = {
        { "cuda", 1 },   { "cuda:0", 1 }, { "cuda:", 1 }, { "cuda0", 0 },
        { "cud", 0 },    { "cpu", 0 },    { "", 0 },      { NULL, 0 },
        { "a:cuda", 0 }, { "cudas", 0 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(xr_collective_is_kind(rows[i].name, "cuda"),
                         rows[i].is_cuda);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_are_known),
        cmocka_unit_test(a_buffer_has_one_type),
        cmocka_unit_test(devices_have_a_kind),
    };
    return cmocka_run_group_tests_name("base.operand", tests, NULL, NULL);
}
