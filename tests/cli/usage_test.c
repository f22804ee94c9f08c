/* SPDX-License-Identifier: Apache-2.0
 *
 * Dispatch, help, exit codes, and what goes to which stream.
 */
#include "tests/cli/program.h"

static const char *const commands[][3] = {
    { "train" },
    { "sft" },
    { "eval" },
    { "submit" },
    { "check" },
    { "plan" },
    { "ab" },
    { "compare" },
    { "score" },
    { "generate" },
    { "chat" },
    { "tokenize" },
    { "grade" },
    { "convert" },
    { "data", "convert" },
    { "data", "head" },
    { "data", "stats" },
    { "data", "check" },
    { "algo", "list" },
    { "plugin", "list" },
    { "plugin", "inspect" },
    { "config", "print" },
    { "config", "schema" },
    { "config", "docs" },
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void every_command_has_help(void **state)
{
    (void)state;
    for (size_t i = 0; i < COMMANDS; i++) {
        const char *args[] = { commands[i][0],
                               commands[i][1] ? commands[i][1] : "--help",
                               commands[i][1] ? "--help" : NULL, NULL };
        const program_result *r = program_run(NULL, args);
        expect_code(r, 0);
        assert_string_equal(r->err, "");
        expect_text(r->out, "Usage: xray ");
        expect_text(r->out, "Options:\n");
        expect_text(r->out, "Examples:\n  ");
        expect_text(r->out, "Exit codes: ");
        char *page = strdup(r->out);
        const char *other[] = { "help", commands[i][0], commands[i][1], NULL };
        r = program_run(NULL, other);
        expect_code(r, 0);
        assert_string_equal(r->out, page);
        free(page);
    }
}

static void overview_and_version_are_printed(void **state)
{
    (void)state;
    const program_result *r = RUN(NULL, "--help");
    expect_code(r, 0);
    for (size_t i = 0; i < COMMANDS; i++)
        expect_text(r->out, commands[i][0]);
    r = RUN(NULL, "help");
    expect_code(r, 0);
    expect_text(r->out, "Commands:");
    r = RUN(NULL, "--version");
    expect_code(r, 0);
    assert_int_equal(strncmp(r->out, "xray 0.1", 8), 0);
    assert_int_equal(count_lines(r->out), 2);
    const char *build = strstr(r->out, "\nbuild ");
    assert_non_null(build);
    char *id = strdup(build + strlen("\nbuild "));
    r = RUN(NULL, "--build");
    expect_code(r, 0);
    assert_string_equal(r->out, id);
    free(id);
}

/* Bad usage gives exit code 2, a message on stderr and nothing on stdout. */
static void bad_usage_is_explained(void **state)
{
    (void)state;
    static const struct {
        const char *args[6];
        const char *says;
    } cases[] = {
        { { NULL }, "Usage: xray" },
        { { "trian" }, "did you mean 'train'" },
        { { "trainabc" }, "there is no command 'trainabc'; see" },
        { { "plugin" }, "xray plugin inspect" },
        { { "plugin", "remove" }, "no command 'plugin remove'" },
        { { "tokenize" }, "--model DIR is required" },
        { { "tokenize", "--modle", "x" }, "did you mean '--model'" },
        { { "tokenize", "--model" }, "--model needs a value" },
        { { "tokenize", "--model", "x", "--decode=1" }, "takes no value" },
        { { "tokenize", "--model", "x", "--special", "maybe" }, "on|off" },
        { { "generate", "--model", "x", "--top-p", "1.5" }, "up to 1" },
        { { "generate", "--model", "x", "--n", "two" }, "an integer" },
        { { "train" }, "usage: xray train RUN.INI" },
        { { "train", "a.ini", "b.ini" }, "unexpected 'b.ini'\n" },
        { { "train", "a.ini", "b.ini", "c.ini" }, "unexpected 'b.ini'\n" },
        { { "train", "a.ini", "algorithm.adv_estimator=grpo" },
          "unexpected 'algorithm.adv_estimator=grpo'; a key is set by --set "
          "algorithm.adv_estimator=grpo\n" },
        { { "plugin", "inspect", "b", "a=b" }, "unexpected 'a=b'\n" },
        { { "train", "/no/such/run.ini" }, "/no/such/run.ini" },
        { { "check", "/no/such/run.ini" }, "/no/such/run.ini" },
        { { "tokenize", "--model", "/no/such/model" }, "/no/such/model" },
        { { "score", "--model", "/no/such/model" }, "/no/such/model" },
        { { "generate", "--model", "/no/such/model" }, "/no/such/model" },
        { { "grade", "--reward", "rule", "--set", "reward.rule.gradr=x" },
          "gradr" },
        { { "plugin", "inspect", "nothing" }, "no plugin 'nothing'" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const program_result *r = program_run(NULL, cases[i].args);
        expect_code(r, 2);
        assert_string_equal(r->out, "");
        expect_text(r->err, cases[i].says);
    }
}

/* Options are written out in full, and their values are within the bounds that
 * the sentence names. */
static void options_and_their_bounds_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        const char *value;
        const char *says;
    } cases[] = {
        { "--top", "1",
          "generate: there is no option '--top'; did you mean "
          "'--stop'; see 'xray generate --help'" },
        { "--m", "x", "generate: there is no option '--m'" },
        { "--temperatur", "1", "did you mean '--temperature'" },
        { "--top-p=", NULL, "--top-p takes a number above 0, up to 1, not ''" },
        { "--n", "0", "--n takes an integer from 1 to 65536, not '0'" },
        { "--n", "65537", "--n takes an integer from 1 to 65536, not '65537'" },
        { "--n", "1.5", "--n takes an integer from 1 to 65536, not '1.5'" },
        { "--seed", "9007199254740993",
          "--seed takes an integer from 0 to 9007199254740992, not "
          "'9007199254740993'" },
        { "--seed", "-1", "--seed takes an integer from 0 to" },
        { "--min-p", "1.001",
          "--min-p takes a number from 0 to 1, not '1.001'" },
        { "--min-p", "nan", "--min-p takes a number from 0 to 1, not 'nan'" },
        { "--temperature", "-0.5",
          "--temperature takes 0 (greedy) or a number "
          "from 0.00001 to 100, not '-0.5'" },
        { "--temperature", "101", "--temperature takes 0 (greedy) or" },
        { "--stream=1", NULL, "--stream takes no value" },
        { "--prompt", NULL, "--prompt needs a value: TEXT" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const program_result *r = RUN(NULL, "generate", "--model", "x",
                                      cases[i].option, cases[i].value);
        expect_code(r, 2);
        assert_string_equal(r->out, "");
        expect_text(r->err, cases[i].says);
    }
    /* These are taken, so only the model is missing. */
    static const char *const taken[][2] = {
        { "--n", "65536" },          { "--n=1" },
        { "--min-p", "0" },          { "--seed", "9007199254740992" },
        { "--temperature", "100" },  { "--temperature", "0" },
        { "--top-k", "2147483647" }, { "--stream" },
    };
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++) {
        const program_result *r =
            RUN(NULL, "generate", "--model", "/no/such/model", taken[i][0],
                taken[i][1]);
        expect_code(r, 2);
        expect_text(r->err, "/no/such/model");
    }
    /* Words behind "--" are no options. */
    expect_text(RUN(NULL, "check", "--", "--no-such.ini")->err,
                "--no-such.ini: ");
    expect_text(RUN(NULL, "check", "-h", "x")->out, "Usage: xray check");
}

