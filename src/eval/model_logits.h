// The real LogitsProvider: Kimi-K3's forward pass over a batch of sequences. Holds the residual stream of the last
// piece and the sequences' states; logits are computed when asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/logits_provider.h"
#include "model/model.h"

namespace trefoil {

// How a piece is cut before it is run. It should not change results; the noise floor checks that it does not.
struct SplitOptions {
  int64_t chunk = 0;        // tokens of a sequence run at a time; 0: the whole piece
  bool rows_apart = false;  // every sequence alone instead of all together
};

class ModelLogits : public LogitsProvider {
 public:
  // `model` must outlive this.
  ModelLogits(std::string label, const Model& model, const SplitOptions& split = {});

  const std::string& label() const override { return label_; }
  int64_t vocab_size() const override;
  void start(int64_t first_row, int64_t num_sequences) override;
  void advance(std::span<const std::span<const int32_t>> pieces) override;
  std::vector<float> logits(int64_t begin, int64_t count) override;

 private:
  // Where a token of the last piece is.
  struct Place {
    int64_t block = 0;
    int64_t index = 0;  // in the block
    int64_t sequence = 0;
    int64_t position = 0;  // in the sequence
  };

  void run_block(std::span<const std::span<const int32_t>> pieces, std::span<const int64_t> first_token,
                 std::span<const int64_t> sequences, int64_t offset, int64_t count);
  std::vector<float> run_logits(int64_t first_token, int64_t count) const;

  std::string label_;
  const Model& model_;
  SplitOptions split_;
  int64_t first_row_ = 0;
  std::vector<SequenceState> states_;
  std::vector<ResidualStream> blocks_;
  std::vector<Place> places_;
};

}  // namespace trefoil
