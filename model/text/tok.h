/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the tokenizer share.
 */
#ifndef XM_TOK_H
#define XM_TOK_H

#include <stdatomic.h>

#include "model/text/class.h"
#include "model/text/tok_text.h"
#include "model/text/tokenizer.h"
#include "model/text/vocab.h"

/* Flags of a token; KNOWN is any token's, the rest an added one's. */
#define XM_TOK_KNOWN 1u
#define XM_TOK_SPECIAL 2u
#define XM_TOK_LSTRIP 4u
#define XM_TOK_RSTRIP 8u
#define XM_TOK_SINGLE_WORD 16u
#define XM_TOK_NORMALIZED 32u
#define XM_TOK_SKIPPED 64u /* by decoding without special tokens */
#define XM_TOK_ADDED 128u

/* The text of an id when decoded, in the pool. */
typedef struct xm_token {
    size_t at;
    size_t size;
    uint32_t flags;
} xm_token;

/* An added token as it is looked for: in the raw text, or in the normalized
 * one with its own content normalized. */
typedef struct xm_added {
    xr_str text;
    xr_str content; /* as the file has it */
    int32_t id;
    uint32_t flags;
    uint32_t shorter; /* the next with the same first byte that is shorter */
} xm_added;

/* A pattern, compiled once; any number of threads may match with it. */
typedef struct xm_regex xm_regex;
/* Takes the syntax that the Hugging Face library reads (Oniguruma's Ruby
 * syntax), as far as it means the same here; the rest is refused by name.
 * `where` is what messages start with. */
xray_status xm_regex_open(const char *pattern, const char *where, xr_err *err,
                          xm_regex **out);
/* A text to find as it stands. */
xray_status xm_regex_literal(const char *text, const char *where, xr_err *err,
                             xm_regex **out);
void xm_regex_close(xm_regex *regex); /* accepts NULL */
/* Appends, as ranges of a class, the characters of a general category that this
 * PCRE2 is too old for. */
void xm_newer(const char *category, xr_str *out);
void xm_newer_script(const char *name, xr_str *out);

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

/* One step of a normalizer. */
enum xm_norm_kind {
    XM_NORM_PREPEND,
    XM_NORM_REPLACE,
    XM_NORM_NFC,
    XM_NORM_NFD,
    XM_NORM_NFKC,
    XM_NORM_NFKD,
    XM_NORM_STRIP,
    XM_NORM_ACCENTS,
    XM_NORM_LOWER,
    XM_NORM_NMT,
    XM_NORM_CHARSMAP,
    XM_NORM_BERT_CLEAN,
    XM_NORM_BERT_CHINESE,
    XM_NORM_BERT_ACCENTS,
    XM_NORM_ALPHABET
};
typedef struct xm_charsmap xm_charsmap;
typedef struct xm_norm {
    enum xm_norm_kind kind;
    int left; /* STRIP */
    int right;
    char *from; /* a string to replace; NULL: `regex` */
    char *to;   /* prepended, or put in the place of matches */
    xm_regex *regex;
    xm_charsmap *map;
} xm_norm;

/* One step of a decoder. BYTES is <0xNN>, ALPHABET is the byte-level
 * alphabet. */
enum xm_dec_kind {
    XM_DEC_REPLACE,
    XM_DEC_BYTES,
    XM_DEC_ALPHABET,
    XM_DEC_FUSE,
    XM_DEC_STRIP,
    XM_DEC_METASPACE,
    XM_DEC_WORDPIECE,
    XM_DEC_BPE,
    XM_DEC_JOIN /* without a decoder: spaces between */
};
typedef struct xm_dec {
    enum xm_dec_kind kind;
    char *from; /* replaced, stripped, a prefix or a suffix */
    char *to;
    xm_regex *regex; /* REPLACE of a pattern */
    uint32_t start;
    uint32_t stop;
    int clean; /* WORDPIECE */
} xm_dec;

#define XM_STEPS 24

/* One step of a pre_tokenizer. */
enum xm_pre_kind {
    XM_PRE_CHARS,   /* every character by itself */
    XM_PRE_REGEX,   /* matches, and what lies between them */
    XM_PRE_SCAN,    /* the same by a scanner of our own, Isolated */
    XM_PRE_CLASS,   /* every character of `mask` is a match */
    XM_PRE_WORDS,   /* runs of \w, and of what is neither \w nor \s */
    XM_PRE_CHAR,    /* the character `from` is a match */
    XM_PRE_SPACE,   /* a space in front where there is none */
    XM_PRE_META,    /* spaces to `from`, one in front, split before each */
    XM_PRE_LENGTH,  /* `length` characters each */
    XM_PRE_ALPHABET /* bytes to the characters that stand for them */
};
enum xm_behavior {
    XM_ISOLATED,
    XM_REMOVED,
    XM_WITH_PREVIOUS,
    XM_WITH_NEXT,
    XM_CONTIGUOUS
};
enum xm_scheme { XM_ALWAYS, XM_FIRST, XM_NEVER };
typedef struct xm_scanner {
    size_t (*next)(const xm_classes *classes, const char *text, size_t size,
                   size_t digits);
    size_t digits; /* at most so many in one word */
} xm_scanner;
typedef struct xm_pre {
    enum xm_pre_kind kind;
    enum xm_behavior behavior;
    int invert;
    unsigned mask;
    enum xm_scheme scheme;
    int split;
    size_t length;
    char from[8];
    xm_scanner scanner;
    xm_regex *regex;
} xm_pre;

