// Loops over plain arrays, compiled for several instruction sets and chosen when the program starts.
#pragma once

// Before a function definition. For arithmetic whose bits do not depend on the width of a vector: every loop here keeps
// its order of operations (-ffp-contract=off, sums over named lanes), so that all versions give the same results and
// --isa need not choose among them. What such a function calls must be inline to profit. Sanitizers do not support the
// mechanism (they start after it).
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define TREFOIL_VECTORIZE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define TREFOIL_VECTORIZE
#endif
