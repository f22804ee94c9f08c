/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads INI files. inih finds the names of sections and keys. The reader around
 * it handles what inih does not: line numbers, quotes, and values of any
 * length, since inih ends a line at 199 characters. inih receives the beginning
 * of one line at a time and returns the names; the value is then read from the
 * complete line, after the name. This also finds what inih would cut off (a
 * section's name at 49 characters) or accept silently (text after ']', ':'
 * instead of '='). Lines are passed without leading blanks, because inih takes
 * an indented line for a continuation of the previous value.
 */
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "core/base/file.h"
#include "core/base/file_format.h"
#include "core/config/internal.h"

#define FILE_LIMIT (64u << 20)
#define INCLUDE_DEPTH 16u

/* State of the line that inih received last. */
enum {
    LINE_DONE,  /* its name was returned */
    LINE_BEGUN, /* a section's line; inih returns its name with the next key */
    LINE_ASKED, /* an empty key was passed after it to get the section's name */
    LINE_KEY,
};

typedef struct span {
    const char *at;
    const char *end;
} span;

/* A file that is being read, linked to the file that includes it. */
typedef struct source {
    const struct source *parent;
    xr_config *config;
    xr_errors *errors;
    const char *path; /* as the user wrote it */
    const char *dir;  /* its folder, ending in a slash; "": the working
                       * directory */
    dev_t device;     /* device and inode identify include cycles */
    ino_t inode;
    const char *at; /* the next line */
    const char *end;
    uint32_t file;
    uint32_t line;
    uint32_t depth;
    uint32_t state; /* LINE_* */
    uint32_t reserved;
    span text;           /* the line that was passed to inih */
    const char *section; /* "" before the first section, NULL after a refused
                          * one */
    char *value;         /* value of the key that is being read */
    size_t size;
} source;

static void read_file(xr_config *config, const char *path, const source *parent,
                      xr_errors *errors);

XRAY_PRINTF(2, 3)
static void report_line_error(const source *s, const char *fmt, ...)
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

static span trim_blanks(span s)
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

/* True if only blanks and perhaps a comment remain before the end. */
static int is_rest_empty(const char *at, const char *end)
{
    while (at < end && is_blank(*at))
        at++;
    return at == end || is_comment(at, end);
}

/* Reads a quoted value after its opening quote into s->value. Returns 0 if it
 * is refused. */
static int read_quoted_value(source *s, span text)
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
                report_line_error(
                    s,
                    "inside quotes, '\\' must be followed by n, t, \\ or \"");
                return 0;
            }
            c = into[which - from];
            at++;
        }
        *to++ = c;
    }
    if (at == text.end) {
        report_line_error(s, "the quote is not closed on this line");
        return 0;
    }
    if (!is_rest_empty(at + 1, text.end)) {
        report_line_error(s, "there is text after the closing quote");
        return 0;
    }
    s->size = (size_t)(to - s->value);
    return 1;
}

/* Reads the value after `key =` into s->value, without comment and quotes. */
static int read_value(source *s, span text)
{
    text = trim_blanks(text);
    if (text.at < text.end && *text.at == '"')
        return read_quoted_value(s, (span){ text.at + 1, text.end });
    for (const char *at = text.at; at < text.end; at++)
        if (is_comment(at, text.end) && (at == text.at || is_blank(at[-1])))
            text.end = at;
    text = trim_blanks(text);
    s->size = (size_t)(text.end - text.at);
    if (s->size)
        memcpy(s->value, text.at, s->size);
    return 1;
}

static int report_control_characters(source *s, span text)
{
    for (const char *at = text.at; at < text.end; at++)
        if ((unsigned char)*at < 0x20 && *at != '\t') {
            report_line_error(s, "the line holds the control character 0x%02x",
                              (unsigned)(unsigned char)*at);
            return 1;
        }
    return 0;
}

/* ---- lines passed to inih ------------------------------------------------ */

/* Writes as much of the line as fits. Each run of blanks becomes a single one,
 * so that '=' and ']' fit whenever the name is short enough to be accepted. */
