#include "model/weight_loader.h"

#include "base/error.h"

namespace trefoil {
namespace {

// "; the config asks for [12288 = num_heads x head_dim, 7168 = hidden_size]"
std::string origin(std::initializer_list<Dim> shape) {
  std::string text;
  for (const Dim& dim : shape) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", dim.size, dim.from);
  return "; the config asks for [" + text + "]";
}

template <typename Load>
auto with_origin(std::initializer_list<Dim> shape, Load load) {
  try {
    return load();
  } catch (const Error& error) {
    throw Error(error.code(), error.what() + origin(shape));
  }
}

}  // namespace

std::unique_ptr<LinearWeight> WeightLoader::linear(std::string_view name, Dim out_features, Dim in_features) const {
  return with_origin({out_features, in_features},
                     [&] { return source_.linear(prefix_ + std::string(name), out_features.size, in_features.size); });
}

std::vector<float> WeightLoader::weight_vector(std::string_view name, Dim size) const {
  return tensor(std::string(name) + ".weight", {size});
}

std::vector<float> WeightLoader::tensor(std::string_view name, std::initializer_list<Dim> shape) const {
  return with_origin(shape, [&] {
    Shape sizes;
    for (const Dim& dim : shape) sizes.push_back(dim.size);
    return source_.vector(prefix_ + std::string(name), sizes);
  });
}

bool WeightLoader::has_linear(std::string_view name) const {
  try {
    source_.linear(prefix_ + std::string(name), kAnySize, kAnySize);
    return true;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kNotFound) return false;
    throw;
  }
}

}  // namespace trefoil
