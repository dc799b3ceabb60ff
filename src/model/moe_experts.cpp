#include "model/moe_experts.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/code_tiles.h"
#include "kernels/matmul.h"
#include "kernels/tile_matmul.h"

namespace trefoil {
namespace {

// A piece of work: some output rows of one group.
struct Piece {
  size_t group = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

std::vector<Piece> split_rows(size_t num_groups, int64_t rows, int64_t grain) {
  std::vector<Piece> pieces;
  for (size_t group = 0; group < num_groups; ++group) {
    for (int64_t begin = 0; begin < rows; begin += grain)
      pieces.push_back({group, begin, std::min(rows, begin + grain)});
  }
  return pieces;
}

bool in_tiles(const ExpertLinears& expert) {
  return expert.w1->direct().has_codes() && expert.w2->direct().has_codes() && expert.w3->direct().has_codes();
}

// --- in tiles ---

constexpr int64_t kUpRows = 128;        // of w1 and of w3 that a task takes: about 370 KB of int3 at K3's width
constexpr int64_t kTasksPerThread = 8;  // of w2, over all experts together

// y [x.tokens, end - begin]: rows [begin, end) of the product; begin is a multiple of 32.
void multiply_rows(const LinearWeight& weight, const PackedView& x, int64_t begin, int64_t end, float* y) {
  const DirectForm form = weight.direct();
  const int64_t block_bytes = tiles_bytes(form.tile_format, kTileRows, weight.in_features());
  TileMatmulArgs args{.format = form.tile_format,
                      .tiles = form.tiles,
                      .row_blocks = ceil_div(end - begin, kTileRows),
                      .rows = end - begin,
                      .x = x,
                      .y = y,
                      .y_stride = end - begin};
  if (form.kind == DirectForm::Kind::kTiles) {
    args.tiles += begin / kTileRows * block_bytes;
    tile_matmul(args);
    return;
  }
  // A block of rows at a time goes through a cache on its way into tiles.
  const std::span<std::byte> tiles = std::as_writable_bytes(thread_scratch(4, block_bytes / 4 + 16));
  std::byte* const aligned = tiles.data() + (64 - reinterpret_cast<uintptr_t>(tiles.data()) % 64) % 64;
  for (int64_t row = begin; row < end; row += kTileRows) {
    pack_tiles(form.codes, weight.out_features(), row / kTileRows, {aligned, static_cast<size_t>(block_bytes)});
    args.tiles = aligned;
    args.row_blocks = 1;
    args.rows = std::min(kTileRows, end - row);
    args.y = y + (row - begin);
    tile_matmul(args);
  }
}

// Two phases, each one parallel loop without atomics; the thread that made a hidden value packs it for w2.
class TileOutputs {
 public:
  TileOutputs(const Runtime& runtime, const ExpertDims& dims, std::span<const ExpertLinears* const> experts,
              const ExpertBatch& batch, const PackedTokens& z, int64_t top_k)
      : runtime_(runtime),
        dims_(dims),
        experts_(experts),
        batch_(batch),
        z_(z),
        inputs_(z.tokens() > 1 ? batch.groups.size() : 0),
        hidden_(batch.groups.size()) {
    runtime_.pool->parallel_for(static_cast<int64_t>(batch.groups.size()), [&](int64_t i) {
      const ExpertGroup& group = batch.groups[static_cast<size_t>(i)];
      hidden_[static_cast<size_t>(i)].reset(z.mode(), group.count, dims.inner);
      if (inputs_.empty()) return;  // one token: its packed form serves every expert
      std::vector<int64_t> tokens(static_cast<size_t>(group.count));
      for (int64_t t = 0; t < group.count; ++t) {
        tokens[static_cast<size_t>(t)] = batch.assignment[static_cast<size_t>(group.begin + t)] / top_k;
      }
      inputs_[static_cast<size_t>(i)].gather(z, tokens);
    });
  }

