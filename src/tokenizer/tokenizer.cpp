#include "trefoil/tokenizer.h"

#include "base/error.h"
#include "checkpoint/file.h"
#include "tokenizer/encode.h"
#include "tokenizer/tiktoken_file.h"
#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

// Ids are int32 and a vocabulary of a million tokens is about 20 MB: a file this large is something else.
constexpr uint64_t kMaxFileBytes = 1ull << 30;

}  // namespace

struct Tokenizer::Impl {
  Impl(std::string_view model, const std::string& model_name, std::string_view config, const std::string& config_name)
      : vocabulary(parse_tiktoken(model, model_name), config, config_name) {}
  Vocabulary vocabulary;
};

Tokenizer Tokenizer::load(const std::filesystem::path& folder) {
  const std::filesystem::path model = folder / "tiktoken.model";
  const std::filesystem::path config = folder / "tokenizer_config.json";
  const std::string model_text = read_text_file(model, kMaxFileBytes);
  const std::string config_text = read_text_file(config, kMaxFileBytes);
  return parse(model_text, config_text, model.string(), config.string());
}

Tokenizer Tokenizer::parse(std::string_view tiktoken_model, std::string_view tokenizer_config,
                           const std::string& model_name, const std::string& config_name) {
  return Tokenizer(std::make_shared<const Impl>(tiktoken_model, model_name, tokenizer_config, config_name));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, EncodeMode mode) const {
  return encode_text(impl_->vocabulary, text, mode, EncodeCaps());
}

std::string Tokenizer::decode_bytes(std::span<const int32_t> ids, SpecialTokens specials) const {
  std::string bytes;
  for (const int32_t id : ids) {
    const std::string_view token = token_bytes(id);
    if (specials == SpecialTokens::kNames || !is_special(id)) bytes.append(token);
  }
  return bytes;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, SpecialTokens specials) const {
  std::string bytes = decode_bytes(ids, specials);
  std::string text;
  text.reserve(bytes.size());
  take_whole_characters(&bytes, &text);
  if (!bytes.empty()) text.append(kReplacementCharacter);
  return text;
}

int32_t Tokenizer::num_base_tokens() const {
  return impl_->vocabulary.bpe.size();
}
int32_t Tokenizer::vocab_size() const {
  return num_base_tokens() + kNumSpecialTokens;
}
std::optional<int32_t> Tokenizer::special_id(std::string_view name) const {
  return impl_->vocabulary.specials.find(name);
}

std::string_view Tokenizer::token_bytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    fail(ErrorCode::kInvalidArgument, "token id {} is outside the vocabulary of {}", id, vocab_size());
  }
  return is_special(id) ? impl_->vocabulary.specials.token_name(id) : impl_->vocabulary.bpe.token(id);
}

StreamingDecoder::StreamingDecoder(const Tokenizer& tokenizer, SpecialTokens specials)
    : tokenizer_(tokenizer), specials_(specials) {}

std::string StreamingDecoder::push(int32_t id) {
  const std::string_view token = tokenizer_.token_bytes(id);
  if (specials_ == SpecialTokens::kSkip && tokenizer_.is_special(id)) return {};
  held_.append(token);
  std::string text;
  take_whole_characters(&held_, &text);
  return text;
}

std::string StreamingDecoder::flush() {
  std::string text(held_.empty() ? std::string_view() : kReplacementCharacter);
  held_.clear();
  return text;
}

}  // namespace trefoil
