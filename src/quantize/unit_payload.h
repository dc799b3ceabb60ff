// What the ledger keeps of solved experts beside their bytes: all that the report says of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "quantize/report.h"

namespace trefoil {

struct SolvedExperts {
  std::vector<int64_t> tokens_per_expert;
  std::vector<MatrixRecord> matrices;  // experts ascending, w1 w2 w3
  ExpertTimes times;                   // of all of them
};

// Numbers come back as they were, to the bit. Error(kCorrupt) for text that to_payload() did not write.
std::string to_payload(const SolvedExperts& solved);
SolvedExperts parse_payload(const std::string& payload);

}  // namespace trefoil
