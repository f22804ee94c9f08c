/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of this folder share: how sections and values are kept.
 */
#ifndef XR_CONFIG_INTERNAL_H
#define XR_CONFIG_INTERNAL_H

#include "core/config/config.h"

/* A higher layer is never overwritten by a lower one, whatever the order in
 * which they were read. */
enum {
    XR_LAYER_DEFAULT,
    XR_LAYER_JSON, /* a DeepSpeed JSON that a file names */
    XR_LAYER_FILE,
    XR_LAYER_ENVIRONMENT,
    XR_LAYER_SET,
};

enum {
    XR_ENTRY_KNOWN = 1,   /* some table has the key */
    XR_ENTRY_SECRET = 2,  /* never printed */
    XR_ENTRY_REFUSED = 4, /* the value in force does not decode */
    XR_ENTRY_FOLDED = 8,  /* its meaning is in other keys: not printed */
    XR_ENTRY_PATHS = 16,  /* a path, or a list of them */
};

typedef struct xr_entry {
    const char *key;
    const char *text;    /* NULL: known to a table, set by no layer */
    const char *printed; /* what print writes; NULL: text */
    const char *origin;
    uint32_t layer;
    uint32_t flags;
    const char *dir; /* of the file that set it; NULL: no file did */
    uint32_t file;   /* which reading of a file set it, from 1; 0: none did */
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

/* A variable of the environment that waits for a section of its name. */
typedef struct xr_variable {
    const char *name; /* "XRAY_ACTOR_OPTIM__LR" */
    const char *value;
    int used;
} xr_variable;

typedef struct xr_kept xr_kept; /* a string that lives as long as the config */

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
    struct xr_note *notes; /* of core/deepspeed: no error, but to be said */
};

/* A copy that lives as long as the config; "" when memory ran out. */
const char *xr_config_keep(xr_config *config, const char *text, size_t size);
XRAY_PRINTF(2, 3)
const char *xr_config_keepf(xr_config *config, const char *fmt, ...);
/* A zeroed array that lives as long as the config, or NULL. */
void *xr_config_array(xr_config *config, size_t count, size_t size);

xr_section *xr_section_find(const xr_config *config, const char *name);
/* The section, made if need be; NULL when memory ran out. */
xr_section *xr_section_get(xr_config *config, const char *name,
                           const char *origin);
xr_entry *xr_entry_find(const xr_section *section, const char *key);
/* The entry, made if need be; valid until the next one is made. */
xr_entry *xr_entry_get(xr_config *config, xr_section *section, const char *key);
/* Gives the entry a value if `layer` is not below the one that set it. */
void xr_entry_set(xr_entry *entry, const char *text, const char *origin,
                  uint32_t layer);
/* Moves the variables that name this section into it. */
void xr_section_take_variables(xr_config *config, xr_section *section);
/* 1 if the variable's name belongs to the section; *out_key is then where the
 * key starts. */
int xr_variable_names(const char *variable, const char *section,
                      const char **out_key);

/* A path of a file is relative to the folder of the file that holds it; one of
 * the command line, the environment or a default to the folder the program runs
 * in. */
const char *xr_config_resolve(xr_config *config, const xr_entry *entry,
                              const char *path);

/* Letters, digits, '_' and '-'; with `dots`, '.' too. Not empty. */
int xr_config_name_ok(const char *name, size_t size, int dots);
/* Characters of a section's name or a key: what inih keeps of a section. */
#define XR_NAME_MAX 49u

/* Of [placement]. */
extern const xray_option xr_placement_options[5];
/* Of [actor], [critic] and [ref]. */
extern const xray_option xr_actor_options[11];
extern const xray_option xr_critic_options[9];
extern const xray_option xr_ref_options[1];

#endif
