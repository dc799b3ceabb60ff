#include "support/test_support.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace trefoil::testing {
namespace {

fs::path from_environment(const char* variable, const fs::path& fallback) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? fs::path(value) : fallback;
}

const fs::path kSource = TREFOIL_SOURCE_DIR;

}  // namespace

fs::path tiny_k3_dir() {
  return from_environment("TREFOIL_TINY_K3_DIR", kSource / "models/tiny-k3");
}
fs::path golden_dir() {
  return from_environment("TREFOIL_GOLDEN_DIR", kSource / "tests/golden");
}
fs::path text_dir() {
  return kSource / "text";
}

fs::path fixture(const std::string& name) {
  const fs::path file = from_environment("TREFOIL_FIXTURE_DIR", kSource.parent_path() / "shared/fixtures") / name;
  return fs::exists(file) ? file : fs::path();
}

std::string read_text(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + file.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void write_text(const fs::path& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary);
  out << text;
  if (!out) throw std::runtime_error("cannot write " + file.string());
}

TempDir::TempDir() {
  std::string pattern = (fs::temp_directory_path() / "trefoil-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace trefoil::testing
