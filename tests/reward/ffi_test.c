/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that reward.ffi scores with functions in C and in Python, that what
 * goes wrong in them is told of the sample and goes no further, and that its
 * processes end with the program.
 */
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

#include "core/base/process.h"
#include "tests/reward/ffi_rig.h"
#include "tests/stopper.h"

/* ---- C ------------------------------------------------------------------ */

static void c_functions_get_their_arguments(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, C_KEYS("symbol", "has_truth"));
    assert_true(score_text(&r, "it is 18") == 1);
    assert_true(score_text(&r, "it is 17") == 0);
    r.ops->destroy(r.self);

    xray_sample_in sample = make_sample(4, "abc");
    sample.finish = 2;
    sample.fields_json = "{\"extra_info\":\n{\"level\":5,\"w\":[0.5,1.5]}}";
    rig_open(&r, C_KEYS("symbol", "weigh", "signature",
                        "finish:i, id:U, extra_info.level:I, response:s->i"));
    assert_true(score_one(&r, &sample) == 2 + 40 + 5000 + 30000);
    r.ops->destroy(r.self);
    rig_open(&r, C_KEYS("symbol", "weigh", "signature",
                        "finish:i, id:U, finish:I, extra_info.w:s->i"));
    assert_true(score_one(&r, &sample) == 92042); /* of "[0.5,1.5]" */
    r.ops->destroy(r.self);
    sample.ids = (const int32_t[]){ 7, -2, 30 };
    sample.id_count = 3;
    rig_open(&r, C_KEYS("symbol", "add_lists", "signature",
                        "ids:[i], extra_info.w:[d] -> f"));
    assert_true(score_one(&r, &sample) == 235);
    r.ops->destroy(r.self);
}

static void c_settings_that_cannot_work_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *symbol;
        const char *signature;
        const char *words;
    } rows[] = {
        { "", "", "symbol: expected a value, because language = c" },
        { "no_such", "", "has no symbol no_such" },
        { "weigh", "",
          "expected one, because the library exports no weigh_sig" },
        { "obey", "ground_truth:s -> d",
          "signature \"ground_truth:s -> d\": the library's own obey_sig is "
          "\"response:s -> d\"" },
        { "broken", "", "'-' at 12, expected a comma or ->" },
        { "weigh", "", "signature" },
        { "weigh", "response:s, 3:s -> d",
          "'3' at 13, expected the name of an argument" },
        { "weigh", "response -> d", "'-' at 10, expected : and a type" },
        { "weigh", "response:q -> d",
          "expected one of the types s d i I u U [" },
        { "weigh", "ids:[s] -> d", "expected one of the types d i I u U" },
        { "weigh", "ids:[i -> d", "'-' at 8, expected ]" },
        { "weigh", "response:s -> s", "expected the type of the result" },
        { "weigh", "response:s", "it ends where a comma or -> was expected" },
        { "weigh", "-> d d", "'d' at 6, expected nothing after the result" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_refusal(
            C_KEYS("symbol", rows[i].symbol, "signature", rows[i].signature),
            rows[i].words);
    expect_refusal(RIG_KEYS("library", scratch_path("none.so"), "symbol", "x"),
                   "library cannot be loaded: ");
    expect_refusal(RIG_KEYS("language", "python"),
                   "path: expected a value, because language = python");
    expect_refusal(C_KEYS("symbol", "obey", "path", "x.py"),
                   "path is used with language = python only");
    static const char *const of_c[] = { "library", "symbol", "signature" };
    for (size_t i = 0; i < sizeof(of_c) / sizeof(of_c[0]); i++) {
        char words[64];
        (void)snprintf(words, sizeof(words),
                       "%s is used with language = c only", of_c[i]);
        expect_refusal(RIG_KEYS("language", "python", "path", "x.py", of_c[i],
                                "response:s -> d"),
                       words);
    }
}

/* Each failure is told of its sample, and the next sample has its score. */
static void c_failures_are_those_of_a_sample(void **state)
{
    (void)state;
    static const struct {
        const char *response;
        const char *words;
    } rows[] = {
        { "crash", "sample 3: the function crashed (Aborted)" },
        { "exit", "sample 3: the function ended its process (exit code 7)" },
        { "nan", "sample 3: the function returned nan, expected a finite" },
        { "hang",
          "sample 3: the function did not return within 1 s (timeout)" },
    };
    rig r;
    xray_score score;
    rig_open(&r, C_KEYS("symbol", "obey", "timeout", "1s", "workers", "1"));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        xray_sample_in sample = make_sample(3, rows[i].response);
        submit(&r, &sample, 1);
        assert_int_equal(next_score(&r, &score), XRAY_E_IO);
        expect_words(r.host.reason, rows[i].words);
        assert_true(score_text(&r, "well") == 2);
    }
    assert_true(score_text(&r, "print") == 2);
    assert_string_equal(r.host.line, "the function prints: [1,2,3]");
    r.ops->destroy(r.self);

    rig_open(&r, C_KEYS("symbol", "weigh", "signature",
                        "finish:i, id:U, level:I, response:s->i"));
    xray_sample_in sample = make_sample(8, "a");
    submit(&r, &sample, 1);
    assert_int_equal(next_score(&r, &score), XRAY_E_IO);
    expect_words(r.host.reason, "sample 8: the data row has no field level");
    sample.fields_json = "{\"level\":1.5}";
    submit(&r, &sample, 1);
    assert_int_equal(next_score(&r, &score), XRAY_E_IO);
    expect_words(r.host.reason,
                 "level is a number, which does not fit the type I");
    r.ops->destroy(r.self);
}

