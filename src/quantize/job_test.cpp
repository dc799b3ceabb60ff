// quantize() end to end on the bundled model: what changes, what may not, and what happens when the world is wrong.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/sha256.h"
#include "checkpoint/linear_storage.h"
#include "checkpoint/quantization_config.h"
#include "quantize/source_experts.h"
#include "support/file_size_limit.h"
#include "support/shard_edit.h"
#include "support/test_support.h"
#include "trefoil/quantize.h"

namespace trefoil {
namespace {

using nlohmann::json;
using testing::add_tensor;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::overwrite;
using testing::read_text;
using testing::remove_tensor;
using testing::TempDir;
using testing::text_dir;
using testing::tiny_k3_dir;
using testing::write_cut_model;
using testing::write_text;
using Layout = QuantizeOptions::Layout;

fs::path copy_of_tiny_k3(const TempDir& temp) {
  const fs::path copy = temp.path() / "source";
  fs::copy(tiny_k3_dir(), copy, fs::copy_options::recursive);
  return copy;
}

QuantizeOptions options_for(const fs::path& output, QuantizeRecipe recipe, int64_t rows = 4, int64_t row_length = 64) {
  QuantizeOptions options;
  options.source = tiny_k3_dir();
  options.output = output;
  options.recipe = recipe;
  options.threads = 2;
  if (recipe == QuantizeRecipe::kRtn) return options;
  options.calibration = {text_dir() / "calibration.jsonl"};
  options.num_calibration_samples = rows;
  options.max_seq_length = row_length;
  return options;
}

// The same on two MoE layers of eight experts, for tests that run many times.
QuantizeOptions cut_options_for(const TempDir& temp, const std::string& output, QuantizeRecipe recipe) {
  QuantizeOptions options = options_for(temp.path() / output, recipe);
  options.source = temp.path() / "cut";
  if (!fs::exists(options.source)) write_cut_model(options.source, 3, 8);
  return options;
}

// Name -> contents of every file of a folder.
std::map<std::string, std::string> files_of(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) files[entry.path().lexically_relative(folder).string()] = read_text(entry.path());
  }
  return files;
}

std::map<std::string, std::string> shards_of(const fs::path& folder) {
  std::map<std::string, std::string> files = files_of(folder);
  std::erase_if(files, [](const auto& file) { return !file.first.ends_with(".safetensors"); });
  return files;
}

json report_of(const fs::path& folder) {
  return json::parse(read_text(folder / "quantization_report.json"));
}

