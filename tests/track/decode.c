/* SPDX-License-Identifier: Apache-2.0
 *
 * Decodes event files strictly: whatever is not expected is an error.
 */
#include "tests/track/decode.h"

#include <stdio.h>
#include <string.h>

typedef struct cursor {
    const unsigned char *at;
    const unsigned char *end;
    const char *fault;
} cursor;

typedef struct part {
    unsigned number;
    unsigned wire;
    uint64_t value;
    double real;
    cursor bytes;
} part;

uint32_t decode_crc(const void *data, size_t size)
{
    const unsigned char *bytes = data;
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= bytes[i];
        for (int k = 0; k < 8; k++)
            crc = crc & 1u ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
    }
    return crc ^ 0xffffffffu;
}

uint32_t decode_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* ---- fields -------------------------------------------------------------- */

static uint64_t take_varint(cursor *c)
{
    uint64_t value = 0;
    for (int shift = 0; c->at < c->end && shift < 70; shift += 7) {
        unsigned char byte = *c->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            if (!byte && shift)
                c->fault = "a varint is not the shortest";
            return value;
        }
    }
    c->fault = "a varint does not end";
    return 0;
}

static int take_part(cursor *c, part *out)
{
    if (c->fault || c->at == c->end)
        return 0;
    uint64_t key = take_varint(c);
    *out = (part){ .number = (unsigned)(key >> 3), .wire = key & 7u };
    uint64_t size = 0;
    if (out->wire == 0)
        out->value = take_varint(c);
    else if (out->wire == 1)
        size = 8;
    else if (out->wire == 2)
        size = take_varint(c);
    else
        c->fault = "a wire type that is not used";
    if (size > (uint64_t)(c->end - c->at))
        c->fault = "a field goes beyond its message";
    if (c->fault)
        return 0;
    out->bytes = (cursor){ c->at, c->at + size, NULL };
    if (out->wire == 1)
        memcpy(&out->real, c->at, 8);
    c->at += size;
    return 1;
}

static void take_text(const part *p, char *out, size_t cap)
{
    (void)snprintf(out, cap, "%.*s", (int)(p->bytes.end - p->bytes.at),
                   (const char *)p->bytes.at);
}

/* Carries a fault outwards. */
static void note_fault(cursor *outer, const cursor *inner, const char *fault)
{
    if (!outer->fault)
        outer->fault = inner->fault ? inner->fault : fault;
}

/* ---- values -------------------------------------------------------------- */

static void decode_shape(cursor c, cursor *outer, decode_value *v)
{
    part p;
    part q;
    while (take_part(&c, &p)) {
        cursor dim = p.bytes;
        if (p.number != 2 || p.wire != 2 || !take_part(&dim, &q) ||
            q.number != 1 || v->dim_count == 2)
            c.fault = "a shape of another form";
        else
            v->dims[v->dim_count++] = q.value;
    }
    note_fault(outer, &c, NULL);
}

static void decode_tensor(cursor c, cursor *outer, decode_value *v)
{
    part p;
    while (take_part(&c, &p)) {
        size_t size = (size_t)(p.bytes.end - p.bytes.at);
        if (p.number == 1 && p.wire == 0)
            v->dtype = p.value;
        else if (p.number == 2 && p.wire == 2)
            decode_shape(p.bytes, &c, v);
        else if (p.number == 4 && p.wire == 2 && size % 8 == 0) {
            v->table = (const void *)p.bytes.at;
            v->table_count = size / 8;
        } else if (p.number == 5 && p.wire == 2 && size == 4) {
            memcpy(&v->number, p.bytes.at, 4);
            v->has_number = 1;
        } else if (p.number == 6 && p.wire == 2 && size == 8) {
            memcpy(&v->exact, p.bytes.at, 8);
            v->has_exact = 1;
        } else if (p.number == 8 && p.wire == 2) {
            v->text = p.bytes.at;
            v->text_size = size;
        } else {
            c.fault = "an unknown field of a tensor";
        }
    }
    note_fault(outer, &c, NULL);
}

static void decode_metadata(cursor c, cursor *outer, decode_value *v)
{
    part p;
    part q;
    while (take_part(&c, &p)) {
        cursor data = p.bytes;
        if (p.number == 4 && p.wire == 0) {
            v->class = p.value;
            continue;
        }
        if (p.number != 1 || p.wire != 2)
            c.fault = "an unknown field of metadata";
        while (!c.fault && take_part(&data, &q)) {
            if (q.number == 1)
                take_text(&q, v->plugin, sizeof(v->plugin));
            else if (q.number == 2) {
                v->content = q.bytes.at;
                v->content_size = (size_t)(q.bytes.end - q.bytes.at);
            } else
                data.fault = "an unknown field of plugin data";
        }
        note_fault(&c, &data, NULL);
    }
    note_fault(outer, &c, NULL);
}

