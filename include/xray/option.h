/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/option.h - options as a table.
 *
 * A component declares its options in one table. The host derives everything
 * from it: the parser, the validator, the manual page, the JSON schema, the INI
 * template and the "did you mean" hint. A plugin never parses text; it is
 * handed a struct whose fields are filled and checked:
 *
 *     typedef struct config { double beta; int64_t steps; } config;
 *
 *     static const xray_option options[] = {
 *         XRAY_REAL(config, beta, "0.1", 0, 1, NULL, 0u, "0.1", "KL weight."),
 *         XRAY_INT(config, steps, "100", 1, 1e9, "steps", 0u, "0.1",
 * "Warm-up."),
 *     };
 */
#ifndef XRAY_OPTION_H
#define XRAY_OPTION_H

#include <xray/abi.h>

/* Types of options, and the C type of the field that each one fills. */
/* clang-format off */
#define XRAY_OPT_BOOL 1u     /* uint32_t, 0 or 1 */
#define XRAY_OPT_INT 2u      /* int64_t */
#define XRAY_OPT_REAL 3u     /* double */
#define XRAY_OPT_BYTES 4u    /* uint64_t; suffixes K M G T, powers of 1024 */
#define XRAY_OPT_DURATION 5u /* int64_t, nanoseconds; suffixes us ms s min h */
#define XRAY_OPT_STRING 6u   /* const char *, owned by the host */
#define XRAY_OPT_PATH 7u     /* const char *; relative to the INI's folder */
#define XRAY_OPT_CHOICE 8u   /* int64_t, the value of one of `choices` */
#define XRAY_OPT_LIST 9u     /* xray_list; items are separated by commas */
#define XRAY_OPT_TRISTATE 10u /* int64_t: 0, 1, or XRAY_AUTO for "auto" */
/* clang-format on */

#define XRAY_AUTO (-1) /* a TRISTATE that is neither true nor false */

/* Flags of options. */
#define XRAY_OPT_REQUIRED 1u
#define XRAY_OPT_SECRET 2u     /* the value is never printed */
#define XRAY_OPT_DEPRECATED 4u /* `doc` says what replaces it */
#define XRAY_OPT_ADVANCED 8u   /* "x-advanced" in the JSON schema */
#define XRAY_OPT_PATHS 16u     /* LIST: each item is resolved like a PATH */
/* For one PATH option of a training backend: it names a DeepSpeed JSON file,
 * which the host reads. The file's settings of the run become keys of the run's
 * sections. Its settings of the backend become options of this table, by these
 * names: beta1, beta2, eps, weight_decay, stage, offload_optimizer and
 * offload_param ("host" or "none"). Where the JSON sets one that the table
 * lacks, the host refuses the file. docs/deepspeed.md lists every key and what
 * the host tells the user about the others; a backend sets this flag only if
 * all of that is true for it. */
#define XRAY_OPT_DEEPSPEED 32u
/* PATH or STRING: the folder of a model. Where no such folder exists, an id of
 * the Hugging Face hub (ORG/NAME, ORG/NAME@REVISION) stands for its snapshot in
 * the local cache, whose path the field then has. */
#define XRAY_OPT_MODEL 64u

/* The value of a LIST option; the host owns it. */
typedef struct xray_list {
    const char *const *items;
    uint64_t count;
} xray_list;

typedef struct xray_choice {
    const char *name;
    int64_t value;
    const char *doc;
} xray_choice;

typedef struct xray_option {
    const char *name;   /* lower_snake_case */
    uint32_t type;      /* XRAY_OPT_* */
    uint32_t flags;     /* XRAY_OPT_* flags */
    uint64_t offset;    /* of the field in the struct that is filled */
    const char *preset; /* default as text; NULL only for a required option */
    const char *doc;    /* one sentence, then details */
    double min;         /* numbers: inclusive bounds; none if min > max */
    double max;
    const xray_choice *choices; /* CHOICE: ends with an entry of name NULL */
    const char *unit;  /* "tokens", "steps"; NULL if none. DURATION: the suffix
                        * assumed for a number that has none */
    const char *since; /* the plugin's version that introduced the option */
    uint32_t choice_stride; /* sizeof(xray_choice) */
    uint32_t reserved;
} xray_option;

