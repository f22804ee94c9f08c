/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "language" measures which share of the words is written in the
 * scripts of a language.
 */
#include "plugins/reward-rule/language.h"

#include <string.h>

#include "plugins/reward-rule/grade.h"
#include "plugins/reward-rule/unicode.h"

typedef struct block {
    uint32_t first;
    uint32_t last;
    uint32_t script;
} block;

/* In ascending order. A letter outside of all of them has another script. */
static const block blocks[] = {
    { 0x0041, 0x024F, RULE_LATIN },     { 0x0250, 0x02AF, RULE_LATIN },
    { 0x0370, 0x03FF, RULE_GREEK },     { 0x0400, 0x052F, RULE_CYRILLIC },
    { 0x0530, 0x058F, RULE_ARMENIAN },  { 0x0590, 0x05FF, RULE_HEBREW },
    { 0x0600, 0x06FF, RULE_ARABIC },    { 0x0750, 0x077F, RULE_ARABIC },
    { 0x08A0, 0x08FF, RULE_ARABIC },    { 0x0900, 0x097F, RULE_DEVANAGARI },
    { 0x0980, 0x09FF, RULE_BENGALI },   { 0x0A00, 0x0A7F, RULE_GURMUKHI },
    { 0x0A80, 0x0AFF, RULE_GUJARATI },  { 0x0B80, 0x0BFF, RULE_TAMIL },
    { 0x0C00, 0x0C7F, RULE_TELUGU },    { 0x0C80, 0x0CFF, RULE_KANNADA },
    { 0x0D00, 0x0D7F, RULE_MALAYALAM }, { 0x0E00, 0x0E7F, RULE_THAI },
    { 0x10A0, 0x10FF, RULE_GEORGIAN },  { 0x1100, 0x11FF, RULE_HANGUL },
    { 0x1200, 0x139F, RULE_ETHIOPIC },  { 0x1C80, 0x1C8F, RULE_CYRILLIC },
    { 0x1C90, 0x1CBF, RULE_GEORGIAN },  { 0x1E00, 0x1EFF, RULE_LATIN },
    { 0x1F00, 0x1FFF, RULE_GREEK },     { 0x2C60, 0x2C7F, RULE_LATIN },
    { 0x2DE0, 0x2DFF, RULE_CYRILLIC },  { 0x3005, 0x3007, RULE_HAN },
    { 0x3040, 0x30FF, RULE_KANA },      { 0x3130, 0x318F, RULE_HANGUL },
    { 0x31F0, 0x31FF, RULE_KANA },      { 0x3400, 0x4DBF, RULE_HAN },
    { 0x4E00, 0x9FFF, RULE_HAN },       { 0xA640, 0xA69F, RULE_CYRILLIC },
    { 0xA720, 0xA7FF, RULE_LATIN },     { 0xA8E0, 0xA8FF, RULE_DEVANAGARI },
    { 0xA960, 0xA97F, RULE_HANGUL },    { 0xAB30, 0xAB6F, RULE_LATIN },
    { 0xAC00, 0xD7FF, RULE_HANGUL },    { 0xF900, 0xFAFF, RULE_HAN },
    { 0xFB00, 0xFB06, RULE_LATIN },     { 0xFB13, 0xFB17, RULE_ARMENIAN },
    { 0xFB1D, 0xFB4F, RULE_HEBREW },    { 0xFB50, 0xFDFF, RULE_ARABIC },
    { 0xFE70, 0xFEFF, RULE_ARABIC },    { 0xFF21, 0xFF5A, RULE_LATIN },
    { 0xFF66, 0xFF9F, RULE_KANA },      { 0xFFA0, 0xFFDC, RULE_HANGUL },
    { 0x1B000, 0x1B16F, RULE_KANA },    { 0x20000, 0x3FFFF, RULE_HAN },
};

typedef struct language_entry {
    char code[4];
    uint32_t scripts;
} language_entry;

