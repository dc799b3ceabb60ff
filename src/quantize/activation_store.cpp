#include "quantize/activation_store.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace trefoil {

ActivationStore::ActivationStore(fs::path folder, const ModelConfig& config, Numerics numerics, int64_t tokens,
                                 int64_t split_layer, bool write_through)
    : folder_(std::move(folder)),
      element_(numerics == Numerics::kBf16 ? ActivationFile::Element::kBf16 : ActivationFile::Element::kF32),
      write_access_(write_through ? RowAccess::kWriteThrough : RowAccess::kWrite),
      tokens_(tokens),
      hidden_(config.hidden_size),
      latent_(config.routed_expert_hidden_size),
      top_k_(config.num_experts_per_token),
      block_layers_(config.attn_res_block_size),
      split_layer_(split_layer) {
  make_folder(folder_);
}

std::string ActivationStore::name(Stream stream, const char* what, int64_t layer) const {
  return fmt::format("{}.{}.{:03}", stream == Stream::kQuantized ? 'q' : 'o', what, layer);
}

// Up to the split both streams are the quantized one.
std::string ActivationStore::prefix_name(Stream stream, int64_t layer) const {
  return name(layer <= split_layer_ ? Stream::kQuantized : stream, "prefix", layer);
}

ActivationFile ActivationStore::file(std::string name, int64_t width, RowAccess access) const {
  return {folder_, std::move(name), tokens_, width, element_, access};
}
RowFile ActivationStore::routing_file(Stream stream, int64_t layer, RowAccess access) const {
  return {folder_, name(stream, "routing", layer), tokens_, top_k_ * 8, access};
}

ActivationFile ActivationStore::prefix(Stream stream, int64_t layer, RowAccess access) const {
  return file(prefix_name(stream, layer), hidden_, access);
}
ActivationFile ActivationStore::attended(Stream stream, int64_t layer, RowAccess access) const {
  return file(name(stream, "attended", layer), hidden_, access);
}
ActivationFile ActivationStore::latent(Stream stream, int64_t layer, RowAccess access) const {
  return file(name(stream, "latent", layer), latent_, access);
}
RowFile ActivationStore::effect(int64_t layer, RowAccess access) const {
  return {folder_, name(Stream::kQuantized, "effect", layer), tokens_, 8, access};
}
RowFile ActivationStore::shared_hessian(int64_t layer, RowAccess access) const {
  return {folder_, fmt::format("shared.{:03}", layer), latent_, latent_ * 4, access};
}

ResidualStream ActivationStore::load(const ActivationFile& sum, Stream stream, int64_t stacked_before, int64_t begin,
                                     int64_t count) const {
  ResidualStream residual;
  residual.tokens = count;
  residual.hidden = hidden_;
  const auto read = [&](const ActivationFile& from) {
    std::vector<float> values(static_cast<size_t>(count * hidden_));
    from.read(begin, values);
    return values;
  };
  residual.prefix = read(sum);
  for (int64_t layer = 0; layer < stacked_before; layer += block_layers_)
    residual.stack.push_back(read(prefix(stream, layer, RowAccess::kRead)));
  return residual;
}

ResidualStream ActivationStore::before_attention(Stream stream, int64_t layer, int64_t begin, int64_t count) const {
  return load(prefix(stream, layer, RowAccess::kRead), stream, layer, begin, count);
}

// A layer that begins a block stacks its input.
ResidualStream ActivationStore::after_attention(Stream stream, int64_t layer, int64_t begin, int64_t count) const {
  return load(attended(stream, layer, RowAccess::kRead), stream, layer + 1, begin, count);
}

WrittenRange ActivationStore::write_routing(Stream stream, int64_t layer, int64_t begin, const Routing& routing) const {
  const auto k = static_cast<size_t>(top_k_);
  std::vector<std::byte> rows(static_cast<size_t>(routing.tokens) * k * 8);
  for (size_t t = 0; t < static_cast<size_t>(routing.tokens); ++t) {
    std::copy_n(std::as_bytes(std::span(routing.expert).subspan(t * k, k)).begin(), 4 * k,
                rows.begin() + static_cast<std::ptrdiff_t>(t * k * 8));
    std::copy_n(std::as_bytes(std::span(routing.weight).subspan(t * k, k)).begin(), 4 * k,
                rows.begin() + static_cast<std::ptrdiff_t>(t * k * 8 + 4 * k));
  }
  return routing_file(stream, layer, write_access_).write(begin, rows);
}

Routing ActivationStore::read_routing(Stream stream, int64_t layer, int64_t begin, int64_t count) const {
  const auto k = static_cast<size_t>(top_k_);
  std::vector<std::byte> rows(static_cast<size_t>(count) * k * 8);
  routing_file(stream, layer, RowAccess::kRead).read(begin, rows);
  Routing routing;
  routing.tokens = count;
  routing.top_k = top_k_;
  routing.expert.resize(static_cast<size_t>(count) * k);
  routing.weight.resize(routing.expert.size());
  for (size_t t = 0; t < static_cast<size_t>(count); ++t) {
    const std::byte* row = rows.data() + t * k * 8;
    std::copy_n(row, 4 * k, std::as_writable_bytes(std::span(routing.expert).subspan(t * k, k)).begin());
    std::copy_n(row + 4 * k, 4 * k, std::as_writable_bytes(std::span(routing.weight).subspan(t * k, k)).begin());
  }
  return routing;
}

std::vector<std::string> ActivationStore::files_at(Stream stream, int64_t layer) const {
  std::vector<std::string> files = {prefix_name(stream, layer)};
  for (int64_t stacked = 0; stacked < layer; stacked += block_layers_) files.push_back(prefix_name(stream, stacked));
  return files;
}

uint64_t ActivationStore::prefix_bytes() const {
  return static_cast<uint64_t>(tokens_ * hidden_) * (element_ == ActivationFile::Element::kBf16 ? 2 : 4);
}

uint64_t ActivationStore::bytes_used() const {
  return space_used(folder_);
}

void ActivationStore::drop(int64_t layer) const {
  std::vector<std::string> files = {fmt::format("shared.{:03}", layer), name(Stream::kQuantized, "effect", layer)};
  for (const Stream stream : {Stream::kQuantized, Stream::kOriginal}) {
    for (const char* what : {"attended", "latent", "routing"}) files.push_back(name(stream, what, layer));
    if (!begins_block(layer)) files.push_back(name(stream, "prefix", layer));
  }
  for (const std::string& file : files) {
    std::error_code error;
    fs::remove(folder_ / file, error);
    if (error) fail(ErrorCode::kIo, "{}: cannot remove: {}", (folder_ / file).string(), error.message());
  }
}

}  // namespace trefoil
