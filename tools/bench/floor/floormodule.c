/* The ring of ring.h as a minimal extension module of CPython.
 *
 * Messages are `bytes`. The methods and `poll` keep the GIL, and check no arguments: a wrong argument crashes the
 * process.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "ring.h"

typedef struct {
    PyObject_HEAD floor_ring ring;
} Ring;

static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(keywords)) {
    const char *path;
    unsigned long long size;
    if (!PyArg_ParseTuple(args, "sK", &path, &size))
        return NULL;
    Ring *self = (Ring *)type->tp_alloc(type, 0);
    if (self && floor_map(&self->ring, path, size)) {
        Py_DECREF(self);
        return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    }
    return (PyObject *)self;
}

static void ring_dealloc(Ring *self) {
    floor_unmap(&self->ring);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *ring_close(Ring *self, PyObject *Py_UNUSED(nothing)) {
    floor_unmap(&self->ring);
    Py_RETURN_NONE;
}

/* Send without waiting. This overwrites messages that a slow reader has not read. */
static PyObject *ring_send(Ring *self, PyObject *message) {
    floor_write(&self->ring, PyBytes_AS_STRING(message), (uint64_t)PyBytes_GET_SIZE(message));
    floor_publish(&self->ring);
    Py_RETURN_NONE;
}

static PyObject *ring_send_lossless(Ring *self, PyObject *message) {
    floor_wait_for_room(&self->ring, floor_need((uint64_t)PyBytes_GET_SIZE(message)));
    return ring_send(self, message);
}

static PyObject *ring_send_waking(Ring *self, PyObject *message) {
    ring_send(self, message);
    floor_wake(&self->ring);
    Py_RETURN_NONE;
}

static PyObject *ring_receive(Ring *self, PyObject *Py_UNUSED(nothing)) {
    uint64_t size;
    const unsigned char *payload = floor_peek(&self->ring, &size);
    if (!payload)
        Py_RETURN_NONE;
    PyObject *message = PyBytes_FromStringAndSize((const char *)payload, (Py_ssize_t)size);
    floor_advance(&self->ring, size);
    floor_release(&self->ring);
    return message;
}

static PyObject *ring_receive_blocking(Ring *self, PyObject *nothing) {
    PyObject *message;
    while ((message = ring_receive(self, nothing)) == Py_None) {
        Py_DECREF(message);
        floor_sleep((floor_ring *[]){&self->ring}, 1, -1);
    }
    return message;
}

/* Copy the next message into a buffer of the caller. Return the size, or None. The buffer must be large enough. */
static PyObject *ring_receive_into(Ring *self, PyObject *target) {
    uint64_t size;
    const unsigned char *payload = floor_peek(&self->ring, &size);
    if (!payload)
        Py_RETURN_NONE;
    Py_buffer view;
    if (PyObject_GetBuffer(target, &view, PyBUF_WRITABLE))
        return NULL;
    memcpy(view.buf, payload, size);
    PyBuffer_Release(&view);
    floor_advance(&self->ring, size);
    floor_release(&self->ring);
    return PyLong_FromUnsignedLongLong(size);
}

static PyMethodDef ring_methods[] = {
    {"send", (PyCFunction)ring_send, METH_O, NULL},
    {"send_lossless", (PyCFunction)ring_send_lossless, METH_O, NULL},
    {"send_waking", (PyCFunction)ring_send_waking, METH_O, NULL},
    {"receive", (PyCFunction)ring_receive, METH_NOARGS, NULL},
    {"receive_blocking", (PyCFunction)ring_receive_blocking, METH_NOARGS, NULL},
    {"receive_into", (PyCFunction)ring_receive_into, METH_O, NULL},
    {"close", (PyCFunction)ring_close, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject ring_type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "bench_floor.Ring",
    .tp_doc = "Ring(path, size): one side of a single-writer, single-reader ring in a file.",
    .tp_basicsize = sizeof(Ring),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = ring_new,
    .tp_dealloc = (destructor)ring_dealloc,
    .tp_methods = ring_methods,
};

/* poll(rings, timeout): wait at most `timeout` milliseconds. Return a list of the rings with a message. */
static PyObject *poll_rings(PyObject *Py_UNUSED(module), PyObject *const *arguments, Py_ssize_t Py_UNUSED(given)) {
    Py_ssize_t count = PyTuple_GET_SIZE(arguments[0]);
    int64_t deadline = (int64_t)floor_now_ns() + PyLong_AsLongLong(arguments[1]) * 1000000;
    floor_ring *rings[FLOOR_RINGS_MAX];
    PyObject *ready = PyList_New(0);
    for (Py_ssize_t i = 0; i < count; i++)
        rings[i] = &((Ring *)PyTuple_GET_ITEM(arguments[0], i))->ring;
    while (ready) {
        for (Py_ssize_t i = 0; i < count; i++)
            if (!floor_is_empty(rings[i]))
                PyList_Append(ready, PyTuple_GET_ITEM(arguments[0], i));
        if (PyList_GET_SIZE(ready) || (int64_t)floor_now_ns() >= deadline)
            break;
        floor_sleep(rings, (unsigned)count, deadline);
    }
    return ready;
}

static PyMethodDef functions[] = {{"poll", (PyCFunction)(void (*)(void))poll_rings, METH_FASTCALL, NULL},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "bench_floor", .m_size = -1,
                                    .m_methods = functions};

PyMODINIT_FUNC PyInit_bench_floor(void) {
    PyObject *self = PyModule_Create(&module);
    if (self && PyModule_AddType(self, &ring_type))
        Py_CLEAR(self);
    return self;
}
