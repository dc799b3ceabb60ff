// Where tests find their data, and a temporary folder that cleans up after itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace trefoil::testing {

namespace fs = std::filesystem;

// The bundled small model (models/tiny-k3 in the source tree; TREFOIL_TINY_K3_DIR overrides).
fs::path tiny_k3_dir();
// tests/golden in the source tree, or what TREFOIL_GOLDEN_DIR names: forward.json, gptq/, tokenizer.json.
fs::path golden_dir();
// The bundled texts (text/calibration.jsonl, text/evaluation.jsonl).
fs::path text_dir();
// Third-party fixtures that cannot be bundled: TREFOIL_FIXTURE_DIR, or ../shared/fixtures beside the source tree.
// Empty when absent; a test that needs one says so with TREFOIL_NEED_FIXTURE and is counted as skipped.
fs::path fixture(const std::string& name);

std::string read_text(const fs::path& file);
void write_text(const fs::path& file, const std::string& text);

// An empty folder under the system's temporary directory, removed with everything in it on destruction.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace trefoil::testing

#define TREFOIL_NEED_FIXTURE(variable, name)                                \
  const std::filesystem::path variable = ::trefoil::testing::fixture(name); \
  if (variable.empty()) GTEST_SKIP() << "fixture " << name << " is not here (set TREFOIL_FIXTURE_DIR)"
