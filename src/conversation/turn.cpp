#include "conversation/turn.h"

#include <algorithm>

#include "base/check.h"
#include "chat/segment_writer.h"

namespace trefoil {
namespace {

ChatMessage message_of(ChatRole role, std::string_view text) {
  ChatMessage message;
  message.role = role;
  message.content = {{std::string(text), false}};
  return message;
}

// Ids up to the next special token.
std::span<const int32_t> text_at(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  const auto end = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer.is_special(id); });
  return ids.first(static_cast<size_t>(end - ids.begin()));
}

}  // namespace

TurnWriter::TurnWriter(const Tokenizer& tokenizer, bool thinking, std::string effort)
    : tokenizer_(tokenizer),
      thinking_(thinking),
      effort_(std::move(effort)),
      opening_(opening(tokenizer, thinking)),
      other_opening_(opening(tokenizer, !thinking)) {
  end_id_ = *tokenizer.special_id(kEndOfMessage);  // reply() needs it; opening() has found its neighbours
}

std::vector<int32_t> TurnWriter::opening(const Tokenizer& tokenizer, bool thinking) {
  ChatRequest request;
  request.thinking = thinking;
  return encode_chat(tokenizer, render_chat(request));
}

std::vector<int32_t> TurnWriter::encode(std::vector<ChatMessage> messages, bool opens_reply,
                                        std::string_view effort) const {
  ChatRequest request;
  request.messages = std::move(messages);
  request.thinking = thinking_;
  request.thinking_effort = effort;
  request.add_generation_prompt = opens_reply;
  return encode_chat(tokenizer_, render_chat(request));
}

std::vector<int32_t> TurnWriter::beginning(std::string_view system) const {
  std::vector<ChatMessage> messages;
  if (!system.empty()) messages.push_back(message_of(ChatRole::kSystem, system));
  return encode(std::move(messages), false, effort_);
}

std::vector<int32_t> TurnWriter::question(std::string_view text) const {
  return encode({message_of(ChatRole::kUser, text)}, true);
}

std::vector<int32_t> TurnWriter::reply(const ChatMessage& message) const {
  std::vector<int32_t> ids = encode({message}, false);
  TREFOIL_CHECK(ids.size() >= opening_.size() && std::equal(opening_.begin(), opening_.end(), ids.begin()));
  ids.erase(ids.begin(), ids.begin() + static_cast<int64_t>(opening_.size()));
  return ids;
}

bool TurnWriter::ends_with_message(std::span<const int32_t> ids) const {
  return ids.empty() || ids.back() == end_id_;
}

bool TurnWriter::has_other_kind(std::span<const int32_t> ids) const {
  return std::search(ids.begin(), ids.end(), other_opening_.begin(), other_opening_.end()) != ids.end();
}

std::optional<std::span<const int32_t>> remainder(const Tokenizer& tokenizer, std::span<const int32_t> begun,
                                                  std::span<const int32_t> whole) {
  while (true) {
    const std::span<const int32_t> text = text_at(tokenizer, begun), whole_text = text_at(tokenizer, whole);
    if (tokenizer.decode_bytes(text) != tokenizer.decode_bytes(whole_text)) return std::nullopt;
    begun = begun.subspan(text.size());
    whole = whole.subspan(whole_text.size());
    if (begun.empty()) return whole;
    if (whole.empty() || begun.front() != whole.front()) return std::nullopt;
    begun = begun.subspan(1);
    whole = whole.subspan(1);
  }
}

}  // namespace trefoil
