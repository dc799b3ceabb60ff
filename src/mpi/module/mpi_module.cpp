// Built once for each MPI found, and loaded by mpi_rank.cpp.
#include <mpi.h>

#include "mpi/mpi_abi.h"

namespace {

int init() {
  int provided = MPI_THREAD_SINGLE;
  const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  if (error != MPI_SUCCESS) return error;
  return provided >= MPI_THREAD_FUNNELED ? 0 : MPI_ERR_OTHER;
}

int rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int size() {
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int barrier() {
  return MPI_Barrier(MPI_COMM_WORLD);
}

void abort_all(int code) {
  MPI_Abort(MPI_COMM_WORLD, code);
}

int finalize() {
  return MPI_Finalize();
}

constexpr trefoil::MpiModule kModule = {trefoil::kMpiModuleVersion, init, rank, size, barrier, abort_all, finalize};

}  // namespace

extern "C" const trefoil::MpiModule* trefoil_mpi_module() {
  return &kModule;
}
