/* SPDX-License-Identifier: Apache-2.0
 *
 * The main program: finds the command and runs it.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/str.h"
#include "core/cli/cli.h"
#include "core/cli/guard.h"
#include "core/plugin/plugin.h"
#include "core/roles/launch_setup.h"
#include "core/roles/workhorse.h"

static const cli_command *const commands[] = {
    &cli_train,        &cli_sft,           &cli_eval,
    &cli_submit,       &cli_check,         &cli_plan,
    &cli_ab,           &cli_compare,       &cli_score,
    &cli_generate,     &cli_chat_command,  &cli_tokenize,
    &cli_grade,        &cli_convert,       &cli_data_convert,
    &cli_data_head,    &cli_data_stats,    &cli_data_check,
    &cli_algo_list,    &cli_plugin_list,   &cli_plugin_inspect,
    &cli_config_print, &cli_config_schema, &cli_config_docs,
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static void print_command_overview(FILE *to)
{
    (void)fprintf(to, "xray - reinforcement-learning post-training of language "
                      "models\n\nUsage: xray COMMAND [options]\n\nCommands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        (void)fprintf(to, "  %-16s %s\n", commands[i]->name,
                      commands[i]->summary);
    (void)fprintf(to, "\n'xray COMMAND --help' describes a command, 'xray "
                      "--version' prints the version.\n");
}

/* The number of words of `name` if argv begins with all of them, else 0. */
static int count_matched_words(const char *name, int argc, char **argv)
{
    int used = 0;
    while (*name) {
        size_t n = strcspn(name, " ");
        if (used >= argc || strlen(argv[used]) != n ||
            strncmp(argv[used], name, n) != 0)
            return 0;
        used++;
        name += n;
        name += *name == ' ';
    }
    return used;
}

static const cli_command *find_command(int argc, char **argv, int *out_used)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        *out_used = count_matched_words(commands[i]->name, argc, argv);
        if (*out_used)
            return commands[i];
    }
    return NULL;
}

/* True if `word` begins the names of two-word commands ("plugin"). */
static int is_command_group(const char *word)
{
    size_t size = strlen(word);
    for (size_t i = 0; i < COMMANDS; i++)
        if (strncmp(commands[i]->name, word, size) == 0 &&
            commands[i]->name[size] == ' ')
            return 1;
    return 0;
}

static int print_command_group(const char *word, FILE *to)
{
    size_t size = strlen(word);
    (void)fprintf(to, "Commands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        if (strncmp(commands[i]->name, word, size) == 0)
            (void)fprintf(to, "  xray %s %s\n      %s\n", commands[i]->name,
                          commands[i]->usage, commands[i]->summary);
    return to == stdout ? CLI_OK : CLI_USAGE;
}

static int report_unknown_command(int argc, char **argv)
{
    if (is_command_group(argv[0])) {
        int help = argc > 1 && (strcmp(argv[1], "--help") == 0 ||
                                strcmp(argv[1], "-h") == 0);
        if (argc > 1 && !help)
            cli_say("there is no command '%s %s'", argv[0], argv[1]);
        return print_command_group(argv[0], help ? stdout : stderr);
    }
    const char *near = NULL;
    unsigned best = 3;
    for (size_t i = 0; i < COMMANDS; i++) {
        unsigned distance = xr_edit_distance(argv[0], commands[i]->name, best);
        if (distance < best) {
            best = distance;
            near = commands[i]->name;
        }
    }
    cli_say("there is no command '%s'%s%s%s; see 'xray --help'", argv[0],
            near ? "; did you mean '" : "", near ? near : "", near ? "'" : "");
    return CLI_USAGE;
}

/* The Workhorses of a run are processes of one build. */
static int print_build(void)
{
    char build[XR_BUILD_CAP];
    xr_err err = { "" };
    if (xr_launch_build(build, &err) != XRAY_OK)
        return cli_fail(XRAY_E_IO, &err);
    (void)printf("%s\n", build);
    return CLI_OK;
}

static int print_version(void)
{
    xr_host *host = xr_host_new("xray", NULL);
    if (!host) {
        cli_say("out of memory");
        return CLI_FAILED;
    }
    (void)printf("xray %s (plugin ABI %u.%u)\nbuild ",
                 xr_host_api(host)->version, XRAY_ABI_MAJOR, XRAY_ABI_MINOR);
    xr_host_free(host);
    return print_build();
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    cli_args args;
    int code = cli_args_parse(command, argc, argv, &args);
    if (code == CLI_OK && args.help)
        cli_help(command);
    else if (code == CLI_OK)
        code = command->run(&args);
    cli_args_free(&args);
    return code;
}

static int print_help(int argc, char **argv)
{
    int used = 0;
    const cli_command *command = argc ? find_command(argc, argv, &used) : NULL;
    if (command)
        cli_help(command);
    else if (!argc)
        print_command_overview(stdout);
    else if (is_command_group(argv[0]))
        return print_command_group(argv[0], stdout);
    else
        return report_unknown_command(argc, argv);
    return CLI_OK;
}

static int dispatch_command(int argc, char **argv)
{
    if (!argc) {
        print_command_overview(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0)
        return print_help(0, NULL);
    if (strcmp(argv[0], "help") == 0)
        return print_help(argc - 1, argv + 1);
    if (strcmp(argv[0], "--version") == 0)
        return print_version();
    if (strcmp(argv[0], "--build") == 0)
        return print_build();
    int used = 0;
    const cli_command *command = find_command(argc, argv, &used);
    if (!command)
        return report_unknown_command(argc, argv);
    return run_command(command, argc - used, argv + used);
}

/* Opens /dev/null for each standard stream that is closed: else a file opened
 * later would get its number, and output would go to it. The mode makes uses of
 * the stream fail. */
static void reserve_standard_streams(void)
{
    for (int fd = 0; fd <= 2; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        int held = open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
        if (held >= 0 && held != fd)
            (void)close(held);
    }
}

int main(int argc, char **argv)
{
    reserve_standard_streams();
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* the write fails and is reported */
    /* A child that tries a plugin has no guard: it may crash. */
    if (argc == 3 && strcmp(argv[1], XR_TRIAL_COMMAND) == 0)
        return xr_trial_child(argv[2]);
    cli_command_line(argc, argv);
    cli_guard_start();
    xr_trial_enable();
    int code =
        (argc == 3 || argc == 5) && strcmp(argv[1], XR_WORKHORSE_COMMAND) == 0
            ? cli_workhorse(argv + 2)
            : dispatch_command(argc - 1, argv + 1);
    cli_guard_stop();
    if (fflush(stdout) || ferror(stdout)) {
        if (errno != EPIPE)
            cli_say("cannot write the results: %s", strerror(errno));
        code = code == CLI_OK ? CLI_FAILED : code;
    }
    return code;
}
