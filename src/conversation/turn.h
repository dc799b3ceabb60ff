// The pieces of a conversation as ids: its beginning, a message of the user with the opening of the reply, and what the
// history keeps of a reply.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trefoil/chat.h"
#include "trefoil/tokenizer.h"

namespace trefoil {

// How the turns of one conversation are written. Every message is rendered apart: but for tools' results, none depends
// on its neighbours.
class TurnWriter {
 public:
  // Error(kUnsupported) when the tokenizer lacks the markup's tokens.
  TurnWriter(const Tokenizer& tokenizer, bool thinking, std::string effort);

  // The effort and the system's message, each if there is one.
  std::vector<int32_t> beginning(std::string_view system) const;
  // A message of the user, and the opening of the reply.
  std::vector<int32_t> question(std::string_view text) const;
  // What follows the opening of the reply in the history, the end of the message included.
  std::vector<int32_t> reply(const ChatMessage& message) const;
  // Whether `ids` end with a message and no reply in them was opened as those of the other kind (with or without
  // reasoning) are.
  bool ends_with_message(std::span<const int32_t> ids) const;
  bool has_other_kind(std::span<const int32_t> ids) const;

 private:
  std::vector<int32_t> encode(std::vector<ChatMessage> messages, bool opens_reply, std::string_view effort = {}) const;
  static std::vector<int32_t> opening(const Tokenizer& tokenizer, bool thinking);

  Tokenizer tokenizer_;
  bool thinking_;
  std::string effort_;
  std::vector<int32_t> opening_, other_opening_;
  int32_t end_id_;
};

// `whole` is a text that ought to begin with `begun`, perhaps in other tokens: the same special tokens in the same
// order, and between them the same bytes, the last piece of `begun` being complete. Returns what of `whole` is left,
// from the next special token on; nothing when they differ.
std::optional<std::span<const int32_t>> remainder(const Tokenizer& tokenizer, std::span<const int32_t> begun,
                                                  std::span<const int32_t> whole);

}  // namespace trefoil