static const language_entry languages[] = {
    { "af", RULE_LATIN },
    { "am", RULE_ETHIOPIC },
    { "ar", RULE_ARABIC },
    { "bg", RULE_CYRILLIC },
    { "bn", RULE_BENGALI },
    { "cs", RULE_LATIN },
    { "da", RULE_LATIN },
    { "de", RULE_LATIN },
    { "el", RULE_GREEK },
    { "en", RULE_LATIN },
    { "es", RULE_LATIN },
    { "et", RULE_LATIN },
    { "fa", RULE_ARABIC },
    { "fi", RULE_LATIN },
    { "fr", RULE_LATIN },
    { "gu", RULE_GUJARATI },
    { "he", RULE_HEBREW },
    { "hi", RULE_DEVANAGARI },
    { "hr", RULE_LATIN },
    { "hu", RULE_LATIN },
    { "hy", RULE_ARMENIAN },
    { "id", RULE_LATIN },
    { "it", RULE_LATIN },
    { "ja", RULE_HAN | RULE_KANA },
    { "ka", RULE_GEORGIAN },
    { "kn", RULE_KANNADA },
    { "ko", RULE_HANGUL },
    { "lt", RULE_LATIN },
    { "lv", RULE_LATIN },
    { "ml", RULE_MALAYALAM },
    { "mr", RULE_DEVANAGARI },
    { "ms", RULE_LATIN },
    { "ne", RULE_DEVANAGARI },
    { "nl", RULE_LATIN },
    { "no", RULE_LATIN },
    { "pa", RULE_GURMUKHI },
    { "pl", RULE_LATIN },
    { "pt", RULE_LATIN },
    { "ro", RULE_LATIN },
    { "ru", RULE_CYRILLIC },
    { "sk", RULE_LATIN },
    { "sl", RULE_LATIN },
    { "sr", RULE_CYRILLIC | RULE_LATIN },
    { "sv", RULE_LATIN },
    { "sw", RULE_LATIN },
    { "ta", RULE_TAMIL },
    { "te", RULE_TELUGU },
    { "th", RULE_THAI },
    { "tl", RULE_LATIN },
    { "tr", RULE_LATIN },
    { "uk", RULE_CYRILLIC },
    { "ur", RULE_ARABIC },
    { "vi", RULE_LATIN },
    { "zh", RULE_HAN },
};

uint32_t rule_language_scripts(const char *code)
{
    if (strlen(code) < 2 || (code[2] && code[2] != '-' && code[2] != '_'))
        return 0;
    for (size_t i = 0; i < sizeof(languages) / sizeof(languages[0]); i++)
        if (memcmp(languages[i].code, code, 2) == 0)
            return languages[i].scripts;
    return 0;
}

uint32_t rule_script_of(uint32_t c)
{
    size_t low = 0;
    size_t high = sizeof(blocks) / sizeof(blocks[0]);
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (c > blocks[mid].last)
            low = mid + 1;
        else
            high = mid;
    }
    if (low < sizeof(blocks) / sizeof(blocks[0]) && c >= blocks[low].first)
        return blocks[low].script;
    return RULE_OTHER_SCRIPT;
}

/* Scripts that are written without spaces between words. */
#define UNSPACED (RULE_HAN | RULE_KANA | RULE_THAI)

rule_letters rule_count_letters(rule_text text, uint32_t scripts)
{
    rule_letters n = { 0 };
    int inside = 0; /* 1: a word has begun */
    int all_in = 1; /* 1: all its letters so far are of the scripts */
    for (size_t at = 0; at < text.size;) {
        uint32_t c = 0;
        at = rule_char_at(text, at, &c);
        int letter = rule_is_letter(c);
        if (inside && rule_is_mark(c))
            continue;
        uint32_t script = letter ? rule_script_of(c) : 0;
        int in = (script & scripts) != 0;
        if (inside && (!letter || (script & UNSPACED))) {
            n.words_in += (uint64_t)all_in;
            inside = 0;
        }
        if (!letter)
            continue;
        n.letters++;
        n.letters_in += (uint64_t)in;
        if (script & UNSPACED) {
            n.words++;
            n.words_in += (uint64_t)in;
            continue;
        }
        n.words += !inside;
        all_in = inside ? all_in && in : in;
        inside = 1;
    }
    n.words_in += (uint64_t)(inside && all_in);
    return n;
}

static xray_status check_language(const rule_config *config, xr_err *err)
{
    if (!*config->language)
        return xr_fail_key(
            err, XRAY_E_CONFIG, NULL, "language",
            ": grader = language needs a code such as en, zh or ru");
    if (!rule_language_scripts(config->language))
        return xr_fail_key(err, XRAY_E_CONFIG, NULL, "language",
                           ": the script of \"%.16s\" is unknown; use a "
                           "two-letter code of ISO 639-1 such as en, zh or ru",
                           config->language);
    return XRAY_OK;
}

static void grade_language(const rule_input *in, rule_grade *out)
{
    const rule_config *config = in->config;
    rule_letters n = rule_count_letters(
        in->response, rule_language_scripts(config->language));
    if (!n.words) {
        rule_grade_outcome(config, 0, 0, out);
        rule_add_value(out, "words_in_language", 0);
        return;
    }
    double share = (double)n.words_in / (double)n.words;
    int enough = share >= config->min_share;
    if (config->scoring == RULE_SHARE)
        rule_grade_share(config, share, out);
    else
        rule_grade_outcome(config, 1, enough, out);
    out->acc = enough;
    rule_add_value(out, "words_in_language", share);
}

const rule_grader rule_grader_language = {
    .keys = RULE_SCORES "after language min_share scoring",
    .decides = 1,
    .any_truth = 1,
    .check = check_language,
    .grade = grade_language,
};
