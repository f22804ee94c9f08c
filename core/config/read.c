/* SPDX-License-Identifier: Apache-2.0
 *
 * The reader in front of inih. inih cuts section names at 49 characters and
 * values at 200, takes an indented line for more of the value before it, knows
 * neither quotes nor line numbers, and lets text behind ']' and empty keys
 * pass. So names and values of any length stay here: inih is handed one short
 * clean line for each one of the file, "[3]" or "key=17", whose numbers say
 * which section and which value is meant.
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
#define NO_SECTION "-" /* behind a section line that was refused */

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
    char *value; /* of the line that inih has now */
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

typedef struct span {
    const char *at;
    const char *end;
} span;

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

/* "[name]" into a line for inih that holds the section's number. */
static void section_line(source *s, span text, char *out, size_t cap)
{
    const char *close = memchr(text.at, ']', (size_t)(text.end - text.at));
    (void)snprintf(out, cap, "[%s]\n", NO_SECTION);
    if (!close) {
        complain(s, "the section's name has no ']' behind it");
        return;
    }
    span name = trim((span){ text.at + 1, close });
    size_t size = (size_t)(name.end - name.at);
    if (!is_rest_empty(close + 1, text.end)) {
        complain(s, "there is text behind ']'");
        return;
    }
    if (size > XR_SECTION_MAX) {
        complain(s,
                 "the section's name has %zu characters, at most %u are "
                 "taken",
                 size, XR_SECTION_MAX);
        return;
    }
    if (!xr_config_name_ok(name.at, size, 1)) {
        complain(s,
                 "[%.*s] is no section name: letters, digits, '_', '-' and "
                 "'.' make one",
                 (int)size, name.at);
        return;
    }
    const char *kept = xr_config_keep(s->config, name.at, size);
    const char *origin = xr_config_keepf(s->config, "%s:%u", s->path, s->line);
    const xr_section *section = xr_section_get(s->config, kept, origin);
    if (section)
        (void)snprintf(out, cap, "[%zu]\n",
                       (size_t)(section - s->config->sections));
}

/* "key = value" into a line for inih. 0 if it was refused. */
static int key_line(source *s, span text, char *out, size_t cap)
{
    const char *equals = memchr(text.at, '=', (size_t)(text.end - text.at));
    if (!equals) {
        complain(s, "expected [section] or key = value");
        return 0;
    }
    span key = trim((span){ text.at, equals });
    size_t size = (size_t)(key.end - key.at);
    if (!size) {
        complain(s, "there is no key before '='");
        return 0;
    }
    if (size > XR_KEY_MAX) {
        complain(s, "the key has %zu characters, at most %u are taken", size,
                 XR_KEY_MAX);
        return 0;
    }
    if (!xr_config_name_ok(key.at, size, 0)) {
        complain(s, "'%.*s' is no key: letters, digits, '_' and '-' make one",
                 (int)size, key.at);
        return 0;
    }
    if (!read_value(s, (span){ equals + 1, text.end }))
        return 0;
    (void)snprintf(out, cap, "%.*s=1\n", (int)size, key.at);
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

/* ---- inih's two callbacks ----------------------------------------------- */

static char *next_line(char *out, int cap, void *stream)
{
    source *s = stream;
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
        if (*text.at == '[') {
            section_line(s, text, out, (size_t)cap);
            return out;
        }
        if (key_line(s, text, out, (size_t)cap))
            return out;
    }
    return NULL;
}

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

static int take_value(void *user, const char *section, const char *name,
                      const char *mark)
{
    const source *s = user;
    (void)mark;
    const char *value = xr_config_keep(s->config, s->value, s->size);
    if (strcmp(section, NO_SECTION) == 0)
        return 1;
    if (*section) {
        size_t i = strtoul(section, NULL, 10);
        put(s, &s->config->sections[i], name, value);
    } else if (strcmp(name, "include") == 0) {
        include(s, value);
    } else {
        complain(s,
                 "%s stands before the first section, where only include "
                 "may",
                 name);
    }
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
    size_t before = s->errors->count;
    int refused = ini_parse_stream(next_line, s, take_value, s);
    if (refused == -2) /* as it says that memory ran out */
        xr_errors_add(s->errors, "%s: out of memory", s->path);
    else if (refused && s->errors->count == before)
        complain(s, "inih refuses the line");
    free(s->value);
}

static void read_file(xr_config *config, const char *path, const source *parent,
                      xr_errors *errors)
{
    xr_err err = { "" };
    char *data = NULL;
    size_t size = 0;
    const char *slash = strrchr(path, '/');
    size_t dir_size = slash ? (size_t)(slash - path) + 1 : 0;
    source s = { .parent = parent,
                 .config = config,
                 .errors = errors,
                 .path = path,
                 .dir = xr_config_keep(config, path, dir_size),
                 .file = ++config->files,
                 .depth = parent ? parent->depth + 1 : 0 };
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
