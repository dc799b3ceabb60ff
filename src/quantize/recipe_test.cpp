#include "quantize/recipe.h"

#include <gmock/gmock.h>

#include <functional>
#include <limits>

#include "support/expect_error.h"

namespace trefoil {
namespace {

using testing::fails_with;
using ::testing::HasSubstr;

QuantizeOptions valid() {
  QuantizeOptions options;
  options.source = "in";
  options.output = "out";
  options.calibration = {fs::path("text.jsonl")};
  return options;
}

TEST(Recipe, DefaultsAreValid) {
  check_options(valid());
  QuantizeOptions weight = valid();
  weight.actorder = "weight";
  check_options(weight);
}

TEST(Recipe, EveryRefusalNamesTheOption) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::pair<std::string, std::function<void(QuantizeOptions&)>>> cases = {
      {"source", [](auto& o) { o.source.clear(); }},
      {"output", [](auto& o) { o.output.clear(); }},
      {"actorder group", [](auto& o) { o.actorder = "group"; }},
      {"actorder (empty)", [](auto& o) { o.actorder.clear(); }},
      {"--bits 5", [](auto& o) { o.num_bits = 5; }},
      {"rank 3 of 3",
       [](auto& o) {
         o.join = true, o.place = {3, 3};
       }},
      {"rank 1 of 2",
       [](auto& o) {
         o.place = {1, 2};
       }},
      {"--group-size 0", [](auto& o) { o.group_size = 0; }},
      {"--num-calibration-samples 0", [](auto& o) { o.num_calibration_samples = 0; }},
      {"--max-seq-length -1", [](auto& o) { o.max_seq_length = -1; }},
      {"--dampening-frac 0", [](auto& o) { o.dampening_frac = 0; }},
      {"--dampening-frac nan", [&](auto& o) { o.dampening_frac = nan; }},
      {"threads -2", [](auto& o) { o.threads = -2; }},
      {"layers 3:3",
       [](auto& o) {
         o.layers = QuantizeOptions::LayerRange{3, 3};
       }},
      {"shrinkage 0", [](auto& o) { o.tuning.shrinkage = 0; }},
      {"target_alpha 2", [](auto& o) { o.tuning.target_alpha = 2; }},
      {"refine_rounds -1", [](auto& o) { o.tuning.refine_rounds = -1; }},
      {"zero mask", [](auto& o) { o.stock_zero_mask = true; }},
      {"tuning options", [](auto& o) { o.recipe = QuantizeRecipe::kStock, o.tuning.refine_rounds = 1; }},
      {"scales positive",
       [](auto& o) { o.recipe = QuantizeRecipe::kStock, o.scales = QuantizeOptions::Scales::kPositive; }},
      {"rtn reads no calibration", [](auto& o) { o.recipe = QuantizeRecipe::kRtn; }},
      {"needs calibration text", [](auto& o) { o.calibration.clear(); }},
      {"weight 0", [](auto& o) { o.calibration[0].weight = 0; }},
      {"weight -1", [](auto& o) { o.calibration[0].weight = -1; }},
      {"weight inf", [](auto& o) { o.calibration[0].weight = INFINITY; }},
      {"nothing to save",
       [](auto& o) { o.recipe = QuantizeRecipe::kRtn, o.calibration.clear(), o.save_calibration = "f"; }},
      {"cannot all save", [](auto& o) { o.join = true, o.save_calibration = "f"; }},
      {"refusing overlap needs held-out text", [](auto& o) { o.refuse_overlap = true; }},
  };
  for (const auto& [message, change] : cases) {
    QuantizeOptions options = valid();
    change(options);
    EXPECT_TRUE(fails_with(ErrorCode::kInvalidArgument, message, [&] { check_options(options); })) << message;
  }
}

TEST(Recipe, ConfigSaysWhatWasDone) {
  QuantizeOptions options = valid();
  options.layout = QuantizeOptions::Layout::kPadded;
  EXPECT_EQ(config_of(options).observer, "imatrix_mse");
  EXPECT_EQ(config_of(options).actorder, "static");
  EXPECT_EQ(config_of(options).layout, PackedLayout::kPadded);
  options.recipe = QuantizeRecipe::kStock;
  EXPECT_EQ(config_of(options).observer, "memoryless_minmax");
  options.recipe = QuantizeRecipe::kRtn;
  EXPECT_EQ(config_of(options).actorder, "");
}

TEST(Recipe, YamlOfStockReadsAsAModifierOfThePublishedTool) {
  QuantizeOptions options = valid();
  options.recipe = QuantizeRecipe::kStock;
  options.stock_zero_mask = true;
  const std::string yaml = recipe_yaml(options);
  EXPECT_THAT(yaml, HasSubstr("    GPTQModifier:\n      config_groups:\n        group_0:\n"));
  EXPECT_THAT(yaml, HasSubstr("            group_size: 64\n"));
  EXPECT_THAT(yaml, HasSubstr("\n      dampening_frac: 0.01\n"));
  EXPECT_THAT(yaml, HasSubstr("zero mask of llm-compressor 0.12.0.1: on"));
  EXPECT_THAT(recipe_yaml(valid()), HasSubstr("TrefoilModifier"));
}

}  // namespace
}  // namespace trefoil
