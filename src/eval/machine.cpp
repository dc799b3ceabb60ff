#include "eval/machine.h"

#include <sys/utsname.h>

#include <array>
#include <cstring>

#include "base/cpu.h"
#include "base/parallel.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace trefoil {
namespace {

std::string cpu_name() {
#if defined(__x86_64__)
  // leaves 0x80000002 .. 4: 48 bytes of text (Intel and AMD, CPUID brand string)
  std::array<unsigned, 12> words{};
  for (unsigned leaf = 0; leaf < 3; ++leaf) {
    unsigned* at = &words[leaf * 4];
    if (__get_cpuid(0x80000002u + leaf, at, at + 1, at + 2, at + 3) == 0) return "unknown";
  }
  std::array<char, sizeof(words) + 1> text{};
  std::memcpy(text.data(), words.data(), sizeof(words));
  const std::string name = text.data();
  const size_t begin = name.find_first_not_of(' ');
  if (begin == std::string::npos) return "unknown";
  return name.substr(begin, name.find_last_not_of(' ') - begin + 1);
#else
  return "unknown";
#endif
}

std::string system_name() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  return std::string(name.sysname) + " " + name.release + " " + name.machine;
}

}  // namespace

Facts describe_machine(int threads) {
  return {{"CPU", cpu_name()},
          {"usable CPUs", std::to_string(usable_cpus())},
          {"threads", std::to_string(threads)},
          {"instruction set", to_string(active_isa())},
          {"system", system_name()}};
}

std::string program_version() {
  return TREFOIL_VERSION;
}

}  // namespace trefoil