std::string bytes_of(const Checkpoint& checkpoint, const TensorRef& tensor) {
  const std::vector<std::byte> bytes = checkpoint.read_all(tensor);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The error of a run that must fail, which must also bring nothing under its final name.
std::string failure_of(const QuantizeOptions& options, ErrorCode code, ProgressSink* progress = nullptr) {
  const auto names = [&] {
    std::set<std::string> found;
    if (!fs::exists(options.output)) return found;
    for (const auto& entry : fs::directory_iterator(options.output)) found.insert(entry.path().filename().string());
    found.erase(".trefoil-partial");
    return found;
  };
  const std::set<std::string> before = names();
  try {
    quantize(options, progress);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(names(), before) << "a failed run must leave the output folder as it was";
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

// Rounding to three bits costs about 0.05 of the energy (0.22 RMS) with absmax scales; compensation trades some more.
void expect_near_source(const Checkpoint& source, const Checkpoint& output) {
  double error = 0, energy = 0;
  for (const MoeLayer& layer : find_routed_experts(source, load_model_config(source.folder()))) {
    for (const StoredLinear& linear : layer.experts[5].linear) {
      std::vector<float> before(static_cast<size_t>(linear.out_features * linear.in_features)), after(before.size());
      decode_linear(source, linear, 0, linear.out_features, before);
      decode_linear(output, resolve_linear(output, linear.module), 0, linear.out_features, after);
      for (size_t i = 0; i < before.size(); ++i) {
        error += std::pow(before[i] - after[i], 2);
        energy += std::pow(before[i], 2);
      }
    }
  }
  EXPECT_LT(error, 0.25 * energy);
  EXPECT_GT(error, 0.01 * energy);
}

struct Case {
  QuantizeRecipe recipe;
  Layout layout;
};

class QuantizeEndToEnd : public ::testing::TestWithParam<Case> {};

TEST_P(QuantizeEndToEnd, OnlyRoutedExpertsChangeAndTheyAreInt3) {
  TempDir temp;
  QuantizeOptions options = options_for(temp.path() / "out", GetParam().recipe);
  options.layout = GetParam().layout;
  const QuantizeSummary summary = quantize(options);
  EXPECT_EQ(summary.matrices, 4 * 32 * 3);

  const Checkpoint source = Checkpoint::open(tiny_k3_dir());
  const Checkpoint output = Checkpoint::open(options.output);
  expect_near_source(source, output);
  EXPECT_EQ(output.shards(), source.shards());
  EXPECT_EQ(output.total_tensor_bytes(), summary.output_bytes);
  const PackedLayout layout = GetParam().layout == Layout::kDense ? PackedLayout::kDense : PackedLayout::kPadded;
  const ModelConfig config = load_model_config(tiny_k3_dir());
  size_t expected_tensors = source.tensors().size();
  for (const MoeLayer& layer : find_routed_experts(source, config)) {
    for (const RoutedExpert& expert : layer.experts) {
      for (const StoredLinear& before : expert.linear) {
        const StoredLinear after = resolve_linear(output, before.module);
        ASSERT_EQ(after.format, LinearFormat::kPackedInt);
        EXPECT_EQ(after.num_bits, 3);
        EXPECT_EQ(after.group_size, 64);
        EXPECT_EQ(after.layout, layout);
        EXPECT_EQ(after.scale->info.dtype, DType::kBF16);
        EXPECT_EQ(after.packed->info.dtype, DType::kI32);
        const std::vector<std::byte> shape = output.read_all(*after.shape);
        EXPECT_EQ(load<int64_t>(shape.data()), before.out_features);
        EXPECT_EQ(load<int64_t>(shape.data() + 8), before.in_features);
        ++expected_tensors;
      }
    }
  }
  EXPECT_EQ(output.tensors().size(), expected_tensors);
  for (const TensorRef& tensor : source.tensors()) {
    if (tensor.info.name.find(".experts.") != std::string::npos) continue;
    const TensorRef& copy = output.at(tensor.info.name);
    EXPECT_EQ(copy.shard, tensor.shard);
    EXPECT_EQ(copy.info.dtype, tensor.info.dtype);
    EXPECT_EQ(copy.info.shape, tensor.info.shape);
    ASSERT_TRUE(bytes_of(output, copy) == bytes_of(source, tensor)) << tensor.info.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recipes, QuantizeEndToEnd,
    ::testing::Values(Case{QuantizeRecipe::kRtn, Layout::kDense}, Case{QuantizeRecipe::kRtn, Layout::kPadded},
                      Case{QuantizeRecipe::kStock, Layout::kDense}, Case{QuantizeRecipe::kStock, Layout::kPadded},
                      Case{QuantizeRecipe::kTrefoil, Layout::kDense}, Case{QuantizeRecipe::kTrefoil, Layout::kPadded}),
    [](const auto& param) {
      return std::string(to_string(param.param.recipe)) + (param.param.layout == Layout::kDense ? "Dense" : "Padded");
    });

TEST(Quantize, OutputIsACompleteRepository) {
  TempDir temp;
  const QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kRtn);
  const QuantizeSummary summary = quantize(options);
  // 0.22 of the RMS, squared, for absmax scales on weights of this kind: docs/quantization.md
  for (double error : {summary.relative_error_w1, summary.relative_error_w2, summary.relative_error_w3}) {
    EXPECT_NEAR(error, 0.05, 0.02);
  }
  const auto source = files_of(tiny_k3_dir());
  const auto output = files_of(options.output);
  for (const auto& [name, contents] : source) {
    ASSERT_TRUE(output.contains(name)) << name;
    const bool changes =
        name == "config.json" || name.ends_with(".safetensors") || name == "model.safetensors.index.json";
    if (!changes) {
      EXPECT_EQ(output.at(name), contents) << name;
    }
  }
  for (const char* name :
       {"recipe.yaml", "quantization_report.json", "quantization_report.html", "SHA256SUMS", "MODEL_CARD.md"}) {
    EXPECT_TRUE(output.contains(name)) << name;
  }
  EXPECT_EQ(output.size(), source.size() + 5) << "nothing temporary is left";

  const QuantizationConfigs configs = parse_quantization_configs(output.at("config.json"), "config.json");
  EXPECT_FALSE(configs.nested.has_value());
  ASSERT_TRUE(configs.top.has_value());
  EXPECT_EQ(configs.top->version, "0.18.0");
  EXPECT_EQ(configs.top->groups.at(0).num_bits, 3);

  std::istringstream sums(output.at("SHA256SUMS"));
  std::string sum, name;
  size_t lines = 0;
  for (; sums >> sum >> name; ++lines) EXPECT_EQ(sum, sha256_hex(as_bytes_of(output.at(name)))) << name;
  EXPECT_EQ(lines, output.size() - 1);
}

TEST(Quantize, DenseShardsStartExpertsOnAPageAndKeepThemTogether) {
  TempDir temp;
  const QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kRtn);
  quantize(options);
  const Checkpoint source = Checkpoint::open(tiny_k3_dir());
  const Checkpoint output = Checkpoint::open(options.output);
  const auto& before = source.header(1).tensors;
  const auto& after = output.header(1).tensors;
  EXPECT_EQ(output.header(1).data_start % 4096, 0u);
  const size_t expert_tensors = 32 * 6;
  for (size_t i = 0; i < before.size(); ++i) {
    const size_t shapes_before = i < expert_tensors ? 0 : 32 * 3;
    EXPECT_EQ(after[i + shapes_before].name, before[i].name);
  }
  for (size_t i = expert_tensors; i < expert_tensors + 32 * 3; ++i)
    EXPECT_TRUE(after[i].name.ends_with(".weight_shape"));
}

TEST(Quantize, ShardsDoNotDependOnThreads) {
  TempDir temp;
  for (const QuantizeRecipe recipe : {QuantizeRecipe::kStock, QuantizeRecipe::kTrefoil}) {
    std::map<std::string, std::string> first;
    for (const int threads : {1, 2, 3}) {
      QuantizeOptions options = cut_options_for(temp, to_string(recipe) + std::to_string(threads), recipe);
      options.threads = threads;
      quantize(options);
      const auto shards = shards_of(options.output);
      if (first.empty()) first = shards;
      EXPECT_TRUE(first == shards) << to_string(recipe) << " with " << threads << " threads";
    }
  }
}

TEST(Quantize, OptionsChangeTheShards) {
  TempDir temp;
  const QuantizeOptions base = cut_options_for(temp, "base", QuantizeRecipe::kTrefoil);
  quantize(base);
  const auto reference = shards_of(base.output);
  const std::map<std::string, std::function<void(QuantizeOptions&)>> changes = {
      {"scales", [](auto& o) { o.scales = QuantizeOptions::Scales::kPositive; }},
      {"shrinkage", [](auto& o) { o.tuning.shrinkage = 1e6; }},
      {"alpha", [](auto& o) { o.tuning.target_alpha = 1; }},
      {"refine", [](auto& o) { o.tuning.refine_rounds = 0; }},
      {"gate", [](auto& o) { o.tuning.gate_weighting = false; }},
      {"w2", [](auto& o) { o.tuning.w2_sequential = false; }},
      {"damp", [](auto& o) { o.dampening_frac = 0.5; }},
      {"f32", [](auto& o) { o.numerics = Numerics::kF32; }},
      {"seed", [](auto& o) { o.seed = 1; }},
      {"bits", [](auto& o) { o.num_bits = 4; }},
      {"group", [](auto& o) { o.group_size = 32; }},
  };
  for (const auto& [name, change] : changes) {
    QuantizeOptions options = base;
    options.output = temp.path() / name;
    change(options);
    quantize(options);
    EXPECT_FALSE(shards_of(options.output) == reference) << name << " has no effect";
  }
}

TEST(Quantize, PositiveScalesArePositive) {
  TempDir temp;
  QuantizeOptions options = cut_options_for(temp, "out", QuantizeRecipe::kTrefoil);
  auto negative_share = [&] {
    double sum = 0;
    const json report = report_of(options.output);
    for (const json& layer : report.at("layers")) {
      for (const json& matrix : layer.at("matrices")) sum += matrix.at("negative_scales").get<double>();
    }
    return sum / (2 * 8 * 3);
  };
  quantize(options);
  EXPECT_GT(negative_share(), 0.2);
  options.scales = QuantizeOptions::Scales::kPositive;
  options.overwrite = true;
  quantize(options);
  EXPECT_EQ(negative_share(), 0.0);
}

TEST(Quantize, ReportAccountsForEveryTokenAndMatrix) {
  TempDir temp;
  const QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kTrefoil);
  const QuantizeSummary summary = quantize(options);
  const json report = report_of(options.output);
  ASSERT_EQ(report.at("layers").size(), 4u);
  for (const json& layer : report.at("layers")) {
    int64_t pairs = 0;
    for (int64_t tokens : layer.at("tokens_per_expert")) pairs += tokens;
    EXPECT_EQ(pairs, 4 * 64 * 4) << "rows x tokens x top_k";
    ASSERT_EQ(layer.at("matrices").size(), 96u);
    for (const json& matrix : layer.at("matrices")) {
      const double tokens = matrix.at("tokens"), n_eff = matrix.at("n_eff");
      EXPECT_LE(n_eff, tokens * (1 + 1e-6));
      EXPECT_GE(n_eff, tokens > 0 ? 1 - 1e-6 : 0);
      EXPECT_GE(matrix.at("loss").get<double>(), 0);
      EXPECT_LT(matrix.at("relative_error").get<double>(), 0.5) << matrix;
    }
  }
  const json& calibration = report.at("calibration");
  EXPECT_EQ(calibration.at("tokens"), 256);
  std::string ids;
  for (const json& row : calibration.at("token_ids")) {
    ASSERT_EQ(row.size(), 64u);
    for (int32_t id : row) ids.append(reinterpret_cast<const char*>(&id), sizeof(id));
  }
  EXPECT_EQ(calibration.at("token_ids_sha256"), sha256_hex(as_bytes_of(ids)));
  EXPECT_EQ(calibration.at("files").at(0).at("sha256"),
            sha256_hex(as_bytes_of(read_text(text_dir() / "calibration.jsonl"))));
  EXPECT_EQ(report.at("source").at("config_sha256"), sha256_hex(as_bytes_of(read_text(tiny_k3_dir() / "config.json"))));
  EXPECT_THAT(report.at("environment").at("blas").get<std::string>(), HasSubstr("OpenBLAS"));
  EXPECT_EQ(report.at("totals").at("output_tensor_bytes"), summary.output_bytes);
  // 3 and a scale for 64, and each matrix's weight_shape, 128 bits for 192 x 128 weights.
  EXPECT_DOUBLE_EQ(summary.bits_per_weight, 3.25 + 128.0 / (192 * 128));
  EXPECT_EQ(read_text(options.output / "quantization_report.json").find(temp.path().string()), std::string::npos)
      << "paths of this machine";
}

TEST(Quantize, ScratchIsWhatWasPlanned) {
  TempDir temp;
  for (const QuantizeRecipe recipe : {QuantizeRecipe::kStock, QuantizeRecipe::kTrefoil}) {
    const QuantizeOptions options = options_for(temp.path() / to_string(recipe), recipe, 16, 256);
    quantize(options);
    const json resources = report_of(options.output).at("resources");
    const double planned = resources.at("planned_scratch_bytes"), used = resources.at("peak_scratch_bytes");
    EXPECT_NEAR(used, planned, 0.05 * planned) << to_string(recipe);
    EXPECT_GT(resources.at("peak_memory_bytes"), 10'000'000);
  }
}

TEST(Quantize, ExpertsWithoutTokensGetADeclaredFallback) {
  TempDir temp;
  for (const QuantizeRecipe recipe : {QuantizeRecipe::kStock, QuantizeRecipe::kTrefoil}) {
    QuantizeOptions options = options_for(temp.path() / to_string(recipe), recipe, 1, 8);
    options.stock_zero_mask = recipe == QuantizeRecipe::kStock;  // the published tool would write zeros here
    const QuantizeSummary summary = quantize(options);
    EXPECT_GT(summary.experts_without_tokens, 0);
    std::map<int64_t, int> seen;
    const json report = report_of(options.output);
    for (const json& layer : report.at("layers")) {
      for (const json& matrix : layer.at("matrices")) {
        const int64_t tokens = matrix.at("tokens");
        ++seen[tokens];
        if (tokens > 0) continue;
        EXPECT_TRUE(matrix.contains("fallback")) << matrix;
        EXPECT_LT(matrix.at("weight_error").get<double>(), 0.2) << matrix;
      }
    }
    EXPECT_GT(seen[0], 0);
    EXPECT_GT(seen[1], 0);
    EXPECT_GT(seen[2], 0);
    EXPECT_GE(summary.fallbacks, seen[0]);
    EXPECT_THAT(summary.markdown, HasSubstr("Fallbacks:"));
  }
}

TEST(Quantize, ANanInTheTrunkIsAnErrorWithTheLayer) {
  TempDir temp;
  QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kStock);
  options.source = copy_of_tiny_k3(temp);
  overwrite(options.source, "language_model.model.layers.2.block_sparse_moe.routed_expert_norm.weight", 10, "\xC0\x7F");
  EXPECT_THAT(failure_of(options, ErrorCode::kCorrupt), HasSubstr("layer 2"));
}

