/* SPDX-License-Identifier: Apache-2.0
 *
 * A run's configuration: sections of keys, in layers, each value with its
 * origin. inih finds the names of sections and keys, of at most 49 characters;
 * the reader in front of it strips comments, handles double-quoted values
 * (\n \t \\ \"; ';' and '#' are text inside), counts lines and refuses what
 * inih would cut or accept silently.
 *
 * Layers, lowest first: defaults (of the option tables), a DeepSpeed JSON that
 * a file names (core/deepspeed), file (`include = FILE` before the
 * first section reads another one; what is read later holds), environment
 * (XRAY_SECTION__KEY, '.' of a section written '_'), --set section.key=value
 * (the last dot splits).
 */
#ifndef XR_CONFIG_H
#define XR_CONFIG_H

#include <stddef.h>

#include <xray/option.h>

#include "core/base/err.h"
#include "core/base/str.h"

/* Everything that is wrong, so that a user sees it at once. */
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

/* Each adds what is wrong to `errors` and goes on. */
void xr_config_read(xr_config *config, const char *path, xr_errors *errors);
/* A file's text that is at hand; `path` is what its lines are called by. */
void xr_config_read_text(xr_config *config, const char *path, const char *text,
                         xr_errors *errors);
void xr_config_environment(xr_config *config, char *const *environ_list,
                           xr_errors *errors);
void xr_config_set(xr_config *config, const char *assignment,
                   xr_errors *errors);

/* Text of a value in force, NULL if no layer sets it. Does not mark it known.
 */
const char *xr_config_get(const xr_config *config, const char *section,
                          const char *key);
/* "run.ini:14", "--set", "XRAY_...", or "default". */
const char *xr_config_origin(const xr_config *config, const char *section,
                             const char *key);
/* 1 if a value was given that its table refuses: its default stands in. */
int xr_config_refused(const xr_config *config, const char *section,
                      const char *key);
/* The first file read, or "configuration": where what is missing would be. */
const char *xr_config_path(const xr_config *config);
/* The value's origin, or where it would be set. */
const char *xr_config_location(const xr_config *config, const char *section,
                               const char *key);
/* 1 if memory ran out, so that not all that was read is there. */
int xr_config_failed(const xr_config *config);
/* 1 if a file could not be read: what is missing then may have been in it. */
int xr_config_unread(const xr_config *config);
/* Sections in order of appearance; NULL past the last. */
const char *xr_config_section(const xr_config *config, size_t i);

/* An option table: `stride` as its author compiled it. */
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

/* A bound of the option as people write it, in `buffer`: 2^53 has no exponent,
 * a time is in seconds. */
const char *xr_option_bound(const xray_option *option, double value,
                            char *buffer, size_t cap);

/* Decodes a section into `target` by the table: presets first, then the value
 * in force. Marks the table's keys of that section as known. Several tables
 * may share a section. Strings live as long as the config. */
void xr_config_decode(xr_config *config, const char *section, xr_table table,
                      void *target, xr_errors *errors);
/* Marks a section known although nothing of it is decoded in this run (the
 * options of a plugin that is not selected): its keys are not checked. */
void xr_config_ignore(xr_config *config, const char *section);

/* Sets a default that is worked out from other values. */
void xr_config_preset(xr_config *config, const char *section, const char *key,
                      const char *text);

/* After all decoding: what no table knows is an error with "did you mean". */
void xr_config_finish(xr_config *config, xr_errors *errors);

/* The resolved configuration as an INI that reads back to the same values;
 * origins = 1 adds "; run.ini:14" behind each value. Paths come out absolute,
 * secrets and sections that were not decoded are left out. */
void xr_config_print(const xr_config *config, int origins, xr_str *out);

/* A value in force. */
typedef struct xr_config_value {
    const char *section;
    const char *key;
    const char *text; /* as printed, without quotes */
    const char *origin;
    int given;    /* some layer sets it; else it is the default */
    int is_paths; /* files or folders, between commas */
} xr_config_value;
/* The next of the values that xr_config_print would print, or, where nothing
 * was decoded, of all that were read; 0 past the last. `at` starts as zeros. */
int xr_config_next(const xr_config *config, size_t at[2], xr_config_value *out);

/* Appends a value as an INI file has it: in double quotes where the reader
 * would not give the bare text back. */
void xr_config_put_value(const char *text, xr_str *out);

#endif
