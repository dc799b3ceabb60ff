// Where a quantized checkpoint comes from: the source's files and the libraries that did the arithmetic.
#pragma once

#include "checkpoint/checkpoint.h"
#include "quantize/report.h"

namespace trefoil {

// Hashes config.json, the index and every shard's header: the header names every tensor, and reading all of the data
// only to hash it would double the reading of the job.
SourceRecord describe_source(const Checkpoint& source);

EnvironmentRecord describe_environment(int threads);

}  // namespace trefoil
