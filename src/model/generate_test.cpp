#include "trefoil/generate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "support/test_support.h"
#include "trefoil/tokenizer.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;

GenerateOptions tiny(const std::string& prompt = "The package contains") {
  GenerateOptions options;
  options.model = testing::tiny_k3_dir();
  options.prompt = prompt;
  options.max_new_tokens = 12;
  options.engine.threads = 2;
  return options;
}

std::string error_of(const GenerateOptions& options) {
  try {
    generate(options, nullptr);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Generate, FollowsTheGoldenGreedyContinuation) {
  const auto json = nlohmann::json::parse(testing::read_text(testing::golden_dir() / "forward.json"));
  for (const auto& item : json["greedy"].items()) {
    // Up to the first step that rounding could decide.
    const std::vector<double> margin = item.value()["top1_margin"];
    const auto close = std::find_if(margin.begin(), margin.end(), [](double value) { return value < 1e-3; });
    GenerateOptions options = tiny();
    options.engine.numerics = Numerics::kF32;
    options.prompt_ids = json["prompts"][item.key()]["ids"].get<std::vector<int32_t>>();
    options.max_new_tokens = close - margin.begin();
    const std::vector<int32_t> all = item.value()["ids"];
    const std::vector<int32_t> expected(all.begin(), all.begin() + options.max_new_tokens);
    const GenerateResult result = generate(options, nullptr);
    EXPECT_EQ(result.ids, expected) << item.key();
    EXPECT_EQ(result.text, Tokenizer::load(options.model).decode(expected)) << item.key();
    EXPECT_EQ(result.finish, FinishReason::kLength);
  }
}

TEST(Generate, StreamsExactlyTheTextItReturns) {
  std::string streamed;
  int pieces = 0;
  const GenerateResult result = generate(tiny(), [&](std::string_view text) {
    streamed += text;
    ++pieces;
    return true;
  });
  EXPECT_EQ(streamed, result.text);
  EXPECT_GT(pieces, 1);
  EXPECT_EQ(result.ids.size(), 12u);
  EXPECT_EQ(result.prompt_ids, Tokenizer::load(testing::tiny_k3_dir()).encode("The package contains"));
}

TEST(Generate, ThePrefillChunkAndTheThreadsDoNotChangeTheText) {
  GenerateOptions options = tiny();
  options.sampling = {.temperature = 1, .top_p = 0.95, .seed = 3};
  const GenerateResult whole = generate(options, nullptr);
  options.engine.prefill_chunk = 1;
  options.engine.threads = 1;
  EXPECT_EQ(generate(options, nullptr).ids, whole.ids);
  options.sampling.seed = 4;
  EXPECT_NE(generate(options, nullptr).ids, whole.ids);
}

TEST(Generate, EndsBeforeAStopString) {
  const GenerateResult free = generate(tiny(), nullptr);
  ASSERT_GT(free.text.size(), 8u);
  GenerateOptions options = tiny();
  options.stop = {free.text.substr(4, 3), "never said"};
  std::string streamed;
  const GenerateResult result = generate(options, [&](std::string_view text) {
    streamed += text;
    return true;
  });
  EXPECT_EQ(result.finish, FinishReason::kStop);
  EXPECT_EQ(result.stop, options.stop[0]);
  EXPECT_EQ(result.text, free.text.substr(0, free.text.find(options.stop[0])));
  EXPECT_EQ(streamed, result.text);
}

TEST(Generate, EndsWhenTheSinkHasEnough) {
  int pieces = 0;
  const GenerateResult result = generate(tiny(), [&](std::string_view) { return ++pieces < 3; });
  EXPECT_EQ(pieces, 3);
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_LT(result.ids.size(), 12u);
}

// Makes every token an end token by sampling until the model's own end token comes: at a very high temperature each id
// is equally likely, so a long enough run meets it.
TEST(Generate, EndsAtAnEndTokenAndDoesNotShowIt) {
  GenerateOptions options = tiny();
  const testing::TempDir copy;
  for (const auto& entry : std::filesystem::directory_iterator(options.model)) {
    if (entry.path().filename() != "generation_config.json") {
      std::filesystem::create_symlink(std::filesystem::absolute(entry.path()), copy.path() / entry.path().filename());
    }
  }
  const GenerateResult free = generate(options, nullptr);
  nlohmann::json generation = {{"eos_token_id", free.ids[4]}};
  testing::write_text(copy.path() / "generation_config.json", generation.dump());
  options.model = copy.path();
  const GenerateResult result = generate(options, nullptr);
  EXPECT_EQ(result.finish, FinishReason::kEos);
  const auto first = std::find(free.ids.begin(), free.ids.end(), free.ids[4]);
  EXPECT_EQ(result.ids, std::vector<int32_t>(free.ids.begin(), first + 1));
  EXPECT_EQ(result.text, Tokenizer::load(options.model).decode(std::vector<int32_t>(free.ids.begin(), first)));
  options.ignore_eos = true;
  EXPECT_EQ(generate(options, nullptr).ids, free.ids);
}

TEST(Generate, MarkupModeReadsSpecialTokensAndTextModeDoesNot) {
  const std::string prompt = "<|open|>user<|sep|>hello";
  const Tokenizer tokenizer = Tokenizer::load(testing::tiny_k3_dir());
  GenerateOptions options = tiny(prompt);
  options.max_new_tokens = 0;
  EXPECT_EQ(generate(options, nullptr).prompt_ids, tokenizer.encode(prompt, EncodeMode::kText));
  options.markup = true;
  EXPECT_EQ(generate(options, nullptr).prompt_ids, tokenizer.encode(prompt, EncodeMode::kMarkup));
}

TEST(Generate, AStateThatWasSavedGoesOnAsIfNothingHadHappened) {
  const testing::TempDir folder;
  for (const Numerics numerics : {Numerics::kF32, Numerics::kBf16}) {
    GenerateOptions options = tiny();
    options.engine.numerics = numerics;
    options.sampling = {.temperature = 1, .seed = 5};
    const GenerateResult whole = generate(options, nullptr);
    options.max_new_tokens = 5;
    options.save_state = folder.path() / "state";
    EXPECT_EQ(generate(options, nullptr).loaded_tokens, 0);

    options.prompt.clear();
    options.load_state = options.save_state;
    options.max_new_tokens = 7;
    const GenerateResult rest = generate(options, nullptr);
    EXPECT_EQ(rest.loaded_tokens, static_cast<int64_t>(whole.prompt_ids.size()) + 5);
    EXPECT_EQ(rest.ids, std::vector<int32_t>(whole.ids.begin() + 5, whole.ids.end()));
    options.engine.numerics = numerics == Numerics::kF32 ? Numerics::kBf16 : Numerics::kF32;
    EXPECT_THAT(error_of(options), HasSubstr("other numerics"));
  }
}

TEST(Generate, APromptStandsBehindTheLoadedState) {
  const testing::TempDir folder;
  GenerateOptions options = tiny();
  options.prompt_ids = {5, 6, 7, 8, 9};
  const GenerateResult whole = generate(options, nullptr);
  options.prompt_ids = {5, 6};
  options.max_new_tokens = 0;
  options.save_state = folder.path() / "state";
  generate(options, nullptr);
  options.load_state = options.save_state;
  options.save_state.clear();
  options.prompt_ids = {7, 8, 9};
  options.max_new_tokens = 12;
  EXPECT_EQ(generate(options, nullptr).ids, whole.ids);
}

TEST(Generate, StopsBetweenTwoChunksOfThePromptAndSavesNothing) {
  const testing::TempDir folder;
  std::atomic<bool> stop{false};
  struct Sink : ProgressSink {
    std::atomic<bool>* stop = nullptr;
    void update(std::string_view, int64_t done, int64_t) override { *stop = done >= 4; }
  } sink;
  sink.stop = &stop;
  GenerateOptions options = tiny();
  options.prompt_ids = {1, 2, 3, 4, 5};
  options.engine.prefill_chunk = 2;
  options.stop_flag = &stop;
  options.save_state = folder.path() / "state";
  const GenerateResult result = generate(options, nullptr, &sink);
  EXPECT_EQ(result.finish, FinishReason::kCancelled);
  EXPECT_FALSE(result.prompt_is_read);
  EXPECT_TRUE(result.ids.empty());
  EXPECT_FALSE(std::filesystem::exists(options.save_state));
}

TEST(Generate, ReportsThePrefill) {
  struct Sink : ProgressSink {
    std::vector<int64_t> done;
    void update(std::string_view, int64_t now, int64_t) override { done.push_back(now); }
  } sink;
  GenerateOptions options = tiny();
  options.prompt_ids = {1, 2, 3, 4, 5};
  options.engine.prefill_chunk = 2;
  options.max_new_tokens = 0;
  EXPECT_TRUE(generate(options, nullptr, &sink).ids.empty());
  EXPECT_EQ(sink.done, (std::vector<int64_t>{0, 2, 4, 5}));
}

TEST(Generate, WrongOptionsAreNamed) {
  EXPECT_THAT(error_of(tiny("")), HasSubstr("prompt is empty"));
  GenerateOptions options = tiny();
  options.max_new_tokens = -1;
  EXPECT_THAT(error_of(options), HasSubstr("--max-new-tokens"));
  options = tiny();
  options.engine.prefill_chunk = 0;
  EXPECT_THAT(error_of(options), HasSubstr("--prefill-chunk"));
  options = tiny();
  options.stop = {""};
  EXPECT_THAT(error_of(options), HasSubstr("stop string"));
  options = tiny();
  options.sampling.top_p = 2;
  EXPECT_THAT(error_of(options), HasSubstr("--top-p"));
  options = tiny();
  options.prompt_ids = {4096};
  EXPECT_THAT(error_of(options), HasSubstr("vocab_size"));
}

}  // namespace
}  // namespace trefoil
