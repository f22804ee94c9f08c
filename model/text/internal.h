/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the types and functions that the files of the tokenizer share.
 */
#ifndef XM_TEXT_INTERNAL_H
#define XM_TEXT_INTERNAL_H

#include <stdatomic.h>

#include "model/text/char_class.h"
#include "model/text/tokenizer.h"
#include "model/text/tracked_text.h"
#include "model/text/vocab.h"

/* Flags of a token. KNOWN is set for every id in use, the others only for added
 * tokens. */
#define XM_TOK_KNOWN 1u
#define XM_TOK_SPECIAL 2u
#define XM_TOK_LSTRIP 4u
#define XM_TOK_RSTRIP 8u
#define XM_TOK_SINGLE_WORD 16u
#define XM_TOK_NORMALIZED 32u
#define XM_TOK_SKIPPED 64u /* left out by a decode without special tokens */
#define XM_TOK_ADDED 128u

/* The text that an id decodes to, as bytes of the pool. */
typedef struct xm_token {
    size_t at;
    size_t size;
    uint32_t flags;
} xm_token;

/* An added token. It is searched for in the raw text, or, with its own content
 * normalized, in the normalized text. */
typedef struct xm_added {
    xr_str text;
    xr_str content; /* as written in the file */
    int32_t id;
    uint32_t flags;
    uint32_t shorter; /* index of the next shorter one of this first byte */
} xm_added;

/* A compiled pattern. Any number of threads may match with it. */
typedef struct xm_regex xm_regex;
/* Compiles a pattern in the syntax that the Hugging Face library reads
 * (Oniguruma's Ruby syntax), as far as PCRE2 can give it the same meaning; the
 * rest is refused by name. Messages start with `where`. */
xray_status xm_regex_open(const char *pattern, const char *where, xr_err *err,
                          xm_regex **out);
/* Compiles a pattern that matches `text` literally. */
xray_status xm_regex_literal(const char *text, const char *where, xr_err *err,
                             xm_regex **out);
void xm_regex_close(xm_regex *regex); /* accepts NULL */
/* Appends, as ranges of a character class, the characters of a general
 * category, or of a script, that the installed PCRE2 is too old to know. */
void xm_unicode16_category(const char *category, xr_str *out);
void xm_unicode16_script(const char *name, xr_str *out);

/* Finds the matches in a text from left to right. An empty match directly after
 * another match is skipped. */
typedef struct xm_matches {
    const xm_regex *regex;
    void *workspace; /* from xm_regex_workspace, one per thread */
    const char *text;
    size_t size;
    size_t search;
    size_t last; /* end of the last match + 1; 0: none yet */
} xm_matches;
void *xm_regex_workspace(void); /* NULL when out of memory */
void xm_regex_workspace_free(void *workspace);
/* Sets *out_found to 0 after the last match. */
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
typedef struct xm_norm_step {
    enum xm_norm_kind kind;
    int left; /* STRIP */
    int right;
    char *from; /* the string to replace; NULL: `regex` */
    char *to;   /* the text to prepend, or the replacement */
    xm_regex *regex;
    xm_charsmap *map;
} xm_norm_step;

/* One step of a decoder. BYTES reads tokens of the form <0xNN>, ALPHABET reads
 * the byte-level alphabet. */
enum xm_dec_kind {
    XM_DEC_REPLACE,
    XM_DEC_BYTES,
    XM_DEC_ALPHABET,
    XM_DEC_FUSE,
    XM_DEC_STRIP,
    XM_DEC_METASPACE,
    XM_DEC_WORDPIECE,
    XM_DEC_BPE,
    XM_DEC_JOIN /* no decoder: joins tokens with spaces */
};
typedef struct xm_decoder_step {
    enum xm_dec_kind kind;
    char *from; /* the string to replace or strip, or an affix */
    char *to;
    xm_regex *regex; /* REPLACE with a pattern */
    uint32_t start;
    uint32_t stop;
    int clean; /* WORDPIECE */
} xm_decoder_step;

#define XM_STEPS 24

