#include "synthetic/shard_generator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace trefoil {
namespace {

constexpr std::string_view kPacked = ".weight_packed";
constexpr uint64_t kPieceElements = 1 << 21;  // 4 MB of BF16
constexpr size_t kPiecesPerThread = 4;        // of a batch, so that the last of them keep no thread waiting for long

// Part of a plain tensor, or all of an expert's Linear: weight_packed and, behind it, weight_scale.
struct Piece {
  size_t tensor = 0;  // of the shard
  uint64_t first = 0;
  uint64_t count = 0;
};

bool is_packed(const TensorPlan& tensor) {
  return tensor.name.ends_with(kPacked);
}

uint64_t elements_of(const TensorPlan& tensor) {
  uint64_t count = 0;
  TREFOIL_CHECK(byte_size_of(tensor.shape, DType::kU8, &count));
  return count;
}

std::vector<Piece> cut(const std::vector<TensorPlan>& tensors) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const uint64_t elements = elements_of(tensors[i]);
    if (is_packed(tensors[i])) {
      pieces.push_back({i, 0, elements});
      ++i;  // its scales
      continue;
    }
    for (uint64_t first = 0; first < elements; first += kPieceElements) {
      pieces.push_back({i, first, std::min(kPieceElements, elements - first)});
    }
  }
  return pieces;
}

using MadePiece = std::pair<Piece, std::vector<std::byte>>;

std::vector<std::byte> make(const TensorValues& values, const std::vector<TensorPlan>& tensors, const Piece& piece) {
  const TensorPlan& tensor = tensors[piece.tensor];
  if (!is_packed(tensor)) return values.plain(tensor, piece.first, piece.count);
  const std::string_view module = std::string_view(tensor.name).substr(0, tensor.name.size() - kPacked.size());
  return values.expert(module, tensor.shape[0], 2 * tensor.shape[1]);
}

void append(SafetensorsWriter& writer, const std::vector<TensorPlan>& tensors, const MadePiece& made) {
  const auto& [piece, bytes] = made;
  const TensorPlan& tensor = tensors[piece.tensor];
  if (!is_packed(tensor)) return writer.write(tensor.name, bytes);
  writer.write(tensor.name, Bytes(bytes).first(piece.count));
  writer.write(tensors[piece.tensor + 1].name, Bytes(bytes).subspan(piece.count));
}

}  // namespace

void ShardGenerator::write(const SyntheticShard& shard, const fs::path& folder) const {
  SafetensorsWriter writer(folder / shard.file, shard.tensors);
  const std::vector<Piece> pieces = cut(shard.tensors);
  const size_t batch_size = kPiecesPerThread * static_cast<size_t>(pool_.num_threads());
  std::vector<MadePiece> finished;  // of the batch before
  for (size_t begin = 0; begin < pieces.size() || !finished.empty(); begin += batch_size) {
    const size_t count = begin < pieces.size() ? std::min(batch_size, pieces.size() - begin) : 0;
    std::vector<MadePiece> batch(count);
    // Item 0 writes what is finished while the others make what comes next.
    pool_.parallel_for(static_cast<int64_t>(count + 1), [&](int64_t item) {
      if (item == 0) {
        for (const MadePiece& made : finished) append(writer, shard.tensors, made);
        return;
      }
      const Piece& piece = pieces[begin + static_cast<size_t>(item) - 1];
      batch[static_cast<size_t>(item) - 1] = {piece, make(values_, shard.tensors, piece)};
    });
    uint64_t bytes = 0;
    for (const MadePiece& made : finished) bytes += made.second.size();
    written_(bytes);
    finished = std::move(batch);
  }
  writer.commit();
}

}  // namespace trefoil