static void copy_line_beginning(span text, char *out, size_t cap)
{
    size_t size = 0;
    for (const char *at = text.at; at < text.end && size + 2 < cap; at++)
        if (!is_blank(*at))
            out[size++] = *at;
        else if (!is_blank(at[-1]))
            out[size++] = ' ';
    (void)snprintf(out + size, cap - size, "\n");
}

/* Reports a line in which inih found no key, or another key than the line
 * has. */
static void report_bad_key(const source *s)
{
    span text = s->text;
    const char *equals = memchr(text.at, '=', (size_t)(text.end - text.at));
    span key = trim_blanks((span){ text.at, equals ? equals : text.at });
    size_t size = (size_t)(key.end - key.at);
    if (!equals)
        report_line_error(s, "expected [section] or key = value");
    else if (!size)
        report_line_error(s, "there is no key before '='");
    else if (size > XR_NAME_MAX)
        report_line_error(
            s, "the key has %zu characters, but at most %u are allowed", size,
            XR_NAME_MAX);
    else
        report_line_error(
            s, "'%.*s' is not a valid key: use letters, digits, '_' and '-'",
            (int)size, key.at);
}

static void report_bad_section(const source *s)
{
    span text = s->text;
    const char *close = memchr(text.at, ']', (size_t)(text.end - text.at));
    span name = trim_blanks((span){ text.at + 1, close ? close : text.at + 1 });
    size_t size = (size_t)(name.end - name.at);
    if (!close)
        report_line_error(s, "the section's name is not followed by ']'");
    else if (size > XR_NAME_MAX)
        report_line_error(
            s,
            "the section's name has %zu characters, but at most %u "
            "are allowed",
            size, XR_NAME_MAX);
    else
        report_line_error(s,
                          "[%.*s] is not a valid section name: use letters, "
                          "digits, '_', '-' and '.'",
                          (int)size, name.at);
}

static char *feed_next_line(char *out, int cap, void *stream)
{
    source *s = stream;
    if (s->state == LINE_BEGUN) {
        s->state = LINE_ASKED;
        (void)snprintf(out, (size_t)cap, "=\n");
        return out;
    }
    if (s->state == LINE_KEY) /* inih refused it */
        report_bad_key(s);
    s->state = LINE_DONE;
    while (s->at < s->end) {
        const char *stop = memchr(s->at, '\n', (size_t)(s->end - s->at));
        span text = { s->at, stop ? stop : s->end };
        s->at = stop ? stop + 1 : s->end;
        s->line++;
        if (text.end > text.at && text.end[-1] == '\r')
            text.end--;
        text = trim_blanks(text);
        if (text.at == text.end || is_comment(text.at, text.end) ||
            report_control_characters(s, text))
            continue;
        s->text = text;
        s->state = *text.at == '[' ? LINE_BEGUN : LINE_KEY;
        copy_line_beginning(text, out, (size_t)cap);
        return out;
    }
    return NULL;
}

/* ---- names returned by inih ---------------------------------------------- */

static void include_file(const source *s, const char *name)
{
    if (!*name) {
        s->config->unread = 1;
        report_line_error(s, "include names no file");
        return;
    }
    if (s->depth >= INCLUDE_DEPTH) {
        report_line_error(s,
                          "include: files include each other more than %u deep",
                          INCLUDE_DEPTH);
        return;
    }
    const char *path =
        *name == '/' ? name : xr_config_keepf(s->config, "%s%s", s->dir, name);
    read_file(s->config, path, s, s->errors);
}

