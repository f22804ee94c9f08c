/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares what the parts of the Jinja interpreter share: values with Python's
 * semantics, the syntax tree of a template, and the state of a rendering.
 *
 * Functions that can fail return 0, or -1 with the message in interp->text.
 */
#ifndef XM_JINJA_H
#define XM_JINJA_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"
#include "model/chat/chat.h"

/* Memory that is freed all at once, with its template or after a rendering. */
typedef struct xm_jarena {
    struct xm_jchunk *newest;
    size_t used;
    size_t limit;
} xm_jarena;
/* Returns NULL beyond the limit, or when out of memory. */
void *xm_jarena_alloc(xm_jarena *arena, size_t size);
void xm_jarena_free(xm_jarena *arena);

enum xm_jkind {
    XM_J_MISSING, /* an argument or variable that was not given */
    XM_J_UNDEF,
    XM_J_NONE,
    XM_J_BOOL,
    XM_J_INT,
    XM_J_FLOAT,
    XM_J_STR,
    XM_J_LIST,
    XM_J_TUPLE,
    XM_J_DICT,
    XM_J_RANGE,
    XM_J_ITER, /* a Python generator: read once, always true */
    XM_J_VIEW, /* view of a dict; sub: enum xm_jview */
    XM_J_NS,
    XM_J_MACRO,
    XM_J_FUNC,  /* sub: index of a global function */
    XM_J_BOUND, /* a method bound to its object */
    XM_J_LOOP,
    XM_J_CYCLER,
    XM_J_JOINER
};
enum xm_jview { XM_J_KEYS, XM_J_VALUES, XM_J_ITEMS };

typedef struct xm_jstr {
    const char *text;
    size_t size;
    size_t chars;
} xm_jstr;

typedef struct xm_jvalue {
    uint8_t kind;
    uint8_t markup; /* a string marked by `safe` or `escape` */
    uint16_t sub;
    uint32_t reserved;
    union {
        int64_t i; /* BOOL, INT */
        double f;
        const xm_jstr *str;
        struct xm_jlist *list; /* LIST, TUPLE */
        struct xm_jdict *dict; /* DICT, NS, VIEW */
        struct xm_jrange *range;
        struct xm_jiter *iter;
        const struct xm_jundef *undef; /* may be NULL */
        struct xm_jmacro *macro;
        struct xm_jbound *bound;
        struct xm_jloop *loop;
        struct xm_jcycle *cycle; /* CYCLER, JOINER */
    } u;
} xm_jvalue;

typedef struct xm_jlist {
    xm_jvalue *at;
    size_t count;
    size_t cap;
} xm_jlist;
typedef struct xm_jentry {
    xm_jvalue key;
    xm_jvalue value;
    uint64_t hash;
} xm_jentry;
typedef struct xm_jdict {
    xm_jentry *at; /* in order of insertion */
    size_t count;
    size_t cap;
} xm_jdict;
typedef struct xm_jrange {
    int64_t start;
    int64_t step;
    int64_t count;
    int64_t stop;
} xm_jrange;
typedef struct xm_jiter {
    xm_jlist items;
    size_t next;
} xm_jiter;
/* Why a value is undefined, for the message when it is used. */
typedef struct xm_jundef {
    const char *hint; /* the complete message, or NULL */
    xm_jvalue object; /* that lacks `name`; MISSING: `name` is a variable */
    xm_jvalue name;
} xm_jundef;
typedef struct xm_jbound {
    xm_jvalue self;
    uint32_t method;
} xm_jbound;
typedef struct xm_jcycle {
    xm_jlist items;
    xm_jvalue sep;
    size_t next;
} xm_jcycle;

/* The arguments of a call. */
typedef struct xm_jargs {
    xm_jvalue *at;
    size_t count;
    xm_jentry *named; /* keys are strings */
    size_t named_count;
} xm_jargs;

