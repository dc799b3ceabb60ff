// How long tasks tell their caller where they are. Libraries never print: they call a sink, the command line draws it.
#pragma once

#include <cstdint>
#include <string_view>

namespace trefoil {

// Calls may come from any thread, one at a time. The default implementation ignores everything.
class ProgressSink {
 public:
  virtual ~ProgressSink() = default;
  // `done` of `total` units of `stage` ("layer 3: experts") are finished; total 0 means unknown.
  virtual void update(std::string_view /*stage*/, int64_t /*done*/, int64_t /*total*/) {}
  // A fact a person should see once, such as a fallback that was taken.
  virtual void note(std::string_view /*message*/) {}
};

}  // namespace trefoil
