/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a PyTorch file are its dict or a dict within it, which has one
 * of three names.
 */
#include "model/hf/torch_file.h"
#include "tests/scratch.h"
#include "tests/torch_archive.h"

static const float values[] = { 1.5f, -2, 0.25f };

/* Appends a dict with one tensor of this name. */
static void put_dict(xr_str *s, const char *name)
{
    const torch_tensor tensor = { name, "FloatStorage", "0",  3, 0,
                                  1,    { 3 },          { 1 } };
    xr_str_puts(s, "}");
    torch_text(s, name);
    torch_put_tensor(s, &tensor);
    xr_str_puts(s, "s");
}

/* Entries that are not the pickle of the weights. */
static const char *const others[] = { "m/data.pkl.old", "m/data.pk",
                                      "m/adata.pkl", "m/code/data.pkl" };

/* Writes a dict of members as the letters say: a lower one is a dict with a
 * tensor of that name, an upper one something else, and 't' the tensor
 * itself. It is the content of the entry `name_of_pickle`. */
static const char *write_members(const char *letters,
                                 const char *name_of_pickle)
{
    torch_archive a = { .wide = 1 };
    xr_str pickle = { 0 };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        torch_add(&a, others[i], "}.", 2);
    xr_str_append(&pickle, "\x80\x02}(", 4);
    for (const char *at = letters; *at; at++) {
        const char name[] = { (char)(*at | 32), '\0' };
        const torch_tensor tensor = { name, "FloatStorage", "0",  3, 0,
                                      1,    { 3 },          { 1 } };
        torch_text(&pickle, *name == 's'   ? "state_dict"
                            : *name == 'm' ? "model"
                            : *name == 'o' ? "module"
                                           : name);
        if (*at == 't')
            torch_put_tensor(&pickle, &tensor);
        else if (*at == *name)
            put_dict(&pickle, name);
        else
            torch_integer(&pickle, 5);
    }
    xr_str_puts(&pickle, "u.");
    torch_add(&a, name_of_pickle, pickle.data, pickle.size);
    torch_add(&a, "m/byteorder", "little", 6);
    torch_add(&a, "m/data/0", values, sizeof values);
    torch_finish(&a);
    const char *path = scratch_path("members.bin");
    assert_int_equal(xr_file_write(path, a.file.data, a.file.size, NULL),
                     XRAY_OK);
    torch_archive_free(&a);
    xr_str_free(&pickle);
    return path;
}

static void weights_are_found_by_the_name_of_their_dict(void **state)
{
    (void)state;
    static const struct {
        const char *letters;
        const char *member; /* NULL: the root */
        const char *tensor;
    } cases[] = {
        { "s", "state_dict", "s" },
        { "m", "model", "m" },
        { "o", "module", "o" },
        /* An optimizer, or a number of steps, lies beside them. */
        { "pms", "state_dict", "s" },
        { "om", "model", "m" },
        { "SMo", "module", "o" },
        { "t", NULL, "t" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_err err = { "" };
        xm_torch *torch = NULL;
        float out[3];
        if (xm_torch_open(write_members(cases[i].letters, "m/data.pkl"), &err,
                          &torch) != XRAY_OK)
            fail_msg("%s: %s", cases[i].letters, err.text);
        const char *member = xm_torch_member(torch);
        assert_string_equal(member ? member : "",
                            cases[i].member ? cases[i].member : "");
        assert_int_equal(xm_torch_count(torch), 1);
        assert_string_equal(xm_torch_at(torch, 0)->name, cases[i].tensor);
        xm_torch_copy(xm_torch_at(torch, 0), 0, 3, out);
        assert_memory_equal(out, values, sizeof values);
        xm_torch_close(torch);
    }
}

static void other_entries_are_not_the_weights(void **state)
{
    (void)state;
    xr_err err = { "" };
    xm_torch *torch = NULL;
    const char *path = write_members("t", "m/model.pkl");
    char want[XR_PATH_CAP];
    (void)snprintf(
        want, sizeof want,
        "%s: the zip archive holds no data.pkl, expected a file that "
        "torch.save wrote",
        path);
    assert_int_equal(xm_torch_open(path, &err, &torch), XRAY_E_CONFIG);
    assert_string_equal(err.text, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_found_by_the_name_of_their_dict),
        cmocka_unit_test(other_entries_are_not_the_weights),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
