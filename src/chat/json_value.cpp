#include "chat/json_value.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "base/error.h"

namespace trefoil {
namespace {

using Kind = JsonValue::Kind;

constexpr size_t kMaxShownKey = 100;  // bytes of a key in a message

void append_escape(char c, std::string* out) {
  constexpr std::string_view kShort = "\"\"\\\\\bb\ff\nn\rr\tt";  // what it is, how it is written
  for (size_t i = 0; i < kShort.size(); i += 2) {
    if (kShort[i] == c) {
      *out += '\\';
      *out += kShort[i + 1];
      return;
    }
  }
  *out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
}

void append_string(std::string_view text, std::string* out) {
  *out += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20) {
      append_escape(c, out);
    } else {
      *out += c;
    }
  }
  *out += '"';
}

// Builds the value from the parser's events. A false ends the parse; `refusal_` then says why.
class ValueBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit ValueBuilder(RepeatedKeys repeated) : repeated_(repeated) {}

  JsonValue finish() {
    if (!refusal_.empty()) throw Error(ErrorCode::kInvalidArgument, refusal_);
    return std::move(root_);
  }

  bool null() override { return add({}); }
  bool boolean(bool value) override { return add({.kind = Kind::kBoolean, .boolean = value}); }
  bool number_integer(number_integer_t value) override {
    return add({.kind = Kind::kInteger, .text = fmt::to_string(value)});
  }
  bool number_unsigned(number_unsigned_t value) override {
    return add({.kind = Kind::kInteger, .text = fmt::to_string(value)});
  }
  // Integers over 64 bits arrive here too; `digits` is the text as it stands.
  bool number_float(number_float_t value, const string_t& digits) override {
    if (digits.find_first_of(".eE") != std::string::npos) return add({.kind = Kind::kNumber, .number = value});
    return add({.kind = Kind::kInteger, .text = digits});
  }
  bool string(string_t& value) override { return add({.kind = Kind::kString, .text = std::move(value)}); }
  bool binary(binary_t& /*value*/) override { return false; }

  bool start_array(size_t /*size*/) override { return open(Kind::kArray); }
  bool end_array() override { return close(); }
  bool start_object(size_t /*size*/) override { return open(Kind::kObject); }
  bool key(string_t& name) override {
    open_.back().keys.push_back(std::move(name));
    return true;
  }
  bool end_object() override { return merge_repeated_keys(&open_.back()) && close(); }

  bool parse_error(size_t position, const std::string& /*last_token*/,
                   const nlohmann::json::exception& error) override {
    constexpr int kNumberOverflow = 406;
    return refuse(error.id == kNumberOverflow ? fmt::format("a number is outside the range of double")
                                              : fmt::format("not JSON at byte {}", position));
  }

 private:
  bool refuse(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  bool add(JsonValue value) {
    if (++num_values_ > kMaxJsonValues) return refuse(fmt::format("more than {} JSON values", kMaxJsonValues));
    (open_.empty() ? root_ : open_.back().items.emplace_back()) = std::move(value);
    return true;
  }

  bool open(Kind kind) {
    if (open_.size() == kMaxJsonDepth) return refuse(fmt::format("nested more than {} levels deep", kMaxJsonDepth));
    open_.push_back({.kind = kind});
    return true;
  }

  bool close() {
    JsonValue value = std::move(open_.back());
    open_.pop_back();
    return add(std::move(value));
  }

  bool merge_repeated_keys(JsonValue* object) {
    std::unordered_map<std::string, size_t> places;
    size_t kept = 0;
    for (size_t i = 0; i < object->keys.size(); ++i) {
      const auto [place, is_new] = places.emplace(object->keys[i], kept);
      if (!is_new && repeated_ == RepeatedKeys::kRefuse) {
        std::string key;
        append_string(std::string_view(object->keys[i]).substr(0, kMaxShownKey), &key);
        return refuse(fmt::format("the key {} occurs twice", key));
      }
      if (place->second != i) object->items[place->second] = std::move(object->items[i]);
      if (is_new && kept != i) object->keys[kept] = std::move(object->keys[i]);
      kept += is_new;
    }
    object->keys.resize(kept);
    object->items.resize(kept);
    return true;
  }

  RepeatedKeys repeated_;
  JsonValue root_;
  std::vector<JsonValue> open_;  // arrays and objects whose end has not come yet, outermost first
  int num_values_ = 0;
  std::string refusal_;
};

// Python's repr(float): the fewest digits that read back as the same double, positional for exponents -4 to 15.
std::string python_number(double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const std::string sign(text.starts_with('-') ? "-" : "");
  text.remove_prefix(sign.size());
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(), exponent);
  std::string digits(text.substr(0, e));
  std::erase(digits, '.');
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    if (count > 1) digits.insert(1, ".");
    return fmt::format("{}{}e{}{:02}", sign, digits, exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1) return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  digits.insert(static_cast<size_t>(exponent) + 1, ".");
  return sign + digits;
}

void append_json(const JsonValue& value, const JsonStyle& style, std::string* out);

void append_items(const JsonValue& value, const JsonStyle& style, std::string* out) {
  const bool is_object = value.kind == Kind::kObject;
  std::vector<size_t> order(value.items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // UTF-8 sorts by code point when compared byte by byte.
  if (is_object && style.sort_keys) {
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return value.keys[a] < value.keys[b]; });
  }
  *out += is_object ? '{' : '[';
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0) *out += style.item_separator;
    if (is_object) {
      append_string(value.keys[order[i]], out);
      *out += style.key_separator;
    }
    append_json(value.items[order[i]], style, out);
  }
  *out += is_object ? '}' : ']';
}

void append_json(const JsonValue& value, const JsonStyle& style, std::string* out) {
  switch (value.kind) {
    case Kind::kNull:
      *out += "null";
      return;
    case Kind::kBoolean:
      *out += value.boolean ? "true" : "false";
      return;
    case Kind::kInteger:
      *out += value.text;
      return;
    case Kind::kNumber:
      *out += python_number(value.number);
      return;
    case Kind::kString:
      append_string(value.text, out);
      return;
    case Kind::kArray:
    case Kind::kObject:
      append_items(value, style, out);
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  const auto found = std::find(keys.begin(), keys.end(), key);
  return found == keys.end() ? nullptr : &items[static_cast<size_t>(found - keys.begin())];
}

JsonValue parse_json(std::string_view text, RepeatedKeys repeated) {
  ValueBuilder builder(repeated);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return builder.finish();
}

std::string write_json(const JsonValue& value, const JsonStyle& style) {
  std::string text;
  append_json(value, style, &text);
  return text;
}

}  // namespace trefoil