static void a_failure_can_have_a_score(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    rig_open(
        &r, C_KEYS("symbol", "obey", "on_error", "score", "error_score", "-3"));
    const xray_sample_in samples[] = { make_sample(0, "well"),
                                       make_sample(1, "crash"),
                                       make_sample(2, "well") };
    submit(&r, samples, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(next_score(&r, &score), XRAY_OK);
        int failed = score.id == 1;
        assert_true(score.score == (failed ? -3 : 2));
        assert_string_equal(score.values[0].name, "failed");
        assert_true(score.values[0].value == failed);
    }
    assert_int_equal(next_score(&r, &score), XRAY_END);
    assert_string_equal(
        r.host.line,
        "sample 1 gets error_score -3: the function crashed (Aborted)");
    assert_int_equal(r.host.warnings, 1);
    r.ops->destroy(r.self);

    /* A gigabyte leaks in sixteen calls; a worker that has no more is replaced.
     */
    int failed = 0;
    rig_open(&r, C_KEYS("symbol", "obey", "memory", "512M", "on_error", "score",
                        "error_score", "-1", "workers", "1"));
    for (int i = 0; i < 16; i++)
        failed += score_text(&r, "leak") == -1;
    assert_in_range(failed, 1, 4);
    assert_true(score_text(&r, "well") == 2);
    r.ops->destroy(r.self);
}

/* ---- Python ------------------------------------------------------------- */

