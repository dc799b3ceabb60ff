#include "trefoil/mpi_rank.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/error.h"
#include "mpi/mpi_abi.h"

namespace trefoil {
namespace {

namespace fs = std::filesystem;

// MPICH's launcher drops what it has not yet read of a rank's output when the rank aborts: its last words.
constexpr auto kMessageTime = std::chrono::milliseconds(500);

struct Launcher {
  const char* mpi;
  const char* size_variable;  // how many processes it started
};

// Open MPI's mpirun sets none of PMI_*; Hydra (MPICH) and Slurm's PMI-2 do.
constexpr std::array kLaunchers = {Launcher{"openmpi", "OMPI_COMM_WORLD_SIZE"}, Launcher{"mpich", "PMI_SIZE"}};

bool is_here(const Launcher& launcher) {
  return std::getenv(launcher.size_variable) != nullptr;
}

std::string mpi_of_launcher() {
  const auto* const found = std::find_if(kLaunchers.begin(), kLaunchers.end(), is_here);
  if (found == kLaunchers.end()) {
    fail(ErrorCode::kInvalidArgument, "--mpi auto: neither {} nor {} is set; start it with mpirun, or name the MPI",
         kLaunchers[0].size_variable, kLaunchers[1].size_variable);
  }
  return found->mpi;
}

// Only places that belong to the program: a module runs with all its rights.
fs::path find_module(const std::string& mpi) {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path();
  const std::string file = fmt::format("trefoil_mpi_{}.so", mpi);
  const std::array places = {program / file, (program / TREFOIL_MODULE_FOLDER / file).lexically_normal()};
  const auto* const found = std::find_if(places.begin(), places.end(), [](const fs::path& at) { return exists(at); });
  if (found == places.end()) {
    fail(ErrorCode::kInvalidArgument, "--mpi {}: this build has no such module (looked for {} and {})", mpi,
         places[0].string(), places[1].string());
  }
  return *found;
}

const MpiModule& load_module(const fs::path& file) {
  void* const library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(ErrorCode::kInvalidArgument, "cannot load {}: {}", file.string(), ::dlerror());
  const auto entry = reinterpret_cast<MpiModuleEntry>(::dlsym(library, kMpiModuleSymbol));
  const MpiModule* const module = entry != nullptr ? entry() : nullptr;
  if (module == nullptr || module->version != kMpiModuleVersion)
    fail(ErrorCode::kInvalidArgument, "{}: it belongs to another version of this program", file.string());
  return *module;
}

// Started by another MPI's launcher, every process takes itself for rank 0 of 1.
void check_launcher(const std::string& mpi, int size) {
  for (const Launcher& launcher : kLaunchers) {
    if (!is_here(launcher)) continue;
    const int started = std::atoi(std::getenv(launcher.size_variable));
    if (started != size) {
      fail(ErrorCode::kInvalidArgument, "--mpi {}: the launcher started {} processes ({}), the library sees {}", mpi,
           started, launcher.size_variable, size);
    }
  }
}

}  // namespace

MpiRank MpiRank::join(const std::string& which) {
  const std::string mpi = which == "auto" ? mpi_of_launcher() : which;
  const MpiModule& module = load_module(find_module(mpi));
  if (const int error = module.init(); error != 0)
    fail(ErrorCode::kInvalidArgument, "--mpi {}: it does not start (its error {})", mpi, error);
  const MpiRank rank(module);
  check_launcher(mpi, rank.size());
  return rank;
}

MpiRank::MpiRank(const MpiModule& module) : module_(&module), rank_(module.rank()), size_(module.size()) {}

std::string MpiRank::name() const {
  return fmt::format("rank {} of {}", rank_, size_);
}

void MpiRank::barrier() const {
  if (const int error = module_->barrier(); error != 0)
    fail(ErrorCode::kIo, "the other ranks cannot be waited for (MPI error {})", error);
}

int MpiRank::leave(int code) const {
  if (code == 0) {
    module_->finalize();
  } else {
    std::this_thread::sleep_for(kMessageTime);
    module_->abort(code);
  }
  return code;
}

}  // namespace trefoil
