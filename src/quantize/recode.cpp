#include "trefoil/recode.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/error.h"
#include "base/parallel.h"
#include "checkpoint/folder_files.h"
#include "checkpoint/output_folder.h"
#include "quantize/recode_plan.h"

namespace trefoil {
namespace {

constexpr uint64_t kPiece = 16ull << 20;
constexpr int64_t kRowsAtATime = 64;

// The words of one row in the new form. `to_bits` may be narrower than the codes need.
void recode_row(const StoredLinear& linear, const PackQuantizedSpec& spec, int64_t row, std::span<const uint32_t> from,
                std::span<uint32_t> to, std::vector<int8_t>& codes) {
  unpack_row(linear.num_bits, linear.layout, from, codes);
  const int limit = 1 << (spec.num_bits - 1);
  const auto misfit = std::find_if(codes.begin(), codes.end(), [&](int q) { return q < -limit || q >= limit; });
  if (misfit != codes.end()) {
    fail(ErrorCode::kUnsupported, "{}.weight_packed: row {} column {}: code {} does not fit {} bits ({} to {})",
         linear.module, row, misfit - codes.begin(), static_cast<int>(*misfit), spec.num_bits, -limit, limit - 1);
  }
  pack_row(spec.num_bits, spec.layout, codes, to);
}

std::vector<uint32_t> recode_linear(const Checkpoint& input, const StoredLinear& linear, const PackQuantizedSpec& spec,
                                    ThreadPool& pool) {
  const auto rows = linear.out_features;
  const auto from_words = static_cast<size_t>(packed_words(linear.num_bits, linear.in_features, linear.layout));
  const auto to_words = static_cast<size_t>(packed_words(spec.num_bits, linear.in_features, spec.layout));
  std::vector<uint32_t> from(static_cast<size_t>(rows) * from_words);
  std::vector<uint32_t> to(static_cast<size_t>(rows) * to_words);
  input.read(*linear.packed, 0, std::as_writable_bytes(std::span(from)));
  pool.parallel_ranges(rows, kRowsAtATime, [&](int64_t begin, int64_t end) {
    std::vector<int8_t> codes(static_cast<size_t>(linear.in_features));
    for (int64_t row = begin; row < end; ++row) {
      const auto r = static_cast<size_t>(row);
      recode_row(linear, spec, row, std::span(from).subspan(r * from_words, from_words),
                 std::span(to).subspan(r * to_words, to_words), codes);
    }
  });
  return to;
}

void copy_tensor(const Checkpoint& input, const TensorRef& tensor, SafetensorsWriter& writer) {
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, tensor.info.size())));
  uint64_t offset = 0;
  do {
    const MutableBytes part =
        MutableBytes(piece).first(static_cast<size_t>(std::min(kPiece, tensor.info.size() - offset)));
    input.read(tensor, offset, part);
    writer.write(tensor.info.name, part);
    offset += part.size();
  } while (offset < tensor.info.size());
}

void throw_if_stopped(const RecodeOptions& options) {
  if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed))
    fail(ErrorCode::kCancelled, "stopped as asked; the output folder is as it was");
}

void write_shard(const RecodeOptions& options, const Checkpoint& input, const RecodePlan& plan,
                 const RecodeShard& shard, const fs::path& folder, ThreadPool& pool) {
  SafetensorsWriter writer(folder / shard.file, shard.tensors, plan.data_alignment, shard.metadata);
  for (const TensorPlan& tensor : shard.tensors) {
    throw_if_stopped(options);
    if (const auto packed = plan.packed.find(tensor.name); packed != plan.packed.end()) {
      const std::vector<uint32_t> words = recode_linear(input, *packed->second, plan.spec, pool);
      writer.write(tensor.name, std::as_bytes(std::span(words)));
    } else {
      copy_tensor(input, input.at(tensor.name), writer);
    }
  }
  writer.commit();
}

// ---- comparing ----

void compare_linear(const Checkpoint& input, const StoredLinear& before, const Checkpoint& output,
                    const RecodePlan& plan) {
  const StoredLinear after = resolve_linear(output, before.module, plan.spec.num_bits);
  std::vector<float> a(static_cast<size_t>(kRowsAtATime * before.in_features));
  std::vector<float> b(a.size());
  for (int64_t begin = 0; begin < before.out_features; begin += kRowsAtATime) {
    const int64_t end = std::min(before.out_features, begin + kRowsAtATime);
    const auto count = static_cast<size_t>((end - begin) * before.in_features);
    decode_linear(input, before, begin, end, std::span(a).first(count));
    decode_linear(output, after, begin, end, std::span(b).first(count));
    const bool equal =
        std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin(),
                   [](float x, float y) { return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y); });
    if (!equal)
      fail(ErrorCode::kCorrupt, "{}: rows {} to {} decode to other weights than before", before.module, begin, end);
  }
}

