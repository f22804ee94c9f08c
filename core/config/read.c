/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading an INI file. inih says what the sections and keys are; the reader in
 * front of it knows what inih does not: lines and their numbers, quotes, and
 * values of any length, since inih ends a line at 199 characters. So inih is
 * handed the beginning of each line, one at a time, and gives the names back;
 * the line goes on behind the name, and there its value is read. That also
 * finds what inih would cut (a section's name at 49 characters) or pass (text
 * behind ']', ':' for '='). A line begins with no blank when inih gets it, for
 * it takes an indented one for more of the value before it.
 */
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/base/file.h"
#include "core/base/format.h"
#include "core/config/internal.h"

#define FILE_LIMIT (64u << 20)
#define INCLUDE_DEPTH 16u

/* What became of the line that inih was handed last. */
enum {
    LINE_DONE,  /* it gave the name back */
    LINE_BEGUN, /* a section's, whose name it gives with the next key only */
    LINE_ASKED, /* a section's, and a key without a name behind it */
    LINE_KEY,
};

typedef struct span {
    const char *at;
    const char *end;
} span;

/* The file being read, and those that include it. */
typedef struct source {
    const struct source *parent;
    xr_config *config;
    xr_errors *errors;
    const char *path; /* as the user wrote it */
    const char *dir;  /* its folder with a slash; "": the current one */
    dev_t device;     /* device and inode tell cycles */
    ino_t inode;
    const char *at; /* the next line */
    const char *end;
    uint32_t file;
    uint32_t line;
    uint32_t depth;
    uint32_t state; /* LINE_* */
    uint32_t reserved;
    span text;           /* the line that inih has now */
    const char *section; /* "" before the first, NULL behind a refused one */
    char *value;         /* of the key that is read now */
    size_t size;
} source;

static void read_file(xr_config *config, const char *path, const source *parent,
                      xr_errors *errors);

XRAY_PRINTF(2, 3)
static void complain(const source *s, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    xr_errors_add(s->errors, "%s:%u: %s", s->path, s->line, text);
}

/* ---- one line ----------------------------------------------------------- */

static int is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static span trim(span s)
{
    while (s.at < s.end && is_blank(*s.at))
        s.at++;
    while (s.end > s.at && is_blank(s.end[-1]))
        s.end--;
    return s;
}

static int is_comment(const char *at, const char *end)
{
    return at < end && (*at == ';' || *at == '#');
}

/* Only blanks, or blanks and a comment, up to the end. */
static int is_rest_empty(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    return at == end || is_comment(at, end);
}

/* A quoted value behind its opening quote. 0 if it was refused. */
static int unquote(source *s, span text)
{
    char *to = s->value;
    const char *at = text.at;
    for (; at < text.end && *at != '"'; at++) {
        char c = *at;
        if (c == '\\') {
            static const char from[] = "nt\\\"";
            static const char into[] = "\n\t\\\"";
            const char *which = at + 1 < text.end ? strchr(from, at[1]) : NULL;
            if (!which || !*which) {
                complain(s, "'\\' inside quotes takes n, t, \\ or \" behind "
                            "it");
                return 0;
            }
            c = into[which - from];
            at++;
        }
        *to++ = c;
    }
    if (at == text.end) {
        complain(s, "the quote is not closed on this line");
        return 0;
    }
    if (!is_rest_empty(at + 1, text.end)) {
        complain(s, "there is text behind the closing quote");
        return 0;
    }
    s->size = (size_t)(to - s->value);
    return 1;
}

/* The value of `key =`, without comment and quotes, into s->value. */
static int read_value(source *s, span text)
{
    text = trim(text);
    if (text.at < text.end && *text.at == '"')
        return unquote(s, (span){ text.at + 1, text.end });
    for (const char *at = text.at; at < text.end; at++)
        if (is_comment(at, text.end) && (at == text.at || is_blank(at[-1])))
            text.end = at;
    text = trim(text);
    s->size = (size_t)(text.end - text.at);
    if (s->size)
        memcpy(s->value, text.at, s->size);
    return 1;
}

static int has_control(source *s, span text)
{
    for (const char *at = text.at; at < text.end; at++)
        if ((unsigned char)*at < 0x20 && *at != '\t') {
            complain(s, "the line holds the control character 0x%02x",
                     (unsigned)(unsigned char)*at);
            return 1;
        }
    return 0;
}

/* ---- what inih is handed ------------------------------------------------ */

/* As much of the line as there is room for. A run of blanks becomes one, so
 * that '=' and ']' are in it wherever the name is one that is taken. */