/* One step of a pre_tokenizer. */
enum xm_pre_kind {
    XM_PRE_CHARS,   /* splits off every character */
    XM_PRE_REGEX,   /* splits into matches and the text between */
    XM_PRE_SCAN,    /* the same, Isolated, without PCRE2 */
    XM_PRE_CLASS,   /* every character with a class of `mask` matches */
    XM_PRE_WORDS,   /* runs of \w, and runs of neither \w nor \s */
    XM_PRE_CHAR,    /* the character `from` matches */
    XM_PRE_SPACE,   /* prepends a space unless there is one */
    XM_PRE_META,    /* Metaspace: writes spaces as `from` */
    XM_PRE_LENGTH,  /* pieces of `length` characters */
    XM_PRE_ALPHABET /* writes bytes in the byte-level alphabet */
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
    size_t (*next)(const xm_char_classes *classes, const char *text,
                   size_t size, size_t digits);
    size_t digits; /* most digits in one word */
} xm_scanner;
typedef struct xm_pre_step {
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
} xm_pre_step;

enum xm_model_kind { XM_BPE, XM_WORDLEVEL, XM_WORDPIECE, XM_UNIGRAM };

typedef struct xm_merges xm_merges;
typedef struct xm_trie xm_trie;

/* The model of a tokenizer: how it cuts words into tokens. */
typedef struct xm_model {
    enum xm_model_kind kind;
    int byte_fallback;
    int fuse_unk;
    int ignore_merges;
    int32_t unk_id;        /* -1: none */
    int unk_lost;          /* the file names one that the vocabulary lacks */
    int32_t byte_ids[256]; /* of <0x00> to <0xFF>; -1: not in the vocabulary */
    size_t longest_piece;  /* WordPiece: in bytes */
    char *prefix;          /* of a token inside a word; "" for none */
    char *suffix;          /* of a token at the end of a word; "" for none */
    size_t longest_word;   /* WordPiece: in characters */
    xm_merges *merges;
    /* Words arrive as raw bytes instead of in the byte-level alphabet. */
    int raw;
    int32_t raw_ids[256];
    xm_vocab raw_words; /* with ignore_merges */
    /* A set of bits for the pairs of neighbouring characters inside tokens;
     * NULL: unknown. A text may be cut between two characters that are no such
     * pair. */
    uint64_t *pairs;
    /* Unigram */
    double *scores;
    double unk_score;
    xm_trie *trie;
} xm_model;

#define XM_WORKSPACES 16

/* The most bytes that normalization may make of a text of `size` bytes. NFKC
 * turns one character into up to 18; no real tokenizer needs more. */
#define XM_GROWN(size) (((size_t)1 << 20) + 64 * (size))

/* Working memory of one call, kept in the tokenizer between calls. */
typedef struct xm_workspace xm_workspace;

struct xm_tokenizer {
    xm_token *tokens;
    size_t token_count;
    xr_str pool;
    xm_vocab ids;    /* of the model's vocabulary */
    xm_added *added; /* sorted by first byte, longest first */
    size_t added_count;
    xm_vocab added_ids; /* by content */
    /* Both raw and normalized: the index in `added` at which each first byte
     * starts, and the index of each text. */
    uint32_t first[2][257];
    xm_vocab added_texts[2];
    xm_norm_step norm[XM_STEPS];
    size_t norm_count;
    xm_decoder_step dec[XM_STEPS];
    size_t dec_count;
    xm_pre_step pre[XM_STEPS];
    size_t pre_count;
    xm_model model;
    /* add_prefix_space of each post-processor with trim_offsets */
    int trim[XM_STEPS];
    size_t trim_count;
    int tracks;    /* a step needs offsets in the original text */
    xm_ids prefix; /* ids that the post-processor adds */
    xm_ids suffix;
    int32_t bos_id;
    int32_t eos_id;
    xm_char_classes classes;
    /* XM_WORKSPACES slots; NULL: in use or not yet made */
    _Atomic(xm_workspace *) *workspaces;
};