/* Types of nodes, with the members that each uses. */
enum xm_jnode_type {
    XM_N_CONST,
    XM_N_NAME,    /* id */
    XM_N_TUPLE,   /* list */
    XM_N_LIST,    /* list */
    XM_N_DICT,    /* list: key, value, ... */
    XM_N_ATTR,    /* a, value: the name */
    XM_N_ITEM,    /* a[b] */
    XM_N_SLICE,   /* a:b:c, each may be NULL */
    XM_N_CALL,    /* a(args) */
    XM_N_FILTER,  /* a|id(args) */
    XM_N_TEST,    /* a is id(args) */
    XM_N_NOT,     /* a */
    XM_N_NEG,     /* a */
    XM_N_POS,     /* a */
    XM_N_BINARY,  /* a op b */
    XM_N_AND,     /* a, b */
    XM_N_OR,      /* a, b */
    XM_N_COMPARE, /* a, then list of XM_N_OPERAND */
    XM_N_OPERAND, /* op a */
    XM_N_CONCAT,  /* list */
    XM_N_COND,    /* b if a else c; c may be NULL */
    XM_N_NSREF,   /* id.value, a target */
    /* statements */
    XM_N_DATA,        /* value */
    XM_N_OUTPUT,      /* list of expressions */
    XM_N_BODY,        /* list */
    XM_N_IF,          /* list: condition, body, ...; c: else */
    XM_N_FOR,         /* a: target, b: iterated, c: body; d: test, e: else */
    XM_N_SET,         /* a = b */
    XM_N_SETBLOCK,    /* a: target, b: filters over NULL, c: body */
    XM_N_MACRO,       /* id, list: parameters, c: body */
    XM_N_CALLBLOCK,   /* a: the call, b: an XM_N_MACRO */
    XM_N_FILTERBLOCK, /* b: filters over NULL, c: body */
    XM_N_WITH,        /* list: target, value, ...; c: body */
    XM_N_GENERATION,  /* c: body */
    XM_N_BREAK,
    XM_N_CONTINUE,
    XM_N_PARAM,  /* id; a: default or NULL */
    XM_N_KEYWORD /* value: the name; a */
};
#define XM_J_RECURSIVE 1u /* FOR */
#define XM_J_CALLER 2u    /* MACRO: the body uses caller */
#define XM_J_KWARGS 4u
#define XM_J_VARARGS 8u

typedef struct xm_jnode {
    uint8_t type;
    uint8_t flags;
    uint8_t op; /* token type */
    uint8_t reserved;
    uint32_t line;
    uint32_t depth; /* height of the tree below */
    uint32_t id;
    struct xm_jnode *a;
    struct xm_jnode *b;
    struct xm_jnode *c;
    struct xm_jnode *d;
    struct xm_jnode *e;
    struct xm_jnode **list; /* children, or positional arguments of a call */
    size_t count;
    struct xm_jnode **named; /* XM_N_KEYWORD */
    size_t named_count;
    struct xm_jnode *star;  /* *args */
    struct xm_jnode *stars; /* **kwargs */
    xm_jvalue value;
} xm_jnode;

/* A scope of variables. */
typedef struct xm_jscope {
    struct xm_jscope *up;
    struct xm_jvar {
        uint32_t id;
        xm_jvalue value;
    } * at;
    size_t count;
    size_t cap;
} xm_jscope;

typedef struct xm_jmacro {
    const xm_jnode *node;
    xm_jscope *scope; /* in which it was defined */
} xm_jmacro;

typedef struct xm_jloop {
    xm_jlist items;
    size_t at;
    size_t depth;
    xm_jvalue changed;    /* arguments of the last changed(), or MISSING */
    const xm_jnode *node; /* of a recursive loop, otherwise NULL */
    xm_jscope *scope;     /* that encloses a recursive loop */
} xm_jloop;

/* Ids of the names that every template has. */
enum { XM_J_ID_LOOP, XM_J_ID_CALLER, XM_J_ID_KWARGS, XM_J_ID_VARARGS };

/* A compiled template. */
typedef struct xm_jtemplate {
    xm_jarena arena;
    xm_jnode *body;
    const xm_jstr **names; /* names of variables, by id */
    size_t name_count;
    size_t name_cap;
    int has_generation;
    char *where;
    char *source;
    size_t source_size;
} xm_jtemplate;

/* The state of one compilation or rendering. */
typedef struct xm_jinterp {
    xm_jarena *arena;
    const xm_jtemplate *tmpl;
    char text[800]; /* the message of a failure */
    uint32_t line;
    uint32_t depth;
    uint32_t calls;
    uint32_t nest; /* buffers that enclose the current output */
    uint64_t steps;
    size_t mark;        /* size of the text when the outermost buffer began */
    xm_jvalue *globals; /* by name id */
    xm_jscope *scope;   /* NULL: top level */
    xm_chat_text *out;
    int64_t now;
} xm_jinterp;

