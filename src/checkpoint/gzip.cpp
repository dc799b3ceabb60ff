#include "checkpoint/gzip.h"

#include <zlib.h>

#include <array>
#include <memory>

#include "base/check.h"
#include "base/error.h"

namespace trefoil {
namespace {

constexpr size_t kPieceBytes = 1 << 18;
constexpr int kGzipOnly = 15 + 16;  // zlib: the largest window, and a gzip header is demanded

struct Inflater {
  z_stream stream{};
  Inflater() { TREFOIL_CHECK(inflateInit2(&stream, kGzipOnly) == Z_OK); }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

}  // namespace

std::string gunzip(Bytes compressed, uint64_t limit, const std::string& file) {
  if (compressed.size() > std::numeric_limits<uInt>::max()) {
    fail(ErrorCode::kCorrupt, "{}: {} compressed bytes are more than any index has", file, compressed.size());
  }
  Inflater inflater;
  z_stream& stream = inflater.stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(compressed.data()));  // zlib does not write there
  stream.avail_in = static_cast<uInt>(compressed.size());
  const auto piece = std::make_unique<std::array<char, kPieceBytes>>();
  std::string text;
  int result = Z_OK;
  while (result == Z_OK) {
    stream.next_out = reinterpret_cast<Bytef*>(piece->data());
    stream.avail_out = kPieceBytes;
    result = inflate(&stream, Z_NO_FLUSH);
    text.append(piece->data(), kPieceBytes - stream.avail_out);
    if (text.size() > limit) fail(ErrorCode::kCorrupt, "{}: more than {} bytes when uncompressed", file, limit);
  }
  if (result != Z_STREAM_END) {
    fail(ErrorCode::kCorrupt, "{}: damaged gzip data near byte {} ({})", file, stream.total_in,
         stream.msg != nullptr ? stream.msg : "it ends too early");
  }
  if (stream.avail_in != 0)
    fail(ErrorCode::kCorrupt, "{}: {} bytes after the end of the gzip data", file, stream.avail_in);
  return text;
}

std::string read_gzip_text_file(const fs::path& path, uint64_t limit) {
  std::string bytes = read_text_file(path, limit);
  const bool is_gzip = bytes.starts_with("\x1f\x8b");
  return is_gzip ? gunzip(as_bytes_of(bytes), limit, path.string()) : bytes;
}

}  // namespace trefoil
