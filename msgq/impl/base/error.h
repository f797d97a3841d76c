/* Errors of the steps that Python and C share. A step that fails fills in an error of its caller, and returns the
 * negative error number. The caller raises the Python class of the error, or reports the number and the text to its
 * program. The text says what is wrong, and what to do; it has no name of an endpoint, because the caller adds it. */
#ifndef MQ_ERROR_H
#define MQ_ERROR_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>

/* Each kind has a class of msgq/errors: _ERROR_CLASSES in segment.pxi has the same order. */
typedef enum {
    MQ_ERROR_FILE, /* a system call failed, or the file cannot be used */
    MQ_ERROR_CORRUPT,
    MQ_ERROR_LAYOUT_VERSION,
    MQ_ERROR_SIZE,
    MQ_ERROR_CHANNEL_MISMATCH,
    MQ_ERROR_TOO_MANY_PUBLISHERS,
    MQ_ERROR_TOO_MANY_SUBSCRIBERS,
    MQ_ERROR_TOO_LARGE, /* a message or slot exceeds a limit */
    MQ_ERROR_TOO_MANY_HANDLES,
    MQ_ERROR_TOO_MANY_WRITERS,
    MQ_ERROR_OTHER_WRITER,
    MQ_ERROR_KEY_TAKEN,
    MQ_ERROR_BOARD_FULL,
    MQ_ERROR_PUBLISHERS, /* a topic has too many publishers */
    MQ_ERROR_PROCESS,    /* /proc is missing, or this process has no memory */
    MQ_ERROR_KINDS,
} mq_error_kind;

enum { MQ_ERROR_PATH_BYTES = 640, MQ_ERROR_TEXT_BYTES = 1024 };

/* Nobody reads the error before a step has failed, so it needs no initial value. */
typedef struct {
    mq_error_kind kind;
    int number;                     /* errno for programs in C; Python uses it for MQ_ERROR_FILE */
    char path[MQ_ERROR_PATH_BYTES]; /* "": the error concerns no file */
    char text[MQ_ERROR_TEXT_BYTES];
} mq_error;

/* Append to the text of an error. */
static inline void __attribute__((format(printf, 2, 3))) mq_error_append(mq_error *error, const char *format, ...) {
    size_t length = strlen(error->text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text + length, sizeof error->text - length, format, arguments);
    va_end(arguments);
}

static inline void __attribute__((format(printf, 5, 0))) mq_error_fill(mq_error *error, mq_error_kind kind, int number,
                                                                       const char *path, const char *format,
                                                                       va_list arguments) {
    error->kind = kind, error->number = number > 0 ? number : EIO;
    snprintf(error->path, sizeof error->path, "%s", path ? path : "");
    vsnprintf(error->text, sizeof error->text, format, arguments);
}

/* Fill in the error. Returns the negative number. */
static inline int __attribute__((format(printf, 5, 6))) mq_fail(mq_error *error, mq_error_kind kind, int number,
                                                                const char *path, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    mq_error_fill(error, kind, number, path, format, arguments);
    va_end(arguments);
    return -error->number;
}

/* Append what a user can do about a system call's error. */
static inline void mq_error_append_advice(mq_error *error) {
    struct statvfs room;
    if (error->number == EMFILE)
        mq_error_append(error, "; this process has no file descriptors left (ulimit -n)");
    else if (error->number == ENFILE)
        mq_error_append(error, "; the machine has no file descriptors left (fs.file-max)");
    else if (error->number == ELOOP)
        mq_error_append(error, "; a symbolic link is never followed");
    else if (error->number == EISDIR)
        mq_error_append(error, "; the path is a directory");
    else if (error->number == ENOSPC && statvfs("/dev/shm", &room) == 0)
        mq_error_append(error,
                        "; /dev/shm has %llu bytes free; remove unused endpoints (`msgq clean`), or enlarge /dev/shm "
                        "(in a container: --shm-size)",
                        (unsigned long long)room.f_bavail * room.f_frsize);
}

/* Fill in the error of a system call with the number `number`. */
static inline int __attribute__((format(printf, 4, 5))) mq_fail_system(mq_error *error, int number, const char *path,
                                                                       const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    mq_error_fill(error, MQ_ERROR_FILE, number, path, format, arguments);
    va_end(arguments);
    mq_error_append(error, ": %s", strerror(number));
    mq_error_append_advice(error);
    return -error->number;
}

#endif
