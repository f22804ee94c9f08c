/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that all commands share: option tables, exit codes, messages.
 */
#ifndef XR_CLI_H
#define XR_CLI_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/config/config.h"

#define CLI_OK 0
#define CLI_FAILED 1 /* the run, or a line of it, failed */
#define CLI_USAGE 2  /* bad usage or configuration */

/* The values of an option that may be repeated, in their order. */
typedef struct cli_list {
    const char **items;
    size_t count;
} cli_list;

/* The values of all commands' options; a command's table lists those it has. */
typedef struct cli_args {
    const char *model;
    const char *train;
    const char *infer;
    const char *reward;
    const char *plugin_path;
    const char *log;
    const char *special;
    const char *format;
    const char *job;
    const char *out;
    const char *seed_list;
    const char *metric;
    const char *machine;
    const char *system;
    double temperature;
    double top_p;
    double min_p;
    double repetition_penalty;
    double frequency_penalty;
    double presence_penalty;
    int64_t top_k;
    int64_t min_tokens;
    int64_t repeat_size;
    int64_t repeat_count;
    int64_t max_tokens;
    int64_t n;
    int64_t seed;
    int64_t seeds;
    int64_t jobs;
    int ignore_eos;
    int lower;
    int decode;
    int json;
    int origins;
    int accept_changes;
    int elsewhere;
    int help;
    int stream;
    cli_list sets;
    cli_list stops;
    cli_list prompts;
    cli_list words; /* arguments that are not options */
} cli_args;

enum {
    CLI_SWITCH,
    CLI_TEXT,
    CLI_INT,
    CLI_REAL,
    CLI_TEMPERATURE, /* a real with a rule instead of bounds */
    CLI_TOP_P,
    CLI_LIST /* a text, which can be repeated */
};

typedef struct cli_flag {
    const char *name; /* "--model"; NULL ends a table */
    const char *arg;  /* "DIR" in the help; "a|b": choices; NULL: a switch */
    int type;
    int required;
    size_t offset;      /* into cli_args */
    const char *preset; /* text of the default, NULL: none */
    double min;         /* numbers: inclusive bounds */
    double max;
    const char *doc;
} cli_flag;

typedef struct cli_command {
    const char *name;    /* "plugin list" */
    const char *usage;   /* what follows the name */
    const char *summary; /* one line */
    const char *about;
    const char *examples;
    const cli_flag *flags;
    size_t min_words;
    size_t max_words;
    int (*run)(const cli_args *args);
} cli_command;

extern const cli_command cli_train, cli_sft, cli_eval, cli_check,
    cli_config_print, cli_config_schema, cli_config_docs, cli_plan,
    cli_generate, cli_score, cli_tokenize, cli_grade, cli_algo_list,
    cli_plugin_list, cli_plugin_inspect, cli_ab, cli_compare, cli_convert,
    cli_chat_command, cli_submit, cli_data_convert, cli_data_head,
    cli_data_stats, cli_data_check;

/* Options of more than one command. */
#define CLI_SET_FLAG                                                         \
    {                                                                        \
        "--set", "SECTION.KEY=VALUE", CLI_LIST, 0, offsetof(cli_args, sets), \
            NULL, 1, 0, "set a configuration value; can be repeated"         \
    }
#define CLI_PLUGIN_PATH_FLAG                                                   \
    {                                                                          \
        "--plugin-path", "DIRS", CLI_TEXT, 0, offsetof(cli_args, plugin_path), \
            NULL, 1, 0, "folders of plugins, separated by ':', searched first" \
    }
#define CLI_LOG_FLAG                                                          \
    {                                                                         \
        "--log", "error|warn|info|debug", CLI_TEXT, 0,                        \
            offsetof(cli_args, log), NULL, 1, 0, "level of detail of the log" \
    }
#define CLI_ACCEPT_FLAG                                                       \
    {                                                                         \
        "--accept-changes", NULL, CLI_SWITCH, 0,                              \
            offsetof(cli_args, accept_changes), NULL, 1, 0,                   \
            "resume from a checkpoint although the meaning of scores changed" \
    }
#define CLI_JOB_FLAG                                                     \
    {                                                                    \
        "--job", "train|sft|eval", CLI_TEXT, 0, offsetof(cli_args, job), \
            "train", 1, 0, "the command that the file is for"            \
    }
#define CLI_METRIC_FLAG                                                       \
    {                                                                         \
        "--metric", "NAME", CLI_TEXT, 0, offsetof(cli_args, metric), NULL, 1, \
            0, "metric of the verdict; else greedy validation"                \
    }
#define CLI_LOWER_FLAG                                                         \
    {                                                                          \
        "--lower", NULL, CLI_SWITCH, 0, offsetof(cli_args, lower), NULL, 1, 0, \
            "lower values of the metric are better, as for a loss"             \
    }
#define CLI_MODEL_FLAG                                                        \
    {                                                                         \
        "--model", "DIR", CLI_TEXT, 1, offsetof(cli_args, model), NULL, 1, 0, \
            "folder of the model, or its Hugging Face id"                     \
    }

/* Fills `out` from argv, the options and words after the command's name.
 * Returns CLI_OK, or CLI_USAGE after a message. cli_args_free releases it. */
int cli_args_parse(const cli_command *command, int argc, char **argv,
                   cli_args *out);
void cli_args_free(cli_args *args);
/* NULL if a numeric option accepts the value, else the values that it accepts,
 * as "an integer from 1 to 8", in `buffer`. */
const char *cli_flag_refuses(const cli_flag *flag, double value,
                             xr_str *buffer);
/* Prints the command's help page. */
void cli_help(const cli_command *command);

/* Remembers the command line, for messages that say how to start the program
 * again. */
void cli_command_line(int argc, char **argv);
/* Appends the command line, quoted for a shell. */
void cli_put_command(xr_str *out);

/* Prints "xray: text" on stderr. */
XRAY_PRINTF(1, 2)
void cli_say(const char *fmt, ...);
/* Prints `err` and returns the exit code for `status`. */
int cli_fail(xray_status status, const xr_err *err);
/* Prints all errors and returns CLI_USAGE. */
int cli_errors(const xr_errors *errors);

/* The XR_WITH_* of a job ("train", "sft", "eval"), without the tokenizer. */
uint32_t cli_job_parts(const char *job);
/* The configuration of a command, from a file (NULL: none), the environment and
 * the options, where the later ones override. Errors are added to `errors`;
 * NULL only when out of memory. */
xr_config *cli_config(const cli_args *args, const char *file,
                      xr_errors *errors);

/* Serves as a Workhorse of a run until the run ends; `args` are the
 * arguments after XR_WORKHORSE_COMMAND (core/roles/workhorse.h). Returns the
 * exit code. */
int cli_workhorse(char *const *args);

#endif
