#include "checkpoint/json_object.h"

#include <cmath>
#include <unordered_set>

#include "base/error.h"

namespace trefoil {
namespace {

constexpr int kMaxDepth = 64;
constexpr size_t kMaxMembers = 10'000;

// Follows the parser and refuses what nlohmann accepts and we do not.
class Strictness {
 public:
  explicit Strictness(const std::string& file) : file_(file) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth >= kMaxDepth) fail(ErrorCode::kCorrupt, "{}: nested deeper than {} levels", file_, kMaxDepth);
    }
    if (event == Json::parse_event_t::object_start) {
      open_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      open_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      add(parsed.get_ref<const std::string&>());
    }
    return true;
  }

 private:
  void add(const std::string& key) {
    std::unordered_set<std::string>& keys = open_.back();
    if (keys.size() == kMaxMembers)
      fail(ErrorCode::kCorrupt, "{}: an object of more than {} members", file_, kMaxMembers);
    if (!keys.insert(key).second) fail(ErrorCode::kCorrupt, "{}: key {} occurs twice in one object", file_, key);
  }

  const std::string& file_;
  std::vector<std::unordered_set<std::string>> open_;  // keys seen in each object that is being read
};

}  // namespace

Json parse_strict_json(std::string_view text, const std::string& file) {
  Strictness strictness(file);
  try {
    return Json::parse(
        text, [&](int depth, Json::parse_event_t event, Json& parsed) { return strictness(depth, event, parsed); });
  } catch (const Json::parse_error& error) {
    fail(ErrorCode::kCorrupt, "{}: not JSON near byte {}: {}", file, error.byte, error.what());
  } catch (const Json::exception& error) {  // a number that no double holds
    fail(ErrorCode::kCorrupt, "{}: not JSON: {}", file, error.what());
  }
}

std::string describe(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "a list";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr size_t kLongest = 60;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

JsonObject::JsonObject(const Json& value, std::string path, std::string file)
    : value_(&value), path_(std::move(path)), file_(std::move(file)) {
  if (!value.is_object()) {
    fail(ErrorCode::kCorrupt, "{}: {}: expected an object, found {}", file_, path_.empty() ? "the document" : path_,
         describe(value));
  }
}

std::string JsonObject::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const Json* JsonObject::find(std::string_view key) const {
  const auto member = value_->find(key);
  return member == value_->end() || member->is_null() ? nullptr : &*member;
}

const Json& JsonObject::demand(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) fail(ErrorCode::kCorrupt, "{}: {} is missing", file_, path_of(key));
  return *value;
}

JsonObject JsonObject::object(std::string_view key) const {
  return JsonObject(demand(key), path_of(key), file_);
}

bool JsonObject::boolean(std::string_view key) const {
  const Json& value = demand(key);
  if (!value.is_boolean()) refuse(key, "true or false", value);
  return value.get<bool>();
}

std::string JsonObject::text(std::string_view key) const {
  const Json& value = demand(key);
  if (!value.is_string()) refuse(key, "a string", value);
  return value.get<std::string>();
}

namespace {

// Nothing unless the value is a whole number of JSON's integer form within int64.
bool to_integer(const Json& value, int64_t* out) {
  if (value.is_number_unsigned()) {
    const auto wide = value.get<uint64_t>();
    if (wide > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    *out = static_cast<int64_t>(wide);
    return true;
  }
  if (!value.is_number_integer()) return false;
  *out = value.get<int64_t>();
  return true;
}

}  // namespace

int64_t JsonObject::integer(std::string_view key, int64_t least, int64_t most) const {
  const Json& value = demand(key);
  int64_t number = 0;
  if (!to_integer(value, &number) || number < least || number > most) {
    refuse(key, fmt::format("a whole number from {} to {}", least, most), value);
  }
  return number;
}

double JsonObject::number(std::string_view key) const {
  const Json& value = demand(key);
  if (!value.is_number() || !std::isfinite(value.get<double>())) refuse(key, "a number", value);
  return value.get<double>();
}

std::vector<int64_t> JsonObject::integers(std::string_view key) const {
  const Json& value = demand(key);
  if (!value.is_array()) refuse(key, "a list of whole numbers", value);
  std::vector<int64_t> numbers;
  numbers.reserve(value.size());
  for (const Json& item : value) {
    int64_t number = 0;
    if (!to_integer(item, &number)) refuse(key, "a list of whole numbers", item);
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<std::string> JsonObject::texts(std::string_view key) const {
  const Json& value = demand(key);
  if (!value.is_array()) refuse(key, "a list of strings", value);
  std::vector<std::string> list;
  list.reserve(value.size());
  for (const Json& item : value) {
    if (!item.is_string()) refuse(key, "a list of strings", item);
    list.push_back(item.get<std::string>());
  }
  return list;
}

void JsonObject::refuse(std::string_view key, std::string_view expected, const Json& found) const {
  fail(ErrorCode::kCorrupt, "{}: {}: expected {}, found {}", file_, path_of(key), expected, describe(found));
}

}  // namespace trefoil
