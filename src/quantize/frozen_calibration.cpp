#include "quantize/frozen_calibration.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/error.h"
#include "checkpoint/file.h"
#include "checkpoint/safetensors.h"
#include "quantize/calibration_json.h"

namespace trefoil {
namespace {

constexpr const char* kTensor = "token_ids";
constexpr const char* kFormat = "trefoil-calibration";
constexpr const char* kVersion = "1";

bool is_frozen_name(const fs::path& file) {
  return file.extension() == ".safetensors";
}

class FrozenReader {
 public:
  explicit FrozenReader(const fs::path& path) : file_(path), header_(read_safetensors_header(file_)) {
    if (metadata("format") != kFormat || metadata("version") != kVersion) {
      fail(ErrorCode::kCorrupt, "{}: no frozen calibration of version {}", name(), kVersion);
    }
    const auto& tensors = header_.tensors;
    if (tensors.size() != 1 || tensors[0].name != kTensor || tensors[0].dtype != DType::kI32 ||
        tensors[0].shape.size() != 2 || tensors[0].size() == 0) {
      fail(ErrorCode::kCorrupt, "{}: expected one tensor {} of I32 [rows, row length]", name(), kTensor);
    }
  }

  int64_t num_rows() const { return header_.tensors[0].shape[0]; }
  int64_t row_length() const { return header_.tensors[0].shape[1]; }
  std::string name() const { return file_.path().string(); }

  // Empty when absent.
  std::string metadata(const std::string& key) const {
    const auto found = header_.metadata.find(key);
    return found == header_.metadata.end() ? std::string() : found->second;
  }

  std::vector<std::vector<int32_t>> rows() const {
    std::vector<std::vector<int32_t>> rows(static_cast<size_t>(num_rows()));
    uint64_t offset = header_.data_start;
    for (auto& row : rows) {
      row.resize(static_cast<size_t>(row_length()));
      file_.read_at(offset, std::as_writable_bytes(std::span(row)));
      offset += row.size() * sizeof(int32_t);
    }
    return rows;
  }

 private:
  InputFile file_;
  SafetensorsHeader header_;
};

bool holds_rows_of(const CalibrationSet& set, const fs::path& path) {
  try {
    return FrozenReader(path).rows() == set.rows;
  } catch (const Error&) {
    return false;
  }
}

void check_request(const FrozenReader& reader, const QuantizeOptions& options) {
  if (reader.row_length() != options.max_seq_length) {
    fail(ErrorCode::kInvalidArgument, "{}: its rows have {} ids, asked for are {} (--max-seq-length)", reader.name(),
         reader.row_length(), options.max_seq_length);
  }
  if (reader.num_rows() > options.num_calibration_samples) {
    fail(ErrorCode::kInvalidArgument,
         "{}: it holds {} rows, asked for are {} (--num-calibration-samples); a frozen set is used as a whole",
         reader.name(), reader.num_rows(), options.num_calibration_samples);
  }
}

void check_tokenizer(const FrozenReader& reader, const TokenizerIdentity& tokenizer) {
  const std::string sha256 = reader.metadata("tiktoken_sha256"), size = reader.metadata("vocab_size");
  if (sha256 == tokenizer.tiktoken_sha256 && size == fmt::to_string(tokenizer.vocab_size)) return;
  fail(ErrorCode::kInvalidArgument,
       "{}: its ids are of another tokenizer (vocabulary of {}, tiktoken.model {}), the source has a vocabulary of {}, "
       "{}",
       reader.name(), size, sha256.substr(0, 12), tokenizer.vocab_size, tokenizer.tiktoken_sha256.substr(0, 12));
}

}  // namespace

TokenizerIdentity tokenizer_identity(const Tokenizer& tokenizer, const fs::path& folder) {
  return {sha256_of_file(folder / "tiktoken.model"), tokenizer.vocab_size()};
}

bool is_frozen_calibration(const QuantizeOptions& options) {
  const auto& sources = options.calibration;
  const bool is_frozen =
      std::any_of(sources.begin(), sources.end(), [](const auto& source) { return is_frozen_name(source.file); });
  if (is_frozen && (sources.size() > 1 || sources[0].weight)) {
    fail(ErrorCode::kInvalidArgument, "a frozen calibration set (*.safetensors) stands alone and has no weight");
  }
  if (is_frozen && options.seed != 0) {
    fail(ErrorCode::kInvalidArgument, "seed {}: a frozen calibration set is used in its own order", options.seed);
  }
  return is_frozen;
}

CalibrationSet load_frozen_calibration(const QuantizeOptions& options, const TokenizerIdentity& tokenizer) {
  const fs::path& path = options.calibration[0].file;
  const FrozenReader reader(path);
  check_request(reader, options);
  check_tokenizer(reader, tokenizer);
  CalibrationSet set;
  set.row_length = reader.row_length();
  set.rows = reader.rows();
  if (const std::string hash = hash_of_rows(set.rows); hash != reader.metadata("token_ids_sha256")) {
    fail(ErrorCode::kCorrupt, "{}: its ids have the SHA-256 {}, which is not what it says", reader.name(), hash);
  }
  try {
    read_calibration_json(reader.metadata("calibration"), &set);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", reader.name(), error.what());
  }
  set.frozen = FrozenFile{path.filename().string(), sha256_of_file(path)};
  return set;
}

void save_frozen_calibration(const CalibrationSet& set, const QuantizeOptions& options,
                             const TokenizerIdentity& tokenizer) {
  const fs::path& path = options.save_calibration;
  if (fs::exists(path) && !options.overwrite) {
    if (holds_rows_of(set, path)) return;  // as when an interrupted run goes on
    fail(ErrorCode::kInvalidArgument, "{}: exists and holds something else; overwrite replaces it", path.string());
  }
  const Shape shape = {static_cast<int64_t>(set.rows.size()), set.row_length};
  SafetensorsWriter writer(
      path, {{kTensor, DType::kI32, shape}}, 8,
      {{"format", kFormat},
       {"version", kVersion},
       {"vocab_size", fmt::to_string(tokenizer.vocab_size)},
       {"tiktoken_sha256", tokenizer.tiktoken_sha256},
       {"token_ids_sha256", set.token_ids_sha256},
       {"seed", fmt::to_string(options.seed)},
       {"calibration", calibration_json(set).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)}});
  for (const auto& row : set.rows) writer.write(kTensor, std::as_bytes(std::span(row)));
  writer.commit();
}

}  // namespace trefoil
