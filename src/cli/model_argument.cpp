#include "cli/model_argument.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <regex>

#include "trefoil/error.h"
#include "trefoil/status.h"

namespace trefoil::cli {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

// Where the hub's own client keeps downloads: HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub.
fs::path hub_cache() {
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return fs::path(home) / "hub";
  return fs::path(environment("HOME")) / ".cache/huggingface/hub";
}

// models--org--name/refs/REVISION holds a commit; models--org--name/snapshots/COMMIT the files.
fs::path find_snapshot(const fs::path& repository, const std::string& revision) {
  std::string commit = revision;
  if (std::ifstream reference(repository / "refs" / revision); reference) reference >> commit;
  static const std::regex plain("[A-Za-z0-9._-]+");
  if (!std::regex_match(commit, plain) || commit == "." || commit == "..") return {};
  const fs::path snapshot = repository / "snapshots" / commit;
  return fs::is_directory(snapshot) ? snapshot : fs::path();
}

void require_model_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) {
    throw Error(ErrorCode::kNotFound, fmt::format("{}: is a file; a model is named by its folder", folder.string()));
  }
  if (is_unfinished(folder)) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{0}: holds an unfinished quantize and no checkpoint yet (trefoil status {0})", folder.string()));
  }
}

}  // namespace

void add_model_argument(CLI::App& command, std::string& model, const std::string& name) {
  command.add_option(name, model, "a folder, or org/name[@revision] in the hub cache")->required();
}

fs::path expand_home(const std::string& path) {
  if (path == "~" || path.starts_with("~/"))
    return fs::path(environment("HOME")) / path.substr(path.size() > 1 ? 2 : 1);
  return path;
}

fs::path resolve_model(const std::string& model) {
  const fs::path folder = expand_home(model);
  if (fs::exists(folder)) {
    require_model_folder(folder);
    return folder;
  }
  static const std::regex hub_name(
      "([A-Za-z0-9][A-Za-z0-9._-]*)/([A-Za-z0-9][A-Za-z0-9._-]*)(?:@([A-Za-z0-9][A-Za-z0-9._-]*))?");
  std::smatch match;
  if (!std::regex_match(model, match, hub_name))
    throw Error(ErrorCode::kNotFound, fmt::format("{}: no such folder", model));
  const std::string revision = match[3].matched ? match[3].str() : "main";
  const fs::path repository = hub_cache() / fmt::format("models--{}--{}", match[1].str(), match[2].str());
  const fs::path snapshot = find_snapshot(repository, revision);
  if (snapshot.empty()) {
    throw Error(
        ErrorCode::kNotFound,
        fmt::format("{0}: no such folder, and {1} holds no revision '{2}'; to download it: huggingface-cli download "
                    "{3}/{4} --revision {2}",
                    model, repository.string(), revision, match[1].str(), match[2].str()));
  }
  return snapshot;
}

}  // namespace trefoil::cli
