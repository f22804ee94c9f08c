/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses command lines, prints messages and help pages, and makes the
 * configuration of a command.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/cli/cli.h"
#include "core/config/sections.h"

extern char **environ;

/* ---- messages ----------------------------------------------------------- */

void cli_say(const char *fmt, ...)
{
    va_list list;
    va_start(list, fmt);
    (void)fputs("xray: ", stderr);
    (void)vfprintf(stderr, fmt, list);
    (void)fputc('\n', stderr);
    va_end(list);
}

int cli_fail(xray_status status, const xr_err *err)
{
    cli_say("%s", err->text[0] ? err->text : "failed without a reason");
    return status == XRAY_E_CONFIG ? CLI_USAGE : CLI_FAILED;
}

int cli_errors(const xr_errors *errors)
{
    for (size_t i = 0; i < errors->count; i++)
        cli_say("%s", errors->items[i]);
    return CLI_USAGE;
}

/* ---- the command line --------------------------------------------------- */

static struct {
    int argc;
    char **argv;
} started;

void cli_command_line(int argc, char **argv)
{
    started.argc = argc;
    started.argv = argv;
}

static void put_quoted_word(const char *word, xr_str *out)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrst"
                                "uvwxyz0123456789_-./=:,+@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        xr_str_puts(out, word);
        return;
    }
    xr_str_puts(out, "'");
    for (; *word; word++)
        if (*word == '\'')
            xr_str_puts(out, "'\\''");
        else
            xr_str_append(out, word, 1);
    xr_str_puts(out, "'");
}

void cli_put_command(xr_str *out)
{
    for (int i = 0; i < started.argc; i++) {
        xr_str_puts(out, i ? " " : "");
        put_quoted_word(started.argv[i], out);
    }
}

/* ---- values ------------------------------------------------------------- */

static void *option_field(const cli_flag *flag, cli_args *args)
{
    return (unsigned char *)args + flag->offset;
}

/* True if `value` is one of the names between '|', or if there is no '|'. */
static int is_among_choices(const char *choices, const char *value)
{
    size_t size = strlen(value);
    if (!strchr(choices, '|'))
        return 1;
    for (const char *at = choices;; at++) {
        size_t n = strcspn(at, "|");
        if (n == size && strncmp(at, value, n) == 0)
            return 1;
        at += n;
        if (!*at)
            return 0;
    }
}

const char *cli_flag_refuses(const cli_flag *flag, double value, xr_str *buffer)
{
    if (flag->type == CLI_TEMPERATURE)
        return xr_temperature_refused(value);
    if (flag->type == CLI_TOP_P)
        return xr_top_p_refused(value);
    if (value >= flag->min && value <= flag->max)
        return NULL;
    xr_str_clear(buffer);
    xr_str_puts(buffer,
                flag->type == CLI_INT ? "an integer from " : "a number from ");
    xr_str_number(buffer, flag->min);
    xr_str_puts(buffer, " to ");
    xr_str_number(buffer, flag->max);
    return xr_str_text(buffer);
}

static int store_number(const cli_flag *flag, const char *text, cli_args *args)
{
    int64_t integer = 0;
    double real = 0.0;
    xr_str buffer = { 0 };
    int bad = flag->type == CLI_INT ? xr_parse_int(text, &integer)
                                    : xr_parse_real(text, &real);
    if (flag->type == CLI_INT) {
        /* Beyond 2^53 a double cannot represent every integer. */
        bad =
            bad || integer > INT64_C(1) << 53 || integer < -(INT64_C(1) << 53);
        real = (double)integer;
    }
    const char *wanted = cli_flag_refuses(flag, bad ? NAN : real, &buffer);
    if (wanted)
        cli_say("%s takes %s, not '%s'", flag->name, wanted, text);
    xr_str_free(&buffer);
    if (wanted)
        return CLI_USAGE;
    if (flag->type == CLI_INT)
        *(int64_t *)option_field(flag, args) = integer;
    else
        *(double *)option_field(flag, args) = real;
    return CLI_OK;
}