enum xm_model_kind { XM_BPE, XM_WORDLEVEL, XM_WORDPIECE, XM_UNIGRAM };

typedef struct xm_merges xm_merges;
typedef struct xm_trie xm_trie;

/* What ids a tokenizer's model has, and how it cuts words. */
typedef struct xm_model {
    enum xm_model_kind kind;
    int byte_fallback;
    int fuse_unk;
    int ignore_merges;
    int32_t unk_id;        /* -1: none */
    int unk_lost;          /* one is named that the vocabulary lacks */
    int32_t byte_ids[256]; /* of <0x00> to <0xFF>; -1 where there is none */
    size_t longest_piece;  /* WordPiece: in bytes */
    char *prefix;          /* of a continuing part; "" without */
    char *suffix;          /* of a word's end; "" without */
    size_t longest_word;   /* WordPiece: in characters */
    xm_merges *merges;
    /* Words come as bytes, not in the alphabet that stands for them. */
    int raw;
    int32_t raw_ids[256];
    xm_vocab raw_words; /* with ignore_merges */
    /* Pairs of neighbouring characters inside tokens; NULL: not known. A text
     * may be cut between two that are no such pair. */
    uint64_t *pairs;
    /* Unigram */
    double *scores;
    double unk_score;
    xm_trie *trie;
} xm_model;

#define XM_ROOMS 16

/* What a text of `size` bytes may grow to on its way: NFKC makes 18 characters
 * of one, a file that asks for more is no tokenizer. */
#define XM_GROWN(size) (((size_t)1 << 20) + 64 * (size))

/* Working memory of one call; kept in the tokenizer between calls. */
typedef struct xm_room xm_room;

struct xm_tokenizer {
    xm_token *tokens;
    size_t token_count;
    xr_str pool;
    xm_vocab ids;    /* of the model's vocabulary */
    xm_added *added; /* by first byte, then longest first */
    size_t added_count;
    xm_vocab added_ids;     /* by their content */
    uint32_t first[2][257]; /* added tokens by first byte, raw and normalized */
    xm_vocab added_texts[2]; /* their places in `added` */
    xm_norm norm[XM_STEPS];
    size_t norm_count;
    xm_dec dec[XM_STEPS];
    size_t dec_count;
    xm_pre pre[XM_STEPS];
    size_t pre_count;
    xm_model model;
    int trim[XM_STEPS]; /* trims of offsets: add_prefix_space of each */
    size_t trim_count;
    int tracks;    /* a step asks where in the original a text stands */
    xm_ids prefix; /* what the post-processor adds */
    xm_ids suffix;
    int32_t bos_id;
    int32_t eos_id;
    xm_classes classes;
    _Atomic(xm_room *) *rooms; /* XM_ROOMS of them; NULL: taken or none */
};

/* Reading tokenizer.json. `where` is the file's path. */
typedef struct xm_reader {
    xm_tokenizer *tok;
    const char *where;
    const char *key; /* the part that is being read */
    xr_err *err;
} xm_reader;
struct cJSON;
xray_status xm_read_no_memory(const xm_reader *r);
xray_status xm_read_refuse(const xm_reader *r, const char *type,
                           const char *known);
/* "pattern" of a Replace or Split: exactly one of the two is set. */
xray_status xm_read_pattern(const xm_reader *r, const struct cJSON *item,
                            const char **out_string, const char **out_regex);
/* The parts of a Replace: of a string that is not empty, or of a pattern. */
xray_status xm_read_replace(const xm_reader *r, const struct cJSON *item,
                            const char **out_string, const char **out_regex,
                            const char **out_to);
/* Reads a step by its "type"; XRAY_END if it is not in the table. */
typedef struct xm_read_kind {
    const char *type;
    xray_status (*read)(const xm_reader *r, const struct cJSON *item);
} xm_read_kind;
xray_status xm_read_kinds(const xm_reader *r, const struct cJSON *item,
                          const xm_read_kind *kinds, size_t count);
/* `one` for a single step, or for each of a Sequence, nested or not. */
xray_status
xm_read_chain(const xm_reader *r, const struct cJSON *item, const char *list,
              xray_status (*one)(const xm_reader *, const struct cJSON *));
/* tokenizer.json and tokenizer_config.json into a zeroed tokenizer. */
xray_status xm_tok_read(xm_tokenizer *tok, const char *dir, xr_err *err);
xray_status xm_read_norm(const xm_reader *r, const struct cJSON *root);
xray_status xm_read_pre(const xm_reader *r, const struct cJSON *root);
xray_status xm_read_dec(const xm_reader *r, const struct cJSON *root);
xray_status xm_read_model(const xm_reader *r, const struct cJSON *model);
xray_status xm_read_bpe(const xm_reader *r, const struct cJSON *model);
xray_status xm_read_unigram(const xm_reader *r, const struct cJSON *model);
xray_status xm_read_added(const xm_reader *r, const struct cJSON *list);
/* "post_processor", or what tokenizer_config.json says without one; bos, eos.
 */
