#include "eval/model_logits.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "eval/forward_layers.h"

namespace trefoil {

ModelLogits::ModelLogits(std::string label, const Model& model, const SplitOptions& split)
    : label_(std::move(label)), model_(model), split_(split) {}

int64_t ModelLogits::vocab_size() const {
  return model_.config().vocab_size;
}

void ModelLogits::start(int64_t first_row, int64_t num_sequences) {
  first_row_ = first_row;
  states_.clear();
  for (int64_t s = 0; s < num_sequences; ++s) states_.push_back(model_.new_sequence());
  blocks_.clear();
  places_.clear();
}

void ModelLogits::advance(std::span<const std::span<const int32_t>> pieces) {
  std::vector<int64_t> first_token;
  int64_t total = 0, longest = 0;
  for (const std::span<const int32_t> piece : pieces) {
    first_token.push_back(total);
    total += static_cast<int64_t>(piece.size());
    longest = std::max(longest, static_cast<int64_t>(piece.size()));
  }
  blocks_.clear();
  places_.assign(static_cast<size_t>(total), {});
  std::vector<int64_t> all(pieces.size());
  std::iota(all.begin(), all.end(), 0);
  const int64_t chunk = split_.chunk > 0 ? split_.chunk : std::max<int64_t>(longest, 1);
  for (int64_t offset = 0; offset < longest; offset += chunk) {
    if (!split_.rows_apart) {
      run_block(pieces, first_token, all, offset, chunk);
      continue;
    }
    for (const int64_t& sequence : all) run_block(pieces, first_token, {&sequence, 1}, offset, chunk);
  }
}

// Runs tokens [offset, offset + count) of the pieces of `sequences` together.
void ModelLogits::run_block(std::span<const std::span<const int32_t>> pieces, std::span<const int64_t> first_token,
                            std::span<const int64_t> sequences, int64_t offset, int64_t count) {
  std::vector<int32_t> ids;
  std::vector<SequenceRows> rows;
  for (const int64_t s : sequences) {
    const std::span<const int32_t> piece = pieces[static_cast<size_t>(s)];
    const int64_t size = static_cast<int64_t>(piece.size());
    const int64_t begin = std::min(offset, size), end = std::min(offset + count, size);
    if (begin == end) continue;
    SequenceState& state = states_[static_cast<size_t>(s)];
    for (int64_t p = begin; p < end; ++p) {
      Place& place = places_[static_cast<size_t>(first_token[static_cast<size_t>(s)] + p)];
      place.block = static_cast<int64_t>(blocks_.size());
      place.index = static_cast<int64_t>(ids.size());
      place.sequence = s;
      place.position = state.position + p - begin;
      ids.push_back(piece[static_cast<size_t>(p)]);
    }
    rows.push_back({&state, static_cast<int64_t>(ids.size()) - (end - begin), end - begin});
  }
  if (ids.empty()) return;
  try {
    blocks_.push_back(run_layers(model_, ids, rows));
  } catch (const Error& error) {
    fail(error.code(), "{}: rows {} to {}: {}", label_, first_row_ + sequences.front(), first_row_ + sequences.back(),
         error.what());
  }
}

std::vector<float> ModelLogits::logits(int64_t begin, int64_t count) {
  std::vector<float> out;
  out.reserve(static_cast<size_t>(count * vocab_size()));
  for (int64_t token = begin; token < begin + count;) {
    // as many tokens as lie side by side in one block
    const Place& first = places_[static_cast<size_t>(token)];
    int64_t length = 1;
    while (token + length < begin + count) {
      const Place& next = places_[static_cast<size_t>(token + length)];
      if (next.block != first.block || next.index != first.index + length) break;
      ++length;
    }
    std::vector<float> part = run_logits(token, length);
    if (length == count) return part;
    out.insert(out.end(), part.begin(), part.end());
    token += length;
  }
  return out;
}

std::vector<float> ModelLogits::run_logits(int64_t first_token, int64_t count) const {
  const Place& place = places_[static_cast<size_t>(first_token)];
  const ResidualStream& stream = blocks_[static_cast<size_t>(place.block)];
  try {
    return model_.logits(stream, place.index, count);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCorrupt) throw;
    if (count == 1) {
      fail(ErrorCode::kCorrupt, "{}: row {} position {}: {}", label_, first_row_ + place.sequence, place.position,
           error.what());
    }
    for (int64_t i = 0; i < count; ++i) run_logits(first_token + i, 1);  // which of them is it
    throw;
  }
}

}  // namespace trefoil