  void run(std::span<float> out) {
    const std::vector<Piece> up = split_rows(batch_.groups.size(), dims_.inner, kUpRows);
    runtime_.pool->parallel_for(static_cast<int64_t>(up.size()),
                                [&](int64_t i) { gate_up(up[static_cast<size_t>(i)]); });
    const int64_t blocks = ceil_div(dims_.latent, kTileRows);
    const int64_t grain = std::max<int64_t>(1, blocks / (kTasksPerThread * runtime_.pool->num_threads()));
    runtime_.pool->parallel_ranges(blocks, grain, [&](int64_t begin, int64_t end) {
      down(begin * kTileRows, std::min(end * kTileRows, dims_.latent), out);
    });
  }

 private:
  void gate_up(const Piece& piece) {
    const ExpertLinears& expert = *experts_[piece.group];
    const int64_t count = batch_.groups[piece.group].count, rows = piece.end - piece.begin;
    const PackedView x = inputs_.empty() ? z_.view() : inputs_[piece.group].view();
    const std::span<float> gate = thread_scratch(2, count * rows), up = thread_scratch(3, count * rows);
    multiply_rows(*expert.w1, x, piece.begin, piece.end, gate.data());
    multiply_rows(*expert.w3, x, piece.begin, piece.end, up.data());
    round_in_place(gate, runtime_.rounding);
    round_in_place(up, runtime_.rounding);
    situ(dims_.situ, gate, up, runtime_.rounding, gate);
    for (int64_t at = 0; at < rows; at += kTileCols) {
      hidden_[piece.group].pack_group((piece.begin + at) / kTileCols, gate.data() + at, rows);
    }
  }

  // Rows [begin, end) of w2 of every expert.
  void down(int64_t begin, int64_t end, std::span<float> out) {
    for (size_t i = 0; i < batch_.groups.size(); ++i) {
      const ExpertGroup& group = batch_.groups[i];
      const std::span<float> y = thread_scratch(2, group.count * (end - begin));
      multiply_rows(*experts_[i]->w2, hidden_[i].view(), begin, end, y.data());
      round_in_place(y, runtime_.rounding);
      for (int64_t t = 0; t < group.count; ++t) {
        const std::span<const float> from = row_of(std::span<const float>(y), t, end - begin);
        std::copy(from.begin(), from.end(), row_of(out, group.begin + t, dims_.latent).begin() + begin);
      }
    }
  }

