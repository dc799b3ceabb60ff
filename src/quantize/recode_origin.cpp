#include "quantize/recode_origin.h"

#include "base/error.h"
#include "checkpoint/json_object.h"
#include "checkpoint/tensor_order.h"

namespace trefoil {

const char* const kOriginFile = "recode.json";

std::optional<RecodeOrigin> load_origin(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder / kOriginFile, error)) return std::nullopt;
  const Json document = parse_strict_json(read_text_file(folder / kOriginFile), kOriginFile);
  const JsonObject original = JsonObject(document, "", kOriginFile).object("original");
  const std::optional<PackedForm> form = parse_packed_form(original.text("form"));
  if (!form) original.refuse("form", "w3-dense, w3-padded or w4", original.demand("form"));
  RecodeOrigin origin;
  origin.form = *form;
  if (original.find("actorder") != nullptr) origin.actorder = original.text("actorder");
  origin.observer = original.text("observer");
  origin.package_order = original.boolean("package_order");
  return origin;
}

RecodeOrigin describe_origin(const Checkpoint& checkpoint, PackedForm form, const QuantizationGroup& group) {
  RecodeOrigin origin{form, group.actorder, group.observer, true};
  for (uint32_t shard = 0; shard < checkpoint.shards().size(); ++shard) {
    if (!is_in_package_order(checkpoint.header(shard).tensors)) origin.package_order = false;
  }
  return origin;
}

std::string write_origin(const RecodeOrigin& origin) {
  const Json document = {{"original",
                          {{"form", to_string(origin.form)},
                           {"actorder", origin.actorder.empty() ? Json(nullptr) : Json(origin.actorder)},
                           {"observer", origin.observer},
                           {"package_order", origin.package_order}}}};
  return document.dump(2) + "\n";
}

}  // namespace trefoil
