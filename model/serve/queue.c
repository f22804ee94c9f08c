/* SPDX-License-Identifier: Apache-2.0
 *
 * Linked lists of requests and of samples. The links are members of the items,
 * so that moving an item allocates nothing.
 */
#include "model/serve/sched_internal.h"

void xm_queue_push(xm_queue *queue, xm_request *request)
{
    request->prev = queue->last;
    request->next = NULL;
    if (queue->last)
        queue->last->next = request;
    else
        queue->first = request;
    queue->last = request;
    queue->count++;
    request->queued = queue->name;
}

void xm_queue_push_first(xm_queue *queue, xm_request *request)
{
    request->prev = NULL;
    request->next = queue->first;
    if (queue->first)
        queue->first->prev = request;
    else
        queue->last = request;
    queue->first = request;
    queue->count++;
    request->queued = queue->name;
}

void xm_queue_remove(xm_queue *queue, xm_request *request)
{
    if (request->prev)
        request->prev->next = request->next;
    else
        queue->first = request->next;
    if (request->next)
        request->next->prev = request->prev;
    else
        queue->last = request->prev;
    queue->count--;
    request->queued = 0;
}

void xm_ready_push(xm_request *request, xm_sample *sample)
{
    sample->state = XM_SAMPLE_READY;
    sample->next_ready = NULL;
    if (request->ready)
        request->ready_last->next_ready = sample;
    else
        request->ready = sample;
    request->ready_last = sample;
}

void xm_ready_push_first(xm_request *request, xm_sample *sample)
{
    sample->state = XM_SAMPLE_READY;
    sample->next_ready = request->ready;
    if (!request->ready)
        request->ready_last = sample;
    request->ready = sample;
}

xm_sample *xm_ready_pop(xm_request *request)
{
    xm_sample *sample = request->ready;
    if (sample)
        request->ready = sample->next_ready;
    return sample;
}

void xm_ready_remove(xm_request *request, xm_sample *sample)
{
    xm_sample *before = NULL;
    xm_sample *at = request->ready;
    while (at != sample) {
        before = at;
        at = at->next_ready;
    }
    if (before)
        before->next_ready = sample->next_ready;
    else
        request->ready = sample->next_ready;
    if (request->ready_last == sample)
        request->ready_last = before;
}