static void append_text(cli_list *list, const char *text)
{
    list->items[list->count++] = text;
}

static int store_value(const cli_flag *flag, const char *text, cli_args *args)
{
    switch (flag->type) {
    case CLI_SWITCH:
        *(int *)option_field(flag, args) = 1;
        return CLI_OK;
    case CLI_LIST:
        append_text(option_field(flag, args), text);
        return CLI_OK;
    case CLI_TEXT:
        if (!is_among_choices(flag->arg, text)) {
            cli_say("%s takes one of %s, not '%s'", flag->name, flag->arg,
                    text);
            return CLI_USAGE;
        }
        *(const char **)option_field(flag, args) = text;
        return CLI_OK;
    default:
        return store_number(flag, text, args);
    }
}

/* ---- parsing ------------------------------------------------------------ */

static const cli_flag help_flag = {
    "--help", NULL, CLI_SWITCH,       0, offsetof(cli_args, help), NULL,
    1,        0,    "print this page"
};

static const cli_flag *find_option(const cli_command *command, const char *text,
                                   size_t size)
{
    if (strncmp(text, "--help", size) == 0 && size == 6)
        return &help_flag;
    if (strncmp(text, "-h", size) == 0 && size == 2)
        return &help_flag;
    for (const cli_flag *flag = command->flags; flag->name; flag++)
        if (strlen(flag->name) == size && strncmp(flag->name, text, size) == 0)
            return flag;
    return NULL;
}

static int report_unknown_option(const cli_command *command, const char *text,
                                 size_t size)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%.*s", (int)(size < 63 ? size : 63),
                   text);
    const char *near = NULL;
    unsigned best = 3;
    for (const cli_flag *flag = command->flags; flag->name; flag++) {
        unsigned distance = xr_edit_distance(name, flag->name, best);
        if (distance < best) {
            best = distance;
            near = flag->name;
        }
    }
    cli_say("%s: there is no option '%s'%s%s%s; see 'xray %s --help'",
            command->name, name, near ? "; did you mean '" : "",
            near ? near : "", near ? "'" : "", command->name);
    return CLI_USAGE;
}

/* Parses one option and moves *i past its value. */
static int parse_option(const cli_command *command, int argc, char **argv,
                        int *i, cli_args *out)
{
    const char *text = argv[*i];
    size_t size = strcspn(text, "=");
    const cli_flag *flag = find_option(command, text, size);
    const char *value = text[size] ? text + size + 1 : NULL;
    if (!flag)
        return report_unknown_option(command, text, size);
    if (flag->type == CLI_SWITCH && value) {
        cli_say("%s takes no value", flag->name);
        return CLI_USAGE;
    }
    if (flag->type != CLI_SWITCH && !value) {
        if (*i + 1 >= argc) {
            cli_say("%s needs a value: %s", flag->name, flag->arg);
            return CLI_USAGE;
        }
        value = argv[++*i];
    }
    return store_value(flag, value, out);
}

/* Users of Hydra write keys without an option. */
static void report_extra_word(const cli_command *command, const char *word)
{
    int is_key = strchr(word, '=') && find_option(command, "--set", 5);
    cli_say("%s: unexpected '%s'%s%s", command->name, word,
            is_key ? "; a key is set by --set " : "", is_key ? word : "");
}

static int check_required(const cli_command *command, const cli_args *args)
{
    for (const cli_flag *flag = command->flags; flag->name; flag++) {
        const void *value = (const unsigned char *)args + flag->offset;
        if (flag->required && !*(const char *const *)value) {
            cli_say("%s: %s %s is required; see 'xray %s --help'",
                    command->name, flag->name, flag->arg, command->name);
            return CLI_USAGE;
        }
    }
    if (args->words.count < command->min_words ||
        args->words.count > command->max_words) {
        if (args->words.count > command->max_words)
            report_extra_word(command, args->words.items[command->max_words]);
        cli_say("usage: xray %s %s", command->name, command->usage);
        return CLI_USAGE;
    }
    return CLI_OK;
}