/* A script whose variable is empty learns so, instead of getting what the
 * option has without the command line. */
static void an_empty_value_is_not_taken_for_none(void **state)
{
    (void)state;
    static const struct {
        const char *args[6];
        const char *says;
    } cases[] = {
        { { "tokenize", "--model", "" },
          "--model is empty; it names the folder of the model" },
        { { "score", "--model", "" },
          "--set: [model] path is not set; it names the folder of the model" },
        { { "generate", "--model=" }, "--set: [model] path is not set; " },
        { { "score", "--model", "x", "--train", "" },
          "--set: [run] train: no plugin provides xray.train/0:; " },
        { { "generate", "--model", "x", "--infer", "" },
          "--set: [run] infer: no plugin provides xray.infer/0:; " },
        { { "chat", "--model", "x", "--infer=" },
          "--set: [run] infer: no plugin provides xray.infer/0:; " },
        { { "grade", "--reward", "" },
          "--set: [run] reward is not set; it lists instances, " },
        { { "train", "x.ini", "--log", "" },
          "--log takes one of error|warn|info|debug, not ''" },
    };
    assert_int_equal(setenv("XRAY_MODEL__PATH", "/no/such/model", 1), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const program_result *r = program_run(NULL, cases[i].args);
        expect_code(r, 2);
        assert_string_equal(r->out, "");
        expect_text(r->err, cases[i].says);
    }
    assert_int_equal(unsetenv("XRAY_MODEL__PATH"), 0);
}

/* If its output cannot be written, the program reports so by its exit code. */
static void closed_streams_are_reported(void **state)
{
    (void)state;
    const program_result *r = program_shell("\"$XRAY_BIN\" --help >&-");
    expect_code(r, 1);
    r = program_shell("\"$XRAY_BIN\" --help >/dev/full");
    expect_code(r, 1);
    expect_text(r->err, "cannot write the results");
    r = program_shell("\"$XRAY_BIN\" --help >&- 2>&- <&-");
    expect_code(r, 1);
    r = program_shell("\"$XRAY_BIN\" --nothing 2>&-");
    expect_code(r, 2);
    /* An earlier error keeps its exit code. */
    char command[512];
    (void)snprintf(command, sizeof command,
                   "\"$XRAY_BIN\" config print %s >/dev/full",
                   scratch_write("bad.ini", "[run]\ncolour = red\n"));
    r = program_shell(command);
    expect_code(r, 2);
    expect_text(r->err, "xray: cannot write the results: No space left on "
                        "device\n");
    /* A closed pipe gives no message, but the exit code says that output is
     * lost.
     */
    r = program_shell("exec 3>&1; { sleep 0.2; \"$XRAY_BIN\" config docs; "
                      "echo $? >&3; } | :");
    expect_code(r, 0);
    assert_string_equal(r->out, "1\n");
    assert_string_equal(r->err, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_command_has_help),
        cmocka_unit_test(overview_and_version_are_printed),
        cmocka_unit_test(bad_usage_is_explained),
        cmocka_unit_test(options_and_their_bounds_are_checked),
        cmocka_unit_test(an_empty_value_is_not_taken_for_none),
        cmocka_unit_test(closed_streams_are_reported),
    };
    return cmocka_run_group_tests_name("cli.usage", tests, scratch_make,
                                       program_done);
}