XRAY_PRINTF(2, 3) int xm_jfail(xm_jinterp *interp, const char *fmt, ...);
/* Counts work; fails once the rendering has done too much. */
int xm_jcount_work(xm_jinterp *interp, size_t units);
/* Returns zeroed memory of the arena, or NULL with a message. */
void *xm_jalloc(xm_jinterp *interp, size_t count, size_t size);
/* Brackets every recursion, so that its depth is bounded. */
int xm_jenter_level(xm_jinterp *interp);
static inline void xm_jleave_level(xm_jinterp *interp)
{
    interp->depth--;
}

/* jinja_parse.c */
int xm_jcompile(xm_jtemplate *tmpl, xm_jinterp *interp);

/* jinja_eval.c, jinja_exec.c */
int xm_jeval(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out);
/* Evaluates a chain of filters on `in`, or on the chain's own base if `in` is
 * NULL. */
int xm_jeval_filters(xm_jinterp *interp, const xm_jnode *node,
                     const xm_jvalue *in, xm_jvalue *out);
int xm_jeval_args(xm_jinterp *interp, const xm_jnode *node, xm_jargs *out);
/* Returns 1 after a break, 2 after a continue. */
int xm_jexec(xm_jinterp *interp, const xm_jnode *node);
int xm_jset_variable(xm_jinterp *interp, uint32_t id, xm_jvalue value);
/* Output between these two calls goes into *out instead of the text. */
size_t xm_jbuffer_begin(xm_jinterp *interp);
int xm_jbuffer_end(xm_jinterp *interp, size_t mark, xm_jvalue *out);
/* Runs the for loop `node` over `items` inside interp->scope. */
int xm_jexec_loop(xm_jinterp *interp, const xm_jnode *node, xm_jvalue items,
                  size_t depth);

/* jinja_call.c */
int xm_jcall(xm_jinterp *interp, xm_jvalue callee, const xm_jargs *args,
             xm_jvalue *out);
xm_jvalue xm_jfind_function(const xm_jstr *name); /* MISSING: none */
/* Fills `out`, one value per name, from the arguments by position and by name;
 * values not given are MISSING. `names` ends with NULL. */
int xm_jbind_args(xm_jinterp *interp, const char *what, const xm_jargs *args,
                  const char *const *names, size_t required, xm_jvalue *out);
int xm_jfill_dict(xm_jinterp *interp, const xm_jargs *args, xm_jdict *out);

/* jinja_filters.c, jinja_seq_filters.c, jinja_sort_filters.c. */
int xm_jfind_filter(const char *name, size_t size);
int xm_jcall_filter(xm_jinterp *interp, int id, xm_jvalue in,
                    const xm_jargs *args, xm_jvalue *out);
enum xm_jseq {
    XM_J_FIRST,
    XM_J_LAST,
    XM_J_AS_LIST,
    XM_J_PAIRS,
    XM_J_DICTSORT,
    XM_J_MAP,
    XM_J_SELECT,
    XM_J_REJECT,
    XM_J_SELECTATTR,
    XM_J_REJECTATTR,
    XM_J_SORT,
    XM_J_UNIQUE,
    XM_J_REVERSE,
    XM_J_SUM,
    XM_J_MIN,
    XM_J_MAX,
    XM_J_BATCH,
    XM_J_SLICE,
    XM_J_GROUPBY,
    XM_J_JOIN
};
int xm_jcall_seq_filter(xm_jinterp *interp, enum xm_jseq which, xm_jvalue in,
                        const xm_jargs *args, xm_jvalue *out);
/* The filters that sort or compare items. */
int xm_jcall_sort_filter(xm_jinterp *interp, enum xm_jseq which, xm_jvalue in,
                         const xm_jargs *args, xm_jvalue *out);
/* Reads the value at a dotted path, in lower case if `fold` is set. `preset`,
 * which may be NULL, replaces undefined values. */
int xm_jget_path(xm_jinterp *interp, xm_jvalue item, xm_jvalue path,
                 const xm_jvalue *preset, int fold, xm_jvalue *out);
/* jinja_is_tests.c. The find functions return an index, or -1. */
int xm_jfind_test(const char *name, size_t size);
int xm_jcall_test(xm_jinterp *interp, int id, xm_jvalue in,
                  const xm_jargs *args, int *out);

/* jinja_methods.c */
int xm_jfind_method(xm_jvalue self, const xm_jstr *name); /* -1: none */
int xm_jcall_method(xm_jinterp *interp, const xm_jbound *bound,
                    const xm_jargs *args, xm_jvalue *out);
