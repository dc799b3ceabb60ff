// The activations of a quantization job, on disk: what each decoder layer reads and writes for every calibration token,
// so that memory does not grow with the amount of text and a killed job finds its place again.
//
// Two streams: the quantized one (every layer sees what the quantized layers before it make of the text) and, for the
// mismatch target, the original one. They are one up to the input of the first quantized layer, `split_layer`. Files, a
// row a token, S = q or o:
//   S.prefix.L    the running sum that enters layer L; those of layers that begin an AttnRes block are what later
//                 layers find stacked, and are kept
//   S.attended.L  the running sum after the attention of L
//   S.latent.L    what the routed experts of L read         S.routing.L   experts and weights of each token
//   q.effect.L    mean(u^2) + eps of the experts' sum u, f64: how much an error of an expert weighs (token_lists.h)
//   shared.L      the Hessian of all latents, f32 [latent, latent]
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "quantize/row_file.h"

namespace trefoil {

enum class Stream { kQuantized, kOriginal };

class ActivationStore {
 public:
  // `folder` is made. split_layer: see above. write_through: what one process writes others may rely on at once, whatever
  // happens to the machine of the first.
  ActivationStore(fs::path folder, const ModelConfig& config, Numerics numerics, int64_t tokens, int64_t split_layer,
                  bool write_through = false);

  const fs::path& folder() const { return folder_; }
  int64_t tokens() const { return tokens_; }

  // To read, a file must be there, whole (else Error kNotFound, kIo); to write, it is made.
  ActivationFile prefix(Stream stream, int64_t layer, RowAccess access) const;
  ActivationFile attended(Stream stream, int64_t layer, RowAccess access) const;
  ActivationFile latent(Stream stream, int64_t layer, RowAccess access) const;
  RowFile effect(int64_t layer, RowAccess access) const;
  RowFile shared_hessian(int64_t layer, RowAccess access) const;
  // kWrite or kWriteThrough.
  RowAccess write_access() const { return write_access_; }

  // Tokens [begin, begin + count) of the stream as the attention of `layer` finds it, and as it leaves it.
  ResidualStream before_attention(Stream stream, int64_t layer, int64_t begin, int64_t count) const;
  ResidualStream after_attention(Stream stream, int64_t layer, int64_t begin, int64_t count) const;

  WrittenRange write_routing(Stream stream, int64_t layer, int64_t begin, const Routing& routing) const;
  Routing read_routing(Stream stream, int64_t layer, int64_t begin, int64_t count) const;

  // Files that the walk needs to go on from the input of `layer`, by name.
  std::vector<std::string> files_at(Stream stream, int64_t layer) const;
  uint64_t prefix_bytes() const;
  // Disk space that the files take now.
  uint64_t bytes_used() const;
  // Removes what no layer after `layer` reads. Nothing may be at work on it any more.
  void drop(int64_t layer) const;

 private:
  std::string name(Stream stream, const char* what, int64_t layer) const;
  std::string prefix_name(Stream stream, int64_t layer) const;
  ActivationFile file(std::string name, int64_t width, RowAccess access) const;
  RowFile routing_file(Stream stream, int64_t layer, RowAccess access) const;
  ResidualStream load(const ActivationFile& sum, Stream stream, int64_t stacked_before, int64_t begin,
                      int64_t count) const;
  bool begins_block(int64_t layer) const { return layer % block_layers_ == 0; }

  fs::path folder_;
  ActivationFile::Element element_;
  RowAccess write_access_;
  int64_t tokens_, hidden_, latent_, top_k_, block_layers_, split_layer_;
};

}  // namespace trefoil