static const char script[] =
    "import os, sys, time\n"
    "def compute_score(data_source, solution_str, ground_truth, "
    "extra_info=None):\n"
    "    order = solution_str\n"
    "    if order == 'raise': raise ValueError('it is \xc3\xa9')\n"
    "    if order == 'leak': return len(bytearray(1 << 30))\n"
    "    if order == 'exit': sys.exit(5)\n"
    "    if order == 'leave': os._exit(5)\n"
    "    if order == 'hang': time.sleep(3600)\n"
    "    if order == 'none': return None\n"
    "    if order == 'inf': return float('inf')\n"
    "    if order == 'dict': return {'acc': 1}\n"
    "    if order == 'print': print('{\"score\": 9}\\n\xc3\xa9')\n"
    "    if order.startswith('await '):\n"
    "        while not os.path.exists(order[6:]): time.sleep(0.001)\n"
    "    if order.startswith('pid '):\n"
    "        with open(order[4:] + '.part', 'w') as f: "
    "f.write(str(os.getpid()))\n"
    "        os.rename(order[4:] + '.part', order[4:])\n"
    "        time.sleep(3600)\n"
    "    if order == '\xc3\xa9': return {'score': len(order), 'acc': True}\n"
    "    return float(ground_truth) + len(extra_info)\n"
    "def few(**lists):\n"
    "    return [1.0]\n"
    "def batch(data_sources, solution_strs, ground_truths, extra_infos):\n"
    "    return [len(solution_strs) + len(s) for s in solution_strs]\n"
    "def trl(prompts, completions, level, **kwargs):\n"
    "    assert prompts == ['p'] * len(completions)\n"
    "    return [len(c) + 10 * l + 100 * len(i) for c, l, i in\n"
    "            zip(completions, level, kwargs['completion_ids'])]\n"
    "def talk(completions, prompts):\n"
    "    return [len(p[0]['content']) + 10 * len(c[0]['content'])\n"
    "            for p, c in zip(prompts, completions)]\n";

static void python_functions_are_called_as_in_verl(void **state)
{
    (void)state;
    rig r;
    xray_score score;
    rig_open(&r, PYTHON_KEYS(scratch_write("r.py", script), "workers", "1"));
    assert_true(score_text(&r, "plain") == 18);
    xray_sample_in sample = make_sample(1, "row");
    sample.fields_json = "{\"reward_model\":{\"ground_truth\":\"20\"},"
                         "\"extra_info\":{\"a\":1,\"b\":2}}";
    assert_true(score_one(&r, &sample) == 22);
    sample = make_sample(2, "\xc3\xa9");
    submit(&r, &sample, 1);
    assert_int_equal(next_score(&r, &score), XRAY_OK);
    assert_true(score.score == 1);
    assert_int_equal(score.value_count, 2);
    assert_string_equal(score.values[1].name, "acc");
    assert_true(score.values[1].value == 1);
    assert_true(score_text(&r, "print") == 18);
    assert_string_equal(r.host.line, "the function prints: \xc3\xa9");
    r.ops->destroy(r.self);
}

static void lists_hold_the_samples_of_a_prompt(void **state)
{
    (void)state;
    static const int32_t ids[3] = { 1, 2, 3 };
    const char *path = scratch_write("r.py", script);
    xray_sample_in samples[] = { make_sample(0, "a"), make_sample(1, "ab"),
                                 make_sample(2, "abc") };
    static const struct {
        const char *call;
        const char *name;
        const char *row;
        double scores[3];
    } rows[] = {
        { "batch", "batch", "{\"level\":4}", { 3, 4, 4 } },
        { "trl", "trl", "{\"level\":4}", { 141, 242, 343 } },
        { "trl",
          "talk",
          "{\"prompt\":[{\"role\":\"user\",\"content\":\"hey\"}]}",
          { 13, 23, 33 } },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        xray_score score;
        rig_open(&r,
                 PYTHON_KEYS(path, "call", rows[i].call, "name", rows[i].name));
        for (uint32_t s = 0; s < 3; s++) {
            samples[s].prompt = "p";
            samples[s].prompt_size = 1;
            samples[s].ids = ids;
            samples[s].id_count = s + 1;
            samples[s].fields_json = rows[i].row;
        }
        if (i == 0) /* another prompt is another call */
            samples[2].prompt = "q";
        submit(&r, samples, 3);
        for (int s = 0; s < 3; s++) {
            if (next_score(&r, &score) != XRAY_OK)
                fail_msg("%s: %s", rows[i].name, r.host.reason);
            assert_true(score.score == rows[i].scores[score.id]);
        }
        r.ops->destroy(r.self);
    }
}