/* Returns why a method of Python is refused here, or NULL. */
const char *xm_jmethod_refused(xm_jvalue self, const xm_jstr *name);

/* jinja_split.c. `right`: rsplit; `parts`: partition. */
int xm_jsplit_text(xm_jinterp *interp, const xm_jstr *str, const xm_jargs *args,
                   int right, int parts, xm_jvalue *out);

/* jinja_ops.c, jinja_access.c */
int xm_jbinary_op(xm_jinterp *interp, int op, xm_jvalue a, xm_jvalue b,
                  xm_jvalue *out);
int xm_jcompare_op(xm_jinterp *interp, int op, xm_jvalue a, xm_jvalue b,
                   int *out);
int xm_jcontains(xm_jinterp *interp, xm_jvalue item, xm_jvalue in, int *out);
int xm_jorder_values(xm_jinterp *interp, const char *op, xm_jvalue a,
                     xm_jvalue b, int *out);
int xm_jget_attr(xm_jinterp *interp, xm_jvalue object, xm_jvalue name,
                 xm_jvalue *out);
/* Only the attribute, without a fallback to an item of that name. */
int xm_jget_own_attr(xm_jinterp *interp, xm_jvalue object, xm_jvalue name,
                     xm_jvalue *out);
int xm_jget_item(xm_jinterp *interp, xm_jvalue object, xm_jvalue key,
                 xm_jvalue *out);
int xm_jget_slice(xm_jinterp *interp, xm_jvalue object,
                  const xm_jvalue bounds[3], xm_jvalue *out);
int xm_jnegate(xm_jinterp *interp, xm_jvalue value, xm_jvalue *out);
int xm_jpower(xm_jinterp *interp, xm_jvalue a, xm_jvalue b, xm_jvalue *out);

/* jinja_value.c */
xm_jvalue xm_jnone(void);
xm_jvalue xm_jbool(int value);
xm_jvalue xm_jint(int64_t value);
xm_jvalue xm_jfloat(double value);
xm_jvalue xm_jvalue_of(enum xm_jkind kind);
/* The number of bytes of a name that a message shows. Names need not end with
 * NUL. */
static inline int xm_jshown_size(size_t size)
{
    return (int)(size < 100 ? size : 100);
}
/* Makes a string of a copy of the text. */
int xm_jstr_copy(xm_jinterp *interp, const char *text, size_t size,
                 xm_jvalue *out);
/* The same, and frees `text`. */
int xm_jstr_take(xm_jinterp *interp, xr_str *text, xm_jvalue *out);
/* The same without a copy: the text must outlive the rendering. */
int xm_jstr_borrow(xm_jinterp *interp, const char *text, size_t size,
                   size_t chars, xm_jvalue *out);
/* Makes an undefined value; see xm_jundef. */
int xm_jundef_new(xm_jinterp *interp, const char *hint, xm_jvalue object,
                  xm_jvalue name, xm_jvalue *out);
/* Fails because an undefined value is used. */
int xm_jfail_undefined(xm_jinterp *interp, xm_jvalue value);
int xm_jlist_new(xm_jinterp *interp, size_t cap, xm_jlist **out);
int xm_jlist_add(xm_jinterp *interp, xm_jlist *list, xm_jvalue value);
xm_jvalue xm_jlist_value(xm_jlist *list, enum xm_jkind kind);
int xm_jiter_new(xm_jinterp *interp, xm_jlist items, xm_jvalue *out);
int xm_jdict_new(xm_jinterp *interp, size_t cap, xm_jdict **out);
int xm_jdict_put(xm_jinterp *interp, xm_jdict *dict, xm_jvalue key,
                 xm_jvalue value);
/* Returns the entry or NULL, also for an unhashable key. */
xm_jentry *xm_jdict_get(xm_jinterp *interp, const xm_jdict *dict,
                        xm_jvalue key);
