// What a frozen calibration set says about where its ids came from. What was accepted can be written and read again.
#include "base/check.h"
#include "fuzz.h"
#include "quantize/calibration_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace trefoil;
  CalibrationSet set;
  if (!fuzz::accepts([&] { read_calibration_json(fuzz::as_text(data, size), &set); })) return 0;
  constexpr size_t kListedSources = 100;
  CalibrationSet again;
  read_calibration_json(calibration_json(set).dump(), &again);
  TREFOIL_CHECK(again.files.size() == set.files.size());
  TREFOIL_CHECK(again.sources.size() == set.sources.size() || set.sources.size() > kListedSources);
  TREFOIL_CHECK(again.documents_used == set.documents_used);
  return 0;
}
