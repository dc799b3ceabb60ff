// The `trefoil` program: parses, runs one command, turns errors into one line and an exit code. docs/cli.md.
#include <fmt/format.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <exception>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <new>
#include <system_error>
#include <thread>

#include "cli/choice.h"
#include "cli/command.h"
#include "cli/terminal_text.h"
#include "cli/usage.h"
#include "trefoil/machine.h"

namespace trefoil::cli {
namespace {

constexpr AddCommand kCommands[] = {add_inspect,  add_plan,       add_quantize, add_status, add_verify,
                                    add_recode,   add_eval,       add_run,      add_chat,   add_bench,
                                    add_tokenize, add_synthesize, add_doctor,   add_version};

Context* signalled = nullptr;
std::atomic<int64_t> last_interrupt_ms{0};
std::string speaker = "trefoil";

int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

// Atomics without locks and clock_gettime are all that is safe here.
static_assert(std::atomic<OnInterrupt>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);

extern "C" void on_signal(int signal) {
  const OnInterrupt meaning = signalled->on_interrupt.load(std::memory_order_relaxed);
  const bool stops_reply = meaning == OnInterrupt::kStopReply && signal == SIGINT;
  const int64_t now = now_ms();
  const bool is_second = stops_reply ? now - last_interrupt_ms.load(std::memory_order_relaxed) < 1000
                                     : signalled->signal.load(std::memory_order_relaxed) != 0;
  if (meaning == OnInterrupt::kLeave || is_second) std::_Exit(128 + signal);
  if (stops_reply) {
    last_interrupt_ms.store(now, std::memory_order_relaxed);
  } else {
    signalled->signal.store(signal, std::memory_order_relaxed);
  }
  signalled->stop.store(true, std::memory_order_relaxed);
}

void add_common_options(CLI::App& program, Context& context) {
  program.add_option("--threads", context.threads, "threads to use (default: every CPU this process may use)")
      ->check(CLI::Range(1, 4096))
      ->envname("TREFOIL_THREADS");
  program.add_option("--isa", context.isa, "use no instruction set above this one: scalar, avx2, avx512")
      ->envname("TREFOIL_ISA");
  one_of(program.add_option("--progress", context.progress_mode,
                            "auto: a line on a terminal, plain lines elsewhere; json; off"),
         {"auto", "json", "off"})
      ->envname("TREFOIL_PROGRESS");
}

int run_command(Context& context) {
  try {
    if (!context.isa.empty()) set_isa_cap(context.isa);
    context.progress = make_progress(context.progress_mode);
    const int code = context.run();
    context.progress.reset();
    return code;
  } catch (const Error& error) {
    context.progress.reset();
    complain(error.what());
    if (error.code() == ErrorCode::kCancelled && context.signal != 0) return 128 + context.signal;
    return exit_code_of(error.code());
  } catch (const std::filesystem::filesystem_error& error) {  // a path that cannot even be asked about
    context.progress.reset();
    complain(fmt::format("{}: {}", error.path1().string(), error.code().message()));
    const bool is_name = error.code() == std::errc::no_such_file_or_directory ||
                         error.code() == std::errc::not_a_directory || error.code() == std::errc::filename_too_long ||
                         error.code() == std::errc::too_many_symbolic_link_levels;
    return is_name ? kBadInput : kResources;
  } catch (const std::system_error& error) {  // no more threads, for one
    context.progress.reset();
    complain(error.what());
    return kResources;
  } catch (const std::bad_alloc&) {
    context.progress.reset();
    complain("out of memory");
    return kResources;
  } catch (const std::exception& error) {
    context.progress.reset();
    complain(error.what());
    return kFailure;
  }
}

}  // namespace

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return kUsage;
    case ErrorCode::kCheckFailed:
      return kCheckFailed;
    case ErrorCode::kNotFound:
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
      return kBadInput;
    case ErrorCode::kIo:
    case ErrorCode::kOverBudget:
      return kResources;
    case ErrorCode::kCancelled:
      return kResumable;
  }
  return kFailure;
}

int Context::num_threads() const {
  return threads > 0 ? threads : usable_cpus();
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw Error(ErrorCode::kIo, "cannot write to standard output");
}

void complain(std::string_view text) {
  std::fprintf(stderr, "%s: %s\n", speaker.c_str(), terminal_text(text).c_str());
}

void complain_as(std::string who) {
  speaker = "trefoil: " + std::move(who);
}

}  // namespace trefoil::cli

int main(int argc, char** argv) {
  using namespace trefoil::cli;
  Context context;
  signalled = &context;
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error like any other
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file-size limit

  CLI::App program("Kimi-K3 at three bits: quantize, verify, measure, run.", "trefoil");
  program.require_subcommand(1);
  program.fallthrough();
  program.set_version_flag("--version", TREFOIL_VERSION);
  add_common_options(program, context);
  for (const AddCommand add : kCommands) add(program, context);
  try {
    program.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) {
      complain(usage_complaint(program, error, {argv + 1, argv + argc}));
      return kUsage;
    }
    program.exit(error);  // prints what was asked for: help or the version
    return std::fflush(stdout) == 0 && std::cout.flush() ? kOk : kResources;
  }
  const int code = run_command(context);
  return context.mpi ? context.mpi->leave(code) : code;
}