/* Each form checks all that it is given, and answers with 1 if that is right;
 * what it calls is in another file of its folder. */
static const char forms[] =
    "from helper import equal\n"
    "def verl(data_source, solution_str, ground_truth, extra_info):\n"
    "    return equal([data_source, solution_str, ground_truth, extra_info],\n"
    "                 ['from', 'a', 20, {'index': 7}])\n"
    "def bare(data_source, solution_str, ground_truth, extra_info):\n"
    "    return equal([data_source, ground_truth, extra_info],\n"
    "                 ['from', '18', {}])\n"
    "def batch(data_sources, solution_strs, ground_truths, extra_infos):\n"
    "    right = equal([data_sources, solution_strs, ground_truths,\n"
    "                   extra_infos], [['from'] * 2, ['a', 'ab'], [20] * 2,\n"
    "                  [{'index': 7}] * 2])\n"
    "    return [{'score': right, 'more': 5}] * 2\n"
    "def trl(prompts, completions, **columns):\n"
    "    return [equal([prompts, completions, columns], [['p'] * 2,\n"
    "        ['a', 'ab'], {'reward_model': [{'ground_truth': 20}] * 2,\n"
    "        'extra_info': [{'index': 7}] * 2,\n"
    "        'completion_ids': [[4, 5], [4]]}])] * 2\n"
    "def talk(prompts, completions, **columns):\n"
    "    return [equal([prompts, completions], [[[{'role': 'user',\n"
    "        'content': 'hey'}]] * 2, [[{'role': 'assistant',\n"
    "        'content': text}] for text in ('a', 'ab')]])] * 2\n";

static void each_form_gets_what_it_is_to_get(void **state)
{
    (void)state;
    static const int32_t ids[2] = { 4, 5 };
    static const char row[] = "{\"reward_model\":{\"ground_truth\":20},"
                              "\"extra_info\":{\"index\":7}}";
    static const struct {
        const char *call;
        const char *name;
        const char *row;
        uint64_t count;
        uint32_t values;
    } rows[] = {
        { "verl", "verl", row, 1, 1 },
        { "verl", "bare", "{}", 1, 1 },
        { "batch", "batch", row, 2, 2 },
        { "trl", "trl", row, 2, 1 },
        { "trl", "talk",
          "{\"prompt\":[{\"role\":\"user\",\"content\":\"hey\"}]}", 2, 1 },
    };
    (void)scratch_write("helper.py", "def equal(got, want):\n"
                                     "    assert got == want, got\n"
                                     "    return 1\n");
    const char *path = scratch_write("forms.py", forms);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rig r;
        xray_score score;
        xray_sample_in samples[] = { make_sample(0, "a"),
                                     make_sample(1, "ab") };
        for (uint32_t s = 0; s < 2; s++) {
            samples[s].prompt = "p";
            samples[s].prompt_size = 1;
            samples[s].data_source = "from";
            samples[s].ids = ids;
            samples[s].id_count = 2 - s;
            samples[s].fields_json = rows[i].row;
        }
        rig_open(&r, PYTHON_KEYS(path, "call", rows[i].call, "name",
                                 rows[i].name, "workers", "1"));
        submit(&r, samples, rows[i].count);
        for (uint64_t s = 0; s < rows[i].count; s++) {
            if (next_score(&r, &score) != XRAY_OK)
                fail_msg("%s: %s", rows[i].name, r.host.reason);
            assert_true(score.score == 1);
            assert_int_equal(score.value_count, rows[i].values);
        }
        r.ops->destroy(r.self);
    }
}