/* ---- settings ------------------------------------------------------------ */

static void decode_setting(cursor c, cursor *outer, const decode_sink *sink)
{
    part key;
    part value;
    part p;
    char name[256];
    char text[4096];
    if (!take_part(&c, &key) || key.number != 1 || !take_part(&c, &value) ||
        value.number != 2 || c.at != c.end) {
        note_fault(outer, &c, "a setting of another form");
        return;
    }
    take_text(&key, name, sizeof(name));
    if (!take_part(&value.bytes, &p)) {
        note_fault(outer, &value.bytes, "a setting without a value");
        return;
    }
    if (p.number == 2 && p.wire == 1)
        (void)snprintf(text, sizeof(text), "%.17g", p.real);
    else if (p.number == 3 && p.wire == 2)
        take_text(&p, text, sizeof(text));
    else if (p.number == 4 && p.wire == 0)
        (void)snprintf(text, sizeof(text), "%s", p.value ? "true" : "false");
    else
        note_fault(outer, &c, "a value of another type");
    if (sink->setting)
        sink->setting(sink->ctx, name, "..nsb"[p.number < 5 ? p.number : 0],
                      text);
}

static void decode_settings(const decode_value *v, cursor *outer,
                            const decode_sink *sink)
{
    cursor c = { v->content, v->content + v->content_size, NULL };
    part session;
    part p;
    if (!take_part(&c, &session) || session.number != 3 || c.at != c.end) {
        note_fault(outer, &c, "settings of another form");
        return;
    }
    while (take_part(&session.bytes, &p))
        if (p.number == 1 && p.wire == 2)
            decode_setting(p.bytes, &session.bytes, sink);
        else if (p.number != 5 || p.wire != 1)
            session.bytes.fault = "an unknown field of settings";
    note_fault(outer, &session.bytes, NULL);
}

/* ---- events -------------------------------------------------------------- */

static void decode_summary(cursor c, cursor *outer, const decode_event *event,
                           const decode_sink *sink)
{
    part p;
    part q;
    while (take_part(&c, &p)) {
        decode_value v = { .class = 0 };
        cursor value = p.bytes;
        if (p.number != 1 || p.wire != 2)
            value.fault = "an unknown field of a summary";
        while (take_part(&value, &q)) {
            if (q.number == 1)
                take_text(&q, v.tag, sizeof(v.tag));
            else if (q.number == 8)
                decode_tensor(q.bytes, &value, &v);
            else if (q.number == 9)
                decode_metadata(q.bytes, &value, &v);
            else
                value.fault = "an unknown field of a value";
        }
        if (!value.fault && v.content)
            decode_settings(&v, &value, sink);
        note_fault(&c, &value, NULL);
        if (!c.fault && sink->value)
            sink->value(sink->ctx, event, &v);
    }
    note_fault(outer, &c, NULL);
}

static const char *decode_record(cursor c, const decode_sink *sink)
{
    decode_event event = { .step = 0 };
    part p;
    part q;
    cursor summary = { NULL, NULL, NULL };
    while (take_part(&c, &p)) {
        cursor inner = p.bytes;
        if (p.number == 1 && p.wire == 1)
            event.time = p.real;
        else if (p.number == 2 && p.wire == 0)
            event.step = p.value;
        else if (p.number == 3 && p.wire == 2)
            take_text(&p, event.version, sizeof(event.version));
        else if (p.number == 5 && p.wire == 2)
            summary = p.bytes;
        else if (p.number == 7 && take_part(&inner, &q) && q.number == 1)
            event.restart = q.value == 1;
        else if (p.number != 10)
            c.fault = "an unknown field of an event";
    }
    if (c.fault)
        return c.fault;
    if (sink->event)
        sink->event(sink->ctx, &event);
    if (summary.at)
        decode_summary(summary, &c, &event, sink);
    return c.fault;
}

const char *decode_file(const unsigned char *data, size_t size,
                        const decode_sink *sink)
{
    size_t at = 0;
    while (at < size) {
        uint64_t length = 0;
        uint32_t crc = 0;
        if (size - at < 16)
            return "a record is cut off";
        memcpy(&length, data + at, 8);
        memcpy(&crc, data + at + 8, 4);
        if (crc != decode_mask(decode_crc(data + at, 8)))
            return "a length has another checksum";
        if (length > size - at - 16)
            return "a record goes beyond the file";
        memcpy(&crc, data + at + 12 + length, 4);
        if (crc != decode_mask(decode_crc(data + at + 12, (size_t)length)))
            return "a record has another checksum";
        const cursor record = { data + at + 12, data + at + 12 + length, NULL };
        const char *fault = decode_record(record, sink);
        if (fault)
            return fault;
        at += 16 + (size_t)length;
    }
    return NULL;
}
