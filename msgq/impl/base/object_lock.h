/* The lock of a Python object, which replaces the GIL in builds of Python without it: a critical section. The compiler
 * adds one to each method of an extension class (tools/building/critical_sections.py). Code that uses another object,
 * such as a poller that asks its readers, calls mq_lock_object. With the GIL, all of this is nothing.
 *
 * No counted reference is taken, so the caller keeps the object alive. A wait suspends the lock, as it releases the GIL.
 * A second lock that is not free suspends the first one, so no order of locks can deadlock. */
#ifndef MQ_OBJECT_LOCK_H
#define MQ_OBJECT_LOCK_H

#include <Python.h>

#include "base/atomics.h"

#ifdef Py_GIL_DISABLED
typedef PyCriticalSection mq_object_lock;

#if PY_VERSION_HEX < 0x030E0000
/* Python 3.14 skips a lock that the innermost section of the thread holds already. Python 3.13 would end that section,
 * and spin before. This is the rule of 3.14, also for sections that the compiler adds. */
static inline void mq_begin_section(mq_object_lock *lock, PyObject *object) {
    uintptr_t innermost = PyThreadState_GetUnchecked()->critical_section & ~(uintptr_t)3; /* the bits are flags */
    if (innermost && ((mq_object_lock *)innermost)->_cs_mutex == &object->ob_mutex)
        lock->_cs_mutex = NULL;
    else
        PyCriticalSection_Begin(lock, object);
}
static inline void mq_end_section(mq_object_lock *lock) {
    if (lock->_cs_mutex)
        PyCriticalSection_End(lock);
}
#define PyCriticalSection_Begin mq_begin_section
#define PyCriticalSection_End mq_end_section
#endif

#define mq_lock_object(lock, object) PyCriticalSection_Begin(lock, (PyObject *)(object))
#define mq_unlock_object(lock) PyCriticalSection_End(lock)
#else
typedef char mq_object_lock;
#define mq_lock_object(lock, object) ((void)(lock))
#define mq_unlock_object(lock) ((void)(lock))
#endif

/* Add to a counter that objects with different locks change. Returns its new value. */
static inline uint64_t mq_add_to_shared_counter(mq_u64 *counter, uint64_t n) {
#ifdef Py_GIL_DISABLED
    return mq_fetch_add_u64(counter, n) + n;
#else
    uint64_t value = mq_load_relaxed_u64(counter) + n; /* relaxed, both: under the GIL */
    mq_store_relaxed_u64(counter, value);
    return value;
#endif
}

#endif
