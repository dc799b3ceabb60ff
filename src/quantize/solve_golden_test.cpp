// The published recipe against the float64 reference of tests/golden/gptq (tests/golden/README.md).
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/file.h"
#include "checkpoint/safetensors.h"
#include "quantize/hessian.h"
#include "quantize/solve.h"
#include "support/test_support.h"

namespace trefoil {
namespace {

class GoldenFile {
 public:
  GoldenFile() : file_(testing::golden_dir() / "gptq/solve.safetensors"), header_(read_safetensors_header(file_)) {}

  template <typename T>
  std::vector<T> read(const std::string& name) const {
    for (const TensorInfo& tensor : header_.tensors) {
      if (tensor.name != name) continue;
      EXPECT_EQ(static_cast<size_t>(element_size(tensor.dtype)), sizeof(T)) << name;
      std::vector<T> values(tensor.size() / sizeof(T));
      file_.read_at(header_.data_start + tensor.begin,
                    {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(T)});
      return values;
    }
    ADD_FAILURE() << "no golden tensor " << name;
    return {};
  }

 private:
  InputFile file_;
  SafetensorsHeader header_;
};

// X^T X, unnormalised, as the golden losses are.
std::vector<float> plain_hessian(const std::vector<float>& inputs, int64_t dim) {
  HessianAccumulator accumulator(dim);
  accumulator.add(inputs, {});
  std::vector<float> hessian = accumulator.mean();
  for (float& value : hessian) value *= static_cast<float>(accumulator.tokens());
  return hessian;
}

double share_equal(const std::vector<int8_t>& codes, const std::vector<int32_t>& golden) {
  int64_t equal = 0;
  for (size_t i = 0; i < codes.size(); ++i) equal += codes[i] == golden[i];
  return static_cast<double>(equal) / static_cast<double>(codes.size());
}

struct GoldenCase {
  std::string name;
  nlohmann::json expected;
  SolveInput input;
  std::vector<float> weight, hessian;
};

class SolveGolden : public ::testing::Test {
 protected:
  void for_each_case(const std::function<void(const GoldenCase&)>& body) {
    const auto json = nlohmann::json::parse(testing::read_text(testing::golden_dir() / "gptq/solve.json"));
    for (const auto& [name, expected] : json.at("cases").items()) {
      SCOPED_TRACE(name);
      GoldenCase one{name, expected, {}, {}, {}};
      one.weight = file_.read<float>(name + ".weight");
      const std::vector<uint16_t> scale = file_.read<uint16_t>(name + ".stock_scale");
      one.input.group_size = 64;
      // A group is 64 columns; how many groups a row has follows from the inputs' width.
      const std::vector<float> inputs = file_.read<float>(name.substr(0, name.find('.')) + ".inputs");
      one.input.cols = static_cast<int64_t>(inputs.size()) / expected.at("tokens").get<int64_t>();
      one.input.rows = static_cast<int64_t>(one.weight.size()) / one.input.cols;
      one.input.weight = one.weight;
      ASSERT_EQ(static_cast<int64_t>(scale.size()), one.input.rows * one.input.cols / 64);
      one.hessian = plain_hessian(inputs, one.input.cols);
      body(one);
    }
  }
  GoldenFile file_;
};

TEST_F(SolveGolden, StockScalesAndRoundedCodesAreExact) {
  for_each_case([&](const GoldenCase& one) {
    const SolveResult rtn = solve(one.input, one.hessian, rtn_options());
    EXPECT_EQ(rtn.q.scale, file_.read<uint16_t>(one.name + ".stock_scale"));
    EXPECT_EQ(share_equal(rtn.q.codes, file_.read<int32_t>(one.name + ".codes_rtn")), 1.0);
    const double want = one.expected.at("loss_rtn");
    EXPECT_NEAR(rtn.loss, want, 1e-5 * want);
  });
}

TEST_F(SolveGolden, StockLossAgreesWithTheDoubleReference) {
  for_each_case([&](const GoldenCase& one) {
    for (const bool zero_mask : {false, true}) {
      const std::string suffix = zero_mask ? "stock_zero_mask" : "stock";
      const SolveResult stock = solve(one.input, one.hessian, stock_options(zero_mask));
      const double want = one.expected.at("loss_" + suffix);
      const double equal = share_equal(stock.q.codes, file_.read<int32_t>(one.name + ".codes_" + suffix));
      EXPECT_EQ(stock.q.scale, file_.read<uint16_t>(one.name + ".stock_scale"));
      // Every code equal in all twelve cases when measured; a code on a knife's edge may fall either way elsewhere, and
      // moves the loss by far less than this.
      EXPECT_NEAR(stock.loss, want, 1e-4 * want);
      EXPECT_GE(equal, 0.999);
      EXPECT_EQ(stock.zero_mask_active, zero_mask);
    }
  });
}

}  // namespace
}  // namespace trefoil