static void python_files_that_cannot_work_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *words;
    } rows[] = {
        { "def compute_score(:\n",
          "SyntaxError: invalid syntax (bad.py, line 1)" },
        { "\nimport no_such_module\n",
          "ModuleNotFoundError: No module named 'no_such_module' (bad.py, line "
          "2)" },
        { "compute_scores = 1\n", "has no function compute_score" },
        { "raise SystemExit(3)\n", "SystemExit: 3 (bad.py, line 1)" },
        { "import os\nos._exit(4)\n",
          "ended its process (exit code 4) while its file was loaded" },
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        expect_refusal(
            PYTHON_KEYS(scratch_write("bad.py", rows[i].text), "workers", "1"),
            rows[i].words);
    expect_refusal(PYTHON_KEYS(scratch_path("none.py"), "workers", "1"),
                   "FileNotFoundError: ");
    expect_refusal(
        PYTHON_KEYS(scratch_path("bad.py"), "interpreter", "no-such-python"),
        "no-such-python cannot be started: No such file");
}

static void python_failures_are_those_of_a_sample(void **state)
{
    (void)state;
    static const struct {
        const char *response;
        const char *words;
    } rows[] = {
        { "raise", "sample 3: ValueError: it is \xc3\xa9 (r.py, line 4)" },
        { "leak", "sample 3: MemoryError (r.py, line 5)" },
        { "exit", "sample 3: SystemExit: 5 (r.py, line 6)" },
        { "leave", "sample 3: the function ended its process (exit code 5)" },
        { "none", "sample 3: the function returned None, expected a number" },
        { "inf", "sample 3: the function returned inf, expected a finite" },
        { "dict", "sample 3: the function returned a dict without \"score\"" },
        { "hang",
          "sample 3: the function did not return within 1 s (timeout)" },
    };
    const char *path = scratch_write("r.py", script);
    rig r;
    xray_score score;
    rig_open(&r, PYTHON_KEYS(path, "timeout", "1s", "memory", "512M", "workers",
                             "1"));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        xray_sample_in sample = make_sample(3, rows[i].response);
        submit(&r, &sample, 1);
        assert_int_equal(next_score(&r, &score), XRAY_E_IO);
        expect_words(r.host.reason, rows[i].words);
        assert_true(score_text(&r, "well") == 18);
    }
    r.ops->destroy(r.self);

    rig_open(&r, PYTHON_KEYS(path, "call", "batch", "name", "few"));
    const xray_sample_in two[] = { make_sample(0, "a"), make_sample(1, "b") };
    submit(&r, two, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(next_score(&r, &score), XRAY_E_IO);
        expect_words(r.host.reason,
                     "the function returned 1 scores for 2 samples");
    }
    r.ops->destroy(r.self);
}

/* The first sample waits for a file, which is made when the second one has its
 * score. */
static void answers_may_come_in_another_order(void **state)
{
    (void)state;
    char wait[320];
    rig r;
    xray_score score;
    rig_open(&r, PYTHON_KEYS(scratch_write("r.py", script), "workers", "2"));
    (void)snprintf(wait, sizeof(wait), "await %s", scratch_path("flag"));
    const xray_sample_in samples[] = { make_sample(0, wait),
                                       make_sample(1, "plain") };
    submit(&r, samples, 2);
    assert_int_equal(next_score(&r, &score), XRAY_OK);
    assert_int_equal(score.id, 1);
    (void)scratch_write("flag", "");
    assert_int_equal(next_score(&r, &score), XRAY_OK);
    assert_int_equal(score.id, 0);
    assert_int_equal(next_score(&r, &score), XRAY_END);
    r.ops->destroy(r.self);
}

/* ---- the end of the program --------------------------------------------- */

static void pause_briefly(void)
{
    const struct timespec pause = { .tv_nsec = 1000000 };
    (void)nanosleep(&pause, NULL);
}

/* Returns the number in a file, once it is there. */
static uint32_t await_number(const char *path)
{
    unsigned number = 0;
    for (int i = 0; i < 60000 && !number; i++) {
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%u", &number) != 1)
            number = 0;
        if (file)
            (void)fclose(file);
        pause_briefly();
    }
    assert_int_not_equal(number, 0);
    return number;
}

