// The bytes of a text file that may be compressed, read piece by piece: NAME.gz (gzip), NAME.zst (zstd), anything else
// as it is. Memory is bounded whatever the file holds; so is what a small file can expand to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "checkpoint/file.h"

namespace trefoil {

enum class Compression { kNone, kGzip, kZstd };

// By the name's extension.
Compression compression_of(const fs::path& file);
// The name without its .gz or .zst.
fs::path uncompressed_name(const fs::path& file);

class TextStream {
 public:
  explicit TextStream(const fs::path& file);
  ~TextStream();
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;

  const fs::path& path() const;
  // Fills `out` as far as the text goes and returns how much that was: less than out.size() only at the end.
  // Error(kCorrupt), headed by `place`, for data that are damaged or end too early, for bytes behind the last gzip
  // member or zstd frame that start no other one, and for text of over 64 MiB that is over 256 times its compressed
  // bytes, which no text people write comes near.
  size_t read(MutableBytes out, const std::string& place);

 private:
  struct Decoder;
  struct PlainDecoder;
  struct GzipDecoder;
  struct ZstdDecoder;
  class Input;
  std::unique_ptr<Input> input_;
  std::unique_ptr<Decoder> decoder_;
  uint64_t produced_ = 0;
};

// The whole text; Error(kCorrupt) when it is over `limit` bytes.
std::string read_text_stream(const fs::path& file, uint64_t limit);

}  // namespace trefoil
