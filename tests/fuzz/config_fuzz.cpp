// config.json: the model's dimensions, quantization_config, and the writer of a new one. What a reader accepts keeps its
// promises; what the writer writes has one truthful quantization_config, every other member as it was, and is stable.
#include <string>

#include "base/check.h"
#include "checkpoint/json_object.h"
#include "checkpoint/model_config.h"
#include "checkpoint/quantization_config.h"
#include "fuzz.h"

namespace trefoil {
namespace {

void check_model_config(std::string_view text) {
  ModelConfig config;
  if (!fuzz::accepts([&] { config = parse_model_config(text, "fuzz"); })) return;
  TREFOIL_CHECK(static_cast<int64_t>(config.attention.size()) == config.num_hidden_layers);
  TREFOIL_CHECK(config.num_experts_per_token <= config.num_experts);
  for (const int64_t id : config.eos_token_ids) TREFOIL_CHECK(id >= 0 && id < config.vocab_size);
}

void check_claims(std::string_view text) {
  QuantizationConfigs configs;
  if (!fuzz::accepts([&] { configs = parse_quantization_configs(text, "fuzz"); })) return;
  for (const auto& config : {configs.top, configs.nested}) {
    if (!config.has_value()) continue;
    fuzz::accepts([&] { config->match("language_model.model.layers.1.block_sparse_moe.experts.0.w1"); });
  }
}

// The document without what the writer may touch.
Json rest_of(std::string_view text) {
  Json document = parse_strict_json(text, "fuzz");
  for (const char* key : {"quantization_config", "compression_config"}) {
    document.erase(key);
    const auto nested = document.find("text_config");
    if (nested != document.end() && nested->is_object()) nested->erase(key);
  }
  return document;
}

void check_writer(std::string_view text) {
  std::string written;
  if (!fuzz::accepts([&] { written = write_quantized_config(text, {}, "fuzz"); })) return;
  TREFOIL_CHECK(rest_of(written) == rest_of(text));
  const Json document = parse_strict_json(written, "written");
  TREFOIL_CHECK(document.contains("quantization_config"));
  TREFOIL_CHECK(write_quantized_config(written, {}, "written") == written);
}

}  // namespace
}  // namespace trefoil

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  const std::string_view text = fuzz::as_text(data, size);
  check_model_config(text);
  check_claims(text);
  check_writer(text);
  return 0;
}
