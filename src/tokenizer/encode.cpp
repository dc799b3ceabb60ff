#include "tokenizer/encode.h"

#include "base/error.h"
#include "tokenizer/split.h"
#include "tokenizer/utf8.h"

namespace trefoil {
namespace {

// Encodes ordinary text between special tokens, cut where the caps say.
class TextEncoder {
 public:
  TextEncoder(const RankBpe& bpe, std::string_view text, const EncodeCaps& caps)
      : bpe_(bpe), text_(text), cuts_(cap_cuts(text, caps)) {}

  // Ranges come in ascending order.
  void encode(size_t begin, size_t end, std::vector<int32_t>* ids) {
    while (next_cut_ < cuts_.size() && cuts_[next_cut_] <= begin) ++next_cut_;
    for (; next_cut_ < cuts_.size() && cuts_[next_cut_] < end; ++next_cut_) {
      encode_part(begin, cuts_[next_cut_], ids);
      begin = cuts_[next_cut_];
    }
    encode_part(begin, end, ids);
  }

 private:
  void encode_part(size_t begin, size_t end, std::vector<int32_t>* ids) {
    splitter_.reset(text_.substr(begin, end - begin));
    for (std::string_view piece = splitter_.next(); !piece.empty(); piece = splitter_.next()) {
      bpe_.encode(piece, &scratch_, ids);
    }
  }

  const RankBpe& bpe_;
  std::string_view text_;
  std::vector<size_t> cuts_;
  size_t next_cut_ = 0;
  Splitter splitter_;
  RankBpe::Scratch scratch_;
};

}  // namespace

std::vector<int32_t> encode_text(const Vocabulary& vocabulary, std::string_view text, EncodeMode mode,
                                 const EncodeCaps& caps) {
  if (const size_t at = find_invalid_utf8(text); at != std::string_view::npos) {
    fail(ErrorCode::kInvalidArgument, "text is not UTF-8: byte {:#04x} at offset {}", static_cast<uint8_t>(text[at]),
         at);
  }
  std::vector<int32_t> ids;
  TextEncoder encoder(vocabulary.bpe, text, caps);
  size_t begin = 0;
  if (mode == EncodeMode::kMarkup) {
    while (const auto special = vocabulary.specials.find_in(text, begin)) {
      encoder.encode(begin, special->begin, &ids);
      ids.push_back(special->id);
      begin = special->begin + special->size;
    }
  }
  encoder.encode(begin, text.size(), &ids);
  return ids;
}

}  // namespace trefoil