  const Runtime& runtime_;
  const ExpertDims& dims_;
  std::span<const ExpertLinears* const> experts_;
  const ExpertBatch& batch_;
  const PackedTokens& z_;
  std::vector<PackedTokens> inputs_, hidden_;  // by group
};

// --- decoded ---

// hidden[t, 0..rows) = situ(w1 z, w3 z) for `rows` rows of w1 and w3, both [rows, latent]; hidden rows lie `stride`
// apart.
void hidden_rows(const Situ& unit, Rounding rounding, const float* w1, const float* w3, int64_t rows, int64_t latent,
                 const float* z, int64_t tokens, float* hidden, int64_t stride) {
  const std::span<float> gate = thread_scratch(2, tokens * rows);
  const std::span<float> up = thread_scratch(3, tokens * rows);
  MatmulArgs product = {.x = z,
                        .w = w1,
                        .y = gate.data(),
                        .tokens = tokens,
                        .rows = rows,
                        .k = latent,
                        .x_stride = latent,
                        .y_stride = rows};
  matmul(product);
  product.w = w3;
  product.y = up.data();
  matmul(product);
  round_in_place(gate, rounding);
  round_in_place(up, rounding);
  for (int64_t t = 0; t < tokens; ++t) {
    situ(unit, row_of(gate, t, rows), row_of(up, t, rows), rounding, {hidden + t * stride, static_cast<size_t>(rows)});
  }
}

// out[t, 0..rows) = w2 hidden for `rows` rows of w2 [rows, inner].
void output_rows(Rounding rounding, const float* w2, int64_t rows, int64_t inner, const float* hidden, int64_t tokens,
                 float* out, int64_t stride) {
  matmul({.x = hidden,
          .w = w2,
          .y = out,
          .tokens = tokens,
          .rows = rows,
          .k = inner,
          .x_stride = inner,
          .y_stride = stride});
  for (int64_t t = 0; t < tokens; ++t) {
    round_in_place({out + t * stride, static_cast<size_t>(rows)}, rounding);
  }
}

void decoded_outputs(const Runtime& runtime, const ExpertDims& dims, std::span<const ExpertLinears* const> experts,
                     const ExpertBatch& batch, const ExpertInput& input, int64_t top_k, std::span<float> out) {
  const int64_t rows = batch.rows(), latent = dims.latent, inner = dims.inner;
  std::vector<float> gathered(block_size(rows, latent));
  for (int64_t i = 0; i < rows; ++i) {
    const std::span<const float> from = input.row(batch.assignment[static_cast<size_t>(i)] / top_k);
    std::copy(from.begin(), from.end(), row_of(std::span(gathered), i, latent).begin());
  }
  std::vector<float> hidden(block_size(rows, inner));
  const int threads = runtime.pool->num_threads();
  const std::vector<Piece> up = split_rows(batch.groups.size(), inner, rows_per_task(inner, latent, threads));
  runtime.pool->parallel_for(static_cast<int64_t>(up.size()), [&](int64_t i) {
    const Piece& piece = up[static_cast<size_t>(i)];
    const ExpertGroup& group = batch.groups[piece.group];
    const int64_t count = piece.end - piece.begin;
    const std::span<float> w1 = thread_scratch(0, count * latent), w3 = thread_scratch(1, count * latent);
    experts[piece.group]->w1->decode_rows(piece.begin, piece.end, w1);
    experts[piece.group]->w3->decode_rows(piece.begin, piece.end, w3);
    hidden_rows(dims.situ, runtime.rounding, w1.data(), w3.data(), count, latent,
                gathered.data() + group.begin * latent, group.count, hidden.data() + group.begin * inner + piece.begin,
                inner);
  });
  const std::vector<Piece> down = split_rows(batch.groups.size(), latent, rows_per_task(latent, inner, threads));
  runtime.pool->parallel_for(static_cast<int64_t>(down.size()), [&](int64_t i) {
    const Piece& piece = down[static_cast<size_t>(i)];
    const ExpertGroup& group = batch.groups[piece.group];
    const int64_t count = piece.end - piece.begin;
    const std::span<float> w2 = thread_scratch(0, count * inner);
    experts[piece.group]->w2->decode_rows(piece.begin, piece.end, w2);
    output_rows(runtime.rounding, w2.data(), count, inner, hidden.data() + group.begin * inner, group.count,
                out.data() + group.begin * latent + piece.begin, latent);
  });
}

}  // namespace

Assignments::Assignments(const Routing& routing, int64_t num_experts)
    : first(static_cast<size_t>(num_experts) + 1), assignment(routing.expert.size()) {
  for (const int32_t expert : routing.expert) {
    TREFOIL_CHECK(expert >= 0 && expert < num_experts);
    ++first[static_cast<size_t>(expert) + 1];
  }
  for (size_t e = 1; e < first.size(); ++e) first[e] += first[e - 1];
  std::vector<int64_t> next(first.begin(), first.end() - 1);
  for (size_t i = 0; i < routing.expert.size(); ++i) {
    assignment[static_cast<size_t>(next[static_cast<size_t>(routing.expert[i])]++)] = static_cast<int64_t>(i);
  }
}

std::vector<ExpertBatch> batches_of(const Assignments& all, const ExpertDims& dims) {
  constexpr int64_t kBatchFloats = int64_t{1} << 24;
  const int64_t batch_rows = std::max<int64_t>(1, kBatchFloats / (2 * dims.latent + dims.inner));
  std::vector<ExpertBatch> batches;
  ExpertBatch batch;
  int64_t batch_begin = 0;  // into all.assignment
  const auto flush = [&](int64_t end) {
    batch.assignment =
        std::span(all.assignment).subspan(static_cast<size_t>(batch_begin), static_cast<size_t>(end - batch_begin));
    if (!batch.groups.empty()) batches.push_back(std::move(batch));
    batch = {};
    batch_begin = end;
  };
  for (size_t e = 0; e + 1 < all.first.size(); ++e) {
    const int64_t end = all.first[e + 1];
    for (int64_t begin = all.first[e]; begin < end;) {
      const int64_t count = std::min(end - begin, batch_rows);
      if (begin + count - batch_begin > batch_rows) flush(begin);
      batch.groups.push_back({static_cast<int64_t>(e), begin - batch_begin, count});
      begin += count;
    }
  }
  flush(static_cast<int64_t>(all.assignment.size()));
  return batches;
}

ExpertInput::ExpertInput(const Runtime& runtime, std::optional<TileMode> mode, std::span<const float> z, int64_t latent)
    : mode_(mode), z_(z), latent_(latent) {
  if (!mode_) return;
  packed_.reset(*mode_, tokens(), latent);
  constexpr int64_t kGroups = 8;
  runtime.pool->parallel_ranges(packed_.groups(), kGroups, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) packed_.pack_group(group, z.data() + group * kTileCols, latent);
  });
}

