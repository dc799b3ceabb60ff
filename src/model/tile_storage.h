// Which stored Linears kernels read in tiles, and how.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "checkpoint/linear_storage.h"
#include "kernels/code_tiles.h"
#include "model/weights.h"

namespace trefoil {

// Whether a module or tensor belongs to a routed expert, by its name in the release.
bool is_routed_expert(std::string_view name);

// Nothing for storages that no tile holds: those are decoded.
std::optional<TileFormat> tile_format_of(const StoredLinear& stored);

// The rows of a matrix whose bytes are in memory, for pack_tiles(). `matrix` has a tile format.
CodeRows code_rows_of(const StoredMatrix& matrix);

// A Linear in memory as it is on disk: multiplied by packing a block of rows at a time, or decoded. Whoever makes one
// keeps the bytes alive.
std::unique_ptr<LinearWeight> make_stored_linear(const StoredMatrix& matrix);

}  // namespace trefoil
