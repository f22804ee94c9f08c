/* SPDX-License-Identifier: Apache-2.0
 *
 * A small HTTP server on this host for tests of reward.http, whose conduct the
 * path of a request chooses.
 */
#ifndef XR_REWARD_SERVER_H
#define XR_REWARD_SERVER_H

#include <pthread.h>
#include <stdint.h>

#define SERVER_REQUESTS 256

typedef struct server {
    int fd;
    unsigned port;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    pthread_t talks[SERVER_REQUESTS];
    unsigned count;                 /* requests that arrived */
    int64_t times[SERVER_REQUESTS]; /* and when, in nanoseconds */
    uint64_t sent;                  /* bytes of the endless answer */
    unsigned crowd;                 /* requests of /crowd that have no answer */
    unsigned largest_crowd;
    char last[4096]; /* the beginning of the last request */
} server;

/* Starts the server on a port of its own. Its paths:
 *   /rows      scores of "rows" in reverse order: the length of the response,
 *              and as "asked" the number of samples in the request
 *   /openrlhf  as rewards the length of the query
 *   /say       the response is the body of the answer
 *   /quote     the response is what a judge says
 *   /key       as /rows if the key is "sesame-1234", else 401
 *   /echo      400, with the header of the key as its reason
 *   /meet      as /rows; the first request once three others are there
 *   /flap      503 first, then a closed connection, then as /rows
 *   /limit     429 with Retry-After: 1 first, then as /rows
 *   /later     429 with Retry-After: 100000
 *   /status    500
 *   /code      the response is a status and the body after it: "201 []"
 *   /after     429 with Retry-After: the response
 *   /crowd     as /rows after a while
 *   /missing   404
 *   /redirect  302 to /rows
 *   /slow      nothing, until the client leaves
 *   /hangup    closes the connection
 *   /cut       closes it in the midst of the answer
 *   /big       announces 1 GB
 *   /endless   sends bytes until the client leaves */
void server_open(server *s);
/* Every client must have left. */
void server_close(server *s);
unsigned server_requests(server *s);

#endif