xm_jentry *xm_jdict_find(const xm_jdict *dict, const char *name);
/* Returns -1 without a message if the value is unhashable. */
int xm_jhash(xm_jinterp *interp, xm_jvalue value, uint64_t *out);
/* Fails with the message for it. */
int xm_jfail_unhashable(xm_jinterp *interp, xm_jvalue value);
const char *xm_jtype_name(xm_jvalue value);
int xm_jis_true(xm_jvalue value);
int xm_jequal(xm_jinterp *interp, xm_jvalue a, xm_jvalue b, int *out);
/* Returns -1 without a message if the value has no length. */
int xm_jlength(xm_jvalue value, size_t *out);
/* The items that a for loop visits. They must not be changed. */
int xm_jread_items(xm_jinterp *interp, xm_jvalue value, xm_jlist *out);
int xm_jis_iterable(xm_jvalue value);
int xm_jis_number(xm_jvalue value);  /* INT, FLOAT or BOOL */
double xm_jto_real(xm_jvalue value); /* of a number */

/* jinja_repr.c: Python's str() and repr(), appended or as a value. */
int xm_jto_str(xm_jinterp *interp, xm_jvalue value, xm_jvalue *out);
int xm_jappend_str(xm_jinterp *interp, xm_jvalue value, xr_str *out);
int xm_jappend_repr(xm_jinterp *interp, xm_jvalue value, xr_str *out);
int xm_jto_repr(xm_jinterp *interp, xm_jvalue value, xm_jvalue *out);
#define XM_J_REAL 40
void xm_jformat_real(double value, char out[XM_J_REAL]);
void xm_jappend_escaped(const xm_jstr *str, xr_str *out); /* HTML */

/* jinja_json.c */
int xm_jfrom_json(xm_jinterp *interp, const cJSON *item, xm_jvalue *out);
int xm_jto_json(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                xm_jvalue *out);

/* jinja_format.c */
int xm_jformat_percent(xm_jinterp *interp, const xm_jstr *format,
                       xm_jvalue values, xm_jvalue *out);
int xm_jformat_braces(xm_jinterp *interp, const xm_jstr *format,
                      const xm_jargs *args, xm_jvalue *out);

/* jinja_text.c and jinja_case.c: strings as Python sees them. */
int xm_jis_space(uint32_t code);
int xm_jis_printable(uint32_t code);
int xm_jis_word_char(uint32_t code); /* \w of a regular expression */
size_t xm_jcount_chars(const char *text, size_t size);
/* Returns the offset of character `index`. */
size_t xm_jchar_offset(const xm_jstr *str, size_t index);
/* Set *out to the offset of the first, or last, `what` in a text; SIZE_MAX:
 * none. */
int xm_jfind_first(xm_jinterp *interp, const char *text, size_t size,
                   const xm_jstr *what, size_t *out);
int xm_jfind_last(xm_jinterp *interp, const char *text, size_t size,
                  const xm_jstr *what, size_t *out);
#define XM_J_LEFT 1
#define XM_J_RIGHT 2
/* Strips white space, or the characters of `chars`. */
int xm_jstrip_chars(xm_jinterp *interp, xm_jvalue str, const xm_jstr *chars,
                    int sides, xm_jvalue *out);
enum xm_jcase {
    XM_J_LOWER,
    XM_J_UPPER,
    XM_J_CAPITAL,
    XM_J_TITLE,      /* the method */
    XM_J_TITLE_WORD, /* the filter */
    XM_J_SWAP,
    XM_J_FOLD
};
int xm_jconvert_case(xm_jinterp *interp, xm_jvalue str, enum xm_jcase how,
                     xm_jvalue *out);
enum xm_jclass {
    XM_J_ISALNUM,
    XM_J_ISALPHA,
    XM_J_ISASCII,
    XM_J_ISDECIMAL,
    XM_J_ISDIGIT,
    XM_J_ISNUMERIC,
    XM_J_ISSPACE,
    XM_J_ISPRINTABLE,
    XM_J_ISLOWER,
    XM_J_ISUPPER,
    XM_J_ISTITLE
};
int xm_jis_class(const xm_jstr *str, enum xm_jclass what);
int xm_jsplit_lines(xm_jinterp *interp, const xm_jstr *str, int keep,
                    xm_jlist *out);
int xm_jreplace_text(xm_jinterp *interp, const xm_jstr *in, const xm_jstr *from,
                     const xm_jstr *to, int64_t limit, xm_jvalue *out);
/* int(text, base) and float(text): 0; -1: not a number; 1: an integer beyond 64
 * bits. */
int xm_jparse_int(const xm_jstr *str, int base, int64_t *out);
int xm_jparse_real(const xm_jstr *str, double *out);

/* jinja_strftime.c */
int xm_jstrftime(xm_jinterp *interp, const xm_jstr *format, xm_jvalue *out);

#endif
