// One command of the program: it adds its options to the parser and says what to run. The table of all is in main.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "trefoil/error.h"
#include "trefoil/mpi_rank.h"
#include "trefoil/progress.h"

namespace trefoil::cli {

// Exit codes, docs/cli.md.
enum ExitCode { kOk = 0, kFailure = 1, kUsage = 2, kCheckFailed = 3, kBadInput = 4, kResources = 5, kResumable = 75 };

int exit_code_of(ErrorCode code);

// What SIGINT means to the running command. SIGTERM, and SIGINT under kStop, ask it to stop; the second one ends the
// program at once.
enum class OnInterrupt {
  kStop,
  kStopReply,  // asks to stop as well, but a second one ends the program only within a second
  kLeave,      // any signal ends the program: it waits for input and has nothing to lose
};

// What every command shares. Filled by the parser before a command runs.
struct Context {
  int threads = 0;  // 0: every CPU this process may use
  std::string isa;  // cap on instruction sets, empty: none
  std::string progress_mode = "auto";
  std::atomic<bool> stop{false};  // set by SIGINT and SIGTERM
  std::atomic<int> signal{0};     // which of them it was that ends the command; under kStopReply not SIGINT
  std::atomic<OnInterrupt> on_interrupt{OnInterrupt::kStop};
  std::unique_ptr<ProgressSink> progress;  // draws on stderr
  std::optional<MpiRank> mpi;              // set by a command that is one of several ranks
  std::function<int()> run;                // set by the chosen command

  // `threads`, or the number of usable CPUs.
  int num_threads() const;
};

// Refuses "-1", which a parser of unsigned numbers would wrap around.
inline CLI::Validator not_negative() {
  return {[](const std::string& text) { return text.starts_with('-') ? text + " is negative" : std::string(); }, ""};
}

using AddCommand = void (*)(CLI::App& program, Context& context);

void add_inspect(CLI::App& program, Context& context);
void add_plan(CLI::App& program, Context& context);
void add_quantize(CLI::App& program, Context& context);
void add_status(CLI::App& program, Context& context);
void add_verify(CLI::App& program, Context& context);
void add_synthesize(CLI::App& program, Context& context);
void add_recode(CLI::App& program, Context& context);
void add_eval(CLI::App& program, Context& context);
void add_run(CLI::App& program, Context& context);
void add_bench(CLI::App& program, Context& context);
void add_chat(CLI::App& program, Context& context);
void add_tokenize(CLI::App& program, Context& context);
void add_doctor(CLI::App& program, Context& context);
void add_version(CLI::App& program, Context& context);

// Prints to stdout and fails loudly when stdout is gone or its disk is full.
void print(std::string_view text);
// One line to stderr.
void complain(std::string_view text);
// From here on every complaint says that it is `who`'s.
void complain_as(std::string who);

// A sink that draws on stderr: one redrawn line on a terminal, a line every few seconds otherwise, JSON lines, or nothing.
std::unique_ptr<ProgressSink> make_progress(const std::string& mode);

}  // namespace trefoil::cli
