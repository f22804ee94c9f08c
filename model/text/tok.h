/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the tokenizer share.
 */
#ifndef XM_TOK_H
#define XM_TOK_H

#include "core/base/map.h"
#include "model/text/tokenizer.h"

/* Flags of a token; all but KNOWN are an added token's. */
#define XM_TOK_KNOWN 1u
#define XM_TOK_SPECIAL 2u
#define XM_TOK_LSTRIP 4u
#define XM_TOK_RSTRIP 8u
#define XM_TOK_SINGLE_WORD 16u
#define XM_TOK_NORMALIZED 32u

/* The text of an id, in the pool. */
typedef struct xm_token {
    size_t at;
    size_t size;
    uint32_t flags;
} xm_token;

/* An added token as it is looked for: in the raw text, or in the normalized
 * one with its own content normalized. */
typedef struct xm_added {
    xr_str text;
    int32_t id;
    uint32_t flags;
} xm_added;

/* One step of a normalizer or decoder. BYTES is <0xNN>, ALPHABET is the
 * byte-level alphabet. */
enum xm_step_kind {
    XM_STEP_PREPEND,
    XM_STEP_REPLACE,
    XM_STEP_NFC,
    XM_STEP_BYTES,
    XM_STEP_ALPHABET,
    XM_STEP_FUSE,
    XM_STEP_STRIP
};
typedef struct xm_step {
    enum xm_step_kind kind;
    char *from; /* replaced or stripped */
    char *to;   /* prepended, or put in the place of `from` */
    uint32_t start;
    uint32_t stop;
} xm_step;

#define XM_STEPS 16

typedef struct xm_steps {
    xm_step step[XM_STEPS];
    size_t count;
} xm_steps;

/* A pattern, compiled once; any number of threads may match with it. */
typedef struct xm_regex xm_regex;
/* Takes the syntax that the Hugging Face library reads (Oniguruma's Ruby
 * syntax), as far as it means the same here; the rest is refused by name. */
xray_status xm_regex_open(const char *pattern, const char *where, xr_err *err,
                          xm_regex **out);
void xm_regex_close(xm_regex *regex); /* accepts NULL */

/* The matches in a text, from left to right. An empty match right behind
 * another is passed over. */
typedef struct xm_matches {
    const xm_regex *regex;
    void *room; /* from xm_regex_room, one for each thread */
    const char *text;
    size_t size;
    size_t search;
    size_t last; /* end of the last match + 1; 0: none yet */
} xm_matches;
void *xm_regex_room(void); /* NULL when out of memory */
void xm_regex_room_free(void *room);
/* *out_found = 0 behind the last. */
xray_status xm_regex_next(xm_matches *m, xr_err *err, int *out_found,
                          size_t *out_from, size_t *out_to);

/* One step of a pre_tokenizer. */
enum xm_pre_kind {
    XM_PRE_CHARS,   /* every character by itself */
    XM_PRE_REGEX,   /* matches, and what lies between them */
    XM_PRE_SPACE,   /* a space in front where there is none */
    XM_PRE_ALPHABET /* bytes to the characters that stand for them */
};
typedef struct xm_pre {
    enum xm_pre_kind kind;
    xm_regex *regex;
} xm_pre;

/* (left id, right id) -> (rank, new id): open addressing, `mask` + 1 slots. */
typedef struct xm_merge {
    int32_t left; /* -1: empty */
    int32_t right;
    uint32_t rank;
    int32_t made;
} xm_merge;