static int parse_arguments(const cli_command *command, int argc, char **argv,
                           cli_args *out)
{
    int only_words = 0;
    for (const cli_flag *flag = command->flags; flag->name; flag++)
        if (flag->preset)
            (void)store_value(flag, flag->preset, out);
    for (int i = 0; i < argc; i++) {
        if (!only_words && strcmp(argv[i], "--") == 0) {
            only_words = 1;
        } else if (!only_words && argv[i][0] == '-' && argv[i][1]) {
            int code = parse_option(command, argc, argv, &i, out);
            if (code != CLI_OK)
                return code;
        } else {
            append_text(&out->words, argv[i]);
        }
    }
    return out->help ? CLI_OK : check_required(command, out);
}

int cli_args_parse(const cli_command *command, int argc, char **argv,
                   cli_args *out)
{
    *out = (cli_args){ 0 };
    cli_list *lists[] = { &out->sets, &out->stops, &out->prompts, &out->words };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        lists[i]->items = xr_calloc((size_t)argc + 1, sizeof(const char *));
        if (!lists[i]->items) {
            cli_say("out of memory");
            return CLI_FAILED;
        }
    }
    return parse_arguments(command, argc, argv, out);
}

void cli_args_free(cli_args *args)
{
    free(args->sets.items);
    free(args->stops.items);
    free(args->prompts.items);
    free(args->words.items);
    *args = (cli_args){ 0 };
}

/* ---- help --------------------------------------------------------------- */

static void print_option_help(const cli_flag *flag)
{
    char left[64];
    (void)snprintf(left, sizeof left, "%s%s%s", flag->name,
                   flag->arg ? " " : "", flag->arg ? flag->arg : "");
    if (strlen(left) > 26)
        (void)printf("  %s\n  %-26s  %s", left, "", flag->doc);
    else
        (void)printf("  %-26s  %s", left, flag->doc);
    if (flag->required)
        (void)printf(" (required)");
    if (flag->preset)
        (void)printf(" (default %s)", flag->preset);
    (void)printf("\n");
}

void cli_help(const cli_command *command)
{
    (void)printf("xray %s - %s\n\nUsage: xray %s %s\n\n%s\n\nOptions:\n",
                 command->name, command->summary, command->name, command->usage,
                 command->about);
    for (const cli_flag *flag = command->flags; flag->name; flag++)
        print_option_help(flag);
    print_option_help(&help_flag);
    (void)printf("\nExamples:\n%s\n", command->examples);
    (void)printf(
        "Exit codes: 0 done; 1 the run or a line of its input failed; 2 bad "
        "usage or\nconfiguration; 130 or 143 ended by SIGINT or "
        "SIGTERM.\n");
}

/* ---- configuration ------------------------------------------------------ */

static void set_config_key(xr_config *config, const char *key,
                           const char *value, xr_errors *errors)
{
    xr_str text = { 0 };
    if (!value)
        return;
    xr_str_printf(&text, "%s=%s", key, value);
    if (text.failed)
        xr_errors_add(errors, "out of memory");
    else
        xr_config_set(config, text.data, errors);
    xr_str_free(&text);
}

xr_config *cli_config(const cli_args *args, const char *file, xr_errors *errors)
{
    xr_config *config = xr_config_new();
    if (!config) {
        xr_errors_add(errors, "out of memory");
        return NULL;
    }
    if (file)
        xr_config_read(config, file, errors);
    xr_config_environment(config, environ, errors);
    set_config_key(config, "model.path", args->model, errors);
    set_config_key(config, "run.train", args->train, errors);
    set_config_key(config, "run.infer", args->infer, errors);
    set_config_key(config, "run.reward", args->reward, errors);
    set_config_key(config, "run.log", args->log, errors);
    for (size_t i = 0; i < args->sets.count; i++)
        xr_config_set(config, args->sets.items[i], errors);
    return config;
}
