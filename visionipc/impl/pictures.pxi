"""Arrays of a picture."""


cdef object as_array = None  # numpy.asarray, after the import of NumPy


def import_numpy():
    global as_array
    import numpy  # imported late, because the import takes as long as many frames
    as_array = numpy.asarray


cdef object bytes_as_array(data):
    if as_array is None:
        import_numpy()
    return as_array(data)
