#include "checkpoint/name_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <utility>

#include "base/check.h"
#include "base/error.h"

namespace trefoil {
namespace {

// Steps of the matcher per name. A pattern like those in use takes about as many as the name has characters.
constexpr uint32_t kMatchLimit = 100'000;
constexpr uint32_t kHeapLimitKib = 4096;
constexpr size_t kMaxPatternBytes = 1 << 16;

std::string reason(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

template <typename T, void (*kFree)(T*)>
struct Freer {
  void operator()(T* pointer) const { kFree(pointer); }
};
using CompileContext = std::unique_ptr<pcre2_compile_context, Freer<pcre2_compile_context, pcre2_compile_context_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Freer<pcre2_match_context, pcre2_match_context_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Freer<pcre2_match_data, pcre2_match_data_free>>;

}  // namespace

struct NamePattern::Code {
  std::unique_ptr<pcre2_code, Freer<pcre2_code, pcre2_code_free>> compiled;
  MatchContext limits;
};

NamePattern::NamePattern(std::string pattern, Anchor anchor) : text_(std::move(pattern)) {
  if (text_.size() > kMaxPatternBytes) {
    fail(ErrorCode::kUnsupported, "a pattern of {} bytes; {} is the most", text_.size(), kMaxPatternBytes);
  }
  const CompileContext context(pcre2_compile_context_create(nullptr));
  TREFOIL_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);  // Python's `.` and `$` know no other
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C | PCRE2_ALT_BSUX |
                           (anchor == Anchor::kStart ? PCRE2_ANCHORED : 0);
  int error = 0;
  size_t position = 0;
  auto code = std::make_shared<Code>();
  code->compiled.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text_.data()), text_.size(), options, &error,
                                     &position, context.get()));
  if (code->compiled == nullptr) {
    fail(ErrorCode::kUnsupported, "pattern \"{}\" at byte {}: {}", text_, position, reason(error));
  }
  pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE);  // where it cannot, the interpreter serves
  code->limits.reset(pcre2_match_context_create(nullptr));
  TREFOIL_CHECK(code->limits != nullptr);
  pcre2_set_match_limit(code->limits.get(), kMatchLimit);
  pcre2_set_heap_limit(code->limits.get(), kHeapLimitKib);
  code_ = std::move(code);
}

bool NamePattern::matches(std::string_view name) const {
  const MatchData data(pcre2_match_data_create(1, nullptr));
  TREFOIL_CHECK(data != nullptr);
  const auto run = [&](uint32_t options) {
    return pcre2_match(code_->compiled.get(), reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, options,
                       data.get(), code_->limits.get());
  };
  int result = run(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = run(PCRE2_NO_JIT);
  if (result >= 0) return true;
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result <= PCRE2_ERROR_UTF8_ERR1 && result >= PCRE2_ERROR_UTF8_ERR21) {
    fail(ErrorCode::kCorrupt, "a name that is not UTF-8 ({})", reason(result));
  }
  fail(ErrorCode::kUnsupported, "pattern \"{}\" on \"{}\": {}", text_, name, reason(result));
}

}  // namespace trefoil
