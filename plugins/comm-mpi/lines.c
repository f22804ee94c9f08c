/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries the lines of a mesh by messages of MPI. Nothing here waits for
 * another rank: a message is sent from memory of its own and received to memory
 * of its own, so that a call that fails leaves no buffer of its caller to MPI,
 * and what is not there yet is asked for again. MPI has no descriptor to sleep
 * on, so a rank that waits asks ever more rarely, and the thread of notes every
 * few milliseconds; this also carries on what other ranks receive of this one
 * while it computes.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/process.h"
#include "plugins/comm-mpi/lines.h"

#define SPINS 20u           /* looks of a rank that waits before it sleeps */
#define SHORT 20000         /* ns of a sleep, at first */
#define LONG 1000000        /* ns after many */
#define MANY 1000u          /* sleeps */
#define NOTES_MS 3          /* between looks at notes */
#define LOOKS 10u           /* of those between looks at processes */
#define OVERTAKES 50000000u /* ns that a note may be earlier than data */
#define TRIES 100 /* at the end, for a request that was canceled to be done */

/* ---- requests -------------------------------------------------------------
 */

/* 1 if the request is complete, or was none. One that failed is complete, too:
 * nothing comes of it. The caller has the lock. */
static int is_complete(mpi_handle *request)
{
    const mpi_api *api = mpi_library_api();
    int done = 1;
    if (*request == api->request_null)
        return 1;
    if (api->test(request, &done, api->status_ignore) == MPI_API_OK && !done)
        return 0;
    *request = api->request_null;
    return 1;
}

/* Sends bytes; returns 0 if MPI refuses. */
static int post_send(const mpi_line *line, const void *bytes, uint64_t size,
                     uint32_t which, mpi_handle *out)
{
    const mpi_api *api = mpi_library_api();
    int tag = mpi_lines_of(line->comm)->tag + (int)which;
    *out = 0;
    if (api->isend(bytes, (int)size, api->byte, line->process, tag, api->world,
                   out) == MPI_API_OK)
        return 1;
    *out = api->request_null;
    return 0;
}

static int post_receive(const mpi_line *line, void *bytes, uint64_t size,
                        uint32_t which, mpi_handle *out)
{
    const mpi_api *api = mpi_library_api();
    int tag = mpi_lines_of(line->comm)->tag + (int)which;
    *out = 0;
    if (api->irecv(bytes, (int)size, api->byte, line->process, tag, api->world,
                   out) == MPI_API_OK)
        return 1;
    *out = api->request_null;
    return 0;
}

/* ---- the line of calls --------------------------------------------------- */

static void count_arrived(mesh_peer *peer, mpi_line *line)
{
    for (uint32_t i = 0; peer->in_transit && i < MPI_AHEAD; i++) {
        mpi_slot *slot = &line->out[i];
        if (slot->message->bytes && is_complete(&slot->request)) {
            peer->in_transit -= slot->message->bytes;
            slot->message->bytes = 0;
        }
    }
}

/* Fills a message with as many bytes as it takes. */
static void fill_message(mpi_message *message, const struct iovec *parts,
                         size_t count)
{
    message->bytes = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t n = MPI_MESSAGE - message->bytes;
        n = parts[i].iov_len < n ? parts[i].iov_len : n;
        memcpy(message->data + message->bytes, parts[i].iov_base, n);
        message->bytes += n;
    }
}

static int64_t send_bytes(mesh_peer *peer, const struct iovec *parts,
                          size_t count)
{
    mpi_line *line = peer->line;
    mpi_slot *slot = &line->out[line->next_out];
    int64_t sent = 0;
    mpi_library_lock();
    count_arrived(peer, line);
    if (count && !slot->message->bytes) {
        fill_message(slot->message, parts, count);
        sent = (int64_t)slot->message->bytes;
        peer->in_transit += slot->message->bytes;
        line->next_out = (line->next_out + 1) % MPI_AHEAD;
        if (!post_send(line, slot->message,
                       sizeof(uint64_t) + slot->message->bytes, MPI_CALLS,
                       &slot->request))
            sent = -1;
        count_arrived(peer, line);
    }
    mpi_library_unlock();
    return sent;
}

/* Copies of a message that was received what the parts take from byte `at` of
 * them on. Returns the number of bytes. */
static uint64_t read_message(mpi_slot *slot, const struct iovec *parts,
                             size_t count, uint64_t at)
{
    uint64_t copied = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t n = slot->message->bytes - slot->at;
        if (at >= parts[i].iov_len) {
            at -= parts[i].iov_len;
            continue;
        }
        n = parts[i].iov_len - at < n ? parts[i].iov_len - at : n;
        memcpy((char *)parts[i].iov_base + at, slot->message->data + slot->at,
               n);
        slot->at += n;
        copied += n;
        at = 0;
    }
    return copied;
}

/* Has the next message. Returns 0 if it is not there; -1 if the line is broken,
 * and an errno for what came instead. */
static int find_message(mpi_slot *slot, int *out_reason)
{
    if (!is_complete(&slot->request))
        return 0;
    *out_reason = slot->message->bytes > MPI_MESSAGE ? EBADMSG : 0;
    return slot->message->bytes && !*out_reason ? 1 : -1;
}

