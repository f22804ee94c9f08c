/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/option.h - declarative options.
 *
 * One table gives the parser, the validator, the manual page, the JSON schema,
 * the INI template and the "did you mean" hint. A plugin never parses text.
 */
#ifndef XRAY_OPTION_H
#define XRAY_OPTION_H

#include <xray/abi.h>

#define XRAY_OPT_BOOL 1u     /* uint32_t */
#define XRAY_OPT_INT 2u      /* int64_t */
#define XRAY_OPT_REAL 3u     /* double */
#define XRAY_OPT_BYTES 4u    /* uint64_t, suffix K M G T (powers of 1024) */
#define XRAY_OPT_DURATION 5u /* int64_t nanoseconds, suffix us ms s min h */
#define XRAY_OPT_STRING 6u   /* const char *, owned by the host */
#define XRAY_OPT_PATH 7u   /* const char *; in an INI relative to its folder */
#define XRAY_OPT_CHOICE 8u /* int64_t, one of `choices` */
#define XRAY_OPT_LIST 9u   /* xray_list: strings between commas */

#define XRAY_OPT_REQUIRED 1u
#define XRAY_OPT_SECRET 2u     /* never printed */
#define XRAY_OPT_DEPRECATED 4u /* `doc` says what replaces it */
#define XRAY_OPT_ADVANCED 8u   /* hidden from the short help */
#define XRAY_OPT_PATHS 16u     /* LIST: each item is resolved as a PATH is */
/* PATH of a training backend, at most one of them: names a DeepSpeed JSON,
 * which the host reads. What it says of the run becomes keys of the run's
 * sections, what it says of the backend options of this table by their names:
 * beta1, beta2, eps, weight_decay, stage, offload_optimizer and offload_param
 * ("host" or "none"). A name that the table lacks is an error where the JSON
 * has the key. docs/deepspeed.md says which key is which, and what the host
 * tells the user of the others: a backend with this flag is one of which that
 * is true. */
#define XRAY_OPT_DEEPSPEED 32u

/* Value of a LIST option; owned by the host. */
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
    uint64_t offset;    /* where the value goes in the config struct */
    const char *preset; /* default as text; NULL only when required */
    const char *doc;    /* one sentence, then detail */
    double min;         /* numbers: inclusive bounds, ignored if min > max */
    double max;
    const xray_choice *choices; /* CHOICE: ends with name == NULL */
    const char *unit;  /* "tokens", "steps"; NULL if none. DURATION: the suffix
                        * that a number without one stands for */
    const char *since; /* version that introduced it */
} xray_option;

/* One macro per type. Each fails to compile if the field has another C type. */
#ifdef __cplusplus
extern "C++" { /* also where a file includes this one in extern "C" */
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
#define XRAY_OPTION_(cfg, field, ctype, type_, flags_, preset_, min_, max_,    \
                     choices_, unit_, since_, doc_)                            \
    {                                                                          \
#field, type_, flags_,                                                 \
            offsetof(cfg, field) + XRAY_FIELD_IS_(cfg, field, ctype), preset_, \
            doc_, min_, max_, choices_, unit_, since_                          \
    }

#define XRAY_INT(cfg, field, preset, min, max, unit, since, doc)          \
    XRAY_OPTION_(cfg, field, int64_t, XRAY_OPT_INT, 0u, preset, min, max, \
                 NULL, unit, since, doc)
#define XRAY_REAL(cfg, field, preset, min, max, unit, since, doc)         \
    XRAY_OPTION_(cfg, field, double, XRAY_OPT_REAL, 0u, preset, min, max, \
                 NULL, unit, since, doc)
#define XRAY_CHOICE(cfg, field, preset, choices, since, doc)             \
    XRAY_OPTION_(cfg, field, int64_t, XRAY_OPT_CHOICE, 0u, preset, 1, 0, \
                 choices, NULL, since, doc)
#define XRAY_BOOL(cfg, field, preset, since, doc)                             \
    XRAY_OPTION_(cfg, field, uint32_t, XRAY_OPT_BOOL, 0u, preset, 1, 0, NULL, \
                 NULL, since, doc)
#define XRAY_BYTES(cfg, field, preset, since, doc)                             \
    XRAY_OPTION_(cfg, field, uint64_t, XRAY_OPT_BYTES, 0u, preset, 1, 0, NULL, \
                 "bytes", since, doc)
/* `min` and `max` count nanoseconds. */
#define XRAY_DURATION(cfg, field, preset, min, max, unit, since, doc)          \
    XRAY_OPTION_(cfg, field, int64_t, XRAY_OPT_DURATION, 0u, preset, min, max, \
                 NULL, unit, since, doc)
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
