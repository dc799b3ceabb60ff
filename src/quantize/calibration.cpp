#include "quantize/calibration.h"

#include <algorithm>

#include "base/error.h"
#include "text/documents.h"
#include "text/pack_rows.h"
#include "trefoil/tokenizer.h"

namespace trefoil {
namespace {

void check_vocabulary(const std::vector<int32_t>& ids, const ModelConfig& config) {
  const auto outside =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id < 0 || id >= config.vocab_size; });
  if (outside == ids.end()) return;
  fail(ErrorCode::kCorrupt, "calibration token id {}: the tokenizer has it, the model's vocabulary of {} has not",
       *outside, config.vocab_size);
}

}  // namespace

CalibrationSet load_calibration(const fs::path& source, const ModelConfig& config, const std::vector<fs::path>& files,
                                int64_t num_rows, int64_t row_length, uint64_t seed) {
  CalibrationSet set;
  std::vector<Document> documents;
  for (const fs::path& file : files) {
    std::vector<Document> read = read_documents(file);
    set.files.push_back(
        {file.filename().string(), fs::file_size(file), sha256_of_file(file), static_cast<int64_t>(read.size())});
    std::move(read.begin(), read.end(), std::back_inserter(documents));
  }
  const PackedRows packed = pack_rows(documents, Tokenizer::load(source), {row_length, num_rows, seed});
  check_vocabulary(packed.ids, config);
  set.row_length = row_length;
  set.documents_used = packed.num_documents;
  set.token_ids_sha256 = packed.sha256;
  for (int64_t row = 0; row < packed.num_rows(); ++row) {
    const auto ids = packed.row(row);
    set.rows.emplace_back(ids.begin(), ids.end());
  }
  return set;
}

}  // namespace trefoil
