"""Code that all packages share: endpoint names, units, schemas, permissions, optional packages, rates, histograms."""

import _thread

from msgq.errors import SubinterpreterError

# This check precedes the import of each extension module, because the main interpreter cannot load a module that failed
# in a subinterpreter. In Python 3.11, which has no such function, a module refuses a second interpreter.
if hasattr(_thread, "_is_main_interpreter") and not _thread._is_main_interpreter():
    raise SubinterpreterError(
        "msgq was imported in a subinterpreter, but its handles, locks and signal handler belong to the whole process; "
        "import msgq in the main interpreter, or in another process"
    )
