#include "trefoil/recode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <map>

#include "checkpoint/linear_storage.h"
#include "checkpoint/tensor_order.h"
#include "support/expect_error.h"
#include "support/packed_checkpoint.h"
#include "support/shard_edit.h"
#include "support/test_support.h"
#include "trefoil/error.h"

namespace trefoil {
namespace {

using ::testing::HasSubstr;
using testing::Json;
using testing::TempDir;

const std::string kExpert = "language_model.model.layers.1.block_sparse_moe.experts.2.";
constexpr const char* kShard = "model-00002-of-000008.safetensors";

class Recode : public ::testing::Test {
 protected:
  Recode() { testing::write_cut_model(source(), 2, 4); }

  fs::path source() const { return path("source"); }
  fs::path path(const std::string& name) const { return root_.path() / name; }

  fs::path make(const std::string& name, PackQuantizedSpec spec) const {
    testing::write_rtn_checkpoint(source(), path(name), spec);
    return path(name);
  }
  fs::path make_dense() const { return make("dense", {3, 64, PackedLayout::kDense, "static", "mse"}); }
  fs::path make_padded() const { return make("padded", {3, 64, PackedLayout::kPadded, "static", "mse"}); }
  fs::path make_w4() const { return make("w4", {4, 64, PackedLayout::kDense, "", "mse"}); }

  fs::path recode_to(PackedForm to, const fs::path& input, const std::string& name, int threads = 2) const {
    RecodeOptions options;
    options.input = input;
    options.output = path(name);
    options.to = to;
    options.threads = threads;
    recode(options);
    return options.output;
  }

  // The message of the Error that recoding ends with.
  std::string refusal(PackedForm to, const fs::path& input, const std::string& name) const {
    try {
      recode_to(to, input, name);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

 private:
  TempDir root_;
};

std::map<std::string, std::string> files_in(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      files[entry.path().lexically_relative(folder).string()] = testing::read_text(entry.path());
    }
  }
  return files;
}

// Compares without printing megabytes.
void expect_same_folder(const fs::path& a, const fs::path& b) {
  const auto files_a = files_in(a);
  const auto files_b = files_in(b);
  for (const auto& [name, bytes] : files_a) {
    const auto other = files_b.find(name);
    ASSERT_NE(other, files_b.end()) << name << " is missing";
    EXPECT_TRUE(other->second == bytes) << name << " differs";
  }
  EXPECT_EQ(files_a.size(), files_b.size());
}

std::vector<uint32_t> decoded_bits(const fs::path& folder, const std::string& module) {
  const Checkpoint checkpoint = Checkpoint::open(folder);
  const StoredLinear linear = resolve_linear(checkpoint, module);
  std::vector<float> weights(static_cast<size_t>(linear.out_features * linear.in_features));
  decode_linear(checkpoint, linear, 0, linear.out_features, weights);
  std::vector<uint32_t> bits;
  for (const float weight : weights) bits.push_back(std::bit_cast<uint32_t>(weight));
  return bits;
}

Json config_of(const fs::path& folder) {
  return Json::parse(testing::read_text(folder / "config.json"));
}
Json weights_of(const fs::path& folder) {
  return config_of(folder)["quantization_config"]["config_groups"]["group_0"]["weights"];
}

uint64_t data_start(const fs::path& shard) {
  return read_safetensors_header(InputFile(shard)).data_start;
}

TEST_F(Recode, StopsWhenAskedAndLeavesNothing) {
  const std::atomic<bool> stop = true;
  RecodeOptions options;
  options.input = make_dense();
  options.output = path("stopped");
  options.to = PackedForm::kW4;
  options.stop = &stop;
  try {
    recode(options);
    FAIL() << "expected an Error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCancelled);
  }
  EXPECT_FALSE(fs::exists(options.output));
}

TEST_F(Recode, ReplacesAnEarlierOutputWhenTold) {
  RecodeOptions options;
  options.input = make_dense();
  options.to = PackedForm::kW4;
  options.output = recode_to(PackedForm::kW3Padded, options.input, "out");
  EXPECT_TRUE(testing::fails_with(ErrorCode::kInvalidArgument, "--overwrite", [&] { recode(options); }));
  options.overwrite = true;
  recode(options);
  expect_same_folder(recode_to(PackedForm::kW4, options.input, "fresh"), options.output);
}

TEST_F(Recode, DenseToPaddedAndBackIsByteIdentical) {
  const fs::path dense = make_dense();
  const fs::path there = recode_to(PackedForm::kW3Padded, dense, "there");
  EXPECT_EQ(config_of(there)["quantization_config"]["version"], "0.17.1");
  EXPECT_EQ(testing::tensor_bytes(there, kExpert + "w1.weight_packed").size(), 192u * 13 * 4);
  expect_same_folder(dense, recode_to(PackedForm::kW3Dense, there, "back"));
}

TEST_F(Recode, PaddedToDenseAndBackIsByteIdentical) {
  const fs::path padded = make_padded();
  const fs::path there = recode_to(PackedForm::kW3Dense, padded, "there");
  EXPECT_EQ(config_of(there)["quantization_config"]["version"], "0.18.0");
  EXPECT_EQ(testing::tensor_bytes(there, kExpert + "w2.weight_packed").size(), 128u * 18 * 4);
  EXPECT_EQ(data_start(there / kShard) % 4096, 0u);
  expect_same_folder(padded, recode_to(PackedForm::kW3Padded, there, "back"));
}

TEST_F(Recode, ThreeBitsToFourAndBackIsByteIdentical) {
  for (const fs::path& three : {make_dense(), make_padded()}) {
    const std::string name = three.filename().string();
    const PackedForm form = name == "dense" ? PackedForm::kW3Dense : PackedForm::kW3Padded;
    const fs::path four = recode_to(PackedForm::kW4, three, name + "-w4");
    EXPECT_EQ(weights_of(four)["num_bits"], 4);
    EXPECT_TRUE(weights_of(four)["actorder"].is_null());
    EXPECT_EQ(weights_of(four)["observer"], "mse");
    const fs::path back = recode_to(form, four, name + "-back");
    EXPECT_EQ(weights_of(back)["actorder"], "static");
    expect_same_folder(three, back);
  }
}

TEST_F(Recode, LongWayRoundIsByteIdentical) {
  const fs::path dense = make_dense();
  const fs::path padded = recode_to(PackedForm::kW3Padded, dense, "1");
  const fs::path four = recode_to(PackedForm::kW4, padded, "2");
  expect_same_folder(padded, recode_to(PackedForm::kW3Padded, four, "3"));
  expect_same_folder(dense, recode_to(PackedForm::kW3Dense, four, "4"));
}

// compressed-tensors leaves shards sorted by dtype and name, which scatters an expert. A dense shard has it in one
// piece.
TEST_F(Recode, PackageOrderBecomesContiguousAndComesBack) {
  const fs::path padded = make_padded();
  for (const auto& entry : fs::directory_iterator(padded)) {
    if (entry.path().extension() != ".safetensors") continue;
    std::vector<TensorInfo> tensors = read_safetensors_header(InputFile(entry.path())).tensors;
    std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
      return precedes_in_package_order(a.dtype, a.name, b.dtype, b.name);
    });
    testing::RawShard sorted;
    sorted.header["__metadata__"] = {{"format", "pt"}};
    const testing::RawShard shard = testing::read_raw_shard(entry.path());
    for (const TensorInfo& tensor : tensors) {
      sorted.header[tensor.name] = shard.header[tensor.name];
      sorted.header[tensor.name]["data_offsets"] = {sorted.data.size(), sorted.data.size() + tensor.size()};
      sorted.data += shard.data.substr(tensor.begin, tensor.size());
    }
    testing::write_raw_shard(entry.path(), sorted);
  }
  testing::write_sums(padded);

