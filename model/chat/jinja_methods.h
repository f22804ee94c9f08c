/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the ids of methods, and the functions with which methods read their
 * arguments.
 */
#ifndef XM_JINJA_METHODS_H
#define XM_JINJA_METHODS_H

#include "model/chat/jinja.h"

enum xm_jmethod_id {
    M_CAPITALIZE,
    M_CASEFOLD,
    M_CENTER,
    M_COUNT,
    M_ENDSWITH,
    M_FIND,
    M_FORMAT,
    M_INDEX,
    M_ISALNUM,
    M_ISALPHA,
    M_ISASCII,
    M_ISDECIMAL,
    M_ISDIGIT,
    M_ISNUMERIC,
    M_ISSPACE,
    M_ISPRINTABLE,
    M_ISLOWER,
    M_ISUPPER,
    M_ISTITLE,
    M_JOIN,
    M_LJUST,
    M_LOWER,
    M_LSTRIP,
    M_PARTITION,
    M_REMOVEPREFIX,
    M_REMOVESUFFIX,
    M_REPLACE,
    M_RFIND,
    M_RINDEX,
    M_RJUST,
    M_RPARTITION,
    M_RSPLIT,
    M_RSTRIP,
    M_SPLIT,
    M_SPLITLINES,
    M_STARTSWITH,
    M_STRIP,
    M_SWAPCASE,
    M_TITLE,
    M_UPPER,
    M_ZFILL,
    M_TEXT_END, /* methods of other types follow */
    M_LIST_COUNT = M_TEXT_END,
    M_LIST_INDEX,
    M_LIST_COPY,
    M_GET,
    M_ITEMS,
    M_KEYS,
    M_VALUES,
    M_DICT_COPY,
    M_CYCLE,
    M_CHANGED,
    M_NEXT,
    M_RESET
};

const char *xm_jmethod_name(enum xm_jmethod_id method);
int xm_jexpect_str(xm_jinterp *interp, const char *what, xm_jvalue arg);
/* Reads an integer; `preset` if the argument is MISSING. */
int xm_jread_integer(xm_jinterp *interp, const char *what, xm_jvalue arg,
                     int64_t preset, int64_t *out);
/* Checks for `least` to `most` arguments, none of them by name. */
int xm_jcheck_positional(xm_jinterp *interp, const char *what,
                         const xm_jargs *args, size_t least, size_t most);
/* jinja_str_methods.c */
int xm_jcall_str_method(xm_jinterp *interp, enum xm_jmethod_id method,
                        xm_jvalue self, const xm_jargs *args, xm_jvalue *out);

#endif