xray_status xm_read_post(const xm_reader *r, const struct cJSON *root,
                         const struct cJSON *config);
/* Room for ids up to `id`; the text of an id. */
int xm_read_reserve(xm_tokenizer *tok, int32_t id);
void xm_read_token(xm_tokenizer *tok, int32_t id, const char *text, size_t size,
                   uint32_t flags);
int xm_read_id(const struct cJSON *item, int32_t *out); /* -1: no id */

/* Id of a token of the vocabulary or an added one; -1: none. */
int32_t xm_tok_id(const xm_tokenizer *tok, const char *text, size_t size);

int xm_ids_push(xm_ids *ids, int32_t id); /* -1: out of memory */

/* What a call of encode carries along. */
typedef struct xm_walk {
    const xm_tokenizer *tok;
    xm_ids *ids;
    xm_token_spans *spans; /* NULL: not asked for */
    int track;             /* texts have maps */
    const char *original;
    size_t limit; /* of the size of a normalized text */
    xr_err *err;
    xm_room *room;
    xm_piece piece; /* that ids are pushed for */
    /* Ends of the first ids that were pushed for it; `apart`: they do not lie
     * side by side. */
    size_t made;
    size_t last;
    int apart;
    uint8_t ends[8];
} xm_walk;

struct xm_room {
    void *regex; /* pcre2's; NULL without a pattern */
    xm_text norm[2];
    xm_text pre[XM_STEPS];
    xr_str scratch;
    struct xm_symbol *symbols;
    size_t symbol_cap;
    void *heap;
    size_t heap_cap;
    struct xm_node *nodes; /* Unigram's */
    size_t node_cap;
    struct xm_cached *cache;
};
xm_room *xm_room_take(const xm_tokenizer *tok); /* NULL: out of memory */
void xm_room_give(const xm_tokenizer *tok, xm_room *room);
void xm_room_free(xm_room *room);

/* Room for `count` elements in a buffer of a room; -1 when out of memory. */
int xm_room_grow(void **buffer, size_t *cap, size_t count, size_t element);

xray_status xm_walk_no_memory(const xm_walk *w);
xray_status xm_walk_too_long(const xm_walk *w);
/* An id for bytes [from, to) of the piece. */
int xm_walk_push(xm_walk *w, int32_t id, size_t from, size_t to);
/* What post-processors with trim_offsets do to the spans from `from` on. */
void xm_trim_spans(xm_walk *w, size_t from);
/* Appends the ids of a normalized text without added tokens. */
xray_status xm_walk_text(xm_walk *w, const xm_piece *piece);
/* Appends the ids of one word. */
xray_status xm_walk_word(xm_walk *w, const xm_piece *piece);
/* The same by the model, without looking into the cache. */
xray_status xm_bpe_word(xm_walk *w, const char *text, size_t size);
xray_status xm_bpe_text(xm_walk *w, const xm_piece *piece);
xray_status xm_unigram_word(xm_walk *w, const char *text, size_t size);
xray_status xm_wordpiece_word(xm_walk *w, const char *text, size_t size);
xray_status xm_wordlevel_word(xm_walk *w, const char *text, size_t size);

/* The steps of the normalizer over a piece of the original; *out may be the
 * piece itself. */
xray_status xm_norm_run(xm_walk *w, const xm_piece *piece, xm_piece *out);
/* One step, from a piece into `out`, or -1 with nothing done where it changes
 * nothing. */
int xm_norm_unicode(const xm_tokenizer *tok, enum xm_norm_kind kind,
                    xm_edit *edit);
xray_status xm_charsmap_open(const char *base64, const char *where, xr_err *err,
                             xm_charsmap **out);
void xm_charsmap_close(xm_charsmap *map); /* accepts NULL */
int xm_charsmap_run(const xm_charsmap *map, xm_edit *edit);
uint32_t xm_lower(uint32_t code);

void xm_merges_free(xm_merges *merges);
void xm_trie_free(xm_trie *trie);

/* The byte-level alphabet: printable characters of Latin-1 stand for their own
 * byte, U+0100 and on for the other bytes in order. */
uint32_t xm_alphabet_code(unsigned byte);
/* Bytes of a text in the alphabet; 0 where a character is outside. */
int xm_alphabet_read(const char *text, size_t size, xr_str *out);
/* Appends bytes as UTF-8: U+FFFD for each longest run that begins a character
 * and breaks off, and for each byte that begins none. Returns how many bytes
 * were read: with `more` a character that breaks off at the end is left. */
size_t xm_utf8_repair(const char *bytes, size_t size, int more, xr_str *out);

/* A scanner for a pattern that is one of the well-known; next is NULL where it
 * is none. */
xm_scanner xm_scan_find(const char *pattern);
extern const char xm_scan_gpt2[]; /* what ByteLevel splits words with */

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