TEST(Quantize, RtnCopiesNoNan) {
  TempDir temp;
  QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kRtn);
  options.source = copy_of_tiny_k3(temp);
  overwrite(options.source, "language_model.model.layers.2.block_sparse_moe.routed_expert_norm.weight", 10, "\xC0\x7F");
  EXPECT_THAT(failure_of(options, ErrorCode::kCorrupt),
              HasSubstr("routed_expert_norm.weight: infinity or NaN at element 5"));
}

TEST(Quantize, AScaleThatDoesNotDecodeNamesTheExpert) {
  TempDir temp;
  for (const QuantizeRecipe recipe : {QuantizeRecipe::kRtn, QuantizeRecipe::kTrefoil}) {
    QuantizeOptions options = options_for(temp.path() / to_string(recipe), recipe);
    options.source = temp.path() / "source";
    if (!fs::exists(options.source)) {
      copy_of_tiny_k3(temp);
      overwrite(options.source, "language_model.model.layers.3.block_sparse_moe.experts.7.w3.weight_scale", 5, "\xFF");
    }
    EXPECT_THAT(failure_of(options, ErrorCode::kCorrupt), HasSubstr("layers.3.block_sparse_moe.experts.7.w3"));
  }
}

TEST(Quantize, RefusesWhatIsNotAKimiK3WithMxfp4Experts) {
  TempDir temp;
  // an output of ours
  QuantizeOptions options = options_for(temp.path() / "first", QuantizeRecipe::kRtn);
  quantize(options);
  options.source = options.output;
  options.output = temp.path() / "second";
  EXPECT_THAT(failure_of(options, ErrorCode::kUnsupported), HasSubstr("already quantized to int3"));
  // another family
  options.source = copy_of_tiny_k3(temp);
  std::string config = read_text(options.source / "config.json");
  const std::string family = "\"kimi_linear\"";
  config.replace(config.find(family), family.size(), "\"qwen3_moe\"");
  write_text(options.source / "config.json", config);
  EXPECT_THAT(failure_of(options, ErrorCode::kUnsupported), HasSubstr("model_type"));
}

