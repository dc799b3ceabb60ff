#include "conversation/turn.h"

#include <gmock/gmock.h>

#include "support/test_support.h"

namespace trefoil {
namespace {

const Tokenizer& tiny() {
  static const Tokenizer tokenizer = Tokenizer::load(testing::tiny_k3_dir());
  return tokenizer;
}

std::vector<int32_t> markup(std::string_view text) {
  return tiny().encode(text, EncodeMode::kMarkup);
}

// What is left as text, "-" for nothing to go on with.
std::string left(const std::vector<int32_t>& begun, std::string_view whole) {
  const std::vector<int32_t> ids = markup(whole);
  const auto rest = remainder(tiny(), begun, ids);
  return rest ? tiny().decode(*rest) : "-";
}

TEST(Remainder, GoesOnAtTheNextSpecialTokenWhateverTheTokensOfTheText) {
  const std::string whole = "number<|close|>think<|sep|>";
  EXPECT_EQ(left(markup("number"), whole), "<|close|>think<|sep|>");
  std::vector<int32_t> letters;
  for (const char c : std::string("number")) letters.push_back(markup({&c, 1})[0]);
  ASSERT_NE(letters, markup("number"));
  EXPECT_EQ(left(letters, whole), "<|close|>think<|sep|>");
  EXPECT_EQ(left(markup(whole), whole), "");
  EXPECT_EQ(left(markup("number<|close|>think"), whole), "<|sep|>");
  EXPECT_EQ(left({}, "<|close|>"), "<|close|>");
}

TEST(Remainder, OfAnotherTextThereIsNone) {
  const std::string whole = "number<|close|>think<|sep|>";
  for (const char* begun : {"", "numb", "numbers", "number<|open|>think", "number<|close|>thin", "number<|close|>",
                            "number<|close|>think<|sep|>x", "number<|close|>think<|sep|><|open|>"}) {
    EXPECT_EQ(left(markup(begun), whole), "-") << begun;
  }
  // Special tokens are no text, even where they read the same.
  EXPECT_EQ(left(tiny().encode("number<|close|>"), whole), "-");
}

TEST(TurnWriter, PiecesJoinedAreTheWholeRendering) {
  for (const bool thinking : {true, false}) {
    ChatRequest request;
    request.thinking = thinking;
    request.thinking_effort = "low";
    request.messages.resize(4);
    request.messages[0].role = ChatRole::kSystem;
    request.messages[2].role = ChatRole::kAssistant;
    request.messages[2].reasoning = "Some.";
    for (size_t i = 0; i < 4; ++i) request.messages[i].content = {{"<|open|>" + std::to_string(i), false}};
    const TurnWriter turns(tiny(), thinking, "low");
    std::vector<int32_t> ids;
    for (const auto& piece : {turns.beginning("<|open|>0"), turns.question("<|open|>1"),
                              turns.reply(request.messages[2]), turns.question("<|open|>3")}) {
      ids.insert(ids.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(ids, encode_chat(tiny(), render_chat(request)));
  }
}

TEST(TurnWriter, KnowsAConversationOfItsKind) {
  const TurnWriter thinking(tiny(), true, ""), plain(tiny(), false, "");
  std::vector<int32_t> ids = thinking.question("Hello.");
  EXPECT_FALSE(thinking.ends_with_message(ids));
  ChatMessage message;
  message.role = ChatRole::kAssistant;
  const std::vector<int32_t> reply = thinking.reply(message);
  ids.insert(ids.end(), reply.begin(), reply.end());
  EXPECT_TRUE(thinking.ends_with_message(ids));
  EXPECT_FALSE(thinking.has_other_kind(ids));
  EXPECT_TRUE(plain.has_other_kind(ids));
  EXPECT_TRUE(plain.ends_with_message({}));
  EXPECT_TRUE(plain.beginning("").empty());
}

}  // namespace
}  // namespace trefoil
