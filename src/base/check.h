// TREFOIL_CHECK: a statement about our own code. When it is false the program is wrong, so it stops at once with the
// expression, the place and a message. No input, however hostile, may reach a failing check: inputs get an Error.
#pragma once

#include <cstdio>
#include <cstdlib>

#define TREFOIL_CHECK(condition)                                                                         \
  do {                                                                                                   \
    if (!(condition)) {                                                                                  \
      std::fprintf(stderr, "%s:%d: internal error: %s does not hold\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                                      \
    }                                                                                                    \
  } while (false)
