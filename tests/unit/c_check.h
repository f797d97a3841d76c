/* A check of the C programs that test the library. */
#ifndef C_CHECK_H
#define C_CHECK_H

#include <msgq/common.h>
#include <stdio.h>

/* End the function with 1 after a failed check, and print the check and the last error of the library. */
#define CHECK(what)                                                                                                    \
    do                                                                                                                 \
        if (!(what)) {                                                                                                 \
            printf("line %d: %s (%s)\n", __LINE__, #what, msgq_error_text());                                          \
            return 1;                                                                                                  \
        }                                                                                                              \
    while (0)

#endif
