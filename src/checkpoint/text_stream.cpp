#include "checkpoint/text_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace trefoil {
namespace {

constexpr uint64_t kChunkBytes = 1 << 20;
constexpr uint64_t kMaxExpansion = 256;
constexpr uint64_t kFreeExpansionBytes = 64ull << 20;
constexpr int kGzipOnly = 15 + 16;     // zlib: the largest window, and a gzip header is demanded
constexpr int kMaxZstdWindowLog = 27;  // 128 MiB; the zstd command line makes more only with --long or --ultra

}  // namespace

// The file's bytes, a chunk at a time.
class TextStream::Input {
 public:
  explicit Input(const fs::path& path) : file(path) {}

  // What is at hand and not yet consumed; empty at the end of the file.
  Bytes peek() {
    if (pos_ == chunk_.size() && offset_ < file.size()) {
      chunk_.resize(std::min(kChunkBytes, file.size() - offset_));
      file.read_at(offset_, chunk_);
      offset_ += chunk_.size();
      pos_ = 0;
    }
    return Bytes(chunk_).subspan(pos_);
  }
  void consume(size_t count) { pos_ += count; }
  uint64_t consumed() const { return offset_ - (chunk_.size() - pos_); }

  const InputFile file;

 private:
  std::vector<std::byte> chunk_;
  size_t pos_ = 0;
  uint64_t offset_ = 0;  // of the first byte behind chunk_
};

struct TextStream::Decoder {
  virtual ~Decoder() = default;
  // Bytes written to `out`; 0 only at the end of the text. `out` is not empty.
  virtual size_t decode(Input& input, MutableBytes out, const std::string& place) = 0;
};

struct TextStream::PlainDecoder : Decoder {
  size_t decode(Input& input, MutableBytes out, const std::string& /*place*/) override {
    const Bytes bytes = input.peek();
    const size_t count = std::min(bytes.size(), out.size());
    std::copy_n(bytes.begin(), count, out.begin());
    input.consume(count);
    return count;
  }
};

struct TextStream::GzipDecoder : Decoder {
  GzipDecoder() { TREFOIL_CHECK(inflateInit2(&stream, kGzipOnly) == Z_OK); }
  ~GzipDecoder() override { inflateEnd(&stream); }

  size_t decode(Input& input, MutableBytes out, const std::string& place) override {
    while (true) {
      const Bytes bytes = input.peek();
      if (bytes.empty()) {
        if (in_member || input.consumed() == 0) fail(ErrorCode::kCorrupt, "{}: the gzip data end too early", place);
        return 0;
      }
      if (!in_member) TREFOIL_CHECK(inflateReset(&stream) == Z_OK);
      in_member = true;
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));  // zlib does not write there
      stream.avail_in = static_cast<uInt>(bytes.size());
      stream.next_out = reinterpret_cast<Bytef*>(out.data());
      stream.avail_out = static_cast<uInt>(std::min<size_t>(out.size(), kChunkBytes));
      const size_t room = stream.avail_out;
      const int result = inflate(&stream, Z_NO_FLUSH);
      input.consume(bytes.size() - stream.avail_in);
      if (result != Z_OK && result != Z_STREAM_END && result != Z_BUF_ERROR) {
        fail(ErrorCode::kCorrupt, "{}: damaged gzip data near byte {} of the file ({})", place, input.consumed(),
             stream.msg != nullptr ? stream.msg : "no reason given");
      }
      if (result == Z_STREAM_END) in_member = false;
      if (const size_t produced = room - stream.avail_out; produced > 0) return produced;
    }
  }

  z_stream stream{};
  bool in_member = false;
};

struct TextStream::ZstdDecoder : Decoder {
  ZstdDecoder() : stream(ZSTD_createDCtx()) {
    TREFOIL_CHECK(stream != nullptr);
    TREFOIL_CHECK(!ZSTD_isError(ZSTD_DCtx_setParameter(stream, ZSTD_d_windowLogMax, kMaxZstdWindowLog)));
  }
  ~ZstdDecoder() override { ZSTD_freeDCtx(stream); }

  size_t decode(Input& input, MutableBytes out, const std::string& place) override {
    while (true) {
      const Bytes bytes = input.peek();
      ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
      ZSTD_outBuffer produced{out.data(), out.size(), 0};
      const size_t result = ZSTD_decompressStream(stream, &produced, &in);
      input.consume(in.pos);
      if (ZSTD_isError(result)) {
        fail(ErrorCode::kCorrupt, "{}: damaged zstd data near byte {} of the file ({})", place, input.consumed(),
             ZSTD_getErrorName(result));
      }
      // At the end of the file what is left may still be inside the decoder; then a call without input yields it.
      if (produced.pos > 0) return in_frame = result != 0, produced.pos;
      if (bytes.empty()) {
        if (in_frame || input.consumed() == 0) fail(ErrorCode::kCorrupt, "{}: the zstd data end too early", place);
        return 0;
      }
      in_frame = result != 0;
    }
  }

  ZSTD_DCtx* stream;
  bool in_frame = false;  // the frame begun is not complete, or not yet handed out
};

Compression compression_of(const fs::path& file) {
  const fs::path extension = file.extension();
  return extension == ".gz" ? Compression::kGzip : extension == ".zst" ? Compression::kZstd : Compression::kNone;
}

fs::path uncompressed_name(const fs::path& file) {
  return compression_of(file) == Compression::kNone ? file : fs::path(file).replace_extension();
}

TextStream::TextStream(const fs::path& file) : input_(std::make_unique<Input>(file)) {
  switch (compression_of(file)) {
    case Compression::kNone:
      decoder_ = std::make_unique<PlainDecoder>();
      break;
    case Compression::kGzip:
      decoder_ = std::make_unique<GzipDecoder>();
      break;
    case Compression::kZstd:
      decoder_ = std::make_unique<ZstdDecoder>();
      break;
  }
}

TextStream::~TextStream() = default;

const fs::path& TextStream::path() const {
  return input_->file.path();
}

size_t TextStream::read(MutableBytes out, const std::string& place) {
  size_t filled = 0;
  while (filled < out.size()) {
    const size_t count = decoder_->decode(*input_, out.subspan(filled), place);
    if (count == 0) break;
    filled += count;
    produced_ += count;
    if (produced_ > kFreeExpansionBytes && produced_ / kMaxExpansion > input_->consumed()) {
      fail(ErrorCode::kCorrupt, "{}: {} compressed bytes became over {} bytes: more than {} times as many is no text",
           place, input_->consumed(), produced_, kMaxExpansion);
    }
  }
  return filled;
}

std::string read_text_stream(const fs::path& file, uint64_t limit) {
  TextStream stream(file);
  std::string text;
  while (true) {
    const size_t before = text.size();
    text.resize(before + std::min(kChunkBytes, limit + 1 - before));
    const size_t count = stream.read(std::as_writable_bytes(std::span(text).subspan(before)), file.string());
    const bool at_end = before + count < text.size();
    text.resize(before + count);
    if (text.size() > limit) fail(ErrorCode::kCorrupt, "{}: the text is longer than {} bytes", file.string(), limit);
    if (at_end) return text;
  }
}

}  // namespace trefoil