// kv_lora_rank is first used in layer 3: the layers before it must not be quantized first, and a dry run must see it.
TEST(Quantize, RefusesAConfigThatContradictsATensorOfALaterLayer) {
  TempDir temp;
  QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kRtn);
  options.source = copy_of_tiny_k3(temp);
  options.dry_run = true;
  std::string config = read_text(options.source / "config.json");
  const std::string rank = "\"kv_lora_rank\": 64";
  config.replace(config.find(rank), rank.size(), "\"kv_lora_rank\": 63");
  write_text(options.source / "config.json", config);
  EXPECT_THAT(failure_of(options, ErrorCode::kCorrupt), AllOf(HasSubstr("layers.3.self_attn.kv_a_proj_with_mqa"),
                                                              HasSubstr("[80, 256], expected BF16 [79, 256]")));
}

TEST(Quantize, RefusesASourceWithoutOneOfItsTensors) {
  TempDir temp;
  QuantizeOptions options = cut_options_for(temp, "out", QuantizeRecipe::kRtn);
  const std::string name = "language_model.model.layers.1.input_layernorm.weight";
  remove_tensor(options.source, name);
  EXPECT_THAT(failure_of(options, ErrorCode::kNotFound), HasSubstr(name));
}

TEST(Quantize, RefusesAnIncompleteOrUnexpectedSetOfExperts) {
  TempDir temp;
  QuantizeOptions options = cut_options_for(temp, "out", QuantizeRecipe::kRtn);
  const std::string last = "language_model.model.layers.2.block_sparse_moe.experts.7.w2";
  const std::string extra = "language_model.model.layers.2.block_sparse_moe.experts.8.w1.weight";
  add_tensor(options.source, "model-00003-of-000008.safetensors", extra, "BF16", {1}, "ab");
  EXPECT_THAT(failure_of(options, ErrorCode::kCorrupt), HasSubstr(extra));
  remove_tensor(options.source, extra);
  remove_tensor(options.source, last + ".weight_scale");
  EXPECT_THAT(failure_of(options, ErrorCode::kCorrupt), HasSubstr(last));
  remove_tensor(options.source, last + ".weight_packed");
  EXPECT_THAT(failure_of(options, ErrorCode::kNotFound), HasSubstr(last));
}