/* Starts `xray grade`, which calls the function of a file for one response. */
static pid_t spawn_grade(const char *path, const char *response)
{
    extern char **environ;
    pid_t pid = 0;
    char line[512];
    char key[512];
    posix_spawn_file_actions_t actions;
    (void)snprintf(line, sizeof(line), "{\"response\":\"%s\"}\n", response);
    (void)snprintf(key, sizeof(key), "reward.ffi.path=%s", path);
    char *const argv[] = { "xray",  "grade", "--reward",
                           "ffi",   "--set", "reward.ffi.language=python",
                           "--set", key,     NULL };
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_addopen(
                         &actions, STDIN_FILENO,
                         scratch_write("in.jsonl", line), O_RDONLY, 0),
                     0);
    assert_non_null(getenv("XRAY_BIN"));
    assert_int_equal(
        posix_spawn(&pid, getenv("XRAY_BIN"), &actions, NULL, argv, environ),
        0);
    (void)posix_spawn_file_actions_destroy(&actions);
    return pid;
}

static stopper stop;

static const void *find_calls(const xray_host *host, const char *id)
{
    (void)host;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0 ? &stop.service : NULL;
}

/* A submit asks before it begins, and the next one is as if it had not been. */
static void a_canceled_submit_gives_no_scores(void **state)
{
    const xray_sample_in sample = make_sample(1, "give 2.5");
    xray_score score;
    rig r;
    (void)state;
    rig_open(&r, C_KEYS("symbol", "obey"));
    r.ops->destroy(r.self);
    r.host.api.service = find_calls;
    stopper_begin(&stop, 0);
    assert_int_equal(r.ops->create(&r.host.api, r.config, &r.self), XRAY_OK);
    stopper_begin(&stop, 1);
    assert_int_equal(r.ops->submit(r.self, &sample, 1, sizeof(sample)),
                     XRAY_E_CANCELED);
    assert_string_equal(r.host.reason, "submit: the run is stopped");
    stopper_begin(&stop, 0);
    assert_int_equal(next_score(&r, &score), XRAY_END);
    submit(&r, &sample, 1);
    assert_int_equal(next_score(&r, &score), XRAY_OK);
    assert_true(score.id == 1);
    assert_int_equal(next_score(&r, &score), XRAY_END);
    r.ops->destroy(r.self);
}

/* A worker in the midst of a call ends with a program that is killed. */
static void workers_end_with_the_program(void **state)
{
    (void)state;
    char order[320];
    const char *path = scratch_write("r.py", script);
    (void)snprintf(order, sizeof(order), "pid %s", scratch_path("pid"));
    pid_t program = spawn_grade(path, order);
    uint32_t worker = await_number(scratch_path("pid"));
    assert_int_equal(kill(program, SIGKILL), 0);
    assert_int_equal(waitpid(program, NULL, 0), program);
    char found = 'R';
    for (int i = 0; i < 60000 && found && found != 'Z'; i++) {
        found = xr_process_state(worker);
        pause_briefly();
    }
    assert_true(!found || found == 'Z');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(c_functions_get_their_arguments),
        cmocka_unit_test(c_settings_that_cannot_work_are_refused),
        cmocka_unit_test(c_failures_are_those_of_a_sample),
        cmocka_unit_test(a_failure_can_have_a_score),
        cmocka_unit_test(python_functions_are_called_as_in_verl),
        cmocka_unit_test(lists_hold_the_samples_of_a_prompt),
        cmocka_unit_test(each_form_gets_what_it_is_to_get),
        cmocka_unit_test(python_files_that_cannot_work_are_refused),
        cmocka_unit_test(python_failures_are_those_of_a_sample),
        cmocka_unit_test(answers_may_come_in_another_order),
        cmocka_unit_test(a_canceled_submit_gives_no_scores),
        cmocka_unit_test(workers_end_with_the_program),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