/* Returns the choice after `choice`, which must not be the last one. */
static inline const xray_choice *xray_next_choice(const xray_option *option,
                                                  const xray_choice *choice)
{
    return (const xray_choice *)(const void *)((const char *)choice +
                                               option->choice_stride);
}

/* One macro per type. Each fails to compile if the field's C type is not the
 * one that the option fills. */
#ifdef __cplusplus
extern "C++" { /* in case this file is included inside extern "C" */
template <class want, class have> struct xray_field_has_another_type;
template <class want> struct xray_field_has_another_type<want, want> {
    enum { none = 0 };
};
}
#define XRAY_FIELD_IS_(cfg, field, ctype) \
    (uint64_t)(                           \
        xray_field_has_another_type<ctype, decltype(((cfg *)0)->field)>::none)
#else
#define XRAY_FIELD_IS_(cfg, field, ctype) \
    _Generic(((cfg *)0)->field, ctype : 0u)
#endif
/* clang-format off */
#define XRAY_OPTION_(cfg, field, ctype, type_, flags_, preset_, min_, max_, \
                     choices_, unit_, since_, doc_)                         \
    { #field, type_, flags_,                                                \
      offsetof(cfg, field) + XRAY_FIELD_IS_(cfg, field, ctype),             \
      preset_, doc_, min_, max_, choices_, unit_, since_,                  \
      (uint32_t)sizeof(xray_choice), 0u }
/* clang-format on */

#define XRAY_INT(cfg, field, preset, min, max, unit, flags, since, doc)      \
    XRAY_OPTION_(cfg, field, int64_t, XRAY_OPT_INT, flags, preset, min, max, \
                 NULL, unit, since, doc)
#define XRAY_REAL(cfg, field, preset, min, max, unit, flags, since, doc)     \
    XRAY_OPTION_(cfg, field, double, XRAY_OPT_REAL, flags, preset, min, max, \
                 NULL, unit, since, doc)
#define XRAY_CHOICE(cfg, field, preset, choices, flags, since, doc)         \
    XRAY_OPTION_(cfg, field, int64_t, XRAY_OPT_CHOICE, flags, preset, 1, 0, \
                 choices, NULL, since, doc)
#define XRAY_BOOL(cfg, field, preset, flags, since, doc)                   \
    XRAY_OPTION_(cfg, field, uint32_t, XRAY_OPT_BOOL, flags, preset, 1, 0, \
                 NULL, NULL, since, doc)
/* `doc` says what "auto" means. */
#define XRAY_TRISTATE(cfg, field, preset, flags, since, doc)                  \
    XRAY_OPTION_(cfg, field, int64_t, XRAY_OPT_TRISTATE, flags, preset, 1, 0, \
                 NULL, NULL, since, doc)
#define XRAY_BYTES(cfg, field, preset, min, max, flags, since, doc)        \
    XRAY_OPTION_(cfg, field, uint64_t, XRAY_OPT_BYTES, flags, preset, min, \
                 max, NULL, "bytes", since, doc)
/* `min` and `max` are nanoseconds. */
#define XRAY_DURATION(cfg, field, preset, min, max, unit, flags, since, doc) \
    XRAY_OPTION_(cfg, field, int64_t, XRAY_OPT_DURATION, flags, preset, min, \
                 max, NULL, unit, since, doc)
#define XRAY_STRING(cfg, field, preset, flags, since, doc)                    \
    XRAY_OPTION_(cfg, field, const char *, XRAY_OPT_STRING, flags, preset, 1, \
                 0, NULL, NULL, since, doc)
#define XRAY_LIST(cfg, field, preset, flags, since, doc)                    \
    XRAY_OPTION_(cfg, field, xray_list, XRAY_OPT_LIST, flags, preset, 1, 0, \
                 NULL, NULL, since, doc)
#define XRAY_PATH(cfg, field, preset, flags, since, doc)                       \
    XRAY_OPTION_(cfg, field, const char *, XRAY_OPT_PATH, flags, preset, 1, 0, \
                 NULL, NULL, since, doc)

#endif