static void store_value(const source *s, xr_section *section, const char *key,
                        const char *value)
{
    xr_entry *entry = xr_entry_get(s->config, section, key);
    if (!entry)
        return;
    if (entry->file == s->file) {
        report_line_error(s,
                          "[%s] %s: set twice in this file, first on line %u",
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

/* Returns the rest of the line after the name and `mark`, or NULL if the line
 * does not continue that way because inih took something else for the name. */
static const char *find_line_rest(span text, span name, char mark)
{
    size_t size = (size_t)(name.end - name.at);
    text = trim_blanks(text);
    if ((size_t)(text.end - text.at) < size ||
        memcmp(text.at, name.at, size) != 0)
        return NULL;
    text = trim_blanks((span){ text.at + size, text.end });
    return text.at < text.end && *text.at == mark ? text.at + 1 : NULL;
}

static void begin_section(source *s, const char *given)
{
    span name = trim_blanks((span){ given, given + strlen(given) });
    size_t size = (size_t)(name.end - name.at);
    const char *rest =
        find_line_rest((span){ s->text.at + 1, s->text.end }, name, ']');
    s->section = NULL;
    if (rest && !is_rest_empty(rest, s->text.end)) {
        report_line_error(s, "there is text after ']'");
        return;
    }
    if (!rest || size > XR_NAME_MAX || !xr_config_name_ok(name.at, size, 1)) {
        report_bad_section(s);
        return;
    }
    const char *kept = xr_config_keep(s->config, name.at, size);
    const char *origin = xr_config_keepf(s->config, "%s:%u", s->path, s->line);
    const xr_section *section = xr_section_get(s->config, kept, origin);
    if (section && !s->config->failed) /* otherwise the name may be lost */
        s->section = section->name;
}

static void handle_key_line(source *s, const char *key)
{
    size_t size = strlen(key);
    const char *rest = find_line_rest(s->text, (span){ key, key + size }, '=');
    if (!rest || size > XR_NAME_MAX || !xr_config_name_ok(key, size, 0)) {
        report_bad_key(s);
        return;
    }
    if (!read_value(s, (span){ rest, s->text.end }) || !s->section)
        return;
    const char *value = xr_config_keep(s->config, s->value, s->size);
    if (*s->section)
        store_value(s, xr_section_find(s->config, s->section), key, value);
    else if (strcmp(key, "include") == 0)
        include_file(s, value);
    else
        report_line_error(
            s,
            "%s is set before the first section, where only include "
            "is allowed",
            key);
}

static int handle_inih_name(void *user, const char *section, const char *key,
                            const char *value)
{
    source *s = user;
    uint32_t state = s->state;
    (void)value; /* cut after 199 characters */
    if (!key)    /* inih was built to announce sections */
        return 1;
    s->state = LINE_DONE;
    if (state == LINE_ASKED)
        begin_section(s, section);
    else
        handle_key_line(s, key);
    return 1;
}

/* ---- files -------------------------------------------------------------- */

static int is_include_cycle(const source *s)
{
    for (const source *p = s->parent; p; p = p->parent)
        if (p->device == s->device && p->inode == s->inode)
            return 1;
    return 0;
}

static void parse_text(source *s, const char *data, size_t size)
{
    s->at = data + xr_bom_size(data, size);
    s->end = data + size;
    /* A value is never longer than its file. */
    s->value = malloc(size + 1);
    if (!s->value) {
        xr_errors_add(s->errors, "%s: out of memory", s->path);
        return;
    }
    s->section = "";
    if (ini_parse_stream(feed_next_line, s, handle_inih_name, s) == -2)
        xr_errors_add(s->errors, "%s: out of memory", s->path);
    else if (s->state != LINE_DONE) /* inih stopped early */
        report_line_error(s, "inih refuses the line");
    free(s->value);
}

/* Starts a source for `path`, as the user wrote it. */
static source start_source(xr_config *config, const char *path,
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
    source s = start_source(config, path, parent, errors);
    if (xr_file_read(path, FILE_LIMIT, &err, &data, &size) != XRAY_OK) {
        config->unread = 1;
        if (parent)
            report_line_error(parent, "include: %s", err.text);
        else
            xr_errors_add(errors, "%s", err.text);
        return;
    }
    struct stat st = { 0 };
    (void)stat(path, &st);
    s.device = st.st_dev;
    s.inode = st.st_ino;
    int cycle = is_include_cycle(&s);
    int other = xr_format_check(data, size, path, &err) != XRAY_OK;
    config->unread |= cycle || other;
    if (cycle)
        report_line_error(parent, "include: %s includes itself", path);
    else if (other)
        xr_errors_add(errors, "%s", err.text);
    else
        parse_text(&s, data, size);
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
    source s = start_source(config, kept, NULL, errors);
    if (config->failed)
        xr_errors_add(errors, "%s: out of memory", path);
    else
        parse_text(&s, text, strlen(text));
}
