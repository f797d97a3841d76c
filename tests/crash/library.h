/* Included before each source of the C library: each access to shared memory is followed by a point, as in points.h. */
#ifndef LIBRARY_H
#define LIBRARY_H

void point(const char *function, const char *what, const char *which);

#include "accesses.h"

#endif
