#include "tokenizer/encode_caps.h"

#include "tokenizer/unicode_class.h"
#include "tokenizer/utf8.h"

namespace trefoil {

std::vector<size_t> cap_cuts(std::string_view text, const EncodeCaps& caps) {
  std::vector<size_t> cuts;
  int64_t in_slice = 0;
  int64_t in_run = 0;
  bool run_is_space = false;
  for (size_t next = 0, at = 0; at < text.size(); at = next) {
    const bool is_space = is_python_space(next_code_point(text, &next));
    if (in_slice == caps.max_slice) {
      cuts.push_back(at);
      in_slice = in_run = 0;
    } else if (is_space == run_is_space && in_run == caps.max_run) {
      cuts.push_back(at);
      in_run = 0;
    }
    if (is_space != run_is_space) in_run = 0;
    run_is_space = is_space;
    ++in_slice;
    ++in_run;
  }
  return cuts;
}

}  // namespace trefoil
