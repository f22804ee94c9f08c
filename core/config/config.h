/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares a run's configuration: sections of keys, set in layers, where each
 * value remembers its origin. inih finds the names of sections and keys, which
 * have at most 49 characters. Our reader passes it one line at a time; it
 * strips comments, handles double-quoted values (\n \t \\ \"; ';' and '#' are
 * text inside), counts lines and refuses what inih would cut off or accept
 * silently. Layers, lowest first: defaults (of the option tables), a DeepSpeed
 * JSON that a file names (core/deepspeed), files (`include = FILE` before the
 * first section reads another one; the value read last holds), the environment
 * (XRAY_SECTION__KEY, with '_' for each '.' of a section), --set
 * section.key=value (split at the last dot).
 */
#ifndef XR_CONFIG_H
#define XR_CONFIG_H

#include <stddef.h>

#include <xray/option.h>

#include "core/base/err.h"
#include "core/base/str.h"

/* All errors of a configuration, so that a user sees them at once. */
typedef struct xr_errors {
    char **items;
    size_t count;
    size_t cap;
} xr_errors;
XRAY_PRINTF(2, 3)
void xr_errors_add(xr_errors *errors, const char *fmt, ...);
void xr_errors_free(xr_errors *errors);

typedef struct xr_config xr_config;

xr_config *xr_config_new(void); /* NULL when out of memory */
void xr_config_free(xr_config *config);

/* Each function adds its errors to `errors` and continues. */
void xr_config_read(xr_config *config, const char *path, xr_errors *errors);
/* Reads a text as if it were the file `path`, which names its lines in
 * messages. */
void xr_config_read_text(xr_config *config, const char *path, const char *text,
                         xr_errors *errors);
void xr_config_environment(xr_config *config, char *const *environ_list,
                           xr_errors *errors);
void xr_config_set(xr_config *config, const char *assignment,
                   xr_errors *errors);

/* Text of the value in force, or NULL if no layer sets it. The key is not
 * marked as known. */
const char *xr_config_get(const xr_config *config, const char *section,
                          const char *key);
/* "run.ini:14", "--set", "XRAY_...", or "default". */
const char *xr_config_origin(const xr_config *config, const char *section,
                             const char *key);
/* 1 if a value was set that its option table refuses, so that the default
 * holds. */
int xr_config_refused(const xr_config *config, const char *section,
                      const char *key);
/* The first file read, or "configuration": messages about missing values begin
 * with it. */
const char *xr_config_path(const xr_config *config);
/* The value's origin, or xr_config_path if no layer sets it. */
const char *xr_config_location(const xr_config *config, const char *section,
                               const char *key);
/* 1 if memory ran out, so that the configuration is incomplete. */
int xr_config_failed(const xr_config *config);
/* 1 if a file could not be read: values that seem missing may be set in it. */
int xr_config_unread(const xr_config *config);
/* Sections in order of appearance; NULL past the last. */
const char *xr_config_section(const xr_config *config, size_t i);

/* An option table. `stride` is the size of an option as the table's author
 * compiled it. */
typedef struct xr_table {
    const xray_option *options;
    size_t count;
    size_t stride;
} xr_table;
#define XR_TABLE(array)                                               \
    (xr_table)                                                        \
    {                                                                 \
        array, sizeof(array) / sizeof((array)[0]), sizeof((array)[0]) \
    }

/* Returns option i of a table, whatever size its author's options have. */
xray_option xr_option_at(xr_table table, size_t i);

/* Writes a bound of the option to `buffer` in readable form: 2^53 without
 * exponent, a duration in seconds. */
const char *xr_option_bound(const xray_option *option, double value,
                            char *buffer, size_t cap);

/* Decodes a section into `target` by the table: presets first, then values in
 * force. Marks the table's keys of that section as known. Several tables may
 * share a section. Strings live as long as the config. */
void xr_config_decode(xr_config *config, const char *section, xr_table table,
                      void *target, xr_errors *errors);
/* Decodes what `section` sets over what `base` gives: an option that `section`
 * leaves out has the value of `base`, whose errors are not reported again.
 * Returns the number of options that `section` sets. */
size_t xr_config_decode_over(xr_config *config, const char *section,
                             const char *base, xr_table table, void *target,
                             xr_errors *errors);
/* Marks a section as known although this run decodes none of it, such as the
 * options of a plugin that is not selected. Its keys are not checked. */
void xr_config_ignore(xr_config *config, const char *section);

/* Returns remark i on an option that is marked XRAY_OPT_MODEL: "[model] path:
 * ID is FOLDER"; NULL past the last. */
const char *xr_config_found(const xr_config *config, size_t i);

/* Sets a default that is derived from other values. */
void xr_config_preset(xr_config *config, const char *section, const char *key,
                      const char *text);

/* Call after all decoding. Reports keys that no table has, with "did you
 * mean". */
void xr_config_finish(xr_config *config, xr_errors *errors);

/* Prints the resolved configuration as an INI that reads back to the same
 * values. `origins` = 1 adds "; run.ini:14" after each value. Paths become
 * absolute; secrets and sections that were not decoded are left out. */
void xr_config_print(const xr_config *config, int origins, xr_str *out);

/* A value in force. */
typedef struct xr_config_value {
    const char *section;
    const char *key;
    const char *text; /* as xr_config_print prints it, but without quotes */
    const char *origin;
    int given;    /* 1: a layer sets it; 0: it is the default */
    int is_paths; /* 1: files or folders, separated by commas */
} xr_config_value;
/* Returns the next of the values that xr_config_print would print, or, if
 * nothing was decoded, of all values that were read; 0 after the last.
 * Initialise `at` with zeros. */
int xr_config_next(const xr_config *config, size_t at[2], xr_config_value *out);

/* Appends a value in the syntax of an INI file: in double quotes if the reader
 * would not return the bare text. */
void xr_config_put_value(const char *text, xr_str *out);

#endif
