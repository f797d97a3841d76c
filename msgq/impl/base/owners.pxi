"""Owners of files that the library opens or examines in Python: sockets, FIFOs, and files to remove. See core.pyi."""


cdef extern from "base/file.h" nogil:
    bint mq_is_trusted_user(const mq_file_policy *policy, uid_t user)
    int mq_check_owner(const mq_file_policy *policy, uid_t owner, const char *path, mq_error *error)
    void mq_error_append_sharing_advice(mq_error *error, const char *path)


def is_trusted(uid_t user):
    cdef mq_file_policy policy
    load_file_policy(&policy, "")
    return mq_is_trusted_user(&policy, user)


def check_owner(uid_t owner, str endpoint not None, str path not None):
    cdef mq_file_policy policy
    cdef mq_error error
    load_file_policy(&policy, endpoint)
    if mq_check_owner(&policy, owner, os.fsencode(path), &error):
        raise_error(&error, endpoint)


def get_sharing_advice(str path not None):
    cdef mq_error error
    error.text[0] = 0
    mq_error_append_sharing_advice(&error, os.fsencode(path))
    return error.text.decode(errors="replace")
