#include "plan/machine.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>

#include "base/bytes.h"
#include "base/error.h"
#include "base/system_files.h"

namespace trefoil {
namespace {

namespace fs = std::filesystem;

// --- this machine ---

// "MemTotal:       24637328 kB" -> bytes; 0 when the key is not there.
uint64_t meminfo_value(const std::string& meminfo, std::string_view key) {
  std::istringstream lines(meminfo);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    return std::strtoull(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

// A limit file's number; nothing for "max", for v1's "unlimited" (near 2^63) and for files that are not there.
std::optional<uint64_t> read_limit(const fs::path& file) {
  constexpr uint64_t kUnlimited = 1ull << 60;
  const std::string text = read_system_file(file);
  uint64_t limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (error != std::errc() || limit >= kUnlimited) return std::nullopt;
  return limit;
}

// The least limit among this process's groups.
void apply_cgroup_limits(const fs::path& root, MachineMemory& memory) {
  for (const Cgroup& group : cgroups_of_this_process("memory", root)) {
    const auto limit = read_limit(group.folder / (group.is_v1 ? "memory.limit_in_bytes" : "memory.max"));
    if (!limit || (memory.cgroup_bytes != 0 && *limit >= memory.cgroup_bytes)) continue;
    memory.cgroup_bytes = *limit;
    memory.cgroup = group.name;
  }
}

// --- machines by name ---

// "8x141GB GPU" -> "8" "x" "141" "GB" "GPU". Numbers and words; a word keeps its digits ("H200").
std::vector<std::string_view> tokens_of(std::string_view text) {
  const auto is_number = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.'; };
  const auto is_letter = [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; };
  std::vector<std::string_view> tokens;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    if (is_number(text[at])) {
      while (end < text.size() && is_number(text[end])) ++end;
    } else if ((text[at] == 'x' || text[at] == 'X') && at > 0 && is_number(text[at - 1])) {
      end = at + 1;
    } else if (is_letter(text[at])) {
      while (end < text.size() && (is_letter(text[end]) || is_number(text[end]))) ++end;
    }
    if (end > at) tokens.push_back(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return tokens;
}

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

int64_t parse_count(std::string_view number, std::string_view text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), count);
  if (error != std::errc() || end != number.data() + number.size() || count < 1 || count > 1'000'000) {
    fail(ErrorCode::kInvalidArgument, "\"{}\": {} is no count from 1 to 1,000,000", text, number);
  }
  return count;
}

void take_number(std::string_view number, const std::string& word, std::string_view text, Machine& machine) {
  if (word == "x") {
    machine.devices = parse_count(number, text);
  } else if (word.starts_with("core")) {
    machine.cores = parse_count(number, text);
  } else {
    if (machine.device_bytes != 0) fail(ErrorCode::kInvalidArgument, "\"{}\": two memory sizes", text);
    machine.device_bytes = parse_size(std::string(number) + word);
  }
}

}  // namespace

uint64_t MachineMemory::limit_bytes() const {
  if (cgroup_bytes == 0) return total_bytes;
  return total_bytes == 0 ? cgroup_bytes : std::min(total_bytes, cgroup_bytes);
}

MachineMemory read_machine_memory(const std::filesystem::path& root) {
  const std::string meminfo = read_system_file(root / "proc/meminfo");
  MachineMemory memory;
  memory.total_bytes = meminfo_value(meminfo, "MemTotal");
  memory.available_bytes = meminfo_value(meminfo, "MemAvailable");
  memory.swap_bytes = meminfo_value(meminfo, "SwapTotal");
  apply_cgroup_limits(root, memory);
  return memory;
}

uint64_t peak_resident_bytes() {
  return meminfo_value(read_system_file("/proc/self/status"), "VmHWM");
}

uint64_t resident_bytes() {
  std::istringstream pages(read_system_file("/proc/self/statm"));
  uint64_t total = 0, resident = 0;
  if (!(pages >> total >> resident)) return 0;
  return resident * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

Machine parse_machine(std::string_view text) {
  Machine machine;
  machine.name = std::string(text);
  const std::vector<std::string_view> tokens = tokens_of(text);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool is_number = std::isdigit(static_cast<unsigned char>(tokens[i][0])) != 0;
    if (is_number) {
      if (i + 1 == tokens.size()) fail(ErrorCode::kInvalidArgument, "\"{}\": {} of what?", text, tokens[i]);
      take_number(tokens[i], lower(tokens[i + 1]), text, machine);
      ++i;
    } else if (lower(tokens[i]).starts_with("gpu")) {
      machine.gpu = true;
    }
  }
  uint64_t all = 0;
  if (machine.device_bytes == 0 || !multiply_fits(static_cast<uint64_t>(machine.devices), machine.device_bytes, &all) ||
      all > uint64_t{1} << 62) {
    fail(ErrorCode::kInvalidArgument, "\"{}\": expected a machine such as \"8x141GB GPU\" or \"64-core 768GB\"", text);
  }
  return machine;
}

std::vector<Machine> common_machines() {
  std::vector<Machine> machines;
  for (const char* name : {"8x80GB GPU", "8x141GB GPU", "12x141GB GPU", "16x141GB GPU", "8x192GB GPU", "64GB desktop",
                           "256GB server", "768GB server", "1.5TB server", "2TB server"}) {
    machines.push_back(parse_machine(name));
  }
  return machines;
}

}  // namespace trefoil
