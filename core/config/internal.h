/* SPDX-License-Identifier: Apache-2.0
 *
 * Shares the representation of sections and values among the files of this
 * room.
 */
#ifndef XR_CONFIG_INTERNAL_H
#define XR_CONFIG_INTERNAL_H

#include "core/config/sections.h"

/* A lower layer never overwrites a higher one, whatever the order in which they
 * are read. */
enum {
    XR_LAYER_DEFAULT,
    XR_LAYER_JSON, /* a DeepSpeed JSON that a file names */
    XR_LAYER_FILE,
    XR_LAYER_ENVIRONMENT,
    XR_LAYER_SET,
};

enum {
    XR_ENTRY_KNOWN = 1,   /* an option table has the key */
    XR_ENTRY_SECRET = 2,  /* never printed */
    XR_ENTRY_REFUSED = 4, /* the value in force does not decode */
    XR_ENTRY_FOLDED = 8,  /* its meaning is expressed by other keys: not
                           * printed */
    XR_ENTRY_PATHS = 16,  /* a path, or a list of them */
};

typedef struct xr_entry {
    const char *key;
    const char *text;    /* NULL: a table has the key, but no layer sets it */
    const char *printed; /* text to print; NULL: `text` */
    const char *origin;
    uint32_t layer;
    uint32_t flags;
    const char *dir; /* folder of the file that set it; NULL: no file did */
    uint32_t file;   /* number of the read file that set it, from 1; 0: none */
    uint32_t line;
} xr_entry;

typedef struct xr_section {
    const char *name;
    const char *origin;
    xr_entry *entries;
    size_t count;
    size_t cap;
    int decoded;
    int ignored;
} xr_section;

/* An environment variable that waits for a section of its name. */
typedef struct xr_variable {
    const char *name; /* "XRAY_ACTOR_OPTIM__LR" */
    const char *value;
    int used;
} xr_variable;

typedef struct xr_kept xr_kept; /* memory that lives as long as the config */

/* A remark on an id of the hub. */
typedef struct xr_found {
    struct xr_found *next; /* NULL: the last */
    const char *text;
} xr_found;

struct xr_config {
    xr_section *sections;
    size_t count;
    size_t cap;
    xr_variable *variables;
    size_t variable_count;
    xr_kept *kept;
    const char *first;     /* the first file's path, as given */
    uint32_t files;        /* files read so far */
    int failed;            /* memory ran out */
    int unread;            /* a file, included or not, could not be read */
    xr_found *found;       /* ids that stand for snapshots, in order */
    struct xr_note *notes; /* of core/deepspeed: remarks that are not errors */
};

/* A copy that lives as long as the config; "" when out of memory. */
const char *xr_config_keep(xr_config *config, const char *text, size_t size);
XRAY_PRINTF(2, 3)
const char *xr_config_keepf(xr_config *config, const char *fmt, ...);
/* A zeroed array that lives as long as the config; NULL when out of memory. */
void *xr_config_array(xr_config *config, size_t count, size_t size);

xr_section *xr_section_find(const xr_config *config, const char *name);
/* Returns the section, which is created if necessary; NULL when out of
 * memory. */
xr_section *xr_section_get(xr_config *config, const char *name,
                           const char *origin);
xr_entry *xr_entry_find(const xr_section *section, const char *key);
/* Returns the entry, which is created if necessary. The pointer is valid until
 * the next entry is created. */
xr_entry *xr_entry_get(xr_config *config, xr_section *section, const char *key);
/* Sets the entry's value unless a layer above `layer` has set it. */
void xr_entry_set(xr_entry *entry, const char *text, const char *origin,
                  uint32_t layer);
/* Moves environment variables of this section into it. */
void xr_section_take_variables(xr_config *config, xr_section *section);
/* 1 if the variable's name belongs to the section; *out_key then points to its
 * key. */
int xr_variable_names(const char *variable, const char *section,
                      const char **out_key);

/* Resolves a path: one set in a file is relative to the folder of that file;
 * one from the command line, the environment or a default is relative to the
 * working directory. */
const char *xr_config_resolve(xr_config *config, const xr_entry *entry,
                              const char *path);

/* 1 if the name is not empty and consists of letters, digits, '_' and '-', and
 * with `dots` also of '.'. */
int xr_config_name_ok(const char *name, size_t size, int dots);
/* Most characters of a section's name or a key: inih cuts section names
 * there. */
#define XR_NAME_MAX 49u

/* Checks what tables cannot express and fills in settings that default to
 * others. */
void xr_run_check(const xr_config *config, xr_run_config *run,
                  xr_errors *errors);

/* Append "; a name of veRL, here [run] ranks" for a key of veRL that is called
 * otherwise here, and return 1; else 0. The first is for keys of sections that
 * exist here, the second for those of sections that only veRL has. */
int xr_verl_key(const char *section, const char *key, xr_str *out);
int xr_verl_section_key(const xr_config *config, const char *section,
                        const char *key, xr_str *out);

/* Options of [placement], [runtime] and [runtime.hosts]. */
extern const xray_option xr_placement_options[6];
extern const xray_option xr_runtime_options[3];
extern const xray_option xr_hosts_options[1];
/* Options of [actor], [critic] and [ref]. */
extern const xray_option xr_actor_options[12];
extern const xray_option xr_critic_options[9];
extern const xray_option xr_ref_options[1];

#endif