/* Returns 1 if nothing comes any more of a rank of which nothing is there. Its
 * end was known before this rank looked. */
static int has_ended(const mesh_peer *peer, mpi_line *line, uint32_t fate)
{
    uint64_t now;
    if (peer->leaves || fate == MESH_DEAD)
        return 1;
    if (fate != MESH_LEFT)
        return 0;
    now = mesh_clock();
    if (!line->left_since)
        line->left_since = now;
    return now - line->left_since >= OVERTAKES;
}

static int64_t receive_bytes(mesh_peer *peer, const struct iovec *parts,
                             size_t count, int *out_reason)
{
    mpi_line *line = peer->line;
    uint32_t fate = atomic_load(&peer->fate);
    uint64_t room = 0;
    uint64_t got = 0;
    int found = 1;
    *out_reason = 0;
    for (size_t i = 0; i < count; i++)
        room += parts[i].iov_len;
    mpi_library_lock();
    while (got < room && found > 0) {
        mpi_slot *slot = &line->in[line->next_in];
        found = find_message(slot, out_reason);
        if (found <= 0)
            break;
        got += read_message(slot, parts, count, got);
        if (slot->at < slot->message->bytes)
            break;
        slot->at = slot->message->bytes = 0;
        line->next_in = (line->next_in + 1) % MPI_AHEAD;
        if (!post_receive(line, slot->message, sizeof(*slot->message),
                          MPI_CALLS, &slot->request))
            found = -1;
    }
    mpi_library_unlock();
    if (got) {
        line->left_since = 0;
        return (int64_t)got;
    }
    return found < 0 || has_ended(peer, line, fate) ? -1 : 0;
}

/* ---- waiting ------------------------------------------------------------- */

static void wait_for_line(mesh_wait *wait, mesh_peer *peer, int reads,
                          int writes)
{
    (void)wait;
    (void)peer;
    (void)reads;
    (void)writes;
}

/* MPI tells nobody that something came, so the caller looks again soon. */
static void sleep_on_lines(mesh_wait *wait, int ms)
{
    struct pollfd news = { wait->comm->wake, POLLIN, 0 };
    const struct timespec pause = { .tv_nsec =
                                        wait->slept < MANY ? SHORT : LONG };
    uint64_t number;
    (void)ms; /* it is more */
    if (wait->slept < SPINS)
        return;
    if (ppoll(&news, 1, &pause, NULL) > 0)
        (void)!read(wait->comm->wake, &number, sizeof(number));
}

/* ---- notes --------------------------------------------------------------- */

/* Frees letters that have arrived. The caller has the lock of the instance. */
static void drop_letters(mpi_lines *lines)
{
    mpi_letter **at = &lines->letters;
    mpi_library_lock();
    while (*at) {
        mpi_letter *letter = *at;
        if (is_complete(&letter->request)) {
            *at = letter->next;
            free(letter);
        } else {
            at = &letter->next;
        }
    }
    mpi_library_unlock();
}

static void send_note(mesh_comm *comm, uint32_t rank, const mesh_note *note)
{
    mpi_lines *lines = comm->lines;
    mpi_letter *letter = malloc(sizeof(*letter));
    if (!letter)
        return; /* the ranks find it by their timeouts */
    letter->note = *note;
    mpi_library_lock();
    (void)post_send(&lines->of[rank], &letter->note, sizeof(letter->note),
                    MPI_NOTES, &letter->request);
    mpi_library_unlock();
    letter->next = lines->letters;
    lines->letters = letter;
    drop_letters(lines);
}

/* Has the next note of a rank, which is all zeros if MPI could not receive
 * one. */
static int receive_note(mpi_line *line, mesh_note *out)
{
    mpi_library_lock();
    int found = is_complete(&line->note->request);
    if (found) {
        *out = line->note->note;
        memset(&line->note->note, 0, sizeof(line->note->note));
        (void)post_receive(line, &line->note->note, sizeof(line->note->note),
                           MPI_NOTES, &line->note->request);
    }
    mpi_library_unlock();
    return found;
}

static void read_notes(mesh_comm *comm, uint32_t rank)
{
    mpi_line *line = &mpi_lines_of(comm)->of[rank];
    mesh_note note;
    while (!comm->peers[rank].mute && receive_note(line, &note)) {
        (void)pthread_mutex_lock(&comm->lock);
        if (!mesh_take_note(comm, rank, &note))
            mesh_end_notes(comm, rank, note.magic ? EBADMSG : 0);
        (void)pthread_mutex_unlock(&comm->lock);
    }
}

/* A process of this host that died is noticed here, one of another host by the
 * engine of MPI, which ends them all. */
static void watch_process(mesh_comm *comm, uint32_t rank)
{
    const mesh_peer *peer = &comm->peers[rank];
    const mpi_line *line = peer->line;
    if (peer->mute || !peer->is_local ||
        !xr_process_is_dead(peer->pid, line->life))
        return;
    (void)pthread_mutex_lock(&comm->lock);
    mesh_end_notes(comm, rank, 0);
    (void)pthread_mutex_unlock(&comm->lock);
}