/* The state of reading a tokenizer.json. */
typedef struct xm_reader {
    xm_tokenizer *tok;
    const char *where;
    const char *key; /* the part being read */
    xr_err *err;
} xm_reader;
struct cJSON;
xray_status xm_read_no_memory(const xm_reader *r);
xray_status xm_read_refuse(const xm_reader *r, const char *type,
                           const char *known);
/* Reads "pattern" of a Replace or Split. Exactly one of the two is set, the
 * other is NULL. */
xray_status xm_read_pattern(const xm_reader *r, const struct cJSON *item,
                            const char **out_string, const char **out_regex);
/* Reads a Replace: a pattern or a string that is not empty, and its
 * replacement. */
xray_status xm_read_replace(const xm_reader *r, const struct cJSON *item,
                            const char **out_string, const char **out_regex,
                            const char **out_to);
/* The function that reads a step of one "type". */
typedef struct xm_step_reader {
    const char *type;
    xray_status (*read)(const xm_reader *r, const struct cJSON *item);
} xm_step_reader;
/* Reads a step by its "type"; XRAY_END if the table has no reader for it. */
xray_status xm_read_by_type(const xm_reader *r, const struct cJSON *item,
                            const xm_step_reader *kinds, size_t count);
/* Calls `one` for a single step, or for each step of a Sequence, also of nested
 * ones. */
xray_status
xm_read_sequence(const xm_reader *r, const struct cJSON *item, const char *list,
                 xray_status (*one)(const xm_reader *, const struct cJSON *));
/* Reads tokenizer.json and tokenizer_config.json into a zeroed tokenizer. */
xray_status xm_tokenizer_read(xm_tokenizer *tok, const char *dir, xr_err *err);
xray_status xm_read_normalizer(const xm_reader *r, const struct cJSON *root);
xray_status xm_read_pre_tokenizer(const xm_reader *r, const struct cJSON *root);
xray_status xm_read_decoder(const xm_reader *r, const struct cJSON *root);
xray_status xm_read_model(const xm_reader *r, const struct cJSON *model);
xray_status xm_read_bpe(const xm_reader *r, const struct cJSON *model);
xray_status xm_read_added_tokens(const xm_reader *r, const struct cJSON *list);
/* Reads "post_processor" and the BOS and EOS tokens. Without a post-processor
 * the rules of tokenizer_config.json apply. */
xray_status xm_read_post_processor(const xm_reader *r, const struct cJSON *root,
                                   const struct cJSON *config);
/* Grows the table of tokens to hold `id`; sets the text of an id. */
int xm_read_reserve(xm_tokenizer *tok, int32_t id);
void xm_read_token(xm_tokenizer *tok, int32_t id, const char *text, size_t size,
                   uint32_t flags);
int xm_read_id(const struct cJSON *item, int32_t *out); /* -1: not an id */

/* The id of a token of the vocabulary or of an added token; -1: none. */
int32_t xm_tokenizer_find(const xm_tokenizer *tok, const char *text,
                          size_t size);

int xm_ids_push(xm_ids *ids, int32_t id); /* -1: out of memory */

/* The state of one call of encode. */
typedef struct xm_encoding {
    const xm_tokenizer *tok;
    xm_ids *ids;
    xm_token_spans *spans; /* NULL: not wanted */
    int track;             /* texts carry maps to the original */
    const char *original;
    size_t limit; /* most bytes of a normalized text */
    xr_err *err;
    xm_workspace *workspace;
    xm_piece piece; /* the piece that ids are being pushed for */
    /* Number of ids pushed for it, end of the last, and ends of the first ones.
     * `apart` is set when their spans are not adjacent. */
    size_t made;
    size_t last;
    int apart;
    uint8_t ends[8];
} xm_encoding;

struct xm_workspace {
    void *regex; /* match data of PCRE2 */
    xm_text norm[2];
    xm_text pre[XM_STEPS];
    xr_str scratch;
    struct xm_symbol *symbols;
    size_t symbol_cap;
    void *heap;
    size_t heap_cap;
    struct xm_node *nodes; /* of Unigram */
    size_t node_cap;
    struct xm_cached_word *cache;
};
/* Returns NULL when out of memory. */
xm_workspace *xm_workspace_take(const xm_tokenizer *tok);
void xm_workspace_give(const xm_tokenizer *tok, xm_workspace *workspace);
void xm_workspace_free(xm_workspace *workspace);

