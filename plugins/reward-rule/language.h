/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognizes languages by the script of their letters, using Unicode's blocks.
 */
#ifndef RULE_LANGUAGE_H
#define RULE_LANGUAGE_H

#include <stdint.h>

#include "plugins/reward-rule/text.h"

/* One bit per script. */
#define RULE_LATIN 1u
#define RULE_CYRILLIC 2u
#define RULE_GREEK 4u
#define RULE_HAN 8u
#define RULE_KANA 16u
#define RULE_HANGUL 32u
#define RULE_ARABIC 64u
#define RULE_HEBREW 128u
#define RULE_DEVANAGARI 256u
#define RULE_BENGALI 512u
#define RULE_GURMUKHI 1024u
#define RULE_GUJARATI 2048u
#define RULE_TAMIL 4096u
#define RULE_TELUGU 8192u
#define RULE_KANNADA 16384u
#define RULE_MALAYALAM 32768u
#define RULE_THAI 65536u
#define RULE_ARMENIAN 131072u
#define RULE_GEORGIAN 262144u
#define RULE_ETHIOPIC 524288u
#define RULE_OTHER_SCRIPT 0x80000000u

/* Returns the scripts of the language with this code of ISO 639-1, or 0 if the
 * code is unknown. Text after a "-" or "_" is ignored. */
uint32_t rule_language_scripts(const char *code);

/* Returns the script of a letter. */
uint32_t rule_script_of(uint32_t c);

typedef struct rule_letters {
    uint64_t letters; /* characters of category L */
    uint64_t letters_in;
    uint64_t words;    /* runs of letters and marks; each character of Han, kana
                        * and Thai is a word */
    uint64_t words_in; /* words all of whose letters are in the scripts */
} rule_letters;

/* Counts letters and words, and those of them that are in `scripts`. */
rule_letters rule_count_letters(rule_text text, uint32_t scripts);

#endif
