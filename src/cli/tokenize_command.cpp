#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "cli/choice.h"
#include "cli/command.h"
#include "cli/model_argument.h"
#include "cli/text_input.h"
#include "trefoil/tokenizer.h"

namespace trefoil::cli {
namespace {

struct TokenizeArguments {
  std::string model;
  std::string text;
  std::string file;
  EncodeMode mode = EncodeMode::kText;
  bool decode = false;
  bool pieces = false;
  bool has_text = false;
};

std::string read_input(const TokenizeArguments& arguments) {
  if (arguments.has_text) return arguments.text;
  return read_text_input(arguments.file.empty() ? "-" : arguments.file);
}

// Ids as decimal numbers between any of "[], \t\r\n".
std::vector<int32_t> parse_ids(const std::string& text) {
  std::vector<int32_t> ids;
  for (size_t at = text.find_first_not_of("[], \t\r\n"); at != std::string::npos;
       at = text.find_first_not_of("[], \t\r\n", at)) {
    const size_t end = std::min(text.find_first_of("[], \t\r\n", at), text.size());
    int32_t id = 0;
    const auto result = std::from_chars(text.data() + at, text.data() + end, id);
    if (result.ec != std::errc() || result.ptr != text.data() + end)
      throw Error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not a token id", text.substr(at, end - at)));
    ids.push_back(id);
    at = end;
  }
  return ids;
}

int run_tokenize(const TokenizeArguments& arguments) {
  const Tokenizer tokenizer = Tokenizer::load(resolve_model(arguments.model));
  const std::string input = read_input(arguments);
  if (arguments.decode) {
    print(tokenizer.decode(parse_ids(input)));
    return kOk;
  }
  const std::vector<int32_t> ids = tokenizer.encode(input, arguments.mode);
  if (!arguments.pieces) {
    print(fmt::format("[{}]\n", fmt::join(ids, ", ")));
    return kOk;
  }
  std::string table;
  for (const int32_t id : ids) table += fmt::format("{:>7} {:?}\n", id, tokenizer.token_bytes(id));
  print(table);
  return kOk;
}

}  // namespace

void add_tokenize(CLI::App& program, Context& context) {
  CLI::App* command = program.add_subcommand("tokenize", "text to token ids, and back with --decode");
  const auto arguments = std::make_shared<TokenizeArguments>();
  add_model_argument(*command, arguments->model);
  CLI::Option* text = command->add_option("-p,--text", arguments->text, "the text (default: standard input)");
  command->add_option("--file", arguments->file, "read the text from this file; - is standard input")->excludes(text);
  choose<EncodeMode>(
      command->add_option("--mode", arguments->mode,
                          "text: names of special tokens are ordinary text (default); markup: they are ids"),
      {{"text", EncodeMode::kText}, {"markup", EncodeMode::kMarkup}});
  command->add_flag("--decode", arguments->decode, "the input is ids, the output text");
  command->add_flag("--pieces", arguments->pieces, "one line a token: id and bytes");
  command->callback([&context, arguments, text] {
    arguments->has_text = text->count() > 0;
    context.run = [arguments] { return run_tokenize(*arguments); };
  });
}

}  // namespace trefoil::cli
