// Text files that may be compressed: the index of a large checkpoint is often passed around as index.json.gz.
#pragma once

#include <string>

#include "checkpoint/file.h"

namespace trefoil {

// The uncompressed text of a gzip file, of a plain file when it does not begin like one.
// Refuses (Error kCorrupt) damaged or truncated streams, bytes after the end, and more than `limit` bytes of text.
std::string read_gzip_text_file(const fs::path& path, uint64_t limit = 1ull << 31);
std::string gunzip(Bytes compressed, uint64_t limit, const std::string& file);

}  // namespace trefoil
