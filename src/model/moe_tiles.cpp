// Moe::run_batch for experts in tiles: two phases, each one parallel loop, no atomics and no merging.
//   1. (expert, rows of w1 and w3): hidden = situ(w1 z, w3 z), packed at once for w2 by the thread that made it
//   2. rows of w2 of all experts, ascending: each thread adds into rows of the sum that are its own
#include <algorithm>

#include "kernels/code_tiles.h"
#include "kernels/tile_matmul.h"
#include "model/moe.h"
#include "model/moe_batch.h"

namespace trefoil {
namespace {

constexpr int64_t kUpRows = 128;       // of w1 and of w3 a task of phase 1 takes: about 370 KB of int3 at K3's width
constexpr int64_t kTasksPerThread = 8;  // of phase 2

// y [x.tokens, rows] for rows from `row` on, a multiple of 32.
void multiply_rows(const LinearWeight& weight, const PackedView& x, int64_t row, int64_t rows, float* y) {
  const DirectForm form = weight.direct();
  const int64_t block_bytes = tiles_bytes(form.tile_format, kTileRows, weight.in_features());
  tile_matmul({.format = form.tile_format,
               .tiles = form.tiles + row / kTileRows * block_bytes,
               .row_blocks = ceil_div(rows, kTileRows),
               .rows = rows,
               .x = x,
               .y = y,
               .y_stride = rows});
}

}  // namespace

bool all_in_tiles(std::span<const ExpertLinears> experts, std::span<const ExpertGroup> groups) {
  return std::all_of(groups.begin(), groups.end(), [&](const ExpertGroup& group) {
    const ExpertLinears& expert = experts[static_cast<size_t>(group.expert)];
    return expert.w1->direct().kind == DirectForm::Kind::kTiles &&
           expert.w2->direct().kind == DirectForm::Kind::kTiles && expert.w3->direct().kind == DirectForm::Kind::kTiles;
  });
}

void Moe::run_tiles(const Runtime& runtime, TileMode mode, std::span<const ExpertLinears> experts,
                    const ExpertBatch& batch, const PackedTokens& z, const Routing& routing,
                    std::span<float> sum) const {
  if (runtime.profile != nullptr) {
    for (const ExpertGroup& group : batch.groups) {
      const ExpertLinears& expert = experts[static_cast<size_t>(group.expert)];
      runtime.profile->add_bytes(bytes_of(*expert.w1) + bytes_of(*expert.w2) + bytes_of(*expert.w3));
    }
  }
  const int64_t num_groups = static_cast<int64_t>(batch.groups.size());
  std::vector<PackedTokens> inputs(z.tokens() > 1 ? batch.groups.size() : 0), hidden(batch.groups.size());
  runtime.pool->parallel_for(num_groups, [&](int64_t i) {
    const ExpertGroup& group = batch.groups[static_cast<size_t>(i)];
    hidden[static_cast<size_t>(i)].reset(mode, group.count, inner_size_);
    if (inputs.empty()) return;  // one token: its packed form serves every expert
    std::vector<int64_t> tokens(static_cast<size_t>(group.count));
    for (int64_t t = 0; t < group.count; ++t) tokens[static_cast<size_t>(t)] = batch.token(group, t, routing.top_k);
    inputs[static_cast<size_t>(i)].gather(z, tokens);
  });

  const int64_t pieces = ceil_div(inner_size_, kUpRows);
  runtime.pool->parallel_for(num_groups * pieces, [&](int64_t item) {
    const size_t i = static_cast<size_t>(item / pieces);
    const ExpertGroup& group = batch.groups[i];
    const ExpertLinears& expert = experts[static_cast<size_t>(group.expert)];
    const int64_t row = item % pieces * kUpRows, rows = std::min(kUpRows, inner_size_ - row);
    const PackedView x = inputs.empty() ? z.view() : inputs[i].view();
    const std::span<float> gate = thread_scratch(2, group.count * rows);
    const std::span<float> up = thread_scratch(3, group.count * rows);
    multiply_rows(*expert.w1, x, row, rows, gate.data());
    multiply_rows(*expert.w3, x, row, rows, up.data());
    round_in_place(gate, runtime.rounding);
    round_in_place(up, runtime.rounding);
    situ(situ_, gate, up, runtime.rounding, gate);
    for (int64_t at = 0; at < rows; at += kTileCols) {
      hidden[i].pack_group((row + at) / kTileCols, gate.data() + at, rows);
    }
  });

  const int64_t blocks = ceil_div(latent_size_, kTileRows);
  const int64_t grain = std::max<int64_t>(1, blocks / (kTasksPerThread * runtime.pool->num_threads()));
  runtime.pool->parallel_ranges(blocks, grain, [&](int64_t begin, int64_t end) {
    const int64_t row = begin * kTileRows, rows = std::min(end * kTileRows, latent_size_) - row;
    for (size_t i = 0; i < batch.groups.size(); ++i) {
      const ExpertGroup& group = batch.groups[i];
      const std::span<float> out = thread_scratch(2, group.count * rows);
      multiply_rows(*experts[static_cast<size_t>(group.expert)].w2, hidden[i].view(), row, rows, out.data());
      round_in_place(out, runtime.rounding);
      for (int64_t t = 0; t < group.count; ++t) {
        const float weight = routing.weight[static_cast<size_t>(batch.assignment_of(group, t))];
        const int64_t token = batch.token(group, t, routing.top_k);
        add_scaled(weight, row_of(std::span<const float>(out), t, rows),
                   sum.subspan(static_cast<size_t>(token * latent_size_ + row), static_cast<size_t>(rows)));
      }
    }
  });
}

}  // namespace trefoil