TEST(Quantize, RefusesTheSameFolderTwiceUnlessTold) {
  TempDir temp;
  QuantizeOptions options = cut_options_for(temp, "out", QuantizeRecipe::kRtn);
  quantize(options);
  const auto first = shards_of(options.output);
  EXPECT_THAT(failure_of(options, ErrorCode::kInvalidArgument), HasSubstr("not empty"));
  options.overwrite = true;
  options.group_size = 32;
  quantize(options);
  EXPECT_FALSE(first == shards_of(options.output));
  EXPECT_EQ(report_of(options.output).at("settings").at("group_size"), 32);
}

TEST(Quantize, ADryRunSaysTheSizesAndWritesNothing) {
  TempDir temp;
  QuantizeOptions options = cut_options_for(temp, "out", QuantizeRecipe::kTrefoil);
  options.dry_run = true;
  const QuantizeSummary plan = quantize(options);
  EXPECT_FALSE(fs::exists(options.output));
  EXPECT_EQ(plan.calibration_tokens, 256);
  options.dry_run = false;
  EXPECT_EQ(quantize(options).output_bytes, plan.output_bytes);
}

// The disk has room for the empty shards and fills up while the second MoE layer is written to them.
class FullDisk : public ProgressSink {
 public:
  void update(std::string_view stage, int64_t, int64_t) override {
    if (!limit_ && stage.starts_with("layer 2")) limit_.emplace(1 << 18);
  }
  void make_room() { limit_.reset(); }