struct xm_tokenizer {
    xm_token *tokens;
    size_t token_count;
    xr_str pool;
    xr_map *ids;     /* of the model's vocabulary */
    xm_added *added; /* longest first */
    size_t added_count;
    unsigned char starts[2][256]; /* first bytes, raw and normalized */
    xm_steps normalizer;
    xm_steps decoder;
    int has_decoder;
    xm_pre pre[XM_STEPS];
    size_t pre_count;
    int is_bpe; /* else WordLevel */
    int byte_fallback;
    int fuse_unk;
    int ignore_merges;
    int32_t unk_id;        /* -1: none */
    int32_t byte_ids[256]; /* of <0x00> to <0xFF>; -1 where there is none */
    xm_merge *merges;
    size_t merge_mask;
    size_t merge_count;
    xm_ids prefix; /* what the post-processor adds */
    xm_ids suffix;
    int32_t bos_id;
    int32_t eos_id;
};

/* tokenizer.json and tokenizer_config.json into a zeroed tokenizer. */
xray_status xm_tok_read(xm_tokenizer *tok, const char *dir, xr_err *err);
/* "post_processor", or what tokenizer_config.json says without one; bos, eos.
 */
struct cJSON;
xray_status xm_tok_read_post(xm_tokenizer *tok, const struct cJSON *root,
                             const struct cJSON *config, const char *where,
                             xr_err *err);
/* normalizer and decoder. */
xray_status xm_tok_read_steps(xm_tokenizer *tok, const struct cJSON *root,
                              const char *where, xr_err *err);
xray_status xm_tok_read_pre(xm_tokenizer *tok, const struct cJSON *root,
                            const char *where, xr_err *err);

/* Id of a token of the vocabulary or an added one; -1: none. */
int32_t xm_tok_id(const xm_tokenizer *tok, const char *text, size_t size);

int xm_ids_push(xm_ids *ids, int32_t id); /* -1: out of memory */

/* `to` gets `from` with every `step->from` replaced by `step->to`. */
void xm_tok_replace(const xm_step *step, const char *from, size_t size,
                    xr_str *to);
/* `out` gets the normalized text. */
void xm_tok_normalize(const xm_tokenizer *tok, const char *text, size_t size,
                      xr_str *out);

const xm_merge *xm_tok_merge(const xm_tokenizer *tok, int32_t left,
                             int32_t right);
/* Slot where a pair is, or belongs. */
xm_merge *xm_tok_merge_slot(xm_merge *slots, size_t mask, int32_t left,
                            int32_t right);

/* The byte-level alphabet: printable characters of Latin-1 stand for their own
 * byte, U+0100 and on for the other bytes in order. */
void xm_alphabet_write(const char *bytes, size_t size, xr_str *out);
/* The bytes a token stands for; its own where a character is outside. */
void xm_alphabet_read(const char *text, size_t size, xr_str *out);
/* Appends bytes as UTF-8: U+FFFD for each longest run that begins a character
 * and breaks off, and for each byte that begins none. */
void xm_utf8_repair(const char *bytes, size_t size, xr_str *out);

/* What one call of encode needs on its way through the pre_tokenizer. */
typedef struct xm_walk {
    const xm_tokenizer *tok;
    xm_ids *ids;
    xr_err *err;
    void *room;               /* of the patterns; NULL without one */
    xr_str scratch[XM_STEPS]; /* one text for each step */
} xm_walk;
xray_status xm_walk_open(xm_walk *walk);
void xm_walk_close(xm_walk *walk);
/* Appends the ids of a normalized text without added tokens. */
xray_status xm_walk_text(xm_walk *walk, const char *text, size_t size);

/* Appends the ids of one word. */
xray_status xm_tok_word(const xm_tokenizer *tok, const char *text, size_t size,
                        xm_ids *ids, xr_err *err);

/* Pieces of a text: added tokens and what lies between them. */
typedef struct xm_span {
    size_t from;
    size_t to;
    int32_t id; /* -1: text between */
} xm_span;
typedef struct xm_split {
    const xm_tokenizer *tok;
    const char *text;
    size_t size;
    int normalized;
    size_t done;   /* handed out so far */
    size_t search; /* where matching goes on */
    xm_span held;  /* a match behind a gap; to 0: none */
} xm_split;
int xm_tok_split(xm_split *split, xm_span *out); /* 1, or 0 at the end */

#endif
