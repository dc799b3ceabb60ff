// Runs a fuzz target on every file of a corpus folder, once each, as an ordinary test under any compiler.
// Each input lies in a buffer of exactly its size, so that AddressSanitizer sees a read past its end.
// Exits 1 when the folder has no file: a corpus that is not there is not a pass.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> list_files(const fs::path& folder) {
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool replay(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  const std::unique_ptr<uint8_t[]> input(new uint8_t[text.size()]);
  std::copy(text.begin(), text.end(), input.get());
  try {
    LLVMFuzzerTestOneInput(input.get(), text.size());
    return true;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: unexpected exception: %s\n", file.c_str(), error.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !fs::is_directory(argv[1])) {
    std::fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
    return 1;
  }
  const std::vector<fs::path> files = list_files(argv[1]);
  const bool all_well = std::count_if(files.begin(), files.end(), replay) == static_cast<std::ptrdiff_t>(files.size());
  std::printf("%zu inputs of %s\n", files.size(), argv[1]);
  return all_well && !files.empty() ? 0 : 1;
}