 private:
  std::optional<testing::FileSizeLimit> limit_;
};

TEST(Quantize, AFullDiskLeavesNoFinalNamesAndLosesNothing) {
  TempDir temp;
  const QuantizeOptions undisturbed = options_for(temp.path() / "undisturbed", QuantizeRecipe::kRtn);
  quantize(undisturbed);
  const QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kRtn);
  FullDisk disk;
  EXPECT_THAT(failure_of(options, ErrorCode::kIo, &disk), AllOf(HasSubstr("model-0000"), HasSubstr("cannot write")));
  disk.make_room();
  const fs::path ledger = options.output / ".trefoil-partial/.job/ledger";
  EXPECT_TRUE(fs::exists(ledger / "L001.experts.00000.json")) << "what was finished is kept";
  quantize(options);
  EXPECT_TRUE(shards_of(options.output) == shards_of(undisturbed.output));
}

TEST(Quantize, ADiskWithoutRoomForTheEmptyShardsLeavesNothing) {
  TempDir temp;
  const QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kRtn);
  {
    const testing::FileSizeLimit limit(1 << 20);
    EXPECT_THAT(failure_of(options, ErrorCode::kIo), AllOf(HasSubstr("model-0000"), HasSubstr("set the size")));
  }
  EXPECT_FALSE(fs::exists(options.output));
}

TEST(Quantize, SomeLayersMakeAPartAndEqualTheWhole) {
  TempDir temp;
  const QuantizeOptions whole = options_for(temp.path() / "whole", QuantizeRecipe::kStock);
  quantize(whole);
  QuantizeOptions part = options_for(temp.path() / "part", QuantizeRecipe::kStock);
  part.layers = QuantizeOptions::LayerRange{0, 3};  // layer 0 is dense
  const QuantizeSummary summary = quantize(part);
  EXPECT_EQ(summary.layers, 2);
  const auto all = files_of(whole.output), some = files_of(part.output);
  EXPECT_EQ(some.size(), 5u) << "two shards, the reports, the sums";
  for (const auto& [name, contents] : shards_of(part.output)) EXPECT_TRUE(all.at(name) == contents) << name;
  EXPECT_TRUE(report_of(part.output).at("partial"));
  part.layers = QuantizeOptions::LayerRange{0, 1};
  part.output = temp.path() / "none";
  EXPECT_THAT(failure_of(part, ErrorCode::kInvalidArgument), HasSubstr("none of them has routed experts"));
}

TEST(Quantize, TextThatFillsNoRowIsRefused) {
  TempDir temp;
  QuantizeOptions options = options_for(temp.path() / "out", QuantizeRecipe::kStock, 1, 1024);
  write_text(temp.path() / "short.jsonl", "{\"text\": \"Too short.\"}\n");
  options.calibration = {temp.path() / "short.jsonl"};
  failure_of(options, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace trefoil