void compare_tensor(const Checkpoint& input, const TensorRef& before, const Checkpoint& output) {
  const TensorRef& after = output.at(before.info.name);
  bool equal = after.info.dtype == before.info.dtype && after.info.shape == before.info.shape;
  std::vector<std::byte> a(static_cast<size_t>(std::min(kPiece, before.info.size())));
  std::vector<std::byte> b(a.size());
  for (uint64_t offset = 0; equal && offset < before.info.size(); offset += kPiece) {
    const auto size = static_cast<size_t>(std::min(kPiece, before.info.size() - offset));
    input.read(before, offset, MutableBytes(a).first(size));
    output.read(after, offset, MutableBytes(b).first(size));
    equal = std::equal(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(size), b.begin());
  }
  if (!equal) fail(ErrorCode::kCorrupt, "{}: is not what it was before", before.info.name);
}

void compare(const RecodeOptions& options, const Checkpoint& input, const fs::path& folder, const RecodePlan& plan,
             ThreadPool& pool, ProgressSink& progress) {
  const Checkpoint output = Checkpoint::open(folder, Checkpoint::Access::kRead);
  const auto& tensors = input.tensors();
  const auto total = static_cast<int64_t>(tensors.size());
  constexpr int64_t kBatch = 256;  // between two reports of progress
  for (int64_t begin = 0; begin < total; begin += kBatch) {
    throw_if_stopped(options);
    pool.parallel_for(std::min(kBatch, total - begin), [&](int64_t i) {
      const TensorRef& tensor = tensors[static_cast<size_t>(begin + i)];
      const auto packed = plan.packed.find(tensor.info.name);
      if (packed != plan.packed.end()) {
        compare_linear(input, *packed->second, output, plan);
      } else {
        compare_tensor(input, tensor, output);
      }
    });
    progress.update("recode: comparing tensors", std::min(total, begin + kBatch), total);
  }
}

// ---- the folder ----

std::vector<std::string> copied_files(const fs::path& input) {
  std::vector<std::string> files = side_files_of(input);
  std::erase_if(
      files, [](const std::string& file) { return file == kConfigFile || file == kSumsFile || file == kOriginFile; });
  return files;
}

// Every file but SHA256SUMS, sorted.
std::vector<std::string> files_of(const RecodePlan& plan, const std::vector<std::string>& copied) {
  std::vector<std::string> files = copied;
  for (const RecodeShard& shard : plan.shards) files.push_back(shard.file);
  files.emplace_back(kConfigFile);
  files.emplace_back(kIndexFile);
  if (!plan.restores_origin()) files.emplace_back(kOriginFile);
  std::sort(files.begin(), files.end());
  return files;
}

void write_small_files(const RecodeOptions& options, const RecodePlan& plan, const std::vector<std::string>& copied,
                       const fs::path& folder) {
  const std::string config = read_text_file(options.input / kConfigFile);
  write_text_file(folder / kConfigFile, write_quantized_config(config, plan.spec, kConfigFile));
  write_text_file(folder / kIndexFile, write_index(plan.index));
  if (!plan.restores_origin()) write_text_file(folder / kOriginFile, write_origin(plan.origin));
  for (const std::string& file : copied) {
    make_folder((folder / file).parent_path());
    copy_file_atomic(options.input / file, folder / file);
  }
}

}  // namespace

const char* to_string(PackedForm form) {
  switch (form) {
    case PackedForm::kW3Dense:
      return "w3-dense";
    case PackedForm::kW3Padded:
      return "w3-padded";
    case PackedForm::kW4:
      return "w4";
  }
  return "unknown";
}

std::optional<PackedForm> parse_packed_form(std::string_view name) {
  for (const PackedForm form : {PackedForm::kW3Dense, PackedForm::kW3Padded, PackedForm::kW4}) {
    if (name == to_string(form)) return form;
  }
  return std::nullopt;
}

RecodeResult recode(const RecodeOptions& options) {
  if (options.threads < 1) fail(ErrorCode::kInvalidArgument, "threads is {}, must be at least 1", options.threads);
  ProgressSink silent;
  ProgressSink& progress = options.progress != nullptr ? *options.progress : silent;
  const Checkpoint input = Checkpoint::open(options.input, Checkpoint::Access::kRead);
  const RecodePlan plan = plan_recode(input, options.to);
  const std::vector<std::string> copied = copied_files(options.input);
  const std::vector<std::string> files = files_of(plan, copied);
  std::vector<std::string> with_sums = files;
  with_sums.emplace_back(kSumsFile);

  OutputFolder output(options.output, options.input, with_sums, options.overwrite);
  output.require_space(plan.index.total_size +
                       plan.index.total_size / 100);  // headers and small files are well below 1 %
  output.begin();
  output.clear();
  ThreadPool pool(options.threads);
  for (size_t i = 0; i < plan.shards.size(); ++i) {
    write_shard(options, input, plan, plan.shards[i], output.staging(), pool);
    progress.update("recode: shards", static_cast<int64_t>(i + 1), static_cast<int64_t>(plan.shards.size()));
  }
  write_small_files(options, plan, copied, output.staging());
  compare(options, input, output.staging(), plan, pool, progress);
  write_text_file(output.staging() / kSumsFile,
                  sha256_sums(output.staging(), files, [&] { throw_if_stopped(options); }));
  output.publish(kIndexFile);

  RecodeResult result{plan.from, plan.to, static_cast<int64_t>(plan.linears.size()), input.total_tensor_bytes(),
                      plan.index.total_size};
  return result;
}

}  // namespace trefoil
