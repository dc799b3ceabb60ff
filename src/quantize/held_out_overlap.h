// Whether texts that are meant for judging occur in the calibration. docs/quantization.md, "Held-out texts".
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "text/shared_passages.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

struct HeldOutFile {
  std::string name;  // without folders
  std::string sha256;
  SharedPassages passages;
};

struct HeldOutOverlap {
  std::vector<HeldOutFile> files;
  int64_t rows = 0;  // of the calibration, that hold some of a shared run
};

// Documents are encoded apart; the rows are read as one stream. Errors as for_each_document() and document_ids().
HeldOutOverlap find_overlap(std::span<const std::vector<int32_t>> rows, std::span<const std::filesystem::path> files,
                            const Tokenizer& tokenizer);

}  // namespace trefoil
