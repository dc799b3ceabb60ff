#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "cli/chat_line.h"
#include "cli/choice.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/generation_options.h"
#include "cli/model_argument.h"
#include "cli/reply_printer.h"
#include "cli/text_input.h"
#include "trefoil/conversation.h"
#include "trefoil/size.h"

namespace trefoil::cli {
namespace {

struct ChatArguments {
  EngineArguments engine;
  std::string model;
  std::string think = "max";
  std::string load_state;
  std::string state_memory = "4GiB";
  bool hides_reasoning = false;
  ConversationOptions options;
};

bool allows_colour() {
  const char* value = std::getenv("NO_COLOR");
  return value == nullptr || *value == '\0';
}

std::string rate(int64_t tokens, double seconds) {
  return seconds > 0 ? fmt::format("{:.1f} tokens/s", static_cast<double>(tokens) / seconds) : "";
}

// One run of `chat`: reads lines, says them, obeys commands.
class Chat {
 public:
  Chat(Context& context, const ChatArguments& arguments)
      : context_(context),
        conversation_(arguments.options),
        is_interactive_(isatty(STDIN_FILENO) == 1),
        hides_reasoning_(arguments.hides_reasoning),
        printer_({isatty(STDOUT_FILENO) == 1 && allows_colour(), hides_reasoning_}, print) {}

  void load(const std::string& file) { conversation_.load(expand_home(file)); }

  void run() {
    while (true) {
      const std::optional<std::string> line = next_line();
      if (!line) {
        if (is_interactive_) print("\n");
        return;
      }
      try {
        if (!obey(parse_chat_line(*line))) return;
      } catch (const Error& error) {
        // A person tries again; a script that goes wrong ends.
        if (!is_interactive_ || error.code() == ErrorCode::kCancelled || std::ferror(stdout) != 0) throw;
        context_.progress->make_way();
        printer_.end();
        complain(error.what());
      }
    }
  }

 private:
  // Waiting for input, a signal ends the program; from then on SIGINT stops what the line asked for.
  std::optional<std::string> next_line() {
    if (context_.signal != 0) throw Error(ErrorCode::kCancelled, "stopped as asked");
    if (is_interactive_) print("> ");
    context_.on_interrupt = OnInterrupt::kLeave;
    std::optional<std::string> line = read_line_input();
    context_.stop = false;
    context_.on_interrupt = OnInterrupt::kStopReply;
    return line;
  }

  bool obey(const ChatLine& line) {
    switch (line.kind) {
      case ChatLine::Kind::kNothing:
        break;
      case ChatLine::Kind::kSay:
        say(line.text);
        break;
      case ChatLine::Kind::kExit:
        return false;
      case ChatLine::Kind::kReset:
        conversation_.reset();
        break;
      case ChatLine::Kind::kSave:
        conversation_.save(expand_home(line.text), context_.progress.get());
        break;
      case ChatLine::Kind::kLoad:
        load(line.text);
        break;
      case ChatLine::Kind::kStats:
        complain(stats());
        break;
      case ChatLine::Kind::kHelp:
        complain(kChatHelp);
        break;
    }
    return true;
  }

  void say(const std::string& text) {
    int64_t pieces = 0;
    last_ = conversation_.say(
        text,
        [&](ReplyPart part, std::string_view piece) {
          if (part == ReplyPart::kReasoning && hides_reasoning_) {
            context_.progress->update("reasoning", ++pieces, 0);
          } else {
            if (pieces > 0) context_.progress->make_way();
            pieces = 0;
            printer_.show(part, piece);
          }
          return true;
        },
        context_.progress.get());
    context_.progress->make_way();
    printer_.end();
    if (last_.is_withdrawn) {
      complain("stopped before the reply began: the message is not part of the conversation");
    } else if (last_.finish == FinishReason::kCancelled) {
      complain("the reply is stopped; the conversation goes on");
    } else if (last_.finish == FinishReason::kLength) {
      complain(fmt::format("the reply is cut off after {} tokens", last_.generated_tokens));
    }
  }

  std::string stats() const {
    const ConversationFacts facts = conversation_.facts();
    std::string text = fmt::format("{} tokens, room for {}; state {}, snapshots {}", facts.tokens, facts.room,
                                   format_gib(facts.state_bytes), format_gib(facts.snapshot_bytes));
    if (last_.generated_tokens == 0) return text;
    return text + fmt::format("; the last turn: {} tokens read, {}, {} written, {}, ended by {}", last_.read_tokens,
                              rate(last_.read_tokens, last_.read_seconds), last_.generated_tokens,
                              rate(last_.generated_tokens, last_.reply_seconds), to_string(last_.finish));
  }

  Context& context_;
  Conversation conversation_;
  const bool is_interactive_;
  const bool hides_reasoning_;
  ReplyPrinter printer_;
  ReplyResult last_;
};

int run_chat(Context& context, ChatArguments& arguments) {
  ConversationOptions& o = arguments.options;
  o.model = resolve_model(arguments.model);
  o.engine = finish_engine_options(arguments.engine, context.threads);
  o.thinking = arguments.think != "off";
  o.thinking_effort = o.thinking ? arguments.think : "";
  o.snapshot_bytes = parse_size(arguments.state_memory);
  o.engine.reserved_bytes = o.snapshot_bytes;
  o.stop_flag = &context.stop;
  Chat chat(context, arguments);
  if (!arguments.load_state.empty()) chat.load(arguments.load_state);
  chat.run();
  return kOk;
}

}  // namespace

void add_chat(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("chat", "talk with the model; /help says what can be typed");
  const auto arguments = std::make_shared<ChatArguments>();
  ConversationOptions& o = arguments->options;
  add_model_argument(*command, arguments->model);
  command->add_option("--system", o.system, "the system's message");
  one_of(command->add_option("--think", arguments->think,
                             "how much the model reasons first: low, high, max; off: not at all"),
         {"low", "high", "max", "off"});
  command->add_flag("--hide-reasoning", arguments->hides_reasoning, "show answers only");
  add_length_option(*command, o.max_new_tokens, "tokens of a reply at most, reasoning included");
  add_sampling_options(*command, o.sampling);
  add_engine_options(*command, arguments->engine);
  add_prefill_option(*command, arguments->engine);
  command->add_option("--load-state", arguments->load_state, "go on with the conversation that /save wrote");
  command->add_option("--state-memory", arguments->state_memory, "for snapshots to go back to; less costs time only")
      ->capture_default_str();
  command->callback(
      [&context, arguments] { context.run = [&context, arguments] { return run_chat(context, *arguments); }; });
}

}  // namespace trefoil::cli
