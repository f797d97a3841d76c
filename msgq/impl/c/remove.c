/* Removal of endpoints: their names in /dev/shm. Processes with open handles keep the memory. Compile as C11. */
#define _GNU_SOURCE
#include "c/channelfile.h"
#include "c/queueevents.h"
#include "msgq/records.h"
#include "msgq/topic.h"

/* Remove the file of an endpoint. Returns 1, 0 if no file exists, or an error. */
static int mqc_remove_file(const mqc_endpoint *endpoint, const char *start) {
    char path[MQC_PATH];
    mq_error error;
    mqc_format_path(endpoint, start, endpoint->name, path);
    int removed = mq_remove_file(&endpoint->policy, path, &error);
    return removed < 0 ? mqc_report(endpoint, &error) : removed;
}

/* Return the result of a removal: `removed` is the result of mqc_remove_file. */
static int mqc_finish_removal(const mqc_endpoint *endpoint, int removed) {
    return removed > 0    ? 0
           : removed == 0 ? mqc_endpoint_error(endpoint, ENOENT, "does not exist, so it cannot be removed")
                          : removed;
}

int msgq_topic_remove(const char *topic, const msgq_options *options) {
    mqc_endpoint endpoint;
    int status = mqc_endpoint_init(&endpoint, "topic", topic, MQC_NAME_MAX, options, 0);
    if (status)
        return status;
    int side = mqc_remove_file(&endpoint, "msgqside_"); /* first: a ring without a side segment is complete */
    if (side < 0)
        return side;
    int ring = mqc_remove_file(&endpoint, "msgq_");
    return mqc_finish_removal(&endpoint, ring ? ring : side);
}

/* Remove an existing channel under its lock: its pools, and then its file. */
static int mqc_channel_file_remove(mqc_channel_file *file) {
    const msgq_channel_options as_is = {.capacity = 0};
    mq_file_lock lock;
    mq_error error;
    file->endpoint.create = MSGQ_OPEN;
    int status = mqc_channel_file_open(file, &as_is, false, &lock);
    if (status)
        return status;
    mq_channel_files files = mqc_channel_files(file);
    status = mq_channel_unlink(&files, &error);
    if (status)
        status = mqc_report(&file->endpoint, &error);
    mqc_unlock_mapped_file(&lock);
    mqc_channel_file_close(file);
    return status;
}

int msgq_channel_remove(const char *channel, const msgq_options *options) {
    const msgq_channel_options asked = {.open = options ? *options : (msgq_options){0}};
    mqc_channel_file file;
    int status = mqc_channel_file_init(&file, channel, &asked);
    return status ? status : mqc_channel_file_remove(&file);
}

/* Remove the events channel of a queue, if it exists and can be removed. The error text stays the same. */
static void mqc_remove_events(const mqc_endpoint *queue) {
    char name[MQC_NAME + sizeof MQC_EVENTS_SUFFIX];
    mqc_channel_file file;
    snprintf(name, sizeof name, "%s%s", queue->name, MQC_EVENTS_SUFFIX);
    mqc_suppress_error_text(true);
    if (!mqc_channel_file_init_beside(&file, name, queue, queue->mode, MQ_CHANNEL_CAPACITY_DEFAULT))
        mqc_channel_file_remove(&file);
    mqc_suppress_error_text(false);
}

int msgq_queue_remove(const char *queue, const msgq_options *options) {
    mqc_endpoint endpoint;
    int status = mqc_endpoint_init(&endpoint, "queue", queue, MQC_NAME_MAX, options, 0);
    if (status)
        return status;
    mqc_remove_events(&endpoint); /* first, so that a process that creates the queue again does not find the events */
    return mqc_finish_removal(&endpoint, mqc_remove_file(&endpoint, "msgqjobs_"));
}

int msgq_records_remove(const char *name, const msgq_options *options) {
    mqc_endpoint endpoint;
    int status = mqc_endpoint_init(&endpoint, "records", name, MQC_NAME_MAX, options, 0);
    return status ? status : mqc_finish_removal(&endpoint, mqc_remove_file(&endpoint, "msgqrec_"));
}