  const fs::path dense = recode_to(PackedForm::kW3Dense, padded, "dense");
  const std::vector<TensorInfo> tensors = read_safetensors_header(InputFile(dense / kShard)).tensors;
  EXPECT_EQ(tensors[12].name, kExpert + "w1.weight_packed");  // after two experts of six tensors
  EXPECT_EQ(tensors[13].name, kExpert + "w1.weight_scale");
  EXPECT_EQ(tensors[17].name, kExpert + "w3.weight_scale");
  EXPECT_EQ(tensors[24].dtype, DType::kI64);
  expect_same_folder(padded, recode_to(PackedForm::kW3Padded, recode_to(PackedForm::kW4, dense, "w4"), "back"));
}

TEST_F(Recode, DecodedWeightsAreEqualBitForBit) {
  const fs::path dense = make_dense();
  for (const PackedForm form : {PackedForm::kW3Padded, PackedForm::kW4}) {
    const fs::path out = recode_to(form, dense, to_string(form));
    for (const char* matrix : {"w1", "w2", "w3"}) {
      EXPECT_TRUE(decoded_bits(out, kExpert + matrix) == decoded_bits(dense, kExpert + matrix)) << to_string(form);
    }
  }
}

// Nibble = 3-bit code + 4, lowest first; scales and shapes are the same bytes.
TEST_F(Recode, FourBitNibblesAreTheCodesPlusFour) {
  const fs::path dense = make_dense();
  testing::overwrite(dense, kExpert + "w1.weight_packed", 0, std::string("\x88\xC6\xFA", 3));  // codes 0 to 7
  const fs::path four = recode_to(PackedForm::kW4, dense, "four");
  EXPECT_EQ(testing::tensor_bytes(four, kExpert + "w1.weight_packed").substr(0, 4), "\x54\x76\x98\xBA");
  for (const char* suffix : {"w1.weight_scale", "w1.weight_shape"}) {
    EXPECT_EQ(testing::tensor_bytes(four, kExpert + suffix), testing::tensor_bytes(dense, kExpert + suffix));
  }
  for (const char c : testing::tensor_bytes(four, kExpert + "w2.weight_packed")) {
    for (const int nibble : {c & 15, (c >> 4) & 15}) EXPECT_TRUE(nibble >= 4 && nibble <= 11) << nibble;
  }
}