static void watch_notes(mesh_comm *comm)
{
    struct pollfd end = { comm->end, POLLIN, 0 };
    for (uint32_t turn = 0; poll(&end, 1, NOTES_MS) <= 0; turn++) {
        for (uint32_t r = 0; r < comm->size; r++) {
            if (r == comm->rank)
                continue;
            read_notes(comm, r);
            if (turn % LOOKS == 0)
                watch_process(comm, r);
        }
        (void)pthread_mutex_lock(&comm->lock);
        drop_letters(comm->lines);
        (void)pthread_mutex_unlock(&comm->lock);
    }
}

/* ---- making and closing ---------------------------------------------------
 */

static int make_line(mpi_line *line)
{
    line->note = calloc(1, sizeof(*line->note));
    int made = line->note != NULL;
    for (uint32_t i = 0; i < MPI_AHEAD; i++) {
        line->out[i].message = malloc(sizeof(mpi_message));
        line->in[i].message = malloc(sizeof(mpi_message));
        made = made && line->out[i].message && line->in[i].message;
        if (made)
            line->out[i].message->bytes = line->in[i].message->bytes = 0;
    }
    return made;
}

int mpi_lines_make(mesh_comm *comm)
{
    mpi_lines *lines = calloc(1, sizeof(*lines));
    mpi_line *of = calloc(comm->size, sizeof(*of));
    if (!lines || !of) {
        free(lines);
        free(of);
        return 0;
    }
    lines->of = of;
    comm->lines = lines;
    int made = 1;
    for (uint32_t r = 0; r < comm->size; r++) {
        of[r].comm = comm;
        of[r].life = -1;
        comm->peers[r].line = &of[r];
        if (r != comm->rank)
            made = make_line(&of[r]) && made;
    }
    return made;
}

/* Clears the requests, so that a line is closed however far it was opened. */
static void begin_line(mpi_line *line)
{
    mpi_handle none = mpi_library_api()->request_null;
    line->note->request = none;
    for (uint32_t i = 0; i < MPI_AHEAD; i++)
        line->out[i].request = line->in[i].request = none;
}

xray_status mpi_lines_open(mesh_comm *comm)
{
    mpi_lines *lines = comm->lines;
    int opened = 1;
    mpi_library_lock();
    for (uint32_t r = 0; r < comm->size; r++) {
        mpi_line *line = &lines->of[r];
        if (r == comm->rank)
            continue;
        begin_line(line);
        for (uint32_t i = 0; opened && i < MPI_AHEAD; i++)
            opened =
                post_receive(line, line->in[i].message, sizeof(mpi_message),
                             MPI_CALLS, &line->in[i].request);
        opened =
            opened && post_receive(line, &line->note->note, sizeof(mesh_note),
                                   MPI_NOTES, &line->note->request);
        if (comm->peers[r].is_local)
            line->life = xr_process_open(comm->peers[r].pid);
    }
    lines->open = 1;
    mpi_library_unlock();
    return opened ? XRAY_OK
                  : xr_host_fail(comm->host, XRAY_E_IO, "comm mpi",
                                 "MPI refuses to receive messages");
}

/* Frees memory of a message, or leaves it to the library while MPI uses it. */
static void drop_memory(mpi_handle *request, int receives, void *memory)
{
    const mpi_api *api = mpi_library_api();
    if (receives && *request != api->request_null)
        (void)api->cancel(request);
    for (int i = 0; i < TRIES; i++)
        if (is_complete(request)) {
            free(memory);
            return;
        }
    mpi_library_keep(*request, memory);
}

static void close_line(mpi_line *line)
{
    for (uint32_t i = 0; i < MPI_AHEAD; i++) {
        drop_memory(&line->out[i].request, 0, line->out[i].message);
        drop_memory(&line->in[i].request, 1, line->in[i].message);
    }
    drop_memory(&line->note->request, 1, line->note);
}

static void free_line(mpi_line *line)
{
    for (uint32_t i = 0; i < MPI_AHEAD; i++) {
        free(line->out[i].message);
        free(line->in[i].message);
    }
    free(line->note);
}

static void close_lines(mesh_comm *comm)
{
    mpi_lines *lines = comm->lines;
    mpi_library_lock();
    for (uint32_t r = 0; r < comm->size; r++) {
        if (lines->open && r != comm->rank)
            close_line(&lines->of[r]);
        else
            free_line(&lines->of[r]);
        if (lines->of[r].life >= 0)
            (void)close(lines->of[r].life);
    }
    while (lines->letters) {
        mpi_letter *letter = lines->letters;
        lines->letters = letter->next;
        drop_memory(&letter->request, 0, letter);
    }
    mpi_library_unlock();
    free(lines->of);
    free(lines);
}

const mesh_transport mpi_transport = {
    .name = "mpi",
    .send = send_bytes,
    .receive = receive_bytes,
    .wait_for = wait_for_line,
    .sleep = sleep_on_lines,
    .send_note = send_note,
    .watch = watch_notes,
    .close = close_lines,
};
