// A model as the comparison sees it: it reads a batch of sequences piece by piece and hands out logits. The real one is
// ModelLogits (model_logits.h); tests make up their own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace trefoil {

class LogitsProvider {
 public:
  virtual ~LogitsProvider() = default;

  virtual const std::string& label() const = 0;  // names the model in messages
  virtual int64_t vocab_size() const = 0;

  // Forgets everything and begins `num_sequences` new sequences. In messages they are rows first_row, first_row + 1,
  // ...
  virtual void start(int64_t first_row, int64_t num_sequences) = 0;

  // Reads the next ids of every sequence (a piece may be empty, pieces may differ in length). Tokens are numbered by
  // sequence: all of the first sequence's piece, then the second's.
  virtual void advance(std::span<const std::span<const int32_t>> pieces) = 0;

  // Logits after tokens [begin, begin + count) of the last advance(), [count, vocab_size].
  virtual std::vector<float> logits(int64_t begin, int64_t count) = 0;
};

}  // namespace trefoil
