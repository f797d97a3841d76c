"""Arrays of a picture."""


cdef object as_array = None  # numpy.asarray, after the import of NumPy


def import_numpy():
    global as_array
    import numpy  # imported late, because the import takes as long as many frames
    as_array = numpy.asarray


cdef object view_as_array(view):
    if as_array is None:
        import_numpy()
    return as_array(PyMemoryView_FromObject(view))  # without the memoryview, asarray hides the error of a released view
