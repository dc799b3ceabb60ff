// One of several processes that an MPI launcher (mpirun) started together. The program is linked with no MPI: a module
// trefoil_mpi_openmpi.so or trefoil_mpi_mpich.so, found beside the program or in ../lib/trefoil of an installation and
// nowhere else, makes the few calls there are. Not for moving data: ranks share work through files
// (docs/quantization.md, "Ranks of MPI").
//
// One object a process, used by the thread that made it.
#pragma once

#include <string>

namespace trefoil {

struct MpiModule;

class MpiRank {
 public:
  // `which` is "openmpi", "mpich", or "auto": the one whose launcher's variables are set. Error(kInvalidArgument) when
  // there is no such launcher or module, or the launcher is of another MPI: each process would be alone then.
  static MpiRank join(const std::string& which);

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::string name() const;  // "rank 1 of 3", counted from 0

  // Returns once every rank has called it.
  void barrier() const;
  // The last call. With code 0 the ranks part when all have called it; any other code ends them all at once, since a
  // launcher waits for those that are left, and those for this one. Returns `code`.
  int leave(int code) const;

 private:
  explicit MpiRank(const MpiModule& module);

  const MpiModule* module_;
  int rank_;
  int size_;
};

}  // namespace trefoil
