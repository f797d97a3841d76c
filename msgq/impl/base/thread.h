/* Start of the library's own threads. The threads are detached. Signals belong to the application, so the threads block
 * all signals except SIGBUS. If a thread with blocked SIGBUS read a truncated ring, the kernel would kill the process
 * (mapguard.h). */
#ifndef MQ_THREAD_H
#define MQ_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

static inline bool mq_start_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 256 * 1024);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the new thread inherits the signal mask */
    bool started = pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return started;
}

#endif