/* Grows a buffer to hold `count` elements; -1: out of memory. */
int xm_grow_buffer(void **buffer, size_t *cap, size_t count, size_t element);

xray_status xm_encode_no_memory(const xm_encoding *enc);
xray_status xm_encode_too_long(const xm_encoding *enc);
/* Pushes an id for bytes [from, to) of the piece. */
int xm_push_id(xm_encoding *enc, int32_t id, size_t from, size_t to);
/* Applies the post-processors with trim_offsets to the spans from index `from`
 * on. */
void xm_trim_spans(xm_encoding *enc, size_t from);
/* Appends the ids of a normalized text without added tokens. */
xray_status xm_pre_tokenize(xm_encoding *enc, const xm_piece *piece);
/* Appends the ids of one word. */
xray_status xm_encode_word(xm_encoding *enc, const xm_piece *piece);
/* The same by one kind of model, without the cache. */
xray_status xm_bpe_word(xm_encoding *enc, const char *text, size_t size);
xray_status xm_bpe_text(xm_encoding *enc, const xm_piece *piece);
xray_status xm_unigram_word(xm_encoding *enc, const char *text, size_t size);
xray_status xm_wordpiece_word(xm_encoding *enc, const char *text, size_t size);
xray_status xm_wordlevel_word(xm_encoding *enc, const char *text, size_t size);

/* Runs all steps of the normalizer on a piece of the original. *out may be the
 * piece itself. */
xray_status xm_normalize(xm_encoding *enc, const xm_piece *piece,
                         xm_piece *out);
/* Runs NFC, NFD, NFKC or NFKD; -1: out of memory. */
int xm_normalize_unicode(const xm_tokenizer *tok, enum xm_norm_kind kind,
                         xm_edit *edit);
xray_status xm_charsmap_open(const char *base64, const char *where, xr_err *err,
                             xm_charsmap **out);
void xm_charsmap_close(xm_charsmap *map); /* accepts NULL */
int xm_charsmap_run(const xm_charsmap *map, xm_edit *edit);
uint32_t xm_lower_char(uint32_t code);

void xm_merges_free(xm_merges *merges);
void xm_trie_free(xm_trie *trie);

/* The byte-level alphabet: a printable character of Latin-1 stands for its own
 * byte, and the characters from U+0100 on stand for the other bytes in
 * order. */
uint32_t xm_alphabet_code(unsigned byte);
/* Appends the bytes that a text in the alphabet stands for; returns 0, with
 * nothing appended, if a character is not in the alphabet. */
int xm_alphabet_read(const char *text, size_t size, xr_str *out);
/* Appends bytes as UTF-8, with U+FFFD for each longest run that starts a
 * character and breaks off, and for each byte that starts none. Returns the
 * number of bytes read: with `more`, an incomplete character at the end is left
 * for the next call. */
size_t xm_utf8_repair(const char *bytes, size_t size, int more, xr_str *out);

/* Finds the scanner for a well-known pattern; `next` is NULL if there is
 * none. */
xm_scanner xm_find_scanner(const char *pattern);
/* The pattern that ByteLevel splits words with. */
extern const char xm_gpt2_pattern[];

/* A piece of a text: an added token, or the text between two of them. */
typedef struct xm_span {
    size_t from;
    size_t to;
    int32_t id; /* -1: text between tokens */
} xm_span;
typedef struct xm_added_search {
    const xm_tokenizer *tok;
    const char *text;
    size_t size;
    int normalized;
    size_t done;   /* bytes returned so far */
    size_t search; /* offset at which the search continues */
    xm_span held;  /* a match found after a gap; to = 0: none */
} xm_added_search;
int xm_added_next(xm_added_search *split, xm_span *out); /* 0: the end */

#endif
