/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the Jinja interpreter share: values with Python's
 * semantics, the tree of a template, one rendering.
 *
 * Functions that can fail return 0, or -1 with the message in run->text.
 */
#ifndef XM_JINJA_H
#define XM_JINJA_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/str.h"
#include "model/chat/chat.h"

/* Memory that lives as long as a template or a rendering. */
typedef struct xm_jarena {
    struct xm_jchunk *head;
    size_t used;
    size_t limit;
} xm_jarena;
void *xm_jarena_take(xm_jarena *arena, size_t size); /* NULL: limit or memory */
void xm_jarena_free(xm_jarena *arena);

enum xm_jkind {
    XM_J_MISSING, /* an argument or variable that is not there */
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
    XM_J_ITER, /* Python's generators: read once, always true */
    XM_J_VIEW, /* of a dict; sub: enum xm_jview */
    XM_J_NS,
    XM_J_MACRO,
    XM_J_FUNC,  /* sub: index of a global function */
    XM_J_BOUND, /* a method with its object */
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

typedef struct xm_jv {
    uint8_t kind;
    uint8_t markup; /* a string that `safe` or `escape` marked */
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
} xm_jv;

typedef struct xm_jlist {
    xm_jv *at;
    size_t count;
    size_t cap;
} xm_jlist;
typedef struct xm_jentry {
    xm_jv key;
    xm_jv value;
    uint64_t hash;
} xm_jentry;
typedef struct xm_jdict {
    xm_jentry *at; /* in the order of insertion */
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
/* Why a value is undefined, for the message of whoever uses it. */
typedef struct xm_jundef {
    const char *hint; /* the whole message, or NULL */
    xm_jv object;     /* MISSING: a variable */
    xm_jv name;
} xm_jundef;
typedef struct xm_jbound {
    xm_jv self;
    uint32_t method;
} xm_jbound;
typedef struct xm_jcycle {
    xm_jlist items;
    xm_jv sep;
    size_t next;
} xm_jcycle;

/* Arguments of a call. */
typedef struct xm_jargs {
    xm_jv *at;
    size_t count;
    xm_jentry *named; /* keys are strings */
    size_t named_count;
} xm_jargs;

/* The tree. */
enum xm_jtype {
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
#define XM_J_CALLER 2u    /* MACRO: its body speaks of caller, ... */
#define XM_J_KWARGS 4u
#define XM_J_VARARGS 8u

typedef struct xm_jn {
    uint8_t type;
    uint8_t flags;
    uint8_t op; /* token type */
    uint8_t reserved;
    uint32_t line;
    uint32_t depth; /* of the tree below */
    uint32_t id;
    struct xm_jn *a;
    struct xm_jn *b;
    struct xm_jn *c;
    struct xm_jn *d;
    struct xm_jn *e;
    struct xm_jn **list; /* positional arguments of a call */
    size_t count;
    struct xm_jn **named; /* XM_N_KEYWORD */
    size_t named_count;
    struct xm_jn *star;  /* *args */
    struct xm_jn *stars; /* **kwargs */
    xm_jv value;
} xm_jn;

/* One scope of variables. */
typedef struct xm_jscope {
    struct xm_jscope *up;
    struct xm_jvar {
        uint32_t id;
        xm_jv value;
    } * at;
    size_t count;
    size_t cap;
} xm_jscope;

typedef struct xm_jmacro {
    const xm_jn *node;
    xm_jscope *scope; /* where it was defined */
} xm_jmacro;

typedef struct xm_jloop {
    xm_jlist items;
    size_t at;
    size_t depth;
    xm_jv changed;     /* arguments of the last changed(), or MISSING */
    const xm_jn *node; /* of a recursive loop, else NULL */
    xm_jscope *scope;  /* around a recursive loop */
} xm_jloop;

/* Names that every template has, by id. */
enum { XM_J_ID_LOOP, XM_J_ID_CALLER, XM_J_ID_KWARGS, XM_J_ID_VARARGS };

/* A template of a model. */
typedef struct xm_jtemplate {
    xm_jarena arena;
    xm_jn *body;
    const xm_jstr **names; /* of variables, by id */
    size_t name_count;
    size_t name_cap;
    int has_generation;
    char *where;
    char *source;
    size_t source_size;
} xm_jtemplate;

/* One compilation or rendering. */
typedef struct xm_jrun {
    xm_jarena *arena;
    const xm_jtemplate *tmpl;
    char text[800]; /* the message of a failure */
    uint32_t line;
    uint32_t depth;
    uint32_t calls;
    uint32_t nest; /* buffers around the current output */
    uint64_t steps;
    size_t mark;      /* bytes of the text when the outermost buffer began */
    xm_jv *globals;   /* by name id */
    xm_jscope *scope; /* NULL: top level */
    xm_chat_text *out;
    int64_t now;
} xm_jrun;

XRAY_PRINTF(2, 3) int xm_jfail(xm_jrun *run, const char *fmt, ...);
/* Counts work; -1 when the rendering has done too much. */
int xm_jwork(xm_jrun *run, size_t units);
/* Zeroed memory of the rendering; NULL with a message. */
void *xm_jtake(xm_jrun *run, size_t count, size_t size);
/* Around everything that recurses. */
int xm_jenter(xm_jrun *run);
static inline void xm_jleave(xm_jrun *run)
{
    run->depth--;
}

/* jinja_parse.c */
int xm_jcompile(xm_jtemplate *tmpl, xm_jrun *run);

/* jinja_eval.c, jinja_exec.c */
int xm_jeval(xm_jrun *run, const xm_jn *node, xm_jv *out);
/* A chain of filters over `in`, or over its own base where that is NULL. */
int xm_jfilters(xm_jrun *run, const xm_jn *node, const xm_jv *in, xm_jv *out);
int xm_jeval_args(xm_jrun *run, const xm_jn *node, xm_jargs *out);
int xm_jexec(xm_jrun *run, const xm_jn *node); /* 1: break, 2: continue */
int xm_jset(xm_jrun *run, uint32_t id, xm_jv value);
/* Between the two, output goes into *out instead of the text. */
size_t xm_jbuffer(xm_jrun *run);
int xm_jbuffered(xm_jrun *run, size_t mark, xm_jv *out);
/* The loop over `items` of a for, within run->scope. */
int xm_jrun_for(xm_jrun *run, const xm_jn *node, xm_jv items, size_t depth);

/* jinja_call.c */
int xm_jcall(xm_jrun *run, xm_jv callee, const xm_jargs *args, xm_jv *out);
int xm_jcall_macro(xm_jrun *run, xm_jv callee, const xm_jargs *args,
                   xm_jv *out);
xm_jv xm_jglobal(const xm_jstr *name); /* MISSING when there is none */
/* Fills out[0..max) from the arguments by position and name; what is not given
 * is MISSING. `names` ends with NULL. */
int xm_jbind(xm_jrun *run, const char *what, const xm_jargs *args,
             const char *const *names, size_t required, xm_jv *out);
int xm_jdict_call(xm_jrun *run, const xm_jargs *args, xm_jdict *out);

/* jinja_filters.c, jinja_seq.c, jinja_tests.c: index or -1 by name. */
int xm_jfilter_find(const char *name, size_t size);
int xm_jfilter(xm_jrun *run, int id, xm_jv in, const xm_jargs *args,
               xm_jv *out);
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
int xm_jseq_filter(xm_jrun *run, enum xm_jseq which, xm_jv in,
                   const xm_jargs *args, xm_jv *out);
/* The filters that sort, and the getter they share: the value at a dotted path,
 * in lower case where `fold` is set. */
int xm_jorder_filter(xm_jrun *run, enum xm_jseq which, xm_jv in,
                     const xm_jargs *args, xm_jv *out);
int xm_jpath(xm_jrun *run, xm_jv item, xm_jv path, const xm_jv *preset,
             int fold, xm_jv *out);
int xm_jtest_find(const char *name, size_t size);
int xm_jtest(xm_jrun *run, int id, xm_jv in, const xm_jargs *args, int *out);

/* jinja_methods.c */
int xm_jmethod_find(xm_jv self, const xm_jstr *name); /* -1: none */
int xm_jmethod(xm_jrun *run, const xm_jbound *bound, const xm_jargs *args,
               xm_jv *out);
/* Why a method is no attribute of its own (it changes the object), or NULL. */
const char *xm_jmethod_unsafe(xm_jv self, const xm_jstr *name);

/* jinja_split.c; `parts`: partition. */
int xm_jsplit(xm_jrun *run, const xm_jstr *str, const xm_jargs *args, int right,
              int parts, xm_jv *out);

/* jinja_ops.c, jinja_access.c */
int xm_jbinary(xm_jrun *run, int op, xm_jv a, xm_jv b, xm_jv *out);
int xm_jcompare(xm_jrun *run, int op, xm_jv a, xm_jv b, int *out);
int xm_jcontains(xm_jrun *run, xm_jv item, xm_jv in, int *out);
int xm_jorder(xm_jrun *run, const char *op, xm_jv a, xm_jv b, int *out);
int xm_jattr(xm_jrun *run, xm_jv object, xm_jv name, xm_jv *out);
/* The attribute alone: no item of that name. */
int xm_jown_attr(xm_jrun *run, xm_jv object, xm_jv name, xm_jv *out);
int xm_jitem(xm_jrun *run, xm_jv object, xm_jv key, xm_jv *out);
int xm_jslice(xm_jrun *run, xm_jv object, const xm_jv bounds[3], xm_jv *out);
int xm_jnegate(xm_jrun *run, xm_jv value, xm_jv *out);
int xm_jpower(xm_jrun *run, xm_jv a, xm_jv b, xm_jv *out);

/* jinja_value.c */
xm_jv xm_jnone(void);
xm_jv xm_jbool(int value);
xm_jv xm_jint(int64_t value);
xm_jv xm_jfloat(double value);
xm_jv xm_jof(enum xm_jkind kind);
/* How much of a name a message shows: not all end with NUL. */
static inline int xm_jshown(size_t size)
{
    return (int)(size < 100 ? size : 100);
}
int xm_jstring(xm_jrun *run, const char *text, size_t size, xm_jv *out);
/* The same without a copy: the text outlives the rendering. */
int xm_jborrow(xm_jrun *run, const char *text, size_t size, size_t chars,
               xm_jv *out);
int xm_jtext(xm_jrun *run, xr_str *text, xm_jv *out); /* frees `text` */
int xm_jundefined(xm_jrun *run, const char *hint, xm_jv object, xm_jv name,
                  xm_jv *out);
int xm_jfail_undefined(xm_jrun *run, xm_jv value);
int xm_jlist_new(xm_jrun *run, size_t cap, xm_jlist **out);
int xm_jlist_add(xm_jrun *run, xm_jlist *list, xm_jv value);
xm_jv xm_jlist_value(xm_jlist *list, enum xm_jkind kind);
int xm_jiter_new(xm_jrun *run, xm_jlist items, xm_jv *out);
int xm_jdict_new(xm_jrun *run, size_t cap, xm_jdict **out);
int xm_jdict_put(xm_jrun *run, xm_jdict *dict, xm_jv key, xm_jv value);
/* The entry or NULL; an unhashable key is not there. */
xm_jentry *xm_jdict_get(xm_jrun *run, const xm_jdict *dict, xm_jv key);
xm_jentry *xm_jdict_text(const xm_jdict *dict, const char *name);
int xm_jhash(xm_jrun *run, xm_jv value, uint64_t *out); /* -1: unhashable */
int xm_junhashable(xm_jrun *run, xm_jv value);          /* the message for it */
const char *xm_jtypename(xm_jv value);
int xm_jtruth(xm_jv value);
int xm_jequal(xm_jrun *run, xm_jv a, xm_jv b, int *out);
/* -1 without a message when the value has no length. */
int xm_jlength(xm_jv value, size_t *out);
/* What a for loop visits; the items must not be changed. */
int xm_jitems(xm_jrun *run, xm_jv value, xm_jlist *out);
int xm_jiterable(xm_jv value);
int xm_jis_number(xm_jv value); /* INT, FLOAT or BOOL */
double xm_jreal(xm_jv value);   /* of a number */

/* jinja_print.c: Python's str() and repr(). */
int xm_jstr_of(xm_jrun *run, xm_jv value, xm_jv *out);
int xm_jprint(xm_jrun *run, xm_jv value, xr_str *out);
int xm_jrepr(xm_jrun *run, xm_jv value, xr_str *out);
int xm_jrepr_of(xm_jrun *run, xm_jv value, xm_jv *out);
#define XM_J_REAL 40
void xm_jreal_text(double value, char out[XM_J_REAL]);
void xm_jescape(const xm_jstr *str, xr_str *out); /* HTML */

/* jinja_json.c */
int xm_jfrom_json(xm_jrun *run, const cJSON *item, xm_jv *out);
int xm_jtojson(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out);

/* jinja_format.c */
int xm_jpercent(xm_jrun *run, const xm_jstr *format, xm_jv values, xm_jv *out);
int xm_jformat(xm_jrun *run, const xm_jstr *format, const xm_jargs *args,
               xm_jv *out);

/* jinja_text.c: strings as Python sees them. */
int xm_jspace(uint32_t code);
int xm_jprintable(uint32_t code);
int xm_jword(uint32_t code); /* \w of a regular expression */
size_t xm_jchars(const char *text, size_t size);
/* The byte where character `index` starts. */
size_t xm_joffset(const xm_jstr *str, size_t index);
/* Byte of the first (last: the last) `what` in text, or SIZE_MAX. */
int xm_jfind(xm_jrun *run, const char *text, size_t size, const xm_jstr *what,
             size_t *out);
int xm_jrfind(xm_jrun *run, const char *text, size_t size, const xm_jstr *what,
              size_t *out);
#define XM_J_LEFT 1
#define XM_J_RIGHT 2
/* Strips white space, or the characters of `chars`. */
int xm_jstrip(xm_jrun *run, xm_jv str, const xm_jstr *chars, int sides,
              xm_jv *out);
enum xm_jcase {
    XM_J_LOWER,
    XM_J_UPPER,
    XM_J_CAPITAL,
    XM_J_TITLE,      /* the method */
    XM_J_TITLE_WORD, /* the filter */
    XM_J_SWAP,
    XM_J_FOLD
};
int xm_jcase(xm_jrun *run, xm_jv str, enum xm_jcase how, xm_jv *out);
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
int xm_jis(const xm_jstr *str, enum xm_jclass what);
int xm_jlines(xm_jrun *run, const xm_jstr *str, int keep, xm_jlist *out);
int xm_jreplace(xm_jrun *run, const xm_jstr *in, const xm_jstr *from,
                const xm_jstr *to, int64_t limit, xm_jv *out);
/* int(text, base), float(text): 0, or -1 when the text is none; 1: an integer
 * beyond 64 bits. */
int xm_jparse_int(const xm_jstr *str, int base, int64_t *out);
int xm_jparse_real(const xm_jstr *str, double *out);

/* jinja_time.c */
int xm_jstrftime(xm_jrun *run, const xm_jstr *format, xm_jv *out);

#endif