void expert_outputs(const Runtime& runtime, const ExpertDims& dims, std::span<const ExpertLinears* const> experts,
                    const ExpertBatch& batch, const ExpertInput& input, int64_t top_k, std::span<float> out) {
  TREFOIL_CHECK(experts.size() == batch.groups.size() && out.size() == block_size(batch.rows(), dims.latent));
  if (runtime.profile != nullptr) {
    for (const ExpertLinears* expert : experts) {
      runtime.profile->add_bytes(bytes_of(*expert->w1) + bytes_of(*expert->w2) + bytes_of(*expert->w3));
    }
  }
  const bool tiles = input.packed() != nullptr &&
                     std::all_of(experts.begin(), experts.end(), [](const auto* expert) { return in_tiles(*expert); });
  if (tiles) {
    TileOutputs(runtime, dims, experts, batch, *input.packed(), top_k).run(out);
  } else {
    decoded_outputs(runtime, dims, experts, batch, input, top_k, out);
  }
}

void add_expert_outputs(const Runtime& runtime, const ExpertBatch& batch, const Routing& routing,
                        std::span<const float> out, int64_t latent, std::span<float> sum) {
  constexpr int64_t kColumns = 512;
  // Rows come in ascending expert order, so every token's sum is taken in ascending expert order.
  runtime.pool->parallel_ranges(latent, kColumns, [&](int64_t begin, int64_t end) {
    const size_t first = static_cast<size_t>(begin), count = static_cast<size_t>(end - begin);
    for (int64_t i = 0; i < batch.rows(); ++i) {
      const int64_t assignment = batch.assignment[static_cast<size_t>(i)];
      add_scaled(routing.weight[static_cast<size_t>(assignment)], row_of(out, i, latent).subspan(first, count),
                 row_of(sum, assignment / routing.top_k, latent).subspan(first, count));
    }
  });
}

void expert_hidden(const GateUpWeights& weights, const ModelConfig& config, Numerics numerics, std::span<const float> z,
                   int64_t tokens, std::span<float> hidden) {
  TREFOIL_CHECK(weights.w1.size() == block_size(weights.inner, weights.latent));
  TREFOIL_CHECK(weights.w3.size() == weights.w1.size());
  TREFOIL_CHECK(z.size() == block_size(tokens, weights.latent));
  TREFOIL_CHECK(hidden.size() == block_size(tokens, weights.inner));
  const Situ unit{.beta = config.activation_situ_beta, .linear_beta = config.activation_situ_linear_beta};
  hidden_rows(unit, rounding_of(numerics), weights.w1.data(), weights.w3.data(), weights.inner, weights.latent,
              z.data(), tokens, hidden.data(), weights.inner);
}

}  // namespace trefoil
