#include "cli/kernel_options.h"

#include <map>
#include <string>

namespace trefoil::cli {

void add_kernel_options(CLI::App& command, KernelMode& kernels, TrunkForm& trunk) {
  command
      .add_option("--kernels", kernels,
                  "products with packed weights: exact (default), fast16, fast8, or reference, which decodes them")
      ->transform(CLI::CheckedTransformer(std::map<std::string, KernelMode>{{"reference", KernelMode::kReference},
                                                                            {"exact", KernelMode::kExact},
                                                                            {"fast16", KernelMode::kFast16},
                                                                            {"fast8", KernelMode::kFast8}}));
  command.add_option("--trunk", trunk, "everything but the routed experts: bf16 as stored (default), or int8")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, TrunkForm>{{"bf16", TrunkForm::kBf16}, {"int8", TrunkForm::kInt8}}));
}

}  // namespace trefoil::cli