static void hand_over(span text, char *out, size_t cap)
{
    size_t size = 0;
    for (const char *at = text.at; at < text.end && size + 2 < cap; at++)
        if (!is_blank(*at))
            out[size++] = *at;
        else if (!is_blank(at[-1]))
            out[size++] = ' ';
    (void)snprintf(out + size, cap - size, "\n");
}

/* The key that inih found none in, or another than the line has. */
static void refuse_key(const source *s)
{
    span text = s->text;
    const char *equals = memchr(text.at, '=', (size_t)(text.end - text.at));
    span key = trim((span){ text.at, equals ? equals : text.at });
    size_t size = (size_t)(key.end - key.at);
    if (!equals)
        complain(s, "expected [section] or key = value");
    else if (!size)
        complain(s, "there is no key before '='");
    else if (size > XR_NAME_MAX)
        complain(s, "the key has %zu characters, at most %u are taken", size,
                 XR_NAME_MAX);
    else
        complain(s, "'%.*s' is no key: letters, digits, '_' and '-' make one",
                 (int)size, key.at);
}

static void refuse_section(const source *s)
{
    span text = s->text;
    const char *close = memchr(text.at, ']', (size_t)(text.end - text.at));
    span name = trim((span){ text.at + 1, close ? close : text.at + 1 });
    size_t size = (size_t)(name.end - name.at);
    if (!close)
        complain(s, "the section's name has no ']' behind it");
    else if (size > XR_NAME_MAX)
        complain(s,
                 "the section's name has %zu characters, at most %u are "
                 "taken",
                 size, XR_NAME_MAX);
    else
        complain(s,
                 "[%.*s] is no section name: letters, digits, '_', '-' and "
                 "'.' make one",
                 (int)size, name.at);
}

static char *next_line(char *out, int cap, void *stream)
{
    source *s = stream;
    if (s->state == LINE_BEGUN) {
        s->state = LINE_ASKED;
        (void)snprintf(out, (size_t)cap, "=\n");
        return out;
    }
    if (s->state == LINE_KEY) /* inih refused it */
        refuse_key(s);
    s->state = LINE_DONE;
    while (s->at < s->end) {
        const char *stop = memchr(s->at, '\n', (size_t)(s->end - s->at));
        span text = { s->at, stop ? stop : s->end };
        s->at = stop ? stop + 1 : s->end;
        s->line++;
        if (text.end > text.at && text.end[-1] == '\r')
            text.end--;
        text = trim(text);
        if (text.at == text.end || is_comment(text.at, text.end) ||
            has_control(s, text))
            continue;
        s->text = text;
        s->state = *text.at == '[' ? LINE_BEGUN : LINE_KEY;
        hand_over(text, out, (size_t)cap);
        return out;
    }
    return NULL;
}

/* ---- what inih gives back ----------------------------------------------- */

static void include(const source *s, const char *name)
{
    if (!*name) {
        s->config->unread = 1;
        complain(s, "include names no file");
        return;
    }
    if (s->depth >= INCLUDE_DEPTH) {
        complain(s, "include: files include each other more than %u deep",
                 INCLUDE_DEPTH);
        return;
    }
    const char *path =
        *name == '/' ? name : xr_config_keepf(s->config, "%s%s", s->dir, name);
    read_file(s->config, path, s, s->errors);
}

static void put(const source *s, xr_section *section, const char *key,
                const char *value)
{
    xr_entry *entry = xr_entry_get(s->config, section, key);
    if (!entry)
        return;
    if (entry->file == s->file) {
        complain(s, "[%s] %s: set twice in this file, first on line %u",
                 section->name, key, entry->line);
        return;
    }
    entry->file = s->file;
    entry->line = s->line;
    entry->dir = s->dir;
    xr_entry_set(entry, value,
                 xr_config_keepf(s->config, "%s:%u", s->path, s->line),
                 XR_LAYER_FILE);
}

/* Where the line goes on behind a name and `mark`; NULL if it does not, for
 * then inih took something else for the name. */
static const char *find_rest(span text, span name, char mark)
{
    size_t size = (size_t)(name.end - name.at);
    text = trim(text);
    if ((size_t)(text.end - text.at) < size ||
        memcmp(text.at, name.at, size) != 0)
        return NULL;
    text = trim((span){ text.at + size, text.end });
    return text.at < text.end && *text.at == mark ? text.at + 1 : NULL;
}