TEST_F(Recode, ThreadsDoNotChangeTheOutput) {
  const fs::path dense = make_dense();
  expect_same_folder(recode_to(PackedForm::kW4, dense, "one", 1), recode_to(PackedForm::kW4, dense, "four", 4));
}

TEST_F(Recode, SumsAndIndexAreTrueOfTheOutput) {
  const fs::path out = recode_to(PackedForm::kW4, make_dense(), "out");
  const std::string sums = testing::read_text(out / "SHA256SUMS");
  for (const auto& [name, bytes] : files_in(out)) {
    if (name == "SHA256SUMS") continue;
    EXPECT_THAT(sums, HasSubstr(sha256_of_file(out / name) + "  " + name + "\n"));
  }
  EXPECT_NO_THROW(Checkpoint::open(out));
}

TEST_F(Recode, FourBitsThatDoNotFitAreRefusedByNameAndLeaveNothing) {
  const fs::path four = make_w4();
  EXPECT_THAT(refusal(PackedForm::kW3Dense, four, "three"), HasSubstr("does not fit 3 bits (-4 to 3)"));
  EXPECT_FALSE(fs::exists(path("three")));
}

TEST_F(Recode, NamesTensorRowColumnAndCode) {
  const fs::path four = recode_to(PackedForm::kW4, make_dense(), "four");
  testing::overwrite(four, kExpert + "w1.weight_packed", 65, std::string("\xC5", 1));  // columns 2 and 3 of row 1
  EXPECT_THAT(refusal(PackedForm::kW3Dense, four, "three"),
              HasSubstr(kExpert + "w1.weight_packed: row 1 column 3: code 4 does not fit 3 bits (-4 to 3)"));
  EXPECT_FALSE(fs::exists(path("three")));
}

TEST_F(Recode, RefusesWhatIsNotItsBusiness) {
  const fs::path dense = make_dense();
  EXPECT_THAT(refusal(PackedForm::kW3Dense, dense, "out"), HasSubstr("is w3-dense already"));
  EXPECT_THAT(refusal(PackedForm::kW4, source(), "out"), HasSubstr("recode works on packed integers"));
  EXPECT_THAT(refusal(PackedForm::kW4, make("w8", {8, 64, PackedLayout::kDense, "", "mse"}), "out"),
              HasSubstr("8 bits"));
  EXPECT_THAT(refusal(PackedForm::kW4, dense, "dense"), HasSubstr("is the source"));
  EXPECT_THAT(refusal(PackedForm::kW4, dense, "w8"), HasSubstr("not empty"));
  EXPECT_FALSE(fs::exists(path("out")));
}

// A checkpoint that packs more than its experts cannot be described by the config written here.
TEST_F(Recode, RefusesPackedLinearsThatItsConfigWouldIgnore) {
  const fs::path dense = make_dense();
  const std::string module = "language_model.model.layers.1.self_attn.q_proj";
  testing::add_tensor(dense, kShard, module + ".weight_packed", "I32", {2, 6}, std::string(48, '\1'));
  testing::add_tensor(dense, kShard, module + ".weight_scale", "BF16", {2, 1}, std::string("\x80\x3F\x80\x3F", 4));
  testing::add_tensor(dense, kShard, module + ".weight_shape", "I64", {2},
                      std::string("\2\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0", 16));
  testing::remove_tensor(dense, module + ".weight");
  EXPECT_THAT(refusal(PackedForm::kW4, dense, "out"), HasSubstr("only routed experts may be"));
}

TEST_F(Recode, RefusesTwoLayoutsInOneCheckpoint) {
  const fs::path dense = make_dense();
  const std::string name = kExpert + "w1.weight_packed";
  const std::string padded = testing::tensor_bytes(make_padded(), name);
  testing::remove_tensor(dense, name);
  testing::add_tensor(dense, kShard, name, "I32", {192, 13}, padded);
  EXPECT_THAT(refusal(PackedForm::kW4, dense, "out"), HasSubstr("a checkpoint has one form"));
}

TEST(TensorOrder, DigitsCompareAsNumbers) {
  EXPECT_TRUE(natural_less("experts.9.w1", "experts.10.w1"));
  EXPECT_FALSE(natural_less("experts.10.w1", "experts.9.w1"));
  EXPECT_TRUE(natural_less("experts.10.w1", "experts.10.w2"));
  EXPECT_TRUE(natural_less("a", "a1"));
  EXPECT_FALSE(natural_less("a", "a"));
}

TEST(TensorOrder, ContiguousExpertsStayAsTheyAre) {
  std::vector<TensorPlan> tensors(4);
  tensors[0].name = "experts.7.w2.weight_packed";
  tensors[1].name = "experts.7.w2.weight_scale";
  tensors[2].name = "norm";
  tensors[3].name = "experts.3.w1.weight_packed";
  make_experts_contiguous(tensors);
  EXPECT_EQ(tensors[0].name, "experts.7.w2.weight_packed");
  EXPECT_EQ(tensors[3].name, "experts.3.w1.weight_packed");
}

}  // namespace
}  // namespace trefoil
