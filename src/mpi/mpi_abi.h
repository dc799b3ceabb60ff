// What a module trefoil_mpi_*.so exports: the few calls that the program makes of an MPI, under one symbol. The program
// is linked with no MPI, and the two MPIs' own ABIs differ; this one is the same for both. Plain C types only.
#pragma once

namespace trefoil {

struct MpiModule {
  int version;              // kMpiModuleVersion of the sources it was built from
  int (*init)(void);        // 0, or what the MPI calls its error; FUNNELED: only the calling thread may call the others
  int (*rank)(void);        // in MPI_COMM_WORLD, which the others mean too
  int (*size)(void);        // ranks in it
  int (*barrier)(void);     // 0 once every rank has called it
  void (*abort)(int code);  // ends every rank; the launcher exits with `code` where its MPI passes it on
  int (*finalize)(void);    // 0 once every rank has called it, or nearly
};

inline constexpr int kMpiModuleVersion = 1;
inline constexpr const char* kMpiModuleSymbol = "trefoil_mpi_module";

using MpiModuleEntry = const MpiModule* (*)();

}  // namespace trefoil