static void begin_section(source *s, const char *given)
{
    span name = trim((span){ given, given + strlen(given) });
    size_t size = (size_t)(name.end - name.at);
    const char *rest =
        find_rest((span){ s->text.at + 1, s->text.end }, name, ']');
    s->section = NULL;
    if (rest && !is_rest_empty(rest, s->text.end)) {
        complain(s, "there is text behind ']'");
        return;
    }
    if (!rest || size > XR_NAME_MAX || !xr_config_name_ok(name.at, size, 1)) {
        refuse_section(s);
        return;
    }
    const char *kept = xr_config_keep(s->config, name.at, size);
    const char *origin = xr_config_keepf(s->config, "%s:%u", s->path, s->line);
    const xr_section *section = xr_section_get(s->config, kept, origin);
    if (section && !s->config->failed) /* else the name may be lost */
        s->section = section->name;
}

static void take_value(source *s, const char *key)
{
    size_t size = strlen(key);
    const char *rest = find_rest(s->text, (span){ key, key + size }, '=');
    if (!rest || size > XR_NAME_MAX || !xr_config_name_ok(key, size, 0)) {
        refuse_key(s);
        return;
    }
    if (!read_value(s, (span){ rest, s->text.end }) || !s->section)
        return;
    const char *value = xr_config_keep(s->config, s->value, s->size);
    if (*s->section)
        put(s, xr_section_find(s->config, s->section), key, value);
    else if (strcmp(key, "include") == 0)
        include(s, value);
    else
        complain(s,
                 "%s stands before the first section, where only include "
                 "may",
                 key);
}

static int take_line(void *user, const char *section, const char *key,
                     const char *value)
{
    source *s = user;
    uint32_t state = s->state;
    (void)value; /* without quotes, and at most the line's first 199 bytes */
    if (!key)    /* an inih that is built to announce sections */
        return 1;
    s->state = LINE_DONE;
    if (state == LINE_ASKED)
        begin_section(s, section);
    else
        take_value(s, key);
    return 1;
}

/* ---- files -------------------------------------------------------------- */

static int is_cycle(const source *s)
{
    for (const source *p = s->parent; p; p = p->parent)
        if (p->device == s->device && p->inode == s->inode)
            return 1;
    return 0;
}

static void parse(source *s, const char *data, size_t size)
{
    s->at = data + xr_bom_size(data, size);
    s->end = data + size;
    /* No value is longer than the file. */
    s->value = malloc(size + 1);
    if (!s->value) {
        xr_errors_add(s->errors, "%s: out of memory", s->path);
        return;
    }
    s->section = "";
    if (ini_parse_stream(next_line, s, take_line, s) == -2)
        xr_errors_add(s->errors, "%s: out of memory", s->path);
    else if (s->state != LINE_DONE) /* an inih that ends at a refused line */
        complain(s, "inih refuses the line");
    free(s->value);
}

/* What is to be read at `path`, as the user wrote it. */
static source open_source(xr_config *config, const char *path,
                          const source *parent, xr_errors *errors)
{
    const char *slash = strrchr(path, '/');
    size_t dir_size = slash ? (size_t)(slash - path) + 1 : 0;
    return (source){ .parent = parent,
                     .config = config,
                     .errors = errors,
                     .path = path,
                     .dir = xr_config_keep(config, path, dir_size),
                     .file = ++config->files,
                     .depth = parent ? parent->depth + 1 : 0 };
}

static void read_file(xr_config *config, const char *path, const source *parent,
                      xr_errors *errors)
{
    xr_err err = { "" };
    char *data = NULL;
    size_t size = 0;
    source s = open_source(config, path, parent, errors);
    if (xr_file_read(path, FILE_LIMIT, &err, &data, &size) != XRAY_OK) {
        config->unread = 1;
        if (parent)
            complain(parent, "include: %s", err.text);
        else
            xr_errors_add(errors, "%s", err.text);
        return;
    }
    struct stat st = { 0 };
    (void)stat(path, &st);
    s.device = st.st_dev;
    s.inode = st.st_ino;
    int cycle = is_cycle(&s);
    int other = xr_format_check(data, size, path, &err) != XRAY_OK;
    config->unread |= cycle || other;
    if (cycle)
        complain(parent, "include: %s includes itself", path);
    else if (other)
        xr_errors_add(errors, "%s", err.text);
    else
        parse(&s, data, size);
    free(data);
}

void xr_config_read(xr_config *config, const char *path, xr_errors *errors)
{
    const char *kept = xr_config_keep(config, path, strlen(path));
    if (!config->first)
        config->first = kept;
    if (config->failed)
        xr_errors_add(errors, "%s: out of memory", path);
    else
        read_file(config, kept, NULL, errors);
}

void xr_config_read_text(xr_config *config, const char *path, const char *text,
                         xr_errors *errors)
{
    const char *kept = xr_config_keep(config, path, strlen(path));
    source s = open_source(config, kept, NULL, errors);
    if (config->failed)
        xr_errors_add(errors, "%s: out of memory", path);
    else
        parse(&s, text, strlen(text));
}
